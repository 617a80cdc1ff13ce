//! Translates whole lines between two dialects, in both directions.

mod agent;
mod client;
mod matching;
pub(crate) mod peer_requests;
pub(crate) mod requests;
mod session;
mod turns;

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use parlor_json::{JsonRef, JsonStr, Members, Object, ObjectWriter};
use parlor_session::SessionId;
use parlor_wire::{
    Body, CANCEL_REQUEST, Incoming, IncomingRequests, Malformed, Message, Outcome, RequestId, parse, write,
};

use self::client::PendingRequest;
use self::requests::ResultKind;
use self::session::{LineExtras, SessionOutput, TranslatedSession};
use crate::encode::v1::Features;
use crate::fast_path::UpdateLine;
use crate::{Dialect, LineProblem, Loss, LossKind, Losses, Side};

/// Maximum number of sessions that a translator tracks.
const MAX_SESSIONS: usize = 10_000;

/// Maximum number of unanswered requests of one side.
const MAX_OPEN: usize = 10_000;

/// Translates the lines between an agent and its client.
///
/// Created by [`relay`](Translator::relay), it stands between an agent of one dialect and a client of another.
/// Created by [`record`](Translator::record), it translates a recorded conversation. Created by
/// [`one_sided`](Translator::one_sided), it translates one side only and adds nothing.
///
/// ```
/// use parlor_dialect::{Dialect, Side, Translator};
///
/// let mut translator = Translator::one_sided(Dialect::V1, Dialect::V2);
/// let translation = translator.line(
///     Side::Agent,
///     r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Hi"}}}}"#,
/// );
/// let translation = translation.unwrap();
/// assert!(translation.lines[0].text.contains(r#""messageId":"parlor-1""#));
/// assert!(translation.losses.is_empty());
/// ```
#[derive(Debug)]
pub struct Translator {
    agent: Way,
    client: Way,
    mode: Mode,
    sessions: HashMap<SessionId, TranslatedSession>,
    client_requests: IncomingRequests<PendingRequest>,
    agent_requests: IncomingRequests<PendingRequest>,
    features: Features,
    /// Number of ids that were generated.
    generated: u64,
}

/// The result of one line.
#[derive(Debug, Default)]
pub struct Translation<'a> {
    /// The lines to send, in this order.
    pub lines: Vec<TranslatedLine<'a>>,
    /// The losses of the line.
    pub losses: Vec<Loss>,
    /// Problems with optional parts of the line. The rest was translated.
    pub problems: Vec<LineProblem>,
}

/// One translated line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranslatedLine<'a> {
    /// The side that sends it.
    pub by: Side,
    /// The line, without its line break.
    pub text: Cow<'a, str>,
}

/// The use of a translator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Between two peers; it responds to requests that it cannot forward.
    Relay,
    /// Over a recorded conversation.
    Record,
    /// Over one side of a conversation, so that turns and requests are unknown.
    OneSided,
}

impl Mode {
    /// Whether both sides are translated.
    fn is_two_sided(self) -> bool {
        self != Self::OneSided
    }
}

/// A direction of translation.
#[derive(Debug, Clone, Copy)]
struct Way {
    from: Dialect,
    to: Dialect,
}

/// The output of the line that is being translated.
#[derive(Default)]
struct Output {
    lines: Vec<TranslatedLine<'static>>,
    losses: Losses,
    problems: Vec<LineProblem>,
}

impl Translator {
    /// Translates between an agent and a client of different dialects.
    pub fn relay(agent: Dialect, client: Dialect) -> Self {
        Self::new(Way { from: agent, to: client }, Way { from: client, to: agent }, Mode::Relay)
    }

    /// Translates a recorded conversation of which both sides speak `from`, as if both spoke `to`.
    pub fn record(from: Dialect, to: Dialect) -> Self {
        Self::new(Way { from, to }, Way { from, to }, Mode::Record)
    }

    /// Translates one side of a conversation from `from` to `to`.
    pub fn one_sided(from: Dialect, to: Dialect) -> Self {
        Self::new(Way { from, to }, Way { from, to }, Mode::OneSided)
    }

    fn new(agent: Way, client: Way, mode: Mode) -> Self {
        Self {
            agent,
            client,
            mode,
            sessions: HashMap::new(),
            client_requests: IncomingRequests::new(MAX_OPEN),
            agent_requests: IncomingRequests::new(MAX_OPEN),
            features: Features::default(),
            generated: 0,
        }
    }

