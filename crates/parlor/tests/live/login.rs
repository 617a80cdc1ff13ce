//! Logins to agents.

use parlor_dialect::Dialect;
use parlor_testkit::client::{Client, ClientBuilder};
use parlor_testkit::process::is_alive;
use parlor_testkit::server::Server;
use parlor_testkit::transport::TransportKind;
use parlor_testkit::wait::wait_until;
use serde_json::{Value, json};

use crate::start_server;

/// Agents that require a login, one per dialect.
const AGENTS: [&str; 3] = ["login-v1", "login-v2", "login-draft"];

fn server() -> Server {
    server_with("test,url,terminal,meta")
}

/// A server whose agents have these login methods.
fn server_with(methods: &str) -> Server {
    let agents = [("v1", "1", ""), ("v2", "2", ""), ("draft", "2", "dialect = \"draft\"\n")];
    let agents = agents.map(|(name, version, rest)| {
        let options = format!("\"--version\", \"{version}\", \"--auth={methods}\"");
        let file = format!("\"--login-file\", \"TEST_DIR/logged-in-{name}\"");
        format!("[agents.login-{name}]\ncommand = [\"TEST_AGENT\", {options}, {file}]\n{rest}")
    });
    start_server(&agents.concat())
}

fn login(agent: &str, method: &str) -> Value {
    json!({ "agent": agent, "methodId": method, "columns": 90, "rows": 30 })
}

/// The output of a login on a terminal so far.
fn output(client: &Client) -> String {
    let lines = client.received.iter().filter(|line| line["method"] == "_parlor/login/output");
    lines.map(|line| line["params"]["data"].as_str().unwrap()).collect()
}

/// Starts a login on a terminal and waits until its program asks: the id of the request and the pid of the program.
fn start_terminal(client: &mut Client, agent: &str) -> (u64, u32) {
    let id = client.send("_parlor/login", login(agent, "terminal"));
    let pid = client.wait_for("the program asks", |client| {
        let output = output(client);
        output.contains("Password: ").then(|| {
            let pid = output.split("pid ").nth(1).unwrap().split(',').next().unwrap();
            pid.parse().unwrap()
        })
    });
    (id, pid)
}

fn type_text(client: &mut Client, agent: &str, text: &str) {
    client.call("_parlor/login/input", json!({ "agent": agent, "data": text })).unwrap();
}

/// Whether the server says that a person is logged in.
fn is_logged_in(client: &mut Client, agent: &str) -> Value {
    let agents = client.call("_parlor/agents", json!({})).unwrap();
    let agents = agents["agents"].as_array().unwrap().clone();
    agents.into_iter().find(|one| one["name"] == agent).unwrap()["loggedIn"].clone()
}

#[test]
fn the_error_of_an_agent_that_requires_a_login_names_the_command_and_the_methods() {
    let mut server = server();
    for agent in AGENTS {
        for dialect in Dialect::ALL {
            let mut client = server.client(TransportKind::Unix, dialect, agent);
            let error = client.call("session/new", json!({ "cwd": "/", "mcpServers": [] })).unwrap_err();
            assert_eq!(error["code"], -32000, "{error}");
            let message =
                format!("agent '{agent}' requires a login (log in first): run `parlor login {agent}`");
            assert_eq!(error["message"], message.as_str());
            assert_eq!(error["data"]["agent"], agent);
            let methods = error["data"]["methods"].as_array().unwrap();
            let ids: Vec<_> = methods.iter().map(|method| method["methodId"].as_str().unwrap()).collect();
            assert_eq!(ids, ["test", "url", "terminal", "meta"]);
            let kinds: Vec<_> = methods.iter().map(|method| method["type"].as_str().unwrap()).collect();
            assert_eq!(kinds, ["agent", "agent", "terminal", "terminal"]);
            assert_eq!(is_logged_in(&mut client, agent), json!(false));
        }
    }
    server.restart();
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "v2");
    for agent in AGENTS {
        assert_eq!(is_logged_in(&mut client, agent), json!(false), "it is stored");
    }
    assert_eq!(is_logged_in(&mut client, "v2"), Value::Null, "nothing is known");
}

#[test]
fn a_login_by_the_agent_lets_sessions_open_until_the_logout() {
    let server = server();
    for agent in AGENTS {
        for dialect in Dialect::ALL {
            let mut client = server.client(TransportKind::Unix, dialect, agent);
            let result = client.call("_parlor/login", login(agent, "test")).unwrap();
            assert_eq!((&result["outcome"], &result["agent"]), (&json!("logged_in"), &json!(agent)));
            assert_eq!(result["method"]["methodId"], "test");
            assert_eq!(is_logged_in(&mut client, agent), json!(true));
            let session = client.new_session();
            assert_eq!(client.turn(&session, "say hello"), "end_turn");
            // A prompt requires a login, too.
            client.call(if dialect == Dialect::V1 { "logout" } else { "auth/logout" }, json!({})).unwrap();
            assert_eq!(is_logged_in(&mut client, agent), json!(false));
            let id = client.prompt(&session, "say hello");
            let response = client.response(id);
            // A prompt to an agent of version 1 is accepted when it is sent; then the turn fails.
            let error = match response {
                Ok(_) => client.wait_for("the failed turn", |client| {
                    let states = client.updates(&session, 0).filter_map(|update| update.get("error"));
                    states.last().cloned()
                }),
                Err(error) => error,
            };
            assert_eq!((&error["code"], &error["data"]["agent"]), (&json!(-32000), &json!(agent)), "{error}");
        }
    }
}

