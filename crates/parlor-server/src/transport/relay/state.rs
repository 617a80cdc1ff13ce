//! What a relay has to know to connect to another server without the editor noticing: the editor's `initialize`, the
//! sessions that it is attached to, and the requests in flight. This file does no I/O.

use std::borrow::Cow;
use std::collections::HashMap;

use parlor_dialect::live::{self, AgentUpdate};
use parlor_json::{JsonRef, JsonStr, Members, Object};
use parlor_session::SessionId;
use parlor_wire::{
    Batches, Body, CANCEL_REQUEST, Incoming, IncomingRequests, Message, Outcome, RequestId, RpcError,
    cancel_line, cancel_target, code, parse, span_of, splice, write,
};

/// How many requests of the editor are tracked; the server rejects more.
const MAX_REQUESTS: usize = 10_000;

/// How many requests of the server to the editor are tracked.
const MAX_SERVER_REQUESTS: usize = 10_000;

/// How many sessions the editor is attached to again; it has to load others itself.
const MAX_SESSIONS: usize = 1000;

/// The longest params with which a session was opened that are kept.
const MAX_PARAMS: usize = 64 << 10;

/// How many bytes of prompts without a response are kept, to send them again.
const MAX_PROMPTS: usize = 64 << 20;

/// How many times a prompt is sent again: it may be what the servers die of.
const MAX_REPEATS: u8 = 3;

/// How many bytes are held back until the editor is attached to its sessions again.
const MAX_HELD: usize = 64 << 20;

/// The metadata keys of sequence numbers, of prompts and of states.
const SEQ: &str = "parlor/seq";
const KEY: &str = "parlor/key";
const STATE: &str = "parlor/state";

/// The state of a relay between an editor and the servers that it is connected to, one after the other.
#[derive(Debug)]
pub(super) struct RelayState {
    /// The editor's `initialize`, once a server has accepted it.
    initialize: Option<String>,
    /// By the literals of their ids.
    sessions: HashMap<String, AttachedSession>,
    in_flight: IncomingRequests<EditorRequest>,
    /// The bytes of prompts in flight.
    prompt_bytes: usize,
    /// The requests to the editor without a response: the ids that the editor knows, with those of the server.
    to_editor: HashMap<RequestId, RequestId>,
    /// How many servers the relay has lost. The ids of a later server's requests are not those of an earlier one's.
    generation: u64,
    /// The start of the keys of prompts, which no other relay has.
    key_prefix: String,
    last_key: u64,
    reattaching: Option<Reattaching>,
}

/// A session that the editor is attached to.
#[derive(Debug, Clone)]
struct AttachedSession {
    /// The last change that the editor has.
    seq: u64,
    /// Whether the editor waits for the end of a turn.
    is_busy: bool,
    /// Whether the editor has a part of the changes after `seq`: updates of a replay have no numbers.
    is_partial: bool,
    /// The params with which it opened the session, as far as they hold for `session/resume`.
    params: Object,
}

/// A request of the editor that has no response.
#[derive(Debug)]
enum EditorRequest {
    Initialize {
        line: String,
    },
    /// Opens a session; the id of a new one is in the response.
    Open {
        session: Option<SessionId>,
        params: Object,
    },
    Prompt(SentPrompt),
    /// Closes or deletes a session.
    Close {
        session: Option<SessionId>,
    },
    Other,
}

/// A prompt without a response.
#[derive(Debug)]
struct SentPrompt {
    session: Option<SessionId>,
    /// The line, with a key.
    line: String,
    /// The line that cancels it.
    cancel: Option<String>,
    repeats: u8,
}

/// The editor is attached to its sessions at another server.
#[derive(Debug)]
struct Reattaching {
    /// The relay's own requests; `None` for `initialize`.
    awaited: HashMap<RequestId, Option<SessionId>>,
    /// The lines for the editor meanwhile. If this server is lost, too, the editor has not seen them; `None` if they were too
    /// many to be held back.
    held: Option<String>,
    /// The sessions before.
    sessions: HashMap<String, AttachedSession>,
}

/// What follows from a line of the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing.
    None,
    /// The editor is attached to its sessions again. These lines are for the server.
    Reattached(String),
    /// The server rejects the editor's `initialize`.
    Rejected(String),
}

