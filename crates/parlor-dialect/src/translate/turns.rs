//! Turns. In v1 a turn is a prompt that has no answer yet; in v2 a prompt is answered when it is accepted, and
//! the turn is told by states.

use std::borrow::Cow;
use std::collections::VecDeque;

use parlor_json::{Json, JsonStr, Members, Object, Type};
use parlor_session::{Activity, EntryId, MessageId, Role, SessionId, State, Target, Update};
use parlor_wire::{Message, Outcome, RequestId, RpcError, code, write};

use super::echo::{Echo, Heard as EchoHeard};
use super::{Said, Way, envelope, notification};
use crate::encode::v1::Heard;
use crate::encode::v2;
use crate::text::ObjectText;
use crate::{Dialect, LossKind, Losses, Side, shape};

/// The metadata key that says whether token counts are of one turn or of the session: v1 and v2 differ.
pub(crate) const USAGE: &str = "parlor/usage";

/// The metadata key under which the answer to a v1 prompt may name its message, which has no other place there.
pub(crate) const MESSAGE: &str = "parlor/messageId";

/// How many messages are known under two names. The oldest are forgotten.
const MAX_NAMES: usize = 1000;

/// Where a session's turns stand.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Prompts whose turn has not ended, in the order they were sent.
    prompts: Vec<Prompt>,
    /// How many things the agent asked a person and waits for.
    blocked: usize,
    /// What a v2 client calls messages of its own, and what the v1 agent calls them.
    names: VecDeque<(MessageId, MessageId)>,
    /// What a v1 agent may repeat of the prompt that it was sent last.
    echo: Option<Echo>,
    /// Whether the agent reported `requires_action` and has not asked anything since.
    unasked_action: bool,
}

#[derive(Debug)]
struct Prompt {
    id: RequestId,
    content: Json,
    /// The id its message gets if the agent gives none.
    spare: MessageId,
    /// Its message, once it has an id.
    message: Option<MessageId>,
    /// What the agent's answer said, once it has taken the prompt.
    accepted: Option<Object>,
    /// The end of a turn that came while the prompt had no answer yet.
    ended: Option<State>,
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

    /// The answer that a v2 or draft client gets when its prompt is in the conversation.
    fn accept(&mut self, id: &RequestId, message: &MessageId, mut answer: Object, dialect: Dialect) {
        answer.remove("messageId");
        if dialect == Dialect::V2 {
            answer = shape::in_front(&answer, "messageId", message.as_json().into());
        }
        self.say(write::response(id, answer.to_json().raw()));
    }

    fn user_message(&mut self, id: &MessageId, content: &Json) {
        let text = ObjectText::update("user_message").string("messageId", id.as_json());
        self.update(&text.raw("content", content.as_str()).finish());
    }
}

impl Turn {
    /// The client sent a prompt. `spare` is the id that its message gets if the agent gives none.
    pub(super) fn prompted(
        &mut self,
        id: &RequestId,
        content: Json,
        spare: MessageId,
        agent: Way,
        out: &mut TurnOutput<'_>,
    ) {
        let runs = self.runs();
        self.prompts.push(Prompt {
            id: id.clone(),
            content,
            spare,
            message: None,
            accepted: None,
            ended: None,
        });
        // A v1 agent does not say when it begins with a prompt: at once, or when the turn that runs has ended.
        if agent.from == Dialect::V1 && !runs {
            self.begin(agent, out);
        }
    }

    /// What a v1 agent calls a message that a v2 client calls so.
    pub(super) fn named(&self, id: &MessageId) -> Option<&MessageId> {
        self.names.iter().rev().find(|(ours, _)| ours == id).map(|(_, theirs)| theirs)
    }

    /// Remembers that the agent has another id for a message than the client.
    pub(super) fn name(&mut self, ours: MessageId, theirs: MessageId) {
        if self.names.len() >= MAX_NAMES {
            self.names.pop_front();
        }
        self.names.push_back((ours, theirs));
    }

    /// Takes an update that a v1 agent may repeat its prompt with. `Some` has the lines that were held back and turned
    /// out to be no echo; they come before this update. `None` means that the update adds nothing, or not yet.
    pub(super) fn hears_echo(
        &mut self,
        update: &Members<'_>,
        line: impl FnOnce() -> String,
    ) -> Option<Vec<String>> {
        let Some(echo) = &mut self.echo else { return Some(Vec::new()) };
        match echo.hears(update) {
            EchoHeard::Beside => Some(Vec::new()),
            EchoHeard::Prefix => {
                let lines = echo.hold(line()).err()?;
                self.echo = None;
                Some(lines)
            }
            EchoHeard::Whole => {
                self.end_echo();
                None
            }
            EchoHeard::Other => Some(self.end_echo()),
        }
    }

