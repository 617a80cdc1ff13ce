//! Requests and notifications between clients and an agent that the test controls, in all dialects.

#![expect(clippy::needless_pass_by_value, reason = "they are handed values that were just made")]

mod agent;
mod client;
#[path = "../common/mod.rs"]
mod common;
mod connection_wide;
mod feed;
mod listing;
mod mcp_servers;
mod opening;
mod prompts;
mod sandbox;
mod subagents;

use parlor_dialect::Dialect;

/// All pairs of an agent's and a client's dialect.
fn pairs() -> impl Iterator<Item = (Dialect, Dialect)> {
    const ALL: [Dialect; 3] = [Dialect::V1, Dialect::V2, Dialect::Draft];
    ALL.into_iter().flat_map(|agent| ALL.into_iter().map(move |client| (agent, client)))
}

#[test]
#[ignore = "runs the reaper process of these tests"]
fn as_reaper() {
    parlor_testkit::shell::run_reaper();
}

#[test]
#[ignore = "the agent's process of the tests here"]
fn as_agent() {
    agent::bridge();
}
