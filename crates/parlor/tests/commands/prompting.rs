//! `prompt`.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use parlor_testkit::process::{exit_status, send_signal};
use parlor_testkit::programs;
use parlor_testkit::scenario::Scenario;
use parlor_testkit::wait::wait_until;
use serde_json::json;

use crate::PARLOR;
use crate::terminal::Seat;

#[test]
fn the_answer_goes_out_and_the_rest_beside_it() {
    let mut scenario = Scenario::new(PARLOR);
    let said = scenario
        .run(&["prompt", "--new", "think hm\nsay one\ntool Edit the notes\nsay two\u{1b}[2J"])
        .success();
    assert_eq!(said.stdout, "one\n\ntwo\u{fffd}[2J\n");
    assert!(
        said.stderr.starts_with("session ") && said.stderr.ends_with("\n✓ Edit the notes\n"),
        "{said:#?}"
    );
    assert!(scenario.server_pid().is_some(), "it started a server");
    let id = said.stderr.lines().next().unwrap().strip_prefix("session ").unwrap().to_owned();

    let said = scenario.run_with(&["prompt", &id, "-"], "say from\nsay input\n").success();
    assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("from\n\ninput\n", ""));
    scenario.stop();
    // A path from here means the same to the server that is started.
    std::fs::write(scenario.work().join("own.toml"), "").unwrap();
    assert_eq!(
        scenario.run(&["prompt", "--config", "own.toml", "latest", "say again"]).success().stdout,
        "again\n"
    );
    let shown = scenario.run(&["show", "latest"]).success();
    assert!(shown.stdout.contains("two") && shown.stdout.contains("input") && shown.stdout.contains("again"));
}

#[test]
fn json_comes_at_the_end() {
    let scenario = Scenario::new(PARLOR).with_server();
    let said = scenario.run(&["prompt", "--new", "--json", "say one\nsay two\ntool It"]).success();
    let json = said.json();
    assert_eq!((&json["text"], &json["stopReason"]), (&json!("one\n\ntwo"), &json!("end_turn")));
    assert_eq!(json["turn"]["toolCalls"][0]["title"], "It");
    assert_eq!(json["turn"]["messages"][0]["messageId"], json["messageId"]);
    let said = scenario.run(&["prompt", "latest", "--json", "fail -32000 oh no"]).exit_code(1);
    assert_eq!((&said.json()["stopReason"], &said.json()["error"]), (&json!("error"), &json!("oh no")));
}

#[test]
fn flags_decide_what_the_agent_may_do() {
    let scenario = Scenario::new(PARLOR).with_server();
    let said = scenario.run(&["prompt", "--new", "--yes", "ask Delete it"]).success();
    assert!(
        said.stdout.contains("You allowed it this once.") && said.stderr.contains("Delete it: Allow"),
        "{said:#?}"
    );
    let said = scenario.run(&["prompt", "latest", "--no", "ask Delete it"]);
    assert!(said.stdout.contains("You did not allow it."), "{said:#?}");
    // Without a terminal it is left to others; there is nobody.
    let said = scenario.run(&["prompt", "latest", "ask Delete it"]).exit_code(1);
    assert!(
        said.stderr.contains("no terminal to ask") && said.stderr.contains("no client answered"),
        "{said:#?}"
    );
    assert!(!said.stdout.contains("You allowed"), "{said:#?}");
    // A form cannot be filled in without one, and that is said.
    let said = scenario.run(&["prompt", "latest", "--yes", "elicit"]).exit_code(1);
    assert!(said.stderr.contains("no terminal to fill it in"), "{said:#?}");
    let said = scenario.run(&["prompt", "latest", "--no", "elicit"]).success();
    assert!(said.stderr.contains("declined (--no)"), "{said:#?}");
}

