use std::process::ExitCode;

use clap::Args;
use parlor_json::Object;

use super::fork::{connect, created_session, open};
use crate::background_server;
use crate::command_error::CommandError;
use crate::message_name;
use crate::offline_sessions::LatestOption;
use crate::path_options::PathOptions;
use crate::runtime;
use crate::turn::{TurnIntro, TurnOptions, id_in_messages};

/// Send an earlier prompt again, in a fork of the session
///
/// The new session has all entries before the prompt, and gets the same prompt. The original session is unchanged. The answer
/// is printed as by `parlor prompt`.
#[derive(Args)]
#[command(after_help = "Examples:\n  parlor regenerate latest\n  parlor regenerate latest 7")]
pub(crate) struct Regenerate {
    #[command(flatten)]
    paths: PathOptions,
    #[command(flatten)]
    latest: LatestOption,
    /// Select the session: its id, a unique prefix of its id or name, or `latest`
    #[arg(value_name = "SESSION")]
    session: String,
    /// Select the prompt or a message of its turn: its number (`7`, `-1`), a unique prefix of its id, or `latest`
    #[arg(value_name = "MESSAGE", default_value = "latest", allow_negative_numbers = true)]
    message: String,
    #[command(flatten)]
    turn_options: TurnOptions,
}

impl Regenerate {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let (session, opened) = open(&self.paths, &self.session, self.latest)?;
        let mut params = Object::default();
        params.set("sessionId", session.as_json());
        params.set("messageId", &message_name::find(&opened.transcript, &self.message, |_| true)?);
        prompt_in_fork(&self.paths, "_parlor/regenerate", &params, &self.turn_options, &opened.row.cwd)
    }
}

/// Creates a fork that starts with a prompt, and follows its turn.
pub(super) fn prompt_in_fork(
    paths: &PathOptions,
    method: &str,
    params: &Object,
    turn_options: &TurnOptions,
    cwd: &str,
) -> Result<ExitCode, CommandError> {
    let data = background_server::ensure_running(paths)?;
    let runtime = runtime::multi_threaded()?;
    let result = runtime.block_on(async {
        let client = connect(&data).await?;
        let requests = client.requests();
        let response = client.call(method, params).await.map_err(|error| CommandError::client(&error))?;
        let session = client.session(&created_session(&response)?);
        let notice = format!("session {}", session.id());
        let intro = TurnIntro {
            id: id_in_messages(paths, &session),
            notice: Some(&notice),
            agent: None,
            timeout: None,
        };
        turn_options.follow(&session, requests, intro, None, cwd).await
    });
    runtime.shutdown_background();
    result
}
