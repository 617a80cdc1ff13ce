//! Fork, edit and regenerate.

use std::iter;

use parlor_dialect::Dialect;
use parlor_testkit::client::{Client, ClientBuilder};
use parlor_testkit::server::{Server, TEST_AGENTS};
use parlor_testkit::transport::TransportKind;
use serde_json::{Value, json};

use crate::start_server;

/// Agents that can fork, in different ways.
const FORKING_AGENTS: &str = r#"
[agents.at-message-v1]
command = ["TEST_AGENT", "--version", "1", "--state", "TEST_DIR/a", "--offers", "resume,fork-at-message"]
[agents.at-message-v2]
command = ["TEST_AGENT", "--version", "2", "--state", "TEST_DIR/b", "--offers", "fork-at-message"]
[agents.at-end-v1]
command = ["TEST_AGENT", "--version", "1", "--state", "TEST_DIR/c", "--offers", "resume,fork"]
[agents.at-end-v2]
command = ["TEST_AGENT", "--version", "2", "--state", "TEST_DIR/d", "--offers", "fork"]
[agents.no-ids]
command = ["TEST_AGENT", "--version", "1", "--no-message-ids", "--offers", "fork-at-message"]
[agents.resumes]
command = ["TEST_AGENT", "--version", "1", "--state", "TEST_DIR/e", "--offers", "resume"]
[agents.stuck]
command = ["sh", "TEST_DIR/stuck.sh"]
version = 1
startup_timeout = 1
[agents.claude]
command = ["TEST_AGENT", "--version", "1", "--state", "TEST_DIR/f", "--offers", "resume,air-fork", "--name", "@agentclientprotocol/claude-agent-acp", "--agent-version", "0.99.1"]
[agents.claude-v2]
command = ["TEST_AGENT", "--version", "2", "--state", "TEST_DIR/g", "--offers", "air-fork", "--name", "@agentclientprotocol/claude-agent-acp", "--agent-version", "0.99.1"]
version = 2
[agents.codex]
command = ["TEST_AGENT", "--version", "1", "--state", "TEST_DIR/h", "--offers", "resume,air-turn-fork", "--name", "@agentclientprotocol/codex-acp", "--agent-version", "2.6.0"]
[agents.claude-without-ids]
command = ["TEST_AGENT", "--version", "1", "--no-message-ids", "--offers", "air-fork", "--name", "@agentclientprotocol/claude-agent-acp", "--agent-version", "0.99.1"]
[agents.brief]
command = ["TEST_AGENT", "--version", "1", "--offers", "none"]
"#;

fn fork(client: &mut Client, session: &str, message: Option<&str>) -> Result<Value, Value> {
    let mut params = json!({ "sessionId": session, "cwd": "/", "mcpServers": [] });
    if let Some(message) = message {
        params["messageId"] = json!(message);
    }
    client.call("session/fork", params)
}

fn id(answer: &Value) -> String {
    answer["sessionId"].as_str().unwrap().to_owned()
}

/// The id of a message in a line of a transcript.
fn message(line: &str) -> String {
    let (_, rest) = line.split_once(' ').unwrap();
    serde_json::from_str(rest.split_once(": ").unwrap().0).unwrap()
}

/// A session with two turns, and its expected transcript.
fn conversation(server: &Server, client: &mut Client) -> (String, Vec<String>) {
    let session = client.new_session();
    client.turn(&session, "think Hm.\nsay One.");
    client.turn(&session, "say Two.");
    let stored = server.stored_transcript(&session);
    assert_eq!(stored.len(), 5, "{stored:#?}");
    (session, stored)
}

fn sessions(client: &mut Client) -> Vec<Value> {
    let listed = client.call("session/list", json!({ "_meta": { "parlor/agent": "*" } })).unwrap();
    listed["sessions"].as_array().unwrap().clone()
}

/// What the agent of a fork reports about its session.
fn whoami(client: &mut Client, session: &str) -> String {
    client.turn(session, "whoami");
    client.transcript(session).last().unwrap().clone()
}

#[test]
fn the_server_advertises_that_every_session_can_be_forked_at_a_message() {
    let server = start_server("");
    for dialect in Dialect::ALL {
        let client = server.client(TransportKind::Unix, dialect, "v1");
        let offered = &client.received[0]["result"];
        let offered = match dialect {
            Dialect::V1 => &offered["agentCapabilities"]["sessionCapabilities"]["fork"],
            Dialect::V2 | Dialect::Draft => &offered["capabilities"]["session"]["fork"],
        };
        assert_eq!(*offered, json!({ "atMessageId": true }));
    }
}

