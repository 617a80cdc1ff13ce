//! Lists, statuses and deletions of sessions.

use parlor_dialect::Dialect;
use parlor_testkit::async_client::AsyncClient;
use parlor_testkit::wait::wait_until_async;
use serde_json::{Value, json};

use crate::agent::Server;
use crate::client::Requests;
use crate::pairs;

#[tokio::test]
async fn a_list_does_not_wait_for_earlier_requests_of_the_connection() {
    for clients in [Dialect::V1, Dialect::V2, Dialect::Draft] {
        let server = Server::start(Dialect::V1).await;
        let (mut client, mut agent) = server.both(clients, json!({ "loadSession": true })).await;
        // The agent is slow to load a session, while the client sends more requests for that session.
        let load = client.send_load("theirs", json!([]));
        let asked = agent.asked("session/load").await;
        let prompt = client.prompt("theirs", json!([{ "type": "text", "text": "Hi" }]));
        assert_eq!(client.call("session/list", json!({})).await.unwrap()["sessions"], json!([]));
        // They are handled in order when the agent has responded.
        agent.chunk("theirs", "Hello").await;
        agent.answer(&asked, json!({})).await;
        client.response(load).await.unwrap();
        let asked = agent.asked("session/prompt").await;
        agent.answer(&asked, json!({ "stopReason": "end_turn" })).await;
        client.response(prompt).await.unwrap();
    }
}

#[tokio::test]
async fn all_members_of_a_session_are_listed() {
    for (agents, clients) in pairs() {
        let server = Server::start(agents).await;
        let capabilities = json!({ "loadSession": true, "sessionCapabilities": { "list": {} } });
        let hello = async {
            let mut agent = server.agent(&capabilities).await;
            agent.listed = json!([{
                "sessionId": "theirs", "cwd": "/w", "additionalDirectories": ["/x", "/y"], "title": "Theirs",
                "updatedAt": "2025-01-01T00:00:00Z", "_meta": { "vendor/starred": true, "parlor/busy": true }, "vendorField": 1.50,
            }]);
            agent
        };
        let (mut client, mut agent) = tokio::join!(server.client(clients), hello);
        let params = json!({ "cwd": "/w", "mcpServers": [], "additionalDirectories": ["/a", "/b"] });
        let request = client.send("session/new", params);
        let new = agent.asked("session/new").await;
        agent.answer(&new, json!({ "sessionId": "s" })).await;
        client.response(request).await.unwrap();
        let listed = listed(&mut client, |sessions| sessions.len() == 2).await;
        let ours = listed.iter().find(|one| one["sessionId"] != "theirs").unwrap();
        assert_eq!(ours["additionalDirectories"], json!(["/a", "/b"]));
        let theirs = listed.iter().find(|one| one["sessionId"] == "theirs").unwrap();
        assert_eq!(theirs["additionalDirectories"], json!(["/x", "/y"]));
        assert_eq!(theirs["title"], "Theirs");
        assert_eq!(theirs["vendorField"].to_string(), "1.5");
        assert_eq!(theirs["_meta"]["vendor/starred"], true);
        assert_eq!(theirs["_meta"]["parlor/busy"], false, "an agent cannot write parlor's own keys");
    }
}

/// Repeats `session/list` until a condition holds: sessions of agents are listed in the background.
async fn listed(client: &mut AsyncClient, is_so: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let mut found = Vec::new();
    wait_until_async("the list is as wanted", async || {
        let page = client.call("session/list", json!({})).await.unwrap();
        found.clone_from(page["sessions"].as_array().unwrap());
        is_so(&found)
    })
    .await;
    found
}

#[tokio::test]
async fn the_deletion_of_a_closed_session_reaches_an_agent_that_can_delete() {
    for (agents, capabilities) in [
        (Dialect::V1, json!({ "sessionCapabilities": { "delete": {}, "close": {} } })),
        (Dialect::V2, json!({ "session": { "delete": {} } })),
        (Dialect::Draft, json!({ "session": { "delete": {} } })),
    ] {
        for clients in [Dialect::V1, Dialect::V2, Dialect::Draft] {
            let server = Server::start(agents).await;
            let (mut client, mut agent) = server.both(clients, capabilities.clone()).await;
            let session = agent.begins(&mut client, "s", json!([])).await;
            let closing = client.send("session/close", json!({ "sessionId": session }));
            let close = agent.asked("session/close").await;
            agent.answer(&close, json!({})).await;
            client.response(closing).await.unwrap();
            client.call("session/delete", json!({ "sessionId": session })).await.unwrap();
            let delete = agent.asked("session/delete").await;
            assert_eq!(delete["params"]["sessionId"], "s");
            agent.answer(&delete, json!({})).await;
        }
    }
}

#[tokio::test]
async fn an_agent_that_has_ended_is_started_to_delete_a_session() {
    let server = Server::start(Dialect::V2).await;
    let capabilities = json!({ "session": { "delete": {} } });
    let (mut client, mut agent) = server.both(Dialect::V2, capabilities.clone()).await;
    let session = agent.begins(&mut client, "s", json!([])).await;
    drop(agent);
    client.wait_for_no_agent().await;
    client.call("session/delete", json!({ "sessionId": session })).await.unwrap();
    let mut agent = server.agent(&capabilities).await;
    assert_eq!(agent.asked("session/delete").await["params"]["sessionId"], "s");
}

