//! Sessions in a file.

mod apply;
mod cache;
mod content;
mod error;
mod list;
mod queue;
mod read;
mod schema;
mod search;
mod words;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use self::read::Readers;
use self::writer::{Shared, Writer};
use crate::{Batch, Cursor, Done, EntryRow, Filter, Hit, Search, SessionRow, SlotRow, Store, StoreError};

/// Keeps sessions in an SQLite database.
///
/// One connection writes. A small batch that need not be durable is written by whoever hands it in if nobody else
/// writes; all others wait for a thread, which puts all that wait into one transaction, so that many who write at once
/// share the cost of a commit. Reads have connections of their own and do not wait for it.
///
/// A batch that was reported as done outlives the process. A durable one outlives a power cut too, and so does all
/// that was done before it.
///
/// Dropping the store writes what was handed in, and waits for that.
pub struct SqliteStore {
    readers: Readers,
    /// `None` in a store that only reads.
    writer: Option<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What tests want to be different.
#[doc(hidden)]
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// How many pages of 4 KiB the database may have: a full disk is hard to come by.
    pub max_pages: Option<u32>,
}

impl SqliteStore {
    /// Opens a database, and makes it if there is none. Its file can be read by its owner only.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_with(path, &Options::default())
    }

    /// Opens a database that is there, to read only: every write fails as invalid. Another process may write to it.
    pub fn open_read_only(path: &Path) -> Result<Self, StoreError> {
        let readers = Readers::new(path.to_owned());
        // Whether it can be read is better known now than at the first read.
        readers.read(|_| Ok(()))?;
        Ok(Self { readers, writer: None })
    }

    /// The version of the database's format, which later versions of this program know as well.
    pub fn format_version(&self) -> Result<u32, StoreError> {
        self.readers.read(|conn| Ok(conn.pragma_query_value(None, "user_version", |row| row.get(0))?))
    }

    #[doc(hidden)]
    pub fn open_with(path: &Path, options: &Options) -> Result<Self, StoreError> {
        let conn = schema::open_writer(path)?;
        if let Some(pages) = options.max_pages {
            conn.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))?;
        }
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        let shared = Arc::new(Shared::new(Writer::new(conn, PathBuf::from(log))));
        let thread = thread::Builder::new().name("store".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.run()
        })?;
        let readers = Readers::new(path.to_owned());
        Ok(Self { readers, writer: Some(Handle { shared, thread: Some(thread) }) })
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
        self.readers.read(|conn| list::session(conn, id))
    }

    fn sessions(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Vec<SessionRow>, StoreError> {
        self.readers.read(|conn| list::sessions(conn, filter, after, limit))
    }

    fn slots(&self, session: &str, since: u64) -> Result<Vec<SlotRow>, StoreError> {
        self.readers.read(|conn| read::slots(conn, session, since))
    }

    fn entries(
        &self,
        session: &str,
        since: u64,
        after: u64,
        bytes: usize,
    ) -> Result<Vec<EntryRow>, StoreError> {
        self.readers.read(|conn| read::entries(conn, session, since, after, bytes))
    }

    fn value(&self, key: &str) -> Result<Option<String>, StoreError> {
        self.readers.read(|conn| read::value(conn, key))
    }

    fn search(&self, search: &Search, offset: usize, limit: usize) -> Result<Vec<Hit>, StoreError> {
        self.readers.read(|conn| search::search(conn, search, offset, limit))
    }

    fn unindexed(&self, limit: usize) -> Result<Vec<String>, StoreError> {
        self.readers.read(|conn| search::unindexed(conn, limit))
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        // The writer closes the last connection, because only one that may write can clear the log away.
        self.readers.close();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.queue.close();
        let Some(thread) = self.thread.take() else { return };
        // A `done` may have held the store. The thread it runs in cannot wait for its own end, and goes on until all
        // is written.
        if thread.thread().id() != thread::current().id() {
            // A panic there has been reported already.
            drop(thread.join());
        }
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}
