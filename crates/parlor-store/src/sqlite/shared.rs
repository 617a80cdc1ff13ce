//! From those who write to the journal, and from the journal to the database.
//!
//! Batches wait in a queue for a *leader*: the thread of somebody who writes and finds nobody else doing so, or the
//! store's own. The leader appends batches to the journal, in order, and reports them as done. A batch that cannot be
//! checked without the database, or does not go to the journal, is left to the store's thread, which folds the journal
//! first and writes the batch to the database: nothing overtakes it.
//!
//! The store's thread folds the journal into the database a moment later. Another thread syncs the journal for batches
//! that must be durable, many at once, while others append.

use std::collections::VecDeque;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::facts::Facts;
use super::journal_file::JournalFile;
use super::writer::{Writer, move_log, sync_log};
use super::{check_disk, check_panic, journal, schema};
use crate::{Batch, Done, ErrorKind, Options, StoreError, check};

/// How many batches may wait, and how many bytes.
const MOST_BATCHES: usize = 1024;
const MOST_BYTES: usize = 32 << 20;

/// How many bytes of batches may be in the journal and not yet in the database.
const MOST_BACKLOG: usize = 32 << 20;

/// How many batches go into one group, and how many bytes.
const GROUP_BATCHES: usize = 256;
const GROUP_BYTES: usize = 8 << 20;

/// Larger batches go to the database at once: to write them twice costs more than a commit.
const LARGEST: usize = journal::LONGEST as usize;

/// How many groups somebody who writes appends for others, before the store's thread goes on.
const MOST_ROUNDS: usize = 16;

/// How long a batch is in the journal before it is folded, and how many bytes are folded at once.
const FOLD_AFTER: Duration = Duration::from_millis(100);
const FOLD_BYTES: usize = 1 << 20;

/// How many bytes of memory stay for the records of the next batches.
const KEPT_RECORDS: usize = 1 << 20;

/// When folding failed, how long until it is tried again without being asked.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The length of the journal at which it is emptied.
const LONGEST: u64 = 64 << 20;

/// Everything that it takes to write, for the threads of the store and for those who write.
pub(super) struct Shared {
    state: Mutex<State>,
    /// Wakes the store's thread.
    work: Condvar,
    /// Wakes those who wait for room in the queue.
    room: Condvar,
    /// Larger batches do not go to the journal.
    largest: usize,
    /// Only the leader has it.
    appender: Mutex<Appender>,
    writer: Mutex<Writer>,
    /// Moves the log of the database while others write.
    mover: Mutex<Connection>,
    /// The position behind all that was reported as done.
    end: AtomicU64,
    /// The position up to which all is in the database.
    folded: AtomicU64,
    /// The position up to which all outlives a power cut.
    synced: AtomicU64,
    /// The position behind the last record of a durable batch.
    durable_end: AtomicU64,
    /// Whether what is known must be forgotten: another process has written to the database.
    is_foreign: AtomicBool,
    /// Whether there are commits that did not come from the journal and do not outlive a power cut.
    has_unsynced: AtomicBool,
    /// Whether a sync failed: the system may have given up what it could not write, and the next sync would not say so.
    /// Nothing is durable until the log is cut and the journal emptied.
    has_failed_sync: AtomicBool,
    /// Held by the one who syncs, or empties the journal after a sync failed.
    sync_turn: Mutex<()>,
    syncs: Mutex<Syncs>,
    sync_work: Condvar,
    journal: Arc<File>,
    log: PathBuf,
    options: Options,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    bytes: usize,
    /// Batches that are in the journal and not in the database.
    backlog: Vec<Batch>,
    backlog_bytes: usize,
    leader: Option<ThreadId>,
    /// The thread that syncs.
    syncer: Option<ThreadId>,
    /// Whether the store's thread is to be the next leader.
    is_handed_over: bool,
    is_closed: bool,
    /// When the store's thread has something to do.
    alarm: Option<Instant>,
    /// Why the journal could not be folded. Until that works again, batches go the long way and fail.
    trouble: Option<StoreError>,
    /// When that was last tried.
    troubled_at: Option<Instant>,
}

/// A batch and who waits for it.
struct Job {
    batch: Batch,
    done: Done,
    bytes: usize,
}

struct Appender {
    journal: JournalFile,
    facts: Facts,
    records: Vec<u8>,
}

