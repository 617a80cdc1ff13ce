//! Lists of sessions, including those that only agents have.

mod adoption;
mod pages;
mod slow_agents;

use std::fmt::Write as _;
use std::fs;

use parlor_testkit::client::Client;
use parlor_testkit::server::{Server, TestDir};
use parlor_testkit::wait::wait_until;
use serde_json::{Value, json};

/// The program under test.
const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// A server with the test agents and these lines in its configuration.
fn start_server(config: &str) -> Server {
    TestDir::new(PARLOR).with_test_agents(config).serve()
}

/// Agents that store their sessions in files, one per dialect.
pub(crate) const STORING_AGENTS: [&str; 4] =
    ["storing-v1", "storing-anonymous", "storing-v2", "storing-draft"];

/// A server with agents that already have these sessions.
pub(crate) fn server_with(sessions: &[(&str, Value)]) -> Server {
    let mut config = String::new();
    for (name, options, rest) in [
        ("storing-v1", "\"--version\", \"1\"", ""),
        ("storing-anonymous", "\"--version\", \"1\", \"--no-message-ids\"", ""),
        ("storing-v2", "\"--version\", \"2\"", ""),
        ("storing-draft", "\"--version\", \"2\"", "dialect = \"draft\"\n"),
        ("cannot-load", "\"--version\", \"1\", \"--offers\", \"list\"", ""),
    ] {
        let command = format!("\"TEST_AGENT\", {options}, \"--state\", \"TEST_DIR/{name}\"");
        let _ = write!(config, "[agents.{name}]\ncommand = [{command}]\n{rest}");
    }
    let server = start_server(&config);
    sessions.iter().for_each(|(agent, session)| add_agent_session(&server, agent, session));
    server
}

/// Adds a session to an agent, as if it had been created by another client.
pub(crate) fn add_agent_session(server: &Server, agent: &str, session: &Value) {
    let folder = server.dir().path().join(agent);
    fs::create_dir_all(&folder).unwrap();
    let id = session["sessionId"].as_str().unwrap();
    fs::write(folder.join(format!("{id}.json")), session.to_string()).unwrap();
}

/// A session as the test agent stores it.
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

/// Requests of these tests.
pub(crate) trait Lists {
    /// All pages of a list.
    fn list(&mut self, params: Value) -> Vec<Value>;

    /// The ids of the sessions on all pages of a list.
    fn ids(&mut self, params: Value) -> Vec<String> {
        let one = |one: &Value| one["sessionId"].as_str().unwrap().to_owned();
        self.list(params).iter().map(one).collect()
    }

    /// Requests lists until one has this session: agents are queried in the background.
    fn wait_for_session(&mut self, session: &str) -> Value {
        let mut found = None;
        wait_until(&format!("{session} is listed"), || {
            found = self.list(json!({})).into_iter().find(|one| one["sessionId"] == session);
            found.is_some()
        });
        found.unwrap()
    }
}

impl Lists for Client {
    fn list(&mut self, mut params: Value) -> Vec<Value> {
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
}

/// Runs a command with the server's data directory: its standard output.
pub(crate) fn run(server: &Server, args: &[&str]) -> String {
    let config = server.dir().config();
    let args = [&args[..1], &["--config", config.to_str().unwrap()], &args[1..]].concat();
    server.dir().run(&args).success().stdout
}
