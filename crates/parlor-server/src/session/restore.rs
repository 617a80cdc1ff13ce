//! How a session gets its agent session back: the agent is started if it does not run, and [opens](Opener) the session.

use std::sync::Arc;

use parlor_dialect::Losses;
use parlor_dialect::settings::Settings;
use parlor_engine::Capability;
use parlor_engine::opening::{AgentSession, OpeningPlan, RestorePlan, StoredSession};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::SessionId;
use parlor_wire::{RpcError, code};

use super::Actor;
use crate::agent::{History, Home, OpenedAgent, Opener, Rest, Startup, Tie};
use crate::hub::Shared;
use crate::json;

pub(super) use parlor_engine::opening::{
    REFUSED, RefusedSetting as Unaccepted, RefusedSettings, wanted_settings as wanted,
};

/// An agent and the session that it has for ours.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(super) tie: Tie,
    /// Whether the agent knows nothing of the conversation.
    pub(super) anew: bool,
    /// Why it does not have the session any more that it had, if it had one.
    pub(super) lost: Option<String>,
    /// What it said of the session, without its settings.
    pub(super) result: Object,
    /// The settings in force, as far as they are known.
    pub(super) settings: Settings,
    /// What it did not accept again of what was chosen.
    pub(super) refused: Option<RefusedSettings>,
    /// What it has said meanwhile.
    pub(super) rest: Option<Rest>,
}

impl From<OpenedAgent> for Bound {
    fn from(OpenedAgent { tie, session, rest }: OpenedAgent) -> Self {
        let AgentSession { result, settings, refused, without_history, lost, .. } = session;
        Self { tie, anew: without_history, lost, result, settings, refused, rest: Some(rest) }
    }
}

impl Bound {
    /// What the agent said of the session, without its settings.
    pub(crate) fn take_result(&mut self) -> Object {
        std::mem::take(&mut self.result)
    }
}

impl Tie {
    /// Our session needs the agent no more, for now. What the agent still says is said in it.
    pub(super) fn release(self, hub: &Arc<Shared>, ours: &SessionId) {
        let Self { agent, session, epoch } = &self;
        let closes = agent.about.has(Capability::Close);
        let home = Home { hub: Arc::downgrade(hub), session: ours.clone(), epoch: *epoch, is_open: !closes };
        if agent.release(session, home) && closes {
            agent.close_session(session);
        }
    }

    /// Our session is gone, or goes without the agent.
    pub(super) fn discard(self) {
        let Self { agent, session, .. } = &self;
        if agent.about.has(Capability::Delete) {
            // Nobody waits for its answer.
            drop(agent.call_now("session/delete", &Actor::params_for(session)));
        } else if agent.about.has(Capability::Close) {
            agent.close_session(session);
        }
    }
}

/// Starts a session's agent, or finds it, and restores the session there.
pub(super) async fn restore(
    hub: &Arc<Shared>,
    row: &parlor_store::SessionRow,
    id: &SessionId,
    in_force: &Settings,
    history: &Arc<History>,
) -> Result<Bound, RpcError> {
    let config = hub.config_of(row).ok_or_else(|| {
        RpcError::new(code::INTERNAL_ERROR, format!("there is no agent '{}' any more", row.agent))
    })?;
    let startup = Startup::new(config.startup_timeout);
    let peer = hub.peer_of(id);
    let agent = hub.registry().get(&config, peer.as_ref(), row.cwd.as_ref(), id, startup).await?;
    let data = json::object(Json::parse(row.data.clone()).ok().as_ref().map(Json::raw));
    let known = row.agent_session.as_deref().and_then(JsonStr::from_literal).map(SessionId::from);
    let stored = StoredSession { session: id, agent_session: known.as_ref(), cwd: &row.cwd, data: &data };
    let mut losses = Losses::default();
    let plan = RestorePlan::new(stored, in_force, history, agent.about.dialect, &mut losses)?;
    hub.losses().count(id, losses);
    let opener = Opener::start(&agent, OpeningPlan::Restore(plan), startup, None);
    opener.opened(None).await.map(Bound::from)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parlor_dialect::Dialect;
    use parlor_store::MemoryStore;
    use tokio::io::{AsyncBufReadExt as _, BufReader};

    use super::*;
    use crate::agent::Agent;
    use crate::config::{Agents, Config};
    use crate::hub::{Hub, LIVE_SESSIONS, Options};
    use crate::process::Watcher;

    #[tokio::test]
    async fn a_session_released_late_does_not_close_the_agent_session_of_a_newer_epoch() {
        let hub = Hub::new(Options {
            store: Arc::new(MemoryStore::default()),
            agents: Agents::new(Vec::new(), &Config::default()).unwrap(),
            watcher: Watcher::nobody(),
            idle: Duration::from_secs(60),
            live_sessions: LIVE_SESSIONS,
            private: Vec::new(),
        });
        let hub = hub.await.unwrap();
        let (agent, requests) = Agent::for_tests(Dialect::V2);
        let open = || Bound::from(OpenedAgent::for_tests(&agent, "s"));
        let late = open();
        agent.unlink(&"s".into(), late.tie.epoch);
        let newer = open();
        late.tie.release(&hub.shared(), &"ours".into());
        // The requests are in the order in which they were sent.
        agent.notify("_mark", &Object::default());
        newer.tie.release(&hub.shared(), &"ours".into());
        let mut requests = BufReader::new(requests).lines();
        for expected in ["_mark", "session/close"] {
            let line = requests.next_line().await.unwrap().unwrap();
            assert!(line.contains(expected), "{line}");
        }
    }
}
