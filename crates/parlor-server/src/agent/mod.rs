//! A running agent: sends it requests, routes its messages, and tracks which of its sessions are in use.

mod login;
mod open;
mod opened;
mod pool;
mod reader;
mod session_cache;
mod sessionless;
mod start;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use parlor_dialect::Dialect;
use parlor_engine::{AgentEpoch, AgentInfo, Frame, opening};
use parlor_json::{Json, Object};
use parlor_session::SessionId;
use parlor_wire::{OutgoingRequests, RequestId, RpcError, code};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{oneshot, watch};

use crate::client::Client;
use crate::config::Sandbox;
use crate::hub::HubState;
use crate::lock;
use crate::send_queue::{SendQueue, SendQueueReader, send_queue};
use crate::services::budget::FileBudget;
use crate::session::{AgentMessage, Route, SessionCall, SessionMessage};
use parlor_process::Process;

pub(crate) use self::login::LoginStates;
use self::login::{CheckedCall, LoginRecord};
pub(crate) use self::open::Opener;
pub(crate) use self::opened::{AgentSessionGuard, BoundAgent, UnroutedMessages};
pub(crate) use self::pool::AgentPool;
pub(crate) use self::session_cache::{AgentSessionCache, PendingCreates};
pub(crate) use self::sessionless::{AgentRequest, CancelToken, register_mcp_servers};
pub(crate) use self::start::start;
pub use self::start::{AGENT_NOT_CONFIGURED, AGENT_UNAVAILABLE};
pub(crate) use parlor_engine::opening::History;

/// How many calls of one agent may be in flight.
const MAX_CALLS: usize = 10_000;

/// How many bytes of early updates are kept.
const MAX_EARLY_UPDATES: usize = 1 << 20;

/// How many evicted sessions are known per agent. Updates for others count as early updates.
const MAX_EVICTED: usize = 10_000;

/// How long a session that is restored waits for the response to an earlier `session/close`.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an agent that closed its standard output may take to exit before that is reported as the error.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// A response: the result, or the error object.
pub(crate) type Reply = Result<Json, Json>;

/// A running agent.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) info: Arc<AgentInfo>,
    stdin: SendQueue,
    /// The sandbox that its process runs in.
    pub(crate) sandbox: Sandbox,
    /// Bounds the memory of its file requests.
    pub(crate) files: FileBudget,
    calls: Mutex<OutgoingRequests<PendingCall>>,
    routes: Mutex<Routes>,
    /// Sessions that it is creating.
    pub(crate) pending_creates: PendingCreates,
    /// The drivers that use this agent, the longest connected first.
    clients: Mutex<Vec<Weak<Client>>>,
    /// Its requests outside of sessions that are in flight, with the client that was sent each and the id for that client.
    requests: Mutex<HashMap<RequestId, (Weak<Client>, RequestId)>>,
    /// The reason, once it is gone.
    gone: watch::Sender<Option<RpcError>>,
    /// Whether it gets no more sessions and is stopped when none uses it.
    retired: AtomicBool,
    /// The call for which it required a login, until that call succeeds or a person logs in.
    login_required: Mutex<Option<CheckedCall>>,
    login_record: OnceLock<LoginRecord>,
    process: Option<Process>,
}

/// A call in flight, with the receiver of its response.
#[derive(Debug)]
enum PendingCall {
    /// A task that waits for it, perhaps for the request of a client.
    Caller(oneshot::Sender<Reply>, Option<Origin>),
    /// A session, which gets the response in order with the agent's other messages.
    Session(Route, SessionCall),
    /// An [`Opener`], perhaps for the request of a client.
    Opening(Route, Option<Origin>),
}

/// The request of a client that caused a call.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    pub(crate) client: Arc<Client>,
    pub(crate) id: RequestId,
}

