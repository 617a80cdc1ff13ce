//! The task that reads what comes, and writes what is asked.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use parlor_dialect::live::{self, AgentUpdate};
use parlor_dialect::{Dialect, Fold, LineProblem, Side, Translator};
use parlor_json::{JsonStr, Members, Object};
use parlor_session::SessionId;
use parlor_wire::{
    Asked, Body, CANCEL_REQUEST, Incoming, Message, Outcome, RequestId, RpcError, cancel_line, cancel_target,
    parse, write,
};
use serde_json::value::RawValue;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::Error;
use crate::known::Shared;
use crate::question::{Question, declined};
use crate::transport::{AT_ONCE, Transport};

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
        /// The session that a prompt is for.
        prompted: Option<Arc<Shared>>,
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

/// What was answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) result: Object,
    /// The last change of the prompted session that was known when the answer came.
    pub(crate) seq: u64,
}

/// A request without an answer.
struct Request {
    reply: oneshot::Sender<Result<Answer, Error>>,
    prompted: Option<Arc<Shared>>,
    is_taken_back: bool,
}

/// What comes next.
enum Next {
    Lines(Option<Vec<String>>),
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
    /// The session that the last update was about, as long as those who look at it do not know.
    updated: Option<Arc<Shared>>,
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
        sessions: Sessions,
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
            updated: None,
            questions,
            open: HashMap::new(),
            gone,
        }
    }

    pub(crate) async fn run(mut self) {
        loop {
            let next = tokio::select! {
                lines = self.transport.incoming.recv(), if self.waiting.len() + AT_ONCE <= MAX_OWED => {
                    Next::Lines(lines)
                }
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
                Next::Lines(Some(lines)) => {
                    lines.iter().for_each(|line| self.heard(line));
                    self.tell();
                }
                Next::Lines(None) => break,
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
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.values().for_each(|session| session.lost());
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
            Command::Ask { method, params, prompted, reply } => {
                match self.asked.ask(Request { reply, prompted, is_taken_back: false }) {
                    Ok(id) => self.say(&write::request(&id, &method, Some(params.to_json().raw()))),
                    Err(full) => drop(full.refused.reply.send(Err(Error::Busy))),
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
                    request.prompted.as_ref().is_some_and(|prompted| *prompted.id() == session)
                });
            }
            Command::Disconnect => {}
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
        // Nearly all lines are updates of one form, which are read once.
        if let Some(update) = AgentUpdate::read(line)
            && let Some(id) = update.session()
        {
            let meta = update.meta();
            return self.update(id, meta, line, |fold| fold.take(update));
        }
        let Ok(Incoming::One(message)) = parse(line, Dialect::V2.batches()) else { return };
        match &message.body {
            Body::Notification { method, params } if method == "session/update" => {
                let Some(params) = params.and_then(|params| Members::of(params).ok()) else { return };
                let id = params.get("sessionId").and_then(JsonStr::from_raw).map(SessionId::from);
                let Some(id) = id else { return };
                self.update(id, params.get("_meta"), line, |fold| fold.line(line));
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
                    Outcome::Result(result) => Ok(Answer {
                        result: Object::parse(result).unwrap_or_default(),
                        seq: request.prompted.map_or(0, |session| session.seq()),
                    }),
                    Outcome::Error(error) => Err(Error::Rpc(RpcError::from_raw(error))),
                };
                let _ = request.reply.send(outcome);
            }
        }
    }

    /// Takes an update of a session. What is said of one may come before the answer that names it.
    fn update(
        &mut self,
        id: SessionId,
        meta: Option<&RawValue>,
        line: &str,
        said: impl FnOnce(&mut Fold) -> Result<(), LineProblem>,
    ) {
        if self.updated.as_ref().is_none_or(|session| *session.id() != id) {
            self.tell();
            let mut sessions = self.sessions();
            if sessions.len() >= MAX_SESSIONS && !sessions.contains_key(&id) {
                return;
            }
            let session = sessions.entry(id.clone()).or_insert_with(|| Arc::new(Shared::new(id)));
            let session = Arc::clone(session);
            drop(sessions);
            self.updated = Some(session);
        }
        let Some(session) = &self.updated else { return };
        let seq = meta.and_then(|meta| Members::of(meta).ok()?.get("parlor/seq")?.get().parse().ok());
        session.take(said, seq);
        if self.translator.is_some()
            && let Some(state) = noted_state(line)
        {
            session.noted(&state);
        }
    }

    /// Those who look at the session are told that there is something new.
    fn tell(&mut self) {
        if let Some(session) = self.updated.take() {
            session.tell();
        }
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

/// The state that a server of parlor's notes for clients of version 1, which are told no states.
fn noted_state(line: &str) -> Option<String> {
    const NAME: &str = "parlor/state";
    if !line.contains(NAME) {
        return None;
    }
    let Ok(Incoming::One(message)) = parse(line, Dialect::V2.batches()) else { return None };
    let Body::Notification { params, .. } = &message.body else { return None };
    let (_, update) = live::update_of(*params).ok()?;
    let meta = Members::of(update).ok()?.get("_meta")?;
    Some(Members::of(meta).ok()?.get(NAME)?.get().to_owned())
}
