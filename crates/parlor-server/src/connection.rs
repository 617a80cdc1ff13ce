//! Handles the messages of one client.
//!
//! Requests that may take long run in tasks of their own, so that the client's next messages are read. A *lane* keeps the order
//! of those that are for the same session, or for the agent.

mod adopt;
mod agent_call;
#[cfg(feature = "http")]
mod browsers;
mod create;
mod initialize;
mod list;
mod login;
mod requests;
mod search;
mod session_info;
mod title;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use parlor_dialect::Dialect;
use parlor_engine::{ClientCall, Event, ForkKind, ForkRequest, Frame, RejectableRequest, ReplayFrom, STEER};
use parlor_json::{Json, JsonRef, JsonStr, Object};
use parlor_session::SessionId;
use parlor_session::session::{Answer, PromptId, Scope};
use parlor_wire::{
    Batches, Body, CANCEL_REQUEST, Incoming, InputLine, Malformed, Message as Rpc, Outcome, RequestId,
    RpcError, cancel_target, code, parse,
};

use tokio::sync::{Semaphore, oneshot, watch};
use tracing::{Instrument as _, Span};

use self::agent_call::SessionlessCall;
pub(crate) use self::list::{ListQuery, agent_names, changes as list_changes};
use crate::agent::{CancelToken, register_mcp_servers};
use crate::client::{Client, Requester, SessionRequestToClient};
use crate::fields;
use crate::hub::HubState;
use crate::lock;
use crate::send_queue::SendQueue;
use crate::session::{RejectableCall, SessionMessage};

/// How many sessions one connection may use.
const MAX_SESSIONS: usize = 10_000;

/// How many requests of one connection may run in tasks of their own.
const MAX_CONCURRENT_REQUESTS: usize = 256;

/// How many sessions a message to the agent is ordered after.
const MAX_RECENT_SESSIONS: usize = 64;

/// The connection of one client.
pub(crate) struct Connection {
    hub: Arc<HubState>,
    client: Arc<Client>,
    /// The span of the tasks that serve the client.
    span: Span,
    /// The sessions that it has sent messages to.
    sessions: Arc<Mutex<HashSet<SessionId>>>,
    request_permits: Arc<Semaphore>,
    /// Cancels the requests that run in tasks.
    cancel_senders: Arc<Mutex<HashMap<RequestId, watch::Sender<bool>>>>,
    /// The lanes in use, by session or `None` for the agent: each receiver completes when the last job of the lane has ended.
    lanes: HashMap<Option<SessionId>, oneshot::Receiver<()>>,
    /// The sessions that were sent messages since the last message to the agent outside of sessions.
    recent_sessions: Vec<SessionId>,
}

