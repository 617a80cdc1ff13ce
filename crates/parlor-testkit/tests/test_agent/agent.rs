//! A client for the test agent that checks each line that it receives.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};

use parlor_dialect::Dialect;
use parlor_testkit::wait::TIMEOUT;
use parlor_testkit::{programs, schema};
use serde_json::{Value, json};

/// A running agent. It is killed when the test is done with it.
pub(crate) struct Agent {
    dialect: Dialect,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: Option<JoinHandle<String>>,
    /// The methods of the requests that have no answer yet.
    open: BTreeMap<u64, String>,
    next: u64,
    /// The request of the turn that is waited for.
    prompt: u64,
    /// Updates that were skipped while looking for something else in the turn.
    skipped: Vec<Value>,
}

/// What was received during a turn.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    pub(crate) updates: Vec<Value>,
    /// The sessions that the updates are about.
    pub(crate) sessions: Vec<String>,
    pub(crate) states: Vec<String>,
    pub(crate) stop: String,
    pub(crate) usage: Value,
    pub(crate) error: Value,
    /// Lines that are not messages.
    pub(crate) garbage: Vec<Value>,
}

impl Turn {
    pub(crate) fn of(&self, kind: &str) -> Vec<&Value> {
        self.updates.iter().filter(|update| update["sessionUpdate"] == kind).collect()
    }
}

