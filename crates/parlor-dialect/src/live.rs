//! What a server says and hears between an agent and many clients, in the dialect of each.
//!
//! A [`Translator`](crate::Translator) stands between one agent and one client and passes their lines on. A server owns
//! the conversation: it answers most requests itself, and tells each client what changed. These are its words.

use std::ops::Range;

use parlor_json::{Json, JsonRef, JsonStr, Object, Type};
use parlor_session::session::{TITLE_MARK, Words};
use parlor_session::{
    Activity, Body, EntryId, MessageId, MetaPatch, Naming, SessionId, Slot, State, TITLE, Target, Transcript,
    Update, Upsert, plain_text,
};
use parlor_wire::{Outcome, RequestId, RpcError, span_of};

pub use crate::broadcast::{AgentLine, Beside, Broadcast, drop_reserved, is_notice, map_sessions};
use crate::encode::v1::{self, Features, Heard};
use crate::encode::{Context, v2};
use crate::hot::UpdateLine;
use crate::text::ObjectText;
use crate::translate::requests::{request_for_v1, request_for_v2, setting_for_v1};
use crate::translate::{questions, turns};
use crate::values::tool_content::item_to_v2;
use crate::values::{blocks, capabilities, commands, options, permission};
use crate::view::activity_name;
use crate::{BadUpdate, Decoded, Decoder, Dialect, LineProblem, LossKind, Losses, event, shape};

/// One client's ears: how it is told what changed.
///
/// v2 can be told anything at any time. What a v1 client is told depends on what it has heard, so there is one listener
/// for each client and session.
#[derive(Debug, Clone)]
pub struct Listener {
    pub(crate) dialect: Dialect,
    features: Features,
    pub(crate) heard: Heard,
    wants_events: bool,
}

/// What a listener may look at while it is told one update.
#[derive(Debug, Clone, Copy)]
pub struct Telling<'a> {
    /// The dialect of the agent.
    pub from: Dialect,
    /// The session as it is after the update.
    pub transcript: &'a Transcript,
    /// The metadata of what is updated, as it was before.
    pub meta_before: Option<&'a Object>,
}

impl Listener {
    /// The ears of a client that began with these params.
    pub fn new(dialect: Dialect, initialize: &Object) -> Self {
        let features = if dialect == Dialect::V1 { Features::of(initialize) } else { Features::default() };
        let wants_events = event::wants_events(initialize);
        Self { dialect, features, heard: Heard::default(), wants_events }
    }

    /// The same for one that is told of events, whatever it asked for.
    #[must_use]
    pub fn with_events(self) -> Self {
        Self { wants_events: true, ..self }
    }

    /// The client forgets the session and is told all of it again.
    pub fn forget(&mut self) {
        self.heard.forget();
    }

    /// Whether what it is told depends only on the update, so that all such listeners of a dialect hear the same.
    pub fn is_stateless(&self) -> bool {
        self.dialect != Dialect::V1
    }

    /// The client itself sent this message and need not be told what it says.
    pub fn sent(&mut self, message: &MessageId, content: &Json) {
        if self.dialect == Dialect::V1 {
            self.heard.sent(message, content);
        }
    }

    /// The updates that tell it of `update`, as JSON objects. `fresh` gives ids for what has to be said anew.
    pub fn tell(
        &mut self,
        update: &Update,
        telling: Telling<'_>,
        fresh: &mut dyn FnMut() -> MessageId,
        losses: &mut Losses,
    ) -> Vec<String> {
        if is_event(update) && !self.wants_events {
            return Vec::new();
        }
        let Telling { from, transcript, meta_before } = telling;
        let mut cx = Context { from, transcript, meta_before, fresh, losses };
        match (self.dialect, update) {
            // A turn is told by the answer to its prompt, and for those who did not ask by a note.
            (Dialect::V1, Update::State(state)) => vec![state_note(state)],
            (Dialect::V1, update) => self.heard.updates(update, self.features, &mut cx),
            (dialect @ (Dialect::V2 | Dialect::Draft), update) => v2::updates(update, dialect, &mut cx),
        }
    }

