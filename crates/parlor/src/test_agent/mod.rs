//! A scripted agent for tests of clients and servers: what it does is said by the prompt.
//!
//! It speaks every dialect, offers what it is told to, and can misbehave on purpose. It uses threads and blocking I/O
//! and none of the code that serves sessions: a fault there must not be hidden by the same fault here.
//!
//! - `commands` has what a prompt may hold; a new command is a line of its table and an arm in `turn`.
//! - `quirk` has what real agents do beyond the documents, chosen on the command line.
//! - `say` knows how each dialect spells an update, `offer` what is said about agent and sessions as a whole.
//! - `session` is one session with its queue, `store` keeps sessions that are not open.
//! - `turn` runs steps: `words` has those that only talk, `stream` those that talk much, `ask` those that need the
//!   client's answer, `tool` those that show a tool at work.
//! - `server` is the loop that reads lines, `methods` what the client can ask for.

mod ask;
pub(crate) mod commands;
mod json;
mod methods;
mod offer;
mod output;
mod quirk;
mod say;
mod server;
mod session;
mod store;
mod stream;
mod tool;
mod turn;
mod words;

use std::path::PathBuf;

use parlor_dialect::Dialect;

pub(crate) use offer::Offers;
pub(crate) use quirk::Quirks;
pub(crate) use server::serve;
pub(crate) use stream::monotonic;

/// What the agent was told on its command line.
#[derive(Debug)]
pub(crate) struct Options {
    /// The versions of the protocol that it speaks.
    pub(crate) versions: Versions,
    /// Whether v1 chunks carry message ids.
    pub(crate) message_ids: bool,
    /// The optional methods that it serves.
    pub(crate) offers: Offers,
    /// Where sessions are kept; in memory if nowhere.
    pub(crate) state: Option<PathBuf>,
    /// What it calls itself.
    pub(crate) name: String,
    /// What it does as some real agents do.
    pub(crate) quirks: Quirks,
    /// Whether one has to log in first.
    pub(crate) auth: bool,
}

/// Which versions of the protocol are spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Versions {
    /// Version 1, whatever is asked for.
    One,
    /// Version 2, whatever is asked for.
    Two,
    /// What is asked for.
    Both,
}

impl Versions {
    /// The dialect of a connection whose client asked for `asked`.
    fn choose(self, asked: Dialect) -> Dialect {
        match (self, asked) {
            (Self::One, _) => Dialect::V1,
            (Self::Two, Dialect::V1) => Dialect::V2,
            (Self::Two | Self::Both, asked) => asked,
        }
    }
}
