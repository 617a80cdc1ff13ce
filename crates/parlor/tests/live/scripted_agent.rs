//! An agent whose lines the test writes and reads, through a process that copies them.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use parlor_testkit::server::Server;
use parlor_testkit::wait::TIMEOUT;
use serde_json::{Value, json};

/// The configuration of scripted agents: one of version 1, one of version 2, one of the draft.
pub(crate) const SCRIPTED_AGENTS: &str = r#"
[agents.scripted-v1]
command = ["sh", "-c", "cat TEST_DIR/scripted-v1.out & cat > TEST_DIR/scripted-v1.in"]
version = 1
[agents.scripted-v2]
command = ["sh", "-c", "cat TEST_DIR/scripted-v2.out & cat > TEST_DIR/scripted-v2.in"]
version = 2
[agents.scripted-draft]
command = ["sh", "-c", "cat TEST_DIR/scripted-draft.out & cat > TEST_DIR/scripted-draft.in"]
version = 2
dialect = "draft"
"#;

/// A scripted agent. It answers `initialize`, `session/new` and `session/list` itself; the test does the rest.
pub(crate) struct ScriptedAgent {
    writer: Arc<Mutex<Option<File>>>,
    requests: Receiver<Value>,
    answers: Receiver<Value>,
    is_draft: bool,
    is_v1: bool,
}

impl ScriptedAgent {
    /// Prepares one of the [`SCRIPTED_AGENTS`] before the server starts it.
    pub(crate) fn of(server: &Server, name: &str) -> Self {
        let path = |end: &str| server.dir().path().join(format!("{name}.{end}"));
        for end in ["out", "in"] {
            assert!(Command::new("mkfifo").arg(path(end)).status().unwrap().success());
        }
        let (writer, (send, requests)) = (Arc::new(Mutex::new(None)), channel());
        let (send_answers, answers) = channel();
        let is_v1 = name == "scripted-v1";
        let (output, input, shared) = (path("out"), path("in"), Arc::clone(&writer));
        thread::spawn(move || {
            // Once for each time that the server starts the agent, until the test ends.
            while serve(&output, &input, &shared, (&send, &send_answers), is_v1) {}
        });
        Self { writer, requests, answers, is_draft: name == "scripted-draft", is_v1 }
    }

    /// The next request or notification that the test has to handle.
    pub(crate) fn next(&self) -> Value {
        self.requests.recv_timeout(TIMEOUT).expect("the server sends a request or a notification")
    }

    /// Skips requests and notifications until this method.
    pub(crate) fn wait_for(&self, method: &str) -> Value {
        loop {
            let next = self.next();
            if next["method"] == method {
                return next;
            }
        }
    }

    /// Sends a request in the session of another request.
    pub(crate) fn send_request(&self, request: &Value, id: u64, method: &str, mut params: Value) {
        params["sessionId"] = request["params"]["sessionId"].clone();
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
    }

    /// The next response, which has to be for the request with this id.
    pub(crate) fn response_to(&self, id: u64) -> Value {
        let answer = self.next_response();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    pub(crate) fn next_response(&self) -> Value {
        self.answers.recv_timeout(TIMEOUT).expect("the server sends a response")
    }

    /// The next prompt.
    pub(crate) fn prompt(&self) -> Value {
        let prompt = self.next();
        assert_eq!(prompt["method"], "session/prompt", "{prompt}");
        prompt
    }

    pub(crate) fn send(&self, line: &Value) {
        send(&self.writer, line);
    }

    pub(crate) fn respond(&self, request: &Value, result: &Value) {
        self.send(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }));
    }

    /// Sends an update in the session of a request.
    pub(crate) fn update(&self, request: &Value, update: &Value) {
        let params = json!({ "sessionId": request["params"]["sessionId"], "update": update });
        self.send(&json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }));
    }

    /// Sends a chunk of a message, whose kind is `user`, `agent` or `thought`.
    pub(crate) fn chunk(&self, request: &Value, kind: &str, id: Option<&str>, text: &str) {
        let kind = if kind == "thought" {
            "agent_thought_chunk".to_owned()
        } else {
            format!("{kind}_message_chunk")
        };
        let mut update = json!({ "sessionUpdate": kind, "content": { "type": "text", "text": text } });
        if let Some(id) = id {
            update["messageId"] = json!(id);
        }
        self.update(request, &update);
    }

    /// Sends a whole message of the user.
    pub(crate) fn user_message(&self, request: &Value, id: &str, content: &Value) {
        self.update(
            request,
            &json!({ "sessionUpdate": "user_message", "messageId": id, "content": content }),
        );
    }

    /// Reports a state, with the reason for which a turn ended.
    pub(crate) fn state(&self, request: &Value, state: &str, reason: Option<&str>) {
        let (kind, name) =
            if self.is_draft { ("state_change", "stop_reason") } else { ("state_update", "stopReason") };
        let mut update = json!({ "sessionUpdate": kind, "state": state });
        if let Some(reason) = reason {
            update[name] = json!(reason);
        }
        self.update(request, &update);
    }

    /// Accepts a prompt without an update of its message.
    pub(crate) fn accept(&self, prompt: &Value, id: &str) {
        self.respond(prompt, &if self.is_draft { json!({}) } else { json!({ "messageId": id }) });
    }

    /// A whole turn, in which the agent sends one word.
    pub(crate) fn turn(&self, prompt: &Value, id: &str, reason: &str) {
        if self.is_v1 {
            self.chunk(prompt, "agent", None, "word");
            self.respond(prompt, &json!({ "stopReason": reason }));
            return;
        }
        self.accept(prompt, id);
        self.state(prompt, "running", None);
        self.chunk(prompt, "agent", Some(&format!("answer-to-{id}")), "word");
        self.state(prompt, "idle", Some(reason));
    }
}

fn send(writer: &Mutex<Option<File>>, line: &Value) {
    let mut writer = writer.lock().unwrap();
    let writer = writer.as_mut().expect("the agent is running");
    // This fails if the server has stopped the agent.
    let _ = writer.write_all(format!("{line}\n").as_bytes());
}

/// Serves one process of the agent; false if the test has ended.
fn serve(
    output_path: &Path,
    input_path: &PathBuf,
    writer: &Mutex<Option<File>>,
    (requests, answers): (&Sender<Value>, &Sender<Value>),
    is_v1: bool,
) -> bool {
    let Ok(file) = OpenOptions::new().write(true).open(output_path) else { return false };
    *writer.lock().unwrap() = Some(file);
    let Ok(file) = File::open(input_path) else { return false };
    let mut sessions = 0;
    for line in BufReader::new(file).lines().map_while(Result::ok) {
        let line: Value = serde_json::from_str(&line).unwrap();
        let result = match line["method"].as_str() {
            Some("initialize") if is_v1 => {
                json!({ "protocolVersion": 1, "agentCapabilities": { "promptCapabilities": { "image": true } } })
            }
            Some("initialize") => json!({
                "protocolVersion": 2,
                "info": { "name": "scripted", "version": "1" },
                "capabilities": { "session": { "prompt": { "image": {} } } },
            }),
            Some("session/new") => {
                sessions += 1;
                json!({ "sessionId": format!("scripted-{sessions}") })
            }
            Some("session/list") => json!({ "sessions": [] }),
            Some(_) => {
                if requests.send(line).is_err() {
                    return false;
                }
                continue;
            }
            None => {
                // The test may have ended.
                let _ = answers.send(line);
                continue;
            }
        };
        send(writer, &json!({ "jsonrpc": "2.0", "id": line["id"], "result": result }));
    }
    true
}