/// A prompt that runs beside others.
fn begin(scenario: &Scenario, args: &[&str]) -> std::process::Child {
    let mut command = scenario.command(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_prompt_that_waits_answers_nothing_of_the_turn_that_runs() {
    for agent in ["--version 1", "--version 2"] {
        let mut scenario = Scenario::new(PARLOR);
        scenario.serve(&["--agent", &format!("test={} {agent}", programs::test_agent())]);
        let mut first = Seat::new(&scenario, &["prompt", "--new", "ask Delete it\nsay first"]);
        first.sees("Answer (1-");
        let waiting =
            ["--yes", "--no"].map(|flag| begin(&scenario, &["prompt", "latest", flag, "say waits"]));
        let silent = begin(&scenario, &["prompt", "latest", "say waits"]);
        let mut children = Vec::new();
        for mut child in waiting.into_iter().chain([silent]) {
            let mut err = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
            assert_eq!(err.next().as_deref(), Some("another turn is running; the prompt is queued"));
            children.push((child, err));
        }
        // The request is still there for the one whose turn it is.
        first.types("n\n");
        let (_, seen) = first.ends();
        assert!(seen.contains("reject-once") && !seen.contains("another client"), "{seen}");
        for (child, err) in children {
            let said = child.wait_with_output().unwrap();
            assert!(said.status.success());
            assert_eq!(String::from_utf8(said.stdout).unwrap(), "waits\n");
            assert_eq!(err.collect::<Vec<_>>(), Vec::<String>::new());
        }
        scenario.stop();
    }
}

#[test]
fn what_is_asked_without_a_terminal_is_left_to_those_who_have_one() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    let id = scenario.new_session("say hello");
    let mut other = Seat::new(&scenario, &["prompt", &id, "ask First"]);
    other.sees("Answer (1-");
    let mut second = begin(&scenario, &["prompt", &id, "ask Second\nsay done"]);
    let mut err = BufReader::new(second.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(err.next().as_deref(), Some("another turn is running; the prompt is queued"));
    // A client that stays is asked as well.
    let mut editor = crate::editor(&scenario);
    editor.load(&id);
    other.types("y\n");
    assert_eq!(other.ends().0, Some(0));
    crate::allow(&mut editor, "Second");
    let said = second.wait_with_output().unwrap();
    let err: Vec<_> = err.collect();
    assert!(said.status.success(), "{err:?}");
    assert!(err.iter().any(|line| line.contains("left to other clients")), "{err:?}");
    assert!(!err.iter().any(|line| line.contains("no client answered")), "{err:?}");
}

#[test]
fn prompts_that_wait_do_not_keep_a_request_open_that_nobody_can_decide() {
    for waiting in [&[][..], &["--yes"], &["--no"]] {
        for agent in ["--version 1", "--version 2"] {
            let mut scenario = Scenario::new(PARLOR);
            scenario.serve(&["--agent", &format!("test={} {agent}", programs::test_agent())]);
            let id = scenario.new_session("say hello");
            let mut first = begin(&scenario, &["prompt", &id, "sleep 1500\nask Delete it\nsay first"]);
            wait_until("the turn runs", || scenario.run(&["ls", "--json"]).json()[0]["state"] == "running");
            let second = begin(&scenario, &[&["prompt", &id, "say second"], waiting].concat());
            exit_status(&mut first);
            let said = first.wait_with_output().unwrap();
            let err = String::from_utf8(said.stderr).unwrap();
            assert_eq!(said.status.code(), Some(1), "{err}");
            assert!(err.contains("Delete it: declined, because no client answered"), "{err}");
            let said = second.wait_with_output().unwrap();
            assert_eq!(String::from_utf8_lossy(&said.stdout), "second\n");
            assert_eq!(
                String::from_utf8_lossy(&said.stderr),
                "another turn is running; the prompt is queued\n"
            );
            assert!(said.status.success());
            scenario.stop();
        }
    }
}

#[test]
fn a_request_that_a_waiting_prompt_declines_is_still_decided_by_an_editor() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    let id = scenario.new_session("say hello");
    let mut editor = crate::editor(&scenario);
    editor.load(&id);
    let first = begin(&scenario, &["prompt", &id, "sleep 500\nask Delete it\nsay first"]);
    wait_until("the turn runs", || scenario.run(&["ls", "--json"]).json()[0]["state"] == "running");
    let second = begin(&scenario, &["prompt", &id, "say second"]);
    crate::allow(&mut editor, "Delete it");
    let said = first.wait_with_output().unwrap();
    assert!(said.status.success(), "{said:?}");
    assert!(String::from_utf8_lossy(&said.stdout).contains("first"), "{said:?}");
    assert_eq!(String::from_utf8_lossy(&second.wait_with_output().unwrap().stdout), "second\n");
}

#[test]
fn each_of_many_queued_prompts_gets_its_own_answer_and_exit_code() {
    for agent in ["--version 1", "--version 2"] {
        let mut scenario = Scenario::new(PARLOR);
        scenario.serve(&["--agent", &format!("test={} {agent}", programs::test_agent())]);
        let id = scenario.new_session("say hello");
        let children: Vec<_> = (0..12)
            .map(|n| {
                let text = if n % 3 == 2 { format!("say {n}\nrefuse") } else { format!("say {n}") };
                begin(&scenario, &["prompt", &id, &text])
            })
            .collect();
        for (n, child) in children.into_iter().enumerate() {
            let said = child.wait_with_output().unwrap();
            assert_eq!(String::from_utf8_lossy(&said.stdout), format!("{n}\n"), "{agent}");
            assert_eq!(said.status.code(), Some(i32::from(n % 3 == 2)), "{agent}: {n}: {said:?}");
        }
        scenario.stop();
    }
}

#[test]
fn what_goes_wrong_is_said() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    let said = scenario.run(&["prompt", "some text"]).exit_code(2);
    assert!(
        said.stderr.contains("the session or the text is missing") && said.stderr.contains("--new"),
        "{said:#?}"
    );
    assert!(scenario.run(&["prompt", "--new", "  "]).exit_code(2).stderr.contains("the prompt is empty"));
    scenario.run(&["prompt", "--new", "a", "b"]).exit_code(2);
    scenario.run(&["prompt", "latest", "--agent", "demo", "x"]).exit_code(2);
    let said = scenario.run(&["prompt", "--new", "--agent", "nobody", "x"]).exit_code(1);
    assert!(said.stderr.contains("unknown agent 'nobody'"), "{said:#?}");
    let said = scenario.run(&["prompt", "--new", "--agent", "goose", "x"]).exit_code(1);
    assert!(said.stderr.contains("cannot start agent") && said.stderr.contains("parlor agents"), "{said:#?}");
    assert!(
        scenario
            .run(&["prompt", "--new", "--cwd", "/nowhere", "x"])
            .exit_code(2)
            .stderr
            .contains("is not a directory")
    );
    let said = scenario.run(&["prompt", "--new", "crash"]).exit_code(1);
    assert!(said.stderr.contains("the turn ended with error"), "{said:#?}");
}

