//! What commands that run or find a server share.

use std::fs::OpenOptions;
use std::path::PathBuf;

use clap::Args;
use parlor_server::config::Config;
use parlor_server::data_dir::{self, DataDir};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::failure::Failure;

/// Where things are.
#[derive(Args)]
pub(crate) struct Common {
    /// The data directory [default: `PARLOR_DATA_DIR`, else parlor in the XDG data directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// The configuration file [default: `PARLOR_CONFIG`, else parlor/config.toml in the XDG config directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

impl Common {
    pub(crate) fn data_dir(&self) -> Result<PathBuf, Failure> {
        data_dir::path(self.data.clone(), std::env::var_os("PARLOR_DATA_DIR")).map_err(Failure::failed)
    }

    pub(crate) fn config(&self) -> Result<Config, Failure> {
        Config::load(self.config.clone(), std::env::var_os("PARLOR_CONFIG")).map_err(Failure::bad_input)
    }
}

/// A runtime for a server or a client of one.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format_args!("cannot start: {error}")))
}

/// A runtime for a process that copies from here to there, all in one thread.
pub(crate) fn small_runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format_args!("cannot start: {error}")))
}

/// How long a log may grow before the next start puts it aside.
const LOG_LIMIT: u64 = 8 << 20;

/// Writes what happens to the log of the data directory. `PARLOR_LOG` chooses how much.
pub(crate) fn log(data: &DataDir) -> Result<(), Failure> {
    let path = data.log().map_err(Failure::failed)?.join("parlor.log");
    if std::fs::metadata(&path).is_ok_and(|file| file.len() > LOG_LIMIT) {
        let _ = std::fs::rename(&path, path.with_extension("old.log"));
    }
    let file = OpenOptions::new().create(true).append(true).open(&path);
    let file = file.map_err(|error| Failure::failed(format_args!("{}: {error}", path.display())))?;
    let filter = EnvFilter::try_from_env("PARLOR_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::sync::Mutex::new(file))
        .with_ansi(false)
        .try_init();
    Ok(())
}

/// Waits until somebody wants this process to end.
pub(crate) async fn asked_to_stop() {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let mut signals: Vec<_> = kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect();
    let any = signals.iter_mut().map(|signal| Box::pin(signal.recv()));
    futures_util::future::select_all(any).await;
}
