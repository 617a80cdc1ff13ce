//! Turns. In v1 a turn is a prompt that has no answer yet; in v2 a prompt is answered when it is accepted, and
//! the turn is told by states.

use std::borrow::Cow;
use std::collections::HashMap;

use parlor_json::{Json, JsonStr, Object};
use parlor_session::{Activity, EntryId, MessageId, Patch, Role, SessionId, State, Target, Update};
use parlor_wire::{Message, Outcome, RequestId, RpcError, code, write};

use super::{Said, Way, envelope, notification};
use crate::encode::v1::Heard;
use crate::encode::v2;
use crate::text::ObjectText;
use crate::{Dialect, LossKind, Losses, Side, shape};

/// The metadata key that says whether token counts are of one turn or of the session: v1 and v2 differ.
const USAGE: &str = "parlor/usage";

/// Where a session's turns stand.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Prompts whose turn has not ended, in the order they were sent.
    prompts: Vec<Prompt>,
    /// What the agent asked a person and waits for.
    blocked: usize,
    /// The user messages that are the v1 client's own prompts, which it is not told of again.
    echoes: HashMap<MessageId, Json>,
}

#[derive(Debug)]
struct Prompt {
    id: RequestId,
    content: Json,
    /// Its message, once the agent has named it.
    message: Option<MessageId>,
    /// Whether the agent has answered that it takes it.
    accepted: bool,
}

/// Where turns are told.
pub(super) struct TurnOutput<'a> {
    pub(super) session: &'a SessionId,
    pub(super) lines: &'a mut Vec<Said<'static>>,
    pub(super) losses: &'a mut Losses,
}

impl TurnOutput<'_> {
    fn say(&mut self, text: String) {
        self.lines.push(Said { by: Side::Agent, text: Cow::Owned(text) });
    }

    fn update(&mut self, update: &str) {
        self.say(notification(self.session, update, &[], &[]));
    }

    fn state(&mut self, activity: Activity, dialect: Dialect) {
        let state = State { activity, stop_reason: None, fields: Object::default(), meta: None };
        self.update(&v2::state_text(&state, dialect));
    }

    fn accept(&mut self, id: &RequestId, message: &MessageId, dialect: Dialect) {
        let result = match dialect {
            Dialect::Draft => ObjectText::with_capacity(2),
            Dialect::V1 | Dialect::V2 => ObjectText::with_capacity(64).string("messageId", message.as_json()),
        };
        self.say(write::response(id, shape::json(result.finish()).raw()));
    }
}

impl Turn {
    /// The client sent a prompt. `message` is the id that it gets if the agent gives none.
    pub(super) fn prompted(
        &mut self,
        id: &RequestId,
        content: Json,
        message: MessageId,
        agent: Way,
        out: &mut TurnOutput<'_>,
    ) {
        let mut prompt = Prompt { id: id.clone(), content, message: None, accepted: false };
        if agent.from == Dialect::V1 {
            let text = ObjectText::update("user_message").string("messageId", message.as_json());
            let text = text.raw("content", prompt.content.as_str()).finish();
            out.accept(id, &message, agent.to);
            out.update(&text);
            out.state(Activity::Running, agent.to);
            prompt.message = Some(message);
            prompt.accepted = true;
        }
        self.prompts.push(prompt);
    }

    /// The agent answered a prompt.
    pub(super) fn answered(
        &mut self,
        message: &Message<'_>,
        id: &RequestId,
        outcome: Outcome<'_>,
        agent: Way,
        out: &mut TurnOutput<'_>,
    ) {
        let place = self.prompts.iter().position(|prompt| prompt.id == *id);
        if agent.from == Dialect::V1 {
            place.map(|place| self.prompts.remove(place));
            out.update(&v2::state_text(&idle(outcome), agent.to));
            if !self.prompts.is_empty() {
                out.state(Activity::Running, agent.to);
            }
            return;
        }
        // A turn that ended before its prompt was answered has been told already.
        let Some(place) = place else { return };
        let Outcome::Result(result) = outcome else {
            self.prompts.remove(place);
            out.say(message.text().to_owned());
            return;
        };
        let prompt = &mut self.prompts[place];
        prompt.accepted = true;
        let named =
            Object::parse(result).ok().and_then(|result| JsonStr::from_raw(result.get("messageId")?.raw()));
        if let Some(named) = named {
            prompt.message = Some(named.into());
        }
        match (agent.to, prompt.message.clone()) {
            // The answer comes with the end of the turn.
            (Dialect::V1, named) => {
                if let Some(named) = named {
                    self.echoes.insert(named, prompt.content.clone());
                }
            }
            (Dialect::Draft, _) => {
                let result = Object::parse(result).map(|mut result| {
                    result.remove("messageId");
                    result
                });
                let result = result.unwrap_or_default().to_json();
                out.say(envelope(message, None, &[("result", result.as_str())]));
                self.prompts.remove(place);
            }
            (Dialect::V2, Some(named)) => {
                out.accept(id, &named, Dialect::V2);
                self.prompts.remove(place);
            }
            // v2 wants the message's id with the answer, and it comes with the message.
            (Dialect::V2, None) => {}
        }
    }

    /// What has to be said before an update is.
    pub(super) fn before(&mut self, update: &Update, agent: Way, out: &mut TurnOutput<'_>) {
        let Some(id) = user_message(update) else { return };
        if agent.from == Dialect::V1 || self.echoes.contains_key(id) {
            return;
        }
        let Some(place) = self.prompts.iter().position(|prompt| prompt.message.is_none()) else { return };
        let prompt = &mut self.prompts[place];
        prompt.message = Some(id.clone());
        match agent.to {
            Dialect::V1 => drop(self.echoes.insert(id.clone(), prompt.content.clone())),
            Dialect::V2 if prompt.accepted => {
                out.accept(&prompt.id, id, Dialect::V2);
                self.prompts.remove(place);
            }
            Dialect::V2 | Dialect::Draft => {}
        }
    }

