//! The test agent as a client sees it, in every dialect. Everything it sends is checked against the published types.

mod agent;
mod cancelling;
mod options;
mod process;
mod sessions;
mod turns;

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use agent::{Agent, Turn};
use parlor_dialect::Dialect;
use parlor_testkit::programs;
use serde_json::json;

/// The text of all chunks of one kind.
fn said(turn: &Turn, kind: &str) -> String {
    turn.of(kind).iter().map(|chunk| chunk["content"]["text"].as_str().unwrap_or("")).collect()
}

fn answer(turn: &Turn) -> String {
    said(turn, "agent_message_chunk")
}

fn ids(turn: &Turn, kind: &str) -> BTreeSet<String> {
    turn.of(kind).iter().map(|chunk| chunk["messageId"].as_str().unwrap().to_owned()).collect()
}

/// An agent with an open session.
fn open(dialect: Dialect, options: &[&str]) -> (Agent, String) {
    let mut agent = Agent::start(dialect, options);
    agent.initialize(json!({}));
    let session = agent.new_session();
    (agent, session)
}

/// Runs one prompt in each dialect.
fn each(script: &str, look: impl Fn(Dialect, &Turn)) {
    for dialect in Dialect::ALL {
        let (mut agent, session) = open(dialect, &[]);
        let turn = agent.turn(&session, script);
        look(dialect, &turn);
    }
}

/// Runs the agent without input: its exit code, its output and its errors.
fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(programs::test_agent()).args(args).stdin(Stdio::null()).output().unwrap();
    // The help leaves white space at the ends of lines.
    let text = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        text.lines().map(|line| format!("{}\n", line.trim_end())).collect::<String>()
    };
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}
