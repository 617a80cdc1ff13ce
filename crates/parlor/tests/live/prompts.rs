//! Prompts that are queued, withdrawn, sent twice or fail; and turns that are cancelled.

use parlor_dialect::Dialect;
use parlor_testkit::client::{Client, error_code};
use parlor_testkit::server::TEST_AGENTS;
use parlor_testkit::transport::TransportKind;
use serde_json::{Value, json};

use crate::{start_server, two_clients};

/// The prompts in a transcript, in order.
fn prompt_texts(stored: &[String]) -> Vec<&str> {
    let mine = stored.iter().filter(|line| line.starts_with("user_message"));
    mine.filter_map(|line| Some(line.split_once(": ")?.1)).collect()
}

/// Starts a turn that runs until its permission request is answered.
fn start_turn(client: &mut Client, session: &str) -> (u64, Value) {
    let prompt = client.prompt(session, "say Busy.\nask\nsay Over.");
    (prompt, client.peer_request("session/request_permission"))
}

#[test]
fn prompts_during_a_turn_are_queued_in_order() {
    let server = start_server("");
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let (mut one, mut two, session) =
                two_clients(&server, n, agent, [dialect, Dialect::ALL[(n + 1) % 3]]);
            let (first, peer_request) = start_turn(&mut one, &session);
            let second = one.prompt(&session, "say Second.");
            two.wait_for_queue(&session, &["say Second."]);
            let third = two.prompt(&session, "say Third.");
            let queue = one.wait_for_queue(&session, &["say Second.", "say Third."]);
            assert!(queue[0]["id"] != queue[1]["id"] && queue[0]["from"] != queue[1]["from"], "{queue:?}");
            assert!(!one.has_response(second) && !two.has_response(third));
            one.choose(&peer_request, "allow-once");
            one.end_of_turn(&session, first);
            assert_eq!(one.end_of_turn(&session, second), "end_turn");
            assert_eq!(two.end_of_turn(&session, third), "end_turn");
            one.wait_for_queue(&session, &[]);
            let stored = server.stored_transcript(&session);
            assert_eq!(prompt_texts(&stored)[1..], ["say Second.", "say Third."], "{stored:#?}");
            assert!(stored.last().unwrap().ends_with("Third."), "{stored:#?}");
            one.wait_for_transcript(&session, &stored);
            two.wait_for_transcript(&session, &stored);
        }
    }
}

#[test]
fn a_queued_prompt_can_be_withdrawn_by_its_sender_or_any_driver() {
    let server = start_server("");
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let (mut one, mut two, session) = two_clients(&server, n, agent, [dialect, Dialect::V2]);
            let (first, peer_request) = start_turn(&mut one, &session);
            let mine = one.prompt(&session, "say Mine.");
            let ours = one.prompt(&session, "say Ours.");
            let last = one.prompt(&session, "say Last.");
            one.wait_for_queue(&session, &["say Mine.", "say Ours.", "say Last."]);
            one.cancel_request(mine);
            assert_withdrawn(dialect, &one.response(mine));
            let queue = two.wait_for_queue(&session, &["say Ours.", "say Last."]);
            let params = json!({ "sessionId": session, "id": queue[0]["id"] });
            assert_eq!(two.call("_parlor/withdraw", params.clone()), Ok(json!({})));
            assert_withdrawn(dialect, &one.response(ours));
            two.wait_for_queue(&session, &["say Last."]);
            assert_eq!(error_code(&two.call("_parlor/withdraw", params)), -32602);
            one.choose(&peer_request, "allow-once");
            one.end_of_turn(&session, first);
            one.end_of_turn(&session, last);
            let stored = server.stored_transcript(&session);
            assert_eq!(prompt_texts(&stored)[1..], ["say Last."], "{stored:#?}");
        }
    }
}

/// Checks the response to a prompt that was withdrawn.
fn assert_withdrawn(dialect: Dialect, answer: &Result<Value, Value>) {
    if dialect == Dialect::V1 {
        assert_eq!(answer.as_ref().unwrap()["stopReason"], "cancelled");
    } else {
        assert_eq!(error_code(answer), -32800);
    }
}

#[test]
fn cancelling_ends_the_turn_and_withdraws_queued_prompts() {
    let server = start_server("");
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut one = server.client(TransportKind::ALL[n % 3], dialect, agent);
            let mut two = server.client(TransportKind::Unix, Dialect::V1, agent);
            let session = one.new_session();
            two.load(&session);
            let (first, _) = start_turn(&mut one, &session);
            let second = one.prompt(&session, "say Second.");
            two.wait_for_queue(&session, &["say Second."]);
            let third = two.prompt(&session, "say Third.");
            two.wait_for_queue(&session, &["say Second.", "say Third."]);
            two.cancel(&session);
            assert_eq!(one.end_of_turn(&session, first), "cancelled");
            assert_withdrawn(dialect, &one.response(second));
            assert_withdrawn(Dialect::V1, &two.response(third));
            assert_eq!(one.turn(&session, "say Again."), "end_turn");
            let stored = server.stored_transcript(&session);
            assert_eq!(prompt_texts(&stored)[1..], ["say Again."], "{stored:#?}");
        }
    }
}

