//! Prompts that wait, are taken back, come twice, fail; and turns that are cancelled.

use parlor_dialect::Dialect;
use serde_json::{Value, json};

use crate::client::{Client, code};
use crate::doors::{DOORS, Door};
use crate::server::{AGENTS, Server};

/// The user's messages, in order.
fn asked(truth: &[String]) -> Vec<&str> {
    let mine = truth.iter().filter(|line| line.starts_with("user_message"));
    mine.filter_map(|line| Some(line.split_once(": ")?.1)).collect()
}

/// Begins a turn that goes on until its question is answered.
fn begin(client: &mut Client, session: &str) -> (u64, Value) {
    let prompt = client.prompt(session, "say Busy.\nask\nsay Over.");
    (prompt, client.question("session/request_permission"))
}

#[test]
fn prompts_that_come_during_a_turn_wait_in_order() {
    let server = Server::start();
    for (n, agent) in AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut one = server.client(DOORS[n % 3], dialect, agent);
            let mut two = server.client(DOORS[(n + 1) % 3], Dialect::ALL[(n + 1) % 3], agent);
            let session = one.new_session();
            two.load(&session);
            let (first, question) = begin(&mut one, &session);
            let second = one.prompt(&session, "say Second.");
            two.holds(&session, &["say Second."]);
            let third = two.prompt(&session, "say Third.");
            let held = one.holds(&session, &["say Second.", "say Third."]);
            assert!(held[0]["id"] != held[1]["id"] && held[0]["from"] != held[1]["from"], "{held:?}");
            assert!(!one.is_answered(second) && !two.is_answered(third));
            one.choose(&question, "allow-once");
            one.end_of(&session, first);
            assert_eq!(one.end_of(&session, second), "end_turn");
            assert_eq!(two.end_of(&session, third), "end_turn");
            one.holds(&session, &[]);
            let truth = server.truth(&session);
            assert_eq!(asked(&truth)[1..], ["say Second.", "say Third."], "{truth:#?}");
            assert!(truth.last().unwrap().ends_with("Third."), "{truth:#?}");
            one.comes_to(&session, &truth);
            two.comes_to(&session, &truth);
        }
    }
}

#[test]
fn a_prompt_that_waits_is_taken_back_by_its_sender_or_by_any_driver() {
    let server = Server::start();
    for (n, agent) in AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut one = server.client(DOORS[n % 3], dialect, agent);
            let mut two = server.client(DOORS[(n + 1) % 3], Dialect::V2, agent);
            let session = one.new_session();
            two.load(&session);
            let (first, question) = begin(&mut one, &session);
            let mine = one.prompt(&session, "say Mine.");
            let ours = one.prompt(&session, "say Ours.");
            let last = one.prompt(&session, "say Last.");
            one.holds(&session, &["say Mine.", "say Ours.", "say Last."]);
            one.take_back(mine);
            gone(dialect, &one.answer(mine));
            let held = two.holds(&session, &["say Ours.", "say Last."]);
            let params = json!({ "sessionId": session, "id": held[0]["id"] });
            assert_eq!(two.call("_parlor/withdraw", params.clone()), Ok(json!({})));
            gone(dialect, &one.answer(ours));
            two.holds(&session, &["say Last."]);
            assert_eq!(code(&two.call("_parlor/withdraw", params)), -32602);
            one.choose(&question, "allow-once");
            one.end_of(&session, first);
            one.end_of(&session, last);
            let truth = server.truth(&session);
            assert_eq!(asked(&truth)[1..], ["say Last."], "{truth:#?}");
        }
    }
}

/// What a client is told of a prompt that was taken back.
fn gone(dialect: Dialect, answer: &Result<Value, Value>) {
    if dialect == Dialect::V1 {
        assert_eq!(answer.as_ref().unwrap()["stopReason"], "cancelled");
    } else {
        assert_eq!(code(answer), -32800);
    }
}

#[test]
fn cancelling_ends_the_turn_and_takes_back_all_that_waits() {
    let server = Server::start();
    for (n, agent) in AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut one = server.client(DOORS[n % 3], dialect, agent);
            let mut two = server.client(Door::Unix, Dialect::V1, agent);
            let session = one.new_session();
            two.load(&session);
            let (first, _) = begin(&mut one, &session);
            let second = one.prompt(&session, "say Second.");
            two.holds(&session, &["say Second."]);
            let third = two.prompt(&session, "say Third.");
            two.holds(&session, &["say Second.", "say Third."]);
            two.cancel(&session);
            assert_eq!(one.end_of(&session, first), "cancelled");
            gone(dialect, &one.answer(second));
            gone(Dialect::V1, &two.answer(third));
            assert_eq!(one.turn(&session, "say Again."), "end_turn");
            let truth = server.truth(&session);
            assert_eq!(asked(&truth)[1..], ["say Again."], "{truth:#?}");
        }
    }
}

