//! `prompt`.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use serde_json::json;

use crate::place::{Place, signal, until};

#[test]
fn the_answer_goes_out_and_the_rest_beside_it() {
    let mut place = Place::new();
    let said =
        place.run(&["prompt", "--new", "think hm\nsay one\ntool Edit the notes\nsay two\u{1b}[2J"]).done();
    assert_eq!(said.out, "one\n\ntwo\u{fffd}[2J\n");
    assert!(said.err.starts_with("session ") && said.err.ends_with("\n✓ Edit the notes\n"), "{said:#?}");
    assert!(place.server_pid().is_some(), "it started a server");
    let id = said.err.lines().next().unwrap().strip_prefix("session ").unwrap().to_owned();

    let said = place.run_with(&["prompt", &id, "-"], "say from\nsay input\n").done();
    assert_eq!((said.out.as_str(), said.err.as_str()), ("from\n\ninput\n", ""));
    place.stop();
    // A path from here means the same to the server that is started.
    std::fs::write(place.work().join("own.toml"), "").unwrap();
    assert_eq!(place.run(&["prompt", "--config", "own.toml", "latest", "say again"]).done().out, "again\n");
    let shown = place.run(&["show", "latest"]).done();
    assert!(shown.out.contains("two") && shown.out.contains("input") && shown.out.contains("again"));
}

#[test]
fn json_comes_at_the_end() {
    let place = Place::served();
    let said = place.run(&["prompt", "--new", "--json", "say one\nsay two\ntool It"]).done();
    let json = said.json();
    assert_eq!((&json["text"], &json["stopReason"]), (&json!("one\n\ntwo"), &json!("end_turn")));
    assert_eq!(json["turn"]["toolCalls"][0]["title"], "It");
    assert_eq!(json["turn"]["messages"][0]["messageId"], json["messageId"]);
    let said = place.run(&["prompt", "latest", "--json", "fail -32000 oh no"]).ended(1);
    assert_eq!((&said.json()["stopReason"], &said.json()["error"]), (&json!("error"), &json!("oh no")));
}

#[test]
fn flags_decide_what_the_agent_may_do() {
    let place = Place::served();
    let said = place.run(&["prompt", "--new", "--yes", "ask Delete it"]).done();
    assert!(
        said.out.contains("You allowed it this once.") && said.err.contains("Delete it: Allow"),
        "{said:#?}"
    );
    let said = place.run(&["prompt", "latest", "--no", "ask Delete it"]);
    assert!(said.out.contains("You did not allow it."), "{said:#?}");
    let said = place.run(&["prompt", "latest", "ask Delete it"]).ended(1);
    assert!(said.err.contains("nobody is here to decide") && said.err.contains("cancelled"), "{said:#?}");
}

#[test]
fn what_goes_wrong_is_said() {
    let place = Place::with_test_agent();
    let said = place.run(&["prompt", "some text"]).ended(2);
    assert!(said.err.contains("in which session") && said.err.contains("--new"), "{said:#?}");
    assert!(place.run(&["prompt", "--new", "  "]).ended(2).err.contains("nothing to say"));
    place.run(&["prompt", "--new", "a", "b"]).ended(2);
    place.run(&["prompt", "latest", "--agent", "demo", "x"]).ended(2);
    let said = place.run(&["prompt", "--new", "--agent", "nobody", "x"]).ended(1);
    assert!(said.err.contains("there is no agent 'nobody'"), "{said:#?}");
    let said = place.run(&["prompt", "--new", "--agent", "goose", "x"]).ended(1);
    assert!(said.err.contains("cannot be started") && said.err.contains("parlor agents"), "{said:#?}");
    assert!(place.run(&["prompt", "--new", "--cwd", "/nowhere", "x"]).ended(2).err.contains("no directory"));
    let said = place.run(&["prompt", "--new", "crash"]).ended(1);
    assert!(said.err.contains("the turn ended with error"), "{said:#?}");
}

/// Interrupts a turn as soon as it has spoken, as often as told.
fn interrupted(place: &Place, text: &str, times: usize) -> (Option<i32>, Vec<String>) {
    let mut child = place
        .command(&["prompt", "--new", text])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut spoken = [0; 8];
    out.read_exact(&mut spoken).unwrap();
    assert_eq!(&spoken, b"Hanging.");
    let mut said = vec![err.next().unwrap()];
    for _ in 0..times {
        signal(child.id().cast_signed(), rustix::process::Signal::INT);
        said.push(err.next().unwrap());
    }
    said.extend(err);
    (child.wait().unwrap().code(), said)
}

#[test]
fn an_interrupt_cancels_the_turn() {
    let place = Place::served();
    let (code, said) = interrupted(&place, "say Hanging.\nsleep 60000", 1);
    assert_eq!(code, Some(1));
    assert_eq!(said[1..], ["cancelling; Ctrl-C again leaves at once", "the turn ended with cancelled"]);
    assert!(place.run(&["show", "latest"]).done().out.contains("idle: cancelled"));
}

#[test]
fn a_second_interrupt_leaves_the_turn_alone() {
    let place = Place::with_test_agent();
    let (code, said) = interrupted(&place, "hang", 2);
    assert_eq!(code, Some(1));
    assert!(said[2].contains("goes on without this client"), "{said:?}");
    assert_eq!(place.run(&["ls", "--json"]).json()[0]["state"], "running");
}

#[test]
fn a_prompt_waits_for_the_turn_that_runs() {
    let place = Place::served();
    let mut first = place
        .command(&["prompt", "--new", "sleep 500\nsay first"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until(|| place.run(&["ls", "--json"]).json()[0]["state"] == "running");
    let said = place.run(&["prompt", "latest", "say second"]).done();
    assert_eq!(said.out, "second\n");
    assert!(said.err.contains("a turn runs"), "{said:#?}");
    assert!(first.wait().unwrap().success());
}

#[test]
fn an_interrupt_takes_back_a_prompt_that_waits() {
    let old = format!("old={} test-agent --version 1", env!("CARGO_BIN_EXE_parlor"));
    for args in [&[][..], &["--agent", &old]] {
        let mut place = Place::new();
        place.serve(args);
        let mut first = place
            .command(&["prompt", "--new", "sleep 60000"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until(|| place.run(&["ls", "--json"]).json()[0]["state"] == "running");
        let mut child = place
            .command(&["prompt", "latest", "say never"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut err = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        assert_eq!(err.next().as_deref(), Some("a turn runs; this waits for its end"), "{args:?}");
        signal(child.id().cast_signed(), rustix::process::Signal::INT);
        assert_eq!(
            err.collect::<Vec<_>>(),
            ["cancelling; Ctrl-C again leaves at once", "parlor: the prompt was taken back before its turn"]
        );
        assert_eq!(child.wait().unwrap().code(), Some(1));
        assert_eq!(place.run(&["ls", "--json"]).json()[0]["state"], "running", "the turn of others goes on");
        assert!(!place.run(&["show", "latest"]).done().out.contains("never"));
        place.stop();
        first.wait().unwrap();
    }
}

#[test]
fn what_was_said_before_a_question_is_shown_before_it() {
    let place = Place::served();
    for _ in 0..10 {
        let said = place.run(&["prompt", "--new", "--yes", "tool First\nask Second"]).done();
        let lines: Vec<_> = said.err.lines().skip(1).collect();
        assert_eq!(lines[..2], ["✓ First", "Second: Allow once"], "{said:#?}");
    }
}
