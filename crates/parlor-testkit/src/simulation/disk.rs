//! A store that is slow, fails, and forgets what was not committed or not synced.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use parlor_engine::rows::{Batch, SessionRow};
use parlor_engine::stored::StoredSession;
use parlor_session::SessionId;
use parlor_store::{MemoryStore, Store, StoreError};

use super::world::session_id;

/// The rows of all sessions, and the batches on their way.
#[derive(Default)]
pub(super) struct Disk {
    store: MemoryStore,
    /// All batches that were committed, in order.
    log: Vec<Batch>,
    /// How many of them survive a power cut.
    synced: usize,
    /// Batches that were handed in, the oldest first.
    submitted: VecDeque<Submitted>,
    /// The sessions whose durable batches are committed and not synced.
    unsynced: Vec<u64>,
}

/// A batch on its way, with the incarnation of the session that handed it in.
pub(super) struct Submitted {
    pub(super) incarnation: u64,
    pub(super) batch: Batch,
}

impl Disk {
    pub(super) fn submit(&mut self, incarnation: u64, batch: Batch) {
        self.submitted.push_back(Submitted { incarnation, batch });
    }

    /// Whether something is left to do.
    pub(super) fn is_busy(&self) -> bool {
        !self.submitted.is_empty() || !self.unsynced.is_empty()
    }

    /// How many batches wait to be committed.
    pub(super) fn waiting(&self) -> usize {
        self.submitted.len()
    }

    /// Whether a durable batch waits to be synced.
    pub(super) fn is_unsynced(&self) -> bool {
        !self.unsynced.is_empty()
    }

    /// Commits the oldest batch. A durable one is reported when it is synced.
    pub(super) fn commit(&mut self) -> Option<Result<Submitted, StoreError>> {
        let submitted = self.submitted.pop_front()?;
        Some(self.apply(&submitted.batch).map(|()| {
            if submitted.batch.durable {
                self.unsynced.push(submitted.incarnation);
            }
            submitted
        }))
    }

    /// Fails the oldest batch: nothing of it is written.
    pub(super) fn fail(&mut self) -> Option<Submitted> {
        self.submitted.pop_front()
    }

    /// Syncs all that is committed; returns the sessions whose batches are reported.
    pub(super) fn sync(&mut self) -> Vec<u64> {
        self.synced = self.log.len();
        std::mem::take(&mut self.unsynced)
    }

    /// Fails to sync; returns the sessions whose batches are reported as failed, although they are written.
    pub(super) fn fail_sync(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.unsynced)
    }

    /// The server is killed: of the batches on their way, the first `committed` are written.
    pub(super) fn kill(&mut self, committed: usize) -> Vec<Result<Submitted, StoreError>> {
        let results = (0..committed).map_while(|_| self.commit()).collect();
        self.submitted.clear();
        self.unsynced.clear();
        results
    }

    /// The power is cut: `lost` batches of those that are not synced are gone, the last ones first.
    pub(super) fn cut_power(&mut self, lost: usize) {
        self.submitted.clear();
        self.unsynced.clear();
        let kept = self.log.len().saturating_sub(lost).max(self.synced);
        let log = std::mem::take(&mut self.log);
        self.store = MemoryStore::default();
        for batch in log.into_iter().take(kept) {
            self.apply(&batch).expect("the store took it before");
        }
        self.synced = kept;
    }

    /// How many committed batches are not synced.
    pub(super) fn losable(&self) -> usize {
        self.log.len() - self.synced
    }

    fn apply(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let result = Arc::new(Mutex::new(Ok(())));
        let reported = Arc::clone(&result);
        let done = move |done| *reported.lock().unwrap_or_else(PoisonError::into_inner) = done;
        self.store.write(batch.clone(), Box::new(done));
        self.log.push(batch.clone());
        result.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads a session from its rows. `id` is its id as JSON writes it.
    pub(super) fn open(&self, id: &str) -> Option<StoredSession> {
        let row = self.store.session(id).ok()??;
        let mut session = StoredSession::new(row);
        for entry in self.store.entries(id, 0, 0, usize::MAX).expect("memory can be read") {
            let added =
                session.add_entry(entry.created, entry.seq, &entry.head, &entry.content, entry.inherited);
            added.expect("an entry that was stored can be read");
        }
        for slot in self.store.slots(id, 0).expect("memory can be read") {
            session.add_slot(&slot.name, slot.seq, slot.body).expect("a slot that was stored can be read");
        }
        Some(session)
    }

    /// The sessions that own a session, directly or through others.
    pub(super) fn owners(&self, row: &SessionRow) -> Vec<SessionId> {
        let mut owners = Vec::new();
        let mut next = row.owner.clone();
        while let Some(id) = next {
            owners.push(session_id(&id));
            next = self.store.session(&id).ok().flatten().and_then(|row| row.owner);
        }
        owners
    }

    /// The ids of all sessions, as JSON writes them; of those in which a turn ran, if only these are wanted.
    pub(super) fn sessions(&self, only_busy: bool) -> Vec<String> {
        let filter = parlor_store::Filter {
            busy: only_busy.then_some(true),
            owned: true,
            ..parlor_store::Filter::default()
        };
        let rows = self.store.sessions(&filter, None, usize::MAX).expect("memory can be read");
        rows.into_iter().map(|row| row.id).collect()
    }
}
