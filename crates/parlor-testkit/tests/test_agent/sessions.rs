//! Its sessions: lists, forks, and other processes that continue them.

use parlor_dialect::Dialect::{self, V1, V2};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::{answer, open};

#[test]
fn sessions_are_independent() {
    for dialect in Dialect::ALL {
        let (mut agent, first) = open(dialect, &[]);
        let second = agent.new_session();
        assert_ne!(first, second);
        agent.prompt(&first, "say one\nsleep 100000");
        agent.until(|line| line.to_string().contains("\"one\""));
        let turn = agent.turn(&second, "say two");
        assert_eq!(answer(&turn), "two");
        assert!(turn.sessions.iter().all(|session| *session == second));
    }
}

#[test]
fn sessions_come_back_in_another_process() {
    for dialect in Dialect::ALL {
        let folder = tempfile::tempdir().unwrap();
        let options = ["--state", folder.path().to_str().unwrap()];
        let (mut agent, session) = open(dialect, &options);
        agent.turn(&session, "think hm\nsay one two\nsay three\ntitle Mine\nmode code");
        agent.close();
        let mut agent = Agent::start(dialect, &options);
        agent.initialize(json!({}));
        let listed = agent.call("session/list", json!({})).unwrap();
        let entry = &listed["sessions"][0];
        assert_eq!(
            (&entry["sessionId"], &entry["title"], &entry["cwd"]),
            (&json!(session), &json!("Mine"), &json!("/w"))
        );
        let mut params = json!({ "sessionId": session, "cwd": "/w", "mcpServers": [] });
        assert_eq!(agent.refused_prompt(&session), -32002, "it is not open yet");
        let method = if dialect == V1 { "session/load" } else { "session/resume" };
        if dialect != V1 {
            params["replayFrom"] = json!({ "type": "start" });
        }
        let id = agent.send(method, params.clone());
        let replay = agent.until(|line| line["id"] == id);
        let updates: Vec<&Value> = replay.iter().map(|line| &line["params"]["update"]).collect();
        let kinds: Vec<&str> = updates.iter().filter_map(|update| update["sessionUpdate"].as_str()).collect();
        if dialect == V1 {
            assert_eq!(
                kinds,
                ["user_message_chunk", "agent_thought_chunk", "agent_message_chunk", "agent_message_chunk"]
            );
            assert_eq!(updates[2]["content"]["text"], "one two");
            assert_eq!(replay.last().unwrap()["result"]["modes"]["currentModeId"], "code");
        } else {
            assert_eq!(kinds, ["user_message", "agent_thought", "agent_message", "agent_message"]);
            assert_eq!(updates[2]["content"], json!([{ "type": "text", "text": "one two" }]));
            let other = json!({ "sessionId": session, "cwd": "/w", "replayFrom": { "type": "_x" } });
            assert_eq!(agent.call("session/resume", other).unwrap_err()["code"], -32602);
        }
        params.as_object_mut().unwrap().remove("replayFrom");
        let id = agent.send("session/resume", params);
        let silent = agent.until(|line| line["id"] == id);
        assert!(silent.iter().all(|line| !line.to_string().contains("three")), "nothing is replayed");
        assert!(answer(&agent.turn(&session, "whoami")).contains("5 messages"));
        agent.call("session/delete", json!({ "sessionId": session })).unwrap();
        assert_eq!(agent.call("session/list", json!({})).unwrap()["sessions"], json!([]));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

#[test]
fn closing_ends_the_turn_first() {
    for dialect in Dialect::ALL {
        let (mut agent, session) = open(dialect, &[]);
        agent.prompt(&session, "say go\nsleep 100000");
        agent.until(|line| line.to_string().contains("\"go\""));
        let id = agent.send("session/close", json!({ "sessionId": session }));
        let lines = agent.until(|line| line["id"] == id);
        assert!(lines.iter().any(|line| line.to_string().contains("cancelled")), "{lines:?}");
        assert_eq!(agent.refused_prompt(&session), -32002);
        agent.call("session/resume", json!({ "sessionId": session, "cwd": "/w", "mcpServers": [] })).unwrap();
        agent.update();
        assert_eq!(answer(&agent.turn(&session, "say back")), "back");
    }
}

#[test]
fn a_fork_has_the_messages_up_to_where_it_was_made() {
    for dialect in Dialect::ALL {
        let (mut agent, session) = open(dialect, &["--offers", "fork-at-message,title"]);
        let turn = agent.turn(&session, "say one\nsay two");
        let first = turn.of("agent_message_chunk")[0]["messageId"].clone();
        let mut params = json!({ "sessionId": session, "cwd": "/f", "mcpServers": [], "messageId": first });
        let forked =
            agent.call("session/fork", params.clone()).unwrap()["sessionId"].as_str().unwrap().to_owned();
        agent.update();
        let said = answer(&agent.turn(&forked, "whoami"));
        assert!(said.contains("in /f") && said.contains("3 messages"), "{said}");
        params["messageId"] = json!("none");
        assert_eq!(agent.call("session/fork", params).unwrap_err()["code"], -32002);
        let title = agent.call("session/set_title", json!({ "sessionId": forked, "title": "Fork" })).unwrap();
        assert_eq!(title["title"], "Fork");
        assert_eq!(agent.update()["title"], "Fork");
    }
    let (mut agent, session) = open(V2, &["--offers", "fork"]);
    let params = json!({ "sessionId": session, "cwd": "/f", "messageId": "m" });
    assert_eq!(agent.call("session/fork", params).unwrap_err()["code"], -32602);
}

#[test]
fn long_lists_come_in_pages() {
    let (mut agent, _) = open(V2, &[]);
    for _ in 0..120 {
        agent.new_session();
    }
    let first = agent.call("session/list", json!({})).unwrap();
    let second = agent.call("session/list", json!({ "cursor": first["nextCursor"] })).unwrap();
    let count = |page: &Value| page["sessions"].as_array().unwrap().len();
    assert_eq!((count(&first), count(&second), second.get("nextCursor")), (100, 21, None));
    assert_eq!(count(&agent.call("session/list", json!({ "cwd": "/elsewhere" })).unwrap()), 0);
}

#[test]
fn there_are_at_most_a_thousand_sessions() {
    let (mut agent, _) = open(V1, &[]);
    for _ in 1..1000 {
        agent.new_session();
    }
    let error = agent.call("session/new", json!({ "cwd": "/w", "mcpServers": [] })).unwrap_err();
    assert_eq!(error["code"], -32603);
}
