//! The SQLite store.

mod apply;
mod backup;
mod cache;
mod content;
mod copy;
mod damaged;
mod error;
mod index;
mod journal;
mod journal_file;
mod known_rows;
mod list;
mod migrations;
mod read;
mod rejected;
mod schema;
mod search;
mod shared;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rusqlite::Connection;

use self::read::Readers;
use self::shared::Shared;
use crate::{
    Batch, Cursor, Done, EntryRow, ErrorKind, Filter, Hit, Search, SessionRow, SlotRow, Store, StoreError,
};

/// Keeps sessions in an SQLite database with a journal beside it.
///
/// A batch is done when it is appended to the journal, by the caller's thread or by another one that is already
/// writing. A thread folds the journal (applies its batches to the database) at most a tenth of a second later; a
/// read folds it first, so that it sees all batches that are done. Batches that are large, copy, delete, or write to
/// sessions that were not written to recently go to the database directly. Reads use connections of their own.
///
/// A batch that was reported as done survives the end of the process. A durable batch also survives a power cut, and
/// so do all batches that were done before it. A batch that need not be durable may be done before an earlier durable
/// one.
///
/// One process writes at a time. Other processes may read and see all batches that are done. After the writing
/// process was killed, a reader folds the journal that it left. If that journal is damaged, all batches before the
/// damage are folded and the file is kept: [`damaged_journals`](SqliteStore::damaged_journals) reports it.
///
/// Closing or dropping the store writes all batches that it has accepted and waits for that. A closed store can be
/// read.
pub struct SqliteStore {
    readers: Readers,
    /// `None` in a store that only reads.
    writer: Option<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Options for tests.
#[doc(hidden)]
#[derive(Debug, Clone, Default)]
pub struct SqliteOptions {
    /// The most pages of 4 KiB that the database may have, to simulate a full disk.
    pub max_pages: Option<u32>,
    /// The time to wait for another process that has the write lock of the database.
    pub lock_timeout: Option<Duration>,
    /// Whether all batches go to the database directly.
    pub no_journal: bool,
    /// While set, every write fails as on a full disk.
    pub is_full: Arc<AtomicBool>,
    /// While set, an append to the journal fails after it has written.
    pub fails_append: Arc<AtomicBool>,
    /// While set, every sync fails.
    pub fails_sync: Arc<AtomicBool>,
    /// When set, the next append to the journal or the next fold panics and clears it.
    pub panics: Arc<AtomicBool>,
}

fn check_room(is_full: &AtomicBool) -> Result<(), StoreError> {
    if is_full.load(Ordering::SeqCst) {
        return Err(StoreError::new(ErrorKind::Full, "simulated by a test"));
    }
    Ok(())
}

fn check_disk(fails: &AtomicBool) -> Result<(), StoreError> {
    if fails.load(Ordering::SeqCst) {
        return Err(StoreError::new(ErrorKind::Io, "simulated by a test"));
    }
    Ok(())
}

fn check_panic(panics: &AtomicBool) {
    assert!(!panics.swap(false, Ordering::SeqCst), "simulated by a test");
}

impl SqliteStore {
    /// Opens a database and creates it if it does not exist; only the owner of its files can read them.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_with(path, &SqliteOptions::default())
    }

    /// Opens an existing database for reading: every write fails as invalid. Another process may write to it.
    pub fn open_read_only(path: &Path) -> Result<Self, StoreError> {
        let store = Self { readers: Readers::new(path.to_owned()), writer: None };
        // Reports now whether the database can be read, not at the first read.
        store.read(|_| Ok(()))?;
        Ok(store)
    }

    /// Returns the version of the database's format, which later versions of this program can read too.
    pub fn format_version(&self) -> Result<u32, StoreError> {
        self.read(|conn| Ok(conn.pragma_query_value(None, "user_version", |row| row.get(0))?))
    }

    /// Returns the damage that SQLite finds in the file. This reads the whole file, and with `indexes` also compares
    /// each index with its table.
    pub fn damage(&self, indexes: bool) -> Result<Vec<String>, StoreError> {
        let pragma = if indexes { "PRAGMA integrity_check(10)" } else { "PRAGMA quick_check(10)" };
        self.read(|conn| {
            let mut check = conn.prepare(pragma)?;
            let said = check.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
            Ok(said.into_iter().filter(|line| line != "ok").collect())
        })
    }

