use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parlor_process::Reaper;
use parlor_server::config::{AgentConfig, Agents, EmbeddedAgent};
use parlor_server::hub::{ClientRole, ConnectOptions, Hub, HubOptions, LIVE_SESSIONS, TransportKind};
use parlor_server::transport::{self, streams};
use parlor_store::{MemoryStore, Store};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};

use crate::host::Host;
use crate::{Agent, ServeError};

/// How long an idle session stays in memory.
const IDLE: Duration = Duration::from_secs(15 * 60);

/// How many bytes may wait between a client inside the process and its sessions, in each direction.
const STREAM_BYTES: usize = 1 << 20;

/// The name under which the sessions of the agent are stored, whatever the agent calls itself.
const NAME: &str = "agent";

/// An agent that serves clients. Clones serve the same sessions.
///
/// ```
/// # use parlor_agent::{Agent, Server, StopReason, Turn, TurnError};
/// # struct Echo;
/// # impl Agent for Echo {
/// #     async fn prompt(&self, turn: Turn) -> Result<StopReason, TurnError> {
/// #         turn.send_text(&turn.prompt_text()).await;
/// #         Ok(StopReason::EndTurn)
/// #     }
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let server = Server::builder(Echo).start().await?;
/// let (read, write) = tokio::io::split(server.connect());
/// let client = parlor_client::Connector::new("example", "1").over(read, write).await?;
/// assert_eq!(client.version(), parlor_client::Version::V2);
/// server.stop().await;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Server {
    hub: Arc<Hub>,
    #[cfg(feature = "listen")]
    stopped: tokio::sync::watch::Sender<bool>,
    #[cfg(feature = "persist")]
    _lock: Option<Arc<std::fs::File>>,
}

/// An agent that has not started.
#[derive(Debug)]
#[must_use = "the agent is served when it starts"]
pub struct ServerBuilder<A> {
    agent: A,
    #[cfg(feature = "persist")]
    file: Option<std::path::PathBuf>,
}

impl<A: Agent> ServerBuilder<A> {
    /// Persists sessions in this file, so that they are there again after a restart. Without a file they are kept in memory.
    ///
    /// Only one process can use the file. Another one waits a few seconds for it, and then fails with [`ServeError::Locked`].
    #[cfg(feature = "persist")]
    pub fn persist(mut self, file: impl Into<std::path::PathBuf>) -> Self {
        self.file = Some(file.into());
        self
    }

    /// Starts the agent. Clients are served by the methods of [`Server`].
    pub async fn start(self) -> Result<Server, ServeError> {
        #[cfg(feature = "persist")]
        let (store, lock): (Arc<dyn Store>, _) = match &self.file {
            Some(file) => {
                let (store, lock) = crate::persist::open(file).await?;
                (Arc::new(store), Some(Arc::new(lock)))
            }
            None => (Arc::new(MemoryStore::default()), None),
        };
        #[cfg(not(feature = "persist"))]
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let agent = Arc::new(self.agent);
        let info = Arc::new(agent.info());
        tracing::debug!(agent = info.name(), "starting");
        let hub_cell = Arc::new(OnceLock::new());
        let embedded = {
            let hub_cell = Arc::clone(&hub_cell);
            EmbeddedAgent::new(move |stream| Host::start(&agent, &info, &hub_cell, stream))
        };
        let agents = Agents::only(AgentConfig::embedded(NAME, embedded));
        let (reaper, live_sessions) = (Reaper::disabled(), LIVE_SESSIONS);
        let (idle, private) = (IDLE, Vec::new());
        let options = HubOptions { store, agents, config: None, reaper, idle, live_sessions, private };
        let hub = Hub::new(options).await.map_err(|error| ServeError::Start(error.into()))?;
        let _ = hub_cell.set(Arc::downgrade(&hub));
        Ok(Server {
            hub,
            #[cfg(feature = "listen")]
            stopped: tokio::sync::watch::Sender::new(false),
            #[cfg(feature = "persist")]
            _lock: lock,
        })
    }
}

