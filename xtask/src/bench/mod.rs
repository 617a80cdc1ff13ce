//! Benchmarks: the same agent and the same client, connected through parlor and directly.
//!
//! - `environment` has the directory, the agent and the server binaries of a benchmark.
//! - `client` is a client that reads as fast as possible, `client_group` many of them in one thread, `websocket` one of
//!   the transports; `library_client` uses the client library; `received` counts what they receive.
//! - `relay` is a bare relay for comparison.
//! - `measure` reads figures of processes and has the statistics.
//! - `scenarios` has the scenarios, `report` prints their results, `command` is the command line.

mod client;
mod client_group;
mod command;
mod environment;
mod library_client;
mod measure;
mod received;
mod relay;
mod report;
mod scenarios;
mod websocket;

use tokio::runtime::{Builder, Runtime};

use crate::failure::Failure;
pub(crate) use command::BenchCommand;
pub(crate) use measure::{median, quantile};

/// Creates a single-threaded runtime for clients.
fn runtime() -> Result<Runtime, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::failed(format_args!("cannot start: {error}")))
}
