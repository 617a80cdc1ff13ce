//! A client that sends and receives lines, over a stream in memory.

#![allow(dead_code, reason = "the test program `tracing` uses a part of it")]

use std::collections::VecDeque;

use parlor_agent::Server;
use parlor_testkit::wait::within_timeout;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};

/// The versions of the protocol.
pub(crate) const VERSIONS: [u32; 2] = [1, 2];

/// A result, or an error object.
pub(crate) type Reply = Result<Value, Value>;

/// A connected client.
pub(crate) struct LineClient {
    version: u32,
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    write: WriteHalf<DuplexStream>,
    next_id: u64,
    /// Messages that were received while others were waited for.
    received: VecDeque<Value>,
}

/// A turn that has ended.
#[derive(Debug, PartialEq)]
pub(crate) struct Ended {
    /// The text of the agent's messages.
    pub(crate) text: String,
    /// The stop reason, or the error.
    pub(crate) outcome: Result<String, Value>,
}

impl LineClient {
    /// Connects, and initializes with these capabilities. Returns the result of `initialize` as well.
    pub(crate) async fn connect(server: &Server, version: u32, capabilities: Value) -> (Self, Value) {
        let (read, write) = tokio::io::split(server.connect());
        let lines = BufReader::new(read).lines();
        let mut client = Self { version, lines, write, next_id: 0, received: VecDeque::new() };
        let info = json!({"name": "test", "version": "1"});
        let params = match version {
            1 => json!({"protocolVersion": 1, "clientInfo": info, "clientCapabilities": capabilities}),
            _ => json!({"protocolVersion": 2, "info": info, "capabilities": capabilities}),
        };
        let initialized = client.request("initialize", params).await.unwrap();
        (client, initialized)
    }

    /// Connects without capabilities, and creates a session.
    pub(crate) async fn with_session(server: &Server, version: u32) -> (Self, String) {
        Self::with_capabilities(server, version, json!({})).await
    }

    /// Connects with capabilities, and creates a session.
    pub(crate) async fn with_capabilities(
        server: &Server,
        version: u32,
        capabilities: Value,
    ) -> (Self, String) {
        let (mut client, _) = Self::connect(server, version, capabilities).await;
        let session = client.new_session().await.unwrap();
        (client, session)
    }

    /// Creates a session.
    pub(crate) async fn new_session(&mut self) -> Result<String, Value> {
        let created = self.request("session/new", json!({"cwd": "/tmp", "mcpServers": []})).await?;
        Ok(created["sessionId"].as_str().unwrap().to_owned())
    }

    /// Attaches to a session and receives its history.
    pub(crate) async fn load(&mut self, session: &str) {
        let mut params = json!({"sessionId": session, "cwd": "/tmp", "mcpServers": []});
        let method = if self.version == 1 {
            "session/load"
        } else {
            params["replayFrom"] = json!({"type": "start"});
            "session/resume"
        };
        self.request(method, params).await.unwrap();
    }

    /// Sends any message.
    pub(crate) async fn send(&mut self, message: Value) {
        self.send_line(&message.to_string()).await;
    }

    /// Sends any line.
    pub(crate) async fn send_line(&mut self, line: &str) {
        within_timeout(self.write.write_all(format!("{line}\n").as_bytes())).await.unwrap();
    }

    /// Sends a request and returns its id.
    pub(crate) async fn start(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        id
    }

    /// Sends a request and waits for its response.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Reply {
        let id = self.start(method, params).await;
        self.response(id).await
    }

    /// Waits for a response.
    pub(crate) async fn response(&mut self, id: u64) -> Reply {
        let mut message = self.find(|message| message["id"] == id && message.get("method").is_none()).await;
        match message.get_mut("error") {
            Some(error) => Err(error.take()),
            None => Ok(message["result"].take()),
        }
    }

    /// Waits for a request or notification of the agent.
    pub(crate) async fn agent_message(&mut self, method: &str) -> Value {
        self.find(|message| message["method"] == method).await
    }

    /// Waits for an update of this kind.
    pub(crate) async fn update(&mut self, kind: &str) -> Value {
        let message = self.find(|message| message["params"]["update"]["sessionUpdate"] == kind).await;
        message["params"]["update"].clone()
    }

    /// Responds to a request of the agent.
    pub(crate) async fn respond(&mut self, request: &Value, reply: Reply) {
        let id = &request["id"];
        self.send(match reply {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error}),
        })
        .await;
    }

    /// Sends a prompt and returns its id.
    pub(crate) async fn start_prompt(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{"type": "text", "text": text}]);
        self.start("session/prompt", json!({"sessionId": session, "prompt": prompt})).await
    }

    /// Sends a prompt and waits until the turn has ended, without requests of the agent.
    pub(crate) async fn turn(&mut self, session: &str, text: &str) -> Ended {
        self.turn_with(session, text, |method, _| panic!("the agent sent {method}")).await
    }

    /// Sends a prompt, responds to the agent's requests, and waits until the turn has ended.
    pub(crate) async fn turn_with(
        &mut self,
        session: &str,
        text: &str,
        handle: impl FnMut(&str, &Value) -> Reply,
    ) -> Ended {
        let id = self.start_prompt(session, text).await;
        self.end_of_turn(id, handle).await
    }

    /// Waits until a turn has ended.
    pub(crate) async fn end_of_turn(
        &mut self,
        id: u64,
        mut handle: impl FnMut(&str, &Value) -> Reply,
    ) -> Ended {
        let mut text = String::new();
        // In version 2 the response comes first, and the end of another turn may have come before it.
        let mut is_accepted = false;
        loop {
            let message = self.next().await;
            let update = &message["params"]["update"];
            if message.get("id").is_some() && message.get("method").is_some() {
                let reply = handle(message["method"].as_str().unwrap(), &message["params"]);
                self.respond(&message, reply).await;
            } else if update["sessionUpdate"] == "agent_message_chunk" {
                text.push_str(update["content"]["text"].as_str().unwrap());
            } else if is_accepted && update["state"] == "idle" {
                let reason = update["stopReason"].as_str().unwrap().to_owned();
                let outcome = if reason == "error" { Err(update["error"].clone()) } else { Ok(reason) };
                return Ended { text, outcome };
            } else if message["id"] == id && self.version == 1 {
                let reason = || message["result"]["stopReason"].as_str().unwrap().to_owned();
                let outcome = message.get("error").map_or_else(|| Ok(reason()), |error| Err(error.clone()));
                return Ended { text, outcome };
            } else if message["id"] == id && message.get("error").is_some() {
                return Ended { text, outcome: Err(message["error"].clone()) };
            } else if message["id"] == id {
                is_accepted = true;
            }
        }
    }

    async fn find(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        if let Some(index) = self.received.iter().position(&is_it) {
            return self.received.remove(index).unwrap();
        }
        loop {
            let message = self.read().await;
            if is_it(&message) {
                return message;
            }
            self.received.push_back(message);
        }
    }

    async fn next(&mut self) -> Value {
        match self.received.pop_front() {
            Some(message) => message,
            None => self.read().await,
        }
    }

    async fn read(&mut self) -> Value {
        let line = within_timeout(self.lines.next_line()).await.unwrap().expect("the connection is open");
        serde_json::from_str(&line).unwrap()
    }
}
