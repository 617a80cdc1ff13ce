//! The task that reads what comes, and writes what is asked.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parlor_dialect::live::{self, AgentUpdate};
use parlor_dialect::{Dialect, Side, Translator};
use parlor_json::{JsonRef, JsonStr, Members, Object};
use parlor_session::SessionId;
use parlor_wire::{
    Body, CANCEL_REQUEST, Incoming, Message, Outcome, OutgoingRequests, RequestId, RpcError, cancel_line,
    cancel_target, code, parse, write,
};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::Error;
use crate::client::session_in;
use crate::known::{Replay, Shared, Standing};
use crate::losses::Ledger;
use crate::question::{Desk, Question, declined};
use crate::sessions::{Joined, Sessions};
use crate::transport::{AT_ONCE, Came, Transport};

/// How many requests may be without an answer.
const MAX_ASKED: usize = 1000;

/// How many lines wait for the connection before no more is taken from those who ask.
const MAX_WAITING: usize = 256;

/// How many lines wait for the connection before no more is read: a peer that asks and does not listen has to wait.
const MAX_OWED: usize = 4096;

/// How long what waits is written still when nobody is left to speak.
const GRACE: Duration = Duration::from_secs(2);

/// How many questions are without an answer. One more is declined.
const MAX_QUESTIONS: usize = 1000;

/// What a client wants done.
#[derive(Debug)]
pub(crate) enum Command {
    Ask {
        method: String,
        params: Object,
        purpose: Purpose,
        reply: Reply,
    },
    /// A session is joined. From where on it is told is said when it is known.
    Join {
        params: Object,
        joined: Joined,
        replay: Replay,
        reply: Reply,
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
}

/// What a request is for, so that its answer is seen where it stands among the updates.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// Anything.
    Call,
    /// A session that the answer names.
    Begin,
    /// To be told of a session from here on.
    Join(Arc<Shared>),
    /// A turn of a session.
    Prompt(Arc<Shared>),
    /// To be told of a session no more, whatever the answer is.
    Close(Arc<Shared>),
    /// That a session is no more.
    Delete(Arc<Shared>),
}

/// Who waits for an answer.
pub(crate) type Reply = oneshot::Sender<Result<Answer, Error>>;

/// What was answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) result: Object,
    /// The session that it is about.
    pub(crate) session: Option<Arc<Shared>>,
    /// Up to where that was known when the answer came.
    pub(crate) place: (u64, u64),
    /// Whether it is to a prompt, and nothing is to end before its turn.
    pub(crate) is_next: bool,
}

/// A request without an answer.
struct Request {
    reply: Reply,
    purpose: Purpose,
    is_taken_back: bool,
}

/// What comes next.
enum Next {
    Came(Option<Vec<Came>>),
    Command(Option<Command>),
    GivenUp,
    Left,
}

pub(crate) struct Driver {
    transport: Transport,
    /// Between this client, which speaks version 2, and an agent that does not.
    translator: Option<Translator>,
    commands: mpsc::Receiver<Command>,
    commander: mpsc::WeakSender<Command>,
    given_up: Arc<Notify>,
    waiting: VecDeque<String>,
    asked: OutgoingRequests<Request>,
    sessions: Sessions,
    /// The session that the last update was about, as long as those who look at it do not know.
    updated: Option<Arc<Shared>>,
    desk: Arc<Desk>,
    ledger: Ledger,
    /// The questions without an answer, and who is told when none is wanted any more.
    open: HashMap<RequestId, watch::Sender<bool>>,
    /// Says when nobody has the connection any more, or somebody ends it.
    left: watch::Receiver<bool>,
    gone: watch::Sender<bool>,
}

impl Driver {
    pub(crate) fn new(
        transport: Transport,
        translator: Option<Translator>,
        (commands, commander): (mpsc::Receiver<Command>, mpsc::WeakSender<Command>),
        given_up: Arc<Notify>,
        sessions: Sessions,
        (desk, ledger): (Arc<Desk>, Ledger),
        (left, gone): (watch::Receiver<bool>, watch::Sender<bool>),
    ) -> Self {
        Self {
            transport,
            translator,
            commands,
            commander,
            given_up,
            waiting: VecDeque::new(),
            asked: OutgoingRequests::new(MAX_ASKED),
            sessions,
            updated: None,
            desk,
            ledger,
            open: HashMap::new(),
            left,
            gone,
        }
    }

