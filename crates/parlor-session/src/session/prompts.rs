//! Prompts on their way into the conversation.

use std::collections::VecDeque;
use std::sync::Arc;

use parlor_json::{Json, JsonRef, JsonStr, Object};

use super::echo::blocks;
use super::pattern::Pattern;
use super::{ClientId, Clients, Effect, Scope, Step, string_member};
use crate::stored::{read_state, state_text};
use crate::{Activity, MessageId, Refused, State};

/// Names a prompt in its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PromptId(pub u64);

/// What a client wants to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// Its name.
    pub id: PromptId,
    /// Who sent it.
    pub by: ClientId,
    /// Its content: a list of blocks.
    pub content: Json,
    /// What else the request said.
    pub more: Object,
    /// The client's own name for it: the same again is the same prompt.
    pub key: Option<JsonStr>,
}

/// A prompt that waits, as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Its name.
    pub id: PromptId,
    /// What it says.
    pub text: String,
    /// Who sent it.
    pub by: ClientId,
}

/// What came of a prompt, for who sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// It is in the conversation.
    Accepted {
        /// Its message.
        message: MessageId,
        /// What else the agent said.
        fields: Object,
    },
    /// Its turn has ended.
    Ended {
        /// Its message.
        message: MessageId,
        /// How.
        state: State,
        /// What the agent said when it took the prompt.
        fields: Object,
    },
    /// It was withdrawn before it was in the conversation, or its sender closed the session before its turn ended.
    Withdrawn {
        /// Who withdrew it, if that is known.
        by: Option<ClientId>,
    },
    /// The agent did not take it.
    Rejected {
        /// What the agent said.
        error: Json,
        /// Who withdrew it before, if anybody did.
        by: Option<ClientId>,
    },
    /// No agent stayed for long enough to take it: the state in which the last one left the session.
    Failed(State),
    /// Too many prompts wait.
    TooMany {
        /// How many may.
        limit: usize,
    },
    /// The conversation has no room for it.
    NoRoom(Refused),
}

/// How far a prompt has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// It waits here.
    Held,
    /// The agent has it and has not said more.
    Sent,
    /// The agent took it and has not named it.
    Accepted(Object),
    /// It is in the conversation, and its turn has not ended.
    Inserted {
        /// Its message.
        message: MessageId,
        /// What the agent said when it took it.
        fields: Object,
    },
}

impl Stage {
    /// The prompt's message, if it is in the conversation.
    pub fn message(&self) -> Option<&MessageId> {
        match self {
            Self::Inserted { message, .. } => Some(message),
            Self::Held | Self::Sent | Self::Accepted(_) => None,
        }
    }
}

/// A prompt whose turn has not ended.
#[derive(Debug, Clone)]
pub(super) struct Open {
    pub(super) prompt: Prompt,
    pub(super) stage: Stage,
    /// Its content, to compare with what the agent repeats.
    pub(super) pattern: Arc<Pattern>,
    /// The last change before the agent was given it.
    pub(super) sent_after: u64,
    /// Whether the agent has answered it.
    is_answered: bool,
    turn: Turn,
    /// Who has no answer yet: its sender, and those who sent it again.
    askers: Vec<Asker>,
    /// Who withdrew it, if the agent has it and was told so.
    withdrawn: Option<ClientId>,
    /// Whether the agent was told to cancel its turn while it had this prompt, which is still wanted: if the agent drops
    /// it, it is sent again.
    spared: bool,
    /// How many agents were gone before they took it.
    returned: u8,
}

/// What was seen of the turn of a prompt that is not in the conversation. Only an agent that was idle and had no other
/// prompt when it was given this one can begin its turn without saying which prompt that is for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Turn {
    /// The agent had something else to do.
    Unknown,
    /// Nothing so far.
    Awaited,
    /// The agent runs.
    Begun,
    /// The agent was idle again.
    Over(State),
}

/// Somebody who wants to know what comes of a prompt.
#[derive(Debug, Clone, Copy)]
struct Asker {
    id: PromptId,
    by: ClientId,
    /// Whether the end of the turn is the answer.
    waits: bool,
}

/// What became of a prompt that had a key.
#[derive(Debug, Clone)]
struct Past {
    key: JsonStr,
    /// Its message; `None` if it was withdrawn.
    message: Option<MessageId>,
    /// How its turn ended, if it has.
    ended: Option<State>,
}

