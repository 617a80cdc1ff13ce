//! Which sessions an agent has that are not kept here, found out in the background: nobody ever waits for it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use parlor_engine::Capability;
use parlor_json::Object;
use parlor_store::{Batch, SessionRow, Store, StoreError};
use tokio::sync::watch;

use super::{Agent, lock};
use crate::json;
use crate::known;
use crate::store::StoreHandle;

/// How many sessions of one agent are listed.
const MAX_SESSIONS: usize = 10_000;

/// How much of them is kept, as text, and of one of them.
const MAX_BYTES: usize = 8 << 20;
const MAX_ROW: usize = 8 << 10;

/// How many pages an agent is asked for, and how long it may take to tell all of them.
const MAX_PAGES: usize = 1000;
const PATIENCE: Duration = Duration::from_secs(30);

/// For how long a list counts as new.
const FRESH: Duration = Duration::from_secs(10);

/// The sessions that only agents know.
pub(crate) struct Lists {
    store: Arc<StoreHandle>,
    /// By what an agent is remembered by.
    agents: Mutex<HashMap<String, Listed>>,
    /// Held by who writes: what is kept of all agents is read, changed and written again.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Listed {
    /// In the order of lists; `None` before the store was looked into.
    sessions: Option<Arc<[SessionRow]>>,
    /// When the agent was last asked.
    asked: Option<Instant>,
    /// Whether it is being asked.
    asking: bool,
}

impl Lists {
    pub(crate) fn new(store: Arc<StoreHandle>) -> Self {
        Self { store, agents: Mutex::default(), writing: tokio::sync::Mutex::default() }
    }

    /// The sessions that only this agent knows, as far as that was found out. This is part of a read of the store.
    pub(crate) fn of_agent(&self, store: &dyn Store, key: &str) -> Result<Arc<[SessionRow]>, StoreError> {
        if let Some(sessions) = lock(&self.agents).get(key).and_then(|listed| listed.sessions.clone()) {
            return Ok(sessions);
        }
        let kept: Arc<[SessionRow]> = known::of_agent(store, key)?.into();
        let mut agents = lock(&self.agents);
        // What was found out meanwhile is newer.
        Ok(Arc::clone(agents.entry(key.to_owned()).or_default().sessions.get_or_insert(kept)))
    }

    /// Asks an agent for its sessions, unless that was done just now or is being done.
    pub(crate) fn refresh(self: &Arc<Self>, agent: &Arc<Agent>, key: &str) {
        if !agent.about.has(Capability::List) {
            return;
        }
        {
            let mut agents = lock(&self.agents);
            let listed = agents.entry(key.to_owned()).or_default();
            if listed.asking || listed.asked.is_some_and(|asked| asked.elapsed() < FRESH) {
                return;
            }
            listed.asking = true;
        }
        let (lists, agent, key) = (Arc::clone(self), Arc::clone(agent), key.to_owned());
        tokio::spawn(async move {
            let found = match ask(&agent, Instant::now() + PATIENCE).await {
                Some(rows) => lists.keep(&agent, &key, rows).await,
                None => None,
            };
            let mut agents = lock(&lists.agents);
            let listed = agents.entry(key).or_default();
            listed.asking = false;
            listed.asked = Some(Instant::now());
            match found {
                Some(rows) => listed.sessions = Some(rows),
                None => tracing::debug!(agent = agent.about.name, "the agent does not list its sessions"),
            }
        });
    }

    /// Leaves out the sessions that are kept here and stores the rest.
    async fn keep(
        &self,
        agent: &Arc<Agent>,
        key: &str,
        mut rows: Vec<SessionRow>,
    ) -> Option<Arc<[SessionRow]>> {
        let linked = agent.linked();
        rows.retain(|row| !linked.contains(row.id.as_str()));
        let _writing = self.writing.lock().await;
        let key = key.to_owned();
        let looked = self.store.read(move |store| {
            let mut foreign = Vec::with_capacity(rows.len());
            for row in rows {
                if !known::is_kept(store, &row)? {
                    foreign.push(row);
                }
            }
            known::sort(&mut foreign);
            let writes = known::writes(store, &key, &foreign)?;
            Ok((foreign, writes))
        });
        let (foreign, writes) = match looked.await {
            Ok(looked) => looked,
            Err(error) => {
                tracing::warn!(%error, "the agent's sessions cannot be kept");
                return None;
            }
        };
        if let Err(error) = self.store.write(Batch { writes, durable: false }).await {
            tracing::warn!(%error, "the agent's sessions are not kept");
        }
        Some(foreign.into())
    }
}

