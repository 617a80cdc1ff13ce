//! A running server with agents and with clients of all dialects on all transports.

mod acp_command;
mod attach;
mod close;
mod context;
mod dialects;
mod events;
mod forks;
mod peer_requests;
mod persistence;
mod prompt_matching;
mod prompts;
mod restore;
mod roles_and_errors;
mod scripted_agent;
mod unresponsive_agents;
mod updates;

use parlor_testkit::server::{Server, TestDir};

/// The program under test.
const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// A server with the test agents and these lines in its configuration.
fn start_server(config: &str) -> Server {
    TestDir::new(PARLOR).with_test_agents(config).serve()
}
