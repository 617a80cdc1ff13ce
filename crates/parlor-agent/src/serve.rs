use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parlor_server::config::{AgentConfig, Agents, Config, Local};
use parlor_server::doors::{self, streams};
use parlor_server::hub::{Door, Hub, Options, Peer, Role};
use parlor_server::process::Watcher;
use parlor_store::{MemoryStore, SqliteStore, Store};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};

use crate::Agent;
use crate::host::Host;

/// How long a session that nobody needs is kept in memory.
const IDLE: Duration = Duration::from_secs(15 * 60);

/// How much waits in memory between a client inside the process and its sessions.
const STREAM: usize = 1 << 20;

/// An agent with everything that clients expect of one.
pub struct Server {
    hub: Arc<Hub>,
}

/// An agent that is about to be served.
pub struct Builder<A> {
    agent: A,
    store: Option<PathBuf>,
}

/// Why an agent cannot be served.
#[derive(Debug)]
pub struct ServeError(String);

impl<A: Agent> Builder<A> {
    /// Keeps sessions in this file, so that they are there the next time. Without one they are there as long as the
    /// agent runs.
    #[must_use]
    pub fn store(mut self, path: impl AsRef<Path>) -> Self {
        self.store = Some(path.as_ref().to_owned());
        self
    }

    /// Begins.
    pub async fn start(self) -> Result<Server, ServeError> {
        let store: Arc<dyn Store> = match &self.store {
            Some(path) => Arc::new(SqliteStore::open(path).map_err(|error| ServeError(error.to_string()))?),
            None => Arc::new(MemoryStore::default()),
        };
        let agent = Arc::new(self.agent);
        let place = Arc::new(OnceLock::new());
        let name = agent.info().name;
        let local = {
            let place = Arc::clone(&place);
            Local::new(move |stream| Host::start(&agent, &place, stream))
        };
        let config = AgentConfig::local(name, local);
        let agents =
            Agents::new(vec![config], &Config::default()).map_err(|error| ServeError(error.to_string()))?;
        let options = Options { store, agents, watcher: Watcher::nobody(), idle: IDLE };
        let hub = Hub::new(options).await.map_err(|error| ServeError(error.to_string()))?;
        let _ = place.set(Arc::downgrade(&hub));
        Ok(Server { hub })
    }
}

impl Server {
    /// Serves an agent.
    pub fn of<A: Agent>(agent: A) -> Builder<A> {
        Builder { agent, store: None }
    }

    /// Serves the client at the standard streams, which is what an editor is, until it has no more to say. This process
    /// should end then.
    pub async fn stdio(&self) {
        doors::stdio(&self.hub, peer(Door::Stdio)).await;
        self.stop().await;
    }

    /// Serves a client over any two streams, until it has no more to say.
    pub async fn over<R, W>(&self, read: R, write: W)
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        streams(&self.hub, peer(Door::Unix), read, write).await;
    }

    /// A connection for a client inside this process. Must be called within a tokio runtime.
    pub fn connect(&self) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(STREAM);
        let hub = Arc::clone(&self.hub);
        tokio::spawn(async move {
            let (read, write) = tokio::io::split(ours);
            streams(&hub, peer(Door::Unix), read, write).await;
        });
        theirs
    }

    /// The sessions, for doors of one's own such as those of `parlor-server`.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// Ends. What was said is kept when this returns.
    pub async fn stop(&self) {
        self.hub.stop().await;
    }
}

fn peer(door: Door) -> Peer {
    let cwd = std::env::current_dir().ok();
    Peer { door, role: Role::Driver, agent: None, dialect: None, env: Vec::new(), cwd }
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the agent cannot be served: {}", self.0)
    }
}

impl std::error::Error for ServeError {}
