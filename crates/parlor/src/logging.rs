//! The server's log file.

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};

use parlor_server::data_dir::DataDir;
use tracing_subscriber::EnvFilter;

use crate::command_error::CommandError;

/// The size above which the next start renames the log file to `parlor.old.log`.
const LOG_LIMIT: u64 = 8 << 20;

/// Sends log events to `parlor.log` in the data directory. `PARLOR_LOG` sets the level.
pub(crate) fn init(data: &DataDir) -> Result<(), CommandError> {
    let path = data.log().map_err(CommandError::failed)?.join("parlor.log");
    let old = path.with_extension("old.log");
    if std::fs::metadata(&path).is_ok_and(|file| file.len() > LOG_LIMIT) {
        let _ = std::fs::rename(&path, &old);
    }
    let private = || Permissions::from_mode(0o600);
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path).and_then(|file| {
        // Earlier versions created it with other permissions.
        file.set_permissions(private())?;
        Ok(file)
    });
    let file = file.map_err(|error| {
        CommandError::failed(format_args!("cannot open the log {}: {error}", path.display()))
    })?;
    let _ = std::fs::set_permissions(old, private());
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
