//! Opening a database, and bringing it to the present format.

use std::fs::OpenOptions;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::{ErrorKind, StoreError};

/// Each makes a database of the version that is its place in the list into one of the next. Never edited, only
/// added to.
const MIGRATIONS: &[&str] = &[include_str!("migrations/1.sql"), include_str!("migrations/2.sql")];

/// The first version that can be searched.
const SEARCHABLE: usize = 2;

/// Says in a file's header that it is one of ours: `prlr`.
const APPLICATION: i64 = 0x7072_6c72;

/// How long to wait for another process that writes.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many pages the log has, about, when they are moved to the database: 8 MiB.
pub(super) const CHECKPOINT_PAGES: usize = 2048;

/// How long the log file stays when all of it was moved: room that is there even when the disk is full.
const LOG_KEPT: i64 = 16 << 20;

/// Opens a database for writing, makes it if there is none, and brings it to the present format.
pub(super) fn open_writer(path: &Path) -> Result<Connection, StoreError> {
    create(path)?;
    let mut conn = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // Nothing is changed in a file before it is known to be ours.
    check(&conn)?;
    conn.pragma_update(None, "page_size", 4096)?;
    let mode: String = conn.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    if mode != "wal" {
        return Err(StoreError::new(
            ErrorKind::Io,
            format!("no write-ahead log is possible here, only {mode}"),
        ));
    }
    conn.pragma_update(None, "synchronous", "NORMAL")?;
    // The writer sees to it, at a time at which nobody waits.
    conn.pragma_update(None, "wal_autocheckpoint", 0)?;
    conn.pragma_update(None, "journal_size_limit", LOG_KEPT)?;
    migrate(&mut conn)?;
    Ok(conn)
}

/// Opens a database for reading. One of an earlier format has all but the search; one without a format is refused.
pub(super) fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let conn = open(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    match check(&conn)? {
        0 => Err(too_old(0)),
        _ => Ok(conn),
    }
}

/// The search needs the present format.
pub(super) fn check_searchable(conn: &Connection) -> Result<(), StoreError> {
    let version = check(conn)?;
    if version < SEARCHABLE { Err(too_old(version)) } else { Ok(()) }
}

fn too_old(version: usize) -> StoreError {
    let latest = MIGRATIONS.len();
    let message = format!(
        "the database has format version {version}; opening it for writing makes it version {latest}"
    );
    StoreError::new(ErrorKind::Format, message)
}

/// Makes an empty file that only its owner may read; SQLite gives its other files the same mode.
fn create(path: &Path) -> Result<(), StoreError> {
    let mut options = OpenOptions::new();
    // A file that is there must not be opened: closing it again would end the locks that this process has on it.
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            let message = format!("{}: {error}", path.display());
            Err(StoreError { message, ..error.into() })
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

fn open(path: &Path, mode: OpenFlags) -> Result<Connection, StoreError> {
    let conn = Connection::open_with_flags(path, mode | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    conn.busy_timeout(PATIENCE)?;
    conn.set_prepared_statement_cache_capacity(64);
    // Plans do not depend on values here. SQLite would think each of them over again for each value that it is given,
    // which takes longer than most of them run.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // Negative numbers are KiB.
    conn.pragma_update(None, "cache_size", -2048)?;
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(conn)
}

/// The format version of a database that is ours, or is empty.
fn check(conn: &Connection) -> Result<usize, StoreError> {
    let format = |message| Err(StoreError::new(ErrorKind::Format, message));
    let application: i64 = conn.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let empty: bool = conn.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))?;
    if application != APPLICATION && !(application == 0 && empty) {
        return format("the file is a database of another program".to_owned());
    }
    let version: i64 = conn.pragma_query_value(None, "user_version", |row| row.get(0))?;
    match usize::try_from(version) {
        Ok(version) if version <= MIGRATIONS.len() => Ok(version),
        Ok(_) | Err(_) => format(format!(
            "the database has format version {version}, and this program knows versions up to {}",
            MIGRATIONS.len()
        )),
    }
}

fn migrate(conn: &mut Connection) -> Result<(), StoreError> {
    if check(conn)? == MIGRATIONS.len() {
        return Ok(());
    }
    let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Looked up again, because another process may have been first.
    let version = check(&transaction)?;
    for migration in &MIGRATIONS[version..] {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", MIGRATIONS.len())?;
    transaction.commit()?;
    Ok(())
}
