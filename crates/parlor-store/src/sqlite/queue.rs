//! Batches on their way to the writer.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use crate::{Batch, Done, ErrorKind, StoreError, check};

/// How many batches may wait, and how many bytes.
const MOST_BATCHES: usize = 1024;
const MOST_BYTES: usize = 32 << 20;

/// How many batches go into one commit, and how many bytes.
const GROUP_BATCHES: usize = 256;
const GROUP_BYTES: usize = 8 << 20;

/// A batch and who waits for it.
pub(super) struct Job {
    batch: Batch,
    done: Done,
    bytes: usize,
}

impl Job {
    pub(super) fn split(self) -> (Batch, Done) {
        (self.batch, self.done)
    }
}

/// Batches that wait for one thread, with a limit.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    ready: Condvar,
    room: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    bytes: usize,
    closed: bool,
    /// The thread that writes now: the one that takes, or that of somebody who found nothing to wait for.
    writer: Option<ThreadId>,
}

impl Queue {
    /// Puts a batch at the end, and waits for room first.
    pub(super) fn push(&self, batch: Batch, done: Done) {
        let bytes = check::size(&batch);
        let mut state = self.lock();
        // The thread that writes must not wait for itself: what a `done` writes is let in.
        while state.is_full() && !state.closed && state.writer != Some(thread::current().id()) {
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed {
            drop(state);
            return done(Err(closed()));
        }
        state.bytes += bytes;
        state.jobs.push_back(Job { batch, done, bytes });
        drop(state);
        self.ready.notify_one();
    }

    /// Whether nothing waits and nobody writes, so that the caller may write at once without overtaking anybody. If so,
    /// it has to say when it has [written](Self::written).
    pub(super) fn may_write(&self) -> bool {
        let mut state = self.lock();
        let is_free = state.jobs.is_empty() && state.writer.is_none() && !state.closed;
        if is_free {
            state.writer = Some(thread::current().id());
        }
        is_free
    }

    /// Whoever wrote has done so.
    pub(super) fn written(&self) {
        let mut state = self.lock();
        state.writer = None;
        let waits = !state.jobs.is_empty() || state.closed;
        drop(state);
        if waits {
            self.ready.notify_one();
        }
    }

    /// The batches of the next commit, once there are any; `None` when the queue was closed and is empty. Who takes some
    /// has to say when they are [written](Self::written).
    pub(super) fn take(&self) -> Option<Vec<Job>> {
        let mut state = self.lock();
        while state.writer.is_some() || (state.jobs.is_empty() && !state.closed) {
            state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let mut group = Vec::new();
        let mut bytes = 0;
        while let Some(job) = state.jobs.pop_front() {
            bytes += job.bytes;
            group.push(job);
            if group.len() >= GROUP_BATCHES || bytes >= GROUP_BYTES {
                break;
            }
        }
        state.bytes -= bytes;
        state.writer = (!group.is_empty()).then(|| thread::current().id());
        drop(state);
        self.room.notify_all();
        (!group.is_empty()).then_some(group)
    }

    /// Lets nothing in any more. What waits can still be taken.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.ready.notify_all();
        self.room.notify_all();
    }

    /// Lets nothing in any more, and tells those who wait that nothing will come of it.
    pub(super) fn abandon(&self) {
        self.close();
        let jobs = std::mem::take(&mut self.lock().jobs);
        jobs.into_iter().for_each(|job| (job.done)(Err(closed())));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_full(&self) -> bool {
        self.jobs.len() >= MOST_BATCHES || self.bytes >= MOST_BYTES
    }
}

fn closed() -> StoreError {
    StoreError::new(ErrorKind::Closed, "nothing more is written")
}