#[test]
fn a_failed_turn_that_requires_a_login_names_the_command() {
    // An agent of version 1 answers the prompt with the error; one of version 2 sends it with the state.
    let server = server();
    for agent in AGENTS {
        let mut client = server.client(TransportKind::Unix, Dialect::V2, agent);
        client.call("_parlor/login", login(agent, "test")).unwrap();
        let session = client.new_session();
        client.turn(&session, "fail -32000 the token has expired");
        let states = client.updates(&session, 0).filter_map(|update| update.get("error"));
        let error = states.last().cloned().unwrap();
        let message =
            format!("agent '{agent}' requires a login (the token has expired): run `parlor login {agent}`");
        assert_eq!((&error["message"], &error["code"]), (&json!(message), &json!(-32000)), "{error}");
        assert_eq!(error["data"]["methods"][0]["methodId"], "test", "{error}");
        assert_eq!(is_logged_in(&mut client, agent), json!(false));
    }
}

#[test]
fn a_link_of_the_agent_is_sent_to_the_client_that_logs_in() {
    let server = server();
    for agent in AGENTS {
        let capabilities = json!({ "elicitation": { "url": {} } });
        let builder = ClientBuilder::new(TransportKind::WebSocket, Dialect::V2, agent);
        let mut client = builder.with_capabilities(capabilities).connect(&server);
        for (action, is_accepted) in [("decline", false), ("accept", true)] {
            let id = client.send("_parlor/login", login(agent, "url"));
            let request = client.peer_request("elicitation/create");
            assert_eq!(request["params"]["url"], "https://example.org/login");
            assert_eq!(request["params"]["requestId"], json!(id));
            client.respond(&request, &json!({ "action": action }));
            let result = client.response(id);
            if is_accepted {
                assert_eq!(result.unwrap()["outcome"], "logged_in");
            } else {
                let message = format!("the login to agent '{agent}' failed: the link was not opened");
                assert_eq!(result.unwrap_err()["message"], message.as_str());
            }
        }
        client.new_session();
    }
}

#[test]
fn a_login_on_a_terminal_is_relayed_and_lets_sessions_open() {
    let server = server();
    for (agent, transport) in AGENTS.into_iter().zip(TransportKind::ALL) {
        let mut client = server.client(transport, Dialect::V2, agent);
        client.call("session/new", json!({ "cwd": "/", "mcpServers": [] })).unwrap_err();
        let (id, _) = start_terminal(&mut client, agent);
        assert!(output(&client).contains("TEST_LOGIN \"yes\""), "{}", output(&client));
        type_text(&mut client, agent, "wrong\r");
        let error = client.response(id).unwrap_err();
        assert_eq!(error["data"]["exitCode"], 1, "{error}");
        assert_eq!(is_logged_in(&mut client, agent), json!(false));

        client.received.clear();
        let (id, _) = start_terminal(&mut client, agent);
        client.call("_parlor/login/input", json!({ "agent": agent, "columns": 40, "rows": 10 })).unwrap();
        type_text(&mut client, agent, "sword");
        type_text(&mut client, agent, "fish\r");
        assert_eq!(client.response(id).unwrap()["outcome"], "logged_in");
        assert!(output(&client).contains("Welcome."), "{}", output(&client));
        assert_eq!(is_logged_in(&mut client, agent), json!(true));
        let session = client.new_session();
        assert_eq!(client.turn(&session, "say hello"), "end_turn");
    }
}

#[test]
fn a_command_in_the_metadata_of_a_method_runs_on_a_terminal() {
    let server = server();
    for agent in AGENTS {
        let mut client = server.client(TransportKind::Unix, Dialect::V1, agent);
        let id = client.send("_parlor/login", login(agent, "meta"));
        client.wait_for("the program asks", |client| output(client).contains("Password: ").then_some(()));
        type_text(&mut client, agent, "swordfish\r");
        assert_eq!(client.response(id).unwrap()["outcome"], "logged_in");
        client.new_session();
    }
}

