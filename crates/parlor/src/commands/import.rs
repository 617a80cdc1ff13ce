use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use parlor_client::{Agent, Client, Error, Hello, Object, SessionId};
use parlor_server::data_dir::DataDir;
use serde::{Deserialize, Serialize};

use crate::command_error::CommandError;
use crate::output::{self, DIM, GREEN, RED, ago, count, now, parse_timestamp, short_path};
use crate::path_options::PathOptions;
use crate::render::safe;
use crate::runtime;
use crate::server::{self, client_environment};
use crate::table::{Cell, Table};
use crate::{agent_choice, background_server};

/// Import the sessions of an agent
///
/// Lists the sessions that the agent has and parlor does not, such as those of the agent's own terminal program. With `--all` or the
/// names of sessions, the agent loads them, and parlor stores them with their whole conversation. The agent keeps its own copy.
/// Starts the local server if it is not running.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Import {
    #[command(flatten)]
    paths: PathOptions,
    /// Import these sessions: ids, or unique prefixes of ids
    #[arg(value_name = "SESSION", conflicts_with = "all")]
    sessions: Vec<String>,
    /// Import all sessions of the list
    #[arg(long)]
    all: bool,
    /// Import sessions of this agent [default: the default agent]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Print a list of objects as JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  parlor import
  parlor import --agent codex --all
  parlor import 3f9c";

/// The result of `_parlor/agent_sessions`.
#[derive(Deserialize)]
struct AgentSessions {
    agent: String,
    sessions: Vec<AgentSession>,
}

/// A session that only the agent has.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct AgentSession {
    session_id: String,
    title: Option<String>,
    cwd: String,
    updated_at: Option<String>,
}

/// The output of an import with `--json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ImportedSession<'a> {
    #[serde(flatten)]
    session: &'a AgentSession,
    imported: bool,
    error: Option<String>,
}

impl Import {
    pub(crate) fn run(mut self) -> Result<ExitCode, CommandError> {
        let data = background_server::ensure_running(&self.paths)?;
        if self.agent.is_none() {
            self.agent = agent_choice::for_new_session(&data.socket())?;
        }
        let runtime = runtime::multi_threaded()?;
        let result = runtime.block_on(self.import(&data));
        runtime.shutdown_background();
        result
    }

    async fn import(&self, data: &DataDir) -> Result<ExitCode, CommandError> {
        let hello = Hello {
            agent: self.agent.clone().map(Agent::Name),
            env: client_environment(),
            cwd: std::env::current_dir().ok(),
            ..Hello::new()
        };
        let listed = async {
            let client = server::connect(data, &hello).await?;
            let listed = client.call("_parlor/agent_sessions", &Object::default()).await?;
            Ok((client, listed))
        };
        let (client, listed) = listed.await.map_err(|error: Error| CommandError::client(&error))?;
        let listed: AgentSessions = serde_json::from_str(listed.to_json().as_str()).map_err(|error| {
            CommandError::failed(format_args!("cannot parse the list of the agent's sessions: {error}"))
        })?;
        if !self.all && self.sessions.is_empty() {
            return self.print_list(&listed);
        }
        // All names are resolved before any session is imported.
        let selected = self.select(&listed)?;
        let mut imported = Vec::new();
        for session in selected {
            let outcome = adopt(&client, session).await;
            let error = outcome.err().map(|error| error.to_string());
            if !self.json {
                print_progress(session, error.as_deref())?;
            }
            imported.push(ImportedSession { session, imported: error.is_none(), error });
        }
        let failed = imported.iter().filter(|session| !session.imported).count();
        if self.json {
            output::print_json(&imported)?;
        } else if failed > 0 {
            print_stderr!("{failed} of {} could not be imported", count(imported.len(), "session"));
        } else if imported.is_empty() {
            output::print(|out| writeln!(out, "{}", nothing_to_import(&listed.agent)))?;
        }
        Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn select<'a>(&self, listed: &'a AgentSessions) -> Result<Vec<&'a AgentSession>, CommandError> {
        if self.all {
            return Ok(listed.sessions.iter().collect());
        }
        let mut selected: Vec<&AgentSession> = Vec::new();
        for name in &self.sessions {
            let matching: Vec<_> = listed
                .sessions
                .iter()
                .filter(|session| session.session_id.starts_with(name.as_str()))
                .collect();
            let exact = matching.iter().find(|session| session.session_id == *name).copied();
            let session = match (exact, &matching[..]) {
                (Some(session), _) => session,
                (None, [session]) => *session,
                (None, []) => {
                    let agent = &listed.agent;
                    let message =
                        format!("agent '{agent}' has no session to import whose id starts with '{name}'");
                    return Err(CommandError::bad_input(message).hint("`parlor import` lists them"));
                }
                (None, several) => {
                    let message = format!("'{name}' matches {} sessions", several.len());
                    return Err(CommandError::bad_input(message).hint("use more characters of the id"));
                }
            };
            if !selected.iter().any(|other| other.session_id == session.session_id) {
                selected.push(session);
            }
        }
        Ok(selected)
    }

    fn print_list(&self, listed: &AgentSessions) -> Result<ExitCode, CommandError> {
        if self.json {
            output::print_json(&listed.sessions)?;
            return Ok(ExitCode::SUCCESS);
        }
        if listed.sessions.is_empty() {
            output::print(|out| writeln!(out, "{}", nothing_to_import(&listed.agent)))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut table = Table::new(&["~ID", "~TITLE", "ACTIVE", "~DIRECTORY"]);
        table.drop_if_narrow(&["DIRECTORY", "ACTIVE"]);
        let now = now();
        for session in &listed.sessions {
            let active = session.updated_at.as_deref().and_then(parse_timestamp);
            table.row([
                session.session_id.as_str().into(),
                session.title.as_deref().unwrap_or_default().into(),
                Cell::styled(&active.map(|active| ago(active, now)).unwrap_or_default(), DIM),
                short_path(&session.cwd).into(),
            ]);
        }
        output::print(|out| table.write(out))?;
        if std::io::stderr().is_terminal() {
            let option = self.agent.as_ref().map(|agent| format!(" --agent {agent}")).unwrap_or_default();
            print_stderr!("\nimport them: parlor import{} --all", safe(&option));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn nothing_to_import(agent: &str) -> String {
    format!("agent '{}' has no sessions that parlor does not have", safe(agent))
}

/// Has the server adopt a session, and detaches from it.
async fn adopt(client: &Client, session: &AgentSession) -> Result<(), Error> {
    let id = SessionId::from(session.session_id.as_str());
    let session = client.join(&id, Path::new(&session.cwd)).await?;
    session.close().await
}

fn print_progress(session: &AgentSession, error: Option<&str>) -> Result<(), CommandError> {
    let title =
        session.title.as_ref().map(|title| format!("  {}", title.replace('\n', " "))).unwrap_or_default();
    let (id, title) = (safe(&session.session_id), safe(&title));
    output::print(|out| match error {
        None => writeln!(out, "{GREEN}imported{GREEN:#}  {id}{title}"),
        Some(error) => writeln!(out, "{RED}failed{RED:#}    {id}{title}: {}", safe(error)),
    })
}
