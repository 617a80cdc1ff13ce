//! Titles of users, and their precedence over other titles.

use std::fs;
use std::process::Command;

use parlor_dialect::Dialect;
use parlor_testkit::client::{ClientBuilder, error_code};
use parlor_testkit::server::TEST_AGENTS;
use parlor_testkit::transport::TransportKind;
use parlor_testkit::wait::wait_until;
use serde_json::{Value, json};

use crate::Titles;
use crate::{PARLOR, start_server};
use crate::{each, joiner};

#[test]
fn a_generated_title_is_sent_live_and_replaced_by_the_agents_title() {
    each(|server, agent, clients, session| {
        clients[0].turn(session, "say Hello,   world\nsay More");
        for client in clients.iter_mut() {
            client.wait_for_title(session, "say Hello, world", &json!("made"));
            let listed = client.listed(session);
            assert_eq!(listed["title"], "say Hello, world", "{agent}");
            assert_eq!(listed["_meta"]["parlor/title"], "made", "{agent}: {listed}");
        }
        for dialect in Dialect::ALL {
            let info = joiner(server, dialect, agent, session);
            assert_eq!(
                (&info["title"], &info["_meta"]["parlor/title"]),
                (&json!("say Hello, world"), &json!("made"))
            );
        }
        clients[1].turn(session, "title The agent's");
        for client in clients.iter_mut() {
            client.wait_for_title(session, "The agent's", &Value::Null);
            assert_eq!(client.listed(session)["_meta"].get("parlor/title"), None, "{agent}");
        }
        for dialect in Dialect::ALL {
            let info = joiner(server, dialect, agent, session);
            assert_eq!(
                (&info["title"], info["_meta"].get("parlor/title")),
                (&json!("The agent's"), None),
                "{agent}"
            );
        }
    });
}

#[test]
fn a_user_title_stays_until_a_user_clears_it() {
    each(|server, agent, clients, session| {
        clients[0].turn(session, "title First");
        for n in 0..3 {
            let mine = format!("Mine {n}");
            let set = json!({ "sessionId": session, "title": format!("  {mine} ") });
            let answer = clients[n].call("session/set_title", set).unwrap();
            assert_eq!(answer["title"], mine.as_str());
            for client in clients.iter_mut() {
                client.wait_for_title(session, &mine, &json!("person"));
                assert_eq!(client.listed(session)["title"], mine.as_str());
            }
        }
        let marks = [0, 1, 2].map(|n| clients[n].mark());
        clients[1].turn(session, "title Hidden\ntitle Later\nmeta {\"k\":1}");
        for (client, mark) in clients.iter_mut().zip(marks) {
            client.wait_for("the metadata is received", |client| {
                (client.info(session)["_meta"]["k"] == 1).then_some(())
            });
            assert_eq!(client.info(session)["title"], "Mine 2", "{agent}");
            let sent = client.updates(session, mark).filter(|update| update.get("title").is_some());
            assert_eq!(sent.count(), 0, "a title without effect is not sent");
        }
        assert_eq!(joiner(server, Dialect::V2, agent, session)["title"], "Mine 2");
        let cleared =
            clients[0].call("_parlor/title", json!({ "sessionId": session, "title": null })).unwrap();
        assert_eq!(cleared["title"], "Later", "{agent}");
        for client in clients.iter_mut() {
            client.wait_for_title(session, "Later", &Value::Null);
        }
    });
}

#[test]
fn titles_survive_a_restart() {
    let mut server = start_server("");
    let mut sessions = Vec::new();
    for agent in TEST_AGENTS {
        let mut client = server.client(TransportKind::Unix, Dialect::V2, agent);
        let session = client.new_session();
        client.turn(&session, "title The agent's");
        client.call("session/set_title", json!({ "sessionId": session, "title": "Mine" })).unwrap();
        sessions.push((agent, session));
    }
    server.crash();
    for (agent, session) in sessions {
        let mut client = server.client(TransportKind::Unix, Dialect::V1, agent);
        assert_eq!(client.listed(&session)["title"], "Mine");
        client.load(&session);
        client.wait_for_title(&session, "Mine", &json!("person"));
        client.turn(&session, "title Newer");
        assert_eq!(client.listed(&session)["title"], "Mine");
        client.call("_parlor/title", json!({ "sessionId": session })).unwrap();
        client.wait_for_title(&session, "Newer", &Value::Null);
        client.turn(&session, "title");
        client.wait_for_title(&session, "title The agent's", &json!("made"));
    }
}

