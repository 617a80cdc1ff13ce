//! `logs`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use parlor_testkit::scenario::Scenario;

use crate::PARLOR;
use crate::terminal::Terminal;

/// A scenario whose server has two agents, which write to their standard error.
fn with_logs() -> Scenario {
    let mut scenario = Scenario::new(PARLOR);
    let agent = |name: &str| format!("{name}=sh -c 'echo noise of {name} >&2; exec {PARLOR} demo-agent'");
    scenario.serve(&["--agent", &agent("one"), "--agent", &agent("two")]);
    for name in ["one", "two"] {
        scenario.run(&["prompt", "--new", "--agent", name, "say hello"]).success();
    }
    scenario
}

#[test]
fn the_log_has_what_agents_write_to_standard_error_and_is_filtered_by_agent() {
    let mut scenario = with_logs();
    let all = scenario.run(&["logs"]).success().plain().stdout;
    assert!(all.contains("noise of one") && all.contains("noise of two"), "{all}");
    let one = scenario.run(&["logs", "--agent", "one"]).success().stdout;
    assert!(one.contains("noise of one") && one.contains("agent started"), "{one}");
    assert!(!one.contains("two"), "{one}");
    let last = scenario.run(&["logs", "--agent", "one", "-n", "1"]).success().stdout;
    assert_eq!(Some(last.trim_end()), one.lines().last());
    // Without a server the log is still there.
    scenario.stop();
    assert!(scenario.run(&["logs", "-n", "0"]).success().stdout.starts_with(&all));
    let (code, seen) = Terminal::new(&scenario, &["logs", "--agent", "two", "-n", "1"]).wait();
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.contains("two"), "{seen}");
}

#[test]
fn a_log_that_is_not_there_is_reported() {
    let scenario = Scenario::new(PARLOR);
    let output = scenario.run(&["logs"]).success();
    assert_eq!(output.stdout, "");
    assert!(output.stderr.starts_with("no log: ") && output.stderr.contains("does not exist"), "{output:#?}");
    fs::create_dir(scenario.data()).unwrap();
    let output = scenario.run(&["logs"]).success();
    assert!(output.stderr.contains("no server has run"), "{output:#?}");
}

#[test]
fn follow_prints_new_lines_also_of_a_new_file() {
    let scenario = Scenario::new(PARLOR);
    let log = scenario.data().join("log");
    fs::create_dir_all(&log).unwrap();
    let append = |line: &str| {
        use std::io::Write;
        let mut file = fs::OpenOptions::new().create(true).append(true).open(log.join("parlor.log")).unwrap();
        file.write_all(line.as_bytes()).unwrap();
    };
    let mut logs = scenario
        .command(&["logs", "-f", "--agent", "a"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(logs.stdout.take().unwrap()).lines().map(Result::unwrap);
    append("agent=\"a\" first\nagent=\"b\" other\nagent=\"a\" se");
    assert_eq!(lines.next().unwrap(), "agent=\"a\" first");
    append("cond\u{1b}[2J\n");
    assert_eq!(lines.next().unwrap(), "agent=\"a\" second\u{fffd}[2J");
    // The server renames a full log file.
    append("agent=\"a\" third\n");
    fs::rename(log.join("parlor.log"), log.join("parlor.old.log")).unwrap();
    append("agent=\"a\" fourth\n");
    assert_eq!(lines.next().unwrap(), "agent=\"a\" third");
    assert_eq!(lines.next().unwrap(), "agent=\"a\" fourth");
    logs.kill().unwrap();
    logs.wait().unwrap();
}
