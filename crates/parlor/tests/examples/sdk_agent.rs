//! The SDK's agents as programs. The test program runs itself: the test of that name speaks ACP on the standard streams.

use std::env;

use crate::sdk_versions::{echo_v1, echo_v2};

/// What tells a test that it is to be an agent, and not run by somebody who wants all tests.
const MARK: &str = "speak-acp";

/// How this program is started as an echo agent of a version. With more than one thread it does not write the name of the
/// test before it runs, which would be in the way of the first message.
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
        // What the test runner would say is no message.
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
