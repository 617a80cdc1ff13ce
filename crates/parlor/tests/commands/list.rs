//! The states in `ls` and `status`, and `ls --watch`.

use parlor_testkit::scenario::Scenario;
use parlor_testkit::wait::wait_until;
use serde_json::{Value, json};

use crate::terminal::Terminal;
use crate::{Follower, PARLOR};

/// One session that needs a person, one that failed, and one that is idle; the client of the first, and the ids.
fn three_states(scenario: &Scenario) -> (parlor_testkit::client::Client, [String; 3]) {
    let idle = scenario.new_session("title A quiet one");
    scenario.run(&["prompt", "--new", "title A broken one\nfail -32000 no model"]).exit_code(1);
    let failed = scenario.run(&["ls", "--json"]).json()[0]["sessionId"].as_str().unwrap().to_owned();
    let mut editor = crate::editor(scenario);
    let asks = editor.new_session_in(scenario.work().to_str().unwrap());
    editor.prompt(
        &asks,
        "title A title that is far too long for a terminal of only forty columns\nask Delete it",
    );
    wait_until("the request is open", || scenario.run(&["ls", "--json"]).json()[0]["openRequests"] == 1);
    (editor, [asks, failed, idle])
}

fn states(scenario: &Scenario) -> Vec<(String, String)> {
    let listed = scenario.run(&["ls", "--json"]).success().json();
    let text = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
    listed.as_array().unwrap().iter().map(|row| (text(row, "sessionId"), text(row, "state"))).collect()
}

#[test]
fn sessions_that_need_a_person_or_failed_are_marked() {
    let mut scenario = Scenario::new(PARLOR).with_test_agent();
    let (editor, [asks, failed, idle]) = three_states(&scenario);
    let expected = [(&asks, "needs_you"), (&failed, "failed"), (&idle, "idle")];
    let expected = expected.map(|(id, state)| (id.clone(), state.to_owned()));
    assert_eq!(states(&scenario), expected);
    let shown = scenario.run(&["show", &asks]).success().plain().stdout;
    assert!(shown.contains("! needs you · ") && shown.contains("! Delete it (`parlor answer r"), "{shown}");
    // In a pipe, states are words.
    let lines = scenario.run(&["ls"]).success().plain().stdout;
    let words: Vec<_> = lines
        .lines()
        .map(|line| line.split("  ").map(str::trim).filter(|part| !part.is_empty()).nth(2))
        .collect();
    assert_eq!(words, [Some("STATE"), Some("needs-you"), Some("failed"), Some("idle")], "{lines}");

    let status = scenario.run(&["status", "--json"]).success().json();
    let of_status: Vec<_> = status["sessions"].as_array().unwrap().iter().map(|row| &row["state"]).collect();
    assert_eq!(of_status, ["needs_you", "failed"]);
    assert_eq!(status["sessions"][0]["waitsFor"], "Delete it");
    let status = scenario.run(&["status"]).success().plain().stdout;
    assert!(status.contains("needs-you  Delete it, for ") && status.contains("failed"), "{status}");

    drop(editor);
    scenario.kill();
    assert_eq!(states(&scenario)[0].1, "interrupted");
}

#[test]
fn queued_prompts_are_counted_in_lists_and_shown() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    scenario.run(&["prompt", "--new", "--no-wait", "title Long\nsleep 60000"]).success();
    wait_until("the turn runs", || scenario.run(&["ls", "--json"]).json()[0]["state"] == "running");
    for text in ["say two", "say three\nsay four"] {
        scenario.run(&["prompt", "--no-wait", text]).success();
    }
    assert_eq!(scenario.run(&["ls", "--json"]).success().json()[0]["queued"], 2);
    let listed = Terminal::new(&scenario, &["ls"]).wait().1;
    assert!(listed.contains(", 2 queued"), "{listed}");
    let shown = scenario.run(&["show", "latest"]).success().stdout;
    assert!(shown.ends_with("\nqueued\n  say two\n\nqueued\n  say three\n  say four\n\n"), "{shown}");
    assert!(!scenario.run(&["show", "latest", "1"]).success().stdout.contains("say two"));
    scenario.run(&["cancel", "latest", "--queued"]).success();
    assert_eq!(scenario.run(&["ls", "--json"]).success().json()[0]["queued"], 0);
    assert!(!scenario.run(&["show", "latest"]).success().stdout.contains("queued"));
}