#[test]
fn a_fork_holds_all_messages_up_to_and_including_the_given_one() {
    let mut server = start_server("");
    let mut forks = Vec::new();
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut client = server.client(TransportKind::ALL[n % 3], dialect, agent);
            let (session, stored) = conversation(&server, &mut client);
            for (index, line) in stored.iter().enumerate() {
                let answer = fork(&mut client, &session, Some(&message(line))).unwrap();
                let forked = id(&answer);
                assert_ne!(forked, session);
                assert_eq!(answer["_meta"]["parlor/fork"], "transcript", "{answer}");
                assert_eq!(answer["_meta"]["parlor/seq"], index + 1);
                assert_eq!(answer["_meta"]["parlor/state"], "idle");
                // The ids are the same, and no turn was started.
                assert_eq!(server.stored_transcript(&forked), stored[..=index]);
                forks.push((forked, stored[..=index].to_vec()));
            }
            let all = id(&fork(&mut client, &session, None).unwrap());
            assert_eq!(server.stored_transcript(&all), stored);
            assert_eq!(server.stored_transcript(&session), stored, "the parent stays as it was");
            // Later entries of one session do not appear in the other.
            client.turn(&all, "say Three.");
            client.turn(&session, "say Four.");
            let (in_fork, in_parent) = (server.stored_transcript(&all), server.stored_transcript(&session));
            assert_eq!((in_fork[..5].to_vec(), in_parent[..5].to_vec()), (stored.clone(), stored));
            assert!(in_fork.last().unwrap().ends_with("Three."));
            assert!(in_parent.last().unwrap().ends_with("Four."));
            assert_eq!((in_fork.len(), in_parent.len()), (7, 7));
        }
    }
    server.restart();
    for (forked, stored) in forks {
        assert_eq!(server.stored_transcript(&forked), stored);
    }
}

#[test]
fn an_id_that_is_not_recognized_is_an_error_and_nothing_is_created() {
    let server = start_server("");
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut client = server.client(TransportKind::ALL[n % 3], dialect, agent);
            let (session, _) = conversation(&server, &mut client);
            let (_, others) = conversation(&server, &mut client);
            let before = sessions(&mut client).len();
            for unknown in ["nobody", "", &message(&others[0])] {
                let error = fork(&mut client, &session, Some(unknown)).unwrap_err();
                assert_eq!(error["code"], -32602);
                assert_eq!(error["data"], json!({ "messageId": unknown, "reason": "unknown" }));
            }
            for params in [
                json!({ "sessionId": session, "cwd": "/", "mcpServers": [], "messageId": 7 }),
                json!({ "sessionId": session, "cwd": "here", "mcpServers": [] }),
            ] {
                assert_eq!(client.call("session/fork", params).unwrap_err()["code"], -32602);
            }
            assert_eq!(fork(&mut client, "nobody", None).unwrap_err()["code"], -32002);
            assert_eq!(sessions(&mut client).len(), before);
        }
    }
}

#[test]
fn a_fork_during_a_turn_has_the_completed_entries_and_the_turn_continues() {
    let server = start_server("");
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut client = server.client(TransportKind::ALL[n % 3], dialect, agent);
            let (session, stored) = conversation(&server, &mut client);
            let before = sessions(&mut client).len();
            let mut other = server.client(TransportKind::Unix, Dialect::V2, agent);
            other.load(&session);
            let prompt = client.prompt(&session, "think So.\nsay Hanging.\nsleep 60000");
            other.wait_for_message(&session, "Hanging.");
            let now = other.transcript(&session);
            let [thought, hanging] =
                [now[now.len() - 2].clone(), now[now.len() - 1].clone()].map(|m| message(&m));
            let error = fork(&mut client, &session, Some(&hanging)).unwrap_err();
            assert_eq!(error["code"], -32602);
            assert_eq!(error["data"], json!({ "messageId": hanging, "reason": "being_written" }));
            assert_eq!(sessions(&mut client).len(), before);
            // At a thought; at the prompt; and at the last completed entry.
            let at_thought = id(&fork(&mut client, &session, Some(&thought)).unwrap());
            assert_eq!(server.stored_transcript(&at_thought), now[..now.len() - 1]);
            let at_end = id(&fork(&mut client, &session, None).unwrap());
            assert_eq!(server.stored_transcript(&at_end), now[..now.len() - 1]);
            let earlier = id(&fork(&mut client, &session, Some(&message(&stored[2]))).unwrap());
            assert_eq!(server.stored_transcript(&earlier), stored[..3]);
            client.turn(&earlier, "say Elsewhere.");
            assert!(dialect != Dialect::V1 || !client.has_response(prompt));
            client.cancel(&session);
            assert_eq!(client.end_of_turn(&session, prompt), "cancelled");
            assert_eq!(server.stored_transcript(&session), now);
        }
    }
}