impl RelayState {
    /// Creates the state of a relay, with a text that no other relay has.
    pub(super) fn new(key_prefix: String) -> Self {
        Self {
            initialize: None,
            sessions: HashMap::new(),
            in_flight: IncomingRequests::new(MAX_REQUESTS),
            prompt_bytes: 0,
            to_editor: HashMap::new(),
            generation: 0,
            key_prefix,
            last_key: 0,
            reattaching: None,
        }
    }

    /// Whether the editor waits for something that only a server can send.
    pub(super) fn needs_server(&self) -> bool {
        !self.in_flight.is_empty() || self.sessions.values().any(|session| session.is_busy)
    }

    /// Adds a line of the editor to those for the server.
    pub(super) fn on_editor_line(&mut self, line: &str, to_server: &mut String) {
        let relayed = match parse(line, Batches::Accept) {
            Ok(Incoming::One(message)) => self.on_editor_message(line, &message),
            Ok(Incoming::Batch(messages)) => {
                for message in messages.into_iter().flatten() {
                    if let Body::Request { id, .. } = message.body {
                        let _ = self.in_flight.register(id, EditorRequest::Other);
                    }
                }
                Some(Cow::Borrowed(line))
            }
            // The server responds to it.
            Err(_) => Some(Cow::Borrowed(line)),
        };
        if let Some(relayed) = relayed {
            to_server.push_str(&relayed);
            to_server.push('\n');
        }
    }

    fn on_editor_message<'a>(&mut self, line: &'a str, message: &Message<'_>) -> Option<Cow<'a, str>> {
        match &message.body {
            Body::Request { id, method, params } => {
                let (request, line) = self.request(line, method, *params);
                let bytes = request.prompt_bytes();
                // The server rejects a request whose id is in use, and one too many.
                if self.in_flight.register(id.clone(), request).is_ok() {
                    self.prompt_bytes += bytes;
                }
                Some(line)
            }
            Body::Response { id, .. } => match self.to_editor.remove(id) {
                Some(servers) if servers != *id => Some(message.with_id(&servers).into()),
                // It responds to a request of a server that is gone.
                None if self.generation > 0 => None,
                Some(_) | None => Some(line.into()),
            },
            Body::Notification { method, params } => {
                if method == CANCEL_REQUEST {
                    let prompt = cancel_target(*params).and_then(|id| self.in_flight.get_mut(&id));
                    if let Some(EditorRequest::Prompt(prompt)) = prompt {
                        prompt.add_cancel(line);
                    }
                } else if method == "session/cancel" {
                    let session = session_of(*params);
                    for prompt in self.in_flight.values_mut().filter_map(EditorRequest::as_prompt_mut) {
                        if prompt.session == session {
                            prompt.add_cancel(line);
                        }
                    }
                }
                Some(line.into())
            }
        }
    }

