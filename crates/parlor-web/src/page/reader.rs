//! A client of the hub that reads sessions for all browsers.

use std::path::Path;
use std::sync::Arc;

use parlor_client::{Client, Connector, Error, Snapshot, Version};
use parlor_server::hub::{Hub, Peer, Role, TransportKind};
use parlor_server::transport;
use parlor_session::SessionId;

use super::session_row::SessionRow;

/// Entries of a session that the page shows first.
const FIRST_ENTRIES: usize = 200;

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

/// The latest entries of a session.
pub(super) struct SessionView {
    pub(super) transcript: Snapshot,
    /// Whether there are entries before them.
    pub(super) has_older: bool,
    /// How many messages there are before them.
    pub(super) older_messages: usize,
}

impl Reader {
    pub(super) fn new(hub: Arc<Hub>) -> Self {
        Self { hub: HubHandle(hub) }
    }

    /// All sessions, the most recently active first.
    pub(super) async fn list(&self) -> Result<Vec<SessionRow>, Error> {
        let client = self.connect().await?;
        let list = client.list_all_agents().await;
        client.disconnect().await;
        Ok(list?.iter().map(SessionRow::new).collect())
    }

    /// A session of the list.
    pub(super) async fn find(&self, id: &SessionId) -> Result<Option<SessionRow>, Error> {
        Ok(self.list().await?.into_iter().find(|row| row.id == *id))
    }

    /// The latest entries of a session.
    pub(super) async fn session(&self, row: &SessionRow) -> Result<SessionView, Error> {
        let client = self.connect().await?;
        let session = client.load_tail(&row.id, Path::new(&row.cwd), FIRST_ENTRIES).await;
        let view = session.map(|session| {
            let older = session.opened().get_nested("_meta", "parlor/olderMessages");
            let older_messages = older.and_then(|count| count.as_u64()).unwrap_or(0);
            SessionView {
                transcript: session.transcript(),
                has_older: session.older_cursor().is_some(),
                older_messages: usize::try_from(older_messages).unwrap_or(0),
            }
        });
        // A connection that ends is no `session/close`, which could cancel a turn.
        client.disconnect().await;
        view
    }

    async fn connect(&self) -> Result<Client, Error> {
        let (ours, theirs) = tokio::io::duplex(BUFFER);
        let peer = Peer {
            transport: TransportKind::WebSocket,
            role: Role::Observer,
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
        Connector::new("parlor page", env!("CARGO_PKG_VERSION")).only(Version::V2).over(read, write).await
    }
}
