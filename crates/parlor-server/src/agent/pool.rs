//! The agents of a server: starts, shares and stops their processes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use parlor_dialect::Dialect;
use parlor_engine::CachedAgentInfo;
use parlor_json::Object;
use parlor_session::SessionId;
use parlor_store::{Batch, Write};
use parlor_wire::{RpcError, code};
use tokio::sync::Mutex;
use tokio::task::{JoinSet, spawn_blocking};

use super::{Agent, AgentSessionCache, LoginStates, Startup, start};
use crate::config::{AgentConfig, Agents, ProcessMode, Sandbox, chosen_env};
use crate::hub::{ConnectOptions, RequestingClient};
use crate::lock;
use crate::services::access::FileAccess;
use crate::session_thread::SessionThread;
use crate::store::StoreHandle;
use crate::stored;
use parlor_process::Reaper;

/// Starts agents on demand and stops idle ones.
pub(crate) struct AgentPool {
    agents: RwLock<Arc<Agents>>,
    reaper: Reaper,
    store: Arc<StoreHandle>,
    running: Mutex<HashMap<Key, Arc<Mutex<Slot>>>>,
    /// The responses of agents to `initialize`, by [agent key](stored::agent_key), so that clients that connect need not wait
    /// for a disk; `None` if the store has none.
    agent_info: std::sync::Mutex<HashMap<String, Option<CachedAgentInfo>>>,
    pub(crate) session_cache: Arc<AgentSessionCache>,
    logins: Arc<LoginStates>,
    /// Reads and writes the streams of agents.
    session_thread: Arc<SessionThread>,
}

/// Sessions with equal keys share a process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    command: Vec<String>,
    sandbox: Sandbox,
    /// The configured dialect and version.
    protocol: (Option<Dialect>, Option<u16>),
    /// Whether the server offers it files.
    files: bool,
    env: Vec<(String, String)>,
    session: Option<SessionId>,
}

impl Key {
    fn new(config: &AgentConfig, options: Option<&ConnectOptions>, session: &SessionId) -> Self {
        let env = chosen_env(config, options.map_or(&[][..], |options| &options.env));
        let session = (config.process == ProcessMode::Session).then(|| session.clone());
        let protocol = (config.dialect, config.version);
        let files = config.fs != FileAccess::Off;
        let (command, sandbox) = (config.command.clone(), config.sandbox.clone());
        Self { command, sandbox, protocol, files, env, session }
    }
}

/// A process of an agent.
pub(crate) struct RunningAgent {
    pub(crate) name: String,
    pub(crate) pid: Option<u32>,
    /// How many sessions use it.
    pub(crate) sessions: usize,
    /// The program that was started.
    pub(crate) program: String,
}

/// One process, locked while it is being started.
#[derive(Default)]
struct Slot {
    agent: Option<Arc<Agent>>,
    unused_since: Option<Instant>,
    idle: std::time::Duration,
    /// The time and error of the last start, if it failed.
    failed: Option<(Instant, RpcError)>,
}

impl AgentPool {
    pub(crate) fn new(
        agents: Agents,
        reaper: Reaper,
        store: Arc<StoreHandle>,
        session_thread: Arc<SessionThread>,
    ) -> Self {
        let session_cache = Arc::new(AgentSessionCache::new(Arc::clone(&store)));
        let logins = Arc::new(LoginStates::new(Arc::clone(&store)));
        Self {
            agents: RwLock::new(Arc::new(agents)),
            reaper,
            store,
            running: Mutex::default(),
            agent_info: std::sync::Mutex::default(),
            session_cache,
            logins,
            session_thread,
        }
    }

    /// The agents that clients can choose now.
    pub(crate) fn agents(&self) -> Arc<Agents> {
        Arc::clone(&self.agents.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads what depends on the programs on the disk, such as the default agent, on a blocking thread.
    pub(crate) async fn inspect<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Arc<Agents>) -> T + Send + 'static,
    ) -> Result<T, RpcError> {
        let agents = self.agents();
        let read = spawn_blocking(move || read(&agents)).await;
        read.map_err(|error| RpcError::new(code::INTERNAL_ERROR, format!("cannot look for agents: {error}")))
    }

    /// Replaces the agents that clients can choose. Processes that run keep running for the sessions that use them.
    pub(crate) fn set_agents(&self, agents: Agents) {
        *self.agents.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(agents);
    }

    pub(crate) fn reaper(&self) -> &Reaper {
        &self.reaper
    }

