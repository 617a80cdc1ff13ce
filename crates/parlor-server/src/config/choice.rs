use std::ffi::OsStr;
use std::path::Path;

use parlor_engine::mcp::McpServer;

use super::mcp::McpServers;
use super::{AgentConfig, Config, ConfigError, InstalledAgent, McpConfig, PRESETS, Preset, program_at};
use crate::hub::AgentChoice;

/// All agents of a server, with the default one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agents {
    all: Vec<AgentConfig>,
    /// The name of the configured default agent.
    default: Option<String>,
    /// The configured MCP servers, and what the agents are sent of them.
    mcp: (Vec<McpConfig>, McpServers),
}

/// The name of the built-in agent.
const BUILT_IN: &str = "demo";

/// The agent for clients that choose none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DefaultAgent<'a> {
    /// The first one on the command line, or `default_agent` of `config.toml`.
    Configured(&'a AgentConfig),
    /// The only one that is installed, besides the built-in one.
    OnlyInstalled(&'a AgentConfig),
    /// The built-in one, because no other one is installed.
    BuiltIn(&'a AgentConfig),
    /// Several are installed and none is configured: clients have to choose.
    Ambiguous(Vec<&'a AgentConfig>),
}

impl<'a> DefaultAgent<'a> {
    /// The agent, unless clients have to choose.
    pub fn agent(&self) -> Result<&'a AgentConfig, ConfigError> {
        match self {
            Self::Configured(agent) | Self::OnlyInstalled(agent) | Self::BuiltIn(agent) => Ok(agent),
            Self::Ambiguous(installed) => {
                let names: Vec<&str> = installed.iter().map(|agent| agent.name.as_str()).collect();
                Err(ConfigError {
                    location: "default agent".to_owned(),
                    message: format!(
                        "several agents are installed and none is selected: {}",
                        names.join(", ")
                    ),
                    hint: Some(format!(
                        "select one with --agent {0}, or with default_agent = \"{0}\" in config.toml",
                        names.first().unwrap_or(&BUILT_IN)
                    )),
                })
            }
        }
    }
}

impl Agents {
    /// Merges the agents of the command line, of `config.toml`, the installed ones and the presets; of agents with the same name
    /// the first in this order is used. The configured default agent is the first of the command line, else `default_agent` of `config.toml`.
    pub fn new(command_line: Vec<AgentConfig>, config: &Config) -> Result<Self, ConfigError> {
        let default = match command_line.first() {
            Some(first) => Some(first.name.clone()),
            None => config.default_agent.clone(),
        };
        let mut all: Vec<AgentConfig> = Vec::new();
        for agent in command_line {
            if all.iter().any(|other| other.name == agent.name) {
                return Err(ConfigError {
                    location: format!("--agent {}", agent.name),
                    message: "the agent is given twice".to_owned(),
                    hint: Some("give one of the two another name".to_owned()),
                });
            }
            all.push(agent);
        }
        // A program that cannot find its own path has no demo agent; choosing it is an error then.
        let presets = PRESETS.iter().filter_map(|preset| {
            let installed = config.installed.iter().find(|installed| installed.name == preset.name);
            installed.map_or_else(|| preset.agent().ok(), |installed| Some(installed.agent()))
        });
        let others = config.installed.iter().map(InstalledAgent::agent);
        for agent in config.agents.iter().cloned().chain(presets).chain(others) {
            if all.iter().all(|other| other.name != agent.name) {
                all.push(agent);
            }
        }
        let agents = Self { all, default, mcp: (config.mcp.clone(), mcp_servers(&config.mcp, None)) };
        if let Some(unknown) = agents.default.as_ref().filter(|name| agents.get(name).is_none()) {
            let location = match &config.path {
                Some(path) => format!("{}, default_agent", path.display()),
                None => "default_agent".to_owned(),
            };
            return Err(agents.unknown(unknown, location));
        }
        Ok(agents)
    }

    /// Makes a known agent the default one.
    pub fn with_default(self, name: &str) -> Result<Self, ConfigError> {
        match self.get(name) {
            Some(_) => Ok(Self { default: Some(name.to_owned()), ..self }),
            None => Err(self.unknown(name, format!("--agent {name}"))),
        }
    }

    /// Creates a set of one agent.
    pub fn only(agent: AgentConfig) -> Self {
        Self { default: Some(agent.name.clone()), all: vec![agent], mcp: Default::default() }
    }

    /// Lets agents start parlor's own MCP server for the sessions of a data directory.
    #[must_use]
    pub fn with_data_dir(self, data: &Path) -> Self {
        // The agent that starts it may run elsewhere.
        let data = std::path::absolute(data);
        let servers = mcp_servers(&self.mcp.0, data.ok().as_deref());
        Self { mcp: (self.mcp.0, servers), ..self }
    }

    /// The MCP servers that an agent gets from the configuration.
    pub(crate) fn mcp_servers(&self, agent: &str) -> Vec<McpServer> {
        self.mcp.1.for_agent(agent, self.get(agent))
    }

    /// The MCP servers of the configuration that are enabled.
    pub fn enabled_mcp(&self) -> impl Iterator<Item = &McpConfig> {
        self.mcp.0.iter().filter(|server| server.is_enabled)
    }

    /// All agents, in order of precedence.
    pub fn all(&self) -> &[AgentConfig] {
        &self.all
    }

    /// The agent with this name, or with the preset's name of this [alias](Preset::aliases).
    pub fn get(&self, name: &str) -> Option<&AgentConfig> {
        let named = |name: &str| self.all.iter().find(|agent| agent.name == name);
        named(name).or_else(|| named(Preset::canonical_name(name)))
    }

    /// The agent for clients that choose none, where programs are searched for in `path_env` (the variable `PATH`).
    pub fn default_agent(&self, path_env: &OsStr) -> DefaultAgent<'_> {
        if let Some(agent) = self.default.as_ref().and_then(|name| self.get(name)) {
            return DefaultAgent::Configured(agent);
        }
        let is_candidate = |agent: &&AgentConfig| agent.name != BUILT_IN && agent.is_installed(path_env);
        let installed: Vec<_> = self.all.iter().filter(is_candidate).collect();
        match (&installed[..], self.get(BUILT_IN)) {
            ([only], _) => DefaultAgent::OnlyInstalled(only),
            ([], Some(built_in)) => DefaultAgent::BuiltIn(built_in),
            _ => DefaultAgent::Ambiguous(installed),
        }
    }

    /// The agent that a client chose, whose programs are searched for in `path_env` (the variable `PATH`).
    pub fn chosen(&self, choice: Option<&AgentChoice>, path_env: &OsStr) -> Result<AgentConfig, ConfigError> {
        match choice {
            None => self.default_agent(path_env).agent().cloned(),
            Some(AgentChoice::Named(name)) => {
                self.get(name).cloned().ok_or_else(|| self.unknown(name, String::new()))
            }
            Some(AgentChoice::Command(command)) => match command.first() {
                Some(program) => Ok(AgentConfig::new(name_of(program, &command[1..]), command.clone())),
                None => Err(ConfigError {
                    location: "agent".to_owned(),
                    message: "the command is empty".to_owned(),
                    hint: None,
                }),
            },
        }
    }

    fn unknown(&self, name: &str, location: String) -> ConfigError {
        let names: Vec<&str> = self.all.iter().map(|agent| agent.name.as_str()).collect();
        ConfigError {
            location,
            message: format!("unknown agent '{name}' (known: {})", names.join(", ")),
            hint: Some(match closest(name, &names) {
                Some(closest) => format!("did you mean '{closest}'?"),
                None => {
                    format!(
                        "[agents.{name}] in config.toml adds it, or `parlor serve --agent '{name}=COMMAND'`"
                    )
                }
            }),
        }
    }
}

/// The servers with their programs, which are searched for in the `PATH` of this process.
fn mcp_servers(configured: &[McpConfig], data: Option<&Path>) -> McpServers {
    McpServers::new(configured, &std::env::var_os("PATH").unwrap_or_default(), data)
}

/// The name that differs from the given one by at most two letters.
pub fn closest<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    let distances = names.iter().map(|known| (distance(name, known), *known));
    let (distance, closest) = distances.min()?;
    (distance <= 2 && distance < closest.chars().count() / 2 + 1).then_some(closest)
}

