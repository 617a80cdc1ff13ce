//! Changes of config.toml while the server runs.

use std::fs;

use parlor_dialect::Dialect;
use parlor_testkit::client::Client;
use parlor_testkit::server::{Server, TestDir};
use parlor_testkit::transport::TransportKind;
use parlor_testkit::wait::wait_until;
use serde_json::{Value, json};

use crate::start_server;

/// An agent that says its name in `env NAME`.
fn agent(name: &str, value: &str) -> String {
    format!(
        "[agents.{name}]\ncommand = [\"TEST_AGENT\", \"--version\", \"2\"]\nenv = {{ NAME = \"{value}\" }}\n"
    )
}

/// Replaces the configuration file of a server.
fn write_config(dir: &TestDir, config: &str) {
    drop(dir.clone().with_test_agents(config));
}

fn status(server: &Server) -> Value {
    server.dir().run(&["status", "--json"]).success().json()["config"].clone()
}

/// The last message of a session.
fn last(client: &Client, session: &str) -> String {
    client.transcript(session).pop().unwrap()
}

#[test]
fn an_agent_that_is_added_can_be_used_at_once() {
    let server = start_server("");
    let mut before = server.client(TransportKind::Unix, Dialect::V2, "v1");
    let session = before.new_session();
    write_config(server.dir(), &agent("added", "one"));
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "added");
    let added = client.new_session();
    client.turn(&added, "env NAME");
    assert!(last(&client, &added).contains("NAME=one"));
    // A client that was connected before can name it, too.
    let params = json!({ "sessionId": session, "_meta": { "parlor/agent": "added" } });
    before.call("session/fork", params).unwrap();
}

#[test]
fn a_changed_agent_applies_to_new_processes_and_running_ones_continue() {
    let server = start_server(&agent("mine", "one"));
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "mine");
    let session = client.new_session();
    client.turn(&session, "env NAME");
    assert!(last(&client, &session).contains("NAME=one"));
    let prompt = client.prompt(&session, "ask Go on?\nenv NAME");
    let question = client.peer_request("session/request_permission");
    write_config(server.dir(), &agent("mine", "two"));
    let mut next = server.client(TransportKind::Unix, Dialect::V2, "mine");
    let other = next.new_session();
    next.turn(&other, "env NAME");
    assert!(last(&next, &other).contains("NAME=two"));
    client.choose(&question, "allow-once");
    assert_eq!(client.end_of_turn(&session, prompt), "end_turn");
    assert!(last(&client, &session).contains("NAME=one"), "its process continues");
}

#[test]
fn a_session_of_a_removed_agent_continues_until_its_process_ends() {
    let server = start_server(&agent("mine", "one"));
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "mine");
    let session = client.new_session();
    client.turn(&session, "say One.");
    write_config(server.dir(), "");
    let agents = client.call("_parlor/agents", json!({})).unwrap();
    assert!(!agents.to_string().contains("mine"), "{agents}");
    assert_eq!(client.turn(&session, "say Two."), "end_turn");
    assert_eq!(client.turn(&session, "crash"), "error");
    let prompt = client.prompt(&session, "say Three.");
    let error = client.response(prompt).unwrap_err();
    assert!(error["message"].as_str().unwrap().contains("not configured any more"), "{error}");
}

#[test]
fn an_invalid_file_leaves_the_configuration_in_force_and_the_status_reports_it() {
    let server = start_server("");
    assert_eq!(status(&server), json!({ "path": server.dir().config() }));
    fs::write(server.dir().config(), "default_agent = \"v1\"\n\nlisten = 1\n").unwrap();
    let config = status(&server);
    let location = format!("{}:3", server.dir().config().display());
    assert_eq!(config["error"]["location"], location, "{config}");
    assert!(config["error"]["message"].as_str().unwrap().contains("listen"), "{config}");
    let shown = server.dir().run(&["status"]).success().plain().stdout;
    assert!(shown.contains("invalid; the configuration before it is in force"), "{shown}");
    assert!(shown.contains("config.toml:3: unknown setting listen"), "{shown}");
    // The agents are those of before.
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "v2");
    let session = client.new_session();
    assert_eq!(client.turn(&session, "say One."), "end_turn");
    let log = server.dir().run(&["logs"]).success().stdout;
    assert!(log.contains("the configuration has changed and is invalid"), "{log}");

    fs::remove_file(server.dir().config()).unwrap();
    let config = status(&server);
    assert!(config["error"]["message"].as_str().unwrap().contains("cannot read"), "{config}");
    write_config(server.dir(), "");
    assert_eq!(status(&server), json!({ "path": server.dir().config() }));
}

#[test]
fn a_setting_of_the_server_takes_effect_after_a_restart() {
    let server = start_server("");
    write_config(server.dir(), "[server]\nhosts = [\"box.example\"]\nlisten = \"127.0.0.1:7700\"\n");
    // `--listen` is stronger than the file, also after a restart.
    assert_eq!(status(&server)["needsRestart"], json!(["server.hosts"]));
    let shown = server.dir().run(&["status"]).success().plain().stdout;
    assert!(shown.contains("server.hosts takes effect after `parlor restart`"), "{shown}");
    write_config(server.dir(), "");
    assert_eq!(status(&server).get("needsRestart"), None);
}

#[test]
fn a_change_is_applied_without_a_client_that_asks_for_it() {
    let server = start_server("");
    fs::write(server.dir().config(), "nothing valid").unwrap();
    let log = server.dir().data().join("log");
    let is_logged = || {
        let files = fs::read_dir(&log).into_iter().flatten().flatten();
        files.filter_map(|file| fs::read_to_string(file.path()).ok()).any(|text| text.contains("is invalid"))
    };
    wait_until("the server reports the invalid file", is_logged);
}