/// Where the messages of an agent go, by session.
#[derive(Debug, Default)]
struct Routes {
    /// The receivers of messages, by agent session.
    sessions: HashMap<SessionId, Route>,
    /// Sessions whose `session/close` has no response yet. The channel closes when it has.
    closing: HashMap<SessionId, watch::Receiver<()>>,
    /// Updates for sessions whose creating response has not arrived yet.
    early_updates: HashMap<SessionId, String>,
    early_bytes: usize,
    /// Sessions that were evicted here and for which the agent may still send updates.
    evicted: HashMap<SessionId, EvictedSession>,
    /// The server's session ids by the agent's.
    ours: HashMap<SessionId, SessionId>,
}

/// A session that was evicted and has released its agent session.
#[derive(Debug, Clone)]
pub(crate) struct EvictedSession {
    pub(crate) hub: Weak<HubState>,
    pub(crate) session: SessionId,
    /// The epoch of the released agent session.
    pub(crate) epoch: AgentEpoch,
    /// Whether the agent still has the session open.
    pub(crate) is_open: bool,
}

impl Routes {
    /// Takes the early updates of a session.
    fn take_early_updates(&mut self, session: &SessionId) -> Option<String> {
        let lines = self.early_updates.remove(session)?;
        self.early_bytes -= lines.len();
        Some(lines)
    }
}

impl EvictedSession {
    /// Sends updates to the session, which is loaded from the store if necessary.
    async fn deliver(&self, lines: String) {
        let Some(hub) = self.hub.upgrade() else { return };
        let message = SessionMessage::Agent(self.epoch, AgentMessage::Updates(lines, None));
        if let Err(error) = hub.send(&self.session, message).await {
            tracing::info!(session = %self.session, "dropping updates for an evicted session: {}", error.message());
        }
    }
}

