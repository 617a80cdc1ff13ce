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

/// The signal that asks a server to restart with the same arguments.
pub(crate) const RESTART: rustix::process::Signal = rustix::process::Signal::USR1;

/// Catches the signal [`RESTART`].
pub(crate) struct RestartSignal(Option<Signal>);

impl RestartSignal {
    pub(crate) fn catch() -> Self {
        Self(signal(SignalKind::user_defined1()).ok())
    }

    pub(crate) async fn wait(&mut self) {
        match &mut self.0 {
            Some(signal) => drop(signal.recv().await),
            None => std::future::pending().await,
        }
    }
}

/// Ends the process at once when Ctrl-C is pressed again.
pub(crate) fn exit_on_interrupt() {
    let Ok(mut interrupt) = signal(SignalKind::interrupt()) else { return };
    tokio::spawn(async move {
        interrupt.recv().await;
        // The reaper ends the agents.
        std::process::exit(INTERRUPTED);
    });
}

/// The exit code of a process that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

/// Catches SIGXFSZ, so that a write beyond the file size limit fails with an error, as on a full disk, and does not end the
/// process.
pub(crate) fn ignore_file_size_signal() {
    let _ = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()));
}
