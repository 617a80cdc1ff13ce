//! The task that reads what comes, and writes what is asked.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use parlor_dialect::{Dialect, Side, Translator};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::SessionId;
use parlor_wire::{
    Asked, Body, CANCEL_REQUEST, Incoming, Message, Outcome, RequestId, RpcError, cancel_target, code, parse,
    write,
};
use tokio::sync::{mpsc, oneshot, watch};

use crate::Error;
use crate::question::{Question, Withdrawn};
use crate::session::Shared;
use crate::transport::Transport;

/// How many requests may be without an answer.
const MAX_ASKED: usize = 1000;

/// How many lines wait for the connection before no more is taken from those who ask.
const MAX_WAITING: usize = 256;

/// How many questions wait to be looked at. One more is declined.
pub(crate) const MAX_QUESTIONS: usize = 1000;

/// How many sessions are followed. Updates of one more are dropped.
const MAX_SESSIONS: usize = 10_000;

/// What a client wants done.
pub(crate) enum Command {
    Ask {
        method: String,
        params: Object,
        reply: oneshot::Sender<Result<Object, Error>>,
    },
    Notify {
        method: String,
        params: Object,
    },
    Answer {
        id: RequestId,
        result: Result<Object, RpcError>,
    },
    /// A session is followed from here on, in place of what was known of it.
    Follow(Arc<Shared>),
    Forget(SessionId),
    Disconnect,
}

/// What comes next.
enum Next {
    Line(Option<String>),
    Command(Option<Command>),
}

/// The sessions that are followed, for those who ask for one.
pub(crate) type Sessions = Arc<Mutex<HashMap<SessionId, Arc<Shared>>>>;

pub(crate) struct Driver {
    transport: Transport,
    /// Between this client, which speaks version 2, and an agent that does not.
    translator: Option<Translator>,
    commands: mpsc::Receiver<Command>,
    waiting: VecDeque<String>,
    asked: Asked<oneshot::Sender<Result<Object, Error>>>,
    sessions: Sessions,
    questions: mpsc::Sender<Question>,
    commander: mpsc::WeakSender<Command>,
    withdrawn: HashMap<RequestId, watch::Sender<bool>>,
    gone: watch::Sender<bool>,
}

impl Driver {
    pub(crate) fn new(
        transport: Transport,
        translator: Option<Translator>,
        commands: mpsc::Receiver<Command>,
        commander: mpsc::WeakSender<Command>,
        sessions: Sessions,
        questions: mpsc::Sender<Question>,
        gone: watch::Sender<bool>,
    ) -> Self {
        Self {
            transport,
            translator,
            commands,
            waiting: VecDeque::new(),
            asked: Asked::new(MAX_ASKED),
            sessions,
            questions,
            commander,
            withdrawn: HashMap::new(),
            gone,
        }
    }

    pub(crate) async fn run(mut self) {
        loop {
            let next = tokio::select! {
                line = self.transport.incoming.recv() => Next::Line(line),
                room = self.transport.outgoing.reserve(), if !self.waiting.is_empty() => {
                    let Ok(room) = room else { break };
                    if let Some(line) = self.waiting.pop_front() {
                        room.send(line);
                    }
                    continue;
                }
                command = self.commands.recv(), if self.waiting.len() < MAX_WAITING => Next::Command(command),
            };
            match next {
                Next::Line(Some(line)) => self.heard(&line),
                Next::Line(None) | Next::Command(Some(Command::Disconnect)) => break,
                Next::Command(Some(command)) => self.command(command),
                // Nobody is left to speak: what waits is written still.
                Next::Command(None) => {
                    for line in self.waiting.drain(..) {
                        let _ = self.transport.outgoing.send(line).await;
                    }
                    break;
                }
            }
        }
        self.gone.send_replace(true);
        for (_, reply) in self.asked.drain() {
            let _ = reply.send(Err(Error::Gone));
        }
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.values().for_each(|session| session.lost());
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Ask { method, params, reply } => match self.asked.ask(reply) {
                Ok(id) => self.say(&write::request(&id, &method, Some(params.to_json().raw()))),
                Err(full) => drop(full.refused.send(Err(Error::Busy))),
            },
            Command::Notify { method, params } => {
                self.say(&write::notification(&method, Some(params.to_json().raw())));
            }
            Command::Answer { id, result } => {
                if self.withdrawn.remove(&id).is_none() {
                    return;
                }
                let line = match result {
                    Ok(result) => write::response(&id, result.to_json().raw()),
                    Err(error) => write::error_response(&id, &error),
                };
                self.say(&line);
            }
            Command::Follow(session) => {
                self.sessions().insert(session.id().clone(), session);
            }
            Command::Forget(session) => {
                self.sessions().remove(&session);
            }
            Command::Disconnect => {}
        }
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
                if let Some(withdrawn) = cancel_target(*params).and_then(|id| self.withdrawn.remove(&id)) {
                    withdrawn.send_replace(true);
                }
            }
            Body::Notification { .. } => {}
            Body::Request { id, .. } => self.asked_us(id.clone(), &message),
            Body::Response { id, outcome } => {
                let Some(reply) = self.asked.answered(id) else { return };
                let outcome = match outcome {
                    Outcome::Result(result) => Ok(Object::parse(result).unwrap_or_default()),
                    Outcome::Error(error) => Err(Error::Rpc(RpcError::from_raw(error))),
                };
                let _ = reply.send(outcome);
            }
        }
    }

    fn update(&self, line: &str, params: Option<Object>) {
        let Some(params) = params else { return };
        let id = params.get("sessionId").and_then(|id| JsonStr::from_raw(id.raw())).map(SessionId::from);
        let Some(id) = id else { return };
        let mut sessions = self.sessions();
        // What is said of a session may come before the answer that names it.
        if sessions.len() >= MAX_SESSIONS && !sessions.contains_key(&id) {
            return;
        }
        let session = sessions.entry(id.clone()).or_insert_with(|| Arc::new(Shared::new(id)));
        let meta = params.get("_meta").and_then(|meta| Object::parse(meta.raw()).ok());
        let seq = meta.and_then(|meta| meta.get("parlor/seq").map(Json::as_str)?.parse().ok());
        session.take(line, seq);
    }

    fn asked_us(&mut self, id: RequestId, message: &Message<'_>) {
        let Body::Request { method, params, .. } = &message.body else { return };
        let params = params.and_then(|params| Object::parse(params).ok()).unwrap_or_default();
        let (sender, withdrawn) = watch::channel(false);
        self.withdrawn.insert(id.clone(), sender);
        let question = Question::new(
            id.clone(),
            method.clone().into_owned(),
            params,
            self.commander.clone(),
            Withdrawn(withdrawn),
        );
        if self.questions.try_send(question).is_err() {
            let error = RpcError::new(code::METHOD_NOT_FOUND, "this client cannot be asked");
            self.command(Command::Answer { id, result: Err(error) });
        }
    }
}
