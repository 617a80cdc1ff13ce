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
mod pending;
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

use self::pending::Pending;
use self::read::Readers;
use self::shared::Shared;
use crate::{
    Batch, Cursor, Done, EntryRow, ErrorKind, Filter, Gate, Hit, Search, SessionRow, SlotRow, Store,
    StoreError,
};

/// The time that a search waits for a fold. After that, hits that are not in the index come first.
const SEARCH_WAIT: Duration = Duration::from_millis(500);

/// Keeps sessions in an SQLite database with a journal beside it.
///
/// A batch is done when it is appended to the journal, by the caller's thread or by another one that is already
/// writing. A thread folds the journal (applies its batches to the database) at most a tenth of a second later. Batches
/// that are large, copy, delete, or write to sessions that were not written to recently go to the database directly.
/// Reads use connections of their own and see all batches that are done: those that are not folded yet are in memory.
/// Reads wait for no write, except that a search waits for a fold, half a second at most.
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
    /// Where appends to the journal can be blocked, as by a disk that hangs.
    pub journal_gate: Arc<Gate>,
    /// Where commits and checkpoints of the database can be blocked.
    pub database_gate: Arc<Gate>,
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
        store.read(|_, _| Ok(()))?;
        Ok(store)
    }

    /// Returns the version of the database's format, which later versions of this program can read too.
    pub fn format_version(&self) -> Result<u32, StoreError> {
        self.read(|conn, _| Ok(conn.pragma_query_value(None, "user_version", |row| row.get(0))?))
    }

    /// Returns the damage that SQLite finds in the file. This reads the whole file, and with `indexes` also compares
    /// each index with its table.
    pub fn damage(&self, indexes: bool) -> Result<Vec<String>, StoreError> {
        let pragma = if indexes { "PRAGMA integrity_check(10)" } else { "PRAGMA quick_check(10)" };
        self.read(|conn, _| {
            let mut check = conn.prepare(pragma)?;
            let said = check.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
            Ok(said.into_iter().filter(|line| line != "ok").collect())
        })
    }

    /// Writes a copy of the database, with all batches that are done, to a new file that only its owner can read. Other
    /// processes may write to the database meanwhile. Fails if the file exists.
    pub fn back_up(&self, target: &Path) -> Result<(), StoreError> {
        match &self.writer {
            Some(writer) => writer.shared.fold_now()?,
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

    /// Folds the journal now, for tests.
    #[doc(hidden)]
    pub fn fold(&self) -> Result<(), StoreError> {
        self.writer.as_ref().map_or(Ok(()), |writer| writer.shared.fold_now())
    }

    /// Reads all batches that are done: the database, and those that are not in it.
    fn read<T>(
        &self,
        read: impl FnOnce(&Connection, &Pending) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let pending = match &self.writer {
            Some(writer) => writer.shared.pending(),
            None => {
                self.readers.wait_for_fold()?;
                Pending::default()
            }
        };
        self.read_with(pending, read)
    }

    /// Reads the database together with batches that were pending before.
    fn read_with<T>(
        &self,
        mut pending: Pending,
        read: impl FnOnce(&Connection, &Pending) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.readers.read(|conn| {
            if !pending.is_empty() {
                // They may have been folded since.
                pending.drop_folded(read::folded(conn)?);
            }
            read(conn, &pending)
        })
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
        self.read(|conn, pending| match pending.session(id) {
            Some(row) => Ok(Some(row.clone())),
            None => list::session(conn, id),
        })
    }

    fn sessions(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Vec<SessionRow>, StoreError> {
        self.read(|conn, pending| list::sessions(conn, pending, filter, after, limit))
    }

    fn slots(&self, session: &str, since: u64) -> Result<Vec<SlotRow>, StoreError> {
        self.read(|conn, pending| read::slots(conn, pending, session, since))
    }

    fn entries(
        &self,
        session: &str,
        since: u64,
        after: u64,
        bytes: usize,
    ) -> Result<Vec<EntryRow>, StoreError> {
        self.read(|conn, pending| read::entries(conn, pending, session, since, after, bytes))
    }

    fn value(&self, key: &str) -> Result<Option<String>, StoreError> {
        self.read(|conn, pending| read::value(conn, pending, key))
    }

    fn search(&self, search: &Search, offset: usize, limit: usize) -> Result<Vec<Hit>, StoreError> {
        let search =
            |conn: &Connection, pending: &Pending| search::search(conn, pending, search, offset, limit);
        match &self.writer {
            // The index ranks all hits that a client can have waited for. Later batches would come before them in any order,
            // and move what is on the next page.
            Some(writer) if writer.shared.wait_for_fold(SEARCH_WAIT) => {
                self.read_with(Pending::default(), search)
            }
            Some(_) | None => self.read(search),
        }
    }

    fn unindexed(&self, limit: usize) -> Result<Vec<String>, StoreError> {
        self.read(|conn, _| search::unindexed(conn, limit))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Write;

    #[test]
    fn a_batch_that_is_folded_during_a_read_is_read_once() {
        let dir = tempfile::tempdir().unwrap();
        let options = SqliteOptions::default();
        let store = SqliteStore::open_with(&dir.path().join("db"), &options).unwrap();
        let write = |writes| store.write(Batch { writes, durable: false }, Box::new(|done| done.unwrap()));
        let (session, content) = ("s".to_owned(), Some("a".to_owned()));
        let row = SessionRow { id: session.clone(), ..SessionRow::default() };
        let head = String::new();
        write(vec![
            Write::Session(row),
            Write::Entry { session: session.clone(), created: 1, seq: 1, head, content },
        ]);
        store.fold().unwrap();
        let hold = options.database_gate.hold(1);
        write(vec![Write::Append { session, created: 1, seq: 2, content: "b".to_owned() }]);
        let pending = store.writer.as_ref().unwrap().shared.pending();
        assert!(!pending.is_empty());
        drop(hold);
        store.fold().unwrap();
        let entries = store.read_with(pending, |conn, pending| read::entries(conn, pending, "s", 0, 0, 0));
        assert_eq!(entries.unwrap()[0].content, "ab");
    }
}
