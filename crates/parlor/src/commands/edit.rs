use std::process::ExitCode;

use clap::Args;
use parlor_client::Prompt;
use parlor_json::Object;
use parlor_session::Role;

use super::fork::open;
use super::{prompt, regenerate};
use crate::command_error::CommandError;
use crate::message_name;
use crate::offline_sessions::LatestOption;
use crate::path_options::PathOptions;
use crate::turn::TurnOptions;

/// Replace an earlier prompt, in a fork of the session
///
/// The new session has all entries before the prompt, and gets the new text as a prompt. The original session is unchanged. The
/// answer is printed as by `parlor prompt`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  parlor edit latest latest 'What is in the other directory?'\n  parlor edit latest 7 - < prompt.txt"
)]
pub(crate) struct Edit {
    #[command(flatten)]
    paths: PathOptions,
    #[command(flatten)]
    latest: LatestOption,
    /// Select the session: its id, a unique prefix of its id or name, or `latest`
    #[arg(value_name = "SESSION")]
    session: String,
    /// Select the prompt: its number (`7`, `-2`), a unique prefix of its id, or `latest`
    #[arg(value_name = "MESSAGE", allow_negative_numbers = true)]
    message: String,
    /// Send these words instead; `-` reads them from standard input
    #[arg(value_name = "TEXT", required = true)]
    text: Vec<String>,
    #[command(flatten)]
    turn_options: TurnOptions,
}

impl Edit {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let (session, opened) = open(&self.paths, &self.session, self.latest)?;
        let mut params = Object::default();
        params.set("sessionId", session.as_json());
        params.set(
            "messageId",
            &message_name::find(&opened.transcript, &self.message, |role| role == Role::User)?,
        );
        params.set("prompt", Prompt::from(prompt::read_text(&self.text.join(" "))?).content().clone());
        regenerate::prompt_in_fork(&self.paths, "_parlor/edit", &params, &self.turn_options, &opened.row.cwd)
    }
}
