//! What a session hands to the store: plain data, written together in one [`Batch`].

/// Writes that are taken together or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// What to write, in this order.
    pub writes: Vec<Write>,
    /// Whether it must be safe from a power cut before it is reported as done, and not only from the end of the
    /// process. If making it safe fails, that is reported, although what it writes may be there.
    pub durable: bool,
}

/// One thing to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// A session is made or replaced. Its slots and entries stay.
    Session(SessionRow),
    /// A slot is made or replaced; `None` removes it.
    Slot {
        /// Of which session.
        session: String,
        /// Its name.
        name: String,
        /// The change that did it.
        seq: u64,
        /// What it holds.
        body: Option<String>,
    },
    /// An entry is made, or its head replaced. An entry that is made without content has an empty one.
    Entry {
        /// Of which session.
        session: String,
        /// The change that made it; it names the entry in its session.
        created: u64,
        /// The change that did this.
        seq: u64,
        /// What is known of it besides its content.
        head: String,
        /// All of its content; `None` leaves it as it is.
        content: Option<String>,
    },
    /// The content of an entry that is there grows.
    Append {
        /// Of which session.
        session: String,
        /// The change that made the entry.
        created: u64,
        /// The last change of those that did this.
        seq: u64,
        /// What comes at the end of the content.
        content: String,
    },
    /// Entries of another session are copied as they are now; their content is shared until either side changes it.
    /// They must be there, and must not be here yet.
    Copy {
        /// From which session.
        from: String,
        /// To which.
        to: String,
        /// The entries.
        entries: Vec<Copied>,
    },
    /// The words by which an entry is found, in place of those before. They go with the content: an entry whose content
    /// is replaced is not found until its words are handed in again. What is appended leaves them as they are, unless
    /// copies had the same content: then they stay with these.
    ///
    /// An entry that changed after `seq` is left alone: the words are not its any more.
    Words {
        /// Of which session.
        session: String,
        /// The change that made the entry.
        created: u64,
        /// The last change to the entry when these were its words.
        seq: u64,
        /// The words; `None` if it is not to be found.
        words: Option<Words>,
        /// Whether words that are there stay.
        only_missing: bool,
    },
    /// All words of a session of before were handed in.
    Indexed {
        /// Which session.
        session: String,
    },
    /// A session goes, with its slots and entries. Copies of its entries stay. One that is not there is gone already.
    Delete {
        /// Which session.
        session: String,
    },
    /// A value that belongs to no session; `None` removes it.
    Value {
        /// Its name.
        key: String,
        /// What it holds.
        value: Option<String>,
    },
}

/// What an entry is found by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Words {
    /// What kind of entry it is, in the words of who writes; [`TITLE`] is that of titles.
    pub kind: String,
    /// When it was said, in milliseconds since 1970.
    pub at: i64,
    /// The text.
    pub text: String,
}

/// The kind of what is found by the title of a session.
pub const TITLE: &str = "title";

/// An entry on its way into another session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// The change that made it there.
    pub from: u64,
    /// The change that makes it here, which is also its last.
    pub to: u64,
    /// Its head, where it is not the same.
    pub head: Option<String>,
}

/// What is known of a session without looking into it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionRow {
    /// Its id, as JSON writes it.
    pub id: String,
    /// The name of its agent.
    pub agent: String,
    /// The session's id at the agent, as JSON writes it.
    pub agent_session: Option<String>,
    /// Where it works.
    pub cwd: String,
    /// Its title, as JSON writes it. The session is found by it.
    pub title: Option<String>,
    /// The session that it was forked from.
    pub parent: Option<String>,
    /// When it was made, in milliseconds since 1970.
    pub created_at: i64,
    /// When something last happened in it, in milliseconds since 1970.
    pub active_at: i64,
    /// Whether it was put away.
    pub archived: bool,
    /// Whether a turn ran when it was written: after a crash it has to be ended.
    pub busy: bool,
    /// The text of its [`SessionData`](crate::SessionData).
    pub data: String,
}
