//! Prompts whose turn has not ended.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parlor_json::{Json, Object};

use super::candidate::agents_id;
use super::{Candidate, Claim, MatchRule, Pattern};
use crate::{Activity, Content, IdSource, MessageId, State};

/// Identifies a prompt in its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PromptId(pub u64);

/// The progress of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptState {
    /// It waits to be sent.
    Queued,
    /// The agent was sent it and has not responded.
    Sent,
    /// The agent accepted it with these fields and has not given its message id.
    Accepted(Object),
    /// It is in the transcript.
    Inserted {
        /// Its message.
        message: MessageId,
        /// The fields of the agent's response.
        fields: Object,
    },
}

/// The progress of a prompt's turn. The turn can start before the agent reports which prompt it is for only if the agent
/// was idle and had no other prompt when it was sent this one.
#[derive(Debug, Clone, PartialEq, Eq)]
enum TurnProgress {
    /// The agent had other work: the next idle after the prompt is inserted ends the turn.
    Unknown,
    /// The turn has not started.
    Awaited,
    /// The agent is running.
    Running,
    /// The agent became idle again, with this state.
    Ended(State),
}

/// A prompt whose turn has not ended. It dereferences to the data that its owner keeps with it.
#[derive(Debug, Clone)]
pub struct OpenPrompt<T> {
    /// Its id.
    pub id: PromptId,
    /// Its progress.
    pub state: PromptState,
    /// Whether the agent has accepted it: then an id in the agent's response decides which message it is.
    pub is_answered: bool,
    turn: TurnProgress,
    /// Its content, to compare with what the agent repeats.
    pub pattern: Arc<Pattern>,
    owned: T,
}

/// The prompts of a session whose turn has not ended, in the order of their arrival.
#[derive(Debug, Clone)]
pub struct OpenPrompts<T> {
    /// The oldest first.
    pub all: Vec<OpenPrompt<T>>,
}

impl<T> OpenPrompt<T> {
    /// Its message, if it is inserted.
    pub const fn message(&self) -> Option<&MessageId> {
        match &self.state {
            PromptState::Inserted { message, .. } => Some(message),
            PromptState::Queued | PromptState::Sent | PromptState::Accepted(_) => None,
        }
    }

    /// Whether it is in the transcript.
    pub const fn is_inserted(&self) -> bool {
        self.message().is_some()
    }

    /// Whether the agent was sent it and it is not in the transcript.
    pub const fn is_with_agent(&self) -> bool {
        matches!(self.state, PromptState::Sent | PromptState::Accepted(_))
    }

    /// Whether the agent was sent it and is running what can only be its turn.
    pub(crate) fn is_running_early(&self) -> bool {
        self.is_with_agent() && self.turn == TurnProgress::Running
    }

    /// Marks it as accepted by the agent.
    pub fn accept(&mut self, response: Object) {
        self.is_answered = true;
        match &mut self.state {
            PromptState::Inserted { fields, .. } => *fields = response,
            PromptState::Queued | PromptState::Sent | PromptState::Accepted(_) => {
                self.state = PromptState::Accepted(response);
            }
        }
    }

    /// Marks it as inserted, or replaces the message that it was matched with.
    pub fn insert(&mut self, message: MessageId) {
        let fields = match &mut self.state {
            PromptState::Accepted(fields) | PromptState::Inserted { fields, .. } => std::mem::take(fields),
            PromptState::Queued | PromptState::Sent => Object::default(),
        };
        self.state = PromptState::Inserted { message, fields };
    }

    /// Marks the turn of an inserted prompt as ended.
    pub(crate) fn end(&mut self, state: &State) {
        if self.is_inserted() {
            self.turn = TurnProgress::Ended(state.clone());
        }
    }

    /// Queues it again for the next agent; its turn has not started.
    pub(crate) fn requeue(&mut self) {
        (self.state, self.turn, self.is_answered) = (PromptState::Queued, TurnProgress::Unknown, false);
    }

    fn on_state(&mut self, state: &State) {
        let is_idle = state.activity == Activity::Idle;
        if is_idle && (self.is_inserted() || self.is_running_early()) {
            self.turn = TurnProgress::Ended(state.clone());
        } else if !is_idle && self.is_with_agent() && self.turn == TurnProgress::Awaited {
            self.turn = TurnProgress::Running;
        }
    }
}

impl<T> Deref for OpenPrompt<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.owned
    }
}

impl<T> DerefMut for OpenPrompt<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.owned
    }
}

