//! The examples of the libraries, each with the official SDK as the peer, and the documents that contain them.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the enums of the protocol are open, and most of it is not looked at"
)]

mod agents;
mod client_view;
mod clients;
mod docs;
mod line_counts;
mod same_transcript;
mod sdk_agent;
mod sdk_client;
mod sdk_versions;
mod wire;

use parlor_testkit::server::{Server, TestDir};

/// The program under test.
const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// A server with one agent.
fn start_server(name: &str, agent: &[String]) -> Server {
    TestDir::new(PARLOR).agent(name, &agent.join(" ")).serve()
}
