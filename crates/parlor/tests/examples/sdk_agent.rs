//! Agents made with the SDK, as programs: the test program runs the test with that name, which speaks ACP on the
//! standard streams.

use std::env;

use crate::sdk_versions::{echo_v1, echo_v2};

/// The argument with which a test runs as an agent; without it, as in a run of all tests, it does nothing.
const MARK: &str = "speak-acp";

/// The command that runs this program as an echo agent of a version. With more than one thread it does not print the name of the
/// test before it runs, which would precede the first message.
pub(crate) fn echo(version: u8) -> Vec<String> {
    let me = env::current_exe().unwrap().to_str().unwrap().to_owned();
    let test = format!("sdk_agent::as_echo_v{version}");
    let options = ["--exact", &test, MARK, "--ignored", "--nocapture", "--test-threads", "2"];
    [me].into_iter().chain(options.map(str::to_owned)).collect()
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
#[ignore = "an agent of the tests here"]
fn as_echo_v1() {
    run(echo_v1::serve());
}

#[test]
#[ignore = "an agent of the tests here"]
fn as_echo_v2() {
    run(echo_v2::serve());
}