/// All prompts whose turn has not ended, in the order they came, and what became of the last ones that had a key.
#[derive(Debug, Clone, Default)]
pub(super) struct Prompts {
    open: Vec<Open>,
    past: VecDeque<Past>,
    /// The greatest name that one ever had. No other one gets a name that somebody may still use for an earlier one.
    last: u64,
}

/// How many prompts may wait in one session, and how many may ask for the same one.
const MAX_HELD: usize = 64;

/// How many keys are remembered.
const MAX_KEYS: usize = 256;

/// After how many agents that were gone before they took it a prompt has failed.
const MAX_RETURNED: u8 = 2;

const KEPT: &str = "held";
const KEYS: &str = "keys";
const LAST: &str = "lastPrompt";

impl Prompts {
    /// The greatest name that a prompt ever had, 0 if there was none.
    pub(super) fn last(&self) -> PromptId {
        PromptId(self.last)
    }

    pub(super) fn add(&mut self, prompt: Prompt, waits: bool, out: &mut Step) {
        let asker = Asker { id: prompt.id, by: prompt.by, waits };
        if let Some(key) = &prompt.key {
            let same = |open: &&mut Open| open.prompt.key.as_ref() == Some(key) && !open.is_dropped();
            if let Some(open) = self.open.iter_mut().find(same) {
                open.resent(asker, out);
                return;
            }
            if let Some(past) = self.past.iter().find(|past| past.key == *key) {
                asker.settle(past.outcome(waits), out);
                return;
            }
        }
        if self.open.iter().filter(|open| open.is_waiting()).count() >= MAX_HELD {
            asker.settle(Settled::TooMany { limit: MAX_HELD }, out);
            return;
        }
        self.last = self.last.max(prompt.id.0);
        self.open.push(Open::new(prompt, vec![asker]));
        out.upkeep = true;
    }

    pub(super) fn get(&self, id: PromptId) -> Option<&Open> {
        self.open.iter().find(|open| open.prompt.id == id)
    }

    fn get_mut(&mut self, id: PromptId) -> Option<&mut Open> {
        self.open.iter_mut().find(|open| open.prompt.id == id)
    }

    pub(super) fn held(&self) -> Vec<Held> {
        let waiting = self.open.iter().filter(|open| open.is_waiting());
        waiting
            .map(|open| {
                let by = open.askers.last().map_or(open.prompt.by, |asker| asker.by);
                Held { id: open.prompt.id, text: blocks(&open.prompt.content).to_text(), by }
            })
            .collect()
    }

    /// The names of the prompts that wait.
    pub(super) fn waiting(&self) -> Vec<PromptId> {
        self.open.iter().filter(|open| open.is_waiting()).map(|open| open.prompt.id).collect()
    }

    pub(super) fn any_open(&self) -> bool {
        self.open.iter().any(|open| !open.is_dropped())
    }

    /// Whether the agent has any.
    pub(super) fn any_with_agent(&self) -> bool {
        self.open.iter().any(|open| open.stage != Stage::Held)
    }

    pub(super) fn first_held(&self) -> Option<PromptId> {
        self.open.iter().find(|open| open.stage == Stage::Held).map(|open| open.prompt.id)
    }

    /// The first one that too many agents were gone with before they took it. The others have one try left.
    pub(super) fn take_hopeless(&mut self) -> Option<PromptId> {
        let mut hopeless =
            self.open.iter_mut().filter(|open| open.stage == Stage::Held && open.returned >= MAX_RETURNED);
        let first = hopeless.next()?.prompt.id;
        hopeless.for_each(|open| open.returned = MAX_RETURNED - 1);
        Some(first)
    }

    /// The prompts that the agent has and that are not in the conversation.
    pub(super) fn with_agent(&self) -> impl Iterator<Item = &Open> {
        self.open.iter().filter(|open| open.is_with_agent())
    }

    /// The prompt that is a message now.
    pub(super) fn of_message(&self, message: &MessageId) -> Option<&Open> {
        self.open.iter().find(|open| open.stage.message() == Some(message))
    }

    pub(super) fn accepted_unnamed(&self) -> Vec<PromptId> {
        let unnamed = |open: &&Open| matches!(open.stage, Stage::Accepted(_));
        self.open.iter().filter(unnamed).map(|open| open.prompt.id).collect()
    }

    /// The latest prompt whose turn runs.
    pub(super) fn running(&self) -> Option<&Prompt> {
        self.open.iter().rev().find(|open| open.stage.message().is_some()).map(|open| &open.prompt)
    }

