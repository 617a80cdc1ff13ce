use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::{
    Batch, Cursor, Done, EntryRow, ErrorKind, Filter, Hit, Search, SessionRow, SlotRow, Store, StoreError,
};

/// A store for tests that fails, delays or blocks calls on demand.
///
/// All calls go to the inner store, except the writes that [`fail_next`](FaultyStore::fail_next) makes fail: their
/// `done` is called with the error before `write` returns.
///
/// ```
/// use parlor_store::{Batch, ErrorKind, FaultyStore, MemoryStore, Store};
///
/// let store = FaultyStore::new(MemoryStore::default());
/// store.fail_next(1, ErrorKind::Full);
/// store.write(Batch::default(), Box::new(|result| assert_eq!(result.unwrap_err().kind, ErrorKind::Full)));
/// store.write(Batch::default(), Box::new(|result| assert_eq!(result, Ok(()))));
///
/// let (begun, time) = (std::time::Instant::now(), std::time::Duration::from_millis(50));
/// store.stall_next(1, time);
/// store.write(Batch::default(), Box::new(move |_| assert!(begun.elapsed() >= time)));
///
/// let hold = store.hold_reads(1);
/// std::thread::scope(|scope| {
///     let reading = scope.spawn(|| store.value("k"));
///     hold.wait();
///     assert_eq!(store.value("k"), Ok(None), "only one read is blocked");
///     assert!(!reading.is_finished());
///     drop(hold);
///     assert_eq!(reading.join().unwrap(), Ok(None));
/// });
/// ```
#[derive(Debug)]
pub struct FaultyStore<S> {
    inner: S,
    faults: Mutex<(usize, ErrorKind)>,
    stalls: Mutex<(usize, Duration)>,
    read_gate: Arc<Gate>,
    write_gate: Arc<Gate>,
}

/// Blocks calls of a [`FaultyStore`], or what passes another [`Gate`], until it is dropped.
#[derive(Debug)]
#[must_use = "dropping it unblocks the calls"]
pub struct Hold {
    gate: Arc<Gate>,
    /// The number of calls to block.
    count: usize,
}

impl Hold {
    /// Waits until all of these calls are blocked.
    pub fn wait(&self) {
        let mut state = self.gate.lock();
        while state.held < self.count {
            state = self.gate.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        *self.gate.lock() = GateState::default();
        self.gate.changed.notify_all();
    }
}

/// A place in a store at which a test can block calls.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    /// The number of calls to block, and the number of blocked calls.
    wanted: usize,
    held: usize,
}

impl Gate {
    /// Blocks the next `count` calls that pass here until the [`Hold`] is dropped.
    pub fn hold(self: &Arc<Self>, count: usize) -> Hold {
        *self.lock() = GateState { wanted: count, held: 0 };
        Hold { gate: Arc::clone(self), count }
    }

    /// Blocks this call if it is one of those to block.
    pub(crate) fn pass(&self) {
        let mut state = self.lock();
        if state.held == state.wanted {
            return;
        }
        state.held += 1;
        self.changed.notify_all();
        while state.wanted > 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Store> FaultyStore<S> {
    /// Wraps a store without failures.
    pub fn new(inner: S) -> Self {
        Self {
            inner,
            faults: Mutex::new((0, ErrorKind::Io)),
            stalls: Mutex::default(),
            read_gate: Arc::default(),
            write_gate: Arc::default(),
        }
    }

    /// Makes the next `n` writes fail, in place of an earlier call; 0 ends the failures.
    pub fn fail_next(&self, n: usize, kind: ErrorKind) {
        *self.faults.lock().unwrap_or_else(PoisonError::into_inner) = (n, kind);
    }

    /// Makes the next `n` writes take this long, in place of an earlier call. Reads and other writes are not delayed.
    pub fn stall_next(&self, n: usize, time: Duration) {
        *self.stalls.lock().unwrap_or_else(PoisonError::into_inner) = (n, time);
    }

    /// Blocks the next `n` reads until the [`Hold`] is dropped; other calls are not blocked. There can be one hold of
    /// reads at a time.
    pub fn hold_reads(&self, n: usize) -> Hold {
        self.read_gate.hold(n)
    }

    /// Blocks the next `n` writes like [`hold_reads`](Self::hold_reads); the inner store gets the batches afterwards.
    pub fn hold_writes(&self, n: usize) -> Hold {
        self.write_gate.hold(n)
    }

    /// Returns the inner store.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    fn stall(&self) -> Option<Duration> {
        let mut stalls = self.stalls.lock().unwrap_or_else(PoisonError::into_inner);
        stalls.0 = stalls.0.checked_sub(1)?;
        Some(stalls.1)
    }

    fn fault(&self) -> Option<ErrorKind> {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults.0 = faults.0.checked_sub(1)?;
        Some(faults.1)
    }
}

impl<S: Store> Store for FaultyStore<S> {
    fn write(&self, batch: Batch, done: Done) {
        self.write_gate.pass();
        if let Some(time) = self.stall() {
            thread::sleep(time);
        }
        match self.fault() {
            Some(kind) => done(Err(StoreError::new(kind, "simulated by a test"))),
            None => self.inner.write(batch, done),
        }
    }

    fn session(&self, id: &str) -> Result<Option<SessionRow>, StoreError> {
        self.read_gate.pass();
        self.inner.session(id)
    }

    fn sessions(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Vec<SessionRow>, StoreError> {
        self.read_gate.pass();
        self.inner.sessions(filter, after, limit)
    }

    fn slots(&self, session: &str, since: u64) -> Result<Vec<SlotRow>, StoreError> {
        self.read_gate.pass();
        self.inner.slots(session, since)
    }

    fn entries(
        &self,
        session: &str,
        since: u64,
        after: u64,
        bytes: usize,
    ) -> Result<Vec<EntryRow>, StoreError> {
        self.read_gate.pass();
        self.inner.entries(session, since, after, bytes)
    }

    fn value(&self, key: &str) -> Result<Option<String>, StoreError> {
        self.read_gate.pass();
        self.inner.value(key)
    }

    fn search(&self, search: &Search, offset: usize, limit: usize) -> Result<Vec<Hit>, StoreError> {
        self.read_gate.pass();
        self.inner.search(search, offset, limit)
    }

    fn unindexed(&self, limit: usize) -> Result<Vec<String>, StoreError> {
        self.read_gate.pass();
        self.inner.unindexed(limit)
    }

    fn close(&self) {
        self.inner.close();
    }
}
