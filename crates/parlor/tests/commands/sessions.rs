//! `ls`, `show`, `export`, `rm` and `status`.

use std::io::Read;
use std::process::Stdio;

use parlor_testkit::process::send_signal;
use parlor_testkit::programs;
use parlor_testkit::scenario::Scenario;
use parlor_testkit::wait::wait_until;
use serde_json::{Value, json};

use crate::PARLOR;

#[test]
fn an_empty_store_is_not_an_error() {
    let scenario = Scenario::new(PARLOR);
    assert!(scenario.run(&["ls"]).success().plain().stdout.contains("no sessions yet"));
    assert_eq!(scenario.run(&["ls", "--json"]).success().json(), json!([]));
    assert!(!scenario.data().exists(), "looking makes nothing");
    for args in [
        &["show", "latest"][..],
        &["export", "latest"],
        &["rm", "--yes", "latest"],
        &["prompt", "-s", "latest", "x"],
    ] {
        let output = scenario.run(args).exit_code(2);
        assert!(output.stderr.contains("no sessions yet") && output.stderr.contains("hint:"), "{output:#?}");
    }
}

#[test]
fn sessions_are_listed_with_and_without_a_server() {
    let mut scenario = Scenario::new(PARLOR).with_server();
    let first = scenario.new_session("say first words\nsay and more");
    let second = scenario.new_session("title A \u{9b}31mtitle");
    for _ in 0..2 {
        let listed = scenario.run(&["ls", "--json"]).success().json();
        let ids: Vec<_> =
            listed.as_array().unwrap().iter().map(|row| row["sessionId"].as_str().unwrap()).collect();
        assert_eq!(ids, [&second, &first]);
        assert_eq!(listed[0]["title"], "A \u{9b}31mtitle");
        assert_eq!(
            (&listed[1]["title"], &listed[1]["firstPrompt"]),
            (&json!("say first words"), &json!(null))
        );
        assert_eq!((&listed[0]["state"], &listed[0]["agent"]), (&json!("idle"), &json!("demo")));
        assert_eq!(listed[0]["cwd"].as_str(), scenario.work().to_str());

        let output = scenario.run(&["ls"]).success().plain();
        let lines: Vec<_> = output.stdout.lines().collect();
        assert_eq!(lines.len(), 3, "{output:#?}");
        assert!(lines[0].starts_with("ID ") && lines[1].contains("A \u{fffd}31mtitle"), "{output:#?}");
        assert!(lines[2].contains("say first words") && lines[2].contains("demo"), "{output:#?}");
        // The listed id selects the session.
        let short = lines[2].split(' ').next().unwrap();
        assert!(first.starts_with(short) && !second.starts_with(short), "{short}");
        assert!(scenario.run(&["show", short]).success().stdout.contains("and more"));
        scenario.stop();
    }
    let work = scenario.work();
    let some = |args: &[&str]| scenario.run(args).success().json().as_array().unwrap().len();
    assert_eq!(some(&["ls", "--json", "--limit", "1"]), 1);
    assert_eq!(some(&["ls", "--json", "--cwd", work.to_str().unwrap()]), 2);
    assert_eq!(some(&["ls", "--json", "--cwd", "."]), 2);
    assert_eq!(some(&["ls", "--json", "--cwd", "/elsewhere"]), 0);
    assert_eq!(some(&["ls", "--json", "--agent", "demo", "--limit", "0"]), 2);
    assert_eq!(some(&["ls", "--json", "--agent", "other"]), 0);
    assert!(scenario.run(&["ls", "--limit", "1"]).success().stderr.contains("There are more"));
    assert!(scenario.run(&["ls", "--agent", "other"]).success().stdout.contains("No sessions match"));
}

