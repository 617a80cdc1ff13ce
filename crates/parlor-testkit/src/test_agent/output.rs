//! Standard output, shared by all threads.

use std::io::{self, Write};
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is collected before it is written without being asked to.
const FULL: usize = 64 * 1024;

/// Standard output behind one lock, so that lines come out whole.
///
/// Lines are collected until somebody has nothing more to say and flushes. What one thread flushes takes the lines
/// of the others along.
#[derive(Debug, Default)]
pub(super) struct Output {
    pending: Mutex<Vec<u8>>,
}

impl Output {
    /// Says a line; it is written at the next flush.
    pub(super) fn line(&self, line: &str) {
        let mut pending = self.lock();
        pending.extend_from_slice(line.as_bytes());
        pending.push(b'\n');
        if pending.len() >= FULL {
            write(&mut pending);
        }
    }

    /// Writes what was said so far.
    pub(super) fn flush(&self) {
        write(&mut self.lock());
    }

    /// Writes one line by itself, after what was said before.
    pub(super) fn line_at_once(&self, line: &str) {
        let mut pending = self.lock();
        write(&mut pending);
        pending.extend_from_slice(line.as_bytes());
        pending.push(b'\n');
        write(&mut pending);
    }

    /// Writes what was said so far, unless another thread is stuck in writing because nobody reads.
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
        // Whoever read is gone, and an agent that nobody hears has nothing left to do.
        process::exit(0);
    }
    pending.clear();
    pending.shrink_to(2 * FULL);
}
