//! Results and replayed updates of an agent that opens a session.

use parlor_dialect::Dialect;
use parlor_testkit::async_client::AsyncClient;
use parlor_testkit::wait::wait_until_async;
use serde_json::{Value, json};

use crate::agent::{Agent, Server};
use crate::client::Requests;
use crate::pairs;

fn opened(session: Option<&str>) -> Value {
    let mut result = json!({
        "models": { "currentModelId": "large", "availableModels": [{ "modelId": "large", "name": "Large" }] },
        "_meta": { "vendor/plan": "pro", "parlor/seq": 77 },
        "vendorField": { "n": 12_345_678_901_234_567_890_u64, "b": 1.50, "a": null },
    });
    if let Some(session) = session {
        result["sessionId"] = json!(session);
    }
    result
}

#[track_caller]
fn check(client: Dialect, answer: &Value) {
    let agents = opened(None);
    if client == Dialect::V1 {
        assert_eq!(answer["models"], agents["models"], "{answer}");
    } else {
        let options = answer["configOptions"].as_array().unwrap();
        assert!(options.iter().any(|option| option["currentValue"] == "large"), "{answer}");
    }
    assert_eq!(answer["vendorField"], agents["vendorField"], "{answer}");
    assert_eq!(answer["_meta"]["vendor/plan"], "pro", "{answer}");
    assert_ne!(answer["_meta"]["parlor/seq"], 77, "an agent cannot write parlor's own keys");
}

#[tokio::test]
async fn other_members_of_the_result_that_opens_a_session_reach_every_client_that_opens_it() {
    for (agents, clients) in pairs() {
        let server = Server::start(agents).await;
        let (mut client, mut agent) = server.both(clients, json!({})).await;
        let request = client.send("session/new", json!({ "cwd": "/", "mcpServers": [] }));
        let new = agent.asked("session/new").await;
        agent.answer(&new, opened(Some("s"))).await;
        let answer = client.response(request).await.unwrap();
        check(clients, &answer);
        let session = answer["sessionId"].as_str().unwrap().to_owned();
        let mut other = server.client(clients).await;
        check(clients, &other.load(&session).await.unwrap());
        let params = json!({ "sessionId": session, "cwd": "/", "mcpServers": [] });
        check(clients, &other.call("session/resume", params).await.unwrap());
    }
}

#[tokio::test]
async fn a_fork_has_the_members_of_its_agents_result() {
    for (agents, capabilities) in [
        (Dialect::V1, json!({ "sessionCapabilities": { "fork": {} } })),
        (Dialect::V2, json!({ "session": { "fork": {} } })),
    ] {
        for clients in [Dialect::V1, Dialect::V2, Dialect::Draft] {
            let server = Server::start(agents).await;
            let (mut client, mut agent) = server.both(clients, capabilities.clone()).await;
            let session = agent.begins(&mut client, "s", json!([])).await;
            // An empty session cannot be forked.
            agent.chunk("s", "Hello").await;
            client.wait_for("the chunk", |line| line["params"]["update"]["content"]["text"] == "Hello").await;
            let request =
                client.send("session/fork", json!({ "sessionId": session, "cwd": "/", "mcpServers": [] }));
            let fork = agent.asked("session/fork").await;
            agent.answer(&fork, opened(Some("t"))).await;
            let answer = client.response(request).await.unwrap();
            check(clients, &answer);
            let fork = answer["sessionId"].as_str().unwrap().to_owned();
            check(clients, &client.load(&fork).await.unwrap());
        }
    }
}

#[tokio::test]
async fn the_result_of_the_last_restore_replaces_earlier_ones() {
    let server = Server::start(Dialect::V1).await;
    let capabilities = json!({ "loadSession": true });
    let (mut client, mut agent) = server.both(Dialect::V1, capabilities.clone()).await;
    let session = agent.begins(&mut client, "s", json!([])).await;
    drop(agent);
    client.wait_for_no_agent().await;
    let request = client.prompt(&session, json!([{ "type": "text", "text": "Hi" }]));
    let mut agent = server.agent(&capabilities).await;
    let load = agent.asked("session/load").await;
    agent.answer(&load, opened(None)).await;
    let prompt = agent.asked("session/prompt").await;
    agent.answer(&prompt, json!({ "stopReason": "end_turn" })).await;
    client.response(request).await.unwrap();
    check(Dialect::V2, &server.client(Dialect::V2).await.load(&session).await.unwrap());
}

