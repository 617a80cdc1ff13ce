//! Several clients in one session get the same transcript, whatever their dialects and transports.

use parlor_dialect::Dialect;
use parlor_testkit::client::{Client, ClientBuilder, error_code};
use parlor_testkit::server::{Server, TEST_AGENTS};
use parlor_testkit::transport::TransportKind;
use serde_json::{Value, json};

use crate::{client_per_dialect, start_server};

/// A turn with updates that all dialects can express.
const SCRIPT: &str =
    "think Let me see\nsay Here it is.\ntool Edit the notes\ntwo Done.\nimage\nsame-id Both.";

fn three_clients(server: &Server, agent: usize) -> [Client; 3] {
    client_per_dialect(server, agent, ClientBuilder::with_seq)
}

#[test]
fn all_attached_clients_get_the_same_transcript() {
    let server = start_server("");
    for (agent, name) in TEST_AGENTS.into_iter().enumerate() {
        for speaker in 0..3 {
            let mut clients = three_clients(&server, agent);
            let session = clients[speaker].new_session();
            for (n, client) in clients.iter_mut().enumerate() {
                if n != speaker {
                    client.load(&session);
                }
            }
            assert_eq!(clients[speaker].turn(&session, SCRIPT), "end_turn");
            let stored = server.stored_transcript(&session);
            // Without ids, consecutive messages are one message.
            let entries = if name == "anonymous" { 7 } else { 9 };
            assert_eq!(stored.len(), entries, "{stored:#?}");
            for client in &mut clients {
                client.wait_for_transcript(&session, &stored);
            }
            // Each client can send the next prompt.
            let next = (speaker + 1) % 3;
            assert_eq!(clients[next].turn(&session, "say And more."), "end_turn");
            let stored = server.stored_transcript(&session);
            for client in &mut clients {
                client.wait_for_transcript(&session, &stored);
                client.load(&session);
                assert_eq!(client.transcript(&session), stored);
            }
        }
    }
}

#[test]
fn a_client_that_attaches_during_a_turn_gets_every_update_once() {
    let server = start_server("");
    for agent in TEST_AGENTS {
        let mut speaker = server.client(TransportKind::Unix, Dialect::V2, agent);
        let session = speaker.new_session();
        let prompt = speaker.prompt(&session, "say Begin.\nstream 400 60 1000\ntool\nsay End.");
        let mut late = Vec::new();
        for n in 0..6 {
            let mut client = ClientBuilder::new(TransportKind::ALL[n % 3], Dialect::ALL[n % 3], agent)
                .with_seq()
                .connect(&server);
            client.load(&session);
            late.push(client);
        }
        speaker.end_of_turn(&session, prompt);
        let stored = server.stored_transcript(&session);
        assert!(stored.iter().any(|line| line.contains("00000399 ")), "{stored:#?}");
        speaker.wait_for_transcript(&session, &stored);
        for client in &mut late {
            client.wait_for_transcript(&session, &stored);
        }
    }
}

#[test]
fn the_sequence_numbers_of_live_updates_have_no_gaps() {
    let server = start_server("");
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for dialect in [Dialect::V2, Dialect::Draft] {
            let mut speaker = server.client(TransportKind::Stdio, Dialect::V1, agent);
            let session = speaker.new_session();
            speaker.turn(&session, "say Before.");
            let mut client =
                ClientBuilder::new(TransportKind::ALL[n % 3], dialect, agent).with_seq().connect(&server);
            let seq = client.load(&session)["_meta"]["parlor/seq"].as_u64().unwrap();
            let mark = client.mark();
            speaker.turn(&session, SCRIPT);
            client.wait_for_idle(&session, mark);
            let mut last = seq;
            for seq in client.seqs(&session, mark) {
                assert!(seq == last || seq == last + 1, "{seq} after {last}");
                last = seq;
            }
            assert!(last > seq + 10);
        }
    }
}

#[test]
fn a_client_that_was_killed_during_a_turn_resumes_with_the_current_state() {
    let server = start_server("");
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut client = server.client(TransportKind::ALL[n % 3], dialect, agent);
            let session = client.new_session();
            client.turn(&session, "say First.");
            client.prompt(&session, "say Second.\nask May I?\nsay Third.");
            let peer_request = client.peer_request("session/request_permission");
            assert_eq!(peer_request["params"]["sessionId"], session.as_str());
            drop(client);

            let mut back = server.client(TransportKind::ALL[(n + 1) % 3], dialect, agent);
            let listed = back.call("session/list", serde_json::json!({})).unwrap();
            let listed = listed["sessions"].as_array().unwrap();
            let found = listed.iter().find(|listed| listed["sessionId"] == session.as_str()).unwrap();
            assert_eq!(found["_meta"]["parlor/busy"], true);
            let joined = back.load(&session);
            assert_eq!(joined["_meta"]["parlor/state"], "requires_action");
            let before = back.transcript(&session);
            assert!(before.iter().any(|line| line.ends_with(": Second.")), "{before:#?}");
            let mark = back.mark();
            let again = back.peer_request("session/request_permission");
            back.choose(&again, "allow-once");
            back.wait_for_idle(&session, mark);
            back.wait_for_message(&session, "Third.");
            let stored = server.stored_transcript(&session);
            assert!(stored.iter().any(|line| line.contains("You chose allow-once.")), "{stored:#?}");
            back.wait_for_transcript(&session, &stored);
        }
    }
}

