//! Who may do what, what does not exist, and what is not said properly.

use parlor_dialect::Dialect;
use parlor_testkit::programs;
use serde_json::{Value, json};

use crate::client::{Guest, code};
use crate::doors::{DOORS, Door, acp, stdio};
use crate::server::{AGENTS, PATIENCE, Server};

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
                ("_parlor/withdraw", json!({ "sessionId": session, "id": 1 })),
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
fn an_observer_is_not_told_the_command_lines_of_agents() {
    let server =
        Server::with("[agents.secretive]\ncommand = 'TEST_AGENT --state HOME/secret-of-the-config'\n");
    let mut command = acp(server.home());
    command
        .args(["--", programs::test_agent(), "--state"])
        .arg(server.home().path().join("secret-of-the-person"));
    let mut driver = Guest::new(Door::Unix, Dialect::V2, "v2").over(stdio(command));
    let session = driver.new_session();
    driver.turn(&session, "say findable words");
    let questions = [
        ("_parlor/agents", json!({})),
        ("_parlor/status", json!({})),
        ("session/list", json!({ "_meta": { "parlor/agent": "*" } })),
        ("_parlor/search", json!({ "query": "findable" })),
    ];
    let told = driver.call("_parlor/agents", json!({})).unwrap().to_string();
    assert!(told.contains("secret-of-the-config"), "{told}");
    for dialect in Dialect::ALL {
        let mut observer = Guest::new(Door::Web, dialect, "v2").observing().join(&server);
        for (method, params) in &questions {
            let told = observer.call(method, params.clone()).unwrap().to_string();
            assert!(!told.contains("secret-of"), "{method}: {told}");
        }
        observer.load(&session);
        let listed = observer.call("session/list", json!({ "_meta": { "parlor/agent": "*" } })).unwrap();
        assert_eq!(listed["sessions"][0]["_meta"]["parlor/agent"], "parlor-test-agent", "{listed}");
        assert!(!observer.heard.iter().any(|line| line.to_string().contains("secret-of")));
    }
}

#[test]
fn an_observer_is_not_told_the_command_line_of_an_agent_that_fails() {
    for dialect in Dialect::ALL {
        let server = Server::start();
        let mut command = acp(server.home());
        command
            .args(["--", programs::test_agent(), "--version", "1", "--offers", "none", "--state"])
            .arg(server.home().path().join("secret-of-the-person"));
        let mut driver = Guest::new(Door::Unix, Dialect::V1, "").over(stdio(command));
        let session = driver.new_session();
        let observing = || Guest::new(Door::Web, dialect, "v2").observing().with_events();
        let mut observer = observing().join(&server);
        observer.load(&session);
        let prompt = driver.prompt(&session, "say Before.\ncrash 3");
        let failed = driver.answer(prompt).unwrap_err();
        let message = failed["message"].as_str().unwrap();
        assert!(message.starts_with("agent 'parlor-test-agent' ended"), "{failed}");
        assert!(!message.contains("secret-of"), "{failed}");
        // It has forgotten the session, which is on record.
        driver.turn(&session, "say After.");
        observer.hears(&session, "After.");
        let mut later = observing().join(&server);
        later.load(&session);
        for client in [&observer, &later] {
            let told = client.heard.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
            assert!(told.contains("agent 'parlor-test-agent' "), "{told}");
            assert!(!told.contains("secret-of"), "{told}");
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
        for method in ["session/archive", "session/set_config_option", "_example/x"] {
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
fn a_batch_is_answered_with_one_array() {
    let server = Server::start();
    for (n, door) in DOORS.into_iter().enumerate() {
        for dialect in [Dialect::V2, Dialect::Draft] {
            let mut client = server.client(door, dialect, AGENTS[n]);
            let session = client.new_session();
            let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "say Hi." }] });
            let batch = json!([
                { "jsonrpc": "2.0", "id": "p", "method": "session/prompt", "params": prompt },
                { "jsonrpc": "2.0", "id": 900, "method": "session/list", "params": {} },
                { "jsonrpc": "2.0", "method": "_example/notified" },
                { "jsonrpc": "2.0", "id": 901, "method": "session/load", "params": { "sessionId": 7 } },
                7,
            ]);
            client.say(&batch.to_string());
            // Notifications alone have no answer.
            client.say(r#"[{"jsonrpc":"2.0","method":"_example/notified"}]"#);
            let answers = loop {
                let line = client.ears.recv_timeout(PATIENCE).unwrap();
                let line: Value = serde_json::from_str(&line).unwrap();
                assert!(line.get("id").is_none(), "an answer by itself: {line}");
                if let Value::Array(answers) = line {
                    break answers;
                }
            };
            let of = |id: Value| answers.iter().find(|answer| answer["id"] == id).unwrap().clone();
            assert_eq!(answers.len(), 4, "{answers:?}");
            assert!(of(json!("p"))["result"].is_object());
            assert!(of(json!(900))["result"]["sessions"].is_array());
            assert_eq!(of(json!(901))["error"]["code"], -32602);
            assert_eq!(of(Value::Null)["error"]["code"], -32600);
            // What is asked by itself is answered by itself.
            client.call("_parlor/status", json!({})).unwrap();
        }
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
        client.hears(&session, "And here.");
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
