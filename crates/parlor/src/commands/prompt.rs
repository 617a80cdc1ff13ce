use std::io::Read;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;

use clap::Args;
use parlor_client::{Activity, Agent, Error, Hello, State};
use parlor_server::data_dir::DataDir;
use parlor_session::SessionId;
use parlor_store::SessionRow;

use crate::agent_choice;
use crate::background_server;
use crate::command_error::CommandError;
use crate::offline_sessions::{OfflineSessions, id_json, session_id};
use crate::output::DIM;
use crate::path_options::{self, PathOptions};
use crate::render::safe;
use crate::runtime;
use crate::server::{self, client_environment};
use crate::turn::{NOTICE_DELAY, TurnIntro, TurnOptions, agent_name};

/// Send a prompt to a session, and stream the answer
///
/// The answer goes to standard output; tool calls, requests and everything else about the turn go to standard error. Ctrl-C
/// cancels the turn; a second Ctrl-C exits while the turn continues. Starts the local server if it is not running.
///
/// The exit code is 0 if the turn ended with `end_turn`, and 1 otherwise.
#[derive(Args)]
#[command(override_usage = USAGE, after_help = EXAMPLES)]
pub(crate) struct Prompt {
    #[command(flatten)]
    paths: PathOptions,
    /// Select the session: its id, a unique prefix of its id, or `latest`; omit it with `--new`
    #[arg(value_name = "SESSION")]
    first: String,
    /// Send this text; `-` reads it from standard input
    #[arg(value_name = "TEXT", conflicts_with = "new")]
    second: Option<String>,
    /// Start a new session
    #[arg(long)]
    new: bool,
    /// Use this agent for the new session [default: the server's]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Use this working directory for the new session [default: the current one]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    #[command(flatten)]
    turn_options: TurnOptions,
}

const USAGE: &str = "parlor prompt [OPTIONS] <SESSION> <TEXT>
       parlor prompt [OPTIONS] --new <TEXT>";

const EXAMPLES: &str = "Examples:
  parlor prompt --new 'What is in this directory?'
  git diff | parlor prompt latest -";

impl Prompt {
    pub(crate) fn run(mut self) -> Result<ExitCode, CommandError> {
        let (session, text) = match (&self.second, self.new) {
            (Some(text), _) => (Some(OfflineSessions::open(&self.paths)?.find_any(&self.first)?), text),
            (None, true) => (None, &self.first),
            (None, false) => {
                let failure = CommandError::bad_input("the session or the text is missing");
                return Err(failure.hint("give a session and a text (`parlor ls` lists the sessions), or use --new for a new session"));
            }
        };
        if let Some(row) = &session {
            self.check_options(row)?;
        }
        let text = read_text(text)?;
        let data = background_server::ensure_running(&self.paths)?;
        if session.is_none() && self.agent.is_none() {
            self.agent = agent_choice::for_new_session(&data.socket())?;
        }
        let runtime = runtime::multi_threaded()?;
        let result = runtime.block_on(self.send(&data, session.as_ref(), &text));
        runtime.shutdown_background();
        result
    }

    /// Rejects options that only a new session can use.
    fn check_options(&self, row: &SessionRow) -> Result<(), CommandError> {
        let id = session_id(row);
        let (option, reason, hint) = match (&self.agent, &self.cwd) {
            (Some(agent), _) => {
                let reason = format!("belongs to agent '{}'", row.agent);
                (
                    format!("--agent {agent}"),
                    reason,
                    format!("`parlor prompt --new --agent {agent}` starts a session with it"),
                )
            }
            (None, Some(cwd)) => {
                let option = format!("--cwd {}", cwd.display());
                let hint = format!("`parlor prompt --new {option}` starts a session there");
                (option, format!("works in {}", row.cwd), hint)
            }
            (None, None) => return Ok(()),
        };
        Err(CommandError::bad_input(format_args!("{option} has no effect: session {id} {reason}")).hint(hint))
    }

    async fn send(
        &self,
        data: &DataDir,
        row: Option<&SessionRow>,
        text: &str,
    ) -> Result<ExitCode, CommandError> {
        let cwd = match &self.cwd {
            // The stored path has to be the same for every process.
            Some(cwd) => {
                path_options::canonical_directory(cwd).ok().filter(|cwd| cwd.is_dir()).ok_or_else(|| {
                    CommandError::bad_input(format_args!("{} is not a directory", cwd.display()))
                })?
            }
            None => std::env::current_dir().map_err(CommandError::bad_input)?,
        };
        let hello = Hello {
            agent: self.agent.clone().map(Agent::Name),
            env: client_environment(),
            cwd: Some(cwd.clone()),
            ..Hello::new()
        };
        let opening = with_start_notice(self.agent.as_deref(), async {
            let client = server::connect_with_forms(data, &hello).await?;
            let requests = client.requests();
            let session = match row {
                Some(row) => client.join(&SessionId::from(id_json(row)), &cwd).await?,
                None => client.new_session(&cwd).await?,
            };
            Ok((client, requests, session))
        });
        // The connection stays open until the turn has ended.
        let (_client, requests, session) =
            opening.await.map_err(|error: Error| CommandError::client(&error))?;
        let notice = if row.is_some() {
            let has_ended = |state: &State| state.activity == Activity::Idle;
            let is_idle = session.transcript().state().is_none_or(has_ended);
            (!is_idle).then(|| "another turn is running; the prompt is queued".to_owned())
        } else {
            Some(format!("session {}", session.id()))
        };
        let session_cwd = row.map_or_else(|| cwd.to_string_lossy(), |row| row.cwd.as_str().into());
        let agent = row.map(|row| row.agent.as_str()).or(self.agent.as_deref());
        let intro = TurnIntro { notice: notice.as_deref(), agent };
        self.turn_options.follow(&session, requests, intro, Some(text), &session_cwd).await
    }
}

/// Waits for a future that may start an agent, and prints a notice after `NOTICE_DELAY`.
async fn with_start_notice<T>(agent: Option<&str>, opening: impl Future<Output = T>) -> T {
    let mut opening = pin!(opening);
    if let Ok(opened) = tokio::time::timeout(NOTICE_DELAY, &mut opening).await {
        return opened;
    }
    print_stderr!("{DIM}waiting for {} to start ...{DIM:#}", safe(&agent_name(agent)));
    opening.await
}

/// The text of a prompt; `-` is read from standard input.
pub(super) fn read_text(text: &str) -> Result<String, CommandError> {
    let mut text = text.to_owned();
    if text == "-" {
        text.clear();
        std::io::stdin()
            .read_to_string(&mut text)
            .map_err(|error| CommandError::bad_input(format_args!("cannot read standard input: {error}")))?;
    }
    if text.trim().is_empty() {
        return Err(CommandError::bad_input("the prompt is empty"));
    }
    Ok(text)
}