#[test]
fn a_prompt_with_a_key_counts_once() {
    let server = Server::start();
    for (n, agent) in AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let key = json!({ "parlor/key": "k-1" });
            let mut one = server.client(DOORS[n % 3], dialect, agent);
            let session = one.new_session();
            one.prompt_with(&session, "ask", key.clone());
            one.question("session/request_permission");
            drop(one);
            // Its connection was lost before it had an answer, or after.
            let mut again = server.client(DOORS[(n + 1) % 3], dialect, agent);
            again.load(&session);
            let prompt = again.prompt_with(&session, "ask", key.clone());
            let question = again.question("session/request_permission");
            again.choose(&question, "allow-once");
            let answer = again.answer(prompt).unwrap();
            if dialect == Dialect::V1 {
                assert_eq!(answer["stopReason"], "end_turn");
            }
            let other = again.prompt_with(&session, "say Another.", json!({ "parlor/key": "k-2" }));
            again.end_of(&session, other);
            let prompt = again.prompt_with(&session, "ask", key);
            let later = again.answer(prompt).unwrap();
            assert_eq!(later["messageId"], answer["messageId"]);
            let truth = server.truth(&session);
            assert_eq!(asked(&truth).len(), 2, "{truth:#?}");
        }
    }
}

#[test]
fn a_prompt_that_fails_is_an_error_for_v1_and_a_state_for_v2() {
    let server = Server::start();
    for (n, agent) in AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut one = server.client(DOORS[n % 3], dialect, agent);
            let session = one.new_session();
            let prompt = one.prompt(&session, "say Trying.\nfail -32050 no luck");
            if dialect == Dialect::V1 {
                let failed = one.answer(prompt).unwrap_err();
                assert_eq!((&failed["code"], &failed["message"]), (&json!(-32050), &json!("no luck")));
            } else {
                assert_eq!(one.end_of(&session, prompt), "error");
                assert_eq!(one.view(&session)["state"]["error"]["message"], "no luck");
            }
            let refused = one.prompt(&session, "refuse");
            assert_eq!(one.end_of(&session, refused), "refusal");
            assert_eq!(one.turn(&session, "say Better."), "end_turn");
            one.hears(&session, "Better.");
        }
    }
}

#[test]
fn one_connection_takes_part_in_several_sessions() {
    let server = Server::start();
    for (n, agent) in AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut client = server.client(DOORS[n % 3], dialect, agent);
            let sessions = [client.new_session(), client.new_session()];
            let long = client.prompt(&sessions[0], "say Long.\nask\nsay End.");
            let question = client.question("session/request_permission");
            // The other one goes on meanwhile.
            assert_eq!(client.turn(&sessions[1], "say Short."), "end_turn");
            assert_eq!(question["params"]["sessionId"], sessions[0].as_str());
            client.choose(&question, "allow-once");
            client.end_of(&sessions[0], long);
            for session in &sessions {
                let truth = server.truth(session);
                client.comes_to(session, &truth);
            }
            let listed = client.call("session/list", json!({})).unwrap();
            let listed: Vec<_> =
                listed["sessions"].as_array().unwrap().iter().map(|one| one["sessionId"].clone()).collect();
            assert!(sessions.iter().all(|session| listed.contains(&json!(session))), "{listed:?}");
        }
    }
}

#[test]
fn who_closes_the_session_takes_back_what_it_sent() {
    let server = Server::start();
    for (n, agent) in AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut one = server.client(DOORS[n % 3], Dialect::V2, agent);
            let mut two = server.client(DOORS[(n + 1) % 3], dialect, agent);
            let session = one.new_session();
            two.load(&session);
            let (first, question) = begin(&mut one, &session);
            let second = two.prompt(&session, "say Second.");
            one.holds(&session, &["say Second."]);
            let third = one.prompt(&session, "say Third.");
            two.holds(&session, &["say Second.", "say Third."]);
            assert_eq!(two.call("session/close", json!({ "sessionId": session })), Ok(json!({})));
            gone(dialect, &two.answer(second));
            one.holds(&session, &["say Third."]);
            one.choose(&question, "allow-once");
            one.end_of(&session, first);
            one.end_of(&session, third);
            let truth = server.truth(&session);
            assert_eq!(asked(&truth)[1..], ["say Third."], "{truth:#?}");
        }
    }
}

#[test]
fn a_turn_ends_for_all_when_somebody_deletes_the_session() {
    let server = Server::start();
    for (n, agent) in AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut one = server.client(DOORS[n % 3], dialect, agent);
            let mut two = server.client(DOORS[(n + 1) % 3], Dialect::V2, agent);
            let session = one.new_session();
            two.load(&session);
            let (first, question) = begin(&mut one, &session);
            let second = one.prompt(&session, "say Second.");
            two.holds(&session, &["say Second."]);
            let mark = two.mark();
            assert_eq!(two.call("session/delete", json!({ "sessionId": session })), Ok(json!({})));
            assert_eq!(one.end_of(&session, first), "cancelled");
            assert_eq!(two.idle(&session, mark), "cancelled");
            gone(dialect, &one.answer(second));
            one.taken_back(&question);
            let late = one.prompt(&session, "say Late.");
            assert_eq!(code(&one.answer(late)), -32002);
        }
    }
}
