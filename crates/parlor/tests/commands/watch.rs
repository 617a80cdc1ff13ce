//! `watch`.

use parlor_testkit::scenario::Scenario;
use parlor_testkit::wait::wait_until;
use serde_json::Value;

use crate::terminal::Terminal;
use crate::{Follower, PARLOR};

#[test]
fn a_session_is_followed_whichever_client_prompts() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    let id = scenario.new_session("say one\nsay \u{1b}[2Jtwo");
    let mut watch = Follower::start(&scenario, &["watch", &id]);
    for line in ["› say one", "say \u{fffd}[2Jtwo", "", "one", "", "\u{fffd}[2Jtwo"] {
        assert_eq!(watch.next().as_deref(), Some(line));
    }
    let mut later = Follower::start(&scenario, &["watch", &id, "-n", "0"]);
    let mut last = Follower::start(&scenario, &["watch", "latest", "-n", "1"]);
    assert_eq!(last.next().as_deref(), Some("\u{fffd}[2Jtwo"));
    wait_until("all watch", || scenario.run(&["status", "--json"]).json()["clients"] == 3);
    scenario.run(&["prompt", "-s", &id, "say three"]).success();
    assert_eq!(watch.find(|line| !line.is_empty()).as_deref(), Some("› say three"));
    assert_eq!(watch.find(|line| !line.is_empty()).as_deref(), Some("three"));
    assert_eq!(later.next().as_deref(), Some("› say three"));
}

#[test]
fn past_and_present_turns_that_fail_are_printed_once() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    let id = scenario.new_session("say one");
    scenario.run(&["prompt", "-s", &id, "fail -32603 first trouble"]).exit_code(1);
    let terminal = Terminal::with_columns(&scenario, &["watch", &id], 120);
    terminal.wait_for("first trouble");
    scenario.run(&["prompt", "-s", &id, "fail -32603 second trouble"]).exit_code(1);
    terminal.wait_for("second trouble");
    scenario.run(&["prompt", "-s", &id, "say done"]).success();
    terminal.wait_for("done");
    let seen = anstream::adapter::strip_str(&terminal.seen()).to_string();
    for trouble in ["first trouble", "second trouble"] {
        let line = format!("✗ turn failed: {trouble}");
        assert_eq!(seen.matches(&line).count(), 1, "{line}: {seen}");
    }
}

#[test]
fn events_are_lines_that_fold_reads() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    let id = scenario.new_session("say one");
    let mut watch = Follower::start(&scenario, &["watch", &id, "--json", "-n", "100"]);
    let idle = |line: &String| {
        let update: Value = serde_json::from_str(line).unwrap();
        update["sessionUpdate"] == "state_update" && update["state"] == "idle"
    };
    let mut lines = Vec::new();
    for prompt in [None, Some("tool Look\nsay two")] {
        if let Some(prompt) = prompt {
            scenario.run(&["prompt", "-s", &id, prompt]).success();
        }
        loop {
            lines.push(watch.next().unwrap());
            if idle(lines.last().unwrap()) {
                break;
            }
        }
    }
    let folded = scenario.run_with(&["fold"], &(lines.join("\n") + "\n")).success().json();
    let shown = scenario.run(&["show", &id, "--json"]).success().json();
    assert_eq!((&folded["messages"], &folded["toolCalls"]), (&shown["messages"], &shown["toolCalls"]));
}

#[test]
fn a_watched_request_stays_open_for_other_clients() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    let id = scenario.new_session("say one");
    let terminal = Terminal::with_columns(&scenario, &["watch", &id], 40);
    terminal.wait_for("one");
    let mut editor = crate::editor(&scenario);
    editor.load(&id);
    let prompt = editor.prompt(&id, "tool Look at a file with a very long name\nask Delete it\nsay done");
    terminal.wait_for("parlor inbox");
    terminal.wait_for("✓ Look");
    let requests = scenario.run(&["inbox", "--json"]).success().json();
    scenario.run(&["answer", requests[0]["requestId"].as_str().unwrap(), "--allow"]).success();
    assert_eq!(editor.end_of_turn(&id, prompt), "end_turn");
    terminal.wait_for("done");
    let prompt = editor.prompt(&id, "fail -32000 no model");
    assert!(editor.response(prompt).is_err());
    terminal.wait_for("turn failed: no model");
    terminal.kill();
}

#[test]
fn watching_ends_with_the_session_and_with_the_server() {
    let mut scenario = Scenario::new(PARLOR).with_test_agent();
    let (first, second) = (scenario.new_session("say one"), scenario.new_session("say two"));
    let mut watch = Follower::start(&scenario, &["watch", &first]);
    watch.find(|line| line == "one").unwrap();
    wait_until("it watches", || scenario.run(&["status", "--json"]).json()["clients"] == 1);
    scenario.run(&["rm", "--yes", &first]).success();
    assert_eq!(watch.wait(), Some(1));
    let terminal = Terminal::new(&scenario, &["watch", &second]);
    terminal.wait_for("two");
    scenario.kill();
    let (code, seen) = terminal.wait();
    assert_eq!(code, Some(5));
    assert!(seen.contains("the server closed the connection"), "{seen}");
    let output = scenario.run(&["watch", &second]).exit_code(5);
    assert!(output.stderr.contains("no server is running"), "{output:#?}");
    scenario.run(&["watch", "nonsense"]).exit_code(2);
}
