//! The task that reads what comes, and writes what is asked.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use parlor_dialect::{Dialect, Side, Translator};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::SessionId;
use parlor_wire::{
    Asked, Body, CANCEL_REQUEST, Incoming, Message, Outcome, RequestId, RpcError, cancel_line, cancel_target,
    code, parse, write,
};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::Error;
use crate::client::session_in;
use crate::known::{Owner, Replay, Shared, Standing};
use crate::question::{Question, declined};
use crate::transport::Transport;

/// How many requests may be without an answer.
const MAX_ASKED: usize = 1000;

/// How many lines wait for the connection before no more is taken from those who ask.
const MAX_WAITING: usize = 256;

/// How many lines wait for the connection before no more is read: a peer that asks and does not listen has to wait.
const MAX_OWED: usize = 4096;

/// How long what waits is written still when nobody is left to speak.
const GRACE: Duration = Duration::from_secs(2);

/// How many questions are without an answer. One more is declined.
pub(crate) const MAX_QUESTIONS: usize = 1000;

/// How many sessions are followed. Updates of one more are dropped.
const MAX_SESSIONS: usize = 10_000;

/// What a client wants done.
#[derive(Debug)]
pub(crate) enum Command {
    Ask {
        method: String,
        params: Object,
        purpose: Purpose,
        reply: oneshot::Sender<Result<Answer, Error>>,
    },
    Notify {
        method: String,
        params: Object,
    },
    Answer {
        id: RequestId,
        result: Result<Object, RpcError>,
        /// Kept, because a question that nobody has any more is declined.
        question: watch::Receiver<bool>,
    },
    /// The prompts of a session that have no answer are taken back.
    TakeBack(SessionId),
    Disconnect,
}

/// What a request is for, so that its answer is seen where it stands among the updates.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// Anything.
    Call,
    /// A session that the answer names.
    Begin,
    /// To be told of a session from here on.
    Join(Joined, Replay),
    /// A turn of a session.
    Prompt(Arc<Shared>),
    /// To be told of a session no more, whatever the answer is.
    Close(Arc<Shared>),
    /// That a session is no more.
    Delete(Arc<Shared>),
}

/// What is joined.
#[derive(Debug)]
pub(crate) enum Joined {
    /// A session, with what this connection knows of it.
    Named(SessionId),
    /// A session that another connection told of, in place of what this one knows of it.
    Lost(Arc<Shared>),
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) result: Object,
    /// The session that it is about.
    pub(crate) session: Option<Arc<Shared>>,
    /// Up to where that was known when the answer came.
    pub(crate) place: (u64, u64),
}

/// A request without an answer.
struct Request {
    reply: oneshot::Sender<Result<Answer, Error>>,
    /// The session that it is about, if one is known to be.
    session: Option<Arc<Shared>>,
    kind: Kind,
    is_taken_back: bool,
}

/// What the answer to a request means for its session.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Call,
    Begin,
    Join,
    Prompt,
    Close,
    Delete,
}

/// What comes next.
enum Next {
    Line(Option<String>),
    Command(Option<Command>),
    GivenUp,
}

/// The sessions that are followed, for those who ask for one.
pub(crate) type Sessions = Arc<Mutex<HashMap<SessionId, Arc<Shared>>>>;

pub(crate) struct Driver {
    transport: Transport,
    /// Between this client, which speaks version 2, and an agent that does not.
    translator: Option<Translator>,
    commands: mpsc::Receiver<Command>,
    commander: mpsc::WeakSender<Command>,
    given_up: Arc<Notify>,
    waiting: VecDeque<String>,
    asked: Asked<Request>,
    sessions: Sessions,
    owner: Owner,
    questions: mpsc::Sender<Question>,
    /// The questions without an answer, and who is told when none is wanted any more.
    open: HashMap<RequestId, watch::Sender<bool>>,
    gone: watch::Sender<bool>,
}

impl Driver {
    pub(crate) fn new(
        transport: Transport,
        translator: Option<Translator>,
        (commands, commander): (mpsc::Receiver<Command>, mpsc::WeakSender<Command>),
        given_up: Arc<Notify>,
        (sessions, owner): (Sessions, Owner),
        questions: mpsc::Sender<Question>,
        gone: watch::Sender<bool>,
    ) -> Self {
        Self {
            transport,
            translator,
            commands,
            commander,
            given_up,
            waiting: VecDeque::new(),
            asked: Asked::new(MAX_ASKED),
            sessions,
            owner,
            questions,
            open: HashMap::new(),
            gone,
        }
    }

