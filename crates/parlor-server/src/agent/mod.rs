//! One running agent, as sessions see it.

mod lists;
mod open;
mod opened;
mod reader;
mod registry;
mod sessionless;
mod start;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use parlor_dialect::Dialect;
use parlor_engine::{AgentEpoch, AgentInfo, Frame, opening};
use parlor_json::{Json, Object};
use parlor_session::SessionId;
use parlor_wire::{OutgoingRequests, RequestId, RpcError, code};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{oneshot, watch};

use crate::client::Client;
use crate::hub::Shared;
use crate::json;
use crate::process::Process;
use crate::send_queue::{SendQueue, SendQueueReader, send_queue};
use crate::services::budget::FileBudget;
use crate::session::{AgentCall, AgentMessage, Link, Message};

pub(crate) use self::lists::{Beginnings, Lists};
pub(crate) use self::open::Opener;
pub(crate) use self::opened::{BoundAgent, Rest, Tie};
pub(crate) use self::registry::Registry;
pub(crate) use self::sessionless::{AgentRequest, Cancel, note_mcp_servers};
pub(crate) use self::start::start;
pub(crate) use parlor_engine::opening::History;

/// How many requests to one agent may be without an answer.
const MAX_ASKED: usize = 10_000;

/// How many bytes of updates are kept for sessions that nobody here knows yet.
const MAX_ORPHANS: usize = 1 << 20;

/// How many sessions are remembered that an agent was let go of. What it says of others is not heard until they need it
/// again.
const MAX_RELEASED: usize = 10_000;

/// How long it is waited for that an agent answers `session/close`.
const CLOSING: Duration = Duration::from_secs(10);

/// How long an agent that closed its standard output may take until it is called one that did so, and not one that ended.
const EXIT: Duration = Duration::from_secs(1);

/// What an agent answered: a result, or an error as it said it.
pub(crate) type Reply = Result<Json, Json>;

/// A running agent.
#[derive(Debug)]
pub(crate) struct Agent {
    /// What sessions have to know of it.
    pub(crate) about: Arc<AgentInfo>,
    stdin: SendQueue,
    /// What the files that it reads and writes may take.
    pub(crate) files: FileBudget,
    asked: Mutex<OutgoingRequests<Waiting>>,
    links: Mutex<Links>,
    /// The sessions that are being begun.
    pub(crate) beginnings: Beginnings,
    /// The clients that asked for this agent and may say something to it.
    clients: Mutex<Vec<Weak<Client>>>,
    /// Its open requests that concern no session: who was asked, and under which id.
    requests: Mutex<HashMap<RequestId, (Weak<Client>, RequestId)>>,
    /// Why it is gone, once it is.
    gone: watch::Sender<Option<RpcError>>,
    /// Whether it is given no more sessions, and ends when those that it has have left it.
    retired: AtomicBool,
    process: Option<Process>,
}

/// Who waits for an answer.
#[derive(Debug)]
enum Waiting {
    /// Somebody who does nothing else meanwhile, perhaps for a request of a client's.
    Caller(oneshot::Sender<Reply>, Option<Origin>),
    /// A session, which hears of it in the order of all else that the agent says.
    Session(Link, AgentCall),
    /// The opening of a session, perhaps for a client's request.
    Opening(Link, Option<Origin>),
}

/// The request of a client's for which an agent is asked.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    pub(crate) client: Arc<Client>,
    pub(crate) id: RequestId,
}

/// Which session is whose.
#[derive(Debug, Default)]
struct Links {
    sessions: HashMap<SessionId, Link>,
    /// Sessions whose `session/close` has no answer yet. Who waits for it learns by the end of the channel.
    closing: HashMap<SessionId, watch::Receiver<()>>,
    /// What was said about sessions before the answer that names them.
    orphans: HashMap<SessionId, String>,
    orphan_bytes: usize,
    /// Sessions that the agent was let go of, which it may still speak of.
    released: HashMap<SessionId, Home>,
    /// Our ids of the sessions that it has, by its own.
    ours: HashMap<SessionId, SessionId>,
}

