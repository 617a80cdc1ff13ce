//! A line on the terminal that shows what a long installation does.

use std::future::Future;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often the line is written again.
const INTERVAL: Duration = Duration::from_millis(200);

/// The state of an installation, which it updates.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The bytes received.
    received: AtomicU64,
    /// The bytes of the download; 0 if they are unknown.
    total: AtomicU64,
}

impl Progress {
    /// Sets the number of bytes received, and of all bytes if it is known.
    pub(crate) fn set(&self, received: u64, total: Option<u64>) {
        self.received.store(received, Ordering::Relaxed);
        self.total.store(total.unwrap_or(0), Ordering::Relaxed);
    }

    fn text(&self) -> String {
        let received = self.received.load(Ordering::Relaxed);
        match self.total.load(Ordering::Relaxed) {
            _ if received == 0 => String::new(),
            0 => format!(", {}", size(received)),
            total => format!(", {} of {}", size(received), size(total)),
        }
    }

    /// Waits for a future. On a terminal, writes `label` with the time and the bytes until then.
    pub(crate) async fn show<T>(&self, label: &str, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        if !std::io::stderr().is_terminal() {
            return work.await;
        }
        let started = Instant::now();
        let mut ticks = tokio::time::interval(INTERVAL);
        loop {
            tokio::select! {
                done = &mut work => {
                    write("");
                    return done;
                }
                _ = ticks.tick() => write(&format!("{label} ({} s{})", started.elapsed().as_secs(), self.text())),
            }
        }
    }
}

/// Replaces the line.
fn write(text: &str) {
    let mut stderr = anstream::stderr().lock();
    let _ = write!(stderr, "\r\x1b[K{text}").and_then(|()| stderr.flush());
}

/// A number of bytes, for people.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes.div_ceil(1000)),
        1_000_000..1_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{}.{} GB", bytes / 1_000_000_000, bytes / 100_000_000 % 10),
    }
}
