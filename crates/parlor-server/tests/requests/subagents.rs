//! Sessions of subagents, which an agent announces and speaks in.

use parlor_dialect::Dialect;
use parlor_server::hub::ClientRole;
use parlor_testkit::async_client::AsyncClient;
use parlor_testkit::wait::wait_until_async;
use serde_json::{Value, json};

use crate::agent::{Agent, Server};
use crate::client::Requests;
use crate::common;

const AGENTS: [Dialect; 2] = [Dialect::V1, Dialect::V2];

/// Announces or describes a subagent of a session.
async fn announce(agent: &mut Agent, owner: &str, subagent: &str, fields: Value) {
    let mut update = json!({ "sessionUpdate": "subagent_update", "sessionId": subagent });
    for (name, value) in fields.as_object().unwrap() {
        update[name] = value.clone();
    }
    agent.updates(owner, update).await;
}

/// Reports the state of a subagent, as agents of both versions do it.
async fn report_state(server: Dialect, agent: &mut Agent, owner: &str, subagent: &str, state: Value) {
    if server != Dialect::V1 {
        let mut update = state.clone();
        update["sessionUpdate"] = json!("state_update");
        agent.updates(subagent, update).await;
    }
    announce(agent, owner, subagent, json!({ "state": state })).await;
}

fn is_chunk(line: &Value, session: &str, text: &str) -> bool {
    line["params"]["sessionId"] == session && text_of(line) == text
}

/// The text of a message or of a chunk.
fn text_of(line: &Value) -> String {
    let content = &line["params"]["update"]["content"];
    let parts = content.as_array().cloned().unwrap_or_else(|| vec![content.clone()]);
    parts.iter().filter_map(|part| part["text"].as_str()).collect()
}

/// Waits for the announcement of a subagent; the id of its session.
async fn announced(client: &mut AsyncClient, owner: &str) -> String {
    let is_announcement = |line: &Value| {
        line["params"]["sessionId"] == owner && line["params"]["update"]["sessionUpdate"] == "subagent_update"
    };
    let line = client.wait_for("the announcement", is_announcement).await;
    line["params"]["update"]["sessionId"].as_str().unwrap().to_owned()
}

/// A client that declared that it knows subagents.
async fn follower(server: &Server, dialect: Dialect) -> AsyncClient {
    let stream = common::connect(&server.hub, ClientRole::Driver);
    AsyncClient::over(stream, dialect, json!({ "subagents": {} })).await
}

fn permission(session: &str) -> Value {
    json!({
        "sessionId": session,
        "title": "Run",
        "subject": { "type": "tool_call", "toolCallId": "c" },
        "toolCall": { "toolCallId": "c", "title": "Run", "kind": "execute" },
        "options": [{ "optionId": "yes", "name": "Yes", "kind": "allow_once" }],
    })
}

fn yes() -> Value {
    json!({ "outcome": { "outcome": "selected", "optionId": "yes" } })
}

#[tokio::test]
async fn an_announced_subagent_has_its_own_session() {
    for agents in AGENTS {
        for clients in [Dialect::V1, Dialect::V2] {
            let server = Server::start(agents).await;
            let (_, mut agent) = server.both(clients, json!({})).await;
            let mut client = follower(&server, clients).await;
            let session = agent.begins(&mut client, "theirs", json!([])).await;
            announce(&mut agent, "theirs", "child", json!({ "title": "Look" })).await;
            agent.chunk("child", "found it").await;
            agent.asks("1", "session/request_permission", permission("child")).await;
            agent.chunk("theirs", "in the owner").await;
            let child = announced(&mut client, &session).await;
            assert_ne!(child, "child");
            let before = client.received.clone();
            assert!(before.iter().all(|line| line["params"]["sessionId"] != child.as_str()), "{before:?}");
            client.wait_for("the chunk", |line| is_chunk(line, &child, "found it")).await;
            client.wait_for("the owner's", |line| is_chunk(line, &session, "in the owner")).await;
            let asked = client.wait_for_method("session/request_permission").await;
            assert_eq!(asked["params"]["sessionId"], child.as_str());
            // The request is in the inbox, and the row of the owner counts it.
            let mut other = server.client(clients).await;
            let requests = other.call("_parlor/requests", json!({})).await.unwrap();
            assert_eq!(requests["requests"][0]["sessionId"], child.as_str(), "{requests}");
            assert_eq!(requests["requests"][0]["owner"], session.as_str());
            assert_eq!(requests["requests"][0]["title"], "Look");
            let listed = other.call("session/list", json!({})).await.unwrap();
            let rows = listed["sessions"].as_array().unwrap();
            assert_eq!(rows.len(), 1, "subagents are not listed: {rows:?}");
            assert_eq!(rows[0]["sessionId"], session.as_str());
            assert_eq!(rows[0]["_meta"]["parlor/row"]["openRequests"], 1, "{rows:?}");
            client.respond(&asked, yes());
            agent.answered("1").await;
            // Any client can open it.
            other.load(&child).await.unwrap();
            other.wait_for("the replay", |line| is_chunk(line, &child, "found it")).await;
            agent.chunk("child", " and more").await;
            other.wait_for("live", |line| is_chunk(line, &child, " and more")).await;
            other.received_none("session/request_permission").await;
            assert!(
                other.received.iter().all(|line| line["params"]["sessionId"] != session.as_str()),
                "{:?}",
                other.received
            );
        }
    }
}

