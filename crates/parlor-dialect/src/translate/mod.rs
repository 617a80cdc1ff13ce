//! Whole lines from one dialect to another, both ways at once.

mod agent;
mod client;
mod echo;
pub(crate) mod questions;
pub(crate) mod requests;
pub(crate) mod turns;

use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use parlor_json::{JsonRef, JsonStr, Members, Object};
use parlor_session::{
    EntryId, MetaPatch, Naming, Patch, Refused, SessionId, Slot, Target, Transcript, Update, Upsert,
};
use parlor_wire::{
    Body, CANCEL_REQUEST, Incoming, IncomingRequests, Malformed, Message, Outcome, RequestId, RpcError, code,
    parse, write,
};

use self::client::Asked;
use self::requests::What;
use self::turns::Turn;
use crate::encode::v1::{Features, Heard};
use crate::encode::{Context, v2};
use crate::fold::GeneratedIds;
use crate::hot::UpdateLine;
use crate::text::ObjectText;
use crate::{Decoder, Dialect, LineProblem, Loss, LossKind, Losses, Side};

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
    sessions: HashMap<SessionId, Session>,
    client_asked: IncomingRequests<Asked>,
    agent_asked: IncomingRequests<Asked>,
    features: Features,
    /// How many ids were given.
    named: u64,
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
    fn hears_both(self) -> bool {
        self != Self::OneSided
    }
}

/// From which dialect to which.
#[derive(Debug, Clone, Copy)]
struct Way {
    from: Dialect,
    to: Dialect,
}

