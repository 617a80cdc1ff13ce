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

/// How far a prompt has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptState {
    /// It waits to be sent.
    Queued,
    /// The agent has it and has not answered.
    Sent,
    /// The agent accepted it with these fields and has not named its message.
    Accepted(Object),
    /// It is in the conversation.
    Inserted {
        /// Its message.
        message: MessageId,
        /// What the agent said when it accepted it.
        fields: Object,
    },
}

/// What was seen of the turn of a prompt. Only an agent that was idle and had no other prompt when it was sent this one
/// can begin its turn before it says which prompt that is for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum TurnProgress {
    /// The agent had something else to do: the next idle after the prompt is in the conversation ends the turn.
    Unknown,
    /// Nothing so far.
    Awaited,
    /// The agent runs.
    Running,
    /// The agent was idle again.
    Ended(State),
}

/// A prompt whose turn has not ended. It dereferences to what its owner keeps with it.
#[derive(Debug, Clone)]
pub struct OpenPrompt<T> {
    /// Its id.
    pub id: PromptId,
    /// How far it has come.
    pub state: PromptState,
    /// Whether the agent has accepted it: then an id in its response decides which message it is.
    pub is_answered: bool,
    turn: TurnProgress,
    /// Its content, to compare with what the agent repeats.
    pub pattern: Arc<Pattern>,
    owned: T,
}

/// All prompts of a session whose turn has not ended, in the order they came.
#[derive(Debug, Clone)]
pub struct OpenPrompts<T> {
    /// The oldest first.
    pub all: Vec<OpenPrompt<T>>,
}

impl<T> OpenPrompt<T> {
    /// Its message, if it is in the conversation.
    pub const fn message(&self) -> Option<&MessageId> {
        match &self.state {
            PromptState::Inserted { message, .. } => Some(message),
            PromptState::Queued | PromptState::Sent | PromptState::Accepted(_) => None,
        }
    }

    /// Whether it is in the conversation.
    pub const fn is_inserted(&self) -> bool {
        self.message().is_some()
    }

    /// Whether the agent has it and it is not in the conversation.
    pub const fn is_with_agent(&self) -> bool {
        matches!(self.state, PromptState::Sent | PromptState::Accepted(_))
    }

    /// Whether the agent has it and runs what can only be its turn.
    pub(crate) fn is_running_early(&self) -> bool {
        self.is_with_agent() && self.turn == TurnProgress::Running
    }

    /// The agent accepted it.
    pub fn accept(&mut self, said: Object) {
        self.is_answered = true;
        match &mut self.state {
            PromptState::Inserted { fields, .. } => *fields = said,
            PromptState::Queued | PromptState::Sent | PromptState::Accepted(_) => {
                self.state = PromptState::Accepted(said);
            }
        }
    }

    /// It is in the conversation, or is another message there than it was taken for.
    pub fn insert(&mut self, message: MessageId) {
        let fields = match &mut self.state {
            PromptState::Accepted(fields) | PromptState::Inserted { fields, .. } => std::mem::take(fields),
            PromptState::Queued | PromptState::Sent => Object::default(),
        };
        self.state = PromptState::Inserted { message, fields };
    }

