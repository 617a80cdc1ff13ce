//! Checks that `docs/protocol.md` lists the names that the sources add to the protocol, and no others, and that a server answers
//! each method with the members that the page documents.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use parlor_dialect::Dialect;
use parlor_testkit::client::{Client, ClientBuilder, error_code};
use parlor_testkit::server::{Server, TestDir};
use parlor_testkit::transport::TransportKind;
use serde_json::{Value, json};

/// The program under test.
const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The names in the first cells of the tables. A name without a row of its own is not listed.
fn listed() -> BTreeSet<String> {
    let page = fs::read_to_string(root().join("docs/protocol.md")).unwrap();
    let first_cells = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let names = first_cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    // These are messages and no names of the protocol.
    names.filter(|name| !["Hello", "Welcome"].contains(name)).map(str::to_owned).collect()
}

/// The names in the sources of the crates that are shipped.
fn in_sources() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for folder in fs::read_dir(root().join("crates")).unwrap().map(|folder| folder.unwrap().path()) {
        let name = folder.file_name().unwrap();
        if name != "parlor-testkit" && name != "parlor-peers" {
            collect(&folder.join("src"), &mut names);
        }
    }
    names
}

fn collect(folder: &Path, names: &mut BTreeSet<String>) {
    for path in fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
        if path.is_dir() {
            collect(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&path).unwrap();
            let code = source.split("#[cfg(test)]").next().unwrap();
            names.extend(literals(code).filter(|literal| is_name(literal)).map(str::to_owned));
        }
    }
}

/// What stands between two quotes of a line, also between the end of one literal and the start of the next.
fn literals(code: &str) -> impl Iterator<Item = &str> {
    let lines = code.lines().map(str::trim_start).filter(|line| !line.starts_with("//"));
    lines.flat_map(|line| line.split('"').skip(1))
}

/// Whether a literal is a method, a kind of update, a cursor or a metadata key of parlor.
fn is_name(literal: &str) -> bool {
    ["_parlor/", "_parlor_", "parlor/"].iter().any(|prefix| {
        literal.strip_prefix(prefix).is_some_and(|rest| {
            !rest.is_empty() && rest.chars().all(|c| c.is_ascii_alphabetic() || c == '_' || c == '/')
        })
    })
}

#[test]
fn every_name_in_the_sources_is_in_the_tables() {
    let (listed, used) = (listed(), in_sources());
    assert!(used.len() > 50, "{} names", used.len());
    let missing: Vec<_> = used.difference(&listed).collect();
    assert!(missing.is_empty(), "not in docs/protocol.md: {missing:#?}");
}

#[test]
fn every_name_in_the_tables_is_in_the_sources() {
    let (listed, used) = (listed(), in_sources());
    let unknown: Vec<_> = listed.difference(&used).collect();
    assert!(unknown.is_empty(), "in docs/protocol.md, but in no source: {unknown:#?}");
}

#[test]
fn names_are_recognised_in_code_and_not_in_comments() {
    let code = r#"
        /// "parlor/comment"
        object.set_nested("_meta", "parlor/seq", 1).with("_parlor_tail", "parlor/x.toml");
        "_parlor/list/update" | "session/list" => method.starts_with("_parlor/"),
        format!("parlor/{name}")
    "#;
    let found: Vec<_> = literals(code).filter(|literal| is_name(literal)).collect();
    assert_eq!(found, ["parlor/seq", "_parlor_tail", "_parlor/list/update"]);
}

/// A value as the page writes it: `{ name, optional?, inner: { member }, list: [{ member }] }`. A name alone is any value, and `...`
/// stands for members of a message of the protocol itself.
#[derive(Debug, Clone, PartialEq)]
enum Shape {
    Any,
    List(Box<Shape>),
    Object { members: BTreeMap<String, (bool, Shape)>, is_open: bool },
}

impl Shape {
    fn parse(text: &str) -> Self {
        let mut rest = text.trim();
        let shape = Self::value(&mut rest);
        assert_eq!(rest.trim(), "", "the end of {text}");
        shape
    }

