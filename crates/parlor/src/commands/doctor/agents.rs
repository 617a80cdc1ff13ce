//! Checks of the agents.

use std::path::Path;
use std::time::Duration;

use parlor_json::JsonStr;
use parlor_process::Reaper;
use parlor_server::config::{AgentConfig, Agents, Config, PRESETS};
use parlor_server::probe::probe;

use super::Check;
use crate::command_error::CommandError;
use crate::runtime;
use crate::server::client_environment;

/// How long the default agent may take to answer `initialize`.
const INITIALIZE_TIMEOUT: Duration = Duration::from_secs(20);

/// Checks which agents are installed, and starts the one that a new session would use. `socket` is that of a running server,
/// which may have other agents.
pub(super) fn agents(config: &Config, socket: Option<&Path>) -> Result<Vec<Check>, CommandError> {
    let agents = match Agents::new(Vec::new(), config) {
        Ok(agents) => agents,
        Err(error) => {
            let hint = error.hint.clone().unwrap_or_default();
            return Ok(vec![Check::fail("agents", error.to_string(), hint)]);
        }
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_installed = |agent: &AgentConfig| agent.is_installed(&path);
    let mut checks = Vec::new();
    let installed: Vec<_> =
        agents.all().iter().filter(|agent| is_installed(agent)).map(|agent| agent.name.as_str()).collect();
    checks.push(Check::ok("agents", format!("installed: {}", installed.join(", "))));
    for agent in config.agents.iter().filter(|agent| !is_installed(agent)) {
        let program = agent.command.first().map_or("", String::as_str);
        let hint = install_command(agent).unwrap_or("install it, or set its path in the configuration");
        checks.push(Check::warn("agents", format!("{}: no program '{program}' in PATH", agent.name), hint));
    }
    // A server that does not answer has a check of its own.
    let of_server = socket.and_then(|socket| super::super::agents::from_server(socket).ok());
    let of_server = of_server.and_then(|known| known.into_iter().find(|(_, is_default)| *is_default));
    let default = match of_server {
        Some((agent, _)) => {
            agents.get(&agent.name).filter(|own| own.command == agent.command).cloned().unwrap_or(agent)
        }
        None => match agents.default_agent(&path).agent() {
            Ok(agent) => agent.clone(),
            Err(error) => {
                checks.push(Check::warn("default agent", error.message, error.hint.unwrap_or_default()));
                return Ok(checks);
            }
        },
    };
    checks.push(default_agent(&default)?);
    Ok(checks)
}

/// Starts the default agent, waits for its response to `initialize` and stops it.
fn default_agent(agent: &AgentConfig) -> Result<Check, CommandError> {
    let name = "default agent";
    let exe = std::env::current_exe().map_err(CommandError::failed)?;
    let cwd = std::env::current_dir().unwrap_or_else(|_| "/".into());
    let runtime = runtime::multi_threaded()?;
    let response = runtime.block_on(async {
        let reaper = Reaper::start(&exe).map_err(CommandError::failed)?;
        let response = probe(agent, &client_environment(), &cwd, &reaper, INITIALIZE_TIMEOUT).await;
        reaper.close().await;
        Ok(response)
    })?;
    Ok(match response {
        Err(error) => {
            let fallback = format!("run its command: {}", agent.command.join(" "));
            Check::fail(
                name,
                error.message(),
                install_command(agent)
                    .map_or(fallback, |install| format!("if it is not installed: {install}")),
            )
        }
        Ok(response) => {
            let info = ["agentInfo", "info"].into_iter().find_map(|member| response.info.get(member));
            let info = info.and_then(|info| parlor_json::Object::parse(info.raw()).ok()).unwrap_or_default();
            let text = |field: &str| info.get(field).and_then(|value| JsonStr::from_raw(value.raw()));
            let title =
                text("title").or_else(|| text("name")).map(|title| format!(" ({title})")).unwrap_or_default();
            Check::ok(
                name,
                format!("{}{title} answers initialize, in dialect {}", agent.name, response.dialect),
            )
        }
    })
}

/// The command that installs a preset agent.
fn install_command(agent: &AgentConfig) -> Option<&'static str> {
    PRESETS.iter().find(|preset| preset.name == agent.name).and_then(|preset| preset.install)
}