/// A session that is not at work with the agent.
#[derive(Debug, Clone)]
pub(crate) struct Home {
    pub(crate) hub: Weak<Shared>,
    pub(crate) session: SessionId,
    /// The incarnation in which the session let go of the agent.
    pub(crate) epoch: AgentEpoch,
    /// Whether the agent has the session open still.
    pub(crate) is_open: bool,
}

impl Links {
    /// Takes what was said about a session that nobody here knew.
    fn take_orphans(&mut self, session: &SessionId) -> Option<String> {
        let lines = self.orphans.remove(session)?;
        self.orphan_bytes -= lines.len();
        Some(lines)
    }
}

impl Home {
    /// Says in the session what the agent said, for which it is taken out of the store if it has to be.
    async fn deliver(&self, lines: String) {
        let Some(hub) = self.hub.upgrade() else { return };
        let message = Message::Agent(self.epoch, AgentMessage::Lines(lines, None));
        if let Err(error) = hub.send(&self.session, message).await {
            tracing::info!(session = %self.session, "what the agent said is lost: {}", error.message());
        }
    }
}

impl Agent {
    /// An agent behind any two streams. Whoever makes it says who it is later.
    fn over<R, W>(
        name: &str,
        label: &str,
        read: R,
        write: W,
        process: Option<Process>,
        begin: impl FnOnce(SendQueue) -> (Dialect, Object),
    ) -> Arc<Self>
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let (stdin, reader) = send_queue();
        let (dialect, info) = begin(stdin.clone());
        let agent = Arc::new(Self {
            about: Arc::new(AgentInfo {
                name: name.to_owned(),
                label: label.to_owned(),
                dialect,
                initialize: info,
                is_embedded: process.is_none(),
            }),
            stdin,
            files: FileBudget::default(),
            asked: Mutex::new(OutgoingRequests::new(MAX_ASKED)),
            links: Mutex::default(),
            beginnings: Beginnings::default(),
            clients: Mutex::default(),
            requests: Mutex::default(),
            gone: watch::Sender::new(None),
            retired: AtomicBool::new(false),
            process,
        });
        tokio::spawn(write_all(Arc::downgrade(&agent), reader, write));
        tokio::spawn(reader::read(Arc::clone(&agent), read));
        agent
    }

    /// Asks the agent and waits for its answer. Who waits no more wants no answer any more.
    pub(crate) async fn call(&self, method: &str, params: &Object) -> Reply {
        let (sender, answer) = oneshot::channel();
        let id = self.ask(method, params, Waiting::Caller(sender, None))?;
        let _open = Open { agent: self, id };
        match answer.await {
            Ok(reply) => reply,
            Err(_) => Err(self.error().to_json()),
        }
    }

    /// The same, up to a time.
    pub(crate) async fn call_until(&self, method: &str, params: &Object, until: Instant) -> Reply {
        let answer = tokio::time::timeout_at(until.into(), self.call(method, params)).await;
        answer.unwrap_or_else(|_| {
            let message = format!("the agent '{}' took too long", self.about.label);
            Err(RpcError::new(code::INTERNAL_ERROR, message).to_json())
        })
    }

    /// Asks the agent at once, before anything else is said to it. Whoever waits may do so later.
    pub(crate) fn call_now(&self, method: &str, params: &Object) -> Result<oneshot::Receiver<Reply>, Json> {
        let (sender, answer) = oneshot::channel();
        self.ask(method, params, Waiting::Caller(sender, None))?;
        Ok(answer)
    }

    /// Asks the agent; the answer goes to a session. Fails if too much was asked already.
    pub(crate) fn call_for(
        &self,
        session: &Link,
        call: AgentCall,
        method: &str,
        params: &Object,
    ) -> Result<RequestId, Json> {
        self.ask(method, params, Waiting::Session(session.clone(), call))
    }

    /// Sends a request that opens a session. The response comes to the link as one to [`AgentCall::Restore`].
    pub(crate) fn call_to_open(
        &self,
        link: &Link,
        origin: Option<Origin>,
        method: &str,
        params: &Object,
    ) -> Result<RequestId, Json> {
        self.ask(method, params, Waiting::Opening(link.clone(), origin))
    }

    /// The error of an agent that did not answer in time. One that no session uses is ended: it may hang.
    pub(crate) fn late(&self, method: &str, timeout: Duration) -> RpcError {
        let is_unused = lock(&self.links).sessions.is_empty();
        if is_unused {
            self.retire();
        }
        let stderr = self.process.as_ref().map(Process::stderr_tail).unwrap_or_default();
        late(&self.about.label, method, timeout, &stderr)
    }

    /// Gives the agent no more sessions: who needs it gets another process. It ends when no session has it.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
        self.end_if_retired(&lock(&self.links));
    }

    fn end_if_retired(&self, links: &Links) {
        if links.sessions.is_empty()
            && self.retired.load(Ordering::Relaxed)
            && let Some(process) = &self.process
        {
            process.end(Duration::ZERO, start::GRACE);
        }
    }

    /// Whether it can be given sessions.
    pub(crate) fn is_usable(&self) -> bool {
        !self.is_gone() && !self.retired.load(Ordering::Relaxed)
    }

    fn ask(&self, method: &str, params: &Object, waiting: Waiting) -> Result<RequestId, Json> {
        // Looked up under the lock: `ended` fails the open requests after it says that the agent is gone.
        let mut asked = lock(&self.asked);
        if self.is_gone() {
            return Err(self.error().to_json());
        }
        let id = asked.register(waiting).map_err(|full| {
            RpcError::new(code::INTERNAL_ERROR, format!("the agent is overloaded: {full}")).to_json()
        })?;
        self.stdin.push(Frame::request(&id, method, params));
        Ok(id)
    }

    /// Tells the agent that an answer is not wanted any more, which nobody waits for then.
    pub(crate) fn forget_call(&self, id: &RequestId) {
        if lock(&self.asked).complete(id).is_some() {
            self.stdin.push(Frame::cancel(id));
        }
    }

    /// Tells the agent that an answer is not wanted any more.
    pub(crate) fn take_back(&self, id: &RequestId) {
        if lock(&self.asked).cancel(id).is_some() {
            self.stdin.push(Frame::cancel(id));
        }
    }

    pub(crate) fn notify(&self, method: &str, params: &Object) {
        self.stdin.push(Frame::notification(method, params));
    }

    pub(crate) fn answer(&self, id: &RequestId, reply: &Reply) {
        self.stdin.push(match reply {
            Ok(result) => Frame::result(id, result),
            Err(error) => Frame::error(id, &RpcError::from_raw(error.raw())),
        });
    }

    /// What waits to be written to it.
    pub(crate) fn send_queue(&self) -> SendQueue {
        self.stdin.clone()
    }

    /// From here on, what the agent says about its session goes there, first what it has said already. Fails if the session
    /// belongs to another of ours.
    pub(crate) fn link(&self, session: &SessionId, link: &Link) -> Result<(), RpcError> {
        let mut links = lock(&self.links);
        if links.sessions.get(session).is_some_and(|other| !other.inbox.is_closed()) {
            let name = &self.about.label;
            let message =
                format!("agent '{name}' gave a session the id of another one that is in use: {session}");
            return Err(RpcError::new(code::INTERNAL_ERROR, message));
        }
        if let Some(lines) = links.take_orphans(session) {
            // Whoever links has an inbox that is empty.
            let _ = link.inbox.try_send(Message::Agent(link.epoch, AgentMessage::Lines(lines, None)));
        }
        links.released.remove(session);
        links.sessions.insert(session.clone(), link.clone());
        drop(links);
        if self.is_gone() {
            self.unlink(session, link.epoch);
            return Err(self.error());
        }
        Ok(())
    }

    /// The session itself receives what the agent says. Fails if the agent is gone.
    pub(crate) fn relink(&self, session: &SessionId, link: &Link) -> Result<(), RpcError> {
        match lock(&self.links).sessions.get_mut(session).filter(|old| old.epoch == link.epoch) {
            Some(old) => old.clone_from(link),
            None => return Err(self.error()),
        }
        Ok(())
    }

    /// Forgets what was said about a session that nobody here knew: it is about to be said again.
    pub(crate) fn forget_orphans(&self, session: &SessionId) {
        lock(&self.links).take_orphans(session);
    }

    /// A session has no use for the agent's session any more, unless another one has it by now.
    pub(crate) fn unlink(&self, session: &SessionId, epoch: AgentEpoch) {
        let mut links = lock(&self.links);
        if links.sessions.get(session).is_some_and(|link| link.epoch == epoch) {
            links.sessions.remove(session);
            links.ours.remove(session);
            self.end_if_retired(&links);
        }
    }

    /// Notes which of our sessions the agent has under an id of its own.
    pub(crate) fn serves(&self, session: &SessionId, ours: &SessionId) {
        let mut links = lock(&self.links);
        if links.ours.len() < MAX_RELEASED || links.ours.contains_key(session) {
            links.ours.insert(session.clone(), ours.clone());
        }
    }

    /// Our id of a session that the agent names.
    pub(crate) fn our_session(&self, session: &SessionId) -> Option<SessionId> {
        lock(&self.links).ours.get(session).cloned()
    }

    /// A session needs the agent no more, for now. What is said of it goes where it is at home. `false`, and nothing is
    /// released, if the agent session is not of this epoch any more.
    pub(crate) fn release(&self, session: &SessionId, home: Home) -> bool {
        let mut links = lock(&self.links);
        if links.sessions.get(session).is_none_or(|link| link.epoch != home.epoch) {
            return false;
        }
        links.sessions.remove(session);
        let lines = links.take_orphans(session);
        if let Some(lines) = lines {
            let home = home.clone();
            tokio::spawn(async move { home.deliver(lines).await });
        }
        if links.released.len() < MAX_RELEASED {
            links.released.insert(session.clone(), home);
        }
        self.end_if_retired(&links);
        true
    }

    /// Whether the agent still has a session open that was let go of, and since when.
    pub(crate) fn open_since(&self, session: &SessionId) -> Option<AgentEpoch> {
        lock(&self.links).released.get(session).filter(|home| home.is_open).map(|home| home.epoch)
    }

    /// Has the agent close a session. Nobody waits for its answer but those who want the session again.
    pub(crate) fn close_session(&self, session: &SessionId) {
        let mut params = Object::default();
        params.set("sessionId", session.as_json());
        let (sender, closed) = watch::channel(());
        let mut links = lock(&self.links);
        links.closing.retain(|_, closing| closing.has_changed().is_ok());
        links.closing.insert(session.clone(), closed);
        drop(links);
        // It is asked at once, before it can be asked for the session again.
        let Ok(answer) = self.call_now("session/close", &params) else { return };
        tokio::spawn(async move {
            let _ = tokio::time::timeout(CLOSING, answer).await;
            drop(sender);
        });
    }

    /// Waits until a session is closed that was to be.
    pub(crate) async fn closed(&self, session: &SessionId) {
        let closing = lock(&self.links).closing.get(session).cloned();
        if let Some(mut closing) = closing {
            while closing.changed().await.is_ok() {}
            lock(&self.links).closing.retain(|_, closing| closing.has_changed().is_ok());
        }
    }

    /// An agent without a process, and its end of the connection.
    #[cfg(test)]
    pub(crate) fn for_tests(dialect: Dialect) -> (Arc<Self>, tokio::io::DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (read, write) = tokio::io::split(ours);
        (Self::over("a", "a", read, write, None, |_| (dialect, Object::default())), theirs)
    }

    #[cfg(test)]
    fn is_closing(&self, session: &SessionId) -> bool {
        lock(&self.links).closing.get(session).is_some_and(|closing| closing.has_changed().is_ok())
    }

    #[cfg(test)]
    fn closings(&self) -> usize {
        lock(&self.links).closing.len()
    }

    /// The sessions that it has for ours, as JSON writes their ids.
    pub(crate) fn linked(&self) -> HashSet<String> {
        lock(&self.links).sessions.keys().map(|id| id.as_json().as_literal().to_owned()).collect()
    }

    /// Whether no session uses it.
    pub(crate) fn is_unused(&self) -> bool {
        lock(&self.links).sessions.is_empty() && lock(&self.asked).is_empty()
    }

    /// How many sessions use it.
    pub(crate) fn sessions(&self) -> usize {
        lock(&self.links).sessions.len()
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.borrow().is_some()
    }

    /// Why it cannot be asked.
    pub(crate) fn error(&self) -> RpcError {
        let gone = || RpcError::new(code::INTERNAL_ERROR, "the agent is gone");
        self.gone.borrow().clone().unwrap_or_else(gone)
    }

    /// A client that is told what the agent says to nobody in particular, and may be asked: it is no observer.
    pub(crate) fn add_client(&self, client: &Arc<Client>) {
        if !client.drives() {
            return;
        }
        let mut clients = lock(&self.clients);
        clients.retain(|other| other.strong_count() > 0);
        if !clients.iter().any(|other| other.as_ptr() == Arc::as_ptr(client)) {
            clients.push(Arc::downgrade(client));
        }
    }

    /// Says in the params of a request for a new session what it is called here. Only an agent inside this process is
    /// told: its sessions have the same names.
    pub(crate) fn name_session(&self, params: &mut Object, session: &SessionId) {
        opening::name_session(&self.about, params, session);
    }

    /// All sessions that it lists; `None` if it does not say.
    pub(crate) async fn lists(&self, until: Instant) -> Option<Vec<parlor_store::SessionRow>> {
        lists::ask(self, until).await
    }

    /// Ends the process and waits until nothing of it is left.
    pub(crate) async fn stop(&self) {
        self.stdin.close();
        if let Some(process) = &self.process {
            process.stop(start::GRACE).await;
        }
    }

    /// The agent says nothing more: it has ended, or it ends now.
    async fn ended(&self) {
        self.stdin.close();
        let error = match &self.process {
            Some(process) => {
                process.end(start::GRACE, start::GRACE);
                let what = match tokio::time::timeout(EXIT, process.wait()).await {
                    Ok(status) => format!("ended ({status})"),
                    Err(_) => "closed its standard output".to_owned(),
                };
                failure(&self.about.label, &what, &process.stderr_tail())
            }
            None => failure(&self.about.label, "ended", ""),
        };
        self.gone.send_replace(Some(error.clone()));
        let waiting: Vec<_> = lock(&self.asked).drain().collect();
        // Who waits alone learns of it by the end of the channel; a session that has a prompt here, by the message below.
        for (_, waiting) in waiting {
            match waiting {
                Waiting::Session(link, call @ AgentCall::Forwarded { .. }) => {
                    let reply = Err(error.to_json());
                    if let Err(answer) = link.send(AgentMessage::Answered(call, reply)).await {
                        answer.refuse(&error);
                    }
                }
                Waiting::Opening(link, _) => drop(link.send(AgentMessage::Gone(error.clone())).await),
                Waiting::Session(..) | Waiting::Caller(..) => {}
            }
        }
        self.withdraw_requests();
        let sessions: Vec<_> = lock(&self.links).sessions.drain().collect();
        for (_, link) in sessions {
            let _ = link.send(AgentMessage::Gone(error.clone())).await;
        }
    }
}

