//! The peer of a client's connection, as a test plays it.

use std::time::Duration;

use parlor_client::{Client, Error, Object, Version};
use parlor_json::{Json, JsonStr};
use parlor_testkit::wait::within_timeout;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};

use crate::connector;

pub(crate) struct Peer {
    pub(crate) lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    pub(crate) write: WriteHalf<DuplexStream>,
}

/// A request of the client.
pub(crate) struct Request {
    id: Json,
    pub(crate) method: String,
    pub(crate) params: Object,
}

/// An initialized client and its peer.
pub(crate) async fn peer() -> (Client, Peer) {
    let (connecting, mut peer) = connecting(Some(Version::V2));
    let hello = peer.expect_request("initialize").await;
    let result = r#"{"protocolVersion":2,"info":{"name":"x","version":"1"},"capabilities":{}}"#;
    peer.respond(&hello, result).await;
    (within_timeout(connecting).await.unwrap().unwrap(), peer)
}

/// A client that is connecting in a task, and its peer.
pub(crate) fn connecting(version: Option<Version>) -> (tokio::task::JoinHandle<Result<Client, Error>>, Peer) {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let (read, write) = tokio::io::split(ours);
    let (their_read, their_write) = tokio::io::split(theirs);
    let connector = version.map_or_else(connector, |version| connector().only(version));
    let connecting = tokio::spawn(async move { connector.over(read, write).await });
    (connecting, Peer { lines: BufReader::new(their_read).lines(), write: their_write })
}

impl Peer {
    /// The next message of the client.
    pub(crate) async fn receive(&mut self) -> Object {
        let line = within_timeout(self.lines.next_line()).await.unwrap().expect("the client sends a message");
        Object::parse(Json::parse(line).unwrap().raw()).unwrap()
    }

    /// The next message of the client, which is a request with this method.
    pub(crate) async fn expect_request(&mut self, method: &str) -> Request {
        let request = Request::of(&self.receive().await);
        assert_eq!(request.method, method);
        request
    }

    pub(crate) async fn send(&mut self, text: &str) {
        self.write.write_all(text.as_bytes()).await.unwrap();
    }

    pub(crate) async fn respond(&mut self, request: &Request, result: &str) {
        self.send(&request.response(result)).await;
    }

    pub(crate) async fn respond_error(&mut self, request: &Request, code: i64) {
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{},\"error\":{{\"code\":{code},\"message\":\"No.\"}}}}\n",
            request.id.as_str()
        );
        self.send(&line).await;
    }
}

impl Request {
    /// The request in a message of the client.
    pub(crate) fn of(line: &Object) -> Self {
        let text = |name: &str| Some(JsonStr::from_raw(line.get(name)?.raw())?.to_text().into_owned());
        let params = line.get("params").map(|params| Object::parse(params.raw()).unwrap());
        Self {
            id: line.get("id").unwrap_or_else(|| panic!("no request: {line:?}")).clone(),
            method: text("method").unwrap(),
            params: params.unwrap_or_default(),
        }
    }

    pub(crate) fn response(&self, result: &str) -> String {
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{result}}}\n", self.id.as_str())
    }

    /// The replay that the client asks for.
    pub(crate) fn replay_from(&self) -> Option<String> {
        self.params.get("replayFrom").map(|from| from.as_str().to_owned())
    }
}

/// An update of the session `s`, with a sequence number if there is one.
pub(crate) fn update(update: &str, seq: Option<u64>) -> String {
    let meta = seq.map(|seq| format!(r#","_meta":{{"parlor/seq":{seq}}}"#)).unwrap_or_default();
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{{\"sessionId\":\"s\",\"update\":{update}{meta}}}}}\n"
    )
}

/// A chunk of an agent message.
pub(crate) fn chunk(message: &str, text: &str, seq: Option<u64>) -> String {
    let content = format!(r#"{{"type":"text","text":"{text}"}}"#);
    update(
        &format!(r#"{{"sessionUpdate":"agent_message_chunk","messageId":"{message}","content":{content}}}"#),
        seq,
    )
}

/// A user message.
pub(crate) fn prompt(message: &str, text: &str, seq: Option<u64>) -> String {
    let content = format!(r#"[{{"type":"text","text":"{text}"}}]"#);
    update(&format!(r#"{{"sessionUpdate":"user_message","messageId":"{message}","content":{content}}}"#), seq)
}

/// The end of a turn.
pub(crate) fn idle(reason: &str, seq: Option<u64>) -> String {
    update(&format!(r#"{{"sessionUpdate":"state_update","state":"idle","stopReason":"{reason}"}}"#), seq)
}

/// Sends notifications until the connection takes no more. The test has to pause time.
pub(crate) async fn fill(client: &Client) {
    let mut params = Object::default();
    params.set("text", Json::parse(format!("{:?}", "x".repeat(1024))).unwrap());
    // This elapses only when no task can run.
    while tokio::time::timeout(Duration::from_secs(1), client.notify("_x/y", &params)).await.is_ok() {}
}
