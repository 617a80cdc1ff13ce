use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use parlor_json::{Json, JsonStr, Object, string_literal};
use parlor_server::data_dir::DataDir;
use parlor_server::doors::hello::{Agent, Hello};
use parlor_session::SessionId;

use crate::client::{self, Client};
use crate::commands::acp;
use crate::failure::Failure;
use crate::library::Library;
use crate::output::DIM;
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
        let server = |error: client::Error| Failure::server(&error);
        let writing = |error: std::io::Error| Failure::writing(&error);
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
        let mut client = Client::connect(&data.socket(), &hello).await.map_err(server)?;
        client.initialize().await.map_err(server)?;
        let mut screen = self.watching.screen();
        let session = match id {
            Some(id) => {
                let joined = client.call("session/resume", &place(Some(&id), &cwd)).await.map_err(server)?;
                if !is_idle(&joined) {
                    screen.note("a turn runs; this waits for its end", DIM).map_err(writing)?;
                }
                id
            }
            None => {
                let begun = client.call("session/new", &place(None, &cwd)).await.map_err(server)?;
                let id = begun.get("sessionId").and_then(|id| JsonStr::from_raw(id.raw()));
                let id = id.ok_or_else(|| Failure::failed("the server began a session without an id"))?;
                screen.note(&format!("session {id}"), DIM).map_err(writing)?;
                SessionId::from(id)
            }
        };
        let mut params = Object::default();
        params.set("sessionId", session.as_json());
        params.set("prompt", words(text));
        let asked = client.ask("session/prompt", &params).await.map_err(server)?;
        self.watching.watch(client, session, screen, Some(asked)).await
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

/// A text as the content of a prompt.
pub(super) fn words(text: &str) -> Json {
    let block = format!(r#"[{{"type":"text","text":{}}}]"#, string_literal(text));
    Json::parse(block).expect("it is made of JSON")
}

/// Where a session is and works.
fn place(session: Option<&SessionId>, cwd: &std::path::Path) -> Object {
    let mut params = Object::default();
    if let Some(session) = session {
        params.set("sessionId", session.as_json());
    }
    params.set("cwd", Json::from(&JsonStr::new(&cwd.to_string_lossy())));
    params.set("mcpServers", Json::parse("[]").expect("it is JSON"));
    params
}

/// Whether no turn runs in a session that was joined.
fn is_idle(joined: &Object) -> bool {
    let meta = joined.get("_meta").and_then(|meta| Object::parse(meta.raw()).ok());
    let state =
        meta.and_then(|meta| meta.get("parlor/state").and_then(|state| JsonStr::from_raw(state.raw())));
    state.is_none_or(|state| state.inner() == "idle")
}
