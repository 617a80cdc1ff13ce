//! The agents that run, and those that could.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use parlor_dialect::Dialect;
use parlor_json::Object;
use parlor_session::SessionId;
use parlor_store::{Batch, Write};
use parlor_wire::{RpcError, code};
use tokio::sync::Mutex;

use super::{Agent, Lists, Startup, lock, start};
use crate::config::{AgentConfig, Agents, ProcessMode, chosen_env};
use crate::hub::Peer;
use crate::process::Watcher;
use crate::services::access::FileAccess;
use crate::session_thread::SessionThread;
use crate::store::StoreHandle;
use crate::stored::{self, Remembered};

/// The agents of a server.
pub(crate) struct Registry {
    pub(crate) agents: Agents,
    watcher: Watcher,
    store: Arc<StoreHandle>,
    running: Mutex<HashMap<Key, Arc<Mutex<Slot>>>>,
    /// What agents said of themselves, by the key under which it is stored: it is asked for by each client that connects,
    /// who must not wait for a disk.
    /// `None` for an agent of which the store has nothing.
    remembered: std::sync::Mutex<HashMap<String, Option<Remembered>>>,
    /// The sessions that only agents know.
    pub(crate) lists: Arc<Lists>,
    /// Where agents are read and written.
    session_thread: Arc<SessionThread>,
}

/// What tells processes apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    command: Vec<String>,
    /// How it is spoken to, where that was chosen: one process speaks one way.
    speaks: (Option<Dialect>, Option<u16>),
    /// Whether it was told that it is served files.
    files: bool,
    env: Vec<(String, String)>,
    session: Option<SessionId>,
}

impl Key {
    fn new(config: &AgentConfig, peer: Option<&Peer>, session: &SessionId) -> Self {
        let env = chosen_env(config, peer.map_or(&[][..], |peer| &peer.env));
        let session = (config.process == ProcessMode::Session).then(|| session.clone());
        let speaks = (config.dialect, config.version);
        let files = config.fs != FileAccess::Off;
        Self { command: config.command.clone(), speaks, files, env, session }
    }
}

/// The place of one process. Whoever needs it waits for who starts it.
#[derive(Default)]
struct Slot {
    agent: Option<Arc<Agent>>,
    unused_since: Option<Instant>,
    idle: std::time::Duration,
    /// When it could last not be started, and why.
    failed: Option<(Instant, RpcError)>,
}

impl Registry {
    pub(crate) fn new(
        agents: Agents,
        watcher: Watcher,
        store: Arc<StoreHandle>,
        session_thread: Arc<SessionThread>,
    ) -> Self {
        let lists = Arc::new(Lists::new(Arc::clone(&store)));
        Self {
            agents,
            watcher,
            store,
            running: Mutex::default(),
            remembered: std::sync::Mutex::default(),
            lists,
            session_thread,
        }
    }

    pub(crate) fn watcher(&self) -> &Watcher {
        &self.watcher
    }

