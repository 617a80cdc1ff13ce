//! Cancelled turns, and sessions that are closed, archived or deleted during a turn.

use parlor_dialect::Dialect;
use parlor_testkit::client::{Client, error_code};
use parlor_testkit::server::TEST_AGENTS;
use parlor_testkit::transport::TransportKind;
use serde_json::{Value, json};

use crate::{start_server, two_clients};

const PERMISSION: &str = "session/request_permission";

/// The index of the response to a request among the received lines.
fn index_of_response(client: &Client, request: u64) -> usize {
    client.received.iter().position(|line| line["id"] == request && line.get("method").is_none()).unwrap()
}

/// The index of the last received idle state, with its stop reason.
fn idle_of(client: &Client, session: &str) -> Option<(usize, String)> {
    let reason = if client.dialect == Dialect::Draft { "stop_reason" } else { "stopReason" };
    let is_state = |line: &Value| {
        line["params"]["sessionId"] == session && line["params"]["update"].get("state").is_some()
    };
    let index = client.received.iter().rposition(is_state)?;
    let update = &client.received[index]["params"]["update"];
    assert_eq!(update["state"], "idle", "{update}");
    Some((index, update[reason].as_str().unwrap_or_default().to_owned()))
}

/// Sends another request; its response arrives after all earlier lines.
fn catch_up(client: &mut Client) {
    client.call("_parlor/status", json!({})).unwrap();
}

/// Checks the response to a withdrawn prompt, and returns the client that withdrew it.
fn withdrawn(dialect: Dialect, answer: &Result<Value, Value>) -> Value {
    if dialect == Dialect::V1 {
        let answer = answer.as_ref().unwrap();
        assert_eq!(answer["stopReason"], "cancelled");
        answer["_meta"]["parlor/by"].clone()
    } else {
        assert_eq!(error_code(answer), -32800);
        answer.as_ref().unwrap_err()["data"]["by"].clone()
    }
}

/// Checks that the end of the turn precedes the response to close, and that nothing follows.
fn assert_closed_after_turn(client: &mut Client, session: &str, prompt: u64, close: u64) {
    assert_eq!(client.response(close), Ok(json!({})));
    assert!(client.has_response(prompt), "the prompt is answered before the close");
    let end = index_of_response(client, close);
    assert!(index_of_response(client, prompt) < end);
    if client.dialect == Dialect::V1 {
        assert_eq!(client.response(prompt).unwrap()["stopReason"], "cancelled");
    } else {
        let (idle, reason) = idle_of(client, session).expect("a state");
        assert!(idle < end, "idle precedes the response");
        assert_eq!(reason, "cancelled");
    }
    catch_up(client);
    let late: Vec<_> =
        client.received[end + 1..].iter().filter(|line| line.get("method").is_some()).collect();
    assert!(late.is_empty(), "after the answer: {late:?}");
}

#[test]
fn the_last_client_that_closes_a_session_gets_the_end_of_the_turn_first() {
    let server = start_server("");
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut one = server.client(TransportKind::ALL[n % 3], dialect, agent);
            let session = one.new_session();
            let prompt = one.prompt(&session, "say Busy.\nask\nsay Never.");
            let peer_request = one.peer_request(PERMISSION);
            let second = one.prompt(&session, "say Second.");
            one.wait_for_queue(&session, &["say Second."]);
            let close = one.send("session/close", json!({ "sessionId": session }));
            one.wait_for_cancel(&peer_request);
            withdrawn(dialect, &one.response(second));
            assert_closed_after_turn(&mut one, &session, prompt, close);
            // The session can be opened again.
            one.load(&session);
            assert_eq!(one.turn(&session, "say Again."), "end_turn");
        }
    }
}

#[test]
fn a_client_that_closes_gets_the_end_of_its_prompt_while_the_turn_continues_for_others() {
    let server = start_server("");
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let (mut one, mut two, session) = two_clients(&server, n, agent, [dialect, Dialect::V2]);
            let mark = two.mark();
            let prompt = one.prompt(&session, "say Busy.\nask\nsay Over.");
            let peer_request = two.peer_request(PERMISSION);
            let second = one.prompt(&session, "say Second.");
            two.wait_for_queue(&session, &["say Second."]);
            let close = one.send("session/close", json!({ "sessionId": session }));
            withdrawn(dialect, &one.response(second));
            assert_closed_after_turn(&mut one, &session, prompt, close);
            two.wait_for_queue(&session, &[]);
            two.choose(&peer_request, "allow-once");
            assert_eq!(two.wait_for_idle(&session, mark), "end_turn");
            two.wait_for_message(&session, "Over.");
            let end = index_of_response(&one, close);
            catch_up(&mut one);
            let late = one.received[end + 1..].iter().filter(|line| line.get("method").is_some()).count();
            assert_eq!(late, 0);
        }
    }
}

