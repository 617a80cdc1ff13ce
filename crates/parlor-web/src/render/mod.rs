//! Entries of a transcript as HTML.
//!
//! All content is untrusted. Text is escaped by `maud`; what an agent sends becomes tags only through [`markdown`].

pub mod ansi;
pub mod content_block;
pub mod diff;
mod entry;
mod event;
pub mod markdown;
mod plan;
pub mod text;
mod tool_call;

#[cfg(test)]
mod tests;

pub use self::entry::{EntryContext, entry, is_shown, revision};
