//! A running server with real agents, as clients of all dialects meet it at all transports.

mod access;
mod asking;
mod canonical;
mod context;
mod editors;
mod ending;
mod events;
mod forks;
mod hanging;
mod joining;
mod lasting;
mod matching;
mod prompts;
mod puppet;
mod restoring;
mod telling;

use parlor_testkit::server::{Server, TestDir};

/// The program that is tested.
const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// A server with the test agents and these lines in its configuration.
fn start_server(config: &str) -> Server {
    TestDir::new(PARLOR).with_test_agents(config).serve()
}
