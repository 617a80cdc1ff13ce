//! A client in the process of the test, for servers that run in it too.

use parlor_dialect::Dialect;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf};
use tokio::sync::mpsc;

use crate::wait::TIMEOUT;

/// The most lines that wait because the server does not read. More fail the test.
const MAX_UNSENT_LINES: usize = 10_000;

/// A client over an in-memory stream. It reads only while the test waits for something.
#[derive(Debug)]
pub struct AsyncClient {
    /// The dialect that it speaks.
    pub dialect: Dialect,
    writer: mpsc::Sender<String>,
    reader: Lines<BufReader<ReadHalf<DuplexStream>>>,
    next_id: u64,
    /// The messages that it received and the test has not taken.
    pub received: Vec<Value>,
}

impl AsyncClient {
    /// Initializes a connection with these capabilities.
    pub async fn over(stream: DuplexStream, dialect: Dialect, capabilities: Value) -> Self {
        let (read, mut write) = tokio::io::split(stream);
        let (writer, mut lines) = mpsc::channel::<String>(MAX_UNSENT_LINES);
        tokio::spawn(async move {
            while let Some(line) = lines.recv().await {
                write.write_all(line.as_bytes()).await.expect("the server reads");
            }
            write.shutdown().await.expect("the stream is open");
        });
        let reader = BufReader::new(read).lines();
        let mut client = Self { dialect, writer, reader, next_id: 0, received: Vec::new() };
        let mut params = match dialect {
            Dialect::V1 => json!({ "protocolVersion": 1, "clientCapabilities": capabilities }),
            Dialect::V2 | Dialect::Draft => {
                json!({ "protocolVersion": 2, "info": { "name": "t", "version": "1" }, "capabilities": capabilities })
            }
        };
        if dialect == Dialect::Draft {
            params["_meta"] = json!({ "parlor/dialect": "draft" });
        }
        client.call("initialize", params).await.expect("the server initializes the connection");
        client
    }

    fn write(&self, line: &Value) {
        self.writer.try_send(format!("{line}\n")).expect("the connection is open and takes lines");
    }

    /// Sends a request; its id.
    #[expect(clippy::needless_pass_by_value, reason = "callers make it for the call")]
    pub fn send(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        self.write(&json!({ "jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params }));
        self.next_id
    }

    /// Sends a notification.
    #[expect(clippy::needless_pass_by_value, reason = "callers make it for the call")]
    pub fn notify(&self, method: &str, params: Value) {
        self.write(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// Cancels a request of its own.
    pub fn cancel_request(&self, request: u64) {
        self.notify("$/cancel_request", json!({ "requestId": request }));
    }

    /// Responds to a peer request.
    #[expect(clippy::needless_pass_by_value, reason = "callers make it for the call")]
    pub fn respond(&self, request: &Value, result: Value) {
        self.write(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }));
    }

    /// Receives messages until there is one that is wanted, and takes it.
    pub async fn wait_for(&mut self, what: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            if let Some(place) = self.received.iter().position(&is_wanted) {
                return self.received.remove(place);
            }
            let line = tokio::time::timeout(TIMEOUT, self.reader.next_line()).await;
            let line = line.unwrap_or_else(|_| panic!("{what} does not come; there are {:?}", self.received));
            let line = line.expect("lines are text").unwrap_or_else(|| panic!("closed before {what} came"));
            self.received.push(serde_json::from_str(&line).expect("lines are JSON"));
        }
    }

    /// Waits for the response to a request: the result or the error.
    pub async fn response(&mut self, id: u64) -> Result<Value, Value> {
        let is_response = |line: &Value| line.get("method").is_none() && line["id"] == id;
        let line = self.wait_for(&format!("the response to request {id}"), is_response).await;
        line.get("error").cloned().map_or_else(|| Ok(line["result"].clone()), Err)
    }

    /// Sends a request and waits for its response: the result or the error.
    pub async fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.send(method, params);
        self.response(id).await
    }

    /// Waits for the next request or notification of this method.
    pub async fn wait_for_method(&mut self, method: &str) -> Value {
        self.wait_for(method, |line| line["method"] == method).await
    }

    /// Sends a prompt; the id of the request.
    #[expect(clippy::needless_pass_by_value, reason = "callers make it for the call")]
    pub fn prompt(&mut self, session: &str, prompt: Value) -> u64 {
        self.send("session/prompt", json!({ "sessionId": session, "prompt": prompt }))
    }

    /// The messages that it received and the test has not taken.
    pub fn take_received(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.received)
    }
}