    fn value(rest: &mut &str) -> Self {
        if take(rest, "[") {
            let item = Self::value(rest);
            assert!(take(rest, "]"), "a list ends with ]: {rest}");
            return Self::List(Box::new(item));
        }
        if !take(rest, "{") {
            assert!(take(rest, "_"), "a value is _, a list or an object: {rest}");
            return Self::Any;
        }
        let (mut members, mut is_open) = (BTreeMap::new(), false);
        while !take(rest, "}") {
            if take(rest, "...") {
                is_open = true;
            } else {
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap();
                let (name, after) = rest.split_at(end);
                assert_ne!(name, "", "a member has a name: {rest}");
                *rest = after;
                let is_optional = take(rest, "?");
                let value = if take(rest, ":") { Self::value(rest) } else { Self::Any };
                members.insert(name.to_owned(), (is_optional, value));
            }
            take(rest, ",");
        }
        Self::Object { members, is_open }
    }

    /// Checks that a value has the documented members, and no others.
    fn check(&self, what: &str, value: &Value) {
        match (self, value) {
            (Self::Any, _) => {}
            (Self::List(item), Value::Array(values)) => {
                values.iter().for_each(|value| item.check(what, value));
            }
            (Self::Object { members, is_open }, Value::Object(object)) => {
                for (name, (is_optional, shape)) in members {
                    match object.get(name) {
                        Some(value) => shape.check(&format!("{what}.{name}"), value),
                        None => assert!(*is_optional, "{what} has no {name}: {value}"),
                    }
                }
                let other = object.keys().find(|name| !members.contains_key(*name));
                assert!(*is_open || other.is_none(), "{what} has {other:?}, which is not documented");
            }
            (Self::List(_) | Self::Object { .. }, other) => panic!("{what} is {other}"),
        }
    }
}

/// Takes a text from the beginning of the rest, without the spaces around it.
fn take(rest: &mut &str, text: &str) -> bool {
    *rest = rest.trim_start();
    let Some(after) = rest.strip_prefix(text) else { return false };
    *rest = after.trim_start();
    true
}

/// The rows of the table below a heading: the code in the first three cells.
fn shapes(heading: &str) -> BTreeMap<String, (String, String)> {
    let page = fs::read_to_string(root().join("docs/protocol.md")).unwrap();
    let section = page.split(&format!("\n{heading}\n")).nth(1).expect(heading);
    let rows = section.split("\n#").next().unwrap().lines().filter(|line| line.starts_with("| `"));
    let cell = |cell: &str| cell.split('`').nth(1).unwrap_or_default().to_owned();
    rows.map(|row| {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").collect();
        (cell(cells[0]), (cell(cells[1]), cell(cells[2])))
    })
    .collect()
}

/// Calls methods and compares their params and results with the page.
struct Checker {
    shapes: BTreeMap<String, (String, String)>,
    called: BTreeSet<String>,
}

impl Checker {
    fn call(&mut self, client: &mut Client, method: &str, params: Value) -> Value {
        self.called.insert(method.to_owned());
        let (documented, result) = self.shapes.get(method).unwrap_or_else(|| panic!("{method} has no row"));
        Shape::parse(documented).check(&format!("the params of {method}"), &params);
        let answer = client.call(method, params).unwrap_or_else(|error| panic!("{method}: {error}"));
        Shape::parse(result).check(&format!("the result of {method}"), &answer);
        answer
    }
}

/// A server with a demo agent, and a driver.
fn serve() -> (TestDir, Server, Client) {
    let dir = TestDir::new(PARLOR)
        .with_config("[agents.test]\ncommand = [\"TEST_AGENT\", \"--version\", \"2\"]\n[mcp.parlor]\n");
    let server = dir.serve();
    let client = ClientBuilder::new(TransportKind::Unix, Dialect::V2, "test").connect(&server);
    (dir, server, client)
}

/// Methods whose results other tests check, with the reason.
const CALLED_ELSEWHERE: [(&str, &str); 4] = [
    ("_parlor/browsers/sign_out", "a browser has to be signed in: tests/page"),
    ("_parlor/login", "the agent needs login methods: tests/live/login.rs"),
    ("_parlor/login/input", "a login has to run on a terminal: tests/live/login.rs"),
    ("_parlor/settled", "an embedded agent sends it: crates/parlor-agent/tests"),
];