    /// The message of the latest prompt whose turn runs.
    pub(super) fn running_message(&self) -> Option<&MessageId> {
        self.open.iter().rev().find_map(|open| open.stage.message())
    }

    /// Who withdrew the latest prompt whose turn runs, if somebody did so before it was in the conversation.
    pub(super) fn running_withdrawn_by(&self) -> Option<ClientId> {
        self.open.iter().rev().find(|open| open.is_inserted())?.withdrawn
    }

    /// Hands all that wait to the agent. `seq` is the last change, `is_idle` whether the agent reports that it is.
    pub(super) fn send_all(&mut self, seq: u64, is_idle: bool, out: &mut Step) {
        let mut is_free = is_idle && !self.any_with_agent();
        for open in self.open.iter_mut().filter(|open| open.stage == Stage::Held) {
            open.stage = Stage::Sent;
            open.sent_after = seq;
            open.turn = if std::mem::take(&mut is_free) { Turn::Awaited } else { Turn::Unknown };
            out.effects.push(Effect::Send(open.prompt.clone()));
        }
    }

    /// The agent reports what it does: a prompt that is not in the conversation may have its turn.
    pub(super) fn reported(&mut self, state: &State) {
        for open in self.open.iter_mut().filter(|open| open.is_with_agent()) {
            match (&open.turn, &state.activity) {
                (Turn::Begun, Activity::Idle) => open.turn = Turn::Over(state.clone()),
                (Turn::Awaited, activity) if activity.is_busy() => open.turn = Turn::Begun,
                (Turn::Unknown | Turn::Awaited | Turn::Begun | Turn::Over(_), _) => {}
            }
        }
    }

    /// Hands one to the agent that is in the conversation already.
    pub(super) fn send(&mut self, id: PromptId, out: &mut Step) {
        if let Some(open) = self.get(id) {
            out.effects.push(Effect::Send(open.prompt.clone()));
        }
    }

    pub(super) fn accepted(&mut self, id: PromptId, said: Object) {
        let Some(open) = self.get_mut(id) else { return };
        open.spared = false;
        open.is_answered = true;
        match &mut open.stage {
            Stage::Inserted { fields, .. } => *fields = said,
            Stage::Held | Stage::Sent | Stage::Accepted(_) => open.stage = Stage::Accepted(said),
        }
    }

    pub(super) fn inserted(&mut self, id: PromptId, message: MessageId) {
        let Some(open) = self.get_mut(id) else { return };
        let fields = match &open.stage {
            Stage::Accepted(fields) => fields.clone(),
            Stage::Held | Stage::Sent | Stage::Inserted { .. } => Object::default(),
        };
        open.stage = Stage::Inserted { message: message.clone(), fields };
        open.spared = false;
        let key = open.prompt.key.clone();
        self.remember(key, Some(message));
    }

    /// The message of a prompt in the conversation is another one.
    pub(super) fn moved(&mut self, id: PromptId, to: MessageId) {
        let Some(open) = self.get_mut(id) else { return };
        if let Stage::Inserted { message, .. } = &mut open.stage {
            message.clone_from(&to);
            let key = open.prompt.key.clone();
            self.remember(key, Some(to));
        }
    }

    /// What was taken for a prompt is another one, and the agent has yet to say which message it is.
    pub(super) fn mistaken(&mut self, id: PromptId) {
        let Some(open) = self.get_mut(id) else { return };
        open.stage = Stage::Sent;
        let key = open.prompt.key.clone();
        self.past.retain(|past| key.as_ref() != Some(&past.key));
    }

    fn remember(&mut self, key: Option<JsonStr>, message: Option<MessageId>) {
        let Some(key) = key else { return };
        self.past.retain(|past| past.key != key);
        if self.past.len() >= MAX_KEYS {
            self.past.pop_front();
        }
        self.past.push_back(Past { key, message, ended: None });
    }

    /// Answers those who asked for a prompt that is in the conversation, if that is what they want to know.
    pub(super) fn settle_accepted(&mut self, id: PromptId, out: &mut Step) {
        let Some(open) = self.get_mut(id) else { return };
        let Stage::Inserted { message, fields } = &open.stage else { return };
        for asker in open.askers.extract_if(.., |asker| !asker.waits) {
            let outcome = Settled::Accepted { message: message.clone(), fields: fields.clone() };
            asker.settle(outcome, out);
        }
    }

