//! What several tests share.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parlor_server::config::{Agents, Config};
use parlor_server::hub::{Hub, LIVE_SESSIONS, Options};
use parlor_server::process::Watcher;
use parlor_store::{MemoryStore, Store};

/// A hub that keeps nothing. There is nobody to end agents for it should this process be killed.
#[allow(dead_code, reason = "each test takes what it needs")]
pub(crate) async fn hub() -> Arc<Hub> {
    hub_with(Arc::new(MemoryStore::default()), &Config::default()).await
}

pub(crate) async fn hub_with(store: Arc<dyn Store>, config: &Config) -> Arc<Hub> {
    let agents = Agents::new(Vec::new(), config).unwrap();
    let watcher = Watcher::start_with(Path::new("cat"), &[]).unwrap();
    let idle = Duration::from_secs(60);
    let options = Options { store, agents, watcher, idle, live_sessions: LIVE_SESSIONS, private: Vec::new() };
    Hub::new(options).await.unwrap()
}