    /// The agent for a session, started if it does not run.
    pub(crate) async fn get(
        &self,
        config: &AgentConfig,
        peer: Option<&Peer>,
        cwd: &Path,
        session: &SessionId,
        startup: Startup,
    ) -> Result<Arc<Agent>, RpcError> {
        let key = Key::new(config, peer, session);
        let env = key.env.clone();
        let slot = Arc::clone(self.running.lock().await.entry(key).or_default());
        let since = Instant::now();
        let mut slot = slot.lock().await;
        slot.unused_since = None;
        slot.idle = config.idle;
        if let Some(agent) = slot.agent.as_ref().filter(|agent| agent.is_usable()) {
            return Ok(Arc::clone(agent));
        }
        // Who waited while it could not be started need not try it again.
        if let Some((_, error)) = slot.failed.as_ref().filter(|(at, _)| *at >= since) {
            return Err(error.clone());
        }
        let known = self.recall(config).await.map(|known| known.dialect.version());
        // The session's directory may be gone; the agent is told it with the session.
        let home = || std::env::var_os("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from);
        let is_there = tokio::fs::metadata(cwd).await.is_ok_and(|found| found.is_dir());
        let cwd = if is_there { cwd.to_owned() } else { home() };
        let (agent, watcher) = (config.clone(), self.watcher.clone());
        let started = self
            .session_thread
            .spawn(async move { start::start(&agent, &env, &cwd, known, &watcher, startup).await });
        let started = started.await.unwrap_or_else(|_| {
            let message = format!("agent '{}' cannot be started: the server stops", config.label());
            Err(RpcError::new(code::INTERNAL_ERROR, message))
        });
        slot.failed = started.as_ref().err().map(|error| (Instant::now(), error.clone()));
        let agent = started?;
        self.remember(config, &agent);
        slot.agent = Some(Arc::clone(&agent));
        self.lists.refresh(&agent, &stored::key_of(config));
        Ok(agent)
    }

    /// The agent for a session, if it runs. Does not wait for one that is being started.
    pub(crate) async fn get_running(
        &self,
        config: &AgentConfig,
        peer: &Peer,
        session: &SessionId,
    ) -> Option<Arc<Agent>> {
        let key = Key::new(config, Some(peer), session);
        let slot = self.running.lock().await.get(&key).map(Arc::clone)?;
        let mut slot = slot.try_lock().ok()?;
        slot.unused_since = None;
        slot.agent.clone().filter(|agent| agent.is_usable())
    }

    /// Asks an agent that runs which sessions it has, now and then. Nobody waits for the answer.
    pub(crate) async fn refresh_list(&self, config: &AgentConfig) {
        let is_meant =
            |key: &Key| key.command == config.command && key.speaks == (config.dialect, config.version);
        let slots: Vec<_> = {
            let running = self.running.lock().await;
            running.iter().filter(|(key, _)| is_meant(key)).map(|(_, slot)| Arc::clone(slot)).collect()
        };
        for slot in slots {
            let agent = slot.try_lock().ok().and_then(|slot| slot.agent.clone());
            if let Some(agent) = agent.filter(|agent| agent.is_usable()) {
                return self.lists.refresh(&agent, &stored::key_of(config));
            }
        }
    }

    /// What an agent said of itself when it was last started, read from the store when it is asked for the first time.
    pub(crate) async fn recall(&self, config: &AgentConfig) -> Option<Remembered> {
        let key = stored::key_of(config);
        if let Some(known) = lock(&self.remembered).get(&key) {
            return known.clone();
        }
        let wanted = key.clone();
        // A store that cannot be read now is asked again.
        let known = self.store.read(move |store| stored::remembered_by(store, &wanted)).await.ok()?;
        lock(&self.remembered).entry(key).or_insert(known).clone()
    }

    /// The same, if it was [recalled](Self::recall) since the server started: that of a session's agent was when the
    /// session was opened.
    pub(crate) fn remembered(&self, config: &AgentConfig) -> Option<Remembered> {
        lock(&self.remembered).get(&stored::key_of(config)).cloned().flatten()
    }

    fn remember(&self, config: &AgentConfig, agent: &Agent) {
        let mut kept = Object::default();
        kept.set("dialect", agent.about.dialect.name());
        kept.set("info", agent.about.initialize.to_json());
        let value = Some(kept.to_json().as_str().to_owned());
        let key = stored::key_of(config);
        let known = Remembered { dialect: agent.about.dialect, info: agent.about.initialize.clone() };
        lock(&self.remembered).insert(key.clone(), Some(known));
        let batch = Batch { writes: vec![Write::Value { key, value }], durable: false };
        let store = Arc::clone(&self.store);
        // Nobody waits for it.
        tokio::spawn(async move {
            if let Err(error) = store.write(batch).await {
                tracing::warn!(%error, "what the agent said of itself is not remembered");
            }
        });
    }

    /// The agents that run: name, process, sessions.
    pub(crate) async fn running(&self) -> Vec<(String, Option<u32>, usize)> {
        let mut running = Vec::new();
        for slot in self.slots().await {
            if let Ok(slot) = slot.try_lock()
                && let Some(agent) = slot.agent.as_ref().filter(|agent| !agent.is_gone())
            {
                running.push((agent.about.name.clone(), agent.pid(), agent.sessions()));
            }
        }
        running
    }

    async fn slots(&self) -> Vec<Arc<Mutex<Slot>>> {
        self.running.lock().await.values().cloned().collect()
    }

    /// Ends the agents that no session has used for a while.
    pub(crate) async fn release_unused(&self, now: Instant) {
        for slot in self.slots().await {
            let Ok(mut slot) = slot.try_lock() else { continue };
            let Some(agent) = slot.agent.clone() else { continue };
            if !agent.is_unused() && !agent.is_gone() {
                slot.unused_since = None;
                continue;
            }
            let since = *slot.unused_since.get_or_insert(now);
            if agent.is_gone() || now.duration_since(since) >= slot.idle {
                slot.agent = None;
                agent.stop().await;
            }
        }
        // A place that is empty and that nobody waits at need not be kept.
        let is_used = |slot: &Arc<Mutex<Slot>>| {
            Arc::strong_count(slot) > 1 || slot.try_lock().is_ok_and(|slot| slot.agent.is_some())
        };
        self.running.lock().await.retain(|_, slot| is_used(slot));
    }

    /// Ends all agents, at once.
    pub(crate) async fn stop_all(&self) {
        let mut stopping = tokio::task::JoinSet::new();
        for slot in self.slots().await {
            stopping.spawn(async move {
                let agent = slot.lock().await.agent.take();
                if let Some(agent) = agent {
                    agent.stop().await;
                }
            });
        }
        while stopping.join_next().await.is_some() {}
        self.watcher.close().await;
    }
}
