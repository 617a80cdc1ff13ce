//! A client in the process of the server.

use std::sync::Arc;

use parlor_dialect::Dialect;
use parlor_server::hub::{Hub, Peer, Role, TransportKind};
use parlor_server::transport::streams;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf};
use tokio::sync::mpsc;

use crate::processes;

pub(crate) struct Client {
    pub(crate) dialect: Dialect,
    write: mpsc::UnboundedSender<String>,
    read: Lines<BufReader<ReadHalf<DuplexStream>>>,
    next: u64,
    /// What came and was not looked at yet.
    heard: Vec<Value>,
}

impl Client {
    pub(crate) async fn connect(hub: &Arc<Hub>, dialect: Dialect, role: Role) -> Self {
        let (here, there) = tokio::io::duplex(1 << 20);
        let transport = TransportKind::Unix;
        let peer = Peer { transport, role, agent: None, dialect: None, env: Vec::new(), cwd: None };
        let hub = Arc::clone(hub);
        tokio::spawn(async move {
            let (read, write) = tokio::io::split(there);
            streams(&hub, peer, read, write).await;
        });
        let (read, mut stream) = tokio::io::split(here);
        let (write, mut lines) = mpsc::unbounded_channel::<String>();
        tokio::spawn(async move {
            while let Some(line) = lines.recv().await {
                stream.write_all(line.as_bytes()).await.unwrap();
            }
            stream.shutdown().await.unwrap();
        });
        let mut client =
            Self { dialect, write, read: BufReader::new(read).lines(), next: 0, heard: Vec::new() };
        let elicitation = json!({ "elicitation": { "form": {}, "url": {} } });
        let params = match dialect {
            Dialect::V1 => json!({ "protocolVersion": 1, "clientCapabilities": elicitation }),
            Dialect::V2 | Dialect::Draft => {
                json!({ "protocolVersion": 2, "info": { "name": "t", "version": "1" }, "capabilities": elicitation })
            }
        };
        let mut params = params;
        if dialect == Dialect::Draft {
            params["_meta"] = json!({ "parlor/dialect": "draft" });
        }
        client.call("initialize", params).await.unwrap();
        client
    }

    fn write(&self, line: &Value) {
        self.write.send(format!("{line}\n")).unwrap();
    }

    pub(crate) fn send(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        self.write(&json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params }));
        self.next
    }

    pub(crate) fn notify(&self, method: &str, params: Value) {
        self.write(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    pub(crate) fn cancels(&self, request: u64) {
        self.notify("$/cancel_request", json!({ "requestId": request }));
    }

    pub(crate) fn respond(&self, request: &Value, result: Value) {
        self.write(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }));
    }

    /// Reads until a line is wanted, and takes it.
    pub(crate) async fn until(&mut self, what: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            if let Some(place) = self.heard.iter().position(&is_wanted) {
                return self.heard.remove(place);
            }
            let line = tokio::time::timeout(processes::PATIENCE, self.read.next_line()).await;
            let line = line.unwrap_or_else(|_| panic!("{what} does not come; there are {:?}", self.heard));
            let line = line.unwrap().unwrap_or_else(|| panic!("the end came before {what}"));
            self.heard.push(serde_json::from_str(&line).unwrap());
        }
    }

    pub(crate) async fn answer(&mut self, id: u64) -> Result<Value, Value> {
        let line = self
            .until(&format!("the answer to {id}"), |line| line.get("method").is_none() && line["id"] == id)
            .await;
        line.get("error").cloned().map_or_else(|| Ok(line["result"].clone()), Err)
    }

    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.send(method, params);
        self.answer(id).await
    }

    /// The next request or notification of this method.
    pub(crate) async fn asked(&mut self, method: &str) -> Value {
        self.until(method, |line| line["method"] == method).await
    }

    /// Whether nothing of this method came before now, as far as the server has said anything.
    pub(crate) async fn heard_none(&mut self, method: &str) {
        self.call("_parlor/status", json!({})).await.unwrap();
        assert!(self.heard.iter().all(|line| line["method"] != method), "{:?}", self.heard);
    }

    /// Waits until no agent runs.
    pub(crate) async fn waits_for_its_end(&mut self) {
        processes::eventually("the agent has ended", async || {
            self.call("_parlor/status", json!({})).await.unwrap()["agents"] == json!([])
        })
        .await;
    }

    /// Opens a session that the server has.
    pub(crate) async fn loads(&mut self, session: &str) -> Result<Value, Value> {
        self.loads_with(session, json!([])).await
    }

    pub(crate) async fn loads_with(&mut self, session: &str, servers: Value) -> Result<Value, Value> {
        let id = self.sends_load(session, servers);
        self.answer(id).await
    }

    pub(crate) fn sends_load(&mut self, session: &str, servers: Value) -> u64 {
        let mut params = json!({ "sessionId": session, "cwd": "/", "mcpServers": servers });
        if self.dialect == Dialect::V1 {
            return self.send("session/load", params);
        }
        params["replayFrom"] = json!({ "type": "start" });
        self.send("session/resume", params)
    }

    /// What came and was not looked at yet.
    pub(crate) fn take_heard(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.heard)
    }

    pub(crate) fn prompt(&mut self, session: &str, prompt: Value) -> u64 {
        self.send("session/prompt", json!({ "sessionId": session, "prompt": prompt }))
    }
}