/// What a translator knows of one session.
#[derive(Debug)]
struct Session {
    decoder: Decoder,
    /// The session so far, its messages without their content.
    transcript: Transcript,
    heard: Heard,
    /// Messages that a v2 client has from before the agent began to replay the session: v1 replays in chunks,
    /// which must not be added to what is there.
    stale: HashSet<EntryId>,
    turn: Turn,
    generated: GeneratedIds,
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
            client_asked: IncomingRequests::new(MAX_OPEN),
            agent_asked: IncomingRequests::new(MAX_OPEN),
            features: Features::default(),
            named: 0,
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
            Some(line) => self.update(line.session, line.update, &line.rest, &[], &mut out)?,
            None => match parse(line, way.from.batches()).map_err(LineProblem::Malformed)? {
                Incoming::One(message) => self.message(by, &message, &mut out)?,
                Incoming::Batch(messages) => self.batch(by, messages, &mut out),
            },
        }
        Ok(Translation { lines: out.lines, losses: out.losses.into_vec(), problems: out.problems })
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
                let rest: Vec<_> =
                    params.raw().iter().map(|(name, value)| (unquoted(*name), *value)).collect();
                let rest: Vec<_> =
                    rest.into_iter().filter(|(name, _)| *name != "sessionId" && *name != "update").collect();
                self.update(session, update, &rest, &message.extra, out)
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
                match self.client_asked.complete(id) {
                    Some((id, asked)) => self.agent_response(message, &id, asked, *outcome, out),
                    None => out.unasked(by, message),
                }
                Ok(())
            }
            (Side::Client, Body::Response { id, outcome }) => {
                match self.agent_asked.complete(id) {
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
                let _ = open.register(id.clone(), Asked { what: What::Dropped, session: None, value: None });
            }
            Mode::OneSided => {}
        }
    }

    /// An update of a session.
    fn update(
        &mut self,
        session: JsonRef<'_>,
        update: Members<'_>,
        rest: &[(&str, JsonRef<'_>)],
        extra: &[(JsonRef<'_>, JsonRef<'_>)],
        out: &mut Output,
    ) -> Result<(), LineProblem> {
        let id = JsonStr::from_raw(session).map(SessionId::from);
        let id = id.ok_or(LineProblem::NoUpdate("`sessionId` must be a string"))?;
        let both = self.mode.hears_both();
        if both && self.agent.from == Dialect::V1 {
            let known = session_of(&mut self.sessions, &id, self.agent)?;
            let line = || {
                let update = Object::from(&update).to_json();
                notification(&id, update.as_str(), rest, extra)
            };
            let Some(held) = known.turn.hears_echo(&update, line) else { return Ok(()) };
            self.say_held(&held, out);
        }
        let Self { named, agent, features, .. } = self;
        let (to, features) = (agent.to, *features);
        let known = session_of(&mut self.sessions, &id, *agent)?;
        let Session { decoder, transcript, generated, turn, .. } = &mut *known;
        let decoded = decoder.decode_members(update, &mut || generated.new_id(transcript, "parlor", named));
        let mut decoded = decoded.map_err(LineProblem::BadUpdate)?;
        if let Some((ours, theirs)) = generated.set_apart(&mut decoded, transcript, named) {
            turn.name(ours, theirs);
        }
        if !decoded.ignored.is_empty() {
            out.problems.push(LineProblem::Ignored(decoded.ignored));
        }
        let meta_before = known.meta_before(&decoded.update);
        let is_new = known.is_new(&decoded.update);
        known.take(&decoded.update, decoded.naming).map_err(LineProblem::Refused)?;
        let Session { transcript, heard, turn, stale, generated, .. } = known;
        if both {
            turn.before(&decoded.update, is_new, *agent, heard, &mut out.turn(&id));
        }
        let mut cx = Context {
            from: agent.from,
            transcript,
            meta_before: meta_before.as_ref(),
            fresh: &mut || generated.new_id(transcript, "parlor-alias", named),
            losses: &mut out.losses,
        };
        let mut updates = Vec::new();
        match (&decoded.update, to) {
            (Update::State(state), Dialect::V1) => {
                let implied = both && turn.implies(state, cx.losses);
                if !implied {
                    cx.losses.add(LossKind::State);
                }
            }
            (update, Dialect::V1) => updates.extend(heard.updates(update, features, &mut cx)),
            (update, to @ (Dialect::V2 | Dialect::Draft)) => {
                updates.extend(stale_cleared(update, stale));
                updates.extend(v2::updates(update, to, &mut cx));
            }
        }
        for (place, update) in updates.iter().enumerate() {
            let (rest, extra) = if place == 0 { (rest, extra) } else { (&[][..], &[][..]) };
            out.say(Side::Agent, notification(&id, update, rest, extra));
        }
        if both {
            turn.after(&decoded.update, *agent, &mut out.turn(&id));
        }
        Ok(())
    }
}

impl Translator {
    /// Translates updates that were held back because they might have been an echo.
    fn say_held(&mut self, lines: &[String], out: &mut Output) {
        for line in lines {
            let done = UpdateLine::read(line)
                .map_or(Ok(()), |line| self.update(line.session, line.update, &line.rest, &[], out));
            out.problems.extend(done.err());
        }
    }

    /// Nothing that the agent says from here on repeats its prompt.
    fn end_echo(&mut self, session: &SessionId, out: &mut Output) {
        let held = self.sessions.get_mut(session).map(|known| known.turn.end_echo());
        self.say_held(&held.unwrap_or_default(), out);
    }
}

impl Session {
    /// Takes an update, a message without its content: that is not needed to say what comes later.
    fn take(&mut self, update: &Update, naming: Naming) -> Result<(), Refused> {
        if let Update::Append { entry: entry @ EntryId::Message(role, id), .. } = update
            && self.transcript.get(entry).is_some()
        {
            self.decoder.took_message(*role, id, naming);
            return Ok(());
        }
        let light = match update {
            Update::Append { entry: entry @ EntryId::Message(..), .. } => {
                Update::Upsert { target: Target::Entry(entry.clone()), upsert: Upsert::default() }
            }
            Update::Upsert { target: target @ Target::Entry(EntryId::Message(..)), upsert } => {
                let upsert = Upsert { content: Patch::Omitted, ..upsert.clone() };
                Update::Upsert { target: target.clone(), upsert }
            }
            Update::Upsert { .. }
            | Update::Append { .. }
            | Update::Output { .. }
            | Update::Remove { .. }
            | Update::Note { .. }
            | Update::State(_) => update.clone(),
        };
        let change = self.transcript.push(light)?;
        self.decoder.took(&change, naming);
        Ok(())
    }

    /// Whether an update is the first about its entry.
    fn is_new(&self, update: &Update) -> bool {
        match update {
            Update::Append { entry, .. } | Update::Upsert { target: Target::Entry(entry), .. } => {
                self.transcript.get(entry).is_none()
            }
            Update::Upsert { .. }
            | Update::Output { .. }
            | Update::Remove { .. }
            | Update::Note { .. }
            | Update::State(_) => false,
        }
    }

    /// The metadata of what an update is about to patch.
    fn meta_before(&self, update: &Update) -> Option<Object> {
        let Update::Upsert { target, upsert } = update else { return None };
        if upsert.meta == MetaPatch::Keep {
            return None;
        }
        match target {
            Target::Entry(id) => self.transcript.get(id)?.body().meta.clone(),
            Target::Slot(slot) => self.transcript.slot(*slot)?.meta.clone(),
        }
    }

    /// The client asked an agent of this dialect for all of the session again.
    fn replays(&mut self, agent: Dialect) {
        self.heard.forget();
        if agent != Dialect::V1 {
            return;
        }
        let messages = self.transcript.entries().iter().map(parlor_session::Entry::id);
        self.stale = messages.filter(|id| matches!(id, EntryId::Message(..))).cloned().collect();
    }

    /// Remembers what a response said about a session.
    fn learn(&mut self, slot: Slot, fields: Object) {
        let upsert = Upsert { fields, ..Upsert::default() };
        // What is too large to keep is too large to be an option; the next report will say so.
        let _ = self.transcript.push(Update::Upsert { target: Target::Slot(slot), upsert });
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

    fn turn<'a>(&'a mut self, session: &'a SessionId) -> turns::TurnOutput<'a> {
        turns::TurnOutput { session, lines: &mut self.lines, losses: &mut self.losses }
    }
}

fn session_of<'a>(
    sessions: &'a mut HashMap<SessionId, Session>,
    id: &SessionId,
    agent: Way,
) -> Result<&'a mut Session, LineProblem> {
    let is_full = sessions.len() == MAX_SESSIONS;
    match sessions.entry(id.clone()) {
        Entry::Occupied(known) => Ok(known.into_mut()),
        Entry::Vacant(_) if is_full => Err(LineProblem::NoUpdate("there are too many sessions")),
        Entry::Vacant(free) => Ok(free.insert(Session {
            decoder: Decoder::new(agent.from),
            transcript: Transcript::default(),
            heard: Heard::default(),
            stale: HashSet::new(),
            turn: Turn::default(),
            generated: GeneratedIds::default(),
        })),
    }
}

