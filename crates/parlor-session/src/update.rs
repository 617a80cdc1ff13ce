use parlor_json::{Json, JsonStr, Object};

use crate::{CompactionId, EventId, MessageId, PlanId, SessionId, TerminalId, ToolCallId, Upsert};

/// The only field name that this crate reads: the title of a session, which it truncates.
pub const TITLE: &str = "title";

/// Who speaks in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The person at a client.
    User,
    /// The agent, to the person.
    Agent,
    /// The agent, to itself.
    Thought,
}

/// Names one entry of a transcript.
///
/// Messages are keyed by role and id: real agents give a thought and the message after it the same id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EntryId {
    /// A message of a person or the agent.
    Message(Role, MessageId),
    /// A tool call.
    ToolCall(ToolCallId),
    /// A plan.
    Plan(PlanId),
    /// A terminal that the agent shows.
    Terminal(TerminalId),
    /// A compaction of the context.
    Compaction(CompactionId),
    /// A child session.
    Subagent(SessionId),
    /// A message to or from another session.
    SessionMessage(MessageId),
    /// An event: parlor wrote it, not the agent.
    Event(EventId),
    /// Something without an id of its own (a notice, an update nobody here knows), named by the number of
    /// the change that brought it.
    Note(u64),
}

/// What a session has once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Slot {
    /// Title, time of the last activity, metadata.
    Info,
    /// Tokens and cost of the session.
    Usage,
    /// The commands that a person can call.
    Commands,
    /// The options that a client can set.
    Options,
    /// The mode that the agent works in.
    Mode,
    /// The model that the agent works with, where it is not an option.
    Model,
}

/// What an [`Upsert`] is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// An entry, made if it is not there.
    Entry(EntryId),
    /// A slot.
    Slot(Slot),
}

/// One thing that happened to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Update {
    /// A target's fields are patched.
    Upsert {
        /// What is patched.
        target: Target,
        /// The patch.
        upsert: Upsert,
    },
    /// One item is appended to the content of an entry, which is made if it is not there.
    Append {
        /// The entry.
        entry: EntryId,
        /// The item.
        item: Json,
        /// What else this chunk said, for itself alone: an object with its metadata and fields nobody knows.
        extra: Option<Json>,
    },
    /// Bytes are appended to the output of a terminal, which is made if it is not there.
    Output {
        /// The terminal.
        terminal: TerminalId,
        /// What it wrote.
        bytes: Vec<u8>,
        /// What else this chunk said. It is passed on and not kept: bytes have no place for it.
        extra: Option<Json>,
    },
    /// An entry is gone. Its place is kept, so that who comes back later learns of it.
    Remove {
        /// The entry.
        entry: EntryId,
        /// What else was said with it. It is passed on and not kept.
        extra: Option<Json>,
    },
    /// Something that is kept in its place and otherwise not understood.
    Note {
        /// All of it.
        fields: Object,
    },
    /// The session works, waits or rests.
    State(State),
}

/// Whether a session works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Activity {
    /// A turn runs.
    Running,
    /// Nothing runs.
    Idle,
    /// A turn waits for a person.
    RequiresAction,
    /// A state nobody here knows.
    Other(JsonStr),
}

/// A session's state, replaced as a whole by each report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Whether the session works.
    pub activity: Activity,
    /// Why the last turn ended.
    pub stop_reason: Option<JsonStr>,
    /// What else the report said: usage, background work, an error, fields nobody knows.
    pub fields: Object,
    /// The report's metadata.
    pub meta: Option<Object>,
}

/// An update with its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The session's change counter after this change.
    pub seq: u64,
    /// The number of the change that first spoke of the entry, so that entries keep their order in whatever
    /// order news of them comes. For slots and the state it is 0.
    pub created: u64,
    /// What happened.
    pub update: Update,
    /// The metadata of the patched target as it was before this change, where the change patches metadata.
    pub meta_before: Option<Object>,
}

impl Change {
    /// Whether this change made its entry.
    pub const fn is_creation(&self) -> bool {
        self.created == self.seq
    }
}

impl Activity {
    /// Whether the session cannot be taken to rest. A state that nobody knows counts as busy.
    pub const fn is_busy(&self) -> bool {
        !matches!(self, Self::Idle)
    }
}