#[test]
fn an_agent_that_can_fork_forks_its_own_session() {
    let server = start_server(FORKING_AGENTS);
    for dialect in Dialect::ALL {
        for (agent, at_message) in [
            ("at-message-v1", "native"),
            ("at-message-v2", "native"),
            ("at-end-v1", "transcript"),
            ("at-end-v2", "transcript"),
        ] {
            let mut client = server.client(TransportKind::Unix, dialect, agent);
            let (session, stored) = conversation(&server, &mut client);
            // In version 1 the agent assigns no ids to prompts; to its own messages it does in both versions.
            let answer = fork(&mut client, &session, Some(&message(&stored[2]))).unwrap();
            assert_eq!(answer["_meta"]["parlor/fork"], at_message, "{agent}: {answer}");
            let forked = id(&answer);
            assert_eq!(server.stored_transcript(&forked), stored[..3]);
            let knows = whoami(&mut client, &forked);
            let expected = if at_message == "native" { "4 messages" } else { "conversation" };
            assert!(knows.contains(expected), "{agent}: {knows}");

            let answer = fork(&mut client, &session, None).unwrap();
            assert_eq!(answer["_meta"]["parlor/fork"], "native", "{agent}: {answer}");
            assert!(answer["configOptions"].is_array() || dialect == Dialect::V1, "{answer}");
            let forked = id(&answer);
            assert_eq!(server.stored_transcript(&forked), stored);
            let knows = whoami(&mut client, &forked);
            assert!(knows.contains("6 messages"), "{agent}: {knows}");
        }
    }
}

#[test]
fn an_agent_that_is_recognised_by_its_name_forks_at_a_message_where_that_is_exact() {
    let server = start_server(FORKING_AGENTS);
    for dialect in Dialect::ALL {
        for (agent, inside_turn) in [("claude", "native"), ("claude-v2", "native"), ("codex", "transcript")] {
            let mut client = server.client(TransportKind::Unix, dialect, agent);
            let session = client.new_session();
            client.turn(&session, "two One.");
            client.turn(&session, "say Two.");
            let stored = server.stored_transcript(&session);
            assert_eq!(stored.len(), 5, "{stored:#?}");
            // Inside the first turn, at its end, and before the second prompt.
            for (index, expected) in [(1, inside_turn), (2, "native")] {
                let answer = fork(&mut client, &session, Some(&message(&stored[index]))).unwrap();
                assert_eq!(answer["_meta"]["parlor/fork"], expected, "{agent} {index}: {answer}");
                let forked = id(&answer);
                assert_eq!(server.stored_transcript(&forked), stored[..=index]);
                let knows = whoami(&mut client, &forked);
                // With the prompt that asks.
                let messages = format!("{} messages", index + 2);
                let expected = if expected == "native" { messages.as_str() } else { "conversation" };
                assert!(knows.contains(expected), "{agent} {index}: {knows}");
            }
            let answer = edit(&mut client, &session, &message(&stored[3]), "whoami").unwrap();
            assert_eq!(answer["_meta"]["parlor/fork"], "native", "{agent}: {answer}");
        }
    }
}

#[test]
fn a_recognised_agent_that_does_not_find_the_message_gets_the_transcript() {
    let server = start_server(FORKING_AGENTS);
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "claude-without-ids");
    let session = client.new_session();
    client.turn(&session, "say One.");
    client.turn(&session, "say Two.");
    let stored = server.stored_transcript(&session);
    let answer = fork(&mut client, &session, Some(&message(&stored[1]))).unwrap();
    assert_eq!(answer["_meta"]["parlor/fork"], "transcript");
    let why = answer["_meta"]["parlor/forkFailed"].as_str().unwrap();
    assert!(why.contains("was not found"), "{why}");
    let forked = id(&answer);
    assert_eq!(server.stored_transcript(&forked), stored[..2]);
    assert!(whoami(&mut client, &forked).contains("conversation"));
}

