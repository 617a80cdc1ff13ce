//! The agent's end of the protocol, version 2, inside the process: receives messages and calls the agent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use parlor_dialect::live;
use parlor_json::{Json, JsonStr, Object, ObjectWriter};
use parlor_session::SessionId;
use parlor_wire::{
    Batches, Body, CANCEL_REQUEST, Incoming, InputLine, LineDecoder, Message, Outcome, RequestId, RpcError,
    cancel_target, code, parse, write,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tracing::Instrument;

use crate::connection::{AgentConnection, HubCell, MAX_LINES, lock};
use crate::info::SettingValues;
use crate::session::{Session, new_id};
use crate::session_state::{SessionRequest, SessionRequestKind, SessionState};
use crate::{Agent, Info, TurnError};

/// The error of an agent that panicked.
pub(crate) const PANICKED: &str = "the agent panicked";

/// The result of a request that the agent answered, and an update to send after it.
struct Reply {
    result: String,
    update: Option<(Session, String)>,
}

/// An agent with its sessions.
pub(crate) struct Host<A> {
    pub(crate) agent: Arc<A>,
    info: Arc<Info>,
    connection: Arc<AgentConnection>,
    sessions: Mutex<HashMap<SessionId, Arc<SessionState>>>,
    /// Requests that the agent itself answers.
    agent_requests: Mutex<HashMap<RequestId, AbortHandle>>,
}

impl<A: Agent> Host<A> {
    /// Serves an agent over a stream until the stream ends.
    pub(crate) fn start(agent: &Arc<A>, info: &Arc<Info>, hub: &HubCell, stream: DuplexStream) {
        let (read, write) = tokio::io::split(stream);
        let (connection, lines) = AgentConnection::new(hub);
        let host = Self {
            agent: Arc::clone(agent),
            info: Arc::clone(info),
            connection,
            sessions: Mutex::default(),
            agent_requests: Mutex::default(),
        };
        tokio::spawn(write_lines(lines, write));
        tokio::spawn(Arc::new(host).run(read));
    }

    async fn run(self: Arc<Self>, mut read: ReadHalf<DuplexStream>) {
        let mut lines = LineDecoder::default();
        let mut buffer = vec![0; 64 << 10];
        loop {
            let count = read.read(&mut buffer).await.unwrap_or(0);
            if count == 0 {
                return self.close().await;
            }
            lines.extend(&buffer[..count]);
            while let Some(line) = lines.next_line() {
                let InputLine::Line(line) = line else { continue };
                if let Ok(Incoming::One(message)) = parse(line, Batches::Refuse) {
                    self.on_message(&message).await;
                }
            }
        }
    }

    /// Cancels everything: the server has stopped.
    async fn close(&self) {
        self.connection.close();
        lock(&self.agent_requests).values().for_each(AbortHandle::abort);
        let sessions: Vec<_> = lock(&self.sessions).drain().collect();
        for (_, session) in sessions {
            self.cancel_turns(&session).await;
        }
    }

    async fn on_message(self: &Arc<Self>, message: &Message<'_>) {
        match &message.body {
            Body::Request { id, method, params } => {
                let params = params.and_then(|params| Object::parse(params).ok()).unwrap_or_default();
                self.on_request(id, method, params).await;
            }
            Body::Notification { method, params } if method == CANCEL_REQUEST => {
                if let Some(id) = cancel_target(*params) {
                    self.cancel_request(&id).await;
                }
            }
            Body::Notification { method, params } => {
                let params = params.and_then(|params| Object::parse(params).ok()).unwrap_or_default();
                let Some(session) = self.session_of(&params) else { return };
                match &**method {
                    "session/cancel" => self.cancel_turns(&session).await,
                    live::BEGUN => {
                        let (agent, handle) = (Arc::clone(&self.agent), self.handle(&session, false));
                        let span = session.span.clone();
                        tokio::spawn(async move { agent.session_started(handle).await }.instrument(span));
                    }
                    _ => {}
                }
            }
            Body::Response { id, outcome } => {
                let response = match outcome {
                    Outcome::Result(result) => Ok(Object::parse(*result).unwrap_or_default()),
                    Outcome::Error(error) => Err(RpcError::from_raw(*error)),
                };
                self.connection.on_response(id, response);
            }
        }
    }

    async fn on_request(self: &Arc<Self>, id: &RequestId, method: &str, params: Object) {
        match method {
            "initialize" => self.respond(id, Ok(self.info.initialize_result())).await,
            "session/new" => self.open(id, SessionRequestKind::New, params),
            "session/fork" => self.open(id, SessionRequestKind::Fork, params),
            "session/resume" => self.open(id, SessionRequestKind::Resume, params),
            "session/close" | "session/delete" => {
                let session = session_id(&params).and_then(|id| lock(&self.sessions).remove(&id));
                if let Some(session) = session {
                    self.cancel_turns(&session).await;
                }
                self.respond(id, Ok("{}".to_owned())).await;
            }
            "session/set_config_option" => {
                let result = self.set_setting(&params).map_err(|error| error.to_rpc());
                self.respond(id, result).await;
            }
            "session/list" => self.respond(id, Ok(r#"{"sessions":[]}"#.to_owned())).await,
            "session/prompt" => self.on_prompt(id, &params).await,
            "auth/login" => self.authenticate(id, &params).await,
            "auth/logout" => {
                let agent = Arc::clone(&self.agent);
                self.call_agent(id, async move { agent.log_out().await.map(|()| Reply::empty()) });
            }
            _ => {
                let (agent, method) = (Arc::clone(&self.agent), method.to_owned());
                self.call_agent(id, async move {
                    let result = agent.extension_request(&method, &params).await?;
                    Ok(Reply { result: result.as_str().to_owned(), update: None })
                });
            }
        }
    }

    async fn authenticate(self: &Arc<Self>, id: &RequestId, params: &Object) {
        let method = params.get("methodId").and_then(|method| JsonStr::from_raw(method.raw()));
        let method = method.map(|method| method.to_text().into_owned());
        let Some(method) = method.filter(|method| self.info.has_auth_method(method)) else {
            let error =
                RpcError::new(code::INVALID_PARAMS, "`methodId` names no authentication method of the agent");
            return self.respond(id, Err(error)).await;
        };
        let agent = Arc::clone(&self.agent);
        self.call_agent(id, async move { agent.authenticate(&method).await.map(|()| Reply::empty()) });
    }

    /// Has the agent decide whether a session is opened, and responds.
    fn open(self: &Arc<Self>, id: &RequestId, kind: SessionRequestKind, params: Object) {
        let host = Arc::clone(self);
        self.call_agent(id, async move {
            let request = SessionRequest::read(kind, &params);
            host.agent.open_session(&request).await?;
            Ok(host.add_session(request, &params))
        });
    }

    /// Adds a session, and returns the result of the request that opens it.
    fn add_session(&self, request: SessionRequest, params: &Object) -> Reply {
        let is_resumed = request.kind() == SessionRequestKind::Resume;
        // A fork starts with the settings of its parent.
        let parent = if is_resumed { None } else { self.session_of(params) };
        let settings: SettingValues = parent.map(|parent| lock(&parent.settings).clone()).unwrap_or_default();
        let resumed = if is_resumed { session_id(params) } else { None };
        let id =
            resumed.or_else(|| id_from_hub(params)).unwrap_or_else(|| SessionId::from(new_id().as_str()));
        let new = || Arc::new(SessionState::new(id.clone(), request, settings));
        let session = Arc::clone(lock(&self.sessions).entry(id.clone()).or_insert_with(new));
        let result = ObjectWriter::new();
        let result = if is_resumed { result } else { result.raw("sessionId", id.as_json().as_literal()) };
        let result = self.info.write_settings(result, &lock(&session.settings)).finish();
        let update = self.info.commands_update().map(|update| (self.handle(&session, false), update));
        Reply { result, update }
    }

    /// Calls the agent in a task of its own, so that a panic ends this request and nothing else, and responds with the result.
    fn call_agent(
        self: &Arc<Self>,
        id: &RequestId,
        call: impl Future<Output = Result<Reply, TurnError>> + Send + 'static,
    ) {
        let (host, id) = (Arc::clone(self), id.clone());
        let task = tokio::spawn(call);
        lock(&self.agent_requests).insert(id.clone(), task.abort_handle());
        tokio::spawn(async move {
            let reply = match task.await {
                Ok(reply) => reply.map_err(|error| error.to_rpc()),
                Err(error) if error.is_cancelled() => Err(cancelled_error()),
                Err(_) => Err(TurnError::new(PANICKED).to_rpc()),
            };
            lock(&host.agent_requests).remove(&id);
            match reply {
                Ok(Reply { result, update }) => {
                    host.respond(&id, Ok(result)).await;
                    if let Some((session, update)) = update {
                        session.send_raw_update(&update).await;
                    }
                }
                Err(error) => host.respond(&id, Err(error)).await,
            }
        });
    }

    /// Sends the response to a request.
    pub(crate) async fn respond(&self, id: &RequestId, result: Result<String, RpcError>) {
        let line = match result {
            Ok(result) => {
                let result = Json::parse(result).expect("results are written as JSON");
                write::response(id, result.raw())
            }
            Err(error) => write::error_response(id, &error),
        };
        self.connection.send_message(line).await;
    }

    pub(crate) fn session_of(&self, params: &Object) -> Option<Arc<SessionState>> {
        lock(&self.sessions).get(&session_id(params)?).cloned()
    }

    /// A handle of a session for the agent.
    pub(crate) fn handle(&self, session: &Arc<SessionState>, is_in_turn: bool) -> Session {
        Session::new(&self.connection, &self.info, session, is_in_turn)
    }

    fn set_setting(&self, params: &Object) -> Result<String, TurnError> {
        let invalid = |message: &str| TurnError::InvalidParams(message.to_owned());
        let text = |name: &str| JsonStr::from_raw(params.get(name)?.raw());
        let session = self.session_of(params).ok_or_else(|| invalid("`sessionId` names no open session"))?;
        let id = text("configId").ok_or_else(|| invalid("`configId` must be a string"))?;
        let value = text("value").ok_or_else(|| invalid("`value` must be a string"))?;
        let mut settings = lock(&session.settings);
        self.info.set_setting(&mut settings, &id.to_text(), &value.to_text())?;
        Ok(self.info.write_settings(ObjectWriter::new(), &settings).finish())
    }

    /// Cancels a request that the agent answers, or a queued prompt.
    async fn cancel_request(&self, id: &RequestId) {
        if let Some(task) = lock(&self.agent_requests).get(id) {
            return task.abort();
        }
        let sessions: Vec<_> = lock(&self.sessions).values().cloned().collect();
        let was_queued = sessions.iter().any(|session| {
            let mut prompts = lock(&session.prompts);
            let index = prompts.queued.iter().position(|(queued, _)| queued == id);
            index.and_then(|index| prompts.queued.remove(index)).is_some()
        });
        if was_queued {
            self.respond(id, Err(cancelled_error())).await;
        }
    }
}

impl Reply {
    fn empty() -> Self {
        Self { result: "{}".to_owned(), update: None }
    }
}

async fn write_lines(mut lines: mpsc::Receiver<String>, mut write: WriteHalf<DuplexStream>) {
    let mut ready = Vec::new();
    while lines.recv_many(&mut ready, MAX_LINES).await > 0 {
        if write.write_all(ready.concat().as_bytes()).await.is_err() {
            return;
        }
        ready.clear();
    }
}

fn session_id(params: &Object) -> Option<SessionId> {
    JsonStr::from_raw(params.get("sessionId")?.raw()).map(SessionId::from)
}

/// The hub's id for a new session.
fn id_from_hub(params: &Object) -> Option<SessionId> {
    let meta = Object::parse(params.get("_meta")?.raw()).ok()?;
    JsonStr::from_raw(meta.get("parlor/session")?.raw()).map(SessionId::from)
}

pub(crate) fn cancelled_error() -> RpcError {
    RpcError::new(code::REQUEST_CANCELLED, "the request was cancelled")
}