/// The update that clears a message before the first chunk of its replay.
fn stale_cleared(update: &Update, stale: &mut HashSet<EntryId>) -> Option<String> {
    if stale.is_empty() {
        return None;
    }
    match update {
        Update::Append { entry, .. } => stale.remove(entry).then(|| v2::cleared(entry)).flatten(),
        Update::Upsert { target: Target::Entry(entry), upsert } if !upsert.content.is_omitted() => {
            stale.remove(entry);
            None
        }
        Update::Upsert { .. }
        | Update::Output { .. }
        | Update::Remove { .. }
        | Update::Note { .. }
        | Update::State(_) => None,
    }
}

/// The line of an update.
fn notification(
    session: &SessionId,
    update: &str,
    rest: &[(&str, JsonRef<'_>)],
    extra: &[(JsonRef<'_>, JsonRef<'_>)],
) -> String {
    let params = ObjectText::with_capacity(update.len() + 64).string("sessionId", session.as_json());
    let params = rest.iter().fold(params, |params, (name, value)| params.raw(name, value.as_str()));
    let params = params.raw("update", update).finish();
    let line = ObjectText::with_capacity(params.len() + 64).raw("jsonrpc", r#""2.0""#);
    let line = line.raw("method", r#""session/update""#).raw("params", &params);
    extra.iter().fold(line, |line, (name, value)| line.member(name.as_str(), value.as_str())).finish()
}

/// The line of a request or response, with what else its envelope said.
fn envelope(message: &Message<'_>, method: Option<&str>, body: &[(&str, &str)]) -> String {
    let line = ObjectText::with_capacity(256).raw("jsonrpc", r#""2.0""#);
    let line = line.maybe("id", message.id().map(RequestId::as_literal));
    let method = method.map(parlor_json::string_literal);
    let line = line.maybe("method", method.as_deref());
    let line = body.iter().fold(line, |line, (name, value)| line.raw(name, value));
    message.extra.iter().fold(line, |line, (name, value)| line.member(name.as_str(), value.as_str())).finish()
}

/// A result as an object, if it is one. Many agents answer with null where nothing is to be said.
fn result_of(outcome: Outcome<'_>) -> Option<Object> {
    match outcome {
        Outcome::Result(result) if result.type_of() == parlor_json::Type::Null => Some(Object::default()),
        Outcome::Result(result) => Object::parse(result).ok(),
        Outcome::Error(_) => None,
    }
}

/// Whether a cancellation names no request.
fn is_about_null(params: Option<JsonRef<'_>>) -> bool {
    let params = params.and_then(|params| Members::of(params).ok()).unwrap_or_default();
    params.get("requestId").is_some_and(|id| id.type_of() == parlor_json::Type::Null)
}

/// The text between the quotes of a name.
fn unquoted(name: JsonRef<'_>) -> &str {
    let name = name.as_str();
    name.get(1..name.len() - 1).unwrap_or_default()
}