#[test]
fn an_agent_that_fails_to_fork_gets_the_transcript() {
    let server = start_server(FORKING_AGENTS);
    for dialect in Dialect::ALL {
        let mut client = server.client(TransportKind::Unix, dialect, "no-ids");
        let (session, stored) = conversation(&server, &mut client);
        let answer = fork(&mut client, &session, Some(&message(&stored[2]))).unwrap();
        assert_eq!(answer["_meta"]["parlor/fork"], "transcript");
        let why = answer["_meta"]["parlor/forkFailed"].as_str().unwrap();
        assert!(why.contains("there is no message"), "{why}");
        let forked = id(&answer);
        assert_eq!(server.stored_transcript(&forked), stored[..3]);
        assert!(whoami(&mut client, &forked).contains("conversation"));
    }
}

#[test]
fn a_fork_needs_neither_its_parent_nor_a_running_agent() {
    for agent in ["brief", "at-message-v1", "at-end-v2"] {
        let mut server = start_server(FORKING_AGENTS);
        let mut client = server.client(TransportKind::Unix, Dialect::V2, agent);
        let (session, stored) = conversation(&server, &mut client);
        server.restart();
        let mut client = server.client(TransportKind::Unix, Dialect::V2, agent);
        let mut chain = vec![session];
        for end in [5, 4, 3, 1] {
            let parent = chain.last().unwrap();
            chain.push(id(&fork(&mut client, parent, Some(&message(&stored[end - 1]))).unwrap()));
            assert_eq!(server.stored_transcript(chain.last().unwrap()), stored[..end], "{agent} {end}");
        }
        let listed = sessions(&mut client);
        for pair in chain.windows(2) {
            let info = listed.iter().find(|info| info["sessionId"] == pair[1]).unwrap();
            assert_eq!(info["_meta"]["parlor/parent"], pair[0]);
            assert!(info["_meta"]["parlor/forkedAt"].is_string());
        }
        // The oldest are deleted first, and the server is restarted in between.
        for (index, deleted) in chain[..4].iter().enumerate() {
            client.call("session/delete", json!({ "sessionId": deleted })).unwrap();
            if index == 1 {
                server.restart();
                client = server.client(TransportKind::Unix, Dialect::V2, agent);
            }
            assert_eq!(server.stored_transcript(chain.last().unwrap()), stored[..1]);
        }
        client.load(chain.last().unwrap());
        assert_eq!(client.turn(chain.last().unwrap(), "say Alone."), "end_turn");
    }
}

#[test]
fn redacted_text_stays_redacted_in_a_fork() {
    let server = start_server("");
    for dialect in Dialect::ALL {
        let mut client = server.client(TransportKind::Unix, dialect, "v2");
        let session = client.new_session();
        client.turn(&session, "redact");
        client.turn(&session, "say Later.");
        let stored = server.stored_transcript(&session);
        assert!(stored[1].ends_with("[redacted]."), "{stored:#?}");
        let forked = id(&fork(&mut client, &session, Some(&message(&stored[1]))).unwrap());
        assert_eq!(server.stored_transcript(&forked), stored[..2]);
        // The context for the agent does not have it either.
        let (index, _) = (client.mark(), client.turn(&forked, "whoami"));
        let received: Vec<_> = client.received[index..].iter().map(Value::to_string).collect();
        assert!(!received.join("\n").contains("swordfish"), "{received:?}");
    }
}

#[test]
fn a_message_can_be_selected_by_an_alias_of_its_id() {
    let mut server = start_server("");
    let mut client = server.client(TransportKind::Unix, Dialect::V1, "v2");
    let session = client.new_session();
    client.turn(&session, "redact");
    client.turn(&session, "say Later.");
    let stored = server.stored_transcript(&session);
    let replaced = message(&stored[1]);
    let restated = client.wait_for_update(&session, 0, "the message is resent", |update| {
        update["_meta"]["parlor/replaces"] == replaced
    });
    let alias = restated["messageId"].as_str().unwrap();
    assert_ne!(alias, replaced);
    let forked = id(&fork(&mut client, &session, Some(alias)).unwrap());
    assert_eq!(server.stored_transcript(&forked), stored[..2]);
    server.restart();
    let mut client = server.client(TransportKind::Unix, Dialect::V1, "v2");
    let forked = id(&fork(&mut client, &session, Some(alias)).unwrap());
    assert_eq!(server.stored_transcript(&forked), stored[..2]);
}

