//! Checks whether an agent can be started.

use std::path::Path;
use std::time::Duration;

use parlor_dialect::Dialect;
use parlor_json::Object;
use parlor_wire::RpcError;

use crate::agent::{self, Startup};
use crate::config::{AgentConfig, chosen_env};
use crate::hub::InitializeMeta;
use parlor_process::Reaper;

/// An agent that answered `initialize`.
#[derive(Debug, Clone)]
pub struct ProbedAgent {
    /// The dialect that it speaks.
    pub dialect: Dialect,
    /// The result of `initialize`.
    pub info: Object,
    /// Whether a person is logged in, if the agent reports it.
    pub is_logged_in: Option<bool>,
}

/// Starts an agent, waits for its response to `initialize` and to `auth/status`, if it has that, and stops it. `env` stands for the environment of a client.
pub async fn probe(
    config: &AgentConfig,
    env: &[(String, String)],
    cwd: &Path,
    reaper: &Reaper,
    timeout: Duration,
) -> Result<ProbedAgent, RpcError> {
    let env = chosen_env(config, env);
    let startup = Startup::new(timeout);
    let agent = agent::start(config, &env, cwd, &InitializeMeta::default(), None, reaper, startup).await?;
    let (dialect, info) = (agent.info.dialect, agent.info.initialize.clone());
    let capabilities =
        ["agentCapabilities", "capabilities"].into_iter().find_map(|name| info.get_object(name));
    let auth = capabilities.and_then(|capabilities| capabilities.get_object("auth")).unwrap_or_default();
    let is_logged_in = match auth.get_object("status") {
        Some(_) => {
            let status = agent.call_until("auth/status", &Object::default(), startup.until).await;
            let state = status.and_then(|status| status.to_object()?.get_string("state"));
            match state.as_deref() {
                Some("authenticated") => Some(true),
                Some("unauthenticated") => Some(false),
                Some(_) | None => None,
            }
        }
        None => None,
    };
    let probed = ProbedAgent { dialect, info, is_logged_in };
    agent.stop().await;
    Ok(probed)
}
