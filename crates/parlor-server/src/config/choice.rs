use std::ffi::OsStr;
use std::path::Path;

use super::{AgentConfig, Config, ConfigError, PRESETS};
use crate::hub::AgentChoice;

/// All agents of a server, and the one for clients that name none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agents {
    all: Vec<AgentConfig>,
    default: String,
}

/// The default agent where nobody chose one: it is always there.
const FALLBACK: &str = "demo";

impl Agents {
    /// Puts together the agents of the command line, of `config.toml` and the presets. Of two with the same name the one
    /// that comes first in this order counts. The default is the first of the command line, else the one that
    /// `config.toml` names, else the demo.
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
                    message: "there are two agents of this name".to_owned(),
                    hint: Some("give one of them another name".to_owned()),
                });
            }
            all.push(agent);
        }
        // A program that cannot find itself has no demo, and says so only to those who want it.
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

    /// One agent, and no other that could be asked for.
    pub fn only(agent: AgentConfig) -> Self {
        Self { default: agent.name.clone(), all: vec![agent] }
    }

    /// All of them, in the order of choice.
    pub fn all(&self) -> &[AgentConfig] {
        &self.all
    }

    /// The one of this name.
    pub fn get(&self, name: &str) -> Option<&AgentConfig> {
        self.all.iter().find(|agent| agent.name == name)
    }

    /// The one for clients that name none.
    pub fn default_agent(&self) -> &AgentConfig {
        self.get(&self.default).expect("it was looked for when they were put together")
    }

    /// The one that a client wants.
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
            message: format!("there is no agent '{name}': it is one of {}", names.join(", ")),
            hint: Some(format!("add it with --agent '{name}=COMMAND' or as [agents.{name}] in config.toml")),
        }
    }
}

impl AgentConfig {
    /// What it is called where anybody may read it: of one that was given as a command, that is the program.
    pub(crate) fn label(&self) -> &str {
        match self.command.split_first() {
            Some((program, args)) if self.name == name_of(program, args) => file_name(program),
            Some(_) | None => &self.name,
        }
    }
}

/// What an agent is called that was given as a command.
fn name_of(program: &str, args: &[String]) -> String {
    std::iter::once(file_name(program)).chain(args.iter().map(String::as_str)).collect::<Vec<_>>().join(" ")
}

fn file_name(program: &str) -> &str {
    Path::new(program).file_name().and_then(OsStr::to_str).unwrap_or(program)
}
