//! The connection that writes to the database.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::apply::{append_to, apply, with_owned};
use super::cache::WriterCache;
use super::schema::{CHECKPOINT_PAGES, LOCK_TIMEOUT};
use super::{damaged, list, read, rejected};
use crate::{Batch, ErrorKind, Gate, SqliteOptions, StoreError, Write, check};

/// The size of a page in bytes.
const PAGE: usize = 4096;

/// The number of pages that a batch adds to the WAL besides its bytes.
const PAGES_PER_BATCH: usize = 4;

/// The length of the WAL at which the writer waits for readers that block its checkpoint.
const MAX_WAL: u64 = 64 << 20;

/// The time that the writer waits for readers of an old snapshot then.
const READER_TIMEOUT: Duration = Duration::from_millis(200);

/// The lock timeout after another process held the write lock for longer than the full timeout.
const SHORT_LOCK_TIMEOUT: Duration = Duration::from_millis(20);

/// The time for which replaced or deleted data may remain in the WAL.
const MAX_REPLACED_AGE: Duration = Duration::from_secs(1);

/// The number of blocked truncations of the WAL before the writer waits for readers.
const MAX_BLOCKED: u32 = 5;

#[expect(clippy::struct_excessive_bools, reason = "each of them holds or not by itself")]
pub(super) struct Writer {
    conn: Connection,
    cache: WriterCache,
    /// Changes when another process has written, so that the cache may be stale.
    data_version: i64,
    /// Whether another process has written since the last call of `take_foreign`.
    is_foreign: bool,
    /// Whether sessions were deleted with their owners since the last call of `take_deleted_owned`.
    has_deleted_owned: bool,
    /// Whether commits are synced.
    full_sync: bool,
    /// Whether the last commit failed: a crash may still restore it, until another commit overwrites it.
    has_failed_commit: bool,
    wal: PathBuf,
    database: PathBuf,
    /// The length of the WAL at which the writer waits for readers.
    wal_limit: u64,
    /// The number of pages, approximately, that were added to the WAL since its last checkpoint.
    wal_pages: usize,
    /// The time since which the WAL has replaced or deleted data and must be truncated; assumed when it is opened.
    replaced: Option<Instant>,
    /// The number of truncations in a row that were blocked.
    blocked: u32,
    /// The time to wait for another process that has the write lock.
    lock_timeout: Duration,
    /// The present lock timeout: shorter after a timeout, so that batches fail at once until the lock is free.
    timeout: Duration,
    /// Simulates a full disk in tests.
    is_full: Arc<AtomicBool>,
    /// Simulates a disk that hangs in tests.
    gate: Arc<Gate>,
    /// Makes the next fold panic in tests.
    panics: Arc<AtomicBool>,
}

impl Writer {
    pub(super) fn new(conn: Connection, database: &Path, options: &SqliteOptions) -> Self {
        let (cache, wal_limit) = (WriterCache::default(), MAX_WAL);
        let replaced = Some(Instant::now());
        let mut wal = database.as_os_str().to_owned();
        wal.push("-wal");
        let data_version = data_version(&conn).unwrap_or_default();
        Self {
            conn,
            cache,
            data_version,
            is_foreign: false,
            has_deleted_owned: false,
            full_sync: false,
            has_failed_commit: false,
            wal: wal.into(),
            database: database.to_owned(),
            wal_limit,
            wal_pages: 0,
            replaced,
            blocked: 0,
            lock_timeout: options.lock_timeout.unwrap_or(LOCK_TIMEOUT),
            timeout: options.lock_timeout.unwrap_or(LOCK_TIMEOUT),
            is_full: Arc::clone(&options.is_full),
            gate: Arc::clone(&options.database_gate),
            panics: Arc::clone(&options.panics),
        }
    }

    /// Returns the position up to which the journal is folded.
    pub(super) fn folded(&self) -> Result<u64, StoreError> {
        read::folded(&self.conn)
    }