#[test]
fn a_client_that_attaches_again_still_gets_its_pending_responses() {
    let server = start_server("");
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut client = server.client(TransportKind::ALL[n % 3], dialect, agent);
            let session = client.new_session();
            let first = client.prompt(&session, "ask\nsay One.");
            let peer_request = client.peer_request("session/request_permission");
            let second = client.prompt(&session, "say Two.");
            client.load(&session);
            client.choose(&peer_request, "allow-once");
            assert_eq!(client.end_of_turn(&session, first), "end_turn", "{agent} {dialect}");
            client.wait_for_message(&session, "Two.");
            client.response(second).unwrap();
        }
    }
}

#[test]
fn a_client_that_resumes_from_its_last_sequence_number_misses_nothing() {
    let server = start_server("");
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "v2");
    let session = client.new_session();
    let prompt = client.prompt(&session, "stream 30000 20 each");
    for _ in 0..300 {
        client.resume(&session, None).unwrap();
    }
    assert_eq!(client.end_of_turn(&session, prompt), "end_turn");
    client.wait_for_transcript(&session, &server.stored_transcript(&session));
}

#[test]
fn a_client_attaches_with_session_attach_and_detaches_while_the_turn_goes_on() {
    let server = start_server("");
    for agent in ["v1", "v2"] {
        for dialect in Dialect::ALL {
            let mut one = server.client(TransportKind::Unix, Dialect::V2, agent);
            let session = one.new_session();
            one.turn(&session, "say Before.");
            let mut two = server.client(TransportKind::Unix, dialect, agent);
            let attach = json!({ "sessionId": session, "historyPolicy": "full", "clientId": "phone" });
            let answer = two.call("session/attach", attach).unwrap();
            assert_eq!((&answer["sessionId"], &answer["clientId"]), (&json!(session), &json!("phone")));
            assert_eq!(answer["historyPolicy"], "full");
            two.wait_for_transcript(&session, &server.stored_transcript(&session));
            // The last client leaves: its turn goes on.
            one.call("session/close", json!({ "sessionId": session })).unwrap();
            let prompt = two.prompt(&session, "say Busy.\nask\nsay Over.");
            two.peer_request("session/request_permission");
            assert_eq!(two.call("session/detach", json!({ "sessionId": session })), Ok(json!({})));
            if dialect == Dialect::V1 {
                assert_eq!(two.response(prompt).unwrap()["stopReason"], "cancelled");
            }
            let mark = two.mark();
            let mut three = server.client(TransportKind::Unix, Dialect::V2, agent);
            let none = json!({ "sessionId": session, "historyPolicy": "none" });
            let answer = three.call("session/attach", none).unwrap();
            assert_eq!(answer["_meta"]["parlor/state"], "requires_action", "{agent} {dialect:?}: {answer}");
            assert_eq!(three.updates(&session, 0).filter(|update| is_message(update)).count(), 0);
            let request = three.peer_request("session/request_permission");
            let after = three.mark();
            three.choose(&request, "allow-once");
            assert_eq!(three.wait_for_idle(&session, after), "end_turn");
            assert!(server.stored_transcript(&session).last().unwrap().ends_with("Over."));
            assert_eq!(two.call("session/detach", json!({ "sessionId": session })), Ok(json!({})), "again");
            assert_eq!(two.updates(&session, mark).count(), 0, "{agent} {dialect:?}");
        }
    }
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "v2");
    assert_eq!(client.call("session/detach", json!({ "sessionId": "no-such-session" })), Ok(json!({})));
    let session = client.new_session();
    let bad = client.call("session/attach", json!({ "sessionId": session, "historyPolicy": "some" }));
    assert_eq!(error_code(&bad), -32602);
    assert_eq!(error_code(&client.call("session/attach", json!({ "sessionId": "no-such-session" }))), -32002);
}

/// Whether an update adds to a message.
fn is_message(update: &Value) -> bool {
    let kind = update["sessionUpdate"].as_str().unwrap_or_default();
    kind.contains("message")
}
