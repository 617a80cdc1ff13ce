//! The sessions that only agents have, listed in the background so that no client waits for an agent.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use parlor_engine::Capability;
use parlor_json::Object;
use parlor_store::{Batch, SessionRow, Store, StoreError};
use tokio::sync::watch;

use super::Agent;
use crate::agent_sessions;
use crate::lock;
use crate::store::StoreHandle;

/// How many sessions of one agent are cached.
const MAX_SESSIONS: usize = 10_000;

/// How many bytes the sessions of one agent may take, and one of them.
const MAX_BYTES: usize = 8 << 20;
const MAX_ROW: usize = 8 << 10;

/// How many pages an agent is asked for, and how long all of them may take.
const MAX_PAGES: usize = 1000;
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a list is not refreshed.
const MAX_AGE: Duration = Duration::from_secs(10);

/// Caches the sessions that only agents have.
pub(crate) struct AgentSessionCache {
    store: Arc<StoreHandle>,
    /// By [agent key](crate::stored::agent_key).
    agents: Mutex<HashMap<String, CachedList>>,
    /// Held while the stored lists of all agents are read, changed and written.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct CachedList {
    /// In list order; `None` until they were read from the store.
    sessions: Option<Arc<[SessionRow]>>,
    refreshed: Option<Instant>,
    is_refreshing: bool,
}

impl AgentSessionCache {
    pub(crate) fn new(store: Arc<StoreHandle>) -> Self {
        Self { store, agents: Mutex::default(), writing: tokio::sync::Mutex::default() }
    }

    /// The sessions that only this agent has, as far as it has listed them. Blocks as a read of the store does.
    pub(crate) fn of_agent(&self, store: &dyn Store, key: &str) -> Result<Arc<[SessionRow]>, StoreError> {
        if let Some(sessions) = lock(&self.agents).get(key).and_then(|listed| listed.sessions.clone()) {
            return Ok(sessions);
        }
        let stored: Arc<[SessionRow]> = agent_sessions::of_agent(store, key)?.into();
        let mut agents = lock(&self.agents);
        // A list that the agent sent meanwhile is newer.
        Ok(Arc::clone(agents.entry(key.to_owned()).or_default().sessions.get_or_insert(stored)))
    }

    /// Lists an agent's sessions in the background, unless the list is new or being refreshed.
    pub(crate) fn refresh(self: &Arc<Self>, agent: &Arc<Agent>, key: &str) {
        if !agent.info.has(Capability::List) {
            return;
        }
        {
            let mut agents = lock(&self.agents);
            let listed = agents.entry(key.to_owned()).or_default();
            if listed.is_refreshing || listed.refreshed.is_some_and(|refreshed| refreshed.elapsed() < MAX_AGE)
            {
                return;
            }
            listed.is_refreshing = true;
        }
        let (cache, agent, key) = (Arc::clone(self), Arc::clone(agent), key.to_owned());
        tokio::spawn(async move { cache.fetch(&agent, &key).await });
    }