    /// The options, modes and commands of a session, as a response to the client carries them.
    pub fn session_fields(&mut self, transcript: &Transcript, losses: &mut Losses) -> Object {
        let mut fields = Object::default();
        let options = transcript.slot(Slot::Options).and_then(|body| body.fields.get("configOptions"));
        let modes = transcript.slot(Slot::Mode).map(|body| &body.fields);
        let models = transcript.slot(Slot::Model).map(|body| &body.fields);
        let list = v2::option_list(options, modes, models, losses);
        if self.dialect != Dialect::V1 {
            fields.set("configOptions", list);
            return fields;
        }
        // An agent's own modes are said as it said them; only options of category mode have to be made modes.
        let (list, made) = v1::split_modes(&list, self.features, losses);
        if list.as_str() != "[]" {
            fields.set("configOptions", list);
        }
        if let Some(models) = models.filter(|models| !models.is_empty()) {
            fields.set("models", models.to_json());
        }
        let modes = modes.filter(|modes| modes.get("availableModes").is_some()).cloned().or(made);
        if let Some(modes) = modes {
            self.heard.set_mode(modes.get("currentModeId").and_then(|mode| JsonStr::from_raw(mode.raw())));
            fields.set("modes", modes.to_json());
        }
        fields
    }
}

/// The note by which a v1 client learns whether a turn runs.
fn state_note(state: &State) -> String {
    let name = activity_name(&state.activity);
    let meta = format!(r#"{{"parlor/state":{}}}"#, name.as_literal());
    ObjectText::update("session_info_update").raw("_meta", &meta).finish()
}

/// What a session does, in one word.
pub fn state_name(transcript: &Transcript) -> JsonStr {
    transcript.state().map_or_else(|| JsonStr::new("idle"), |state| activity_name(&state.activity))
}

/// What a session does, as a client that asks for it is told. One that had no turn yet is idle.
pub fn state_snapshot(transcript: &Transcript, dialect: Dialect) -> Object {
    let state = transcript.state().map(|state| shape::json(v2::state_text(state, dialect)));
    let mut snapshot = state.and_then(|state| state.to_object()).unwrap_or_else(|| {
        let mut idle = Object::default();
        idle.set("state", Json::from("idle"));
        idle
    });
    snapshot.remove("sessionUpdate");
    snapshot
}

/// What an agent asks to know that all that it said before has been taken. The answer is an empty object.
pub const SETTLED: &str = "_parlor/settled";

/// What an agent inside the process is told when a session that it began is there for all.
pub const BEGUN: &str = "_parlor/begun";

/// The line of an update, with its end. `seq` is told to clients that asked for it.
pub fn update_line(session: &SessionId, update: &str, seq: Option<u64>) -> String {
    update_line_with(session, update, &Beside::default(), seq)
}

/// The same, with what else the agent said in the params.
pub(crate) fn update_line_with(
    session: &SessionId,
    update: &str,
    beside: &Beside,
    seq: Option<u64>,
) -> String {
    let mut line = String::with_capacity(update.len() + 128);
    line.push_str(r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"#);
    line.push_str(session.as_json().as_literal());
    line.push_str(r#","update":"#);
    line.push_str(update);
    beside.write(seq, &mut line);
    line.push_str("}}\n");
    line
}

/// A line of an agent that updates a session, read in one pass.
pub struct AgentUpdate<'a>(pub(crate) UpdateLine<'a>);

impl<'a> AgentUpdate<'a> {
    /// Reads a line; `None` if it is something else or has to be read the long way.
    pub fn read(line: &'a str) -> Option<Self> {
        UpdateLine::read(line).map(Self)
    }

    /// The session it is about, as the agent names it.
    pub fn session(&self) -> Option<SessionId> {
        JsonStr::from_raw(self.0.session).map(SessionId::from)
    }

    /// What is said beside the update, and not in it.
    pub fn meta(&self) -> Option<JsonRef<'a>> {
        self.0.rest.iter().find(|(name, _)| *name == "_meta").map(|(_, meta)| *meta)
    }

    /// What else the params say.
    pub fn beside(&self) -> Beside {
        Beside::of(self.0.rest.iter().copied())
    }

    /// How the line begins, up to and with the session.
    pub fn prefix<'l>(&self, line: &'l str) -> &'l str {
        span_of(line, self.0.session).map_or(line, |span| &line[..span.end])
    }

    /// Where the parts of the line stand that a server may have to replace.
    pub fn spans(&self, line: &str) -> Option<Spans> {
        let message = self.0.update.get("messageId").and_then(|id| span_of(line, id));
        let content = self.0.update.get("content").and_then(|content| span_of(line, content));
        let members = span_of(line, self.0.update.raw().first()?.0)?.start;
        Some(Spans { session: span_of(line, self.0.session)?, message, content, members })
    }

    /// What it says.
    pub fn decode(
        self,
        decoder: &Decoder,
        fresh: &mut dyn FnMut() -> MessageId,
    ) -> Result<Decoded, BadUpdate> {
        decoder.decode_members(self.0.update, fresh)
    }
}