impl<T> Default for OpenPrompts<T> {
    fn default() -> Self {
        Self { all: Vec::new() }
    }
}

impl<T> OpenPrompts<T> {
    /// Queues a prompt with this content.
    pub fn push(&mut self, id: PromptId, content: &Json, owned: T) {
        self.push_before(id, content, owned, |_| false);
    }

    /// Queues a prompt with this content before the first queued one that `is_later`.
    pub(crate) fn push_before(
        &mut self,
        id: PromptId,
        content: &Json,
        owned: T,
        is_later: impl Fn(&T) -> bool,
    ) {
        let is_later = |open: &OpenPrompt<T>| open.state == PromptState::Queued && is_later(&open.owned);
        let index = self.all.iter().position(is_later).unwrap_or(self.all.len());
        let pattern = Arc::new(Pattern::of(&Content::parse(content.raw()).unwrap_or_default()));
        let (state, turn) = (PromptState::Queued, TurnProgress::Unknown);
        self.all.insert(index, OpenPrompt { id, state, is_answered: false, turn, pattern, owned });
    }

    /// One prompt.
    pub fn get(&self, id: PromptId) -> Option<&OpenPrompt<T>> {
        self.all.iter().find(|open| open.id == id)
    }

    /// One prompt, to change it.
    pub fn get_mut(&mut self, id: PromptId) -> Option<&mut OpenPrompt<T>> {
        self.all.iter_mut().find(|open| open.id == id)
    }

    /// Removes a prompt that the agent rejected, or whose turn the caller no longer follows.
    pub fn remove(&mut self, id: PromptId) -> Option<OpenPrompt<T>> {
        let index = self.all.iter().position(|open| open.id == id)?;
        Some(self.all.remove(index))
    }

    /// The latest inserted prompt: its turn is running.
    pub fn running(&self) -> Option<&OpenPrompt<T>> {
        self.all.iter().rev().find(|open| open.is_inserted())
    }

    /// The prompts that the agent accepted without a message id.
    pub fn accepted(&self) -> Vec<PromptId> {
        let accepted = self.all.iter().filter(|open| matches!(open.state, PromptState::Accepted(_)));
        accepted.map(|open| open.id).collect()
    }

    /// The oldest prompt sent and not inserted that equals a whole user message.
    pub fn equal_to(&self, content: &Content) -> Option<PromptId> {
        let equal = self.all.iter().find(|open| open.is_with_agent() && open.pattern.equals(content));
        equal.map(|open| open.id)
    }

    /// The prompts that a user message may be, in the order in which the agent repeats them: those that it was sent, and the
    /// inserted ones in `unnamed`, for which it has given no id.
    pub fn claims(
        &self,
        unnamed: impl Iterator<Item = (MessageId, Arc<Pattern>)>,
        rule: MatchRule,
    ) -> Vec<(Claim, Arc<Pattern>)> {
        let sent = self.all.iter().filter(|open| open.is_with_agent());
        let sent = sent.map(|open| (Claim::Prompt(open.id), open.pattern.clone()));
        let unnamed = unnamed.map(|(message, pattern)| (Claim::Message(message), pattern));
        match rule {
            // An agent that has given no id for a prompt until it is inserted probably does not repeat it.
            MatchRule::Equal => sent.chain(unnamed).collect(),
            MatchRule::EqualText => unnamed.chain(sent).collect(),
        }
    }

    /// Starts a candidate for a new user message. `None` if there are no claims.
    pub fn candidate(
        &self,
        id: &MessageId,
        id_source: IdSource,
        claims: &[(Claim, Arc<Pattern>)],
        rule: MatchRule,
    ) -> Option<Candidate> {
        Candidate::new(agents_id(id, id_source), claims, self.accepted().first().copied(), rule)
    }

    /// Removes prompts that are no longer with the agent from a candidate; returns whether any claim is left.
    pub fn narrow(&self, candidate: &mut Candidate) -> bool {
        candidate.retain(|claim| match claim {
            Claim::Prompt(prompt) => self.get(*prompt).is_some_and(OpenPrompt::is_with_agent),
            Claim::Message(_) => true,
        })
    }

    /// Marks all queued prompts as sent and returns their ids. `is_idle`: the agent has reported that it is idle.
    pub fn send_queued(&mut self, is_idle: bool) -> Vec<PromptId> {
        let mut is_free = is_idle && self.all.iter().all(|open| open.state == PromptState::Queued);
        let queued = self.all.iter_mut().filter(|open| open.state == PromptState::Queued);
        let sent = queued.map(|open| {
            open.state = PromptState::Sent;
            open.turn =
                if std::mem::take(&mut is_free) { TurnProgress::Awaited } else { TurnProgress::Unknown };
            open.id
        });
        sent.collect()
    }

