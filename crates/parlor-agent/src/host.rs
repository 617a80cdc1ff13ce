//! The agent's end of the protocol, version 2, inside the process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use parlor_dialect::live;
use parlor_json::{Json, JsonStr, Object};
use parlor_session::{Content, MessageId, SessionId};
use parlor_wire::{
    Batches, Body, CANCEL_REQUEST, Incoming, InputLine, LineDecoder, Message, Outcome, RequestId, RpcError,
    cancel_target, code, parse, write,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::agent::{Agent, Failure, Stop};
use crate::info::{Chosen, Info};
use crate::line::{Home, LINES, Line, lock};
use crate::place::{Place, Running};
use crate::session::{Session, fresh, state};
use crate::text::Text;
use crate::turn::Turn;

/// What is said of an agent that panics.
const FAULT: &str = "the agent has a fault and could not go on";

/// How many prompts wait in a session.
const MAX_PROMPTS: usize = 64;

/// An agent and its sessions.
pub(crate) struct Host<A> {
    agent: Arc<A>,
    info: Arc<Info>,
    line: Arc<Line>,
    places: Mutex<HashMap<SessionId, Arc<Place>>>,
    /// Methods of the agent's own that are being answered.
    others: Mutex<HashMap<RequestId, AbortHandle>>,
}

/// How a turn went.
enum End {
    Stopped(Stop),
    Failed(Failure),
    Cancelled,
}

impl<A: Agent> Host<A> {
    /// Speaks for an agent over a stream until that ends.
    pub(crate) fn start(agent: &Arc<A>, info: &Arc<Info>, home: &Home, stream: DuplexStream) {
        let (read, write) = tokio::io::split(stream);
        let (line, said) = Line::new(home);
        let host = Self {
            agent: Arc::clone(agent),
            info: Arc::clone(info),
            line,
            places: Mutex::default(),
            others: Mutex::default(),
        };
        tokio::spawn(write_lines(said, write));
        tokio::spawn(Arc::new(host).listen(read));
    }

    async fn listen(self: Arc<Self>, mut read: ReadHalf<DuplexStream>) {
        let mut framing = LineDecoder::default();
        let mut buffer = vec![0; 64 << 10];
        loop {
            let count = read.read(&mut buffer).await.unwrap_or(0);
            if count == 0 {
                // Nobody is left to work for.
                self.line.hang_up();
                lock(&self.others).values().for_each(AbortHandle::abort);
                let places: Vec<_> = lock(&self.places).drain().collect();
                for (_, place) in places {
                    self.cancel(&place).await;
                }
                return;
            }
            framing.extend(&buffer[..count]);
            while let Some(frame) = framing.next_line() {
                let InputLine::Line(line) = frame else { continue };
                if let Ok(Incoming::One(message)) = parse(line, Batches::Refuse) {
                    self.heard(&message).await;
                }
            }
        }
    }

    async fn heard(self: &Arc<Self>, message: &Message<'_>) {
        match &message.body {
            Body::Request { id, method, params } => {
                let params = params.and_then(|params| Object::parse(params).ok()).unwrap_or_default();
                self.request(id, method, params).await;
            }
            Body::Notification { method, params } if method == CANCEL_REQUEST => {
                if let Some(id) = cancel_target(*params) {
                    self.take_back(&id).await;
                }
            }
            Body::Notification { method, params } => {
                let params = params.and_then(|params| Object::parse(params).ok()).unwrap_or_default();
                let Some(place) = self.place(&params) else { return };
                match &**method {
                    "session/cancel" => self.cancel(&place).await,
                    live::BEGUN => {
                        let (agent, session) = (Arc::clone(&self.agent), self.session(&place, false));
                        tokio::spawn(async move { agent.begun(session).await });
                    }
                    _ => {}
                }
            }
            Body::Response { id, outcome } => {
                let answer = match outcome {
                    Outcome::Result(result) => Ok(Object::parse(*result).unwrap_or_default()),
                    Outcome::Error(error) => Err(RpcError::from_raw(*error)),
                };
                self.line.answered(id, answer);
            }
        }
    }

    async fn request(self: &Arc<Self>, id: &RequestId, method: &str, params: Object) {
        match method {
            "initialize" => self.answer(id, Ok(self.info.initialized())).await,
            "session/new" | "session/fork" => {
                // A fork begins with what is chosen in the session that it leaves.
                let chosen = self.place(&params).map(|parent| lock(&parent.chosen).clone());
                let place = self.open(None, &params, chosen.unwrap_or_default());
                let said = Text::new().raw("sessionId", place.id.as_json().as_literal());
                self.opened(id, &place, said).await;
            }
            "session/resume" => {
                let place = self.open(session_in(&params), &params, Chosen::default());
                self.opened(id, &place, Text::new()).await;
            }
            "session/close" | "session/delete" => {
                let place = session_in(&params).and_then(|id| lock(&self.places).remove(&id));
                if let Some(place) = place {
                    self.cancel(&place).await;
                }
                self.answer(id, Ok("{}".to_owned())).await;
            }
            "session/set_config_option" => {
                let answer = self.choose(&params).map_err(|failure| failure.0);
                self.answer(id, answer).await;
            }
            "session/list" => self.answer(id, Ok(r#"{"sessions":[]}"#.to_owned())).await,
            "session/prompt" => self.prompt(id, &params).await,
            _ => self.other(id, method.to_owned(), params),
        }
    }

    /// Has the agent answer what only it knows.
    fn other(self: &Arc<Self>, id: &RequestId, method: String, params: Object) {
        let (host, id) = (Arc::clone(self), id.clone());
        let agent = Arc::clone(&self.agent);
        let answering = tokio::spawn(async move { agent.other(&method, &params).await });
        lock(&self.others).insert(id.clone(), answering.abort_handle());
        tokio::spawn(async move {
            let answer = match answering.await {
                Ok(answer) => answer.map(|result| result.as_str().to_owned()).map_err(|failure| failure.0),
                Err(error) if error.is_cancelled() => Err(taken_back()),
                Err(_) => Err(Failure::new(FAULT).0),
            };
            lock(&host.others).remove(&id);
            host.answer(&id, answer).await;
        });
    }

    async fn answer(&self, id: &RequestId, answer: Result<String, RpcError>) {
        let line = match answer {
            Ok(result) => match Json::parse(result) {
                Ok(result) => write::response(id, result.raw()),
                Err(_) => write::error_response(id, &RpcError::new(code::INTERNAL_ERROR, "no JSON")),
            },
            Err(error) => write::error_response(id, &error),
        };
        self.line.message(line).await;
    }

    /// Opens a session, by its id or anew.
    fn open(&self, id: Option<SessionId>, params: &Object, chosen: Chosen) -> Arc<Place> {
        let id = id.or_else(|| named(params)).unwrap_or_else(|| SessionId::from(fresh().as_str()));
        let place = || Arc::new(Place::new(id.clone(), params, chosen));
        Arc::clone(lock(&self.places).entry(id.clone()).or_insert_with(place))
    }

    /// Answers that a session is open, and what can be done in it.
    async fn opened(&self, id: &RequestId, place: &Arc<Place>, said: Text) {
        let said = self.info.with_settings(said, &lock(&place.chosen)).end();
        self.answer(id, Ok(said)).await;
        if let Some(commands) = self.info.commands() {
            self.session(place, false).tell(&commands).await;
        }
    }

    fn place(&self, params: &Object) -> Option<Arc<Place>> {
        lock(&self.places).get(&session_in(params)?).cloned()
    }

    fn session(&self, place: &Arc<Place>, in_turn: bool) -> Session {
        Session::new(&self.line, &self.info, place, in_turn)
    }

    /// A person chooses.
    fn choose(&self, params: &Object) -> Result<String, Failure> {
        let text = |name: &str| JsonStr::from_raw(params.get(name)?.raw());
        let place = self.place(params).ok_or_else(|| Failure::wrong("there is no such session"))?;
        let (Some(id), Some(value)) = (text("configId"), text("value")) else {
            return Err(Failure::wrong("a setting is chosen by its id and a value"));
        };
        let mut chosen = lock(&place.chosen);
        self.info.choose(&mut chosen, &id.to_text(), &value.to_text())?;
        Ok(self.info.with_settings(Text::new(), &chosen).end())
    }

    async fn prompt(self: &Arc<Self>, id: &RequestId, params: &Object) {
        let content = params.get("prompt").and_then(|list| Content::parse(list.raw()).ok());
        let (Some(place), Some(content)) = (self.place(params), content) else {
            let error = RpcError::new(code::INVALID_PARAMS, "there is no such session, or no prompt");
            return self.answer(id, Err(error)).await;
        };
        let has_room = {
            let mut queue = lock(&place.queue);
            let has_room = queue.waiting.len() < MAX_PROMPTS;
            if has_room {
                queue.waiting.push_back((id.clone(), content));
                if !std::mem::replace(&mut queue.is_worked_off, true) {
                    tokio::spawn(Arc::clone(self).work(Arc::clone(&place)));
                }
            }
            has_room
        };
        if !has_room {
            let message = format!("{MAX_PROMPTS} prompts wait in this session already");
            self.answer(id, Err(RpcError::new(code::INTERNAL_ERROR, message))).await;
        }
    }

    /// Works off the prompts of a session.
    async fn work(self: Arc<Self>, place: Arc<Place>) {
        loop {
            let (id, content, session, running) = {
                let mut queue = lock(&place.queue);
                let Some((id, content)) = queue.waiting.pop_front() else {
                    queue.running = None;
                    queue.is_worked_off = false;
                    return;
                };
                let session = self.session(&place, true);
                let running = Running::new(&session);
                queue.running = Some(running.clone());
                (id, content, session, running)
            };
            let message = fresh();
            self.answer(&id, Ok(Text::new().str("messageId", &message).end())).await;
            let message = MessageId::from(message.as_str());
            let turn = Turn { session: session.clone(), message, prompt: content };
            session.tell(&state("running")).await;
            let agent = Arc::clone(&self.agent);
            // In a task of its own, so that a panic is the end of the turn and of nothing else.
            let mut task = tokio::spawn(async move { agent.prompt(turn).await });
            let end = tokio::select! {
                biased;
                () = running.cancelled() => {
                    task.abort();
                    let _ = task.await;
                    End::Cancelled
                }
                done = &mut task => match done {
                    Ok(Ok(stop)) => End::Stopped(stop),
                    Ok(Err(failure)) => End::Failed(failure),
                    Err(_) => End::Failed(Failure::new(FAULT)),
                },
            };
            ended(&session, &end).await;
        }
    }

    /// What was asked is not wanted any more, if it waits or is one of the agent's own methods.
    async fn take_back(&self, id: &RequestId) {
        if let Some(answering) = lock(&self.others).get(id) {
            return answering.abort();
        }
        let places: Vec<_> = lock(&self.places).values().cloned().collect();
        let waited = places.iter().any(|place| {
            let mut queue = lock(&place.queue);
            let place = queue.waiting.iter().position(|(waiting, _)| waiting == id);
            place.and_then(|place| queue.waiting.remove(place)).is_some()
        });
        if waited {
            self.answer(id, Err(taken_back())).await;
        }
    }

    /// The turn of a session is not wanted any more, nor what waits after it.
    async fn cancel(&self, place: &Place) {
        let waiting = {
            let mut queue = lock(&place.queue);
            queue.running.iter().for_each(Running::cancel);
            std::mem::take(&mut queue.waiting)
        };
        for (id, _) in waiting {
            self.answer(&id, Err(taken_back())).await;
        }
    }
}

/// Says that a turn is over, and why.
async fn ended(session: &Session, end: &End) {
    let idle = Text::update("state_update").str("state", "idle");
    let idle = match end {
        End::Stopped(stop) => idle.str("stopReason", stop.name()),
        End::Cancelled => idle.str("stopReason", "cancelled"),
        End::Failed(failure) => {
            let error =
                Text::new().raw("code", &failure.0.code().to_string()).str("message", failure.0.message());
            idle.str("stopReason", "error").raw("error", &error.end())
        }
    };
    let status = if matches!(end, End::Cancelled) { "cancelled" } else { "failed" };
    session.end(idle, status).await;
}

async fn write_lines(mut lines: mpsc::Receiver<String>, mut write: WriteHalf<DuplexStream>) {
    let mut waiting = Vec::new();
    while lines.recv_many(&mut waiting, LINES).await > 0 {
        if write.write_all(waiting.concat().as_bytes()).await.is_err() {
            return;
        }
        waiting.clear();
    }
}

fn session_in(params: &Object) -> Option<SessionId> {
    JsonStr::from_raw(params.get("sessionId")?.raw()).map(SessionId::from)
}

/// What the hub calls a new session.
fn named(params: &Object) -> Option<SessionId> {
    let meta = Object::parse(params.get("_meta")?.raw()).ok()?;
    JsonStr::from_raw(meta.get("parlor/session")?.raw()).map(SessionId::from)
}

fn taken_back() -> RpcError {
    RpcError::new(code::REQUEST_CANCELLED, "it was taken back")
}
