//! Starts the tasks of sessions, new or stored, and binds them to agent sessions.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parlor_dialect::settings::Settings;
use parlor_engine::opening::AgentSession;
use parlor_engine::{
    AgentEvent, AgentLink, AgentSessionEnd, EndCall, Event, IdGen, Now, OpenedAgent, QueueLimits,
    SessionConfig, SessionLookup, SessionMachine,
};
use parlor_json::{JsonStr, Object};
use parlor_session::UnixMillis;
use parlor_store::SessionRow;
use parlor_wire::RpcError;
use tokio::sync::mpsc;
use tracing::Instrument as _;

use super::restore::restore;
use super::task::SessionTask;
use super::{MAILBOX, Mailbox, Route, SessionMessage, now};
use crate::agent::{BoundAgent, History, Startup, UnroutedMessages};
use crate::hub::HubState;
use crate::stored::StoredSession;

/// Starts the task of a session. A new session has an `agent`, and an adopted one also the updates that the agent replayed.
pub(crate) fn start(
    hub: Arc<HubState>,
    stored: StoredSession,
    agent: Option<BoundAgent>,
    replay: Option<Vec<String>>,
) -> Mailbox {
    let (me, mailbox) = mpsc::channel(MAILBOX);
    let mut memory = hub.memory().track_session();
    memory.set(stored.transcript.memory());
    let config = config_of(&hub, &stored.row);
    let now = Now { monotonic: Duration::ZERO, wall: UnixMillis(now()) };
    let ids = IdGen::new(|| uuid::Uuid::new_v4().as_u128());
    let mut task = SessionTask {
        hub,
        machine: SessionMachine::new(stored, config, ids, now),
        mailbox,
        me: me.clone(),
        pending: VecDeque::new(),
        started: Instant::now(),
        clients: HashMap::new(),
        forking: Vec::new(),
        requests: HashMap::new(),
        agent_sessions: HashMap::new(),
        sent_prompts: HashMap::new(),
        sent_calls: HashMap::new(),
        terminals: None,
        file_requests: HashMap::new(),
        relays: HashMap::new(),
        next_relay: 0,
        readers: Vec::new(),
        stopping: Vec::new(),
        memory,
    };
    // From here on the agent's messages are routed to the session.
    let linked = agent.as_ref().map(|bound| task.replace_route(bound));
    let hub = Arc::clone(&task.hub);
    let row = task.machine.row();
    // It is entered once per poll of the task, which handles a whole batch. It is no part of the span of the connection or agent
    // that has the session opened.
    let span = tracing::info_span!(parent: None, "session", session = %task.machine.id(), agent = row.agent);
    let running = async move {
        let mut first = Vec::new();
        if let Some(bound) = agent {
            let agent = Box::new(task.bind(bound).await);
            let epoch = agent.link.epoch;
            first.push(Event::Started { agent, replay });
            if let Some(Err(error)) = linked {
                first.push(Event::Agent(epoch, AgentEvent::Gone(error)));
            }
        }
        Box::pin(task.run(first)).await;
    };
    hub.session_thread().spawn(running.instrument(span));
    me
}

/// The configuration of a session, from that of its agent.
fn config_of(hub: &HubState, row: &SessionRow) -> SessionConfig {
    let agent = hub.config_of(row);
    SessionConfig {
        cancel_timeout: agent.as_ref().map(|agent| agent.cancel_timeout),
        is_embedded: agent.is_some_and(|agent| agent.embedded.is_some()),
        limits: QueueLimits::default(),
    }
}

impl SessionTask {
    /// Binds the session to the restored agent session, or reports the error.
    pub(super) async fn on_agent_ready(
        &mut self,
        restored: Result<BoundAgent, RpcError>,
        events: &mut Vec<Event>,
    ) {
        let bound = match restored {
            Ok(bound) => bound,
            Err(error) => return events.push(Event::AgentReady(Err(error))),
        };
        let linked = self.replace_route(&bound);
        let opened = self.bind(bound).await;
        let epoch = opened.link.epoch;
        events.push(Event::AgentReady(Ok(Box::new(opened))));
        if let Err(error) = linked {
            events.push(Event::Agent(epoch, AgentEvent::Gone(error)));
        }
    }

