//! A client that checks and folds every line it receives. It reads and writes lines itself, and not with the client
//! library: it is the witness of what is on the wire.

mod transcript;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Instant;

use parlor_dialect::{Dialect, Fold};
use parlor_session::SessionId;
use serde_json::{Value, json};

use crate::schema;
use crate::server::Server;
use crate::transport::{self, Reader, TransportKind, Writer};
use crate::wait::TIMEOUT;

/// A client that is not connected yet.
#[derive(Debug)]
pub struct ClientBuilder {
    pub(crate) transport: TransportKind,
    pub(crate) dialect: Dialect,
    pub(crate) agent: String,
    pub(crate) is_observer: bool,
    wants_seq: bool,
    wants_events: bool,
    capabilities: Value,
    meta: Value,
}

/// A client that has initialized its connection.
#[derive(Debug)]
pub struct Client {
    /// The dialect that it speaks.
    pub dialect: Dialect,
    writer: Writer,
    reader: Reader,
    /// All messages that it received, in order.
    pub received: Vec<Value>,
    folds: HashMap<String, Fold>,
    /// The last seq that it received of each session.
    seqs: HashMap<String, u64>,
    /// The methods of the requests that have no response yet.
    requests: BTreeMap<u64, String>,
    next_id: u64,
    /// The ids of the peer requests that the test has looked at.
    seen_requests: HashSet<String>,
    /// The prompts that it sent, which v1 does not send back.
    own_prompts: Vec<String>,
    wants_events: bool,
}

impl ClientBuilder {
    /// A driver with no capabilities that asks for this agent.
    pub fn new(transport: TransportKind, dialect: Dialect, agent: &str) -> Self {
        Self {
            transport,
            dialect,
            agent: agent.to_owned(),
            is_observer: false,
            wants_seq: false,
            wants_events: false,
            capabilities: json!({}),
            meta: json!({}),
        }
    }

    /// Connects with the token of observers; only a WebSocket needs one.
    #[must_use]
    pub fn observer(mut self) -> Self {
        self.is_observer = true;
        self
    }

    /// Asks for the seq of each change.
    #[must_use]
    pub fn with_seq(mut self) -> Self {
        self.wants_seq = true;
        self
    }

    /// Asks for events.
    #[must_use]
    pub fn with_events(mut self) -> Self {
        self.wants_events = true;
        self
    }

    /// Declares these capabilities.
    #[must_use]
    pub fn with_capabilities(mut self, capabilities: Value) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// Sends this metadata with `initialize`.
    #[must_use]
    pub fn with_meta(mut self, meta: Value) -> Self {
        self.meta = meta;
        self
    }

    /// Connects to a server and initializes the connection.
    pub fn connect(self, server: &Server) -> Client {
        let ends = transport::connect(server, &self);
        self.over(ends)
    }

    /// Initializes a connection that is there.
    pub fn over(self, (writer, reader): (Writer, Reader)) -> Client {
        let mut client = Client {
            dialect: self.dialect,
            writer,
            reader,
            received: Vec::new(),
            folds: HashMap::new(),
            seqs: HashMap::new(),
            requests: BTreeMap::new(),
            next_id: 1,
            seen_requests: HashSet::new(),
            own_prompts: Vec::new(),
            wants_events: self.wants_events,
        };
        let is_v1 = self.dialect == Dialect::V1;
        let (info, capabilities) =
            if is_v1 { ("clientInfo", "clientCapabilities") } else { ("info", "capabilities") };
        let mut params = json!({ "protocolVersion": if is_v1 { 1 } else { 2 }, "_meta": self.meta });
        params[info] = json!({ "name": "test", "version": "1" });
        params[capabilities] = self.capabilities;
        // On standard streams it is an argument of the command.
        if self.dialect == Dialect::Draft && self.transport != TransportKind::Stdio {
            params["_meta"]["parlor/dialect"] = json!("draft");
        }
        if self.wants_seq {
            params["_meta"]["parlor/seq"] = json!(true);
        }
        if self.wants_events {
            params["_meta"]["parlor/events"] = json!(true);
        }
        let initialized = client.call("initialize", params).expect("the server initializes the connection");
        assert_eq!(initialized["protocolVersion"], if is_v1 { 1 } else { 2 });
        client
    }
}