#[test]
fn a_fork_has_the_title_metadata_and_options_of_its_parent() {
    let server = start_server(FORKING_AGENTS);
    for (agent, dialect) in [("v2", Dialect::V2), ("brief", Dialect::V1), ("at-message-v2", Dialect::V2)] {
        let mut client = server.client(TransportKind::Unix, dialect, agent);
        let session = client.new_session();
        client.turn(&session, "title Birds\nmeta {\"tags\":[\"a\"]}\nsay One.");
        let option = json!({ "sessionId": session, "configId": "model", "value": "large" });
        let mut option_v2 = option.clone();
        option_v2["type"] = json!("id");
        client
            .call("session/set_config_option", if dialect == Dialect::V1 { option } else { option_v2 })
            .unwrap();
        let stored = server.stored_transcript(&session);
        let answer = fork(&mut client, &session, Some(&message(&stored[0]))).unwrap();
        let forked = id(&answer);
        let model = |text: &Value| {
            let options = text["configOptions"].as_array().unwrap_or_else(|| panic!("{text}"));
            let named = |option: &&Value| option["configId"] == "model" || option["id"] == "model";
            options.iter().find(named).unwrap()["currentValue"].clone()
        };
        if answer["_meta"]["parlor/fork"] == "transcript" {
            assert_eq!(model(&answer), "large", "{agent}");
        }
        assert_eq!(client.turn(&forked, "say On."), "end_turn");
        let joined = client.load(&forked);
        assert_eq!(model(&joined), "large", "{agent}");
        let info = client.view(&forked)["info"].clone();
        assert_eq!(info["title"], "Birds");
        assert_eq!(info["_meta"]["tags"], json!(["a"]));
        let listed = sessions(&mut client);
        let listed = listed.iter().find(|info| info["sessionId"] == forked).unwrap();
        assert_eq!(listed["title"], "Birds");
    }
}

#[test]
fn a_fork_starts_no_turn() {
    let server = start_server(FORKING_AGENTS);
    for agent in TEST_AGENTS.into_iter().chain(["at-message-v1", "at-message-v2", "at-end-v1", "at-end-v2"]) {
        for dialect in Dialect::ALL {
            let mut client = server.client(TransportKind::Unix, dialect, agent);
            let (session, stored) = conversation(&server, &mut client);
            // At a prompt, which an agent might answer.
            let mark = client.mark();
            let forked = id(&fork(&mut client, &session, Some(&message(&stored[3]))).unwrap());
            // By now the agent has completed a turn of another session.
            client.turn(&session, "say Three.");
            let text = client.updates(&forked, mark).filter(|update| {
                let kind = update["sessionUpdate"].as_str().unwrap();
                kind.contains("message") || kind.starts_with("state") || kind == "tool_call"
            });
            assert_eq!(text.count(), 0, "{agent} {dialect:?}");
            assert_eq!(client.load(&forked)["_meta"]["parlor/state"], "idle");
            assert_eq!(client.transcript(&forked), stored[..4]);
        }
    }
}

#[test]
fn a_prompt_is_edited_by_forking_at_the_answer_before_it() {
    let server = start_server("");
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut client = server.client(TransportKind::ALL[n % 3], dialect, agent);
            let (session, stored) = conversation(&server, &mut client);
            let forked = id(&fork(&mut client, &session, Some(&message(&stored[2]))).unwrap());
            assert_eq!(client.turn(&forked, "say Better."), "end_turn");
            let after = server.stored_transcript(&forked);
            assert_eq!(after[..3], stored[..3]);
            assert!(after[3].ends_with("say Better.") && after[4].ends_with(": Better."), "{after:#?}");
        }
    }
}

#[test]
fn the_client_that_forked_is_attached_to_the_fork() {
    let server = start_server(FORKING_AGENTS);
    for agent in ["v1", "v2", "at-end-v2"] {
        for dialect in Dialect::ALL {
            let mut client = server.client(TransportKind::Unix, dialect, agent);
            let (session, stored) = conversation(&server, &mut client);
            let forked = id(&fork(&mut client, &session, None).unwrap());
            let mut other = server.client(TransportKind::WebSocket, Dialect::V2, agent);
            other.load(&forked);
            other.turn(&forked, "say Heard?");
            let after = server.stored_transcript(&forked);
            client.wait_for_transcript(&forked, &after[stored.len()..]);
        }
    }
}

