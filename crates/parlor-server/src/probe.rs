//! Finding out whether an agent works.

use std::path::Path;
use std::time::Duration;

use parlor_dialect::Dialect;
use parlor_json::Object;
use parlor_wire::{RpcError, code};

use crate::agent;
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
    patience: Duration,
) -> Result<Answered, RpcError> {
    let env = chosen_env(config, env);
    // One that is given up on is dropped, which ends it.
    let started = tokio::time::timeout(patience, agent::start(config, &env, cwd, None, watcher)).await;
    let Ok(started) = started else {
        let message =
            format!("the agent '{}' does not say who it is in {} seconds", config.name, patience.as_secs());
        return Err(RpcError::new(code::INTERNAL_ERROR, message));
    };
    let agent = started?;
    let answered = Answered { dialect: agent.dialect, info: agent.info.clone() };
    agent.stop().await;
    Ok(answered)
}
