//! The server without its transports: connects clients, sessions and agents.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use parlor_dialect::{Dialect, Losses};
mod idle;
mod sessions;
mod subagents;

pub use self::idle::RunningTurn;
use parlor_engine::SessionData;
pub(crate) use parlor_engine::no_session;
use parlor_engine::opening::OpeningPlan;
use parlor_json::{JsonStr, Object};
use parlor_session::session::ClientId;
use parlor_session::{MessageId, SessionId, Transcript};
use parlor_store::{Batch, Cursor, ErrorKind, Filter, SessionRow, Store, StoreError};
use parlor_wire::{InputLine, RpcError, code};
use tokio::sync::{OnceCell, oneshot};

use self::subagents::LiveSubagents;
use crate::agent::{Agent, AgentPool, Opener, Origin, Startup};
use crate::client::Client;
use crate::config::{AgentConfig, Agents, ConfigSource, ConfigWatch};
use crate::connection;
use crate::feed::{self, Feed};
use crate::lock;
use crate::logins::Logins;
use crate::losses::LossCounts;
use crate::memory::MemoryUsage;
use crate::send_queue::{SendQueueReader, send_queue};
use crate::session::{Mailbox, SessionMessage};
use crate::session_thread::SessionThread;
use crate::store::StoreHandle;
use crate::stored::{self, StoredSession};
use parlor_process::Reaper;

/// What is known of a client when it connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectOptions {
    /// The transport of its connection.
    pub transport: TransportKind,
    /// What it is allowed to do.
    pub role: ClientRole,
    /// The agent of its new sessions; `None` for the default agent.
    pub agent: Option<AgentChoice>,
    /// The dialect to use if it negotiates protocol version 2.
    pub dialect: Option<Dialect>,
    /// Its environment, which agents that are started on its behalf get in part.
    pub env: Vec<(String, String)>,
    /// Its working directory.
    pub cwd: Option<PathBuf>,
    /// Its name until it sends `initialize`.
    pub name: Option<String>,
}

impl ConnectOptions {
    /// The options of a client about which nothing else is known.
    pub fn new(transport: TransportKind, role: ClientRole) -> Self {
        Self { transport, role, agent: None, dialect: None, env: Vec::new(), cwd: None, name: None }
    }

    /// Where its agents' programs are searched for: its `PATH`, else that of this process.
    pub(crate) fn search_path(&self) -> OsString {
        let own = self.env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.into());
        own.or_else(|| std::env::var_os("PATH")).unwrap_or_default()
    }
}

/// The client on whose behalf the agent of a session is started.
#[derive(Debug, Clone)]
pub(crate) struct RequestingClient {
    pub(crate) options: Arc<ConnectOptions>,
    /// The metadata of its `initialize`.
    pub(crate) initialize_meta: InitializeMeta,
}

/// The metadata in a client's `initialize` that is not for the server.
#[derive(Debug, Clone, Default)]
pub(crate) struct InitializeMeta {
    /// That of the params.
    pub(crate) params: Object,
    /// That of the client's capabilities.
    pub(crate) capabilities: Object,
}

/// A way to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransportKind {
    /// The standard streams of this process.
    Stdio,
    /// The Unix socket.
    Unix,
    /// A WebSocket over HTTP.
    WebSocket,
}

impl TransportKind {
    /// Its name in the log.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Unix => "unix",
            Self::WebSocket => "websocket",
        }
    }
}

/// What a client is allowed to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientRole {
    /// May act: prompt, cancel, fork, delete.
    Driver,
    /// May only watch.
    Observer,
}

/// The agent that a client chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentChoice {
    /// A configured agent.
    Named(String),
    /// A program with its arguments.
    Command(Vec<String>),
}