impl Agent {
    pub(crate) fn start(dialect: Dialect, options: &[&str]) -> Self {
        let mut child = Command::new(programs::test_agent())
            .args(options)
            .env("AGENT_TEST", "yes")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = mpsc::sync_channel(1000);
        let stdout = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut stderr = child.stderr.take().unwrap();
        let stderr = thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).unwrap();
            text
        });
        let input = child.stdin.take();
        Self {
            dialect,
            child,
            input,
            lines,
            stderr: Some(stderr),
            open: BTreeMap::new(),
            next: 0,
            prompt: 0,
            skipped: Vec::new(),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Says hello, with what the client can do.
    pub(crate) fn initialize(&mut self, capabilities: Value) -> Value {
        let is_v1 = self.dialect == Dialect::V1;
        let (info, abilities) =
            if is_v1 { ("clientInfo", "clientCapabilities") } else { ("info", "capabilities") };
        let mut params = json!({ "protocolVersion": if is_v1 { 1 } else { 2 } });
        params[info] = json!({ "name": "test", "version": "1" });
        params[abilities] = capabilities;
        if self.dialect == Dialect::Draft {
            params["_meta"] = json!({ "parlor/dialect": "draft" });
        }
        self.call("initialize", params).unwrap()
    }

    pub(crate) fn new_session(&mut self) -> String {
        let opened = self.call("session/new", json!({ "cwd": "/w", "mcpServers": [] })).unwrap();
        assert_eq!(self.update()["sessionUpdate"], "available_commands_update");
        opened["sessionId"].as_str().unwrap().to_owned()
    }

    pub(crate) fn write(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    pub(crate) fn send(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        self.open.insert(id, method.to_owned());
        let mut line = json!({ "jsonrpc": "2.0", "id": id, "method": method });
        line["params"] = params;
        self.write(&line.to_string());
        id
    }

    pub(crate) fn notify(&mut self, method: &str, params: Value) {
        let mut line = json!({ "jsonrpc": "2.0", "method": method });
        line["params"] = params;
        self.write(&line.to_string());
    }

    /// Asks something whose answer is the next one.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.send(method, params);
        let answer = self.until(|line| line["id"] == id && line.get("method").is_none()).pop().unwrap();
        match answer.get("error") {
            Some(error) => Err(error.clone()),
            None => Ok(answer["result"].clone()),
        }
    }

    pub(crate) fn respond(&mut self, to: &Value, result: &Value) {
        self.write(&json!({ "jsonrpc": "2.0", "id": to["id"], "result": result }).to_string());
    }

    pub(crate) fn refuse(&mut self, to: &Value, code: i64, message: &str) {
        let error = json!({ "code": code, "message": message });
        self.write(&json!({ "jsonrpc": "2.0", "id": to["id"], "error": error }).to_string());
    }

    pub(crate) fn prompt(&mut self, session: &str, text: &str) -> u64 {
        self.prompt_of(session, &json!([{ "type": "text", "text": text }]))
    }

    fn prompt_of(&mut self, session: &str, blocks: &Value) -> u64 {
        let id = self.send("session/prompt", json!({ "sessionId": session, "prompt": blocks }));
        self.prompt = id;
        id
    }

    pub(crate) fn cancel(&mut self, session: &str) {
        self.notify("session/cancel", json!({ "sessionId": session }));
    }

    /// The code of the error that a prompt gets.
    pub(crate) fn refused_prompt(&mut self, session: &str) -> i64 {
        let params = json!({ "sessionId": session, "prompt": [] });
        self.call("session/prompt", params).unwrap_err()["code"].as_i64().unwrap()
    }

    /// One whole turn.
    pub(crate) fn turn(&mut self, session: &str, text: &str) -> Turn {
        self.turn_of(session, &json!([{ "type": "text", "text": text }]))
    }

    pub(crate) fn turn_of(&mut self, session: &str, blocks: &Value) -> Turn {
        self.skipped.clear();
        self.prompt_of(session, blocks);
        self.end_of_turn()
    }

    /// The rest of the turn, with what was skipped while looking for a question.
    pub(crate) fn end_of_turn(&mut self) -> Turn {
        let mut turn = Turn::default();
        let mut lines = std::mem::take(&mut self.skipped);
        lines.reverse();
        loop {
            let line = lines.pop().unwrap_or_else(|| self.receive());
            if line.get("garbage").is_some() {
                turn.garbage.push(line);
            } else if line["method"] == "session/update" {
                let update = line["params"]["update"].clone();
                turn.sessions.push(line["params"]["sessionId"].as_str().unwrap().to_owned());
                turn.states.extend(update["state"].as_str().map(str::to_owned));
                if update["state"] == "idle" {
                    let reason = if self.dialect == Dialect::Draft { "stop_reason" } else { "stopReason" };
                    update[reason].as_str().unwrap().clone_into(&mut turn.stop);
                    turn.usage = update["usage"].clone();
                    turn.error = update["error"].clone();
                    return turn;
                }
                turn.updates.push(update);
            } else if line["id"] == self.prompt && line.get("method").is_none() && self.dialect == Dialect::V1
            {
                match line.get("error") {
                    Some(error) => {
                        "error".clone_into(&mut turn.stop);
                        turn.error = error.clone();
                    }
                    None => line["result"]["stopReason"].as_str().unwrap().clone_into(&mut turn.stop),
                }
                turn.usage = line["result"]["usage"].clone();
                return turn;
            }
        }
    }

    /// The next question of the agent, which must be this one.
    pub(crate) fn peer_request(&mut self, method: &str) -> Value {
        let mut lines = self.until(|line| line.get("method").is_some() && line.get("id").is_some());
        let peer_request = lines.pop().unwrap();
        assert_eq!(peer_request["method"], method);
        self.skipped.extend(lines);
        peer_request
    }

    /// The next update.
    pub(crate) fn update(&mut self) -> Value {
        let lines = self.until(|line| line["method"] == "session/update");
        lines.last().unwrap()["params"]["update"].clone()
    }

    /// All lines up to one that is looked for.
    pub(crate) fn until(&mut self, is_wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut lines = Vec::new();
        loop {
            lines.push(self.receive());
            if is_wanted(lines.last().unwrap()) {
                return lines;
            }
        }
    }

    /// The next line, checked.
    pub(crate) fn receive(&mut self) -> Value {
        let line = self.lines.recv_timeout(TIMEOUT).expect("the agent sends a line");
        self.read(&line)
    }

    fn read(&mut self, line: &str) -> Value {
        let value: Value = match serde_json::from_str(line) {
            Ok(value) => value,
            Err(_) => return json!({ "garbage": line }),
        };
        if value["method"] == 7 {
            return json!({ "garbage": line });
        }
        assert_eq!(value["jsonrpc"], "2.0");
        let asked = if value.get("method").is_none() { value["id"].as_u64() } else { None };
        let method = asked.and_then(|id| self.open.remove(&id));
        schema::check(self.dialect, &value, method.as_deref());
        value
    }

    pub(crate) fn end_input(&mut self) {
        self.input = None;
    }

    /// What the agent says until its output ends.
    pub(crate) fn rest(&mut self) -> Vec<Value> {
        let mut lines = Vec::new();
        loop {
            match self.lines.recv_timeout(TIMEOUT) {
                Ok(line) => lines.push(self.read(&line)),
                Err(mpsc::RecvTimeoutError::Disconnected) => return lines,
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("the output does not end"),
            }
        }
    }

    /// Ends the input and waits: the exit code and what was written to stderr.
    pub(crate) fn close(&mut self) -> (Option<i32>, String) {
        self.end_input();
        self.rest();
        (self.child.wait().unwrap().code(), self.stderr.take().unwrap().join().unwrap())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