/// Where the ids of an update line stand.
#[derive(Debug, Clone)]
pub struct Spans {
    session: Range<usize>,
    message: Option<Range<usize>>,
    content: Option<Range<usize>>,
    /// Where the members of the update begin.
    members: usize,
}

impl Spans {
    /// The content of the update.
    pub(crate) fn content<'l>(&self, line: &'l str) -> Option<&'l str> {
        line.get(self.content.clone()?)
    }

    /// Writes the line for a peer that speaks as the agent does: the same bytes, with the ids of the session, and its
    /// end.
    pub fn pass(&self, line: &str, session: &SessionId, message: Option<&MessageId>, passed: &mut String) {
        let session = (self.session.clone(), session.as_json().as_literal());
        let at_front = self.members..self.members;
        let message = message.map(|message| {
            let literal = message.as_json().as_literal();
            self.message.as_ref().map_or((at_front, literal), |span| (span.clone(), literal))
        });
        let mut parts = [Some(session), message];
        if let [Some(session), Some(message)] = &parts
            && message.0.start < session.0.start
        {
            parts.reverse();
        }
        let mut at = 0;
        for (span, literal) in parts.into_iter().flatten() {
            passed.push_str(&line[at..span.start]);
            if span.is_empty() {
                passed.push_str(r#""messageId":"#);
                passed.push_str(literal);
                passed.push(',');
            } else {
                passed.push_str(literal);
            }
            at = span.end;
        }
        passed.push_str(&line[at..]);
        passed.push('\n');
    }
}

/// How the last chunk of a message was said. The chunks of a stream differ in their content only, so that the next one
/// can be read by looking for what is the same.
#[derive(Debug)]
pub struct Stream {
    before: String,
    after: String,
    spans: Spans,
    entry: EntryId,
    extra: Option<Json>,
    beside: Beside,
}

impl Stream {
    /// What a line teaches about those that may follow it. A chunk without an id teaches nothing, because its message
    /// depends on what else was said.
    pub fn after(line: &str, spans: &Spans, beside: &Beside, decoded: &Decoded) -> Option<Self> {
        let Update::Append { entry: entry @ EntryId::Message(..), extra, .. } = &decoded.update else {
            return None;
        };
        let content = spans.content.clone()?;
        let is_plain = decoded.naming == Naming::Silent && decoded.ignored.is_empty();
        let ids_first = spans.session.end <= content.start
            && spans.message.as_ref().is_some_and(|message| message.end <= content.start);
        (is_plain && ids_first).then(|| Self {
            before: line[..content.start].to_owned(),
            after: line[content.end..].to_owned(),
            spans: spans.clone(),
            entry: entry.clone(),
            extra: extra.clone(),
            beside: beside.clone(),
        })
    }

    /// Reads a line that differs from the last one only in its plain text; `None` if it does not.
    pub fn read(&self, line: &str) -> Option<Decoded> {
        let content = self.content(line)?;
        let item: JsonRef<'_> = serde_json::from_str(content).ok()?;
        // White space around it would belong to the line and not to the item.
        if item.as_str().len() != content.len() || plain_text(content).is_none() {
            return None;
        }
        let update =
            Update::Append { entry: self.entry.clone(), item: Json::from(item), extra: self.extra.clone() };
        Some(Decoded { update, naming: Naming::Silent, ignored: Vec::new() })
    }

