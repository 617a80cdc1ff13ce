//! The conversation between people and a coding agent, as data.
//!
//! A session's [`Transcript`] is folded from [`Update`]s. Everything in it can be addressed: messages, tool
//! calls, plans and terminals by an [`EntryId`], the things a session has once (its title, its commands) by
//! a [`Slot`]. There are four ways to change it: [`Upsert`] a target, append one item of content, append
//! terminal output, remove an entry. Each change gets the session's next number, so that what happened
//! after a number is a plain question: [`Transcript::changes_since`].
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
//! The words of this crate are its own. How a peer spells them on the wire is the business of
//! `parlor-dialect`: field names are handed in, and this crate reads none but [`TITLE`].
//!
//! The enums of the model, such as [`EntryId`] and [`Update`], can be matched on completely. A conversation with a new kind of
//! thing in it is something that whoever shows or translates one has to think about, so the compiler points to each place; it
//! comes with a new minor version while the first number is 0, and a new major version after that.
//!
//! **Invariant:** no I/O, no clock, no randomness, no async. Ids come from the caller.
//!
//! **Invariant:** a refused update leaves the transcript as it was.

mod body;
mod content;
mod event;
mod ids;
mod implicit_ids;
mod meta;
mod patch;
mod replay_cursor;
mod revisions;
pub mod session;
mod stored;
mod transcript;
pub mod turns;
mod update;

pub use body::{Body, Upsert};
pub use content::{Content, Item, plain_text, plain_text_in, text_beginning, text_of};
pub use event::{Decider, Decision, Event, EventKind, UnixMillis};
pub use ids::{CompactionId, EventId, MessageId, PlanId, SessionId, TerminalId, ToolCallId};
pub use implicit_ids::{IdSource, ImplicitMessageIds};
pub use meta::MetaPatch;
pub use patch::Patch;
pub use replay_cursor::ReplayCursor;
pub use stored::{BadRow, Row, Unsaved};
pub use transcript::{Entry, Limits, Refused, Transcript};
pub use update::{Activity, Change, EntryId, Role, Slot, State, TITLE, Target, Update};
