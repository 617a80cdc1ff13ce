//! The commands with a server, without one, and with a broken installation.

mod agents;
mod backup;
mod default_agent;
mod doctor;
mod documented;
mod every_command;
mod fork;
mod help;
mod import;
mod lifecycle;
mod list;
mod login;
mod logs;
mod mcp;
mod notify;
mod prompt;
mod requests;
mod serve;
mod service;
mod sessions;
mod setup;
mod show_and_export;
mod subagents;
mod terminal;
#[path = "../terminal_client/tls.rs"]
mod tls;
mod usage_and_set;
mod watch;

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Stdio};

use parlor_dialect::Dialect;
use parlor_testkit::client::{Client, ClientBuilder};
use parlor_testkit::scenario::Scenario;
use parlor_testkit::transport::{TransportKind, stdio};

/// The program under test.
const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// An editor of version 1 that starts `parlor acp`.
fn editor(scenario: &Scenario) -> Client {
    let command = scenario.command(&["acp"]);
    ClientBuilder::new(TransportKind::Stdio, Dialect::V1, "").over(stdio(command))
}

/// Waits for the permission request with this title, and allows it once.
fn allow(editor: &mut Client, title: &str) {
    loop {
        let request = editor.peer_request("session/request_permission");
        if request["params"]["toolCall"]["title"] == title {
            return editor.choose(&request, "allow-once");
        }
    }
}

/// A command that runs until it is killed; an iterator over the lines that it prints.
struct Follower {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Follower {
    fn start(scenario: &Scenario, args: &[&str]) -> Self {
        let mut command = scenario.command(args);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Waits for the command; its exit code.
    fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Iterator for Follower {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        self.lines.next().map(Result::unwrap)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
