//! Entries of a transcript as HTML.
//!
//! All content is untrusted. Text is escaped by `maud`; what an agent sends becomes tags only through [`markdown`].

mod authors;
mod code;
pub mod content_block;
mod diff;
pub(crate) mod entry;
mod event;
mod fragments;
pub mod markdown;
mod message;
pub(crate) mod plan;
mod request;
mod terminal;
pub mod text;
mod tool_call;
mod turn_files;

#[cfg(test)]
pub(crate) mod tests;

pub use self::authors::Authors;
pub use self::entry::{EntryContext, entry, is_shown};
pub use self::fragments::{Fragments, Patch};
pub use self::request::{AnswerError, CardPlace, RequestCard};
pub use self::turn_files::{FileCounts, TurnBounds, TurnFiles, is_steered};
