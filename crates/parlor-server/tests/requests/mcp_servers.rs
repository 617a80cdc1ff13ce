//! MCP servers of the configuration, in the requests that open sessions at the agent.

use parlor_dialect::Dialect;
use parlor_testkit::async_client::AsyncClient;
use serde_json::{Value, json};

use crate::agent::{Server, TestConfig};
use crate::client::Requests;

const CONFIG: &str = r#"
    [mcp.files]
    command = ["/bin/sh", "-c", "true"]
    env = { KEY = "secret" }
    [mcp.docs]
    url = "https://docs.example/mcp"
    headers = { Authorization = "secret" }
    [mcp.others]
    command = ["/bin/sh"]
    agents = ["claude"]
    [mcp.mine]
    command = ["/bin/sh"]
    agents = ["claude", "played"]
    [mcp.off]
    command = ["/bin/sh"]
    enabled = false
"#;

/// The names of the servers in a request.
fn names(request: &Value) -> Vec<&str> {
    let servers = request["params"]["mcpServers"].as_array().unwrap();
    servers.iter().map(|server| server["name"].as_str().unwrap()).collect()
}

async fn losses(client: &mut AsyncClient, session: &str) -> Value {
    client.call("_parlor/losses", json!({ "sessionId": session })).await.unwrap()["losses"].clone()
}

#[tokio::test]
async fn every_request_that_opens_a_session_has_the_servers() {
    for (agents, capabilities, files) in [
        (
            Dialect::V1,
            json!({ "loadSession": true, "sessionCapabilities": { "fork": {} }, "mcpCapabilities": { "http": true } }),
            json!({ "name": "files", "command": "/bin/sh", "args": ["-c", "true"],
                    "env": [{ "name": "KEY", "value": "secret" }] }),
        ),
        (
            Dialect::V2,
            json!({ "session": { "fork": {}, "mcp": { "stdio": {}, "http": {} } } }),
            json!({ "type": "stdio", "name": "files", "command": "/bin/sh", "args": ["-c", "true"],
                    "env": [{ "name": "KEY", "value": "secret" }] }),
        ),
    ] {
        for clients in [Dialect::V1, Dialect::V2] {
            let file = TestConfig::default();
            file.set(CONFIG);
            let server = Server::with_file(agents, |_| {}, file.clone()).await;
            let (mut client, mut agent) = server.both(clients, capabilities.clone()).await;

            let request = client.send("session/new", json!({ "cwd": "/", "mcpServers": [] }));
            let new = agent.asked("session/new").await;
            assert_eq!(names(&new), ["docs", "files", "mine"]);
            assert_eq!(new["params"]["mcpServers"][1], files);
            let docs = &new["params"]["mcpServers"][0];
            assert_eq!(docs["headers"], json!([{ "name": "Authorization", "value": "secret" }]), "{docs}");
            agent.answer(&new, json!({ "sessionId": "s" })).await;
            let session = client.response(request).await.unwrap()["sessionId"].as_str().unwrap().to_owned();
            assert_eq!(losses(&mut client, &session).await, json!([]));

            agent.chunk("s", "Hello").await;
            client.wait_for("the chunk", |line| line["params"]["update"]["content"]["text"] == "Hello").await;
            let params = json!({ "sessionId": session, "cwd": "/", "mcpServers": [] });
            let request = client.send("session/fork", params);
            let fork = agent.asked("session/fork").await;
            assert_eq!(names(&fork), ["docs", "files", "mine"]);
            agent.answer(&fork, json!({ "sessionId": "t" })).await;
            client.response(request).await.unwrap();

            // The list is not stored: a restore has that of the present configuration.
            file.set("[mcp.later]\ncommand = [\"/bin/sh\"]\n");
            drop(agent);
            client.wait_for_no_agent().await;
            client.call("_parlor/agents", json!({})).await.unwrap();
            client.prompt(&session, json!([{ "type": "text", "text": "Hi" }]));
            let mut agent = server.agent(&capabilities).await;
            let restore = agent.hears().await;
            assert!(["session/load", "session/resume"].contains(&restore["method"].as_str().unwrap()));
            assert_eq!(names(&restore), ["later"]);
        }
    }
}

#[tokio::test]
async fn an_adopted_session_has_the_servers() {
    let file = TestConfig::default();
    file.set(CONFIG);
    let server = Server::with_file(Dialect::V1, |_| {}, file).await;
    let (mut client, mut agent) = server.both(Dialect::V2, json!({ "loadSession": true })).await;
    client.send_load("theirs", json!([]));
    let load = agent.asked("session/load").await;
    assert_eq!(names(&load), ["files", "mine"]);
}

#[tokio::test]
async fn a_server_of_the_client_is_used_instead_and_is_the_one_that_is_stored() {
    let file = TestConfig::default();
    file.set(CONFIG);
    let server = Server::with_file(Dialect::V1, |_| {}, file.clone()).await;
    let capabilities = json!({ "loadSession": true });
    let (mut client, mut agent) = server.both(Dialect::V1, capabilities.clone()).await;
    let own = json!([{ "name": "files", "command": "/own", "args": [], "env": [] }]);
    let request = client.send("session/new", json!({ "cwd": "/", "mcpServers": own }));
    let new = agent.asked("session/new").await;
    assert_eq!(names(&new), ["files", "mine"]);
    assert_eq!(new["params"]["mcpServers"][0]["command"], "/own");
    agent.answer(&new, json!({ "sessionId": "s" })).await;
    let session = client.response(request).await.unwrap()["sessionId"].as_str().unwrap().to_owned();

    file.set("");
    drop(agent);
    client.wait_for_no_agent().await;
    client.call("_parlor/agents", json!({})).await.unwrap();
    client.prompt(&session, json!([{ "type": "text", "text": "Hi" }]));
    let load = server.agent(&capabilities).await.asked("session/load").await;
    assert_eq!(load["params"]["mcpServers"], own);
}

#[tokio::test]
async fn a_server_that_the_agent_cannot_use_is_a_loss_of_the_session() {
    let file = TestConfig::default();
    file.set(CONFIG);
    let server = Server::with_file(Dialect::V1, |_| {}, file).await;
    let (mut client, mut agent) = server.both(Dialect::V1, json!({})).await;
    let session = agent.begins(&mut client, "s", json!([])).await;
    let losses = losses(&mut client, &session).await;
    assert_eq!((&losses[0]["loss"], &losses[0]["count"]), (&json!("mcp_transport"), &json!(1)), "{losses}");
}

#[tokio::test]
async fn clients_see_names_and_transports_and_no_secrets() {
    let file = TestConfig::default();
    file.set(CONFIG);
    let server = Server::with_file(Dialect::V1, |_| {}, file).await;
    let (mut client, mut agent) = server.both(Dialect::V1, json!({})).await;
    agent.begins(&mut client, "s", json!([])).await;
    let listed = client.call("_parlor/agents", json!({})).await.unwrap();
    let played = listed["agents"].as_array().unwrap().iter().find(|agent| agent["name"] == "played");
    let servers = json!([{ "name": "docs", "transport": "http" }, { "name": "files", "transport": "stdio" },
        { "name": "mine", "transport": "stdio" }]);
    assert_eq!(played.unwrap()["mcpServers"], servers);
    let status = client.call("_parlor/status", json!({})).await.unwrap();
    assert_eq!(status["mcpServers"].as_array().unwrap().len(), 4);
    for seen in [listed, status] {
        assert!(!seen.to_string().contains("secret"), "{seen}");
    }
    assert!(client.received.iter().all(|line| !line.to_string().contains("secret")));
}