    /// Translates one line of `by`.
    pub fn line<'a>(&mut self, by: Side, line: &'a str) -> Result<Translation<'a>, LineProblem> {
        let way = self.way(by);
        let update = UpdateLine::read(line);
        if way.from == way.to {
            if update.is_none() {
                parse(line, way.from.batches()).map_err(LineProblem::Malformed)?;
            }
            let line = TranslatedLine { by, text: Cow::Borrowed(line) };
            return Ok(Translation { lines: vec![line], ..Translation::default() });
        }
        let mut out = Output::default();
        match update.filter(|_| by == Side::Agent) {
            Some(line) => {
                self.update(line.session, line.update, LineExtras::new(&line.rest, &[]), &mut out)?;
            }
            None => match parse(line, way.from.batches()).map_err(LineProblem::Malformed)? {
                Incoming::One(message) => self.message(by, &message, &mut out)?,
                Incoming::Batch(messages) => self.batch(by, messages, &mut out),
            },
        }
        Ok(Translation { lines: out.lines, losses: out.losses.into_vec(), problems: out.problems })
    }

    /// Returns the lines that are still held back because they may be a prompt, after the last line.
    pub fn finish(&mut self) -> Translation<'static> {
        let mut out = Output::default();
        let mut ids: Vec<_> = self.sessions.keys().cloned().collect();
        ids.sort();
        for id in &ids {
            if let Ok((session, mut out)) = self.session(id, &mut out) {
                session.end_echo(&mut out);
            }
        }
        Translation { lines: out.lines, losses: out.losses.into_vec(), problems: out.problems }
    }

    fn way(&self, by: Side) -> Way {
        match by {
            Side::Agent => self.agent,
            Side::Client => self.client,
        }
    }

    /// Translates the messages of a batch, each to its own line.
    fn batch(&mut self, by: Side, messages: Vec<Result<Message<'_>, Malformed>>, out: &mut Output) {
        let mut problems = Vec::new();
        for message in messages {
            let done =
                message.map_err(LineProblem::Malformed).and_then(|message| self.message(by, &message, out));
            problems.extend(done.err());
        }
        if !problems.is_empty() {
            out.problems.push(LineProblem::Batch(problems));
        }
    }

    fn message(&mut self, by: Side, message: &Message<'_>, out: &mut Output) -> Result<(), LineProblem> {
        match (by, &message.body) {
            (Side::Agent, Body::Notification { method, params }) if method == "session/update" => {
                let params = params.ok_or(LineProblem::NoUpdate("`params` is missing"))?;
                let params =
                    Members::of(params).map_err(|_| LineProblem::NoUpdate("`params` is not an object"))?;
                let session =
                    params.get("sessionId").ok_or(LineProblem::NoUpdate("`sessionId` is missing"))?;
                let update = params.get("update").ok_or(LineProblem::NoUpdate("`update` is missing"))?;
                let update =
                    Members::of(update).map_err(|_| LineProblem::NoUpdate("`update` is not an object"))?;
                let rest = params.raw().iter().map(|(name, value)| (unquoted(*name), *value));
                let rest: Vec<_> =
                    rest.filter(|(name, _)| !matches!(*name, "sessionId" | "update")).collect();
                self.update(session, update, LineExtras::new(&rest, &message.extra), out)
            }
            (_, Body::Notification { method, params }) => {
                if self.way(by).to != Dialect::V1 && method == CANCEL_REQUEST && is_about_null(*params) {
                    out.losses.add(LossKind::NullId);
                } else {
                    out.say(by, message.text().to_owned());
                }
                Ok(())
            }
            (Side::Client, Body::Request { id, method, params }) => {
                self.client_request(message, id, method, *params, out);
                Ok(())
            }
            (Side::Agent, Body::Request { id, method, params }) => {
                self.agent_request(message, id, method, *params, out);
                Ok(())
            }
            (Side::Agent, Body::Response { id, outcome }) => {
                match self.client_requests.complete(id) {
                    Some((id, request)) => self.agent_response(message, &id, &request, *outcome, out),
                    None => out.forward_unknown_response(by, message),
                }
                Ok(())
            }
            (Side::Client, Body::Response { id, outcome }) => {
                match self.agent_requests.complete(id) {
                    Some((_, request)) => self.client_response(message, &request, *outcome, out),
                    None => out.forward_unknown_response(by, message),
                }
                Ok(())
            }
        }
    }

    /// Rejects a request that cannot be forwarded: a relay responds to it. In a recording, the response of the other
    /// side is dropped.
    fn reject(&mut self, asker: Side, id: &RequestId, method: &str, loss: LossKind, out: &mut Output) {
        let (open, answerer) = match asker {
            Side::Agent => (&mut self.agent_requests, Side::Client),
            Side::Client => (&mut self.client_requests, Side::Agent),
        };
        match self.mode {
            Mode::Relay => {
                let error = loss.request_error("other side", method);
                out.say(answerer, write::error_response(id, &error));
            }
            Mode::Record => {
                let _ = open.register(
                    id.clone(),
                    PendingRequest { what: ResultKind::Dropped, session: None, value: None },
                );
            }
            Mode::OneSided => {}
        }
    }

    /// Translates an update of a session.
    fn update(
        &mut self,
        session: JsonRef<'_>,
        update: Members<'_>,
        extras: LineExtras,
        out: &mut Output,
    ) -> Result<(), LineProblem> {
        let id = JsonStr::from_raw(session).map(SessionId::from);
        let id = id.ok_or(LineProblem::NoUpdate("`sessionId` must be a string"))?;
        let (session, mut out) = self.session(&id, out)?;
        session.on_update(update, extras, &mut out)
    }

    /// A session, created if it is new, and what it needs to handle a line.
    fn session<'a>(
        &'a mut self,
        id: &'a SessionId,
        out: &'a mut Output,
    ) -> Result<(&'a mut TranslatedSession, SessionOutput<'a>), LineProblem> {
        let Self { sessions, agent, features, mode, generated, .. } = self;
        let session = session_of(sessions, id, *agent)?;
        let is_two_sided = mode.is_two_sided();
        Ok((session, SessionOutput { id, agent: *agent, is_two_sided, features: *features, generated, out }))
    }
}