#[test]
fn an_agent_that_restarts_before_the_first_prompt_of_a_fork_gets_the_transcript() {
    let mut server = start_server(FORKING_AGENTS);
    let mut client = server.client(TransportKind::Unix, Dialect::V1, "resumes");
    let (session, stored) = conversation(&server, &mut client);
    let answer = fork(&mut client, &session, Some(&message(&stored[2]))).unwrap();
    assert_eq!(answer["_meta"]["parlor/fork"], "transcript");
    let forked = id(&answer);
    // Setting a model starts the agent, which has no context yet.
    let option = json!({ "sessionId": forked, "configId": "model", "value": "large" });
    while client.call("session/set_config_option", option.clone()).is_err() {}
    server.restart();
    let mut client = server.client(TransportKind::Unix, Dialect::V1, "resumes");
    client.load(&forked);
    let knows = whoami(&mut client, &forked);
    assert!(knows.contains("conversation") && knows.contains("model large"), "{knows}");
    // The context is sent once.
    assert!(!whoami(&mut client, &forked).contains("conversation"));
}

#[test]
fn a_rejected_prompt_does_not_count_as_handed_over_context() {
    let server = start_server(FORKING_AGENTS);
    let mut client = server.client(TransportKind::Unix, Dialect::V1, "brief");
    let (session, stored) = conversation(&server, &mut client);
    let forked = id(&fork(&mut client, &session, Some(&message(&stored[2]))).unwrap());
    let failed = client.prompt(&forked, "fail -32000 log in first");
    client.response(failed).unwrap_err();
    assert!(whoami(&mut client, &forked).contains("conversation"));
}

#[test]
fn a_fork_that_is_created_just_before_its_parent_is_deleted_is_complete() {
    let mut server = start_server(FORKING_AGENTS);
    for agent in ["v1", "at-end-v2"] {
        for is_running in [true, false] {
            let mut client = server.client(TransportKind::Unix, Dialect::V2, agent);
            let (session, stored) = conversation(&server, &mut client);
            if !is_running {
                // The fork waits for the agent while its parent is deleted.
                server.restart();
                client = server.client(TransportKind::Unix, Dialect::V2, agent);
            }
            let params = json!({ "sessionId": session, "cwd": "/", "mcpServers": [] });
            let forking = client.send("session/fork", params);
            let deleting = client.send("session/delete", json!({ "sessionId": session }));
            let forked = id(&client.response(forking).unwrap());
            client.response(deleting).unwrap();
            assert_eq!(server.stored_transcript(&forked), stored, "{agent}");
            assert_eq!(client.try_load(&session).unwrap_err()["code"], -32002);
            client.load(&forked);
            assert_eq!(client.turn(&forked, "say On."), "end_turn");
        }
    }
}

/// An agent that answers every request except forks.
const STUCK: &str = r#"
while read -r line; do
    id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
    case "$line" in
    *'"initialize"'*) result='{"protocolVersion":1,"agentCapabilities":{"sessionCapabilities":{"fork":{}}}}' ;;
    *'"session/new"'*) result='{"sessionId":"s"}' ;;
    *'"session/prompt"'*) result='{"stopReason":"end_turn"}' ;;
    *) continue ;;
    esac
    echo '{"jsonrpc":"2.0","id":'"$id"',"result":'"$result"'}'
done
"#;

#[test]
fn an_agent_that_does_not_answer_a_fork_request_gets_the_transcript() {
    let server = start_server(FORKING_AGENTS);
    std::fs::write(server.dir().path().join("stuck.sh"), STUCK).unwrap();
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "stuck");
    let session = client.new_session();
    client.turn(&session, "Hello?");
    let answer = fork(&mut client, &session, None).unwrap();
    assert_eq!(answer["_meta"]["parlor/fork"], "transcript");
    assert!(
        answer["_meta"]["parlor/forkFailed"]
            .as_str()
            .unwrap()
            .contains("did not answer session/fork within 1 s"),
        "{answer}"
    );
}

fn edit(client: &mut Client, session: &str, message: &str, text: &str) -> Result<Value, Value> {
    let prompt = json!([{ "type": "text", "text": text }]);
    client.call("_parlor/edit", json!({ "sessionId": session, "messageId": message, "prompt": prompt }))
}

fn regenerate(client: &mut Client, session: &str, message: &str) -> Result<Value, Value> {
    client.call("_parlor/regenerate", json!({ "sessionId": session, "messageId": message }))
}

