//! Errors: of turns, of input, of connections; and clients that disconnect or do not read.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::line_client::{LineClient, VERSIONS};
use parlor_agent::{Agent, Json, RpcError, ServeError, Server, StopReason, Turn, TurnError};
use parlor_testkit::wait::within_timeout;
use serde_json::json;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;

/// Ends turns as the prompt says.
#[derive(Clone, Default)]
struct Failing {
    /// Lets a turn continue.
    go: Arc<Notify>,
}

/// How many chunks are sent to a client that does not read: more than its queue holds.
const CHUNKS: usize = 30_000;

impl Agent for Failing {
    async fn prompt(&self, turn: Turn) -> Result<StopReason, TurnError> {
        match turn.prompt_text().as_str() {
            "auth" => Err(TurnError::AuthRequired("log in first".to_owned())),
            "params" => Err(TurnError::InvalidParams("an image is required".to_owned())),
            "string" => Err("words".into()),
            "io" => Err(io::Error::new(io::ErrorKind::NotFound, "no file"))?,
            "rpc" => {
                let data = Json::parse(r#"{"retryAfter":5}"#)?;
                Err(TurnError::Rpc(RpcError::new(-31999, "overloaded").with_data(data)))
            }
            "budget" => Ok(StopReason::Other("_budget".into())),
            "refuse" => Ok(StopReason::Refusal),
            "wait" => {
                turn.send_text("before ").await;
                self.go.notified().await;
                turn.send_text("after").await;
                Ok(StopReason::EndTurn)
            }
            "stream" => {
                for number in 0..CHUNKS {
                    turn.send_text(&format!("{number:08} ")).await;
                }
                Ok(StopReason::EndTurn)
            }
            _ => {
                turn.send_text("ok").await;
                Ok(StopReason::EndTurn)
            }
        }
    }
}

async fn server() -> Server {
    Server::builder(Failing::default()).start().await.unwrap()
}

#[tokio::test]
async fn errors_of_a_turn_reach_clients_of_both_versions_with_code_and_message() {
    let server = server().await;
    for version in VERSIONS {
        let (mut client, session) = LineClient::with_session(&server, version).await;
        for (prompt, code, message) in [
            ("auth", -32000, "log in first"),
            ("params", -32602, "an image is required"),
            ("string", -32603, "words"),
            ("io", -32603, "no file"),
            ("rpc", -31999, "overloaded"),
        ] {
            let error = client.turn(&session, prompt).await.outcome.unwrap_err();
            assert_eq!((&error["code"], &error["message"]), (&json!(code), &json!(message)), "v{version}");
            if prompt == "rpc" {
                assert_eq!(error["data"], json!({"retryAfter": 5}), "v{version}");
            }
        }
        assert_eq!(client.turn(&session, "hello").await.text, "ok", "the session is still usable");
    }
}

#[tokio::test]
async fn an_unknown_stop_reason_is_kept_for_version_2_and_is_end_turn_for_version_1() {
    let server = server().await;
    for (version, reason) in [(1, "end_turn"), (2, "_budget")] {
        let (mut client, session) = LineClient::with_session(&server, version).await;
        assert_eq!(client.turn(&session, "budget").await.outcome.unwrap(), reason);
        assert_eq!(client.turn(&session, "refuse").await.outcome.unwrap(), "refusal");
    }
}

#[tokio::test]
async fn invalid_input_is_rejected_and_the_connection_continues() {
    let server = server().await;
    for version in VERSIONS {
        let (mut client, session) = LineClient::with_session(&server, version).await;
        for (params, code) in [
            (json!({"sessionId": session, "prompt": "text"}), -32602),
            (json!({"sessionId": session, "prompt": []}), -32602),
            (json!({"sessionId": session, "prompt": [{"type": "text"}]}), -32602),
            (json!({"sessionId": session}), -32602),
            (json!({"prompt": [{"type": "text", "text": "x"}]}), -32602),
            (json!({"sessionId": "unknown", "prompt": [{"type": "text", "text": "x"}]}), -32002),
        ] {
            let error = client.request("session/prompt", params.clone()).await.unwrap_err();
            assert_eq!(error["code"], code, "v{version} {params}: {error}");
        }
        client.send_line("no JSON").await;
        let error = client.request("_own/unknown", json!({})).await.unwrap_err();
        assert_eq!(error["code"], -32601);
        assert_eq!(client.turn(&session, "hello").await.text, "ok");
    }
}

#[tokio::test]
async fn a_turn_continues_when_its_client_disconnects() {
    let agent = Failing::default();
    let server = Server::builder(agent.clone()).start().await.unwrap();
    for version in VERSIONS {
        let (mut client, session) = LineClient::with_session(&server, version).await;
        client.start_prompt(&session, "wait").await;
        client.update("agent_message_chunk").await;
        drop(client);
        let (mut next, _) = LineClient::connect(&server, 2, json!({})).await;
        next.load(&session).await;
        agent.go.notify_one();
        loop {
            let update = next.update("state_update").await;
            if update["state"] == "idle" && update["stopReason"] == "end_turn" {
                break;
            }
        }
        let (mut last, _) = LineClient::connect(&server, 2, json!({})).await;
        last.load(&session).await;
        let message = last.update("agent_message").await;
        assert_eq!(message["content"], json!([{"type": "text", "text": "before after"}]), "v{version}");
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_does_not_delay_the_turn_and_gets_everything_later() {
    let server = server().await;
    let (mut reading, session) = LineClient::with_session(&server, 2).await;
    let (mut slow, _) = LineClient::connect(&server, 2, json!({})).await;
    slow.load(&session).await;
    let expected: String = (0..CHUNKS).map(|number| format!("{number:08} ")).collect();
    // The turn ends although the other client reads nothing.
    let ended = reading.turn(&session, "stream").await;
    assert_eq!(ended.outcome.unwrap(), "end_turn");
    assert!(ended.text == expected, "the text is complete");
    let id = slow.start_prompt(&session, "hello").await;
    let caught_up = slow.end_of_turn(id, |method, _| panic!("the agent sent {method}")).await;
    assert!(caught_up.text == expected + "ok", "the slow client has {} bytes", caught_up.text.len());
}

/// A stream that cannot be written to.
struct Closed;

impl AsyncWrite for Closed {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}}}"#;

#[tokio::test]
async fn serving_ends_without_an_error_at_the_end_of_input_and_with_one_if_a_stream_fails() {
    let server = server().await;
    let (mut input, read) = tokio::io::duplex(1 << 16);
    input.write_all(format!("{INITIALIZE}\n").as_bytes()).await.unwrap();
    let failed = within_timeout(server.serve(read, Closed)).await.unwrap_err();
    assert!(
        matches!(&failed, ServeError::Connection(error) if error.kind() == io::ErrorKind::BrokenPipe),
        "{failed:?}"
    );

    let (mut input, read) = tokio::io::duplex(1 << 16);
    let (write, mut output) = tokio::io::duplex(1 << 16);
    input.write_all(format!("{INITIALIZE}\n").as_bytes()).await.unwrap();
    drop(input);
    within_timeout(server.serve(read, write)).await.unwrap();
    let mut received = String::new();
    within_timeout(tokio::io::AsyncReadExt::read_to_string(&mut output, &mut received)).await.unwrap();
    assert!(received.contains(r#""id":1"#), "the response is written before the connection ends: {received}");
}