#[test]
fn a_directory_is_stored_as_everybody_names_it_and_options_without_effect_are_refused() {
    let mut scenario = Scenario::new(PARLOR);
    std::fs::create_dir(scenario.work().join("inner")).unwrap();
    std::fs::write(scenario.work().join("own.toml"), "").unwrap();
    std::fs::write(scenario.work().join("other.toml"), "").unwrap();
    scenario.serve(&["--config", "own.toml"]);
    scenario.run(&["prompt", "--new", "--cwd", "inner/..", "say hello"]).success();
    let listed = scenario.run(&["ls", "--json"]).json();
    let work = scenario.work().canonicalize().unwrap();
    assert_eq!(listed[0]["cwd"], work.to_str().unwrap());

    for refused in [&["--agent", "demo"][..], &["--cwd", "inner"]] {
        let said = scenario.run(&[&["prompt", "latest", "x"], refused].concat()).exit_code(2);
        assert!(said.stderr.contains(&format!("{} has no effect", refused.join(" "))), "{said:#?}");
    }
    let said = scenario.run(&["prompt", "--config", "other.toml", "latest", "say again"]).exit_code(2);
    assert!(said.stderr.contains("--config other.toml has no effect"), "{said:#?}");
    // The one that the server has is fine.
    scenario.run(&["prompt", "--config", "own.toml", "latest", "say again"]).success();
}

