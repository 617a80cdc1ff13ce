//! A v2 client over the Unix socket that keeps all it is shown.

use std::borrow::Cow;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::server::PATIENCE;

/// A client. It reads only when it is told to.
pub(crate) struct Client {
    write: UnixStream,
    read: BufReader<UnixStream>,
    line: String,
    next: u64,
    /// What it was shown of its session. A client here has one session at a time.
    pub(crate) shown: Shown,
    /// Answers that came while it waited for others.
    answers: Vec<(u64, Result<Value, Value>)>,
}

/// What a client was shown of a session.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Shown {
    pub(crate) messages: Vec<Message>,
    /// The last state, as it was said.
    pub(crate) state: Value,
    /// How many updates there were.
    pub(crate) updates: usize,
    /// How many bytes of text came in all of them.
    pub(crate) text_bytes: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) id: String,
    pub(crate) role: String,
    pub(crate) text: String,
}

/// A line, as far as it has to be read. Most lines are chunks, so these are read without making values of them.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    params: Option<Params<'a>>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow)]
    update: Option<Update<'a>>,
}

#[derive(Deserialize)]
struct Update<'a> {
    #[serde(borrow, rename = "sessionUpdate")]
    kind: Cow<'a, str>,
    #[serde(borrow, rename = "messageId")]
    message_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    content: Option<Content<'a>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content<'a> {
    One(#[serde(borrow)] Block<'a>),
    Many(#[serde(borrow)] Vec<Block<'a>>),
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
}

impl Client {
    pub(crate) fn connect(socket: &Path, agent: Option<&str>) -> Self {
        let mut client = Self::greet(socket, agent);
        client.answer(1).unwrap();
        client
    }

    /// Says who it is, and does not wait for the answer.
    pub(crate) fn greet(socket: &Path, agent: Option<&str>) -> Self {
        let write = UnixStream::connect(socket).unwrap();
        write.set_read_timeout(Some(PATIENCE)).unwrap();
        let read = BufReader::with_capacity(256 << 10, write.try_clone().unwrap());
        let mut client =
            Self { write, read, line: String::new(), next: 0, shown: Shown::default(), answers: Vec::new() };
        if let Some(agent) = agent {
            let hello = json!({ "parlor": 1, "agent": { "name": agent }, "cwd": "/" });
            writeln!(client.write, "{hello}").unwrap();
            assert!(client.read_line().contains("\"parlor\":1"), "the server greets back");
        }
        let info = json!({ "name": "test", "version": "1" });
        client.send("initialize", &json!({ "protocolVersion": 2, "info": info, "capabilities": {} }));
        client
    }

    /// Begins a session.
    pub(crate) fn new_session(&mut self) -> Result<String, Value> {
        let begun = self.call("session/new", &json!({ "cwd": "/", "mcpServers": [] }))?;
        Ok(begun["sessionId"].as_str().unwrap().to_owned())
    }

    /// Joins a session and is told all of it. Returns the answer.
    pub(crate) fn resume(&mut self, session: &str) -> Result<Value, Value> {
        self.shown = Shown::default();
        let from = json!({ "type": "start" });
        let params = json!({ "sessionId": session, "cwd": "/", "mcpServers": [], "replayFrom": from });
        self.call("session/resume", &params)
    }

    /// Sends a prompt, and does not wait for its answer.
    pub(crate) fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{ "type": "text", "text": text }]);
        self.send("session/prompt", &json!({ "sessionId": session, "prompt": prompt }))
    }

    pub(crate) fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.next += 1;
        let request = json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params });
        writeln!(self.write, "{request}").unwrap();
        self.next
    }

    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Result<Value, Value> {
        let id = self.send(method, params);
        self.answer(id)
    }

    /// Reads until a request is answered.
    pub(crate) fn answer(&mut self, id: u64) -> Result<Value, Value> {
        loop {
            if let Some(answer) = self.answered(id) {
                return answer;
            }
            self.step();
        }
    }

    /// The answer to a request, if it has come already.
    pub(crate) fn answered(&mut self, id: u64) -> Option<Result<Value, Value>> {
        let place = self.answers.iter().position(|(other, _)| *other == id)?;
        Some(self.answers.remove(place).1)
    }

    /// Reads until what was shown is as wanted.
    pub(crate) fn until(&mut self, mut holds: impl FnMut(&Shown) -> bool) {
        while !holds(&self.shown) {
            self.step();
        }
    }

    /// Reads until the running turn has ended, and says why it did.
    pub(crate) fn until_idle(&mut self) -> String {
        self.until(|shown| shown.state["state"] == "idle");
        self.shown.state["stopReason"].as_str().unwrap_or_default().to_owned()
    }

    /// Reads one line.
    pub(crate) fn step(&mut self) {
        let line = self.read_line();
        assert!(!line.is_empty(), "the server is gone");
        self.heard(&line);
        self.line = line;
    }

    /// Reads all that the server wrote before it died.
    pub(crate) fn read_rest(&mut self) {
        loop {
            let line = self.read_line();
            // A server that is killed may leave half a line.
            if !line.ends_with('\n') {
                return;
            }
            self.heard(&line);
        }
    }

    fn read_line(&mut self) -> String {
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        // A peer that was killed may have reset the connection.
        match self.read.read_line(&mut line) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("nothing comes"),
            Ok(_) | Err(_) => line,
        }
    }

    fn heard(&mut self, line: &str) {
        if line.starts_with(r#"{"jsonrpc":"2.0","method":"session/update""#) {
            let read: Line<'_> = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            return self.shown.update(&read.params.unwrap().update.unwrap(), line);
        }
        let message: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        if let Some(id) = message["id"].as_u64().filter(|_| message["method"].is_null()) {
            let answer = match message.get("error") {
                Some(error) => Err(error.clone()),
                None => Ok(message["result"].clone()),
            };
            self.answers.push((id, answer));
        }
    }
}

impl Shown {
    fn update(&mut self, update: &Update<'_>, line: &str) {
        self.updates += 1;
        let (role, is_chunk) = match &*update.kind {
            "state_update" => {
                let mut line: Value = serde_json::from_str(line).unwrap();
                self.state = line["params"]["update"].take();
                return;
            }
            "user_message" => ("user", false),
            "agent_message" => ("agent", false),
            "agent_thought" => ("thought", false),
            "user_message_chunk" => ("user", true),
            "agent_message_chunk" => ("agent", true),
            "agent_thought_chunk" => ("thought", true),
            _ => return,
        };
        let id = update.message_id.as_deref().unwrap();
        let place = self.messages.iter().rposition(|message| message.role == role && message.id == id);
        let place = place.unwrap_or_else(|| {
            self.messages.push(Message { id: id.to_owned(), role: role.to_owned(), text: String::new() });
            self.messages.len() - 1
        });
        let text = &mut self.messages[place].text;
        let blocks = match &update.content {
            Some(Content::One(block)) => std::slice::from_ref(block),
            Some(Content::Many(blocks)) => blocks,
            None => return,
        };
        if !is_chunk {
            text.clear();
        }
        for said in blocks.iter().filter_map(|block| block.text.as_deref()) {
            self.text_bytes += said.len();
            text.push_str(said);
        }
    }

    pub(crate) fn message(&self, id: &str) -> Option<&Message> {
        self.messages.iter().find(|message| message.id == id)
    }

    /// All that the agent said, one message after the other.
    pub(crate) fn said(&self) -> String {
        self.messages.iter().filter(|message| message.role == "agent").map(|message| &*message.text).collect()
    }
}
