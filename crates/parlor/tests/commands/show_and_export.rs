//! `show` and `export`: numbers, ranges, tool calls, pager, formats and files.

use std::fs;
use std::process::Command;

use parlor_testkit::scenario::Scenario;
use serde_json::json;

use crate::PARLOR;
use crate::terminal::Terminal;

/// A session with two turns: prompt, thought, tool call, answer; prompt, answer.
fn two_turns(scenario: &Scenario) -> String {
    let id = scenario.new_session("think Well\ntool Edit the notes\nsay One.");
    scenario.run(&["prompt", "-s", &id, "say Two."]).success();
    id
}

/// The numbers that a command prints.
fn numbers(scenario: &Scenario, args: &[&str]) -> Vec<String> {
    let shown = scenario.run(&[&["show"], args].concat()).success().plain().stdout;
    let numbers = shown.lines().filter(|line| line.starts_with('#'));
    numbers.map(|line| line.split(" · ").next().unwrap().to_owned()).collect()
}

#[test]
fn messages_have_numbers_and_times_which_forks_keep() {
    let mut scenario = Scenario::new(PARLOR).with_server();
    let id = two_turns(&scenario);
    let all = ["#1 user", "#2 thought", "#3 agent", "#4 user", "#5 agent"];
    assert_eq!(numbers(&scenario, &[&id]), all);
    let shown = scenario.run(&["show", &id]).success().stdout;
    let is_time = |time: &str| {
        let [h1, h2, b':', m1, m2] = time.as_bytes() else { return false };
        [h1, h2, m1, m2].iter().all(|digit| digit.is_ascii_digit())
    };
    let times: Vec<_> = shown.lines().filter(|line| line.starts_with(['#', '✓'])).collect();
    assert_eq!(times.len(), 6, "{shown}");
    assert!(times.iter().all(|line| is_time(line.rsplit(" · ").next().unwrap())), "{shown}");
    for (name, expected) in
        [("2..3", &all[1..3]), ("'#4..", &[][..]), ("4..", &all[3..]), ("-1", &all[4..]), ("#-2", &all[3..4])]
    {
        if expected.is_empty() {
            scenario.run(&["show", &id, name]).exit_code(2);
        } else {
            assert_eq!(numbers(&scenario, &[&id, name]), expected, "{name}");
        }
    }
    assert_eq!(numbers(&scenario, &[&id, "-n", "2"]), &all[3..]);
    // Edit and fork by number; the fork has the same numbers and times.
    let fork = scenario.run(&["fork", &id, "--at", "3"]).success().stdout.trim_end().to_owned();
    assert_eq!(numbers(&scenario, &[&fork]), &all[..3]);
    let at = |id: &str| scenario.run(&["show", id, "--json"]).success().json()["order"].clone();
    assert_eq!(at(&fork)[0], at(&id)[0]);
    assert!(at(&fork)[0]["at"].is_string() && at(&fork)[0]["number"] == 1, "{}", at(&fork));
    assert_eq!(scenario.run(&["edit", &id, "#4", "say Else."]).success().stdout, "Else.\n");
    assert_eq!(scenario.run(&["regenerate", &id, "-3"]).success().stdout, "One.\n");
    let output = scenario.run(&["edit", &id, "9", "x"]).exit_code(2);
    assert!(
        output.stderr.contains("no message #9") && output.stderr.contains("the last message is #5"),
        "{output:#?}"
    );
    let output = scenario.run(&["edit", &id, "3", "x"]).exit_code(2);
    assert!(output.stderr.contains("only a prompt can be edited"), "{output:#?}");
    scenario.stop();
    assert_eq!(numbers(&scenario, &[&id]), all);
}

#[test]
fn tool_calls_are_shortened_unless_they_are_wanted() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    let id = scenario.new_session("tool Edit the notes\nterminal seq 11 19");
    let short = scenario.run(&["show", &id]).success().plain().stdout;
    let long = scenario.run(&["show", &id, "--tools", "--ids"]).success().plain().stdout;
    assert!(short.contains("\n  11\n") && !short.contains("\n  19\n"), "{short}");
    assert!(short.contains("more lines (--tools prints all)"), "{short}");
    assert!(long.contains("\n  19\n") && !long.contains("--tools prints all"), "{long}");
    let messages = scenario.run(&["show", &id, "--json"]).success().json();
    let message = messages["messages"][0]["messageId"].as_str().unwrap();
    assert!(long.contains(message) && !short.contains(message), "{long}");
}

#[test]
fn a_long_transcript_on_a_terminal_is_shown_in_the_pager() {
    let scenario = Scenario::new(PARLOR).with_server();
    let words: String = (0..40).map(|n| format!("say Line {n}.\n")).collect();
    let id = scenario.new_session(&words);
    let show = |env: &[(&str, &str)], args: &[&str]| {
        let (code, seen) = Terminal::with_env(&scenario, &[&["show", &id], args].concat(), env).wait();
        assert_eq!(code, Some(0), "{seen}");
        anstream::adapter::strip_str(&seen).to_string()
    };
    let marked = [("PAGER", "sed 's/^/| /'")];
    assert!(show(&marked, &[]).contains("| #1 user"));
    assert!(!show(&marked, &["--no-pager"]).contains("| #1 user"));
    // A short one is printed directly.
    assert!(!show(&marked, &["-1"]).contains("| #"));
    assert!(show(&[("PAGER", "")], &[]).contains("#1 user"));
    // A reader that leaves early, and a pager that does not exist.
    assert!(show(&[("PAGER", "head -n 1")], &[]).contains("say Line 0."));
    let seen = show(&[("PAGER", "no-such-pager")], &[]);
    assert!(seen.contains("cannot run the pager 'no-such-pager'") && seen.contains("#1 user"), "{seen}");
    // In a pipe there is none.
    let output = scenario.command(&["show", &id]).env("PAGER", "sed 's/^/| /'").output().unwrap();
    assert!(!String::from_utf8_lossy(&output.stdout).contains("| #1"));
}

