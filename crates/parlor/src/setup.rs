//! What commands that run or find a server share.

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use clap::Args;
use parlor_server::config::Config;
use parlor_server::data_dir::{self, DataDir};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::command_error::CommandError;

/// Where things are.
#[derive(Args)]
pub(crate) struct PathOptions {
    /// The data directory [default: `PARLOR_DATA_DIR`, else parlor in the XDG data directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// The configuration file [default: `PARLOR_CONFIG`, else parlor/config.toml in the XDG config directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

impl PathOptions {
    pub(crate) fn data_dir(&self) -> Result<PathBuf, CommandError> {
        data_dir::path(self.data.clone(), std::env::var_os("PARLOR_DATA_DIR")).map_err(CommandError::failed)
    }

    /// The data directory as it is, if it is there.
    pub(crate) fn existing_data_dir(&self) -> Result<Option<DataDir>, CommandError> {
        DataDir::open_existing(&self.data_dir()?).map_err(|error| {
            CommandError::failed(error)
                .hint("`parlor doctor` looks for what is wrong; --data names another directory")
        })
    }

    pub(crate) fn config(&self) -> Result<Config, CommandError> {
        Config::load(self.config.clone(), std::env::var_os("PARLOR_CONFIG")).map_err(CommandError::bad_input)
    }
}

/// A directory that somebody named, as sessions have it: from the root on, without links and `..`. One that is not there is
/// taken as it is written.
pub(crate) fn canonical_directory(path: &Path) -> Result<PathBuf, CommandError> {
    std::fs::canonicalize(path).or_else(|_| std::path::absolute(path)).map_err(CommandError::bad_input)
}

/// A runtime for a server or a client of one.
pub(crate) fn runtime() -> Result<Runtime, CommandError> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| CommandError::failed(format_args!("cannot start: {error}")))
}

/// A runtime for a process that copies from here to there, all in one thread.
pub(crate) fn single_threaded_runtime() -> Result<Runtime, CommandError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CommandError::failed(format_args!("cannot start: {error}")))
}

/// How long a log may grow before the next start puts it aside.
const LOG_LIMIT: u64 = 8 << 20;

/// Writes what happens to the log of the data directory. `PARLOR_LOG` chooses how much.
pub(crate) fn init_logging(data: &DataDir) -> Result<(), CommandError> {
    let path = data.log().map_err(CommandError::failed)?.join("parlor.log");
    if std::fs::metadata(&path).is_ok_and(|file| file.len() > LOG_LIMIT) {
        let _ = std::fs::rename(&path, path.with_extension("old.log"));
    }
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path).and_then(|file| {
        // One of an earlier version may be open to others.
        file.set_permissions(Permissions::from_mode(0o600))?;
        Ok(file)
    });
    let file = file.map_err(|error| CommandError::failed(format_args!("{}: {error}", path.display())))?;
    let old = path.with_extension("old.log");
    let _ = std::fs::set_permissions(old, Permissions::from_mode(0o600));
    let filter = EnvFilter::try_from_env("PARLOR_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::sync::Mutex::new(file))
        // It would report a log that cannot be written with `eprintln!`, which panics where that cannot be written either.
        .log_internal_errors(false)
        .with_ansi(false)
        .try_init();
    Ok(())
}

/// The signals that ask this process to end. From the moment that they are caught, none of them ends it in the middle of
/// something.
pub(crate) struct StopSignals(Vec<Signal>);

impl StopSignals {
    pub(crate) fn catch() -> Self {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        Self(kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect())
    }

    /// Waits for one of them, also if it came before.
    pub(crate) async fn wait(&mut self) {
        let any = self.0.iter_mut().map(|signal| Box::pin(signal.recv()));
        futures_util::future::select_all(any).await;
    }
}

/// Waits until somebody wants this process to end.
pub(crate) async fn stop_requested() {
    StopSignals::catch().wait().await;
}

/// A file that may grow no further is an error for whoever writes to it, as on a full disk, and no reason to end.
pub(crate) fn ignore_file_size_signal() {
    // A signal that is caught does not end the process. Nobody needs to hear of it: the write fails.
    let _ = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()));
}