/// The parts and limits of a [`Hub`].
pub struct HubOptions {
    /// The store of all sessions.
    pub store: Arc<dyn Store>,
    /// The agents that clients can choose.
    pub agents: Agents,
    /// The configuration that the agents are from, with its text; its changes apply while the server runs.
    pub config: Option<(Box<dyn ConfigSource>, Option<String>)>,
    /// Ends the agents if this process is killed.
    pub reaper: Reaper,
    /// How long an idle session stays in memory while memory is not short.
    pub idle: Duration,
    /// The maximal number of sessions in memory.
    pub live_sessions: usize,
    /// Files and directories that agents can never read or write through the server.
    pub private: Vec<PathBuf>,
}

/// The default of [`HubOptions::live_sessions`].
pub const LIVE_SESSIONS: usize = 4096;

/// A server without transports.
pub struct Hub {
    shared: Arc<HubState>,
}

/// The mailboxes of the live sessions; a cell is empty while its session is being opened.
type LiveSessions = HashMap<SessionId, Arc<OnceCell<Mailbox>>>;

/// The state that sessions and connections share.
pub(crate) struct HubState {
    store: Arc<StoreHandle>,
    agent_pool: AgentPool,
    sessions: Mutex<LiveSessions>,
    /// The client that last acted in a live session: the session's agent is started in its environment.
    requesting_clients: Mutex<HashMap<SessionId, RequestingClient>>,
    /// Clients to attach to forked sessions when these are opened.
    attach_on_open: Mutex<HashMap<SessionId, Weak<Client>>>,
    subagents: Mutex<LiveSubagents>,
    losses: LossCounts,
    logins: Arc<Logins>,
    #[cfg(feature = "http")]
    browsers: crate::browsers::Browsers,
    #[cfg(feature = "notify")]
    notifier: Arc<crate::notify::Notifier>,
    next_client: AtomicU64,
    clients: AtomicU64,
    /// Whether the server is stopping: no session is opened any more.
    stopped: AtomicBool,
    /// After how many seconds without clients and turns the server stops; 0 for never.
    idle_exit: AtomicU64,
    /// [`HubOptions::private`].
    private: Vec<PathBuf>,
    idle: Duration,
    max_live: usize,
    memory: Arc<MemoryUsage>,
    started: Instant,
    session_thread: Arc<SessionThread>,
    config: Option<ConfigWatch>,
}

/// The connection of one client; dropping it disconnects the client.
pub struct Connection(connection::Connection);

/// How many forked sessions may wait to be opened. The client of one more is attached when it acts in the session.
const MAX_ATTACH_ON_OPEN: usize = 10_000;

/// How often idle sessions and agents are evicted.
const TICK_INTERVAL: Duration = Duration::from_secs(15);

/// How often the server looks whether its configuration has changed. Clients that connect look, too.
const CONFIG_INTERVAL: Duration = Duration::from_secs(1);

/// How long callers wait for the configuration to be read.
const CONFIG_TIMEOUT: Duration = Duration::from_secs(1);

/// How many interrupted sessions are read at once at startup.
const BUSY_PAGE: usize = 1000;

/// How often idle sessions are evicted while memory is short.
const PRESSURE_TICK_INTERVAL: Duration = Duration::from_secs(1);

/// How long a caller that opens a session waits for another one to be evicted.
const ROOM_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the sessions, and then the session thread, may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// How long dropping a server that was not stopped waits for its session thread.
const DROP_TIMEOUT: Duration = Duration::from_secs(1);

