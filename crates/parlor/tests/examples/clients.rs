//! The example clients and the relay, with agents made with the SDK.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use parlor_testkit::programs::example;
use tempfile::TempDir;

use crate::sdk_agent;
use crate::sdk_client::{SdkClientRun, Version};
use crate::sdk_versions::{Print, watch_v1, watch_v2};
use crate::wire;
use crate::{PARLOR, start_server};

/// Runs an example to its end, and returns its output.
fn run(name: &str, args: &[impl AsRef<OsStr>]) -> String {
    let dir = TempDir::new().unwrap();
    let output = Command::new(example(name))
        .args(args)
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "{name}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

const WATCHED: &str = "you:\nHello, you.\n\nagent:\nHello, you.\n\nend_turn\n";

#[test]
fn the_watch_example_prints_the_answer_of_an_sdk_agent() {
    for version in [1, 2] {
        let mut args = vec!["Hello, you.".to_owned()];
        args.extend(sdk_agent::echo(version));
        assert_eq!(run("watch", &args), WATCHED, "version {version}");
    }
}

#[test]
fn the_client_of_the_guide_prints_the_answer() {
    for agent in [sdk_agent::echo(1), sdk_agent::echo(2), vec![example("echo")]] {
        assert_eq!(run("hello", &agent), "Hello!\nended: Some(EndTurn)\n2 entries\n", "{agent:?}");
    }
}

#[test]
fn messages_and_tool_calls_are_printed_separately() {
    let shown = run("watch", &["Buy milk".to_owned(), example("worker")]);
    let parts: Vec<_> = shown.split("\n\n").collect();
    assert_eq!(
        parts[..3],
        ["you:\nBuy milk", "thought:\nThat is worth a note.", "agent:\nI will write that down."]
    );
    assert!(parts[3].starts_with("tool:\nWrite notes.txt") && parts[3].ends_with("completed "), "{shown}");
    assert_eq!(parts[4..], ["agent:\nThat was note 1.", "end_turn\n"]);
}

/// The clients made with the SDK print the same, so that they can be compared.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sdk_versions_of_the_client_print_the_same() {
    let dir = TempDir::new().unwrap();
    for version in [1, 2] {
        for agent in [sdk_agent::echo(version), vec![example("echo")]] {
            let printed = Arc::new(Mutex::new(String::new()));
            let sink = Arc::clone(&printed);
            let print: Print = Box::new(move |text| sink.lock().unwrap().push_str(text));
            let (wire, _agent) = wire::start(&agent, dir.path());
            let text = "Hello, you.".to_owned();
            match version {
                1 => watch_v1::watch(wire, text, print).await.unwrap(),
                _ => watch_v2::watch(wire, text, print).await.unwrap(),
            }
            assert_eq!(*printed.lock().unwrap(), WATCHED, "version {version}, {agent:?}");
        }
    }
}

/// The output of `edit` with an agent that echoes prompts.
const EDITED: &str = "as it was:
  User: say My name is Ada.
  Agent: say My name is Ada.
  User: say Four, I think.
  Agent: say Four, I think.
edited:
  User: say My name is Ada.
  Agent: say My name is Ada.
  User: say Five, I am sure.
  Agent: say Five, I am sure.
";

#[test]
fn the_edit_example_works_with_an_agent_that_can_fork() {
    assert_eq!(run("edit", &[example("echo")]), EDITED);
}

/// The SDK's agents cannot fork; the server does it for them. They get the context with the prompt, which these agents
/// echo, so only the prompts are compared.
#[test]
fn the_edit_example_works_with_any_agent_behind_parlor() {
    for version in [1, 2] {
        let mut args = [PARLOR, "acp", "--direct", "--"].map(str::to_owned).to_vec();
        args.extend(sdk_agent::echo(version));
        let shown = run("edit", &args);
        let requests = |text: &str| -> Vec<String> {
            text.lines().filter(|line| line.contains("User: ")).map(str::to_owned).collect()
        };
        assert_eq!(requests(&shown), requests(EDITED), "version {version}: {shown}");
        assert!(shown.starts_with(EDITED.split_once("  User: say Five").unwrap().0), "{shown}");
    }
}

#[test]
fn the_edit_example_works_with_a_server() {
    let server = start_server("echo", &[example("echo")]);
    assert_eq!(run("edit", &["--socket".as_ref(), server.socket().as_os_str()]), EDITED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_makes_an_agent_of_version_1_one_of_version_2() {
    let dir = TempDir::new().unwrap();
    let mut agent = vec![example("relay")];
    agent.extend(sdk_agent::echo(1));
    let client_run =
        SdkClientRun { agent: &agent, cwd: dir.path(), session: None, prompts: &["One.", "Two."] };
    let (_, view) = client_run.by(Version::Two).await;
    assert_eq!(view.messages(), [("user", "One."), ("agent", "One."), ("user", "Two."), ("agent", "Two.")]);
    let mut ids: Vec<_> =
        view.messages.iter().map(|it| it.id.clone().expect("every message has an id")).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4);
}
