//! Restores agent sessions: starts the agent if it is not running, and [opens](Opener) the session there.

use std::sync::Arc;

use parlor_dialect::Losses;
use parlor_dialect::settings::Settings;
use parlor_engine::opening::{OpeningPlan, RestorePlan, RestoreSource};
use parlor_engine::{AgentSessionEnd, EndCall};
use parlor_json::{JsonStr, Object};
use parlor_session::SessionId;
use parlor_wire::{RpcError, code};

use crate::agent::{AGENT_NOT_CONFIGURED, AgentSessionGuard, BoundAgent, EvictedSession, History, Startup};
use crate::hub::HubState;

impl AgentSessionGuard {
    /// Releases the agent session of a session that is unloaded. Later updates of the agent reload the session.
    pub(super) fn release(self, hub: &Arc<HubState>, ours: &SessionId) {
        let Self { agent, session, epoch } = &self;
        let closes = agent.info.end_call(AgentSessionEnd::Release) == Some(EndCall::Close);
        let unloaded = EvictedSession {
            hub: Arc::downgrade(hub),
            session: ours.clone(),
            epoch: *epoch,
            is_open: !closes,
        };
        if agent.release(session, unloaded) && closes {
            agent.close_session(session);
        }
    }

    /// Deletes the agent session, or closes it if the agent cannot delete.
    pub(super) fn discard(self) {
        let Self { agent, session, .. } = &self;
        match agent.info.end_call(AgentSessionEnd::Discard) {
            Some(EndCall::Delete) => {
                let mut params = Object::default();
                params.set("sessionId", session.as_json());
                // The response is ignored.
                drop(agent.call_now("session/delete", &params));
            }
            Some(EndCall::Close) => agent.close_session(session),
            None => {}
        }
    }
}

/// Restores a session at its agent, which is started if it is not running.
pub(super) async fn restore(
    hub: &Arc<HubState>,
    row: &parlor_store::SessionRow,
    id: &SessionId,
    in_force: &Settings,
    history: &Arc<History>,
) -> Result<BoundAgent, RpcError> {
    let Some(config) = hub.config_of(row) else { return Err(not_configured(hub, row, id).await) };
    let startup = Startup::new(config.startup_timeout);
    let client = hub.requesting_client(id);
    let agent = hub.agent_pool().get(&config, client.as_ref(), row.cwd.as_ref(), id, startup).await?;
    let data = parlor_engine::SessionData::of(row);
    let known = row.agent_session.as_deref().and_then(JsonStr::from_literal).map(SessionId::from);
    let stored = RestoreSource { session: id, agent_session: known.as_ref(), cwd: &row.cwd, data: &data };
    let mut losses = Losses::default();
    let plan = RestorePlan::new(stored, in_force, history, agent.info.dialect, &mut losses)?;
    hub.losses().count(id, losses);
    let plan = OpeningPlan::Restore(plan);
    let opener = hub.open_at_agent(id, (&agent, &config.name), plan, startup, None);
    opener.opened(None).await
}

/// The error for a session whose agent was removed from the configuration.
async fn not_configured(hub: &HubState, row: &parlor_store::SessionRow, id: &SessionId) -> RpcError {
    let path = hub.requesting_client(id).map(|client| client.options.search_path());
    let path = path.or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    let installed = hub.agent_pool().inspect(move |agents| {
        let installed = agents.all().iter().filter(|agent| agent.is_installed(&path));
        installed.map(|agent| agent.name.clone()).collect::<Vec<_>>()
    });
    let names = installed.await.unwrap_or_default();
    let message = format!(
        "agent '{0}' of this session is not configured any more: `parlor fork {id} --agent OTHER` continues with another \
         agent (installed: {1}); [agents.{0}] in config.toml adds it again",
        row.agent,
        names.join(", ")
    );
    let data = Object::new().with("reason", AGENT_NOT_CONFIGURED).with("agent", &row.agent);
    RpcError::new(code::INTERNAL_ERROR, message).with_data(data.to_json())
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
        agent.remove_route(&"s".into(), late.guard.epoch);
        let newer = open();
        late.guard.release(&hub.shared(), &"ours".into());
        // The requests are in the order in which they were sent.
        agent.notify("_mark", &Object::default());
        newer.guard.release(&hub.shared(), &"ours".into());
        let mut requests = BufReader::new(requests).lines();
        for expected in ["_mark", "session/close"] {
            let line = requests.next_line().await.unwrap().unwrap();
            assert!(line.contains(expected), "{line}");
        }
    }
}
