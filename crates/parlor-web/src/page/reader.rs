//! A client of the hub that reads sessions for all browsers.

use std::sync::Arc;

use parlor_client::{Client, Connector, Error, Json, Object, Version};
use parlor_server::hub::{Hub, Peer, Role, TransportKind};
use parlor_server::transport;
use parlor_session::SessionId;

use super::session_row::SessionRow;

/// Bytes in memory between the reader and the hub before either waits.
const BUFFER: usize = 256 << 10;

/// Reads sessions. It observes only: the hub sends it no requests of agents, and it starts no agent.
#[derive(Debug)]
pub(super) struct Reader {
    hub: HubHandle,
}

struct HubHandle(Arc<Hub>);

impl std::fmt::Debug for HubHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hub")
    }
}

impl Reader {
    pub(super) fn new(hub: Arc<Hub>) -> Self {
        Self { hub: HubHandle(hub) }
    }

    /// All sessions, the most recently active first.
    pub(super) async fn list(&self) -> Result<Vec<SessionRow>, Error> {
        let client = self.connect(Role::Observer).await?;
        let list = client.list_all_agents().await;
        client.disconnect().await;
        Ok(list?.iter().map(SessionRow::new).collect())
    }

    /// A session of the list.
    pub(super) async fn find(&self, id: &SessionId) -> Result<Option<SessionRow>, Error> {
        Ok(self.list().await?.into_iter().find(|row| row.id == *id))
    }

    /// The names of the configured agents, the default one first.
    pub(super) async fn agents(&self) -> Result<Vec<String>, Error> {
        let client = self.connect(Role::Observer).await?;
        let agents = client.call("_parlor/agents", &Object::default()).await;
        client.disconnect().await;
        let agents = agents?;
        let agents = agents.get_array("agents").unwrap_or_default();
        let mut agents: Vec<(bool, String)> = agents
            .into_iter()
            .filter_map(|agent| {
                let agent = agent.to_object()?;
                Some((agent.get_bool("default") != Some(true), agent.get_string("name")?))
            })
            .collect();
        agents.sort_by_key(|(is_other, _)| *is_other);
        Ok(agents.into_iter().map(|(_, name)| name).collect())
    }

    /// Connects to the hub. The client of a driver shows forms and links of agents.
    pub(super) async fn connect(&self, role: Role) -> Result<Client, Error> {
        let (ours, theirs) = tokio::io::duplex(BUFFER);
        let peer = Peer {
            transport: TransportKind::WebSocket,
            role,
            agent: None,
            dialect: None,
            env: Vec::new(),
            cwd: None,
        };
        let hub = Arc::clone(&self.hub.0);
        tokio::spawn(async move {
            let (read, write) = tokio::io::split(theirs);
            if let Err(error) = transport::streams(&hub, peer, read, write).await {
                tracing::debug!(%error, "a connection of the page ended");
            }
        });
        let (read, write) = tokio::io::split(ours);
        let mut connector = Connector::new("parlor page", env!("CARGO_PKG_VERSION")).only(Version::V2);
        if role == Role::Driver {
            let modes = Json::parse(r#"{"form":{},"url":{}}"#).expect("it is JSON");
            connector = connector.capability("elicitation", modes);
        }
        connector.over(read, write).await
    }
}
