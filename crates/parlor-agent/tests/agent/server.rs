//! Servers: stopping, dialects, unknown sessions.

use parlor_agent::{Agent, Info, Server, StopReason, Turn, TurnError};
use parlor_client::{Client, Connector, Error, Session};
use parlor_testkit::wait::within_timeout;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

/// Repeats prompts.
struct Echo;

impl Agent for Echo {
    async fn prompt(&self, turn: Turn) -> Result<StopReason, TurnError> {
        turn.send_text(&turn.prompt_text()).await;
        Ok(StopReason::EndTurn)
    }
}

async fn client(server: &Server) -> Client {
    let (read, write) = tokio::io::split(server.connect());
    within_timeout(Connector::new("test", "1").over(read, write)).await.unwrap()
}

async fn turn(session: &Session, text: &str) {
    let turn = within_timeout(session.prompt(text)).await.unwrap();
    within_timeout(turn.outcome()).await.unwrap();
}

#[tokio::test]
async fn a_stopped_server_rejects_requests() {
    let server = Server::builder(Echo).start().await.unwrap();
    let client = client(&server).await;
    let session = within_timeout(client.new_session("/tmp".as_ref())).await.unwrap();
    turn(&session, "one").await;
    server.stop().await;
    let refused = within_timeout(session.prompt("two")).await;
    assert!(matches!(refused, Err(Error::Rpc(_) | Error::Disconnected)), "{refused:?}");
    assert!(within_timeout(client.new_session("/tmp".as_ref())).await.is_err());
}

#[tokio::test]
async fn a_client_that_requests_the_draft_receives_the_draft() {
    let server = Server::builder(Echo).start().await.unwrap();
    let (read, mut write) = tokio::io::split(server.connect());
    let mut lines = BufReader::new(read).lines();
    let mut next = async |what: &str| {
        loop {
            let line = within_timeout(lines.next_line()).await.unwrap().unwrap();
            if line.contains(what) {
                return line;
            }
        }
    };
    let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":2,"info":{"name":"t","version":"1"},"capabilities":{},"_meta":{"parlor/dialect":"draft"}}}"#;
    write.write_all(format!("{initialize}\n").as_bytes()).await.unwrap();
    assert!(next(r#""id":1"#).await.contains(r#""protocolVersion":2"#));
    let new = r#"{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/tmp","mcpServers":[]}}"#;
    write.write_all(format!("{new}\n").as_bytes()).await.unwrap();
    let answer = next(r#""id":2"#).await;
    let (_, id) = answer.split_once(r#""sessionId":""#).unwrap();
    let (id, _) = id.split_once('"').unwrap();
    let prompt = format!(
        r#"{{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{{"sessionId":"{id}","prompt":[{{"type":"text","text":"hi"}}]}}}}"#
    );
    write.write_all(format!("{prompt}\n").as_bytes()).await.unwrap();
    assert_eq!(next(r#""id":3"#).await, r#"{"jsonrpc":"2.0","id":3,"result":{}}"#);
    let idle = next(r#""state":"idle""#).await;
    assert!(
        idle.contains(r#""sessionUpdate":"state_change""#) && idle.contains(r#""stop_reason":"end_turn""#)
    );
}

/// Sends an update in every session.
struct Commands;

impl Agent for Commands {
    fn info(&self) -> Info {
        Info::new("commands", "1").command("go", "Goes", None)
    }

    async fn prompt(&self, _: Turn) -> Result<StopReason, TurnError> {
        Ok(StopReason::EndTurn)
    }
}

#[tokio::test]
async fn an_unknown_session_cannot_be_opened_and_is_not_listed() {
    let server = Server::builder(Commands).start().await.unwrap();
    for (hello, method, rest) in [
        (r#""protocolVersion":1,"clientCapabilities":{}"#, "session/load", ""),
        (r#""protocolVersion":1,"clientCapabilities":{}"#, "session/resume", ""),
        (
            r#""protocolVersion":2,"info":{"name":"t","version":"1"},"capabilities":{}"#,
            "session/resume",
            r#","replayFrom":{"type":"start"}"#,
        ),
        (r#""protocolVersion":2,"info":{"name":"t","version":"1"},"capabilities":{}"#, "session/resume", ""),
    ] {
        let (read, mut write) = tokio::io::split(server.connect());
        let mut lines = BufReader::new(read).lines();
        let open = format!(r#""sessionId":"nobody","cwd":"/tmp","mcpServers":[]{rest}"#);
        let mut answers = Vec::new();
        for (id, (method, params)) in
            [("initialize", hello), (method, open.as_str()), ("session/list", "")].into_iter().enumerate()
        {
            let line = format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{{{params}}}}}\n"
            );
            write.write_all(line.as_bytes()).await.unwrap();
            let answer = within_timeout(async {
                loop {
                    let line = lines.next_line().await.unwrap().unwrap();
                    if line.contains(&format!("\"id\":{id},")) {
                        return line;
                    }
                }
            });
            answers.push(answer.await);
        }
        assert!(answers[1].contains("-32002"), "{method}: {}", answers[1]);
        assert!(answers[2].contains(r#""sessions":[]"#), "{method}: {}", answers[2]);
    }
}
