//! Updates other than messages, and updates that not every dialect can express.

use parlor_dialect::Dialect;
use parlor_testkit::client::{Client, ClientBuilder, error_code};
use parlor_testkit::server::{Server, TEST_AGENTS};
use parlor_testkit::transport::TransportKind;
use serde_json::{Value, json};

use crate::{client_per_dialect, session_of, start_server};

/// One client of each dialect in one session, which the last client created.
fn three_clients(server: &Server, agent: usize) -> ([Client; 3], String) {
    let mut clients = client_per_dialect(server, agent, |builder| builder);
    let session = session_of(&mut clients, 2);
    (clients, session)
}

fn each(script: &str, mut look: impl FnMut(&Server, &str, &mut [Client; 3], &str)) {
    let server = start_server("");
    for (agent, name) in TEST_AGENTS.into_iter().enumerate() {
        let (mut clients, session) = three_clients(&server, agent);
        let marks = [clients[0].mark(), clients[1].mark()];
        clients[2].turn(&session, script);
        clients[0].wait_for_idle(&session, marks[0]);
        clients[1].wait_for_idle(&session, marks[1]);
        look(&server, name, &mut clients, &session);
    }
}

#[test]
fn the_response_to_an_accepted_prompt_precedes_its_message() {
    let server = start_server("");
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for dialect in [Dialect::V2, Dialect::Draft] {
            let mut client = server.client(TransportKind::ALL[n % 3], dialect, agent);
            let session = client.new_session();
            let prompt = client.prompt(&session, "say Hello.");
            client.end_of_turn(&session, prompt);
            let index = |wanted: &dyn Fn(&Value) -> bool| client.received.iter().position(wanted).unwrap();
            let update = |kind: &'static str, value: Value| {
                move |line: &Value| line["params"]["update"][kind] == value
            };
            let answer = index(&|line| line["id"] == prompt);
            let message = index(&update("sessionUpdate", json!("user_message")));
            let running = index(&update("state", json!("running")));
            let text = index(&update("sessionUpdate", json!("agent_message_chunk")));
            let idle = index(&update("state", json!("idle")));
            assert!(answer < message && message < running && running < text && text < idle);
            let given = &client.received[answer]["result"];
            let shown = &client.received[message]["params"]["update"]["messageId"];
            if dialect == Dialect::V2 {
                assert_eq!(given["messageId"], *shown);
            } else {
                assert_eq!(*given, json!({}));
            }
        }
    }
}

#[test]
fn messages_after_the_turn_reach_all_clients() {
    each("say Now.\nlater 20 Later.\nbackground 3", |server, agent, clients, session| {
        clients[1].wait_for("all of it", |client| {
            let text = client.transcript(session);
            let text: String =
                text.iter().filter(|line| line.starts_with("agent_message")).cloned().collect();
            (text.contains("Later.") && text.contains("Background update 3 of 3.")).then_some(())
        });
        // An agent that reports states reports when it is idle again.
        clients[1]
            .wait_for("it rests", |client| (client.view(session)["state"]["state"] == "idle").then_some(()));
        let stored = server.stored_transcript(session);
        clients.iter_mut().for_each(|client| client.wait_for_transcript(session, &stored));
        assert_eq!(clients[0].turn(session, "say More."), "end_turn", "{agent}");
    });
}

#[test]
fn titles_are_sent_to_subscribers_and_in_lists() {
    each("title First\ntitle Second", |_, agent, clients, session| {
        for client in clients.iter_mut() {
            assert_eq!(client.view(session)["info"]["title"], "Second", "{agent}");
            let listed = client.call("session/list", json!({})).unwrap();
            assert_eq!(listed["sessions"][0]["title"], "Second", "{listed}");
        }
        // Without a title from the agent, the session has the generated one.
        clients[0].turn(session, "title");
        for client in clients.iter_mut() {
            client.wait_for("the title is cleared", |client| {
                (client.view(session)["info"]["title"] == "title First").then_some(())
            });
        }
        let listed = clients[0].call("session/list", json!({})).unwrap();
        assert_eq!(listed["sessions"][0]["title"], "title First", "{listed}");
    });
}