    /// The content of a line that is like the last one.
    pub(crate) fn content<'l>(&self, line: &'l str) -> Option<&'l str> {
        line.strip_prefix(self.before.as_str())?.strip_suffix(self.after.as_str())
    }

    /// Where the ids of such lines stand.
    pub fn spans(&self) -> &Spans {
        &self.spans
    }

    /// What such lines say beside the update.
    pub fn beside(&self) -> &Beside {
        &self.beside
    }
}

/// What the response to a request for a session, or a set option, says about it: changes of the session's slots.
pub fn learned(result: &Object) -> Vec<Update> {
    let slot = |slot: Slot, fields: Object, whole: bool| {
        let upsert = Upsert { whole, fields, meta: MetaPatch::Keep, ..Upsert::default() };
        Update::Upsert { target: Target::Slot(slot), upsert }
    };
    let mut updates = Vec::new();
    if let Some(modes) = result.get_object("modes") {
        updates.push(slot(Slot::Mode, modes, true));
    }
    if let Some(models) = result.get_object("models") {
        updates.push(slot(Slot::Model, models, true));
    }
    for (name, kind) in [("configOptions", Slot::Options), ("availableCommands", Slot::Commands)] {
        if let Some(list) = result.get(name).filter(|list| list.type_of() == Type::Array) {
            let mut fields = Object::default();
            fields.set(name, list.clone());
            updates.push(slot(kind, fields, true));
        }
    }
    updates
}

/// A changed file, as version 2 shows it in a tool call. Without `old` the file is new.
pub fn diff(path: &str, old: Option<&str>, new: &str) -> Json {
    let mut item = Object::default();
    item.set("type", Json::from("diff"));
    item.set("path", Json::from(path));
    item.set("oldText", old.map_or_else(Json::null, Json::from));
    item.set("newText", Json::from(new));
    item_to_v2(&item).to_json()
}

/// A request of a client as an agent of another dialect knows it: its method and params.
pub fn request_to_agent(
    method: &str,
    params: &Object,
    from: Dialect,
    to: Dialect,
    transcript: Option<&Transcript>,
    losses: &mut Losses,
) -> Result<(String, Object), LossKind> {
    let request = match (from, to) {
        (Dialect::V1, Dialect::V2 | Dialect::Draft) => {
            request_for_v2(method, Some(params.clone()), to, transcript, losses)
        }
        (Dialect::V2 | Dialect::Draft, Dialect::V1) => {
            request_for_v1(method, Some(params.clone()), transcript, losses)
        }
        (Dialect::V1, Dialect::V1) => Ok(setting_for_v1(method, params, transcript)),
        (Dialect::V2 | Dialect::Draft, Dialect::V2 | Dialect::Draft) => Ok(None),
    };
    match request {
        Ok(Some(request)) => Ok((request.method.to_owned(), request.params)),
        Ok(None) => Ok((method.to_owned(), params.clone())),
        Err(unsayable) => Err(unsayable.0),
    }
}

/// A request of an agent as a client of another dialect knows it.
pub fn request_to_client(
    method: &str,
    id: &RequestId,
    params: &Object,
    from: Dialect,
    to: Dialect,
    transcript: &Transcript,
    losses: &mut Losses,
) -> Result<Object, LossKind> {
    let translated = match (from, to) {
        (Dialect::V1, Dialect::V2 | Dialect::Draft) => {
            questions::request_to_v2(method, Some(params.clone()), Some(transcript), losses)
        }
        (Dialect::V2 | Dialect::Draft, Dialect::V1) => {
            questions::request_to_v1(method, id, Some(params.clone()), Some(transcript), losses)
        }
        (Dialect::V1 | Dialect::V2 | Dialect::Draft, _) => Ok(None),
    };
    match translated {
        Ok(translated) => Ok(translated.unwrap_or_else(|| params.clone())),
        Err(unsayable) => Err(unsayable.0),
    }
}

