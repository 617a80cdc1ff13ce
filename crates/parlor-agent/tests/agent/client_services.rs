//! The client's files and terminals, as an agent uses them.

use std::sync::Arc;
use std::task::Poll;

use crate::line_client::{LineClient, Reply, VERSIONS};
use parlor_agent::{
    Agent, Object, RequestError, Server, Session, StopReason, TerminalCommand, Turn, TurnError,
};
use parlor_testkit::wait::within_timeout;
use serde_json::{Value, json};
use tokio::sync::Notify;

/// Requests what the prompt says, and sends the result as text.
#[derive(Clone, Default)]
struct Requester {
    /// Lets what runs after the turn continue.
    go: Arc<Notify>,
    /// Notified when a turn is dropped.
    dropped: Arc<Notify>,
}

struct NotifyDrop(Arc<Notify>);

impl Drop for NotifyDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

async fn terminal(session: &Session) -> Result<String, RequestError> {
    let command = TerminalCommand::new("make").arg("all").args(["-j", "2"]).env("A", "1").cwd("/src");
    let terminal = session.client().create_terminal(&command.output_limit(10)).await?;
    let before = terminal.output().await?;
    terminal.kill().await?;
    let exit = terminal.wait_for_exit().await?;
    let after = terminal.output().await?;
    let id = terminal.id().into_owned();
    terminal.release().await?;
    Ok(format!(
        "{id}: {} {} {:?}, {:?} {:?}, {:?}",
        before.text, before.is_truncated, before.exit, exit.code, exit.signal, after.exit
    ))
}

impl Agent for Requester {
    async fn prompt(&self, turn: Turn) -> Result<StopReason, TurnError> {
        let _guard = NotifyDrop(Arc::clone(&self.dropped));
        let client = turn.client();
        let text = match turn.prompt_text().as_str() {
            "read" => format!("{:?}", client.read_text_file("/a").await),
            "lines" => format!("{:?}", client.read_text_lines("/a", 3, 2).await),
            "write" => format!("{:?}", client.write_text_file("/a", "new\n").await),
            "terminal" => format!("{:?}", terminal(&turn).await),
            "own" => {
                let mut params = Object::default();
                params.set("n", parlor_agent::Json::parse("1e2")?);
                format!("{:?}", client.request("_own/method", &params).await)
            }
            "drop terminal" => {
                drop(client.create_terminal(&TerminalCommand::new("sleep")).await?);
                "dropped".to_owned()
            }
            "hold terminal" => {
                let _terminal = client.create_terminal(&TerminalCommand::new("sleep")).await?;
                turn.send_text("holding").await;
                std::future::pending().await
            }
            "question mark" => client.read_text_file("/a").await?,
            "later" => {
                let (session, go) = (turn.session(), Arc::clone(&self.go));
                tokio::spawn(async move {
                    go.notified().await;
                    let read = session.client().read_text_file("/a").await;
                    session.send_text(&format!("{read:?}")).await;
                });
                "wait".to_owned()
            }
            "many" => {
                let none = Object::default();
                let requests = (0..1000).map(|_| client.request("_own/hang", &none));
                let mut requests: Vec<_> = requests.map(Box::pin).collect();
                let first = std::future::poll_fn(|cx| {
                    let pending =
                        requests.iter_mut().map(|one| one.as_mut().poll(cx)).filter(Poll::is_pending).count();
                    Poll::Ready(pending)
                });
                let pending = first.await;
                format!("{pending} {:?}", client.request("_own/one_more", &none).await)
            }
            other => panic!("no command {other}"),
        };
        turn.send_text(&text).await;
        Ok(StopReason::EndTurn)
    }
}

fn all() -> Value {
    json!({"fs": {"readTextFile": true, "writeTextFile": true}, "terminal": true})
}

async fn server() -> Server {
    Server::builder(Requester::default()).start().await.unwrap()
}

fn unexpected(method: &str, _: &Value) -> Reply {
    panic!("the client was sent {method}")
}

