//! Every update reaches every client in the client's dialect, whatever the agent's dialect, and all clients, those
//! that are attached and those that attach later, end with the same transcript.

use std::sync::atomic::{AtomicU32, Ordering};

use parlor_dialect::Dialect;
use parlor_testkit::client::{Client, ClientBuilder, error_code};
use parlor_testkit::programs;
use parlor_testkit::server::Server;
use parlor_testkit::transport::TransportKind;
use serde_json::{Value, json};

use crate::start_server;

/// Agents that assign message ids, one per dialect.
const TEST_AGENTS: [&str; 3] = ["v1", "v2", "draft"];

/// Everything that a v1 client can declare beyond what v1 lists.
fn v1_features() -> Value {
    json!({
        "plan": {},
        "subagents": {},
        "session": { "notices": {}, "compaction": {}, "configOptions": { "boolean": {} } },
    })
}

/// The updates of every kind, in the spellings of all dialects. Each is sent by agents of each dialect.
const UPDATES: &[&str] = &[
    r#"{"sessionUpdate":"tool_call","toolCallId":"t1","title":"Read","kind":"read","status":"pending","rawInput":{"n":18446744073709551616}}"#,
    r#"{"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"completed","content":[{"type":"content","content":{"type":"text","text":"out"}}]}"#,
    r#"{"sessionUpdate":"tool_call_content_chunk","toolCallId":"t1","content":{"type":"content","content":{"type":"text","text":" more"}}}"#,
    r#"{"sessionUpdate":"tool_call_update","toolCallId":"t2","title":"Late","kind":"_odd","status":"cancelled","content":[{"type":"_odd","x":1},"oops",{"type":"content","content":{"type":"text"}}]}"#,
    r#"{"sessionUpdate":"tool_call","toolCallId":"t3","title":"Edit","content":[{"type":"diff","path":"/a","oldText":"x\n","newText":"y\n"}]}"#,
    r#"{"sessionUpdate":"plan","entries":[{"content":"one","priority":"high","status":"pending"}]}"#,
    r#"{"sessionUpdate":"plan_update","plan":{"type":"items","planId":"p","entries":[{"content":"two","priority":"low","status":"completed"}]}}"#,
    r##"{"sessionUpdate":"plan_update","plan":{"type":"markdown","planId":"q","content":"# Plan"}}"##,
    r#"{"sessionUpdate":"plan_removed","planId":"q"}"#,
    r#"{"sessionUpdate":"current_mode_update","currentModeId":"code"}"#,
    r#"{"sessionUpdate":"config_option_update","configOptions":[{"id":"b","name":"B","type":"boolean","currentValue":true},{"id":"model","name":"Model","type":"select","currentValue":"a","options":[{"value":"a","name":"A"}]}]}"#,
    r#"{"sessionUpdate":"config_option_update","configOptions":[{"configId":"b","name":"B","type":"boolean","currentValue":true},{"configId":"model","name":"Model","type":"select","currentValue":"b","options":[{"value":"b","name":"B"}]}]}"#,
    r#"{"sessionUpdate":"available_commands_update","availableCommands":[{"name":"go","description":"Goes","input":{"hint":"where"}}]}"#,
    r#"{"sessionUpdate":"usage_update","used":10,"size":100}"#,
    r#"{"sessionUpdate":"session_info_update","title":"Named","_meta":{"a":{"b":1}}}"#,
    r#"{"sessionUpdate":"session_info_update","_meta":{"a":{"c":2}}}"#,
    r#"{"sessionUpdate":"state_update","state":"running"}"#,
    r#"{"sessionUpdate":"state_change","state":"running"}"#,
    r#"{"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text","text":"one "}}"#,
    r#"{"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"_odd","x":1}}"#,
    r#"{"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text"}}"#,
    r#"{"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text","text":"two","annotations":{"audience":["_odd","user"]}},"_meta":{"k":1}}"#,
    r#"{"sessionUpdate":"agent_message","messageId":"m2","content":[{"type":"text","text":"whole"}],"_meta":{"k":1}}"#,
    r#"{"sessionUpdate":"agent_message","messageId":"m3","content":[{"type":"text","text":"A"},"oops",{"type":"text"},{"type":"text","text":"B"}]}"#,
    r#"{"sessionUpdate":"agent_thought","messageId":"m4","content":[{"type":"text","text":"hm"}]}"#,
    r#"{"sessionUpdate":"agent_thought_chunk","messageId":"m4","content":{"type":"text","text":"..."}}"#,
    r#"{"sessionUpdate":"user_message","messageId":"m5","content":[{"type":"text","text":"meanwhile"}]}"#,
    r#"{"sessionUpdate":"user_message_chunk","messageId":"m6","content":{"type":"text","text":"and more"}}"#,
    r#"{"sessionUpdate":"terminal_update","terminalId":"x1","output":{"data":"aGk="}}"#,
    r#"{"sessionUpdate":"terminal_output_chunk","terminalId":"x1","data":"IQ=="}"#,
    r#"{"sessionUpdate":"compaction_update","compactionId":"c1","status":"in_progress"}"#,
    r#"{"sessionUpdate":"compaction_summary_chunk","compactionId":"c1","content":{"type":"text","text":"short"}}"#,
    r#"{"sessionUpdate":"subagent_update","sessionId":"child","title":"Child"}"#,
    r#"{"sessionUpdate":"session_message","messageId":"s1","senderSessionId":"SESSION","recipientSessionId":"child","content":[{"type":"text","text":"go"}]}"#,
    r#"{"sessionUpdate":"session_message_chunk","messageId":"s1","content":{"type":"text","text":" on"}}"#,
    r#"{"sessionUpdate":"notice","severity":"warning","title":"Slow","description":"The model is slow."}"#,
    r#"{"sessionUpdate":"_vendor_thing","n":1.50}"#,
];