    /// What has to be said after an update was: for a v1 client, the end of a turn is the answer to its prompt.
    pub(super) fn after(&mut self, update: &Update, agent: Way, out: &mut TurnOutput<'_>) {
        let Update::State(state) = update else { return };
        if agent.to != Dialect::V1 || state.activity != Activity::Idle {
            return;
        }
        for prompt in self.prompts.extract_if(.., |prompt| prompt.is_inserted()) {
            let answer = end_of_turn(&prompt.id, state, out.losses);
            out.say(answer);
        }
    }

    /// Whether a v1 client knows of a state without being told.
    pub(super) fn implies(&self, state: &State) -> bool {
        match state.activity {
            Activity::Running | Activity::RequiresAction => !self.prompts.is_empty(),
            Activity::Idle => self.prompts.iter().any(Prompt::is_inserted),
            Activity::Other(_) => false,
        }
    }

    /// Whether an update only tells a v1 client of the prompt that it sent itself.
    pub(super) fn is_echo(&self, update: &Update, heard: &mut Heard) -> bool {
        let Some(id) = user_message(update) else { return false };
        let Some(prompt) = self.echoes.get(id) else { return false };
        let has_content = heard.has_content(Role::User, id);
        match update {
            Update::Append { .. } => {
                heard.knows(Role::User, id);
                true
            }
            Update::Upsert { upsert, .. } => match &upsert.content {
                Patch::Value(content) => {
                    heard.knows(Role::User, id);
                    !has_content || content.to_json() == *prompt
                }
                Patch::Clear => !has_content,
                Patch::Omitted => false,
            },
            Update::Output { .. } | Update::Remove { .. } | Update::Note { .. } | Update::State(_) => false,
        }
    }

    /// The agent asks a person something.
    pub(super) fn blocks(&mut self, agent: Way, out: &mut TurnOutput<'_>) {
        self.blocked += 1;
        if agent.from == Dialect::V1 {
            out.state(Activity::RequiresAction, agent.to);
        }
    }

    /// The person answered.
    pub(super) fn unblocks(&mut self, agent: Way, out: &mut TurnOutput<'_>) {
        self.blocked = self.blocked.saturating_sub(1);
        if agent.from == Dialect::V1 && self.blocked == 0 && !self.prompts.is_empty() {
            out.state(Activity::Running, agent.to);
        }
    }
}

impl Prompt {
    /// Whether the agent has put it into the conversation.
    fn is_inserted(&self) -> bool {
        self.accepted || self.message.is_some()
    }
}

/// The user message that an update is about.
fn user_message(update: &Update) -> Option<&MessageId> {
    match update {
        Update::Append { entry: EntryId::Message(Role::User, id), .. }
        | Update::Upsert { target: Target::Entry(EntryId::Message(Role::User, id)), .. } => Some(id),
        Update::Append { .. }
        | Update::Upsert { .. }
        | Update::Output { .. }
        | Update::Remove { .. }
        | Update::Note { .. }
        | Update::State(_) => None,
    }
}

/// The state that the answer to a v1 prompt stands for.
fn idle(outcome: Outcome<'_>) -> State {
    let (mut fields, stop_reason) = match outcome {
        Outcome::Result(result) => {
            let mut fields = Object::parse(result).unwrap_or_default();
            let reason = fields.remove("stopReason").and_then(|reason| JsonStr::from_raw(reason.raw()));
            (fields, reason)
        }
        Outcome::Error(error) => {
            let mut fields = Object::default();
            fields.set("error", error);
            (fields, Some("error".into()))
        }
    };
    if fields.get("usage").is_some_and(Json::is_null) {
        fields.remove("usage");
    }
    // v1 counts over the whole session, unless the count came from v2.
    if shape::take_note(&mut fields, USAGE).is_none() && fields.get("usage").is_some() {
        shape::note(&mut fields, USAGE, shape::string("session"));
    }
    let meta = fields.remove("_meta").and_then(|meta| shape::object(&meta));
    State { activity: Activity::Idle, stop_reason, fields, meta }
}

/// The answer to a v1 prompt that a state stands for.
fn end_of_turn(id: &RequestId, state: &State, losses: &mut Losses) -> String {
    let reason = state.stop_reason.as_ref().map(|reason| reason.to_text());
    if reason.as_deref() == Some("error") {
        let error = state.fields.get("error").filter(|error| shape::object(error).is_some());
        let error = match error {
            Some(error) => RpcError::from_raw(error.raw()),
            None => RpcError::new(code::INTERNAL_ERROR, "the turn ended with an error"),
        };
        return write::error_response(id, &error);
    }
    let known = match reason.as_deref() {
        Some(known @ ("end_turn" | "max_tokens" | "max_turn_requests" | "refusal" | "cancelled")) => known,
        Some(_) => {
            losses.add(LossKind::StopReason);
            "end_turn"
        }
        None => "end_turn",
    };
    let mut result = Object::default();
    result.set("stopReason", shape::string(known));
    result.add_missing(&state.fields);
    if let Some(meta) = &state.meta {
        result.set("_meta", meta.to_json());
    }
    // v2 counts the turn that ended, unless the count came from v1.
    if result.get("usage").is_some() && shape::take_note(&mut result, USAGE).is_none() {
        shape::note(&mut result, USAGE, shape::string("turn"));
    }
    write::response(id, result.to_json().raw())
}
