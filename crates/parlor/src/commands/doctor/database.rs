//! Checks of the database, its journal and the sessions in it.

use std::path::Path;

use parlor_server::data_dir::DataDir;
use parlor_server::stored;
use parlor_store::{ErrorKind, Filter, SqliteStore, Store, StoreError};

use super::Check;
use super::files::mode_of;
use crate::offline_sessions::{read_pages, session_id};
use crate::output::{count, short_path};

/// How many of the latest sessions are read, and about how many of the others, unless all are.
const SAMPLE: usize = 100;

/// How many unreadable sessions are named.
const SHOWN: usize = 5;

pub(super) fn database(data: &DataDir, full: bool) -> Vec<Check> {
    let name = "database";
    let path = data.database();
    let shown = short_path(&path.display().to_string());
    if let Ok(false) = path.try_exists() {
        return vec![Check::ok(name, "not created yet")];
    }
    let opened = SqliteStore::open_read_only(&path);
    // A damaged journal is kept as a file, so that it is also found by later checks.
    let mut checks = journals(&path);
    let store = match opened {
        Ok(store) => store,
        Err(error) => {
            checks.insert(0, unreadable(&shown, &error));
            return checks;
        }
    };
    let inspected = store.format_version().and_then(|version| Ok((version, store.damage(full)?)));
    let file = match inspected {
        Err(error) => unreadable(&shown, &error),
        Ok((_, damage)) if !damage.is_empty() => damaged(&shown, &damage.join("; ")),
        Ok((version, _)) => match mode_of(&path) {
            Some(mode) if mode & 0o077 != 0 => Check::fail(
                name,
                format!("{shown} has mode {mode:04o}: other users can read it"),
                format!("chmod 600 {shown}"),
            ),
            Some(_) | None => Check::ok(name, format!("{shown}, format version {version}")),
        },
    };
    checks.insert(0, file);
    checks.push(sessions(&store, full));
    checks
}

/// Checks for damaged journals, which are kept until the user deletes them.
fn journals(database: &Path) -> Vec<Check> {
    let hint = "the changes in it that could not be read are lost, the others are in the database; delete the file \
                if you do not need it";
    let errors = SqliteStore::damaged_journals(database).unwrap_or_else(|error| vec![error]);
    errors.into_iter().map(|error| Check::fail("journal", error.message, hint)).collect()
}

/// Reports a database that cannot be read. Only a damaged one should be replaced, not one with a temporary problem.
fn unreadable(shown: &str, error: &StoreError) -> Check {
    let name = "database";
    let message = format!("{shown}: {error}");
    match error.kind {
        ErrorKind::Format => damaged(shown, error),
        ErrorKind::Outdated => Check::warn(name, message, "`parlor serve` migrates it"),
        ErrorKind::Newer => {
            Check::fail(name, message, "use the version of parlor that wrote it, or a later one")
        }
        ErrorKind::DamagedJournal => Check::fail(
            name,
            message,
            "restart the server: it keeps the journal as a file and continues without it",
        ),
        ErrorKind::Full => Check::fail(
            name,
            message,
            "delete or move files on this disk; the server then continues by itself",
        ),
        ErrorKind::Io | ErrorKind::Busy | ErrorKind::Invalid | ErrorKind::Closed | _ => {
            Check::fail(name, message, "")
        }
    }
}

fn damaged(path: &str, error: &dyn std::fmt::Display) -> Check {
    let hint = "restore a backup, or move the file away: the next server creates a new one";
    Check::fail("database", format!("{path}: {error}"), hint)
}

/// Reads a sample of the sessions, or all of them, as a server would.
fn sessions(store: &SqliteStore, full: bool) -> Check {
    let name = "sessions";
    let hint = "they are not changed; `parlor rm` deletes one";
    let all = Filter { owned: true, ..Filter::default() };
    let rows = read_pages(usize::MAX, |after, wanted| store.sessions(&all, after, wanted));
    let rows = match rows {
        Ok(rows) => rows,
        Err(error) => return Check::fail(name, error.to_string(), ""),
    };
    // The first ones are the latest; the others are sampled evenly.
    let step = if full { 1 } else { rows.len().saturating_sub(SAMPLE).div_ceil(SAMPLE).max(1) };
    let sample = rows.iter().enumerate().filter(|(n, _)| *n < SAMPLE || n % step == 0).map(|(_, row)| row);
    let (mut read, mut unreadable) = (0, Vec::new());
    for row in sample {
        match stored::open(store, &row.id) {
            // `None` if it was deleted meanwhile.
            Ok(_) => read += 1,
            Err(error) => unreadable.push(format!("{}: {error}", session_id(row))),
        }
    }
    if !unreadable.is_empty() {
        let all = unreadable.len();
        unreadable.truncate(SHOWN);
        let count = count(all, "session");
        return Check::fail(name, format!("{count} cannot be read: {}", unreadable.join("; ")), hint);
    }
    let all = count(rows.len(), "session");
    if read < rows.len() {
        return Check::ok(name, format!("read {read} of {all}; --full reads all"));
    }
    Check::ok(name, format!("read {all}"))
}
