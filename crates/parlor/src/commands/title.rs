use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::set;
use crate::command_error::CommandError;
use crate::offline_sessions::{LatestOption, OfflineSessions, session_id};
use crate::output;
use crate::path_options::PathOptions;
use crate::render::safe;

/// Set or clear the title of a session
///
/// The title stays until you change or clear it. Without it, the session has the latest title from its agent, or else the first
/// words of the first prompt. Prints the resulting title. Starts the local server if it is not running.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  parlor title latest 'Fix the flaky test'\n  parlor title latest --clear"
)]
pub(crate) struct Title {
    #[command(flatten)]
    paths: PathOptions,
    #[command(flatten)]
    latest: LatestOption,
    /// Select the session: its id, a unique prefix of its id or name, or `latest`
    #[arg(value_name = "SESSION")]
    session: String,
    /// Set this title; an empty one clears yours
    #[arg(value_name = "TEXT", required_unless_present = "clear", conflicts_with = "clear")]
    text: Vec<String>,
    /// Clear the title that you set
    #[arg(long)]
    clear: bool,
    /// Print the id and the resulting title as JSON
    #[arg(long)]
    json: bool,
}

/// The output with `--json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TitleOutput {
    session_id: String,
    title: Option<String>,
}

impl Title {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let row = OfflineSessions::open(&self.paths)?.find(&self.session, self.latest.scope())?;
        let title =
            set::set_title(&self.paths, &row, Some(self.text.join(" ")).as_deref().filter(|_| !self.clear))?;
        if self.json {
            output::print_json(&TitleOutput { session_id: session_id(&row), title })?;
        } else {
            output::print(|out| match &title {
                Some(title) => writeln!(out, "{}", safe(title)),
                None => writeln!(out, "(no title)"),
            })?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
