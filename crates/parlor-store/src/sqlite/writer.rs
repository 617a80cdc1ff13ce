//! The one connection that writes to the database.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::apply::{append_to, apply};
use super::cache::Known;
use super::schema::{CHECKPOINT_PAGES, PATIENCE};
use super::{damaged, list, read, rejected};
use crate::{Batch, ErrorKind, Options, StoreError, Write, check};

/// The bytes of a page.
const PAGE: usize = 4096;

/// How many pages of the log a batch takes besides its bytes.
const PAGES_A_BATCH: usize = 4;

/// When the log is this long, readers have kept it from being moved for too long, and the writer waits for them.
const LOG_MOST: u64 = 64 << 20;

/// How long the writer waits for readers of an old state then.
const LOG_PATIENCE: Duration = Duration::from_millis(200);

/// How long to wait for another process that had the write lock for longer than was waited for it.
const LOCKED_PATIENCE: Duration = Duration::from_millis(20);

/// How long what was replaced or deleted may still be in the log.
const LOG_AGE: Duration = Duration::from_secs(1);

/// How often readers may keep the log from being cut before the writer waits for them.
const CUTS_MISSED: u32 = 5;

pub(super) struct Writer {
    conn: Connection,
    known: Known,
    /// Changes when another process has written, so that what is known may be wrong.
    data_version: i64,
    /// Whether it has changed since somebody asked.
    is_foreign: bool,
    /// Whether commits wait for the disk.
    full_sync: bool,
    /// Whether the last commit failed, so that a crash may still bring it back, until another one overwrites it.
    has_failed_commit: bool,
    log: PathBuf,
    database: PathBuf,
    /// The length of the log at which the writer does something about it.
    log_limit: u64,
    /// About how many pages were put into the log since it was last moved to the database.
    logged: usize,
    /// Since when the log has something that was replaced or deleted, and is to be cut; it may have when it is opened.
    replaced: Option<Instant>,
    /// How often in a row it could not be cut.
    missed: u32,
    /// How long to wait for another process that has the write lock.
    lock_patience: Duration,
    /// The same, or less since it was waited for in vain: batches fail at once then, until the lock was free.
    patience: Duration,
    /// Whether a test wants the disk to be full.
    is_full: Arc<AtomicBool>,
    /// Whether a test wants the next fold to panic.
    panics: Arc<AtomicBool>,
}

impl Writer {
    pub(super) fn new(conn: Connection, database: &Path, options: &Options) -> Self {
        let (known, log_limit) = (Known::default(), LOG_MOST);
        let replaced = Some(Instant::now());
        let mut log = database.as_os_str().to_owned();
        log.push("-wal");
        let data_version = data_version(&conn).unwrap_or_default();
        Self {
            conn,
            known,
            data_version,
            is_foreign: false,
            full_sync: false,
            has_failed_commit: false,
            log: log.into(),
            database: database.to_owned(),
            log_limit,
            logged: 0,
            replaced,
            missed: 0,
            lock_patience: options.lock_patience.unwrap_or(PATIENCE),
            patience: options.lock_patience.unwrap_or(PATIENCE),
            is_full: Arc::clone(&options.is_full),
            panics: Arc::clone(&options.panics),
        }
    }

    /// The position up to which the journal is folded.
    pub(super) fn folded(&self) -> Result<u64, StoreError> {
        read::folded(&self.conn)
    }

    /// Writes batches of the journal, up to a position, in one transaction.
    ///
    /// They made sense when they were put into the journal. One that the database rejects now, because it is damaged
    /// or because another process has deleted the session, is set aside: it must not stop the others.
    pub(super) fn fold(&mut self, batches: &[Batch], end: u64) -> Result<(), StoreError> {
        super::check_panic(&self.panics);
        self.note(batches);
        self.set_full_sync(false)?;
        let folded = self.begin_with(batches).and_then(|rejected| {
            self.set_folded(end)?;
            let kept = self.without_deleted(batches, &rejected)?;
            rejected::append(&rejected::path_of(&self.database), kept.into_iter())?;
            self.commit()?;
            Ok(rejected)
        });
        if folded.is_err() {
            self.undo();
        }
        for error in folded?.values() {
            let file = rejected::path_of(&self.database);
            let file = file.display();
            tracing::error!(%error, %file, "the database rejects a batch of the journal, which is set aside");
            self.is_foreign = true;
        }
        Ok(())
    }

