//! What SQLite's errors mean to those who use a store.

use rusqlite::ErrorCode;

use crate::{ErrorKind, StoreError};

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self::new(kind(&error), error.to_string())
    }
}

impl From<std::io::Error> for StoreError {
    fn from(error: std::io::Error) -> Self {
        let full = matches!(
            error.kind(),
            std::io::ErrorKind::StorageFull
                | std::io::ErrorKind::QuotaExceeded
                | std::io::ErrorKind::FileTooLarge
        );
        Self::new(if full { ErrorKind::Full } else { ErrorKind::Io }, error.to_string())
    }
}

fn kind(error: &rusqlite::Error) -> ErrorKind {
    let Some(code) = error.sqlite_error_code() else {
        // SQLite did what it was asked, but what it found is not what is written there.
        return ErrorKind::Format;
    };
    if code == ErrorCode::DiskFull || (is_write(error) && has_file_size_limit()) {
        ErrorKind::Full
    } else if matches!(code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) {
        ErrorKind::Format
    } else if matches!(code, ErrorCode::ConstraintViolation | ErrorCode::TooBig) {
        ErrorKind::Invalid
    } else if matches!(code, ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) {
        ErrorKind::Busy
    } else {
        // A disk that fails, a file that may not be opened or written.
        ErrorKind::Io
    }
}

fn is_write(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_IOERR_WRITE)
}

/// Whether files of this process may grow only so far (`ulimit -f`). SQLite tells a write beyond that from no other error.
fn has_file_size_limit() -> bool {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_some()
}
