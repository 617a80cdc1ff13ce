//! Writing: many batches, one commit.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::Connection;

use super::apply::apply;
use super::cache::Known;
use super::queue::{Job, Queue};
use super::schema::CHECKPOINT_PAGES;
use crate::{Batch, Done, ErrorKind, StoreError, check};

/// Up to this many bytes, a batch is written by whoever hands it in, if nobody else writes: it costs less than to wake
/// a thread and to be woken by it.
const SMALL: usize = 32 << 10;

/// The bytes of a page.
const PAGE: usize = 4096;

/// How many pages of the log a batch takes besides its bytes.
const PAGES_A_BATCH: usize = 4;

/// When the log is this long, readers have kept it from being moved for too long, and the writer waits for them.
const LOG_MOST: u64 = 64 << 20;

/// How long the writer waits for readers of an old state then.
const LOG_PATIENCE: Duration = Duration::from_millis(200);

pub(super) struct Writer {
    conn: Connection,
    known: Known,
    /// Changes when another process has written, so that what is known may be wrong.
    data_version: i64,
    /// Whether commits wait for the disk.
    full_sync: bool,
    log: PathBuf,
    /// The length of the log at which the writer does something about it.
    log_limit: u64,
    /// About how many pages were put into the log since it was last moved to the database.
    logged: usize,
}

/// Everything that it takes to write, for the thread that writes and for those who write by themselves.
pub(super) struct Shared {
    pub(super) queue: Queue,
    writer: Mutex<Writer>,
}

impl Writer {
    /// `log` is the path of the write-ahead log.
    pub(super) fn new(conn: Connection, log: PathBuf) -> Self {
        let (known, log_limit) = (Known::default(), LOG_MOST);
        Self { conn, known, data_version: 0, full_sync: false, log, log_limit, logged: 0 }
    }

    /// Commits batches together. What goes wrong with one of them only is its own affair.
    fn group(&mut self, batches: &[Batch]) -> Vec<Result<(), StoreError>> {
        let pages = batches.iter().map(|batch| check::size(batch) / PAGE + PAGES_A_BATCH);
        self.logged += pages.sum::<usize>();
        let result = self
            .set_full_sync(batches.iter().any(|batch| batch.durable))
            .and_then(|()| self.transaction(batches));
        match result {
            Ok(results) => results,
            Err(error) if batches.len() == 1 => vec![Err(error)],
            // One that needs less room, or makes some, must not fail because of its neighbours.
            Err(_) => batches.iter().map(|batch| self.alone(batch)).collect(),
        }
    }

    fn alone(&mut self, batch: &Batch) -> Result<(), StoreError> {
        self.transaction(std::slice::from_ref(batch))?.pop().expect("one batch has one result")
    }

    /// One transaction; when it fails as a whole, nothing of it is left.
    fn transaction(&mut self, batches: &[Batch]) -> Result<Vec<Result<(), StoreError>>, StoreError> {
        let results = self.begin().and_then(|()| {
            if let [batch] = batches {
                // If it makes no sense, there is nothing else in the transaction to keep.
                self.apply(batch)?;
                self.execute("COMMIT")?;
                return Ok(vec![Ok(())]);
            }
            let results = batches.iter().map(|batch| self.batch_among_others(batch));
            let results = results.collect::<Result<_, _>>()?;
            self.execute("COMMIT")?;
            Ok(results)
        });
        if results.is_err() {
            self.known = Known::default();
            // SQLite rolls back by itself after some errors. A rollback that fails leaves the transaction open, and
            // then the next one cannot begin and tries this again.
            if !self.conn.is_autocommit() {
                drop(self.execute("ROLLBACK"));
            }
        }
        results
    }

    fn begin(&mut self) -> Result<(), StoreError> {
        self.execute("BEGIN IMMEDIATE")?;
        let version = self.conn.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        if version != self.data_version {
            self.known = Known::default();
            self.data_version = version;
        }
        Ok(())
    }

    /// One batch inside a transaction. The inner error is that of a batch that makes no sense, and nothing of it is
    /// left; the outer one ends the transaction.
    fn batch_among_others(&mut self, batch: &Batch) -> Result<Result<(), StoreError>, StoreError> {
        self.execute("SAVEPOINT batch")?;
        let result = self.apply(batch);
        match &result {
            Ok(()) => {}
            Err(error) if error.kind == ErrorKind::Invalid && !self.conn.is_autocommit() => {
                self.known = Known::default();
                self.execute("ROLLBACK TO batch")?;
            }
            Err(error) => return Err(error.clone()),
        }
        self.execute("RELEASE batch")?;
        Ok(result)
    }

