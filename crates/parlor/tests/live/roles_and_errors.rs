//! Roles, unknown methods and sessions, invalid lines.

use parlor_dialect::Dialect;
use parlor_testkit::client::{ClientBuilder, error_code};
use parlor_testkit::programs;
use parlor_testkit::server::TEST_AGENTS;
use parlor_testkit::transport::{TransportKind, stdio};
use serde_json::{Value, json};

use crate::start_server;

#[test]
fn an_observer_gets_updates_and_cannot_act() {
    let server = start_server("");
    for agent in TEST_AGENTS {
        for dialect in Dialect::ALL {
            let mut driver = server.client(TransportKind::Unix, Dialect::V2, agent);
            let session = driver.new_session();
            driver.turn(&session, "say Before.");
            let mut observer =
                ClientBuilder::new(TransportKind::WebSocket, dialect, agent).observer().connect(&server);
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
            let peer_request = driver.peer_request("session/request_permission");
            driver.choose(&peer_request, "allow-once");
            assert_eq!(driver.end_of_turn(&session, prompt), "end_turn");
            let stored = server.stored_transcript(&session);
            observer.wait_for_transcript(&session, &stored);
            let requests =
                |line: &serde_json::Value| line.get("method").is_some() && line.get("id").is_some();
            assert!(!observer.received.iter().any(requests), "an observer gets no requests");
        }
    }
}

#[test]
fn an_observer_does_not_get_the_command_lines_of_agents() {
    let server =
        start_server("[agents.secretive]\ncommand = 'TEST_AGENT --state TEST_DIR/secret-of-the-config'\n");
    let mut command = server.dir().acp();
    command
        .args(["--", programs::test_agent(), "--state"])
        .arg(server.dir().path().join("secret-of-the-person"));
    let mut driver = ClientBuilder::new(TransportKind::Unix, Dialect::V2, "v2").over(stdio(command));
    let session = driver.new_session();
    driver.turn(&session, "say findable words");
    let calls = [
        ("_parlor/agents", json!({})),
        ("_parlor/status", json!({})),
        ("session/list", json!({ "_meta": { "parlor/agent": "*" } })),
        ("_parlor/search", json!({ "query": "findable" })),
    ];
    let response_text = driver.call("_parlor/agents", json!({})).unwrap().to_string();
    assert!(response_text.contains("secret-of-the-config"), "{response_text}");
    for dialect in Dialect::ALL {
        let mut observer =
            ClientBuilder::new(TransportKind::WebSocket, dialect, "v2").observer().connect(&server);
        for (method, params) in &calls {
            let response_text = observer.call(method, params.clone()).unwrap().to_string();
            assert!(!response_text.contains("secret-of"), "{method}: {response_text}");
        }
        observer.load(&session);
        let listed = observer.call("session/list", json!({ "_meta": { "parlor/agent": "*" } })).unwrap();
        assert_eq!(listed["sessions"][0]["_meta"]["parlor/agent"], "parlor-test-agent", "{listed}");
        assert!(!observer.received.iter().any(|line| line.to_string().contains("secret-of")));
    }
}

#[test]
fn errors_for_an_observer_do_not_contain_the_command_line_of_the_agent() {
    for dialect in Dialect::ALL {
        let server = start_server("");
        let mut command = server.dir().acp();
        command
            .args(["--", programs::test_agent(), "--version", "1", "--offers", "none", "--state"])
            .arg(server.dir().path().join("secret-of-the-person"));
        let mut driver = ClientBuilder::new(TransportKind::Unix, Dialect::V1, "").over(stdio(command));
        let session = driver.new_session();
        let observing =
            || ClientBuilder::new(TransportKind::WebSocket, dialect, "v2").observer().with_events();
        let mut observer = observing().connect(&server);
        observer.load(&session);
        let prompt = driver.prompt(&session, "say Before.\ncrash 3");
        let failed = driver.response(prompt).unwrap_err();
        let message = failed["message"].as_str().unwrap();
        assert!(message.starts_with("agent 'parlor-test-agent' ended"), "{failed}");
        assert!(!message.contains("secret-of"), "{failed}");
        // The agent lost the session, which leaves an event.
        driver.turn(&session, "say After.");
        observer.wait_for_message(&session, "After.");
        let mut later = observing().connect(&server);
        later.load(&session);
        for client in [&observer, &later] {
            let response_text =
                client.received.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
            assert!(response_text.contains("agent 'parlor-test-agent' "), "{response_text}");
            assert!(!response_text.contains("secret-of"), "{response_text}");
        }
    }
}

#[test]
fn unknown_methods_and_sessions_are_not_found() {
    let server = start_server("");
    for (dialect, transport) in Dialect::ALL.into_iter().zip(TransportKind::ALL) {
        let mut client = server.client(transport, dialect, "v2");
        assert_eq!(error_code(&client.try_load("nowhere")), -32002);
        assert_eq!(error_code(&client.resume("nowhere", None)), -32002);
        let prompt = client.prompt("nowhere", "hello");
        assert_eq!(error_code(&client.response(prompt)), -32002);
        for method in ["session/archive", "session/set_config_option", "_example/x"] {
            let params = json!({ "sessionId": "nowhere", "configId": "x", "value": "y" });
            assert_eq!(error_code(&client.call(method, params)), -32002, "{method}");
        }
        assert_eq!(error_code(&client.call("_parlor/nothing", json!({}))), -32601);
        assert_eq!(error_code(&client.call("session/prompt", json!({}))), -32602);
        assert_eq!(
            error_code(&client.call("session/new", json!({ "cwd": "here", "mcpServers": [] }))),
            -32602
        );
        let session = client.new_session();
        assert_eq!(
            error_code(&client.call("session/prompt", json!({ "sessionId": session, "prompt": 7 }))),
            -32602
        );
        assert_eq!(error_code(&client.call("initialize", json!({ "protocolVersion": 1 }))), -32600);
        assert_eq!(client.turn(&session, "say Fine."), "end_turn");
    }
}

