//! Completion of arguments in a shell: sessions, open requests and agents.
//!
//! The script of a shell runs `parlor` again with [`VARIABLE`] set for every completion, so that it knows the sessions of now.

use clap::Command;
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use parlor_server::config::Agents;
use parlor_store::Filter;

use crate::agents_install::Registry;
use crate::offline_sessions::{OfflineSessions, session_id};
use crate::open_request::summary;
use crate::path_options::PathOptions;
use crate::render::safe;
use crate::{command_line, server};

/// The environment variable with the name of the shell that asks for completions.
pub(crate) const VARIABLE: &str = "PARLOR_COMPLETE";

/// Sessions that are proposed.
const MAX_SESSIONS: usize = 50;

/// Prints completions and exits, if a shell asks for them.
pub(crate) fn complete() {
    CompleteEnv::with_factory(|| with_candidates(command_line())).var(VARIABLE).complete();
}

/// Adds the values of arguments that are known only at the time.
fn with_candidates(command: Command) -> Command {
    let command = command.mut_args(|arg| {
        let is_named =
            |name: &str| arg.get_value_names().is_some_and(|names| names.iter().any(|own| own == name));
        if is_named("SESSION") {
            arg.add(ArgValueCandidates::new(sessions))
        } else if is_named("REQUEST") {
            arg.add(ArgValueCandidates::new(requests))
        } else if arg.get_id() == "available_agent" {
            arg.add(ArgValueCandidates::new(available_agents))
        } else if arg.get_id() == "installed_agent" {
            arg.add(ArgValueCandidates::new(installed_agents))
        } else if is_named("AGENT") || arg.get_id() == "agent" {
            arg.add(ArgValueCandidates::new(agents))
        } else {
            arg
        }
    });
    command.mut_subcommands(with_candidates)
}

/// The paths without options: a candidate does not know the rest of the command line.
const PATHS: PathOptions = PathOptions { data: None, config: None };

/// The latest sessions by the shortest ids, with their names. Errors propose nothing.
fn sessions() -> Vec<CompletionCandidate> {
    let read = || {
        let sessions = OfflineSessions::open(&PATHS).ok()?;
        let length = sessions.id_length().ok()?;
        let rows = sessions.list(&Filter::default(), MAX_SESSIONS).ok()?;
        let candidates = rows.iter().map(|row| {
            let id: String = session_id(row).chars().take(length).collect();
            candidate(&id, &sessions.display_name(row).ok().flatten().unwrap_or_default())
        });
        Some(candidates.collect::<Vec<_>>())
    };
    let mut all = read().unwrap_or_default();
    if !all.is_empty() {
        all.push(candidate("latest", "the latest session of this directory"));
    }
    in_order(all)
}

fn requests() -> Vec<CompletionCandidate> {
    let read = || {
        let socket = PATHS.existing_data_dir().ok()??.socket();
        if server::is_running(&socket) { server::open_requests(&socket).ok() } else { None }
    };
    let open = read().unwrap_or_default();
    in_order(open.iter().map(|request| candidate(&request.id, &summary(request))).collect())
}

fn agents() -> Vec<CompletionCandidate> {
    let read = || {
        let agents = Agents::new(Vec::new(), &PATHS.config().ok()?).ok()?;
        Some(agents.all().iter().map(|agent| candidate(&agent.name, &agent.command.join(" "))).collect())
    };
    read().unwrap_or_default()
}

/// The agents that can be installed.
fn available_agents() -> Vec<CompletionCandidate> {
    let registry = PATHS.config().ok().and_then(|config| Registry::load(None, &config).ok());
    let registry = registry.unwrap_or_else(Registry::embedded);
    registry.agents().iter().map(|agent| candidate(agent.name(), &agent.description)).collect()
}

/// The agents that `parlor agents install` installed.
fn installed_agents() -> Vec<CompletionCandidate> {
    PATHS.installed_agents().iter().map(|agent| candidate(&agent.name, &agent.version)).collect()
}

fn candidate(value: &str, about: &str) -> CompletionCandidate {
    CompletionCandidate::new(value).help(Some(safe(&about.replace('\n', " ")).into()))
}

/// Keeps the order, where shells would sort.
fn in_order(candidates: Vec<CompletionCandidate>) -> Vec<CompletionCandidate> {
    let order = |(index, candidate): (usize, CompletionCandidate)| candidate.display_order(Some(index));
    candidates.into_iter().enumerate().map(order).collect()
}
