//! Helpers for several tests.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parlor_process::Reaper;
use parlor_server::config::{Agents, Config};
use parlor_server::hub::{ClientRole, ConnectOptions, Hub, HubOptions, LIVE_SESSIONS, TransportKind};
use parlor_server::transport::streams;
use parlor_store::{MemoryStore, Store};
use tokio::io::DuplexStream;

/// Creates a hub with an in-memory store and without a reaper.
#[allow(dead_code, reason = "each test takes what it needs")]
pub(crate) async fn hub() -> Arc<Hub> {
    hub_with(Arc::new(MemoryStore::default()), &Config::default()).await
}

/// Connects a client to a hub: the client's end of the stream.
#[allow(dead_code, reason = "each test takes what it needs")]
pub(crate) fn connect(hub: &Arc<Hub>, role: ClientRole) -> DuplexStream {
    let (here, there) = tokio::io::duplex(1 << 20);
    let options = ConnectOptions::new(TransportKind::Unix, role);
    let hub = Arc::clone(hub);
    tokio::spawn(async move {
        let (read, write) = tokio::io::split(there);
        let _ = streams(&hub, options, read, write).await;
    });
    here
}

#[allow(dead_code, reason = "each test takes what it needs")]
pub(crate) async fn hub_with(store: Arc<dyn Store>, config: &Config) -> Arc<Hub> {
    let agents = Agents::new(Vec::new(), config).unwrap();
    let reaper = Reaper::start_with(Path::new("cat"), &[]).unwrap();
    let idle = Duration::from_secs(60);
    let (live_sessions, private) = (LIVE_SESSIONS, Vec::new());
    let options = HubOptions { store, agents, config: None, reaper, idle, live_sessions, private };
    Hub::new(options).await.unwrap()
}
