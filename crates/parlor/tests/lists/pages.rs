//! Pages of lists, and archived, closed and deleted sessions.

use parlor_dialect::Dialect;
use parlor_testkit::client::error_code;
use parlor_testkit::server::TEST_AGENTS;
use parlor_testkit::transport::TransportKind;
use serde_json::{Value, json};

use crate::Lists;
use crate::start_server;
use crate::{run, server_with, session};

#[test]
fn pages_have_every_session_once_stored_or_agent_only() {
    let foreign: Vec<_> = (0..130)
        .map(|n| {
            let time = format!("20{:02}-01-01T00:00:00Z", 10 + n % 60);
            ("storing-v2", session(&format!("old-{n:03}"), None, &time))
        })
        .collect();
    let server = server_with(&foreign);
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "storing-v2");
    let own: Vec<_> = (0..5).map(|_| client.new_session()).collect();
    client.wait_for_session("old-000");
    for dialect in Dialect::ALL {
        let mut client = server.client(TransportKind::WebSocket, dialect, "storing-v2");
        let first = client.call("session/list", json!({})).unwrap();
        assert_eq!(first["sessions"].as_array().unwrap().len(), 50);
        let all = client.list(json!({}));
        let mut ids: Vec<_> = all.iter().map(|one| one["sessionId"].as_str().unwrap()).collect();
        let time = |one: &Value| one["updatedAt"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        let times: Vec<_> = all.iter().map(time).collect();
        assert!(times.is_sorted_by(|a, b| a >= b), "{times:?}");
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 135);
        assert!(own.iter().all(|own| ids.contains(&own.as_str())));
        let foreign = all.iter().filter(|one| one["_meta"]["parlor/adopted"] == false).count();
        assert_eq!(foreign, 130);
        assert_eq!(error_code(&client.call("session/list", json!({ "cursor": "nonsense" }))), -32602);
    }
    let listed: Value = serde_json::from_str(&run(&server, &["ls", "--json", "--limit", "0"])).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 135);
    assert_eq!(listed[134]["adopted"], false, "{listed}");
    assert!(run(&server, &["ls"]).contains("at-the-agent"));
}

#[test]
fn a_session_that_changes_while_a_list_is_read_is_not_listed_twice() {
    let server = start_server("");
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "v2");
    let mut sessions: Vec<_> = (0..60).map(|_| client.new_session()).collect();
    let first = client.call("session/list", json!({})).unwrap();
    let seen = first["sessions"].as_array().unwrap()[3]["sessionId"].as_str().unwrap().to_owned();
    let unseen = sessions[2].clone();
    client.turn(&seen, "say Something.");
    client.turn(&unseen, "say Something.");
    let new_session = client.new_session();
    let second = client.call("session/list", json!({ "cursor": first["nextCursor"] })).unwrap();
    let mut ids: Vec<_> = [&first, &second]
        .iter()
        .flat_map(|page| page["sessions"].as_array().unwrap())
        .map(|one| one["sessionId"].as_str().unwrap().to_owned())
        .collect();
    assert!(!ids.contains(&new_session) && !ids.contains(&unseen), "they are at the front of the next list");
    ids.push(unseen.clone());
    ids.sort();
    sessions.sort();
    assert_eq!(ids, sessions);
    let again = client.ids(json!({}));
    assert!(again[..2].contains(&new_session) && again.len() == 61, "{again:?}");
}

#[test]
fn lists_are_filtered_by_directory_and_agent() {
    let server = start_server("");
    for (n, dialect) in Dialect::ALL.into_iter().enumerate() {
        let folder = server.dir().path().join(dialect.name());
        std::fs::create_dir(&folder).unwrap();
        let folder = folder.to_str().unwrap();
        let mut sessions = TEST_AGENTS.map(|agent| {
            let mut client = server.client(TransportKind::ALL[n], dialect, agent);
            let session = client.new_session_in(folder);
            assert_eq!(client.ids(json!({ "cwd": folder })), [session.as_str()]);
            assert!(client.ids(json!({})).contains(&session));
            assert!(client.ids(json!({ "cwd": "/nowhere" })).is_empty());
            session
        });
        sessions.sort();
        let mut client = server.client(TransportKind::ALL[n], dialect, "v1");
        let mut all = client.ids(json!({ "cwd": folder, "_meta": { "parlor/agent": "*" } }));
        all.sort();
        assert_eq!(all, sessions);
        let other = client.list(json!({ "cwd": folder, "_meta": { "parlor/agent": "v2" } }));
        assert_eq!((other.len(), &other[0]["_meta"]["parlor/agent"]), (1, &json!("v2")));
    }
}

