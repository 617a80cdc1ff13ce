//! Prompts on their way into the conversation.

use std::collections::VecDeque;

use parlor_json::{Json, JsonStr, Object};
use serde_json::value::RawValue;

use super::echo::blocks;
use super::{ClientId, Effect, Step, string_member};
use crate::stored::{read_state, state_text};
use crate::{MessageId, Refused, State};

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
    /// It was taken back before it was in the conversation.
    TakenBack,
    /// The agent did not take it.
    Rejected(Json),
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
    /// Who has no answer yet: its sender, and those who sent it again.
    askers: Vec<Asker>,
    /// Whether the agent was told that it is not wanted any more.
    recalled: bool,
    /// How many agents were gone before they took it.
    returned: u8,
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
    /// Its message; `None` if it was taken back.
    message: Option<MessageId>,
    /// How its turn ended, if it has.
    ended: Option<State>,
}

/// All prompts whose turn has not ended, in the order they came, and what became of the last ones that had a key.
#[derive(Debug, Clone, Default)]
pub(super) struct Prompts {
    open: Vec<Open>,
    past: VecDeque<Past>,
}

/// How many prompts may wait in one session, and how many may ask for the same one.
const MAX_HELD: usize = 64;

/// How many keys are remembered.
const MAX_KEYS: usize = 256;

/// After how many agents that were gone before they took it a prompt brings no agent back by itself. It may be what
/// ends them.
const MAX_RETURNED: u8 = 2;

const KEPT: &str = "held";
const KEYS: &str = "keys";

impl Prompts {
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
        self.open.push(Open {
            prompt,
            stage: Stage::Held,
            askers: vec![asker],
            recalled: false,
            returned: 0,
        });
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

    /// Whether the next one has been with agents that were gone before they took it.
    pub(super) fn is_hopeless(&self) -> bool {
        let next = self.open.iter().find(|open| open.stage == Stage::Held);
        next.is_some_and(|open| open.returned >= MAX_RETURNED)
    }

    /// The prompt that the agent has and that begins a new message: the oldest with such a text, else the oldest.
    pub(super) fn begun_by(&self, text: &str) -> Option<PromptId> {
        let with_agent = || self.open.iter().filter(|open| open.is_with_agent());
        let alike =
            with_agent().find(|open| blocks(&open.prompt.content).to_text().trim().starts_with(text.trim()));
        alike.or_else(|| with_agent().next()).map(|open| open.prompt.id)
    }

    pub(super) fn accepted_unnamed(&self) -> Vec<PromptId> {
        let unnamed = |open: &&Open| matches!(open.stage, Stage::Accepted(_));
        self.open.iter().filter(unnamed).map(|open| open.prompt.id).collect()
    }

    /// The latest prompt whose turn runs.
    pub(super) fn running(&self) -> Option<&Prompt> {
        self.open.iter().rev().find(|open| open.stage.message().is_some()).map(|open| &open.prompt)
    }