#[test]
fn editing_a_prompt_keeps_everything_before_it() {
    let server = start_server(FORKING_AGENTS);
    for agent in TEST_AGENTS.into_iter().chain(["at-message-v1", "at-message-v2"]) {
        for dialect in Dialect::ALL {
            let mut client = server.client(TransportKind::Unix, dialect, agent);
            let (session, stored) = conversation(&server, &mut client);
            for (index, how) in [(3, None), (0, Some("empty"))] {
                let mark = client.mark();
                let answer = edit(&mut client, &session, &message(&stored[index]), "say Instead.").unwrap();
                if let Some(how) = how {
                    assert_eq!(answer["_meta"]["parlor/fork"], how);
                }
                let forked = id(&answer);
                client.wait_for_idle(&forked, mark);
                let after = server.stored_transcript(&forked);
                assert_eq!(after[..index], stored[..index]);
                let [prompt, text] = &after[index..] else { panic!("{after:#?}") };
                assert!(prompt.starts_with("user_message") && prompt.ends_with("say Instead."), "{after:#?}");
                assert!(text.starts_with("agent_message") && text.ends_with("Instead."), "{after:#?}");
                // The client that edited is attached, and received only the new entries.
                client.wait_for_transcript(&forked, &after[index..]);
            }
            assert_eq!(server.stored_transcript(&session), stored);
        }
    }
}

#[test]
fn regenerating_sends_the_prompt_again() {
    let server = start_server("");
    for agent in TEST_AGENTS {
        for dialect in Dialect::ALL {
            let mut client = server.client(TransportKind::Unix, dialect, agent);
            let (session, stored) = conversation(&server, &mut client);
            // By the answer, by the thought before it, by the prompt.
            for (named, prompt) in [(4, 3), (3, 3), (2, 0), (1, 0), (0, 0)] {
                let mark = client.mark();
                let answer = regenerate(&mut client, &session, &message(&stored[named])).unwrap();
                let forked = id(&answer);
                client.wait_for_idle(&forked, mark);
                let after = server.stored_transcript(&forked);
                assert_eq!(after[..prompt], stored[..prompt]);
                let texts = |lines: &[String]| -> Vec<String> {
                    lines.iter().map(|line| line.split_once(": ").unwrap().1.to_owned()).collect()
                };
                let end = if prompt == 0 { 3 } else { 5 };
                assert_eq!(texts(&after[prompt..]), texts(&stored[prompt..end]));
                // The repeated prompt is a new message.
                let ids: Vec<_> = after[prompt..].iter().map(|line| message(line)).collect();
                assert!(
                    iter::zip(&ids, &stored[prompt..]).all(|(id, line)| *id != message(line))
                        || agent != "v2"
                );
            }
            assert_eq!(server.stored_transcript(&session), stored);
        }
    }
}

#[test]
fn editing_or_regenerating_an_unsuitable_entry_is_an_error() {
    let server = start_server("");
    for agent in TEST_AGENTS {
        let mut client = server.client(TransportKind::Unix, Dialect::V2, agent);
        let (session, stored) = conversation(&server, &mut client);
        let before = sessions(&mut client).len();
        let answer = message(&stored[2]);
        let error = edit(&mut client, &session, &answer, "no").unwrap_err();
        assert_eq!(
            (error["code"].clone(), error["data"]["reason"].clone()),
            (json!(-32602), json!("not_a_prompt"))
        );
        assert_eq!(edit(&mut client, &session, "nobody", "no").unwrap_err()["data"]["reason"], "unknown");
        assert_eq!(regenerate(&mut client, &session, "nobody").unwrap_err()["data"]["reason"], "unknown");
        let prompt = json!({ "sessionId": session, "messageId": message(&stored[0]), "prompt": [] });
        assert_eq!(client.call("_parlor/edit", prompt).unwrap_err()["code"], -32602);
        let nothing = json!({ "sessionId": session });
        assert_eq!(client.call("_parlor/regenerate", nothing).unwrap_err()["code"], -32602);
        assert_eq!(sessions(&mut client).len(), before);
    }
}

#[test]
fn observers_cannot_fork() {
    let server = start_server("");
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "v1");
    let (session, stored) = conversation(&server, &mut client);
    for dialect in Dialect::ALL {
        let mut observer =
            ClientBuilder::new(TransportKind::WebSocket, dialect, "v1").observer().connect(&server);
        let first = message(&stored[0]);
        for error in [
            fork(&mut observer, &session, None).unwrap_err(),
            edit(&mut observer, &session, &first, "no").unwrap_err(),
            regenerate(&mut observer, &session, &first).unwrap_err(),
        ] {
            assert_eq!(
                (error["code"].clone(), error["data"]["reason"].clone()),
                (json!(-32600), json!("observer"))
            );
        }
    }
    assert_eq!(sessions(&mut client).len(), 1);
}

/// Forks a session for another agent.
fn hand_over(client: &mut Client, session: &str, message: Option<&str>, agent: &str) -> Result<Value, Value> {
    let mut params = json!({ "sessionId": session, "_meta": { "parlor/agent": agent } });
    if client.dialect == Dialect::V1 {
        (params["cwd"], params["mcpServers"]) = (json!("/"), json!([]));
    }
    if let Some(message) = message {
        params["messageId"] = json!(message);
    }
    client.call("session/fork", params)
}

