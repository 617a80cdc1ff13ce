//! A client that folds and checks whatever it hears. It reads and writes its lines itself, and not with the client library:
//! it is the witness of what is on the wire.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Instant;

use parlor_dialect::{Dialect, Fold};
use parlor_session::SessionId;
use parlor_testkit::schema;
use serde_json::{Value, json};

use crate::doors::{self, Door, Ears, Mouth};
use crate::server::{PATIENCE, Server};

/// A client that is about to come.
pub(crate) struct Guest {
    pub(crate) door: Door,
    pub(crate) dialect: Dialect,
    pub(crate) agent: String,
    pub(crate) observes: bool,
    counts: bool,
    events: bool,
    capabilities: Value,
}

/// A client that is connected.
pub(crate) struct Client {
    pub(crate) dialect: Dialect,
    mouth: Mouth,
    pub(crate) ears: Ears,
    /// All messages that were heard, in order.
    pub(crate) heard: Vec<Value>,
    /// What the updates of each session mean.
    pub(crate) folds: HashMap<String, Fold>,
    /// The last number of a change that was heard of each session.
    seqs: HashMap<String, u64>,
    /// The methods of the requests that have no answer yet.
    open: BTreeMap<u64, String>,
    next: u64,
    /// The questions that were looked at.
    seen: HashSet<String>,
    /// What it said itself and, in v1, is not told again.
    pub(crate) own: Vec<String>,
    /// Whether it asked for events.
    events: bool,
}

impl Guest {
    pub(crate) fn new(door: Door, dialect: Dialect, agent: &str) -> Self {
        let agent = agent.to_owned();
        Self { door, dialect, agent, observes: false, counts: false, events: false, capabilities: json!({}) }
    }

    /// It only has the token for watching.
    pub(crate) fn observing(mut self) -> Self {
        self.observes = true;
        self
    }

    /// It wants the number of each change.
    pub(crate) fn counting(mut self) -> Self {
        self.counts = true;
        self
    }

    /// It wants to be sent events.
    #[allow(dead_code, reason = "not every suite looks at events")]
    pub(crate) fn with_events(mut self) -> Self {
        self.events = true;
        self
    }

    pub(crate) fn able(mut self, capabilities: Value) -> Self {
        self.capabilities = capabilities;
        self
    }

    pub(crate) fn join(self, server: &Server) -> Client {
        let ends = doors::open(server, &self);
        self.over(ends)
    }

    /// Says hello over a connection that is there.
    pub(crate) fn over(self, (mouth, ears): (Mouth, Ears)) -> Client {
        let mut client = Client {
            dialect: self.dialect,
            mouth,
            ears,
            heard: Vec::new(),
            folds: HashMap::new(),
            seqs: HashMap::new(),
            open: BTreeMap::new(),
            next: 1,
            seen: HashSet::new(),
            own: Vec::new(),
            events: self.events,
        };
        let is_v1 = self.dialect == Dialect::V1;
        let (info, abilities) =
            if is_v1 { ("clientInfo", "clientCapabilities") } else { ("info", "capabilities") };
        let mut params = json!({ "protocolVersion": if is_v1 { 1 } else { 2 }, "_meta": {} });
        params[info] = json!({ "name": "test", "version": "1" });
        params[abilities] = self.capabilities;
        // At the door of editors it is the command that says so.
        if self.dialect == Dialect::Draft && self.door != Door::Stdio {
            params["_meta"]["parlor/dialect"] = json!("draft");
        }
        if self.counts {
            params["_meta"]["parlor/seq"] = json!(true);
        }
        if self.events {
            params["_meta"]["parlor/events"] = json!(true);
        }
        let answer = client.call("initialize", params).unwrap();
        assert_eq!(answer["protocolVersion"], if is_v1 { 1 } else { 2 });
        client
    }
}

impl Client {
    pub(crate) fn say(&mut self, line: &str) {
        self.mouth.say(line);
    }

    pub(crate) fn send(&mut self, method: &str, params: Value) -> u64 {
        let mut line = json!({ "jsonrpc": "2.0", "id": self.next, "method": method });
        line["params"] = params;
        self.send_line(method, &line.to_string())
    }

    /// Asks with params that a [`Value`] cannot hold.
    #[allow(dead_code, reason = "who searches needs it")]
    pub(crate) fn send_raw(&mut self, method: &str, params: &str) -> u64 {
        let id = self.next;
        self.send_line(
            method,
            &format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#),
        )
    }

    fn send_line(&mut self, method: &str, line: &str) -> u64 {
        let id = self.next;
        self.next += 1;
        self.open.insert(id, method.to_owned());
        self.say(line);
        id
    }

    pub(crate) fn notify(&mut self, method: &str, params: Value) {
        let mut line = json!({ "jsonrpc": "2.0", "method": method });
        line["params"] = params;
        self.say(&line.to_string());
    }

