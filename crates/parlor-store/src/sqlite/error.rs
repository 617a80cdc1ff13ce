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
        let full =
            matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded);
        Self::new(if full { ErrorKind::Full } else { ErrorKind::Io }, error.to_string())
    }
}

fn kind(error: &rusqlite::Error) -> ErrorKind {
    let Some(code) = error.sqlite_error_code() else {
        // SQLite did what it was asked, but what it found is not what is written there.
        return ErrorKind::Format;
    };
    if code == ErrorCode::DiskFull {
        ErrorKind::Full
    } else if matches!(code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) {
        ErrorKind::Format
    } else if matches!(code, ErrorCode::ConstraintViolation | ErrorCode::TooBig) {
        ErrorKind::Invalid
    } else {
        // A disk that fails, a file that may not be opened or written, a lock that another process does not give up.
        ErrorKind::Io
    }
}