#[test]
fn another_agent_continues_a_conversation_with_the_transcript() {
    let server = start_server(FORKING_AGENTS);
    for (from, to) in [("at-message-v1", "v2"), ("at-end-v2", "v1"), ("v2", "draft"), ("v1", "at-message-v2")]
    {
        for dialect in Dialect::ALL {
            let mut client = server.client(TransportKind::Unix, dialect, from);
            let (session, stored) = conversation(&server, &mut client);
            // The old agent may be in another mode; the new one is not put into it.
            client.turn(&session, "mode code");
            let answer = hand_over(&mut client, &session, Some(&message(&stored[2])), to).unwrap();
            assert_eq!(answer["_meta"]["parlor/fork"], "transcript", "{answer}");
            assert_eq!(answer.get("modes"), None, "{answer}");
            assert!(answer.get("configOptions").is_none_or(|options| *options == json!([])), "{answer}");
            let forked = id(&answer);
            assert_eq!(server.stored_transcript(&forked), stored[..=2]);
            let row = |client: &mut Client| {
                let listed = sessions(client);
                listed.iter().find(|row| row["sessionId"] == forked.as_str()).unwrap()["_meta"].clone()
            };
            let listed = row(&mut client);
            assert_eq!(listed["parlor/agent"], to, "{listed}");
            let from_message =
                json!({ "sessionId": session, "messageId": message(&stored[2]), "messages": 3 });
            assert_eq!(listed["parlor/row"]["forkedFrom"], from_message, "{listed}");
            assert_eq!(listed["parlor/row"].get("mode"), None, "{listed}");
            // The new agent has a session of its own, and the conversation.
            let answer = whoami(&mut client, &forked);
            assert!(answer.contains("conversation"), "{from} to {to}: {answer}");
            assert_ne!(row(&mut client)["parlor/row"]["mode"], "code");
            // The old session still has the old agent.
            assert_eq!(client.turn(&session, "say Three."), "end_turn");
        }
    }
}

#[test]
fn an_unknown_agent_cannot_continue_a_conversation() {
    let server = start_server("");
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "v1");
    let (session, stored) = conversation(&server, &mut client);
    let before = sessions(&mut client).len();
    let error = hand_over(&mut client, &session, None, "nobody").unwrap_err();
    assert_eq!(error["code"], -32602);
    let text = error["message"].as_str().unwrap();
    assert!(text.contains("'nobody'") && text.contains("v1, v2"), "{text}");
    let params = json!({ "sessionId": session, "_meta": { "parlor/agent": 7 } });
    assert_eq!(client.call("session/fork", params).unwrap_err()["code"], -32602);
    let prompt = json!([{ "type": "text", "text": "x" }]);
    let params = json!({
        "sessionId": session, "messageId": message(&stored[0]), "prompt": prompt, "_meta": { "parlor/agent": "v2" }
    });
    assert_eq!(client.call("_parlor/edit", params).unwrap_err()["code"], -32602);
    assert_eq!(sessions(&mut client).len(), before);
}

#[test]
fn a_session_whose_agent_was_removed_can_be_read_and_handed_over() {
    let mut server = start_server("[agents.removed]\ncommand = [\"TEST_AGENT\", \"--version\", \"1\"]\n");
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "removed");
    let (session, stored) = conversation(&server, &mut client);
    server.stop();
    let dir = server.dir().clone().with_test_agents("");
    server = dir.serve();
    for dialect in Dialect::ALL {
        let mut client = server.client(TransportKind::Unix, dialect, "v2");
        client.load(&session);
        assert_eq!(server.stored_transcript(&session), stored);
        assert!(sessions(&mut client).iter().any(|row| row["sessionId"] == session.as_str()));
        let prompt = client.prompt(&session, "say Three.");
        let error = client.response(prompt).unwrap_err();
        let text = error["message"].as_str().unwrap();
        assert!(text.contains("agent 'removed'"), "{text}");
        assert!(text.contains(&format!("parlor fork {session} --agent")), "{text}");
        assert_eq!(error["data"]["reason"], "agent_not_configured");
        let forked = id(&hand_over(&mut client, &session, None, "v2").unwrap());
        assert!(whoami(&mut client, &forked).contains("conversation"));
        assert_eq!(server.stored_transcript(&session), stored, "it is unchanged");
    }
}