    /// Tracks a state that the agent reports, or in which it left the session.
    pub fn on_state(&mut self, state: &State) {
        self.all.iter_mut().for_each(|open| open.on_state(state));
    }

    /// Removes and returns the prompts whose turn has ended, each with the state that ended it.
    pub fn take_ended(&mut self) -> Vec<(OpenPrompt<T>, State)> {
        let mut ended = Vec::new();
        for open in
            self.all.extract_if(.., |open| open.is_inserted() && matches!(open.turn, TurnProgress::Ended(_)))
        {
            if let TurnProgress::Ended(state) = open.turn.clone() {
                ended.push((open, state));
            }
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(activity: Activity, reason: &str) -> State {
        State { activity, stop_reason: Some(reason.into()), fields: Object::default(), meta: None }
    }

    /// Runs a script and shows which prompts each step ends, and by the state of which step: `+N` queues and sends a
    /// prompt, `aN` accepts it, `iN` inserts it, `run` and `idle` are states.
    fn ended(mut is_idle: bool, script: &str) -> String {
        let mut prompts = OpenPrompts::default();
        let mut ended = Vec::new();
        for (index, word) in script.split(' ').enumerate() {
            let id = || PromptId(word[1..].parse().unwrap());
            if word == "run" || word == "idle" {
                is_idle = word == "idle";
                let activity = if is_idle { Activity::Idle } else { Activity::Running };
                prompts.on_state(&state(activity, &index.to_string()));
            } else if word.starts_with('+') {
                prompts.push(id(), &Json::parse("[]").unwrap(), ());
                assert_eq!(prompts.send_queued(is_idle), [id()]);
            } else if word.starts_with('a') {
                prompts.get_mut(id()).unwrap().accept(Object::default());
            } else {
                prompts.get_mut(id()).unwrap().insert("m".into());
            }
            let now = prompts.take_ended();
            let now =
                now.iter().map(|(open, by)| format!("{}<{}", open.id.0, by.stop_reason.as_ref().unwrap()));
            ended.push(now.reduce(|all, one| format!("{all},{one}")).unwrap_or_else(|| ".".to_owned()));
        }
        ended.join(" ")
    }

    #[test]
    fn the_idle_that_ends_a_turn_is_the_one_after_it_ran_or_after_the_prompt_was_inserted() {
        for (is_idle, script, expected) in [
            // The turn is found however late the agent reports which prompt it is for.
            (true, "+1 a1 i1 run idle", ". . . . 1<4"),
            (true, "+1 run i1 idle", ". . . 1<3"),
            (true, "+1 run idle i1", ". . . 1<2"),
            (true, "+1 run a1 idle i1", ". . . . 1<3"),
            (true, "+1 i1 idle", ". . 1<2"),
            // An idle before the turn ran does not end it.
            (true, "+1 idle i1 run idle", ". . . . 1<4"),
            // The end of work that ran when the prompt was sent does not end it.
            (false, "+1 idle run idle i1 idle", ". . . . . 1<5"),
            // Only the first of several prompts can have started.
            (true, "+1 +2 run idle i1 i2 idle", ". . . . 1<3 . 2<6"),
            (true, "+1 +2 i1 run idle i2 run idle", ". . . . 1<4 . . 2<7"),
            (true, "+1 +2 i1 i2 run idle", ". . . . . 1<5,2<5"),
        ] {
            assert_eq!(ended(is_idle, script), expected, "{script}");
        }
    }

    #[test]
    fn a_prompt_keeps_the_fields_of_the_agents_response() {
        let mut prompts = OpenPrompts::default();
        let fields = Object::new().with("a", 1_u64);
        prompts.push(PromptId(1), &Json::parse("[]").unwrap(), ());
        prompts.send_queued(true);
        let open = prompts.get_mut(PromptId(1)).unwrap();
        open.accept(fields.clone());
        open.insert("m".into());
        open.insert("n".into());
        let expected = PromptState::Inserted { message: "n".into(), fields };
        assert_eq!(open.state, expected);
        open.accept(Object::default());
        assert_eq!(open.state, PromptState::Inserted { message: "n".into(), fields: Object::default() });
    }
}