impl Connection {
    pub(crate) fn new(hub: Arc<HubState>, client: Arc<Client>) -> Self {
        let transport = client.options.transport.name();
        let span = tracing::info_span!(parent: None, "connection", client = client.id.0, transport);
        Self {
            hub,
            client,
            span,
            sessions: Arc::default(),
            request_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_REQUESTS)),
            cancel_senders: Arc::default(),
            lanes: HashMap::new(),
            recent_sessions: Vec::new(),
        }
    }

    /// The span for whatever serves this connection. It is for futures that serve it for as long as it lasts, not for messages.
    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// Runs a request in a task of its own, while the client's next messages are read.
    fn spawn_request<F: Future<Output = ()> + Send + 'static>(
        &self,
        id: Option<&RequestId>,
        run: impl FnOnce(CancelToken) -> F,
    ) -> Result<(), RpcError> {
        let permit = Arc::clone(&self.request_permits).try_acquire_owned().map_err(|_| {
            let message = format!(
                "{MAX_CONCURRENT_REQUESTS} requests of this connection are in flight: try again later"
            );
            RpcError::new(code::INTERNAL_ERROR, message)
        })?;
        let (sender, cancel) = CancelToken::new();
        let (senders, id) = (Arc::clone(&self.cancel_senders), id.cloned());
        if let Some(id) = &id {
            lock(&senders).insert(id.clone(), sender);
        }
        let running = run(cancel);
        let run = async move {
            running.await;
            if let Some(id) = id {
                lock(&senders).remove(&id);
            }
            drop(permit);
        };
        tokio::spawn(run.instrument(self.span.clone()));
        Ok(())
    }

    /// Runs a job for a session that may have to be opened, after the jobs in the session's lane. Rejects the request if the
    /// job fails.
    fn run_in_lane<F: Future<Output = Result<(), RpcError>> + Send + 'static>(
        &mut self,
        session: &SessionId,
        request: Option<RejectableCall>,
        job: impl FnOnce(CancelToken) -> F,
    ) -> Result<(), RpcError> {
        self.track_session(session)?;
        let (before, done) = self.enter_lane(Some(session.clone()));
        let (hub, sessions, session) = (Arc::clone(&self.hub), Arc::clone(&self.sessions), session.clone());
        let id = request.as_ref().map(|request| request.id().clone());
        self.spawn_request(id.as_ref(), |mut cancel| {
            let job = job(cancel.clone());
            async move {
                let finished = async {
                    let earlier = async {
                        if let Some(before) = before {
                            let _ = before.await;
                        }
                    };
                    cancel.or_cancelled(earlier).await?;
                    hub.make_room().await?;
                    job.await
                };
                let finished = finished.await;
                drop(done);
                if let Err(error) = finished {
                    lock(&sessions).remove(&session);
                    match request {
                        Some(request) => request.reject(&error),
                        None => tracing::debug!(%session, "dropping a notification: {}", error.message()),
                    }
                }
            }
        })
    }

    /// Adds a job to a lane: returns the end of the job before it, and the sender whose drop ends the new job.
    fn enter_lane(
        &mut self,
        lane: Option<SessionId>,
    ) -> (Option<oneshot::Receiver<()>>, oneshot::Sender<()>) {
        self.drop_empty_lanes();
        let (done, end) = oneshot::channel();
        (self.lanes.insert(lane, end), done)
    }

    /// Removes the lanes without jobs.
    fn drop_empty_lanes(&mut self) {
        self.lanes.retain(|_, end| matches!(end.try_recv(), Err(oneshot::error::TryRecvError::Empty)));
    }

    pub(crate) async fn on_line(&mut self, frame: InputLine<'_>) {
        let batches = self.client.negotiated().map_or(Batches::Accept, |info| info.dialect.batches());
        if frame == InputLine::Blank {
            return;
        }
        match frame.line().and_then(|line| parse(line, batches)) {
            Ok(Incoming::One(message)) => self.on_message(&message).await,
            Ok(Incoming::Batch(messages)) => {
                if register_batch(&self.client.queue, &messages) {
                    for message in messages.iter().flatten() {
                        self.on_message(message).await;
                    }
                }
            }
            Err(malformed) => self.on_malformed(&malformed),
        }
    }

    fn on_malformed(&self, malformed: &parlor_wire::Malformed) {
        if let Some(answer) = Frame::malformed(malformed) {
            self.client.queue.push(answer);
        }
    }

    async fn on_message(&mut self, message: &Rpc<'_>) {
        match &message.body {
            Body::Request { id, method, params } => {
                let params = params.and_then(JsonRef::to_object).unwrap_or_default();
                if let Err(error) = self.on_request(id, method, params).await {
                    self.reject(id, method, &error);
                }
            }
            Body::Notification { method, params } => self.on_notification(method, *params).await,
            Body::Response { id, outcome } => {
                let Some(requester) = self.client.take_request(id) else { return };
                let answer = match outcome {
                    Outcome::Result(result) => Answer::Result(Json::from(*result)),
                    Outcome::Error(error) => Answer::Error(Json::from(*error)),
                };
                match requester {
                    Requester::Session(request) => {
                        let by = self.client.id;
                        let SessionRequestToClient { session, request } = request;
                        let _ = session
                            .send(SessionMessage::Event(Event::Answered { request, by, answer }))
                            .await;
                    }
                    Requester::Agent(request) => request.respond(&self.client, answer),
                }
            }
        }
    }

    fn reject(&self, id: &RequestId, method: &str, error: &RpcError) {
        let request = RejectableRequest::new(id.clone(), method);
        self.client.queue.push(request.response(error));
    }

    async fn on_notification(&mut self, method: &str, params: Option<JsonRef<'_>>) {
        if method == CANCEL_REQUEST {
            let Some(id) = cancel_target(params) else { return };
            if let Some(sender) = lock(&self.cancel_senders).get(&id) {
                sender.send_replace(true);
            }
            // A session that is not live has no requests in flight.
            let sessions: Vec<_> = lock(&self.sessions).iter().cloned().collect();
            for session in sessions.into_iter().filter(|session| self.hub.is_live(session)) {
                let message = Event::CancelRequest { client: self.client.id, id: id.clone() };
                let _ = self.hub.send(&session, SessionMessage::Event(message)).await;
            }
            return;
        }
        let params = params.and_then(JsonRef::to_object).unwrap_or_default();
        if !self.client.is_driver() || self.client.negotiated().is_none() {
            return;
        }
        let Some(session) = fields::session_of(&params) else {
            if let Err(error) = self.call_agent(None, method.to_owned(), params).await {
                tracing::debug!(method, "dropping a notification: {}", error.message());
            }
            return;
        };
        let message = match method {
            "session/cancel" => {
                SessionMessage::Event(Event::CancelTurn { by: self.client.id, scope: scope(&params) })
            }
            _ => {
                let forward = ClientCall::Forward { id: None, method: method.to_owned(), params };
                SessionMessage::Call(Arc::clone(&self.client), forward)
            }
        };
        if let Err(error) = self.send_to_session(&session, message).await {
            tracing::debug!(%session, "dropping a notification: {}", error.message());
        }
    }

    async fn on_request(&mut self, id: &RequestId, method: &str, params: Object) -> Result<(), RpcError> {
        if method == "initialize" {
            return self.on_initialize(id, &params).await;
        }
        if let Some(done) = self.on_server_request(id, method, &params).await {
            return done;
        }
        let Some(info) = self.client.negotiated() else {
            if method.starts_with("_parlor/") && !SESSION_METHODS.contains(&method) {
                return Err(method_not_found(method));
            }
            return Err(RpcError::new(code::INVALID_REQUEST, "the first request must be `initialize`"));
        };
        let dialect = info.dialect;
        let client = || Arc::clone(&self.client);
        if matches!(method, "session/new" | "session/load" | "session/resume" | "session/fork") {
            check_directories(&params)?;
        }
        match method {
            "session/list" => {
                let (hub, client, request) = (Arc::clone(&self.hub), client(), id.clone());
                return self.spawn_request(Some(id), |_| async move {
                    list::list(&hub, &client, &request, &params).await;
                });
            }
            "session/status" => {
                let session = session(&params)?;
                return list::session_status(&self.hub, &self.client, id, &session).await;
            }
            "_parlor/older" => {
                let older = older(id, &params)?;
                return self.send_to_session(&session(&params)?, SessionMessage::Call(client(), older)).await;
            }
            "session/detach" => {
                let detach = ClientCall::Detach { id: id.clone() };
                return self
                    .send_to_session(&session(&params)?, SessionMessage::Call(client(), detach))
                    .await;
            }
            "session/load" | "session/resume" | "session/attach" => {
                let from = match method {
                    "session/attach" => attach_from(&params)?,
                    _ => replay_from(method, &params, dialect)?,
                };
                let session = session(&params)?;
                let client = client();
                let cwd = fields::absolute(&params, "cwd");
                let members = match method {
                    "session/attach" => attach_members(&session, &client, &params),
                    _ => Object::default(),
                };
                let attach = ClientCall::Attach { id: id.clone(), from, cwd, members };
                let join = SessionMessage::Call(Arc::clone(&client), attach);
                register_mcp_servers(&self.client, &params);
                if self.is_ready(&session) {
                    return self.send_to_session(&session, join).await;
                }
                // Opening a session may take long.
                let (hub, require_driver) = (Arc::clone(&self.hub), self.require_driver());
                let target = session.clone();
                return self.run_in_lane(&session, join.to_rejectable(), |cancel| async move {
                    if hub.exists(&target).await? {
                        return hub.send(&target, join).await;
                    }
                    require_driver?;
                    adopt::adopt_and_send(&hub, &client, &params, &target, join, cancel).await
                });
            }
            _ => {}
        }
        self.require_driver()?;
        if method == "session/fork" {
            register_mcp_servers(&self.client, &params);
        }
        match method {
            "session/new" => {
                let (hub, client, request) = (Arc::clone(&self.hub), client(), id.clone());
                let sid = SessionId::from(uuid::Uuid::new_v4().to_string().as_str());
                self.hub.make_room().await?;
                self.track_session(&sid)?;
                self.spawn_request(Some(id), |cancel| async move {
                    create::new_session(&hub, &client, &request, params, sid, cancel).await;
                })
            }
            _ => match (fields::session_of(&params), self.to_call(method, &params, id).await?) {
                (
                    Some(session),
                    call @ (ClientCall::Close { .. }
                    | ClientCall::WithdrawPrompt { .. }
                    | ClientCall::Cancel { .. }
                    | ClientCall::Seen { .. }
                    | ClientCall::Forward { .. }),
                ) => self.send_to_session(&session, SessionMessage::Call(client(), call)).await,
                (Some(session), call) => {
                    self.send_or_adopt(&session, SessionMessage::Call(client(), call)).await
                }
                (None, ClientCall::Forward { method, .. }) => self.call_agent(Some(id), method, params).await,
                (None, _) => session(&params).map(drop),
            },
        }
    }

    /// Handles a request about the server as a whole; `None` if it is another one. These need no `initialize`, which may
    /// start an agent.
    async fn on_server_request(
        &self,
        id: &RequestId,
        method: &str,
        params: &Object,
    ) -> Option<Result<(), RpcError>> {
        let (hub, client) = (&self.hub, &self.client);
        let done = match method {
            "_parlor/status" => list::status(hub, client, id).await,
            "_parlor/agents" => {
                hub.reload_config().await;
                list::agents(hub, client, id).await
            }
            "_parlor/agents/stop" => match self.require_driver() {
                Ok(()) => list::stop_agent(hub, client, id, params).await,
                Err(error) => Err(error),
            },
            "_parlor/agent_sessions" | "_parlor/login" | "_parlor/login/methods" => {
                let (hub, client, request) = (Arc::clone(hub), Arc::clone(client), id.clone());
                let (method, params) = (method.to_owned(), params.clone());
                self.require_driver().and_then(|()| {
                    self.spawn_request(Some(id), |cancel| async move {
                        match method.as_str() {
                            "_parlor/login" => {
                                login::login(&hub, &client, &request, &params, cancel).await;
                            }
                            "_parlor/login/methods" => {
                                login::methods(&hub, &client, &request, &params).await;
                            }
                            _ => list::agent_sessions(&hub, &client, &request, &params).await,
                        }
                    })
                })
            }
            "_parlor/login/input" => {
                self.require_driver().and_then(|()| login::input(hub, client, id, params))
            }
            "_parlor/losses" => match session(params) {
                Ok(session) => list::losses(hub, client, id, &session).await,
                Err(error) => Err(error),
            },
            "_parlor/search" => search::search(hub, client, id, params.clone()).await,
            "_parlor/list/subscribe" | "session/list/subscribe" => {
                list::subscribe(hub, client, id, method, params).await
            }
            "_parlor/requests" | "_parlor/requests/subscribe" => match self.require_driver() {
                Ok(()) => requests::list(hub, client, id, method).await,
                Err(error) => Err(error),
            },
            "_parlor/answer" => match self.require_driver() {
                Ok(()) => requests::answer(hub, client, id, params).await,
                Err(error) => Err(error),
            },
            #[cfg(feature = "http")]
            "_parlor/browsers" => self.require_driver().map(|()| browsers::list(hub, client, id)),
            #[cfg(feature = "http")]
            "_parlor/browsers/link" => {
                self.require_driver().and_then(|()| browsers::link(hub, client, id, params))
            }
            #[cfg(feature = "http")]
            "_parlor/browsers/sign_out" => match self.require_driver() {
                Ok(()) => browsers::sign_out(hub, client, id, params).await,
                Err(error) => Err(error),
            },
            "_parlor/unsubscribe" => {
                hub.feed().unsubscribe(client.id);
                client.queue.push(Frame::response(id, &Object::default()));
                Ok(())
            }
            _ => return None,
        };
        Some(done)
    }

    /// Decodes a driver's request to a session.
    async fn to_call(&self, method: &str, params: &Object, id: &RequestId) -> Result<ClientCall, RpcError> {
        let mut call = to_call(method, params.clone(), id)?;
        if let ClientCall::Fork(request) = &mut call {
            request.handoff = initialize::handoff(&self.hub, params).await?;
            if request.handoff.is_some() && request.kind != ForkKind::Fork {
                let message = "`parlor/agent` is only possible with `session/fork`";
                return Err(RpcError::new(code::INVALID_PARAMS, message));
            }
        }
        Ok(call)
    }

    /// Rejects requests of observers.
    fn require_driver(&self) -> Result<(), RpcError> {
        if self.client.is_driver() {
            return Ok(());
        }
        let mut data = Object::default();
        data.set("reason", "observer");
        let error = RpcError::new(
            code::INVALID_REQUEST,
            "this connection is an observer: it may only watch (connect with the driver's token to act)",
        );
        Err(error.with_data(data.to_json()))
    }

    /// Sends a message outside of sessions to the agent, after the client's earlier messages. Its later messages to sessions
    /// follow, unless the agent has to be started first.
    async fn call_agent(
        &mut self,
        id: Option<&RequestId>,
        method: String,
        params: Object,
    ) -> Result<(), RpcError> {
        let recent_sessions = std::mem::take(&mut self.recent_sessions);
        let (hub, client, request) = (Arc::clone(&self.hub), Arc::clone(&self.client), id.cloned());
        let wait_for_earlier = async move || {
            for session in recent_sessions.into_iter().filter(|session| hub.is_live(session)) {
                let (barrier, handled) = SessionMessage::barrier();
                if hub.send(&session, barrier).await.is_ok() {
                    let _ = handled.await;
                }
            }
        };
        let (hub, call) = (Arc::clone(&self.hub), SessionlessCall { client, id: request, method, params });
        self.drop_empty_lanes();
        if !self.lanes.contains_key(&None)
            && let Some(agent) = agent_call::running(&hub, &call).await?
        {
            wait_for_earlier().await;
            // The client's next message is read when the agent has been sent this one.
            let (sent, is_sent) = oneshot::channel();
            self.spawn_request(id, |cancel| call.forward(agent, cancel, sent))?;
            let _ = is_sent.await;
            return Ok(());
        }
        let (before, sent) = self.enter_lane(None);
        self.spawn_request(id, |mut cancel| async move {
            if let Some(before) = before {
                let _ = before.await;
            }
            wait_for_earlier().await;
            match cancel.or_cancelled(agent_call::agent_of(&hub, &call)).await.flatten() {
                Ok(agent) => call.forward(agent, cancel, sent).await,
                Err(error) => call.answer(Err(error)),
            }
        })
    }

    /// Sends a message to a session, which is adopted first if only an agent has it.
    async fn send_or_adopt(&mut self, session: &SessionId, message: SessionMessage) -> Result<(), RpcError> {
        if self.is_ready(session) {
            return self.send_to_session(session, message).await;
        }
        let (hub, client, target) = (Arc::clone(&self.hub), Arc::clone(&self.client), session.clone());
        self.run_in_lane(session, message.to_rejectable(), |cancel| async move {
            if adopt::is_agent_only(&hub, &target).await? {
                return adopt::adopt_and_send(&hub, &client, &Object::default(), &target, message, cancel)
                    .await;
            }
            hub.send(&target, message).await
        })
    }

    /// Whether a session is live and its lane is empty.
    fn is_ready(&mut self, session: &SessionId) -> bool {
        self.drop_empty_lanes();
        !self.lanes.contains_key(&Some(session.clone())) && self.hub.is_live(session)
    }

    /// Sends a message to a session, in its lane if it is not ready.
    async fn send_to_session(
        &mut self,
        session: &SessionId,
        message: SessionMessage,
    ) -> Result<(), RpcError> {
        if !self.is_ready(session) {
            let (hub, target) = (Arc::clone(&self.hub), session.clone());
            return self.run_in_lane(session, message.to_rejectable(), |_| async move {
                hub.send(&target, message).await
            });
        }
        if matches!(message, SessionMessage::Call(_, ClientCall::Fork(_))) {
            self.hub.make_room().await?;
        }
        self.track_session(session)?;
        if !self.recent_sessions.contains(session) && self.recent_sessions.len() < MAX_RECENT_SESSIONS {
            self.recent_sessions.push(session.clone());
        }
        let sent = self.hub.send(session, message).await;
        if sent.is_err() {
            lock(&self.sessions).remove(session);
        }
        sent
    }

    /// Counts a session as used by this connection.
    fn track_session(&self, session: &SessionId) -> Result<(), RpcError> {
        let mut sessions = lock(&self.sessions);
        if sessions.len() >= MAX_SESSIONS && !sessions.contains(session) {
            let message =
                format!("one connection may use at most {MAX_SESSIONS} sessions: open another connection");
            return Err(RpcError::new(code::INVALID_REQUEST, message));
        }
        sessions.insert(session.clone());
        Ok(())
    }

    async fn on_initialize(&mut self, id: &RequestId, params: &Object) -> Result<(), RpcError> {
        let dialect = Dialect::negotiate(params.to_json().raw())
            .map_err(parlor_dialect::UnsupportedVersion::to_error)?;
        let dialect = match (dialect, self.client.options.dialect) {
            (Dialect::V2, Some(Dialect::Draft)) => Dialect::Draft,
            (dialect, _) => dialect,
        };
        if !self.client.on_initialize(dialect, params.clone()) {
            return Err(RpcError::new(
                code::INVALID_REQUEST,
                "`initialize` was already sent on this connection",
            ));
        }
        let mut result = initialize::initialized(&self.hub, &self.client, dialect).await?;
        // Identifies the client that sent or withdrew a prompt.
        result.set_nested("_meta", "parlor/client", self.client.id.0);
        self.client.queue.push(Frame::response(id, &result));
        Ok(())
    }
}