    /// Hands all that wait to the agent.
    pub(super) fn send_all(&mut self, out: &mut Step) {
        for open in self.open.iter_mut().filter(|open| open.stage == Stage::Held) {
            open.stage = Stage::Sent;
            out.effects.push(Effect::Send(open.prompt.clone()));
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
        let key = open.prompt.key.clone();
        self.remember(key, Some(message));
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

    pub(super) fn rejected(&mut self, id: PromptId, error: &Json, out: &mut Step) {
        self.refused(id, &Settled::Rejected(error.clone()), out);
    }

    /// A prompt that comes to nothing.
    pub(super) fn refused(&mut self, id: PromptId, outcome: &Settled, out: &mut Step) {
        let Some(mut open) = self.remove(id) else { return };
        out.upkeep = true;
        open.settle(outcome, out);
    }

    /// Takes back a prompt, under its own name or that of one who sent it again.
    pub(super) fn take_back(&mut self, id: PromptId, out: &mut Step) {
        let is_it = |open: &&Open| open.prompt.id == id || open.askers.iter().any(|asker| asker.id == id);
        let Some(open) = self.open.iter().find(is_it) else { return };
        let id = open.prompt.id;
        match open.stage {
            Stage::Held => self.drop_waiting(id, out),
            // The agent says what came of it.
            Stage::Sent | Stage::Accepted(_) => self.recall(id, out),
            Stage::Inserted { .. } => {}
        }
    }

    pub(super) fn take_back_all(&mut self, out: &mut Step) {
        let waiting: Vec<_> = self.open.iter().filter(|open| !open.is_inserted()).collect();
        let waiting: Vec<_> = waiting.into_iter().map(|open| open.prompt.id).collect();
        waiting.into_iter().for_each(|id| self.drop_waiting(id, out));
    }

    /// Somebody wants no more of the session: what nobody else asked for is taken back.
    pub(super) fn closed(&mut self, by: ClientId, out: &mut Step) {
        let mut unwanted = Vec::new();
        for open in self.open.iter_mut().filter(|open| !open.is_inserted()) {
            let is_only = !open.askers.is_empty() && open.askers.iter().all(|asker| asker.by == by);
            if is_only {
                unwanted.push(open.prompt.id);
            } else {
                let theirs = open.askers.extract_if(.., |asker| asker.by == by);
                theirs.for_each(|asker| asker.settle(Settled::TakenBack, out));
            }
        }
        unwanted.into_iter().for_each(|id| self.drop_waiting(id, out));
    }

    /// Nobody wants a prompt any more that is not in the conversation. If the agent has it, it may be too late: until
    /// the agent says what came of it, there may be a message to come.
    fn drop_waiting(&mut self, id: PromptId, out: &mut Step) {
        let Some(open) = self.get_mut(id) else { return };
        open.settle(&Settled::TakenBack, out);
        let (key, is_held) = (open.prompt.key.clone(), open.stage == Stage::Held);
        self.remember(key, None);
        out.upkeep = true;
        if is_held {
            self.remove(id);
        } else {
            self.recall(id, out);
        }
    }

    fn recall(&mut self, id: PromptId, out: &mut Step) {
        let Some(open) = self.get_mut(id).filter(|open| !open.recalled) else { return };
        open.recalled = true;
        out.upkeep = true;
        out.effects.push(Effect::Recall(id));
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
        let unended = |past: &&mut Past| past.message.is_some() && past.ended.is_none();
        for past in self.past.iter_mut().filter(unended) {
            past.ended = Some(state.clone());
            out.upkeep = true;
        }
    }

    /// What the agent had and was not in the conversation waits again, unless it was not wanted any more.
    pub(super) fn agent_gone(&mut self, out: &mut Step) {
        for mut open in self.open.extract_if(.., |open| open.recalled && !open.is_inserted()) {
            open.settle(&Settled::TakenBack, out);
        }
        for open in self.open.iter_mut().filter(|open| !open.is_inserted() && open.stage != Stage::Held) {
            open.stage = Stage::Held;
            open.returned = open.returned.saturating_add(1);
        }
    }

    /// An agent was gone before it was there.
    pub(super) fn agent_never_came(&mut self) {
        let held = self.open.iter_mut().filter(|open| open.stage == Stage::Held);
        held.for_each(|open| open.returned = open.returned.saturating_add(1));
    }

    pub(super) fn keep(&self, kept: &mut Object) {
        let held: Vec<_> = self.open.iter().filter(|open| open.is_waiting()).map(Open::keep).collect();
        if !held.is_empty() {
            kept.set(KEPT, Json::parse(format!("[{}]", held.join(","))).expect("it is made of JSON"));
        }
        let past: Vec<_> = self.past.iter().map(Past::keep).collect();
        if !past.is_empty() {
            kept.set(KEYS, Json::parse(format!("[{}]", past.join(","))).expect("it is made of JSON"));
        }
    }

    pub(super) fn restored(kept: Option<&Object>) -> Self {
        let list = |name: &str| {
            kept.and_then(|kept| kept.get(name)).and_then(|list| parlor_json::elements(list.raw()))
        };
        let open = list(KEPT).unwrap_or_default().into_iter().filter_map(|held| {
            let held = Object::parse(held).ok()?;
            let id = PromptId(held.get("id")?.as_str().parse().ok()?);
            let more = Object::parse(held.get("more")?.raw()).ok()?;
            let (content, key) = (held.get("content")?.clone(), string_member(&held, "key"));
            let prompt = Prompt { id, by: ClientId::NOBODY, content, more, key };
            Some(Open { prompt, stage: Stage::Held, askers: Vec::new(), recalled: false, returned: 0 })
        });
        let past = list(KEYS).unwrap_or_default().into_iter().filter_map(Past::restored);
        Self { open: open.collect(), past: past.collect() }
    }
}

impl Open {
    fn is_inserted(&self) -> bool {
        self.stage.message().is_some()
    }

    fn is_with_agent(&self) -> bool {
        matches!(self.stage, Stage::Sent | Stage::Accepted(_))
    }

    /// Whether it is wanted and not in the conversation.
    fn is_waiting(&self) -> bool {
        !self.is_inserted() && !self.recalled
    }

    /// Whether everybody has heard that it was taken back, and only the agent has not.
    fn is_dropped(&self) -> bool {
        self.recalled && self.askers.is_empty() && !self.is_inserted()
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
            (None, _) => Settled::TakenBack,
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

    fn restored(kept: &RawValue) -> Option<Self> {
        let parts = parlor_json::elements(kept)?;
        let [key, message, ended] = parts[..] else { return None };
        let ended = Object::parse(ended).ok().and_then(|ended| read_state(&ended));
        Some(Self {
            key: JsonStr::from_raw(key)?,
            message: JsonStr::from_raw(message).map(MessageId::from),
            ended,
        })
    }
}
