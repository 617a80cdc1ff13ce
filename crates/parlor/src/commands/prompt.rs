use std::io::Read;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;

use clap::Args;
use parlor_client::{Activity, Agent, Error, Hello, State};
use parlor_json::JsonStr;
use parlor_server::data_dir::DataDir;
use parlor_session::SessionId;
use parlor_store::SessionRow;

use crate::command_error::CommandError;
use crate::commands::acp;
use crate::offline_sessions::{OfflineSessions, session_id};
use crate::output::DIM;
use crate::render::safe;
use crate::server;
use crate::setup::{self, PathOptions};
use crate::turn::{NOTICE_DELAY, TurnIntro, TurnOptions, agent_name};

/// Say something in a session, and print the answer as it comes
///
/// Joins the local server, and starts one if none runs. The answer goes to standard output; tool calls, questions and
/// everything else about the turn go to standard error. Ctrl-C cancels the turn; a second one leaves it alone.
///
/// The exit code is 0 if the agent came to the end of its turn, and 1 otherwise.
#[derive(Args)]
#[command(override_usage = USAGE, after_help = EXAMPLES)]
pub(crate) struct Prompt {
    #[command(flatten)]
    paths: PathOptions,
    /// The session: its id, the beginning of it, or `latest`; not with `--new`
    #[arg(value_name = "SESSION")]
    first: String,
    /// What to say; `-` reads it from standard input
    #[arg(value_name = "TEXT", conflicts_with = "new")]
    second: Option<String>,
    /// Begin a session
    #[arg(long)]
    new: bool,
    /// The agent of the new session [default: the server's]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Where the new session works [default: here]
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
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let (session, text) = match (&self.second, self.new) {
            (Some(text), _) => (Some(OfflineSessions::open(&self.paths)?.find_any(&self.first)?), text),
            (None, true) => (None, &self.first),
            (None, false) => {
                let failure = CommandError::bad_input("it is not said in which session, or what");
                return Err(failure.hint("name a session (`parlor ls` lists them), say latest, or add --new"));
            }
        };
        if let Some(row) = &session {
            self.check_options(row)?;
        }
        let text = read(text)?;
        let data = DataDir::open(&self.paths.data_dir()?).map_err(CommandError::failed)?;
        acp::ensure_server(&data, &self.paths)?;
        let runtime = setup::runtime()?;
        let done = runtime.block_on(self.talk(&data, session.as_ref(), &text));
        runtime.shutdown_background();
        done
    }

    /// A session has its agent and its directory already.
    fn check_options(&self, row: &SessionRow) -> Result<(), CommandError> {
        let id = session_id(row);
        let (option, has, hint) = match (&self.agent, &self.cwd) {
            (Some(agent), _) => {
                let has = format!("belongs to agent '{}'", row.agent);
                (format!("--agent {agent}"), has, format!("`parlor prompt --new --agent {agent}` begins one"))
            }
            (None, Some(cwd)) => {
                let option = format!("--cwd {}", cwd.display());
                let hint = format!("`parlor prompt --new {option}` begins one there");
                (option, format!("works in {}", row.cwd), hint)
            }
            (None, None) => return Ok(()),
        };
        Err(CommandError::bad_input(format_args!("{option} has no effect: session {id} {has}")).hint(hint))
    }

    async fn talk(
        &self,
        data: &DataDir,
        row: Option<&SessionRow>,
        text: &str,
    ) -> Result<ExitCode, CommandError> {
        let cwd = match &self.cwd {
            // What is stored has to mean the same to everybody.
            Some(cwd) => setup::canonical_directory(cwd)
                .ok()
                .filter(|cwd| cwd.is_dir())
                .ok_or_else(|| CommandError::bad_input(format_args!("{} is no directory", cwd.display())))?,
            None => std::env::current_dir().map_err(CommandError::bad_input)?,
        };
        let hello = Hello {
            agent: self.agent.clone().map(Agent::Name),
            env: acp::environment(),
            cwd: Some(cwd.clone()),
            ..Hello::new()
        };
        let begun = with_start_notice(self.agent.as_deref(), async {
            let client = server::connect_to_prompt(data, &hello).await?;
            let asked = client.requests();
            let session = match row {
                Some(row) => {
                    let id = JsonStr::from_literal(&row.id).unwrap_or_else(|| JsonStr::new(&row.id));
                    client.join(&SessionId::from(id), &cwd).await?
                }
                None => client.new_session(&cwd).await?,
            };
            Ok((client, asked, session))
        });
        // The client is there to the end.
        let (_client, asked, session) = begun.await.map_err(|error: Error| CommandError::client(&error))?;
        let note = if row.is_some() {
            let is_idle = |state: &State| state.activity == Activity::Idle;
            let is_free = session.transcript().state().is_none_or(is_idle);
            (!is_free).then(|| "a turn runs; this waits for its end".to_owned())
        } else {
            Some(format!("session {}", session.id()))
        };
        let works_in = row.map_or_else(|| cwd.to_string_lossy(), |row| row.cwd.as_str().into());
        let agent = row.map(|row| row.agent.as_str()).or(self.agent.as_deref());
        let told = TurnIntro { note: note.as_deref(), agent };
        self.turn_options.watch(&session, asked, told, Some(text), &works_in).await
    }
}

/// Waits for an agent that may have to start, and says so if that takes a while.
async fn with_start_notice<T>(agent: Option<&str>, begun: impl Future<Output = T>) -> T {
    let mut begun = pin!(begun);
    if let Ok(begun) = tokio::time::timeout(NOTICE_DELAY, &mut begun).await {
        return begun;
    }
    print_stderr!("{DIM}waiting for {} to start ...{DIM:#}", safe(&agent_name(agent)));
    begun.await
}

/// The text that is meant.
pub(super) fn read(text: &str) -> Result<String, CommandError> {
    let mut text = text.to_owned();
    if text == "-" {
        text.clear();
        std::io::stdin().read_to_string(&mut text).map_err(|error| {
            CommandError::bad_input(format_args!("standard input cannot be read: {error}"))
        })?;
    }
    if text.trim().is_empty() {
        return Err(CommandError::bad_input("there is nothing to say"));
    }
    Ok(text)
}
