//! The other side of a client's connection, as a test plays it.

use parlor_client::{Client, Error, Object, Version};
use parlor_json::{Json, JsonStr};
use parlor_testkit::wait::within_timeout;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};

use crate::connector;

pub(crate) struct Peer {
    pub(crate) lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    pub(crate) write: WriteHalf<DuplexStream>,
}

/// Something that the client asked.
pub(crate) struct Request {
    id: Json,
    pub(crate) method: String,
    pub(crate) params: Object,
}

/// A client, and the other side of its connection after the beginning.
pub(crate) async fn peer() -> (Client, Peer) {
    let (connecting, mut peer) = connecting(Some(Version::V2));
    let hello = peer.asked("initialize").await;
    let result = r#"{"protocolVersion":2,"info":{"name":"x","version":"1"},"capabilities":{}}"#;
    peer.answer(&hello, result).await;
    (within_timeout(connecting).await.unwrap().unwrap(), peer)
}

/// A client that connects, in a task as programs do it, and the other side.
pub(crate) fn connecting(version: Option<Version>) -> (tokio::task::JoinHandle<Result<Client, Error>>, Peer) {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let (read, write) = tokio::io::split(ours);
    let (their_read, their_write) = tokio::io::split(theirs);
    let connector = version.map_or_else(connector, |version| connector().only(version));
    let connecting = tokio::spawn(async move { connector.over(read, write).await });
    (connecting, Peer { lines: BufReader::new(their_read).lines(), write: their_write })
}

impl Peer {
    /// The next line that the client says, as an object.
    pub(crate) async fn hears(&mut self) -> Object {
        let line = within_timeout(self.lines.next_line()).await.unwrap().expect("the client says something");
        Object::parse(Json::parse(line).unwrap().raw()).unwrap()
    }

    /// The next line of the client, which asks this.
    pub(crate) async fn asked(&mut self, method: &str) -> Request {
        let request = Request::of(&self.hears().await);
        assert_eq!(request.method, method);
        request
    }

    pub(crate) async fn says(&mut self, text: &str) {
        self.write.write_all(text.as_bytes()).await.unwrap();
    }

    pub(crate) async fn answer(&mut self, request: &Request, result: &str) {
        self.says(&request.answer(result)).await;
    }

    pub(crate) async fn refuse(&mut self, request: &Request, code: i64) {
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{},\"error\":{{\"code\":{code},\"message\":\"No.\"}}}}\n",
            request.id.as_str()
        );
        self.says(&line).await;
    }
}

impl Request {
    /// What a line of the client asks.
    pub(crate) fn of(line: &Object) -> Self {
        let text = |name: &str| Some(JsonStr::from_raw(line.get(name)?.raw())?.to_text().into_owned());
        let params = line.get("params").map(|params| Object::parse(params.raw()).unwrap());
        Self {
            id: line.get("id").unwrap_or_else(|| panic!("no request: {line:?}")).clone(),
            method: text("method").unwrap(),
            params: params.unwrap_or_default(),
        }
    }

    pub(crate) fn answer(&self, result: &str) -> String {
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{result}}}\n", self.id.as_str())
    }

    /// The type of the cursor from which the client wants to be told, if from any.
    pub(crate) fn replay_from(&self) -> Option<String> {
        self.params.get("replayFrom").map(|from| from.as_str().to_owned())
    }
}

/// The line of an update of the session `s`, with its number if it has one.
pub(crate) fn update(update: &str, seq: Option<u64>) -> String {
    let meta = seq.map(|seq| format!(r#","_meta":{{"parlor/seq":{seq}}}"#)).unwrap_or_default();
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{{\"sessionId\":\"s\",\"update\":{update}{meta}}}}}\n"
    )
}

/// The line of a piece of text that the agent says in a message.
pub(crate) fn chunk(message: &str, text: &str, seq: Option<u64>) -> String {
    let content = format!(r#"{{"type":"text","text":"{text}"}}"#);
    update(
        &format!(r#"{{"sessionUpdate":"agent_message_chunk","messageId":"{message}","content":{content}}}"#),
        seq,
    )
}

/// The line of a message of the user's.
pub(crate) fn prompt(message: &str, text: &str, seq: Option<u64>) -> String {
    let content = format!(r#"[{{"type":"text","text":"{text}"}}]"#);
    update(&format!(r#"{{"sessionUpdate":"user_message","messageId":"{message}","content":{content}}}"#), seq)
}

/// The line that says that a turn has ended.
pub(crate) fn idle(reason: &str, seq: Option<u64>) -> String {
    update(&format!(r#"{{"sessionUpdate":"state_update","state":"idle","stopReason":"{reason}"}}"#), seq)
}
