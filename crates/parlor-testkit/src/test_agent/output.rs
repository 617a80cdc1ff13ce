//! Standard output, shared by all threads.

use std::io::{self, Write};
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most buffered bytes before they are written without a flush.
const BUFFER_SIZE: usize = 64 * 1024;

/// Buffered standard output behind one lock, so that lines of threads do not mix.
///
/// A flush by one thread also writes the lines of the others.
#[derive(Debug, Default)]
pub(super) struct Output {
    pending: Mutex<Vec<u8>>,
}

impl Output {
    /// Buffers a line until the next flush.
    pub(super) fn line(&self, line: &str) {
        let mut pending = self.lock();
        pending.extend_from_slice(line.as_bytes());
        pending.push(b'\n');
        if pending.len() >= BUFFER_SIZE {
            write(&mut pending);
        }
    }

    /// Writes all buffered lines.
    pub(super) fn flush(&self) {
        write(&mut self.lock());
    }

    /// Writes a line in a write of its own, after all buffered lines.
    pub(super) fn line_at_once(&self, line: &str) {
        let mut pending = self.lock();
        write(&mut pending);
        pending.extend_from_slice(line.as_bytes());
        pending.push(b'\n');
        write(&mut pending);
    }

    /// Writes all buffered lines, unless another thread is blocked in a write because the client does not read.
    pub(super) fn flush_if_free(&self) {
        if let Ok(mut pending) = self.pending.try_lock() {
            write(&mut pending);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whole lines pass through the line buffer of the standard library without a copy, as one write.
fn write(pending: &mut Vec<u8>) {
    if pending.is_empty() {
        return;
    }
    let mut stdout = io::stdout().lock();
    if stdout.write_all(pending).and_then(|()| stdout.flush()).is_err() {
        // The client has closed its end, so the agent exits.
        process::exit(0);
    }
    pending.clear();
    pending.shrink_to(2 * BUFFER_SIZE);
}