    /// Writes a copy of the database, with all batches that are done, to a new file that only its owner can read. Other
    /// processes may write to the database meanwhile. Fails if the file exists.
    pub fn back_up(&self, target: &Path) -> Result<(), StoreError> {
        match &self.writer {
            Some(writer) => writer.shared.fold_for_read()?,
            None => self.readers.wait_for_fold()?,
        }
        backup::write(self.readers.path(), target)
    }

    /// Returns an error of kind [`DamagedJournal`](ErrorKind::DamagedJournal) for each damaged journal of a database
    /// that was kept when it was opened.
    pub fn damaged_journals(path: &Path) -> Result<Vec<StoreError>, StoreError> {
        damaged::all(path)
    }

    /// Returns all files that a database at this path can have; only the store may write to them.
    pub fn files(path: &Path) -> Vec<PathBuf> {
        let beside = |end: &str| {
            let mut path = path.as_os_str().to_owned();
            path.push(end);
            path.into()
        };
        let mut files: Vec<_> =
            ["", "-wal", "-shm", ".journal", ".rejected"].into_iter().map(beside).collect();
        files.push(rejected::temporary_path_of(&rejected::path_of(path)));
        files.extend(damaged::paths_of(path));
        files
    }

    #[doc(hidden)]
    pub fn open_with(path: &Path, options: &SqliteOptions) -> Result<Self, StoreError> {
        let shared = Arc::new(Shared::open(path, options)?);
        let handle = Handle { shared, threads: Mutex::default() };
        for (name, run) in [("store", Shared::run as fn(Arc<Shared>)), ("store sync", Shared::run_syncs)] {
            let shared = Arc::clone(&handle.shared);
            let thread = thread::Builder::new().name(name.to_owned()).spawn(move || run(shared))?;
            handle.threads().push(thread);
        }
        Ok(Self { readers: Readers::new(path.to_owned()), writer: Some(handle) })
    }

    /// Reads all batches that are done.
    fn read<T>(&self, read: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        match &self.writer {
            Some(writer) if writer.shared.fold_for_read().is_err() => writer.shared.read_unfolded(read),
            Some(_) => self.readers.read(read),
            None => {
                self.readers.wait_for_fold()?;
                self.readers.read(read)
            }
        }
    }
}

impl Store for SqliteStore {
    fn write(&self, batch: Batch, done: Done) {
        match &self.writer {
            Some(writer) => writer.shared.write(batch, done),
            None => done(Err(StoreError::invalid("the store is read-only"))),
        }
    }

    fn session(&self, id: &str) -> Result<Option<SessionRow>, StoreError> {
        self.read(|conn| list::session(conn, id))
    }

    fn sessions(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Vec<SessionRow>, StoreError> {
        self.read(|conn| list::sessions(conn, filter, after, limit))
    }

    fn slots(&self, session: &str, since: u64) -> Result<Vec<SlotRow>, StoreError> {
        self.read(|conn| read::slots(conn, session, since))
    }

    fn entries(
        &self,
        session: &str,
        since: u64,
        after: u64,
        bytes: usize,
    ) -> Result<Vec<EntryRow>, StoreError> {
        self.read(|conn| read::entries(conn, session, since, after, bytes))
    }

    fn value(&self, key: &str) -> Result<Option<String>, StoreError> {
        self.read(|conn| read::value(conn, key))
    }

    fn search(&self, search: &Search, offset: usize, limit: usize) -> Result<Vec<Hit>, StoreError> {
        self.read(|conn| search::search(conn, search, offset, limit))
    }

    fn unindexed(&self, limit: usize) -> Result<Vec<String>, StoreError> {
        self.read(|conn| search::unindexed(conn, limit))
    }

    fn close(&self) {
        if let Some(writer) = &self.writer {
            writer.close();
        }
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        // The writer closes the last connection, because only a connection that may write can remove the WAL.
        self.readers.close();
    }
}

impl Handle {
    fn close(&self) {
        self.shared.close();
        // A `done` callback may own the last reference to the store. Its thread cannot join itself, and runs until
        // everything is written.
        let me = thread::current().id();
        let mut threads = self.threads();
        if threads.iter().all(|thread| thread.thread().id() != me) {
            // A panic of the thread has already been reported.
            threads.drain(..).for_each(|thread| drop(thread.join()));
        }
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}
