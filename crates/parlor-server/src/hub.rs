//! The place where clients, sessions and agents meet.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use parlor_dialect::Dialect;
pub(crate) use parlor_engine::no_session;
use parlor_engine::{ClientCall, Event};
use parlor_json::JsonStr;
use parlor_session::session::ClientId;
use parlor_session::{MessageId, SessionId, Transcript};
use parlor_store::{Batch, Cursor, ErrorKind, Filter, SessionRow, Store, StoreError};
use parlor_wire::{InputLine, RpcError, code};
use tokio::sync::{OnceCell, mpsc, oneshot};

use crate::agent::{BoundAgent, Registry};
use crate::client::Client;
use crate::config::{AgentConfig, Agents};
use crate::connection;
use crate::json;
use crate::losses::LossCounts;
use crate::process::Watcher;
use crate::resident::Resident;
use crate::send_queue::{SendQueueReader, send_queue};
use crate::session::{self, Inbox, Message};
use crate::session_thread::SessionThread;
use crate::store::StoreHandle;
use crate::stored::{self, StoredSession};

/// Who connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// How it is connected.
    pub transport: TransportKind,
    /// What it may do.
    pub role: Role,
    /// Which agent it wants; the default one if it names none.
    pub agent: Option<AgentChoice>,
    /// The dialect of a client that asks for protocol version 2.
    pub dialect: Option<Dialect>,
    /// The variables of its environment, for agents that are started on its behalf.
    pub env: Vec<(String, String)>,
    /// Where it works.
    pub cwd: Option<PathBuf>,
}

/// How a client is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransportKind {
    /// The standard streams of this process.
    Stdio,
    /// The Unix socket.
    Unix,
    /// HTTP.
    WebSocket,
}

/// What a client may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Everything.
    Driver,
    /// Watch.
    Observer,
}

/// Which agent a client wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentChoice {
    /// One that is configured.
    Named(String),
    /// The program and its arguments.
    Command(Vec<String>),
}

/// What a server is made of.
pub struct Options {
    /// Where sessions are kept.
    pub store: Arc<dyn Store>,
    /// The agents.
    pub agents: Agents,
    /// Who ends the agents if this process is killed.
    pub watcher: Watcher,
    /// How long a session that nobody needs is kept in memory, while there is enough of it.
    pub idle: Duration,
    /// How many sessions may be in memory at a time.
    pub live_sessions: usize,
    /// Files and directories of the server's own, which no agent reads or writes through it.
    pub private: Vec<PathBuf>,
}

/// How many sessions are in memory at a time, unless somebody says otherwise.
pub const LIVE_SESSIONS: usize = 4096;

/// All of a server but its transports.
pub struct Hub {
    shared: Arc<Shared>,
}

/// What sessions and connections share.
pub(crate) struct Shared {
    store: Arc<StoreHandle>,
    registry: Registry,
    sessions: Mutex<HashMap<SessionId, Arc<OnceCell<Inbox>>>>,
    /// Who was last at a session, for the environment of its agent. Environments stay in memory.
    peers: Mutex<HashMap<SessionId, Peer>>,
    /// Who takes part in a session that was made and is not in memory yet.
    expected: Mutex<HashMap<SessionId, Weak<Client>>>,
    /// What could not be told to clients.
    losses: LossCounts,
    next_client: AtomicU64,
    clients: AtomicU64,
    /// Whether the server has ended: no session begins or is opened any more.
    stopped: AtomicBool,
    /// What no agent reads or writes through the server.
    private: Vec<PathBuf>,
    idle: Duration,
    max_live: usize,
    resident: Arc<Resident>,
    started: Instant,
    session_thread: Arc<SessionThread>,
}

/// One client's way in.
pub struct Connection(connection::Connection);

/// How many sessions are remembered that a client made and in which nothing has happened since. The maker of one more
/// takes part when it says something.
const MAX_EXPECTED: usize = 10_000;

/// How often sessions look whether they are still needed.
const TICK: Duration = Duration::from_secs(15);

/// How many busy sessions are read at once at startup.
const BUSY_PAGE: usize = 1000;

/// How often they do so when there are many.
const TICK_UNDER_PRESSURE: Duration = Duration::from_secs(2);

