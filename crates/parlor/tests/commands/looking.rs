//! `ls`, `show`, `export`, `rm` and `status`.

use std::io::Read;
use std::process::Stdio;

use parlor_testkit::programs;
use serde_json::json;

use crate::place::{Place, signal, until};

#[test]
fn an_empty_store_is_no_mistake() {
    let place = Place::new();
    assert!(place.run(&["ls"]).done().plain().out.contains("no sessions yet"));
    assert_eq!(place.run(&["ls", "--json"]).done().json(), json!([]));
    assert!(!place.data().exists(), "looking makes nothing");
    for args in [
        &["show", "latest"][..],
        &["export", "latest"],
        &["rm", "--yes", "latest"],
        &["prompt", "latest", "x"],
    ] {
        let said = place.run(args).ended(2);
        assert!(said.err.contains("no sessions yet") && said.err.contains("hint:"), "{said:#?}");
    }
}

#[test]
fn sessions_are_listed_with_and_without_a_server() {
    let mut place = Place::served();
    let first = place.begin("say first words\nsay and more");
    let second = place.begin("title A \u{9b}31mtitle");
    for _ in 0..2 {
        let listed = place.run(&["ls", "--json"]).done().json();
        let ids: Vec<_> =
            listed.as_array().unwrap().iter().map(|row| row["sessionId"].as_str().unwrap()).collect();
        assert_eq!(ids, [&second, &first]);
        assert_eq!(listed[0]["title"], "A \u{9b}31mtitle");
        assert_eq!(
            (&listed[1]["title"], &listed[1]["firstPrompt"]),
            (&json!("say first words"), &json!(null))
        );
        assert_eq!((&listed[0]["state"], &listed[0]["agent"]), (&json!("idle"), &json!("demo")));
        assert_eq!(listed[0]["cwd"].as_str(), place.work().to_str());

        let said = place.run(&["ls"]).done().plain();
        let lines: Vec<_> = said.out.lines().collect();
        assert_eq!(lines.len(), 3, "{said:#?}");
        assert!(lines[0].starts_with("ID ") && lines[1].contains("A \u{fffd}31mtitle"), "{said:#?}");
        assert!(lines[2].contains("say first words") && lines[2].contains("demo"), "{said:#?}");
        // What is listed names the session.
        let short = lines[2].split(' ').next().unwrap();
        assert!(first.starts_with(short) && !second.starts_with(short), "{short}");
        assert!(place.run(&["show", short]).done().out.contains("and more"));
        place.stop();
    }
    let work = place.work();
    let some = |args: &[&str]| place.run(args).done().json().as_array().unwrap().len();
    assert_eq!(some(&["ls", "--json", "--limit", "1"]), 1);
    assert_eq!(some(&["ls", "--json", "--cwd", work.to_str().unwrap()]), 2);
    assert_eq!(some(&["ls", "--json", "--cwd", "."]), 2);
    assert_eq!(some(&["ls", "--json", "--cwd", "/elsewhere"]), 0);
    assert_eq!(some(&["ls", "--json", "--agent", "demo", "--limit", "0"]), 2);
    assert_eq!(some(&["ls", "--json", "--agent", "other"]), 0);
    assert!(place.run(&["ls", "--limit", "1"]).done().out.contains("There are more"));
    assert!(place.run(&["ls", "--agent", "other"]).done().out.contains("No session is like that"));
}

