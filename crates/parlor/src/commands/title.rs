use std::process::ExitCode;

use clap::Args;
use parlor_json::{Json, JsonStr, Object};
use serde::Serialize;

use crate::command_error::CommandError;
use crate::offline_sessions::{LatestOption, OfflineSessions, session_id};
use crate::output;
use crate::path_options::PathOptions;
use crate::render::safe;
use crate::server;

/// Set or clear the title of a session
///
/// The title stays until you change or clear it. Without it, the session has the latest title from its agent, or else the first
/// words of the first prompt. Prints the resulting title. Starts the local server if it is not running.
#[derive(Args)]
pub(crate) struct Title {
    #[command(flatten)]
    paths: PathOptions,
    #[command(flatten)]
    latest: LatestOption,
    /// Select the session: its id, a unique prefix of its id or title, or `latest`
    #[arg(value_name = "SESSION")]
    session: String,
    /// Set this title; an empty one clears yours
    #[arg(value_name = "TEXT", required_unless_present = "clear", conflicts_with = "clear")]
    text: Option<String>,
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
        let mut params = Object::default();
        params.set(
            "title",
            self.text.as_deref().map_or_else(Json::null, |text| Json::from(&JsonStr::new(text))),
        );
        let result = server::call_for_session(&self.paths, &row, "_parlor/title", params)?;
        let title = result.get("title").and_then(|title| JsonStr::from_raw(title.raw()));
        let title = title.map(|title| title.to_text().into_owned());
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