#[test]
fn a_prompt_with_an_idempotency_key_is_accepted_once() {
    let server = start_server("");
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let key = json!({ "parlor/key": "k-1" });
            let mut one = server.client(TransportKind::ALL[n % 3], dialect, agent);
            let session = one.new_session();
            one.prompt_with(&session, "ask", key.clone());
            one.peer_request("session/request_permission");
            drop(one);
            // Its connection was lost before or after the response.
            let mut again = server.client(TransportKind::ALL[(n + 1) % 3], dialect, agent);
            again.load(&session);
            let prompt = again.prompt_with(&session, "ask", key.clone());
            let peer_request = again.peer_request("session/request_permission");
            again.choose(&peer_request, "allow-once");
            let answer = again.response(prompt).unwrap();
            if dialect == Dialect::V1 {
                assert_eq!(answer["stopReason"], "end_turn");
            }
            let other = again.prompt_with(&session, "say Another.", json!({ "parlor/key": "k-2" }));
            again.end_of_turn(&session, other);
            let prompt = again.prompt_with(&session, "ask", key);
            let later = again.response(prompt).unwrap();
            assert_eq!(later["messageId"], answer["messageId"]);
            let stored = server.stored_transcript(&session);
            assert_eq!(prompt_texts(&stored).len(), 2, "{stored:#?}");
        }
    }
}

#[test]
fn a_prompt_that_fails_is_an_error_for_v1_and_a_state_for_v2() {
    let server = start_server("");
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut one = server.client(TransportKind::ALL[n % 3], dialect, agent);
            let session = one.new_session();
            let prompt = one.prompt(&session, "say Trying.\nfail -32050 no luck");
            if dialect == Dialect::V1 {
                let failed = one.response(prompt).unwrap_err();
                assert_eq!((&failed["code"], &failed["message"]), (&json!(-32050), &json!("no luck")));
            } else {
                assert_eq!(one.end_of_turn(&session, prompt), "error");
                assert_eq!(one.view(&session)["state"]["error"]["message"], "no luck");
            }
            let refused = one.prompt(&session, "refuse");
            assert_eq!(one.end_of_turn(&session, refused), "refusal");
            assert_eq!(one.turn(&session, "say Better."), "end_turn");
            one.wait_for_message(&session, "Better.");
        }
    }
}

#[test]
fn one_connection_is_attached_to_several_sessions() {
    let server = start_server("");
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut client = server.client(TransportKind::ALL[n % 3], dialect, agent);
            let sessions = [client.new_session(), client.new_session()];
            let long = client.prompt(&sessions[0], "say Long.\nask\nsay End.");
            let peer_request = client.peer_request("session/request_permission");
            // The other session continues meanwhile.
            assert_eq!(client.turn(&sessions[1], "say Short."), "end_turn");
            assert_eq!(peer_request["params"]["sessionId"], sessions[0].as_str());
            client.choose(&peer_request, "allow-once");
            client.end_of_turn(&sessions[0], long);
            for session in &sessions {
                let stored = server.stored_transcript(session);
                client.wait_for_transcript(session, &stored);
            }
            let listed = client.call("session/list", json!({})).unwrap();
            let listed: Vec<_> =
                listed["sessions"].as_array().unwrap().iter().map(|one| one["sessionId"].clone()).collect();
            assert!(sessions.iter().all(|session| listed.contains(&json!(session))), "{listed:?}");
        }
    }
}

#[test]
fn closing_the_session_withdraws_the_prompts_of_that_client() {
    let server = start_server("");
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut one = server.client(TransportKind::ALL[n % 3], Dialect::V2, agent);
            let mut two = server.client(TransportKind::ALL[(n + 1) % 3], dialect, agent);
            let session = one.new_session();
            two.load(&session);
            let (first, peer_request) = start_turn(&mut one, &session);
            let second = two.prompt(&session, "say Second.");
            one.wait_for_queue(&session, &["say Second."]);
            let third = one.prompt(&session, "say Third.");
            two.wait_for_queue(&session, &["say Second.", "say Third."]);
            assert_eq!(two.call("session/close", json!({ "sessionId": session })), Ok(json!({})));
            assert_withdrawn(dialect, &two.response(second));
            one.wait_for_queue(&session, &["say Third."]);
            one.choose(&peer_request, "allow-once");
            one.end_of_turn(&session, first);
            one.end_of_turn(&session, third);
            let stored = server.stored_transcript(&session);
            assert_eq!(prompt_texts(&stored)[1..], ["say Third."], "{stored:#?}");
        }
    }
}

#[test]
fn deleting_a_session_ends_its_turn_for_all_clients() {
    let server = start_server("");
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let (mut one, mut two, session) = two_clients(&server, n, agent, [dialect, Dialect::V2]);
            let (first, peer_request) = start_turn(&mut one, &session);
            let second = one.prompt(&session, "say Second.");
            two.wait_for_queue(&session, &["say Second."]);
            let mark = two.mark();
            assert_eq!(two.call("session/delete", json!({ "sessionId": session })), Ok(json!({})));
            assert_eq!(one.end_of_turn(&session, first), "cancelled");
            assert_eq!(two.wait_for_idle(&session, mark), "cancelled");
            assert_withdrawn(dialect, &one.response(second));
            one.wait_for_cancel(&peer_request);
            let late = one.prompt(&session, "say Late.");
            assert_eq!(error_code(&one.response(late)), -32002);
        }
    }
}