    /// Routes the agent's messages to the session.
    fn replace_route(&self, bound: &BoundAgent) -> Result<(), RpcError> {
        let guard = &bound.guard;
        let route = Route { mailbox: self.me.clone(), epoch: guard.epoch, is_session: true };
        guard.agent.replace_route(&guard.session, &route)
    }

    /// Binds the session to an agent session, and collects the early messages.
    async fn bind(&mut self, bound: BoundAgent) -> OpenedAgent {
        let BoundAgent { guard, session, early } = bound;
        let AgentSession { result, settings, refused, without_history, lost, .. } = session;
        let agent = Arc::clone(&guard.agent);
        agent.set_our_session(&guard.session, self.machine.id());
        let lookup = Arc::clone(&agent);
        let link = AgentLink {
            epoch: guard.epoch,
            agent: Arc::clone(&agent.info),
            session: guard.session.clone(),
            sessions: SessionLookup::new(move |id| lookup.our_session(id)),
        };
        self.agent_sessions.insert(guard.epoch, guard);
        let UnroutedMessages { kept, mut messages } = early;
        let mut early = Vec::new();
        let mut add = |message| {
            if let SessionMessage::Agent(epoch, message) = message {
                early.extend(self.agent_event(epoch, message));
            }
        };
        kept.into_iter().for_each(&mut add);
        messages.close();
        while let Some(message) = messages.recv().await {
            add(message);
        }
        OpenedAgent { link, without_history, lost, result, settings, refused, early }
    }

    /// Restores the agent session in a task of its own.
    pub(super) fn spawn_restore(&self) {
        let (hub, row, me) = (Arc::clone(&self.hub), self.machine.row().clone(), self.me.clone());
        let id = self.machine.id().clone();
        let in_force = Settings::of(self.machine.transcript());
        // An agent that never had the session replays nothing.
        let known = row.agent_session.as_ref();
        let history = known.map(|_| History::of(self.machine.session())).unwrap_or_default();
        tokio::spawn(async move {
            let restored = restore(&hub, &row, &id, &in_force, &history).await;
            // If the session has ended, dropping the guard releases the agent session.
            let _ = me.send(SessionMessage::AgentReady(Box::new(restored))).await;
        });
    }

    /// Has the agent delete a deleted session that it does not have open, if it can.
    pub(super) fn delete_at_agent(&self) {
        let (hub, row, id) = (Arc::clone(&self.hub), self.machine.row().clone(), self.machine.id().clone());
        let agents =
            row.agent_session.as_deref().and_then(JsonStr::from_literal).map(parlor_session::SessionId::from);
        let (Some(config), Some(agents)) = (hub.config_of(&row), agents) else { return };
        let known = hub.agent_pool().cached_agent_info(&config);
        let call =
            known.and_then(|known| AgentSessionEnd::Discard.call(known.dialect, &known.initialize, false));
        if call != Some(EndCall::Delete) {
            return;
        }
        let client = hub.requesting_client(&id);
        tokio::spawn(async move {
            let deleted = async {
                let startup = Startup::new(config.startup_timeout);
                let agent =
                    hub.agent_pool().get(&config, client.as_ref(), row.cwd.as_ref(), &id, startup).await?;
                let mut params = Object::default();
                params.set("sessionId", agents.as_json());
                let deleted = agent.call("session/delete", &params).await;
                deleted.map_err(|error| RpcError::from_raw(error.raw()))
            };
            if let Err(error) = deleted.await {
                tracing::warn!(session = %id, "the agent did not delete the session: {}", error.message());
            }
        });
    }
}
