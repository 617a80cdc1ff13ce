use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use parlor_client::{Activity, Agent, Error, Hello, State};
use parlor_json::JsonStr;
use parlor_server::data_dir::DataDir;
use parlor_session::SessionId;

use crate::commands::acp;
use crate::failure::Failure;
use crate::library::Library;
use crate::server;
use crate::setup::{self, Common};
use crate::turn::Watching;

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
    common: Common,
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
    #[arg(long, value_name = "NAME", requires = "new")]
    agent: Option<String>,
    /// Where the new session works [default: here]
    #[arg(long, value_name = "DIR", requires = "new")]
    cwd: Option<PathBuf>,
    #[command(flatten)]
    watching: Watching,
}

const USAGE: &str = "parlor prompt [OPTIONS] <SESSION> <TEXT>
       parlor prompt [OPTIONS] --new <TEXT>";

const EXAMPLES: &str = "Examples:
  parlor prompt --new 'What is in this directory?'
  git diff | parlor prompt latest -";

impl Prompt {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let (session, text) = match (&self.second, self.new) {
            (Some(text), _) => (Some(Library::open(&self.common)?.find_any(&self.first)?), text),
            (None, true) => (None, &self.first),
            (None, false) => {
                let failure = Failure::bad_input("it is not said in which session, or what");
                return Err(failure.hint("name a session (`parlor ls` lists them), say latest, or add --new"));
            }
        };
        let text = read(text)?;
        let id = session.map(|row| {
            SessionId::from(JsonStr::from_literal(&row.id).unwrap_or_else(|| JsonStr::new(&row.id)))
        });
        let data = DataDir::open(&self.common.data_dir()?).map_err(Failure::failed)?;
        acp::ensure_server(&data, &self.common)?;
        let runtime = setup::runtime()?;
        let done = runtime.block_on(self.talk(&data, id, &text));
        runtime.shutdown_background();
        done
    }

    async fn talk(&self, data: &DataDir, id: Option<SessionId>, text: &str) -> Result<ExitCode, Failure> {
        let failed = |error: Error| Failure::server(&error);
        let cwd = std::path::absolute(self.cwd.as_deref().unwrap_or_else(|| ".".as_ref()))
            .map_err(Failure::bad_input)?;
        if !cwd.is_dir() {
            return Err(Failure::bad_input(format_args!("{} is no directory", cwd.display())));
        }
        let hello = Hello {
            agent: self.agent.clone().map(Agent::Name),
            env: acp::environment(),
            cwd: Some(cwd.clone()),
            ..Hello::new()
        };
        let client = server::connect(data, &hello).await.map_err(failed)?;
        let asked = client.questions();
        let (session, note) = match id {
            Some(id) => {
                let session = client.join(&id, &cwd).await.map_err(failed)?;
                let is_idle = |state: &State| state.activity == Activity::Idle;
                let is_free = session.read(|transcript| transcript.state().is_none_or(is_idle));
                (session, (!is_free).then(|| "a turn runs; this waits for its end".to_owned()))
            }
            None => {
                let session = client.new_session(&cwd).await.map_err(failed)?;
                let note = format!("session {}", session.id());
                (session, Some(note))
            }
        };
        self.watching.watch(&session, asked, note.as_deref(), Some(text)).await
    }
}

/// The text that is meant.
pub(super) fn read(text: &str) -> Result<String, Failure> {
    let mut text = text.to_owned();
    if text == "-" {
        text.clear();
        std::io::stdin()
            .read_to_string(&mut text)
            .map_err(|error| Failure::bad_input(format_args!("standard input cannot be read: {error}")))?;
    }
    if text.trim().is_empty() {
        return Err(Failure::bad_input("there is nothing to say"));
    }
    Ok(text)
}
