//! Persists sessions.
//!
//! A [`Store`] keeps plain rows: sessions, their slots and their entries. It stores state, not events: the head of an
//! entry is replaced when it changes, and its content is a text that grows. The store does not interpret these texts;
//! it only concatenates appended content.
//!
//! Callers write [`Batch`]es. Each batch is applied as a whole or not at all, in the order of the calls; a backend
//! may commit several batches together. Reads see every batch that was reported as done. A batch that need not be
//! durable may be reported before an earlier durable one.
//!
//! Ids and texts are JSON or consist of JSON, so they have no raw U+0000, and unpaired surrogates are escaped in
//! them: every backend can store them as text.
//!
//! The `seq` of changes starts at 1, so that 0 can mean "before all changes", and ends at `i64::MAX`. A write with
//! another value is [`Invalid`](ErrorKind::Invalid), and so is a write to a session that does not exist.
//!
//! Entries can be searched by their index documents, which the caller writes with [`Write::Index`]. The store itself
//! indexes only the titles of sessions.
//!
//! `SqliteStore` persists sessions in a file (with the default feature `sqlite`), [`MemoryStore`] keeps them in memory,
//! and [`FaultyStore`] simulates failures in tests.

mod check;
mod faulty;
mod memory;
mod query;
#[cfg(feature = "sqlite")]
mod sqlite;
mod words;

use std::cmp::Reverse;

pub use parlor_engine::rows::{Batch, CopiedEntry, IndexDocument, SessionRow, TITLE, Write};

#[doc(hidden)]
pub use faulty::Gate;
pub use faulty::{FaultyStore, Hold};
pub use memory::MemoryStore;
pub use query::Query;
#[cfg(feature = "sqlite")]
#[doc(hidden)]
pub use sqlite::SqliteOptions;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
pub use words::{Word, words};

/// Persists sessions.
///
/// Every call may block for as long as a disk does. Async code calls a store from threads that may block, so that a
/// hanging disk does not stop the workers of its runtime; this crate needs no runtime.
pub trait Store: Send + Sync + 'static {
    /// Writes a batch; `done` is called from any thread when the batch is committed or has failed.
    ///
    /// The call may do the work itself. Batches wait in a bounded queue while the backend is busy; when the queue is
    /// full the call blocks, so that a slow disk slows down the callers instead of filling the memory.
    fn write(&self, batch: Batch, done: Done);

    /// Returns a session.
    fn session(&self, id: &str) -> Result<Option<SessionRow>, StoreError>;

    /// Returns a page of sessions, the latest activity first; sessions of equal activity are ordered by id.
    fn sessions(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Vec<SessionRow>, StoreError>;

    /// Returns the slots of a session that changed after `since`, by name.
    fn slots(&self, session: &str, since: u64) -> Result<Vec<SlotRow>, StoreError>;

    /// Returns entries of a session that changed after the seq `since`, in the order of creation: those created after
    /// `after`, and as many as `bytes` allow (at least one). An empty list means that there are no more.
    fn entries(
        &self,
        session: &str,
        since: u64,
        after: u64,
        bytes: usize,
    ) -> Result<Vec<EntryRow>, StoreError>;

    /// Returns a value that belongs to no session.
    fn value(&self, key: &str) -> Result<Option<String>, StoreError>;

    /// Returns the hits of a search after the first `offset`, the best first: those with rare words that occur often
    /// in a short text.
    ///
    /// A content that a session shares with copies is found once, in the session that had it first, among those that
    /// still have it.
    fn search(&self, search: &Search, offset: usize, limit: usize) -> Result<Vec<Hit>, StoreError>;

    /// Returns sessions that were written before there was a search index; [`Write::Indexed`] removes them from this
    /// list.
    fn unindexed(&self, limit: usize) -> Result<Vec<String>, StoreError>;

    /// Blocks until all accepted batches are written, and releases the data for other processes. Later batches may be
    /// rejected as [closed](ErrorKind::Closed).
    fn close(&self) {}
}

/// Called once with the result of a batch. It runs on the thread of the backend, which waits for it, so it must be
/// quick; it may call `write`, which does not block there.
pub type Done = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// A search; fields that are `None` do not restrict it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Search {
    /// The query.
    pub query: Query,
    /// Only entries of this kind.
    pub kind: Option<String>,
    /// Only entries of this session.
    pub session: Option<String>,
    /// Only entries of sessions of this agent.
    pub agent: Option<String>,
    /// Only entries of sessions with this working directory.
    pub cwd: Option<String>,
    /// Only entries of this time or later, in milliseconds since 1970.
    pub since: Option<i64>,
}

