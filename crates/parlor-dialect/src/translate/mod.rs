//! Whole lines from one dialect to another, both ways at once.

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

use parlor_json::{JsonStr, Members, Object};
use parlor_session::SessionId;
use parlor_wire::{
    Body, CANCEL_REQUEST, Incoming, Malformed, Message, Open, Outcome, RequestId, RpcError, code, parse,
    write,
};
use serde_json::value::RawValue;

use self::client::Asked;
use self::requests::What;
use self::session::{LineExtras, SessionOutput, TranslatedSession};
use crate::encode::v1::Features;
use crate::fast_path::UpdateLine;
use crate::object_writer::ObjectText;
use crate::{Dialect, LineProblem, Loss, LossKind, Losses, Side};

/// How many sessions a translator keeps in mind.
const MAX_SESSIONS: usize = 10_000;

/// How many requests of one side may be without an answer.
const MAX_OPEN: usize = 10_000;

/// Translates what an agent and its client say to each other, line by line.
///
/// Made by [`relay`](Translator::relay), it stands between an agent of one dialect and a client of another.
/// Made by [`record`](Translator::record), it says a conversation of one dialect again in another. Made by
/// [`one_sided`](Translator::one_sided), it hears one side only and adds nothing that was not said.
///
/// ```
/// use parlor_dialect::{Dialect, Side, Translator};
///
/// let mut translator = Translator::one_sided(Dialect::V1, Dialect::V2);
/// let said = translator.line(
///     Side::Agent,
///     r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Hi"}}}}"#,
/// );
/// let said = said.unwrap();
/// assert!(said.lines[0].text.contains(r#""messageId":"parlor-1""#));
/// assert!(said.losses.is_empty());
/// ```
#[derive(Debug)]
pub struct Translator {
    agent: Way,
    client: Way,
    mode: Mode,
    sessions: HashMap<SessionId, TranslatedSession>,
    client_asked: Open<Asked>,
    agent_asked: Open<Asked>,
    features: Features,
    /// How many ids were generated.
    generated: u64,
}

/// What came of one line.
#[derive(Debug, Default)]
pub struct Translation<'a> {
    /// What has to be said, in this order.
    pub lines: Vec<Said<'a>>,
    /// What could not be said.
    pub losses: Vec<Loss>,
    /// What was wrong with optional parts of the line. The rest was translated.
    pub problems: Vec<LineProblem>,
}

/// One line that somebody says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said<'a> {
    /// Who.
    pub by: Side,
    /// The line, without its end.
    pub text: Cow<'a, str>,
}

/// What a translator is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// It stands between two peers, and answers what it cannot pass on.
    Relay,
    /// It tells a conversation again.
    Record,
    /// It hears one side only, so that it knows no turns and no requests.
    OneSided,
}

impl Mode {
    /// Whether both sides are heard.
    fn is_two_sided(self) -> bool {
        self != Self::OneSided
    }
}

/// From which dialect to which.
#[derive(Debug, Clone, Copy)]
struct Way {
    from: Dialect,
    to: Dialect,
}

/// Translation on its way.
#[derive(Default)]
struct Output {
    lines: Vec<Said<'static>>,
    losses: Losses,
    problems: Vec<LineProblem>,
}

impl Translator {
    /// Between an agent and a client of different dialects.
    pub fn relay(agent: Dialect, client: Dialect) -> Self {
        Self::new(Way { from: agent, to: client }, Way { from: client, to: agent }, Mode::Relay)
    }

    /// A conversation whose both sides speak `from`, said again as if both spoke `to`.
    pub fn record(from: Dialect, to: Dialect) -> Self {
        Self::new(Way { from, to }, Way { from, to }, Mode::Record)
    }

    /// One side of a conversation, which speaks `from`, for somebody who speaks `to`.
    pub fn one_sided(from: Dialect, to: Dialect) -> Self {
        Self::new(Way { from, to }, Way { from, to }, Mode::OneSided)
    }

    fn new(agent: Way, client: Way, mode: Mode) -> Self {
        Self {
            agent,
            client,
            mode,
            sessions: HashMap::new(),
            client_asked: Open::new(MAX_OPEN),
            agent_asked: Open::new(MAX_OPEN),
            features: Features::default(),
            generated: 0,
        }
    }

