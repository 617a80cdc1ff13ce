use std::fmt;
use std::fs::File;
#[cfg(feature = "persist")]
use std::fs::TryLockError;
#[cfg(feature = "listen")]
use std::net::SocketAddr;
#[cfg(feature = "persist")]
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
#[cfg(feature = "persist")]
use std::time::Instant;

use parlor_server::config::{AgentConfig, Agents, EmbeddedAgent};
#[cfg(feature = "listen")]
use parlor_server::data_dir::Tokens;
use parlor_server::hub::{Hub, LIVE_SESSIONS, Options, Peer, Role, TransportKind};
use parlor_server::process::Reaper;
use parlor_server::transport::{self, streams};
#[cfg(feature = "listen")]
use parlor_server::transport::{HttpOptions, Limits, Port};
#[cfg(feature = "persist")]
use parlor_store::SqliteStore;
use parlor_store::{MemoryStore, Store};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::sync::watch;

use crate::Agent;
use crate::host::Host;

/// How long a session that nobody needs is kept in memory.
const IDLE: Duration = Duration::from_secs(15 * 60);

/// How much waits in memory between a client inside the process and its sessions.
const STREAM: usize = 1 << 20;

/// How long a process that has the sessions and is about to end is waited for, and how often it is looked for.
#[cfg(feature = "persist")]
const ENDING: Duration = Duration::from_secs(5);
#[cfg(feature = "persist")]
const LOOK: Duration = Duration::from_millis(20);

/// What the sessions of an agent are filed under. It may call itself something else the next time.
const NAME: &str = "agent";

/// An agent with everything that clients expect of one. Clones serve the same sessions.
#[derive(Debug, Clone)]
pub struct Server {
    hub: Arc<Hub>,
    stopped: watch::Sender<bool>,
    _lock: Option<Arc<File>>,
}

/// An agent that is about to be served.
#[derive(Debug)]
#[must_use = "it is served when it starts"]
pub struct Builder<A> {
    agent: A,
    #[cfg(feature = "persist")]
    store: Option<PathBuf>,
}

/// Why an agent cannot be served.
#[derive(Debug)]
pub struct ServeError(String);

impl<A: Agent> Builder<A> {
    /// Keeps sessions in this file, so that they are there the next time. Without one they are there as long as the
    /// agent runs. One process at a time can have them: the next one waits a few seconds, and
    /// does not start.
    #[cfg(feature = "persist")]
    pub fn store(mut self, path: impl AsRef<Path>) -> Self {
        self.store = Some(path.as_ref().to_owned());
        self
    }

    /// Begins.
    pub async fn start(self) -> Result<Server, ServeError> {
        #[cfg(not(feature = "persist"))]
        let (store, lock): (Arc<dyn Store>, _) = (Arc::new(MemoryStore::default()), None);
        #[cfg(feature = "persist")]
        let (store, lock): (Arc<dyn Store>, _) = match &self.store {
            Some(path) => {
                let lock = lock(path).await?;
                let store = SqliteStore::open(path);
                (Arc::new(store.map_err(|error| wrong(path, error))?), Some(Arc::new(lock)))
            }
            None => (Arc::new(MemoryStore::default()), None),
        };
        let agent = Arc::new(self.agent);
        let place = Arc::new(OnceLock::new());
        let info = Arc::new(agent.info());
        let local = {
            let place = Arc::clone(&place);
            EmbeddedAgent::new(move |stream| Host::start(&agent, &info, &place, stream))
        };
        let agents = Agents::only(AgentConfig::embedded(NAME, local));
        let (reaper, live_sessions) = (Reaper::disabled(), LIVE_SESSIONS);
        let options = Options { store, agents, reaper, idle: IDLE, live_sessions, private: Vec::new() };
        let hub = Hub::new(options).await.map_err(|error| ServeError(error.to_string()))?;
        let _ = place.set(Arc::downgrade(&hub));
        Ok(Server { hub, stopped: watch::Sender::new(false), _lock: lock })
    }
}

