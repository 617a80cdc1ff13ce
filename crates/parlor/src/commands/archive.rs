use std::process::ExitCode;

use clap::Args;
use parlor_json::{Json, Object};

use crate::command_error::CommandError;
use crate::offline_sessions::{LatestOption, OfflineSessions, session_id};
use crate::output;
use crate::path_options::PathOptions;
use crate::render::safe;
use crate::server;

/// Archive or unarchive sessions
///
/// Archived sessions are listed only by `parlor ls --archived`. Archiving cancels a running turn. A prompt unarchives the
/// session. Starts the local server if it is not running.
#[derive(Args)]
#[command(after_help = "Examples:\n  parlor archive latest\n  parlor archive --undo latest")]
pub(crate) struct Archive {
    #[command(flatten)]
    paths: PathOptions,
    #[command(flatten)]
    latest: LatestOption,
    /// Select the sessions: ids, unique prefixes of ids or names, or `latest` (with `--undo`, the latest archived session)
    #[arg(value_name = "SESSION", required = true)]
    sessions: Vec<String>,
    /// Unarchive the sessions
    #[arg(long)]
    undo: bool,
    /// Print the ids of the sessions as a JSON list
    #[arg(long)]
    json: bool,
}

impl Archive {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let sessions = OfflineSessions::open(&self.paths)?;
        // All arguments are resolved before any session is changed.
        let scope = self.latest.scope();
        let find = |name: &String| {
            if self.undo { sessions.find_archived(name, scope) } else { sessions.find(name, scope) }
        };
        let rows: Vec<_> = self.sessions.iter().map(find).collect::<Result<_, _>>()?;
        drop(sessions);
        for row in &rows {
            let mut params = Object::default();
            params
                .set("archived", Json::parse(if self.undo { "false" } else { "true" }).expect("it is JSON"));
            server::call_for_session(&self.paths, row, "_parlor/archive", params)?;
        }
        let ids: Vec<_> = rows.iter().map(session_id).collect();
        let action = if self.undo { "unarchived" } else { "archived" };
        if self.json {
            output::print_json(&ids)?;
        } else {
            output::print(|out| ids.iter().try_for_each(|id| writeln!(out, "{action} {}", safe(id))))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