#[test]
fn a_session_of_an_agent_that_is_parlor_itself_keeps_its_title_after_a_restart() {
    let mut scenario = Scenario::new(PARLOR).with_server();
    let id = scenario.new_session("say Fix the bug");
    let title = |scenario: &Scenario| scenario.run(&["ls", "--json"]).json()[0]["title"].clone();
    let before = title(&scenario);
    assert_eq!(before, "say Fix the bug");
    scenario.stop();
    scenario.serve(&[]);
    scenario.run(&["prompt", &id, "say Another thing"]).success();
    assert_eq!(title(&scenario), before);
    let shown = scenario.run(&["show", &id, "--json"]).success().json();
    assert_eq!(shown["info"]["_meta"]["parlor/title"], "made");
}

/// Agents that take their time to start, some for ever.
fn slow_agents(scenario: &Scenario) {
    let config = format!(
        r#"
[agents.slow]
command = ["sh", "-c", "test -e fast || sleep 4; exec {agent} --state {state}"]
[agents.hangs]
command = ["sh", "-c", "echo reading the license >&2; echo the license server is down >&2; exec sleep 600"]
startup_timeout = 4
"#,
        agent = programs::test_agent(),
        state = scenario.path().join("state").display(),
    );
    std::fs::write(scenario.work().join("slow.toml"), config).unwrap();
}

#[test]
fn an_agent_that_starts_slowly_is_waited_for_with_a_word() {
    let mut scenario = Scenario::new(PARLOR);
    slow_agents(&scenario);
    scenario.serve(&["--config", "slow.toml"]);
    let waiting = "waiting for agent 'slow' to start ...";
    for flag in [None, Some("--json")] {
        let args = [&["prompt", "--new", "--agent", "slow", "say hello"][..], flag.as_slice()].concat();
        let said = scenario.run(&args).success();
        assert_eq!(said.stderr.lines().filter(|line| *line == waiting).count(), 1, "{said:#?}");
        assert!(said.stdout.contains("hello"), "{said:#?}");
        scenario.stop();
        scenario.serve(&["--config", "slow.toml"]);
    }
    // So it is where the agent is needed for a prompt only, and on a terminal.
    let seat = Seat::new(&scenario, &["prompt", "latest", "say again"]);
    seat.sees("waiting for agent 'slow'");
    let (code, seen) = seat.ends();
    assert_eq!((code, seen.matches("waiting for").count()), (Some(0), 1), "{seen}");
    assert!(seen.contains("again"), "{seen}");
    // Once it runs there is nothing to wait for.
    let said = scenario.run(&["prompt", "latest", "sleep 3000\nsay done"]).success();
    assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("done\n", ""));
}

#[test]
fn an_agent_that_never_starts_is_reported_with_its_last_words_and_a_hint() {
    let mut scenario = Scenario::new(PARLOR);
    slow_agents(&scenario);
    scenario.serve(&["--config", "slow.toml"]);
    let said = scenario.run(&["prompt", "--new", "--agent", "hangs", "say hello"]).exit_code(1);
    let expected = "waiting for agent 'hangs' to start ...\n\
                    parlor: agent 'hangs' did not answer initialize within 4 s: the license server is down\n  \
                    the agent's last lines on standard error:\n    reading the license\n    the license server is down\n  \
                    hint: ";
    assert!(said.stderr.starts_with(expected), "{said:#?}");
    assert!(said.stderr.contains("startup_timeout") && said.stdout.is_empty(), "{said:#?}");
}

/// Interrupts a turn as soon as it has spoken, as often as told.
fn interrupted(scenario: &Scenario, text: &str, times: usize) -> (Option<i32>, Vec<String>) {
    let mut child = scenario
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
        send_signal(child.id(), rustix::process::Signal::INT);
        said.push(err.next().unwrap());
    }
    said.extend(err);
    (child.wait().unwrap().code(), said)
}

#[test]
fn an_interrupt_cancels_the_turn() {
    let scenario = Scenario::new(PARLOR).with_server();
    let (code, said) = interrupted(&scenario, "say Hanging.\nsleep 60000", 1);
    assert_eq!(code, Some(1));
    assert_eq!(said[1..], ["cancelling; Ctrl-C again detaches", "the turn ended with cancelled"]);
    assert!(scenario.run(&["show", "latest"]).success().stdout.contains("idle: cancelled"));
}

