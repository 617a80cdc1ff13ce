//! `parlor fork`, and what `parlor edit` and `parlor regenerate` share with it.

use std::process::ExitCode;

use clap::Args;
use parlor_client::{Client, Hello};
use parlor_json::{Json, JsonStr, Object};
use parlor_server::data_dir::DataDir;
use parlor_server::stored::StoredSession;
use parlor_session::SessionId;
use serde::Serialize;

use crate::agent_choice;
use crate::background_server;
use crate::command_error::CommandError;
use crate::message_name;
use crate::offline_sessions::{LatestOption, OfflineSessions, id_json};
use crate::output::{self, DIM};
use crate::path_options::PathOptions;
use crate::render::safe;
use crate::runtime;
use crate::server::{self, client_environment};

/// Fork a session at a message, also to continue it with another agent
///
/// The new session has all entries up to and including the message, with the same ids. No turn is started, and the original
/// session is unchanged. Prints the id of the new session. `parlor show SESSION` prints the numbers of messages.
///
/// With --agent, another agent continues the conversation. It gets the transcript with the next prompt. The working directory
/// and the MCP servers are the same; mode, model and options are those of the new agent. The agent of the original session
/// need not be configured any more.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Fork {
    #[command(flatten)]
    paths: PathOptions,
    #[command(flatten)]
    latest: LatestOption,
    /// Select the session: its id, a unique prefix of its id or name, or `latest`
    #[arg(value_name = "SESSION")]
    session: String,
    /// Fork at this message: its number (`7`, `-1` for the last one) or a unique prefix of its id [default: the last message]
    #[arg(long, value_name = "MESSAGE", allow_negative_numbers = true)]
    at: Option<String>,
    /// Continue with this agent, by name [default: the agent of the session]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  parlor fork latest
  parlor fork latest --at 7
  parlor prompt -s $(parlor fork latest --at -3) try another way
  parlor prompt -s $(parlor fork latest --agent codex) do you agree";

/// The output with `--json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ForkOutput {
    session_id: String,
    parent: String,
    message_id: Option<String>,
    /// How the agent gets the conversation: `native`, `transcript` or `empty`.
    fork: String,
    /// Why the agent failed to fork its own session, if it tried.
    failed: Option<String>,
}

impl Fork {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let (session, opened) = open(&self.paths, &self.session, self.latest)?;
        let at = self
            .at
            .as_deref()
            .map(|name| message_name::find(&opened.transcript, name, |_| true))
            .transpose()?;
        let data = background_server::ensure_running(&self.paths)?;
        if let Some(agent) = &self.agent {
            agent_choice::check_usable(&data.socket(), agent)?;
        }
        let runtime = runtime::multi_threaded()?;
        let forked = runtime.block_on(async {
            let client = connect(&data).await?;
            let mut params = Object::default();
            params.set("sessionId", session.as_json());
            if let Some(at) = &at {
                params.set("messageId", at);
            }
            if let Some(agent) = &self.agent {
                params.set_nested("_meta", "parlor/agent", agent);
            }
            let response =
                client.call("session/fork", &params).await.map_err(|error| CommandError::client(&error))?;
            ForkOutput::new(&session, at.as_ref(), &response)
        })?;
        if self.json {
            output::print_json(&forked)?;
        } else {
            output::print(|out| {
                writeln!(out, "{}", safe(&forked.session_id))?;
                Ok(())
            })?;
            if let Some(failed) = &forked.failed {
                let note = format!(
                    "the agent failed to fork its session and will get the transcript with the next prompt: {failed}"
                );
                print_stderr!("{DIM}{}{DIM:#}", safe(&note));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Reads a session by name.
pub(super) fn open(
    paths: &PathOptions,
    name: &str,
    latest: LatestOption,
) -> Result<(SessionId, StoredSession), CommandError> {
    let sessions = OfflineSessions::open(paths)?;
    let opened = sessions.read(&sessions.find(name, latest.scope())?)?;
    Ok((SessionId::from(id_json(&opened.row)), opened))
}

pub(super) async fn connect(data: &DataDir) -> Result<Client, CommandError> {
    let cwd = std::env::current_dir().ok();
    let hello = Hello { env: client_environment(), cwd, ..Hello::new() };
    server::connect_with_forms(data, &hello).await.map_err(|error| CommandError::client(&error))
}

pub(super) fn created_session(response: &Object) -> Result<SessionId, CommandError> {
    let id = response.get("sessionId").and_then(|id| JsonStr::from_raw(id.raw()));
    id.map(SessionId::from).ok_or_else(|| CommandError::failed("the server's response has no session id"))
}

impl ForkOutput {
    fn new(parent: &SessionId, message: Option<&JsonStr>, response: &Object) -> Result<Self, CommandError> {
        let meta = response.get("_meta").and_then(|meta| Object::parse(meta.raw()).ok()).unwrap_or_default();
        let text = |name: &str| {
            let value = meta.get(name).map(Json::raw).and_then(JsonStr::from_raw);
            value.map(|value| value.to_text().into_owned())
        };
        Ok(Self {
            session_id: created_session(response)?.to_string(),
            parent: parent.to_string(),
            message_id: message.map(|id| id.to_text().into_owned()),
            fork: text("parlor/fork").unwrap_or_default(),
            failed: text("parlor/forkFailed"),
        })
    }
}