    pub(crate) async fn run(mut self) {
        loop {
            let next = tokio::select! {
                came = self.transport.incoming.recv(), if self.waiting.len() + AT_ONCE <= MAX_OWED => {
                    Next::Came(came)
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
                _ = self.left.wait_for(|left| *left) => Next::Left,
            };
            match next {
                Next::Came(Some(all)) => {
                    all.into_iter().for_each(|came| self.came(came));
                    self.tell();
                }
                Next::Came(None) => break,
                Next::Command(Some(command)) => self.command(command),
                Next::GivenUp => self.give_up(),
                Next::Command(None) | Next::Left => {
                    self.commands.close();
                    while let Ok(command) = self.commands.try_recv() {
                        self.command(command);
                    }
                    self.give_up();
                    let _ = tokio::time::timeout(GRACE, self.flush()).await;
                    break;
                }
            }
        }
        self.gone.send_replace(true);
        self.desk.close();
        for (_, request) in self.asked.drain() {
            let _ = request.reply.send(Err(Error::Gone));
        }
        self.sessions.end();
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
            Command::Ask { reply, .. } | Command::Join { reply, .. } if reply.is_closed() => {}
            Command::Ask { method, params, purpose, reply } => self.ask(&method, &params, purpose, reply),
            Command::Join { mut params, joined, replay, reply } => match self.sessions.join(joined, replay) {
                Ok((session, from)) => {
                    if let Some(from) = from {
                        params.set("replayFrom", from);
                    }
                    self.ask("session/resume", &params, Purpose::Join(session), reply);
                }
                Err(error) => drop(reply.send(Err(error))),
            },
            Command::Notify { method, params } => {
                self.say(&write::notification(&method, Some(params.to_json().raw())));
            }
            // Its id may be that of another by now.
            Command::Answer { question, .. } if *question.borrow() => {}
            Command::Answer { id, result, question } => {
                self.answer(&id, result);
                drop(question);
            }
            Command::TakeBack(session) => {
                self.take_back(|request| {
                    matches!(&request.purpose, Purpose::Prompt(prompted) if *prompted.id() == session)
                });
            }
        }
    }

    fn ask(&mut self, method: &str, params: &Object, purpose: Purpose, reply: Reply) {
        if matches!(purpose, Purpose::Begin) && self.sessions.is_full() {
            return drop(reply.send(Err(Error::Busy)));
        }
        match self.asked.register(Request { reply, purpose, is_taken_back: false }) {
            Ok(id) => self.say(&write::request(&id, method, Some(params.to_json().raw()))),
            Err(full) => self.answered(full.rejected, Err(Error::Busy)),
        }
    }

    /// Whether an answer is to come that may name a session.
    fn may_name(asked: &mut OutgoingRequests<Request>) -> bool {
        asked.iter_mut().any(|(_, request)| matches!(request.purpose, Purpose::Call | Purpose::Begin))
    }