/// How long somebody who wants one more session waits for another to leave.
const ROOM: Duration = Duration::from_secs(2);

/// How long sessions may take to store what they have when the server ends.
const END: Duration = Duration::from_secs(10);

/// How long a server that is dropped without being stopped waits for its sessions and agents.
const DROP: Duration = Duration::from_secs(1);

impl Hub {
    /// A server without transports. Sessions that the last one left in the middle of a turn are ended first.
    pub async fn new(options: Options) -> Result<Arc<Self>, StoreError> {
        let Options { store, agents, watcher, idle, live_sessions, private } = options;
        let session_thread = SessionThread::start().map_err(|error| StoreError {
            kind: ErrorKind::Io,
            message: format!("the thread of the sessions cannot be started: {error}"),
        })?;
        let session_thread = Arc::new(session_thread);
        let store = Arc::new(StoreHandle::new(store));
        let shared = Arc::new(Shared {
            registry: Registry::new(agents, watcher, Arc::clone(&store), Arc::clone(&session_thread)),
            store,
            sessions: Mutex::default(),
            peers: Mutex::default(),
            expected: Mutex::default(),
            losses: LossCounts::default(),
            next_client: AtomicU64::new(1),
            clients: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            private,
            idle,
            max_live: live_sessions,
            resident: Arc::default(),
            started: Instant::now(),
            session_thread,
        });
        shared.end_busy().await?;
        tokio::spawn(tick(Arc::downgrade(&shared)));
        tokio::spawn(crate::search::index(Arc::downgrade(&shared)));
        Ok(Arc::new(Self { shared }))
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// A client connects. What it is to be told comes out of the reader; when the connection is dropped, the client is
    /// gone.
    pub fn connect(self: &Arc<Self>, peer: Peer) -> (Connection, SendQueueReader) {
        let (queue, reader) = send_queue();
        let id = ClientId(self.shared.next_client.fetch_add(1, Ordering::Relaxed));
        let client = Arc::new(Client::new(id, peer, queue));
        self.shared.clients.fetch_add(1, Ordering::Relaxed);
        (Connection(connection::Connection::new(Arc::clone(&self.shared), client)), reader)
    }

    /// What was said in a session, once `message` is in it if one is named; `None` if there is no such session.
    pub async fn transcript(&self, session: &SessionId, message: Option<MessageId>) -> Option<Transcript> {
        let (reply, shown) = oneshot::channel();
        self.shared.send(session, Message::Read { message, reply }).await.ok()?;
        shown.await.ok()
    }

    /// Ends all sessions and agents. What was said is stored when this returns.
    pub async fn stop(&self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        let sessions: Vec<_> =
            lock(&self.shared.sessions).values().filter_map(|cell| cell.get().cloned()).collect();
        let mut ends = Vec::new();
        for inbox in sessions {
            let (sender, end) = oneshot::channel();
            if inbox.send(Message::Stop(sender)).await.is_ok() {
                ends.push(end);
            }
        }
        let all = async {
            for end in ends {
                let _ = end.await;
            }
        };
        if tokio::time::timeout(END, all).await.is_err() {
            tracing::warn!("not all sessions could be ended in time");
        }
        self.shared.registry.stop_all().await;
        let thread = Arc::clone(&self.shared.session_thread);
        if !tokio::task::spawn_blocking(move || thread.stop(END)).await.unwrap_or(false) {
            tracing::warn!("the thread of the sessions did not end in time: the disk may be stalled");
        }
        // Tasks that are about to end may hold the store for a while.
        self.shared.store.close().await;
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        // A server that was not stopped leaves no processes either.
        self.shared.session_thread.stop(DROP);
    }
}

impl Connection {
    /// The client said something. Waits while there is too much to do.
    pub async fn said(&mut self, frame: InputLine<'_>) {
        self.0.said(frame).await;
    }
}

impl Shared {
    /// The store, for threads that may block.
    pub(crate) fn store(&self) -> &dyn Store {
        self.store.inner()
    }

    /// Writes a batch without holding up anybody, and waits until that is done.
    pub(crate) async fn write(&self, batch: Batch) -> Result<(), StoreError> {
        self.store.write(batch).await
    }