impl Hub {
    /// Starts a server. First ends the turns that the previous server left running.
    pub async fn new(options: HubOptions) -> Result<Arc<Self>, StoreError> {
        let HubOptions { store, agents, config, reaper, idle, live_sessions, private } = options;
        let session_thread = SessionThread::start().map_err(|error| StoreError {
            kind: ErrorKind::Io,
            message: format!("cannot start the session thread: {error}"),
        })?;
        let session_thread = Arc::new(session_thread);
        let store = Arc::new(StoreHandle::new(store));
        let shared = Arc::new(HubState {
            agent_pool: AgentPool::new(agents, reaper, Arc::clone(&store), Arc::clone(&session_thread)),
            store,
            sessions: Mutex::default(),
            requesting_clients: Mutex::default(),
            attach_on_open: Mutex::default(),
            subagents: Mutex::default(),
            losses: LossCounts::default(),
            logins: Arc::default(),
            #[cfg(feature = "http")]
            browsers: crate::browsers::Browsers::default(),
            #[cfg(feature = "notify")]
            notifier: Arc::default(),
            next_client: AtomicU64::new(1),
            clients: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            idle_exit: AtomicU64::new(0),
            private,
            idle,
            max_live: live_sessions,
            memory: Arc::default(),
            started: Instant::now(),
            session_thread,
            config: config.map(|(source, text)| ConfigWatch::new(source, text)),
        });
        shared.end_interrupted_turns().await?;
        tokio::spawn(watch_config(Arc::downgrade(&shared)));
        tokio::spawn(tick(Arc::downgrade(&shared)));
        tokio::spawn(crate::search::index(Arc::downgrade(&shared)));
        tokio::spawn(feed::run(Arc::downgrade(&shared)));
        #[cfg(feature = "notify")]
        tokio::spawn(crate::notify::run(Arc::downgrade(&shared)));
        Ok(Arc::new(Self { shared }))
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> Arc<HubState> {
        Arc::clone(&self.shared)
    }

    /// A server with the preset agents that starts no processes.
    #[cfg(test)]
    pub(crate) async fn for_tests(store: Arc<dyn Store>) -> Arc<Self> {
        let options = HubOptions {
            store,
            agents: Agents::new(Vec::new(), &crate::config::Config::default()).unwrap(),
            config: None,
            reaper: Reaper::disabled(),
            idle: Duration::from_secs(60),
            live_sessions: LIVE_SESSIONS,
            private: Vec::new(),
        };
        Self::new(options).await.unwrap()
    }

    /// Connects a client. Frames for it come from the reader.
    pub fn connect(self: &Arc<Self>, options: ConnectOptions) -> (Connection, SendQueueReader) {
        let (queue, reader) = send_queue();
        let id = ClientId(self.shared.next_client.fetch_add(1, Ordering::Relaxed));
        let client = Arc::new(Client::new(id, Arc::new(options), queue));
        self.shared.clients.fetch_add(1, Ordering::Relaxed);
        (Connection(connection::Connection::new(Arc::clone(&self.shared), client)), reader)
    }

    /// Reads the transcript of a session, after waiting until it contains `message`. `None` if there is no such session.
    pub async fn transcript(&self, session: &SessionId, message: Option<MessageId>) -> Option<Transcript> {
        let (reply, transcript) = oneshot::channel();
        self.shared.send(session, SessionMessage::Read { message, reply }).await.ok()?;
        transcript.await.ok()
    }

    /// The browsers that are signed in to the page.
    #[cfg(feature = "http")]
    pub fn browsers(&self) -> &crate::browsers::Browsers {
        &self.shared.browsers
    }

    /// Notifies these targets. A later configuration replaces them.
    #[cfg(feature = "notify")]
    pub fn set_notify(&self, targets: Vec<crate::config::NotifyTarget>) {
        self.shared.notifier.set_targets(targets);
    }

    /// Sets the address of the page for links in notifications, such as `http://parlor.localhost:7667`.
    #[cfg(feature = "notify")]
    pub fn set_page_address(&self, address: String) {
        self.shared.notifier.set_page(address);
    }

    /// Stops all sessions and agents. Everything is persisted when this returns.
    pub async fn stop(&self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        let sessions: Vec<_> =
            lock(&self.shared.sessions).values().filter_map(|cell| cell.get().cloned()).collect();
        let mut ends = Vec::new();
        for mailbox in sessions {
            let (sender, end) = oneshot::channel();
            if mailbox.send(SessionMessage::Stop(sender)).await.is_ok() {
                ends.push(end);
            }
        }
        let all = async {
            for end in ends {
                let _ = end.await;
            }
        };
        if tokio::time::timeout(STOP_TIMEOUT, all).await.is_err() {
            tracing::warn!(timeout_s = STOP_TIMEOUT.as_secs(), "some sessions did not stop in time");
        }
        self.shared.agent_pool.stop_all().await;
        let thread = Arc::clone(&self.shared.session_thread);
        if !tokio::task::spawn_blocking(move || thread.stop(STOP_TIMEOUT)).await.unwrap_or(false) {
            tracing::warn!(
                timeout_s = STOP_TIMEOUT.as_secs(),
                "the session thread did not stop in time: the disk may be stalled"
            );
        }
        // Closed explicitly: tasks that are about to end may hold the store for a while.
        self.shared.store.close().await;
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        // Ends the agents of a server that was not stopped.
        self.shared.session_thread.stop(DROP_TIMEOUT);
    }
}

impl Connection {
    /// Handles a line of the client. Waits while too much of the client is in progress.
    pub async fn on_line(&mut self, frame: InputLine<'_>) {
        self.0.on_line(frame).await;
    }

