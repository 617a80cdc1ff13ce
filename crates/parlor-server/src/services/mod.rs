//! Serves files and terminals to agents.
//!
//! Version 1 of the protocol has agents request these from their client. parlor runs on the agent's machine, so it can serve
//! them itself, whichever clients are connected.

pub mod access;
pub(crate) mod budget;
pub mod files;
mod output;
mod params;
pub mod terminals;

pub(crate) use self::output::Utf8Decoder;
