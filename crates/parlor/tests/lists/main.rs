//! Lists of sessions, and the sessions in them that only agents know.

mod adopting;
#[path = "../live/client.rs"]
#[expect(dead_code, reason = "these tests need a part of it")]
mod client;
#[path = "../live/doors.rs"]
mod doors;
#[path = "../live/known.rs"]
mod known;
mod pages;
mod patience;
#[path = "../live/server.rs"]
#[expect(dead_code, reason = "these tests need a part of it")]
mod server;

use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::Client;
use crate::server::{PARLOR, PATIENCE, Server};

/// Agents that keep their sessions in files, by what they speak.
pub(crate) const KEEPERS: [&str; 4] = ["keeps-v1", "keeps-anonymous", "keeps-v2", "keeps-draft"];

/// A server with agents that have sessions of their own, which they had before it started.
pub(crate) fn server_with(sessions: &[(&str, Value)]) -> Server {
    let mut config = String::new();
    for (name, options, rest) in [
        ("keeps-v1", "\"--version\", \"1\"", ""),
        ("keeps-anonymous", "\"--version\", \"1\", \"--no-message-ids\"", ""),
        ("keeps-v2", "\"--version\", \"2\"", ""),
        ("keeps-draft", "\"--version\", \"2\"", "dialect = \"draft\"\n"),
        ("cannot-load", "\"--version\", \"1\", \"--offers\", \"list\"", ""),
    ] {
        let command = format!("\"TEST_AGENT\", {options}, \"--state\", \"HOME/{name}\"");
        let _ = write!(config, "[agents.{name}]\ncommand = [{command}]\n{rest}");
    }
    let server = Server::with(&config);
    sessions.iter().for_each(|(agent, session)| give(&server, agent, session));
    server
}

/// Gives an agent a session, as if it had come by it elsewhere.
pub(crate) fn give(server: &Server, agent: &str, session: &Value) {
    let folder = server.home().path().join(agent);
    fs::create_dir_all(&folder).unwrap();
    let id = session["sessionId"].as_str().unwrap();
    fs::write(folder.join(format!("{id}.json")), session.to_string()).unwrap();
}

/// A session as the test agent keeps it.
pub(crate) fn session(id: &str, title: Option<&str>, updated_at: &str) -> Value {
    let text = |text: &str| json!([{ "type": "text", "text": text }]);
    let mut session = json!({
        "sessionId": id, "cwd": "/", "mode": "code", "model": "large", "updatedAt": updated_at,
        "messages": [
            { "role": "user", "messageId": "q1", "content": text(&format!("Question of {id}")) },
            { "role": "thought", "messageId": "t1", "content": text("Hm.") },
            { "role": "agent", "messageId": "a1", "content": text(&format!("Answer of {id}")) },
        ],
    });
    if let Some(title) = title {
        session["title"] = json!(title);
    }
    session
}

impl Client {
    /// All pages of a list.
    pub(crate) fn list(&mut self, mut params: Value) -> Vec<Value> {
        let mut all = Vec::new();
        loop {
            let page = self.call("session/list", params.clone()).unwrap();
            all.extend(page["sessions"].as_array().unwrap().iter().cloned());
            match page.get("nextCursor").filter(|next| !next.is_null()) {
                Some(next) => params["cursor"] = next.clone(),
                None => return all,
            }
        }
    }

    pub(crate) fn ids(&mut self, params: Value) -> Vec<String> {
        let one = |one: &Value| one["sessionId"].as_str().unwrap().to_owned();
        self.list(params).iter().map(one).collect()
    }

    /// Asks for lists until one has this session: agents are asked in the background.
    pub(crate) fn sees(&mut self, session: &str) -> Value {
        let begun = Instant::now();
        loop {
            let found = self.list(json!({})).into_iter().find(|one| one["sessionId"] == session);
            if let Some(found) = found {
                return found;
            }
            assert!(begun.elapsed() < PATIENCE, "{session} is not listed");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Runs a command of parlor's for the server's data.
pub(crate) fn run(server: &Server, args: &[&str]) -> String {
    let mut command = Command::new(PARLOR);
    command.arg(args[0]).arg("--data").arg(server.home().data()).arg("--config").arg(server.home().config());
    let said = command.args(&args[1..]).output().unwrap();
    assert!(said.status.success(), "{said:?}");
    String::from_utf8(said.stdout).unwrap()
}
