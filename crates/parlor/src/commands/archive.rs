use std::process::ExitCode;

use clap::Args;
use parlor_client::Hello;
use parlor_json::{Json, JsonStr, Object};
use parlor_server::data_dir::DataDir;
use parlor_store::SessionRow;

use crate::command_error::CommandError;
use crate::commands::acp;
use crate::offline_sessions::{OfflineSessions, session_id};
use crate::output;
use crate::render::safe;
use crate::server;
use crate::setup::{self, PathOptions};

/// Put sessions away, or take them out again
///
/// A session that was put away is kept as it is, and listed only by `parlor ls --archived`. Its turn is cancelled; a new
/// prompt takes it out again. Joins the local server, and starts one if none runs.
#[derive(Args)]
pub(crate) struct Archive {
    #[command(flatten)]
    paths: PathOptions,
    /// The sessions: their ids, the beginnings of them, or `latest` (with `--undo` the latest that was put away)
    #[arg(value_name = "SESSION", required = true)]
    sessions: Vec<String>,
    /// Take them out again
    #[arg(long)]
    undo: bool,
    /// Print the ids of the sessions as a JSON list
    #[arg(long)]
    json: bool,
}

impl Archive {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let sessions = OfflineSessions::open(&self.paths)?;
        // All are looked up before any is put away.
        let find = |name: &String| if self.undo { sessions.find_archived(name) } else { sessions.find(name) };
        let rows: Vec<_> = self.sessions.iter().map(find).collect::<Result<_, _>>()?;
        drop(sessions);
        for row in &rows {
            let mut params = Object::default();
            params
                .set("archived", Json::parse(if self.undo { "false" } else { "true" }).expect("it is JSON"));
            ask(&self.paths, row, "_parlor/archive", params)?;
        }
        let ids: Vec<_> = rows.iter().map(session_id).collect();
        let done = if self.undo { "taken out" } else { "put away" };
        if self.json {
            output::print_json(&ids)?;
        } else {
            output::print(|out| ids.iter().try_for_each(|id| writeln!(out, "{done} {}", safe(id))))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Asks the local server for something about a session.
pub(super) fn ask(
    paths: &PathOptions,
    row: &SessionRow,
    method: &str,
    mut params: Object,
) -> Result<Object, CommandError> {
    let data = DataDir::open(&paths.data_dir()?).map_err(CommandError::failed)?;
    acp::ensure_server(&data, paths)?;
    let id = JsonStr::from_literal(&row.id).unwrap_or_else(|| JsonStr::new(&row.id));
    params.set("sessionId", Json::from(&id));
    let runtime = setup::runtime()?;
    let asked = runtime.block_on(async {
        let client = server::connect(&data, &Hello::new()).await?;
        client.call(method, &params).await
    });
    runtime.shutdown_background();
    asked.map_err(|error| CommandError::client(&error))
}
