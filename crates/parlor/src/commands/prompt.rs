use std::io::Read;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use parlor_client::{Activity, Agent, DuringTurn, Error, Hello, State};
use parlor_server::data_dir::DataDir;
use parlor_session::SessionId;
use parlor_store::SessionRow;

use crate::agent_choice;
use crate::background_server;
use crate::command_error::CommandError;
use crate::offline_sessions::{LATEST, LatestOption, LatestScope, OfflineSessions, id_json, session_id};
use crate::output::{DIM, short_path};
use crate::path_options::{self, PathOptions};
use crate::prompt_input::{PromptContent, PromptInput};
use crate::render::safe;
use crate::runtime;
use crate::server::{self, client_environment};
use crate::session_options;
use crate::turn::{NOTICE_DELAY, TurnIntro, TurnOptions, agent_name, id_in_messages};

/// Send a prompt to a session, and stream the answer
///
/// Without `-s` and `--new`, the prompt continues the latest session of this directory. Words need no quotes; standard input is
/// appended to them if it is a pipe, a socket or a file, whose end is waited for (`< /dev/null` prevents that). The answer goes to standard output; the session, tool calls, requests and everything
/// else about the turn go to standard error. Requests of the agent are asked on the terminal, also if standard input is a pipe.
/// Ctrl-C cancels the turn; a second Ctrl-C exits while the turn continues. Starts the local server if it is not running.
///
/// The exit code is 0 if the agent completed the turn, 1 if the turn failed, was refused or cancelled, 3 if a request is
/// left open (there is no terminal to ask, or you chose later), 124 if `--timeout` elapsed, and 130 after Ctrl-C. `parlor --help` lists all codes.
#[derive(Args)]
#[command(override_usage = USAGE, after_help = EXAMPLES)]
pub(crate) struct Prompt {
    #[command(flatten)]
    paths: PathOptions,
    #[command(flatten)]
    latest: LatestOption,
    #[command(flatten)]
    input: PromptInput,
    /// Select the session: its id, a unique prefix of its id or name, or `latest` [default: latest]
    #[arg(short, long, value_name = "SESSION", conflicts_with = "new")]
    session: Option<String>,
    /// Start a new session
    #[arg(long, conflicts_with = "all")]
    new: bool,
    /// Use this agent for the new session [default: the server's]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Use this working directory for the new session [default: the current one]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Set the model of the session before the prompt
    #[arg(long, value_name = "ID")]
    model: Option<String>,
    /// Set the mode of the session before the prompt
    #[arg(long, value_name = "ID")]
    mode: Option<String>,
    /// Exit as soon as the prompt is accepted or queued; requests of the agent wait in `parlor inbox`
    #[arg(long, conflicts_with_all = ["timeout", "yes", "no"])]
    no_wait: bool,
    /// Exit with code 124 if the turn has not ended after this time (30s, 5m, 2h); the turn continues
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,
    /// Send the prompt into the running turn instead of queueing it; with `=cancel`, cancel the turn if the agent does not accept that
    #[arg(
        long,
        value_name = "HOW",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "steer",
        conflicts_with = "new"
    )]
    now: Option<Now>,
    #[command(flatten)]
    turn_options: TurnOptions,
}

/// How a prompt is sent while a turn is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Now {
    /// Into the turn
    Steer,
    /// Into the turn, or after cancelling it
    Cancel,
}

const USAGE: &str = "parlor prompt [OPTIONS] [TEXT]...
       parlor prompt [OPTIONS] -s <SESSION> [TEXT]...
       parlor prompt [OPTIONS] --new [TEXT]...";

const EXAMPLES: &str = "Examples:
  parlor prompt --new 'What is in this directory?'
  parlor prompt now fix the second problem
  git diff | parlor prompt -s latest review this change
  parlor prompt --now 'skip the slow tests'
  parlor prompt -s 'flaky test' --timeout 10m -f log.txt explain this";