    /// Translates one line that `by` said.
    pub fn line<'a>(&mut self, by: Side, line: &'a str) -> Result<Translation<'a>, LineProblem> {
        let way = self.way(by);
        let update = UpdateLine::read(line);
        if way.from == way.to {
            if update.is_none() {
                parse(line, way.from.batches()).map_err(LineProblem::Malformed)?;
            }
            let said = Said { by, text: Cow::Borrowed(line) };
            return Ok(Translation { lines: vec![said], ..Translation::default() });
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

    /// The lines that were held back because they might have been a prompt, after the last line.
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

    /// The messages of a batch, each on its own line.
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
                    Members::of(params).map_err(|_| LineProblem::NoUpdate("`params` is no object"))?;
                let session =
                    params.get("sessionId").ok_or(LineProblem::NoUpdate("`sessionId` is missing"))?;
                let update = params.get("update").ok_or(LineProblem::NoUpdate("`update` is missing"))?;
                let update =
                    Members::of(update).map_err(|_| LineProblem::NoUpdate("`update` is no object"))?;
                let rest = params.raw().iter().map(|(name, value)| (unquoted(name), *value));
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
                match self.client_asked.finish(id) {
                    Some((id, asked)) => self.agent_response(message, &id, &asked, *outcome, out),
                    None => out.unasked(by, message),
                }
                Ok(())
            }
            (Side::Client, Body::Response { id, outcome }) => {
                match self.agent_asked.finish(id) {
                    Some((_, asked)) => self.client_response(message, &asked, *outcome, out),
                    None => out.unasked(by, message),
                }
                Ok(())
            }
        }
    }

    /// A request that cannot be passed on: a relay answers it. In a conversation that was, the other side
    /// answered, and that answer has no place any more.
    fn refuse(&mut self, asker: Side, id: &RequestId, method: &str, loss: LossKind, out: &mut Output) {
        let (open, answerer) = match asker {
            Side::Agent => (&mut self.agent_asked, Side::Client),
            Side::Client => (&mut self.client_asked, Side::Agent),
        };
        match self.mode {
            Mode::Relay => {
                let error = if loss == LossKind::Method {
                    let message = format!("the other side's protocol version has no method {method}");
                    RpcError::new(code::METHOD_NOT_FOUND, message)
                } else {
                    let message = format!("this cannot be said in the other side's protocol version: {loss}");
                    RpcError::new(code::INVALID_PARAMS, message)
                };
                out.say(answerer, write::error_response(id, &error));
            }
            Mode::Record => {
                let _ = open.begin(id.clone(), Asked { what: What::Dropped, session: None, value: None });
            }
            Mode::OneSided => {}
        }
    }

    /// An update of a session.
    fn update(
        &mut self,
        session: &RawValue,
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
        self.lines.push(Said { by, text: Cow::Owned(text) });
    }

    /// A response to a request that was never seen could mean anything, so it goes on as it is.
    fn unasked(&mut self, by: Side, message: &Message<'_>) {
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
    let params = ObjectText::with_capacity(update.len() + 64).string("sessionId", session.as_json());
    let params = params.text(&extras.params).raw("update", update).finish();
    let line = ObjectText::with_capacity(params.len() + 64).raw("jsonrpc", r#""2.0""#);
    line.raw("method", r#""session/update""#).raw("params", &params).text(&extras.message).finish()
}

/// The line of a request or response, with what else its envelope said.
fn envelope(message: &Message<'_>, method: Option<&str>, body: &[(&str, &str)]) -> String {
    let line = ObjectText::with_capacity(256).raw("jsonrpc", r#""2.0""#);
    let line = line.maybe("id", message.id().map(RequestId::as_literal));
    let method = method.map(parlor_json::string_literal);
    let line = line.maybe("method", method.as_deref());
    let line = body.iter().fold(line, |line, (name, value)| line.raw(name, value));
    message.extra.iter().fold(line, |line, (name, value)| line.member(name.get(), value.get())).finish()
}

/// A result as an object, if it is one. Many agents answer with null where nothing is to be said.
fn result_of(outcome: Outcome<'_>) -> Option<Object> {
    match outcome {
        Outcome::Result(result) if parlor_json::type_of(result) == parlor_json::Type::Null => {
            Some(Object::default())
        }
        Outcome::Result(result) => Object::parse(result).ok(),
        Outcome::Error(_) => None,
    }
}

/// Whether a cancellation names no request.
fn is_about_null(params: Option<&RawValue>) -> bool {
    let params = params.and_then(|params| Members::of(params).ok()).unwrap_or_default();
    params.get("requestId").is_some_and(|id| parlor_json::type_of(id) == parlor_json::Type::Null)
}

/// The text between the quotes of a name.
fn unquoted(name: &RawValue) -> &str {
    let name = name.get();
    name.get(1..name.len() - 1).unwrap_or_default()
}