#[tokio::test]
async fn an_adopted_session_has_the_members_of_its_agents_result() {
    for clients in [Dialect::V1, Dialect::V2, Dialect::Draft] {
        let server = Server::start(Dialect::V1).await;
        let (mut client, mut agent) = server.both(clients, json!({ "loadSession": true })).await;
        let request = client.send_load("theirs", json!([]));
        let load = agent.asked("session/load").await;
        agent.chunk("theirs", "Hello").await;
        agent.answer(&load, opened(None)).await;
        check(clients, &client.response(request).await.unwrap());
    }
}

#[tokio::test]
async fn a_session_that_the_agent_replays_empty_is_not_adopted() {
    for clients in [Dialect::V1, Dialect::V2, Dialect::Draft] {
        let server = Server::start(Dialect::V1).await;
        let (mut client, mut agent) = server.both(clients, json!({ "loadSession": true })).await;
        let request = client.send_load("nothing", json!([]));
        let load = agent.asked("session/load").await;
        // It responds like this for any session.
        agent
            .updates(
                "nothing",
                json!({ "sessionUpdate": "available_commands_update", "availableCommands": [] }),
            )
            .await;
        agent.answer(&load, json!({})).await;
        assert_eq!(client.response(request).await.unwrap_err()["code"], -32002);
        let listed = client.call("session/list", json!({})).await.unwrap();
        assert_eq!(listed["sessions"], json!([]));
    }
}

#[tokio::test]
async fn directories_of_a_session_are_absolute() {
    for clients in [Dialect::V1, Dialect::V2, Dialect::Draft] {
        let server = Server::start(Dialect::V1).await;
        let (mut client, mut agent) = server.both(clients, json!({ "loadSession": true })).await;
        let session = agent.begins(&mut client, "s", json!([])).await;
        for method in ["session/new", "session/load", "session/resume", "session/fork"] {
            for directories in [json!(["."]), json!(["/w", "more"]), json!([""]), json!([7]), json!("/w")] {
                let mut params =
                    json!({ "cwd": "/w", "mcpServers": [], "additionalDirectories": directories });
                if method != "session/new" {
                    params["sessionId"] = json!(session);
                }
                let refused = client.call(method, params).await.unwrap_err();
                assert_eq!(refused["code"], -32602, "{method} {directories}: {refused}");
            }
        }
        for directories in [json!(null), json!([])] {
            let params = json!({ "sessionId": session, "cwd": "/w", "mcpServers": [], "additionalDirectories": directories });
            client.call("session/resume", params).await.unwrap();
        }
    }
}

#[tokio::test]
async fn an_agent_does_not_choose_the_files_that_it_may_access() {
    for clients in [Dialect::V1, Dialect::V2, Dialect::Draft] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("notes");
        std::fs::write(&file, "in the workspace").unwrap();
        let server = Server::start(Dialect::V1).await;
        let capabilities = json!({ "loadSession": true, "sessionCapabilities": { "list": {} } });
        let hello = async {
            let mut agent = server.agent(&capabilities).await;
            agent.listed = json!([{ "sessionId": "theirs", "cwd": "/", "additionalDirectories": ["/"] }]);
            agent
        };
        let (mut client, mut agent) = tokio::join!(server.client(clients), hello);
        let adopted = async {
            let load = agent.asked("session/load").await;
            agent.chunk("theirs", "Hello").await;
            agent.answer(&load, json!({})).await;
        };
        let renamed = async {
            // The server lists the agent's sessions in the background.
            wait_until_async("the list", async || {
                client.call("session/list", json!({})).await.unwrap()["sessions"] != json!([])
            })
            .await;
            client.call("_parlor/title", json!({ "sessionId": "theirs", "title": "Mine" })).await.unwrap();
        };
        tokio::join!(renamed, adopted);

        let read = json!({ "sessionId": "theirs", "path": file });
        agent.asks("q", "fs/read_text_file", read.clone()).await;
        let refused = agent.answered("q").await;
        assert_eq!(refused["error"]["data"]["reason"], "outside", "{refused}");
        // An observer names no directory.
        let load = json!({ "sessionId": "theirs", "cwd": folder.path(), "mcpServers": [] });
        server.observer(clients).await.call("session/load", load.clone()).await.unwrap();
        agent.asks("q", "fs/read_text_file", read.clone()).await;
        assert_eq!(agent.answered("q").await["error"]["data"]["reason"], "outside");
        // A driver names the directory of the session.
        client.call("session/load", load).await.unwrap();
        agent.asks("q", "fs/read_text_file", read).await;
        assert_eq!(agent.answered("q").await["result"]["content"], "in the workspace");
        wait_until_async("the list says so", async || {
            let listed = client.call("session/list", json!({})).await.unwrap();
            listed["sessions"][0]["cwd"] == json!(folder.path())
        })
        .await;
    }
}

