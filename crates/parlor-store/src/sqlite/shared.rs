//! Writes batches to the journal and folds the journal into the database.
//!
//! Batches wait in a queue for the *leader*: a calling thread if no other thread is leader, or the store's own
//! thread. The leader appends batches to the journal in order and reports them as done. A batch that cannot be
//! checked without the database, or that may not go to the journal, is left to the store's thread, which folds the
//! journal first and then writes the batch to the database, so that the order is kept.
//!
//! The store's thread folds the journal into the database shortly after. Another thread syncs the journal for durable
//! batches, many at once, while others append.

use std::collections::VecDeque;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::journal_file::JournalFile;
use super::known_rows::KnownRows;
use super::pending::{Journaled, Pending};
use super::writer::{Writer, checkpoint_passive, sync_wal};
use super::{check_disk, check_panic, journal, schema};
use crate::{Batch, Done, ErrorKind, SqliteOptions, StoreError, check};

/// The most batches in the queue, and the most bytes.
const MAX_QUEUED_BATCHES: usize = 1024;
const MAX_QUEUED_BYTES: usize = 32 << 20;

/// The most bytes of batches in the journal that are not in the database.
const MAX_BACKLOG_BYTES: usize = 32 << 20;

/// The most batches of a group, and the most bytes.
const GROUP_BATCHES: usize = 256;
const GROUP_BYTES: usize = 8 << 20;

/// Larger batches go to the database directly, because writing them twice costs more than a commit.
const MAX_JOURNALED: usize = journal::MAX_BATCH as usize;

/// The most groups that a calling thread appends for others before the store's thread takes over.
const MAX_ROUNDS: usize = 16;

/// The time until a batch in the journal is folded, and the number of bytes that are folded at once.
const FOLD_AFTER: Duration = Duration::from_millis(100);
const FOLD_BYTES: usize = 1 << 20;

/// The most bytes of memory that are kept to encode the next records.
const RETAINED_RECORDS: usize = 1 << 20;

/// The time until a failed fold is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The length of the journal at which it is emptied.
const MAX_JOURNAL: u64 = 64 << 20;

/// The state that the store's threads and the calling threads share.
pub(super) struct Shared {
    state: Mutex<State>,
    /// Wakes the store's thread.
    work: Condvar,
    /// Wakes callers that wait for space in the queue.
    space: Condvar,
    /// Wakes searches that wait for a fold.
    folds: Condvar,
    /// Larger batches do not go to the journal.
    max_journaled: usize,
    /// Locked by the leader only.
    appender: Mutex<Appender>,
    writer: Mutex<Writer>,
    /// Checkpoints the WAL while others write.
    checkpointer: Mutex<Connection>,
    /// The position after all batches that were reported as done.
    end: AtomicU64,
    /// The position up to which all batches are in the database.
    folded: AtomicU64,
    /// The position up to which all batches are synced.
    synced: AtomicU64,
    /// The position after the last record of a durable batch.
    durable_end: AtomicU64,
    /// Whether another process has written to the database, so that known rows must be dropped.
    is_foreign: AtomicBool,
    /// Whether there are commits that did not come from the journal and are not synced.
    has_unsynced: AtomicBool,
    /// Whether a sync failed: the system may have dropped pages that it could not write, and the next sync would not
    /// report it. Nothing is durable until the WAL is truncated and the journal emptied.
    has_failed_sync: AtomicBool,
    /// Held by the thread that syncs, or that empties the journal after a failed sync.
    sync_turn: Mutex<()>,
    syncs: Mutex<Syncs>,
    sync_work: Condvar,
    journal: Arc<File>,
    wal: PathBuf,
    options: SqliteOptions,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    bytes: usize,
    /// Batches that are in the journal and not in the database.
    backlog: Vec<Journaled>,
    backlog_bytes: usize,
    leader: Option<ThreadId>,
    /// The thread that syncs.
    syncer: Option<ThreadId>,
    /// Whether the store's thread becomes the next leader.
    is_leader_wanted: bool,
    is_closed: bool,
    /// The time at which the store's thread has work.
    wake_time: Option<Instant>,
    /// The error of the last fold; until a fold succeeds, batches go to the store's thread and fail.
    fold_error: Option<StoreError>,
    /// Whether a search has waited in vain for a fold since one succeeded.
    is_fold_slow: bool,
    /// The time of the last failed fold.
    fold_failed_at: Option<Instant>,
}