#[test]
fn lists_fit_the_terminal() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    let (_editor, [asks, ..]) = three_states(&scenario);
    for columns in [40, 60, 80, 120] {
        let (code, seen) = Terminal::with_columns(&scenario, &["ls"], columns).wait();
        let plain = anstream::adapter::strip_str(&seen).to_string();
        assert_eq!(code, Some(0), "{plain}");
        let fits = |line: &str| line.trim_end().chars().count() <= usize::from(columns);
        assert!(plain.lines().all(fits), "{columns}: {plain}");
        let line = plain.lines().find(|line| line.starts_with(&asks[..8])).unwrap();
        assert!(line.contains('!') && line.contains("A title"), "{plain}");
        assert!(plain.contains("✗"), "{plain}");
        assert_eq!(line.contains("needs you"), columns >= 60, "{plain}");
        assert!(plain.ends_with("\r\n1 needs you: parlor inbox\r\n"), "{plain}");
    }
    for columns in [40, 120] {
        let (_, seen) = Terminal::with_columns(&scenario, &["status"], columns).wait();
        let plain = anstream::adapter::strip_str(&seen).to_string();
        let rows: Vec<_> = plain.lines().skip_while(|line| !line.starts_with("SESSION ")).collect();
        assert!(rows.iter().all(|line| line.trim_end().chars().count() <= usize::from(columns)), "{plain}");
        assert!(rows.iter().any(|line| line.starts_with(&asks[..8])), "{plain}");
    }
}

#[test]
fn changes_of_the_list_are_printed_one_per_line() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    let first = scenario.new_session("title One");
    let start =
        |flag: Option<&str>| Follower::start(&scenario, &[&["ls", "--watch"][..], flag.as_slice()].concat());
    let mut objects = start(Some("--json"));
    let mut lines = start(None);
    let mut next = || serde_json::from_str::<Value>(&objects.next().unwrap()).unwrap();
    assert_eq!(next()["sessionId"], first.as_str());
    let line = lines.next().unwrap();
    assert!(line.starts_with(&first[..8]) && line.contains("idle") && line.ends_with("One"), "{line}");

    let mut editor = crate::editor(&scenario);
    let second = editor.new_session_in(scenario.work().to_str().unwrap());
    editor.prompt(&second, "ask Delete it");
    while next()["state"] != "needs_you" {}
    let line = lines.find(|line| line.contains("needs-you")).unwrap();
    assert!(line.starts_with(&second[..8]), "{line}");
    scenario.run(&["rm", "--yes", &second]).success();
    let removed = std::iter::repeat_with(&mut next).find(|change| change["removed"] == true).unwrap();
    assert_eq!(removed, json!({ "sessionId": second, "removed": true }));
    assert_eq!(lines.find(|line| line.contains("removed")), Some(format!("{}  removed", &second[..8])));
}

#[test]
fn the_list_is_drawn_again_on_a_terminal() {
    let mut scenario = Scenario::new(PARLOR).with_test_agent();
    let id = scenario.new_session("title One");
    for columns in [40, 120] {
        let terminal = Terminal::with_columns(&scenario, &["ls", "--watch"], columns);
        terminal.wait_for(&id[..8]);
        let title = format!("Wide {columns}");
        scenario.run(&["title", &id, &title]).success();
        terminal.wait_for(&title);
        terminal.wait_for("\u{1b}[J");
        terminal.kill();
    }
    let terminal = Terminal::new(&scenario, &["ls", "--watch"]);
    terminal.wait_for(&id[..8]);
    scenario.kill();
    let (code, seen) = terminal.wait();
    assert_eq!(code, Some(5), "{seen}");
    assert!(seen.contains("the server closed the connection"), "{seen}");
    let output = scenario.run(&["ls", "--watch"]).exit_code(5);
    assert!(
        output.stderr.contains("no server is running") && output.stderr.contains("parlor serve"),
        "{output:#?}"
    );
}

#[test]
fn a_session_that_needs_a_person_is_found_behind_many_others() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    let (mut editor, [asks, failed, _]) = three_states(&scenario);
    for _ in 0..50 {
        let session = editor.new_session_in(scenario.work().to_str().unwrap());
        let prompt = editor.prompt(&session, "say hello");
        editor.end_of_turn(&session, prompt);
    }
    let status = scenario.run(&["status", "--json"]).success().json();
    let of_status: Vec<_> =
        status["sessions"].as_array().unwrap().iter().map(|row| &row["sessionId"]).collect();
    assert_eq!(of_status, [asks.as_str()], "{failed} is not among the latest 50");
    // A pipe gets all sessions, a terminal the latest.
    assert_eq!(states(&scenario).len(), 53);
    assert_eq!(scenario.run(&["ls"]).success().stdout.lines().count(), 54);
    assert_eq!(scenario.run(&["ls", "--limit", "2"]).success().stdout.lines().count(), 3);
    let (_, seen) = Terminal::with_columns(&scenario, &["ls"], 120).wait();
    let seen = anstream::adapter::strip_str(&seen).to_string();
    assert!(!seen.contains(&asks[..8]), "{seen}");
    assert!(
        seen.ends_with("There are more sessions; --limit 0 lists all.\r\n1 needs you: parlor inbox\r\n"),
        "{seen}"
    );
}

#[test]
fn a_data_directory_that_was_named_has_to_exist() {
    let scenario = Scenario::new(PARLOR);
    let output = scenario.run(&["ls", "--data", "/does/not/exist"]).exit_code(2);
    assert!(output.stderr.contains("the data directory /does/not/exist does not exist"), "{output:#?}");
}
