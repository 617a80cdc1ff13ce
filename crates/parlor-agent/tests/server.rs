//! Transports and persistence.

use parlor_agent::{Agent, Info, PromptCapability, Server, StopReason, Turn, TurnError};
use parlor_client::{Client, Connector, Error, Session, Version};
use parlor_testkit::wait::within_timeout;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

/// Repeats prompts; its name and version are given.
struct Echo(&'static str, &'static str);

impl Agent for Echo {
    fn info(&self) -> Info {
        Info::new(self.0, self.1).accepts(if self.1 == "1" {
            PromptCapability::Audio
        } else {
            PromptCapability::Image
        })
    }

    async fn prompt(&self, turn: Turn) -> Result<StopReason, TurnError> {
        if turn.prompt_text() == "wait" {
            std::future::pending::<()>().await;
        }
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

fn last(session: &Session) -> String {
    session.transcript().entries().last().unwrap().body().content.to_text()
}

#[tokio::test]
async fn an_agent_that_changes_its_name_finds_its_sessions_again() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("sessions.db");
    let server = Server::builder(Echo("old", "1")).persist(&file).start().await.unwrap();
    let session = within_timeout(client(&server).await.new_session("/tmp".as_ref())).await.unwrap();
    turn(&session, "one").await;
    server.stop().await;
    drop(server);

    let server = Server::builder(Echo("new", "2")).persist(&file).start().await.unwrap();
    let client = client(&server).await;
    let info = client.info().to_json();
    let info = info.as_str();
    assert!(info.contains(r#""name":"new""#) && info.contains(r#""version":"2""#), "{info}");
    assert!(info.contains("image") && !info.contains("audio"), "{info}");
    assert_eq!(within_timeout(client.list(None)).await.unwrap().len(), 1);
    let session = within_timeout(client.load(session.id(), "/tmp".as_ref())).await.unwrap();
    turn(&session, "two").await;
    assert_eq!(session.transcript().entries().len(), 4);
}

#[tokio::test]
async fn only_one_server_can_use_a_file_of_sessions() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("sessions.db");
    let server = Server::builder(Echo("a", "1")).persist(&file).start().await.unwrap();
    let session = within_timeout(client(&server).await.new_session("/tmp".as_ref())).await.unwrap();
    let running = within_timeout(session.prompt("wait")).await.unwrap();
    let second = Server::builder(Echo("a", "1")).persist(&file).start().await;
    let why = second.unwrap_err().to_string();
    assert!(why.contains("sessions.db") && why.contains("another process"), "{why}");
    // The first one still works.
    within_timeout(session.cancel()).await.unwrap();
    within_timeout(running.outcome()).await.unwrap();

    let nowhere =
        Server::builder(Echo("a", "1")).persist(directory.path().join("no/such/place")).start().await;
    assert!(nowhere.unwrap_err().to_string().contains("no/such/place"));
    std::fs::write(directory.path().join("broken.db"), "no database ".repeat(1000)).unwrap();
    let broken = Server::builder(Echo("a", "1")).persist(directory.path().join("broken.db")).start().await;
    assert!(broken.unwrap_err().to_string().contains("broken.db"));
}

#[tokio::test]
async fn clients_connect_over_websocket_with_the_token() {
    let server = Server::builder(Echo("web", "1")).start().await.unwrap();
    let address = server.listen("127.0.0.1:0".parse().unwrap(), "secret").await.unwrap();
    let url = format!("ws://{address}/acp");
    let connector = Connector::new("test", "1");
    for token in [None, Some("secrets"), Some("")] {
        assert!(within_timeout(connector.url(&url, token)).await.is_err(), "{token:?}");
    }
    let here = client(&server).await;
    let session = within_timeout(here.new_session("/tmp".as_ref())).await.unwrap();
    for version in [Version::V1, Version::V2] {
        let client = within_timeout(connector.clone().only(version).url(&url, Some("secret"))).await.unwrap();
        let same = within_timeout(client.load(session.id(), "/tmp".as_ref())).await.unwrap();
        turn(&same, "over there").await;
        assert_eq!(last(&same), "over there");
    }
    // Other agents cannot be requested.
    let other = within_timeout(connector.url(&format!("{url}?agent=claude"), Some("secret"))).await;
    assert!(other.is_err(), "there is one agent");

    assert!(server.listen(address, "secret").await.is_err(), "it is taken");
    assert!(server.listen("127.0.0.1:0".parse().unwrap(), "no token").await.is_err());
    let everywhere = server.listen("0.0.0.0:0".parse().unwrap(), "secret").await;
    assert!(everywhere.unwrap_err().to_string().contains("other machines"));

    server.stop().await;
    assert!(within_timeout(connector.url(&url, Some("secret"))).await.is_err());
}

#[tokio::test]
async fn a_stopped_server_rejects_requests() {
    let server = Server::builder(Echo("a", "1")).start().await.unwrap();
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
    let server = Server::builder(Echo("a", "1")).start().await.unwrap();
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
