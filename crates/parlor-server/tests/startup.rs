//! A server ends the turns that the previous one left running.

use std::sync::Arc;
use std::time::Duration;

use parlor_process::Reaper;
use parlor_server::config::{AgentConfig, Agents, Config};
use parlor_server::hub::{Hub, HubOptions, LIVE_SESSIONS};
use parlor_store::{Batch, Filter, MemoryStore, SessionRow, Store, Write};

/// One more than is read at once at startup.
const BUSY: usize = 10_001;

#[tokio::test]
async fn the_interrupted_turns_of_any_number_of_sessions_are_ended() {
    let store = Arc::new(MemoryStore::default());
    let row = |n: usize| SessionRow {
        id: format!("\"s{n}\""),
        agent: "a".to_owned(),
        agent_session: None,
        cwd: "/".to_owned(),
        title: None,
        parent: None,
        owner: None,
        created_at: 1,
        // Many have the same time of activity.
        active_at: 1 + i64::try_from(n / 100).unwrap(),
        archived: false,
        busy: true,
        data: "{}".to_owned(),
    };
    let writes = (0..BUSY).map(|n| Write::Session(row(n))).collect();
    store.write(Batch { writes, durable: false }, Box::new(Result::unwrap));
    let busy = || {
        let filter = Filter { busy: Some(true), ..Filter::default() };
        store.sessions(&filter, None, 2 * BUSY).unwrap().len()
    };
    assert_eq!(busy(), BUSY);
    let agent = AgentConfig::new("a", vec!["false".to_owned()]);
    let options = HubOptions {
        store: Arc::clone(&store) as Arc<dyn Store>,
        agents: Agents::new(vec![agent], &Config::default()).unwrap(),
        config: None,
        reaper: Reaper::disabled(),
        idle: Duration::from_secs(600),
        live_sessions: LIVE_SESSIONS,
        private: Vec::new(),
    };
    let hub = Hub::new(options).await.unwrap();
    assert_eq!(busy(), 0);
    hub.stop().await;
}