    /// Classifies a request, and returns its line for the server: `initialize` requests sequence numbers, and a prompt has
    /// a key.
    fn request<'a>(
        &mut self,
        line: &'a str,
        method: &str,
        params: Option<JsonRef<'_>>,
    ) -> (EditorRequest, Cow<'a, str>) {
        let object = || params.and_then(JsonRef::to_object);
        match method {
            "initialize" => {
                let Some(mut given) = object() else { return (EditorRequest::Other, line.into()) };
                given.set_nested("_meta", SEQ, true);
                let line = with_params(line, params, &given);
                (EditorRequest::Initialize { line: line.clone().into_owned() }, line)
            }
            "session/prompt" => {
                let Some(mut given) = object() else { return (EditorRequest::Other, line.into()) };
                let session = given.get_json_str("sessionId").map(SessionId::from);
                let line = if given.get_nested("_meta", KEY).is_some() {
                    line.into()
                } else {
                    self.last_key += 1;
                    given.set_nested("_meta", KEY, format!("{}-{}", self.key_prefix, self.last_key));
                    with_params(line, params, &given)
                };
                if self.prompt_bytes + line.len() > MAX_PROMPTS {
                    return (EditorRequest::Other, line);
                }
                let kept = line.clone().into_owned();
                let prompt = SentPrompt { session, line: kept, cancel: None, repeats: 0 };
                (EditorRequest::Prompt(prompt), line)
            }
            "session/new" | "session/load" | "session/resume" | "session/attach" | "session/fork"
            | "_parlor/edit" | "_parlor/regenerate" => {
                let mut given = object().unwrap_or_default();
                for name in ["messageId", "replayFrom", "historyPolicy", "clientId", "prompt", "_meta"] {
                    given.remove(name);
                }
                let session = given.remove("sessionId").and_then(|id| id.to_json_str());
                let params = if given.text_len() > MAX_PARAMS { Object::default() } else { given };
                (EditorRequest::Open { session: session.map(SessionId::from), params }, line.into())
            }
            "session/close" | "session/detach" | "session/delete" => {
                (EditorRequest::Close { session: session_of(params) }, line.into())
            }
            _ => (EditorRequest::Other, line.into()),
        }
    }

    /// Adds a line of the server to those for the editor.
    pub(super) fn on_server_line(&mut self, line: &str, to_editor: &mut String) -> Progress {
        if let Some(UpdateParts { session, kind, seq }) = UpdateParts::of_numbered(line) {
            let is_busy = reported_state(kind, line);
            self.on_update(session, Some(seq), is_busy, kind);
            self.send_to_editor(line, to_editor);
            return Progress::None;
        }
        if let Some(update) = AgentUpdate::read(line) {
            let seq = update.meta().and_then(|meta| Members::of(meta).ok()?.get(SEQ)?.as_u64());
            let kind = live::update_kind(line).unwrap_or_default();
            if let Some(session) = update.session() {
                let is_busy = reported_state(&kind, line);
                self.on_update(session.as_json().as_literal(), seq, is_busy, &kind);
            }
            self.send_to_editor(line, to_editor);
            return Progress::None;
        }
        match parse(line, Batches::Accept) {
            Ok(Incoming::One(message)) => self.on_server_message(&message, to_editor),
            Ok(Incoming::Batch(messages)) => {
                for message in messages.into_iter().flatten() {
                    if let Body::Response { id, .. } = message.body {
                        drop(self.in_flight.complete(&id));
                    }
                }
                self.send_to_editor(line, to_editor);
                Progress::None
            }
            Err(_) => {
                self.send_to_editor(line, to_editor);
                Progress::None
            }
        }
    }

    fn on_update(&mut self, session: &str, seq: Option<u64>, is_busy: Option<bool>, kind: &str) {
        if !self.sessions.contains_key(session) && self.sessions.len() < MAX_SESSIONS && seq.is_some() {
            // A prompt or a fork attaches a client, too.
            self.sessions.insert(session.to_owned(), AttachedSession::new(Object::default()));
        }
        let Some(attached) = self.sessions.get_mut(session) else { return };
        match seq {
            Some(seq) => (attached.seq, attached.is_partial) = (seq, false),
            // The prompt queue and other notices are not stored, and have no numbers either.
            None => attached.is_partial |= kind != "session_info_update",
        }
        attached.is_busy = is_busy.unwrap_or(attached.is_busy);
    }

    fn on_server_message(&mut self, message: &Message<'_>, to_editor: &mut String) -> Progress {
        match &message.body {
            Body::Response { id, outcome } => {
                if let Some(reattaching) = &mut self.reattaching
                    && let Some(session) = reattaching.awaited.remove(id)
                {
                    return self.on_reattached(session, outcome, to_editor);
                }
                self.on_response(id, outcome);
                self.send_to_editor(message.text(), to_editor);
            }
            Body::Request { id, .. } => {
                if self.generation == 0 {
                    self.add_server_request(id.clone(), id.clone());
                    self.send_to_editor(message.text(), to_editor);
                } else {
                    let editors = self.editors_id(id);
                    self.add_server_request(editors.clone(), id.clone());
                    self.send_to_editor(&message.with_id(&editors), to_editor);
                }
            }
            Body::Notification { method, params } => {
                let cancelled = cancel_target(*params).filter(|_| method == CANCEL_REQUEST);
                match cancelled {
                    Some(id) if self.generation > 0 => {
                        let editors = self.editors_id(&id);
                        self.to_editor.remove(&editors);
                        self.send_to_editor(&cancel_line(&editors), to_editor);
                    }
                    cancelled => {
                        cancelled.iter().for_each(|id| drop(self.to_editor.remove(id)));
                        self.send_to_editor(message.text(), to_editor);
                    }
                }
            }
        }
        Progress::None
    }

    /// The editor's id of a request of a later server.
    fn editors_id(&self, servers: &RequestId) -> RequestId {
        let literal = servers.as_literal();
        RequestId::from(format!("{}:{}", self.generation, literal.trim_matches('"')).as_str())
    }

    fn add_server_request(&mut self, editors: RequestId, servers: RequestId) {
        if self.to_editor.len() < MAX_SERVER_REQUESTS {
            self.to_editor.insert(editors, servers);
        }
    }

    /// The server responds to a request of the editor.
    fn on_response(&mut self, id: &RequestId, outcome: &Outcome<'_>) {
        let Some((_, request)) = self.in_flight.complete(id) else { return };
        self.prompt_bytes -= request.prompt_bytes();
        let Outcome::Result(result) = outcome else { return };
        match request {
            EditorRequest::Initialize { line } => self.initialize = Some(line),
            EditorRequest::Open { session, params } => {
                let result = Members::of(*result).unwrap_or_default();
                let created = result.get("sessionId").and_then(JsonStr::from_raw).map(SessionId::from);
                let Some(session) = created.or(session) else { return };
                let key = key(&session);
                if self.sessions.len() < MAX_SESSIONS || self.sessions.contains_key(key) {
                    let mut attached = AttachedSession::new(params);
                    attached.on_opened(&result);
                    self.sessions.insert(key.to_owned(), attached);
                }
            }
            EditorRequest::Close { session } => {
                session.iter().for_each(|session| drop(self.sessions.remove(key(session))));
            }
            EditorRequest::Prompt(_) | EditorRequest::Other => {}
        }
    }

    /// Adds a line to those for the editor, or holds it back while the editor is being attached to its sessions.
    fn send_to_editor(&mut self, line: &str, to_editor: &mut String) {
        if let Some(Reattaching { held: holding @ Some(_), .. }) = &mut self.reattaching {
            let held = holding.get_or_insert_default();
            held.push_str(line);
            held.push('\n');
            if held.len() > MAX_HELD {
                to_editor.push_str(held);
                *holding = None;
            }
            return;
        }
        to_editor.push_str(line);
        to_editor.push('\n');
    }

    /// The server is gone. Adds the lines for the editor that follow from that: its requests fail, except those that are sent
    /// again, and the server's requests are cancelled. Returns the sessions of which the editor may have lost changes.
    pub(super) fn on_server_lost(&mut self, to_editor: &mut String) -> Vec<SessionId> {
        let mut lost = Vec::new();
        let open: Vec<_> = self.to_editor.drain().map(|(id, _)| id).collect();
        match self.reattaching.take() {
            // The editor has seen nothing of this server.
            Some(Reattaching { held: Some(_), sessions, .. }) => self.sessions = sessions,
            Some(Reattaching { held: None, awaited, .. }) => {
                lost.extend(awaited.into_values().flatten());
                lost.iter().for_each(|session| drop(self.sessions.remove(key(session))));
                open.iter().for_each(|id| push_line(to_editor, &cancel_line(id)));
            }
            None => open.iter().for_each(|id| push_line(to_editor, &cancel_line(id))),
        }
        let partial = self.sessions.iter().filter(|(_, attached)| attached.is_partial);
        lost.extend(partial.filter_map(|(id, _)| session_id(id)));
        self.generation += 1;
        let error = RpcError::new(
            code::INTERNAL_ERROR,
            "the parlor server was lost before it responded: send the request again",
        );
        for (id, request) in self.in_flight.drain() {
            match request {
                EditorRequest::Prompt(prompt) if prompt.repeats >= MAX_REPEATS => {
                    self.prompt_bytes -= prompt.line.len();
                    let message = format!("{} servers were lost before they responded", MAX_REPEATS + 1);
                    let error = RpcError::new(code::INTERNAL_ERROR, message);
                    push_line(to_editor, &write::error_response(&id, &error));
                }
                request @ (EditorRequest::Prompt(_) | EditorRequest::Initialize { .. }) => {
                    let _ = self.in_flight.register(id, request);
                }
                EditorRequest::Open { .. } | EditorRequest::Close { .. } | EditorRequest::Other => {
                    push_line(to_editor, &write::error_response(&id, &error));
                }
            }
        }
        lost
    }

    /// The relay gives up. Adds errors for the requests of the editor that have no response.
    pub(super) fn on_given_up(&mut self, reason: &str, to_editor: &mut String) {
        let error = RpcError::new(code::INTERNAL_ERROR, format!("the parlor server is gone: {reason}"));
        for (id, _) in self.in_flight.drain() {
            push_line(to_editor, &write::error_response(&id, &error));
        }
    }

    /// The relay is connected to another server. Adds the lines that attach the editor to its sessions again. Returns whether
    /// the server has to respond to them before the editor's next lines are relayed.
    pub(super) fn reattach(&mut self, to_server: &mut String) -> bool {
        let Some(initialize) = &self.initialize else {
            // The editor's `initialize` had no response.
            for request in self.in_flight.values_mut() {
                if let EditorRequest::Initialize { line } = request {
                    push_line(to_server, line);
                }
            }
            self.repeat_prompts(to_server);
            return false;
        };
        let mut awaited = HashMap::new();
        let mut own_id = |session: Option<SessionId>| {
            let id = RequestId::from(
                format!("{}-{}-{}", self.key_prefix, self.generation, awaited.len()).as_str(),
            );
            awaited.insert(id.clone(), session);
            id
        };
        if let Ok(Incoming::One(message)) = parse(initialize, Batches::Refuse) {
            push_line(to_server, &message.with_id(&own_id(None)));
        }
        for (id, attached) in &self.sessions {
            let Some(session) = session_id(id) else { continue };
            let mut params = attached.params.clone();
            params.set("sessionId", session.as_json());
            if !attached.is_partial {
                let from = Object::new().with("type", "_parlor_after").with("seq", attached.seq);
                params.set("replayFrom", from.to_json());
            }
            let id = own_id(Some(session));
            push_line(to_server, &write::request(&id, "session/resume", Some(params.to_json().raw())));
        }
        let (held, sessions) = (Some(String::new()), self.sessions.clone());
        self.reattaching = Some(Reattaching { awaited, held, sessions });
        true
    }

    /// The server responds to a request of the relay: to `initialize`, or to the `session/resume` of a session.
    fn on_reattached(
        &mut self,
        session: Option<SessionId>,
        outcome: &Outcome<'_>,
        to_editor: &mut String,
    ) -> Progress {
        match (session, outcome) {
            (None, Outcome::Error(error)) => {
                return Progress::Rejected(RpcError::from_raw(*error).message().to_owned());
            }
            (None, Outcome::Result(_)) => {}
            (Some(session), Outcome::Error(error)) => {
                let error = RpcError::from_raw(*error);
                tracing::warn!(%session, "the session cannot be resumed: {}", error.message());
                self.sessions.remove(key(&session));
            }
            (Some(session), Outcome::Result(result)) => {
                let result = Members::of(*result).unwrap_or_default();
                if let Some(attached) = self.sessions.get_mut(key(&session)) {
                    attached.on_opened(&result);
                }
            }
        }
        if self.reattaching.as_ref().is_some_and(|reattaching| !reattaching.awaited.is_empty()) {
            return Progress::None;
        }
        if let Some(held) = self.reattaching.take().and_then(|reattaching| reattaching.held) {
            to_editor.push_str(&held);
        }
        let mut to_server = String::new();
        self.repeat_prompts(&mut to_server);
        Progress::Reattached(to_server)
    }

    /// Adds the prompts without a response, each with what cancels it.
    fn repeat_prompts(&mut self, to_server: &mut String) {
        let (mut prompts, mut cancels) = (Vec::new(), Vec::new());
        for prompt in self.in_flight.values_mut().filter_map(EditorRequest::as_prompt_mut) {
            prompt.repeats += 1;
            prompts.push(prompt.line.as_str());
            cancels.extend(prompt.cancel.as_deref());
        }
        prompts.into_iter().chain(cancels).for_each(|line| push_line(to_server, line));
    }
}