/// A batch and its callback.
struct Job {
    batch: Batch,
    done: Done,
    bytes: usize,
}

struct Appender {
    journal: JournalFile,
    known_rows: KnownRows,
    records: Vec<u8>,
}

/// Callbacks of durable batches that are in the journal and not synced.
#[derive(Default)]
struct Syncs {
    dones: Vec<Done>,
    is_closed: bool,
}

impl Shared {
    /// Opens a database and its journal for writing, and folds the journal that another process left.
    pub(super) fn open(path: &Path, options: &SqliteOptions) -> Result<Self, StoreError> {
        let conn = schema::open_writer(path)?;
        if let Some(pages) = options.max_pages {
            conn.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))?;
        }
        let journal = JournalFile::open(path, options)?;
        let mut writer = Writer::new(conn, path, options);
        let mut appender = Appender { journal, known_rows: KnownRows::default(), records: Vec::new() };
        let end = fold_left(&mut writer, &mut appender.journal)?;
        Ok(Self {
            state: Mutex::default(),
            work: Condvar::new(),
            space: Condvar::new(),
            folds: Condvar::new(),
            max_journaled: if options.no_journal { 0 } else { MAX_JOURNALED },
            journal: appender.journal.file(),
            appender: Mutex::new(appender),
            wal: writer.wal().to_owned(),
            writer: Mutex::new(writer),
            checkpointer: Mutex::new(schema::open_checkpointer(path)?),
            end: end.into(),
            folded: end.into(),
            synced: end.into(),
            durable_end: end.into(),
            is_foreign: false.into(),
            has_unsynced: false.into(),
            has_failed_sync: false.into(),
            sync_turn: Mutex::default(),
            syncs: Mutex::default(),
            sync_work: Condvar::new(),
            options: options.clone(),
        })
    }

    /// Queues a batch; waits for space in the queue first, unless the caller is a `done` callback.
    pub(super) fn write(&self, batch: Batch, done: Done) {
        let me = thread::current().id();
        let bytes = check::size(&batch);
        let mut state = self.lock();
        // A `done` callback runs on the leader or the syncing thread and must not wait for it.
        while state.is_full() && !state.is_closed && ![state.leader, state.syncer].contains(&Some(me)) {
            state = self.space.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_closed {
            drop(state);
            return done(Err(closed()));
        }
        state.bytes += bytes;
        state.jobs.push_back(Job { batch, done, bytes });
        if state.leader.is_some() || state.is_leader_wanted {
            return;
        }
        state.leader = Some(me);
        drop(state);
        self.lead(false);
    }

    /// Processes the queue as the leader, until it is empty or the store's thread should take over. Only the store's
    /// thread passes `may_wait`, and only it writes to the database.
    fn lead(&self, may_wait: bool) {
        // If the leader panics, queued and later batches fail instead of waiting for ever.
        let guard = CloseOnPanic(self);
        for round in 1.. {
            let mut left = self.append(self.take_group());
            if may_wait && !left.is_empty() {
                self.write_to_database(std::mem::take(&mut left));
            }
            let mut state = self.lock();
            state.bytes += left.iter().map(|job| job.bytes).sum::<usize>();
            let needs_database = !left.is_empty();
            left.into_iter().rev().for_each(|job| state.jobs.push_front(job));
            if needs_database || state.jobs.is_empty() || round == MAX_ROUNDS {
                state.leader = None;
                state.is_leader_wanted |= !state.jobs.is_empty();
                if state.is_leader_wanted || state.is_closed {
                    drop(state);
                    self.work.notify_one();
                }
                break;
            }
        }
        std::mem::forget(guard);
    }

    fn take_group(&self) -> VecDeque<Job> {
        let mut state = self.lock();
        let was_full = state.is_full();
        let mut group = VecDeque::new();
        let mut bytes = 0;
        while group.len() < GROUP_BATCHES && bytes < GROUP_BYTES {
            let Some(job) = state.jobs.pop_front() else { break };
            bytes += job.bytes;
            group.push_back(job);
        }
        state.bytes -= bytes;
        drop(state);
        if was_full {
            self.space.notify_all();
        }
        group
    }

    /// Appends batches to the journal and reports them, up to the first that may not go there; returns the rest.
    fn append(&self, mut jobs: VecDeque<Job>) -> VecDeque<Job> {
        let mut guard = self.appender();
        let appender = &mut *guard;
        if self.is_foreign.swap(false, Ordering::SeqCst) {
            appender.known_rows.clear();
        }
        if self.lock().fold_error.is_some() {
            return jobs;
        }
        let mut goes_there =
            |job: &Job| job.bytes <= self.max_journaled && appender.known_rows.admit(&job.batch);
        let count = jobs.iter().position(|job| !goes_there(job)).unwrap_or(jobs.len());
        let group: Vec<_> = jobs.drain(..count).collect();
        if group.is_empty() {
            return jobs;
        }
        if let Err(error) = self.append_together(appender, &group) {
            tracing::debug!(%error, "append to the journal failed; batches go to the database");
            // Rows that were not written must not be known.
            appender.known_rows.clear();
            group.into_iter().rev().for_each(|job| jobs.push_front(job));
            return jobs;
        }
        let end = appender.journal.end();
        drop(guard);
        let mut durable = Vec::new();
        let mut dones = Vec::new();
        let mut state = self.lock();
        for job in group {
            if job.batch.durable {
                durable.push(job.done);
            } else {
                dones.push(job.done);
            }
            if !job.batch.writes.is_empty() {
                state.backlog_bytes += job.bytes;
                state.backlog.push(Journaled { batch: Arc::new(job.batch), end });
            }
        }
        let is_woken = state.wake_for_fold();
        self.end.store(end, Ordering::SeqCst);
        if !durable.is_empty() {
            self.durable_end.store(end, Ordering::SeqCst);
        }
        drop(state);
        if is_woken {
            self.work.notify_one();
        }
        if !durable.is_empty() {
            self.syncs().dones.extend(durable);
            self.sync_work.notify_one();
        }
        dones.into_iter().for_each(|done| call(done, Ok(())));
        jobs
    }

    fn append_together(&self, appender: &mut Appender, group: &[Job]) -> Result<(), StoreError> {
        check_panic(&self.options.panics);
        appender.records.clear();
        let mut position = appender.journal.end();
        let synced = self.synced.load(Ordering::SeqCst);
        for job in group.iter().filter(|job| !job.batch.writes.is_empty()) {
            position = journal::encode(&job.batch, position, synced, &mut appender.records);
        }
        if appender.records.is_empty() {
            return Ok(());
        }
        let appended = appender.journal.append(&appender.records);
        if appender.records.capacity() > RETAINED_RECORDS {
            appender.records = Vec::new();
        }
        appended
    }

    /// Writes batches to the database after all batches of the journal, and reports them.
    fn write_to_database(&self, jobs: VecDeque<Job>) {
        let (batches, dones): (Vec<_>, Vec<_>) = jobs.into_iter().map(|job| (job.batch, job.done)).unzip();
        let mut writer = self.writer();
        let results = match self.fold_with(&mut writer) {
            Ok(()) => self.write_group(&mut writer, &batches),
            Err(error) => vec![Err(error); batches.len()],
        };
        let (is_foreign, wake_time) = (writer.take_foreign(), writer.wake_time());
        let has_deleted_owned = writer.take_deleted_owned();
        drop(writer);
        let mut appender = self.appender();
        if is_foreign {
            appender.known_rows.clear();
        }
        let written = batches.iter().zip(&results).filter(|(_, result)| result.is_ok());
        written.for_each(|(batch, _)| appender.known_rows.learn(batch));
        if has_deleted_owned {
            appender.known_rows.clear();
        }
        drop(appender);
        self.lock().wake_at(wake_time);
        dones.into_iter().zip(results).for_each(|(done, result)| call(done, result));
    }

    /// Writes batches as the leader after everything is folded.
    fn write_group(&self, writer: &mut Writer, batches: &[Batch]) -> Vec<Result<(), StoreError>> {
        let (results, end) = writer.group(batches, self.end.load(Ordering::SeqCst));
        if !batches.iter().any(|batch| batch.durable) {
            self.has_unsynced.store(true, Ordering::SeqCst);
        }
        self.appender().journal.skip_to(end);
        self.folded.store(end, Ordering::SeqCst);
        self.end.store(end, Ordering::SeqCst);
        if writer.has_failed_commit() {
            // The sync of the commit may have failed.
            self.on_failed_sync();
            // If this does not overwrite the failed commit, nothing is appended until a later fold does.
            let _ = self.fold_with(writer);
        }
        results
    }

    /// Folds all batches that were reported as done; after an error it is tried again later.
    fn fold(&self) -> Result<(), StoreError> {
        let mut writer = self.writer();
        // The previous owner of the writer may just have timed out waiting for the lock of another process.
        if let Some(error) = self.lock().recent_fold_error() {
            return Err(error);
        }
        self.fold_with(&mut writer)
    }

    fn fold_with(&self, writer: &mut Writer) -> Result<(), StoreError> {
        let state = self.lock();
        let (end, bytes) = (self.end.load(Ordering::SeqCst), state.backlog_bytes);
        if self.folded.load(Ordering::SeqCst) == end && !writer.has_failed_commit() {
            return Ok(());
        }
        // They stay in the backlog for reads until they are in the database.
        let backlog = state.backlog.clone();
        drop(state);
        let batches: Vec<_> = backlog.iter().map(|journaled| &*journaled.batch).collect();
        let folded = writer.fold(&batches, end);
        if writer.take_foreign() {
            self.is_foreign.store(true, Ordering::SeqCst);
        }
        let mut state = self.lock();
        let had_failed = match &folded {
            Ok(()) => {
                self.folded.store(end, Ordering::SeqCst);
                state.is_fold_slow = false;
                state.backlog.drain(..backlog.len());
                state.backlog_bytes -= bytes;
                state.fold_error.take().is_some()
            }
            Err(error) => {
                state.fold_failed_at = Some(Instant::now());
                state.fold_error.replace(error.clone()).is_some()
            }
        };
        let wake_time = if folded.is_ok() { writer.wake_time() } else { Some(Instant::now() + RETRY_AFTER) };
        let is_woken = state.wake_at(wake_time);
        drop(state);
        self.space.notify_all();
        self.folds.notify_all();
        if is_woken {
            self.work.notify_one();
        }
        // Without the lock: the log may be on the same disk, and reads take the lock.
        match &folded {
            Ok(()) if had_failed => {
                tracing::info!("fold of the journal succeeded; batches are accepted again");
            }
            Err(error) if !had_failed => {
                tracing::error!(%error, "fold of the journal failed; batches fail until it succeeds");
            }
            Ok(()) | Err(_) => {}
        }
        folded
    }

    /// Folds all batches that were reported as done, for reads by other means than this store.
    pub(super) fn fold_now(&self) -> Result<(), StoreError> {
        if self.is_folded() { Ok(()) } else { self.fold() }
    }

    fn is_folded(&self) -> bool {
        self.folded.load(Ordering::SeqCst) == self.end.load(Ordering::SeqCst)
    }

    /// Returns the batches that were reported as done and are not known to be in the database.
    pub(super) fn pending(&self) -> Pending {
        if self.is_folded() { Pending::default() } else { Pending::new(self.lock().backlog.clone()) }
    }

    /// Has the store's thread fold all batches that were reported as done, and waits for that, but no longer than
    /// `timeout`, and not if folds fail or an earlier search has waited in vain. Returns whether all of them are folded.
    pub(super) fn wait_for_fold(&self, timeout: Duration) -> bool {
        if self.is_folded() {
            return true;
        }
        let end = self.end.load(Ordering::SeqCst);
        let begun = Instant::now();
        let mut state = self.lock();
        if state.wake_at(Some(begun)) {
            self.work.notify_one();
        }
        let may_fold = |state: &State| !state.is_fold_slow && !state.is_closed && state.fold_error.is_none();
        while self.folded.load(Ordering::SeqCst) < end && may_fold(&state) {
            let Some(rest) = timeout.checked_sub(begun.elapsed()) else {
                state.is_fold_slow = true;
                return false;
            };
            state = self.folds.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
        self.folded.load(Ordering::SeqCst) >= end
    }

    /// Runs the store's thread: folds the journal and leads when needed, until the store is closed and the queue is
    /// empty.
    pub(super) fn run(self: Arc<Self>) {
        let guard = CloseOnPanic(&self);
        // A killed server may have left a WAL.
        let truncate_at = self.writer().truncate_at();
        self.lock().wake_at(truncate_at);
        loop {
            let mut state = self.lock();
            let task = loop {
                if let Some(task) = state.task() {
                    break task;
                }
                let time =
                    state.wake_time.map(|wake_time| wake_time.saturating_duration_since(Instant::now()));
                state = match time {
                    Some(time) => {
                        self.work.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
                    }
                    None => self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
                };
            };
            match task {
                Task::Tend => {
                    state.wake_time = None;
                    drop(state);
                    self.maintain();
                }
                Task::Lead => {
                    (state.leader, state.is_leader_wanted) = (Some(thread::current().id()), false);
                    drop(state);
                    self.lead(true);
                }
                Task::End => break,
            }
        }
        self.finish();
        std::mem::forget(guard);
    }

    /// Folds the journal, and checkpoints the WAL when it is due.
    fn maintain(&self) {
        if self.fold().is_err() {
            self.lock().wake_at(Some(Instant::now() + RETRY_AFTER));
            return;
        }
        let mut writer = self.writer();
        let is_checkpoint_due = writer.is_checkpoint_due();
        let is_to_be_cut = writer.truncate_at().is_some_and(|time| time <= Instant::now());
        drop(writer);
        if is_checkpoint_due {
            self.checkpoint();
            self.writer().limit_wal();
        }
        let has_failed_sync = || self.has_failed_sync.load(Ordering::SeqCst);
        if is_to_be_cut || has_failed_sync() || self.appender().journal.used() >= MAX_JOURNAL {
            self.empty(is_to_be_cut);
        }
        let truncate_at = self.writer().truncate_at();
        let retry_at = has_failed_sync().then(|| Instant::now() + RETRY_AFTER);
        let mut state = self.lock();
        state.wake_at(truncate_at);
        state.wake_at(retry_at);
    }

    /// Empties the journal, and truncates the WAL if it has replaced or deleted data.
    fn empty(&self, truncates: bool) {
        let mut writer = self.writer();
        // Most of the work is done while others append.
        let folded = self.fold_with(&mut writer).map(|()| self.folded.load(Ordering::SeqCst));
        if truncates {
            // Data that is replaced from now on is truncated the next time.
            writer.begin_truncate();
        }
        drop(writer);
        let synced = folded.and_then(|folded| {
            self.sync_database()?;
            self.synced.fetch_max(folded, Ordering::SeqCst);
            Ok(folded)
        });
        let emptied = synced.and_then(|synced| {
            self.take_lead();
            let emptied = self.empty_as_leader(synced);
            self.lead(false);
            emptied
        });
        if truncates {
            self.checkpoint();
            let mut writer = self.writer();
            writer.truncate_wal();
            if emptied.is_err() {
                writer.truncate_again();
            }
        }
    }

    /// Empties the journal, which is folded and synced up to a position.
    fn empty_as_leader(&self, synced: u64) -> Result<(), StoreError> {
        let has_failed_sync = self.has_failed_sync.load(Ordering::SeqCst);
        let _turn = has_failed_sync.then(|| self.sync_turn());
        let mut writer = self.writer();
        self.fold_with(&mut writer)?;
        drop(writer);
        let end = self.end.load(Ordering::SeqCst);
        if has_failed_sync || self.durable_end.load(Ordering::SeqCst) > synced {
            self.sync_database()?;
            self.synced.fetch_max(end, Ordering::SeqCst);
        } else {
            // Later batches need not survive a power cut, unless a durable batch follows.
            self.has_unsynced.store(true, Ordering::SeqCst);
        }
        self.appender().journal.reset(end)?;
        if has_failed_sync {
            self.has_failed_sync.store(false, Ordering::SeqCst);
            tracing::info!(
                "the journal was emptied after a sync had failed, and batches can be durable again"
            );
        }
        Ok(())
    }

    /// Checkpoints the WAL while others write.
    fn checkpoint(&self) {
        self.options.database_gate.pass();
        checkpoint_passive(&self.checkpointer.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits until no other thread is leader, and becomes leader.
    fn take_lead(&self) {
        let mut state = self.lock();
        state.is_leader_wanted = true;
        while state.leader.is_some() {
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        (state.leader, state.is_leader_wanted) = (Some(thread::current().id()), false);
    }

    /// Removes the journal if everything is folded.
    fn finish(&self) {
        let mut writer = self.writer();
        let folded = self.fold_with(&mut writer);
        drop(writer);
        let folded = folded.and_then(|()| self.sync_database());
        self.writer().close();
        if folded.is_ok() {
            self.appender().journal.remove();
            // Otherwise the batches in memory could be folded twice: the next process waits until this one has ended.
            let _ = self.journal.unlock();
        }
        self.syncs().is_closed = true;
        self.sync_work.notify_one();
    }

    /// Runs the syncing thread: syncs the journal for durable batches until the store's thread has ended.
    pub(super) fn run_syncs(self: Arc<Self>) {
        self.lock().syncer = Some(thread::current().id());
        loop {
            let mut syncs = self.syncs();
            while syncs.dones.is_empty() && !syncs.is_closed {
                syncs = self.sync_work.wait(syncs).unwrap_or_else(PoisonError::into_inner);
            }
            let dones = std::mem::take(&mut syncs.dones);
            drop(syncs);
            if dones.is_empty() {
                return;
            }
            let result = self.sync();
            dones.into_iter().for_each(|done| call(done, result.clone()));
        }
    }

    /// Syncs all durable batches in the journal and everything before them.
    fn sync(&self) -> Result<(), StoreError> {
        let _turn = self.sync_turn();
        if self.has_failed_sync.load(Ordering::SeqCst) {
            return Err(StoreError::new(
                ErrorKind::Io,
                "a sync failed, and the journal was not emptied since",
            ));
        }
        // Not later batches: the journal may be emptied meanwhile, and only these are synced then.
        let end = self.durable_end.load(Ordering::SeqCst);
        let synced = (|| {
            check_disk(&self.options.fails_sync)?;
            if self.has_unsynced.swap(false, Ordering::SeqCst) {
                sync_wal(&self.wal)?;
            }
            Ok(self.journal.sync_data()?)
        })();
        match &synced {
            Ok(()) => {
                self.synced.fetch_max(end, Ordering::SeqCst);
            }
            Err(_) => self.on_failed_sync(),
        }
        synced
    }

    /// Makes the store's thread empty the journal.
    fn on_failed_sync(&self) {
        self.has_failed_sync.store(true, Ordering::SeqCst);
        self.lock().wake_at(Some(Instant::now()));
        self.work.notify_all();
    }

    /// Syncs everything that is in the database.
    fn sync_database(&self) -> Result<(), StoreError> {
        let has_failed = self.has_failed_sync.load(Ordering::SeqCst);
        let synced = check_disk(&self.options.fails_sync)
            .and_then(|()| if has_failed { self.writer().checkpoint_all() } else { sync_wal(&self.wal) });
        if synced.is_err() {
            self.has_failed_sync.store(true, Ordering::SeqCst);
        }
        synced
    }

    /// Rejects further batches; queued ones are still written.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.work.notify_all();
        self.space.notify_all();
        self.folds.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn appender(&self) -> MutexGuard<'_, Appender> {
        self.appender.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sync_turn(&self) -> MutexGuard<'_, ()> {
        self.sync_turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn syncs(&self) -> MutexGuard<'_, Syncs> {
        self.syncs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The next task of the store's thread.
enum Task {
    Tend,
    Lead,
    End,
}

impl State {
    fn is_full(&self) -> bool {
        // Callers do not wait for a backlog that cannot be folded; they get the error.
        let is_backlog_full = self.fold_error.is_none() && self.backlog_bytes >= MAX_BACKLOG_BYTES;
        self.jobs.len() >= MAX_QUEUED_BATCHES || self.bytes >= MAX_QUEUED_BYTES || is_backlog_full
    }

    /// Returns the error of a fold that failed within the retry time.
    fn recent_fold_error(&self) -> Option<StoreError> {
        let is_recent = self.fold_failed_at.is_some_and(|time| time.elapsed() < RETRY_AFTER);
        self.fold_error.clone().filter(|_| is_recent)
    }

    fn task(&self) -> Option<Task> {
        if self.wake_time.is_some_and(|wake_time| wake_time <= Instant::now()) {
            Some(Task::Tend)
        } else if self.is_leader_wanted && self.leader.is_none() {
            Some(Task::Lead)
        } else if self.is_closed && self.leader.is_none() && self.jobs.is_empty() {
            Some(Task::End)
        } else {
            None
        }
    }

    /// Schedules the store's thread for a time, unless it is scheduled earlier; returns whether it must be notified.
    fn wake_at(&mut self, time: Option<Instant>) -> bool {
        let Some(time) = time else { return false };
        let is_earlier = self.wake_time.is_none_or(|wake_time| time < wake_time);
        if is_earlier {
            self.wake_time = Some(time);
        }
        is_earlier
    }

    fn wake_for_fold(&mut self) -> bool {
        let after = match self.backlog_bytes {
            0 => return false,
            FOLD_BYTES.. => Duration::ZERO,
            _ => FOLD_AFTER,
        };
        let now = Instant::now();
        // A thread that is already due need not be notified again.
        self.wake_time.is_none_or(|wake_time| wake_time > now) && self.wake_at(Some(now + after))
    }
}

/// Folds the journal that another process left, and empties it. A damaged journal is kept under another name, and the
/// batches before the damage are folded. Returns the position up to which all is folded.
pub(super) fn fold_left(writer: &mut Writer, journal: &mut JournalFile) -> Result<u64, StoreError> {
    let journal::Unfolded { batches, end, damage } = journal.unfolded(writer.folded()?)?;
    if !batches.is_empty() {
        writer.fold(&batches.iter().collect::<Vec<_>>(), end)?;
    }
    writer.sync()?;
    if let Some(damage) = damage {
        let (kept, folded) = (journal.quarantine()?, batches.len());
        tracing::error!(
            file = %kept.display(), folded,
            "the journal of the last changes is damaged: {damage}; what comes before is in the database, the rest is \
             lost, and the journal is kept: delete the file when nobody needs it"
        );
    }
    // Without enough disk space this is done before the next append.
    let _ = journal.reset(end);
    Ok(end)
}

/// Calls a callback; its panic has already been reported and must not stop the thread.
fn call(done: Done, result: Result<(), StoreError>) {
    drop(catch_unwind(AssertUnwindSafe(|| done(result))));
}

fn closed() -> StoreError {
    StoreError::new(ErrorKind::Closed, "a thread of the store panicked")
}

/// Closes the store and fails all queued batches when the leader panics.
struct CloseOnPanic<'a>(&'a Shared);

impl Drop for CloseOnPanic<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        (state.leader, state.is_leader_wanted) = (None, false);
        let jobs = std::mem::take(&mut state.jobs);
        drop(state);
        self.0.close();
        jobs.into_iter().for_each(|job| call(job.done, Err(closed())));
        self.0.syncs().is_closed = true;
        self.0.sync_work.notify_one();
    }
}