fn script(updates: &[&str]) -> String {
    let lines: Vec<_> = updates.iter().map(|update| format!("raw {{\"update\":{update}}}")).collect();
    lines.join("\n")
}

/// A client of each dialect and a v1 client that declared all features, in one session.
fn clients(server: &Server, agent: &str) -> (Vec<Client>, String) {
    let mut clients: Vec<_> =
        Dialect::ALL.into_iter().map(|dialect| server.client(TransportKind::Unix, dialect, agent)).collect();
    clients.push(
        ClientBuilder::new(TransportKind::Unix, Dialect::V1, agent)
            .with_capabilities(v1_features())
            .connect(server),
    );
    let session = clients[1].new_session();
    for index in [0, 2, 3] {
        clients[index].load(&session);
    }
    (clients, session)
}

/// Runs a script as one turn, until every client has received all of it.
fn run(clients: &mut [Client], session: &str, script: &str) {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let done = format!("Done {}.", RUNS.fetch_add(1, Ordering::Relaxed));
    clients[1].turn(session, &format!("{script}\nsay {done}"));
    for client in clients {
        client.wait_for_message(session, &done);
    }
}

/// A folded session, without what depends on how content was split into blocks.
fn folded(client: &Client, session: &str) -> Value {
    let mut view = client.view(session);
    for list in ["messages", "toolCalls", "other"] {
        for entry in view[list].as_array_mut().unwrap() {
            entry["content"] = joined(&entry["content"]);
        }
    }
    // The state depends on the time, and options are in the response when a client attaches.
    for name in ["state", "configOptions", "modes", "order"] {
        view.as_object_mut().unwrap().remove(name);
    }
    // Metadata of the server about a turn is not compared.
    if let Some(meta) = view["info"]["_meta"].as_object_mut() {
        meta.retain(|name, _| !matches!(name.as_str(), "parlor/queue" | "parlor/state"));
    }
    // Notices are live only: clients that attach later do not get them.
    view["other"].as_array_mut().unwrap().retain(|other| other["sessionUpdate"] != "notice");
    view
}

