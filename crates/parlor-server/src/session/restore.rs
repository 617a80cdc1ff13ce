//! How a session gets its agent session back: the agent is started if it does not run, and [opens](Opener) the session.

use std::sync::Arc;

use parlor_dialect::Losses;
use parlor_dialect::settings::Settings;
use parlor_engine::Capability;
use parlor_engine::opening::{OpeningPlan, RestorePlan, RestoreSource};
use parlor_json::{JsonStr, Object};
use parlor_session::SessionId;
use parlor_wire::{RpcError, code};

use crate::agent::{BoundAgent, History, Home, Opener, Startup, Tie};
use crate::hub::Shared;

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
            let mut params = Object::default();
            params.set("sessionId", session.as_json());
            // Nobody waits for its answer.
            drop(agent.call_now("session/delete", &params));
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
) -> Result<BoundAgent, RpcError> {
    let config = hub.config_of(row).ok_or_else(|| {
        RpcError::new(code::INTERNAL_ERROR, format!("there is no agent '{}' any more", row.agent))
    })?;
    let startup = Startup::new(config.startup_timeout);
    let peer = hub.peer_of(id);
    let agent = hub.registry().get(&config, peer.as_deref(), row.cwd.as_ref(), id, startup).await?;
    let data = parlor_engine::stored::data(row);
    let known = row.agent_session.as_deref().and_then(JsonStr::from_literal).map(SessionId::from);
    let stored = RestoreSource { session: id, agent_session: known.as_ref(), cwd: &row.cwd, data: &data };
    let mut losses = Losses::default();
    let plan = RestorePlan::new(stored, in_force, history, agent.about.dialect, &mut losses)?;
    hub.losses().count(id, losses);
    let opener = Opener::start(&agent, OpeningPlan::Restore(plan), startup, None);
    opener.opened(None).await
}

#[cfg(test)]
mod tests {
    use parlor_dialect::Dialect;
    use parlor_store::MemoryStore;
    use tokio::io::{AsyncBufReadExt as _, BufReader};

    use super::*;
    use crate::agent::Agent;
    use crate::hub::Hub;

    #[tokio::test]
    async fn a_session_released_late_does_not_close_the_agent_session_of_a_newer_epoch() {
        let hub = Hub::for_tests(Arc::new(MemoryStore::default())).await;
        let (agent, requests) = Agent::for_tests(Dialect::V2);
        let open = || BoundAgent::for_tests(&agent, "s");
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
