//! Connections of the page to the hub, over streams in memory.

use std::path::PathBuf;
use std::sync::Arc;

use parlor_client::{Client, Connection, Connector, Error, Object, Version};
use parlor_server::browsers::SignedIn;
use parlor_server::hub::{AgentChoice, ClientRole, ConnectOptions, Hub, TransportKind};
use parlor_server::transport;
use parlor_view::browser::browser_name;
use tokio::io::DuplexStream;

use crate::render::text::clean_line;

/// Bytes in memory between a connection of the page and the hub before either waits.
const BUFFER: usize = 256 << 10;

/// The name of connections that do not act for one browser.
pub(super) const PAGE_NAME: &str = "parlor page";

/// A connection of the page to the hub.
#[derive(Debug)]
pub(super) struct HubConnector {
    name: String,
    role: ClientRole,
    wants_clients: bool,
    wants_times: bool,
    agent: Option<String>,
    cwd: Option<PathBuf>,
}

impl HubConnector {
    pub(super) fn new(role: ClientRole) -> Self {
        Self {
            name: PAGE_NAME.to_owned(),
            role,
            wants_clients: false,
            wants_times: false,
            agent: None,
            cwd: None,
        }
    }

    /// Connects as a browser that may act: what it does is recorded under its name.
    pub(super) fn driver(browser: &SignedIn) -> Self {
        Self { name: clean_line(&browser_name(&browser.name)), ..Self::new(ClientRole::Driver) }
    }

    /// Asks when entries were created.
    pub(super) fn with_times(mut self) -> Self {
        self.wants_times = true;
        self
    }

    /// Asks which clients are attached to sessions.
    pub(super) fn with_clients(mut self) -> Self {
        self.wants_clients = true;
        self
    }

    /// Creates sessions with this agent, in this directory.
    pub(super) fn with_agent(mut self, agent: &str, cwd: PathBuf) -> Self {
        self.agent = Some(agent.to_owned()).filter(|agent| !agent.is_empty());
        self.cwd = Some(cwd);
        self
    }

    /// Connects as a client. The first driver of an agent waits for its start; an observer starts no agent.
    pub(super) async fn connect(self, hub: &Arc<Hub>) -> Result<Client, Error> {
        let mut connector = Connector::new(&self.name, env!("CARGO_PKG_VERSION")).only(Version::V2);
        if self.wants_clients {
            connector = connector.with_clients();
        }
        if self.wants_times {
            connector = connector.with_times();
        }
        if self.role == ClientRole::Driver {
            let modes = Object::new().with("form", Object::new()).with("url", Object::new());
            connector = connector.capability("elicitation", modes.to_json());
        }
        let (read, write) = tokio::io::split(self.open(hub));
        connector.over(read, write).await
    }

    /// Connects for calls about the whole server, without `initialize`, so that no agent is started.
    pub(super) fn connection(self, hub: &Arc<Hub>) -> Connection {
        let (read, write) = tokio::io::split(self.open(hub));
        Connection::over(read, write)
    }

    fn open(self, hub: &Arc<Hub>) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(BUFFER);
        let options = ConnectOptions {
            agent: self.agent.map(AgentChoice::Named),
            cwd: self.cwd,
            name: Some(self.name),
            ..ConnectOptions::new(TransportKind::WebSocket, self.role)
        };
        let hub = Arc::clone(hub);
        tokio::spawn(async move {
            let (read, write) = tokio::io::split(theirs);
            if let Err(error) = transport::streams(&hub, options, read, write).await {
                tracing::debug!(%error, "a connection of the page ended");
            }
        });
        ours
    }
}