impl Client {
    /// Sends a line as it is.
    pub fn send_line(&mut self, line: &str) {
        self.writer.write(line);
    }

    /// Sends a request; its id.
    pub fn send(&mut self, method: &str, params: Value) -> u64 {
        let mut line = json!({ "jsonrpc": "2.0", "id": self.next_id, "method": method });
        line["params"] = params;
        self.send_request(method, &line.to_string())
    }

    /// Sends a request with params that a [`Value`] cannot hold; its id.
    pub fn send_raw(&mut self, method: &str, params: &str) -> u64 {
        let id = self.next_id;
        self.send_request(
            method,
            &format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#),
        )
    }

    fn send_request(&mut self, method: &str, line: &str) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.requests.insert(id, method.to_owned());
        self.send_line(line);
        id
    }

    /// Sends a notification.
    pub fn notify(&mut self, method: &str, params: Value) {
        let mut line = json!({ "jsonrpc": "2.0", "method": method });
        line["params"] = params;
        self.send_line(&line.to_string());
    }

    /// Sends a request and waits for its response: the result or the error.
    pub fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.send(method, params);
        self.response(id)
    }

    /// Waits for the response to a request: the result or the error.
    pub fn response(&mut self, id: u64) -> Result<Value, Value> {
        let mut from = 0;
        let line = self.wait_for(&format!("the response to request {id}"), |client| {
            let found = client.received[from..].iter().find(|line| is_response(line, id)).cloned();
            from = client.received.len();
            found
        });
        match line.get("error") {
            Some(error) => Err(error.clone()),
            None => Ok(line["result"].clone()),
        }
    }

    /// Whether a request has its response.
    pub fn has_response(&self, id: u64) -> bool {
        self.received.iter().any(|line| is_response(line, id))
    }

    /// Creates a session in the root directory; its id.
    pub fn new_session(&mut self) -> String {
        self.new_session_in("/")
    }

    /// Creates a session in a directory; its id.
    pub fn new_session_in(&mut self, cwd: &str) -> String {
        let opened = self.call("session/new", json!({ "cwd": cwd, "mcpServers": [] })).unwrap();
        opened["sessionId"].as_str().unwrap().to_owned()
    }

    /// Attaches to a session with all of its history.
    pub fn load(&mut self, session: &str) -> Value {
        self.try_load(session).unwrap()
    }

    /// Attaches to a session with all of its history: the result or the error.
    pub fn try_load(&mut self, session: &str) -> Result<Value, Value> {
        self.try_load_in(session, "/")
    }

    /// Attaches to a session of this directory with all of its history.
    pub fn load_in(&mut self, session: &str, cwd: &str) -> Value {
        self.try_load_in(session, cwd).unwrap()
    }

    /// Attaches to a session of this directory with all of its history: the result or the error.
    pub fn try_load_in(&mut self, session: &str, cwd: &str) -> Result<Value, Value> {
        self.folds.remove(session);
        self.seqs.remove(session);
        self.own_prompts.clear();
        let mut params = json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] });
        if self.dialect == Dialect::V1 {
            return self.call("session/load", params);
        }
        params["replayFrom"] = json!({ "type": "start" });
        self.call("session/resume", params)
    }

    /// Attaches to a session without its history, or with what came after a cursor: the result or the error.
    pub fn resume(&mut self, session: &str, from: Option<Value>) -> Result<Value, Value> {
        let mut params = json!({ "sessionId": session, "cwd": "/", "mcpServers": [] });
        if let Some(from) = from {
            params["replayFrom"] = from;
        }
        self.call("session/resume", params)
    }

    /// Sends a prompt; the id of the request.
    pub fn prompt(&mut self, session: &str, text: &str) -> u64 {
        self.prompt_with(session, text, json!({}))
    }

    /// Sends a prompt with metadata; the id of the request.
    pub fn prompt_with(&mut self, session: &str, text: &str, meta: Value) -> u64 {
        if self.dialect == Dialect::V1 {
            self.own_prompts.push(text.to_owned());
        }
        let mut params = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] });
        if meta != json!({}) {
            params["_meta"] = meta;
        }
        self.send("session/prompt", params)
    }

    /// Sends a prompt and waits until its turn has ended: the stop reason.
    pub fn turn(&mut self, session: &str, text: &str) -> String {
        let id = self.prompt(session, text);
        self.end_of_turn(session, id)
    }

    /// Waits until the turn of a prompt has ended: the stop reason.
    pub fn end_of_turn(&mut self, session: &str, id: u64) -> String {
        let answer = self.response(id).unwrap();
        if self.dialect == Dialect::V1 {
            return answer["stopReason"].as_str().unwrap().to_owned();
        }
        let mark = self.received.iter().position(|line| is_response(line, id)).unwrap();
        self.wait_for_idle(session, mark)
    }

    /// How many messages it has received.
    pub fn mark(&self) -> usize {
        self.received.len()
    }

    /// Waits until a session is reported as idle after a mark: the stop reason, in v2.
    pub fn wait_for_idle(&mut self, session: &str, mark: usize) -> String {
        let reason = if self.dialect == Dialect::Draft { "stop_reason" } else { "stopReason" };
        let update = self.wait_for_update(session, mark, "the session is idle", |update| {
            update["state"] == "idle" || update["_meta"]["parlor/state"] == "idle"
        });
        update[reason].as_str().unwrap_or_default().to_owned()
    }

    /// Waits for an update after a mark.
    pub fn wait_for_update(
        &mut self,
        session: &str,
        mark: usize,
        what: &str,
        is_wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        self.wait_for(what, |client| client.updates(session, mark).find(|update| is_wanted(update)).cloned())
    }

    /// The updates of a session after a mark.
    pub fn updates<'a>(&'a self, session: &'a str, mark: usize) -> impl Iterator<Item = &'a Value> + 'a {
        let ours = self.received[mark..]
            .iter()
            .filter(move |line| line["method"] == "session/update" && line["params"]["sessionId"] == session);
        ours.map(|line| &line["params"]["update"])
    }

    /// Waits for the next peer request of this method.
    pub fn peer_request(&mut self, method: &str) -> Value {
        let question = self.wait_for(method, |client| {
            let is_new = |line: &&Value| {
                line["method"] == method
                    && line.get("id").is_some()
                    && !client.seen_requests.contains(&line["id"].to_string())
            };
            client.received.iter().find(is_new).cloned()
        });
        self.seen_requests.insert(question["id"].to_string());
        question
    }

    /// Waits until a peer request is cancelled.
    pub fn wait_for_cancel(&mut self, question: &Value) {
        let is_ours = |line: &&Value| {
            line["method"] == "$/cancel_request" && line["params"]["requestId"] == question["id"]
        };
        self.wait_for("the peer request is cancelled", |client| {
            client.received.iter().find(is_ours).map(drop)
        });
    }

    /// Responds to a peer request.
    pub fn respond(&mut self, to: &Value, result: &Value) {
        self.send_line(&json!({ "jsonrpc": "2.0", "id": to["id"], "result": result }).to_string());
    }

    /// Responds to a peer request with an error.
    pub fn respond_with_error(&mut self, to: &Value) {
        let error = json!({ "code": -32603, "message": "not me" });
        self.send_line(&json!({ "jsonrpc": "2.0", "id": to["id"], "error": error }).to_string());
    }

    /// Responds to a permission request with an option.
    pub fn choose(&mut self, question: &Value, option: &str) {
        self.respond(question, &json!({ "outcome": { "outcome": "selected", "optionId": option } }));
    }

    /// Cancels the turn of a session.
    pub fn cancel(&mut self, session: &str) {
        self.notify("session/cancel", json!({ "sessionId": session }));
    }

    /// Cancels a request of its own.
    pub fn cancel_request(&mut self, request: u64) {
        self.notify("$/cancel_request", json!({ "requestId": request }));
    }

    /// Waits until the queued prompts of a session are these.
    pub fn wait_for_queue(&mut self, session: &str, texts: &[&str]) -> Vec<Value> {
        self.wait_for(&format!("{texts:?} are queued"), |client| {
            let last =
                client.updates(session, 0).filter_map(|update| update["_meta"].get("parlor/queue")).last();
            let held = last.and_then(Value::as_array).cloned().unwrap_or_default();
            held.iter().map(|held| held["text"].as_str().unwrap()).eq(texts.iter().copied()).then_some(held)
        })
    }

    /// Receives messages until `look` finds something; `what` says what that is.
    #[track_caller]
    pub fn wait_for<T>(&mut self, what: &str, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.reader.recv_timeout(left) {
                Ok(line) => self.receive_all(&line),
                Err(error) => {
                    let last: Vec<_> =
                        self.received.iter().rev().take(12).rev().map(Value::to_string).collect();
                    panic!("{what}: {error}; the last messages:\n{}", last.join("\n"));
                }
            }
        }
    }

    /// Receives messages until the other side closes the connection.
    pub fn read_to_end(&mut self) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            match self.reader.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.receive(&line),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => panic!("the connection is not closed"),
            }
        }
    }

    /// The next line as it is: it is neither checked nor kept.
    pub fn next_line(&mut self) -> String {
        self.reader.recv_timeout(TIMEOUT).expect("a line comes")
    }

    /// Closes its end of the connection: the exit code of a process.
    pub fn close(&mut self) -> Option<i32> {
        self.writer.close()
    }

    /// Receives a line and what else has arrived.
    fn receive_all(&mut self, line: &str) {
        self.receive(line);
        while let Ok(line) = self.reader.try_recv() {
            self.receive(&line);
        }
    }

    fn receive(&mut self, line: &str) {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(value["jsonrpc"], "2.0", "{line}");
        let asked = if value.get("method").is_none() { value["id"].as_u64() } else { None };
        let method = asked.and_then(|id| self.requests.remove(&id));
        let is_event = value["params"]["update"]["sessionUpdate"] == "_parlor_event";
        assert!(!is_event || self.wants_events, "the client did not ask for events: {line}");
        if !is_event && method.as_ref().is_none_or(|method| !method.starts_with('_')) {
            let mut known = value.clone();
            remove_fields_of_other_dialects(&mut known);
            schema::check(self.dialect, &known, method.as_deref());
        }
        if value["method"] == "session/update" {
            let session = value["params"]["sessionId"].as_str().unwrap();
            if let Some(seq) = value["params"]["_meta"]["parlor/seq"].as_u64() {
                let before = self.seqs.insert(session.to_owned(), seq);
                assert!(before.is_none_or(|before| before <= seq), "{before:?} and then {line}");
            }
            let fold = self.folds.entry(session.to_owned());
            let fold = fold.or_insert_with(|| Fold::of_session(self.dialect, SessionId::from(session)));
            fold.line(line).unwrap_or_else(|problem| panic!("{problem}: {line}"));
        }
        self.received.push(value);
    }

    /// The seqs that it received after a mark.
    pub fn seqs(&self, session: &str, mark: usize) -> Vec<u64> {
        let ours = self.received[mark..].iter().filter(|line| line["params"]["sessionId"] == session);
        ours.filter_map(|line| line["params"]["_meta"]["parlor/seq"].as_u64()).collect()
    }
}

fn is_response(line: &Value, id: u64) -> bool {
    line["id"] == id && line.get("method").is_none()
}

/// Removes what an agent sent in its own dialect and what stays beside the fields of the client's: a v1 diff, the id of a
/// plan.
fn remove_fields_of_other_dialects(value: &mut Value) {
    match value {
        Value::Object(members) => {
            if members.contains_key("changes") && members.get("type").is_some_and(|kind| kind == "diff") {
                ["path", "oldText", "newText"].iter().for_each(|name| drop(members.remove(*name)));
            }
            // Real agents send it; the schema does not have it.
            if members.get("models").is_some_and(|models| models.get("availableModels").is_some()) {
                members.remove("models");
            }
            if members.get("sessionUpdate").is_some_and(|kind| kind == "plan") {
                members.remove("planId");
            }
            members.values_mut().for_each(remove_fields_of_other_dialects);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_fields_of_other_dialects),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The code of a response that must be an error.
pub fn error_code(response: &Result<Value, Value>) -> i64 {
    response.as_ref().expect_err("it is an error")["code"].as_i64().unwrap()
}