#[test]
fn a_prompt_right_after_closing_reopens_the_session() {
    let server = start_server("");
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut one = server.client(TransportKind::ALL[n % 3], dialect, agent);
            let session = one.new_session();
            let prompt = one.prompt(&session, "say Busy.\nask\nsay Never.");
            one.peer_request(PERMISSION);
            let close = one.send("session/close", json!({ "sessionId": session }));
            let again = one.prompt(&session, "say Again.");
            let twice = one.send("session/close", json!({ "sessionId": "unknown" }));
            assert_eq!(one.response(close), Ok(json!({})));
            assert_eq!(one.response(twice), Ok(json!({})));
            assert!(index_of_response(&one, prompt) < index_of_response(&one, close));
            assert_eq!(one.end_of_turn(&session, again), "end_turn");
            assert!(index_of_response(&one, close) < index_of_response(&one, again));
        }
    }
}

#[test]
fn archiving_during_a_turn_is_answered_after_its_end() {
    let server = start_server("");
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut one = server.client(TransportKind::ALL[n % 3], dialect, agent);
            let mut two = server.client(TransportKind::Unix, Dialect::V2, agent);
            let session = one.new_session();
            let prompt = one.prompt(&session, "say Busy.\nask\nsay Never.");
            one.peer_request(PERMISSION);
            // With and without being attached to the session.
            let other = two.send("session/archive", json!({ "sessionId": session }));
            let archive = one.send("session/archive", json!({ "sessionId": session }));
            assert_eq!((one.response(archive), two.response(other)), (Ok(json!({})), Ok(json!({}))));
            assert!(one.has_response(prompt));
            assert!(index_of_response(&one, prompt) < index_of_response(&one, archive));
            if dialect == Dialect::V1 {
                assert_eq!(one.response(prompt).unwrap()["stopReason"], "cancelled");
            } else {
                let (idle, reason) = idle_of(&one, &session).unwrap();
                assert!(idle < index_of_response(&one, archive));
                assert_eq!(reason, "cancelled");
            }
        }
    }
}

#[test]
fn no_update_of_a_cancelled_turn_follows_the_response_to_its_prompt() {
    let server = start_server("");
    for agent in TEST_AGENTS {
        for (n, transport) in TransportKind::ALL.into_iter().enumerate() {
            let mut one = server.client(transport, Dialect::V1, agent);
            let session = one.new_session();
            for round in 0..5 {
                let prompt = one.prompt(&session, &format!("say Round {round}.\nstream 40000 40 20000"));
                if round > 0 {
                    std::thread::sleep(std::time::Duration::from_millis(round + n as u64));
                }
                one.cancel(&session);
                assert_eq!(
                    one.response(prompt).unwrap()["stopReason"],
                    "cancelled",
                    "{agent}, {transport:?}, {round}"
                );
                let end = index_of_response(&one, prompt);
                let next = one.prompt(&session, "say Next.");
                assert_eq!(one.end_of_turn(&session, next), "end_turn");
                let texts =
                    one.received[end..].iter().map(|line| &line["params"]["update"]["content"]["text"]);
                let late: Vec<_> =
                    texts.filter_map(Value::as_str).filter(|text| text.starts_with('0')).collect();
                assert!(late.is_empty(), "{agent}, {transport:?}: {} chunks after the answer", late.len());
            }
        }
    }
}

#[test]
fn a_request_of_v1_for_a_running_turn_is_cancelled_with_the_turn() {
    let server = start_server("");
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        let mut one = server.client(TransportKind::ALL[n % 3], Dialect::V1, agent);
        let mut two = server.client(TransportKind::Unix, Dialect::V2, agent);
        let session = one.new_session();
        two.load(&session);
        let prompt = one.prompt(&session, "say Busy.\nask\nsay Never.");
        one.peer_request(PERMISSION);
        let other = two.prompt(&session, "say Other.");
        one.wait_for_queue(&session, &["say Other."]);
        one.cancel_request(prompt);
        assert_eq!(one.response(prompt).unwrap()["stopReason"], "cancelled");
        // Queued prompts of another client are not cancelled.
        assert_eq!(two.end_of_turn(&session, other), "end_turn");
        two.wait_for_message(&session, "Other.");
    }
}