/// The capabilities of an agent that resumes sessions.
fn resumes(dialect: Dialect) -> Value {
    match dialect {
        Dialect::V1 => json!({ "sessionCapabilities": { "resume": {} } }),
        Dialect::V2 | Dialect::Draft => json!({ "session": { "resume": {} } }),
    }
}

fn chunk(id: &str, text: &str) -> Value {
    let content = json!({ "type": "text", "text": text });
    json!({ "sessionUpdate": "agent_message_chunk", "messageId": id, "content": content })
}

/// The texts of the agent's messages in a session, read by a new client.
async fn agent_texts(server: &Server, session: &str) -> Vec<String> {
    let mut client = server.client(Dialect::V1).await;
    client.load(session).await.unwrap();
    let received = client.take_received();
    let chunks = received.iter().map(|line| &line["params"]["update"]);
    let chunks = chunks.filter(|update| update["sessionUpdate"] == "agent_message_chunk");
    chunks.map(|update| update["content"]["text"].as_str().unwrap().to_owned()).collect()
}

/// Creates a session with one message of an agent that has ended, and sends a prompt for which the agent has to resume it.
async fn to_be_resumed(server: &Server, agents: Dialect, clients: Dialect) -> (AsyncClient, String, Agent) {
    let (mut client, mut agent) = server.both(clients, resumes(agents)).await;
    let session = agent.begins(&mut client, "s", json!([])).await;
    agent.chunk("s", "Hello. ").await;
    client.wait_for("the chunk", |line| line["params"]["update"]["content"]["text"] == "Hello. ").await;
    drop(agent);
    client.wait_for_no_agent().await;
    client.prompt(&session, json!([{ "type": "text", "text": "Hi" }]));
    let agent = server.agent(&resumes(agents)).await;
    (client, session, agent)
}

#[tokio::test]
async fn updates_right_after_a_resume_are_new() {
    for (agents, clients) in pairs() {
        let server = Server::start(agents).await;
        let (mut client, session, mut agent) = to_be_resumed(&server, agents, clients).await;
        let resume = agent.asked("session/resume").await;
        agent.answer(&resume, json!({})).await;
        match agents {
            Dialect::V1 => {}
            Dialect::V2 => {
                agent.updates("s", json!({ "sessionUpdate": "state_update", "state": "running" })).await;
            }
            Dialect::Draft => {
                agent.updates("s", json!({ "sessionUpdate": "state_change", "state": "running" })).await;
            }
        }
        // It starts like the message before.
        agent.updates("s", chunk("n", "Hel")).await;
        agent.updates("s", chunk("n", "p is done. ")).await;
        let is_done = |line: &Value| line["params"]["update"].to_string().contains("p is done. ");
        client.wait_for("the new message", is_done).await;
        if agents != Dialect::V1 && clients != Dialect::V1 {
            client.wait_for("the state", |line| line["params"]["update"]["state"] == "running").await;
        }
        agent.asked("session/prompt").await;
        assert_eq!(
            agent_texts(&server, &session).await.concat(),
            "Hello. Help is done. ",
            "{agents} {clients}"
        );
    }
}