/// Has the responses to a batch written together. Rejects the requests and returns `false` if too many batches are in flight.
pub(crate) fn register_batch(queue: &SendQueue, messages: &[Result<Rpc<'_>, Malformed>]) -> bool {
    let requests = messages.iter().flatten().filter_map(|message| match &message.body {
        Body::Request { id, .. } => Some(id.clone()),
        Body::Notification { .. } | Body::Response { .. } => None,
    });
    let requests: Vec<_> = requests.collect();
    let bad = messages.iter().filter_map(|message| message.as_ref().err()).filter_map(Frame::malformed);
    let registered = queue.batch(requests.clone(), bad.collect());
    if registered.is_err() {
        let error = RpcError::new(code::INTERNAL_ERROR, "too many batches are in flight: try again later");
        let errors: Vec<_> = requests.iter().map(|id| Frame::error(id, &error)).collect();
        queue.push(Frame::batch(&errors));
    }
    registered.is_ok()
}

/// Disconnects the client. Its sessions continue.
impl Drop for Connection {
    fn drop(&mut self) {
        self.client.queue.close();
        for requester in self.client.take_requests() {
            if let Requester::Agent(request) = requester {
                request.on_client_gone();
            }
        }
        self.hub.on_disconnected();
        self.hub.feed().unsubscribe(self.client.id);
        self.hub.logins().on_disconnected(self.client.id);
        let (hub, client) = (Arc::clone(&self.hub), Arc::clone(&self.client));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { hub.disconnect(&client).await });
        }
    }
}