#[test]
fn results_have_the_documented_members() {
    let (_dir, server, mut client) = serve();
    let client = &mut client;
    let shapes = shapes("### Params and results");
    let mut checker = Checker { shapes, called: BTreeSet::new() };
    let session = client.new_session();
    let lists = checker.call(client, "_parlor/list/subscribe", json!({}));
    assert_eq!(lists, json!({}));
    client.turn(&session, "say hello");
    let of = |more: Value| {
        let mut params = json!({ "sessionId": session });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params
    };
    // Requests of the agent.
    checker.call(client, "_parlor/requests/subscribe", json!({}));
    for answer in ["reject-once", "allow-once"] {
        let prompt = client.prompt(&session, "ask Delete it");
        client.peer_request("session/request_permission");
        let open = checker.call(client, "_parlor/requests", json!({}));
        let id = &open["requests"][0]["requestId"];
        let result = json!({ "outcome": { "outcome": "selected", "optionId": answer } });
        checker.call(client, "_parlor/answer", json!({ "requestId": id, "result": result }));
        client.end_of_turn(&session, prompt);
    }
    // The queue, and cancelling.
    let first = client.prompt(&session, "sleep 60000");
    let second = client.prompt(&session, "say later");
    let queued = client.wait_for_queue(&session, &["say later"]);
    checker.call(client, "_parlor/status", json!({}));
    checker.call(client, "_parlor/withdraw", of(json!({ "id": queued[0]["id"] })));
    client.response(second).unwrap_err();
    checker.call(client, "_parlor/cancel", of(json!({ "_meta": { "parlor/scope": "turn" } })));
    client.end_of_turn(&session, first);
    // The session.
    let tail = client.resume(&session, Some(json!({ "type": "_parlor_tail", "entries": 1 }))).unwrap();
    let before = &tail["_meta"]["parlor/older"];
    let older = checker.call(client, "_parlor/older", of(json!({ "before": before, "entries": 1 })));
    assert!(!older["updates"].as_array().unwrap().is_empty(), "{older}");
    checker.call(client, "_parlor/seen", of(json!({ "seq": 1 })));
    checker.call(client, "_parlor/losses", of(json!({})));
    checker.call(client, "_parlor/title", of(json!({ "title": "A title" })));
    let found = checker.call(client, "_parlor/search", json!({ "query": "hello", "role": "user" }));
    assert_eq!(found["hits"].as_array().unwrap().len(), 1, "{found}");
    let message = &found["hits"][0]["messageId"];
    let prompt = json!([{ "type": "text", "text": "say other" }]);
    checker.call(client, "_parlor/edit", of(json!({ "messageId": message, "prompt": prompt })));
    checker.call(client, "_parlor/regenerate", of(json!({ "messageId": message })));
    checker.call(client, "_parlor/archive", of(json!({ "archived": true })));
    // The server.
    checker.call(client, "_parlor/browsers/link", json!({ "observer": true }));
    checker.call(client, "_parlor/browsers", json!({}));
    let agents = checker.call(client, "_parlor/agents", json!({}));
    assert_eq!(agents["agents"][0]["features"].as_array().map(Vec::is_empty), Some(false), "{agents}");
    checker.call(client, "_parlor/agent_sessions", json!({ "agent": "test" }));
    checker.call(client, "_parlor/login/methods", json!({ "agent": "test" }));
    let status = checker.call(client, "_parlor/status", json!({}));
    assert!(status["config"]["path"].is_string(), "{status}");
    checker.call(client, "_parlor/unsubscribe", json!({}));
    checker.call(client, "_parlor/agents/stop", json!({ "agent": "test", "force": true }));
    drop(server);

    let documented: BTreeSet<_> = checker.shapes.keys().cloned().collect();
    let elsewhere = CALLED_ELSEWHERE.map(|(method, _)| method.to_owned());
    let called: BTreeSet<_> = checker.called.into_iter().chain(elsewhere).collect();
    assert_eq!(called, documented);
}

