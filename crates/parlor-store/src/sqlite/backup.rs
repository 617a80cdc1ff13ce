//! Copies a database that may be in use.

use std::fs::{self, OpenOptions};
use std::path::Path;

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use super::schema;
use crate::{ErrorKind, StoreError};

/// Copies the database at `source`, in one snapshot, to the new file `target`. A file that was not completed is removed.
pub(super) fn write(source: &Path, target: &Path) -> Result<(), StoreError> {
    // Creates the file, so that an existing one is never overwritten.
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(target)?;
    let copied = copy(source, target);
    if copied.is_err() {
        let _ = fs::remove_file(target);
    }
    copied
}

fn copy(source: &Path, target: &Path) -> Result<(), StoreError> {
    let from = schema::open_reader(source)?;
    let mut to = Connection::open(target)?;
    // All pages in one step: in several, each write of another process would start the copy again.
    match Backup::new(&from, &mut to)?.step(-1)? {
        StepResult::Done => {}
        StepResult::More | StepResult::Busy | StepResult::Locked | _ => {
            return Err(StoreError::new(ErrorKind::Busy, "the database is locked by another process"));
        }
    }
    // The copy is one file, without a WAL beside it.
    to.pragma_update(None, "journal_mode", "DELETE")?;
    to.close().map_err(|(_, error)| error)?;
    Ok(())
}
