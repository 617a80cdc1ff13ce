//! Sessions that go on from an earlier point: `fork`, `edit` and `regenerate`.

use std::process::ExitCode;

use clap::Args;
use parlor_client::{Client, Hello, Prompt};
use parlor_json::{Json, JsonStr, Object};
use parlor_server::data_dir::DataDir;
use parlor_server::stored::StoredSession;
use parlor_session::{EntryId, Role, SessionId, Transcript};
use serde::Serialize;

use super::{acp, prompt};
use crate::command_error::CommandError;
use crate::offline_sessions::OfflineSessions;
use crate::output::{self, DIM};
use crate::render::safe;
use crate::server;
use crate::setup::{self, PathOptions};
use crate::turn::{TurnIntro, TurnOptions};

/// Go on from a message of a session in a new one
///
/// The new session has everything up to and including the message, under the same ids, and starts no turn. The old one
/// stays as it is. `parlor show SESSION` shows the ids of messages.
#[derive(Args)]
pub(crate) struct Fork {
    #[command(flatten)]
    paths: PathOptions,
    /// The session: its id, the beginning of it, or `latest`
    #[arg(value_name = "SESSION")]
    session: String,
    /// The last message of the new session: its id, or the beginning of it [default: the last one there is]
    #[arg(long, value_name = "MESSAGE")]
    at: Option<String>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// Say something else in place of an earlier prompt
///
/// A new session gets everything before the prompt, and then the new text; the old session stays as it is. The answer is
/// printed as by `parlor prompt`.
#[derive(Args)]
#[command(after_help = "Example:\n  parlor edit latest latest 'What is in the other directory?'")]
pub(crate) struct Edit {
    #[command(flatten)]
    paths: PathOptions,
    /// The session: its id, the beginning of it, or `latest`
    #[arg(value_name = "SESSION")]
    session: String,
    /// The prompt: the id of its message, the beginning of it, or `latest`
    #[arg(value_name = "MESSAGE")]
    message: String,
    /// What to say; `-` reads it from standard input
    #[arg(value_name = "TEXT")]
    text: String,
    #[command(flatten)]
    turn_options: TurnOptions,
}

/// Ask an earlier prompt again
///
/// A new session gets everything before the prompt, and then the same prompt; the old session stays as it is. The answer
/// is printed as by `parlor prompt`.
#[derive(Args)]
pub(crate) struct Regenerate {
    #[command(flatten)]
    paths: PathOptions,
    /// The session: its id, the beginning of it, or `latest`
    #[arg(value_name = "SESSION")]
    session: String,
    /// The prompt, or anything that was answered to it: the id of the message, the beginning of it, or `latest`
    #[arg(value_name = "MESSAGE", default_value = "latest")]
    message: String,
    #[command(flatten)]
    turn_options: TurnOptions,
}

/// What came of a fork, for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Forked {
    session_id: String,
    parent: String,
    message_id: Option<String>,
    /// How the agent knows the conversation: `native`, `transcript` or `empty`.
    fork: String,
    /// Why the agent could not fork by itself, if it tried.
    failed: Option<String>,
}

