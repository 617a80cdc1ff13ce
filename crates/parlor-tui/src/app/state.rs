//! The small parts of the state.

use jiff::Timestamp;
use parlor_client::{Json, MessageId, SessionId};

use crate::clean::Clean;
use crate::event::{Call, Effect, Event};
use crate::field::TextField;
use crate::input::Completed;
use crate::theme::Role;

/// The pane that gets the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Focus {
    /// The input box.
    Input,
    /// The conversation.
    Messages,
    /// The list of sessions.
    Sessions,
    /// The request in place of the input.
    Request,
}

/// Whether requests reach a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// The first connection is being made.
    Connecting,
    /// They do.
    Live,
    /// The connection is lost.
    Retrying {
        /// Since when.
        since: Timestamp,
        /// When the next attempt is made.
        next: Timestamp,
        /// The address of the server.
        server: Clean,
        /// Why.
        reason: Clean,
        /// Whether nothing listens there.
        is_down: bool,
    },
    /// An agent without a server: there are no other sessions.
    Direct,
}

/// A short text in place of the hints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) text: Clean,
    pub(super) role: Role,
    pub(super) until: Timestamp,
}

/// The session that was open when the client ended. It continues on the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detached {
    /// The session.
    pub session: SessionId,
    /// Whether a turn was running.
    pub is_busy: bool,
}

/// An archiving or a deletion that is not sent yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PendingRemoval {
    pub(super) id: SessionId,
    pub(super) title: Clean,
    pub(super) is_deletion: bool,
    pub(super) forks: usize,
    pub(super) at: Timestamp,
    /// Whether the session was open.
    pub(super) was_open: bool,
}

/// A request that opens a session and has no response yet.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) ticket: u64,
    /// The session, if it is not a new one.
    pub(super) session: Option<SessionId>,
    /// The note when the session is open.
    pub(super) note: Option<String>,
}

/// A fork that is being made or opened.
#[derive(Debug)]
pub(super) struct Forking {
    pub(super) parent: SessionId,
    /// The request that makes the fork.
    pub(super) call: u64,
    /// The prompt that was edited and its new text, if the fork is made for one.
    pub(super) edited: Option<(MessageId, String)>,
    /// The note when the fork is open.
    pub(super) note: String,
    /// The request that opens the fork, as soon as there is a fork.
    pub(super) ticket: Option<u64>,
    pub(super) since: Timestamp,
    /// The first key that is not typed into the input, and what followed it.
    pub(super) held: Vec<Event>,
}

/// When a session whose connection was lost is opened again, while the server itself is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reopening {
    pub(super) attempts: usize,
    pub(super) at: Timestamp,
}

/// A file or a command that completes a word.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CompletionItem {
    /// The text that replaces the word.
    pub(super) insert: String,
    /// The arguments of a command.
    pub(super) hint: Clean,
    /// The description of a command.
    pub(super) about: Clean,
    /// How well it fits.
    pub(super) score: i32,
}

/// Files and commands that complete a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Completion {
    pub(super) items: Vec<CompletionItem>,
    pub(super) cursor: usize,
    pub(super) total: usize,
    /// The word that was completed: closing the list keeps it closed for this word.
    pub(super) word: Completed,
    /// The listing of files that it was made from.
    pub(super) listing: u64,
}

/// A queued prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QueuedPrompt {
    pub(super) id: Json,
    pub(super) text: String,
}

/// How a request was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    /// The choice, and the client that made it.
    pub(super) text: Clean,
    /// Whether that rejects the request; `None` if it is not known.
    pub(super) is_rejection: Option<bool>,
}

/// A request that was answered while the client ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AnsweredRequest {
    pub(super) title: Clean,
    pub(super) details: Clean,
    pub(super) outcome: Answer,
    pub(super) at: Timestamp,
}

/// The form that is being filled in.
#[derive(Debug, Default)]
pub(super) struct FormState {
    /// The request of the form.
    pub(super) request: String,
    /// The field under the cursor; the buttons follow the fields.
    pub(super) cursor: usize,
    /// The text of the field under the cursor.
    pub(super) text: TextField,
    /// Why the form was not accepted.
    pub(super) problem: Option<Clean>,
}

/// The entry or pane that is selected as soon as a session is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OpenAt {
    Message(MessageId, Vec<String>),
    ToolCall(String, Vec<String>),
    /// The last entry above the selected one that has the words that are searched for.
    Match,
    Request,
    /// Nothing: the list keeps the focus.
    List,
}

impl PendingRemoval {
    pub(super) fn effect(&self) -> Effect {
        Effect::Send(if self.is_deletion {
            Call::Delete(self.id.clone())
        } else {
            Call::Archive(self.id.clone())
        })
    }
}