#[test]
fn a_batch_is_answered_with_one_array() {
    let server = start_server("");
    for (n, transport) in TransportKind::ALL.into_iter().enumerate() {
        for dialect in [Dialect::V2, Dialect::Draft] {
            let mut client = server.client(transport, dialect, TEST_AGENTS[n]);
            let session = client.new_session();
            let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "say Hi." }] });
            let batch = json!([
                { "jsonrpc": "2.0", "id": "p", "method": "session/prompt", "params": prompt },
                { "jsonrpc": "2.0", "id": 900, "method": "session/list", "params": {} },
                { "jsonrpc": "2.0", "method": "_example/notified" },
                { "jsonrpc": "2.0", "id": 901, "method": "session/load", "params": { "sessionId": 7 } },
                7,
            ]);
            client.send_line(&batch.to_string());
            // A batch of notifications has no response.
            client.send_line(r#"[{"jsonrpc":"2.0","method":"_example/notified"}]"#);
            let answers = loop {
                let line: Value = serde_json::from_str(&client.next_line()).unwrap();
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
            // A single request gets a single response.
            client.call("_parlor/status", json!({})).unwrap();
        }
    }
}

#[test]
fn a_client_resumes_after_its_last_sequence_number() {
    let server = start_server("");
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for dialect in [Dialect::V2, Dialect::Draft] {
            let mut driver = server.client(TransportKind::Unix, Dialect::V1, agent);
            let session = driver.new_session();
            driver.turn(&session, "say One.\ntool First");
            let mut client =
                ClientBuilder::new(TransportKind::ALL[n % 3], dialect, agent).with_seq().connect(&server);
            let seq = client.load(&session)["_meta"]["parlor/seq"].clone();
            driver.turn(&session, "say Two.\ntool Second");
            let stored = server.stored_transcript(&session);

            // After a sequence number: earlier entries are not sent again, and nothing is missing.
            let connect = || ClientBuilder::new(TransportKind::ALL[n % 3], dialect, agent).connect(&server);
            let mut after = connect();
            after.resume(&session, Some(json!({ "type": "_parlor_after", "seq": seq }))).unwrap();
            let received_count = client.transcript(&session).len();
            assert_eq!(after.transcript(&session), stored[stored.len() - after.transcript(&session).len()..]);
            assert!(after.transcript(&session).len() < stored.len());
            assert!(received_count + after.transcript(&session).len() >= stored.len());

            // From a message, inclusive.
            let line = stored.iter().rfind(|line| line.starts_with("user_message")).unwrap();
            let message = line.split('"').nth(1).unwrap();
            let mut from = connect();
            from.resume(&session, Some(json!({ "type": "_parlor_message", "messageId": message }))).unwrap();
            let index = stored.iter().position(|other| other == line).unwrap();
            assert_eq!(from.transcript(&session), stored[index..]);

            // No replay.
            let mut now = connect();
            now.resume(&session, None).unwrap();
            assert_eq!(now.transcript(&session), Vec::<String>::new());
            driver.turn(&session, "say Three.");
            now.wait_for_message(&session, "Three.");

            for bad in [
                json!({ "type": "_parlor_after", "seq": 1_000_000 }),
                json!({ "type": "_parlor_after" }),
                json!({ "type": "_parlor_message", "messageId": "nothing" }),
                json!({ "type": "yesterday" }),
                json!("start"),
            ] {
                assert_eq!(error_code(&now.resume(&session, Some(bad.clone()))), -32602, "{bad}");
            }
            driver.turn(&session, "say Four.");
            now.wait_for_message(&session, "Four.");
        }
    }
}

#[test]
fn invalid_lines_do_not_close_the_connection() {
    let server = start_server("");
    for (dialect, transport) in Dialect::ALL.into_iter().zip(TransportKind::ALL) {
        let mut client = server.client(transport, dialect, "v1");
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
            client.send_line(line);
        }
        client.send_line(&format!("{}[]", "[".repeat(100_000)));
        assert_eq!(client.turn(&session, "say Still here.\ngarbage\nsay And here."), "end_turn");
        client.wait_for_message(&session, "And here.");
        let answers =
            client.received[mark..].iter().filter(|line| line["id"].is_null() && line.get("error").is_some());
        let codes: Vec<_> = answers.map(|line| line["error"]["code"].as_i64().unwrap()).collect();
        assert!(codes.contains(&-32700) && codes.contains(&-32600), "{codes:?}");
    }
}

#[test]
fn a_line_that_is_too_long_is_skipped() {
    let server = start_server("");
    for transport in [TransportKind::Stdio, TransportKind::Unix] {
        let mut client = server.client(transport, Dialect::V2, "v1");
        let session = client.new_session();
        let filler = "x".repeat(65 << 20);
        client.send_line(&format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":7777,\"method\":\"_example\",\"params\":\"{filler}\"}}"
        ));
        assert_eq!(client.turn(&session, "say Still here."), "end_turn");
        let response_text = client.received.iter().find(|line| line.get("error").is_some()).unwrap();
        assert!(response_text["id"].is_null(), "{response_text}");
    }
}
