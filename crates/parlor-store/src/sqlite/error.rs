//! Converts errors of SQLite and of files.

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
        // The statement was executed, but a value has another type than the format says.
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
        // For example a failing disk, or a file that cannot be opened or written.
        ErrorKind::Io
    }
}

fn is_write(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_IOERR_WRITE)
}

/// Returns whether the process has a file size limit (`ulimit -f`); SQLite reports a write beyond it as a general I/O
/// error.
fn has_file_size_limit() -> bool {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_some()
}
