//! Sessions that only an agent has, and their adoption.

use parlor_dialect::Dialect;
use parlor_testkit::client::{Client, ClientBuilder, error_code};
use parlor_testkit::transport::TransportKind;
use serde_json::{Value, json};

use crate::Lists;
use crate::{STORING_AGENTS, run, server_with, session};

/// The messages of a session, without ids.
fn texts(client: &Client, session: &str) -> Vec<String> {
    let lines = client.transcript(session).into_iter();
    lines
        .map(|line| {
            let (head, text) = line.split_once(": ").unwrap();
            format!("{}: {text}", head.split(' ').next().unwrap())
        })
        .collect()
}

fn expected_texts(id: &str) -> [String; 3] {
    [
        format!("user_message: Question of {id}"),
        "agent_thought: Hm.".to_owned(),
        format!("agent_message: Answer of {id}"),
    ]
}

#[test]
fn an_agent_session_is_listed_and_adopted_when_it_is_loaded() {
    for agent in STORING_AGENTS {
        let names: Vec<_> = Dialect::ALL.iter().map(|dialect| format!("mine-{}", dialect.name())).collect();
        let sessions: Vec<_> = names
            .iter()
            .map(|name| (agent, session(name, Some("A title"), "2025-05-05T05:05:05Z")))
            .collect();
        let mut server = server_with(&sessions);
        for (n, dialect) in Dialect::ALL.into_iter().enumerate() {
            let id = names[n].as_str();
            let mut client = server.client(TransportKind::ALL[n], dialect, agent);
            let listed = client.wait_for_session(id);
            assert_eq!(listed["title"], "A title");
            assert_eq!(listed["updatedAt"], "2025-05-05T05:05:05Z");
            assert_eq!(
                (&listed["_meta"]["parlor/adopted"], &listed["_meta"]["parlor/agent"]),
                (&json!(false), &json!(agent))
            );

            let joined = client.load(id);
            assert_eq!(texts(&client, id), expected_texts(id), "{agent} to {dialect}");
            assert!(joined["configOptions"].is_array() || joined["modes"].is_object(), "{joined}");
            assert_eq!(client.view(id)["info"]["title"], "A title");
            let mut ids: Vec<_> = client.transcript(id);
            ids.dedup();
            assert_eq!(ids.len(), 3, "every message has an id of its own");

            // Now it is an ordinary session: listed once, replayed once.
            let listed = client.list(json!({})).into_iter().filter(|one| one["sessionId"] == id);
            let listed: Vec<_> = listed.collect();
            assert_eq!((listed.len(), listed[0]["_meta"].get("parlor/adopted")), (1, None));
            let mut second = server.client(TransportKind::ALL[n], dialect, agent);
            second.load(id);
            assert_eq!(second.transcript(id), client.transcript(id));
            assert_eq!(client.turn(id, "say More."), "end_turn");
            let stored = server.stored_transcript(id);
            assert!(stored.len() == 5 && stored[4].ends_with(": More."), "{stored:#?}");
            second.wait_for_transcript(id, &stored);
        }
        // It is still there after a crash.
        let id = names[1].as_str();
        let stored = server.stored_transcript(id);
        server.crash();
        let mut client = server.client(TransportKind::Unix, Dialect::V2, agent);
        client.load(id);
        assert_eq!(client.transcript(id), stored);
        assert_eq!(client.turn(id, "say Still here."), "end_turn");
        let after = server.stored_transcript(id);
        assert_eq!((after.len(), &after[..5]), (7, &stored[..]));
    }
}

#[test]
fn resuming_adopts_the_session_without_replay() {
    for agent in STORING_AGENTS {
        let server = server_with(&[(agent, session("mine", None, "2025-05-05T05:05:05Z"))]);
        let mut client = server.client(TransportKind::Unix, Dialect::V1, agent);
        // No client has requested a list before.
        client.resume("mine", None).unwrap();
        assert_eq!(client.transcript("mine"), Vec::<String>::new());
        let mut other = server.client(TransportKind::Unix, Dialect::V2, agent);
        other.load("mine");
        assert_eq!(texts(&other, "mine"), expected_texts("mine"));
        // It has a generated title, because the agent has no title for it.
        assert_eq!(other.view("mine")["info"]["title"], "Question of mine");
    }
}

#[test]
fn concurrent_loads_adopt_a_session_once() {
    for agent in STORING_AGENTS {
        let server = server_with(&[(agent, session("mine", None, "2025-05-05T05:05:05Z"))]);
        let mut clients = [0, 1, 2].map(|n| server.client(TransportKind::ALL[n], Dialect::ALL[n], agent));
        let request_ids = clients.each_mut().map(|client| {
            let mut params = json!({ "sessionId": "mine", "cwd": "/", "mcpServers": [] });
            if client.dialect == Dialect::V1 {
                return client.send("session/load", params);
            }
            params["replayFrom"] = json!({ "type": "start" });
            client.send("session/resume", params)
        });
        for (client, request_ids) in clients.iter_mut().zip(request_ids) {
            client.response(request_ids).unwrap();
            assert_eq!(texts(client, "mine"), expected_texts("mine"), "{agent}");
        }
        let stored = server.stored_transcript("mine");
        clients.iter_mut().for_each(|client| client.wait_for_transcript("mine", &stored));
    }
}