#[tokio::test]
async fn a_client_that_does_not_know_subagents_is_sent_only_their_requests() {
    for agents in AGENTS {
        let server = Server::start(agents).await;
        let (mut client, mut agent) = server.both(Dialect::V1, json!({})).await;
        let session = agent.begins(&mut client, "theirs", json!([])).await;
        announce(&mut agent, "theirs", "child", json!({})).await;
        agent.chunk("child", "hidden").await;
        agent.asks("1", "session/request_permission", permission("child")).await;
        let asked = client.wait_for_method("session/request_permission").await;
        assert_eq!(asked["params"]["sessionId"], session.as_str());
        client.respond(&asked, yes());
        agent.answered("1").await;
        agent.chunk("theirs", "shown").await;
        client.wait_for("the owner's", |line| is_chunk(line, &session, "shown")).await;
        let updates: Vec<_> =
            client.received.iter().filter(|line| line["method"] == "session/update").collect();
        let is_of_subagent = |line: &&&Value| {
            line["params"]["sessionId"] != session.as_str()
                || line["params"]["update"]["sessionUpdate"] == "subagent_update"
        };
        assert_eq!(updates.iter().find(is_of_subagent), None);
    }
}

#[tokio::test]
async fn a_subagent_is_cancelled_alone_if_the_agent_permits_it() {
    for agents in AGENTS {
        let server = Server::start(agents).await;
        let (mut client, mut agent) = server.both(Dialect::V2, json!({})).await;
        let session = agent.begins(&mut client, "theirs", json!([])).await;
        announce(&mut agent, "theirs", "child", json!({})).await;
        let child = announced(&mut client, &session).await;
        report_state(agents, &mut agent, "theirs", "child", json!({ "state": "running" })).await;
        let is_state = |line: &Value, state: &str| {
            line["params"]["sessionId"] == child.as_str() && line["params"]["update"]["state"] == state
        };
        client.wait_for("running", |line| is_state(line, "running")).await;
        let error = client.call("_parlor/cancel", json!({ "sessionId": child })).await.unwrap_err();
        assert!(error["message"].as_str().unwrap().contains("does not permit"), "{error}");
        client.notify("session/cancel", json!({ "sessionId": child }));
        // The agent gets it only after it has permitted it.
        announce(&mut agent, "theirs", "child", json!({ "capabilities": { "cancel": {} } })).await;
        let is_permitted = |line: &Value| line["params"]["update"]["capabilities"]["cancel"].is_object();
        client.wait_for("the permission", is_permitted).await;
        client.call("session/status", json!({ "sessionId": child })).await.unwrap();
        client.call("_parlor/cancel", json!({ "sessionId": child })).await.unwrap();
        let cancel = agent.asked("session/cancel").await;
        assert_eq!(cancel["params"]["sessionId"], "child");
        let idle = json!({ "state": "idle", "stopReason": "cancelled" });
        report_state(agents, &mut agent, "theirs", "child", idle).await;
        client.wait_for("idle", |line| is_state(line, "idle")).await;
        client.notify("session/cancel", json!({ "sessionId": child }));
        // Nothing runs any more, and prompts are refused.
        let error = client
            .call(
                "session/prompt",
                json!({ "sessionId": child, "prompt": [{ "type": "text", "text": "x" }] }),
            )
            .await
            .unwrap_err();
        assert!(error["message"].as_str().unwrap().contains("takes no prompts"), "{error}");
        assert_eq!(error["data"]["owner"], session.as_str());
        client.prompt(&session, json!([{ "type": "text", "text": "next" }]));
        agent.asked("session/prompt").await;
    }
}

#[tokio::test]
async fn all_that_follows_an_announcement_reaches_the_session_of_the_subagent() {
    for agents in AGENTS {
        let server = Server::start(agents).await;
        let (mut client, mut agent) = server.both(Dialect::V2, json!({})).await;
        let session = agent.begins(&mut client, "theirs", json!([])).await;
        announce(&mut agent, "theirs", "child", json!({})).await;
        // More than is kept of sessions that do not exist yet.
        let text = "x".repeat(16 << 10);
        for _ in 0..128 {
            agent.chunk("child", &text).await;
        }
        agent.chunk("child", "end").await;
        let child = announced(&mut client, &session).await;
        let mut other = server.client(Dialect::V2).await;
        let bytes = async || {
            other.received.clear();
            other.load(&child).await.unwrap();
            let texts = other.received.iter().map(|line| text_of(line).len());
            texts.sum::<usize>() == 128 * text.len() + 3
        };
        wait_until_async("all of it is there", bytes).await;
    }
}