    /// Writes batches of the journal, up to a position, in one transaction.
    ///
    /// The batches were valid when they were appended to the journal. A batch that the database rejects now, because
    /// it is damaged or because another process has deleted the session, is moved to the file of rejected batches, so
    /// that it does not block the others.
    pub(super) fn fold(&mut self, batches: &[&Batch], end: u64) -> Result<(), StoreError> {
        super::check_panic(&self.panics);
        self.count_pages(batches.iter().copied());
        self.set_full_sync(false)?;
        let folded = self.begin_with(batches).and_then(|rejected| {
            self.set_folded(end)?;
            let kept = self.without_deleted(batches, &rejected)?;
            rejected::append(&rejected::path_of(&self.database), kept.into_iter())?;
            self.commit()?;
            Ok(rejected)
        });
        if folded.is_err() {
            self.rollback();
        }
        for error in folded?.values() {
            let file = rejected::path_of(&self.database);
            let file = file.display();
            tracing::error!(%error, %file, "the database rejected a batch of the journal; moved it to the rejected batches");
            self.is_foreign = true;
        }
        Ok(())
    }

    /// Returns the rejected batches except those that write to a deleted session, whose text must not be kept.
    fn without_deleted<'a>(
        &self,
        batches: &[&'a Batch],
        rejected: &'a Rejected,
    ) -> Result<Vec<(&'a Batch, &'a StoreError)>, StoreError> {
        let mut kept = Vec::new();
        let mut made = HashSet::new();
        for (n, error) in rejected {
            let writes = &batches[*n].writes;
            // A session whose creation was rejected does not exist either.
            made.extend(
                writes.iter().filter(|write| matches!(write, Write::Session(_))).map(check::session_of),
            );
            let sessions = writes.iter().map(check::session_of).filter(|session| !made.contains(session));
            let are_there =
                sessions.flatten().map(|session| Ok(list::session(&self.conn, session)?.is_some()));
            if are_there.collect::<Result<Vec<_>, StoreError>>()?.iter().all(|is_there| *is_there) {
                kept.push((batches[*n], error));
            }
        }
        Ok(kept)
    }