impl Prompt {
    pub(crate) fn run(mut self) -> Result<ExitCode, CommandError> {
        let (mut session, mut notice) = (None, None);
        if !self.new {
            let sessions = OfflineSessions::open(&self.paths)?;
            let name = self.session.as_deref().unwrap_or(LATEST);
            let row = sessions.find_any(name, self.latest.scope())?;
            self.check_options(&row)?;
            notice = self.selection_notice(&row, sessions.display_name(&row)?);
            session = Some(row);
        }
        let content = self.input.read()?;
        let data = background_server::ensure_running(&self.paths)?;
        if session.is_none() && self.agent.is_none() {
            self.agent = agent_choice::for_new_session(&data.socket())?;
        }
        let runtime = runtime::multi_threaded()?;
        let result = runtime.block_on(self.send(&data, session.as_ref(), notice, content));
        runtime.shutdown_background();
        result
    }

    /// Rejects options that only a new session can use.
    fn check_options(&self, row: &SessionRow) -> Result<(), CommandError> {
        let id = session_id(row);
        let (option, reason, hint) = match (&self.agent, &self.cwd) {
            (Some(agent), _) if self.paths.agent_name(agent) != row.agent => {
                let reason = format!("belongs to agent '{}'", row.agent);
                (
                    format!("--agent {agent}"),
                    reason,
                    format!("`parlor fork {id} --agent {agent}` continues it with that agent"),
                )
            }
            (_, Some(cwd)) => {
                let option = format!("--cwd {}", cwd.display());
                let hint = format!("`parlor prompt --new {option}` starts a session there");
                (option, format!("works in {}", row.cwd), hint)
            }
            (_, None) => return Ok(()),
        };
        Err(CommandError::bad_input(format_args!("{option} has no effect: session {id} {reason}")).hint(hint))
    }

    async fn send(
        &self,
        data: &DataDir,
        row: Option<&SessionRow>,
        notice: Option<String>,
        content: PromptContent,
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
        let (client, requests, session) =
            opening.await.map_err(|error: Error| CommandError::client(&error))?;
        let mut notices = Vec::from_iter(notice);
        match row {
            Some(_) => {
                let has_ended = |state: &State| state.activity == Activity::Idle;
                if self.now.is_none() && !session.transcript().state().is_none_or(has_ended) {
                    notices.push("another turn is running; the prompt is queued".to_owned());
                }
            }
            None => notices.push(format!("session {}", session.id())),
        }
        for (key, value) in [("model", &self.model), ("mode", &self.mode)] {
            if let Some(value) = value {
                let options = session_options::stored(&self.paths, session.id())?;
                session_options::set(&client, session.id(), &options, key, value).await?;
            }
        }
        let during_turn = match self.now {
            None => DuringTurn::Queue,
            Some(Now::Steer) => DuringTurn::Steer,
            Some(Now::Cancel) => DuringTurn::SteerOrCancel,
        };
        let prompt = content.prompt(client.info())?.during_turn(during_turn);
        if self.no_wait {
            notices.iter().for_each(|notice| print_stderr!("{DIM}{}{DIM:#}", safe(notice)));
            return self.turn_options.send(&session, prompt).await;
        }
        let session_cwd = row.map_or_else(|| cwd.to_string_lossy(), |row| row.cwd.as_str().into());
        let agent = row.map(|row| row.agent.as_str()).or(self.agent.as_deref());
        let notice = notices.join("\n");
        let notice = Some(notice.as_str()).filter(|notice| !notice.is_empty());
        let intro =
            TurnIntro { id: id_in_messages(&self.paths, &session), notice, agent, timeout: self.timeout };
        self.turn_options.follow(&session, requests, intro, Some(prompt), &session_cwd).await
    }

    /// Says which session is used, unless its whole id was given.
    fn selection_notice(&self, row: &SessionRow, name: Option<String>) -> Option<String> {
        let id = session_id(row);
        if self.session.as_ref() == Some(&id) {
            return None;
        }
        let name = name.map(|name| format!(" \"{}\"", name.replace('\n', " ")));
        let is_latest = self.session.as_deref().is_none_or(|name| name == LATEST);
        let why = match (is_latest, self.latest.scope()) {
            (true, LatestScope::Directory) => format!(", latest in {}", short_path(&row.cwd)),
            (true, LatestScope::All) => ", latest of all".to_owned(),
            (false, _) => String::new(),
        };
        Some(format!("session {id}{}{why} ({})", name.unwrap_or_default(), row.agent))
    }
}

/// Parses a duration such as `30s`, `5m` or `2h`; without a unit it is in seconds.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let seconds = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err("use a number with s, m or h, such as 5m".to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| "use a number with s, m or h, such as 5m".to_owned())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(|| "it is too long".to_owned())
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