impl Server {
    /// Serves an agent.
    pub fn of<A: Agent>(agent: A) -> Builder<A> {
        Builder {
            agent,
            #[cfg(feature = "persist")]
            store: None,
        }
    }

    /// Serves the client at the standard streams, which is what an editor is, until it has no more to say. This process
    /// should end then.
    pub async fn stdio(&self) {
        let _ = transport::stdio(&self.hub, peer(TransportKind::Stdio)).await;
        self.stop().await;
    }

    /// Serves a client over any two streams, until it has no more to say.
    pub async fn over<R, W>(&self, read: R, write: W)
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let _ = streams(&self.hub, peer(TransportKind::Unix), read, write).await;
    }

    /// A connection for a client inside this process. Must be called within a tokio runtime.
    pub fn connect(&self) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(STREAM);
        let hub = Arc::clone(&self.hub);
        tokio::spawn(async move {
            let (read, write) = tokio::io::split(ours);
            let _ = streams(&hub, peer(TransportKind::Unix), read, write).await;
        });
        theirs
    }

    /// Serves clients that come by WebSocket to `ws://ADDRESS/acp` and show the token, as
    /// `Authorization: Bearer TOKEN`. The address is one of this machine's own; port 0 is any that is free. Gives the
    /// address with its port at once, and serves until the server [stops](Self::stop).
    ///
    /// ```
    /// # use parlor_agent::{Agent, Failure, Server, Stop, Turn};
    /// # struct Echo;
    /// # impl Agent for Echo {
    /// #     async fn prompt(&self, turn: Turn) -> Result<Stop, Failure> {
    /// #         turn.say(&turn.text()).await;
    /// #         Ok(Stop::EndTurn)
    /// #     }
    /// # }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let server = Server::of(Echo).start().await?;
    /// let address = server.listen("127.0.0.1:0".parse()?, "secret").await?;
    ///
    /// let connector = parlor_client::Connector::new("example", "1");
    /// let client = connector.url(&format!("ws://{address}/acp"), Some("secret")).await?;
    /// assert_eq!(client.version(), parlor_client::Version::V2);
    /// server.stop().await;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    #[cfg(feature = "listen")]
    pub async fn listen(&self, address: SocketAddr, token: &str) -> Result<SocketAddr, ServeError> {
        let nowhere_else =
            HttpOptions { listen: address, allow_remote: false, origins: Vec::new(), hosts: Vec::new() };
        let bad_token = || ServeError("a token holds letters, digits and -._~".to_owned());
        let tokens = Tokens::only(token).ok_or_else(bad_token)?;
        let port = Port::open(&nowhere_else, tokens, Limits::default()).await;
        let port = port.map_err(|error| ServeError(error.to_string()))?;
        let address = port.address();
        tokio::spawn(port.serve(Arc::clone(&self.hub), self.stopped.subscribe()));
        Ok(address)
    }

    /// Ends. What was said is kept when this returns, and nobody is served any more.
    pub async fn stop(&self) {
        self.stopped.send_replace(true);
        self.hub.stop().await;
    }
}

/// Sees to it that no other process has the sessions. One that is about to end is waited for.
#[cfg(feature = "persist")]
async fn lock(path: &Path) -> Result<File, ServeError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let file = File::create(Path::new(&name)).map_err(|error| wrong(path, error))?;
    let until = Instant::now() + ENDING;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < until => tokio::time::sleep(LOOK).await,
            Err(TryLockError::WouldBlock) => {
                return Err(wrong(path, "another process has these sessions open"));
            }
            Err(TryLockError::Error(error)) => return Err(wrong(path, error)),
        }
    }
}

#[cfg(feature = "persist")]
fn wrong(path: &Path, error: impl fmt::Display) -> ServeError {
    ServeError(format!("{}: {error}", path.display()))
}

fn peer(transport: TransportKind) -> Peer {
    let cwd = std::env::current_dir().ok();
    Peer { transport, role: Role::Driver, agent: None, dialect: None, env: Vec::new(), cwd }
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the agent cannot be served: {}", self.0)
    }
}

impl std::error::Error for ServeError {}