fn session(params: &Object) -> Result<SessionId, RpcError> {
    fields::session_of(params)
        .ok_or_else(|| RpcError::new(code::INVALID_PARAMS, "`sessionId` must be a string"))
}

/// Rejects relative directories, which would be relative to the server's working directory.
fn check_directories(params: &Object) -> Result<(), RpcError> {
    let Some(list) = params.get("additionalDirectories").filter(|list| !list.is_null()) else {
        return Ok(());
    };
    let is_absolute = |path| JsonStr::from_raw(path).is_some_and(|path| path.to_text().starts_with('/'));
    let directories = list.elements();
    if directories.is_some_and(|directories| directories.into_iter().all(is_absolute)) {
        return Ok(());
    }
    Err(RpcError::new(code::INVALID_PARAMS, "`additionalDirectories` must be a list of absolute paths"))
}

/// Decodes a driver's request to a session.
fn to_call(method: &str, params: Object, id: &RequestId) -> Result<ClientCall, RpcError> {
    let id = id.clone();
    let fork = |id, params, kind| {
        ClientCall::Fork(Box::new(ForkRequest { id, params, kind, known_agent: None, handoff: None }))
    };
    Ok(match method {
        "session/prompt" => ClientCall::Prompt { id, params },
        STEER => ClientCall::Steer { id, params },
        "_parlor/cancel" => ClientCall::Cancel { id, scope: scope(&params) },
        "session/close" => ClientCall::Close { id },
        "session/delete" => ClientCall::Delete { id },
        "session/fork" => fork(id, params, ForkKind::Fork),
        "_parlor/edit" => fork(id, params, ForkKind::Edit),
        "_parlor/regenerate" => fork(id, params, ForkKind::Regenerate),
        "session/set_title" | "_parlor/title" => {
            ClientCall::SetTitle { id, title: title::title(method, &params)? }
        }
        "session/archive" | "session/unarchive" | "_parlor/archive" => {
            ClientCall::Archive { id, archived: title::archived(method, &params)? }
        }
        "_parlor/seen" => {
            let seq = params.get_u64("seq");
            let seq = seq.ok_or_else(|| RpcError::new(code::INVALID_PARAMS, "`seq` must be a number"))?;
            ClientCall::Seen { id, seq }
        }
        "_parlor/withdraw" => {
            let prompt = params.get("id").and_then(|id| id.as_str().trim_matches('"').parse().ok());
            let prompt = prompt.ok_or_else(|| {
                RpcError::new(code::INVALID_PARAMS, "`id` must be the id of a queued prompt")
            })?;
            ClientCall::WithdrawPrompt { id, prompt: PromptId(prompt) }
        }
        _ if method.starts_with("_parlor/") => {
            return Err(method_not_found(method));
        }
        _ => ClientCall::Forward { id: Some(id), method: method.to_owned(), params },
    })
}

