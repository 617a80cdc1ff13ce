use std::process::ExitCode;

use clap::Args;
use parlor_client::Hello;
use parlor_json::{Json, JsonStr, Object};
use parlor_server::data_dir::DataDir;
use parlor_store::SessionRow;

use crate::commands::acp;
use crate::failure::Failure;
use crate::library::{Library, id_of};
use crate::output;
use crate::render::safe;
use crate::server;
use crate::setup::{self, Common};

/// Put sessions away, or take them out again
///
/// A session that was put away is kept as it is, and listed only by `parlor ls --archived`. Its turn is cancelled; a new
/// prompt takes it out again. Joins the local server, and starts one if none runs.
#[derive(Args)]
pub(crate) struct Archive {
    #[command(flatten)]
    common: Common,
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
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let library = Library::open(&self.common)?;
        // All are looked up before any is put away.
        let find = |name: &String| if self.undo { library.find_archived(name) } else { library.find(name) };
        let rows: Vec<_> = self.sessions.iter().map(find).collect::<Result<_, _>>()?;
        drop(library);
        for row in &rows {
            let mut params = Object::default();
            params
                .set("archived", Json::parse(if self.undo { "false" } else { "true" }).expect("it is JSON"));
            ask(&self.common, row, "_parlor/archive", params)?;
        }
        let ids: Vec<_> = rows.iter().map(id_of).collect();
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
    common: &Common,
    row: &SessionRow,
    method: &str,
    mut params: Object,
) -> Result<Object, Failure> {
    let data = DataDir::open(&common.data_dir()?).map_err(Failure::failed)?;
    acp::ensure_server(&data, common)?;
    let id = JsonStr::from_literal(&row.id).unwrap_or_else(|| JsonStr::new(&row.id));
    params.set("sessionId", Json::from(&id));
    let runtime = setup::runtime()?;
    let asked = runtime.block_on(async {
        let client = server::connect(&data, &Hello::new()).await?;
        client.call(method, &params).await
    });
    runtime.shutdown_background();
    asked.map_err(|error| Failure::server(&error))
}
