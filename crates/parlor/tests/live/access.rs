//! Who may do what, what does not exist, and what is not said properly.

use parlor_dialect::Dialect;
use serde_json::json;

use crate::client::{Guest, code};
use crate::doors::{DOORS, Door};
use crate::server::{AGENTS, Server};

#[test]
fn an_observer_watches_and_does_nothing_else() {
    let server = Server::start();
    for agent in AGENTS {
        for dialect in Dialect::ALL {
            let mut driver = server.client(Door::Unix, Dialect::V2, agent);
            let session = driver.new_session();
            driver.turn(&session, "say Before.");
            let mut observer = Guest::new(Door::Web, dialect, agent).observing().join(&server);
            observer.load(&session);
            let about = json!({ "sessionId": session });
            let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "say No." }] });
            for (method, params) in [
                ("session/prompt", prompt),
                ("session/new", json!({ "cwd": "/", "mcpServers": [] })),
                ("session/delete", about.clone()),
                ("session/close", about.clone()),
                ("session/set_mode", json!({ "sessionId": session, "modeId": "code" })),
                ("_parlor/unhold", json!({ "sessionId": session, "id": 1 })),
                ("_example/anything", about.clone()),
            ] {
                let refused = observer.call(method, params).unwrap_err();
                assert_eq!(refused["code"], -32600, "{method}: {refused}");
                assert_eq!(refused["data"]["reason"], "observer", "{method}: {refused}");
            }
            let prompt = driver.prompt(&session, "ask\nsay After.");
            observer.cancel(&session);
            let question = driver.question("session/request_permission");
            driver.choose(&question, "allow-once");
            assert_eq!(driver.end_of(&session, prompt), "end_turn");
            let truth = server.truth(&session);
            observer.comes_to(&session, &truth);
            let requests =
                |line: &serde_json::Value| line.get("method").is_some() && line.get("id").is_some();
            assert!(!observer.heard.iter().any(requests), "it is asked nothing");
        }
    }
}

#[test]
fn what_does_not_exist_is_not_found() {
    let server = Server::start();
    for (dialect, door) in Dialect::ALL.into_iter().zip(DOORS) {
        let mut client = server.client(door, dialect, "v2");
        assert_eq!(code(&client.try_load("nowhere")), -32002);
        assert_eq!(code(&client.resume("nowhere", None)), -32002);
        let prompt = client.prompt("nowhere", "hello");
        assert_eq!(code(&client.answer(prompt)), -32002);
        for method in ["session/delete", "session/close", "session/set_config_option", "_example/x"] {
            let params = json!({ "sessionId": "nowhere", "configId": "x", "value": "y" });
            assert_eq!(code(&client.call(method, params)), -32002, "{method}");
        }
        assert_eq!(code(&client.call("_parlor/nothing", json!({}))), -32601);
        assert_eq!(code(&client.call("session/prompt", json!({}))), -32602);
        assert_eq!(code(&client.call("session/new", json!({ "cwd": "here", "mcpServers": [] }))), -32602);
        let session = client.new_session();
        assert_eq!(
            code(&client.call("session/prompt", json!({ "sessionId": session, "prompt": 7 }))),
            -32602
        );
        assert_eq!(code(&client.call("initialize", json!({ "protocolVersion": 1 }))), -32600);
        assert_eq!(client.turn(&session, "say Fine."), "end_turn");
    }
}

#[test]
fn a_client_comes_back_to_where_it_was() {
    let server = Server::start();
    for (n, agent) in AGENTS.into_iter().enumerate() {
        for dialect in [Dialect::V2, Dialect::Draft] {
            let mut driver = server.client(Door::Unix, Dialect::V1, agent);
            let session = driver.new_session();
            driver.turn(&session, "say One.\ntool First");
            let mut client = Guest::new(DOORS[n % 3], dialect, agent).counting().join(&server);
            let seq = client.load(&session)["_meta"]["parlor/seq"].clone();
            driver.turn(&session, "say Two.\ntool Second");
            let truth = server.truth(&session);

            // After a change: what was there before is not told again, and nothing is missing.
            let fresh = || Guest::new(DOORS[n % 3], dialect, agent).join(&server);
            let mut after = fresh();
            after.resume(&session, Some(json!({ "type": "_parlor_after", "seq": seq }))).unwrap();
            let known = client.transcript(&session).len();
            assert_eq!(after.transcript(&session), truth[truth.len() - after.transcript(&session).len()..]);
            assert!(after.transcript(&session).len() < truth.len());
            assert!(known + after.transcript(&session).len() >= truth.len());

            // From a message on, with it.
            let line = truth.iter().rfind(|line| line.starts_with("user_message")).unwrap();
            let message = line.split('"').nth(1).unwrap();
            let mut from = fresh();
            from.resume(&session, Some(json!({ "type": "_parlor_message", "messageId": message }))).unwrap();
            let place = truth.iter().position(|other| other == line).unwrap();
            assert_eq!(from.transcript(&session), truth[place..]);

            // Nothing of what was.
            let mut now = fresh();
            now.resume(&session, None).unwrap();
            assert_eq!(now.transcript(&session), Vec::<String>::new());
            driver.turn(&session, "say Three.");
            now.hears(&session, "Three.");

            for bad in [
                json!({ "type": "_parlor_after", "seq": 1_000_000 }),
                json!({ "type": "_parlor_after" }),
                json!({ "type": "_parlor_message", "messageId": "nothing" }),
                json!({ "type": "yesterday" }),
                json!("start"),
            ] {
                assert_eq!(code(&now.resume(&session, Some(bad.clone()))), -32602, "{bad}");
            }
            driver.turn(&session, "say Four.");
            now.hears(&session, "Four.");
        }
    }
}

#[test]
fn what_cannot_be_read_ends_no_connection() {
    let server = Server::start();
    for (dialect, door) in Dialect::ALL.into_iter().zip(DOORS) {
        let mut client = server.client(door, dialect, "v1");
        let session = client.new_session();
        let mark = client.mark();
        for line in [
            "this is not JSON {",
            "{\"jsonrpc\":\"2.0\",\"method\":7}",
            "{}",
            "[]",
            "null",
            "{\"jsonrpc\":\"2.0\",\"id\":99999,\"result\":{}}",
            "{\"jsonrpc\":\"2.0\",\"method\":\"_example/unknown\"}",
        ] {
            client.say(line);
        }
        client.say(&format!("{}[]", "[".repeat(100_000)));
        assert_eq!(client.turn(&session, "say Still here.\ngarbage\nsay And here."), "end_turn");
        client.hears(&session, "here.");
        let answers =
            client.heard[mark..].iter().filter(|line| line["id"].is_null() && line.get("error").is_some());
        let codes: Vec<_> = answers.map(|line| line["error"]["code"].as_i64().unwrap()).collect();
        assert!(codes.contains(&-32700) && codes.contains(&-32600), "{codes:?}");
    }
}

#[test]
fn a_line_that_is_too_long_is_skipped() {
    let server = Server::start();
    for door in [Door::Stdio, Door::Unix] {
        let mut client = server.client(door, Dialect::V2, "v1");
        let session = client.new_session();
        let filler = "x".repeat(65 << 20);
        client.say(&format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":7777,\"method\":\"_example\",\"params\":\"{filler}\"}}"
        ));
        assert_eq!(client.turn(&session, "say Still here."), "end_turn");
        let told = client.heard.iter().find(|line| line.get("error").is_some()).unwrap();
        assert!(told["id"].is_null(), "{told}");
    }
}
