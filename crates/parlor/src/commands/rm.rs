use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::mpsc;

use clap::Args;
use parlor_client::Hello;
use parlor_server::agent_sessions;
use parlor_server::data_dir::DataDir;
use parlor_store::{Batch, SessionRow, SqliteStore, Store, Write as StoreWrite};

use crate::command_error::CommandError;
use crate::offline_sessions::{LatestOption, OfflineSessions, id_json, session_id};
use crate::output::{self, count, short_path};
use crate::path_options::PathOptions;
use crate::render::safe;
use crate::runtime;
use crate::server;

/// Delete sessions permanently
///
/// Running turns of these sessions are cancelled. An agent that can delete sessions also deletes its own session. Forks keep the content
/// that they share with them. `parlor usage` no longer counts what deleted sessions used; `parlor archive` keeps everything. Asks for
/// confirmation on a terminal.
#[derive(Args)]
#[command(after_help = "Examples:\n  parlor rm latest\n  parlor rm --yes 3f9c 'flaky test'")]
pub(crate) struct Rm {
    #[command(flatten)]
    paths: PathOptions,
    #[command(flatten)]
    latest: LatestOption,
    /// Select the sessions: ids, unique prefixes of ids or names, or `latest`
    #[arg(value_name = "SESSION", required = true)]
    sessions: Vec<String>,
    /// Delete without confirmation
    #[arg(short, long)]
    yes: bool,
    /// Print the ids of the deleted sessions as a JSON list
    #[arg(long)]
    json: bool,
}

impl Rm {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let sessions = OfflineSessions::open(&self.paths)?;
        // All arguments are resolved before any session is deleted.
        let mut rows: Vec<SessionRow> = Vec::new();
        for name in &self.sessions {
            let row = sessions.find(name, self.latest.scope())?;
            if rows.iter().all(|other| other.id != row.id) {
                rows.push(row);
            }
        }
        if !self.yes && !confirm(&sessions, &rows)? {
            return Err(CommandError::failed("nothing was deleted"));
        }
        drop(sessions);
        let data = self.paths.open_data_dir()?;
        if server::is_running(&data.socket()) {
            runtime::multi_threaded()?.block_on(delete_by_server(&data, &rows))?;
        } else {
            delete_from_store(&data, &rows)?;
        }
        let ids: Vec<_> = rows.iter().map(session_id).collect();
        if self.json {
            output::print_json(&ids)?;
        } else {
            output::print(|out| ids.iter().try_for_each(|id| writeln!(out, "deleted {}", safe(id))))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Asks for confirmation on the terminal.
fn confirm(sessions: &OfflineSessions, rows: &[SessionRow]) -> Result<bool, CommandError> {
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        let failure =
            CommandError::bad_input("cannot ask for confirmation: standard input is not a terminal");
        return Err(failure.hint("--yes deletes without confirmation"));
    }
    let mut err = anstream::stderr();
    let confirmed = (|| {
        for row in rows {
            let name = sessions.display_name(row).ok().flatten().unwrap_or_default();
            writeln!(err, "  {}  {}  {}", safe(&session_id(row)), safe(&name), safe(&short_path(&row.cwd)))?;
        }
        writeln!(err, "They are also deleted at the agent and no longer counted by `parlor usage`.")?;
        write!(err, "Delete {} permanently? [y/N] ", count(rows.len(), "session"))?;
        err.flush()?;
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line)?;
        Ok(matches!(line.trim(), "y" | "Y" | "yes"))
    })();
    confirmed.map_err(|error: io::Error| CommandError::write(&error))
}

async fn delete_by_server(data: &DataDir, rows: &[SessionRow]) -> Result<(), CommandError> {
    let client = server::respond_in_time(server::connect(data, &Hello::new())).await?;
    for row in rows {
        server::respond_in_time(client.session(&id_json(row).into()).delete()).await?;
    }
    Ok(())
}

fn delete_from_store(data: &DataDir, rows: &[SessionRow]) -> Result<(), CommandError> {
    let _lock = data.lock().map_err(|error| {
        let failure = CommandError::lock(&error);
        if failure.is_locked() {
            failure.hint("a server is starting or stopping: try again in a moment")
        } else {
            failure
        }
    })?;
    let store = SqliteStore::open(&data.database()).map_err(CommandError::server_unavailable)?;
    let delete = |row: &SessionRow| {
        std::iter::once(StoreWrite::Delete { session: row.id.clone() })
            .chain(agent_sessions::deleted_agent_session(row))
    };
    let writes = rows.iter().flat_map(delete).collect();
    let (sender, done) = mpsc::sync_channel(1);
    store.write(Batch { writes, durable: true }, Box::new(move |result| drop(sender.send(result))));
    match done.recv() {
        Ok(result) => result.map_err(CommandError::failed),
        Err(_) => Err(CommandError::failed("the store closed before it deleted the sessions")),
    }
}
