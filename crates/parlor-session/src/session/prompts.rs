//! Prompts on their way into the conversation.

use std::collections::VecDeque;

use parlor_json::{Json, JsonStr, Object};

use super::{ClientId, Effect, Step, string_member};
use crate::{Content, MessageId, State};

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
    /// Whether its sender is answered at the end of the turn.
    waits: bool,
    /// Whether its sender has its answer.
    settled: bool,
}

/// All prompts whose turn has not ended, in the order they came, and what became of the last ones that had a key.
#[derive(Debug, Clone, Default)]
pub(super) struct Prompts {
    open: Vec<Open>,
    keys: VecDeque<(JsonStr, MessageId)>,
}

/// How many prompts may wait in one session.
const MAX_HELD: usize = 64;

/// How many keys are remembered.
const MAX_KEYS: usize = 256;

const KEPT: &str = "held";
const KEYS: &str = "keys";

impl Prompts {
    pub(super) fn add(&mut self, prompt: Prompt, waits: bool, out: &mut Step) {
        let settle = |outcome, out: &mut Step| {
            out.effects.push(Effect::Settle { prompt: prompt.id, by: prompt.by, outcome });
        };
        if let Some(key) = &prompt.key {
            if let Some((_, message)) = self.keys.iter().find(|(known, _)| known == key) {
                // It is in the conversation already, and if its turn still runs, its end is the answer.
                let message = message.clone();
                let same = |open: &&mut Open| open.stage.message() == Some(&message);
                match self.open.iter_mut().find(same).filter(|_| waits) {
                    Some(open) => open.resent(&prompt, waits),
                    None => settle(Settled::Accepted { message, fields: Object::default() }, out),
                }
                return;
            }
            if let Some(open) = self.open.iter_mut().find(|open| open.prompt.key.as_ref() == Some(key)) {
                open.resent(&prompt, waits);
                return;
            }
        }
        if self.open.iter().filter(|open| open.stage.message().is_none()).count() >= MAX_HELD {
            settle(Settled::TooMany { limit: MAX_HELD }, out);
            return;
        }
        self.open.push(Open { prompt, stage: Stage::Held, waits, settled: false });
        out.upkeep = true;
        out.effects.push(Effect::HeldChanged);
    }

    pub(super) fn get(&self, id: PromptId) -> Option<&Open> {
        self.open.iter().find(|open| open.prompt.id == id)
    }

    fn get_mut(&mut self, id: PromptId) -> Option<&mut Open> {
        self.open.iter_mut().find(|open| open.prompt.id == id)
    }

    pub(super) fn held(&self) -> Vec<Held> {
        let waiting = self.open.iter().filter(|open| open.stage.message().is_none());
        waiting
            .map(|open| {
                let content = Content::parse(open.prompt.content.raw()).unwrap_or_default();
                Held { id: open.prompt.id, text: content.to_text(), by: open.prompt.by }
            })
            .collect()
    }

    pub(super) fn any_held(&self) -> bool {
        self.first_held().is_some()
    }

    pub(super) fn any_open(&self) -> bool {
        !self.open.is_empty()
    }

    pub(super) fn first_held(&self) -> Option<PromptId> {
        self.open.iter().find(|open| open.stage == Stage::Held).map(|open| open.prompt.id)
    }

    /// The oldest prompt that the agent has and that is not in the conversation.
    pub(super) fn first_not_inserted(&self) -> Option<PromptId> {
        let with_agent = |open: &&Open| matches!(open.stage, Stage::Sent | Stage::Accepted(_));
        self.open.iter().find(with_agent).map(|open| open.prompt.id)
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
        if let Some(key) = key {
            if self.keys.len() >= MAX_KEYS {
                self.keys.pop_front();
            }
            self.keys.push_back((key, message));
        }
    }

    /// Answers the sender of a prompt that is in the conversation, if that is what it waits for.
    pub(super) fn settle_accepted(&mut self, id: PromptId, out: &mut Step) {
        let Some(open) = self.get_mut(id).filter(|open| !open.waits && !open.settled) else { return };
        let Stage::Inserted { message, fields } = &open.stage else { return };
        open.settled = true;
        let outcome = Settled::Accepted { message: message.clone(), fields: fields.clone() };
        out.effects.push(Effect::Settle { prompt: id, by: open.prompt.by, outcome });
    }