    /// A request was answered: what that means for the session that it is about.
    fn answered(&mut self, request: Request, outcome: Result<Object, Error>) {
        // What was said before it is known before it.
        self.tell();
        let mut is_next = false;
        let session = match (request.purpose, &outcome) {
            (Purpose::Call | Purpose::Begin, Err(_)) => None,
            // It takes part in a session that the answer names.
            (Purpose::Call, Ok(result)) => session_in(result).ok().map(|id| self.sessions.follow(&id)),
            (Purpose::Begin, Ok(result)) => session_in(result).ok().map(|id| {
                let session = self.sessions.follow(&id);
                session.joined(&self.sessions.owner, result);
                session
            }),
            (Purpose::Join(session), Ok(result)) => {
                session.joined(&self.sessions.owner, result);
                Some(session)
            }
            (Purpose::Join(session), Err(_)) => {
                session.refused(&self.sessions.owner);
                Some(session)
            }
            (Purpose::Prompt(session), outcome) => {
                is_next = outcome.is_ok() && session.prompted();
                Some(session)
            }
            (Purpose::Close(session), _) => {
                session.end(&self.sessions.owner, Standing::Left);
                Some(session)
            }
            (Purpose::Delete(session), outcome) => {
                // It may have been deleted already.
                let code = outcome.as_ref().err().and_then(Error::code);
                if outcome.is_ok() || code == Some(code::RESOURCE_NOT_FOUND) {
                    session.end(&self.sessions.owner, Standing::Left);
                }
                Some(session)
            }
        };
        if let Some(session) = session.as_ref().filter(|session| !session.is_told_by(&self.sessions.owner)) {
            self.sessions.forget(session);
        }
        if !Self::may_name(&mut self.asked) {
            self.sessions.forget_early();
        }
        let place = session.as_ref().map_or((0, 0), |session| session.place());
        let _ = request.reply.send(outcome.map(|result| Answer { result, session, place, is_next }));
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

    /// Says a line of version 2.
    fn say(&mut self, line: &str) {
        self.pass(Side::Client, line);
    }

    /// Hears what came, in the agent's version.
    fn came(&mut self, came: Came) {
        match came {
            Came::Line(line) => self.pass(Side::Agent, &line),
            Came::NoLine(what) => self.ledger.note(what),
            Came::TooLong => {
                self.ledger.note("a line that is too long".to_owned());
                // Nobody knows which answer it was, if it was one.
                for (_, request) in self.asked.drain() {
                    self.answered(request, Err(Error::TooLong));
                }
            }
        }
    }

    fn pass(&mut self, by: Side, line: &str) {
        let Some(translator) = &mut self.translator else {
            return self.passed(by, line);
        };
        let translation = match translator.line(by, line) {
            Ok(translation) => translation,
            Err(problem) => return self.ledger.note(problem.to_string()),
        };
        translation.losses.iter().for_each(|loss| self.ledger.note(loss.kind.meaning().trim().to_owned()));
        translation.problems.iter().for_each(|problem| self.ledger.note(problem.to_string()));
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
            return self.update(&id, meta, line, Some(update));
        }
        let message = match parse(line, Dialect::V2.batches()) {
            Ok(Incoming::One(message)) => message,
            Ok(Incoming::Batch(_)) => return self.ledger.note("a batch of messages".to_owned()),
            Err(malformed) => return self.ledger.note(malformed.to_string()),
        };
        match &message.body {
            Body::Notification { method, params } if method == "session/update" => {
                let params = params.and_then(|params| Members::of(params).ok()).unwrap_or_default();
                match params.get("sessionId").and_then(JsonStr::from_raw) {
                    Some(id) => self.update(&id.into(), params.get("_meta"), line, None),
                    None => self.ledger.note("an update without a session".to_owned()),
                }
            }
            Body::Notification { method, params } if method == CANCEL_REQUEST => {
                cancel_target(*params).iter().for_each(|id| self.withdraw(id));
            }
            Body::Notification { method, .. } => {
                self.ledger.note(format!("a notification that nobody looks at: {method}"));
            }
            Body::Request { id, .. } => self.asked_us(id, &message),
            Body::Response { id, outcome } => {
                let Some(request) = self.asked.complete(id) else {
                    return self.ledger.note("an answer that nobody waits for".to_owned());
                };
                let outcome = match outcome {
                    // Many answer with null where nothing is to be said.
                    Outcome::Result(result) if result.as_str() == "null" => Ok(Object::default()),
                    Outcome::Result(result) => {
                        Object::parse(*result).map_err(|_| Error::Odd("an answer that is no object"))
                    }
                    Outcome::Error(error) => Err(Error::Rpc(RpcError::from_raw(*error))),
                };
                self.answered(request, outcome);
            }
        }
    }

    /// Takes an update of a session. What is said of one may come before the answer that names it; of one that nobody asked
    /// for it is not kept, such as what was under way when the session was closed.
    fn update(
        &mut self,
        id: &SessionId,
        meta: Option<JsonRef<'_>>,
        line: &str,
        update: Option<AgentUpdate<'_>>,
    ) {
        if self.updated.as_ref().is_none_or(|session| session.id() != id) {
            self.tell();
            self.updated = self.sessions.told(id, || Self::may_name(&mut self.asked));
        }
        let Some(session) = &self.updated else { return };
        let seq = meta.and_then(|meta| Members::of(meta).ok()?.get("parlor/seq")?.as_str().parse().ok());
        session.take(&self.sessions.owner, line, update, seq);
        if self.translator.is_some()
            && let Some(state) = noted_state(line)
        {
            session.noted(&self.sessions.owner, &state);
        }
    }

    /// Those who look at the session are told that there is something new.
    fn tell(&mut self) {
        if let Some(session) = self.updated.take() {
            session.tell(&self.sessions.owner);
        }
    }

    /// An answer is not wanted any more.
    fn withdraw(&mut self, id: &RequestId) {
        if let Some(withdrawn) = self.open.remove(id) {
            self.desk.withdraw(id);
            withdrawn.send_replace(true);
        }
    }

    fn asked_us(&mut self, id: &RequestId, message: &Message<'_>) {
        let Body::Request { method, params, .. } = &message.body else { return };
        let params = params.and_then(|params| Object::parse(params).ok()).unwrap_or_default();
        // One that has the id of another is asked in its place: there can be only one answer.
        self.withdraw(id);
        let (sender, withdrawn) = watch::channel(false);
        let is_too_many = self.open.len() >= MAX_QUESTIONS;
        self.open.insert(id.clone(), sender);
        let session = params.get("sessionId").and_then(|id| JsonStr::from_raw(id.raw()));
        let session = session.and_then(|id| self.sessions.told(&id.into(), || false));
        let question = Question::new(
            id.clone(),
            method.clone().into_owned(),
            params,
            self.commander.clone(),
            withdrawn,
            Arc::clone(&self.given_up),
            session.map(|session| session.place()),
        );
        if is_too_many || !self.desk.put(question) {
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
    Some(Members::of(meta).ok()?.get(NAME)?.as_str().to_owned())
}
