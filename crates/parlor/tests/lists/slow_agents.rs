//! Agents that do not answer `initialize` or anything else.

use parlor_dialect::Dialect;
use parlor_testkit::transport::TransportKind;
use serde_json::json;

use crate::start_server;

#[test]
fn the_startup_timeout_of_an_agent_is_configurable() {
    let server = start_server("[agents.hangs]\ncommand = [\"sleep\", \"600\"]\nstartup_timeout = 1\n");
    // The first client of an agent is accepted, and its request waits for the agent.
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "hangs");
    let refused = client.call("session/new", json!({ "cwd": "/", "mcpServers": [] })).unwrap_err();
    assert_eq!(refused["message"], "agent 'hangs' did not answer initialize within 1 s");
    assert!(client.call("session/list", json!({})).is_ok());
}

/// An agent that answers `initialize` and nothing else.
const SILENT_AGENT: &str = r#"[agents.silent]
command = ["sh", "-c", 'read line; echo "{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{\"protocolVersion\":2,\"info\":{\"name\":\"s\",\"version\":\"1\"},\"capabilities\":{}}}"; exec sleep 600']
"#;

#[test]
fn a_client_with_too_many_open_requests_gets_an_error() {
    let server = start_server(SILENT_AGENT);
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "silent");
    let new = json!({ "cwd": "/", "mcpServers": [] });
    let request_ids: Vec<_> = (0..300).map(|_| client.send("session/new", new.clone())).collect();
    for &id in &request_ids[256..] {
        let refused = client.response(id).unwrap_err();
        assert_eq!(refused["message"], "256 requests of this connection are in flight: try again later");
    }
    // Requests of other clients that need no agent get responses.
    let mut other = server.client(TransportKind::Unix, Dialect::V2, "silent");
    assert!(other.call("session/list", json!({})).is_ok());
}

#[test]
fn requests_for_an_unresponsive_agent_share_one_timeout() {
    let dir = tempfile::tempdir().unwrap();
    let starts = dir.path().join("starts");
    let server = start_server(&format!(
        "[agents.hangs]\ncommand = [\"sh\", \"-c\", 'echo >> \"$0\"; exec sleep 600', \"{}\"]\nstartup_timeout = 1\n",
        starts.display()
    ));
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "hangs");
    let new = json!({ "cwd": "/", "mcpServers": [] });
    let request_ids: Vec<_> = (0..10).map(|_| client.send("session/new", new.clone())).collect();
    for id in request_ids {
        assert_eq!(
            client.response(id).unwrap_err()["message"],
            "agent 'hangs' did not answer initialize within 1 s"
        );
    }
    // Once for `initialize` of the client and its first session, and once for all others.
    assert_eq!(std::fs::read_to_string(starts).unwrap(), "\n\n");
}
