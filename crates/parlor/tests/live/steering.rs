//! Prompts that clients send into a running turn.

use parlor_dialect::Dialect;
use parlor_testkit::client::error_code;
use parlor_testkit::transport::TransportKind;
use serde_json::json;

use crate::{start_server, two_clients};

/// Agents that accept prompts in their turn, and agents that do not.
const AGENTS: &str = r#"
[agents.steered-v1]
command = ["TEST_AGENT", "--version", "1", "--offers", "load,steering"]
[agents.steered-v2]
command = ["TEST_AGENT", "--version", "2", "--offers", "steering"]
"#;

#[test]
fn a_prompt_joins_the_running_turn_and_all_clients_see_it_there() {
    let server = start_server(AGENTS);
    for agent in ["steered-v1", "steered-v2"] {
        for (n, dialect) in Dialect::ALL.into_iter().enumerate() {
            let (mut one, mut two, session) =
                two_clients(&server, n, agent, [Dialect::ALL[(n + 1) % 3], dialect]);
            let first = one.prompt(&session, "say Busy.\nawait-steering\nsay Over.");
            two.wait_for_message(&session, "Busy.");
            let queued = two.prompt(&session, "say Queued.");
            let now = two.prompt_with(&session, "Hurry.", json!({ "parlor/steer": true }));
            assert_eq!(one.end_of_turn(&session, first), "end_turn");
            let answer = two.response(now).unwrap();
            match dialect {
                Dialect::V1 => assert_eq!(answer["stopReason"], "end_turn"),
                Dialect::V2 => assert!(answer["messageId"].is_string(), "{answer}"),
                Dialect::Draft => {}
            }
            assert_eq!(two.end_of_turn(&session, queued), "end_turn");
            let stored = server.stored_transcript(&session);
            let texts: Vec<_> = stored.iter().filter_map(|line| Some(line.split_once(": ")?.1)).collect();
            assert_eq!(
                texts[1..],
                ["Busy.", "Hurry.", "Steered: Hurry.", "Over.", "say Queued.", "Queued."],
                "{agent} {dialect:?}: {stored:#?}"
            );
            one.wait_for_transcript(&session, &stored);
            two.wait_for_transcript(&session, &stored);
            // Also for a client that loads the session later.
            let mut three = server.client(TransportKind::Unix, dialect, agent);
            three.load(&session);
            three.wait_for_transcript(&session, &stored);
        }
    }
}

#[test]
fn without_a_turn_a_steering_prompt_is_an_ordinary_prompt() {
    let server = start_server(AGENTS);
    for agent in ["steered-v1", "steered-v2", "v1", "v2"] {
        let mut client = server.client(TransportKind::Unix, Dialect::V2, agent);
        let session = client.new_session();
        let prompt = client.prompt_with(&session, "say Hi.", json!({ "parlor/steer": true }));
        assert_eq!(client.end_of_turn(&session, prompt), "end_turn");
        let stored = server.stored_transcript(&session);
        assert!(stored.len() == 2 && stored[1].ends_with("Hi."), "{stored:#?}");
    }
}

#[test]
fn an_agent_that_cannot_be_steered_is_cancelled_only_on_request() {
    let server = start_server("");
    for agent in ["v1", "v2"] {
        for dialect in Dialect::ALL {
            let (mut one, mut two, session) = two_clients(&server, 0, agent, [dialect, Dialect::V2]);
            let first = one.prompt(&session, "say Busy.\nsleep 60000");
            two.wait_for_message(&session, "Busy.");
            let refused = one.prompt_with(&session, "say Now.", json!({ "parlor/steer": true }));
            let refused = one.response(refused);
            assert_eq!(error_code(&refused), -32602);
            let error = refused.unwrap_err();
            assert_eq!(error["data"]["reason"], "no_steering", "{error}");
            let bad = one.prompt_with(&session, "say Now.", json!({ "parlor/steer": "maybe" }));
            assert_eq!(error_code(&one.response(bad)), -32602);
            // The turn goes on, and a prompt of another client waits.
            let queued = (agent == "v1").then(|| two.prompt(&session, "say Queued."));
            if queued.is_some() {
                one.wait_for_queue(&session, &["say Queued."]);
            }
            let now =
                one.prompt_with(&session, "say Now.", json!({ "parlor/steer": "cancel", "parlor/key": "k" }));
            assert_eq!(one.end_of_turn(&session, first), "cancelled");
            assert_eq!(one.end_of_turn(&session, now), "end_turn");
            if let Some(queued) = queued {
                assert_eq!(two.end_of_turn(&session, queued), "end_turn");
            }
            // The same key is the same prompt: it cancels nothing.
            let long = one.prompt(&session, "say Long.\nsleep 60000");
            two.wait_for_message(&session, "Long.");
            let again =
                one.prompt_with(&session, "say Now.", json!({ "parlor/steer": "cancel", "parlor/key": "k" }));
            assert!(one.response(again).is_ok());
            assert!(dialect != Dialect::V1 || !one.has_response(long));
            one.cancel(&session);
            assert_eq!(one.end_of_turn(&session, long), "cancelled");
            let stored = server.stored_transcript(&session);
            let texts: Vec<_> = stored.iter().filter_map(|line| Some(line.split_once(": ")?.1)).collect();
            let mut expected = vec!["Busy.", "say Now.", "Now."];
            if queued.is_some() {
                expected.extend(["say Queued.", "Queued."]);
            }
            let said = &texts[1..texts.len() - 2];
            assert_eq!(said, expected, "{agent} {dialect:?}: {stored:#?}");
        }
    }
}
