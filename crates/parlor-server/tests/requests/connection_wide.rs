//! Messages between a client and its agent outside of sessions.

use parlor_dialect::Dialect;
use serde_json::{Value, json};

use crate::agent::Server;
use crate::client::Requests;
use crate::pairs;

fn acp_server(id: &str) -> Value {
    json!([{ "type": "acp", "name": "tools", "serverId": id }])
}

#[tokio::test]
async fn mcp_messages_pass_between_the_agent_and_the_client_that_has_the_server() {
    for (agents, clients) in pairs() {
        let server = Server::start(agents).await;
        let (mut other, mut agent) = server.both(clients, json!({})).await;
        agent.begins(&mut other, "other", json!([])).await;
        let mut client = server.client(clients).await;
        agent.begins(&mut client, "s", acp_server("tools-1")).await;

        let params =
            json!({ "serverId": "tools-1", "requestId": "r1", "method": "tools/list", "params": { "n": 1 } });
        agent.asks("q", "mcp/message", params.clone()).await;
        let asked = client.wait_for_method("mcp/message").await;
        assert_eq!(asked["params"], params);
        // A notification of the MCP server about the request.
        let progress =
            json!({ "serverId": "tools-1", "requestId": "r1", "method": "notifications/progress" });
        client.notify("mcp/message", progress.clone());
        assert_eq!(agent.asked("mcp/message").await["params"], progress);
        client.respond(&asked, json!({ "result": null }));
        assert_eq!(agent.answered("q").await["result"], json!({ "result": null }));
        other.received_none("mcp/message").await;

        // No client has this server.
        agent.asks("r", "mcp/message", json!({ "serverId": "x", "requestId": "r2", "method": "m" })).await;
        assert_eq!(agent.answered("r").await["error"]["code"], -32602);
    }
}

#[tokio::test]
async fn mcp_servers_of_two_clients_with_the_same_id_get_different_ids() {
    let server = Server::start(Dialect::V2).await;
    let (mut first, mut agent) = server.both(Dialect::V2, json!({})).await;
    let mut second = server.client(Dialect::V1).await;
    let mut names = Vec::new();
    for (client, session) in [(&mut first, "a"), (&mut second, "b")] {
        let asked = client.send("session/new", json!({ "cwd": "/", "mcpServers": acp_server("1") }));
        let new = agent.asked("session/new").await;
        names.push(new["params"]["mcpServers"][0]["serverId"].as_str().unwrap().to_owned());
        agent.answer(&new, json!({ "sessionId": session })).await;
        client.response(asked).await.unwrap();
    }
    assert_ne!(names[0], names[1]);
    for (client, name) in [(&mut second, &names[1]), (&mut first, &names[0])] {
        agent.asks("q", "mcp/message", json!({ "serverId": name, "requestId": "r", "method": "m" })).await;
        let asked = client.wait_for_method("mcp/message").await;
        assert_eq!(asked["params"]["serverId"], "1");
        client.notify("mcp/message", json!({ "serverId": "1", "requestId": "r", "method": "n" }));
        assert_eq!(agent.asked("mcp/message").await["params"]["serverId"], *name);
        client.respond(&asked, json!({ "result": {} }));
        agent.answered("q").await;
    }
}

#[tokio::test]
async fn a_client_that_loads_a_session_serves_its_mcp_servers() {
    let server = Server::start(Dialect::V2).await;
    let (mut first, mut agent) = server.both(Dialect::V2, json!({})).await;
    let session = agent.begins(&mut first, "s", acp_server("tools")).await;
    let mut second = server.client(Dialect::V2).await;
    second.load_with(&session, acp_server("tools")).await.unwrap();
    drop(first);
    // Waits until the server has noticed that the first client is gone.
    loop {
        agent.asks("q", "mcp/message", json!({ "serverId": "tools", "requestId": "r", "method": "m" })).await;
        tokio::select! {
            asked = second.wait_for_method("mcp/message") => {
                second.respond(&asked, json!({ "result": 1 }));
                assert_eq!(agent.answered("q").await["result"]["result"], 1);
                break;
            }
            answer = agent.hears() => assert!(answer.get("error").is_some(), "{answer}"),
        }
    }
}