#[test]
fn the_client_that_withdraws_a_prompt_is_named() {
    let server = start_server("");
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut one = server.client(TransportKind::ALL[n % 3], dialect, agent);
            let mut two = server.client(TransportKind::ALL[(n + 1) % 3], Dialect::V2, agent);
            let number = |client: &Client| client.received[0]["result"]["_meta"]["parlor/client"].clone();
            assert!(number(&one).is_u64() && number(&one) != number(&two));
            let session = one.new_session();
            two.load(&session);
            let prompt = one.prompt(&session, "say Busy.\nask\nsay Never.");
            two.peer_request(PERMISSION);
            let mine = one.prompt(&session, "say Mine.");
            let queue = two.wait_for_queue(&session, &["say Mine."]);
            assert_eq!(queue[0]["from"], number(&one));
            two.cancel(&session);
            assert_eq!(withdrawn(dialect, &one.response(mine)), number(&two));
            assert_eq!(one.end_of_turn(&session, prompt), "cancelled");
        }
    }
}

#[test]
fn cancelling_only_the_turn_keeps_the_queued_prompts_of_other_clients() {
    let server = start_server("");
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let (mut one, mut two, session) = two_clients(&server, n, agent, [dialect, Dialect::V2]);
            let prompt = one.prompt(&session, "say Busy.\nask\nsay Never.");
            two.peer_request(PERMISSION);
            let first = one.prompt(&session, "say First.");
            two.wait_for_queue(&session, &["say First."]);
            let mine = two.prompt(&session, "say Mine.");
            two.wait_for_queue(&session, &["say First.", "say Mine."]);
            let second = one.prompt(&session, "say Second.");
            two.wait_for_queue(&session, &["say First.", "say Mine.", "say Second."]);
            two.notify(
                "session/cancel",
                json!({ "sessionId": session, "_meta": { "parlor/scope": "turn" } }),
            );
            assert_eq!(error_code(&two.response(mine)), -32800);
            assert_eq!(one.end_of_turn(&session, prompt), "cancelled");
            assert_eq!(one.end_of_turn(&session, first), "end_turn");
            assert_eq!(one.end_of_turn(&session, second), "end_turn");
            let stored = server.stored_transcript(&session);
            let text: Vec<_> = stored.iter().filter(|line| line.starts_with("agent_message")).collect();
            assert!(text[text.len() - 2].ends_with("First.") && text[text.len() - 1].ends_with("Second."));
            assert!(!stored.iter().any(|line| line.contains("Mine.")), "{stored:#?}");
        }
    }
}

#[test]
fn a_tool_call_with_an_open_permission_request_is_cancelled_with_the_turn() {
    let server = start_server("");
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut one = server.client(TransportKind::ALL[n % 3], dialect, agent);
            let session = one.new_session();
            let prompt = one.prompt(&session, "ask-open");
            one.peer_request(PERMISSION);
            one.cancel(&session);
            assert_eq!(one.end_of_turn(&session, prompt), "cancelled");
            let wanted = if dialect == Dialect::V1 { "failed" } else { "cancelled" };
            let calls = one.view(&session)["toolCalls"].as_array().unwrap().clone();
            assert_eq!(calls.last().unwrap()["status"], wanted, "{calls:?}");
        }
    }
}

#[test]
fn closing_and_deleting_an_unknown_session_is_not_an_error() {
    let server = start_server("");
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut one = server.client(TransportKind::ALL[n % 3], dialect, agent);
            let mut two = server.client(TransportKind::Unix, Dialect::V2, agent);
            let session = one.new_session();
            two.load(&session);
            for method in ["session/close", "session/delete"] {
                assert_eq!(one.call(method, json!({ "sessionId": "sess-unknown" })), Ok(json!({})));
                assert_eq!(error_code(&one.call(method, json!({}))), -32602);
            }
            for client in [&mut one, &mut two] {
                assert_eq!(client.call("session/delete", json!({ "sessionId": session })), Ok(json!({})));
                assert_eq!(client.call("session/close", json!({ "sessionId": session })), Ok(json!({})));
            }
            let prompt = one.prompt(&session, "say Hello.");
            assert_eq!(error_code(&one.response(prompt)), -32002);
        }
    }
}
