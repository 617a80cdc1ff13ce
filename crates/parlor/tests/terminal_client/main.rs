//! The terminal client on a pseudo-terminal, with a real server.

#![cfg(target_os = "linux")]

mod conversation;
mod keys;
mod requests;
mod server;
mod sessions;
mod tls;

use parlor_testkit::scenario::Scenario;
use parlor_testkit::screen::{ENTER, Screen, TAB};

/// The program under test.
const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// Sends a prompt that makes the agent ask, and goes to the request. With text in the input, the request does not take the focus by
/// itself: when it does depends on the time.
#[track_caller]
fn go_to_request(screen: &mut Screen, prompt: &str) {
    screen.press(&format!("{prompt}{ENTER}draft"));
    screen.wait_for("Tab answers");
    screen.press(TAB);
    screen.wait_for("Esc not now");
}

/// A server with the demo agent.
fn with_server() -> Scenario {
    Scenario::new(PARLOR).with_server()
}
