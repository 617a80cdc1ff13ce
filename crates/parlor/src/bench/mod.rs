//! Measuring parlor: the same agent and the same client, once through parlor and once connected directly.
//!
//! - `place` is where a benchmark runs: its folder, its agent, its server.
//! - `client` is a client that does little but read fast, `holder` is one as people have it; `heard` is what they make of
//!   what they read.
//! - `measure` reads what the system knows about a process, and has the statistics.
//! - `scenarios` is what is done; `report` is how it is told.

mod client;
mod heard;
mod holder;
mod measure;
mod place;
pub(crate) mod report;
pub(crate) mod scenarios;

pub(crate) use place::{Bench, Version};
pub(crate) use scenarios::SCENARIOS;