    /// Rejected batches, but for those that write to a session that was deleted: their text must not stay.
    fn without_deleted<'a>(
        &self,
        batches: &'a [Batch],
        rejected: &'a Rejected,
    ) -> Result<Vec<(&'a Batch, &'a StoreError)>, StoreError> {
        let mut kept = Vec::new();
        let mut made = HashSet::new();
        for (n, error) in rejected {
            let writes = &batches[*n].writes;
            // A session that was rejected itself is not there either.
            made.extend(
                writes.iter().filter(|write| matches!(write, Write::Session(_))).map(check::session_of),
            );
            let sessions = writes.iter().map(check::session_of).filter(|session| !made.contains(session));
            let are_there =
                sessions.flatten().map(|session| Ok(list::session(&self.conn, session)?.is_some()));
            if are_there.collect::<Result<Vec<_>, StoreError>>()?.iter().all(|is_there| *is_there) {
                kept.push((&batches[*n], error));
            }
        }
        Ok(kept)
    }

    /// Begins a transaction with batches, and returns those that the database rejects, which are not in it.
    fn begin_with(&mut self, batches: &[Batch]) -> Result<Rejected, StoreError> {
        self.begin()?;
        let mut rejected = Rejected::new();
        match self.apply_merged(batches) {
            Err(error) if is_rejection(&error) => {}
            applied => return applied.map(|()| rejected),
        }
        loop {
            self.undo();
            self.begin()?;
            let before = rejected.len();
            match self.apply_one_by_one(batches, &mut rejected) {
                Ok(()) => return Ok(rejected),
                // It took the others with it: again without it.
                Err(_) if rejected.len() > before => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Applies batches that are not rejected yet. Fails if one cannot be undone without the others.
    fn apply_one_by_one(&mut self, batches: &[Batch], rejected: &mut Rejected) -> Result<(), StoreError> {
        for (n, batch) in batches.iter().enumerate() {
            if rejected.contains_key(&n) {
                continue;
            }
            self.execute("SAVEPOINT batch")?;
            if let Err(error) = self.apply(batch) {
                self.known = Known::default();
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

    /// Reads from a state that has these batches too, without writing them: there is no room for them. Those that the
    /// database rejects are left out.
    pub(super) fn read_with<T>(
        &mut self,
        batches: &[Batch],
        read: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        // All that is changed stays in memory until it is undone.
        self.conn.pragma_update(None, "cache_spill", false)?;
        let result = self.begin_with(batches).and_then(|_| read(&self.conn));
        self.undo();
        self.conn.pragma_update(None, "cache_spill", true)?;
        result
    }

    /// Whether the last commit failed. A crash could bring it back, together with what it says of the journal.
    pub(super) fn has_failed_commit(&self) -> bool {
        self.has_failed_commit
    }

    /// Whether another process has written since this was last asked.
    pub(super) fn take_foreign(&mut self) -> bool {
        std::mem::take(&mut self.is_foreign)
    }

    /// The write-ahead log, which has all that was committed since it was last cut.
    pub(super) fn log(&self) -> &Path {
        &self.log
    }

    /// Sees to it that all commits outlive a power cut.
    pub(super) fn sync(&self) -> Result<(), StoreError> {
        sync_log(&self.log)
    }

    fn note(&mut self, batches: &[Batch]) {
        let pages = batches.iter().map(|batch| check::size(batch) / PAGE + PAGES_A_BATCH);
        self.logged += pages.sum::<usize>();
        if self.replaced.is_none() && batches.iter().any(check::may_replace) {
            self.replaced = Some(Instant::now());
        }
    }

    /// Commits batches together, at a position of the journal at which all is folded. What goes wrong with one of them
    /// only is its own affair.
    ///
    /// Returns the position behind them: each commit takes one, for which the journal has no record. After a power cut
    /// that takes a commit and leaves what the journal got later, the journal ends there.
    pub(super) fn group(&mut self, batches: &[Batch], position: u64) -> (Vec<Result<(), StoreError>>, u64) {
        self.note(batches);
        let result = self
            .set_full_sync(batches.iter().any(|batch| batch.durable))
            .and_then(|()| self.transaction(batches, position + 1));
        match result {
            Ok(results) => (results, position + 1),
            Err(error) if batches.len() == 1 || error.kind == ErrorKind::Busy => {
                (vec![Err(error); batches.len()], position)
            }
            // One that needs less room, or makes some, must not fail because of its neighbours.
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

    /// One transaction; when it fails as a whole, nothing of it is left.
    fn transaction(
        &mut self,
        batches: &[Batch],
        end: u64,
    ) -> Result<Vec<Result<(), StoreError>>, StoreError> {
        self.in_transaction(|writer| {
            writer.set_folded(end)?;
            if let [batch] = batches {
                // If it makes no sense, there is nothing else in the transaction to keep.
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
            self.undo();
        }
        result
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        super::check_room(&self.is_full)?;
        let committed = self.execute("COMMIT");
        self.has_failed_commit = committed.is_err();
        committed
    }

    fn undo(&mut self) {
        self.known = Known::default();
        // SQLite rolls back by itself after some errors. A rollback that fails leaves the transaction open, and then
        // the next one cannot begin and tries this again.
        if !self.conn.is_autocommit() {
            drop(self.execute("ROLLBACK"));
        }
    }

    fn begin(&mut self) -> Result<(), StoreError> {
        if !self.conn.is_autocommit() {
            // Someone panicked.
            self.undo();
        }
        self.conn.busy_timeout(self.patience)?;
        let begun = self.execute("BEGIN IMMEDIATE");
        let is_locked = begun.as_ref().is_err_and(|error| error.kind == ErrorKind::Busy);
        self.patience = if is_locked { LOCKED_PATIENCE } else { self.lock_patience };
        begun?;
        let version = data_version(&self.conn)?;
        if version != self.data_version {
            self.known = Known::default();
            self.data_version = version;
            self.is_foreign = true;
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
        for write in &batch.writes {
            apply(&self.conn, &mut self.known, write)?;
            if let Write::Delete { session } = write {
                // If this cannot be done, the session stays.
                rejected::forget(&rejected::path_of(&self.database), session)?;
                damaged::forget(&self.database, session)?;
            }
        }
        Ok(())
    }

    /// Applies batches that make sense. What is appended to one entry, by many of them, is appended at once.
    fn apply_merged(&mut self, batches: &[Batch]) -> Result<(), StoreError> {
        let mut appended = Appended::default();
        for write in batches.iter().flat_map(|batch| &batch.writes) {
            if let Write::Append { session, created, seq, content } = write {
                appended.add(session, *created, *seq, content);
            } else {
                appended.apply(&self.conn, &mut self.known)?;
                apply(&self.conn, &mut self.known, write)?;
            }
        }
        appended.apply(&self.conn, &mut self.known)
    }

    fn set_full_sync(&mut self, full_sync: bool) -> Result<(), StoreError> {
        if full_sync != self.full_sync {
            let level = if full_sync { "FULL" } else { "NORMAL" };
            self.conn.pragma_update(None, "synchronous", level)?;
            self.full_sync = full_sync;
        }
        Ok(())
    }

    /// Whether the log has grown so much that it is to be moved to the database, so that it begins anew. Who asks does it.
    pub(super) fn is_log_due(&mut self) -> bool {
        let is_due = self.logged >= CHECKPOINT_PAGES;
        if is_due {
            self.logged = 0;
        }
        is_due
    }

    /// Looks at the log after it was moved. That is not possible while someone reads an old state. If there is always
    /// someone, the log would grow for ever, and the writer waits for them.
    pub(super) fn limit_log(&mut self) {
        let length = std::fs::metadata(&self.log).map_or(0, |log| log.len());
        if length > self.log_limit {
            let done = self.checkpoint(LOG_PATIENCE).unwrap_or(false);
            self.log_limit = if done { LOG_MOST } else { length + LOG_MOST };
        }
    }

    /// When there is something to do about the log.
    pub(super) fn alarm(&self) -> Option<Instant> {
        if self.logged >= CHECKPOINT_PAGES { Some(Instant::now()) } else { self.cut_at() }
    }

    /// When the log is to be cut.
    pub(super) fn cut_at(&self) -> Option<Instant> {
        Some(self.replaced? + LOG_AGE)
    }

    /// What is replaced or deleted from now on is not in the log that is about to be cut.
    pub(super) fn begin_cut(&mut self) {
        self.replaced = None;
    }

    /// Cuts the log. Who reads an old state keeps it from being done, and is waited for when it has been so a few times.
    pub(super) fn cut_log(&mut self) {
        let patience = if self.missed < CUTS_MISSED { Duration::ZERO } else { LOG_PATIENCE };
        if self.checkpoint(patience).unwrap_or(false) {
            (self.missed, self.logged) = (0, 0);
        } else {
            self.missed = (self.missed + 1) % (CUTS_MISSED + 1);
            self.cut_again();
        }
    }

    /// It has to be cut once more.
    pub(super) fn cut_again(&mut self) {
        self.replaced.get_or_insert_with(Instant::now);
    }

    /// Moves the log to the database and cuts it, before the connection is closed. All is committed already: if it
    /// fails, the log stays and is read by who opens the database next.
    pub(super) fn close(&self) {
        drop(self.checkpoint(LOG_PATIENCE));
    }

    /// Moves the log to the database and cuts it, so that nothing depends on syncs of the log any more.
    pub(super) fn renew_log(&self) -> Result<(), StoreError> {
        if self.checkpoint(LOG_PATIENCE)? {
            return Ok(());
        }
        Err(StoreError::new(ErrorKind::Io, "somebody reads an old state of the database"))
    }

    /// Moves the log to the database and cuts it; `false` when readers kept it from being done for this long.
    fn checkpoint(&self, patience: Duration) -> Result<bool, StoreError> {
        self.conn.busy_timeout(patience)?;
        let busy = self.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0))?;
        Ok(!busy)
    }

    fn execute(&self, sql: &str) -> Result<(), StoreError> {
        self.conn.prepare_cached(sql)?.execute([])?;
        Ok(())
    }
}

/// Batches that the database rejects, by their place, and why.
type Rejected = BTreeMap<usize, StoreError>;

/// Whether an error of one batch is no reason to leave out the others: one that all of them would have is.
fn is_rejection(error: &StoreError) -> bool {
    error.kind != ErrorKind::Full
}

/// A number that changes when another connection has written.
fn data_version(conn: &Connection) -> Result<i64, StoreError> {
    Ok(conn.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?)
}

/// Sees to it that all that is in a write-ahead log outlives a power cut.
pub(super) fn sync_log(log: &Path) -> Result<(), StoreError> {
    match File::open(log) {
        // Without one, all is in the database.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        file => Ok(file?.sync_data()?),
    }
}

/// What is appended to entries, in the order of the first text for each.
#[derive(Default)]
struct Appended<'a> {
    texts: Vec<AppendedText<'a>>,
    places: HashMap<(&'a str, u64), usize>,
}

struct AppendedText<'a> {
    session: &'a str,
    created: u64,
    seq: u64,
    text: Cow<'a, str>,
}

impl<'a> Appended<'a> {
    fn add(&mut self, session: &'a str, created: u64, seq: u64, text: &'a str) {
        let place = *self.places.entry((session, created)).or_insert(self.texts.len());
        match self.texts.get_mut(place) {
            Some(appended) => {
                appended.seq = appended.seq.max(seq);
                appended.text.to_mut().push_str(text);
            }
            None => self.texts.push(AppendedText { session, created, seq, text: text.into() }),
        }
    }

    fn apply(&mut self, conn: &Connection, known: &mut Known) -> Result<(), StoreError> {
        self.places.clear();
        let mut texts = self.texts.drain(..);
        texts.try_for_each(|part| append_to(conn, known, part.session, part.created, part.seq, &part.text))
    }
}

/// Moves what it can of the log to the database, through another connection: nobody who writes waits for it.
pub(super) fn move_log(conn: &Connection) {
    // What could not be moved is moved the next time.
    let _ = conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
}