/// How long an agent may take in all until it can be prompted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Startup {
    pub(crate) timeout: Duration,
    pub(crate) until: Instant,
}

impl Startup {
    /// A start that begins now.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { timeout, until: Instant::now() + timeout }
    }
}

/// The error of an agent that did not answer in time, with the last line of its standard error.
fn late(agent: &str, method: &str, timeout: Duration, stderr: &str) -> RpcError {
    let what = format!("did not answer {method} within {} s", timeout.as_secs_f64());
    let error = failure(agent, &what, stderr);
    let mut data = json::object(error.data().map(Json::raw));
    let hint = "`parlor agents` shows its command; `startup_timeout` in the configuration gives it more time";
    data.set("hint", hint);
    error.with_data(data.to_json())
}

/// The error of an agent, with the last line of its standard error.
pub(crate) fn failure(agent: &str, what: &str, stderr: &str) -> RpcError {
    let mut message = format!("agent '{agent}' {what}");
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

/// A request that somebody waits for.
struct Open<'a> {
    agent: &'a Agent,
    id: RequestId,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let waiting = lock(&self.agent.asked).complete(&self.id);
        if waiting.is_some() {
            self.agent.stdin.push(Frame::cancel(&self.id));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes what is ready, all of it at once. An agent that reads no more cannot be told anything, and ends.
async fn write_all(agent: Weak<Agent>, mut reader: SendQueueReader, mut write: impl AsyncWrite + Unpin) {
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
    // The other half of a stream may be in use still.
    let _ = write.shutdown().await;
}
