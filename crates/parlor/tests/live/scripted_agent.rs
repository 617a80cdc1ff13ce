//! An agent whose lines the test itself writes and reads. The process that parlor starts passes them on.

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

/// The configuration of agents that are puppets: one of version 1, one of version 2, one of the draft.
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

/// The strings of a puppet. It answers by itself what begins a process and a session; the test does the rest.
pub(crate) struct ScriptedAgent {
    writer: Arc<Mutex<Option<File>>>,
    requests: Receiver<Value>,
    answers: Receiver<Value>,
    is_draft: bool,
    is_v1: bool,
}

impl ScriptedAgent {
    /// Holds the strings of one of the [`SCRIPTED_AGENTS`] before parlor starts it.
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
            // Each time that parlor starts the agent, and as long as there is a test.
            while serve(&output, &input, &shared, (&send, &send_answers), is_v1) {}
        });
        Self { writer, requests, answers, is_draft: name == "scripted-draft", is_v1 }
    }

    /// The next request or notification that is left to the test.
    pub(crate) fn next(&self) -> Value {
        self.requests.recv_timeout(TIMEOUT).expect("parlor asks the agent something")
    }

    /// Skips what is left to the test until this is asked or said.
    pub(crate) fn wait_for(&self, method: &str) -> Value {
        loop {
            let next = self.next();
            if next["method"] == method {
                return next;
            }
        }
    }

    /// Asks something, in the session of a request.
    pub(crate) fn send_request(&self, request: &Value, id: u64, method: &str, mut params: Value) {
        params["sessionId"] = request["params"]["sessionId"].clone();
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
    }

    /// What it is answered next, to the question with this id.
    pub(crate) fn response_to(&self, id: u64) -> Value {
        let answer = self.next_response();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    pub(crate) fn next_response(&self) -> Value {
        self.answers.recv_timeout(TIMEOUT).expect("parlor answers the agent")
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

    /// Says an update in the session of a request.
    pub(crate) fn update(&self, request: &Value, update: &Value) {
        let params = json!({ "sessionId": request["params"]["sessionId"], "update": update });
        self.send(&json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }));
    }

    /// A chunk of a message, whose kind is `user`, `agent` or `thought`.
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

    /// A whole message of a user.
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

    /// Accepts a prompt as a message, without saying what it says.
    pub(crate) fn accept(&self, prompt: &Value, id: &str) {
        self.respond(prompt, &if self.is_draft { json!({}) } else { json!({ "messageId": id }) });
    }

    /// A whole turn, in which the agent says a word and nothing else of the prompt.
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
    let writer = writer.as_mut().expect("the agent runs");
    // Who ended the agent does not hear it any more.
    let _ = writer.write_all(format!("{line}\n").as_bytes());
}

/// One process of the agent; whether anybody is interested in another one.
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
                // No test may be interested.
                let _ = answers.send(line);
                continue;
            }
        };
        send(writer, &json!({ "jsonrpc": "2.0", "id": line["id"], "result": result }));
    }
    true
}