    /// The agent for a session, started if it does not run.
    pub(crate) async fn get(
        &self,
        config: &AgentConfig,
        client: Option<&RequestingClient>,
        cwd: &Path,
        session: &SessionId,
        startup: Startup,
    ) -> Result<Arc<Agent>, RpcError> {
        let key = Key::new(config, client.map(|client| &*client.options), session);
        let env = key.env.clone();
        // Other clients use a process that is shared, and the one that is started only to know the agent's capabilities.
        let is_own = key.session.as_ref().is_some_and(|session| *session != SessionId::from(""));
        let meta = client.filter(|_| is_own).map(|client| client.initialize_meta.clone()).unwrap_or_default();
        let slot = Arc::clone(self.running.lock().await.entry(key).or_default());
        let since = Instant::now();
        let mut slot = slot.lock().await;
        slot.unused_since = None;
        slot.idle = config.idle;
        if let Some(agent) = slot.agent.as_ref().filter(|agent| agent.is_usable()) {
            return Ok(Arc::clone(agent));
        }
        // Callers that waited for a failed start do not start it again.
        if let Some((_, error)) = slot.failed.as_ref().filter(|(at, _)| *at >= since) {
            return Err(error.clone());
        }
        let known = self.load_agent_info(config).await;
        // The working directory may not exist any more; the agent gets it with the session, too.
        let home = || std::env::var_os("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from);
        let exists = tokio::fs::metadata(cwd).await.is_ok_and(|found| found.is_dir());
        let cwd = if exists { cwd.to_owned() } else { home() };
        let (agent, reaper) = (config.clone(), self.reaper.clone());
        let started = self.session_thread.spawn(async move {
            start::start(&agent, &env, &cwd, &meta, known.as_ref(), &reaper, startup).await
        });
        let started = started.await.unwrap_or_else(|_| {
            let message = format!("cannot start agent '{}': the server is stopping", config.label());
            Err(RpcError::new(code::INTERNAL_ERROR, message))
        });
        slot.failed = started.as_ref().err().map(|error| (Instant::now(), error.clone()));
        let agent = started?;
        self.store_agent_info(config, &agent);
        agent.record_login(&self.logins, stored::agent_key(config));
        slot.agent = Some(Arc::clone(&agent));
        self.session_cache.refresh(&agent, &stored::agent_key(config));
        Ok(agent)
    }

    /// The agent for a session, if it is running. Does not wait for one that is being started.
    pub(crate) async fn get_running(
        &self,
        config: &AgentConfig,
        options: &ConnectOptions,
        session: &SessionId,
    ) -> Option<Arc<Agent>> {
        let key = Key::new(config, Some(options), session);
        let slot = self.running.lock().await.get(&key).map(Arc::clone)?;
        let mut slot = slot.try_lock().ok()?;
        slot.unused_since = None;
        slot.agent.clone().filter(|agent| agent.is_usable())
    }

    /// The slots of an agent, in all environments.
    async fn slots_of(&self, config: &AgentConfig) -> Vec<Arc<Mutex<Slot>>> {
        let is_match = |key: &Key| {
            let is_same = key.command == config.command && key.sandbox == config.sandbox;
            is_same && key.protocol == (config.dialect, config.version)
        };
        let running = self.running.lock().await;
        running.iter().filter(|(key, _)| is_match(key)).map(|(_, slot)| Arc::clone(slot)).collect()
    }

    /// Whether a person is logged in to an agent, if it is known.
    pub(crate) async fn login_state(&self, config: &AgentConfig) -> Option<bool> {
        self.logins.get(&stored::agent_key(config)).await
    }

    /// Stops the processes of an agent that may not know of a login: those that required one, and those that no session uses.
    /// Their sessions are restored by the next prompt. A process with calls in flight gets no more sessions. `keep` is the process that carried out the login itself.
    pub(crate) async fn stop_logged_out(&self, config: &AgentConfig, keep: Option<&Arc<Agent>>) {
        for slot in self.slots_of(config).await {
            let Ok(mut slot) = slot.try_lock() else { continue };
            let is_kept = |agent: &Arc<Agent>| keep.is_some_and(|keep| Arc::ptr_eq(keep, agent));
            let Some(agent) = slot.agent.clone().filter(|agent| !is_kept(agent)) else { continue };
            if agent.has_calls() {
                agent.retire();
            } else if agent.requires_login() || agent.is_unused() {
                slot.agent = None;
                tokio::spawn(async move { agent.stop().await });
            }
        }
    }

    /// Stops all processes of an agent, also those that sessions use: the next prompt of such a session starts another one. Returns how
    /// many there were. One that is being started is not stopped.
    pub(crate) async fn stop_agent(&self, name: &str) -> usize {
        let mut stopping = JoinSet::new();
        for slot in self.slots().await {
            let Ok(mut slot) = slot.try_lock_owned() else { continue };
            if let Some(agent) = slot.agent.take_if(|agent| agent.info.name == name && !agent.is_gone()) {
                // The slot stays locked until the process has ended, so that another one does not start beside it.
                stopping.spawn(async move {
                    agent.stop().await;
                    drop(slot);
                });
            }
        }
        stopping.join_all().await.len()
    }

    /// Refreshes the cached session list of an agent that is running, in the background.
    pub(crate) async fn refresh_list(&self, config: &AgentConfig) {
        for slot in self.slots_of(config).await {
            let agent = slot.try_lock().ok().and_then(|slot| slot.agent.clone());
            if let Some(agent) = agent.filter(|agent| agent.is_usable()) {
                return self.session_cache.refresh(&agent, &stored::agent_key(config));
            }
        }
    }

    /// The agent's last response to `initialize`, read from the store the first time.
    pub(crate) async fn load_agent_info(&self, config: &AgentConfig) -> Option<CachedAgentInfo> {
        let key = stored::agent_key(config);
        if let Some(known) = lock(&self.agent_info).get(&key) {
            return known.clone();
        }
        let wanted = key.clone();
        // A failed read is repeated by the next call.
        let known =
            self.store.read(move |store| stored::cached_agent_info_by_key(store, &wanted)).await.ok()?;
        lock(&self.agent_info).entry(key).or_insert(known).clone()
    }

    /// The agent's last response to `initialize`, if it was [loaded](Self::load_agent_info), as that of a session's agent is
    /// when the session is opened.
    pub(crate) fn cached_agent_info(&self, config: &AgentConfig) -> Option<CachedAgentInfo> {
        lock(&self.agent_info).get(&stored::agent_key(config)).cloned().flatten()
    }

    fn store_agent_info(&self, config: &AgentConfig, agent: &Agent) {
        let mut info = Object::default();
        info.set("dialect", agent.info.dialect.name());
        info.set("info", agent.info.initialize.to_json());
        let value = Some(info.text());
        let key = stored::agent_key(config);
        let known =
            CachedAgentInfo { dialect: agent.info.dialect, initialize: agent.info.initialize.clone() };
        lock(&self.agent_info).insert(key.clone(), Some(known));
        let batch = Batch { writes: vec![Write::Value { key, value }], durable: false };
        let store = Arc::clone(&self.store);
        // Written in the background.
        tokio::spawn(async move {
            if let Err(error) = store.write(batch).await {
                tracing::warn!(%error, "cannot store the agent's response to initialize");
            }
        });
    }

    /// The running agents.
    pub(crate) async fn running(&self) -> Vec<RunningAgent> {
        let slots = self.running.lock().await;
        let slots: Vec<_> =
            slots.iter().map(|(key, slot)| (key.command.first().cloned(), Arc::clone(slot))).collect();
        let mut running = Vec::new();
        for (program, slot) in slots {
            if let Ok(slot) = slot.try_lock()
                && let Some(agent) = slot.agent.as_ref().filter(|agent| !agent.is_gone())
            {
                let (name, pid, sessions) = (agent.info.name.clone(), agent.pid(), agent.sessions());
                running.push(RunningAgent { name, pid, sessions, program: program.unwrap_or_default() });
            }
        }
        running
    }

    async fn slots(&self) -> Vec<Arc<Mutex<Slot>>> {
        self.running.lock().await.values().cloned().collect()
    }

    /// Stops the agents that no session has used for their idle timeout.
    pub(crate) async fn stop_idle(&self, now: Instant) {
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
        // Removes slots without a process that no caller waits for.
        let is_used = |slot: &Arc<Mutex<Slot>>| {
            Arc::strong_count(slot) > 1 || slot.try_lock().is_ok_and(|slot| slot.agent.is_some())
        };
        self.running.lock().await.retain(|_, slot| is_used(slot));
    }

    /// Stops all agents in parallel.
    pub(crate) async fn stop_all(&self) {
        let mut stopping = JoinSet::new();
        for slot in self.slots().await {
            stopping.spawn(async move {
                let agent = slot.lock().await.agent.take();
                if let Some(agent) = agent {
                    agent.stop().await;
                }
            });
        }
        while stopping.join_next().await.is_some() {}
        self.reaper.close().await;
    }
}