    /// The agent does not have it any more: it waits for the next one, which begins its turn anew.
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
        let pattern = Arc::new(Pattern::of(&Content::parse(content.raw()).unwrap_or_default()));
        let (state, turn) = (PromptState::Queued, TurnProgress::Unknown);
        self.all.push(OpenPrompt { id, state, is_answered: false, turn, pattern, owned });
    }

    /// One prompt.
    pub fn get(&self, id: PromptId) -> Option<&OpenPrompt<T>> {
        self.all.iter().find(|open| open.id == id)
    }

    /// One prompt, to change it.
    pub fn get_mut(&mut self, id: PromptId) -> Option<&mut OpenPrompt<T>> {
        self.all.iter_mut().find(|open| open.id == id)
    }

    /// Removes a prompt that the agent did not accept, or whose turn the caller does not follow any more.
    pub fn remove(&mut self, id: PromptId) -> Option<OpenPrompt<T>> {
        let place = self.all.iter().position(|open| open.id == id)?;
        Some(self.all.remove(place))
    }

    /// The latest prompt in the conversation: its turn runs.
    pub fn running(&self) -> Option<&OpenPrompt<T>> {
        self.all.iter().rev().find(|open| open.is_inserted())
    }

    /// The prompts that the agent accepted without saying which message they are.
    pub fn accepted(&self) -> Vec<PromptId> {
        let accepted = self.all.iter().filter(|open| matches!(open.state, PromptState::Accepted(_)));
        accepted.map(|open| open.id).collect()
    }

    /// The oldest prompt with the agent that equals a whole user message.
    pub fn equal_to(&self, content: &Content) -> Option<PromptId> {
        let equal = self.all.iter().find(|open| open.is_with_agent() && open.pattern.equals(content));
        equal.map(|open| open.id)
    }

    /// Begins a candidate for a new user message: it may be a prompt that the agent has, or repeat one of the `unnamed`
    /// messages of prompts, for which the agent has given no id. `None` if there are neither.
    pub fn candidate(
        &self,
        id: &MessageId,
        naming: IdSource,
        unnamed: impl Iterator<Item = (MessageId, Arc<Pattern>)>,
        rule: MatchRule,
    ) -> Option<Candidate> {
        let prompts = self.all.iter().filter(|open| open.is_with_agent());
        let prompts = prompts.map(|open| (Claim::Prompt(open.id), open.pattern.clone()));
        let claims = prompts.chain(unnamed.map(|(message, pattern)| (Claim::Message(message), pattern)));
        Candidate::new(agents_id(id, naming), claims, self.accepted().first().copied(), rule)
    }

    /// Removes the prompts that the agent does not have any more from a candidate; whether any claim is left.
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

    /// The agent reports a state, or has left the session in it.
    pub fn on_state(&mut self, state: &State) {
        self.all.iter_mut().for_each(|open| open.on_state(state));
    }

    /// Removes and returns the prompts whose turn has ended, each with the state that ended it: those in the conversation when the
    /// agent was idle, and those that came into it after the agent was idle again.
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

    /// Which prompts each word of a script ends, and by which word's state: `+N` queues and sends a prompt, `aN` accepts
    /// and `iN` inserts it, `run` and `idle` are states.
    fn ended(mut is_idle: bool, script: &str) -> String {
        let mut prompts = OpenPrompts::default();
        let mut ended = Vec::new();
        for (place, word) in script.split(' ').enumerate() {
            let id = || PromptId(word[1..].parse().unwrap());
            if word == "run" || word == "idle" {
                is_idle = word == "idle";
                let activity = if is_idle { Activity::Idle } else { Activity::Running };
                prompts.on_state(&state(activity, &place.to_string()));
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
            // However late the agent says which prompt the turn is for.
            (true, "+1 a1 i1 run idle", ". . . . 1<4"),
            (true, "+1 run i1 idle", ". . . 1<3"),
            (true, "+1 run idle i1", ". . . 1<2"),
            (true, "+1 run a1 idle i1", ". . . . 1<3"),
            (true, "+1 i1 idle", ". . 1<2"),
            // An idle before the turn ran ends nothing.
            (true, "+1 idle i1 run idle", ". . . . 1<4"),
            // Nor does the end of what ran when the prompt was sent.
            (false, "+1 idle run idle i1 idle", ". . . . . 1<5"),
            // Only the first of several can have begun.
            (true, "+1 +2 run idle i1 i2 idle", ". . . . 1<3 . 2<6"),
            (true, "+1 +2 i1 run idle i2 run idle", ". . . . 1<4 . . 2<7"),
            (true, "+1 +2 i1 i2 run idle", ". . . . . 1<5,2<5"),
        ] {
            assert_eq!(ended(is_idle, script), expected, "{script}");
        }
    }

    #[test]
    fn a_prompt_keeps_what_the_agent_said_when_it_accepted_it() {
        let mut prompts = OpenPrompts::default();
        let said = Object::parse(&serde_json::value::RawValue::from_string(r#"{"a":1}"#.to_owned()).unwrap());
        prompts.push(PromptId(1), &Json::parse("[]").unwrap(), ());
        prompts.send_queued(true);
        let open = prompts.get_mut(PromptId(1)).unwrap();
        open.accept(said.clone().unwrap());
        open.insert("m".into());
        open.insert("n".into());
        let expected = PromptState::Inserted { message: "n".into(), fields: said.unwrap() };
        assert_eq!(open.state, expected);
        open.accept(Object::default());
        assert_eq!(open.state, PromptState::Inserted { message: "n".into(), fields: Object::default() });
    }
}
