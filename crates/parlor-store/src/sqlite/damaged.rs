//! Damaged journals that are kept beside the database for inspection.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::{journal, journal_file};
use crate::{ErrorKind, StoreError};

/// The most damaged journals that are kept.
const MAX_KEPT: usize = 4;

/// Returns the names that a database's damaged journals can have.
pub(super) fn paths_of(database: &Path) -> [PathBuf; MAX_KEPT] {
    std::array::from_fn(|n| {
        let mut path = OsString::from(journal_file::path_of(database));
        path.push(format!(".damaged-{}", n + 1));
        path.into()
    })
}

/// Renames a journal to an unused name, or replaces the oldest kept journal, and returns the name.
pub(super) fn keep(database: &Path) -> io::Result<PathBuf> {
    let age = |path: &PathBuf| fs::metadata(path).and_then(|found| found.modified());
    let is_free = |path: &&PathBuf| age(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let paths = paths_of(database);
    let oldest = || paths.iter().min_by_key(|path| age(path).unwrap_or(SystemTime::UNIX_EPOCH));
    let kept = paths.iter().find(is_free).or_else(oldest).expect("there are names");
    fs::rename(journal_file::path_of(database), kept)?;
    journal_file::sync_dir(kept)?;
    Ok(kept.clone())
}

/// Returns an error for each kept journal that describes its damage.
pub(super) fn all(database: &Path) -> Result<Vec<StoreError>, StoreError> {
    let mut damaged = Vec::new();
    for path in paths_of(database) {
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            bytes => bytes.map_err(|error| journal_file::failed(&path, &error))?,
        };
        let what = journal::damage_of(&bytes)
            .map_or_else(|| "it could not be read".to_owned(), |damage| damage.to_string());
        let message = format!("{}: {what}", path.display());
        damaged.push(StoreError::new(ErrorKind::DamagedJournal, message));
    }
    Ok(damaged)
}

/// Deletes the kept journals that contain the id of a session.
pub(super) fn remove_session(database: &Path, session: &str) -> io::Result<()> {
    for path in paths_of(database) {
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            bytes => bytes?,
        };
        if bytes.windows(session.len().max(1)).any(|part| part == session.as_bytes()) {
            fs::remove_file(&path)?;
            tracing::warn!(file = %path.display(), "deleted a damaged journal that contained a deleted session");
        }
    }
    Ok(())
}
