//! Agents that do not say who they are.

use parlor_dialect::Dialect;
use serde_json::json;

use crate::doors::Door;
use crate::server::Server;

#[test]
fn an_agent_that_hangs_is_waited_for_as_long_as_was_chosen() {
    let server = Server::with("[agents.hangs]\ncommand = [\"sleep\", \"600\"]\npatience = 1\n");
    // The first client of an agent waits for it, and is not turned away.
    let mut client = server.client(Door::Unix, Dialect::V2, "hangs");
    let refused = client.call("session/new", json!({ "cwd": "/", "mcpServers": [] })).unwrap_err();
    assert_eq!(refused["message"], "the agent 'hangs' does not say who it is");
    assert!(client.call("session/list", json!({})).is_ok());
}