    pub(super) fn rejected(&mut self, id: PromptId, error: Json, out: &mut Step) {
        let Some(open) = self.remove(id) else { return };
        out.upkeep = true;
        if !open.settled {
            out.effects.push(Effect::Settle {
                prompt: id,
                by: open.prompt.by,
                outcome: Settled::Rejected(error),
            });
        }
        out.effects.push(Effect::HeldChanged);
    }

    pub(super) fn take_back(&mut self, id: PromptId, out: &mut Step) {
        match self.get(id).map(|open| &open.stage) {
            Some(Stage::Held) => self.drop_held(id, out),
            // The agent says what came of it.
            Some(Stage::Sent | Stage::Accepted(_)) => out.effects.push(Effect::Recall(id)),
            Some(Stage::Inserted { .. }) | None => {}
        }
    }

    pub(super) fn take_back_all(&mut self, which: impl Fn(&Prompt) -> bool, out: &mut Step) {
        let waiting = self.open.iter().filter(|open| open.stage.message().is_none() && which(&open.prompt));
        let waiting: Vec<_> = waiting.map(|open| (open.prompt.id, open.stage == Stage::Held)).collect();
        for (id, is_held) in waiting {
            if !is_held {
                out.effects.push(Effect::Recall(id));
            }
            self.drop_held(id, out);
        }
    }

    fn drop_held(&mut self, id: PromptId, out: &mut Step) {
        let Some(open) = self.remove(id) else { return };
        out.upkeep = true;
        out.effects.push(Effect::Settle { prompt: id, by: open.prompt.by, outcome: Settled::TakenBack });
        out.effects.push(Effect::HeldChanged);
    }

    fn remove(&mut self, id: PromptId) -> Option<Open> {
        let place = self.open.iter().position(|open| open.prompt.id == id)?;
        Some(self.open.remove(place))
    }

    /// A turn has ended, and with it every prompt that is in the conversation.
    pub(super) fn turn_ended(&mut self, state: &State, out: &mut Step) {
        for open in self.open.extract_if(.., |open| open.stage.message().is_some()) {
            open.ended(state, out);
        }
    }

    /// What the agent had and was not in the conversation waits again.
    pub(super) fn agent_gone(&mut self, state: &State, out: &mut Step) {
        self.turn_ended(state, out);
        for open in &mut self.open {
            open.stage = Stage::Held;
        }
    }

    pub(super) fn keep(&self, kept: &mut Object) {
        let held: Vec<_> =
            self.open.iter().filter(|open| open.stage.message().is_none()).map(Open::keep).collect();
        if !held.is_empty() {
            kept.set(KEPT, Json::parse(format!("[{}]", held.join(","))).expect("it is made of JSON"));
        }
        let keys = self
            .keys
            .iter()
            .map(|(key, message)| format!("[{},{}]", key.as_literal(), message.as_json().as_literal()));
        let keys: Vec<_> = keys.collect();
        if !keys.is_empty() {
            kept.set(KEYS, Json::parse(format!("[{}]", keys.join(","))).expect("it is made of JSON"));
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
            let prompt = Prompt { id, by: ClientId(0), content, more, key };
            Some(Open { prompt, stage: Stage::Held, waits: false, settled: false })
        });
        let keys = list(KEYS).unwrap_or_default().into_iter().filter_map(|pair| {
            let pair = parlor_json::elements(pair)?;
            let [key, message] = pair[..] else { return None };
            Some((JsonStr::from_raw(key)?, JsonStr::from_raw(message)?.into()))
        });
        Self { open: open.collect(), keys: keys.collect() }
    }
}

impl Open {
    /// The same prompt came again, from somebody who has lost the first one's answer.
    fn resent(&mut self, prompt: &Prompt, waits: bool) {
        self.prompt.id = prompt.id;
        self.prompt.by = prompt.by;
        self.waits = waits;
        self.settled = false;
    }

    fn ended(self, state: &State, out: &mut Step) {
        let Stage::Inserted { message, fields } = self.stage else { return };
        if self.settled {
            return;
        }
        let outcome = if self.waits {
            Settled::Ended { state: state.clone(), fields }
        } else {
            Settled::Accepted { message, fields }
        };
        out.effects.push(Effect::Settle { prompt: self.prompt.id, by: self.prompt.by, outcome });
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
