use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::{
    Batch, Cursor, Done, EntryRow, ErrorKind, Filter, Hit, Search, SessionRow, SlotRow, Store, StoreError,
};

/// A store that fails or stalls when it is told to, for tests of those who write to one.
///
/// Everything goes to the store inside, apart from the writes that [`fail_next`](FaultyStore::fail_next) spoke of:
/// these never get there, and their `done` is called with the error before `write` returns.
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
/// ```
#[derive(Debug)]
pub struct FaultyStore<S> {
    inner: S,
    faults: Mutex<(usize, ErrorKind)>,
    stalls: Mutex<(usize, Duration)>,
}

impl<S: Store> FaultyStore<S> {
    /// Wraps a store; no write fails yet.
    pub fn new(inner: S) -> Self {
        Self { inner, faults: Mutex::new((0, ErrorKind::Io)), stalls: Mutex::default() }
    }

    /// Lets the next `n` writes fail. What was said before is forgotten, so that an `n` of 0 ends the trouble.
    pub fn fail_next(&self, n: usize, kind: ErrorKind) {
        *self.faults.lock().unwrap_or_else(PoisonError::into_inner) = (n, kind);
    }

    /// Lets the next `n` writes take this long, as a disk that hangs: the call returns after that time. Reads, and writes of
    /// others that come meanwhile, are not held up by it. What was said before is forgotten.
    pub fn stall_next(&self, n: usize, time: Duration) {
        *self.stalls.lock().unwrap_or_else(PoisonError::into_inner) = (n, time);
    }

    /// The store inside.
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
        if let Some(time) = self.stall() {
            thread::sleep(time);
        }
        match self.fault() {
            Some(kind) => done(Err(StoreError::new(kind, "a test asked for it"))),
            None => self.inner.write(batch, done),
        }
    }

    fn session(&self, id: &str) -> Result<Option<SessionRow>, StoreError> {
        self.inner.session(id)
    }

    fn sessions(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Vec<SessionRow>, StoreError> {
        self.inner.sessions(filter, after, limit)
    }

    fn slots(&self, session: &str, since: u64) -> Result<Vec<SlotRow>, StoreError> {
        self.inner.slots(session, since)
    }

    fn entries(
        &self,
        session: &str,
        since: u64,
        after: u64,
        bytes: usize,
    ) -> Result<Vec<EntryRow>, StoreError> {
        self.inner.entries(session, since, after, bytes)
    }

    fn value(&self, key: &str) -> Result<Option<String>, StoreError> {
        self.inner.value(key)
    }

    fn search(&self, search: &Search, offset: usize, limit: usize) -> Result<Vec<Hit>, StoreError> {
        self.inner.search(search, offset, limit)
    }

    fn unindexed(&self, limit: usize) -> Result<Vec<String>, StoreError> {
        self.inner.unindexed(limit)
    }

    fn close(&self) {
        self.inner.close();
    }
}
