mod manage;

use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use parlor_server::config::{
    AgentConfig, Agents as AgentSet, Config, InstalledAgent, McpConfig, Preset, Sandbox, program_at,
};
use parlor_server::stored;
use serde::{Deserialize, Serialize};

use crate::agents_install::{Registry, is_newer};
use crate::command_error::CommandError;
use crate::offline_sessions::OfflineSessions;
use crate::output::{self, DIM, GREEN, YELLOW, short_path};
use crate::path_options::PathOptions;
use crate::render::safe;
use crate::server;
use crate::table::{Cell, Table, terminal_width, truncate};

/// List, install, update and remove agents
///
/// Without a command: lists the agents of the running server, or else those of the configuration, the installed ones and the presets. `*`
/// marks the default. The protocol version that the server speaks with an agent and the agent's features are known after it was first
/// started. Whether you are logged in is known after an agent has required a login, and after `parlor login`; no agent is started for it.
#[derive(Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(crate) struct Agents {
    #[command(subcommand)]
    command: Option<AgentsCommand>,
    #[command(flatten)]
    paths: PathOptions,
    /// Print a list of objects as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum AgentsCommand {
    Available(manage::Available),
    Install(manage::Install),
    Update(manage::Update),
    Remove(manage::Remove),
}

const EXAMPLES: &str = "Examples:
  parlor agents
  parlor agents --json
  parlor agents available
  parlor agents install claude codex
  parlor agents update
  parlor agents remove codex";

/// An agent in the list.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListedAgent {
    name: String,
    default: bool,
    command: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    wrap: Vec<String>,
    source: &'static str,
    path: Option<String>,
    /// The version that `parlor agents install` installed, if it is the one that is used.
    version: Option<String>,
    /// A newer version that `parlor agents update` would install.
    update: Option<String>,
    install: Option<&'static str>,
    dialect: Option<String>,
    features: Option<Vec<String>>,
    logged_in: Option<bool>,
    mcp_servers: Vec<ListedServer>,
}

/// An MCP server that an agent gets from the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ListedServer {
    name: String,
    transport: String,
}

impl From<&McpConfig> for ListedServer {
    fn from(server: &McpConfig) -> Self {
        Self { name: server.name.clone(), transport: server.endpoint.transport().name().to_owned() }
    }
}

impl ListedServer {
    /// Its name and transport, for people.
    pub(super) fn describe(&self) -> String {
        format!("{} ({})", self.name, self.transport)
    }
}

/// The result of `_parlor/agents`.
#[derive(Deserialize)]
struct AgentsResult {
    agents: Vec<ServerAgent>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServerAgent {
    name: String,
    command: Vec<String>,
    #[serde(default)]
    wrap: Vec<String>,
    default: bool,
    logged_in: Option<bool>,
    #[serde(default)]
    mcp_servers: Vec<ListedServer>,
    dialect: Option<String>,
    features: Option<Vec<String>>,
}

/// An agent of the server or of the configuration.
pub(super) struct KnownAgent {
    pub(super) config: AgentConfig,
    pub(super) is_default: bool,
    /// Whether a person is logged in, if the server knows it.
    pub(super) is_logged_in: Option<bool>,
    /// The dialect and the features of the agent, if the server knows them.
    started: Option<(String, Vec<String>)>,
    mcp_servers: Vec<ListedServer>,
}

impl Agents {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        match self.command {
            Some(AgentsCommand::Available(available)) => available.run(),
            Some(AgentsCommand::Install(install)) => install.run(),
            Some(AgentsCommand::Update(update)) => update.run(),
            Some(AgentsCommand::Remove(remove)) => remove.run(),
            None => self.list(),
        }
    }