#[tokio::test]
async fn an_observer_serves_no_mcp_servers_and_gets_no_messages_outside_of_sessions() {
    for (agents, clients) in pairs() {
        let server = Server::start(agents).await;
        let (mut driver, mut agent) = server.both(clients, json!({})).await;
        let session = agent.begins(&mut driver, "s", acp_server("tools")).await;
        let mut observer = server.observer(clients).await;
        let servers = json!([
            { "type": "acp", "name": "tools", "serverId": "tools" },
            { "type": "acp", "name": "mine", "serverId": "mine" },
        ]);
        observer.load_with(&session, servers).await.unwrap();

        agent.asks("q", "mcp/message", json!({ "serverId": "mine", "requestId": "r", "method": "m" })).await;
        assert_eq!(agent.answered("q").await["error"]["code"], -32602);
        agent.notifies("mcp/message", json!({ "serverId": "mine", "method": "n" })).await;
        agent.notifies("_vendor/note", json!({})).await;
        driver.wait_for_method("_vendor/note").await;
        drop(driver);
        // Waits until the server has noticed that the driver is gone.
        loop {
            let message = json!({ "serverId": "tools", "requestId": "r", "method": "m" });
            agent.asks("q", "mcp/message", message).await;
            if agent.answered("q").await["error"]["code"] == -32602 {
                break;
            }
        }
        agent.asks("r", "_vendor/ask", json!({})).await;
        assert_eq!(agent.answered("r").await["error"]["code"], -32601);
        observer.received_none("mcp/message").await;
        observer.received_none("_vendor/note").await;
    }
}

#[tokio::test]
async fn extension_requests_and_notifications_outside_of_sessions_pass_both_ways() {
    for (agents, clients) in pairs() {
        let server = Server::start(agents).await;
        let (mut client, mut agent) = server.both(clients, json!({})).await;
        let mut later = server.client(clients).await;
        agent.begins(&mut client, "a", json!([])).await;
        agent.begins(&mut later, "b", json!([])).await;

        // A request of the agent goes to the client that is connected the longest, its notifications to all.
        agent.asks("q", "_vendor/ask", json!({ "n": 1.0 })).await;
        let asked = client.wait_for_method("_vendor/ask").await;
        client.respond(&asked, json!([1, "two"]));
        assert_eq!(agent.answered("q").await["result"], json!([1, "two"]));
        agent.notifies("_vendor/note", json!({ "n": 2 })).await;
        assert_eq!(client.wait_for_method("_vendor/note").await["params"], json!({ "n": 2 }));
        assert_eq!(later.wait_for_method("_vendor/note").await["params"], json!({ "n": 2 }));
        later.received_none("_vendor/ask").await;

        // Messages of a client reach the agent in order.
        for n in 0..20 {
            client.notify("_vendor/hint", json!({ "n": n }));
            client.send("_vendor/do", json!({ "n": n }));
        }
        for n in 0..20 {
            assert_eq!(agent.asked("_vendor/hint").await["params"], json!({ "n": n }));
            let asked = agent.asked("_vendor/do").await;
            assert_eq!(asked["params"], json!({ "n": n }));
            agent.answer(&asked, json!({})).await;
        }
    }
}

#[tokio::test]
async fn a_client_that_attached_to_a_session_gets_notifications_outside_of_sessions() {
    let server = Server::start(Dialect::V2).await;
    let (mut first, mut agent) = server.both(Dialect::V2, json!({})).await;
    let session = agent.begins(&mut first, "s", json!([])).await;
    let mut second = server.client(Dialect::V1).await;
    second.load(&session).await.unwrap();
    agent.notifies("_vendor/note", json!({})).await;
    second.wait_for_method("_vendor/note").await;
}

#[tokio::test]
async fn messages_of_a_client_inside_and_outside_of_sessions_stay_in_order() {
    let server = Server::start(Dialect::V2).await;
    let (mut client, mut agent) = server.both(Dialect::V2, json!({})).await;
    let session = agent.begins(&mut client, "s", json!([])).await;
    for n in 0..50 {
        client.notify("_vendor/in", json!({ "sessionId": session, "n": n }));
        client.notify("_vendor/beside", json!({ "n": n }));
    }
    for n in 0..50 {
        assert_eq!(agent.asked("_vendor/in").await["params"]["n"], n);
        assert_eq!(agent.asked("_vendor/beside").await["params"]["n"], n);
    }
}