    /// The span of the connection.
    pub(crate) fn span(&self) -> &tracing::Span {
        self.0.span()
    }
}

impl HubState {
    pub(crate) fn store(&self) -> &StoreHandle {
        &self.store
    }

    /// Writes a batch on a blocking thread, and waits until it is committed.
    pub(crate) async fn write(&self, batch: Batch) -> Result<(), StoreError> {
        self.store.write(batch).await
    }

    /// The subscriptions to the list of sessions and to open requests.
    pub(crate) fn feed(&self) -> &Arc<Feed> {
        self.store.feed()
    }

    pub(crate) fn losses(&self) -> &LossCounts {
        &self.losses
    }

    #[cfg(feature = "http")]
    pub(crate) fn browsers(&self) -> &crate::browsers::Browsers {
        &self.browsers
    }

    #[cfg(feature = "notify")]
    pub(crate) fn notifier(&self) -> &Arc<crate::notify::Notifier> {
        &self.notifier
    }

    pub(crate) fn logins(&self) -> &Arc<Logins> {
        &self.logins
    }

    pub(crate) fn agent_pool(&self) -> &AgentPool {
        &self.agent_pool
    }

    pub(crate) fn reaper(&self) -> &Reaper {
        self.agent_pool.reaper()
    }

    pub(crate) fn private(&self) -> &[PathBuf] {
        &self.private
    }

    /// How long an idle session stays in memory. A session that its agent cannot restore stays as long under memory
    /// pressure as without.
    pub(crate) fn idle_timeout(&self, is_restorable: bool) -> Duration {
        if is_restorable { self.memory.idle_timeout(self.idle, self.live_sessions()) } else { self.idle }
    }

    pub(crate) fn session_thread(&self) -> &SessionThread {
        &self.session_thread
    }

    pub(crate) fn memory(&self) -> &Arc<MemoryUsage> {
        &self.memory
    }

    /// Waits until there is room for one more session in memory, evicting idle ones if necessary.
    pub(crate) async fn make_room(&self) -> Result<(), RpcError> {
        if self.live_sessions() < self.max_live {
            return Ok(());
        }
        let eviction = self.memory.request_eviction();
        let room = async {
            loop {
                let mut evicted = std::pin::pin!(eviction.evicted());
                evicted.as_mut().enable();
                if self.live_sessions() < self.max_live {
                    return;
                }
                self.tick_sessions();
                evicted.await;
            }
        };
        tokio::time::timeout(ROOM_TIMEOUT, room).await.map_err(|_| self.no_room())
    }

    /// Fails if there is no room for one more session in memory.
    pub(crate) fn check_room(&self) -> Result<(), RpcError> {
        if self.live_sessions() < self.max_live { Ok(()) } else { Err(self.no_room()) }
    }

    fn no_room(&self) -> RpcError {
        let message = format!(
            "all {} sessions that the server may have in memory are in use: try again later",
            self.max_live
        );
        RpcError::new(code::INTERNAL_ERROR, message)
    }

    /// The live sessions of subagents.
    pub(crate) fn subagents(&self) -> MutexGuard<'_, LiveSubagents> {
        lock(&self.subagents)
    }

