//! Changes of the session list and open requests, as subscribers are sent them.

use parlor_dialect::Dialect;
use parlor_testkit::async_client::AsyncClient;
use parlor_testkit::wait::wait_until_async;
use serde_json::{Value, json};

use crate::agent::{Agent, Server};

const ALL: [Dialect; 3] = [Dialect::V1, Dialect::V2, Dialect::Draft];

fn permission(session: &str) -> Value {
    json!({
        "sessionId": session,
        "toolCall": { "toolCallId": "c", "title": "Run", "kind": "execute", "rawInput": { "command": "rm -r x" } },
        "options": [{ "optionId": "yes", "name": "Yes", "kind": "allow_once" }],
    })
}

fn yes() -> Value {
    json!({ "outcome": { "outcome": "selected", "optionId": "yes" } })
}

/// Reads list updates until one has a row of the session for which the condition holds; that row.
async fn row(client: &mut AsyncClient, session: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    loop {
        let update = client.wait_for_method("_parlor/list/update").await;
        let rows = update["params"]["sessions"].as_array().cloned().unwrap_or_default();
        let found =
            rows.into_iter().find(|row| row["sessionId"] == session && is_so(&row["_meta"]["parlor/row"]));
        if let Some(found) = found {
            return found;
        }
    }
}

/// A session of a v1 agent whose turn runs, and the prompt that the agent has.
async fn running(client: &mut AsyncClient, agent: &mut Agent) -> (String, Value) {
    let session = agent.begins(client, "theirs", json!([])).await;
    client.prompt(&session, json!([{ "type": "text", "text": "Hi" }]));
    let prompt = agent.asked("session/prompt").await;
    (session, prompt)
}

#[tokio::test]
async fn a_subscriber_sees_the_states_of_a_turn_in_the_list() {
    for clients in ALL {
        let server = Server::start(Dialect::V1).await;
        let mut watcher = server.observer(clients).await;
        watcher.call("_parlor/list/subscribe", json!({ "_meta": { "parlor/agent": "*" } })).await.unwrap();
        let (mut client, mut agent) = server.both(clients, json!({})).await;
        let (session, prompt) = running(&mut client, &mut agent).await;
        let running = row(&mut watcher, &session, |row| row["state"] == "running").await;
        assert!(running["_meta"]["parlor/row"]["lastPromptAt"].is_string(), "{running}");
        agent.asks("1", "session/request_permission", permission("theirs")).await;
        let waiting = row(&mut watcher, &session, |row| row["state"] == "needs_you").await;
        assert_eq!(waiting["_meta"]["parlor/row"]["openRequests"], 1);
        let asked = client.wait_for_method("session/request_permission").await;
        client.respond(&asked, yes());
        agent.answered("1").await;
        row(&mut watcher, &session, |row| row["state"] == "running").await;
        agent.answer(&prompt, json!({ "stopReason": "end_turn" })).await;
        let idle = row(&mut watcher, &session, |row| row["state"] == "idle").await;
        assert_eq!(idle["title"], "Hi");
        assert_eq!(idle["_meta"]["parlor/row"]["unread"], true);
        client.call("_parlor/seen", json!({ "sessionId": session, "seq": 1_000_000 })).await.unwrap();
        let seen = row(&mut watcher, &session, |row| row["unread"] == false).await;
        assert_eq!(seen["updatedAt"], idle["updatedAt"], "reading a session does not move it to the front");
        let listed = watcher.call("session/list", json!({ "_meta": { "parlor/agent": "*" } })).await.unwrap();
        let rows = listed["sessions"].as_array().unwrap();
        let listed = rows.iter().find(|row| row["sessionId"] == session.as_str()).unwrap();
        assert_eq!(
            listed["_meta"]["parlor/row"]["state"], "idle",
            "`session/list` has the same row: {listed}"
        );
    }
}

