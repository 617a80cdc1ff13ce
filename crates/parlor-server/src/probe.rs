//! Finding out whether an agent works.

use std::path::Path;
use std::time::Duration;

use parlor_dialect::Dialect;
use parlor_json::Object;
use parlor_wire::RpcError;

use crate::agent::{self, Startup};
use crate::config::{AgentConfig, chosen_env};
use crate::process::Watcher;

/// An agent that answered.
#[derive(Debug, Clone)]
pub struct Answered {
    /// What it speaks.
    pub dialect: Dialect,
    /// What it said of itself.
    pub info: Object,
}

/// Starts an agent, asks it who it is and ends it. `env` is the environment that a client would bring along.
pub async fn probe(
    config: &AgentConfig,
    env: &[(String, String)],
    cwd: &Path,
    watcher: &Watcher,
    timeout: Duration,
) -> Result<Answered, RpcError> {
    let env = chosen_env(config, env);
    let agent = agent::start(config, &env, cwd, None, watcher, Startup::new(timeout)).await?;
    let answered = Answered { dialect: agent.about.dialect, info: agent.about.initialize.clone() };
    agent.stop().await;
    Ok(answered)
}
