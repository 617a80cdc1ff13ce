//! The context that an agent gets with a prompt: its form, that it is not shown, and when it counts as handed over.

use parlor_dialect::Dialect;
use parlor_testkit::client::Client;
use parlor_testkit::transport::TransportKind;
use serde_json::{Value, json};

use crate::scripted_agent::{SCRIPTED_AGENTS, ScriptedAgent};
use crate::start_server;

const TEST_AGENTS: [&str; 3] = ["scripted-v1", "scripted-v2", "scripted-draft"];

/// Creates a fork of a session with one turn, whose agent has no context.
fn fork(client: &mut Client, scripted: &ScriptedAgent) -> String {
    let session = client.new_session();
    let id = client.prompt(&session, "Fix the login page");
    scripted.turn(&scripted.prompt(), "u1", "end_turn");
    assert_eq!(client.end_of_turn(&session, id), "end_turn");
    let forked =
        client.call("session/fork", json!({ "sessionId": session, "cwd": "/", "mcpServers": [] })).unwrap();
    assert_eq!(forked["_meta"]["parlor/fork"], "transcript");
    forked["sessionId"].as_str().unwrap().to_owned()
}

/// The context before a prompt, if there is any.
fn context(prompt: &Value) -> Option<&str> {
    let blocks = prompt["params"]["prompt"].as_array().unwrap();
    let [context, _] = &blocks[..] else {
        assert_eq!(blocks.len(), 1, "{prompt}");
        return None;
    };
    assert_eq!(context["type"], "text", "{prompt}");
    context["text"].as_str()
}

#[test]
fn the_context_is_sent_with_the_first_prompt_only() {
    for agent in TEST_AGENTS {
        let server = start_server(SCRIPTED_AGENTS);
        let scripted = ScriptedAgent::of(&server, agent);
        let mut client = server.client(TransportKind::Unix, Dialect::V2, agent);
        let forked = fork(&mut client, &scripted);
        for (n, has_context) in [(2, true), (3, false)] {
            let id = client.prompt(&forked, "And the footer?");
            let prompt = scripted.prompt();
            let text = context(&prompt);
            assert_eq!(text.is_some(), has_context, "{prompt}");
            if let Some(text) = text {
                assert!(text.contains("User:\n> Fix the login page\n"), "{text}");
                assert!(text.contains("Assistant:\n> word\n"), "{text}");
                assert!(!text.contains("footer"), "{text}");
            }
            scripted.turn(&prompt, &format!("u{n}"), "end_turn");
            assert_eq!(client.end_of_turn(&forked, id), "end_turn");
        }
    }
}

#[test]
fn the_context_is_not_shown_if_the_agent_echoes_it() {
    for agent in TEST_AGENTS {
        for in_chunks in [true, false] {
            let server = start_server(SCRIPTED_AGENTS);
            let scripted = ScriptedAgent::of(&server, agent);
            let mut client = server.client(TransportKind::Unix, Dialect::V2, agent);
            let forked = fork(&mut client, &scripted);
            let mut there: Vec<_> =
                Dialect::ALL.map(|dialect| server.client(TransportKind::Unix, dialect, agent)).into();
            there.iter_mut().for_each(|client| drop(client.load(&forked)));
            let id = client.prompt(&forked, "And the footer?");
            let prompt = scripted.prompt();
            let blocks = &prompt["params"]["prompt"];
            let is_v1 = agent == "scripted-v1";
            let named = |id| if is_v1 { None } else { Some(id) };
            if in_chunks || is_v1 {
                for block in blocks.as_array().unwrap() {
                    scripted.chunk(&prompt, "user", named("u2"), block["text"].as_str().unwrap());
                }
            } else {
                scripted.user_message(&prompt, "u2", blocks);
            }
            // Some agents only echo the prompt.
            for block in blocks.as_array().unwrap() {
                scripted.chunk(&prompt, "agent", named("echo"), block["text"].as_str().unwrap());
            }
            scripted.turn(&prompt, "u2", "end_turn");
            assert_eq!(client.end_of_turn(&forked, id), "end_turn");
            let stored = server.stored_transcript(&forked);
            let texts: Vec<_> = stored.iter().map(|line| line.split_once(": ").unwrap().1).collect();
            let expected = if is_v1 {
                vec!["Fix the login page", "word", "And the footer?", "And the footer?word"]
            } else {
                vec!["Fix the login page", "word", "And the footer?", "And the footer?", "word"]
            };
            assert_eq!(texts, expected, "{agent}, {in_chunks}");
            there.iter_mut().for_each(|client| client.wait_for_transcript(&forked, &stored));
            there.push(client);
            for client in &there {
                let received = json!(client.received).to_string();
                assert!(
                    !received.contains("conversation so far") && !received.contains("<conversation"),
                    "{received}"
                );
            }
        }
    }
}

