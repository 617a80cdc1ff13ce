//! Matching of prompts with messages and turns, for agents that assign ids in unusual ways.

use parlor_dialect::Dialect;
use parlor_testkit::client::Client;
use parlor_testkit::server::Server;
use parlor_testkit::transport::TransportKind;
use serde_json::{Value, json};

use crate::scripted_agent::{SCRIPTED_AGENTS, ScriptedAgent};
use crate::start_server;

fn text(text: &str) -> Value {
    json!([{ "type": "text", "text": text }])
}

/// Clients of all dialects that are attached to a session.
fn followers(server: &Server, agent: &str, session: &str) -> Vec<Client> {
    let clients = Dialect::ALL.into_iter().map(|dialect| {
        let mut client = server.client(TransportKind::Unix, dialect, agent);
        client.load(session);
        client
    });
    clients.collect()
}

/// Checks the transcript of attached clients and of one that attaches later.
fn all_know(server: &Server, followers: &mut [Client], session: &str, expected: &[&str]) {
    let stored = server.stored_transcript(session);
    assert_eq!(stored, expected);
    for client in followers {
        client.wait_for_transcript(session, &stored);
    }
}

#[test]
fn an_agent_replaces_or_redacts_a_prompt_that_it_has_accepted_for_everybody() {
    for agent in ["scripted-v2", "scripted-draft"] {
        for (content, is, sent) in [(text("expanded"), "expanded", "expanded"), (Value::Null, "", "")] {
            let server = start_server(SCRIPTED_AGENTS);
            let scripted = ScriptedAgent::of(&server, agent);
            let mut sender = server.client(TransportKind::Unix, Dialect::V2, agent);
            let session = sender.new_session();
            let mut there = followers(&server, agent, &session);
            let id = sender.prompt(&session, "asked");
            let prompt = scripted.prompt();
            scripted.accept(&prompt, "u1");
            if agent == "scripted-draft" {
                scripted.user_message(&prompt, "u1", &text("asked"));
            }
            assert_eq!(sender.response(id).unwrap()["messageId"], "u1");
            let kind = json!({ "sessionUpdate": "user_message", "messageId": "u1", "content": content, "_meta": { "k": 1 } });
            scripted.update(&prompt, &kind);
            scripted.state(&prompt, "running", None);
            scripted.state(&prompt, "idle", Some("end_turn"));
            sender.end_of_turn(&session, id);
            // In v1 the replacement is a new message with another id.
            let mut v1 = there.remove(0);
            let replaced = v1.wait_for_update(&session, 0, "the message is replaced", |update| {
                update["_meta"]["parlor/replaces"] == "u1"
            });
            assert_eq!(replaced["content"]["text"], sent, "{replaced}");
            all_know(&server, &mut there, &session, &[&format!("user_message \"u1\": {is}")]);
            let meta = |client: &Client| client.view(&session)["messages"][0]["_meta"].clone();
            assert_eq!((meta(&there[0]), meta(&there[1])), (json!({ "k": 1 }), json!({ "k": 1 })));
        }
    }
}

#[test]
fn a_message_that_the_agent_inserts_is_not_matched_with_the_prompt() {
    for agent in ["scripted-v2", "scripted-draft"] {
        for dialect in Dialect::ALL {
            let server = start_server(SCRIPTED_AGENTS);
            let scripted = ScriptedAgent::of(&server, agent);
            let mut sender = server.client(TransportKind::Unix, dialect, agent);
            let session = sender.new_session();
            let mut there = followers(&server, agent, &session);
            let id = sender.prompt(&session, "hello there");
            let prompt = scripted.prompt();
            scripted.user_message(&prompt, "x", &text("a reminder"));
            scripted.chunk(&prompt, "user", Some("y"), "hello");
            scripted.chunk(&prompt, "user", Some("y"), " is what they say");
            scripted.chunk(&prompt, "user", Some("u1"), "hello");
            scripted.chunk(&prompt, "user", Some("u1"), " there");
            scripted.accept(&prompt, "u1");
            scripted.state(&prompt, "running", None);
            scripted.chunk(&prompt, "agent", Some("a"), "Hi.");
            scripted.state(&prompt, "idle", Some("end_turn"));
            assert_eq!(sender.end_of_turn(&session, id), "end_turn");
            if dialect == Dialect::V2 {
                assert_eq!(sender.response(id).unwrap()["messageId"], "u1");
            }
            there.push(sender);
            let expected = [
                r#"user_message "x": a reminder"#,
                r#"user_message "y": hello is what they say"#,
                r#"user_message "u1": hello there"#,
                r#"agent_message "a": Hi."#,
            ];
            all_know(&server, &mut there, &session, &expected);
        }
    }
}

