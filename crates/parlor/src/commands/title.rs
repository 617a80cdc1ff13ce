use std::process::ExitCode;

use clap::Args;
use parlor_json::{Json, JsonStr, Object};
use serde::Serialize;

use crate::command_error::CommandError;
use crate::commands::archive;
use crate::offline_sessions::{OfflineSessions, session_id};
use crate::output;
use crate::render::safe;
use crate::setup::PathOptions;

/// Give a session a title, or take it away
///
/// Your title stays until you change or clear it. Without one the session has the title that its agent gave it last, and
/// without that the first words of its first prompt. Joins the local server, and starts one if none runs.
#[derive(Args)]
pub(crate) struct Title {
    #[command(flatten)]
    paths: PathOptions,
    /// The session: its id, the beginning of it, or `latest`
    #[arg(value_name = "SESSION")]
    session: String,
    /// The title; an empty one clears yours
    #[arg(value_name = "TEXT", required_unless_present = "clear", conflicts_with = "clear")]
    text: Option<String>,
    /// Clear your title
    #[arg(long)]
    clear: bool,
    /// Print the title that the session has now, as JSON
    #[arg(long)]
    json: bool,
}

/// What came of it, for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Titled {
    session_id: String,
    title: Option<String>,
}

impl Title {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let row = OfflineSessions::open(&self.paths)?.find(&self.session)?;
        let mut params = Object::default();
        params.set(
            "title",
            self.text.as_deref().map_or_else(Json::null, |text| Json::from(&JsonStr::new(text))),
        );
        let result = archive::ask(&self.paths, &row, "_parlor/title", params)?;
        let title = result.get("title").and_then(|title| JsonStr::from_raw(title.raw()));
        let title = title.map(|title| title.to_text().into_owned());
        if self.json {
            output::print_json(&Titled { session_id: session_id(&row), title })?;
        } else {
            output::print(|out| match &title {
                Some(title) => writeln!(out, "{}", safe(title)),
                None => writeln!(out, "(no title)"),
            })?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