    /// A prompt is in the conversation only after its turn: with that it has ended.
    pub(super) fn end_if_over(&mut self, id: PromptId, out: &mut Step) {
        let Some(Turn::Over(state)) = self.get(id).map(|open| open.turn.clone()) else { return };
        let Some(open) = self.remove(id) else { return };
        out.ended_after = Some(out.changes.len());
        out.upkeep = true;
        if let Some(key) = &open.prompt.key {
            let past = self.past.iter_mut().find(|past| past.key == *key);
            past.into_iter().for_each(|past| past.ended = Some(state.clone()));
        }
        open.ended(&state, out);
    }

    pub(super) fn rejected(&mut self, id: PromptId, error: &Json, clients: &Clients, out: &mut Step) {
        let by = self.get(id).and_then(|open| open.withdrawn);
        self.refused(id, &Settled::Rejected { error: error.clone(), by }, clients, out);
    }

    /// The agent dropped a prompt from its queue. One that a cancelled turn was not to take along is queued again.
    pub(super) fn dropped(&mut self, id: PromptId, error: &Json, clients: &Clients, out: &mut Step) {
        match self.get_mut(id).filter(|open| open.spared) {
            Some(open) => {
                open.stage = Stage::Held;
                open.spared = false;
            }
            None => self.rejected(id, error, clients, out),
        }
    }

    /// Whether the agent has yet to say whether it keeps prompts that a cancelled turn was not to take along.
    pub(super) fn any_spared(&self) -> bool {
        self.open.iter().any(|open| open.spared)
    }

    /// A prompt that comes to nothing. If it was still wanted and none of those is there who wait for it, as when it was
    /// restored, that is said first.
    pub(super) fn refused(&mut self, id: PromptId, outcome: &Settled, clients: &Clients, out: &mut Step) {
        let Some(mut open) = self.remove(id) else { return };
        out.upkeep = true;
        let is_told = open.askers.iter().any(|asker| clients.contains_key(&asker.by));
        if !is_told && open.is_waiting() {
            Asker { id, by: ClientId::NOBODY, waits: false }.settle(outcome.clone(), out);
        }
        open.settle(outcome, out);
    }

    /// Withdraws a prompt, by its own id or that of one who sent it again. Whether it is too late because its turn runs,
    /// and somebody waits for the end of that.
    pub(super) fn withdraw(&mut self, id: PromptId, by: ClientId, out: &mut Step) -> bool {
        let is_it = |open: &&Open| open.prompt.id == id || open.askers.iter().any(|asker| asker.id == id);
        let Some(open) = self.open.iter().find(is_it) else { return false };
        if open.is_inserted() {
            return !open.askers.is_empty();
        }
        let id = open.prompt.id;
        self.withdraw_waiting(id, by, out);
        false
    }

    /// Withdraws the prompts that are not in the conversation and that the scope of a cancellation names.
    pub(super) fn withdraw_all(&mut self, by: ClientId, scope: Scope, out: &mut Step) {
        let mut unwanted = Vec::new();
        for open in self.open.iter_mut().filter(|open| !open.is_inserted()) {
            let is_unwanted = match scope {
                Scope::Session => true,
                Scope::Turn => open.is_of(by),
                Scope::Prompt => false,
            };
            if is_unwanted {
                unwanted.push(open.prompt.id);
            } else {
                open.spared = open.is_with_agent() && open.withdrawn.is_none();
            }
        }
        unwanted.into_iter().for_each(|id| self.withdraw_waiting(id, by, out));
    }

    /// Somebody closes the session while others go on: it is answered now, and what nobody else asked for is withdrawn.
    pub(super) fn closed(&mut self, by: ClientId, out: &mut Step) {
        let mut unwanted = Vec::new();
        for open in &mut self.open {
            let is_only = !open.askers.is_empty() && open.askers.iter().all(|asker| asker.by == by);
            if is_only && !open.is_inserted() {
                unwanted.push(open.prompt.id);
            }
            let theirs = open.askers.extract_if(.., |asker| asker.by == by);
            theirs.for_each(|asker| asker.settle(Settled::Withdrawn { by: Some(by) }, out));
        }
        unwanted.into_iter().for_each(|id| self.withdraw_waiting(id, by, out));
    }

    /// Nobody wants a prompt any more that is not in the conversation. If the agent has it, it may be too late: the agent
    /// says what came of it, and until then there may be a turn to come.
    fn withdraw_waiting(&mut self, id: PromptId, by: ClientId, out: &mut Step) {
        let Some(open) = self.get_mut(id).filter(|open| open.withdrawn.is_none()) else { return };
        let (key, is_held) = (open.prompt.key.clone(), open.stage == Stage::Held);
        if is_held {
            open.settle(&Settled::Withdrawn { by: Some(by) }, out);
            self.remove(id);
        } else {
            open.withdrawn = Some(by);
            open.spared = false;
            out.effects.push(Effect::Recall(id));
        }
        self.remember(key, None);
        out.upkeep = true;
    }