    pub(crate) fn losses(&self) -> &LossCounts {
        &self.losses
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(crate) fn watcher(&self) -> &Watcher {
        self.registry.watcher()
    }

    pub(crate) fn private(&self) -> &[PathBuf] {
        &self.private
    }

    /// How long a session that nobody needs stays in memory. One whose agent could not bring it back stays as long as is
    /// usual, also under pressure.
    pub(crate) fn idle(&self, can_come_back: bool) -> Duration {
        if can_come_back { self.resident.idle(self.idle, self.live_sessions()) } else { self.idle }
    }

    /// Where sessions run.
    pub(crate) fn sessions(&self) -> &SessionThread {
        &self.session_thread
    }

    pub(crate) fn resident(&self) -> &Arc<Resident> {
        &self.resident
    }

    /// Waits until one more session may be in memory: those that nobody needs leave for it.
    pub(crate) async fn make_room(&self) -> Result<(), RpcError> {
        if self.live_sessions() < self.max_live {
            return Ok(());
        }
        let urgent = self.resident.urge();
        let room = async {
            loop {
                let mut one_left = std::pin::pin!(urgent.one_left());
                one_left.as_mut().enable();
                if self.live_sessions() < self.max_live {
                    return;
                }
                self.tick_sessions();
                one_left.await;
            }
        };
        tokio::time::timeout(ROOM, room).await.map_err(|_| {
            let message = format!("{} sessions are in use already, and there may be no more", self.max_live);
            RpcError::new(code::INTERNAL_ERROR, message)
        })
    }

    /// Has all sessions look whether they are still needed.
    fn tick_sessions(&self) {
        let inboxes: Vec<_> = lock(&self.sessions).values().filter_map(|cell| cell.get().cloned()).collect();
        for inbox in inboxes {
            let _ = inbox.try_send(Message::Tick);
        }
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn clients(&self) -> u64 {
        self.clients.load(Ordering::Relaxed)
    }

    pub(crate) fn live_sessions(&self) -> usize {
        lock(&self.sessions).len()
    }

    pub(crate) fn is_live(&self, id: &SessionId) -> bool {
        lock(&self.sessions).get(id).is_some_and(|cell| cell.initialized())
    }

    /// Whether a session is in memory or in the store.
    pub(crate) async fn is_here(&self, id: &SessionId) -> Result<bool, RpcError> {
        if self.is_live(id) {
            return Ok(true);
        }
        let key = id.as_json().as_literal().to_owned();
        self.read(move |store| Ok(store.session(&key)?.is_some())).await
    }

    pub(crate) fn disconnected(&self) {
        self.clients.fetch_sub(1, Ordering::Relaxed);
    }

    /// The agent of a session: by its name, or by the command that it was begun with.
    pub(crate) fn config_of(&self, row: &SessionRow) -> Option<AgentConfig> {
        let data = json::object(
            parlor_json::Json::parse(row.data.clone()).ok().as_ref().map(parlor_json::Json::raw),
        );
        if let Some(command) = data.get_array("command") {
            let words = command.into_iter().map(|word| Some(JsonStr::from_raw(word)?.to_text().into_owned()));
            return Some(AgentConfig::new(row.agent.clone(), words.collect::<Option<_>>()?));
        }
        self.registry.agents.get(&row.agent).cloned()
    }

    pub(crate) fn note_peer(&self, session: &SessionId, peer: &Peer) {
        lock(&self.peers).insert(session.clone(), peer.clone());
    }

    pub(crate) fn peer_of(&self, session: &SessionId) -> Option<Peer> {
        lock(&self.peers).get(session).cloned()
    }

    /// Reads from the store without holding up anybody.
    pub(crate) fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Store) -> Result<T, StoreError> + Send + 'static,
    ) -> impl Future<Output = Result<T, RpcError>> + Send {
        let done = self.store.read(read);
        async { done.await.map_err(|error| RpcError::new(code::INTERNAL_ERROR, error.to_string())) }
    }

    /// Reads a session and what is remembered of its agent, which the session looks at later.
    async fn open(&self, id: &SessionId) -> Result<Option<StoredSession>, RpcError> {
        let key = id.as_json().as_literal().to_owned();
        let opened = self.read(move |store| stored::open(store, &key)).await?;
        if let Some(config) = opened.as_ref().and_then(|opened| self.config_of(&opened.row)) {
            self.registry.recall(&config).await;
        }
        Ok(opened)
    }

