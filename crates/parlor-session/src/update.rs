use parlor_json::{Json, JsonStr, Object};

use crate::{CompactionId, EventId, MessageId, PlanId, SessionId, TerminalId, ToolCallId, Upsert};

/// The only field name that this crate reads: the title of a session, which is truncated to a limit.
pub const TITLE: &str = "title";

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The person at a client.
    User,
    /// The agent, addressing the person.
    Agent,
    /// The agent's reasoning.
    Thought,
}

/// Identifies an entry of a transcript.
///
/// Messages are keyed by role and id: some agents give a thought and the message after it the same id.
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
    /// An event, written by parlor.
    Event(EventId),
    /// An update of an unknown kind, which has no id: identified by the seq of the change that created it.
    Note(u64),
}

/// A value that a session has once.
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
    /// The model that the agent works with, where it is not one of the options.
    Model,
}

/// The target of an [`Upsert`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// An entry, created if it does not exist.
    Entry(EntryId),
    /// A slot.
    Slot(Slot),
}

/// A change to a session that has no seq yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Update {
    /// Patches a target.
    Upsert {
        /// The target.
        target: Target,
        /// The patch.
        upsert: Upsert,
    },
    /// Appends one item to the content of an entry, which is created if it does not exist.
    Append {
        /// The entry.
        entry: EntryId,
        /// The item.
        item: Json,
        /// The chunk's other members: its metadata and unknown fields.
        extra: Option<Json>,
    },
    /// Appends bytes to the output of a terminal, which is created if it does not exist.
    Output {
        /// The terminal.
        terminal: TerminalId,
        /// The bytes that it wrote.
        bytes: Vec<u8>,
        /// The chunk's other members, which are sent to subscribers but not stored.
        extra: Option<Json>,
    },
    /// Removes an entry and leaves a tombstone, so that subscribers that catch up later are sent the removal.
    Remove {
        /// The entry.
        entry: EntryId,
        /// The update's other members, which are sent to subscribers but not stored.
        extra: Option<Json>,
    },
    /// Adds an entry for an update of an unknown kind.
    Note {
        /// All members of the update.
        fields: Object,
    },
    /// Replaces the session's state.
    State(State),
}

/// The activity that a state reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Activity {
    /// A turn runs.
    Running,
    /// Nothing runs.
    Idle,
    /// A turn waits for a person.
    RequiresAction,
    /// An activity that this version does not know.
    Other(JsonStr),
}

/// A session's state; each report replaces it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// The activity.
    pub activity: Activity,
    /// Why the last turn ended.
    pub stop_reason: Option<JsonStr>,
    /// Other members of the report: usage, background work, an error, unknown fields.
    pub fields: Object,
    /// The report's metadata.
    pub meta: Option<Object>,
}

impl State {
    /// A state that reports only its activity.
    pub fn new(activity: Activity) -> Self {
        Self { activity, stop_reason: None, fields: Object::default(), meta: None }
    }
}

/// An applied update with its seq.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The session's change counter after this change.
    pub seq: u64,
    /// The seq of the change that created the entry, so that entries keep their order in whatever order their changes
    /// arrive. 0 for slots and the state.
    pub created: u64,
    /// The update.
    pub update: Update,
    /// The metadata of the patched target as it was before this change, where the change patches metadata.
    pub meta_before: Option<Object>,
}

impl Change {
    /// Whether this change created its entry.
    pub const fn is_creation(&self) -> bool {
        self.created == self.seq
    }
}

impl Activity {
    /// Whether the session may be working: everything but `Idle`.
    pub const fn is_busy(&self) -> bool {
        !matches!(self, Self::Idle)
    }
}
