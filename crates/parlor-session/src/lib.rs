//! The data model of a conversation between people and a coding agent, and the live session as a state machine.
//!
//! A [`Transcript`] is the result of applying [`Update`]s in order. Messages, tool calls, plans and terminals are
//! entries with an [`EntryId`]; values that a session has once (its title, its commands) are [`Slot`]s. An update
//! patches an entry or slot ([`Upsert`]), appends content or terminal output, removes an entry, adds a note, or
//! replaces the state. Each applied update is a [`Change`] with the next seq, so that a [`ReplayCursor`] can return
//! what a subscriber lacks after a given seq.
//!
//! ```
//! use parlor_json::Json;
//! use parlor_session::{EntryId, Role, Transcript, Update};
//!
//! let mut transcript = Transcript::default();
//! let entry = EntryId::Message(Role::Agent, "m1".into());
//! for text in [r#"{"type":"text","text":"Hel"}"#, r#"{"type":"text","text":"lo"}"#] {
//!     let item = Json::parse(text).unwrap();
//!     transcript.push(Update::Append { entry: entry.clone(), item, extra: None }).unwrap();
//! }
//! let message = transcript.get(&entry).unwrap();
//! assert_eq!(message.body().content.joined().len(), 1);
//! ```
//!
//! This crate knows no wire names: `parlor-dialect` passes field names in. It reads only [`TITLE`], and `type` and
//! `text` of content blocks.
//!
//! The enums of the model, such as [`EntryId`] and [`Update`], are exhaustive: a new variant is a breaking change,
//! because every program that shows or translates a transcript has to handle it.
//!
//! **Invariant:** no I/O, no clock, no randomness, no async. Ids come from the caller.
//!
//! **Invariant:** a rejected update leaves the transcript unchanged.

mod body;
mod content;
mod event;
mod ids;
mod implicit_ids;
mod meta;
mod numbers;
mod patch;
mod replay_cursor;
mod revisions;
pub mod session;
mod stored;
mod transcript;
pub mod turns;
mod update;

pub use body::{Body, Upsert};
pub use content::{Content, Item, plain_text, plain_text_in, text_of, text_prefix};
pub use event::{Decider, Decision, Event, EventKind, UnixMillis, acted_where};
pub use ids::{CompactionId, EventId, MessageId, PlanId, SessionId, TerminalId, ToolCallId};
pub use implicit_ids::{IdSource, ImplicitMessageIds};
pub use meta::MetaPatch;
pub use numbers::{MessageNumbers, is_numbered};
pub use patch::Patch;
pub use replay_cursor::ReplayCursor;
pub use stored::{DirtyParts, InvalidRow, Row};
pub use transcript::{Entry, Limits, Transcript, UpdateError};
pub use update::{Activity, Change, EntryId, Role, Slot, State, TITLE, Target, Update};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