/// Batches that are in the journal and must be durable.
#[derive(Default)]
struct Syncs {
    dones: Vec<Done>,
    is_closed: bool,
}

impl Shared {
    /// Opens a database and its journal for writing, and folds what another process left in the journal.
    pub(super) fn open(path: &Path, options: &Options) -> Result<Self, StoreError> {
        let conn = schema::open_writer(path)?;
        if let Some(pages) = options.max_pages {
            conn.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))?;
        }
        let journal = JournalFile::open(path, options)?;
        let mut writer = Writer::new(conn, path, options);
        let mut appender = Appender { journal, facts: Facts::default(), records: Vec::new() };
        let end = fold_left(&mut writer, &mut appender.journal)?;
        Ok(Self {
            state: Mutex::default(),
            work: Condvar::new(),
            room: Condvar::new(),
            largest: if options.no_journal { 0 } else { LARGEST },
            journal: appender.journal.file(),
            appender: Mutex::new(appender),
            log: writer.log().to_owned(),
            writer: Mutex::new(writer),
            mover: Mutex::new(schema::open_mover(path)?),
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

    /// Takes a batch. It waits for room first, unless it comes from a `done`.
    pub(super) fn write(&self, batch: Batch, done: Done) {
        let me = thread::current().id();
        let bytes = check::size(&batch);
        let mut state = self.lock();
        // Those who call a `done` must not wait for themselves: what it writes is let in.
        while state.is_full() && !state.is_closed && ![state.leader, state.syncer].contains(&Some(me)) {
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_closed {
            drop(state);
            return done(Err(closed()));
        }
        state.bytes += bytes;
        state.jobs.push_back(Job { batch, done, bytes });
        if state.leader.is_some() || state.is_handed_over {
            return;
        }
        state.leader = Some(me);
        drop(state);
        self.lead(false);
    }

    /// Takes what waits, as the leader, until there is no more, or so much was taken that the store's thread goes on.
    /// Only that thread, which is the one that `may_wait`, writes to the database.
    fn lead(&self, may_wait: bool) {
        // Should the leader panic, those who wait or will write are told instead of waiting for ever.
        let abandoned = Abandoned(self);
        for round in 1.. {
            let mut left = self.append(self.take_group());
            if may_wait && !left.is_empty() {
                self.write_to_database(std::mem::take(&mut left));
            }
            let mut state = self.lock();
            state.bytes += left.iter().map(|job| job.bytes).sum::<usize>();
            let needs_database = !left.is_empty();
            left.into_iter().rev().for_each(|job| state.jobs.push_front(job));
            if needs_database || state.jobs.is_empty() || round == MOST_ROUNDS {
                state.leader = None;
                state.is_handed_over |= !state.jobs.is_empty();
                if state.is_handed_over || state.is_closed {
                    drop(state);
                    self.work.notify_one();
                }
                break;
            }
        }
        std::mem::forget(abandoned);
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
            self.room.notify_all();
        }
        group
    }

    /// Appends batches to the journal and reports them, up to the first that does not go there; returns the rest.
    fn append(&self, mut jobs: VecDeque<Job>) -> VecDeque<Job> {
        let mut guard = self.appender();
        let appender = &mut *guard;
        if self.is_foreign.swap(false, Ordering::SeqCst) {
            appender.facts.clear();
        }
        if self.lock().trouble.is_some() {
            return jobs;
        }
        let mut goes_there = |job: &Job| job.bytes <= self.largest && appender.facts.admit(&job.batch);
        let count = jobs.iter().position(|job| !goes_there(job)).unwrap_or(jobs.len());
        let group: Vec<_> = jobs.drain(..count).collect();
        if group.is_empty() {
            return jobs;
        }
        if let Err(error) = self.append_together(appender, &group) {
            tracing::debug!(%error, "nothing can be appended to the journal, and batches go to the database");
            // What will not be there must not be known.
            appender.facts.clear();
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
                state.backlog.push(job.batch);
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
        if appender.records.capacity() > KEPT_RECORDS {
            appender.records = Vec::new();
        }
        appended
    }

    /// Writes batches to the database, after all that is in the journal, and reports them.
    fn write_to_database(&self, jobs: VecDeque<Job>) {
        let (batches, dones): (Vec<_>, Vec<_>) = jobs.into_iter().map(|job| (job.batch, job.done)).unzip();
        let mut writer = self.writer();
        let results = match self.fold_with(&mut writer) {
            Ok(()) => self.write_group(&mut writer, &batches),
            Err(error) => vec![Err(error); batches.len()],
        };
        let (is_foreign, alarm) = (writer.take_foreign(), writer.alarm());
        drop(writer);
        let mut appender = self.appender();
        if is_foreign {
            appender.facts.clear();
        }
        let written = batches.iter().zip(&results).filter(|(_, result)| result.is_ok());
        written.for_each(|(batch, _)| appender.facts.learn(batch));
        drop(appender);
        self.lock().wake_at(alarm);
        dones.into_iter().zip(results).for_each(|(done, result)| call(done, result));
    }

    /// Writes batches when all is folded, as the leader.
    fn write_group(&self, writer: &mut Writer, batches: &[Batch]) -> Vec<Result<(), StoreError>> {
        let (results, end) = writer.group(batches, self.end.load(Ordering::SeqCst));
        if !batches.iter().any(|batch| batch.durable) {
            self.has_unsynced.store(true, Ordering::SeqCst);
        }
        self.appender().journal.skip_to(end);
        self.folded.store(end, Ordering::SeqCst);
        self.end.store(end, Ordering::SeqCst);
        if writer.has_failed_commit() {
            // Its sync may be what failed.
            self.on_failed_sync();
            // If this does not overwrite it, nothing is appended until it is.
            let _ = self.fold_with(writer);
        }
        results
    }

    /// Folds all that was reported as done. If that cannot be done, the error says why, and it is tried again later.
    fn fold(&self) -> Result<(), StoreError> {
        let mut writer = self.writer();
        // Whoever had the writer may just have waited for the lock of another process in vain.
        if let Some(error) = self.lock().recent_trouble() {
            return Err(error);
        }
        self.fold_with(&mut writer)
    }

    fn fold_with(&self, writer: &mut Writer) -> Result<(), StoreError> {
        let mut backlog = Backlog::take(self);
        let (end, bytes) = (backlog.end, backlog.bytes);
        if self.folded.load(Ordering::SeqCst) == end && !writer.has_failed_commit() {
            return Ok(());
        }
        let folded = writer.fold(&backlog.batches, end);
        if writer.take_foreign() {
            self.is_foreign.store(true, Ordering::SeqCst);
        }
        if folded.is_ok() {
            backlog.batches.clear();
        }
        drop(backlog);
        let mut state = self.lock();
        match &folded {
            Ok(()) => {
                self.folded.store(end, Ordering::SeqCst);
                state.backlog_bytes -= bytes;
                if state.trouble.take().is_some() {
                    tracing::info!("the journal is in the database, and batches are taken again");
                }
            }
            Err(error) => {
                state.troubled_at = Some(Instant::now());
                if state.trouble.replace(error.clone()).is_none() {
                    tracing::error!(%error, "the journal cannot be moved to the database, and no batch is taken until it can");
                }
            }
        }
        let alarm = if folded.is_ok() { writer.alarm() } else { Some(Instant::now() + RETRY_AFTER) };
        let is_woken = state.wake_at(alarm);
        drop(state);
        self.room.notify_all();
        if is_woken {
            self.work.notify_one();
        }
        folded
    }

    /// Sees to it that reads of the database find all that was reported as done.
    pub(super) fn settle(&self) -> Result<(), StoreError> {
        let is_settled = self.folded.load(Ordering::SeqCst) == self.end.load(Ordering::SeqCst);
        if is_settled { Ok(()) } else { self.fold() }
    }

    /// Reads the database together with what cannot be folded.
    pub(super) fn read_unfolded<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut writer = self.writer();
        let backlog = Backlog::take(self);
        writer.read_with(&backlog.batches, read)
    }

    /// Folds the journal, and leads when it is asked to, until the store is closed and nothing waits.
    pub(super) fn run(self: Arc<Self>) {
        let abandoned = Abandoned(&self);
        // A server that was killed may have left a log.
        let cut_at = self.writer().cut_at();
        self.lock().wake_at(cut_at);
        loop {
            let mut state = self.lock();
            let task = loop {
                if let Some(task) = state.task() {
                    break task;
                }
                let time = state.alarm.map(|alarm| alarm.saturating_duration_since(Instant::now()));
                state = match time {
                    Some(time) => {
                        self.work.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
                    }
                    None => self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
                };
            };
            match task {
                Task::Tend => {
                    state.alarm = None;
                    drop(state);
                    self.tend();
                }
                Task::Lead => {
                    (state.leader, state.is_handed_over) = (Some(thread::current().id()), false);
                    drop(state);
                    self.lead(true);
                }
                Task::End => break,
            }
        }
        self.finish();
        std::mem::forget(abandoned);
    }

    /// Folds the journal, and moves the log to the database when it is time.
    fn tend(&self) {
        if self.fold().is_err() {
            self.lock().wake_at(Some(Instant::now() + RETRY_AFTER));
            return;
        }
        let mut writer = self.writer();
        let is_log_due = writer.is_log_due();
        let is_to_be_cut = writer.cut_at().is_some_and(|time| time <= Instant::now());
        drop(writer);
        if is_log_due {
            move_log(&self.mover.lock().unwrap_or_else(PoisonError::into_inner));
            self.writer().limit_log();
        }
        let has_failed_sync = || self.has_failed_sync.load(Ordering::SeqCst);
        if is_to_be_cut || has_failed_sync() || self.appender().journal.used() >= LONGEST {
            self.empty(is_to_be_cut);
        }
        let cut_at = self.writer().cut_at();
        let retry_at = has_failed_sync().then(|| Instant::now() + RETRY_AFTER);
        let mut state = self.lock();
        state.wake_at(cut_at);
        state.wake_at(retry_at);
    }

    /// Empties the journal, and cuts the log of the database if it has what was replaced or deleted.
    fn empty(&self, cuts: bool) {
        let mut writer = self.writer();
        // Most of the work is done while others append.
        let folded = self.fold_with(&mut writer).map(|()| self.folded.load(Ordering::SeqCst));
        if cuts {
            // What is replaced from now on is for the next time.
            writer.begin_cut();
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
        if cuts {
            move_log(&self.mover.lock().unwrap_or_else(PoisonError::into_inner));
            let mut writer = self.writer();
            writer.cut_log();
            if emptied.is_err() {
                writer.cut_again();
            }
        }
    }

    /// Empties the journal, of which all up to a position is in the database and outlives a power cut.
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
            // What came since need not outlive a power cut, unless something durable comes after it.
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

    /// Waits until nobody else leads.
    fn take_lead(&self) {
        let mut state = self.lock();
        state.is_handed_over = true;
        while state.leader.is_some() {
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        (state.leader, state.is_handed_over) = (Some(thread::current().id()), false);
    }

    /// Leaves one file behind, if all is folded.
    fn finish(&self) {
        let mut writer = self.writer();
        let folded = self.fold_with(&mut writer);
        drop(writer);
        let folded = folded.and_then(|()| self.sync_database());
        self.writer().close();
        if folded.is_ok() {
            self.appender().journal.remove();
            // If not, what is in memory could be folded twice: who comes next waits until this process is done with it.
            let _ = self.journal.unlock();
        }
        self.syncs().is_closed = true;
        self.sync_work.notify_one();
    }

    /// Syncs the journal for batches that must be durable, until the other thread has ended.
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

    /// Sees to it that all durable batches in the journal, and all that came before them, outlive a power cut.
    fn sync(&self) -> Result<(), StoreError> {
        let _turn = self.sync_turn();
        if self.has_failed_sync.load(Ordering::SeqCst) {
            return Err(StoreError::new(
                ErrorKind::Io,
                "a sync failed, and the journal was not emptied since",
            ));
        }
        // Not what came after them: the journal may be emptied meanwhile, and that is synced for these only.
        let end = self.durable_end.load(Ordering::SeqCst);
        let synced = (|| {
            check_disk(&self.options.fails_sync)?;
            if self.has_unsynced.swap(false, Ordering::SeqCst) {
                sync_log(&self.log)?;
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

    /// Has the journal emptied by the store's thread.
    fn on_failed_sync(&self) {
        self.has_failed_sync.store(true, Ordering::SeqCst);
        self.lock().wake_at(Some(Instant::now()));
        self.work.notify_all();
    }

    /// Sees to it that all that is in the database outlives a power cut.
    fn sync_database(&self) -> Result<(), StoreError> {
        let has_failed = self.has_failed_sync.load(Ordering::SeqCst);
        let synced = check_disk(&self.options.fails_sync)
            .and_then(|()| if has_failed { self.writer().renew_log() } else { sync_log(&self.log) });
        if synced.is_err() {
            self.has_failed_sync.store(true, Ordering::SeqCst);
        }
        synced
    }

    /// Lets nothing in any more. What waits is still written.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.work.notify_all();
        self.room.notify_all();
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

/// What the store's thread does next.
enum Task {
    Tend,
    Lead,
    End,
}

impl State {
    fn is_full(&self) -> bool {
        // What cannot be folded does not keep anybody waiting: they are told.
        let is_backlog_full = self.trouble.is_none() && self.backlog_bytes >= MOST_BACKLOG;
        self.jobs.len() >= MOST_BATCHES || self.bytes >= MOST_BYTES || is_backlog_full
    }

    /// Why the journal could not be folded a moment ago.
    fn recent_trouble(&self) -> Option<StoreError> {
        let is_recent = self.troubled_at.is_some_and(|time| time.elapsed() < RETRY_AFTER);
        self.trouble.clone().filter(|_| is_recent)
    }

    fn task(&self) -> Option<Task> {
        if self.alarm.is_some_and(|alarm| alarm <= Instant::now()) {
            Some(Task::Tend)
        } else if self.is_handed_over && self.leader.is_none() {
            Some(Task::Lead)
        } else if self.is_closed && self.leader.is_none() && self.jobs.is_empty() {
            Some(Task::End)
        } else {
            None
        }
    }

    /// Has the store's thread woken at this time, unless it is to be woken earlier; whether it has to be told.
    fn wake_at(&mut self, time: Option<Instant>) -> bool {
        let Some(time) = time else { return false };
        let is_earlier = self.alarm.is_none_or(|alarm| time < alarm);
        if is_earlier {
            self.alarm = Some(time);
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
        // One that is due already need not be told again.
        self.alarm.is_none_or(|alarm| alarm > now) && self.wake_at(Some(now + after))
    }
}

/// Batches that are in the journal, and go back to the others when this is dropped, unless they were folded.
struct Backlog<'a> {
    shared: &'a Shared,
    batches: Vec<Batch>,
    bytes: usize,
    /// The position behind them.
    end: u64,
}

impl<'a> Backlog<'a> {
    fn take(shared: &'a Shared) -> Self {
        let mut state = shared.lock();
        let (batches, bytes) = (std::mem::take(&mut state.backlog), state.backlog_bytes);
        Self { shared, batches, bytes, end: shared.end.load(Ordering::SeqCst) }
    }
}

impl Drop for Backlog<'_> {
    fn drop(&mut self) {
        if !self.batches.is_empty() {
            // Those that came since come after them.
            let mut state = self.shared.lock();
            self.batches.append(&mut state.backlog);
            state.backlog = std::mem::take(&mut self.batches);
        }
    }
}

/// Folds what another process left in the journal, and empties it. A damaged one is kept under another name, and what
/// is before the damage is folded. Returns the position up to which all is folded.
pub(super) fn fold_left(writer: &mut Writer, journal: &mut JournalFile) -> Result<u64, StoreError> {
    let journal::Unfolded { batches, end, damage } = journal.unfolded(writer.folded()?)?;
    if !batches.is_empty() {
        writer.fold(&batches, end)?;
    }
    writer.sync()?;
    if let Some(damage) = damage {
        let (kept, folded) = (journal.set_aside()?, batches.len());
        tracing::error!(
            file = %kept.display(), folded,
            "the journal of the last changes is damaged: {damage}; what comes before is in the database, the rest is \
             lost, and the journal is kept: delete the file when nobody needs it"
        );
    }
    // Without the room for it, this is done before something is appended.
    let _ = journal.reset(end);
    Ok(end)
}

/// Someone else's panic has been reported where it happened, and is no reason to stop writing.
fn call(done: Done, result: Result<(), StoreError>) {
    drop(catch_unwind(AssertUnwindSafe(|| done(result))));
}

fn closed() -> StoreError {
    StoreError::new(ErrorKind::Closed, "nothing more is written")
}

/// Lets nobody write any more, and tells those who wait that nothing will come of it.
struct Abandoned<'a>(&'a Shared);

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        (state.leader, state.is_handed_over) = (None, false);
        let jobs = std::mem::take(&mut state.jobs);
        drop(state);
        self.0.close();
        jobs.into_iter().for_each(|job| call(job.done, Err(closed())));
        self.0.syncs().is_closed = true;
        self.0.sync_work.notify_one();
    }
}