#[test]
fn the_program_of_a_login_is_killed_when_its_client_disconnects() {
    let server = server();
    let agent = "login-v2";
    let mut client = server.client(TransportKind::WebSocket, Dialect::V2, agent);
    let (_, pid) = start_terminal(&mut client, agent);
    type_text(&mut client, agent, "hang\r");

    let mut other = server.client(TransportKind::Unix, Dialect::V2, agent);
    let error = other.call("_parlor/login", login(agent, "test")).unwrap_err();
    assert_eq!((&error["code"], &error["data"]["reason"]), (&json!(-32600), &json!("login_running")));
    let error = other.call("_parlor/login/input", json!({ "agent": agent, "data": "x" })).unwrap_err();
    assert_eq!((&error["code"], &error["data"]["reason"]), (&json!(-32602), &json!("no_login")));
    // Another agent is not affected.
    other.call("_parlor/login", login("login-v1", "test")).unwrap();

    assert!(is_alive(pid));
    client.close();
    wait_until("the program is killed", || !is_alive(pid));
    wait_until("the next login can start", || other.call("_parlor/login", login(agent, "test")).is_ok());
}

#[test]
fn a_cancelled_login_ends_its_program_also_while_that_writes_without_end() {
    let server = server();
    let agent = "login-v1";
    let mut client = server.client(TransportKind::Unix, Dialect::V2, agent);
    let (id, pid) = start_terminal(&mut client, agent);
    type_text(&mut client, agent, "chatter\r");
    client.wait_for("output", |client| (output(client).len() > 1 << 20).then_some(()));
    client.cancel_request(id);
    assert_eq!(client.response(id).unwrap_err()["code"], -32800);
    wait_until("the program is killed", || !is_alive(pid));
}

#[test]
fn a_killed_server_leaves_no_program_of_a_login() {
    let mut server = server();
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "login-v2");
    let (_, pid) = start_terminal(&mut client, "login-v2");
    server.kill();
    wait_until("the program is killed", || !is_alive(pid));
}

#[test]
fn a_method_by_environment_variable_names_the_variable() {
    // Version 1 does not have such methods.
    let server = server_with("env");
    for agent in AGENTS {
        let mut client = server.client(TransportKind::Unix, Dialect::V2, agent);
        let error = client.call("session/new", json!({ "cwd": "/", "mcpServers": [] })).unwrap_err();
        assert_eq!(error["data"]["methods"][0]["type"], "env_var");
        let result = client.call("_parlor/login", login(agent, "env")).unwrap();
        assert_eq!(result["outcome"], "variables_required");
        assert_eq!(
            result["method"]["variables"],
            json!([{ "name": "TEST_API_KEY", "label": "Key", "optional": false, "isSet": false }])
        );
        let listed = client.call("_parlor/login/methods", json!({ "agent": agent })).unwrap();
        assert_eq!(listed["methods"][0]["link"], "https://example.org/keys");
    }
}

#[test]
fn invalid_logins_are_rejected() {
    let server = server();
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "login-v2");
    for (params, message) in [
        (json!({ "agent": "nobody", "methodId": "test" }), "unknown agent 'nobody'"),
        (login("login-v2", "nothing"), "has no login method 'nothing' (it has: test, url, terminal, meta)"),
        (json!({}), "`methodId` must be one of: test, url, terminal, meta"),
        (login("v2", "test"), "agent 'v2' has no login methods"),
    ] {
        let error = client.call("_parlor/login", params).unwrap_err();
        assert_eq!(error["code"], -32602, "{error}");
        assert!(error["message"].as_str().unwrap().contains(message), "{error}");
    }
    let long = json!({ "agent": "login-v2", "data": "x".repeat(70_000) });
    assert_eq!(client.call("_parlor/login/input", long).unwrap_err()["code"], -32602);
    let builder = ClientBuilder::new(TransportKind::WebSocket, Dialect::V2, "login-v2");
    let mut observer = builder.observer().connect(&server);
    for method in ["_parlor/login", "_parlor/login/methods", "_parlor/login/input", "_parlor/agent_sessions"]
    {
        let error = observer.call(method, login("login-v2", "test")).unwrap_err();
        assert_eq!(
            (&error["code"], &error["data"]["reason"]),
            (&json!(-32600), &json!("observer")),
            "{method}"
        );
    }
}

#[test]
fn clients_get_only_the_methods_that_they_can_use() {
    let server = server();
    let terminal = json!({ "auth": { "terminal": true }, "_meta": { "terminal-auth": true } });
    for (transport, capabilities, has_command) in [
        (TransportKind::Unix, json!({}), false),
        (TransportKind::Unix, terminal.clone(), true),
        (TransportKind::WebSocket, terminal, false),
    ] {
        let builder = ClientBuilder::new(transport, Dialect::V1, "login-v1");
        let client = builder.with_capabilities(capabilities).connect(&server);
        let methods = client.received.iter().find_map(|line| line["result"].get("authMethods")).unwrap();
        let ids: Vec<_> = methods.as_array().unwrap().iter().map(|method| method["id"].clone()).collect();
        assert_eq!(ids, ["test", "url", "meta"], "parlor runs the program of `terminal`");
        assert_eq!(methods[2]["_meta"].get("terminal-auth").is_some(), has_command, "{methods}");
    }
}