/// All sessions that an agent has, as far as there is room; `None` if it does not say.
pub(super) async fn ask(agent: &Agent, until: Instant) -> Option<Vec<SessionRow>> {
    let mut rows = Vec::new();
    // Where an agent counts places, a session that begins between two pages makes it list another one twice.
    let mut seen = HashSet::new();
    let mut bytes = 0;
    let mut params = Object::default();
    for _ in 0..MAX_PAGES {
        let page = agent.call_until("session/list", &params, until).await.ok()?;
        let page = page.to_object().unwrap_or_default();
        for info in page.get_array("sessions")? {
            let Some(row) = known::row(&agent.about.name, &json::object(Some(info))) else { continue };
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
    // A session that was begun from here is known as such once its beginning is over.
    tokio::time::timeout_at(until.into(), agent.beginnings.settled()).await.ok()?;
    Some(rows)
}

/// Sessions that are being begun at an agent. Until that is over, nobody can tell whose they are.
#[derive(Debug, Default)]
pub(crate) struct Beginnings(Arc<watch::Sender<Open>>);

#[derive(Debug, Default)]
struct Open {
    next: u64,
    open: BTreeSet<u64>,
}

/// A session on its way; the beginning is over when this is dropped.
#[derive(Debug)]
pub(crate) struct Beginning {
    all: Arc<watch::Sender<Open>>,
    ticket: u64,
}

impl Beginnings {
    pub(crate) fn begin(&self) -> Beginning {
        let mut ticket = 0;
        self.0.send_modify(|open| {
            ticket = open.next;
            open.next += 1;
            open.open.insert(ticket);
        });
        Beginning { all: Arc::clone(&self.0), ticket }
    }

    /// Waits until all that began before now is over.
    async fn settled(&self) {
        let mut changes = self.0.subscribe();
        let upto = changes.borrow().next;
        let _ = changes.wait_for(|open| open.open.first().is_none_or(|first| *first >= upto)).await;
    }
}

impl Drop for Beginning {
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

    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

    use super::*;
    use crate::session::{Link, next_epoch};

    #[test]
    fn who_waits_for_beginnings_waits_for_those_before_and_not_for_those_after() {
        let all = Beginnings::default();
        let first = all.begin();
        let mut settled = pin!(all.settled());
        let mut poll = || settled.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(poll(), Poll::Pending);
        let second = all.begin();
        drop(first);
        assert_eq!(poll(), Poll::Ready(()));
        drop(second);
    }

    /// An agent that answers each request with the next of these pages.
    fn agent(pages: Vec<&'static str>) -> Arc<Agent> {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let ((read, write), (their_read, mut their_write)) =
            (tokio::io::split(ours), tokio::io::split(theirs));
        tokio::spawn(async move {
            let mut asked = BufReader::new(their_read).lines();
            for page in pages {
                let Ok(Some(line)) = asked.next_line().await else { return };
                let id = json::object(Some(json::json(line).raw())).get("id").unwrap().clone();
                let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{page}}}\n", id.as_str());
                their_write.write_all(line.as_bytes()).await.unwrap();
            }
            // It stays until it is not needed any more.
            while asked.next_line().await.is_ok_and(|line| line.is_some()) {}
        });
        Agent::over("a", "a", read, write, None, |_| (parlor_dialect::Dialect::V2, Object::default()))
    }

    fn store() -> Arc<StoreHandle> {
        Arc::new(StoreHandle::new(Arc::new(parlor_store::MemoryStore::default())))
    }

    async fn listed(lists: &Lists, key: &str, is_so: impl Fn(&[SessionRow]) -> bool) -> Vec<String> {
        loop {
            let rows = lists.of_agent(lists.store.inner(), key).unwrap();
            if is_so(&rows) {
                return rows.iter().map(|row| row.id.clone()).collect();
            }
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn all_pages_are_read_and_what_is_ours_is_left_out() {
        let store = store();
        let lists = Arc::new(Lists::new(Arc::clone(&store)));
        let agent = agent(vec![
            r#"{"sessions":[{"sessionId":"ours","cwd":"/"},{"sessionId":"old","cwd":"/"}],"nextCursor":"2"}"#,
            r#"{"sessions":[{"sessionId":"old","cwd":"/"},{"sessionId":"new","cwd":"/","updatedAt":"2025-01-01T00:00:00Z"}]}"#,
        ]);
        // It is not stored yet, but a session has it.
        let (inbox, _kept) = tokio::sync::mpsc::channel(1);
        agent.link(&"ours".into(), &Link { inbox, epoch: next_epoch(), is_session: true }).unwrap();
        lists.refresh(&agent, "key");
        let ids = listed(&lists, "key", |rows| !rows.is_empty()).await;
        assert_eq!(ids, [r#""new""#, r#""old""#]);
        // Another server finds them in the store.
        assert_eq!(listed(&Lists::new(store), "key", |_| true).await, ids);
    }

    #[tokio::test]
    async fn an_agent_that_fails_leaves_the_last_list() {
        let lists = Arc::new(Lists::new(store()));
        let first = agent(vec![r#"{"sessions":[{"sessionId":"old","cwd":"/"}]}"#]);
        lists.refresh(&first, "key");
        listed(&lists, "key", |rows| rows.len() == 1).await;
        lock(&lists.agents).get_mut("key").unwrap().asked = None;
        lists.refresh(&agent(vec![r#"{"sessions":7}"#]), "key");
        while lock(&lists.agents)["key"].asked.is_none() {
            tokio::task::yield_now().await;
        }
        assert_eq!(listed(&lists, "key", |_| true).await, [r#""old""#]);
    }
}