#[tokio::test]
async fn a_subagent_is_bound_again_when_its_owner_is_restored() {
    for (agents, capabilities) in [(Dialect::V1, json!({ "loadSession": true })), (Dialect::V2, json!({}))] {
        let server = Server::start(agents).await;
        let (mut client, mut agent) = server.both(Dialect::V2, capabilities.clone()).await;
        let session = agent.begins(&mut client, "theirs", json!([])).await;
        announce(&mut agent, "theirs", "child", json!({})).await;
        let child = announced(&mut client, &session).await;
        report_state(agents, &mut agent, "theirs", "child", json!({ "state": "running" })).await;
        agent.chunk("child", "before").await;
        client.wait_for("the chunk", |line| is_chunk(line, &child, "before")).await;
        drop(agent);
        let is_failed = |line: &Value| {
            line["params"]["sessionId"] == child.as_str() && line["params"]["update"]["stopReason"] == "error"
        };
        client.wait_for("the end", is_failed).await;
        client.prompt(&session, json!([{ "type": "text", "text": "again" }]));
        let mut agent = server.agent(&capabilities).await;
        let restore = agent.hears().await;
        let method = if agents == Dialect::V1 { "session/load" } else { "session/resume" };
        assert_eq!((&restore["method"], &restore["params"]["sessionId"]), (&json!(method), &json!("theirs")));
        if agents == Dialect::V1 {
            // A replay has what the sessions have already.
            announce(&mut agent, "theirs", "child", json!({})).await;
            agent.chunk("child", "before").await;
        }
        agent.answer(&restore, json!({})).await;
        agent.asked("session/prompt").await;
        announce(&mut agent, "theirs", "child", json!({ "title": "Look again" })).await;
        agent.chunk("child", "after").await;
        client.wait_for("the same session", |line| is_chunk(line, &child, "after")).await;
        assert_eq!(announced(&mut client, &session).await, child);
        let again = client.received.iter().filter(|line| is_chunk(line, &child, "before")).count();
        assert_eq!(again, 0, "the replay is not repeated");
    }
}

#[tokio::test]
async fn a_deleted_session_is_deleted_with_its_subagents() {
    for agents in AGENTS {
        let name = if agents == Dialect::V1 { "sessionCapabilities" } else { "session" };
        let capabilities = json!({ name: { "delete": {} } });
        let server = Server::start(agents).await;
        let (mut client, mut agent) = server.both(Dialect::V2, capabilities).await;
        let session = agent.begins(&mut client, "theirs", json!([])).await;
        announce(&mut agent, "theirs", "child", json!({})).await;
        let child = announced(&mut client, &session).await;
        announce(&mut agent, "child", "grandchild", json!({})).await;
        let grandchild = announced(&mut client, &child).await;
        agent.chunk("grandchild", "deep").await;
        client.wait_for("the chunk", |line| is_chunk(line, &grandchild, "deep")).await;
        let error = client.call("session/delete", json!({ "sessionId": child })).await.unwrap_err();
        assert!(error["message"].as_str().unwrap().contains("deleted with its owner"), "{error}");
        let mut other = server.client(Dialect::V2).await;
        other.load(&grandchild).await.unwrap();
        client.call("session/delete", json!({ "sessionId": session })).await.unwrap();
        let deleted = agent.asked("session/delete").await;
        assert_eq!(deleted["params"]["sessionId"], "theirs");
        for id in [&session, &child, &grandchild] {
            // An observer adopts no sessions.
            let error = server.observer(Dialect::V2).await.load(id).await;
            assert!(error.is_err(), "{error:?}");
        }
        // The agent is asked for nothing of its subagents.
        client.send("session/new", json!({ "cwd": "/", "mcpServers": [] }));
        agent.asked("session/new").await;
    }
}

#[tokio::test]
async fn a_closed_session_releases_its_subagents_without_a_word_to_the_agent() {
    let server = Server::start(Dialect::V2).await;
    let (mut client, mut agent) = server.both(Dialect::V2, json!({})).await;
    let session = agent.begins(&mut client, "theirs", json!([])).await;
    announce(&mut agent, "theirs", "child", json!({})).await;
    let child = announced(&mut client, &session).await;
    let mut other = server.client(Dialect::V2).await;
    other.load(&child).await.unwrap();
    client.call("session/close", json!({ "sessionId": session })).await.unwrap();
    let closed = agent.asked("session/close").await;
    assert_eq!(closed["params"]["sessionId"], "theirs");
    other.call("session/close", json!({ "sessionId": child })).await.unwrap();
    client.send("session/new", json!({ "cwd": "/", "mcpServers": [] }));
    agent.asked("session/new").await;
}