    fn list(self) -> Result<ExitCode, CommandError> {
        let data = self.paths.existing_data_dir()?;
        let socket = data.map(|data| data.socket()).filter(|socket| server::is_running(socket));
        let config = match (self.paths.config(), &socket) {
            // A running server keeps the configuration that was valid.
            (Err(error), Some(_)) => {
                print_stderr!(
                    "the configuration is invalid and not used ({}); see `parlor status`",
                    safe(&error.to_string())
                );
                Config { installed: self.paths.installed_agents(), ..Config::default() }
            }
            (config, _) => config?,
        };
        let known = match socket {
            Some(socket) => from_server(&socket)?,
            None => from_config(&config)?,
        };
        // The protocol version is optional: errors of the store are reported by `parlor doctor`.
        let sessions = OfflineSessions::open(&self.paths).ok();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let registry = Registry::load(None, &config).unwrap_or_else(|error| {
            print_stderr!("{}", safe(&error.to_string()));
            Registry::embedded()
        });
        let listed: Vec<_> = known
            .into_iter()
            .map(|agent| list(agent, &config, &registry, &path, sessions.as_ref()))
            .collect();
        if self.json {
            output::print_json(&listed)?;
        } else {
            output::print(|out| {
                table(&listed).write(out)?;
                let can_install = |agent: &ListedAgent| {
                    agent.path.is_none() && agent.install.is_some_and(|install| install.starts_with(INSTALL))
                };
                if is_narrow() && listed.iter().any(can_install) {
                    writeln!(out, "{DIM}install: {INSTALL} NAME{DIM:#}")?;
                }
                write_mcp_servers(&listed, out)
            })?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn from_config(config: &Config) -> Result<Vec<KnownAgent>, CommandError> {
    let known = AgentSet::new(Vec::new(), config).map_err(CommandError::config)?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let default = known.default_agent(&path).agent().ok();
    let agent = |config: &AgentConfig| KnownAgent {
        config: config.clone(),
        is_default: Some(config) == default,
        is_logged_in: None,
        started: None,
        mcp_servers: known
            .enabled_mcp()
            .filter(|server| server.is_for(&config.name))
            .map(Into::into)
            .collect(),
    };
    Ok(known.all().iter().map(agent).collect())
}

/// Lists the agents of a running server.
pub(super) fn from_server(socket: &Path) -> Result<Vec<KnownAgent>, CommandError> {
    let result = server::call(socket, "_parlor/agents", server::ANSWER_TIMEOUT)?;
    let result: AgentsResult = serde_json::from_str(result.to_json().as_str()).map_err(|error| {
        CommandError::failed(format_args!("cannot parse the server's list of agents: {error}"))
    })?;
    let config = |name: String, command, wrap| {
        let sandbox = Sandbox { wrap, ..Sandbox::default() };
        AgentConfig { sandbox, ..AgentConfig::new(name, command) }
    };
    let agents = result.agents.into_iter().map(|agent| KnownAgent {
        config: config(agent.name, agent.command, agent.wrap),
        is_default: agent.default,
        is_logged_in: agent.logged_in,
        started: agent.dialect.zip(agent.features),
        mcp_servers: agent.mcp_servers,
    });
    Ok(agents.collect())
}

fn list(
    known: KnownAgent,
    config: &Config,
    registry: &Registry,
    path: &std::ffi::OsStr,
    sessions: Option<&OfflineSessions>,
) -> ListedAgent {
    let KnownAgent { config: agent, is_default, is_logged_in, started, mcp_servers } = known;
    let is_same = |other: &AgentConfig| other.name == agent.name && other.command == agent.command;
    let preset =
        Preset::named(&agent.name).filter(|preset| preset.agent().is_ok_and(|other| is_same(&other)));
    let is_used = |installed: &&InstalledAgent| installed.command() == agent.command;
    let installed = config.installed.iter().find(is_used);
    let source = match (installed, preset) {
        _ if config.agents.iter().any(is_same) => "config",
        (Some(_), _) => "installed",
        (None, Some(_)) => "preset",
        (None, None) => "command line",
    };
    let update = installed.and_then(|installed| {
        let version = &registry.get(&installed.name)?.version;
        is_newer(version, &installed.version).then(|| version.clone())
    });
    let found = program_at(agent.program(), path);
    let store = sessions.and_then(OfflineSessions::store);
    let cached = || {
        let cached = stored::cached_agent_info(store?, &agent).ok()??;
        let features = cached.features().into_iter().map(str::to_owned).collect();
        Some((cached.dialect.name().to_owned(), features))
    };
    let (dialect, features) = started.or_else(cached).unzip();
    ListedAgent {
        default: is_default,
        source,
        path: found.map(|path| path.display().to_string()),
        version: installed.map(|installed| installed.version.clone()),
        update,
        install: preset.and_then(|preset| preset.install),
        dialect,
        features,
        logged_in: is_logged_in
            .or_else(|| store.and_then(|store| stored::login_state(store, &agent).ok()?)),
        mcp_servers,
        name: agent.name,
        wrap: agent.sandbox.wrap,
        command: agent.command,
    }
}

/// Lists the MCP servers of the configuration with the agents that get them.
fn write_mcp_servers(listed: &[ListedAgent], out: &mut dyn std::io::Write) -> std::io::Result<()> {
    let mut servers: Vec<&ListedServer> = Vec::new();
    for server in listed.iter().flat_map(|agent| &agent.mcp_servers) {
        if !servers.contains(&server) {
            servers.push(server);
        }
    }
    if servers.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&["MCP SERVER", "TRANSPORT", "~AGENTS"]);
    for server in servers {
        let of = listed.iter().filter(|agent| agent.mcp_servers.contains(server));
        let of: Vec<_> = of.map(|agent| agent.name.as_str()).collect();
        let agents = if of.len() == listed.len() { "all".to_owned() } else { of.join(", ") };
        table.row([server.name.as_str().into(), server.transport.as_str().into(), agents.as_str().into()]);
    }
    writeln!(out)?;
    table.write(out)
}

/// How many columns a command has on a terminal.
const WIDEST_COMMAND: usize = 32;

/// The width below which the command that installs an agent is truncated.
const NARROW: usize = 80;

/// The command that installs agents.
const INSTALL: &str = "parlor agents install";

fn is_narrow() -> bool {
    terminal_width().is_some_and(|width| width < NARROW)
}

fn table(listed: &[ListedAgent]) -> Table {
    // The command that installs an agent is truncated only where it cannot be whole.
    let is_narrow = is_narrow();
    let installed = if is_narrow { "~INSTALLED" } else { "INSTALLED" };
    let mut table = Table::new(&["", "NAME", "~COMMAND", "FROM", "SPEAKS", "~FEATURES", "LOGIN", installed]);
    table.drop_if_narrow(&["FEATURES", "COMMAND", "FROM", "SPEAKS"]);
    for agent in listed {
        let installed = match (&agent.path, &agent.version, agent.install) {
            (Some(_), Some(version), _) => match &agent.update {
                Some(update) => Cell::styled(&format!("{version} by parlor ({update} is available)"), YELLOW),
                None => Cell::styled(&format!("{version} by parlor"), GREEN),
            },
            (Some(path), None, _) => Cell::styled(&short_path(path), GREEN),
            // The commands do not fit: the line below the table has one for all.
            (None, _, Some(install)) if is_narrow && install.starts_with(INSTALL) => Cell::styled("no", DIM),
            (None, _, Some(install)) => Cell::styled(&format!("no: {install}"), DIM),
            (None, _, None) => Cell::styled("no", DIM),
        };
        let program = agent.command.first().map(|program| {
            let name = Path::new(program).file_name().map_or(program.into(), |name| name.to_string_lossy());
            std::iter::once(name.as_ref())
                .chain(agent.command[1..].iter().map(String::as_str))
                .collect::<Vec<_>>()
                .join(" ")
        });
        let program = match agent.wrap.first() {
            Some(wrapper) => program.map(|program| format!("{program} (in {wrapper})")),
            None => program,
        };
        // One long command does not move the other columns of a terminal.
        let widest = if terminal_width().is_some() { WIDEST_COMMAND } else { usize::MAX };
        table.row([
            if agent.default { "*" } else { "" }.into(),
            agent.name.as_str().into(),
            truncate(&program.unwrap_or_default(), widest).into(),
            agent.source.into(),
            agent.dialect.as_deref().unwrap_or("").into(),
            agent.features.as_ref().map(|features| features.join(", ")).unwrap_or_default().as_str().into(),
            match agent.logged_in {
                Some(true) => Cell::styled("logged in", GREEN),
                Some(false) => Cell::styled("not logged in", YELLOW),
                None => "".into(),
            },
            installed,
        ]);
    }
    table
}