impl Output {
    fn say(&mut self, by: Side, text: String) {
        self.lines.push(TranslatedLine { by, text: Cow::Owned(text) });
    }

    /// Forwards a response to an unknown request unchanged.
    fn forward_unknown_response(&mut self, by: Side, message: &Message<'_>) {
        self.losses.add(LossKind::ResponseWithoutRequest);
        self.say(by, message.text().to_owned());
    }
}

fn session_of<'a>(
    sessions: &'a mut HashMap<SessionId, TranslatedSession>,
    id: &SessionId,
    agent: Way,
) -> Result<&'a mut TranslatedSession, LineProblem> {
    let is_full = sessions.len() == MAX_SESSIONS;
    match sessions.entry(id.clone()) {
        Entry::Occupied(known) => Ok(known.into_mut()),
        Entry::Vacant(_) if is_full => Err(LineProblem::NoUpdate("there are too many sessions")),
        Entry::Vacant(free) => Ok(free.insert(TranslatedSession::new(agent.from))),
    }
}

/// The line of an update.
fn notification(session: &SessionId, update: &str, extras: &LineExtras) -> String {
    let params = ObjectWriter::with_capacity(update.len() + 64).json_str("sessionId", session.as_json());
    let params = params.raw_members(&extras.params).raw("update", update).finish();
    let line = ObjectWriter::with_capacity(params.len() + 64).str("jsonrpc", "2.0");
    line.str("method", "session/update").raw("params", &params).raw_members(&extras.message).finish()
}

/// The line of a request or response, with the other members of its envelope.
fn envelope(message: &Message<'_>, method: Option<&str>, body: &[(&str, &str)]) -> String {
    let line = ObjectWriter::with_capacity(256).str("jsonrpc", "2.0");
    let line = line.optional_raw("id", message.id().map(RequestId::as_literal));
    let line = line.optional_str("method", method);
    let line = body.iter().fold(line, |line, (name, value)| line.raw(name, value));
    message.extra.iter().fold(line, |line, (name, value)| line.member(name.as_str(), value.as_str())).finish()
}

/// A result as an object, if it is one. Many agents respond with null instead of an empty object.
fn result_of(outcome: Outcome<'_>) -> Option<Object> {
    match outcome {
        Outcome::Result(result) if result.type_of() == parlor_json::Type::Null => Some(Object::default()),
        Outcome::Result(result) => result.to_object(),
        Outcome::Error(_) => None,
    }
}

/// Whether a cancellation has no request id.
fn is_about_null(params: Option<JsonRef<'_>>) -> bool {
    let params = params.and_then(|params| Members::of(params).ok()).unwrap_or_default();
    params.get("requestId").is_some_and(|id| id.type_of() == parlor_json::Type::Null)
}

/// The text between the quotes of a name.
fn unquoted(name: JsonRef<'_>) -> &str {
    let name = name.as_str();
    name.get(1..name.len() - 1).unwrap_or_default()
}
