//! Measuring parlor: the same agent and the same client, once through parlor and once connected directly.
//!
//! - `place` is where a benchmark runs: its folder, its agent, the server binaries that are compared.
//! - `client` is a client that does little but read fast, `crowd` many of them in one thread, `websocket` one of the
//!   transports; `holder` is a client as people have it; `heard` is what they make of what they read.
//! - `relay` is a bare fan-out to compare with.
//! - `measure` reads what the system knows about a process, and has the statistics.
//! - `scenarios` is what is done; `report` is how it is told.

mod client;
mod crowd;
mod heard;
mod holder;
mod measure;
mod place;
pub(crate) mod relay;
pub(crate) mod report;
pub(crate) mod scenarios;
mod websocket;

pub(crate) use place::{Bench, Binary, Version};
pub(crate) use scenarios::SCENARIOS;
