//! Journals that are damaged, which are kept beside the database for people to look at.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::{journal, journal_file};
use crate::{ErrorKind, StoreError};

/// How many are kept.
const MOST: usize = 4;

/// The names that a database's damaged journals can have.
pub(super) fn paths_of(database: &Path) -> [PathBuf; MOST] {
    std::array::from_fn(|n| {
        let mut path = OsString::from(journal_file::path_of(database));
        path.push(format!(".damaged-{}", n + 1));
        path.into()
    })
}

/// Renames a journal to a name that is free, else to that of the oldest one, which goes. Returns the name.
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

/// Says what is wrong with each one that is kept.
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

/// Deletes those that name a session.
pub(super) fn forget(database: &Path, session: &str) -> io::Result<()> {
    for path in paths_of(database) {
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            bytes => bytes?,
        };
        if bytes.windows(session.len().max(1)).any(|part| part == session.as_bytes()) {
            fs::remove_file(&path)?;
            tracing::warn!(file = %path.display(), "a damaged journal is deleted with a session that is in it");
        }
    }
    Ok(())
}
