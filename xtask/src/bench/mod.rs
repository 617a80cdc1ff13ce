//! Measuring parlor: the same agent and the same client, once through parlor and once connected directly.
//!
//! - `place` is where a benchmark runs: its folder, its agent, the server binaries that are compared.
//! - `client` is a client that does little but read fast, `crowd` many of them in one thread, `websocket` one of the
//!   transports; `holder` is a client as people have it; `heard` is what they make of what they read.
//! - `relay` is a bare fan-out to compare with.
//! - `measure` reads what the system knows about a process, and has the statistics.
//! - `scenarios` is what is done; `report` is how it is told; `command` puts it together.

mod client;
mod command;
mod crowd;
mod heard;
mod holder;
mod measure;
mod place;
mod relay;
mod report;
mod scenarios;
mod websocket;

use tokio::runtime::{Builder, Runtime};

use crate::failure::Failure;
pub(crate) use command::BenchCommand;

/// A runtime for clients, all in one thread.
fn runtime() -> Result<Runtime, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::failed(format_args!("cannot start: {error}")))
}