    pub(crate) async fn run(mut self) {
        loop {
            let next = tokio::select! {
                line = self.transport.incoming.recv(), if self.waiting.len() < MAX_OWED => Next::Line(line),
                room = self.transport.outgoing.reserve(), if !self.waiting.is_empty() => {
                    let Ok(room) = room else { break };
                    if let Some(line) = self.waiting.pop_front() {
                        room.send(line);
                    }
                    continue;
                }
                command = self.commands.recv(), if self.waiting.len() < MAX_WAITING => Next::Command(command),
                () = self.given_up.notified() => Next::GivenUp,
            };
            match next {
                Next::Line(Some(line)) => self.heard(&line),
                Next::Line(None) => break,
                Next::Command(None | Some(Command::Disconnect)) => {
                    self.give_up();
                    let _ = tokio::time::timeout(GRACE, self.flush()).await;
                    break;
                }
                Next::Command(Some(command)) => self.command(command),
                Next::GivenUp => self.give_up(),
            }
        }
        self.gone.send_replace(true);
        for (_, request) in self.asked.drain() {
            let _ = request.reply.send(Err(Error::Gone));
        }
        self.sessions().values().for_each(|session| session.end(&self.owner, Standing::Lost));
    }

    /// Writes what waits: nobody is left to speak.
    async fn flush(&mut self) {
        for line in self.waiting.drain(..) {
            let _ = self.transport.outgoing.send(line).await;
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            // Given up before it was asked.
            Command::Ask { reply, .. } if reply.is_closed() => {}
            Command::Ask { method, params, purpose, reply } => {
                let (session, kind) = match self.prepare(purpose) {
                    Ok(prepared) => prepared,
                    Err(error) => return drop(reply.send(Err(error))),
                };
                match self.asked.ask(Request { reply, session, kind, is_taken_back: false }) {
                    Ok(id) => self.say(&write::request(&id, &method, Some(params.to_json().raw()))),
                    Err(full) => {
                        let Request { reply, session, kind, .. } = full.refused;
                        let _ = reply.send(self.answered(session, kind, Err(Error::Busy)));
                    }
                }
            }
            Command::Notify { method, params } => {
                self.say(&write::notification(&method, Some(params.to_json().raw())));
            }
            Command::Answer { id, result, question } => {
                self.answer(&id, result);
                drop(question);
            }
            Command::TakeBack(session) => {
                self.take_back(|request| {
                    request.kind == Kind::Prompt
                        && request.session.as_ref().is_some_and(|prompted| *prompted.id() == session)
                });
            }
            Command::Disconnect => {}
        }
    }

    /// What has to be so before something is asked.
    fn prepare(&mut self, purpose: Purpose) -> Result<(Option<Arc<Shared>>, Kind), Error> {
        Ok(match purpose {
            Purpose::Call => (None, Kind::Call),
            Purpose::Begin => (None, Kind::Begin),
            Purpose::Prompt(session) => (Some(session), Kind::Prompt),
            Purpose::Close(session) => (Some(session), Kind::Close),
            Purpose::Delete(session) => (Some(session), Kind::Delete),
            Purpose::Join(joined, replay) => {
                let session = match joined {
                    Joined::Lost(session) => session,
                    Joined::Named(id) => {
                        let known = self.sessions().get(&id).cloned();
                        known.unwrap_or_else(|| Arc::new(Shared::new(id, None)))
                    }
                };
                session.join(&self.owner, replay)?;
                let replaced = self.sessions().insert(session.id().clone(), Arc::clone(&session));
                if let Some(replaced) = replaced.filter(|replaced| !Arc::ptr_eq(replaced, &session)) {
                    replaced.end(&self.owner, Standing::Lost);
                }
                (Some(session), Kind::Join)
            }
        })
    }

    /// What an answer means for the session that it is about.
    fn answered(
        &mut self,
        session: Option<Arc<Shared>>,
        kind: Kind,
        outcome: Result<Object, Error>,
    ) -> Result<Answer, Error> {
        let session = match (kind, &outcome) {
            (Kind::Begin, Ok(result)) => Some(self.session(&session_in(result)?)),
            (Kind::Begin | Kind::Call | Kind::Join | Kind::Prompt | Kind::Close | Kind::Delete, _) => session,
        };
        if let Some(session) = &session {
            match (kind, &outcome) {
                (Kind::Begin | Kind::Join, Ok(result)) => session.joined(&self.owner, result),
                (Kind::Join, Err(_)) => session.refused(&self.owner),
                (Kind::Close, _) | (Kind::Delete, Ok(_)) => session.end(&self.owner, Standing::Left),
                // It was deleted already.
                (Kind::Delete, Err(error)) if error.code() == Some(code::RESOURCE_NOT_FOUND) => {
                    session.end(&self.owner, Standing::Left);
                }
                (Kind::Begin | Kind::Delete, Err(_)) | (Kind::Call | Kind::Prompt, _) => {}
            }
            if !session.is_told_by(&self.owner) {
                self.forget(session);
            }
        }
        let place = session.as_ref().map_or((0, 0), |session| session.place());
        outcome.map(|result| Answer { result, session, place })
    }

    /// The session of an id, which is new if nothing was said of it yet.
    fn session(&self, id: &SessionId) -> Arc<Shared> {
        let mut sessions = self.sessions();
        if let Some(known) = sessions.get(id) {
            return Arc::clone(known);
        }
        let new = Arc::new(Shared::new(id.clone(), Some(self.owner.clone())));
        sessions.insert(id.clone(), Arc::clone(&new));
        new
    }