#[tokio::test]
async fn an_agent_that_replays_a_resumed_session_adds_nothing() {
    for (agents, clients) in pairs() {
        for is_late in [false, true] {
            let server = Server::start(agents).await;
            let (mut client, session, mut agent) = to_be_resumed(&server, agents, clients).await;
            let resume = agent.asked("session/resume").await;
            if is_late {
                agent.answer(&resume, json!({})).await;
            }
            // Under another id, and in other pieces.
            agent.updates("s", chunk("other", "Hel")).await;
            agent.updates("s", chunk("other", "lo. ")).await;
            if !is_late {
                agent.answer(&resume, json!({})).await;
            }
            agent.asked("session/prompt").await;
            agent.updates("s", chunk("n", "New. ")).await;
            client
                .wait_for("the answer", |line| line["params"]["update"]["content"]["text"] == "New. ")
                .await;
            assert_eq!(agent_texts(&server, &session).await.concat(), "Hello. New. ", "{agents} {clients}");
        }
    }
}

/// The update with the agent's state.
fn state(dialect: Dialect, state: &str) -> Value {
    match dialect {
        Dialect::V1 | Dialect::V2 => {
            json!({ "sessionUpdate": "state_update", "state": state, "stopReason": "end_turn" })
        }
        Dialect::Draft => {
            json!({ "sessionUpdate": "state_change", "state": state, "stop_reason": "end_turn" })
        }
    }
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// Accepts the next prompt and answers it with this text.
async fn answers_prompt(agent: &mut Agent, dialect: Dialect, id: &str, says: &str) {
    let prompt = agent.asked("session/prompt").await;
    if dialect == Dialect::V1 {
        agent.updates("s", chunk(&format!("to-{id}"), says)).await;
        agent.answer(&prompt, json!({ "stopReason": "end_turn" })).await;
        return;
    }
    agent.answer(&prompt, json!({ "messageId": id })).await;
    agent.updates("s", json!({ "sessionUpdate": "user_message", "messageId": id, "content": prompt["params"]["prompt"] })).await;
    agent.updates("s", state(dialect, "running")).await;
    agent.updates("s", chunk(&format!("to-{id}"), says)).await;
    agent.updates("s", state(dialect, "idle")).await;
}

#[tokio::test]
async fn work_that_an_agent_ends_while_it_is_restored_is_not_the_turn_of_the_prompt_that_waits() {
    for agents in [Dialect::V2, Dialect::Draft] {
        for clients in [Dialect::V1, Dialect::V2, Dialect::Draft] {
            for is_late in [false, true] {
                let server = Server::start(agents).await;
                let (mut client, mut agent) = server.both(clients, resumes(agents)).await;
                let session = agent.begins(&mut client, "s", json!([])).await;
                agent.chunk("s", "Hello. ").await;
                client
                    .wait_for("the chunk", |line| line["params"]["update"]["content"]["text"] == "Hello. ")
                    .await;
                drop(agent);
                client.wait_for_no_agent().await;
                let request = client.prompt(&session, json!([text("Hi")]));
                let mut agent = server.agent(&resumes(agents)).await;
                let resume = agent.asked("session/resume").await;
                if is_late {
                    agent.answer(&resume, json!({})).await;
                }
                for activity in ["running", "idle", "running", "idle"] {
                    agent.updates("s", state(agents, activity)).await;
                }
                if !is_late {
                    agent.answer(&resume, json!({})).await;
                }
                answers_prompt(&mut agent, agents, "u", "Answer. ").await;
                client.response(request).await.unwrap();
                let is_answer = |line: &Value| line["params"]["update"].to_string().contains("Answer. ");
                if clients == Dialect::V1 {
                    let heard = client.take_received();
                    assert!(
                        heard.iter().any(is_answer),
                        "{agents}: the prompt is answered before its turn ends"
                    );
                } else {
                    client.wait_for("the answer", is_answer).await;
                }
                assert_eq!(agent_texts(&server, &session).await.concat(), "Hello. Answer. ");
            }
        }
    }
}

#[tokio::test]
async fn replayed_turns_do_not_run_again() {
    for agents in [Dialect::V2, Dialect::Draft] {
        for is_busy in [false, true] {
            let server = Server::start(agents).await;
            let (mut client, session, mut agent) = to_be_resumed(&server, agents, agents).await;
            client.take_received();
            let resume = agent.asked("session/resume").await;
            agent.updates("s", state(agents, "running")).await;
            agent.updates("s", chunk("m", "Hello. ")).await;
            agent.updates("s", state(agents, "idle")).await;
            agent.updates("s", state(agents, "running")).await;
            if !is_busy {
                agent.updates("s", state(agents, "idle")).await;
            }
            agent.answer(&resume, json!({})).await;
            agent.asked("session/prompt").await;
            agent.updates("s", chunk("n", "New. ")).await;
            client
                .wait_for("the answer", |line| line["params"]["update"].to_string().contains("New. "))
                .await;
            let heard = client.take_received();
            let states = heard.iter().map(|line| &line["params"]["update"]["state"]);
            let states: Vec<_> = states.filter(|state| !state.is_null()).collect();
            assert_eq!(states, if is_busy { vec!["running"] } else { vec![] }, "{agents}");
            assert_eq!(agent_texts(&server, &session).await.concat(), "Hello. New. ");
        }
    }
}

fn user_chunk(id: &str, content: Value) -> Value {
    json!({ "sessionUpdate": "user_message_chunk", "messageId": id, "content": content })
}

/// All messages of a session, read by a new client.
async fn messages(server: &Server, session: &str) -> Vec<Value> {
    let mut client = server.client(Dialect::V1).await;
    client.load(session).await.unwrap();
    let received = client.take_received();
    let chunks = received.iter().map(|line| &line["params"]["update"]);
    let is_chunk = |kind: &str| ["user_message_chunk", "agent_message_chunk"].contains(&kind);
    let chunks = chunks.filter(|update| update["sessionUpdate"].as_str().is_some_and(is_chunk));
    chunks.map(|update| update["content"].clone()).collect()
}

/// Has an agent resume a session of a prompt and its answer and replay these updates, before or after its response; then sends
/// another prompt. Returns the messages of the session.
async fn after_replay(
    (agents, clients): (Dialect, Dialect),
    first: Value,
    replay: &[Value],
    is_late: bool,
) -> Vec<Value> {
    let server = Server::start(agents).await;
    let (mut client, mut agent) = server.both(clients, resumes(agents)).await;
    let session = agent.begins(&mut client, "s", json!([])).await;
    let request = client.prompt(&session, json!([first]));
    answers_prompt(&mut agent, agents, "u", "Hello. ").await;
    client.response(request).await.unwrap();
    let is = |text: &'static str| move |line: &Value| line["params"]["update"].to_string().contains(text);
    client.wait_for("the answer", is("Hello. ")).await;
    drop(agent);
    client.wait_for_no_agent().await;
    client.prompt(&session, json!([text("Next.")]));
    let mut agent = server.agent(&resumes(agents)).await;
    let resume = agent.asked("session/resume").await;
    if is_late {
        agent.answer(&resume, json!({})).await;
    }
    for update in replay {
        agent.updates("s", update.clone()).await;
    }
    if !is_late {
        agent.answer(&resume, json!({})).await;
    }
    answers_prompt(&mut agent, agents, "v", "New. ").await;
    client.wait_for("the new answer", is("New. ")).await;
    messages(&server, &session).await
}

#[tokio::test]
async fn a_replay_that_starts_with_a_long_message_adds_nothing() {
    let paste = text(&"a long line \n".repeat(20_000));
    let screenshot =
        json!({ "type": "image", "mimeType": "image/png", "data": "iVBORw0KGgoA".repeat(20_000) });
    for pair in [(Dialect::V1, Dialect::V1), (Dialect::V2, Dialect::V1), (Dialect::V2, Dialect::V2)] {
        for first in [&paste, &screenshot] {
            for is_late in [false, true] {
                // So long that the second is not read together with the first.
                let first_of = |id: &str| user_chunk(id, first.clone());
                let replay = [first_of("x"), first_of("z"), chunk("y", "Hello. ")];
                let all = after_replay(pair, first.clone(), &replay, is_late).await;
                let expected = [first.clone(), text("Hello. "), text("Next."), text("New. ")];
                assert!(all == expected, "{pair:?} {is_late}: {} messages", all.len());
            }
        }
    }
}

#[tokio::test]
async fn additions_of_an_agent_to_replayed_prompts_do_not_make_them_new() {
    let link = json!({ "type": "resource_link", "uri": "file:///a", "name": "a" });
    for (agents, clients) in pairs() {
        for replay in [
            vec![
                user_chunk("x1", text("<session_context>Today is Monday.</session_context>")),
                user_chunk("x2", text("[a](file:///a)")),
                chunk("y", "Hello. "),
            ],
            vec![user_chunk("x2", text("[a](file:///a)")), chunk("y", "Hel"), chunk("y", "lo. ")],
            vec![user_chunk("x2", text("[a](file:///a)"))],
        ] {
            let all = after_replay((agents, clients), link.clone(), &replay, false).await;
            assert_eq!(
                all,
                [link.clone(), text("Hello. "), text("Next."), text("New. ")],
                "{agents} {clients}"
            );
        }
        // The messages of the agent decide whether it is a replay.
        let news = [user_chunk("x", text("Every hour: look.")), chunk("y", "Nothing new. ")];
        let all = after_replay((agents, clients), link.clone(), &news, false).await;
        let new = [text("Every hour: look."), text("Nothing new. ")];
        let all_of_it =
            [vec![link.clone(), text("Hello. ")], new.to_vec(), vec![text("Next."), text("New. ")]];
        assert_eq!(all, all_of_it.concat(), "{agents} {clients}");
    }
}

#[tokio::test]
async fn a_fork_whose_agent_replays_a_changed_prompt_adds_nothing() {
    for (agents, capabilities) in [
        (Dialect::V1, json!({ "sessionCapabilities": { "fork": {} } })),
        (Dialect::V2, json!({ "session": { "fork": {} } })),
    ] {
        let server = Server::start(agents).await;
        let (mut client, mut agent) = server.both(Dialect::V2, capabilities.clone()).await;
        let session = agent.begins(&mut client, "s", json!([])).await;
        agent.chunk("s", "Hello. ").await;
        client.wait_for("the chunk", |line| line["params"]["update"]["content"]["text"] == "Hello. ").await;
        let request =
            client.send("session/fork", json!({ "sessionId": session, "cwd": "/", "mcpServers": [] }));
        let fork = agent.asked("session/fork").await;
        agent.updates("t", user_chunk("x", text("<session_context/>"))).await;
        agent.updates("t", chunk("y", "Hello, in other words. ")).await;
        agent.answer(&fork, json!({ "sessionId": "t" })).await;
        let answer = client.response(request).await.unwrap();
        let fork = answer["sessionId"].as_str().unwrap();
        assert_eq!(messages(&server, fork).await, [text("Hello. ")], "{agents}");
    }
}

#[tokio::test]
async fn a_system_prompt_reaches_only_agents_that_take_one() {
    for (agents, clients) in pairs() {
        for takes in [true, false] {
            let mut capabilities = json!({});
            if takes {
                let name = if agents == Dialect::V1 { "sessionCapabilities" } else { "session" };
                capabilities[name] = json!({ "systemPrompt": {} });
            }
            let server = Server::start(agents).await;
            let (mut client, mut agent) = server.both(clients, capabilities).await;
            let prompt = json!({ "type": "append", "content": [{ "type": "text", "text": "Be brief" }] });
            let params = json!({ "cwd": "/", "mcpServers": [], "systemPrompt": prompt });
            let request = client.send("session/new", params);
            let new = agent.asked("session/new").await;
            assert_eq!(new["params"].get("systemPrompt"), takes.then_some(&prompt), "{agents} {clients}");
            agent.answer(&new, json!({ "sessionId": "s" })).await;
            let session = client.response(request).await.unwrap()["sessionId"].clone();
            let losses = client.call("_parlor/losses", json!({ "sessionId": session })).await.unwrap();
            assert_eq!(losses.to_string().contains("system_prompt"), !takes, "{losses}");
        }
    }
}