#[tokio::test]
async fn files_are_read_and_written_by_the_client() {
    let server = server().await;
    let (mut client, session) = LineClient::with_capabilities(&server, 1, all()).await;
    for (prompt, method, params, result, text) in [
        ("read", "fs/read_text_file", json!({"path": "/a"}), json!({"content": "é\n"}), r#"Ok("é\n")"#),
        (
            "lines",
            "fs/read_text_file",
            json!({"path": "/a", "line": 3, "limit": 2}),
            json!({"content": ""}),
            r#"Ok("")"#,
        ),
        ("write", "fs/write_text_file", json!({"path": "/a", "content": "new\n"}), Value::Null, "Ok(())"),
    ] {
        let ended = client
            .turn_with(&session, prompt, |sent, sent_params| {
                let mut params = params.clone();
                params["sessionId"] = json!(session);
                assert_eq!((sent, sent_params), (method, &params));
                Ok(result.clone())
            })
            .await;
        assert_eq!(ended.text, text);
        assert_eq!(ended.outcome.unwrap(), "end_turn");
    }
}

#[tokio::test]
async fn a_client_without_the_service_is_an_error_that_can_be_matched() {
    let server = server().await;
    let readonly = json!({"fs": {"readTextFile": true, "writeTextFile": false}});
    for (version, capabilities, prompts) in [
        (1, json!({}), vec!["read", "lines", "write", "terminal"]),
        (1, readonly, vec!["write", "terminal"]),
        (1, json!({"terminal": true}), vec!["read", "write"]),
        // Version 2 has no such capabilities.
        (2, json!({}), vec!["read", "write", "terminal"]),
        (2, all(), vec!["read", "write", "terminal"]),
    ] {
        let (mut client, session) = LineClient::with_capabilities(&server, version, capabilities).await;
        for prompt in prompts {
            let method = match prompt {
                "write" => "fs/write_text_file",
                "terminal" => "terminal/create",
                _ => "fs/read_text_file",
            };
            let ended = client.turn_with(&session, prompt, unexpected).await;
            assert_eq!(
                ended.text,
                format!("Err(Unsupported {{ method: {method:?} }})"),
                "{version} {prompt}"
            );
            assert_eq!(ended.outcome.unwrap(), "end_turn");
        }
    }
}

#[tokio::test]
async fn an_unsupported_request_ends_the_turn_with_its_message_by_question_mark() {
    let server = server().await;
    for version in VERSIONS {
        let (mut client, session) = LineClient::with_session(&server, version).await;
        let error = client.turn(&session, "question mark").await.outcome.unwrap_err();
        assert_eq!(error["message"], "the client does not support fs/read_text_file");
        assert_eq!(error["code"], -32603);
    }
}

#[tokio::test]
async fn errors_and_invalid_responses_of_the_client_are_told_apart() {
    let server = server().await;
    let (mut client, session) = LineClient::with_capabilities(&server, 1, all()).await;
    let error = json!({"code": -32002, "message": "no such file", "data": {"uri": "/a"}});
    let ended = client.turn_with(&session, "read", |_, _| Err(error.clone())).await;
    assert!(
        ended.text.starts_with(r#"Err(Rejected { method: "fs/read_text_file", error: RpcError"#)
            && ended.text.contains("-32002")
            && ended.text.contains("no such file")
            && ended.text.contains("uri"),
        "{}",
        ended.text
    );
    for (prompt, result, missing) in [
        ("read", json!({}), r#"method: "fs/read_text_file", expected: "content""#),
        ("read", json!({"content": 5}), r#"method: "fs/read_text_file", expected: "content""#),
        ("terminal", json!({}), r#"method: "terminal/create", expected: "terminalId""#),
    ] {
        let ended = client.turn_with(&session, prompt, |_, _| Ok(result.clone())).await;
        assert_eq!(ended.text, format!("Err(InvalidResponse {{ {missing} }})"));
    }
    // A client that declares more than it has.
    let error = json!({"code": -32601, "message": "what?"});
    let ended = client.turn_with(&session, "read", |_, _| Err(error.clone())).await;
    assert_eq!(ended.text, r#"Err(Unsupported { method: "fs/read_text_file" })"#);
}

#[tokio::test]
async fn a_command_runs_in_a_terminal_of_the_client() {
    let server = server().await;
    let (mut client, session) = LineClient::with_capabilities(&server, 1, all()).await;
    let mut methods = Vec::new();
    let ended = client
        .turn_with(&session, "terminal", |method, params| {
            methods.push(method.to_owned());
            assert_eq!(params["sessionId"], session.as_str());
            if method == "terminal/create" {
                let expected = json!({"sessionId": session, "command": "make", "args": ["all", "-j", "2"],
                    "env": [{"name": "A", "value": "1"}], "cwd": "/src", "outputByteLimit": 10});
                assert_eq!(*params, expected);
                return Ok(json!({"terminalId": "t 1"}));
            }
            assert_eq!(params["terminalId"], "t 1");
            let killed = methods.iter().any(|method| method == "terminal/kill");
            Ok(match method {
                "terminal/output" if killed => {
                    json!({"output": "x", "truncated": false, "exitStatus": {"exitCode": null, "signal": "SIGTERM"}})
                }
                "terminal/output" => json!({"output": "out", "truncated": true}),
                "terminal/wait_for_exit" => json!({"exitCode": 3, "signal": null}),
                _ => json!({}),
            })
        })
        .await;
    let exit = r#"Some(TerminalExit { code: None, signal: Some(\"SIGTERM\") })"#;
    assert_eq!(ended.text, format!(r#"Ok("t 1: out true None, Some(3) None, {exit}")"#));
    let expected = ["create", "output", "kill", "wait_for_exit", "output", "release"];
    assert_eq!(methods, expected.map(|name| format!("terminal/{name}")));
}

#[tokio::test]
async fn a_dropped_terminal_is_released_also_by_a_cancelled_turn() {
    let agent = Requester::default();
    let server = Server::builder(agent).start().await.unwrap();
    let (mut client, session) = LineClient::with_capabilities(&server, 1, all()).await;
    for is_cancelled in [false, true] {
        let prompt = if is_cancelled { "hold terminal" } else { "drop terminal" };
        let id = client.start_prompt(&session, prompt).await;
        let create = client.agent_message("terminal/create").await;
        client.respond(&create, Ok(json!({"terminalId": "t"}))).await;
        if is_cancelled {
            client.update("agent_message_chunk").await;
            client
                .send(json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}))
                .await;
        }
        let release = client.agent_message("terminal/release").await;
        assert_eq!(release["params"]["terminalId"], "t");
        client.respond(&release, Ok(json!({}))).await;
        let reason = client.response(id).await.unwrap();
        assert_eq!(reason["stopReason"], if is_cancelled { "cancelled" } else { "end_turn" });
        if !is_cancelled {
            client.update("agent_message_chunk").await;
        }
    }
}

#[tokio::test]
async fn a_request_of_a_cancelled_turn_is_cancelled_at_the_client() {
    let agent = Requester::default();
    let dropped = Arc::clone(&agent.dropped);
    let server = Server::builder(agent).start().await.unwrap();
    let (mut client, session) = LineClient::with_capabilities(&server, 1, all()).await;
    let id = client.start_prompt(&session, "read").await;
    let read = client.agent_message("fs/read_text_file").await;
    client
        .send(json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}))
        .await;
    within_timeout(dropped.notified()).await;
    let cancel = client.agent_message("$/cancel_request").await;
    assert_eq!(cancel["params"]["requestId"], read["id"]);
    assert_eq!(client.response(id).await.unwrap()["stopReason"], "cancelled");
    // A response that comes too late changes nothing.
    client.respond(&read, Ok(json!({"content": "late"}))).await;
    let ended = client.turn_with(&session, "read", |_, _| Ok(json!({"content": "next"}))).await;
    assert_eq!(ended.text, r#"Ok("next")"#);
}

#[tokio::test]
async fn a_request_fails_when_its_client_disconnects_and_the_turn_continues() {
    let server = server().await;
    let (mut client, session) = LineClient::with_capabilities(&server, 1, all()).await;
    let (mut other, _) = LineClient::connect(&server, 2, json!({})).await;
    other.load(&session).await;
    client.start_prompt(&session, "read").await;
    client.agent_message("fs/read_text_file").await;
    drop(client);
    let chunk = other.update("agent_message_chunk").await;
    assert_eq!(chunk["content"]["text"], r#"Err(ClientGone { method: "fs/read_text_file" })"#);
}

#[tokio::test]
async fn the_client_whose_prompt_runs_is_sent_the_request() {
    let server = server().await;
    let (mut first, session) = LineClient::with_capabilities(&server, 1, all()).await;
    let (mut second, _) = LineClient::connect(&server, 1, all()).await;
    second.load(&session).await;
    let (mut third, _) = LineClient::connect(&server, 2, json!({})).await;
    third.load(&session).await;
    let ended = second.turn_with(&session, "read", |_, _| Ok(json!({"content": "second"}))).await;
    assert_eq!(ended.text, r#"Ok("second")"#);
    let ended = first.turn_with(&session, "read", |_, _| Ok(json!({"content": "first"}))).await;
    assert!(ended.text.ends_with(r#"Ok("first")"#), "{}", ended.text);
    let ended = third.turn(&session, "read").await;
    assert!(ended.text.ends_with(r#"Err(Unsupported { method: "fs/read_text_file" })"#), "{}", ended.text);
}

#[tokio::test]
async fn outside_of_turns_any_client_that_has_the_service_is_sent_the_request() {
    let agent = Requester::default();
    let go = Arc::clone(&agent.go);
    let server = Server::builder(agent).start().await.unwrap();
    let (mut plain, session) = LineClient::with_session(&server, 2).await;
    let (mut editor, _) = LineClient::connect(&server, 1, all()).await;
    editor.load(&session).await;
    assert_eq!(plain.turn(&session, "later").await.text, "wait");
    go.notify_one();
    let read = editor.agent_message("fs/read_text_file").await;
    editor.respond(&read, Ok(json!({"content": "editor"}))).await;
    assert_eq!(plain.update("agent_message_chunk").await["content"]["text"], r#"Ok("editor")"#);
}

#[tokio::test]
async fn other_requests_reach_clients_of_both_versions_unchanged() {
    let server = server().await;
    for version in VERSIONS {
        let (mut client, session) = LineClient::with_session(&server, version).await;
        let ended = client
            .turn_with(&session, "own", |method, params| {
                assert_eq!(method, "_own/method");
                assert_eq!(*params, json!({"sessionId": session, "n": 100.0}));
                Ok(json!({"x": [1]}))
            })
            .await;
        assert_eq!(ended.text, r#"Ok({"x":[1]})"#);
    }
}

#[tokio::test]
async fn the_number_of_requests_without_a_response_is_limited() {
    let server = server().await;
    let (mut client, session) = LineClient::with_session(&server, 2).await;
    client.start_prompt(&session, "many").await;
    let chunk = client.update("agent_message_chunk").await;
    assert_eq!(chunk["content"]["text"], "1000 Err(TooManyRequests)");
}