#[test]
fn a_title_is_set_without_attaching_and_invalid_ones_are_rejected() {
    let server = start_server("");
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "v1");
    let session = client.new_session();
    for dialect in Dialect::ALL {
        let mut other = server.client(TransportKind::WebSocket, dialect, "v1");
        let mine = format!("Mine {dialect}");
        other.call("session/set_title", json!({ "sessionId": session, "title": mine })).unwrap();
        client.wait_for_title(&session, &mine, &json!("person"));
        for (title, session, wrong) in [
            (json!(" \n"), session.as_str(), -32602),
            (json!(null), &session, -32602),
            (json!(7), &session, -32602),
            (json!("x"), "nothing", -32002),
        ] {
            let set = other.call("session/set_title", json!({ "sessionId": session, "title": title }));
            assert_eq!(error_code(&set), wrong, "{title}");
        }
        let long = "ü".repeat(600);
        let set = other.call("session/set_title", json!({ "sessionId": session, "title": long })).unwrap();
        assert_eq!(set["title"], "ü".repeat(500));
        assert!(other.fold(&session).is_none(), "a client that only sets a title gets no updates");
    }
    let mut watcher =
        ClientBuilder::new(TransportKind::WebSocket, Dialect::V2, "v1").observer().connect(&server);
    for method in ["session/set_title", "_parlor/title", "session/archive", "_parlor/archive"] {
        let set = watcher.call(method, json!({ "sessionId": session, "title": "No", "archived": true }));
        assert_eq!(set.unwrap_err()["data"]["reason"], "observer");
    }
}

#[test]
fn the_server_advertises_titles_in_initialize() {
    let server = start_server("");
    for dialect in Dialect::ALL {
        let client = server.client(TransportKind::Unix, dialect, "v2");
        let output = &client.received[0]["result"];
        let capabilities = match dialect {
            Dialect::V1 => &output["agentCapabilities"]["sessionCapabilities"],
            Dialect::V2 | Dialect::Draft => &output["capabilities"]["session"],
        };
        assert_eq!((&capabilities["title"], &capabilities["archive"]), (&json!({}), &json!({})), "{output}");
    }
}

#[test]
fn an_agent_with_the_capability_gets_user_titles_and_its_echo_is_not_an_agent_title() {
    let server = start_server(
        "[agents.titled]\ncommand = [\"TEST_AGENT\", \"--state\", \"TEST_DIR/state\", \"--offers\", \"load,resume,list,title\"]\n",
    );
    let state = server.dir().path().join("state");
    for dialect in Dialect::ALL {
        let mut client = server.client(TransportKind::Unix, dialect, "titled");
        let session = client.new_session();
        client.turn(&session, "title The agent's");
        let mine = format!("Mine {dialect}");
        client.call("session/set_title", json!({ "sessionId": session, "title": mine })).unwrap();
        let stored_title = format!("\"title\":\"{mine}\"");
        let has_it = |file: fs::DirEntry| {
            fs::read_to_string(file.path()).is_ok_and(|text| text.contains(&stored_title))
        };
        wait_until(&format!("the agent has the title {mine}"), || {
            fs::read_dir(&state).unwrap().any(|file| has_it(file.unwrap()))
        });
        // All updates before the end of the turn have been received.
        client.turn(&session, "say Go on.");
        let cleared = client.call("_parlor/title", json!({ "sessionId": session })).unwrap();
        assert_eq!(cleared["title"], "The agent's");
    }
}

#[test]
fn the_command_sets_and_clears_the_title() {
    let server = start_server("");
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "v1");
    let session = client.new_session();
    client.turn(&session, "title The agent's");
    let run = |args: &[&str]| {
        let mut command = Command::new(PARLOR);
        command
            .arg(args[0])
            .arg("--data")
            .arg(server.dir().data())
            .arg("--config")
            .arg(server.dir().config());
        let output = command.args(&args[1..]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(run(&["title", &session, "Mine \u{1b}[2J"]), "Mine \u{fffd}[2J\n");
    client.wait_for_title(&session, "Mine \u{1b}[2J", &json!("person"));
    assert!(run(&["ls"]).contains("Mine \u{fffd}[2J"));
    assert_eq!(run(&["title", &session, ""]), "The agent's\n");
    client.wait_for_title(&session, "The agent's", &Value::Null);
    run(&["title", "latest", "--all", "Mine"]);
    let cleared: Value = serde_json::from_str(&run(&["title", "--json", &session, "--clear"])).unwrap();
    assert_eq!(cleared, json!({ "sessionId": session, "title": "The agent's" }));
}