#[test]
fn the_message_in_the_response_is_the_prompt_whatever_its_content() {
    for dialect in Dialect::ALL {
        let server = start_server(SCRIPTED_AGENTS);
        let scripted = ScriptedAgent::of(&server, "scripted-v2");
        let mut sender = server.client(TransportKind::Unix, dialect, "scripted-v2");
        let session = sender.new_session();
        let mut there = followers(&server, "scripted-v2", &session);
        let id = sender.prompt(&session, "look at this");
        let prompt = scripted.prompt();
        scripted.user_message(&prompt, "u1", &text("look at this [expanded]"));
        scripted.accept(&prompt, "u1");
        scripted.state(&prompt, "running", None);
        scripted.state(&prompt, "idle", Some("end_turn"));
        assert_eq!(sender.end_of_turn(&session, id), "end_turn");
        there.push(sender);
        all_know(&server, &mut there, &session, &[r#"user_message "u1": look at this [expanded]"#]);
    }
}

#[test]
fn prompts_may_be_accepted_in_another_order_than_they_were_sent() {
    let server = start_server(SCRIPTED_AGENTS);
    let scripted = ScriptedAgent::of(&server, "scripted-v2");
    let mut v1 = server.client(TransportKind::Unix, Dialect::V1, "scripted-v2");
    let session = v1.new_session();
    let mut there = followers(&server, "scripted-v2", &session);
    let mut v2 = server.client(TransportKind::Unix, Dialect::V2, "scripted-v2");
    v2.load(&session);
    let first = v1.prompt(&session, "fix it");
    let first_prompt = scripted.prompt();
    let second = v2.prompt(&session, "fix it now");
    let second_prompt = scripted.prompt();
    let image = json!([{ "type": "image", "mimeType": "image/png", "data": "AAAA" }]);
    let third = v2.send("session/prompt", json!({ "sessionId": session, "prompt": image }));
    let third_prompt = scripted.prompt();
    // With other spacing, as a peer writes it that parses and encodes content blocks.
    let image = json!([{ "data": "AAAA", "mimeType": "image/png", "type": "image", "uri": null }]);
    scripted.user_message(&third_prompt, "u3", &image);
    scripted.accept(&third_prompt, "u3");
    for text in ["fix", " it", " now"] {
        scripted.chunk(&second_prompt, "user", Some("u2"), text);
    }
    scripted.accept(&second_prompt, "u2");
    scripted.user_message(&first_prompt, "u1", &text("fix it"));
    scripted.accept(&first_prompt, "u1");
    scripted.state(&first_prompt, "running", None);
    scripted.state(&first_prompt, "idle", Some("end_turn"));
    assert_eq!(v1.end_of_turn(&session, first), "end_turn");
    assert_eq!(v2.response(second).unwrap()["messageId"], "u2");
    assert_eq!(v2.response(third).unwrap()["messageId"], "u3");
    there.extend([v1, v2]);
    let expected =
        [r#"user_message "u3": [image]"#, r#"user_message "u2": fix it now"#, r#"user_message "u1": fix it"#];
    let stored = server.stored_transcript(&session);
    assert!(stored[0].starts_with(r#"user_message "u3": "#), "{stored:?}");
    let expected = [&*stored[0], expected[1], expected[2]];
    all_know(&server, &mut there, &session, &expected);
}

#[test]
fn a_late_response_to_a_prompt_does_not_delay_the_end_of_its_turn() {
    for dialect in Dialect::ALL {
        let server = start_server(SCRIPTED_AGENTS);
        let scripted = ScriptedAgent::of(&server, "scripted-v2");
        let mut sender = server.client(TransportKind::Unix, dialect, "scripted-v2");
        let session = sender.new_session();
        let id = sender.prompt(&session, "hello");
        let prompt = scripted.prompt();
        scripted.state(&prompt, "running", None);
        scripted.chunk(&prompt, "agent", Some("a"), "Hi.");
        scripted.state(&prompt, "idle", Some("max_tokens"));
        scripted.accept(&prompt, "u1");
        let answer = sender.response(id).unwrap();
        match dialect {
            Dialect::V1 => assert_eq!(answer["stopReason"], "max_tokens"),
            Dialect::V2 => assert_eq!(answer["messageId"], "u1"),
            Dialect::Draft => {}
        }
        // The next turn ends separately.
        let id = sender.prompt(&session, "again");
        let prompt = scripted.prompt();
        scripted.turn(&prompt, "u2", "end_turn");
        assert_eq!(sender.end_of_turn(&session, id), "end_turn");
    }
}
