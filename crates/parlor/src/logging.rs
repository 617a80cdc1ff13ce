//! The server's log file.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use parlor_server::data_dir::DataDir;
use tracing_subscriber::EnvFilter;

use crate::command_error::CommandError;

/// The size above which the log file is renamed to `parlor.old.log`.
const LOG_LIMIT: u64 = 8 << 20;

/// The path of the log file.
pub(crate) fn path(data: &DataDir) -> PathBuf {
    data.path().join("log").join("parlor.log")
}

/// The path of the previous log file.
pub(crate) fn old_path(data: &DataDir) -> PathBuf {
    path(data).with_extension("old.log")
}

/// Sends log events to `parlor.log` in the data directory. `PARLOR_LOG` sets the level.
pub(crate) fn init(data: &DataDir) -> Result<(), CommandError> {
    data.log().map_err(CommandError::failed)?;
    let path = path(data);
    let file = LogFile::open(&path, old_path(data), LOG_LIMIT).map_err(|error| {
        CommandError::failed(format_args!("cannot open the log {}: {error}", path.display()))
    })?;
    // Earlier versions created it with other permissions.
    let _ = fs::set_permissions(old_path(data), private());
    let filter = EnvFilter::try_from_env("PARLOR_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::sync::Mutex::new(file))
        // It reports write errors of the log with `eprintln!`, which panics if standard error cannot be written either.
        .log_internal_errors(false)
        .with_ansi(false)
        .try_init();
    Ok(())
}

/// A log file that is renamed when it is full.
struct LogFile {
    path: PathBuf,
    old: PathBuf,
    file: File,
    length: u64,
    limit: u64,
}

impl LogFile {
    fn open(path: &Path, old: PathBuf, limit: u64) -> io::Result<Self> {
        let file = append(path)?;
        let length = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), old, file, length, limit })
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.length > self.limit {
            // If it cannot be renamed, it grows.
            let _ = fs::rename(&self.path, &self.old);
            self.file = append(&self.path)?;
            self.length = 0;
        }
        let written = self.file.write(bytes)?;
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn append(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    file.set_permissions(private())?;
    Ok(file)
}

fn private() -> Permissions {
    Permissions::from_mode(0o600)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_log_file_is_renamed_before_the_next_line() {
        let directory = tempfile::tempdir().unwrap();
        let (path, old) = (directory.path().join("a.log"), directory.path().join("a.old.log"));
        let mut log = LogFile::open(&path, old.clone(), 5).unwrap();
        for line in ["first\n", "second\n", "third\n"] {
            log.write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "third\n");
        assert_eq!(fs::read_to_string(&old).unwrap(), "second\n");
        let mut log = LogFile::open(&path, old.clone(), 5).unwrap();
        log.write_all(b"fourth\n").unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "third\n");
    }
}