    /// Starts a transaction with batches, and returns those that the database rejects, which are not in it.
    fn begin_with(&mut self, batches: &[&Batch]) -> Result<Rejected, StoreError> {
        self.begin()?;
        let mut rejected = Rejected::new();
        match self.apply_merged(batches) {
            Err(error) if is_rejection(&error) => {}
            applied => return applied.map(|()| rejected),
        }
        loop {
            self.rollback();
            self.begin()?;
            let before = rejected.len();
            match self.apply_one_by_one(batches, &mut rejected) {
                Ok(()) => return Ok(rejected),
                // SQLite rolled back the whole transaction: tried again without the rejected batch.
                Err(_) if rejected.len() > before => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Applies the batches that are not rejected yet; fails if one cannot be undone without the others.
    fn apply_one_by_one(&mut self, batches: &[&Batch], rejected: &mut Rejected) -> Result<(), StoreError> {
        for (n, batch) in batches.iter().enumerate() {
            if rejected.contains_key(&n) {
                continue;
            }
            self.execute("SAVEPOINT batch")?;
            if let Err(error) = self.apply(batch) {
                self.cache = WriterCache::default();
                if !is_rejection(&error) {
                    return Err(error);
                }
                rejected.insert(n, error.clone());
                if self.conn.is_autocommit() {
                    return Err(error);
                }
                self.execute("ROLLBACK TO batch")?;
            }
            self.execute("RELEASE batch")?;
        }
        Ok(())
    }

    fn set_folded(&self, end: u64) -> Result<(), StoreError> {
        let end = i64::try_from(end).map_err(|_| StoreError::invalid("the journal is too long"))?;
        self.conn.prepare_cached("UPDATE journal SET folded = ?")?.execute([end])?;
        Ok(())
    }

    /// Returns whether the last commit failed; a crash could restore it together with its journal position.
    pub(super) fn has_failed_commit(&self) -> bool {
        self.has_failed_commit
    }

    /// Returns whether sessions were deleted with their owners: the batches do not name them.
    pub(super) fn take_deleted_owned(&mut self) -> bool {
        std::mem::take(&mut self.has_deleted_owned)
    }

    /// Returns whether another process has written since the last call.
    pub(super) fn take_foreign(&mut self) -> bool {
        std::mem::take(&mut self.is_foreign)
    }

    /// Returns the path of the write-ahead log (WAL), which has all commits since it was last truncated.
    pub(super) fn wal(&self) -> &Path {
        &self.wal
    }

    /// Syncs all commits.
    pub(super) fn sync(&self) -> Result<(), StoreError> {
        sync_wal(&self.wal)
    }

    fn count_pages<'a>(&mut self, mut batches: impl Iterator<Item = &'a Batch> + Clone) {
        let pages = batches.clone().map(|batch| check::size(batch) / PAGE + PAGES_PER_BATCH);
        self.wal_pages += pages.sum::<usize>();
        if self.replaced.is_none() && batches.any(check::may_replace) {
            self.replaced = Some(Instant::now());
        }
    }

    /// Commits batches together at a position of the journal up to which everything is folded; an invalid batch does
    /// not affect the others.
    ///
    /// Returns the position after them: each commit takes one position for which the journal has no record. If a
    /// power cut undoes a commit and keeps later records of the journal, the journal ends at the missing commit.
    pub(super) fn group(&mut self, batches: &[Batch], position: u64) -> (Vec<Result<(), StoreError>>, u64) {
        self.count_pages(batches.iter());
        let result = self
            .set_full_sync(batches.iter().any(|batch| batch.durable))
            .and_then(|()| self.transaction(batches, position + 1));
        match result {
            Ok(results) => (results, position + 1),
            Err(error) if batches.len() == 1 || error.kind == ErrorKind::Busy => {
                (vec![Err(error); batches.len()], position)
            }
            // A batch that needs less disk space, or frees some, must not fail because of others.
            Err(_) => {
                let mut end = position;
                let results = batches.iter().map(|batch| {
                    self.alone(batch, end + 1)?;
                    end += 1;
                    Ok(())
                });
                (results.collect(), end)
            }
        }
    }

    fn alone(&mut self, batch: &Batch, end: u64) -> Result<(), StoreError> {
        self.transaction(std::slice::from_ref(batch), end)?.pop().expect("one batch has one result")
    }

    /// Runs one transaction; if it fails as a whole, nothing of it remains.
    fn transaction(
        &mut self,
        batches: &[Batch],
        end: u64,
    ) -> Result<Vec<Result<(), StoreError>>, StoreError> {
        self.in_transaction(|writer| {
            writer.set_folded(end)?;
            if let [batch] = batches {
                // If the batch is invalid, nothing else in the transaction is lost.
                writer.apply(batch)?;
                return Ok(vec![Ok(())]);
            }
            batches.iter().map(|batch| writer.batch_among_others(batch)).collect()
        })
    }

    fn in_transaction<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let result = self.begin().and_then(|()| {
            let result = work(self)?;
            self.commit()?;
            Ok(result)
        });
        if result.is_err() {
            self.rollback();
        }
        result
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        super::check_room(&self.is_full)?;
        self.gate.pass();
        let committed = self.execute("COMMIT");
        self.has_failed_commit = committed.is_err();
        committed
    }

    fn rollback(&mut self) {
        self.cache = WriterCache::default();
        // SQLite rolls back by itself after some errors. A rollback that fails leaves the transaction open; the next
        // one cannot begin and tries this again.
        if !self.conn.is_autocommit() {
            drop(self.execute("ROLLBACK"));
        }
    }

    fn begin(&mut self) -> Result<(), StoreError> {
        if !self.conn.is_autocommit() {
            // An earlier call panicked.
            self.rollback();
        }
        self.conn.busy_timeout(self.timeout)?;
        let begun = self.execute("BEGIN IMMEDIATE");
        let is_locked = begun.as_ref().is_err_and(|error| error.kind == ErrorKind::Busy);
        self.timeout = if is_locked { SHORT_LOCK_TIMEOUT } else { self.lock_timeout };
        begun?;
        let version = data_version(&self.conn)?;
        if version != self.data_version {
            self.cache = WriterCache::default();
            self.data_version = version;
            self.is_foreign = true;
        }
        Ok(())
    }

    /// Applies one batch inside a transaction. The inner error is that of an invalid batch, which is undone; the
    /// outer error ends the transaction.
    fn batch_among_others(&mut self, batch: &Batch) -> Result<Result<(), StoreError>, StoreError> {
        self.execute("SAVEPOINT batch")?;
        let result = self.apply(batch);
        match &result {
            Ok(()) => {}
            Err(error) if error.kind == ErrorKind::Invalid && !self.conn.is_autocommit() => {
                self.cache = WriterCache::default();
                self.execute("ROLLBACK TO batch")?;
            }
            Err(error) => return Err(error.clone()),
        }
        self.execute("RELEASE batch")?;
        Ok(result)
    }

    fn apply(&mut self, batch: &Batch) -> Result<(), StoreError> {
        for write in &batch.writes {
            let Write::Delete { session } = write else {
                apply(&self.conn, &mut self.cache, write)?;
                continue;
            };
            let sessions = with_owned(&self.conn, session)?;
            self.has_deleted_owned |= sessions.len() > 1;
            for session in sessions {
                self.delete(session)?;
            }
        }
        Ok(())
    }

    fn delete(&mut self, session: String) -> Result<(), StoreError> {
        // If these fail, the session is not deleted.
        rejected::remove_session(&rejected::path_of(&self.database), &session)?;
        damaged::remove_session(&self.database, &session)?;
        apply(&self.conn, &mut self.cache, &Write::Delete { session })
    }

    /// Applies valid batches; all texts that are appended to one entry are appended at once.
    fn apply_merged(&mut self, batches: &[&Batch]) -> Result<(), StoreError> {
        let mut appended = Appended::default();
        for write in batches.iter().flat_map(|batch| &batch.writes) {
            if let Write::Append { session, created, seq, content } = write {
                appended.add(session, *created, *seq, content);
            } else {
                appended.apply(&self.conn, &mut self.cache)?;
                apply(&self.conn, &mut self.cache, write)?;
            }
        }
        appended.apply(&self.conn, &mut self.cache)
    }

    fn set_full_sync(&mut self, full_sync: bool) -> Result<(), StoreError> {
        if full_sync != self.full_sync {
            let level = if full_sync { "FULL" } else { "NORMAL" };
            self.conn.pragma_update(None, "synchronous", level)?;
            self.full_sync = full_sync;
        }
        Ok(())
    }

    /// Returns whether the WAL is long enough for a checkpoint, and resets the count because the caller does it.
    pub(super) fn is_checkpoint_due(&mut self) -> bool {
        let is_due = self.wal_pages >= CHECKPOINT_PAGES;
        if is_due {
            self.wal_pages = 0;
        }
        is_due
    }

    /// Limits the length of the WAL after a checkpoint. Readers of an old snapshot can block it; if some always do,
    /// the writer waits for them, because the WAL would grow without limit.
    pub(super) fn limit_wal(&mut self) {
        let length = std::fs::metadata(&self.wal).map_or(0, |wal| wal.len());
        if length > self.wal_limit {
            let done = self.checkpoint(READER_TIMEOUT).unwrap_or(false);
            self.wal_limit = if done { MAX_WAL } else { length + MAX_WAL };
        }
    }

    /// Returns the time at which the WAL needs work.
    pub(super) fn wake_time(&self) -> Option<Instant> {
        if self.wal_pages >= CHECKPOINT_PAGES { Some(Instant::now()) } else { self.truncate_at() }
    }

    /// Returns the time at which the WAL must be truncated.
    pub(super) fn truncate_at(&self) -> Option<Instant> {
        Some(self.replaced? + MAX_REPLACED_AGE)
    }

    /// Data that is replaced or deleted from now on is not in the part of the WAL that is about to be truncated.
    pub(super) fn begin_truncate(&mut self) {
        self.replaced = None;
    }

    /// Truncates the WAL. Readers of an old snapshot can block that, and after several attempts the writer waits for
    /// them.
    pub(super) fn truncate_wal(&mut self) {
        let timeout = if self.blocked < MAX_BLOCKED { Duration::ZERO } else { READER_TIMEOUT };
        if self.checkpoint(timeout).unwrap_or(false) {
            (self.blocked, self.wal_pages) = (0, 0);
        } else {
            self.blocked = (self.blocked + 1) % (MAX_BLOCKED + 1);
            self.truncate_again();
        }
    }

    /// Schedules another truncation.
    pub(super) fn truncate_again(&mut self) {
        self.replaced.get_or_insert_with(Instant::now);
    }

    /// Checkpoints and truncates the WAL before the connection is closed. Everything is committed: if it fails, the
    /// next process that opens the database reads the WAL.
    pub(super) fn close(&self) {
        drop(self.checkpoint(READER_TIMEOUT));
    }

    /// Checkpoints and truncates the WAL, so that nothing depends on syncs of the WAL any more.
    pub(super) fn checkpoint_all(&self) -> Result<(), StoreError> {
        if self.checkpoint(READER_TIMEOUT)? {
            return Ok(());
        }
        Err(StoreError::new(ErrorKind::Io, "a reader of an old snapshot blocks the checkpoint"))
    }

    /// Checkpoints and truncates the WAL; returns `false` if readers blocked it for the timeout.
    fn checkpoint(&self, timeout: Duration) -> Result<bool, StoreError> {
        self.conn.busy_timeout(timeout)?;
        self.gate.pass();
        let busy = self.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0))?;
        Ok(!busy)
    }

    fn execute(&self, sql: &str) -> Result<(), StoreError> {
        self.conn.prepare_cached(sql)?.execute([])?;
        Ok(())
    }
}