#[test]
fn metadata_is_merged_by_the_rules_of_the_agents_dialect() {
    let script = "meta {\"a\":{\"b\":1,\"n\":{\"x\":1}},\"d\":1}\nmeta {\"a\":{\"c\":2},\"d\":null}";
    each(script, |server, agent, clients, session| {
        let a = match agent {
            "v2" => json!({ "c": 2 }),
            _ => json!({ "b": 1, "n": { "x": 1 }, "c": 2 }),
        };
        let mut late = Dialect::ALL.map(|dialect| server.client(TransportKind::Unix, dialect, agent));
        late.iter_mut().for_each(|client| drop(client.load(session)));
        for client in clients.iter().chain(&late) {
            let meta = &client.view(session)["info"]["_meta"];
            assert_eq!((&meta["a"], meta.get("d")), (&a, None), "{agent} to {:?}: {meta}", client.dialect);
        }
    });
}

#[test]
fn updates_of_plans_reach_all_clients() {
    each("plan Look; Think; Act", |server, agent, clients, session| {
        let mut late = Dialect::ALL.map(|dialect| server.client(TransportKind::Unix, dialect, agent));
        late.iter_mut().for_each(|client| drop(client.load(session)));
        for client in clients.iter().chain(&late) {
            let plans = client.view(session)["plans"].clone();
            let entries = plans[0]["entries"].as_array().unwrap();
            let done: Vec<_> = entries.iter().map(|one| (&one["content"], &one["status"])).collect();
            assert_eq!(done.len(), 3);
            assert!(done.iter().all(|(_, status)| **status == "completed"), "{agent}: {plans}");
        }
        if !matches!(agent, "v2" | "draft") {
            return;
        }
        clients[1].turn(session, "unplan\nsay Gone.");
        let stored = server.stored_transcript(session);
        for client in clients.iter_mut() {
            client.wait_for_transcript(session, &stored);
            // v1 cannot express it; a client that attaches later gets no plan.
            if client.dialect == Dialect::V1 {
                client.load(session);
            }
            let plans = client.view(session)["plans"].clone();
            let left = plans.as_array().unwrap().iter().filter(|plan| plan["entries"] != json!([]));
            assert_eq!(left.count(), 0, "{agent} to {:?}: {plans}", client.dialect);
        }
    });
}

#[test]
fn replaced_messages_are_resent_in_dialects_that_cannot_replace() {
    for (script, now) in [("redact", "The password is [redacted]."), ("redact clear", "")] {
        each(&format!("{script}\nsay On."), |server, agent, clients, session| {
            if !matches!(agent, "v2" | "draft") {
                return;
            }
            let stored = server.stored_transcript(session);
            assert!(stored[1].ends_with(&format!(": {now}")), "{stored:#?}");
            clients[1].wait_for_transcript(session, &stored);
            clients[2].wait_for_transcript(session, &stored);
            // A v1 client has received the password, and receives the replacement.
            let original = stored[1].split('"').nth(1).unwrap();
            let alias = |update: &&Value| update["_meta"]["parlor/replaces"] == original;
            let text: Vec<_> = clients[0].updates(session, 0).filter(alias).cloned().collect();
            assert_eq!(text.len(), 1, "{text:?}");
            assert_eq!(text[0]["sessionUpdate"], "agent_message_chunk");
            assert!(text[0]["messageId"] != original, "{text:?}");
            assert_eq!(text[0]["content"]["text"], now);
            // A full replay has only the replacement. In v1 an empty message is omitted.
            let left: Vec<_> = stored.into_iter().filter(|line| !line.ends_with(": ")).collect();
            clients[0].load(session);
            assert_eq!(clients[0].transcript(session), left);
        });
    }
}