    /// Lists an agent's sessions, and returns those that only the agent has, or the reason why there is no list.
    pub(crate) async fn refresh_now(
        &self,
        agent: &Arc<Agent>,
        key: &str,
    ) -> Result<Arc<[SessionRow]>, &'static str> {
        if !agent.info.has(Capability::List) {
            return Err("does not list its sessions");
        }
        self.fetch(agent, key).await.ok_or("did not list its sessions (see `parlor logs`)")
    }

    async fn fetch(&self, agent: &Arc<Agent>, key: &str) -> Option<Arc<[SessionRow]>> {
        let found = match list(agent, Instant::now() + LIST_TIMEOUT).await {
            Some(rows) => self.store_agent_only(agent, key, rows).await,
            None => None,
        };
        let mut agents = lock(&self.agents);
        let listed = agents.entry(key.to_owned()).or_default();
        listed.is_refreshing = false;
        listed.refreshed = Some(Instant::now());
        match &found {
            Some(rows) => listed.sessions = Some(Arc::clone(rows)),
            None => tracing::debug!(agent = agent.info.name, "the agent did not list its sessions"),
        }
        found
    }

    /// Stores the sessions of a list that the server does not have.
    async fn store_agent_only(
        &self,
        agent: &Arc<Agent>,
        key: &str,
        mut rows: Vec<SessionRow>,
    ) -> Option<Arc<[SessionRow]>> {
        let in_use = agent.session_ids();
        rows.retain(|row| !in_use.contains(row.id.as_str()));
        let _writing = self.writing.lock().await;
        let key = key.to_owned();
        let filtered = self.store.read(move |store| {
            let mut agent_only = Vec::with_capacity(rows.len());
            for row in rows {
                if !agent_sessions::is_stored(store, &row)? {
                    agent_only.push(row);
                }
            }
            agent_sessions::sort(&mut agent_only);
            let writes = agent_sessions::writes(store, &key, &agent_only)?;
            Ok((agent_only, writes))
        });
        let (agent_only, writes) = match filtered.await {
            Ok(filtered) => filtered,
            Err(error) => {
                tracing::warn!(%error, "cannot filter the list of the agent's sessions");
                return None;
            }
        };
        if let Err(error) = self.store.write(Batch { writes, durable: false }).await {
            tracing::warn!(%error, "cannot store the list of the agent's sessions");
        }
        Some(agent_only.into())
    }
}

/// All sessions that an agent lists, up to the limits; `None` if it cannot list them.
pub(super) async fn list(agent: &Agent, until: Instant) -> Option<Vec<SessionRow>> {
    let mut rows = Vec::new();
    // An agent whose cursor is an offset repeats a session if another one is created between two pages.
    let mut seen = HashSet::new();
    let mut bytes = 0;
    let mut params = Object::default();
    for _ in 0..MAX_PAGES {
        let page = agent.call_until("session/list", &params, until).await?;
        let page = page.to_object().unwrap_or_default();
        for info in page.get("sessions")?.elements()? {
            let Some(row) = agent_sessions::row(&agent.info.name, &info.to_object().unwrap_or_default())
            else {
                continue;
            };
            let size =
                row.id.len() * 2 + row.cwd.len() + row.title.as_ref().map_or(0, String::len) + row.data.len();
            let fits = size <= MAX_ROW && bytes + size <= MAX_BYTES && rows.len() < MAX_SESSIONS;
            if fits && seen.insert(row.id.clone()) {
                bytes += size;
                rows.push(row);
            }
        }
        let next = page.get("nextCursor").filter(|next| !next.is_null() && rows.len() < MAX_SESSIONS);
        let Some(next) = next else { break };
        params.set("cursor", next.clone());
    }
    // A session that the server is creating can be distinguished from others only once it is created.
    tokio::time::timeout_at(until.into(), agent.pending_creates.wait_for_earlier()).await.ok()?;
    Some(rows)
}

/// Requests in flight that create sessions at an agent.
#[derive(Debug, Default)]
pub(crate) struct PendingCreates(Arc<watch::Sender<Tickets>>);

#[derive(Debug, Default)]
struct Tickets {
    next: u64,
    open: BTreeSet<u64>,
}

/// A request that creates a session, in flight until this is dropped.
#[derive(Debug)]
pub(crate) struct PendingCreate {
    all: Arc<watch::Sender<Tickets>>,
    ticket: u64,
}

impl PendingCreates {
    pub(crate) fn start(&self) -> PendingCreate {
        let mut ticket = 0;
        self.0.send_modify(|open| {
            ticket = open.next;
            open.next += 1;
            open.open.insert(ticket);
        });
        PendingCreate { all: Arc::clone(&self.0), ticket }
    }

    /// Waits for the requests that started before this call.
    async fn wait_for_earlier(&self) {
        let mut changes = self.0.subscribe();
        let upto = changes.borrow().next;
        let _ = changes.wait_for(|open| open.open.first().is_none_or(|first| *first >= upto)).await;
    }
}