#[test]
fn the_name_of_the_file_selects_the_format() {
    let mut scenario = Scenario::new(PARLOR);
    let id = scenario.new_session("say hello");
    scenario.stop();
    for (name, start) in [
        ("x.html", "<!DOCTYPE html>"),
        ("x.md", "# say hello\n"),
        ("x.json", "{\"sessionId\""),
        ("x.jsonl", "{\"sessionUpdate\""),
    ] {
        scenario.run(&["export", &id, "-o", name]).success();
        let written = fs::read_to_string(scenario.work().join(name)).unwrap();
        assert!(written.starts_with(start), "{name}: {written}");
    }
    let output = scenario.run(&["export", &id, "-o", "x.txt"]).exit_code(2);
    assert!(output.stderr.contains("no known format") && output.stderr.contains("--format"), "{output:#?}");
    scenario.run(&["export", &id, "-o", "x.txt", "--format", "md"]).success();
    assert_eq!(
        scenario.run(&["export", &id, "--format", "md"]).success().stdout,
        scenario.run(&["export", &id, "--format", "markdown", "-o", "-"]).success().stdout
    );
    let exported = scenario.run(&["export", &id]).success().json();
    assert_eq!((&exported["sessionId"], &exported["agent"]), (&json!(id), &json!("demo")));
    assert_eq!(exported["cwd"].as_str(), scenario.work().to_str());
    for date in ["createdAt", "updatedAt"] {
        assert!(exported[date].as_str().unwrap().starts_with("20"), "{exported}");
    }
}

#[test]
fn an_existing_file_stays_unless_it_is_to_be_replaced_and_a_failed_write_leaves_nothing() {
    let mut scenario = Scenario::new(PARLOR);
    let id = scenario.new_session("say hello\nstream 3 100000");
    scenario.stop();
    let file = scenario.work().join("x.md");
    fs::write(&file, "mine").unwrap();
    let output = scenario.run(&["export", &id, "-o", "x.md"]).exit_code(2);
    assert_eq!(output.stderr, "parlor: x.md exists\n  hint: --force replaces it\n");
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    // The disk is full: files may have 200 blocks only, which is enough to read the database.
    let limited = |path: &str| {
        let parlor = scenario.command(&["export", &id, "--force", "-o", path]);
        let mut shell = Command::new("sh");
        shell.arg("-c").arg("trap '' XFSZ; ulimit -f 200; exec \"$@\"").arg("sh").arg(parlor.get_program());
        shell.args(parlor.get_args()).current_dir(scenario.work());
        shell.envs(parlor.get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell.output().unwrap()
    };
    for path in ["x.md", "new.md"] {
        let output = limited(path);
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{err}");
        assert!(err.starts_with(&format!("parlor: cannot write {path}: ")), "{err}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    assert_eq!(fs::read_dir(scenario.work()).unwrap().count(), 1, "nothing is left");
    for path in ["/nowhere/x.md", "x.md/y.md"] {
        let output = scenario.run(&["export", &id, "-o", path]).exit_code(1);
        assert!(output.stderr.starts_with(&format!("parlor: cannot write {path}: ")), "{output:#?}");
    }
    scenario.run(&["export", &id, "-o", "."]).exit_code(2);
    scenario.run(&["export", &id, "-o", "x.md", "--force"]).success();
    assert!(fs::read_to_string(&file).unwrap().starts_with("# say hello"));
}

#[test]
fn images_links_and_tool_inputs_are_exported() {
    let scenario = Scenario::new(PARLOR).with_server();
    let id = scenario.new_session("image\nlink\nterminal printf '\\033[31mred\\033[0m'\nask Delete it");
    let markdown = scenario.run(&["export", &id, "--format", "md"]).success().plain().stdout;
    assert!(markdown.contains("](data:image/png;base64,"), "{markdown}");
    assert!(markdown.contains("](<") || markdown.contains("]("), "{markdown}");
    assert!(markdown.contains("\nred\n```"), "{markdown}");
    let page = scenario.run(&["export", &id, "--format", "html"]).success().plain().stdout;
    assert!(page.contains("<img class=\"media\" src=\"data:image/png;base64,"), "{page}");
    assert!(page.contains("<span class=\"a1\">red</span>"), "{page}");
}

#[test]
fn a_range_may_start_with_a_number_from_the_end() {
    let scenario = Scenario::new(PARLOR);
    scenario.new_session("say one");
    scenario.run(&["prompt", "say two"]).success();
    let shown = |range: &str| scenario.run(&["show", "latest", range]).success().stdout;
    assert_eq!(shown("-2.."), shown("#-2.."));
    assert_eq!(shown("-3..-2"), shown("#-3..#-2"));
    assert!(shown("-2..").contains("two") && !shown("-2..").contains("one"));
}