/// An entry or a title that a search found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// The session.
    pub session: String,
    /// The change that created the entry; `None` for the title of the session.
    pub created: Option<u64>,
    /// The kind of the entry.
    pub kind: String,
    /// The time of the entry; for a title, the last activity of the session.
    pub at: i64,
}

/// A named value of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotRow {
    /// The name.
    pub name: String,
    /// The change that wrote it.
    pub seq: u64,
    /// The value.
    pub body: String,
}

/// An entry with its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryRow {
    /// The change that created the entry.
    pub created: u64,
    /// The last change of the entry; a write with a lower seq does not decrease it.
    pub seq: u64,
    /// The entry without its content.
    pub head: String,
    /// The content.
    pub content: String,
    /// The number of bytes at the start of the content that were copied from another session; 0 for an entry that was
    /// not copied.
    ///
    /// The seq values in that part are those of another session (of several, for a copy of a copy). Text that was
    /// appended after the copy follows it directly and has seq values of this session. A new head does not change
    /// this; new content belongs to this session alone and sets it to 0.
    pub inherited: usize,
}

/// A filter for lists of sessions; fields that are `None` do not restrict it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only sessions of this agent.
    pub agent: Option<String>,
    /// Only sessions with this working directory.
    pub cwd: Option<String>,
    /// Only the session with this id at the agent.
    pub agent_session: Option<String>,
    /// Only archived sessions, or only others.
    pub archived: Option<bool>,
    /// Only sessions with a running turn, or only others.
    pub busy: Option<bool>,
    /// Also sessions that other sessions own.
    pub owned: bool,
}

/// The position of the last session of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// The last activity of the session.
    pub active_at: i64,
    /// The id of the session.
    pub id: String,
}

/// The error of a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct StoreError {
    /// The kind of the error.
    pub kind: ErrorKind,
    /// The message of the backend.
    pub message: String,
}

/// The kinds of store errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no disk space left.
    #[error("the disk is full")]
    Full,
    /// Reading or writing failed.
    #[error("a file of the store cannot be read or written")]
    Io,
    /// Another process holds a lock for longer than the timeout.
    #[error("another program has locked the database, and did not release it in time")]
    Busy,
    /// The data cannot be read: it is damaged, or was not written by this program.
    #[error("the stored data cannot be read")]
    Format,
    /// The data was written by a later version of this program.
    #[error("the stored data has a later format")]
    Newer,
    /// A journal of the last changes is damaged. The sessions can be read; changes may be lost.
    #[error("a journal of changes is damaged")]
    DamagedJournal,
    /// The data has the format of an earlier version; opening it for writing migrates it.
    #[error("the stored data has an earlier format")]
    Outdated,
    /// The call is invalid, for example a write to a session that does not exist.
    #[error("the write or query is invalid")]
    Invalid,
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
}

impl Search {
    /// Returns whether the filters include a document of a session, whatever its text.
    pub(crate) fn includes(&self, row: &SessionRow, kind: &str, at: i64) -> bool {
        self.kind.as_ref().is_none_or(|wanted| *wanted == kind)
            && self.session.as_ref().is_none_or(|session| *session == row.id)
            && self.agent.as_ref().is_none_or(|agent| *agent == row.agent)
            && self.cwd.as_ref().is_none_or(|cwd| *cwd == row.cwd)
            && self.since.is_none_or(|since| at >= since)
    }
}

impl Filter {
    pub(crate) fn includes(&self, row: &SessionRow) -> bool {
        self.agent.as_ref().is_none_or(|agent| *agent == row.agent)
            && self.cwd.as_ref().is_none_or(|cwd| *cwd == row.cwd)
            && self.agent_session.as_ref().is_none_or(|id| Some(id) == row.agent_session.as_ref())
            && self.archived.is_none_or(|archived| archived == row.archived)
            && self.busy.is_none_or(|busy| busy == row.busy)
            && (self.owned || row.owner.is_none())
    }
}

impl Cursor {
    /// Returns whether a session is on a later page.
    pub(crate) fn precedes(&self, row: &SessionRow) -> bool {
        list_order(row) > (Reverse(self.active_at), &self.id)
    }
}

/// Returns the key by which sessions are sorted in lists.
pub(crate) fn list_order(row: &SessionRow) -> (Reverse<i64>, &str) {
    (Reverse(row.active_at), &row.id)
}

impl StoreError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