#[tokio::test]
async fn messages_of_an_agent_inside_and_outside_of_sessions_stay_in_order() {
    for (agents, clients) in pairs() {
        let server = Server::start(agents).await;
        let (mut client, mut agent) = server.both(clients, json!({})).await;
        let mut sessions = Vec::new();
        for name in ["a", "b"] {
            sessions.push(agent.begins(&mut client, name, json!([])).await);
        }
        for n in 0..50 {
            agent.chunk("a", &n.to_string()).await;
            agent.chunk("b", &n.to_string()).await;
            agent.notifies("_vendor/note", json!({ "n": n })).await;
        }
        for n in 0..50 {
            let text = n.to_string();
            let mut seen = Vec::new();
            for _ in 0..3 {
                let is_ours = |line: &Value| {
                    line["method"] == "_vendor/note"
                        || line["params"]["update"]["sessionUpdate"] == "agent_message_chunk"
                };
                let line = client.wait_for("a chunk or a note", is_ours).await;
                if line["method"] == "_vendor/note" {
                    assert_eq!(line["params"]["n"], n);
                    seen.push("note".to_owned());
                } else {
                    assert_eq!(line["params"]["update"]["content"]["text"], *text);
                    seen.push(line["params"]["sessionId"].as_str().unwrap().to_owned());
                }
            }
            assert_eq!(seen[2], "note", "{n}: {seen:?}");
            assert!(sessions.iter().all(|session| seen.contains(session)), "{n}: {seen:?}");
        }
    }
}

#[tokio::test]
async fn an_elicitation_for_a_request_goes_to_the_client_that_made_it() {
    for (agents, clients) in pairs() {
        let server = Server::start(agents).await;
        let (mut first, mut agent) = server.both(clients, json!({})).await;
        agent.begins(&mut first, "s", json!([])).await;
        let mut client = server.client(clients).await;
        // Ids of the client and of the server differ.
        for _ in 0..5 {
            client.call("_parlor/status", json!({})).await.unwrap();
        }
        let method = if clients == Dialect::V1 { "authenticate" } else { "auth/login" };
        let request = client.send(method, json!({ "methodId": "web" }));
        let login = agent.asked(agent.login()).await;
        assert_ne!(login["id"], request);
        let params = json!({ "requestId": login["id"], "mode": "url", "elicitationId": "e", "url": "https://example.org/", "message": "Log in" });
        agent.asks("q", "elicitation/create", params).await;
        let asked = client.wait_for_method("elicitation/create").await;
        assert_eq!(asked["params"]["requestId"], request);
        assert_eq!(asked["params"]["url"], "https://example.org/");
        client.respond(&asked, json!({ "action": "accept" }));
        assert_eq!(agent.answered("q").await["result"]["action"], "accept");
        agent.answer(&login, json!({})).await;
        client.response(request).await.unwrap();
        first.received_none("elicitation/create").await;

        // The request has been answered.
        let params = json!({ "requestId": login["id"], "mode": "url", "elicitationId": "e", "url": "https://example.org/", "message": "Log in" });
        agent.asks("r", "elicitation/create", params).await;
        assert_eq!(agent.answered("r").await["error"]["code"], -32602);
    }
}

#[tokio::test]
async fn an_elicitation_for_a_session_new_goes_to_the_client_that_sent_it() {
    let server = Server::start(Dialect::V2).await;
    let (mut client, mut agent) = server.both(Dialect::V1, json!({})).await;
    let request = client.send("session/new", json!({ "cwd": "/", "mcpServers": [] }));
    let new = agent.asked("session/new").await;
    let schema = json!({ "type": "object", "properties": {} });
    let params =
        json!({ "requestId": new["id"], "mode": "form", "message": "Which?", "requestedSchema": schema });
    agent.asks("q", "elicitation/create", params).await;
    let asked = client.wait_for_method("elicitation/create").await;
    assert_eq!(asked["params"]["requestId"], request);
    client.respond(&asked, json!({ "action": "decline" }));
    assert_eq!(agent.answered("q").await["result"]["action"], "decline");
    agent.answer(&new, json!({ "sessionId": "s" })).await;
    client.response(request).await.unwrap();
}

#[tokio::test]
async fn an_elicitation_for_a_prompt_belongs_to_its_session() {
    for (agents, clients) in pairs() {
        let server = Server::start(agents).await;
        let (mut client, mut agent) = server.both(clients, json!({})).await;
        let session = agent.begins(&mut client, "s", json!([])).await;
        client.prompt(&session, json!([{ "type": "text", "text": "Hi" }]));
        let prompt = agent.asked("session/prompt").await;
        let schema = json!({ "type": "object", "properties": {} });
        let params = json!({ "requestId": prompt["id"], "mode": "form", "message": "Which?", "requestedSchema": schema });
        agent.asks("q", "elicitation/create", params).await;
        let asked = client.wait_for_method("elicitation/create").await;
        assert_eq!(asked["params"]["sessionId"], session);
        assert!(asked["params"].get("requestId").is_none());
        client.respond(&asked, json!({ "action": "cancel" }));
        assert_eq!(agent.answered("q").await["result"]["action"], "cancel");
    }
}

