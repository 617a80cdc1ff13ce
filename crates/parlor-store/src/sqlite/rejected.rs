//! Batches that were reported as done and that the database rejected when the journal was folded.
//!
//! Each is one line of text for people, with the reason and all writes. The lines of a session are deleted with it.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::journal_file::sync_dir;
use crate::{Batch, StoreError};

/// The most bytes of the file; batches that are rejected after that are dropped.
const MAX_LENGTH: u64 = 64 << 20;

/// Returns the path of the file for a database.
pub(super) fn path_of(database: &Path) -> PathBuf {
    let mut path = OsString::from(database);
    path.push(".rejected");
    path.into()
}

/// Returns the path of the temporary file that replaces it.
pub(super) fn temporary_path_of(path: &Path) -> PathBuf {
    let mut path = OsString::from(path);
    path.push(".new");
    path.into()
}

/// Removes the lines that write to a session, and the file if no lines remain.
pub(super) fn remove_session(path: &Path, session: &str) -> Result<(), StoreError> {
    // Bytes, because a kill or a full disk can end the file in the middle of a character.
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        bytes => bytes?,
    };
    // Only ids appear in this form in a line: quotes in longer texts are escaped.
    let id = format!("{session:?}").into_bytes();
    let is_kept = |line: &&[u8]| !line.windows(id.len()).any(|part| part == id);
    let left = bytes.split_inclusive(|byte| *byte == b'\n').filter(is_kept).collect::<Vec<_>>().concat();
    if left.len() == bytes.len() {
        return Ok(());
    }
    if left.is_empty() {
        fs::remove_file(path)?;
    } else {
        let next = temporary_path_of(path);
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&next)?;
        file.write_all(&left)?;
        file.sync_all()?;
        fs::rename(next, path)?;
    }
    Ok(sync_dir(path)?)
}

/// Appends batches and syncs the file.
pub(super) fn append<'a>(
    path: &Path,
    batches: impl Iterator<Item = (&'a Batch, &'a StoreError)>,
) -> Result<(), StoreError> {
    let mut lines = String::new();
    for (batch, error) in batches {
        writeln!(lines, "{:?} {:?}", error.to_string(), batch.writes).expect("a string takes all");
    }
    if lines.is_empty() {
        return Ok(());
    }
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let length = file.metadata()?.len();
    if length + lines.len() as u64 > MAX_LENGTH {
        tracing::error!(file = %path.display(), "the file of rejected batches is full");
        return Ok(());
    }
    if let Err(error) = file.write_all(lines.as_bytes()) {
        // The lines are written again when the journal is folded.
        let _ = file.set_len(length);
        return Err(error.into());
    }
    file.sync_all()?;
    Ok(sync_dir(path)?)
}