impl Drop for PendingCreate {
    fn drop(&mut self) {
        self.all.send_modify(|open| {
            open.open.remove(&self.ticket);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use parlor_json::Json;
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

    use super::*;
    use crate::session::{Route, next_epoch};

    #[test]
    fn waiting_for_creates_waits_for_earlier_ones_and_not_for_later_ones() {
        let all = PendingCreates::default();
        let first = all.start();
        let mut earlier = pin!(all.wait_for_earlier());
        let mut poll = || earlier.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(poll(), Poll::Pending);
        let second = all.start();
        drop(first);
        assert_eq!(poll(), Poll::Ready(()));
        drop(second);
    }

    /// Creates an agent that answers each request with the next of these pages.
    fn agent(pages: Vec<&'static str>) -> Arc<Agent> {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let ((read, write), (their_read, mut their_write)) =
            (tokio::io::split(ours), tokio::io::split(theirs));
        tokio::spawn(async move {
            let mut requests = BufReader::new(their_read).lines();
            for page in pages {
                let Ok(Some(line)) = requests.next_line().await else { return };
                let id =
                    Json::parse(line).unwrap().to_object().unwrap_or_default().get("id").unwrap().clone();
                let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{page}}}\n", id.as_str());
                their_write.write_all(line.as_bytes()).await.unwrap();
            }
            // It runs until its connection is closed.
            while requests.next_line().await.is_ok_and(|line| line.is_some()) {}
        });
        let sandbox = crate::config::Sandbox::default();
        Agent::new("a", "a", read, write, None, parlor_dialect::Dialect::V2, Object::default(), sandbox)
    }

    fn store() -> Arc<StoreHandle> {
        Arc::new(StoreHandle::new(Arc::new(parlor_store::MemoryStore::default())))
    }

    async fn listed(
        cache: &AgentSessionCache,
        key: &str,
        is_so: impl Fn(&[SessionRow]) -> bool,
    ) -> Vec<String> {
        loop {
            let rows = cache.of_agent(cache.store.inner(), key).unwrap();
            if is_so(&rows) {
                return rows.iter().map(|row| row.id.clone()).collect();
            }
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn all_pages_are_read_and_sessions_of_the_server_are_left_out() {
        let store = store();
        let cache = Arc::new(AgentSessionCache::new(Arc::clone(&store)));
        let agent = agent(vec![
            r#"{"sessions":[{"sessionId":"ours","cwd":"/"},{"sessionId":"old","cwd":"/"}],"nextCursor":"2"}"#,
            r#"{"sessions":[{"sessionId":"old","cwd":"/"},{"sessionId":"new","cwd":"/","updatedAt":"2025-01-01T00:00:00Z"}]}"#,
        ]);
        // The session `ours` is in use and not stored yet.
        let (mailbox, _kept) = tokio::sync::mpsc::channel(1);
        agent.set_route(&"ours".into(), &Route { mailbox, epoch: next_epoch(), is_session: true }).unwrap();
        cache.refresh(&agent, "key");
        let ids = listed(&cache, "key", |rows| !rows.is_empty()).await;
        assert_eq!(ids, [r#""new""#, r#""old""#]);
        // A later server reads them from the store.
        assert_eq!(listed(&AgentSessionCache::new(store), "key", |_| true).await, ids);
    }

    #[tokio::test]
    async fn a_failed_list_leaves_the_last_one() {
        let cache = Arc::new(AgentSessionCache::new(store()));
        let first = agent(vec![r#"{"sessions":[{"sessionId":"old","cwd":"/"}]}"#]);
        cache.refresh(&first, "key");
        listed(&cache, "key", |rows| rows.len() == 1).await;
        lock(&cache.agents).get_mut("key").unwrap().refreshed = None;
        cache.refresh(&agent(vec![r#"{"sessions":7}"#]), "key");
        while lock(&cache.agents)["key"].refreshed.is_none() {
            tokio::task::yield_now().await;
        }
        assert_eq!(listed(&cache, "key", |_| true).await, [r#""old""#]);
    }
}
