//! Agents made with the SDK. They support a few commands of the test agent.
//!
//! The test program runs itself as the agent: the test with that name speaks ACP on the standard streams.

mod v1;
mod v2;

use std::env;
use std::future::Future;
use std::path::Path;

pub(crate) const V1: &str = "as_agent_v1";
pub(crate) const V2: &str = "as_agent_v2";

/// The argument with which a test runs as an agent; without it, as in a run of all tests, it does nothing.
const MARK: &str = "speak-acp";

/// The command that runs this program as an agent. With more than one thread it does not print the name of the test before it
/// runs, which would precede the first message.
pub(crate) fn command(me: &Path, name: &str) -> String {
    let options = "--ignored --nocapture --test-threads 2";
    format!("{} --exact agent::{name} {MARK} {options}", me.display())
}

fn run(agent: impl Future<Output = agent_client_protocol::Result<()>>) {
    if env::args().any(|arg| arg == MARK) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(agent).unwrap();
        // The output of the test runner is not a message.
        std::process::exit(0);
    }
}

#[test]
#[ignore = "the agent of the tests here"]
fn as_agent_v1() {
    run(v1::serve());
}

#[test]
#[ignore = "the agent of the tests here"]
fn as_agent_v2() {
    run(v2::serve());
}

/// The action of a prompt.
enum Wish {
    /// Sends these chunks.
    Say(Vec<String>),
    /// Sends a permission request, and then the selected option.
    ClientCommand(String),
    /// Sends a word, and nothing more until the turn is cancelled.
    Wait,
}

impl Wish {
    fn of(prompt: &str) -> Self {
        let words: Vec<_> = prompt.split_whitespace().collect();
        match words[..] {
            ["stream", count, size] => {
                let (count, size): (usize, usize) = (count.parse().unwrap(), size.parse().unwrap());
                Self::Say((0..count).map(|number| format!("{:.<size$}", format!("{number:08} "))).collect())
            }
            ["ask", ..] => Self::ClientCommand(prompt["ask".len()..].trim().to_owned()),
            ["say", "Waiting.", "sleep", _] => Self::Wait,
            ["say", ..] => Self::Say(vec![prompt["say".len()..].trim().to_owned()]),
            _ => Self::Say(vec![format!("I do not know what {prompt:?} means")]),
        }
    }
}