/// The answer of a client to an agent's request, as the agent knows it.
pub fn answer_to_agent(method: &str, result: &Json, from: Dialect, to: Dialect, losses: &mut Losses) -> Json {
    let to_v1 = from != Dialect::V1 && to == Dialect::V1;
    let Some(object) = result.to_object().filter(|_| to_v1) else { return result.clone() };
    match method {
        "session/request_permission" => permission::result_to_v1(&object, losses).to_json(),
        "elicitation/create" => permission::elicitation_result_to_v1(&object, losses).to_json(),
        _ => result.clone(),
    }
}

/// What says that nobody chose anything.
pub fn cancelled_answer(method: &str) -> Json {
    match method {
        "elicitation/create" => shape::json(r#"{"action":"cancel"}"#),
        _ => shape::json(r#"{"outcome":{"outcome":"cancelled"}}"#),
    }
}

/// What an agent said of itself, as a client of another dialect knows it.
pub fn agent_info(result: &Object, from: Dialect, to: Dialect, losses: &mut Losses) -> Object {
    match (from, to) {
        (Dialect::V1, Dialect::V2 | Dialect::Draft) => capabilities::agent_to_v2(result, losses),
        (Dialect::V2 | Dialect::Draft, Dialect::V1) => capabilities::agent_to_v1(result, losses),
        (Dialect::V1 | Dialect::V2 | Dialect::Draft, _) => result.clone(),
    }
}

/// The content of a prompt for an agent.
pub fn prompt_to_agent(content: &Json, to: Dialect, losses: &mut Losses) -> Json {
    if to == Dialect::V1 { blocks::list_to_v1(content, losses) } else { content.clone() }
}

/// The state in which the answer to a v1 prompt leaves the session.
pub fn state_after(outcome: Outcome<'_>) -> State {
    turns::idle(outcome)
}

/// The metadata key under which the answer to a v1 prompt names the message that the prompt became.
pub const MESSAGE: &str = turns::MESSAGE;

/// The state of a session whose turn ended in an error.
pub fn failed_state(error: &RpcError) -> State {
    let line = parlor_wire::write::error_response(&RequestId::null(), error);
    let error = serde_json::from_str::<JsonRef<'_>>(&line).ok().and_then(|line| Object::parse(line).ok());
    let error = error.and_then(|line| line.get("error").cloned()).unwrap_or_else(|| Object::new().to_json());
    turns::idle(Outcome::Error(error.raw()))
}

/// What the answer to a v1 client's prompt says when its turn ends in a state. What a v1 agent said is passed on as it
/// came; what others say of a turn, such as its usage, stands in the metadata.
pub fn turn_result(
    state: &State,
    accepted: &Object,
    agent: Dialect,
    losses: &mut Losses,
) -> Result<Object, RpcError> {
    let result = turns::turn_result(state, Some(accepted), losses)?;
    if agent == Dialect::V1 {
        return Ok(result);
    }
    let (mut said, mut rest) = (Object::default(), Object::default());
    for (name, value) in result.iter() {
        let is_known = matches!(name.inner(), "stopReason" | "_meta");
        if is_known { &mut said } else { &mut rest }.set(name.clone(), value.clone());
    }
    shape::take_note(&mut said, turns::USAGE);
    if !rest.is_empty() {
        shape::note(&mut said, TURN, rest.to_json());
    }
    Ok(said)
}

/// The metadata key of what an agent of another version said of a turn.
const TURN: &str = "parlor/turn";

/// How a session reads tool calls.
pub const WORDS: Words = Words {
    is_final: |body| !is_open(body),
    failed: |body| closed(body, "failed"),
    cancelled: |body| closed(body, "cancelled"),
    ended: event::turn_end,
    event: event::upsert,
    same_setting: crate::settings::same_setting,
};

fn is_event(update: &Update) -> bool {
    matches!(update, Update::Upsert { target: Target::Entry(EntryId::Event(_)), .. })
}

fn is_open(body: &Body) -> bool {
    !matches!(body.fields.get_string("status").as_deref(), Some("completed" | "failed" | "cancelled"))
}

fn closed(body: &Body, status: &str) -> Option<Upsert> {
    is_open(body).then(|| {
        let mut fields = Object::default();
        fields.set("status", Json::from(status));
        Upsert { fields, ..Upsert::default() }
    })
}

/// Takes the title from an update of an agent that is a server of parlor's itself and made the title of a prompt: this server
/// makes its own, and of the conversation as people see it. The mark goes with it. Whether there was one.
pub fn drop_generated_title(update: &mut Update) -> bool {
    let Update::Upsert { target: Target::Slot(Slot::Info), upsert } = update else { return false };
    let (MetaPatch::Replace(meta) | MetaPatch::MergeKeys(meta) | MetaPatch::MergeDeep(meta)) =
        &mut upsert.meta
    else {
        return false;
    };
    if meta.get_string(TITLE_MARK).as_deref() != Some("made") {
        return false;
    }
    meta.remove(TITLE_MARK);
    upsert.fields.remove(TITLE).is_some()
}

/// The commands of a session for a client.
pub fn commands_for(list: &Json, to: Dialect, losses: &mut Losses) -> Json {
    if to == Dialect::V1 { commands::to_v1(list, losses) } else { commands::to_v2(list) }
}

/// Whether an agent answered an `initialize` for version 2 as one that speaks it: some repeat any version they are
/// asked for.
pub fn speaks_v2(result: &Object) -> bool {
    result.get("protocolVersion").is_some_and(|version| version.as_str() == "2")
        && shape::is(result, "info", Type::Object)
}

/// Reads an update line the long way.
pub fn update_of(params: Option<JsonRef<'_>>) -> Result<(SessionId, JsonRef<'_>), LineProblem> {
    let params = params.ok_or(LineProblem::NoUpdate("`params` is missing"))?;
    let params =
        parlor_json::Members::of(params).map_err(|_| LineProblem::NoUpdate("`params` is no object"))?;
    let session = params.get("sessionId").and_then(JsonStr::from_raw);
    let session = session.ok_or(LineProblem::NoUpdate("`sessionId` is missing"))?;
    let update = params.get("update").ok_or(LineProblem::NoUpdate("`update` is missing"))?;
    Ok((session.into(), update))
}

/// The kind of an update, by its line.
pub fn update_kind(line: &str) -> Option<String> {
    let message: JsonRef<'_> = serde_json::from_str(line).ok()?;
    let message = parlor_json::Members::of(message).ok()?;
    let (_, update) = update_of(message.get("params")).ok()?;
    let update = parlor_json::Members::of(update).ok()?;
    update.get_string("sessionUpdate")
}

/// Checks that a prompt is a list of content blocks that have what their types need. Blocks of types that nobody here
/// knows are taken as they are.
pub fn check_prompt(content: &Json) -> Result<(), String> {
    let blocks = content.elements();
    let blocks = blocks.ok_or_else(|| "`prompt` must be a list of content blocks".to_owned())?;
    if blocks.is_empty() {
        return Err("`prompt` must not be empty".to_owned());
    }
    for (place, block) in blocks.into_iter().enumerate() {
        let needs = |what: &str| format!("`prompt[{place}]` {what}");
        let block = Object::parse(block).map_err(|_| needs("must be an object"))?;
        let kind = block.get_string("type").ok_or_else(|| needs("needs a `type`"))?;
        let fields: &[&str] = match kind.as_str() {
            "text" => &["text"],
            "image" | "audio" => &["data", "mimeType"],
            "resource_link" => &["name", "uri"],
            _ => &[],
        };
        for field in fields {
            if !shape::is(&block, field, Type::String) {
                return Err(needs(&format!("of type {kind} needs a string `{field}`")));
            }
        }
        if kind == "resource" {
            let resource = block.get_object("resource").unwrap_or_default();
            let has = |field: &str| shape::is(&resource, field, Type::String);
            if !has("uri") || !(has("text") || has("blob")) {
                return Err(needs("of type resource needs a `resource` with `uri` and `text` or `blob`"));
            }
        }
    }
    Ok(())
}

/// Whether a session rests.
pub fn is_idle(transcript: &Transcript) -> bool {
    transcript.state().is_none_or(|state| state.activity == Activity::Idle)
}

/// The option that is set by `session/set_mode`, for agents that have one.
pub fn has_mode_option(transcript: &Transcript) -> bool {
    let options = transcript.slot(Slot::Options).and_then(|body| body.fields.get("configOptions"));
    options.is_some_and(|options| options::mode_option(options).is_some())
}