#[test]
fn modes_and_options_that_one_client_sets_reach_all_clients() {
    let server = start_server("");
    for (agent, name) in TEST_AGENTS.into_iter().enumerate() {
        let (mut clients, session) = three_clients(&server, agent);
        let mut late =
            [Dialect::V2, Dialect::V1].map(|dialect| server.client(TransportKind::Unix, dialect, name));
        for setter in 0..3 {
            for (option, value, back) in [("mode", "code", "ask"), ("model", "large", "small")] {
                for value in [value, back] {
                    let marks = [0, 1, 2].map(|n| clients[n].mark());
                    set(&mut clients[setter], &session, option, value);
                    for (n, client) in clients.iter_mut().enumerate() {
                        if n != setter {
                            client.wait_for_update(&session, marks[n], option, |update| {
                                shows(update, option, value)
                            });
                        }
                    }
                    // A client that attaches again gets the current value.
                    let joined = late[0].load(&session);
                    assert!(shows(&joined, option, value), "{joined}");
                    let joined = late[1].load(&session);
                    let mode = &joined["modes"]["currentModeId"];
                    assert!(shows(&joined, option, value) || (option == "mode" && mode == value), "{joined}");
                }
            }
        }
        // The agent may change its mode.
        let marks = [0, 1, 2].map(|n| clients[n].mark());
        clients[0].turn(&session, "mode code");
        for (client, mark) in clients.iter_mut().zip(marks) {
            client.wait_for_update(&session, mark, "the mode", |update| shows(update, "mode", "code"));
        }
        let refused =
            if clients[1].dialect == Dialect::V1 { "session/set_mode" } else { "session/set_config_option" };
        let params = json!({ "sessionId": session, "configId": "mode", "value": "fly", "modeId": "fly" });
        assert_eq!(error_code(&clients[1].call(refused, params)), -32602);
    }
}

fn set(client: &mut Client, session: &str, option: &str, value: &str) {
    let params = json!({ "sessionId": session, "configId": option, "value": value });
    if client.dialect == Dialect::V1 && option == "mode" {
        client.call("session/set_mode", json!({ "sessionId": session, "modeId": value })).unwrap();
    } else {
        let answer = client.call("session/set_config_option", params).unwrap();
        assert!(shows(&answer, option, value), "{answer}");
    }
}

/// Whether an update or a response has this value for an option.
fn shows(text: &Value, option: &str, value: &str) -> bool {
    let is_it =
        |one: &Value| (one["configId"] == option || one["id"] == option) && one["currentValue"] == value;
    let listed = text["configOptions"].as_array().is_some_and(|list| list.iter().any(is_it));
    listed
        || (option == "mode"
            && text["sessionUpdate"] == "current_mode_update"
            && text["currentModeId"] == value)
}

#[test]
fn a_prompt_that_the_agent_echoes_is_one_message() {
    each("echo-user\nsay Heard.", |server, agent, clients, session| {
        let stored = server.stored_transcript(session);
        let mine = stored.iter().filter(|line| line.starts_with("user_message")).count();
        assert_eq!(mine, 1, "{agent}: {stored:#?}");
        clients.iter_mut().for_each(|client| client.wait_for_transcript(session, &stored));
    });
}

#[test]
fn the_replay_of_a_long_session_is_split_into_lines_below_the_limit() {
    let server = start_server("");
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        let mut speaker = server.client(TransportKind::Unix, Dialect::V2, agent);
        let session = speaker.new_session();
        speaker.turn(&session, "stream 20 60000\nsay Short.");
        let stored = server.stored_transcript(&session);
        for dialect in Dialect::ALL {
            let mut client =
                ClientBuilder::new(TransportKind::ALL[n % 3], dialect, agent).with_seq().connect(&server);
            client.load(&session);
            assert_eq!(client.transcript(&session), stored);
            let longest = client.received.iter().map(|line| line.to_string().len()).max().unwrap();
            assert!((60_000..(1 << 20) + 1000).contains(&longest), "{longest}");
        }
    }
}