/// parlor's own methods about a session, which need `initialize`.
const SESSION_METHODS: [&str; 8] = [
    "_parlor/archive",
    "_parlor/cancel",
    "_parlor/edit",
    "_parlor/older",
    "_parlor/regenerate",
    "_parlor/seen",
    "_parlor/title",
    "_parlor/withdraw",
];

fn method_not_found(method: &str) -> RpcError {
    RpcError::new(code::METHOD_NOT_FOUND, format!("method not found: {method}"))
}

/// Decodes which prompts a client cancels with a turn.
fn scope(params: &Object) -> Scope {
    let scope = params.get_nested("_meta", "parlor/scope");
    if scope.is_some_and(|scope| scope.as_str() == "\"turn\"") { Scope::Turn } else { Scope::Session }
}

/// How many entries `_parlor/older` returns unless the client says how many.
const OLDER_ENTRIES: usize = 50;

/// Decodes a `_parlor/older`.
fn older(id: &RequestId, params: &Object) -> Result<ClientCall, RpcError> {
    let before = params.get_u64("before");
    let before = before.ok_or_else(|| {
        RpcError::new(code::INVALID_PARAMS, "`before` must be the `parlor/older` of a response")
    })?;
    let entries = params.get_u64("entries").map_or(Ok(OLDER_ENTRIES), usize::try_from);
    Ok(ClientCall::Older { id: id.clone(), before, entries: entries.unwrap_or(OLDER_ENTRIES) })
}