    /// How many requests of each session and of its subagents are open, by the JSON literal of its id.
    pub(crate) fn open_counts(&self) -> HashMap<String, usize> {
        let mut counts = self.feed().open_counts();
        for (subagent, count) in counts.clone() {
            let Some(id) = JsonStr::from_literal(&subagent).map(SessionId::from) else { continue };
            if let Some(root) = self.subagents().root_owner(&id) {
                *counts.entry(root.as_json().as_literal().to_owned()).or_default() += count;
            }
        }
        counts
    }

    /// Has idle sessions evict themselves.
    fn tick_sessions(&self) {
        let mailboxes: Vec<_> =
            lock(&self.sessions).values().filter_map(|cell| cell.get().cloned()).collect();
        for mailbox in mailboxes {
            let _ = mailbox.try_send(SessionMessage::Tick);
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

    /// Whether a session is live or stored.
    pub(crate) async fn exists(&self, id: &SessionId) -> Result<bool, RpcError> {
        if self.is_live(id) {
            return Ok(true);
        }
        let key = id.as_json().as_literal().to_owned();
        self.read(move |store| Ok(store.session(&key)?.is_some())).await
    }

    pub(crate) fn on_disconnected(&self) {
        self.clients.fetch_sub(1, Ordering::Relaxed);
    }

    /// The configuration of a session's agent: by name, or the command that the session was created with.
    pub(crate) fn config_of(&self, row: &SessionRow) -> Option<AgentConfig> {
        match SessionData::of(row).command {
            Some(command) => Some(AgentConfig::new(row.agent.clone(), command)),
            None => self.agent_pool.agents().get(&row.agent).cloned(),
        }
    }

    /// Opens a session at an agent, with the MCP servers of the configuration in addition to those in the plan. `name` is the
    /// agent in the configuration.
    pub(crate) fn open_at_agent(
        &self,
        session: &SessionId,
        (agent, name): (&Arc<Agent>, &str),
        mut plan: OpeningPlan,
        startup: Startup,
        origin: Option<Origin>,
    ) -> Opener {
        let configured = self.agent_pool.agents().mcp_servers(name);
        let mut losses = Losses::default();
        for server in plan.add_mcp_servers(&configured, &agent.info, &mut losses) {
            let (server, transport) = (&server.name, server.transport.name());
            tracing::warn!(%session, agent = name, server, transport, "the agent does not support the transport of an MCP server");
        }
        plan.check_system_prompt(&agent.info, &mut losses);
        self.losses.count(session, losses);
        Opener::start(agent, plan, startup, origin)
    }

    /// Applies the configuration if it has changed. Does not wait for a disk that is stalled.
    pub(crate) async fn reload_config(self: &Arc<Self>) {
        let Some(watch) = &self.config else { return };
        let hub = Arc::clone(self);
        let check = async {
            let guard = watch.begin_check().await;
            let checked = tokio::task::spawn_blocking(move || {
                // Applied here, also if the caller does not wait any more.
                if let Some(loaded) = hub.config.as_ref().and_then(|watch| watch.check(guard)) {
                    hub.agent_pool.set_agents(loaded.agents);
                    #[cfg(feature = "notify")]
                    hub.notifier.set_targets(loaded.notify);
                }
            });
            let _ = checked.await;
        };
        if tokio::time::timeout(CONFIG_TIMEOUT, check).await.is_err() {
            tracing::warn!(timeout_s = CONFIG_TIMEOUT.as_secs(), "cannot read the configuration in time");
        }
    }

    /// The configuration file, whether it is valid, and the settings in it that take effect after a restart.
    pub(crate) async fn config_status(self: &Arc<Self>) -> Option<Object> {
        self.reload_config().await;
        self.config.as_ref().map(ConfigWatch::status)
    }

    /// Starts the agent of a session on behalf of this client the next time.
    pub(crate) fn set_requesting_client(&self, session: &SessionId, client: &Client) {
        lock(&self.requesting_clients).insert(session.clone(), client.to_requesting_client());
    }

    pub(crate) fn requesting_client(&self, session: &SessionId) -> Option<RequestingClient> {
        lock(&self.requesting_clients).get(session).cloned()
    }

    /// Reads from the store on a blocking thread.
    pub(crate) fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Store) -> Result<T, StoreError> + Send + 'static,
    ) -> impl Future<Output = Result<T, RpcError>> + Send {
        let done = self.store.read(read);
        async { done.await.map_err(|error| RpcError::new(code::INTERNAL_ERROR, error.to_string())) }
    }

