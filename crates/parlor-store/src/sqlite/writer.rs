//! The thread that writes: many batches, one commit.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;

use super::apply::apply;
use super::cache::Known;
use super::queue::{Job, Queue};
use crate::{Batch, ErrorKind, StoreError};

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
}

impl Writer {
    /// `log` is the path of the write-ahead log.
    pub(super) fn new(conn: Connection, log: PathBuf) -> Self {
        Self { conn, known: Known::default(), data_version: 0, full_sync: false, log, log_limit: LOG_MOST }
    }

    /// Writes what is in the queue until it is closed and empty.
    pub(super) fn run(mut self, queue: Arc<Queue>) {
        let queue = Abandoned(queue);
        while let Some(jobs) = queue.0.take() {
            let (batches, dones): (Vec<_>, Vec<_>) = jobs.into_iter().map(Job::split).unzip();
            let results = self.group(&batches);
            for (done, result) in dones.into_iter().zip(results) {
                // Someone else's panic has been reported where it happened, and is no reason to stop writing.
                drop(catch_unwind(AssertUnwindSafe(|| done(result))));
            }
            self.tend_log();
        }
        // All is committed already: if this fails, the log stays and is read by who opens the database next.
        drop(self.checkpoint());
    }

    /// Commits batches together. What goes wrong with one of them only is its own affair.
    fn group(&mut self, batches: &[Batch]) -> Vec<Result<(), StoreError>> {
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
            let results = batches.iter().map(|batch| self.batch(batch)).collect::<Result<_, _>>()?;
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
    fn batch(&mut self, batch: &Batch) -> Result<Result<(), StoreError>, StoreError> {
        self.execute("SAVEPOINT batch")?;
        let result = batch.writes.iter().try_for_each(|write| apply(&self.conn, &mut self.known, write));
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

    fn set_full_sync(&mut self, full_sync: bool) -> Result<(), StoreError> {
        if full_sync != self.full_sync {
            let level = if full_sync { "FULL" } else { "NORMAL" };
            self.conn.pragma_update(None, "synchronous", level)?;
            self.full_sync = full_sync;
        }
        Ok(())
    }

    /// SQLite moves the log to the database by itself and then begins it anew, but never while someone reads an old
    /// state. If there is always someone, the log would grow for ever.
    fn tend_log(&mut self) {
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

/// Should the writer panic, those who wait or will write are told instead of waiting for ever.
struct Abandoned(Arc<Queue>);

impl Drop for Abandoned {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