#[test]
fn an_interrupt_leaves_the_prompts_that_others_queued() {
    for agent in ["--version 1", "--version 2"] {
        let mut scenario = Scenario::new(PARLOR);
        scenario.serve(&["--agent", &format!("test={} {agent}", programs::test_agent())]);
        let mut first = begin(&scenario, &["prompt", "--new", "say Hanging.\nsleep 60000"]);
        let mut spoken = [0; 8];
        first.stdout.as_mut().unwrap().read_exact(&mut spoken).unwrap();
        assert_eq!(&spoken, b"Hanging.");
        let mut second = begin(&scenario, &["prompt", "latest", "say Queued."]);
        let mut err = BufReader::new(second.stderr.take().unwrap()).lines().map(Result::unwrap);
        assert_eq!(err.next().as_deref(), Some("another turn is running; the prompt is queued"), "{agent}");
        send_signal(first.id(), rustix::process::Signal::INT);
        let said = first.wait_with_output().unwrap();
        let first_err = String::from_utf8(said.stderr).unwrap();
        assert_eq!(said.status.code(), Some(1), "{agent}: {first_err}");
        assert!(first_err.ends_with("the turn ended with cancelled\n"), "{agent}: {first_err}");
        let said = second.wait_with_output().unwrap();
        let rest: Vec<_> = err.collect();
        assert!(said.status.success(), "{agent}: {rest:?}");
        assert_eq!(String::from_utf8(said.stdout).unwrap(), "Queued.\n", "{agent}: {rest:?}");
        scenario.stop();
    }
}

#[test]
fn a_second_interrupt_leaves_the_turn_alone() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    let (code, said) = interrupted(&scenario, "hang", 2);
    assert_eq!(code, Some(1));
    assert!(said[2].contains("the turn continues"), "{said:?}");
    assert_eq!(scenario.run(&["ls", "--json"]).json()[0]["state"], "running");
}

#[test]
fn a_prompt_waits_for_the_turn_that_runs() {
    let scenario = Scenario::new(PARLOR).with_server();
    let mut first = scenario
        .command(&["prompt", "--new", "sleep 500\nsay first"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the turn runs", || scenario.run(&["ls", "--json"]).json()[0]["state"] == "running");
    let said = scenario.run(&["prompt", "latest", "say second"]).success();
    assert_eq!(said.stdout, "second\n");
    assert!(said.stderr.contains("another turn is running"), "{said:#?}");
    assert!(first.wait().unwrap().success());
}

#[test]
fn an_interrupt_takes_back_a_prompt_that_waits() {
    let old = format!("old={} --version 1", programs::test_agent());
    for args in [&[][..], &["--agent", &old]] {
        let mut scenario = Scenario::new(PARLOR);
        scenario.serve(args);
        let mut first = scenario
            .command(&["prompt", "--new", "sleep 60000"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("the turn runs", || scenario.run(&["ls", "--json"]).json()[0]["state"] == "running");
        let mut child = scenario
            .command(&["prompt", "latest", "say never"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut err = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        assert_eq!(err.next().as_deref(), Some("another turn is running; the prompt is queued"), "{args:?}");
        send_signal(child.id(), rustix::process::Signal::INT);
        assert_eq!(
            err.collect::<Vec<_>>(),
            ["cancelling; Ctrl-C again detaches", "parlor: the prompt was withdrawn before its turn started"]
        );
        assert_eq!(child.wait().unwrap().code(), Some(1));
        assert_eq!(
            scenario.run(&["ls", "--json"]).json()[0]["state"],
            "running",
            "the turn of others goes on"
        );
        assert!(!scenario.run(&["show", "latest"]).success().stdout.contains("never"));
        scenario.stop();
        first.wait().unwrap();
    }
}

#[test]
fn what_was_said_before_a_question_is_shown_before_it() {
    let scenario = Scenario::new(PARLOR).with_server();
    for _ in 0..10 {
        let said = scenario.run(&["prompt", "--new", "--yes", "tool First\nask Second"]).success();
        let lines: Vec<_> = said.stderr.lines().skip(1).collect();
        assert_eq!(lines[..2], ["✓ First", "Second: Allow once"], "{said:#?}");
    }
}