impl Agent {
    /// Creates the agent at the other end of two streams, which has answered `initialize`.
    #[expect(clippy::too_many_arguments, reason = "they are the fields of the agent")]
    fn new<R, W>(
        name: &str,
        label: &str,
        read: R,
        write: W,
        process: Option<Process>,
        dialect: Dialect,
        initialize: Object,
        sandbox: Sandbox,
    ) -> Arc<Self>
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let (stdin, reader) = send_queue();
        let agent = Arc::new(Self {
            info: Arc::new(AgentInfo {
                name: name.to_owned(),
                label: label.to_owned(),
                dialect,
                initialize,
                is_embedded: process.is_none(),
            }),
            stdin,
            sandbox,
            files: FileBudget::default(),
            calls: Mutex::new(OutgoingRequests::new(MAX_CALLS)),
            routes: Mutex::default(),
            pending_creates: PendingCreates::default(),
            clients: Mutex::default(),
            requests: Mutex::default(),
            gone: watch::Sender::new(None),
            retired: AtomicBool::new(false),
            login_required: Mutex::default(),
            login_record: OnceLock::new(),
            process,
        });
        tokio::spawn(write_frames(Arc::downgrade(&agent), reader, write));
        tokio::spawn(reader::read(Arc::clone(&agent), read));
        agent
    }

    /// Calls the agent and waits for its response. Dropping the future cancels the request.
    pub(crate) async fn call(&self, method: &str, params: &Object) -> Reply {
        let (sender, answer) = oneshot::channel();
        let id = self.send_request(method, params, PendingCall::Caller(sender, None))?;
        let _guard = CallGuard { agent: self, id };
        match answer.await {
            Ok(reply) => reply,
            Err(_) => Err(self.error().to_json()),
        }
    }

    /// Calls the agent and waits for its result until a deadline; `None` if it answers with an error, too late or not at all.
    pub(crate) async fn call_until(&self, method: &str, params: &Object, until: Instant) -> Option<Json> {
        tokio::time::timeout_at(until.into(), self.call(method, params)).await.ok()?.ok()
    }

    /// Calls the agent; the request is queued before this returns.
    pub(crate) fn call_now(&self, method: &str, params: &Object) -> Result<oneshot::Receiver<Reply>, Json> {
        let (sender, answer) = oneshot::channel();
        self.send_request(method, params, PendingCall::Caller(sender, None))?;
        Ok(answer)
    }

    /// Calls the agent for a session, which gets the response. Fails if too many calls are in flight.
    pub(crate) fn call_for(
        &self,
        session: &Route,
        call: SessionCall,
        method: &str,
        params: &Object,
    ) -> Result<RequestId, Json> {
        self.send_request(method, params, PendingCall::Session(session.clone(), call))
    }

    /// Sends a request that opens a session. The receiver of the route gets the response as one to [`SessionCall::Restore`].
    pub(crate) fn call_to_open(
        &self,
        route: &Route,
        origin: Option<Origin>,
        method: &str,
        params: &Object,
    ) -> Result<RequestId, Json> {
        self.send_request(method, params, PendingCall::Opening(route.clone(), origin))
    }

    /// The error for a call without a response in time. Retires an agent that no session uses: it may hang.
    pub(crate) fn timeout_error(&self, method: &str, timeout: Duration) -> RpcError {
        let is_unused = lock(&self.routes).sessions.is_empty();
        if is_unused {
            self.retire();
        }
        let stderr = self.process.as_ref().map(Process::stderr_tail).unwrap_or_default();
        timeout_error(&self.info.label, method, timeout, &stderr)
    }

    /// Gives the agent no more sessions, and stops it when none uses it: new ones get another process.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
        self.stop_if_retired(&lock(&self.routes));
    }

    fn stop_if_retired(&self, routes: &Routes) {
        if routes.sessions.is_empty()
            && self.retired.load(Ordering::Relaxed)
            && let Some(process) = &self.process
        {
            process.end(Duration::ZERO, start::GRACE);
        }
    }

    /// Whether it can get more sessions.
    pub(crate) fn is_usable(&self) -> bool {
        !self.is_gone() && !self.retired.load(Ordering::Relaxed)
    }

    fn send_request(&self, method: &str, params: &Object, call: PendingCall) -> Result<RequestId, Json> {
        // Checked under the lock: `on_ended` sets `gone` before it fails the calls in flight.
        let mut calls = lock(&self.calls);
        if self.is_gone() {
            return Err(self.error().to_json());
        }
        let id = calls.register(call).map_err(|full| {
            RpcError::new(code::INTERNAL_ERROR, format!("agent '{}' is overloaded: {full}", self.info.label))
                .to_json()
        })?;
        self.stdin.push(Frame::request(&id, method, &self.sandbox.paths.to_agent(params)));
        Ok(id)
    }

    /// Cancels a call and drops its response.
    pub(crate) fn abandon_call(&self, id: &RequestId) {
        if lock(&self.calls).complete(id).is_some() {
            self.stdin.push(Frame::cancel(id));
        }
    }

    /// Cancels a call. The agent still responds to it.
    pub(crate) fn cancel_call(&self, id: &RequestId) {
        if lock(&self.calls).cancel(id).is_some() {
            self.stdin.push(Frame::cancel(id));
        }
    }

    pub(crate) fn notify(&self, method: &str, params: &Object) {
        self.stdin.push(Frame::notification(method, &self.sandbox.paths.to_agent(params)));
    }

    pub(crate) fn answer(&self, id: &RequestId, reply: &Reply) {
        self.stdin.push(match reply {
            Ok(result) => {
                Frame::result(id, self.sandbox.paths.result_to_agent(result).as_ref().unwrap_or(result))
            }
            Err(error) => Frame::error(id, &RpcError::from_raw(error.raw())),
        });
    }

    /// The frames that wait to be written to the agent.
    pub(crate) fn send_queue(&self) -> SendQueue {
        self.stdin.clone()
    }

    /// Sets the route of the messages of an agent session, starting with its early updates. Fails if another session of the
    /// server uses the agent session.
    pub(crate) fn set_route(&self, session: &SessionId, route: &Route) -> Result<(), RpcError> {
        let mut routes = lock(&self.routes);
        if routes.sessions.get(session).is_some_and(|other| !other.mailbox.is_closed()) {
            let name = &self.info.label;
            let message = format!(
                "agent '{name}' gave a new session the id of another session that is in use: {session}"
            );
            return Err(RpcError::new(code::INTERNAL_ERROR, message));
        }
        if let Some(lines) = routes.take_early_updates(session) {
            // The mailbox of a new route is empty.
            let _ = route
                .mailbox
                .try_send(SessionMessage::Agent(route.epoch, AgentMessage::Updates(lines, None)));
        }
        routes.evicted.remove(session);
        routes.sessions.insert(session.clone(), route.clone());
        drop(routes);
        if self.is_gone() {
            self.remove_route(session, route.epoch);
            return Err(self.error());
        }
        Ok(())
    }

    /// Routes the messages of an agent session to the session itself. Fails if the agent is gone.
    pub(crate) fn replace_route(&self, session: &SessionId, route: &Route) -> Result<(), RpcError> {
        match lock(&self.routes).sessions.get_mut(session).filter(|old| old.epoch == route.epoch) {
            Some(old) => old.clone_from(route),
            None => return Err(self.error()),
        }
        Ok(())
    }

    /// Drops the early updates of a session that the agent is about to replay.
    pub(crate) fn drop_early_updates(&self, session: &SessionId) {
        lock(&self.routes).take_early_updates(session);
    }

    /// Drops what the agent replayed of a subagent's session, and the route of its earlier binding.
    pub(crate) fn forget_subagent(&self, session: &SessionId) {
        let mut routes = lock(&self.routes);
        routes.take_early_updates(session);
        routes.sessions.remove(session);
    }

    /// Stops routing messages of an agent session, unless it has another epoch by now.
    pub(crate) fn remove_route(&self, session: &SessionId, epoch: AgentEpoch) {
        let mut routes = lock(&self.routes);
        if routes.sessions.get(session).is_some_and(|route| route.epoch == epoch) {
            routes.sessions.remove(session);
            routes.ours.remove(session);
            self.stop_if_retired(&routes);
        }
    }

    /// Records the server's id for an agent session.
    pub(crate) fn set_our_session(&self, session: &SessionId, ours: &SessionId) {
        let mut routes = lock(&self.routes);
        if routes.ours.len() < MAX_EVICTED || routes.ours.contains_key(session) {
            routes.ours.insert(session.clone(), ours.clone());
        }
    }

    /// The server's id for an agent session.
    pub(crate) fn our_session(&self, session: &SessionId) -> Option<SessionId> {
        lock(&self.routes).ours.get(session).cloned()
    }

    /// Releases an agent session; later updates reload the session. Returns `false`, and releases nothing, if the agent
    /// session has another epoch by now.
    pub(crate) fn release(&self, session: &SessionId, evicted: EvictedSession) -> bool {
        let mut routes = lock(&self.routes);
        if routes.sessions.get(session).is_none_or(|route| route.epoch != evicted.epoch) {
            return false;
        }
        routes.sessions.remove(session);
        let lines = routes.take_early_updates(session);
        if let Some(lines) = lines {
            let evicted = evicted.clone();
            tokio::spawn(async move { evicted.deliver(lines).await });
        }
        if routes.evicted.len() < MAX_EVICTED {
            routes.evicted.insert(session.clone(), evicted);
        }
        self.stop_if_retired(&routes);
        true
    }

    /// The epoch of a released session that the agent still has open.
    pub(crate) fn open_since(&self, session: &SessionId) -> Option<AgentEpoch> {
        lock(&self.routes).evicted.get(session).filter(|evicted| evicted.is_open).map(|evicted| evicted.epoch)
    }

    /// Has the agent close a session. Only a restore of the session waits for the response.
    pub(crate) fn close_session(&self, session: &SessionId) {
        let mut params = Object::default();
        params.set("sessionId", session.as_json());
        let (sender, closed) = watch::channel(());
        let mut routes = lock(&self.routes);
        routes.closing.retain(|_, closing| closing.has_changed().is_ok());
        routes.closing.insert(session.clone(), closed);
        drop(routes);
        // Queued at once, before a request that restores the session.
        let Ok(answer) = self.call_now("session/close", &params) else { return };
        tokio::spawn(async move {
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, answer).await;
            drop(sender);
        });
    }

    /// Waits until the agent has closed a session that it was sent `session/close` for.
    pub(crate) async fn wait_closed(&self, session: &SessionId) {
        let closing = lock(&self.routes).closing.get(session).cloned();
        if let Some(mut closing) = closing {
            while closing.changed().await.is_ok() {}
            lock(&self.routes).closing.retain(|_, closing| closing.has_changed().is_ok());
        }
    }

    /// Creates an agent without a process, and the agent's end of the connection.
    #[cfg(test)]
    pub(crate) fn for_tests(dialect: Dialect) -> (Arc<Self>, tokio::io::DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (read, write) = tokio::io::split(ours);
        let sandbox = Sandbox::default();
        (Self::new("a", "a", read, write, None, dialect, Object::default(), sandbox), theirs)
    }

    #[cfg(test)]
    fn is_closing(&self, session: &SessionId) -> bool {
        lock(&self.routes).closing.get(session).is_some_and(|closing| closing.has_changed().is_ok())
    }

    #[cfg(test)]
    fn closings(&self) -> usize {
        lock(&self.routes).closing.len()
    }

    /// The ids of its sessions that are in use, as JSON literals.
    pub(crate) fn session_ids(&self) -> HashSet<String> {
        lock(&self.routes).sessions.keys().map(|id| id.as_json().as_literal().to_owned()).collect()
    }

    /// Whether no session uses it and no call is in flight.
    pub(crate) fn is_unused(&self) -> bool {
        lock(&self.routes).sessions.is_empty() && lock(&self.calls).is_empty()
    }

    /// Whether a call is in flight.
    pub(crate) fn has_calls(&self) -> bool {
        !lock(&self.calls).is_empty()
    }

    /// How many sessions use it.
    pub(crate) fn sessions(&self) -> usize {
        lock(&self.routes).sessions.len()
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.borrow().is_some()
    }

    /// The error for calls of an agent that is gone.
    pub(crate) fn error(&self) -> RpcError {
        let gone = || RpcError::new(code::INTERNAL_ERROR, format!("agent '{}' has ended", self.info.label));
        self.gone.borrow().clone().unwrap_or_else(gone)
    }

    /// Adds a client to those that get the agent's notifications and requests outside of sessions. Observers are ignored.
    pub(crate) fn add_client(&self, client: &Arc<Client>) {
        if !client.is_driver() {
            return;
        }
        let mut clients = lock(&self.clients);
        clients.retain(|other| other.strong_count() > 0);
        if !clients.iter().any(|other| other.as_ptr() == Arc::as_ptr(client)) {
            clients.push(Arc::downgrade(client));
        }
    }

    /// Adds the server's session id to the params of `session/new`, for an embedded agent, whose sessions have the same ids.
    pub(crate) fn name_session(&self, params: &mut Object, session: &SessionId) {
        opening::name_session(&self.info, params, session);
    }

    /// All sessions that it lists; `None` if it cannot list them.
    pub(crate) async fn list_sessions(&self, until: Instant) -> Option<Vec<parlor_store::SessionRow>> {
        session_cache::list(self, until).await
    }

    /// Stops the process and its descendants, and waits until they have ended.
    pub(crate) async fn stop(&self) {
        self.stdin.close();
        if let Some(process) = &self.process {
            process.stop(start::GRACE).await;
        }
    }

    /// Handles the end of the agent's output: stops it, and fails its calls and sessions.
    async fn on_ended(&self) {
        self.stdin.close();
        let error = match &self.process {
            Some(process) => {
                process.end(start::GRACE, start::GRACE);
                let event = match tokio::time::timeout(EXIT_TIMEOUT, process.wait()).await {
                    Ok(status) => format!("ended ({status})"),
                    Err(_) => "closed its standard output".to_owned(),
                };
                agent_error(&self.info.label, &event, &process.stderr_tail())
            }
            None => agent_error(&self.info.label, "ended", ""),
        };
        tracing::info!(agent = self.info.name, "{}", error.message());
        self.gone.send_replace(Some(error.clone()));
        let calls: Vec<_> = lock(&self.calls).drain().collect();
        // Callers see that their channel is closed; sessions with a prompt get the message below.
        for (_, call) in calls {
            match call {
                PendingCall::Session(route, call @ SessionCall::Forwarded { .. }) => {
                    let reply = Err(error.to_json());
                    if let Err(answer) = route.send(AgentMessage::Response(call, reply)).await {
                        answer.reject(&error);
                    }
                }
                PendingCall::Opening(route, _) => drop(route.send(AgentMessage::Gone(error.clone())).await),
                PendingCall::Session(..) | PendingCall::Caller(..) => {}
            }
        }
        self.cancel_requests();
        let sessions: Vec<_> = lock(&self.routes).sessions.drain().collect();
        for (_, route) in sessions {
            let _ = route.send(AgentMessage::Gone(error.clone())).await;
        }
    }
}