    /// The inbox of a session, taken out of the store if it is not there.
    async fn inbox(self: &Arc<Self>, id: &SessionId) -> Result<Inbox, RpcError> {
        self.open_or(id, async || Err(no_session(id))).await
    }

    /// The same; one that is not in the store either is to be had in another way. Whoever else wants it waits.
    pub(crate) async fn open_or(
        self: &Arc<Self>,
        id: &SessionId,
        otherwise: impl AsyncFnOnce() -> Result<Inbox, RpcError>,
    ) -> Result<Inbox, RpcError> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(RpcError::new(code::INTERNAL_ERROR, "the server has ended"));
        }
        let cell = Arc::clone(lock(&self.sessions).entry(id.clone()).or_default());
        let opened = cell.get_or_try_init(async || {
            // In a box: it is seldom, and the future of each connection would have its size.
            let opened = Box::pin(self.open(id)).await?;
            match opened {
                Some(opened) => {
                    let inbox = session::start(Arc::clone(self), opened, None, None);
                    if let Some(client) = lock(&self.expected).remove(id).and_then(|client| client.upgrade())
                    {
                        // The inbox of a session that was just started is empty.
                        let _ = inbox.try_send(Message::Call(client, ClientCall::Follow));
                    }
                    Ok(inbox)
                }
                None => otherwise().await,
            }
        });
        match opened.await {
            Ok(inbox) => Ok(inbox.clone()),
            Err(error) => {
                self.give_up(id, &cell);
                Err(error)
            }
        }
    }

    /// A client takes part in a session that was just made, as soon as anything happens in it: until then the session
    /// need not be read.
    pub(crate) fn expect(&self, id: &SessionId, client: &Arc<Client>) {
        let mut expected = lock(&self.expected);
        if expected.len() >= MAX_EXPECTED {
            expected.retain(|_, client| client.strong_count() > 0);
        }
        if expected.len() < MAX_EXPECTED {
            expected.insert(id.clone(), Arc::downgrade(client));
        }
    }

    /// Hands a message to a session.
    pub(crate) async fn send(self: &Arc<Self>, id: &SessionId, message: Message) -> Result<(), RpcError> {
        let mut message = message;
        loop {
            let inbox = self.inbox(id).await?;
            match inbox.send(message).await {
                Ok(()) => return Ok(()),
                // It left its place just now: it is taken out of the store again.
                Err(mpsc::error::SendError(back)) => {
                    self.forget_inbox(id, &inbox);
                    message = back;
                }
            }
        }
    }

    /// Hands on what came for a session while it left its place: it is taken out of the store for that.
    pub(crate) fn send_again(self: &Arc<Self>, id: &SessionId, messages: Vec<Message>) {
        let matters =
            |message: &Message| !matches!(message, Message::Tick | Message::Event(Event::Disconnected(_)));
        let messages: Vec<_> = messages.into_iter().filter(matters).collect();
        if messages.is_empty() {
            return;
        }
        let (hub, id) = (Arc::clone(self), id.clone());
        tokio::spawn(async move {
            for message in messages {
                let request = message.refusable();
                if let Err(error) = hub.send(&id, message).await {
                    tracing::warn!(session = %id, "what came last is lost: {}", error.message());
                    if let Some(request) = request {
                        request.refuse(&error);
                    }
                }
            }
        });
    }

    /// A session that has just begun.
    pub(crate) fn begin(self: &Arc<Self>, opened: StoredSession, id: &SessionId, bound: BoundAgent) {
        let inbox = session::start(Arc::clone(self), opened, Some(bound), None);
        let cell = Arc::new(OnceCell::new_with(Some(inbox)));
        lock(&self.sessions).insert(id.clone(), cell);
    }

    /// A fork begins, with an agent that has it. One that somebody else has opened already gives the agent back.
    pub(crate) async fn begin_fork(
        self: &Arc<Self>,
        id: &SessionId,
        bound: BoundAgent,
    ) -> Result<Option<BoundAgent>, RpcError> {
        let cell = Arc::clone(lock(&self.sessions).entry(id.clone()).or_default());
        let mut bound = Some(bound);
        let begun = cell.get_or_try_init(async || {
            let opened = self.open(id).await?.ok_or_else(|| no_session(id))?;
            Ok(session::start(Arc::clone(self), opened, bound.take(), None))
        });
        match begun.await {
            Ok(_) => Ok(bound),
            Err(error) => {
                self.give_up(id, &cell);
                Err(error)
            }
        }
    }

    /// A session could not be opened: its place goes, unless somebody else is at it.
    fn give_up(&self, id: &SessionId, cell: &Arc<OnceCell<Inbox>>) {
        let mut sessions = lock(&self.sessions);
        let is_ours = |other: &Arc<_>| Arc::ptr_eq(other, cell) && Arc::strong_count(cell) == 2;
        if !cell.initialized() && sessions.get(id).is_some_and(is_ours) {
            sessions.remove(id);
        }
    }

    /// A session leaves its place, unless something came for it meanwhile.
    pub(crate) fn forget(&self, id: &SessionId, inbox: &mut mpsc::Receiver<Message>) -> bool {
        let mut sessions = lock(&self.sessions);
        if !inbox.is_empty() {
            return false;
        }
        inbox.close();
        sessions.remove(id);
        drop(sessions);
        lock(&self.peers).remove(id);
        self.resident.left();
        true
    }

    pub(crate) fn forget_now(&self, id: &SessionId) {
        lock(&self.sessions).remove(id);
        lock(&self.peers).remove(id);
        self.resident.left();
    }

    fn forget_inbox(&self, id: &SessionId, inbox: &Inbox) {
        let mut sessions = lock(&self.sessions);
        let same = |cell: &Arc<OnceCell<Inbox>>| cell.get().is_some_and(|other| other.same_channel(inbox));
        if sessions.get(id).is_some_and(same) {
            sessions.remove(id);
        }
    }

    /// Tells all live sessions that a client is gone.
    pub(crate) async fn left(&self, client: ClientId) {
        let inboxes: Vec<_> = lock(&self.sessions).values().filter_map(|cell| cell.get().cloned()).collect();
        for inbox in inboxes {
            let _ = inbox.send(Message::Event(Event::Disconnected(client))).await;
        }
    }

    /// Ends the turns that the last server left running.
    async fn end_busy(self: &Arc<Self>) -> Result<(), StoreError> {
        let mut after: Option<Cursor> = None;
        loop {
            let place = after.take();
            let page = self.store.read(move |store| {
                let filter = Filter { busy: Some(true), ..Filter::default() };
                store.sessions(&filter, place.as_ref(), BUSY_PAGE)
            });
            let page = page.await?;
            after = page.last().map(|row| Cursor { active_at: row.active_at, id: row.id.clone() });
            let is_last = page.len() < BUSY_PAGE;
            for row in page {
                self.end_turn_of(&row).await;
            }
            if is_last {
                return Ok(());
            }
        }
    }

    async fn end_turn_of(self: &Arc<Self>, row: &SessionRow) {
        let id = SessionId::from(JsonStr::from_literal(&row.id).unwrap_or_else(|| JsonStr::new(&row.id)));
        // It is shown when its end is stored.
        let (reply, shown) = oneshot::channel();
        match self.send(&id, Message::Read { message: None, reply }).await {
            Ok(()) => drop(shown.await),
            Err(error) => {
                tracing::warn!(session = %id, "a session that was busy cannot be opened: {}", error.message());
            }
        }
    }
}

/// Lets time pass for all sessions and agents.
async fn tick(shared: Weak<Shared>) {
    let every =
        shared.upgrade().map_or(TICK, |shared| TICK.min(shared.idle.max(Duration::from_millis(50)) / 2));
    loop {
        let is_pressed = shared.upgrade().is_some_and(|shared| shared.idle(true) < shared.idle);
        tokio::time::sleep(if is_pressed { every.min(TICK_UNDER_PRESSURE) } else { every }).await;
        let Some(shared) = shared.upgrade() else { return };
        shared.tick_sessions();
        shared.registry.release_unused(Instant::now()).await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}