/// Content blocks, with adjacent texts joined.
fn joined(blocks: &Value) -> Value {
    let mut out: Vec<Value> = Vec::new();
    for block in blocks.as_array().into_iter().flatten() {
        let text = |block: &Value| match block {
            block if block["type"] == "text" => block["text"].as_str().map(str::to_owned),
            block => block["content"]["text"].as_str().map(str::to_owned),
        };
        match (out.last_mut().filter(|_| text(block).is_some()), text(block)) {
            (Some(Value::String(last)), Some(text)) => last.push_str(&text),
            (_, Some(text)) => out.push(json!(text)),
            (_, None) => out.push(block.clone()),
        }
    }
    json!(out)
}

#[test]
fn every_update_reaches_every_client_in_its_own_dialect() {
    let server = start_server("");
    for agent in TEST_AGENTS {
        let (mut clients, session) = clients(&server, agent);
        // Each client checks each received line against the schema of its dialect.
        run(&mut clients, &session, &script(UPDATES));
        let mut late = server.client(TransportKind::Unix, Dialect::V2, agent);
        late.load(&session);
        let stored = folded(&late, &session);
        let live = folded(&clients[1], &session);
        for (name, value) in stored.as_object().unwrap() {
            assert_eq!(live[name], *value, "{name} of a {agent} agent, live and late");
        }
        let mut late = server.client(TransportKind::Unix, Dialect::Draft, agent);
        late.load(&session);
        for name in ["messages", "toolCalls", "plans", "terminals", "info"] {
            let [live, late] = [&clients[2], &late].map(|client| folded(client, &session)[name].clone());
            assert_eq!(live, late, "{name} of a {agent} agent, draft");
            assert_eq!(live, stored[name], "{name} of a {agent} agent, v2 and draft");
        }
        for (index, builder) in [
            (0, ClientBuilder::new(TransportKind::Unix, Dialect::V1, agent)),
            (3, ClientBuilder::new(TransportKind::Unix, Dialect::V1, agent).with_capabilities(v1_features())),
        ] {
            let mut late = builder.connect(&server);
            late.load(&session);
            assert_eq!(clients[index].transcript(&session), late.transcript(&session), "{agent} to v1");
        }
    }
}

