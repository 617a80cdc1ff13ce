use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use parlor_store::{Filter, SqliteStore, Store, StoreError};
use serde::Serialize;

use crate::command_error::CommandError;
use crate::offline_sessions::{OfflineSessions, read_pages};
use crate::output::{self, count, size};
use crate::path_options::{DataOption, PathOptions};

/// Write a copy of all sessions to a file
///
/// The file is a consistent copy of the database, also while a server is running, and is checked after it was written. Fails if the
/// file exists.
///
/// To restore it, stop the server, delete `parlor.db.journal` and `parlor.db-wal` in the data directory if they exist, and copy the file
/// to `parlor.db` there.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Backup {
    #[command(flatten)]
    data: DataOption,
    /// Write to this file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  parlor backup parlor-$(date +%F).db
  parlor backup /mnt/backup/parlor.db --json";

#[derive(Serialize)]
struct BackupReport {
    file: PathBuf,
    sessions: usize,
    bytes: u64,
}

impl Backup {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let shown = self.file.display().to_string();
        if self.file.is_dir() {
            return Err(CommandError::bad_input(format_args!("{shown} is a directory"))
                .hint(format_args!("name a file in it: {}", self.file.join("parlor.db").display())));
        }
        if let Some(parent) =
            self.file.parent().filter(|parent| !parent.as_os_str().is_empty() && !parent.is_dir())
        {
            return Err(CommandError::bad_input(format_args!("there is no directory {}", parent.display())));
        }
        if fs::symlink_metadata(&self.file).is_ok() {
            return Err(CommandError::bad_input(format_args!("{shown} exists"))
                .hint("backups overwrite nothing: choose another name, or delete the file"));
        }
        let paths = PathOptions::from(self.data);
        let sessions = OfflineSessions::open(&paths)?;
        let Some(database) = sessions.database() else {
            let path = output::short_path(&paths.data_dir()?.display().to_string());
            return Err(CommandError::failed(format_args!("nothing to back up: {path} has no database")));
        };
        database.back_up(&self.file).map_err(|error| {
            CommandError::failed(format_args!("cannot write the backup to {shown}: {error}"))
        })?;
        let report = check(&self.file).map_err(|error| {
            CommandError::failed(format_args!("the backup {shown} cannot be read: {error}"))
                .hint("`parlor doctor` checks the original")
        })?;
        if self.json {
            output::print_json(&report)?;
        } else {
            let (sessions, bytes) = (count(report.sessions, "session"), size(report.bytes));
            output::print(|out| writeln!(out, "wrote {shown}: {sessions}, {bytes}"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Reads a backup: fails if it is damaged.
fn check(file: &Path) -> Result<BackupReport, StoreError> {
    let copy = SqliteStore::open_read_only(file)?;
    if let Some(damage) = copy.damage(false)?.into_iter().next() {
        return Err(StoreError { kind: parlor_store::ErrorKind::Format, message: damage });
    }
    let all = Filter { owned: true, ..Filter::default() };
    let rows = read_pages(usize::MAX, |after, wanted| copy.sessions(&all, after, wanted))?;
    let bytes = fs::metadata(file)?.len();
    Ok(BackupReport { file: file.to_owned(), sessions: rows.len(), bytes })
}