    fn apply(&mut self, batch: &Batch) -> Result<(), StoreError> {
        batch.writes.iter().try_for_each(|write| apply(&self.conn, &mut self.known, write))
    }

    fn set_full_sync(&mut self, full_sync: bool) -> Result<(), StoreError> {
        if full_sync != self.full_sync {
            let level = if full_sync { "FULL" } else { "NORMAL" };
            self.conn.pragma_update(None, "synchronous", level)?;
            self.full_sync = full_sync;
        }
        Ok(())
    }

    /// Whether the log has grown so much that it is to be moved to the database.
    fn log_is_due(&self) -> bool {
        self.logged >= CHECKPOINT_PAGES
    }

    /// Moves the log to the database now and then, so that it begins anew. That is not possible while someone reads an
    /// old state. If there is always someone, the log would grow for ever, and the writer waits for them.
    fn tend_log(&mut self) {
        if !self.log_is_due() {
            return;
        }
        self.logged = 0;
        // What could not be moved is moved the next time.
        let _ = self.conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        let length = std::fs::metadata(&self.log).map_or(0, |log| log.len());
        if length > self.log_limit {
            let done = self.checkpoint().unwrap_or(false);
            self.log_limit = if done { LOG_MOST } else { length + LOG_MOST };
        }
    }

    /// Moves the log to the database and cuts it; `false` when readers kept it from being done.
    fn checkpoint(&self) -> Result<bool, StoreError> {
        let patience = self.conn.query_row("PRAGMA busy_timeout", [], |row| row.get(0))?;
        self.conn.busy_timeout(LOG_PATIENCE)?;
        let busy = self.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0));
        self.conn.busy_timeout(Duration::from_millis(patience))?;
        Ok(!busy?)
    }

    fn execute(&self, sql: &str) -> Result<(), StoreError> {
        self.conn.prepare_cached(sql)?.execute([])?;
        Ok(())
    }
}

impl Shared {
    pub(super) fn new(writer: Writer) -> Self {
        Self { queue: Queue::default(), writer: Mutex::new(writer) }
    }

    /// Writes a batch at once, or has the thread do it.
    pub(super) fn write(&self, batch: Batch, done: Done) {
        if batch.durable || check::size(&batch) > SMALL || !self.queue.may_write() {
            return self.queue.push(batch, done);
        }
        let written = Written(&self.queue);
        let abandoned = Abandoned(&self.queue);
        let mut writer = self.writer();
        let result = writer.group(std::slice::from_ref(&batch)).pop().expect("one batch has one result");
        let log_is_due = writer.log_is_due();
        drop(writer);
        std::mem::forget(abandoned);
        // Until it returns, what it writes waits for the thread: else one `done` could begin the next without end.
        drop(catch_unwind(AssertUnwindSafe(|| done(result))));
        drop(written);
        if log_is_due {
            // Moving the log takes long, so it is left to the thread.
            self.queue.push(Batch::default(), Box::new(drop));
        }
    }

    /// Writes what is in the queue until it is closed and empty.
    pub(super) fn run(self: Arc<Self>) {
        // Should the writer panic, those who wait or will write are told instead of waiting for ever.
        let _abandoned = Abandoned(&self.queue);
        while let Some(jobs) = self.queue.take() {
            let (batches, dones): (Vec<_>, Vec<_>) = jobs.into_iter().map(Job::split).unzip();
            let mut writer = self.writer();
            let results = writer.group(&batches);
            for (done, result) in dones.into_iter().zip(results) {
                // Someone else's panic has been reported where it happened, and is no reason to stop writing.
                drop(catch_unwind(AssertUnwindSafe(|| done(result))));
            }
            writer.tend_log();
            drop(writer);
            self.queue.written();
        }
        // All is committed already: if this fails, the log stays and is read by who opens the database next.
        drop(self.writer().checkpoint());
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets others write.
struct Written<'a>(&'a Queue);

impl Drop for Written<'_> {
    fn drop(&mut self) {
        self.0.written();
    }
}

/// Lets nobody write any more.
struct Abandoned<'a>(&'a Queue);

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
