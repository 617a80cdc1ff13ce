//! Batches that were done and that the database rejected when the journal was folded.
//!
//! Each is one line of text, for people: why, and all that it would have written. The lines of a session go with it.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::journal_file::sync_dir;
use crate::{Batch, StoreError};

/// How long the file gets. What is rejected after that is lost.
const LONGEST: u64 = 64 << 20;

/// The path of the file beside a database.
pub(super) fn path_of(database: &Path) -> PathBuf {
    let mut path = OsString::from(database);
    path.push(".rejected");
    path.into()
}

/// A file that takes the place of it.
pub(super) fn next_of(path: &Path) -> PathBuf {
    let mut path = OsString::from(path);
    path.push(".new");
    path.into()
}

/// Removes the lines that write to a session, and the file if there are no others.
pub(super) fn forget(path: &Path, session: &str) -> Result<(), StoreError> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        text => text?,
    };
    // Only ids stand in a line like this: in longer texts, quotes have backslashes.
    let id = format!("{session:?}");
    let left: String = text.split_inclusive('\n').filter(|line| !line.contains(&id)).collect();
    if left.len() == text.len() {
        return Ok(());
    }
    if left.is_empty() {
        fs::remove_file(path)?;
    } else {
        let next = next_of(path);
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&next)?;
        file.write_all(left.as_bytes())?;
        file.sync_all()?;
        fs::rename(next, path)?;
    }
    Ok(sync_dir(path)?)
}

/// Appends batches, and sees to it that they outlive a power cut.
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
    if file.metadata()?.len() + lines.len() as u64 > LONGEST {
        tracing::error!(file = %path.display(), "there is too much in the file for more rejected batches");
        return Ok(());
    }
    file.write_all(lines.as_bytes())?;
    file.sync_all()?;
    Ok(sync_dir(path)?)
}