impl Server {
    /// Creates a server for an agent.
    pub fn builder<A: Agent>(agent: A) -> ServerBuilder<A> {
        ServerBuilder {
            agent,
            #[cfg(feature = "persist")]
            file: None,
        }
    }

    /// Serves the client at standard input and output, such as an editor, until it closes standard input and has all responses.
    /// Then the server stops, and the process should end.
    ///
    /// Fails with [`ServeError::Connection`] if a stream fails, for instance because the client no longer reads.
    pub async fn stdio(&self) -> Result<(), ServeError> {
        let served = transport::stdio(&self.hub, options(TransportKind::Stdio)).await;
        self.stop().await;
        Ok(served?)
    }

    /// Serves a client over two streams until it closes its stream and has all responses. Fails if a stream fails.
    pub async fn serve<R, W>(&self, read: R, write: W) -> Result<(), ServeError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        Ok(streams(&self.hub, options(TransportKind::Unix), read, write).await?)
    }

    /// Creates a connection for a client inside this process. Must be called within a tokio runtime.
    pub fn connect(&self) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(STREAM_BYTES);
        // Not the server: its file is free when the last clone of it is dropped, whatever clients do.
        let hub = Arc::clone(&self.hub);
        tokio::spawn(async move {
            let (read, write) = tokio::io::split(ours);
            if let Err(error) = streams(&hub, options(TransportKind::Unix), read, write).await {
                tracing::debug!(%error, "a client inside the process is gone");
            }
        });
        theirs
    }

    /// Serves clients that connect to `ws://ADDRESS/acp` with the header `Authorization: Bearer TOKEN`, until the server
    /// [stops](Self::stop). Returns the address at once, with the port that was chosen if it was 0.
    ///
    /// The address must be one that only this machine can reach.
    ///
    /// ```
    /// # use parlor_agent::{Agent, Server, StopReason, Turn, TurnError};
    /// # struct Echo;
    /// # impl Agent for Echo {
    /// #     async fn prompt(&self, turn: Turn) -> Result<StopReason, TurnError> {
    /// #         turn.send_text(&turn.prompt_text()).await;
    /// #         Ok(StopReason::EndTurn)
    /// #     }
    /// # }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let server = Server::builder(Echo).start().await?;
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
    pub async fn listen(
        &self,
        address: std::net::SocketAddr,
        token: &str,
    ) -> Result<std::net::SocketAddr, ServeError> {
        use parlor_server::data_dir::Tokens;
        use parlor_server::transport::{HttpOptions, Limits, ListenError, Port};

        let tokens = Tokens::only(token).ok_or(ServeError::InvalidToken)?;
        let options =
            HttpOptions { listen: address, allow_remote: false, origins: Vec::new(), hosts: Vec::new() };
        let port = Port::open(&options, tokens, Limits::default()).await.map_err(|error| match error {
            ListenError::Remote(address) => ServeError::RemoteAddress { address },
            ListenError::Listen { error, .. } => ServeError::Listen { address, source: error },
            // Only a server with a data directory has these.
            ListenError::Socket { error: source, .. } => ServeError::Listen { address, source },
            ListenError::Data(error) => ServeError::Listen { address, source: std::io::Error::other(error) },
        })?;
        let address = port.address();
        tokio::spawn(port.serve(Arc::clone(&self.hub), self.stopped.subscribe()));
        Ok(address)
    }

    /// Stops the server: cancels all turns and disconnects all clients. Everything is persisted when this returns.
    pub async fn stop(&self) {
        #[cfg(feature = "listen")]
        self.stopped.send_replace(true);
        self.hub.stop().await;
    }
}

fn options(transport: TransportKind) -> ConnectOptions {
    let cwd = std::env::current_dir().ok();
    ConnectOptions { cwd, ..ConnectOptions::new(transport, ClientRole::Driver) }
}
