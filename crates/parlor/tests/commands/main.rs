//! The commands with a server, without one, and with a broken installation.

mod doctor;
mod fork;
mod help;
mod list;
mod prompt;
mod requests;
mod serve;
mod sessions;
mod terminal;

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