#[test]
fn a_session_that_the_agent_does_not_have_or_cannot_load_is_not_found() {
    let server = server_with(&[("cannot-load", session("mine", None, "2025-05-05T05:05:05Z"))]);
    for dialect in Dialect::ALL {
        for agent in STORING_AGENTS {
            let mut client = server.client(TransportKind::Unix, dialect, agent);
            assert_eq!(error_code(&client.try_load("nothing")), -32002, "{agent}");
            assert_eq!(error_code(&client.resume("nothing", None)), -32002, "{agent}");
            assert!(client.list(json!({})).is_empty());
        }
        let mut client = server.client(TransportKind::Unix, dialect, "cannot-load");
        client.wait_for_session("mine");
        let refused = client.try_load("mine").unwrap_err();
        assert_eq!(refused["code"], -32002);
        assert_eq!(refused["data"]["reason"], "the agent cannot load sessions");
    }
}

#[test]
fn observers_list_agent_sessions_and_cannot_adopt_them() {
    let server = server_with(&[("storing-v2", session("mine", None, "2025-05-05T05:05:05Z"))]);
    let mut driver = server.client(TransportKind::Unix, Dialect::V2, "storing-v2");
    driver.new_session();
    driver.wait_for_session("mine");
    for dialect in Dialect::ALL {
        let mut observer =
            ClientBuilder::new(TransportKind::WebSocket, dialect, "storing-v2").observer().connect(&server);
        assert!(observer.ids(json!({})).contains(&"mine".to_owned()));
        let refused = observer.try_load("mine").unwrap_err();
        assert_eq!((&refused["code"], &refused["data"]["reason"]), (&json!(-32600), &json!("observer")));
    }
    driver.load("mine");
    let mut observer =
        ClientBuilder::new(TransportKind::WebSocket, Dialect::V2, "storing-v2").observer().connect(&server);
    observer.load("mine");
    assert_eq!(texts(&observer, "mine"), expected_texts("mine"));
}

#[test]
fn sessions_that_the_server_created_are_never_listed_as_agent_only() {
    let mut server = server_with(&[("storing-v2", session("mine", None, "2025-05-05T05:05:05Z"))]);
    for round in 0..2 {
        let mut client = server.client(TransportKind::Unix, Dialect::V2, "storing-v2");
        let own: Vec<_> = (0..20).map(|_| client.new_session()).collect();
        client.turn(&own[0], "say Hello.");
        client.wait_for_session("mine");
        let listed = client.list(json!({}));
        let foreign: Vec<_> = listed.iter().filter(|one| one["_meta"]["parlor/adopted"] == false).collect();
        assert_eq!(foreign.len(), 1, "{foreign:?}");
        // Not even if they are deleted while the agent is not running.
        server.restart();
        run(&server, &["rm", "--yes", &own[1]]);
        let mut client = server.client(TransportKind::Unix, Dialect::V2, "storing-v2");
        client.new_session();
        client.wait_for_session("mine");
        let listed = client.list(json!({}));
        assert_eq!(listed.len(), 1 + 20 * (round + 1));
        server.restart();
    }
}

#[test]
fn every_request_for_an_agent_session_adopts_it() {
    for agent in STORING_AGENTS {
        let names = ["prompted", "titled", "archived", "deleted"];
        let sessions = names.map(|name| (agent, session(name, None, "2025-05-05T05:05:05Z")));
        let server = server_with(&sessions);
        let mut client = server.client(TransportKind::Unix, Dialect::V2, agent);
        client.wait_for_session("deleted");
        assert_eq!(client.turn("prompted", "say Here."), "end_turn");
        assert_eq!(server.stored_transcript("prompted").len(), 5, "{agent}");
        let title = json!({ "sessionId": "titled", "title": "Mine" });
        assert_eq!(client.call("session/set_title", title).unwrap()["title"], "Mine");
        client.call("session/archive", json!({ "sessionId": "archived" })).unwrap();
        client.call("session/delete", json!({ "sessionId": "deleted" })).unwrap();
        let listed = client.list(json!({ "archived": "include" }));
        let mut ids: Vec<_> = listed.iter().map(|one| one["sessionId"].as_str().unwrap()).collect();
        ids.sort_unstable();
        assert_eq!(ids, ["archived", "prompted", "titled"], "{agent}");
        assert!(listed.iter().all(|one| one["_meta"].get("parlor/adopted").is_none()), "{listed:?}");
        assert_eq!(error_code(&client.try_load("deleted")), -32002, "{agent}");
    }
}

#[test]
fn the_prompt_command_adopts_an_agent_session() {
    let server = server_with(&[("storing-v2", session("mine", Some("Elsewhere"), "2025-05-05T05:05:05Z"))]);
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "storing-v2");
    client.new_session();
    client.wait_for_session("mine");
    let all: Value = serde_json::from_str(&run(&server, &["ls", "--json"])).unwrap();
    let mine = all.as_array().unwrap().iter().find(|one| one["sessionId"] == "mine").unwrap();
    assert_eq!(
        (&mine["title"], &mine["adopted"], &mine["agent"]),
        (&json!("Elsewhere"), &json!(false), &json!("storing-v2"))
    );
    assert!(run(&server, &["prompt", "-s", "mine", "say Here."]).contains("Here."));
    assert!(run(&server, &["show", "mine"]).contains("Answer of mine"));
}