impl AttachedSession {
    fn new(params: Object) -> Self {
        Self { seq: 0, is_busy: false, is_partial: false, params }
    }

    /// Takes over what the response says that opened the session.
    fn on_opened(&mut self, result: &Members<'_>) {
        let meta = result.get("_meta").and_then(|meta| Members::of(meta).ok()).unwrap_or_default();
        if let Some(seq) = meta.get(SEQ).and_then(JsonRef::as_u64) {
            self.seq = seq;
        }
        self.is_partial = false;
        self.is_busy = meta.get_str(STATE).is_some_and(|state| state != "idle");
    }
}

impl SentPrompt {
    /// Keeps a line that cancels it; one is enough.
    fn add_cancel(&mut self, line: &str) {
        self.cancel.get_or_insert_with(|| line.to_owned());
    }
}

impl EditorRequest {
    fn as_prompt_mut(&mut self) -> Option<&mut SentPrompt> {
        if let Self::Prompt(prompt) = self { Some(prompt) } else { None }
    }

    fn prompt_bytes(&self) -> usize {
        if let Self::Prompt(prompt) = self { prompt.line.len() } else { 0 }
    }
}

/// The parts of an update that has a number.
struct UpdateParts<'a> {
    /// The literal of the id of its session.
    session: &'a str,
    kind: &'a str,
    seq: u64,
}

