//! The agent's end of the protocol, version 2, inside the process.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use parlor_json::{Json, JsonStr, Object};
use parlor_server::hub::Hub;
use parlor_session::{Content, MessageId, SessionId, Transcript};
use parlor_wire::{
    Asked, Batches, Body, CANCEL_REQUEST, Frame, Incoming, Lines, Message, Outcome, RequestId, RpcError,
    cancel_target, code, parse, write,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::agent::{Agent, Failure, Info, Stop};
use crate::text::Text;
use crate::turn::{State, Turn};

/// How many lines wait to be read by the hub. Who says more waits.
const LINES: usize = 256;

/// How many questions may be without an answer.
const MAX_ASKED: usize = 1000;

/// How many prompts wait in a session.
const MAX_PROMPTS: usize = 64;

/// An id that nobody has.
pub(crate) fn fresh() -> String {
    uuid::Uuid::now_v7().simple().to_string()
}

/// How an agent speaks.
pub(crate) struct Line {
    lines: mpsc::Sender<String>,
    asked: Mutex<Asked<oneshot::Sender<Result<Object, RpcError>>>>,
    hub: Arc<OnceLock<Weak<Hub>>>,
}

/// An agent and its sessions.
pub(crate) struct Host<A> {
    agent: Arc<A>,
    line: Arc<Line>,
    sessions: Mutex<HashMap<SessionId, Arc<Session>>>,
}

/// What is going on in a session.
struct Session {
    id: SessionId,
    cwd: PathBuf,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// By which the running turn is cancelled.
    running: Option<Arc<Notify>>,
    waiting: VecDeque<(RequestId, Content)>,
}

/// How a turn went.
enum End {
    Stopped(Stop),
    Failed(Failure),
    Cancelled,
}

impl Line {
    /// Says a line, which has its end. When the hub is gone nobody hears it.
    pub(crate) async fn say(&self, line: &str) {
        let _ = self.lines.send(line.to_owned()).await;
    }

    async fn message(&self, mut line: String) {
        line.push('\n');
        let _ = self.lines.send(line).await;
    }

    /// Asks the client.
    pub(crate) async fn ask(&self, method: &str, params: &str) -> Result<Object, RpcError> {
        let gone = || RpcError::new(code::INTERNAL_ERROR, "nobody is there any more");
        let (reply, answer) = oneshot::channel();
        let params = Json::parse(params).map_err(|_| RpcError::new(code::INTERNAL_ERROR, "no params"))?;
        let id = lock(&self.asked).ask(reply).map_err(|_| gone())?;
        self.message(write::request(&id, method, Some(params.raw()))).await;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }

    /// What was said in a session, once this message is in it.
    pub(crate) async fn transcript(&self, session: &SessionId, message: &MessageId) -> Transcript {
        let hub = self.hub.get().and_then(Weak::upgrade);
        match hub {
            Some(hub) => hub.transcript(session, Some(message.clone())).await.unwrap_or_default(),
            None => Transcript::default(),
        }
    }
}

impl<A: Agent> Host<A> {
    /// Speaks for an agent over a stream until that ends.
    pub(crate) fn start(agent: &Arc<A>, hub: &Arc<OnceLock<Weak<Hub>>>, stream: DuplexStream) {
        let (read, write) = tokio::io::split(stream);
        let (lines, said) = mpsc::channel(LINES);
        let line = Line { lines, asked: Mutex::new(Asked::new(MAX_ASKED)), hub: Arc::clone(hub) };
        let host = Self { agent: Arc::clone(agent), line: Arc::new(line), sessions: Mutex::default() };
        tokio::spawn(write_lines(said, write));
        tokio::spawn(Arc::new(host).listen(read));
    }

    async fn listen(self: Arc<Self>, mut read: ReadHalf<DuplexStream>) {
        let mut framing = Lines::default();
        let mut buffer = vec![0; 64 << 10];
        loop {
            let count = read.read(&mut buffer).await.unwrap_or(0);
            if count == 0 {
                // Nobody is left to work for.
                let sessions: Vec<_> = lock(&self.sessions).drain().collect();
                for (_, session) in sessions {
                    self.cancel(&session).await;
                }
                return;
            }
            framing.extend(&buffer[..count]);
            while let Some(frame) = framing.next_frame() {
                let Frame::Line(line) = frame else { continue };
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
                if method == "session/cancel"
                    && let Some(session) = self.session(&params)
                {
                    self.cancel(&session).await;
                }
            }
            Body::Response { id, outcome } => {
                let Some(reply) = lock(&self.line.asked).answered(id) else { return };
                let _ = reply.send(match outcome {
                    Outcome::Result(result) => Ok(Object::parse(result).unwrap_or_default()),
                    Outcome::Error(error) => Err(RpcError::from_raw(error)),
                });
            }
        }
    }

    async fn request(self: &Arc<Self>, id: &RequestId, method: &str, params: Object) {
        match method {
            "initialize" => self.answer(id, Ok(initialized(&self.agent.info()))).await,
            "session/new" | "session/fork" => {
                let name = named(&params).unwrap_or_else(|| SessionId::from(fresh().as_str()));
                self.open(name.clone(), &params);
                self.answer(id, Ok(Text::new().raw("sessionId", name.as_json().as_literal()).end())).await;
            }
            "session/resume" => {
                if let Some(name) = session_in(&params) {
                    self.open(name, &params);
                }
                self.answer(id, Ok("{}".to_owned())).await;
            }
            "session/close" | "session/delete" => {
                if let Some(session) = self.session(&params) {
                    self.cancel(&session).await;
                    lock(&self.sessions).remove(&session.id);
                }
                self.answer(id, Ok("{}".to_owned())).await;
            }
            "session/list" => self.answer(id, Ok(r#"{"sessions":[]}"#.to_owned())).await,
            "session/prompt" => self.prompt(id, &params).await,
            _ => {
                let (host, id, method) = (Arc::clone(self), id.clone(), method.to_owned());
                tokio::spawn(async move {
                    let answer = host.agent.other(&method, &params).await;
                    let answer = answer.map(|result| result.as_str().to_owned()).map_err(|failure| failure.0);
                    host.answer(&id, answer).await;
                });
            }
        }
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

    fn open(&self, id: SessionId, params: &Object) {
        let cwd = params.get("cwd").and_then(|cwd| JsonStr::from_raw(cwd.raw()));
        let cwd = cwd.map_or_else(|| PathBuf::from("/"), |cwd| PathBuf::from(cwd.to_text().into_owned()));
        let session = Session { id: id.clone(), cwd, queue: Mutex::default() };
        lock(&self.sessions).entry(id).or_insert_with(|| Arc::new(session));
    }

    fn session(&self, params: &Object) -> Option<Arc<Session>> {
        lock(&self.sessions).get(&session_in(params)?).cloned()
    }

    async fn prompt(self: &Arc<Self>, id: &RequestId, params: &Object) {
        let content = params.get("prompt").and_then(|list| Content::parse(list.raw()).ok());
        let (Some(session), Some(content)) = (self.session(params), content) else {
            let error = RpcError::new(code::INVALID_PARAMS, "there is no such session, or no prompt");
            return self.answer(id, Err(error)).await;
        };
        let has_room = {
            let mut queue = lock(&session.queue);
            let has_room = queue.waiting.len() < MAX_PROMPTS;
            if has_room {
                queue.waiting.push_back((id.clone(), content));
                if queue.running.is_none() {
                    queue.running = Some(Arc::default());
                    tokio::spawn(Arc::clone(self).work(Arc::clone(&session)));
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
    async fn work(self: Arc<Self>, session: Arc<Session>) {
        loop {
            let (id, content, cancelled) = {
                let mut queue = lock(&session.queue);
                let Some((id, content)) = queue.waiting.pop_front() else {
                    queue.running = None;
                    return;
                };
                let cancelled = Arc::default();
                queue.running = Some(Arc::clone(&cancelled));
                (id, content, cancelled)
            };
            let message = fresh();
            self.answer(&id, Ok(Text::new().str("messageId", &message).end())).await;
            let turn = Turn {
                line: Arc::clone(&self.line),
                session: session.id.clone(),
                cwd: session.cwd.clone(),
                message: MessageId::from(message.as_str()),
                prompt: content,
                state: Arc::new(Mutex::new(State::default())),
            };
            turn.update(&Text::update("state_update").str("state", "running").end()).await;
            let agent = Arc::clone(&self.agent);
            let run = turn.clone();
            // In a task of its own, so that a panic is the end of the turn and of nothing else.
            let mut task = tokio::spawn(async move { agent.prompt(run).await });
            let end = tokio::select! {
                done = &mut task => match done {
                    Ok(Ok(stop)) => End::Stopped(stop),
                    Ok(Err(failure)) => End::Failed(failure),
                    Err(_) => End::Failed(Failure::new("the agent has a fault and could not go on")),
                },
                () = cancelled.notified() => {
                    task.abort();
                    let _ = task.await;
                    End::Cancelled
                }
            };
            ended(&turn, &end).await;
        }
    }

    /// A prompt that waits is not wanted any more.
    async fn take_back(&self, id: &RequestId) {
        let sessions: Vec<_> = lock(&self.sessions).values().cloned().collect();
        let waited = sessions.iter().any(|session| {
            let mut queue = lock(&session.queue);
            let place = queue.waiting.iter().position(|(waiting, _)| waiting == id);
            place.and_then(|place| queue.waiting.remove(place)).is_some()
        });
        if waited {
            self.answer(id, Err(taken_back())).await;
        }
    }

    /// The turn of a session is not wanted any more, nor what waits after it.
    async fn cancel(&self, session: &Session) {
        let (running, waiting) = {
            let mut queue = lock(&session.queue);
            (queue.running.clone(), std::mem::take(&mut queue.waiting))
        };
        for (id, _) in waiting {
            self.answer(&id, Err(taken_back())).await;
        }
        if let Some(running) = running {
            running.notify_one();
        }
    }
}

/// Says that a turn is over, and with it what was begun in it.
async fn ended(turn: &Turn, end: &End) {
    let calls = std::mem::take(&mut lock(&turn.state).calls);
    let status = if matches!(end, End::Cancelled) { "cancelled" } else { "failed" };
    for call in calls {
        let update = Text::update("tool_call_update").str("toolCallId", &call).str("status", status);
        turn.update(&update.end()).await;
    }
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
    turn.update(&idle.end()).await;
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

/// What an agent says of itself.
fn initialized(info: &Info) -> String {
    let who = Text::new().str("name", &info.name).maybe("title", info.title.as_deref());
    let who = who.str("version", &info.version).end();
    let session = Text::new()
        .raw("prompt", info.prompt.to_json().as_str())
        .raw("delete", "{}")
        .raw("fork", r#"{"atMessageId":true}"#)
        .end();
    let capabilities = Text::new().raw("session", &session).end();
    Text::new().raw("protocolVersion", "2").raw("info", &who).raw("capabilities", &capabilities).end()
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
    RpcError::new(code::REQUEST_CANCELLED, "the prompt was taken back")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