/// How many letters have to be inserted, deleted or replaced to turn one word into the other.
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (line, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, b) in to.chars().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[row.len() - 1]
}

impl AgentConfig {
    /// Whether its program is found in `path_env` (the variable `PATH`). An embedded agent is always there.
    pub fn is_installed(&self, path_env: &OsStr) -> bool {
        self.embedded.is_some() || program_at(self.program(), path_env).is_some()
    }

    /// The program that is started: that of `wrap`, in which the agent's own may be elsewhere, else the agent's.
    pub fn program(&self) -> &str {
        self.sandbox.wrap.first().or(self.command.first()).map_or("", String::as_str)
    }

    /// The name for errors that any client may see: for an agent that was given as a command, only the program.
    pub(crate) fn label(&self) -> &str {
        match self.command.split_first() {
            Some((program, args)) if self.name == name_of(program, args) => file_name(program),
            Some(_) | None => &self.name,
        }
    }
}

/// The name of an agent that was given as a command.
fn name_of(program: &str, args: &[String]) -> String {
    std::iter::once(file_name(program)).chain(args.iter().map(String::as_str)).collect::<Vec<_>>().join(" ")
}

fn file_name(program: &str) -> &str {
    Path::new(program).file_name().and_then(OsStr::to_str).unwrap_or(program)
}
