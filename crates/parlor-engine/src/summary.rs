//! What lists show of a session beside its row: its last turn, its settings and its usage.

use parlor_dialect::settings::{Setting, Settings};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::session::PeerRequestId;
use parlor_session::{Slot, Transcript};

use crate::usage::SessionUsage;

/// Whether a session works, waits for a person, or is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionState {
    /// A turn runs.
    Running,
    /// The agent waits for an answer of a person.
    NeedsYou,
    /// No turn runs.
    Idle,
    /// No turn runs, and the last one failed.
    Failed,
}

impl SessionState {
    /// The name of the state in `_meta["parlor/row"]`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::NeedsYou => "needs_you",
            Self::Idle => "idle",
            Self::Failed => "failed",
        }
    }
}

/// The part of a list row that is stored with the session's data. Times are in milliseconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionSummary {
    /// When the last prompt was inserted.
    pub last_prompt_at: Option<i64>,
    /// When the last turn ended.
    pub last_turn_ended_at: Option<i64>,
    /// The change with which the last turn ended.
    pub last_turn_seq: Option<u64>,
    /// The last change that a person has seen.
    pub seen_seq: Option<u64>,
    /// Whether the last turn failed.
    pub has_failed: bool,
    /// How many prompts wait behind another one.
    pub queued: u64,
    /// The id of the mode.
    pub mode: Option<JsonStr>,
    /// The id of the model.
    pub model: Option<JsonStr>,
    /// The members of the last `usage_update`: tokens in use, the size of the context window, the cost.
    pub usage: Option<Object>,
    /// What its turns used.
    pub turn_usage: SessionUsage,
}

mod key {
    pub(super) const LAST_PROMPT_AT: &str = "lastPromptAt";
    pub(super) const LAST_TURN_ENDED_AT: &str = "lastTurnEndedAt";
    pub(super) const LAST_TURN_SEQ: &str = "lastTurnSeq";
    pub(super) const SEEN_SEQ: &str = "seenSeq";
    pub(super) const HAS_FAILED: &str = "hasFailed";
    pub(super) const QUEUED: &str = "queued";
    pub(super) const MODE: &str = "mode";
    pub(super) const MODEL: &str = "model";
    pub(super) const USAGE: &str = "usage";
    pub(super) const TURN_USAGE: &str = "turnUsage";
}

impl SessionSummary {
    /// Reads a summary. Members of the wrong type count as missing.
    pub fn of(object: &Object) -> Self {
        let time = |name: &str| object.get(name).and_then(|time| time.as_str().parse().ok());
        Self {
            last_prompt_at: time(key::LAST_PROMPT_AT),
            last_turn_ended_at: time(key::LAST_TURN_ENDED_AT),
            last_turn_seq: object.get_u64(key::LAST_TURN_SEQ),
            seen_seq: object.get_u64(key::SEEN_SEQ),
            has_failed: object.get(key::HAS_FAILED).is_some(),
            queued: object.get_u64(key::QUEUED).unwrap_or_default(),
            mode: object.get_json_str(key::MODE),
            model: object.get_json_str(key::MODEL),
            usage: object.get_object(key::USAGE),
            turn_usage: object
                .get_object(key::TURN_USAGE)
                .map(|usage| SessionUsage::of(&usage))
                .unwrap_or_default(),
        }
    }

    /// The summary as JSON; empty if nothing is known.
    pub fn to_object(&self) -> Object {
        let turn_usage = self.turn_usage.to_object();
        let members = [
            (key::LAST_PROMPT_AT, self.last_prompt_at.map(Json::from)),
            (key::LAST_TURN_ENDED_AT, self.last_turn_ended_at.map(Json::from)),
            (key::LAST_TURN_SEQ, self.last_turn_seq.map(Json::from)),
            (key::SEEN_SEQ, self.seen_seq.map(Json::from)),
            (key::HAS_FAILED, self.has_failed.then(|| Json::from(true))),
            (key::QUEUED, (self.queued > 0).then(|| Json::from(self.queued))),
            (key::MODE, self.mode.as_ref().map(Json::from)),
            (key::MODEL, self.model.as_ref().map(Json::from)),
            (key::USAGE, self.usage.as_ref().map(Object::to_json)),
            (key::TURN_USAGE, (!turn_usage.is_empty()).then(|| turn_usage.to_json())),
        ];
        let mut object = Object::default();
        for (name, value) in members {
            if let Some(value) = value {
                object.set(name, value);
            }
        }
        object
    }

    /// Whether a turn has ended since a person last saw the session.
    pub fn is_unread(&self) -> bool {
        self.last_turn_seq > self.seen_seq
    }

    /// The summary of a fork, which has the settings and no turn of its own.
    pub(crate) fn of_fork(&self) -> Self {
        Self {
            mode: self.mode.clone(),
            model: self.model.clone(),
            turn_usage: self.turn_usage.of_fork(),
            ..Self::default()
        }
    }

    /// Takes over the mode and the model in force. Returns whether one of them changed.
    pub(crate) fn set_settings(&mut self, transcript: &Transcript) -> bool {
        let settings = Settings::of(transcript);
        let value = |setting| settings.get(&setting).and_then(|value| value.to_json_str());
        let (mode, model) = (value(Setting::Mode), value(Setting::Model));
        let has_changed = mode != self.mode || model != self.model;
        (self.mode, self.model) = (mode, model);
        has_changed
    }

    /// Takes over the usage that the agent reported last.
    pub(crate) fn set_usage(&mut self, transcript: &Transcript, now: i64) {
        self.usage = transcript.slot(Slot::Usage).map(|usage| usage.fields.clone());
        if let Some(cost) = self.usage.as_ref().and_then(|usage| usage.get_object("cost")) {
            self.turn_usage.on_cost(&cost, now);
        }
    }
}

/// An open request of an agent that any driver may answer, also one that is not attached to the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRequest {
    /// Its id in the session.
    pub request: PeerRequestId,
    /// The method: `session/request_permission` or `elicitation/create`.
    pub method: String,
    /// The params, in version 2.
    pub params: Object,
    /// The tool call that permission is requested for, with all that the session knows of it.
    pub tool_call: Option<Object>,
    /// When the agent sent it, in milliseconds since 1970.
    pub opened_at: i64,
    /// How many attached clients have it and have not answered.
    pub clients: usize,
}