impl Fork {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let (session, opened) = open(&self.paths, &self.session)?;
        let at = self.at.as_deref().map(|name| message(&opened.transcript, name, |_| true)).transpose()?;
        let data = served(&self.paths)?;
        let runtime = setup::runtime()?;
        let forked = runtime.block_on(async {
            let client = connect(&data).await?;
            let mut params = Object::default();
            params.set("sessionId", session.as_json());
            if let Some(at) = &at {
                params.set("messageId", at);
            }
            let answer =
                client.call("session/fork", &params).await.map_err(|error| CommandError::client(&error))?;
            Forked::new(&session, at.as_ref(), &answer)
        })?;
        if self.json {
            output::print_json(&forked)?;
        } else {
            output::print(|out| {
                writeln!(out, "{}", safe(&forked.session_id))?;
                Ok(())
            })?;
            if let Some(failed) = &forked.failed {
                let note = format!("the agent could not fork and will be given the conversation: {failed}");
                print_stderr!("{DIM}{}{DIM:#}", safe(&note));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Edit {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let (session, opened) = open(&self.paths, &self.session)?;
        let mut params = Object::default();
        params.set("sessionId", session.as_json());
        params.set("messageId", &message(&opened.transcript, &self.message, |role| role == Role::User)?);
        params.set("prompt", Prompt::from(prompt::read(&self.text)?).content().clone());
        ask_again(&self.paths, "_parlor/edit", &params, &self.turn_options, &opened.row.cwd)
    }
}

impl Regenerate {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let (session, opened) = open(&self.paths, &self.session)?;
        let mut params = Object::default();
        params.set("sessionId", session.as_json());
        params.set("messageId", &message(&opened.transcript, &self.message, |_| true)?);
        ask_again(&self.paths, "_parlor/regenerate", &params, &self.turn_options, &opened.row.cwd)
    }
}

/// Has a new session begin with a prompt, and watches its turn.
fn ask_again(
    paths: &PathOptions,
    method: &str,
    params: &Object,
    turn_options: &TurnOptions,
    cwd: &str,
) -> Result<ExitCode, CommandError> {
    let data = served(paths)?;
    let runtime = setup::runtime()?;
    let done = runtime.block_on(async {
        let client = connect(&data).await?;
        let asked = client.requests();
        let answer = client.call(method, params).await.map_err(|error| CommandError::client(&error))?;
        let session = client.session(&session_of(&answer)?);
        let note = format!("session {}", session.id());
        let told = TurnIntro { note: Some(&note), agent: None };
        turn_options.watch(&session, asked, told, None, cwd).await
    });
    runtime.shutdown_background();
    done
}

/// A session and what was said in it.
fn open(paths: &PathOptions, name: &str) -> Result<(SessionId, StoredSession), CommandError> {
    let sessions = OfflineSessions::open(paths)?;
    let opened = sessions.read(&sessions.find(name)?)?;
    let id = JsonStr::from_literal(&opened.row.id).unwrap_or_else(|| JsonStr::new(&opened.row.id));
    Ok((SessionId::from(id), opened))
}

/// The message that is meant: by its id, by the beginning of its id if no other that can be meant begins so, or the `latest`
/// prompt.
fn message(transcript: &Transcript, name: &str, is_meant: fn(Role) -> bool) -> Result<JsonStr, CommandError> {
    let messages = transcript.entries().iter().filter(|entry| !entry.body().removed);
    let messages = messages.filter_map(|entry| match entry.id() {
        EntryId::Message(role, id) => Some((*role, id.as_json())),
        EntryId::ToolCall(_)
        | EntryId::Plan(_)
        | EntryId::Terminal(_)
        | EntryId::Compaction(_)
        | EntryId::Subagent(_)
        | EntryId::SessionMessage(_)
        | EntryId::Event(_)
        | EntryId::Note(_) => None,
    });
    let messages: Vec<_> = messages.collect();
    if name == "latest" {
        let prompt = messages.iter().rfind(|(role, _)| *role == Role::User);
        return prompt
            .map(|(_, id)| (*id).clone())
            .ok_or_else(|| CommandError::bad_input("nothing was asked in this session yet"));
    }
    let exact = JsonStr::new(name);
    if messages.iter().any(|(_, id)| **id == exact) {
        return Ok(exact);
    }
    let begins = |id: &JsonStr| !name.is_empty() && id.to_text().starts_with(name);
    let found = messages.into_iter().filter(|(role, id)| is_meant(*role) && begins(id));
    let found: Vec<_> = found.collect();
    match &found[..] {
        [(_, id)] => Ok((*id).clone()),
        // It may be a name that only the server knows.
        [] => Ok(exact),
        several => {
            let count = several.len();
            let ids: Vec<_> = several.iter().take(3).map(|(_, id)| id.to_text().into_owned()).collect();
            Err(CommandError::bad_input(format_args!("'{name}' is the beginning of {count} ids"))
                .hint(format_args!("write more of the one that is meant: {}", ids.join(", "))))
        }
    }
}

/// The data directory of a server that runs.
fn served(paths: &PathOptions) -> Result<DataDir, CommandError> {
    let data = DataDir::open(&paths.data_dir()?).map_err(CommandError::failed)?;
    acp::ensure_server(&data, paths)?;
    Ok(data)
}

async fn connect(data: &DataDir) -> Result<Client, CommandError> {
    let cwd = std::env::current_dir().ok();
    let hello = Hello { env: acp::environment(), cwd, ..Hello::new() };
    server::connect_to_prompt(data, &hello).await.map_err(|error| CommandError::client(&error))
}

fn session_of(answer: &Object) -> Result<SessionId, CommandError> {
    let id = answer.get("sessionId").and_then(|id| JsonStr::from_raw(id.raw()));
    id.map(SessionId::from).ok_or_else(|| CommandError::failed("the server made a session without an id"))
}

impl Forked {
    fn new(parent: &SessionId, message: Option<&JsonStr>, answer: &Object) -> Result<Self, CommandError> {
        let meta = answer.get("_meta").and_then(|meta| Object::parse(meta.raw()).ok()).unwrap_or_default();
        let noted = |name: &str| {
            let note = meta.get(name).map(Json::raw).and_then(JsonStr::from_raw);
            note.map(|note| note.to_text().into_owned())
        };
        Ok(Self {
            session_id: session_of(answer)?.to_string(),
            parent: parent.to_string(),
            message_id: message.map(|id| id.to_text().into_owned()),
            fork: noted("parlor/fork").unwrap_or_default(),
            failed: noted("parlor/forkFailed"),
        })
    }
}