#[test]
fn the_end_of_a_turn_is_sent_in_each_clients_dialect() {
    let server = start_server("");
    for (agent, idle) in [
        ("v2", r#"{"sessionUpdate":"state_change","state":"idle","stop_reason":"max_tokens"}"#),
        ("draft", r#"{"sessionUpdate":"state_update","state":"idle","stopReason":"max_tokens"}"#),
    ] {
        let (mut clients, session) = clients(&server, agent);
        let marks: Vec<_> = clients.iter().map(Client::mark).collect();
        let id = clients[1].prompt(&session, &format!("say Hi.\n{}", script(&[idle])));
        clients[1].response(id).unwrap();
        for (client, mark) in clients.iter_mut().zip(marks) {
            let reason = client.wait_for_idle(&session, mark);
            if client.dialect != Dialect::V1 {
                assert_eq!(reason, "max_tokens", "{agent} to {:?}", client.dialect);
            }
        }
    }
}

#[test]
fn the_words_of_v1_from_a_v2_agent_are_said_in_v2() {
    let server = start_server("");
    for agent in ["v2", "draft"] {
        let (mut clients, session) = clients(&server, agent);
        run(&mut clients, &session, &script(&[UPDATES[0], UPDATES[5], UPDATES[9]]));
        for client in &clients[1..3] {
            let kinds: Vec<_> =
                client.updates(&session, 0).map(|update| update["sessionUpdate"].clone()).collect();
            for kind in ["tool_call", "plan", "current_mode_update"] {
                assert!(!kinds.contains(&json!(kind)), "{kind} from {agent} to {:?}", client.dialect);
            }
            let view = client.view(&session);
            assert_eq!(view["toolCalls"][0]["title"], "Read");
            assert_eq!(view["plans"][0]["entries"][0]["content"], "one");
            let mode = |option: &&Value| option["category"] == "mode";
            let options = view["configOptions"].as_array().unwrap().clone();
            assert_eq!(options.iter().find(mode).unwrap()["currentValue"], "code", "{options:?}");
        }
    }
}

#[test]
fn a_v1_client_hears_nothing_that_it_did_not_declare() {
    let server = start_server("");
    let (mut clients, session) = clients(&server, "v1");
    run(&mut clients, &session, &script(UPDATES));
    let kinds = |client: &Client| -> Vec<String> {
        let updates = client.updates(&session, 0);
        updates.map(|update| update["sessionUpdate"].as_str().unwrap().to_owned()).collect()
    };
    let declared = ["plan_update", "plan_removed", "notice", "compaction_update", "subagent_update"];
    for kind in declared {
        assert!(!kinds(&clients[0]).contains(&kind.to_owned()), "{kind} was not declared");
        assert!(kinds(&clients[3]).contains(&kind.to_owned()), "{kind} was declared");
    }
    for client in [&clients[0], &clients[3]] {
        for kind in ["state_update", "state_change", "agent_message", "user_message", "_vendor_thing"] {
            assert!(!kinds(client).contains(&kind.to_owned()), "v1 does not list {kind}");
        }
        let odd = |update: &Value| update["content"]["type"] == "_odd";
        assert!(!client.updates(&session, 0).any(odd), "v1 cannot read that block");
    }
    let booleans = |client: &Client| {
        let lists = client.updates(&session, 0).filter_map(|update| update["configOptions"].as_array());
        lists.flatten().any(|option| option["type"] == "boolean")
    };
    assert_eq!([booleans(&clients[0]), booleans(&clients[3])], [false, true]);
}

#[test]
fn invalid_content_items_are_omitted_for_all_clients() {
    let server = start_server("");
    for agent in TEST_AGENTS {
        let (mut clients, session) = clients(&server, agent);
        let text = r#"{"sessionUpdate":"agent_message","messageId":"m","content":[{"type":"text","text":"A"},"oops",{"type":"text","text":"B"}]}"#;
        run(&mut clients, &session, &script(&[text]));
        let stored = server.stored_transcript(&session);
        assert!(
            stored.iter().any(|line| line.starts_with("agent_message") && line.ends_with(": AB")),
            "{stored:?}"
        );
        for client in &mut clients {
            client.wait_for_transcript(&session, &stored);
        }
    }
}

#[test]
fn a_notice_goes_to_attached_clients_and_is_not_replayed() {
    let notice = r#"{"sessionUpdate":"notice","severity":"info","title":"Look"}"#;
    let is_notice = |update: &Value| update["sessionUpdate"] == "notice";
    let server = start_server("");
    for agent in TEST_AGENTS {
        let (mut clients, session) = clients(&server, agent);
        run(&mut clients, &session, &format!("say First.\n{}", script(&[notice])));
        for client in &clients[1..] {
            let received = client.updates(&session, 0).filter(|update| is_notice(update)).count();
            assert_eq!(received, 1, "{agent} to {:?}", client.dialect);
        }
        let params = json!({ "sessionId": session, "cwd": "/", "mcpServers": [] });
        let fork = clients[1].call("session/fork", params).unwrap()["sessionId"].as_str().unwrap().to_owned();
        for id in [&session, &fork] {
            let mut late = server.client(TransportKind::Unix, Dialect::V2, agent);
            late.load(id);
            assert!(!late.updates(id, 0).any(is_notice), "{agent}");
            assert_eq!(late.view(id)["other"], json!([]), "{agent}");
        }
    }
}

#[test]
fn additional_params_of_an_update_reach_clients_of_every_dialect() {
    let server = start_server("");
    for agent in TEST_AGENTS {
        let (mut clients, session) = clients(&server, agent);
        let mut counting =
            ClientBuilder::new(TransportKind::Unix, Dialect::V2, agent).with_seq().connect(&server);
        counting.load(&session);
        clients.push(counting);
        let lines = [
            r#"raw {"update":{"sessionUpdate":"agent_message_chunk","messageId":"a","content":{"type":"text","text":"one"}},"_meta":{"trace":"1"}}"#,
            r#"raw {"_meta":{"trace":"1"},"update":{"sessionUpdate":"agent_message_chunk","messageId":"a","content":{"type":"text","text":"two"}}}"#,
            r#"raw {"update":{"sessionUpdate":"tool_call","toolCallId":"t","title":"T"},"_meta":{"trace":"1"}}"#,
            r#"raw {"update":{"sessionUpdate":"session_info_update","title":"Named"},"_meta":{"trace":"1"}}"#,
        ];
        run(&mut clients, &session, &lines.join("\n"));
        for client in &clients {
            let traced = client.received.iter().filter(|line| line["params"]["_meta"]["trace"] == "1");
            assert_eq!(traced.count(), lines.len(), "{agent} to {:?}", client.dialect);
        }
        let numbered = |line: &&Value| line["params"]["_meta"]["parlor/seq"].is_u64();
        let traced = |line: &&Value| line["params"]["_meta"]["trace"] == "1";
        assert!(clients[4].received.iter().filter(traced).all(|line| numbered(&line)), "{agent}");
    }
}

#[test]
fn an_agent_cannot_set_parlor_metadata() {
    let server = start_server("");
    for agent in TEST_AGENTS {
        let (mut clients, session) = clients(&server, agent);
        let lines = [
            r#"raw {"update":{"sessionUpdate":"agent_message_chunk","messageId":"a","content":{"type":"text","text":"one"},"_meta":{"parlor/replaces":"x","mine":1}},"_meta":{"parlor/seq":99}}"#,
            r#"raw {"update":{"sessionUpdate":"session_info_update","_meta":{"parlor/state":"forged","mine":1}}}"#,
            r#"raw {"update":{"sessionUpdate":"_vendor","_meta":{"parlor/queue":[]}}}"#,
        ];
        run(&mut clients, &session, &lines.join("\n"));
        for client in &clients {
            let params = client.received.iter().map(|line| &line["params"]);
            let metas = params.flat_map(|params| [&params["_meta"], &params["update"]["_meta"]]);
            let metas: Vec<_> = metas.filter_map(Value::as_object).collect();
            let has = |key: &str, value: Value| metas.iter().any(|meta| meta.get(key) == Some(&value));
            for (key, forged) in [
                ("parlor/replaces", json!("x")),
                ("parlor/state", json!("forged")),
                ("parlor/seq", json!(99)),
            ] {
                assert!(!has(key, forged), "{key} from {agent} to {:?}", client.dialect);
            }
            assert!(has("mine", json!(1)), "{agent} to {:?}", client.dialect);
        }
        let losses = losses(&mut clients[1], &session);
        assert_eq!(losses["reserved_meta"], 3, "{losses}");
    }
}

#[test]
fn the_embedded_agent_causes_no_losses() {
    let server = start_server("");
    for dialect in Dialect::ALL {
        let mut client = server.client(TransportKind::Unix, dialect, "demo");
        let session = client.new_session();
        let first = client.prompt(&session, "say one");
        let second = client.prompt(&session, "say two");
        client.end_of_turn(&session, first);
        client.end_of_turn(&session, second);
        client.call("session/close", json!({ "sessionId": session })).unwrap();
        client.load(&session);
        client.turn(&session, "say three");
        assert_eq!(losses(&mut client, &session), json!({}), "{dialect}");
    }
}

#[test]
fn losses_towards_an_agent_are_counted() {
    let server = start_server("");
    let servers = json!([{ "type": "sse", "name": "old", "url": "http://localhost", "headers": [] }]);
    let params = json!({ "cwd": "/", "mcpServers": servers });
    let mut client = server.client(TransportKind::Unix, Dialect::V1, "v2");
    let session = client.call("session/new", params).unwrap()["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(losses(&mut client, &session), json!({ "mcp_sse": 1 }));
    // It is replayed, and lost again.
    let crash = client.prompt(&session, "crash");
    let _ = client.response(crash);
    client.turn(&session, "say Hi.");
    assert_eq!(losses(&mut client, &session), json!({ "mcp_sse": 2 }));
}

#[test]
fn session_ids_in_updates_are_those_of_the_clients() {
    let server = start_server("");
    for agent in TEST_AGENTS {
        let (mut clients, session) = clients(&server, agent);
        let lines = [
            r#"{"sessionUpdate":"session_message","messageId":"s","senderSessionId":"SESSION","recipientSessionId":"other","content":[]}"#,
            r#"{"sessionUpdate":"subagent_update","sessionId":"SESSION","title":"Me"}"#,
        ];
        run(&mut clients, &session, &script(&lines));
        for client in &clients[1..] {
            let other = client.view(&session)["other"].clone();
            assert_eq!(other[0]["senderSessionId"], session.as_str(), "{agent}: {other}");
            assert_eq!(other[0]["recipientSessionId"], "other", "{agent}: {other}");
            assert_eq!(other[1]["sessionId"], session.as_str(), "{agent}: {other}");
        }
    }
}

/// The losses of a session, by kind.
fn losses(client: &mut Client, session: &str) -> Value {
    let answer = client.call("_parlor/losses", json!({ "sessionId": session })).unwrap();
    let list = answer["losses"].as_array().unwrap().iter();
    list.map(|loss| (loss["loss"].as_str().unwrap().to_owned(), loss["count"].clone())).collect()
}

#[test]
fn losses_and_refused_updates_are_counted_and_clients_can_ask_for_them() {
    let server = start_server("");
    for agent in TEST_AGENTS {
        let (mut clients, session) = clients(&server, agent);
        assert_eq!(losses(&mut clients[0], &session), json!({}));
        let lines = [
            r#"{"sessionUpdate":"_vendor_thing"}"#,
            r#"{"sessionUpdate":"_vendor_thing"}"#,
            r#"{"sessionUpdate":"agent_message_chunk","messageId":"m"}"#,
            r#"{"sessionUpdate":"tool_call"}"#,
            r#"{"sessionUpdate":"agent_message","messageId":"m","content":[7]}"#,
        ];
        run(&mut clients, &session, &script(&lines));
        for client in &mut clients {
            let losses = losses(client, &session);
            // Each one is a loss for two v1 clients.
            assert_eq!(losses["unknown_update"], 4, "{agent}: {losses}");
            assert_eq!(losses["update_refused"], 2, "{agent}: {losses}");
            assert_eq!(losses["update_part"], 1, "{agent}: {losses}");
        }
        let status = clients[0].call("_parlor/status", json!({})).unwrap();
        let mut all = status["losses"].as_array().unwrap().iter();
        assert!(all.any(|one| one["sessionId"] == session.as_str()), "{status}");
        assert_eq!(error_code(&clients[0].call("_parlor/losses", json!({ "sessionId": "none" }))), -32002);
    }
}

#[test]
fn metadata_that_changes_with_a_redaction_reaches_all_clients() {
    let server = start_server("");
    for agent in ["v2", "draft"] {
        let (mut clients, session) = clients(&server, agent);
        run(&mut clients, &session, r#"meta {"a":{"b":1,"c":2}}"#);
        // The generated title is removed with the text that it was generated from, and so is the metadata about it.
        let first = clients[1].view(&session)["messages"][0]["messageId"].as_str().unwrap().to_owned();
        let marked = format!(
            r#"{{"sessionUpdate":"user_message","messageId":"{first}","_meta":{{"old":{{"n":1}}}}}}"#
        );
        let redacted = format!(
            r#"{{"sessionUpdate":"user_message","messageId":"{first}","content":[{{"type":"text","text":"[redacted]"}}],"_meta":{{"why":{{"by":"policy"}}}}}}"#
        );
        run(&mut clients, &session, &script(&[&marked, &redacted]));
        let mut late = server.client(TransportKind::Unix, Dialect::V2, agent);
        late.load(&session);
        let stored = folded(&late, &session);
        assert_eq!(stored["info"]["title"], "[redacted]", "{stored}");
        for client in &clients[1..3] {
            let view = folded(client, &session);
            assert_eq!(view["info"]["title"], stored["info"]["title"], "{agent} to {:?}", client.dialect);
            assert_eq!(view["info"]["_meta"], stored["info"]["_meta"], "{agent} to {:?}", client.dialect);
            assert_eq!(view["messages"][0], stored["messages"][0], "{agent} to {:?}", client.dialect);
        }
    }
}

/// Agents that speak both versions; the name is that of an agent that offers more in version 1.
const PREFERRING: &str = r#"
[agents.prefers-v1]
command = ["TEST_AGENT", "--name", "@agentclientprotocol/claude-agent-acp", "--agent-version", "0.99.1", "--offers", "load,steering"]
[agents.older]
command = ["TEST_AGENT", "--name", "@agentclientprotocol/claude-agent-acp", "--agent-version", "0.60.0"]
[agents.fixed]
command = ["TEST_AGENT", "--name", "@agentclientprotocol/claude-agent-acp", "--agent-version", "0.99.1"]
version = 2
"#;

#[test]
fn an_agent_that_offers_more_in_version_1_is_spoken_to_in_version_1() {
    let server = start_server(PREFERRING);
    for (agent, version) in [("prefers-v1", "v1"), ("older", "v2"), ("fixed", "v2"), ("prefers-v1", "v1")] {
        let mut client = server.client(TransportKind::Unix, Dialect::V2, agent);
        let session = client.new_session();
        client.turn(&session, "whoami");
        let said = client.transcript(&session).last().unwrap().clone();
        assert!(said.contains(&format!(" {version}")), "{agent}: {said}");
    }
}

/// What an agent says of itself, on the server.
fn whoami(client: &mut Client) -> String {
    let session = client.new_session();
    client.turn(&session, "whoami");
    client.transcript(&session).last().unwrap().clone()
}

#[test]
fn another_release_of_an_agent_is_asked_for_version_2_once() {
    let upgraded = r#"
[agents.upgraded]
command = ["sh", "-c", "tee -a TEST_DIR/input | exec TEST_AGENT $(cat TEST_DIR/release)"]
"#;
    let server = start_server(upgraded);
    let set_release = |options: &str| std::fs::write(server.dir().path().join("release"), options).unwrap();
    let start = |release: &str| {
        set_release(release);
        let mut client = server.client(TransportKind::Unix, Dialect::V2, "upgraded");
        let said = whoami(&mut client);
        let stopped = client.call("_parlor/agents/stop", json!({ "agent": "upgraded" })).unwrap();
        assert_eq!(stopped["stopped"], 1, "{stopped}");
        let input = std::fs::read_to_string(server.dir().path().join("input")).unwrap();
        std::fs::remove_file(server.dir().path().join("input")).unwrap();
        let asked: Vec<_> = input
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .filter(|line| line["method"] == "initialize")
            .map(|line| line["params"]["protocolVersion"].clone())
            .collect();
        let spoken = if said.contains(" v2") { 2 } else { 1 };
        (spoken, Value::from(asked))
    };
    assert_eq!(start("--version 1 --agent-version 1.0.0"), (1, json!([2, 1])));
    assert_eq!(
        start("--agent-version 1.0.0"),
        (1, json!([1])),
        "the release that is known to speak version 1"
    );
    assert_eq!(start("--version 1 --agent-version 1.1.0"), (1, json!([1, 2])), "another one");
    assert_eq!(start("--version 1 --agent-version 1.1.0"), (1, json!([1])), "is tried once");
    let preferring = "--name @agentclientprotocol/claude-agent-acp --agent-version 0.99.1";
    assert_eq!(start(preferring), (1, json!([1])), "an agent that offers more in version 1");
    assert_eq!(start("--agent-version 2.0.0"), (2, json!([1, 2])));
    assert_eq!(start("--agent-version 2.0.0"), (2, json!([2])));
}

#[test]
fn a_release_of_an_agent_that_hangs_on_version_2_is_spoken_to_in_version_1() {
    let hanging = r#"
[agents.hanging]
command = ["sh", "TEST_DIR/agent.sh"]
startup_timeout = 10
"#;
    let script = r#"
if [ ! -e "$(dirname "$0")/upgraded" ]; then exec TEST_AGENT --version 1 --agent-version 1.0.0; fi
read -r line
case $line in
*'"protocolVersion":2'*) echo asked >> "$(dirname "$0")/asked"; cat > /dev/null ;;
*) { printf '%s\n' "$line"; cat; } | TEST_AGENT --version 1 --agent-version 1.1.0 ;;
esac
"#;
    let server = start_server(hanging);
    let dir = server.dir().path();
    std::fs::write(dir.join("agent.sh"), script.replace("TEST_AGENT", programs::test_agent())).unwrap();
    for _ in 0..3 {
        let mut client = server.client(TransportKind::Unix, Dialect::V2, "hanging");
        let said = whoami(&mut client);
        assert!(said.contains(" v1"), "{said}");
        client.call("_parlor/agents/stop", json!({ "agent": "hanging" })).unwrap();
        std::fs::write(dir.join("upgraded"), "").unwrap();
    }
    let asked = std::fs::read_to_string(dir.join("asked")).unwrap();
    assert_eq!(asked, "asked\n", "it is tried once");
}

#[test]
fn an_agent_that_offers_more_in_version_1_and_fails_once_is_not_spoken_to_in_version_2() {
    let crashing = r#"
[agents.crashing]
command = ["sh", "TEST_DIR/agent.sh"]
"#;
    let script = r#"
if [ -e "$(dirname "$0")/crash" ]; then rm "$(dirname "$0")/crash"; exit 1; fi
exec TEST_AGENT --name @agentclientprotocol/claude-agent-acp --agent-version 0.99.1 --offers load,steering
"#;
    let server = start_server(crashing);
    let dir = server.dir().path();
    std::fs::write(dir.join("agent.sh"), script.replace("TEST_AGENT", programs::test_agent())).unwrap();
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "crashing");
    let said = whoami(&mut client);
    assert!(said.contains(" v1"), "{said}");
    client.call("_parlor/agents/stop", json!({ "agent": "crashing" })).unwrap();
    std::fs::write(dir.join("crash"), "").unwrap();
    let params = json!({ "cwd": "/", "mcpServers": [] });
    let error = client.call("session/new", params).unwrap_err();
    assert_eq!(error["data"]["reason"], "agent_unavailable", "{error}");
    assert!(!dir.join("crash").exists(), "it has crashed");
    let said = whoami(&mut client);
    assert!(said.contains(" v1"), "{said}");
}

#[test]
fn a_release_of_an_agent_that_rejects_version_1_is_spoken_to_in_version_2() {
    let rejecting = r#"
[agents.rejecting]
command = ["sh", "TEST_DIR/agent.sh"]
"#;
    let script = r#"
if [ ! -e "$(dirname "$0")/upgraded" ]; then exec TEST_AGENT --version 1; fi
read -r line
case $line in
*'"protocolVersion":1'*) echo '{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"version 2 only"}}' ;;
*) { printf '%s\n' "$line"; cat; } | TEST_AGENT --version 2 ;;
esac
"#;
    let server = start_server(rejecting);
    let dir = server.dir().path();
    std::fs::write(dir.join("agent.sh"), script.replace("TEST_AGENT", programs::test_agent())).unwrap();
    for version in [" v1", " v2", " v2"] {
        let mut client = server.client(TransportKind::Unix, Dialect::V2, "rejecting");
        let said = whoami(&mut client);
        assert!(said.contains(version), "{version}: {said}");
        client.call("_parlor/agents/stop", json!({ "agent": "rejecting" })).unwrap();
        std::fs::write(dir.join("upgraded"), "").unwrap();
    }
}