    /// This connection does not tell of a session any more.
    fn forget(&self, session: &Arc<Shared>) {
        let mut sessions = self.sessions();
        if sessions.get(session.id()).is_some_and(|known| Arc::ptr_eq(known, session)) {
            sessions.remove(session.id());
        }
    }

    /// Somebody waits no more for an answer, or dropped a question.
    fn give_up(&mut self) {
        self.take_back(|request| request.reply.is_closed());
        let dropped = self.open.iter().filter(|(_, question)| question.is_closed());
        for id in dropped.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            self.answer(&id, Err(declined()));
        }
    }

    /// Takes requests back, each of them once.
    fn take_back(&mut self, is_meant: impl Fn(&Request) -> bool) {
        let mut lines = Vec::new();
        for (id, request) in self.asked.iter_mut() {
            if !request.is_taken_back && is_meant(request) {
                request.is_taken_back = true;
                lines.push(cancel_line(&id));
            }
        }
        lines.iter().for_each(|line| self.say(line));
    }

    fn answer(&mut self, id: &RequestId, result: Result<Object, RpcError>) {
        if self.open.remove(id).is_none() {
            return;
        }
        let line = match result {
            Ok(result) => write::response(id, result.to_json().raw()),
            Err(error) => write::error_response(id, &error),
        };
        self.say(&line);
    }

    fn sessions(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Arc<Shared>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says a line of version 2.
    fn say(&mut self, line: &str) {
        self.pass(Side::Client, line);
    }

    /// Hears a line of the agent's version.
    fn heard(&mut self, line: &str) {
        self.pass(Side::Agent, line);
    }

    fn pass(&mut self, by: Side, line: &str) {
        let Some(translator) = &mut self.translator else {
            return self.passed(by, line);
        };
        // A line that makes no sense says nothing.
        let Ok(translation) = translator.line(by, line) else { return };
        let lines: Vec<_> =
            translation.lines.into_iter().map(|said| (said.by, said.text.into_owned())).collect();
        for (by, line) in lines {
            self.passed(by, &line);
        }
    }

    fn passed(&mut self, by: Side, line: &str) {
        match by {
            Side::Client => self.waiting.push_back(line.to_owned()),
            Side::Agent => self.take(line),
        }
    }

    /// Takes a line of version 2.
    fn take(&mut self, line: &str) {
        let Ok(Incoming::One(message)) = parse(line, Dialect::V2.batches()) else { return };
        match &message.body {
            Body::Notification { method, params } if method == "session/update" => {
                self.update(line, params.and_then(|params| Object::parse(params).ok()));
            }
            Body::Notification { method, params } if method == CANCEL_REQUEST => {
                if let Some(withdrawn) = cancel_target(*params).and_then(|id| self.open.remove(&id)) {
                    withdrawn.send_replace(true);
                }
            }
            Body::Notification { .. } => {}
            Body::Request { id, .. } => self.asked_us(id, &message),
            Body::Response { id, outcome } => {
                let Some(request) = self.asked.answered(id) else { return };
                let outcome = match outcome {
                    Outcome::Result(result) => Ok(Object::parse(result).unwrap_or_default()),
                    Outcome::Error(error) => Err(Error::Rpc(RpcError::from_raw(error))),
                };
                let outcome = self.answered(request.session, request.kind, outcome);
                let _ = request.reply.send(outcome);
            }
        }
    }

    fn update(&self, line: &str, params: Option<Object>) {
        let Some(params) = params else { return };
        let id = params.get("sessionId").and_then(|id| JsonStr::from_raw(id.raw())).map(SessionId::from);
        let Some(id) = id else { return };
        // What is said of a session may come before the answer that names it.
        let is_full = {
            let sessions = self.sessions();
            sessions.len() >= MAX_SESSIONS && !sessions.contains_key(&id)
        };
        if is_full {
            return;
        }
        let session = self.session(&id);
        let meta = params.get("_meta").and_then(|meta| Object::parse(meta.raw()).ok());
        let seq = meta.and_then(|meta| meta.get("parlor/seq").map(Json::as_str)?.parse().ok());
        session.take(&self.owner, line, seq);
    }

    fn asked_us(&mut self, id: &RequestId, message: &Message<'_>) {
        let Body::Request { method, params, .. } = &message.body else { return };
        let params = params.and_then(|params| Object::parse(params).ok()).unwrap_or_default();
        let (sender, withdrawn) = watch::channel(false);
        let is_too_many = self.open.len() >= MAX_QUESTIONS;
        self.open.insert(id.clone(), sender);
        let question = Question::new(
            id.clone(),
            method.clone().into_owned(),
            params,
            self.commander.clone(),
            withdrawn,
            Arc::clone(&self.given_up),
        );
        if is_too_many || self.questions.try_send(question).is_err() {
            self.answer(id, Err(declined()));
        }
    }
}
