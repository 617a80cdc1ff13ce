//! Events of failed turns and of decisions.

use parlor_dialect::Dialect;
use parlor_testkit::client::{Client, ClientBuilder};
use parlor_testkit::server::{Server, TEST_AGENTS};
use parlor_testkit::transport::TransportKind;
use serde_json::{Value, json};

use crate::{client_per_dialect, session_of, start_server};

const PERMISSION: &str = "session/request_permission";

/// One client of each dialect with the capability for events, in one session.
fn three_clients(server: &Server, agent: usize) -> ([Client; 3], String) {
    let mut clients = client_per_dialect(server, agent, ClientBuilder::with_events);
    let session = session_of(&mut clients, 0);
    (clients, session)
}

/// The events that a client was sent after a mark.
fn events(client: &Client, session: &str, mark: usize) -> Vec<Value> {
    let updates = client.updates(session, mark).filter(|update| update["sessionUpdate"] == "_parlor_event");
    updates.cloned().collect()
}

/// The events that a client gets when it attaches later.
fn later(server: &Server, session: &str, dialect: Dialect) -> Vec<Value> {
    let mut client = ClientBuilder::new(TransportKind::Unix, dialect, "v2").with_events().connect(server);
    client.load(session);
    events(&client, session, 0)
}

fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

#[test]
fn failed_refused_and_cancelled_turns_leave_events_for_clients_with_the_capability() {
    let mut server = start_server("");
    let mut sessions = Vec::new();
    for (agent, name) in TEST_AGENTS.into_iter().enumerate() {
        let (mut clients, session) = three_clients(&server, agent);
        let mut plain = server.client(TransportKind::Unix, Dialect::ALL[agent % 3], name);
        plain.load(&session);
        clients[1].turn(&session, "refuse");
        let failed = clients[2].prompt(&session, "fail -32042 no model");
        let answer = clients[2].response(failed);
        if answer.is_ok() {
            clients[2].end_of_turn(&session, failed);
        }
        let prompt = clients[2].prompt(&session, "say Hm.\nsleep 60000");
        clients[0].wait_for_message(&session, "Hm.");
        clients[0].cancel(&session);
        assert_eq!(clients[2].end_of_turn(&session, prompt), "cancelled");
        let expected = ["turn_refused", "turn_failed", "turn_cancelled"];
        for client in &mut clients {
            client.wait_for("three events", |client| (events(client, &session, 0).len() == 3).then_some(()));
            let received = events(client, &session, 0);
            assert_eq!(types(&received), expected);
            assert_eq!(received[1]["error"]["code"], -32042, "{received:?}");
            assert!(
                received[2]["by"]["name"] == "test" && received[2]["by"]["client"].is_u64(),
                "{received:?}"
            );
            assert!(received[2].get("agentDidNotAnswer").is_none(), "{received:?}");
            for event in &received {
                assert!(event["messageId"].is_string() && event["at"].as_str().unwrap().ends_with('Z'));
            }
            // The event is sent before the end of the turn: there is an end after the last event.
            client.wait_for("the end of the turn", |client| {
                let updates: Vec<_> = client.received.iter().map(|line| &line["params"]["update"]).collect();
                let event = updates.iter().rposition(|update| update["sessionUpdate"] == "_parlor_event")?;
                let is_idle =
                    |update: &&Value| update["state"] == "idle" || update["_meta"]["parlor/state"] == "idle";
                updates[event..].iter().any(is_idle).then_some(())
            });
            for dialect in Dialect::ALL {
                assert_eq!(later(&server, &session, dialect), received);
            }
        }
        // Clients without the capability get no events: every received line is checked.
        let stored = server.stored_transcript(&session);
        plain.wait_for_transcript(&session, &stored);
        let received = events(&clients[0], &session, 0);
        sessions.push((session, received));
    }
    server.restart();
    for (session, received) in sessions {
        assert_eq!(later(&server, &session, Dialect::V2), received);
    }
}

#[test]
fn a_decision_leaves_an_event_with_the_option_the_client_and_the_time() {
    let server = start_server("");
    for agent in 0..TEST_AGENTS.len() {
        let (mut clients, session) = three_clients(&server, agent);
        for winner in 0..3 {
            let prompt = clients[0].prompt(&session, "ask Delete it?");
            let peer_requests: Vec<_> =
                clients.iter_mut().map(|client| client.peer_request(PERMISSION)).collect();
            clients[winner].choose(&peer_requests[winner], "reject-once");
            clients[0].end_of_turn(&session, prompt);
            let received: Vec<_> = clients
                .iter_mut()
                .map(|client| {
                    client.wait_for("the decision", |client| events(client, &session, 0).get(winner).cloned())
                })
                .collect();
            assert!(received.iter().all(|event| *event == received[0]), "{received:?}");
            let event = &received[0];
            assert_eq!(event["type"], "decision");
            assert_eq!(event["request"], PERMISSION);
            assert_eq!(event["title"], "Delete it?");
            assert_eq!(event["outcome"], "selected");
            assert_eq!(event["option"]["optionId"], "reject-once");
            assert!(event["option"]["name"].is_string() && event["option"]["kind"].is_string(), "{event}");
            assert_eq!(event["by"]["name"], "test");
            assert!(event["by"]["client"].is_u64() && event["at"].is_string(), "{event}");
            // It has the tool call id of the session.
            let call = event["toolCallId"].as_str().unwrap();
            assert!(
                clients[1]
                    .fold(&session)
                    .unwrap()
                    .transcript()
                    .entries()
                    .iter()
                    .any(|entry| { *entry.id() == parlor_session::EntryId::ToolCall(call.into()) })
            );
            assert_eq!(later(&server, &session, Dialect::V1).last(), Some(event));
        }
    }
}

#[test]
fn the_event_of_a_form_does_not_contain_its_values() {
    let server = start_server("");
    let able = json!({ "elicitation": { "form": {} } });
    for agent in TEST_AGENTS {
        let mut client = ClientBuilder::new(TransportKind::Unix, Dialect::V2, agent)
            .with_capabilities(able.clone())
            .with_events()
            .connect(&server);
        let session = client.new_session();
        let prompt = client.prompt(&session, "elicit");
        let peer_request = client.peer_request("elicitation/create");
        client.respond(&peer_request, &json!({ "action": "accept", "content": { "name": "hunter2" } }));
        client.end_of_turn(&session, prompt);
        let received = events(&client, &session, 0);
        assert_eq!(types(&received), ["decision"]);
        assert_eq!(received[0]["outcome"], "accept");
        assert!(!received[0].to_string().contains("hunter2"));
    }
}

#[test]
fn a_fork_has_the_events_up_to_its_message() {
    let server = start_server("");
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        let mut client = ClientBuilder::new(TransportKind::ALL[n % 3], Dialect::ALL[n % 3], agent)
            .with_events()
            .connect(&server);
        let session = client.new_session();
        client.turn(&session, "refuse");
        let params = json!({ "sessionId": session, "cwd": "/", "mcpServers": [] });
        let fork = client.call("session/fork", params).unwrap();
        let fork = fork["sessionId"].as_str().unwrap();
        client.turn(&session, "refuse");
        for dialect in Dialect::ALL {
            let (whole, forked) = (later(&server, &session, dialect), later(&server, fork, dialect));
            assert_eq!(whole.len(), 2);
            assert_eq!(forked, whole[..1]);
        }
    }
}
