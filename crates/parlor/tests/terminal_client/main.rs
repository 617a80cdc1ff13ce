//! The terminal client on a pseudo-terminal, with a real server.

#![cfg(target_os = "linux")]

mod conversation;
mod requests;
mod server;
mod sessions;
mod tls;

use parlor_testkit::scenario::Scenario;

/// The program under test.
const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// A server with the demo agent.
fn with_server() -> Scenario {
    Scenario::new(PARLOR).with_server()
}
