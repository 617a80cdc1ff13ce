//! Tabs of the page over their sockets, without a browser.

mod actions;
mod connection;
mod tab;

use parlor_testkit::server::{Server, TestDir};

/// The program under test.
const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// A server whose agent is the demo agent.
fn start_server() -> Server {
    TestDir::new(PARLOR).agent("demo", &format!("{PARLOR} demo-agent")).serve()
}

/// Creates a session with a prompt, waits for the end of its turn, and returns the id.
fn new_session(server: &Server, prompt: &str) -> String {
    let output = server.dir().run(&["prompt", "--new", "--agent", "demo", "--json", prompt]).success();
    output.last_json()["sessionId"].as_str().expect("the id of the session").to_owned()
}
