//! Checks whether an agent can be started.

use std::path::Path;
use std::time::Duration;

use parlor_dialect::Dialect;
use parlor_json::Object;
use parlor_wire::RpcError;

use crate::agent::{self, Startup};
use crate::config::{AgentConfig, chosen_env};
use parlor_process::Reaper;

/// An agent that answered `initialize`.
#[derive(Debug, Clone)]
pub struct ProbedAgent {
    /// The dialect that it speaks.
    pub dialect: Dialect,
    /// The result of `initialize`.
    pub info: Object,
}

/// Starts an agent, waits for its response to `initialize`, and stops it. `env` stands for the environment of a client.
pub async fn probe(
    config: &AgentConfig,
    env: &[(String, String)],
    cwd: &Path,
    reaper: &Reaper,
    timeout: Duration,
) -> Result<ProbedAgent, RpcError> {
    let env = chosen_env(config, env);
    let agent = agent::start(config, &env, cwd, None, reaper, Startup::new(timeout)).await?;
    let probed = ProbedAgent { dialect: agent.info.dialect, info: agent.info.initialize.clone() };
    agent.stop().await;
    Ok(probed)
}