/// The server reports the status of a session itself, without opening it.
#[tokio::test]
async fn the_status_of_a_session_is_reported_without_opening_it() {
    for (agents, clients) in pairs() {
        let server = Server::start(agents).await;
        let (mut client, mut agent) = server.both(clients, json!({})).await;
        let session = agent.begins(&mut client, "s", json!([])).await;
        let about = json!({ "sessionId": session });
        let status = client.call("session/status", about.clone()).await.unwrap();
        assert_eq!(status["status"], "open", "{status}");
        if clients == Dialect::V1 {
            assert_eq!(status["_meta"]["parlor/state"], "idle", "{status}");
        } else {
            assert_eq!(status["state"]["state"], "idle", "{status}");
        }
        // The request does not attach the client to the session.
        let mut other = server.client(clients).await;
        assert_eq!(other.call("session/status", about.clone()).await.unwrap()["status"], "open");
        client.prompt(&session, json!([{ "type": "text", "text": "Hi" }]));
        agent.asked("session/prompt").await;
        if agents != Dialect::V1 {
            agent.updates("s", json!({ "sessionUpdate": "state_update", "state": "running" })).await;
        }
        agent.chunk("s", "Hello").await;
        client.wait_for("the chunk", |line| line["params"]["update"]["content"]["text"] == "Hello").await;
        let status = other.call("session/status", about.clone()).await.unwrap();
        let state =
            if clients == Dialect::V1 { &status["_meta"]["parlor/state"] } else { &status["state"]["state"] };
        assert_eq!(state, "running", "{status}");
        other.received_none("session/update").await;
        assert_eq!(
            other.call("session/status", json!({ "sessionId": "unknown" })).await.unwrap_err()["code"],
            -32002
        );
    }
}

#[tokio::test]
async fn the_status_of_a_stored_session_does_not_load_it() {
    for (agents, clients) in pairs() {
        let server = Server::start(agents).await;
        let capabilities =
            json!({ "loadSession": true, "session": {}, "sessionCapabilities": { "list": {} } });
        let hello = async {
            let mut agent = server.agent(&capabilities).await;
            agent.listed = json!([{ "sessionId": "theirs", "cwd": "/w" }]);
            agent
        };
        let (mut client, mut agent) = tokio::join!(server.client(clients), hello);
        agent.begins(&mut client, "s", json!([])).await;
        listed(&mut client, |sessions| sessions.len() == 2).await;
        for _ in 0..2 {
            let status = client.call("session/status", json!({ "sessionId": "theirs" })).await.unwrap();
            assert_eq!(status, json!({ "status": "saved" }));
        }
        let live = client.call("_parlor/status", json!({})).await.unwrap()["liveSessions"].clone();
        assert_eq!(live, 1, "it was not opened");
    }
}

#[tokio::test]
async fn the_time_that_an_agent_lists_is_shown_until_the_next_activity_and_does_not_reorder_the_list() {
    const LONG_AGO: &str = "2001-02-03T04:05:06.789012Z";
    for (agents, clients) in pairs() {
        let server = Server::start(agents).await;
        let (mut client, mut agent) = server.both(clients, json!({})).await;
        let first = agent.begins(&mut client, "a", json!([])).await;
        // Lists order by milliseconds, and by id within one.
        let began = jiff::Timestamp::now().as_millisecond();
        wait_until_async("the next millisecond", async || jiff::Timestamp::now().as_millisecond() > began)
            .await;
        let second = agent.begins(&mut client, "b", json!([])).await;
        let order =
            |sessions: &[Value]| sessions.iter().map(|one| one["sessionId"].clone()).collect::<Vec<_>>();
        let before = listed(&mut client, |sessions| sessions.len() == 2).await;
        assert_eq!(order(&before), [json!(second), json!(first)]);
        agent.updates("b", json!({ "sessionUpdate": "session_info_update", "updatedAt": LONG_AGO })).await;
        let time = |sessions: &[Value], id: &str| {
            sessions.iter().find(|one| one["sessionId"] == id).unwrap()["updatedAt"].clone()
        };
        let listing = listed(&mut client, |sessions| time(sessions, &second) == LONG_AGO).await;
        // It is first in spite of that time, because its activity is the latest.
        assert_eq!(order(&listing), [json!(second), json!(first)]);
        assert_eq!(time(&listing, &first), time(&before, &first));
        client.prompt(&second, json!([{ "type": "text", "text": "Hi" }]));
        agent.asked("session/prompt").await;
        agent.chunk("b", "Hello").await;
        let listing = listed(&mut client, |sessions| time(sessions, &second) != LONG_AGO).await;
        let moment = |time: Value| time.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        assert!(moment(time(&listing, &second)) >= moment(time(&before, &second)));
    }
}
