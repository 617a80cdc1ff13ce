use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use parlor_server::config::{AgentConfig, Agents as Known, Config, Preset, program_at};
use parlor_server::stored;
use serde::{Deserialize, Serialize};

use crate::command_error::CommandError;
use crate::offline_sessions::OfflineSessions;
use crate::output::{self, DIM, GREEN, short_path};
use crate::server;
use crate::setup::PathOptions;
use crate::table::{Cell, Table};

/// List the agents that sessions can have
///
/// Those of a running server, or else those of the configuration and the ones that are known without any. The first
/// column marks the default. Which version of the protocol an agent speaks is known when it was started once.
#[derive(Args)]
pub(crate) struct Agents {
    #[command(flatten)]
    paths: PathOptions,
    /// Print a list of objects as JSON
    #[arg(long)]
    json: bool,
}

/// An agent as it is listed.
#[derive(Serialize)]
struct Listed {
    name: String,
    default: bool,
    command: Vec<String>,
    source: &'static str,
    path: Option<String>,
    install: Option<&'static str>,
    dialect: Option<&'static str>,
}

/// What a server says.
#[derive(Deserialize)]
struct Answer {
    agents: Vec<Served>,
}

#[derive(Deserialize)]
struct Served {
    name: String,
    command: Vec<String>,
    default: bool,
}

impl Agents {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let config = self.paths.config()?;
        let data = self.paths.existing_data_dir()?;
        let socket = data.map(|data| data.socket()).filter(|socket| server::is_running(socket));
        let known = match socket {
            Some(socket) => served(&socket)?,
            None => configured(&config)?,
        };
        // What agents said of themselves is a nicety; a store that cannot be read is the doctor's business.
        let sessions = OfflineSessions::open(&self.paths).ok();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let listed: Vec<_> = known
            .into_iter()
            .map(|(agent, default)| list(agent, default, &config, &path, sessions.as_ref()))
            .collect();
        if self.json {
            output::print_json(&listed)?;
        } else {
            output::print(|out| table(&listed).write(out))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn configured(config: &Config) -> Result<Vec<(AgentConfig, bool)>, CommandError> {
    let known = Known::new(Vec::new(), config).map_err(CommandError::bad_input)?;
    let default = known.default_agent().name.clone();
    Ok(known.all().iter().map(|agent| (agent.clone(), agent.name == default)).collect())
}

fn served(socket: &Path) -> Result<Vec<(AgentConfig, bool)>, CommandError> {
    let answer = server::call(socket, "_parlor/agents")?;
    let answer: Answer = serde_json::from_str(answer.to_json().as_str())
        .map_err(|error| CommandError::failed(format_args!("the server's list cannot be read: {error}")))?;
    let agents = answer.agents.into_iter();
    Ok(agents.map(|agent| (AgentConfig::new(agent.name, agent.command), agent.default)).collect())
}

fn list(
    agent: AgentConfig,
    default: bool,
    config: &Config,
    path: &std::ffi::OsStr,
    sessions: Option<&OfflineSessions>,
) -> Listed {
    let is_same = |other: &AgentConfig| other.name == agent.name && other.command == agent.command;
    let preset =
        Preset::named(&agent.name).filter(|preset| preset.agent().is_ok_and(|other| is_same(&other)));
    let source = match preset {
        _ if config.agents.iter().any(is_same) => "config",
        Some(_) => "preset",
        None => "command line",
    };
    let found = agent.command.first().and_then(|program| program_at(program, path));
    let remembered = sessions
        .and_then(OfflineSessions::store)
        .and_then(|store| stored::cached_agent_info(store, &agent).ok()?);
    Listed {
        default,
        source,
        path: found.map(|path| path.display().to_string()),
        install: preset.and_then(|preset| preset.install),
        dialect: remembered.map(|known| known.dialect.name()),
        name: agent.name,
        command: agent.command,
    }
}

fn table(listed: &[Listed]) -> Table {
    let mut table = Table::new(&["", "NAME", "~COMMAND", "FROM", "SPEAKS", "~INSTALLED"]);
    for agent in listed {
        let installed = match (&agent.path, agent.install) {
            (Some(path), _) => Cell::styled(&short_path(path), GREEN),
            (None, Some(install)) => Cell::styled(&format!("no: {install}"), DIM),
            (None, None) => Cell::styled("no", DIM),
        };
        let program = agent.command.first().map(|program| {
            let name = Path::new(program).file_name().map_or(program.into(), |name| name.to_string_lossy());
            std::iter::once(name.as_ref())
                .chain(agent.command[1..].iter().map(String::as_str))
                .collect::<Vec<_>>()
                .join(" ")
        });
        table.row([
            if agent.default { "*" } else { "" }.into(),
            agent.name.as_str().into(),
            program.unwrap_or_default().into(),
            agent.source.into(),
            agent.dialect.unwrap_or("").into(),
            installed,
        ]);
    }
    table
}