/// The errors of batches that the database rejects, by the index of the batch.
type Rejected = BTreeMap<usize, StoreError>;

/// Returns whether an error concerns one batch only; a full disk concerns all.
fn is_rejection(error: &StoreError) -> bool {
    error.kind != ErrorKind::Full
}

/// Returns a number that changes when another connection has written.
fn data_version(conn: &Connection) -> Result<i64, StoreError> {
    Ok(conn.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?)
}

/// Syncs a write-ahead log.
pub(super) fn sync_wal(wal: &Path) -> Result<(), StoreError> {
    match File::open(wal) {
        // Without a WAL everything is in the database.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        file => Ok(file?.sync_data()?),
    }
}

/// The texts to append to entries, in the order of the first text for each entry.
#[derive(Default)]
struct Appended<'a> {
    texts: Vec<AppendedText<'a>>,
    indices: HashMap<(&'a str, u64), usize>,
}

struct AppendedText<'a> {
    session: &'a str,
    created: u64,
    seq: u64,
    text: Cow<'a, str>,
}

impl<'a> Appended<'a> {
    fn add(&mut self, session: &'a str, created: u64, seq: u64, text: &'a str) {
        let index = *self.indices.entry((session, created)).or_insert(self.texts.len());
        match self.texts.get_mut(index) {
            Some(appended) => {
                appended.seq = appended.seq.max(seq);
                appended.text.to_mut().push_str(text);
            }
            None => self.texts.push(AppendedText { session, created, seq, text: text.into() }),
        }
    }

    fn apply(&mut self, conn: &Connection, cache: &mut WriterCache) -> Result<(), StoreError> {
        self.indices.clear();
        let mut texts = self.texts.drain(..);
        texts.try_for_each(|part| append_to(conn, cache, part.session, part.created, part.seq, &part.text))
    }
}

/// Checkpoints as much of the WAL as possible through another connection, while others write.
pub(super) fn checkpoint_passive(conn: &Connection) {
    // The rest is checkpointed the next time.
    let _ = conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
}