    /// Nothing that follows repeats the prompt. The lines that were held back and are no echo come back.
    pub(super) fn end_echo(&mut self) -> Vec<String> {
        let Some(echo) = self.echo.take() else { return Vec::new() };
        match echo.end() {
            Ok(Some((ours, theirs))) => {
                self.name(ours, theirs);
                Vec::new()
            }
            Ok(None) => Vec::new(),
            Err(lines) => lines,
        }
    }

    /// Whether the turn of a prompt runs.
    fn runs(&self) -> bool {
        self.prompts.iter().any(Prompt::is_inserted)
    }

    /// A v1 agent takes the next prompt that waits, if one does.
    fn begin(&mut self, agent: Way, out: &mut TurnOutput<'_>) {
        if let Some(prompt) = self.prompts.first_mut() {
            prompt.begin(agent, out);
            self.echo = Some(Echo::of(&prompt.spare, &prompt.content));
            out.state(self.activity(), agent.to);
        }
    }

    /// The agent answered a prompt.
    pub(super) fn answered(
        &mut self,
        message: &Message<'_>,
        id: &RequestId,
        outcome: Outcome<'_>,
        agent: Way,
        heard: &mut Heard,
        out: &mut TurnOutput<'_>,
    ) {
        // A prompt that could not be read was never told as one, and a turn that is over is told already.
        let Some(place) = self.prompts.iter().position(|prompt| prompt.id == *id) else {
            if agent.from == Dialect::V1 || matches!(outcome, Outcome::Error(_)) {
                out.say(message.text().to_owned());
            }
            return;
        };
        if agent.from == Dialect::V1 {
            let prompt = self.prompts.remove(place);
            return self.v1_answered(prompt, message, outcome, agent, out);
        }
        let result = match outcome {
            Outcome::Result(result) => Object::parse(result).unwrap_or_default(),
            Outcome::Error(error) => {
                self.prompts.remove(place);
                let cancelled = RpcError::from_raw(error).code() == code::REQUEST_CANCELLED;
                if agent.to == Dialect::V1 && cancelled {
                    out.say(write::response(id, shape::json(r#"{"stopReason":"cancelled"}"#).raw()));
                } else {
                    out.say(message.text().to_owned());
                }
                return;
            }
        };
        let prompt = &mut self.prompts[place];
        if let Some(named) = result.get("messageId").and_then(|id| JsonStr::from_raw(id.raw())) {
            prompt.message = Some(named.into());
        }
        match (agent.to, prompt.message.clone()) {
            // The answer comes with the end of the turn.
            (Dialect::V1, named) => {
                if let Some(named) = named {
                    heard.sent(&named, &prompt.content);
                }
                prompt.accepted = Some(result);
                if let Some(ended) = prompt.ended.take() {
                    let prompt = self.prompts.remove(place);
                    let answer = end_of_turn(&prompt, &ended, out.losses);
                    out.say(answer);
                }
            }
            (Dialect::Draft, _) => {
                let mut result = result;
                result.remove("messageId");
                out.say(envelope(message, None, &[("result", result.to_json().as_str())]));
                self.prompts.remove(place);
            }
            (Dialect::V2, Some(named)) => {
                out.accept(id, &named, result, Dialect::V2);
                self.prompts.remove(place);
            }
            // v2 wants the message's id with the answer, and it comes with the message.
            (Dialect::V2, None) => prompt.accepted = Some(result),
        }
    }

    /// A v1 agent answered a prompt, which ends its turn; or gives it back, if another one's turn runs.
    fn v1_answered(
        &mut self,
        mut prompt: Prompt,
        message: &Message<'_>,
        outcome: Outcome<'_>,
        agent: Way,
        out: &mut TurnOutput<'_>,
    ) {
        if !prompt.is_inserted() {
            let ended = match outcome {
                Outcome::Error(_) => return out.say(message.text().to_owned()),
                Outcome::Result(_) => idle(outcome),
            };
            if ended.stop_reason.as_ref().is_some_and(|reason| reason.to_text() == "cancelled") {
                let error = RpcError::new(code::REQUEST_CANCELLED, "the prompt was taken back");
                return out.say(write::error_response(&prompt.id, &error));
            }
            // An agent that does several things at once.
            prompt.begin(agent, out);
            out.state(Activity::Running, agent.to);
        }
        let (ended, named) = ended(outcome);
        if let Some(named) = named {
            self.name(prompt.spare, named);
        }
        out.update(&v2::state_text(&ended, agent.to));
        if self.runs() {
            out.state(self.activity(), agent.to);
        } else if !self.prompts.is_empty() {
            self.begin(agent, out);
        } else if self.blocked > 0 {
            out.state(self.activity(), agent.to);
        }
    }

    /// What has to be said before an update is. `is_new` says whether it is the first about its entry.
    pub(super) fn before(
        &mut self,
        update: &Update,
        is_new: bool,
        agent: Way,
        heard: &mut Heard,
        out: &mut TurnOutput<'_>,
    ) {
        if agent.from == Dialect::V1 {
            return;
        }
        let is_end = matches!(update, Update::State(state) if state.activity == Activity::Idle);
        let is_known =
            |id: &&MessageId| self.prompts.iter().any(|prompt| prompt.message.as_ref() == Some(*id));
        let named = user_message(update).filter(|id| is_new && !is_known(id)).cloned();
        let waits = |prompt: &Prompt| prompt.message.is_none();
        let Some(place) = self.prompts.iter().position(waits) else { return };
        let prompt = &mut self.prompts[place];
        match (agent.to, named) {
            (Dialect::V1, Some(named)) => {
                heard.sent(&named, &prompt.content);
                prompt.message = Some(named);
            }
            (Dialect::V2, Some(named)) => match prompt.accepted.take() {
                Some(answer) => {
                    out.accept(&prompt.id, &named, answer, Dialect::V2);
                    self.prompts.remove(place);
                }
                None => prompt.message = Some(named),
            },
            // The turn ends and the message never came: the client still has to get its answer.
            (Dialect::V2, None) if is_end && prompt.accepted.is_some() => {
                let prompt = self.prompts.remove(place);
                out.accept(&prompt.id, &prompt.spare, prompt.accepted.unwrap_or_default(), Dialect::V2);
                out.user_message(&prompt.spare, &prompt.content);
            }
            (Dialect::V1 | Dialect::V2, None) | (Dialect::Draft, _) => {}
        }
    }

    /// What has to be said after an update was: for a v1 client, the end of a turn is the answer to its prompt.
    pub(super) fn after(&mut self, update: &Update, agent: Way, out: &mut TurnOutput<'_>) {
        let Update::State(state) = update else { return };
        if agent.to != Dialect::V1 {
            return;
        }
        if state.activity != Activity::Idle {
            self.prompts.iter_mut().for_each(|prompt| prompt.ended = None);
            return;
        }
        let waiting = self.prompts.len();
        for prompt in self.prompts.extract_if(.., |prompt| prompt.is_inserted()) {
            let answer = end_of_turn(&prompt, state, out.losses);
            out.say(answer);
        }
        // If it was nobody's end that is known, the answers to these may still be on their way. Else they wait.
        if self.prompts.len() == waiting {
            self.prompts.iter_mut().for_each(|prompt| prompt.ended = Some(state.clone()));
        }
    }

    /// Whether a v1 client knows of a state without being told. `requires_action` is known by the request that goes
    /// with it, which may come after it: if none came before the next state, that is reported then.
    pub(super) fn implies(&mut self, state: &State, losses: &mut Losses) -> bool {
        if std::mem::take(&mut self.unasked_action) {
            losses.add(LossKind::State);
        }
        let says_more = state.meta.is_some() || !state.fields.is_empty();
        match state.activity {
            Activity::Running => !self.prompts.is_empty() && !says_more,
            Activity::RequiresAction => {
                let is_known = !self.prompts.is_empty() && !says_more;
                self.unasked_action = is_known && self.blocked == 0;
                is_known
            }
            Activity::Idle => !self.prompts.is_empty(),
            Activity::Other(_) => false,
        }
    }

    /// The agent asks a person something.
    pub(super) fn blocks(&mut self, agent: Way, out: &mut TurnOutput<'_>) {
        self.blocked += 1;
        self.unasked_action = false;
        if agent.from == Dialect::V1 {
            out.state(Activity::RequiresAction, agent.to);
        }
    }

    /// The person answered.
    pub(super) fn unblocks(&mut self, agent: Way, out: &mut TurnOutput<'_>) {
        self.blocked = self.blocked.saturating_sub(1);
        if agent.from == Dialect::V1 && self.blocked == 0 {
            out.state(self.activity(), agent.to);
        }
    }

    /// What a session of a v1 agent does now.
    fn activity(&self) -> Activity {
        match (self.blocked, self.prompts.is_empty()) {
            (1.., _) => Activity::RequiresAction,
            (0, false) => Activity::Running,
            (0, true) => Activity::Idle,
        }
    }
}

impl Prompt {
    /// A v1 agent takes it: the client has its answer, and its message is in the conversation.
    fn begin(&mut self, agent: Way, out: &mut TurnOutput<'_>) {
        out.accept(&self.id, &self.spare, Object::default(), agent.to);
        out.user_message(&self.spare, &self.content);
        self.message = Some(self.spare.clone());
        self.accepted = Some(Object::default());
    }

    /// Whether the agent has put it into the conversation.
    fn is_inserted(&self) -> bool {
        self.accepted.is_some() || self.message.is_some()
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

/// The state that the answer to a v1 prompt stands for, and what it calls the prompt's message.
fn ended(outcome: Outcome<'_>) -> (State, Option<MessageId>) {
    let mut state = idle(outcome);
    let named = state.meta.as_mut().and_then(|meta| meta.remove(MESSAGE));
    if state.meta.as_ref().is_some_and(Object::is_empty) {
        state.meta = None;
    }
    (state, named.and_then(|id| JsonStr::from_raw(id.raw())).map(MessageId::from))
}

/// The state that the answer to a v1 prompt stands for.
pub(crate) fn idle(outcome: Outcome<'_>) -> State {
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
        shape::note(&mut fields, USAGE, Json::from("session"));
    }
    let meta = fields.remove("_meta").and_then(|meta| meta.to_object());
    State { activity: Activity::Idle, stop_reason, fields, meta }
}

/// The answer to a v1 prompt that a state stands for.
fn end_of_turn(prompt: &Prompt, state: &State, losses: &mut Losses) -> String {
    match turn_result(state, prompt.accepted.as_ref(), losses) {
        Ok(result) => write::response(&prompt.id, result.to_json().raw()),
        Err(error) => write::error_response(&prompt.id, &error),
    }
}

/// What the answer to a v1 prompt says when its turn ends in a state. `accepted` is what the agent said when it took
/// the prompt, which has no other place in v1.
pub(crate) fn turn_result(
    state: &State,
    accepted: Option<&Object>,
    losses: &mut Losses,
) -> Result<Object, RpcError> {
    let reason = state.stop_reason.as_ref().map(JsonStr::to_text);
    if reason.as_deref() == Some("error") {
        return Err(failed_turn(state, losses));
    }
    let known = match reason.as_deref() {
        Some(known @ ("end_turn" | "max_tokens" | "max_turn_requests" | "refusal" | "cancelled")) => known,
        Some(_) | None => {
            losses.add(LossKind::StopReason);
            "end_turn"
        }
    };
    let mut result = Object::default();
    result.set("stopReason", Json::from(known));
    result.add_missing(&state.fields);
    if let Some(meta) = &state.meta {
        result.set("_meta", meta.to_json());
    }
    // v2 counts the turn that ended, unless the count came from v1.
    if result.get("usage").is_some() && shape::take_note(&mut result, USAGE).is_none() {
        shape::note(&mut result, USAGE, Json::from("turn"));
    }
    let mut accepted = accepted.cloned().unwrap_or_default();
    accepted.remove("messageId");
    result.add_missing(&accepted);
    Ok(result)
}

/// The error that ends a v1 prompt. What else the state said goes into its data, where there is room.
fn failed_turn(state: &State, losses: &mut Losses) -> RpcError {
    let mut rest = state.fields.clone();
    let error = rest.remove("error").and_then(|error| error.to_object()).unwrap_or_default();
    if let Some(meta) = &state.meta {
        rest.set("_meta", meta.to_json());
    }
    let is_whole = shape::is(&error, "code", Type::Number) && shape::is(&error, "message", Type::String);
    let has_data = error.get("data").is_some();
    let said = if is_whole {
        RpcError::from_raw(error.to_json().raw())
    } else {
        let message = error.get_string("message");
        RpcError::new(code::INTERNAL_ERROR, message.as_deref().unwrap_or("the turn ended with an error"))
    };
    match (rest.is_empty(), has_data) {
        (true, _) => said,
        (false, false) => said.with_data(rest.to_json()),
        (false, true) => {
            losses.add(LossKind::State);
            said
        }
    }
}