#[test]
fn notifications_have_the_documented_members() {
    let (_dir, server, mut client) = serve();
    let shapes = shapes("### Notifications");
    let mut watcher = ClientBuilder::new(TransportKind::Unix, Dialect::V2, "test").connect(&server);
    watcher.call("_parlor/list/subscribe", json!({})).unwrap();
    watcher.call("_parlor/requests/subscribe", json!({})).unwrap();
    // Waits until a notification names something in this list.
    let mut wait_for = |member: &str| loop {
        let line: Value = serde_json::from_str(&watcher.next_line()).unwrap();
        let Some(method) = line["method"].as_str() else { continue };
        let Some((params, _)) = shapes.get(method) else { panic!("{method} has no row") };
        Shape::parse(params).check(method, &line["params"]);
        if line["params"][member].as_array().is_some_and(|list| !list.is_empty()) {
            return;
        }
    };
    let session = client.new_session();
    wait_for("sessions");
    let prompt = client.prompt(&session, "ask Delete it");
    let request = client.peer_request("session/request_permission");
    wait_for("opened");
    client.choose(&request, "allow-once");
    wait_for("closed");
    client.end_of_turn(&session, prompt);
    client.call("session/delete", json!({ "sessionId": session })).unwrap();
    wait_for("removed");
}

#[test]
fn the_handshake_has_the_documented_members() {
    let (_dir, server, _client) = serve();
    let shapes = shapes("### The first line on the Unix socket");
    let (hello, _) = &shapes["Hello"];
    let (welcome, _) = &shapes["Welcome"];
    let all = parlor_wire::hello::Hello {
        agent: Some(parlor_wire::hello::Agent::Name("test".to_owned())),
        dialect: Some("draft".to_owned()),
        env: vec![("A".to_owned(), "1".to_owned())],
        cwd: Some("/".into()),
        observer: true,
        name: Some("me".to_owned()),
        ..parlor_wire::hello::Hello::new()
    };
    let answer = |line: &str| -> Value {
        let mut stream = UnixStream::connect(server.socket()).unwrap();
        stream.write_all(line.as_bytes()).unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    };
    for line in [all.to_line(), "{\"parlor\":1}\n".to_owned(), "{\"parlor\":2}\n".to_owned()] {
        if !line.contains('2') {
            Shape::parse(hello).check("Hello", &serde_json::from_str(&line).unwrap());
        }
        let answer = answer(&line);
        Shape::parse(welcome).check("Welcome", &answer);
        assert_eq!(answer.get("error").is_some(), line.contains('2'), "{answer}");
    }
}

#[test]
fn general_errors_are_the_documented_ones() {
    let (_dir, server, mut client) = serve();
    let mut stream = UnixStream::connect(server.socket()).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut raw = |method: &str| -> Value {
        writeln!(stream, "{}", json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": {} })).unwrap();
        serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap()
    };
    // Before `initialize`.
    assert_eq!(raw("_parlor/nothing")["error"]["code"], -32601);
    for method in shapes("### Params and results").keys().filter(|method| *method != "_parlor/settled") {
        let error = &raw(method)["error"];
        assert_ne!(error["code"], -32601, "{method}: {error}");
    }
    assert_eq!(raw("_parlor/title")["error"]["code"], -32600);
    assert_eq!(error_code(&client.call("_parlor/nothing", json!({}))), -32601);
    let unknown = json!({ "sessionId": "nothing", "title": "x" });
    assert_eq!(error_code(&client.call("_parlor/title", unknown)), -32002);
    assert_eq!(error_code(&client.call("_parlor/title", json!({ "title": "x" }))), -32602);
    let mut observer =
        ClientBuilder::new(TransportKind::WebSocket, Dialect::V2, "test").observer().connect(&server);
    let refused = observer.call("_parlor/requests", json!({})).unwrap_err();
    assert_eq!((&refused["code"], &refused["data"]["reason"]), (&json!(-32600), &json!("observer")));
}

#[test]
fn shapes_are_parsed_and_compared() {
    let shape = Shape::parse("{ a, b?, list: [{ c }], rest: { ... } }");
    shape.check("all", &json!({ "a": 1, "b": 2, "list": [{ "c": 3 }], "rest": { "x": 4 } }));
    shape.check("required", &json!({ "a": 1, "list": [], "rest": {} }));
    for wrong in [
        json!({ "list": [], "rest": {} }),
        json!({ "a": 1, "list": [{}], "rest": {} }),
        json!({ "a": 1, "list": [], "rest": {}, "z": 0 }),
    ] {
        let shape = shape.clone();
        assert!(std::panic::catch_unwind(move || shape.check("wrong", &wrong)).is_err());
    }
}