/// Decodes how much a client that attaches with `session/attach` wants to be replayed. Open requests always follow.
fn attach_from(params: &Object) -> Result<ReplayFrom, RpcError> {
    match params.get_str(HISTORY_POLICY).as_deref() {
        // The whole history has what follows a message.
        None | Some("full" | "after_message") => Ok(ReplayFrom::Start),
        Some("pending_only" | "none") => Ok(ReplayFrom::Now),
        Some(_) => {
            let message = "`historyPolicy` must be full, pending_only, none or after_message";
            Err(RpcError::new(code::INVALID_PARAMS, message))
        }
    }
}

/// The members that the response to `session/attach` has beyond those to `session/resume`.
fn attach_members(session: &SessionId, client: &Client, params: &Object) -> Object {
    let policy = params.get_string(HISTORY_POLICY).filter(|policy| policy != "after_message");
    let own_id = params.get_string("clientId").unwrap_or_else(|| client.id.0.to_string());
    let members = Object::new().with("sessionId", session.as_json()).with("clientId", own_id);
    members.with(HISTORY_POLICY, policy.unwrap_or_else(|| "full".to_owned()))
}

const HISTORY_POLICY: &str = "historyPolicy";

/// Decodes the point from which a client wants a session to be replayed.
fn replay_from(method: &str, params: &Object, dialect: Dialect) -> Result<ReplayFrom, RpcError> {
    if method == "session/load" {
        return Ok(ReplayFrom::Start);
    }
    let Some(cursor) = params.get("replayFrom").filter(|from| !from.is_null()) else {
        return Ok(ReplayFrom::Now);
    };
    let unsupported = || {
        let mut data = Object::default();
        data.set("replayFrom", cursor.clone());
        let known = "the type of `replayFrom` must be start, _parlor_after, _parlor_message or _parlor_tail";
        RpcError::new(code::INVALID_PARAMS, known).with_data(data.to_json())
    };
    let cursor = cursor.to_object().unwrap_or_default();
    let kind = cursor.get_string("type");
    // v1 has no `replayFrom`; only a client that knows parlor sends this one.
    if dialect == Dialect::V1 && kind.as_deref() != Some("_parlor_after") {
        return Ok(ReplayFrom::Now);
    }
    match kind.as_deref() {
        Some("start") => Ok(ReplayFrom::Start),
        Some("_parlor_after") => {
            let seq = cursor.get("seq").and_then(|seq| seq.as_str().parse().ok());
            seq.map(ReplayFrom::After).ok_or_else(unsupported)
        }
        Some("_parlor_message") => {
            cursor.get_json_str("messageId").map(|id| ReplayFrom::Message(id.into())).ok_or_else(unsupported)
        }
        Some("_parlor_tail") => {
            let entries = cursor.get_u64("entries").and_then(|entries| usize::try_from(entries).ok());
            entries.filter(|entries| *entries > 0).map(ReplayFrom::Tail).ok_or_else(unsupported)
        }
        Some(_) | None => Err(unsupported()),
    }
}
