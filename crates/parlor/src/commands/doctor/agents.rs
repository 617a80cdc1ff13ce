//! Checks of the agents.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use parlor_json::JsonStr;
use parlor_process::Reaper;
use parlor_server::config::{AgentConfig, Agents, Config, McpConfig, PRESETS, program_at};
use parlor_server::probe::probe;
use parlor_server::stored;

use super::Check;
use crate::agents_install::{Registry, is_newer};
use crate::command_error::CommandError;
use crate::offline_sessions::OfflineSessions;
use crate::path_options::PathOptions;
use crate::runtime;
use crate::server::client_environment;

/// How long the default agent may take to answer `initialize`.
pub(crate) const INITIALIZE_TIMEOUT: Duration = Duration::from_secs(20);

/// Checks which agents are installed, and starts the one that a new session would use. `socket` is that of a running server,
/// which may have other agents.
pub(super) fn agents(
    config: &Config,
    paths: &PathOptions,
    socket: Option<&Path>,
) -> Result<Vec<Check>, CommandError> {
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
    checks.extend(installations(config, paths));
    for agent in config.agents.iter().filter(|agent| !is_installed(agent)) {
        let program = agent.program();
        let (message, hint) = if agent.sandbox.wrap.is_empty() {
            let hint = install_command(agent).unwrap_or("install it, or set its path in the configuration");
            (format!("{}: no program '{program}' in PATH", agent.name), hint)
        } else {
            let hint = "install it, or change `wrap` in the configuration";
            (format!("{}: no program '{program}' in PATH, which `wrap` names", agent.name), hint)
        };
        checks.push(Check::warn("agents", message, hint));
    }
    checks.extend(mcp_servers(config, &agents, &path));
    // A server that does not answer has a check of its own.
    let of_server = socket.and_then(|socket| super::super::agents::from_server(socket).ok());
    let of_server = of_server.unwrap_or_default();
    // The login state is optional: the database has a check of its own.
    // They do not depend on the configuration, which may be another one than the server's.
    let sessions = OfflineSessions::open(&PathOptions { config: None, ..paths.clone() }).ok();
    let store = sessions.as_ref().and_then(OfflineSessions::store);
    let is_logged_in = |agent: &AgentConfig| {
        let known = of_server.iter().find(|known| known.config.name == agent.name);
        let known = known.and_then(|known| known.is_logged_in);
        known.or_else(|| store.and_then(|store| stored::login_state(store, agent).ok()?))
    };
    let default = match of_server.iter().find(|known| known.is_default) {
        Some(known) => {
            let own = agents.get(&known.config.name).filter(|own| own.command == known.config.command);
            own.unwrap_or(&known.config).clone()
        }
        None => match agents.default_agent(&path).agent() {
            Ok(agent) => agent.clone(),
            Err(error) => {
                checks.push(Check::warn("default agent", error.message, error.hint.unwrap_or_default()));
                return Ok(checks);
            }
        },
    };
    checks.push(default_agent(&default, is_logged_in(&default))?);
    for agent in agents.all().iter().filter(|agent| agent.name != default.name && is_installed(agent)) {
        if is_logged_in(agent) == Some(false) {
            checks.push(Check::warn("agents", not_logged_in(agent), login_hint(agent)));
        }
    }
    Ok(checks)
}

/// Checks the agents in the data directory: whether they are complete, and whether there are newer versions.
fn installations(config: &Config, paths: &PathOptions) -> Vec<Check> {
    let registry = Registry::load(None, config);
    let mut checks = Vec::new();
    if let Err(error) = &registry {
        checks.push(Check::warn(
            "agents",
            error.to_string(),
            "correct `agent_registry` in the configuration",
        ));
    }
    let registry = registry.unwrap_or_else(|_| Registry::embedded());
    for installed in &config.installed {
        let newer =
            registry.get(&installed.name).filter(|agent| is_newer(&agent.version, &installed.version));
        if let Some(newer) = newer {
            let message =
                format!("{} {}: version {} is available", installed.name, installed.version, newer.version);
            checks.push(Check::warn(
                "agents",
                message,
                format!("run: parlor agents update {}", installed.name),
            ));
        }
    }
    let entries = paths.agents_dir().ok().and_then(|directory| std::fs::read_dir(directory).ok());
    let directories =
        entries.into_iter().flatten().filter_map(Result::ok).filter(|entry| entry.path().is_dir());
    for name in directories.map(|entry| entry.file_name().to_string_lossy().into_owned()) {
        if config.installed.iter().all(|installed| installed.name != name) {
            let hint = format!("run: parlor agents install {name}");
            checks.push(Check::warn("agents", format!("{name}: the installation is not complete"), hint));
        }
    }
    checks
}

/// Checks that the programs of MCP servers exist, and the agents that they are for. Their secrets are not printed.
fn mcp_servers(config: &Config, agents: &Agents, path: &OsStr) -> Vec<Check> {
    let name = "mcp servers";
    let mut checks = Vec::new();
    let enabled: Vec<_> = config.mcp.iter().filter(|server| server.is_enabled).collect();
    if !enabled.is_empty() {
        let shown = |server: &&McpConfig| format!("{} ({})", server.name, server.endpoint.transport().name());
        checks.push(Check::ok(name, enabled.iter().map(shown).collect::<Vec<_>>().join(", ")));
    }
    for server in enabled {
        if let Some(program) = server.program().filter(|program| program_at(program, path).is_none()) {
            let message = format!("{}: no program '{program}' in PATH", server.name);
            let hint =
                "install it, or set its path in the configuration; an agent in a container may have it";
            checks.push(Check::warn(name, message, hint));
        }
        let unknown = server.agents.iter().flatten().filter(|agent| agents.get(agent).is_none());
        for agent in unknown {
            let message = format!("{}: no agent '{agent}' is configured", server.name);
            checks.push(Check::warn(name, message, "`parlor agents` lists the agents"));
        }
    }
    checks
}

fn not_logged_in(agent: &AgentConfig) -> String {
    format!("{}: installed, not logged in", agent.name)
}

fn login_hint(agent: &AgentConfig) -> String {
    format!("run: parlor login {}", agent.name)
}

/// Starts the default agent, waits for its response to `initialize` and stops it. `is_logged_in` is what is known of an agent that
/// does not report its login state.
fn default_agent(agent: &AgentConfig, is_logged_in: Option<bool>) -> Result<Check, CommandError> {
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
            let answers = format!("{}{title} answers initialize, speaks {}", agent.name, response.dialect);
            match response.is_logged_in.or(is_logged_in) {
                Some(false) => Check::fail(name, not_logged_in(agent), login_hint(agent)),
                Some(true) => Check::ok(name, format!("{answers}, logged in")),
                None => Check::ok(name, answers),
            }
        }
    })
}

/// The command that installs a preset agent.
fn install_command(agent: &AgentConfig) -> Option<&'static str> {
    PRESETS.iter().find(|preset| preset.name == agent.name).and_then(|preset| preset.install)
}