#[test]
fn running_and_interrupted_turns_are_listed() {
    let mut scenario = Scenario::new(PARLOR).with_server();
    let mut child = scenario
        .command(&["prompt", "--new", "sleep 60000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let state = || scenario.run(&["ls", "--json"]).json()[0]["state"].clone();
    wait_until("the turn runs", || state() == "running");
    assert!(scenario.run(&["ls"]).success().stdout.contains("  running  "));
    send_signal(scenario.server_pid().unwrap(), rustix::process::Signal::KILL);
    assert_eq!(child.wait().unwrap().code(), Some(5));
    wait_until("the server has exited", || scenario.server_pid().is_none());
    assert_eq!(scenario.run(&["ls", "--json"]).json()[0]["state"], "interrupted");
    // The next server ends the turn before it accepts connections.
    scenario.stop();
    scenario.serve(&[]);
    assert_eq!(scenario.run(&["ls", "--json"]).json()[0]["state"], "failed");
}

#[test]
fn failed_turns_and_decisions_are_printed() {
    let mut scenario = Scenario::new(PARLOR);
    scenario.serve(&["--agent", &format!("test={}", programs::test_agent())]);
    let id = scenario.new_session("ask Delete it");
    scenario.run(&["prompt", "-s", &id, "refuse"]).exit_code(1);
    scenario.run(&["prompt", "-s", &id, "fail -32000 no model"]).exit_code(1);
    scenario.run(&["prompt", "-s", &id, "say fine"]).success();
    scenario.stop();
    let text = ["Delete it (on the command line)", "turn refused by the agent", "turn failed: no model"];
    let html = ["Allowed once on the command line", "Turn refused by the agent", "<p>no model</p>"];
    for (command, parts) in [
        (&["show", &id][..], text),
        (&["export", "--format", "markdown", &id], text),
        (&["export", "--format", "html", &id], html),
    ] {
        let shown = scenario.run(command).success().stdout;
        for part in parts {
            assert!(shown.contains(part), "{command:?}: {part}: {shown}");
        }
    }
    let events = scenario.run(&["show", &id, "--json"]).success().json()["events"].clone();
    let types: Vec<_> = events.as_array().unwrap().iter().map(|event| event["type"].clone()).collect();
    assert_eq!(types, ["decision", "turn_refused", "turn_failed"]);
}

#[test]
fn the_latest_archived_session_is_unarchived() {
    let scenario = Scenario::new(PARLOR).with_server();
    scenario.new_session("say one");
    let second = scenario.new_session("say two");
    assert!(scenario.run(&["archive", "latest"]).success().stdout.contains(&second));
    assert!(scenario.run(&["archive", "--undo", "latest"]).success().stdout.contains(&second));
    assert!(
        scenario
            .run(&["archive", "--undo", "latest"])
            .exit_code(2)
            .stderr
            .contains("there are no archived sessions")
    );
    assert_eq!(scenario.run(&["ls", "--json"]).json().as_array().unwrap().len(), 2);
}

#[test]
fn a_session_name_has_to_match_one_session() {
    let scenario = Scenario::new(PARLOR);
    // Ids are random: create sessions until two have the same first digit.
    let mut ids = vec![scenario.new_session("say one")];
    let (first, second) = loop {
        let next = scenario.new_session("say two");
        if let Some(same) = ids.iter().find(|id| id[..1] == next[..1]) {
            break (same.clone(), next);
        }
        ids.push(next);
    };
    let output = scenario.run(&["show", &first[..1]]).exit_code(2);
    assert!(
        output.stderr.contains("matches 2 sessions") && output.stderr.contains(&first[..8]),
        "{output:#?}"
    );
    for name in ["nonsense", "", "\u{1b}[2J"] {
        let output = scenario.run(&["show", name]).exit_code(2);
        assert!(
            output.stderr.contains("no session has an id or a name that starts with")
                && output.stderr.contains("`parlor ls`"),
            "{output:#?}"
        );
        assert!(!output.stderr.contains('\u{1b}'));
    }
    for name in [&first, "latest", &second[..second.len() - 1]] {
        scenario.run(&["show", name]).success();
    }
}

/// Checks that a session as JSON has everything of a folded transcript. In `order`, it has more.
#[track_caller]
fn assert_same_transcript(session: &Value, folded: &Value) {
    for (name, value) in folded.as_object().unwrap() {
        if name == "order" {
            let listed = session["order"].as_array().unwrap().iter();
            let listed: Vec<_> = listed.map(|entry| (entry["kind"].clone(), entry["id"].clone())).collect();
            let expected = value.as_array().unwrap().iter();
            let expected: Vec<_> =
                expected.map(|entry| (entry["kind"].clone(), entry["id"].clone())).collect();
            assert_eq!(listed, expected);
        } else {
            assert_eq!(&session[name], value, "{name}");
        }
    }
}

#[test]
fn a_transcript_is_printed_and_exported() {
    let mut scenario = Scenario::new(PARLOR);
    let script =
        "think Let me see\ntool Edit the notes\nplan One;Two\nask Delete it\nsay # Done\nterminal echo hi";
    let id = scenario.new_session(script);
    for _ in 0..2 {
        let shown = scenario.run(&["show", &id]).success().plain();
        for part in
            ["#1 user", "#2 thought", "Let me see", "✓ Edit the notes", "plan", "One", "# Done", "4 messages"]
        {
            assert!(shown.stdout.contains(part), "{part}: {shown:#?}");
        }
        assert_eq!(shown.stdout.matches("Hello, world").count(), 1, "a change is shown once: {shown:#?}");
        let json = scenario.run(&["show", &id, "--json"]).success();
        assert_eq!(json.json()["messages"][0]["content"][0]["text"], script);
        assert_eq!(json.stdout, scenario.run(&["export", &id]).success().stdout);
        assert_eq!(json.stdout, scenario.run(&["export", &id, "--json"]).success().stdout);

        let lines = scenario.run(&["export", &id, "--format", "jsonl"]).success();
        let folded = scenario.run_with(&["fold"], &lines.stdout).success();
        assert_same_transcript(&json.json(), &folded.json());

        let file = scenario.path().join("session.md");
        scenario.run(&["export", &id, "--force", "-o", file.to_str().unwrap()]).success();
        let written = std::fs::read_to_string(&file).unwrap();
        for part in [
            "## User",
            "> Let me see",
            "✓ **Edit the notes** (edit, completed)",
            "```diff",
            "**Plan**",
            "] One",
        ] {
            assert!(written.contains(part), "{part}: {written}");
        }
        assert_eq!(written, scenario.run(&["export", &id, "--format", "markdown"]).success().plain().stdout);
        scenario.stop();
    }
    let output = scenario.run(&["export", &id, "-o", "/nowhere/file.json"]).exit_code(1);
    assert!(output.stderr.contains("/nowhere/file.json"), "{output:#?}");
}

#[test]
fn a_session_of_a_v1_agent_is_exported_in_the_words_of_v2() {
    let mut scenario = Scenario::new(PARLOR);
    let agent = format!("old={} --version 1 --no-message-ids", programs::test_agent());
    scenario.serve(&["--agent", &agent]);
    let id = scenario.new_session("say one\ntool Edit the notes\nmode\nterminal echo hi\nsay two");
    let lines = scenario.run(&["export", &id, "--format", "jsonl"]).success();
    assert!(lines.stdout.contains(r#""sessionUpdate":"agent_message""#), "{lines:#?}");
    let folded = scenario.run_with(&["fold"], &lines.stdout).success();
    assert_same_transcript(&scenario.run(&["show", &id, "--json"]).success().json(), &folded.json());
}

#[test]
fn sessions_are_deleted_with_and_without_a_server() {
    let mut scenario = Scenario::new(PARLOR).with_server();
    let ids: Vec<_> = (0..4).map(|n| scenario.new_session(&format!("say {n}"))).collect();
    let output = scenario.run(&["rm", &ids[0]]).exit_code(2);
    assert!(output.stderr.contains("--yes"), "{output:#?}");
    // An unknown session prevents the deletion of the others.
    scenario.run(&["rm", "--yes", &ids[0], "nonsense"]).exit_code(2);
    assert_eq!(scenario.run(&["ls", "--json"]).json().as_array().unwrap().len(), 4);

    assert_eq!(
        scenario.run(&["rm", "--yes", &ids[0], &ids[0]]).success().stdout,
        format!("deleted {}\n", ids[0])
    );
    assert_eq!(scenario.run(&["rm", "--yes", "--json", &ids[1]]).success().json(), json!([ids[1]]));
    scenario.stop();
    scenario.run(&["rm", "-y", &ids[2]]).success();
    assert!(scenario.server_pid().is_none(), "no server is started for it");
    let left = scenario.run(&["ls", "--json"]).success().json();
    assert_eq!((left.as_array().unwrap().len(), &left[0]["sessionId"]), (1, &json!(ids[3])));
}

#[test]
fn the_status_lists_running_agents() {
    let mut scenario = Scenario::new(PARLOR);
    let output = scenario.run(&["status"]).exit_code(1).plain();
    assert!(output.stdout.contains("○ no server is running for "), "{output:#?}");
    let json = scenario.run(&["status", "--json"]).exit_code(1).json();
    assert_eq!((&json["running"], json["data"].as_str()), (&json!(false), scenario.data().to_str()));

    scenario.serve(&[]);
    let json = scenario.run(&["status", "--json"]).success().json();
    assert_eq!(json["pid"].as_i64(), scenario.server_pid().map(i64::from));
    assert_eq!(
        (&json["clients"], &json["liveSessions"], &json["agents"]),
        (&json!(0), &json!(0), &json!([]))
    );
    assert!(json["address"].as_str().unwrap().starts_with("http://127.0.0.1:"));
    scenario.new_session("say hello");
    let json = scenario.run(&["status", "--json"]).success().json();
    assert_eq!((&json["liveSessions"], &json["agents"][0]["name"]), (&json!(1), &json!("demo")));
    let output = scenario.run(&["status"]).success().plain();
    assert!(output.stdout.contains("runs as process") && output.stdout.contains("SESSIONS"), "{output:#?}");
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let mut scenario = Scenario::new(PARLOR);
    let id = scenario.new_session("big 1000000");
    scenario.stop();
    for args in [&["export", &id, "--format", "markdown"][..], &["show", &id], &["show", &id, "--json"]] {
        let mut child = scenario.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut output = String::new();
        child.stderr.take().unwrap().read_to_string(&mut output).unwrap();
        assert_eq!((child.wait().unwrap().code(), output.as_str()), (Some(0), ""), "{args:?}");
    }
}

/// Terminal escape sequences, other control characters and bidirectional controls, as a JSON string.
const HOSTILE: &str = r"x\u001b[2J\u001b]0;t\u0007\u009b1m\r\b\u202e\u2066\u200fy";

/// Checks that a text has no control characters and no bidirectional controls.
#[track_caller]
fn is_harmless(what: &str, text: &str) {
    let is_bidi = |c: char| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_harmful = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || is_bidi(c);
    let harmful: Vec<_> = text.lines().filter(|line| line.contains(is_harmful)).collect();
    assert!(harmful.is_empty(), "{what}: {harmful:?}");
}

#[test]
fn no_command_prints_control_characters_of_agents() {
    let mut scenario = Scenario::new(PARLOR).with_test_agent();
    let hostile: String = serde_json::from_str(&format!("\"{HOSTILE}\"")).unwrap();
    let check = |args: &[&str], input: &str| {
        let output = scenario.run_with(args, input);
        for text in [&output.stdout, &output.stderr] {
            is_harmless(&args.join(" "), text);
        }
        output
    };
    // The title is generated from this.
    let prompt =
        format!("say heron {hostile}\nthink {hostile}\ntool {hostile}\nask {hostile}\nfail -32000 {hostile}");
    let output = check(&["prompt", "--new", "--yes", "-"], &prompt);
    assert!(output.stdout.contains("heron"), "{output:#?}");
    let id = scenario.run(&["ls", "--json"]).success().json()[0]["sessionId"].as_str().unwrap().to_owned();
    assert!(check(&["ls"], "").success().stdout.contains("heron"));
    // All kinds of entries, with these characters in every string.
    let lines = include_str!("../hostile.jsonl").lines();
    let raw =
        lines.map(|line| format!(r#"raw {{"sessionId":"SESSION","update":{line}}}"#).replace('!', HOSTILE));
    let prompt = raw.chain(["say heron".to_owned()]).collect::<Vec<_>>().join("\n");
    let output = check(&["prompt", "-s", &id, "-"], &prompt);
    assert!(output.stdout.contains("heron"), "{output:#?}");
    scenario.run(&["prompt", "-s", &id, "say heron", "--json"]).success();
    let look = |scenario: &Scenario| {
        for args in [
            &["ls"][..],
            &["search", "heron"],
            &["show", &id],
            &["export", "--format", "markdown", &id],
            &["export", "--format", "html", &id],
        ] {
            let output = scenario.run(args).success();
            is_harmless(&args.join(" "), &output.stdout);
            is_harmless(&args.join(" "), &output.stderr);
            assert!(
                output.stdout.contains(if args[0] == "ls" { "x\u{fffd}[2J" } else { "heron" }),
                "{output:#?}"
            );
        }
    };
    look(&scenario);
    scenario.stop();
    look(&scenario);
}

#[test]
fn the_titles_of_an_agent_that_is_built_with_parlor_are_set_and_cleared_without_losses() {
    let scenario = Scenario::new(PARLOR).with_server();
    let id = scenario.new_session("say hello");
    for (prompt, title) in [("title A name", "A name"), ("title", "say hello"), ("title Another", "Another")]
    {
        scenario.run(&["prompt", "-s", &id, prompt]).success();
        let listed = scenario.run(&["ls", "--json"]).success().json();
        assert_eq!(listed[0]["title"], title, "{prompt}");
    }
    let status = scenario.run(&["status", "--json"]).success().json();
    assert_eq!(status["losses"], json!([]), "{status}");
}