#[tokio::test]
async fn a_request_outside_of_sessions_can_be_cancelled_by_either_side() {
    for (agents, clients) in pairs() {
        let server = Server::start(agents).await;
        let (mut client, mut agent) = server.both(clients, json!({})).await;
        for (method, params) in
            [("_vendor/slow", json!({})), ("session/new", json!({ "cwd": "/", "mcpServers": [] }))]
        {
            let request = client.send(method, params);
            let asked = agent.asked(method).await;
            client.cancel_request(request);
            let cancelled = agent.asked("$/cancel_request").await;
            assert_eq!(cancelled["params"]["requestId"], asked["id"]);
            agent.refuse(&asked, -32800).await;
            assert_eq!(client.response(request).await.unwrap_err()["code"], -32800);
        }
        agent.asks("q", "_vendor/ask", json!({})).await;
        let asked = client.wait_for_method("_vendor/ask").await;
        agent.notifies("$/cancel_request", json!({ "requestId": "q" })).await;
        assert_eq!(client.wait_for_method("$/cancel_request").await["params"]["requestId"], asked["id"]);
        client.respond(&asked, json!({ "late": true }));
        assert_eq!(agent.answered("q").await["result"]["late"], true);
    }
}

#[tokio::test]
async fn a_request_that_waits_for_its_agent_to_start_can_be_cancelled() {
    let server = Server::start(Dialect::V2).await;
    let (mut client, agent) = server.both(Dialect::V2, json!({})).await;
    // The next process does not answer `initialize`.
    drop(agent);
    client.wait_for_no_agent().await;
    let request = client.send("_vendor/do", json!({}));
    client.cancel_request(request);
    assert_eq!(client.response(request).await.unwrap_err()["code"], -32800);
}

#[tokio::test]
async fn a_client_that_disconnects_does_not_leave_the_agent_without_a_response() {
    let server = Server::start(Dialect::V1).await;
    let (mut client, mut agent) = server.both(Dialect::V1, json!({})).await;
    agent.begins(&mut client, "s", json!([])).await;
    agent.asks("q", "_vendor/ask", json!({})).await;
    client.wait_for_method("_vendor/ask").await;
    drop(client);
    assert!(agent.answered("q").await.get("error").is_some());
    // Then no client is connected.
    agent.asks("r", "_vendor/ask", json!({})).await;
    assert_eq!(agent.answered("r").await["error"]["code"], -32601);
}

#[tokio::test]
async fn an_extension_may_respond_with_null_inside_and_outside_of_sessions() {
    for (agents, clients) in pairs() {
        let server = Server::start(agents).await;
        let (mut client, mut agent) = server.both(clients, json!({})).await;
        let session = agent.begins(&mut client, "s", json!([])).await;
        for (params, theirs) in
            [(json!({ "sessionId": session }), json!({ "sessionId": "s" })), (json!({}), json!({}))]
        {
            let request = client.send("_vendor/do", params);
            let asked = agent.asked("_vendor/do").await;
            agent.answer(&asked, Value::Null).await;
            // The line itself, because a missing member would read as null as well.
            let line = client
                .wait_for("the answer", |line| line.get("method").is_none() && line["id"] == request)
                .await;
            assert_eq!(line.get("result"), Some(&Value::Null), "{agents} {clients}: {line}");
            agent.asks("q", "_vendor/ask", theirs).await;
            let asked = client.wait_for_method("_vendor/ask").await;
            client.respond(&asked, Value::Null);
            let line = agent.answered("q").await;
            assert_eq!(line.get("result"), Some(&Value::Null), "{agents} {clients}: {line}");
        }
    }
}

#[tokio::test]
async fn the_login_state_that_an_agent_reports_is_shown() {
    for agents in [Dialect::V1, Dialect::V2] {
        let server = Server::start(agents).await;
        let (mut client, mut agent) = server.both(Dialect::V2, json!({})).await;
        agent.begins(&mut client, "s", json!([])).await;
        for (method, params, is_logged_in) in [
            ("auth/status_update", json!({ "state": "unauthenticated" }), false),
            ("auth/status_update", json!({ "state": "authenticated" }), true),
            (
                "_auth/status_update",
                json!({ "authStatus": { "kind": "none", "label": "Not logged in" } }),
                false,
            ),
            ("_auth/status_update", json!({ "authStatus": { "kind": "api_key", "label": "API key" } }), true),
        ] {
            agent.notifies(method, params.clone()).await;
            // Drivers that use the agent are sent it as it is.
            let sent = client.wait_for_method(method).await;
            assert_eq!(sent["params"], params);
            let agents = client.call("_parlor/agents", json!({})).await.unwrap();
            let listed = agents["agents"].as_array().unwrap();
            let played = listed.iter().find(|agent| agent["name"] == "played").unwrap();
            assert_eq!(played["loggedIn"], is_logged_in, "{method} {params}: {played}");
        }
    }
}