/// The time in which an agent has to start and open a session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Startup {
    pub(crate) timeout: Duration,
    pub(crate) until: Instant,
}

impl Startup {
    /// Starts the timeout now.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { timeout, until: Instant::now() + timeout }
    }

    /// The first half of the time that is left.
    fn first_half(self) -> Self {
        let now = Instant::now();
        Self { until: now + self.until.saturating_duration_since(now) / 2, ..self }
    }
}

/// The error for a call without a response in time, with the last line of the agent's standard error.
fn timeout_error(agent: &str, method: &str, timeout: Duration, stderr: &str) -> RpcError {
    let event = format!("did not answer {method} within {} s", timeout.as_secs_f64());
    let error = agent_error(agent, &event, stderr);
    let mut data = error.data().and_then(Json::to_object).unwrap_or_default();
    let hint = "`parlor agents` shows its command; `startup_timeout` in the configuration gives it more time";
    data.set("hint", hint);
    error.with_data(data.to_json())
}

/// The error for an event of an agent, with the last line of its standard error.
pub(crate) fn agent_error(agent: &str, event: &str, stderr: &str) -> RpcError {
    let mut message = format!("agent '{agent}' {event}");
    if let Some(last) = stderr.lines().rev().find(|line| !line.trim().is_empty()) {
        message.push_str(": ");
        message.push_str(last.trim());
    }
    let error = RpcError::new(code::INTERNAL_ERROR, message);
    if stderr.is_empty() {
        return error;
    }
    let mut data = Object::default();
    data.set("stderr", stderr);
    error.with_data(data.to_json())
}

/// Cancels a call when it is dropped before the response.
struct CallGuard<'a> {
    agent: &'a Agent,
    id: RequestId,
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.agent.abandon_call(&self.id);
    }
}

/// Writes queued frames, all that are ready at once. Stops an agent that does not read any more.
async fn write_frames(agent: Weak<Agent>, mut reader: SendQueueReader, mut write: impl AsyncWrite + Unpin) {
    while let Some(frames) = reader.next().await {
        let done = match &frames[..] {
            [one] => write.write_all(one.bytes()).await,
            several => {
                let parts: Vec<_> = several.iter().map(|frame| &frame.bytes()[..]).collect();
                write.write_all(&parts.concat()).await
            }
        };
        if done.is_err() || write.flush().await.is_err() {
            if let Some(process) = agent.upgrade().as_ref().and_then(|agent| agent.process.as_ref()) {
                process.end(start::GRACE, start::GRACE);
            }
            return;
        }
    }
    // The reading half of the stream may still be in use.
    let _ = write.shutdown().await;
}