    /// Whether the agent has yet to say what came of a prompt that was withdrawn.
    pub(super) fn any_withdrawn(&self) -> bool {
        self.open.iter().any(|open| open.withdrawn.is_some() && !open.is_inserted())
    }

    /// The prompts that were withdrawn and of which the agent has yet to say what came of them.
    pub(super) fn withdrawn(&self) -> Vec<PromptId> {
        let withdrawn = self.open.iter().filter(|open| open.withdrawn.is_some() && !open.is_inserted());
        withdrawn.map(|open| open.prompt.id).collect()
    }

    /// Whether the turn that runs is that of a prompt that was withdrawn.
    pub(super) fn any_withdrawn_begun(&self) -> bool {
        self.with_agent().any(|open| open.withdrawn.is_some() && open.turn == Turn::Begun)
    }

    fn remove(&mut self, id: PromptId) -> Option<Open> {
        let place = self.open.iter().position(|open| open.prompt.id == id)?;
        Some(self.open.remove(place))
    }

    /// A turn has ended, and with it every prompt that is in the conversation.
    pub(super) fn turn_ended(&mut self, state: &State, out: &mut Step) {
        out.ended_after = Some(out.changes.len());
        for open in self.open.extract_if(.., |open| open.is_inserted()) {
            open.ended(state, out);
        }
        // What the agent has kept is not for a cancelled turn to take along any more.
        self.open.iter_mut().for_each(|open| open.spared = false);
        let unended = |past: &&mut Past| past.message.is_some() && past.ended.is_none();
        for past in self.past.iter_mut().filter(unended) {
            past.ended = Some(state.clone());
            out.upkeep = true;
        }
    }

    /// What the agent had and was not in the conversation waits again, unless it was not wanted any more.
    pub(super) fn agent_gone(&mut self, out: &mut Step) {
        for mut open in self.open.extract_if(.., |open| open.withdrawn.is_some() && !open.is_inserted()) {
            let by = open.withdrawn;
            open.settle(&Settled::Withdrawn { by }, out);
        }
        for open in self.open.iter_mut().filter(|open| !open.is_inserted() && open.stage != Stage::Held) {
            open.stage = Stage::Held;
            open.spared = false;
            open.is_answered = false;
            open.returned = open.returned.saturating_add(1);
        }
    }

    /// An agent was gone before it was ready.
    pub(super) fn agent_never_came(&mut self) {
        let held = self.open.iter_mut().filter(|open| open.stage == Stage::Held);
        held.for_each(|open| open.returned = open.returned.saturating_add(1));
    }

    pub(super) fn keep(&self, kept: &mut Object) {
        let held: Vec<_> = self.open.iter().filter(|open| open.is_waiting()).map(Open::keep).collect();
        if !held.is_empty() {
            kept.set(KEPT, Json::parse(format!("[{}]", held.join(","))).expect("it is made of JSON"));
        }
        if self.last > 0 {
            kept.set(LAST, Json::parse(self.last.to_string()).expect("a number is JSON"));
        }
        let past: Vec<_> = self.past.iter().map(Past::keep).collect();
        if !past.is_empty() {
            kept.set(KEYS, Json::parse(format!("[{}]", past.join(","))).expect("it is made of JSON"));
        }
    }

    pub(super) fn restored(kept: Option<&Object>) -> Self {
        let list = |name: &str| kept.and_then(|kept| kept.get(name)).and_then(Json::elements);
        let open = list(KEPT).unwrap_or_default().into_iter().filter_map(|held| {
            let held = Object::parse(held).ok()?;
            let id = PromptId(held.get("id")?.as_str().parse().ok()?);
            let more = Object::parse(held.get("more")?.raw()).ok()?;
            let (content, key) = (held.get("content")?.clone(), string_member(&held, "key"));
            let prompt = Prompt { id, by: ClientId::NOBODY, content, more, key };
            Some(Open::new(prompt, Vec::new()))
        });
        let past = list(KEYS).unwrap_or_default().into_iter().filter_map(Past::restored);
        let open: Vec<_> = open.collect();
        let last = kept.and_then(|kept| kept.get(LAST)?.as_str().parse().ok()).unwrap_or_default();
        let last = open.iter().map(|open: &Open| open.prompt.id.0).fold(last, u64::max);
        Self { open, past: past.collect(), last }
    }
}

