use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::mpsc;

use clap::Args;
use parlor_client::{Error, Hello};
use parlor_json::JsonStr;
use parlor_server::agent_sessions;
use parlor_server::data_dir::{DataDir, DataDirError};
use parlor_store::{Batch, SessionRow, SqliteStore, Store, Write as StoreWrite};

use crate::command_error::CommandError;
use crate::offline_sessions::{OfflineSessions, session_id, session_title};
use crate::output::{self, count, short_path};
use crate::render::safe;
use crate::server;
use crate::setup::{self, PathOptions};

/// Delete sessions, for good
///
/// A running server ends the turns of these sessions and deletes them; without one they are deleted from the store.
/// Sessions that were forked from them keep what they share. Asks first, on a terminal.
#[derive(Args)]
pub(crate) struct Rm {
    #[command(flatten)]
    paths: PathOptions,
    /// The sessions: their ids, the beginnings of them, or `latest`
    #[arg(value_name = "SESSION", required = true)]
    sessions: Vec<String>,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Print the ids of the deleted sessions as a JSON list
    #[arg(long)]
    json: bool,
}

impl Rm {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let sessions = OfflineSessions::open(&self.paths)?;
        // All are looked up before any is deleted.
        let mut rows: Vec<SessionRow> = Vec::new();
        for name in &self.sessions {
            let row = sessions.find(name)?;
            if rows.iter().all(|other| other.id != row.id) {
                rows.push(row);
            }
        }
        if !self.yes && !ask(&sessions, &rows)? {
            return Err(CommandError::failed("nothing was deleted"));
        }
        drop(sessions);
        let data = DataDir::open(&self.paths.data_dir()?).map_err(CommandError::failed)?;
        if server::is_running(&data.socket()) {
            setup::runtime()?
                .block_on(through_server(&data, &rows))
                .map_err(|error| CommandError::client(&error))?;
        } else {
            from_store(&data, &rows)?;
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

/// Asks the person at the terminal.
fn ask(sessions: &OfflineSessions, rows: &[SessionRow]) -> Result<bool, CommandError> {
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        let failure = CommandError::bad_input("nobody is here to ask whether the sessions are to be deleted");
        return Err(failure.hint("--yes deletes them without asking"));
    }
    let mut err = anstream::stderr();
    let asked = (|| {
        for row in rows {
            let title = match session_title(row) {
                Some(title) => title,
                None => sessions.first_prompt_line(row).ok().flatten().unwrap_or_default(),
            };
            writeln!(err, "  {}  {}  {}", safe(&session_id(row)), safe(&title), safe(&short_path(&row.cwd)))?;
        }
        write!(err, "Delete {} for good? [y/N] ", count(rows.len(), "session"))?;
        err.flush()?;
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line)?;
        Ok(matches!(line.trim(), "y" | "Y" | "yes"))
    })();
    asked.map_err(|error: io::Error| CommandError::write(&error))
}

async fn through_server(data: &DataDir, rows: &[SessionRow]) -> Result<(), Error> {
    let client = server::connect(data, &Hello::new()).await?;
    for row in rows {
        let id = JsonStr::from_literal(&row.id).unwrap_or_else(|| JsonStr::new(&row.id));
        client.session(&id.into()).delete().await?;
    }
    Ok(())
}

fn from_store(data: &DataDir, rows: &[SessionRow]) -> Result<(), CommandError> {
    let _lock = data.lock().map_err(|error| {
        let is_locked = matches!(error, DataDirError::Locked { .. });
        let failure = CommandError::failed(error);
        if is_locked {
            failure.hint("a server is about to start or to end: try again in a moment")
        } else {
            failure
        }
    })?;
    let store = SqliteStore::open(&data.database()).map_err(CommandError::failed)?;
    let delete = |row: &SessionRow| {
        std::iter::once(StoreWrite::Delete { session: row.id.clone() })
            .chain(agent_sessions::deleted_agent_session(row))
    };
    let writes = rows.iter().flat_map(delete).collect();
    let (sender, done) = mpsc::channel();
    store.write(Batch { writes, durable: true }, Box::new(move |result| drop(sender.send(result))));
    match done.recv() {
        Ok(result) => result.map_err(CommandError::failed),
        Err(_) => Err(CommandError::failed("the store is gone")),
    }
}