    pub(crate) fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.send(method, params);
        self.answer(id)
    }

    /// Waits for the answer to a request.
    pub(crate) fn answer(&mut self, id: u64) -> Result<Value, Value> {
        let mut from = 0;
        let line = self.until(&format!("the answer to request {id}"), |client| {
            let found = client.heard[from..].iter().find(|line| is_answer(line, id)).cloned();
            from = client.heard.len();
            found
        });
        match line.get("error") {
            Some(error) => Err(error.clone()),
            None => Ok(line["result"].clone()),
        }
    }

    pub(crate) fn is_answered(&self, id: u64) -> bool {
        self.heard.iter().any(|line| is_answer(line, id))
    }

    pub(crate) fn new_session(&mut self) -> String {
        self.new_session_in("/")
    }

    pub(crate) fn new_session_in(&mut self, cwd: &str) -> String {
        let opened = self.call("session/new", json!({ "cwd": cwd, "mcpServers": [] })).unwrap();
        opened["sessionId"].as_str().unwrap().to_owned()
    }

    /// Joins a session and is told all of it.
    pub(crate) fn load(&mut self, session: &str) -> Value {
        self.try_load(session).unwrap()
    }

    pub(crate) fn try_load(&mut self, session: &str) -> Result<Value, Value> {
        self.folds.remove(session);
        self.seqs.remove(session);
        self.own.clear();
        let mut params = json!({ "sessionId": session, "cwd": "/", "mcpServers": [] });
        if self.dialect == Dialect::V1 {
            return self.call("session/load", params);
        }
        params["replayFrom"] = json!({ "type": "start" });
        self.call("session/resume", params)
    }

    /// Joins a session without being told what was, or with what came after a cursor.
    pub(crate) fn resume(&mut self, session: &str, from: Option<Value>) -> Result<Value, Value> {
        let mut params = json!({ "sessionId": session, "cwd": "/", "mcpServers": [] });
        if let Some(from) = from {
            params["replayFrom"] = from;
        }
        self.call("session/resume", params)
    }

    pub(crate) fn prompt(&mut self, session: &str, text: &str) -> u64 {
        self.prompt_with(session, text, json!({}))
    }

    pub(crate) fn prompt_with(&mut self, session: &str, text: &str, meta: Value) -> u64 {
        if self.dialect == Dialect::V1 {
            self.own.push(text.to_owned());
        }
        let mut params = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] });
        if meta != json!({}) {
            params["_meta"] = meta;
        }
        self.send("session/prompt", params)
    }

    /// One whole turn: why it ended.
    pub(crate) fn turn(&mut self, session: &str, text: &str) -> String {
        let id = self.prompt(session, text);
        self.end_of(session, id)
    }

    /// The end of the turn that a prompt began.
    pub(crate) fn end_of(&mut self, session: &str, id: u64) -> String {
        let answer = self.answer(id).unwrap();
        if self.dialect == Dialect::V1 {
            return answer["stopReason"].as_str().unwrap().to_owned();
        }
        let mark = self.heard.iter().position(|line| is_answer(line, id)).unwrap();
        self.idle(session, mark)
    }

    /// What was heard so far.
    pub(crate) fn mark(&self) -> usize {
        self.heard.len()
    }

    /// Waits until the session is said to rest after a mark: why it does, in v2.
    pub(crate) fn idle(&mut self, session: &str, mark: usize) -> String {
        let reason = if self.dialect == Dialect::Draft { "stop_reason" } else { "stopReason" };
        let update = self.update(session, mark, "the session rests", |update| {
            update["state"] == "idle" || update["_meta"]["parlor/state"] == "idle"
        });
        update[reason].as_str().unwrap_or_default().to_owned()
    }

    /// Waits for an update after a mark.
    pub(crate) fn update(
        &mut self,
        session: &str,
        mark: usize,
        what: &str,
        is_wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        self.until(what, |client| client.updates(session, mark).find(|update| is_wanted(update)).cloned())
    }

    /// The updates of a session after a mark.
    pub(crate) fn updates<'a>(
        &'a self,
        session: &'a str,
        mark: usize,
    ) -> impl Iterator<Item = &'a Value> + 'a {
        let ours = self.heard[mark..]
            .iter()
            .filter(move |line| line["method"] == "session/update" && line["params"]["sessionId"] == session);
        ours.map(|line| &line["params"]["update"])
    }

    /// Waits for the next question of this method.
    pub(crate) fn question(&mut self, method: &str) -> Value {
        let question = self.until(method, |client| {
            let is_new = |line: &&Value| {
                line["method"] == method
                    && line.get("id").is_some()
                    && !client.seen.contains(&line["id"].to_string())
            };
            client.heard.iter().find(is_new).cloned()
        });
        self.seen.insert(question["id"].to_string());
        question
    }

    /// Waits until a question is taken back.
    pub(crate) fn taken_back(&mut self, question: &Value) {
        let is_ours = |line: &&Value| {
            line["method"] == "$/cancel_request" && line["params"]["requestId"] == question["id"]
        };
        self.until("the question is taken back", |client| client.heard.iter().find(is_ours).map(drop));
    }

    pub(crate) fn respond(&mut self, to: &Value, result: &Value) {
        self.say(&json!({ "jsonrpc": "2.0", "id": to["id"], "result": result }).to_string());
    }

    pub(crate) fn refuse(&mut self, to: &Value) {
        let error = json!({ "code": -32603, "message": "not me" });
        self.say(&json!({ "jsonrpc": "2.0", "id": to["id"], "error": error }).to_string());
    }

    /// Answers a question for permission.
    pub(crate) fn choose(&mut self, question: &Value, option: &str) {
        self.respond(question, &json!({ "outcome": { "outcome": "selected", "optionId": option } }));
    }

    pub(crate) fn cancel(&mut self, session: &str) {
        self.notify("session/cancel", json!({ "sessionId": session }));
    }

    pub(crate) fn take_back(&mut self, request: u64) {
        self.notify("$/cancel_request", json!({ "requestId": request }));
    }

    /// The texts of the prompts that wait, once they are these.
    pub(crate) fn holds(&mut self, session: &str, texts: &[&str]) -> Vec<Value> {
        self.until(&format!("{texts:?} are held"), |client| {
            let last =
                client.updates(session, 0).filter_map(|update| update["_meta"].get("parlor/queue")).last();
            let held = last.and_then(Value::as_array).cloned().unwrap_or_default();
            held.iter().map(|held| held["text"].as_str().unwrap()).eq(texts.iter().copied()).then_some(held)
        })
    }

    /// Listens until something is so.
    pub(crate) fn until<T>(&mut self, what: &str, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.ears.recv_timeout(left) {
                Ok(line) => self.hear_all(&line),
                Err(error) => {
                    let last: Vec<_> = self.heard.iter().rev().take(12).rev().map(Value::to_string).collect();
                    panic!("{what}: {error}; the last that was heard:\n{}", last.join("\n"));
                }
            }
        }
    }

    /// Listens until the other end says no more.
    pub(crate) fn listen_to_the_end(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.ears.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.hear(&line),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => panic!("the connection does not end"),
            }
        }
    }

    /// Says no more; the exit code of a command.
    pub(crate) fn shut(&mut self) -> Option<i32> {
        self.mouth.shut()
    }

    /// Hears a line and what else is there already.
    pub(crate) fn hear_all(&mut self, line: &str) {
        self.hear(line);
        while let Ok(line) = self.ears.try_recv() {
            self.hear(&line);
        }
    }

    fn hear(&mut self, line: &str) {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(value["jsonrpc"], "2.0", "{line}");
        let asked = if value.get("method").is_none() { value["id"].as_u64() } else { None };
        let method = asked.and_then(|id| self.open.remove(&id));
        let is_event = value["params"]["update"]["sessionUpdate"] == "_parlor_event";
        assert!(!is_event || self.events, "nobody asked for it: {line}");
        if !is_event && method.as_ref().is_none_or(|method| !method.starts_with('_')) {
            let mut known = value.clone();
            forget_survivors(&mut known);
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
        self.heard.push(value);
    }

    /// The numbers of the changes that were told after a mark.
    pub(crate) fn seqs(&self, session: &str, mark: usize) -> Vec<u64> {
        let ours = self.heard[mark..].iter().filter(|line| line["params"]["sessionId"] == session);
        ours.filter_map(|line| line["params"]["_meta"]["parlor/seq"].as_u64()).collect()
    }
}

fn is_answer(line: &Value, id: u64) -> bool {
    line["id"] == id && line.get("method").is_none()
}

/// What an agent said in its own dialect survives beside what the client's dialect knows: a v1 diff, the id of a plan.
fn forget_survivors(value: &mut Value) {
    match value {
        Value::Object(members) => {
            if members.contains_key("changes") && members.get("type").is_some_and(|kind| kind == "diff") {
                ["path", "oldText", "newText"].iter().for_each(|name| drop(members.remove(*name)));
            }
            // Real agents have it still, and the schema has not.
            if members.get("models").is_some_and(|models| models.get("availableModels").is_some()) {
                members.remove("models");
            }
            if members.get("sessionUpdate").is_some_and(|kind| kind == "plan") {
                members.remove("planId");
            }
            members.values_mut().for_each(forget_survivors);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_survivors),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A member of the answer to a request that must fail.
pub(crate) fn code(refused: &Result<Value, Value>) -> i64 {
    refused.as_ref().expect_err("it is refused")["code"].as_i64().unwrap()
}