impl Open {
    fn new(prompt: Prompt, askers: Vec<Asker>) -> Self {
        Self {
            pattern: Arc::new(Pattern::of(&blocks(&prompt.content))),
            prompt,
            stage: Stage::Held,
            sent_after: 0,
            is_answered: false,
            turn: Turn::Unknown,
            askers,
            withdrawn: None,
            spared: false,
            returned: 0,
        }
    }

    /// Whether it is the agent's word that says which message this is.
    pub(super) fn is_answered(&self) -> bool {
        self.is_answered
    }

    fn is_inserted(&self) -> bool {
        self.stage.message().is_some()
    }

    fn is_with_agent(&self) -> bool {
        matches!(self.stage, Stage::Sent | Stage::Accepted(_))
    }

    /// Whether it is wanted and not in the conversation.
    fn is_waiting(&self) -> bool {
        !self.is_inserted() && self.withdrawn.is_none()
    }

    /// Whether it was withdrawn, and nobody but the agent has something to say about it any more.
    fn is_dropped(&self) -> bool {
        self.withdrawn.is_some() && self.askers.is_empty() && !self.is_inserted()
    }

    /// Whether a client sent it, first or again.
    fn is_of(&self, client: ClientId) -> bool {
        self.prompt.by == client || self.askers.iter().any(|asker| asker.by == client)
    }

    /// The same prompt came again, from somebody who has lost the first one's answer or does not want to wait for it.
    fn resent(&mut self, asker: Asker, out: &mut Step) {
        match &self.stage {
            Stage::Inserted { message, fields } if !asker.waits => {
                let outcome = Settled::Accepted { message: message.clone(), fields: fields.clone() };
                asker.settle(outcome, out);
            }
            Stage::Held | Stage::Sent | Stage::Accepted(_) | Stage::Inserted { .. } => {
                if self.askers.len() >= MAX_HELD {
                    asker.settle(Settled::TooMany { limit: MAX_HELD }, out);
                } else {
                    self.askers.push(asker);
                }
            }
        }
    }

    fn settle(&mut self, outcome: &Settled, out: &mut Step) {
        self.askers.drain(..).for_each(|asker| asker.settle(outcome.clone(), out));
    }

    fn ended(self, state: &State, out: &mut Step) {
        let Stage::Inserted { message, fields } = self.stage else { return };
        out.ended.push((self.prompt.id, state.clone()));
        for asker in self.askers {
            let (message, fields) = (message.clone(), fields.clone());
            let outcome = if asker.waits {
                Settled::Ended { message, state: state.clone(), fields }
            } else {
                Settled::Accepted { message, fields }
            };
            asker.settle(outcome, out);
        }
    }

    fn keep(&self) -> String {
        let mut held = Object::default();
        held.set("id", Json::parse(self.prompt.id.0.to_string()).expect("a number is JSON"));
        held.set("content", self.prompt.content.clone());
        held.set("more", self.prompt.more.to_json());
        if let Some(key) = &self.prompt.key {
            held.set("key", key);
        }
        held.to_json().as_str().to_owned()
    }
}

impl Asker {
    fn settle(self, outcome: Settled, out: &mut Step) {
        out.effects.push(Effect::Settle { prompt: self.id, by: self.by, outcome });
    }
}

impl Past {
    fn outcome(&self, waits: bool) -> Settled {
        let fields = Object::default();
        match (&self.message, &self.ended) {
            (None, _) => Settled::Withdrawn { by: None },
            (Some(message), Some(state)) if waits => {
                Settled::Ended { message: message.clone(), state: state.clone(), fields }
            }
            (Some(message), _) => Settled::Accepted { message: message.clone(), fields },
        }
    }

    fn keep(&self) -> String {
        let message = self.message.as_ref().map_or("null", |message| message.as_json().as_literal());
        let ended = self.ended.as_ref().map_or_else(|| "null".to_owned(), state_text);
        format!("[{},{message},{ended}]", self.key.as_literal())
    }

    fn restored(kept: JsonRef<'_>) -> Option<Self> {
        let parts = kept.elements()?;
        let [key, message, ended] = parts[..] else { return None };
        let ended = Object::parse(ended).ok().and_then(|ended| read_state(&ended));
        Some(Self {
            key: JsonStr::from_raw(key)?,
            message: JsonStr::from_raw(message).map(MessageId::from),
            ended,
        })
    }
}
