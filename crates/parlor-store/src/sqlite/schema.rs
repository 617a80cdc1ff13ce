//! Opens a database and migrates it to the present format.

use std::fs::OpenOptions;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::migrations::ALL as MIGRATIONS;
use crate::{ErrorKind, StoreError};

/// The application id in the header of the file: `prlr`.
const APPLICATION_ID: i64 = 0x7072_6c72;

/// The first format version whose deleted data was overwritten.
const SECURE_DELETE_VERSION: usize = 3;

/// The time to wait for another process that writes.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// The size of the WAL in pages, approximately, at which it is checkpointed: 8 MiB.
pub(super) const CHECKPOINT_PAGES: usize = 2048;

/// The length to which the WAL file is cut after a checkpoint; its space can be used even when the disk is full.
const RETAINED_WAL: i64 = 16 << 20;

/// Opens a database for writing, creates it if it does not exist, and migrates it to the present format.
pub(super) fn open_writer(path: &Path) -> Result<Connection, StoreError> {
    create(path)?;
    let mut conn = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // A file of another program is not changed.
    check(&conn)?;
    conn.pragma_update(None, "page_size", 4096)?;
    let mode: String = conn.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    if mode != "wal" {
        return Err(StoreError::new(
            ErrorKind::Io,
            format!("write-ahead logging is not available, only {mode}"),
        ));
    }
    conn.pragma_update(None, "synchronous", "NORMAL")?;
    // The writer checkpoints when no caller waits.
    conn.pragma_update(None, "wal_autocheckpoint", 0)?;
    conn.pragma_update(None, "journal_size_limit", RETAINED_WAL)?;
    // Deleted data is overwritten.
    conn.pragma_update_and_check(None, "secure_delete", true, |_| Ok(()))?;
    if migrate(&mut conn)? {
        // Without enough disk space the database stays as it is and can be used.
        if let Err(error) = rewrite(&conn) {
            tracing::warn!(
                path = %path.display(),
                "the upgraded database could not be compacted, and may still hold deleted text: {error}"
            );
        }
    }
    Ok(conn)
}

/// Opens another connection to a database that is open for writing, to checkpoint its WAL.
pub(super) fn open_checkpointer(path: &Path) -> Result<Connection, StoreError> {
    let conn = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    conn.pragma_update(None, "synchronous", "NORMAL")?;
    Ok(conn)
}

/// Opens a database for reading; one of an earlier format is an error.
pub(super) fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let conn = open(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let version = check(&conn)?;
    if version < MIGRATIONS.len() { Err(too_old(version)) } else { Ok(conn) }
}

fn too_old(version: usize) -> StoreError {
    let latest = MIGRATIONS.len();
    let message = format!("the database has format version {version}, this program uses {latest}");
    StoreError::new(ErrorKind::Outdated, message)
}

/// Creates an empty file that only its owner may read; SQLite gives its other files the same mode.
fn create(path: &Path) -> Result<(), StoreError> {
    let mut options = OpenOptions::new();
    // An existing file must not be opened: closing it would release the locks that this process has on it.
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
    conn.busy_timeout(LOCK_TIMEOUT)?;
    conn.set_prepared_statement_cache_capacity(64);
    // Query plans do not depend on values here. SQLite would otherwise plan again for each value, which takes longer
    // than most queries.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // Negative numbers are KiB.
    conn.pragma_update(None, "cache_size", -2048)?;
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(conn)
}

/// Returns the format version of a database of this program, or of an empty one.
fn check(conn: &Connection) -> Result<usize, StoreError> {
    let application: i64 = conn.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let empty: bool = conn.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))?;
    if application != APPLICATION_ID && !(application == 0 && empty) {
        return Err(StoreError::new(ErrorKind::Format, "the file is a database of another program"));
    }
    let version: i64 = conn.pragma_query_value(None, "user_version", |row| row.get(0))?;
    match usize::try_from(version) {
        Ok(version) if version <= MIGRATIONS.len() => Ok(version),
        Ok(_) | Err(_) => {
            let latest = MIGRATIONS.len();
            let message = format!(
                "the database has format version {version}, and this program knows versions up to {latest}"
            );
            Err(StoreError::new(ErrorKind::Newer, message))
        }
    }
}

/// Migrates a database to the present format; returns whether its format did not overwrite deleted data.
fn migrate(conn: &mut Connection) -> Result<bool, StoreError> {
    if check(conn)? == MIGRATIONS.len() {
        return Ok(false);
    }
    let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Read again, because another process may have migrated it.
    let version = check(&transaction)?;
    for migration in &MIGRATIONS[version..] {
        migration(&transaction)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", MIGRATIONS.len())?;
    transaction.commit()?;
    Ok((1..SECURE_DELETE_VERSION).contains(&version))
}

/// Rewrites the whole database: earlier versions did not overwrite deleted data, and a migration leaves free pages.
fn rewrite(conn: &Connection) -> rusqlite::Result<()> {
    // In a file, because the whole database may not fit into memory.
    conn.pragma_update(None, "temp_store", "FILE")?;
    let rewritten = conn.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)");
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    rewritten
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_cannot_be_rewritten_says_so_and_goes_on_in_memory() {
        let conn = Connection::open_in_memory().unwrap();
        let temp_store = || conn.pragma_query_value(None, "temp_store", |row| row.get::<_, i64>(0)).unwrap();
        rewrite(&conn).unwrap();
        assert_eq!(temp_store(), 2);
        // VACUUM fails within a transaction.
        conn.execute_batch("BEGIN; CREATE TABLE t (a)").unwrap();
        rewrite(&conn).unwrap_err();
        conn.execute_batch("ROLLBACK").unwrap();
        assert_eq!(temp_store(), 2);
    }
}