#[test]
fn a_turn_is_seen_to_run_and_to_have_been_interrupted() {
    let mut place = Place::served();
    let mut child = place
        .command(&["prompt", "--new", "sleep 60000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let state = || place.run(&["ls", "--json"]).json()[0]["state"].clone();
    until(|| state() == "running");
    assert!(place.run(&["ls"]).done().out.contains("● running"));
    signal(place.server_pid().unwrap(), rustix::process::Signal::KILL);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    until(|| place.server_pid().is_none());
    assert_eq!(place.run(&["ls", "--json"]).json()[0]["state"], "interrupted");
    // The next server has ended the turn before anybody finds it.
    place.stop();
    place.serve(&[]);
    assert_eq!(place.run(&["ls", "--json"]).json()[0]["state"], "idle");
}

#[test]
fn turns_that_did_not_end_well_and_decisions_stay_visible() {
    let mut place = Place::new();
    place.serve(&["--agent", &format!("test={}", programs::test_agent())]);
    let id = place.begin("ask Delete it");
    place.run(&["prompt", &id, "refuse"]).ended(1);
    place.run(&["prompt", &id, "fail -32000 no model"]).ended(1);
    place.run(&["prompt", &id, "say fine"]).done();
    place.stop();
    for command in
        [&["show", &id][..], &["export", "--format", "markdown", &id], &["export", "--format", "html", &id]]
    {
        let shown = place.run(command).done().out;
        for part in ["Delete it (by parlor)", "turn refused by the agent", "turn failed: no model"] {
            assert!(shown.contains(part), "{command:?}: {part}: {shown}");
        }
    }
    let events = place.run(&["show", &id, "--json"]).done().json()["events"].clone();
    let types: Vec<_> = events.as_array().unwrap().iter().map(|event| event["type"].clone()).collect();
    assert_eq!(types, ["decision", "turn_refused", "turn_failed"]);
}

#[test]
fn the_latest_that_was_put_away_is_taken_out_again() {
    let place = Place::served();
    place.begin("say one");
    let second = place.begin("say two");
    assert!(place.run(&["archive", "latest"]).done().out.contains(&second));
    assert!(place.run(&["archive", "--undo", "latest"]).done().out.contains(&second));
    assert!(place.run(&["archive", "--undo", "latest"]).ended(2).err.contains("no session is archived"));
    assert_eq!(place.run(&["ls", "--json"]).json().as_array().unwrap().len(), 2);
}

#[test]
fn names_have_to_mean_one_session() {
    let place = Place::new();
    // Ids are random: until two begin with the same digit.
    let mut ids = vec![place.begin("say one")];
    let (first, second) = loop {
        let next = place.begin("say two");
        if let Some(same) = ids.iter().find(|id| id[..1] == next[..1]) {
            break (same.clone(), next);
        }
        ids.push(next);
    };
    let said = place.run(&["show", &first[..1]]).ended(2);
    assert!(said.err.contains("beginning of 2 ids") && said.err.contains(&first), "{said:#?}");
    for name in ["nonsense", "", "\u{1b}[2J"] {
        let said = place.run(&["show", name]).ended(2);
        assert!(said.err.contains("there is no session") && said.err.contains("`parlor ls`"), "{said:#?}");
        assert!(!said.err.contains('\u{1b}'));
    }
    for name in [&first, "latest", &second[..second.len() - 1]] {
        place.run(&["show", name]).done();
    }
}

#[test]
fn a_transcript_is_shown_and_exported() {
    let mut place = Place::new();
    let script =
        "think Let me see\ntool Edit the notes\nplan One;Two\nask Delete it\nsay # Done\nterminal echo hi";
    let id = place.begin(script);
    for _ in 0..2 {
        let shown = place.run(&["show", &id]).done().plain();
        for part in
            ["user", "thought", "Let me see", "✓ Edit the notes", "plan", "One", "# Done", "idle: end_turn"]
        {
            assert!(shown.out.contains(part), "{part}: {shown:#?}");
        }
        assert_eq!(shown.out.matches("Hello, world").count(), 1, "a change is shown once: {shown:#?}");
        let json = place.run(&["show", &id, "--json"]).done();
        assert_eq!(json.json()["messages"][0]["content"][0]["text"], script);
        assert_eq!(json.out, place.run(&["export", &id]).done().out);
        assert_eq!(json.out, place.run(&["export", &id, "--json"]).done().out);

        let lines = place.run(&["export", &id, "--format", "jsonl"]).done();
        let folded = place.run_with(&["fold"], &lines.out).done();
        assert_eq!(folded.json(), json.json());

        let file = place.path().join("session.md");
        place.run(&["export", &id, "--format", "markdown", "-o", file.to_str().unwrap()]).done();
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
        assert_eq!(written, place.run(&["export", &id, "--format", "markdown"]).done().plain().out);
        place.stop();
    }
    let said = place.run(&["export", &id, "-o", "/nowhere/file"]).ended(1);
    assert!(said.err.contains("/nowhere/file"), "{said:#?}");
}

#[test]
fn a_session_of_a_v1_agent_is_exported_in_the_words_of_v2() {
    let mut place = Place::new();
    let agent = format!("old={} --version 1 --no-message-ids", programs::test_agent());
    place.serve(&["--agent", &agent]);
    let id = place.begin("say one\ntool Edit the notes\nmode\nterminal echo hi\nsay two");
    let lines = place.run(&["export", &id, "--format", "jsonl"]).done();
    assert!(lines.out.contains(r#""sessionUpdate":"agent_message""#), "{lines:#?}");
    let folded = place.run_with(&["fold"], &lines.out).done();
    assert_eq!(folded.json(), place.run(&["show", &id, "--json"]).done().json());
}

#[test]
fn sessions_are_deleted_with_and_without_a_server() {
    let mut place = Place::served();
    let ids: Vec<_> = (0..4).map(|n| place.begin(&format!("say {n}"))).collect();
    let said = place.run(&["rm", &ids[0]]).ended(2);
    assert!(said.err.contains("--yes"), "{said:#?}");
    // One that is not there keeps all others.
    place.run(&["rm", "--yes", &ids[0], "nonsense"]).ended(2);
    assert_eq!(place.run(&["ls", "--json"]).json().as_array().unwrap().len(), 4);

    assert_eq!(place.run(&["rm", "--yes", &ids[0], &ids[0]]).done().out, format!("deleted {}\n", ids[0]));
    assert_eq!(place.run(&["rm", "--yes", "--json", &ids[1]]).done().json(), json!([ids[1]]));
    place.stop();
    place.run(&["rm", "-y", &ids[2]]).done();
    assert!(place.server_pid().is_none(), "no server is started for it");
    let left = place.run(&["ls", "--json"]).done().json();
    assert_eq!((left.as_array().unwrap().len(), &left[0]["sessionId"]), (1, &json!(ids[3])));
}

#[test]
fn the_status_says_what_runs() {
    let mut place = Place::new();
    let said = place.run(&["status"]).ended(1).plain();
    assert!(said.out.contains("No server runs"), "{said:#?}");
    let json = place.run(&["status", "--json"]).ended(1).json();
    assert_eq!((&json["running"], json["data"].as_str()), (&json!(false), place.data().to_str()));

    place.serve(&[]);
    let json = place.run(&["status", "--json"]).done().json();
    assert_eq!(json["pid"].as_i64(), place.server_pid().map(i64::from));
    assert_eq!(
        (&json["clients"], &json["liveSessions"], &json["agents"]),
        (&json!(0), &json!(0), &json!([]))
    );
    assert!(json["address"].as_str().unwrap().starts_with("http://127.0.0.1:"));
    place.begin("say hello");
    let json = place.run(&["status", "--json"]).done().json();
    assert_eq!((&json["liveSessions"], &json["agents"][0]["name"]), (&json!(1), &json!("demo")));
    let said = place.run(&["status"]).done().plain();
    assert!(said.out.contains("runs as process") && said.out.contains("SESSIONS"), "{said:#?}");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut place = Place::new();
    let id = place.begin("big 1000000");
    place.stop();
    for args in [&["export", &id, "--format", "markdown"][..], &["show", &id], &["show", &id, "--json"]] {
        let mut child = place.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""), "{args:?}");
    }
}

/// Escapes of a terminal, other controls, and what reorders text, as JSON writes them.
const HOSTILE: &str = r"x\u001b[2J\u001b]0;t\u0007\u009b1m\r\b\u202e\u2066\u200fy";

/// Nothing that moves a terminal or reorders its text.
#[track_caller]
fn is_harmless(what: &str, text: &str) {
    let is_bidi = |c: char| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_harmful = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || is_bidi(c);
    let harmful: Vec<_> = text.lines().filter(|line| line.contains(is_harmful)).collect();
    assert!(harmful.is_empty(), "{what}: {harmful:?}");
}

#[test]
fn no_command_prints_what_would_change_the_terminal() {
    let mut place = Place::with_test_agent();
    let hostile: String = serde_json::from_str(&format!("\"{HOSTILE}\"")).unwrap();
    let check = |args: &[&str], input: &str| {
        let said = place.run_with(args, input);
        for text in [&said.out, &said.err] {
            is_harmless(&args.join(" "), text);
        }
        said
    };
    // The title is made of this.
    let prompt =
        format!("say heron {hostile}\nthink {hostile}\ntool {hostile}\nask {hostile}\nfail -32000 {hostile}");
    let said = check(&["prompt", "--new", "--yes", "-"], &prompt);
    assert!(said.out.contains("heron"), "{said:#?}");
    let id = place.run(&["ls", "--json"]).done().json()[0]["sessionId"].as_str().unwrap().to_owned();
    assert!(check(&["ls"], "").done().out.contains("heron"));
    // All kinds of entries, with that in every string.
    let lines = include_str!("../hostile.jsonl").lines();
    let raw =
        lines.map(|line| format!(r#"raw {{"sessionId":"SESSION","update":{line}}}"#).replace('!', HOSTILE));
    let prompt = raw.chain(["say heron".to_owned()]).collect::<Vec<_>>().join("\n");
    let said = check(&["prompt", &id, "-"], &prompt);
    assert!(said.out.contains("heron"), "{said:#?}");
    place.run(&["prompt", &id, "say heron", "--json"]).done();
    let look = |place: &Place| {
        for args in [
            &["ls"][..],
            &["search", "heron"],
            &["show", &id],
            &["export", "--format", "markdown", &id],
            &["export", "--format", "html", &id],
        ] {
            let said = place.run(args).done();
            is_harmless(&args.join(" "), &said.out);
            is_harmless(&args.join(" "), &said.err);
            assert!(said.out.contains(if args[0] == "ls" { "x\u{fffd}[2J" } else { "heron" }), "{said:#?}");
        }
    };
    look(&place);
    place.stop();
    look(&place);
}
