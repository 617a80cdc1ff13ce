//! Where sessions are kept.
//!
//! A [`Store`] keeps plain data: rows of sessions, their slots and their entries. It keeps state, not events: an
//! entry's head is replaced when it changes, and its content is one text that grows. What the texts mean is the
//! business of who writes them; a store only concatenates what was appended.
//!
//! Writes are handed over in [`Batch`]es, each of which is taken as a whole or not at all, in the order of the calls.
//! A backend takes batches that wait for it together. Reads see every batch that was reported as done. A batch that need
//! not be durable may be reported before a durable one that was handed in earlier.
//!
//! Ids and texts are JSON or made of JSON, so that they carry no raw U+0000 and half surrogate pairs stand in them as
//! escapes: every backend can keep them as text.
//!
//! Change numbers begin at 1, so that 0 can stand for "before all changes", and end at `i64::MAX`; a write with
//! another number is [`Invalid`](ErrorKind::Invalid). So is a write into a session that is not there.
//!
//! What was said can be searched for by its words. What the words of an entry are is said by who writes it
//! ([`Write::Words`]): the store does not know what its texts mean. The one thing that it reads is the title of a session.
//!
//! [`SqliteStore`] keeps sessions in a file, [`MemoryStore`] for as long as it lives, and [`FaultyStore`] fails on
//! demand, for tests of those who use a store.

mod check;
mod faulty;
mod memory;
mod query;
mod sqlite;
mod words;

use std::fmt;

pub use parlor_engine::rows::{Batch, Copied, SessionRow, TITLE, Words, Write};

pub use faulty::{FaultyStore, Hold};
pub use memory::MemoryStore;
pub use query::Query;
#[doc(hidden)]
pub use sqlite::Options;
pub use sqlite::SqliteStore;
pub use words::{Word, words};

/// Keeps sessions.
///
/// Every call may block for as long as a disk does. Async code calls a store from threads that may block, so that a disk
/// that hangs does not stop the workers of its runtime; this crate needs no runtime for that.
pub trait Store: Send + Sync + 'static {
    /// Takes a batch. `done` is called, from any thread, when it is committed or has failed.
    ///
    /// The call may do the work itself, and take as long as a disk does. Batches wait in memory while the backend is busy
    /// with others. When too much waits, the call waits too, so that a slow disk slows down those who write instead of
    /// filling the memory.
    fn write(&self, batch: Batch, done: Done);

    /// One session.
    fn session(&self, id: &str) -> Result<Option<SessionRow>, StoreError>;

    /// A page of sessions, the latest activity first. Sessions of equal activity are ordered by id.
    fn sessions(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Vec<SessionRow>, StoreError>;

    /// The slots of a session that changed after `since`, by name.
    fn slots(&self, session: &str, since: u64) -> Result<Vec<SlotRow>, StoreError>;

    /// Entries of a session that changed after change number `since`, in the order in which they were created, those
    /// created after `after` and as many as `bytes` allow (at least one). An empty list means that there are no more.
    fn entries(
        &self,
        session: &str,
        since: u64,
        after: u64,
        bytes: usize,
    ) -> Result<Vec<EntryRow>, StoreError>;

    /// A value that belongs to no session.
    fn value(&self, key: &str) -> Result<Option<String>, StoreError>;

    /// What a search finds, the best first: those of which the words are rare and stand often in a short text. The first
    /// `offset` are left out.
    ///
    /// A content that a session shares with copies is found once, in the session that had it first, among those that
    /// still have it.
    fn search(&self, search: &Search, offset: usize, limit: usize) -> Result<Vec<Hit>, StoreError>;

    /// Sessions whose words were never handed in, because they are from before there was a search. They stay here until
    /// [`Write::Indexed`] says that they were.
    fn unindexed(&self, limit: usize) -> Result<Vec<String>, StoreError>;

    /// Waits until all that was handed in is written, and lets others have the data. What is written afterwards may be
    /// refused as [closed](ErrorKind::Closed). This blocks.
    fn close(&self) {}
}

/// Called once with what came of a batch. It runs where the backend works, so it must be quick; it may write again,
/// which never waits there, but everything else waits for it.
pub type Done = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// What is searched for, and where. What is `None` does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Search {
    /// The words.
    pub query: Query,
    /// Entries of this kind.
    pub kind: Option<String>,
    /// In this session.
    pub session: Option<String>,
    /// In sessions of this agent.
    pub agent: Option<String>,
    /// In sessions that work here.
    pub cwd: Option<String>,
    /// Said at this time or later, in milliseconds since 1970.
    pub since: Option<i64>,
}

/// Something that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// In which session.
    pub session: String,
    /// The change that made the entry; `None` for the title of the session.
    pub created: Option<u64>,
    /// What kind of entry it is.
    pub kind: String,
    /// When it was said; for a title, when something last happened in the session.
    pub at: i64,
}

/// What a session has once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotRow {
    /// Its name.
    pub name: String,
    /// The change that wrote it.
    pub seq: u64,
    /// What it holds.
    pub body: String,
}

/// An entry with its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryRow {
    /// The change that made it.
    pub created: u64,
    /// The last change to it; a write with an earlier number does not turn it back.
    pub seq: u64,
    /// What is known of it besides its content.
    pub head: String,
    /// Its content.
    pub content: String,
    /// How many bytes at the start of the content came with a copy; 0 for an entry that was not copied.
    ///
    /// Numbers in that part are those of another session (of several, for a copy of a copy). What was appended after
    /// the copy begins right behind it and counts in this session's numbers. A new head leaves this as it is; new
    /// content belongs to this session alone, which makes it 0.
    pub inherited: usize,
}

/// Which sessions to list. What is `None` does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Those of this agent.
    pub agent: Option<String>,
    /// Those that work here.
    pub cwd: Option<String>,
    /// The one with this id at the agent.
    pub agent_session: Option<String>,
    /// Those that were put away, or those that were not.
    pub archived: Option<bool>,
    /// Those in which a turn ran.
    pub busy: Option<bool>,
}

/// Where a page ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// The activity of the last session of the page.
    pub active_at: i64,
    /// Its id.
    pub id: String,
}

/// A store could not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreError {
    /// What kind of trouble it is.
    pub kind: ErrorKind,
    /// What the backend says.
    pub message: String,
}

/// What kind of trouble a store has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no room left.
    Full,
    /// Reading or writing failed.
    Io,
    /// Another process has a lock that is needed, and has not given it up.
    Busy,
    /// What is there cannot be read: it is damaged, or not from this program.
    Format,
    /// What is there was written by a later version of this program.
    Newer,
    /// A journal of the last changes is damaged. The sessions can be read; changes may be lost.
    DamagedJournal,
    /// What is there has the format of an earlier version; opening it for writing upgrades it.
    Outdated,
    /// What was asked makes no sense, like an entry of a session that is not there.
    Invalid,
    /// The store was closed.
    Closed,
}

impl StoreError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            ErrorKind::Full => "the disk is full",
            ErrorKind::Io => "the disk cannot be read or written",
            ErrorKind::Busy => "another process has locked the database",
            ErrorKind::Format => "the stored data cannot be read",
            ErrorKind::Newer => "the stored data is of a later version",
            ErrorKind::DamagedJournal => "a journal of changes is damaged",
            ErrorKind::Outdated => "the stored data is of an earlier version",
            ErrorKind::Invalid => "the store was asked for something impossible",
            ErrorKind::Closed => "the store is closed",
        };
        write!(f, "{what}: {}", self.message)
    }
}

impl std::error::Error for StoreError {}
