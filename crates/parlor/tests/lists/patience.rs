//! Agents that do not say who they are.

use parlor_dialect::Dialect;
use parlor_testkit::transport::TransportKind;
use serde_json::json;

use crate::start_server;

#[test]
fn an_agent_that_hangs_is_waited_for_as_long_as_was_chosen() {
    let server = start_server("[agents.hangs]\ncommand = [\"sleep\", \"600\"]\nstartup_timeout = 1\n");
    // The first client of an agent waits for it, and is not turned away.
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "hangs");
    let refused = client.call("session/new", json!({ "cwd": "/", "mcpServers": [] })).unwrap_err();
    assert_eq!(refused["message"], "agent 'hangs' did not answer initialize within 1 s");
    assert!(client.call("session/list", json!({})).is_ok());
}

/// An agent that says who it is and nothing more.
const SILENT: &str = r#"[agents.silent]
command = ["sh", "-c", 'read line; echo "{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{\"protocolVersion\":2,\"info\":{\"name\":\"s\",\"version\":\"1\"},\"capabilities\":{}}}"; exec sleep 600']
"#;

#[test]
fn a_client_that_asks_faster_than_it_is_answered_is_told_so() {
    let server = start_server(SILENT);
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "silent");
    let new = json!({ "cwd": "/", "mcpServers": [] });
    let asked: Vec<_> = (0..300).map(|_| client.send("session/new", new.clone())).collect();
    for &id in &asked[256..] {
        let refused = client.response(id).unwrap_err();
        assert_eq!(refused["message"], "256 requests of this connection are in flight: try again later");
    }
    // What needs no agent is answered all the same, for others.
    let mut other = server.client(TransportKind::Unix, Dialect::V2, "silent");
    assert!(other.call("session/list", json!({})).is_ok());
}

#[test]
fn those_who_wait_for_an_agent_that_hangs_wait_together() {
    let home = tempfile::tempdir().unwrap();
    let starts = home.path().join("starts");
    let server = start_server(&format!(
        "[agents.hangs]\ncommand = [\"sh\", \"-c\", 'echo >> \"$0\"; exec sleep 600', \"{}\"]\nstartup_timeout = 1\n",
        starts.display()
    ));
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "hangs");
    let new = json!({ "cwd": "/", "mcpServers": [] });
    let asked: Vec<_> = (0..10).map(|_| client.send("session/new", new.clone())).collect();
    for id in asked {
        assert_eq!(
            client.response(id).unwrap_err()["message"],
            "agent 'hangs' did not answer initialize within 1 s"
        );
    }
    // Once for the first words of the client and its first session, and once for all others.
    assert_eq!(std::fs::read_to_string(starts).unwrap(), "\n\n");
}
