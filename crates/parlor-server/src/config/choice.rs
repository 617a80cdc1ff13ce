use std::ffi::OsStr;
use std::path::Path;

use super::{AgentConfig, Config, ConfigError, PRESETS};
use crate::hub::AgentChoice;

/// All agents of a server, with the default one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agents {
    all: Vec<AgentConfig>,
    default: String,
}

/// The default agent if none is configured; it is built in.
const FALLBACK: &str = "demo";

impl Agents {
    /// Merges the agents of the command line, of `config.toml` and the presets; of agents with the same name the first in this
    /// order is used. The default agent is the first of the command line, else `default_agent` of `config.toml`, else `demo`.
    pub fn new(command_line: Vec<AgentConfig>, config: &Config) -> Result<Self, ConfigError> {
        let default = match (command_line.first(), &config.default_agent) {
            (Some(first), _) => first.name.clone(),
            (None, Some(configured)) => configured.clone(),
            (None, None) => FALLBACK.to_owned(),
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
        let presets = PRESETS.iter().filter_map(|preset| preset.agent().ok());
        for agent in config.agents.iter().cloned().chain(presets) {
            if all.iter().all(|other| other.name != agent.name) {
                all.push(agent);
            }
        }
        let agents = Self { all, default };
        if agents.get(&agents.default).is_none() {
            let location = match &config.path {
                Some(path) => format!("{}, default_agent", path.display()),
                None => "default_agent".to_owned(),
            };
            return Err(agents.unknown(&agents.default, location));
        }
        Ok(agents)
    }

    /// Creates a set of one agent.
    pub fn only(agent: AgentConfig) -> Self {
        Self { default: agent.name.clone(), all: vec![agent] }
    }

    /// All agents, in order of precedence.
    pub fn all(&self) -> &[AgentConfig] {
        &self.all
    }

    /// The agent with this name.
    pub fn get(&self, name: &str) -> Option<&AgentConfig> {
        self.all.iter().find(|agent| agent.name == name)
    }

    /// The agent for clients that choose none.
    pub fn default_agent(&self) -> &AgentConfig {
        self.get(&self.default).expect("the constructors check that the default agent exists")
    }

    /// The agent that a client chose.
    pub fn chosen(&self, choice: Option<&AgentChoice>) -> Result<AgentConfig, ConfigError> {
        match choice {
            None => Ok(self.default_agent().clone()),
            Some(AgentChoice::Named(name)) => {
                self.get(name).cloned().ok_or_else(|| self.unknown(name, "agent".to_owned()))
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
            hint: Some(format!("add it with --agent '{name}=COMMAND' or as [agents.{name}] in config.toml")),
        }
    }
}

impl AgentConfig {
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
