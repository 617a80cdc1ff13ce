//! Sessions in a file.

mod apply;
mod cache;
mod content;
mod copy;
mod damaged;
mod error;
mod facts;
mod journal;
mod journal_file;
mod list;
mod migrations;
mod read;
mod rejected;
mod schema;
mod search;
mod shared;
mod words;
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

/// Keeps sessions in an SQLite database, with a journal beside it.
///
/// A batch is appended to the journal by whoever hands it in if nobody else writes, else by who does, and is done then.
/// A thread folds the journal into the database, at most a tenth of a second later; a read does so at once, so that it
/// finds all that is done. Batches that are large, copy, delete, or write to sessions that were not written to lately
/// go to the database at once. Reads have connections of their own.
///
/// A batch that was reported as done outlives the process. A durable one outlives a power cut too, and so does all
/// that was done before it. A batch that need not be durable may be done before a durable one that came earlier.
///
/// One process writes at a time. Others may read: they see all that is done as well. If the one that wrote was killed,
/// who reads folds what it left. If what it left is damaged, all before the damage is folded, and the journal is kept:
/// [`damaged_journals`](SqliteStore::damaged_journals) says why.
///
/// Closing or dropping the store writes what was handed in, and waits for that. A store that is closed can be read.
pub struct SqliteStore {
    readers: Readers,
    /// `None` in a store that only reads.
    writer: Option<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What tests want to be different.
#[doc(hidden)]
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// How many pages of 4 KiB the database may have: a full disk is hard to come by.
    pub max_pages: Option<u32>,
    /// How long to wait for another process that has the write lock of the database.
    pub lock_patience: Option<Duration>,
    /// Whether all batches go to the database at once.
    pub no_journal: bool,
    /// While this is set, nothing can be written, as if the disk were full.
    pub is_full: Arc<AtomicBool>,
    /// While this is set, an append to the journal fails after it has written.
    pub fails_append: Arc<AtomicBool>,
    /// While this is set, no sync works.
    pub fails_sync: Arc<AtomicBool>,
    /// When this is set, the next append to the journal or the next fold of it panics and clears it.
    pub panics: Arc<AtomicBool>,
}

fn check_room(is_full: &AtomicBool) -> Result<(), StoreError> {
    if is_full.load(Ordering::SeqCst) {
        return Err(StoreError::new(ErrorKind::Full, "a test asked for it"));
    }
    Ok(())
}

fn check_disk(fails: &AtomicBool) -> Result<(), StoreError> {
    if fails.load(Ordering::SeqCst) {
        return Err(StoreError::new(ErrorKind::Io, "a test asked for it"));
    }
    Ok(())
}

fn check_panic(panics: &AtomicBool) {
    assert!(!panics.swap(false, Ordering::SeqCst), "a test asked for it");
}

impl SqliteStore {
    /// Opens a database, and makes it if there is none. Its files can be read by their owner only.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_with(path, &Options::default())
    }

    /// Opens a database that is there, to read only: every write fails as invalid. Another process may write to it.
    pub fn open_read_only(path: &Path) -> Result<Self, StoreError> {
        let store = Self { readers: Readers::new(path.to_owned()), writer: None };
        // Whether it can be read is better known now than at the first read.
        store.read(|_| Ok(()))?;
        Ok(store)
    }

    /// The version of the database's format, which later versions of this program know as well.
    pub fn format_version(&self) -> Result<u32, StoreError> {
        self.read(|conn| Ok(conn.pragma_query_value(None, "user_version", |row| row.get(0))?))
    }

    /// What is wrong with the file itself, in SQLite's words; nothing if it is sound. This reads all of the file, and with
    /// `indexes` compares each index with its table.
    pub fn damage(&self, indexes: bool) -> Result<Vec<String>, StoreError> {
        let pragma = if indexes { "PRAGMA integrity_check(10)" } else { "PRAGMA quick_check(10)" };
        self.read(|conn| {
            let mut check = conn.prepare(pragma)?;
            let said = check.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
            Ok(said.into_iter().filter(|line| line != "ok").collect())
        })
    }

    /// What is wrong with journals of a database that were damaged when it was opened, and are kept: an error of kind
    /// [`DamagedJournal`](ErrorKind::DamagedJournal) for each file.
    pub fn damaged_journals(path: &Path) -> Result<Vec<StoreError>, StoreError> {
        damaged::all(path)
    }

    /// All files that a database at this path can have: nobody but the store may write to them.
    pub fn files(path: &Path) -> Vec<PathBuf> {
        let beside = |end: &str| {
            let mut path = path.as_os_str().to_owned();
            path.push(end);
            path.into()
        };
        let mut files: Vec<_> =
            ["", "-wal", "-shm", ".journal", ".rejected"].into_iter().map(beside).collect();
        files.push(rejected::next_of(&rejected::path_of(path)));
        files.extend(damaged::paths_of(path));
        files
    }

    #[doc(hidden)]
    pub fn open_with(path: &Path, options: &Options) -> Result<Self, StoreError> {
        let shared = Arc::new(Shared::open(path, options)?);
        let handle = Handle { shared, threads: Mutex::default() };
        for (name, run) in [("store", Shared::run as fn(Arc<Shared>)), ("store sync", Shared::run_syncs)] {
            let shared = Arc::clone(&handle.shared);
            let thread = thread::Builder::new().name(name.to_owned()).spawn(move || run(shared))?;
            handle.threads().push(thread);
        }
        Ok(Self { readers: Readers::new(path.to_owned()), writer: Some(handle) })
    }

    /// Reads all that was done so far.
    fn read<T>(&self, read: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        match &self.writer {
            Some(writer) if writer.shared.settle().is_err() => writer.shared.read_unfolded(read),
            Some(_) => self.readers.read(read),
            None => {
                self.readers.settle()?;
                self.readers.read(read)
            }
        }
    }
}

impl Store for SqliteStore {
    fn write(&self, batch: Batch, done: Done) {
        match &self.writer {
            Some(writer) => writer.shared.write(batch, done),
            None => done(Err(StoreError::invalid("the store was opened for reading only"))),
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
        // The writer closes the last connection, because only one that may write can clear the log away.
        self.readers.close();
    }
}

impl Handle {
    fn close(&self) {
        self.shared.close();
        // A `done` may have held the store. The thread it runs in cannot wait for its own end, and goes on until all
        // is written.
        let me = thread::current().id();
        let mut threads = self.threads();
        if threads.iter().all(|thread| thread.thread().id() != me) {
            // A panic there has been reported already.
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