impl<'a> UpdateParts<'a> {
    /// Finds the parts of a line as servers usually write it, without parsing all of it: most lines are such updates.
    fn of_numbered(line: &'a str) -> Option<Self> {
        let rest =
            line.strip_prefix(r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"#)?;
        let end = 1 + rest.strip_prefix('"')?.find(['"', '\\'])?;
        let (session, rest) = rest.split_at_checked(end + 1)?;
        let kind = rest.strip_prefix(r#","update":{"sessionUpdate":""#)?;
        let kind = kind.split('"').next()?;
        // With three braces it is the metadata of the params: servers write no other member of the envelope after them.
        let (_, seq) = line.strip_suffix("}}}")?.rsplit_once(r#","_meta":{"parlor/seq":"#)?;
        (!session.contains('\\')).then_some(())?;
        Some(Self { session, kind, seq: seq.parse().ok()? })
    }
}

/// Whether an update of a kind says that a turn runs or has ended; `None` if it says nothing about that.
fn reported_state(kind: &str, line: &str) -> Option<bool> {
    if !matches!(kind, "state_update" | "state_change") {
        return None;
    }
    let params = Members::of(Members::parse(line)?.get("params")?).ok()?;
    let update = Members::of(params.get("update")?).ok()?;
    Some(update.get_str("state").is_some_and(|state| state != "idle"))
}

fn key(session: &SessionId) -> &str {
    session.as_json().as_literal()
}

fn session_id(literal: &str) -> Option<SessionId> {
    JsonStr::from_literal(literal).map(SessionId::from)
}

fn session_of(params: Option<JsonRef<'_>>) -> Option<SessionId> {
    Members::of(params?).ok()?.get("sessionId").and_then(JsonStr::from_raw).map(SessionId::from)
}

/// The line with other params and every other byte unchanged.
fn with_params<'a>(line: &'a str, params: Option<JsonRef<'_>>, other: &Object) -> Cow<'a, str> {
    let span = params.and_then(|params| span_of(line, params));
    let spliced = span.and_then(|span| splice(line, &[(span, &other.text())]));
    spliced.map_or(Cow::Borrowed(line), Cow::Owned)
}

fn push_line(lines: &mut String, line: &str) {
    lines.push_str(line);
    lines.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_numbered_update_are_found_and_other_lines_are_parsed() {
        let line = |session: &str, update: &str, rest: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":{session},"update":{update}{rest}}}}}"#
            )
        };
        let chunk = r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"\"}}}"}}"#;
        let numbered = line(r#""s""#, chunk, r#","_meta":{"parlor/seq":42}"#);
        let parts = UpdateParts::of_numbered(&numbered).unwrap();
        assert_eq!((parts.session, parts.kind, parts.seq), (r#""s""#, "agent_message_chunk", 42));
        for other in [
            line(r#""s""#, chunk, ""),
            line(r#""s\u0041""#, chunk, r#","_meta":{"parlor/seq":42}"#),
            line(r#""s""#, chunk, r#","_meta":{"parlor/seq":42,"x":1}"#),
            line(r#""s""#, r#"{"sessionUpdate":"x","_meta":{"parlor/seq":7}}"#, ""),
            line(r#""s""#, r#"{"sessionUpdate":"x","text":",\"_meta\":{\"parlor/seq\":7"}"#, ""),
        ] {
            assert!(UpdateParts::of_numbered(&other).is_none(), "{other}");
        }
    }
}
