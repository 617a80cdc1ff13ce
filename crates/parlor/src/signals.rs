//! Signals.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask the process to stop: SIGINT, SIGTERM and SIGHUP. Once caught, they do not end the process.
pub(crate) struct StopSignals(Vec<Signal>);

impl StopSignals {
    pub(crate) fn catch() -> Self {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        Self(kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect())
    }

    /// Waits for a signal; returns at once if one arrived since `catch`.
    pub(crate) async fn wait(&mut self) {
        let any = self.0.iter_mut().map(|signal| Box::pin(signal.recv()));
        futures_util::future::select_all(any).await;
    }
}

/// Catches SIGXFSZ, so that a write beyond the file size limit fails with an error, as on a full disk, and does not end the
/// process.
pub(crate) fn ignore_file_size_signal() {
    let _ = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()));
}