#[tokio::test]
async fn a_deleted_or_archived_session_is_removed_from_the_list() {
    let server = Server::start(Dialect::V1).await;
    let (mut client, mut agent) = server.both(Dialect::V2, json!({})).await;
    // The spelling of the protocol draft.
    client.call("session/list/subscribe", json!({})).await.unwrap();
    for (session, method) in [("one", "session/archive"), ("two", "session/delete")] {
        let id = agent.begins(&mut client, session, json!([])).await;
        client.send(method, json!({ "sessionId": id }));
        loop {
            let update = client.wait_for_method("session/list/update").await;
            if update["params"]["removed"].as_array().is_some_and(|removed| removed.contains(&json!(id))) {
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_request_is_listed_until_a_client_without_the_session_answers_it() {
    for clients in ALL {
        let server = Server::start(Dialect::V1).await;
        let (mut client, mut agent) = server.both(clients, json!({})).await;
        let mut other = server.client(clients).await;
        other.call("_parlor/requests/subscribe", json!({})).await.unwrap();
        let (session, prompt) = running(&mut client, &mut agent).await;
        agent.asks("1", "session/request_permission", permission("theirs")).await;
        let update = other.wait_for_method("_parlor/requests/update").await;
        let request = &update["params"]["opened"][0];
        assert_eq!(request["sessionId"], session.as_str());
        assert_eq!(request["toolCall"]["rawInput"]["command"], "rm -r x");
        assert_eq!((&request["cwd"], &request["title"]), (&json!("/"), &json!("Hi")));
        let listed = other.call("_parlor/requests", json!({})).await.unwrap();
        assert_eq!(listed["requests"], update["params"]["opened"]);
        let answer = json!({ "requestId": request["requestId"], "result": yes() });
        other.call("_parlor/answer", answer.clone()).await.unwrap();
        assert_eq!(agent.answered("1").await["result"], yes());
        let update = other.wait_for_method("_parlor/requests/update").await;
        assert_eq!(update["params"]["closed"], json!([request["requestId"]]));
        let error = other.call("_parlor/answer", answer).await.unwrap_err();
        assert_eq!(error["data"]["reason"], "not_open", "{error}");
        agent.answer(&prompt, json!({ "stopReason": "end_turn" })).await;
    }
}

#[tokio::test]
async fn invalid_answers_and_observers_are_rejected() {
    let server = Server::start(Dialect::V1).await;
    let (mut client, _agent) = server.both(Dialect::V2, json!({})).await;
    for (params, reason) in [
        (json!({}), "`requestId` must be a string"),
        (json!({ "requestId": "r1" }), "`result` must be an object"),
        (json!({ "requestId": "r1", "result": yes() }), "the request r1 is not open"),
        (json!({ "requestId": "x", "result": yes() }), "the request x is not open"),
    ] {
        let error = client.call("_parlor/answer", params).await.unwrap_err();
        assert!(error["message"].as_str().unwrap().starts_with(reason), "{error}");
    }
    let mut observer = server.observer(Dialect::V2).await;
    for method in ["_parlor/requests", "_parlor/requests/subscribe", "_parlor/answer"] {
        let error = observer.call(method, json!({})).await.unwrap_err();
        assert_eq!(error["data"]["reason"], "observer");
    }
}

#[tokio::test]
async fn an_ended_agent_closes_its_requests() {
    let server = Server::start(Dialect::V1).await;
    let (mut client, mut agent) = server.both(Dialect::V2, json!({})).await;
    client.call("_parlor/requests/subscribe", json!({})).await.unwrap();
    let _ = running(&mut client, &mut agent).await;
    agent.asks("1", "session/request_permission", permission("theirs")).await;
    client.wait_for_method("_parlor/requests/update").await;
    drop(agent);
    let update = client.wait_for_method("_parlor/requests/update").await;
    assert_eq!(update["params"]["closed"].as_array().unwrap().len(), 1, "{update}");
}

#[tokio::test]
async fn marking_a_session_of_the_agent_as_seen_does_not_adopt_it() {
    let server = Server::start(Dialect::V1).await;
    let hello = async {
        let capabilities = json!({ "loadSession": true, "sessionCapabilities": { "list": {} } });
        let mut agent = server.agent(&capabilities).await;
        agent.listed = json!([{ "sessionId": "theirs", "cwd": "/w" }]);
        agent
    };
    let (mut client, mut agent) = tokio::join!(server.client(Dialect::V2), hello);
    agent.begins(&mut client, "ours", json!([])).await;
    wait_until_async("the agent's session is listed", async || {
        let listed = client.call("session/list", json!({})).await.unwrap();
        listed["sessions"].as_array().unwrap().iter().any(|row| row["sessionId"] == "theirs")
    })
    .await;
    let error = client.call("_parlor/seen", json!({ "sessionId": "theirs", "seq": 1 })).await.unwrap_err();
    assert_eq!(error["code"], -32002, "{error}");
}
