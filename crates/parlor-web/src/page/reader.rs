//! A client of the hub that reads sessions for all browsers.

use std::path::Path;
use std::sync::Arc;

use parlor_client::{Client, Error, Snapshot};
use parlor_server::hub::{Hub, Role};

use super::hub_client::HubConnector;
use super::session_row::SessionRow;

/// Entries of a session that the page shows first.
const FIRST_ENTRIES: usize = 200;

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
        HubConnector::new(Role::Observer).connect(&self.hub.0).await
    }
}