    /// Reads a session, and the cached information of its agent, from the store.
    async fn open(&self, id: &SessionId) -> Result<Option<StoredSession>, RpcError> {
        let key = id.as_json().as_literal().to_owned();
        let opened = self.read(move |store| {
            let Some(opened) = stored::open(store, &key)? else { return Ok(None) };
            let owners = stored::owners(store, &opened.row)?;
            Ok(Some((opened, owners)))
        });
        let opened = opened.await?;
        let (opened, owners) = match opened {
            Some((opened, owners)) => (Some(opened), owners),
            None => (None, Vec::new()),
        };
        let is_owned = !owners.is_empty();
        if !self.subagents().register(id, owners) {
            return Ok(None);
        }
        if is_owned {
            // It may have been deleted with its owner between the reading and the registration.
            let key = id.as_json().as_literal().to_owned();
            if self.read(move |store| store.session(&key)).await?.is_none() {
                self.subagents().remove(id);
                return Ok(None);
            }
        }
        if let Some(config) = opened.as_ref().and_then(|opened| self.config_of(&opened.row)) {
            self.agent_pool.load_agent_info(&config).await;
        }
        Ok(opened)
    }

    /// Ends the turns that the previous server left running.
    async fn end_interrupted_turns(self: &Arc<Self>) -> Result<(), StoreError> {
        let mut after: Option<Cursor> = None;
        loop {
            let cursor = after.take();
            let page = self.store.read(move |store| {
                let filter = Filter { busy: Some(true), owned: true, ..Filter::default() };
                store.sessions(&filter, cursor.as_ref(), BUSY_PAGE)
            });
            let page = page.await?;
            after = page.last().map(|row| Cursor { active_at: row.active_at, id: row.id.clone() });
            let is_last = page.len() < BUSY_PAGE;
            for row in page {
                self.end_interrupted_turn(&row).await;
            }
            if is_last {
                return Ok(());
            }
        }
    }

    async fn end_interrupted_turn(self: &Arc<Self>, row: &SessionRow) {
        let id = SessionId::from(JsonStr::from_literal(&row.id).unwrap_or_else(|| JsonStr::new(&row.id)));
        // A restored session ends the turn before it answers.
        let (reply, transcript) = oneshot::channel();
        match self.send(&id, SessionMessage::Read { message: None, reply }).await {
            Ok(()) => drop(transcript.await),
            Err(error) => {
                tracing::warn!(session = %id, "cannot end the interrupted turn of a session: {}", error.message());
            }
        }
    }
}

/// Applies changes of the configuration.
async fn watch_config(shared: Weak<HubState>) {
    loop {
        tokio::time::sleep(CONFIG_INTERVAL).await;
        let Some(shared) = shared.upgrade().filter(|shared| shared.config.is_some()) else { return };
        shared.reload_config().await;
    }
}

/// Evicts idle sessions and agents at intervals.
async fn tick(shared: Weak<HubState>) {
    let every = shared
        .upgrade()
        .map_or(TICK_INTERVAL, |shared| TICK_INTERVAL.min(shared.idle.max(Duration::from_millis(50)) / 2));
    loop {
        let is_under_pressure =
            shared.upgrade().is_some_and(|shared| shared.idle_timeout(true) < shared.idle);
        let wait = if is_under_pressure { every.min(PRESSURE_TICK_INTERVAL) } else { every };
        let Some(memory) = shared.upgrade().map(|shared| Arc::clone(shared.memory())) else { return };
        // Wakes early when memory becomes short; while it is short, the interval is shorter.
        let _ = tokio::time::timeout(wait, memory.under_pressure()).await;
        let Some(shared) = shared.upgrade() else { return };
        shared.tick_sessions();
        shared.agent_pool.stop_idle(Instant::now()).await;
    }
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
