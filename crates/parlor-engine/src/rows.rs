//! The rows that a session writes to the store, in a [`Batch`].

/// Writes that are applied as a whole or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// The writes in order.
    pub writes: Vec<Write>,
    /// Whether the batch must survive a power cut before it is reported as done, and not only the end of the process.
    /// If the sync fails, an error is reported, although the writes may have been applied.
    pub durable: bool,
}

/// A write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Creates or replaces a session; its slots and entries are kept.
    Session(SessionRow),
    /// Creates or replaces a slot; `None` removes it.
    Slot {
        /// The session.
        session: String,
        /// The name of the slot.
        name: String,
        /// The change.
        seq: u64,
        /// The value of the slot.
        body: Option<String>,
    },
    /// Creates an entry or replaces its head; an entry that is created without content has empty content.
    Entry {
        /// The session.
        session: String,
        /// The change that created the entry, which identifies it in its session.
        created: u64,
        /// The present change.
        seq: u64,
        /// The entry without its content.
        head: String,
        /// The new content; `None` keeps the present one.
        content: Option<String>,
    },
    /// Appends to the content of an existing entry.
    Append {
        /// The session.
        session: String,
        /// The change that created the entry.
        created: u64,
        /// The last of the changes that appended.
        seq: u64,
        /// The text to append.
        content: String,
    },
    /// Copies entries of another session as they are now; their content is shared until either side changes it. The
    /// entries must exist there and must not exist here.
    Copy {
        /// The session to copy from.
        from: String,
        /// The session to copy to.
        to: String,
        /// The entries.
        entries: Vec<CopiedEntry>,
    },
    /// Replaces the index document of an entry. It belongs to the content: an entry whose content is replaced is not
    /// found until it is indexed again. An append keeps the document, unless copies share the content: then the
    /// document stays with the copies.
    ///
    /// An entry that changed after `seq` is not indexed, because the document is stale.
    Index {
        /// The session.
        session: String,
        /// The change that created the entry.
        created: u64,
        /// The last change of the entry that the document includes.
        seq: u64,
        /// The document; `None` removes the entry from the index.
        document: Option<IndexDocument>,
        /// Whether an existing document is kept.
        only_missing: bool,
    },
    /// Records that all entries of a session of an earlier version are indexed.
    Indexed {
        /// The session.
        session: String,
    },
    /// Deletes a session with its slots and entries, and so the sessions that it owns; copies of their entries are kept. A
    /// session that does not exist is ignored.
    Delete {
        /// The session.
        session: String,
    },
    /// Sets a value that belongs to no session; `None` removes it.
    Value {
        /// The name of the value.
        key: String,
        /// The value.
        value: Option<String>,
    },
}

/// The text by which an entry is searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexDocument {
    /// The kind of the entry, chosen by the caller; [`TITLE`] is reserved for titles.
    pub kind: String,
    /// The time of the entry, in milliseconds since 1970.
    pub at: i64,
    /// The text to index.
    pub text: String,
}

/// The kind of search hits that are titles of sessions.
pub const TITLE: &str = "title";

/// An entry to copy into another session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedEntry {
    /// The change that created the entry in the source session.
    pub from: u64,
    /// The change that creates the copy, which is also its last change.
    pub to: u64,
    /// The head of the copy, if it differs.
    pub head: Option<String>,
}

/// A session without its entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionRow {
    /// The id of the session, as a JSON string literal.
    pub id: String,
    /// The name of the agent.
    pub agent: String,
    /// The id of the agent session, as a JSON string literal.
    pub agent_session: Option<String>,
    /// The working directory.
    pub cwd: String,
    /// The title, as a JSON string literal; the session is found by it.
    pub title: Option<String>,
    /// The session that it was forked from.
    pub parent: Option<String>,
    /// The session that owns this one: this is the session of a subagent, and is deleted with its owner.
    pub owner: Option<String>,
    /// The time of creation, in milliseconds since 1970.
    pub created_at: i64,
    /// The time of the last activity, in milliseconds since 1970.
    pub active_at: i64,
    /// Whether the session is archived.
    pub archived: bool,
    /// Whether a turn was running when the row was written, also after a crash.
    pub busy: bool,
    /// The text of its [`SessionData`](crate::SessionData).
    pub data: String,
}
