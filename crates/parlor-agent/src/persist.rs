//! Opens the file of sessions.

use std::error::Error;
use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::{Duration, Instant};

use parlor_store::SqliteStore;

use crate::ServeError;

/// How long another process that uses the file may take to end, and how often the lock is tried.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
const LOCK_INTERVAL: Duration = Duration::from_millis(20);

/// Opens a file of sessions, which no other process uses while the lock is open.
pub(crate) async fn open(path: &Path) -> Result<(SqliteStore, File), ServeError> {
    let lock = lock(path).await?;
    let store = SqliteStore::open(path).map_err(|error| cannot_open(path, error))?;
    Ok((store, lock))
}

async fn lock(path: &Path) -> Result<File, ServeError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let file = File::create(Path::new(&name)).map_err(|error| cannot_open(path, error))?;
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                tokio::time::sleep(LOCK_INTERVAL).await;
            }
            Err(TryLockError::WouldBlock) => return Err(ServeError::Locked { path: path.to_owned() }),
            Err(TryLockError::Error(error)) => return Err(cannot_open(path, error)),
        }
    }
}

fn cannot_open(path: &Path, error: impl Into<Box<dyn Error + Send + Sync>>) -> ServeError {
    ServeError::Open { path: path.to_owned(), source: error.into() }
}
