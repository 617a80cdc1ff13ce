//! Chooses the agent of a new session if the command names none.

use std::path::Path;

use parlor_server::config::Preset;
use serde::Deserialize;

use crate::command_error::CommandError;
use crate::commands::status;
use crate::output::RED;
use crate::render::safe;
use crate::server;
use crate::tty::{self, Tty};

/// The result of `_parlor/agents`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KnownAgents {
    agents: Vec<KnownAgent>,
    /// Why the default agent is the default.
    #[serde(default)]
    default_reason: DefaultReason,
}

#[derive(Deserialize)]
struct KnownAgent {
    name: String,
    #[serde(default)]
    installed: bool,
}

#[derive(Deserialize, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
enum DefaultReason {
    /// The built-in agent: no other one is installed.
    BuiltIn,
    /// There is no default agent: several are installed.
    Ambiguous,
    #[default]
    #[serde(other)]
    Other,
}

/// The built-in agent, which is not offered.
pub(crate) const BUILT_IN: &str = "demo";

/// Asks for the agent on a terminal if several are installed and none is the default. `None` if the server chooses, or rejects
/// the request with the names of the agents.
pub(crate) fn for_new_session(socket: &Path) -> Result<Option<String>, CommandError> {
    let known = query(socket)?;
    if let Some(problem) = status::query(socket)?.config_problem() {
        print_stderr!("the configuration is invalid and not used ({}); see `parlor status`", safe(&problem));
    }
    print_built_in(&known);
    if known.default_reason != DefaultReason::Ambiguous {
        return Ok(None);
    }
    // As for requests, standard input may be text of the prompt.
    let Some(tty) = Tty::open() else { return Ok(None) };
    let is_offered = |agent: &KnownAgent| agent.installed && agent.name != BUILT_IN;
    let names: Vec<String> = known.agents.into_iter().filter(is_offered).map(|agent| agent.name).collect();
    ask(&tty, names).map(Some)
}

/// Checks that the server knows an agent and that it is installed, before a session is created for it.
pub(crate) fn check_usable(socket: &Path, name: &str) -> Result<(), CommandError> {
    let name = Preset::canonical_name(name);
    let known = query(socket)?.agents;
    match known.iter().find(|agent| agent.name == name) {
        Some(agent) if agent.installed => Ok(()),
        Some(_) => {
            let missing = CommandError::agent_unavailable(format_args!("agent '{name}' is not installed"));
            Err(match Preset::named(name).and_then(|preset| preset.install) {
                Some(install) => missing.hint(format_args!("`{install}` installs it")),
                None => missing.hint("`parlor agents` shows its command, which is not found"),
            })
        }
        None => {
            let names: Vec<_> = known.iter().map(|agent| agent.name.as_str()).collect();
            let message = format!("unknown agent '{name}' (known: {})", names.join(", "));
            Err(CommandError::bad_input(message).hint("`parlor agents` lists them"))
        }
    }
}

/// Prints a notice if the built-in agent is used because no other one is installed.
pub(crate) fn print_notice(socket: &Path) -> Result<(), CommandError> {
    print_built_in(&query(socket)?);
    Ok(())
}

fn print_built_in(known: &KnownAgents) {
    if known.default_reason == DefaultReason::BuiltIn {
        print_stderr!(
            "no agent is installed: using the demo agent (`parlor agents` lists agents to install)"
        );
    }
}

fn query(socket: &Path) -> Result<KnownAgents, CommandError> {
    let result = server::call(socket, "_parlor/agents", server::ANSWER_TIMEOUT)?;
    serde_json::from_str(result.to_json().as_str()).map_err(|error| {
        CommandError::failed(format_args!("cannot parse the server's list of agents: {error}"))
    })
}

fn ask(tty: &Tty, mut names: Vec<String>) -> Result<String, CommandError> {
    let failed = |error| CommandError::failed(format_args!("cannot use the terminal: {error}"));
    tty.write(|out| {
        writeln!(out, "Several agents are installed:")?;
        let mut names = names.iter().enumerate();
        names.try_for_each(|(index, name)| writeln!(out, "  {}  {}", index + 1, safe(name)))
    })
    .map_err(failed)?;
    let mut reader = tty.reader().map_err(failed)?;
    loop {
        tty.write(|out| write!(out, "Agent of this session (1-{}): ", names.len())).map_err(failed)?;
        let mut line = String::new();
        if reader.read_line(&mut line).map_err(failed)? == 0 {
            return Err(CommandError::failed("no agent was selected").hint("select one with --agent"));
        }
        let chosen = line.trim();
        let index = match chosen.parse::<usize>() {
            Ok(number) => number.checked_sub(1).filter(|index| *index < names.len()),
            Err(_) => names.iter().position(|name| name == chosen),
        };
        if let Some(index) = index {
            let name = names.swap_remove(index);
            print_stderr!("default_agent = \"{}\" in config.toml makes it the default", safe(&name));
            return Ok(name);
        }
        let problem = tty::number_problem(chosen, names.len(), &names);
        tty.write(|out| writeln!(out, "  {RED}{problem}{RED:#}")).map_err(failed)?;
    }
}