#[test]
fn a_slash_command_is_sent_without_context_and_the_next_prompt_has_it() {
    for agent in TEST_AGENTS {
        let server = start_server(SCRIPTED_AGENTS);
        let scripted = ScriptedAgent::of(&server, agent);
        let mut client = server.client(TransportKind::Unix, Dialect::V1, agent);
        let forked = fork(&mut client, &scripted);
        for (n, text, has_context) in [(2, "/compact", false), (3, "Go on", true), (4, "Go on", false)] {
            let id = client.prompt(&forked, text);
            let prompt = scripted.prompt();
            assert_eq!(context(&prompt).is_some(), has_context, "{prompt}");
            scripted.turn(&prompt, &format!("u{n}"), "end_turn");
            assert_eq!(client.end_of_turn(&forked, id), "end_turn");
        }
    }
}

#[test]
fn the_context_is_sent_again_until_a_turn_with_it_completes() {
    for agent in TEST_AGENTS {
        let server = start_server(SCRIPTED_AGENTS);
        let scripted = ScriptedAgent::of(&server, agent);
        let mut client = server.client(TransportKind::Unix, Dialect::V2, agent);
        let forked = fork(&mut client, &scripted);
        let turns = [
            ("cancelled", true),
            ("refusal", true),
            ("failed", true),
            ("max_tokens", true),
            ("end_turn", false),
        ];
        for (n, (reason, has_context)) in turns.into_iter().enumerate() {
            let id = client.prompt(&forked, "Go on");
            let prompt = scripted.prompt();
            assert_eq!(context(&prompt).is_some(), has_context, "{agent}, {reason}: {prompt}");
            if reason != "failed" {
                scripted.turn(&prompt, &format!("u{n}"), reason);
                assert_eq!(client.end_of_turn(&forked, id), reason);
                continue;
            }
            let error = json!({ "code": -32603, "message": "no" });
            scripted.send(&json!({ "jsonrpc": "2.0", "id": prompt["id"], "error": error }));
            let mark = client.mark();
            match agent {
                "scripted-v1" => assert_eq!(client.wait_for_idle(&forked, mark), "error"),
                _ => assert_eq!(client.response(id).unwrap_err()["message"], "no"),
            }
        }
    }
}

#[test]
fn a_title_that_the_agent_makes_from_the_context_does_not_replace_the_parents_title() {
    for agent in TEST_AGENTS {
        let server = start_server(SCRIPTED_AGENTS);
        let scripted = ScriptedAgent::of(&server, agent);
        let mut client = server.client(TransportKind::Unix, Dialect::V2, agent);
        let forked = fork(&mut client, &scripted);
        let title = |client: &mut Client| {
            let listed = client.call("session/list", json!({})).unwrap();
            let sessions = listed["sessions"].as_array().unwrap().clone();
            sessions.into_iter().find(|session| session["sessionId"] == *forked).unwrap()["title"].clone()
        };
        assert_eq!(title(&mut client), "Fix the login page");
        for (n, text, is) in [
            (2, "This is the conversation so far, from before…", "Fix the login page"),
            (3, "<conversation id", "Fix the login page"),
            (4, "word", "Fix the login page"),
            (5, "The footer", "The footer"),
        ] {
            let id = client.prompt(&forked, "And the footer?");
            let prompt = scripted.prompt();
            let update =
                json!({ "sessionUpdate": "session_info_update", "title": text, "_meta": { "n": n } });
            scripted.update(&prompt, &update);
            scripted.turn(&prompt, &format!("u{n}"), "end_turn");
            assert_eq!(client.end_of_turn(&forked, id), "end_turn");
            assert_eq!(title(&mut client), is, "{agent}");
            assert_eq!(client.view(&forked)["info"]["_meta"]["n"], n);
        }
    }
}