#[test]
fn archived_sessions_are_listed_on_request_and_a_prompt_unarchives_them() {
    let mut server = start_server("");
    for (n, dialect) in Dialect::ALL.into_iter().enumerate() {
        let mut client = server.client(TransportKind::ALL[n], dialect, TEST_AGENTS[n]);
        let (session, other) = (client.new_session(), client.new_session());
        client.turn(&session, "say Hello.");
        let archive = json!({ "sessionId": session, "archived": true });
        for method in ["session/archive", "_parlor/archive"] {
            client.call(method, archive.clone()).unwrap();
            let ids = client.ids(json!({}));
            assert!(!ids.contains(&session) && ids.contains(&other));
            for both in [json!({ "archived": "include" }), json!({ "_meta": { "parlor/archived": true } })] {
                let ids = client.ids(both);
                assert!(ids.contains(&session) && ids.contains(&other));
            }
            let only = client.list(json!({ "archived": "only" }));
            assert_eq!((only.len(), &only[0]["archived"]), (1, &json!(true)));
            assert_eq!(error_code(&client.call("session/list", json!({ "archived": "some" }))), -32602);
            client.call("session/unarchive", json!({ "sessionId": session })).unwrap();
            assert!(client.ids(json!({})).contains(&session));
        }
        client.call("_parlor/archive", archive.clone()).unwrap();
        assert_eq!(client.turn(&session, "say Again."), "end_turn");
        assert!(client.ids(json!({})).contains(&session), "a prompt unarchives it");
        assert_eq!(error_code(&client.call("session/archive", json!({ "sessionId": "nothing" }))), -32002);
        let vague = client.call("_parlor/archive", json!({ "sessionId": session }));
        assert_eq!(error_code(&vague), -32602);
        client.call("session/archive", json!({ "sessionId": session })).unwrap();
    }
    server.crash();
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "v1");
    let all = json!({ "archived": "only", "_meta": { "parlor/agent": "*" } });
    assert_eq!(client.ids(all.clone()).len(), 3, "it was on the disk when it was answered");
    let id = client.ids(all.clone())[0].clone();
    assert!(run(&server, &["ls", "--archived"]).contains(&id[..8]));
    run(&server, &["archive", "--undo", &id]);
    assert_eq!(client.ids(all.clone()).len(), 2);
    run(&server, &["archive", &id]);
    assert_eq!(client.ids(all).len(), 3);
    assert!(!run(&server, &["ls", "--json"]).contains(&id));
}

#[test]
fn archiving_cancels_the_running_turn() {
    let server = start_server("");
    for (agent, dialect) in
        TEST_AGENTS.into_iter().zip([Dialect::V1, Dialect::V2, Dialect::Draft, Dialect::V1])
    {
        let mut client = server.client(TransportKind::Unix, dialect, agent);
        let session = client.new_session();
        let prompt = client.prompt(&session, "say Now.\nsleep 60000");
        client.wait_for_message(&session, "Now.");
        client.call("session/archive", json!({ "sessionId": session })).unwrap();
        assert_eq!(client.end_of_turn(&session, prompt), "cancelled", "{agent}");
    }
}

#[test]
fn closed_sessions_stay_in_lists_and_deleted_ones_do_not() {
    let server = server_with(&[]);
    for (n, agent) in crate::STORING_AGENTS.into_iter().enumerate() {
        let mut client = server.client(TransportKind::ALL[n % 3], Dialect::ALL[n % 3], agent);
        let (closed, deleted) = (client.new_session(), client.new_session());
        client.turn(&closed, "say Hello.");
        client.call("session/close", json!({ "sessionId": closed })).unwrap();
        client.call("session/delete", json!({ "sessionId": deleted })).unwrap();
        let ids = client.ids(json!({}));
        assert!(ids.contains(&closed) && !ids.contains(&deleted), "{agent}: {ids:?}");
        assert_eq!(error_code(&client.try_load(&deleted)), -32002);
        client.load(&closed);
    }
}
