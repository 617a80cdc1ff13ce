//! `prompt`.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use parlor_testkit::output::CommandOutput;
use parlor_testkit::process::{exit_status, send_signal};
use parlor_testkit::programs;
use parlor_testkit::scenario::Scenario;
use parlor_testkit::wait::wait_until;
use serde_json::json;

use crate::PARLOR;
use crate::terminal::Terminal;

#[test]
fn the_answer_goes_to_stdout_and_the_rest_to_stderr() {
    let mut scenario = Scenario::new(PARLOR);
    let output = scenario
        .run(&[
            "prompt",
            "--new",
            "--agent",
            "demo",
            "think hm\nsay one\ntool Edit the notes\nsay two\u{1b}[2J",
        ])
        .success();
    assert_eq!(output.stdout, "one\n\ntwo\u{fffd}[2J\n");
    assert!(
        output.stderr.starts_with("session ") && output.stderr.ends_with("\n✓ Edit the notes\n"),
        "{output:#?}"
    );
    assert!(scenario.server_pid().is_some(), "it started a server");
    let id = output.stderr.lines().next().unwrap().strip_prefix("session ").unwrap().to_owned();

    let output = scenario.run_with(&["prompt", "-s", &id, "-"], "say from\nsay input\n").success();
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("from\n\ninput\n", ""));
    scenario.stop();
    // A relative path is resolved before it is passed to the server.
    std::fs::write(scenario.work().join("own.toml"), "").unwrap();
    assert_eq!(
        scenario.run(&["prompt", "--config", "own.toml", "-s", "latest", "say again"]).success().stdout,
        "again\n"
    );
    let shown = scenario.run(&["show", "latest"]).success();
    assert!(shown.stdout.contains("two") && shown.stdout.contains("input") && shown.stdout.contains("again"));
}

#[test]
fn updates_and_the_result_are_printed_as_json() {
    let scenario = Scenario::new(PARLOR).with_server();
    let output = scenario.run(&["prompt", "--new", "--json", "say one\nsay two\ntool It"]).success();
    let json = output.last_json();
    let events: Vec<serde_json::Value> =
        output.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (result, events) = events.split_last().unwrap();
    assert_eq!(result, &json);
    assert!(events.iter().all(|event| event["sessionUpdate"].is_string()), "{events:?}");
    assert_eq!(events.last().unwrap()["stopReason"], "end_turn");
    assert_eq!((&json["text"], &json["stopReason"]), (&json!("one\n\ntwo"), &json!("end_turn")));
    assert_eq!(json["turn"]["toolCalls"][0]["title"], "It");
    assert_eq!(json["turn"]["messages"][0]["messageId"], json["messageId"]);
    let output = scenario.run(&["prompt", "-s", "latest", "--json", "fail -32000 oh no"]).exit_code(1);
    let json = output.last_json();
    assert_eq!((&json["stopReason"], &json["error"]), (&json!("error"), &json!("oh no")));
}

#[test]
fn flags_answer_permission_requests() {
    let scenario = Scenario::new(PARLOR).with_server();
    let output = scenario.run(&["prompt", "--new", "--yes", "ask Delete it"]).success();
    assert!(
        output.stdout.contains("You allowed it this once.") && output.stderr.contains("Delete it: Allow"),
        "{output:#?}"
    );
    let output = scenario.run(&["prompt", "-s", "latest", "--no", "ask Delete it"]);
    assert!(output.stdout.contains("You did not allow it."), "{output:#?}");
    let output = scenario.run(&["prompt", "-s", "latest", "--no", "elicit"]).success();
    assert!(output.stderr.contains("declined (--no)"), "{output:#?}");
}

#[test]
fn a_request_stays_open_if_there_is_neither_a_terminal_nor_another_client() {
    for (agent, prompt) in [("demo", "ask Delete it\nsay done"), ("demo", "elicit\nsay done")] {
        let scenario = Scenario::new(PARLOR).with_server();
        // A form is for a person, whatever the flags.
        let flags: &[&str] = if prompt.starts_with("elicit") { &["--yes"] } else { &[] };
        let args = [&["prompt", "--new", "--agent", agent, prompt], flags].concat();
        let output = scenario.run(&args).exit_code(3);
        assert!(output.stderr.contains("waits for an answer and there is no terminal to ask"), "{output:#?}");
        let open = scenario.run(&["inbox", "--json"]).success().json();
        let id = open[0]["requestId"].as_str().unwrap();
        let hint = if flags.is_empty() {
            format!("hint: `parlor answer {id} --allow`")
        } else {
            format!("`parlor answer {id} --field NAME=VALUE` anywhere")
        };
        assert!(output.stderr.contains(&hint), "{output:#?}");
        let about = if flags.is_empty() { "Delete it" } else { "form: " };
        assert!(output.stderr.contains(&format!("  request {id}: {about}")), "{output:#?}");
        // The turn continues with the answer.
        scenario.run(&["answer", id, "--deny"]).success();
        wait_until("the turn ends", || scenario.run(&["ls", "--json"]).json()[0]["state"] == "idle");
        let shown = scenario.run(&["show", "latest", "-1"]).success().stdout;
        assert!(shown.contains("done"), "{shown}");
    }
}

/// Starts a command that runs concurrently.
fn spawn(scenario: &Scenario, args: &[&str]) -> std::process::Child {
    let mut command = scenario.command(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_queued_prompt_answers_no_requests_of_the_running_turn() {
    for agent in ["--version 1", "--version 2"] {
        let mut scenario = Scenario::new(PARLOR);
        scenario.serve(&["--agent", &format!("test={} {agent}", programs::test_agent())]);
        let mut first = Terminal::new(&scenario, &["prompt", "--new", "ask Delete it\nsay first"]);
        first.wait_for("Answer (1-");
        let waiting =
            ["--yes", "--no"].map(|flag| spawn(&scenario, &["prompt", "-s", "latest", flag, "say waits"]));
        let silent = spawn(&scenario, &["prompt", "-s", "latest", "say waits"]);
        let mut children = Vec::new();
        for mut child in waiting.into_iter().chain([silent]) {
            let mut err = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
            let line = err.find(|line| !line.starts_with("session "));
            assert_eq!(line.as_deref(), Some("another turn is running; the prompt is queued"));
            children.push((child, err));
        }
        // The request is still open for the client of the running turn.
        first.type_text("n\n");
        let (_, seen) = first.wait();
        assert!(seen.contains("reject-once") && !seen.contains("another client"), "{seen}");
        for (child, err) in children {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success());
            assert_eq!(String::from_utf8(output.stdout).unwrap(), "waits\n");
            assert_eq!(err.collect::<Vec<_>>(), Vec::<String>::new());
        }
        scenario.stop();
    }
}

#[test]
fn requests_without_a_terminal_are_left_to_other_clients() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    let id = scenario.new_session("say hello");
    let mut other = Terminal::new(&scenario, &["prompt", "-s", &id, "ask First"]);
    other.wait_for("Answer (1-");
    let mut second = spawn(&scenario, &["prompt", "-s", &id, "ask Second\nsay done"]);
    let mut err = BufReader::new(second.stderr.take().unwrap()).lines().map(Result::unwrap);
    let line = err.find(|line| !line.starts_with("session "));
    assert_eq!(line.as_deref(), Some("another turn is running; the prompt is queued"));
    // Another attached client gets the request as well.
    let mut editor = crate::editor(&scenario);
    editor.load(&id);
    other.type_text("y\n");
    assert_eq!(other.wait().0, Some(0));
    crate::allow(&mut editor, "Second");
    let output = second.wait_with_output().unwrap();
    let err: Vec<_> = err.collect();
    assert!(output.status.success(), "{err:?}");
    assert!(!err.iter().any(|line| line.contains("no client answered")), "{err:?}");
}

#[test]
fn a_request_stays_open_if_no_attached_client_can_answer_it() {
    for waiting in [&[][..], &["--yes"], &["--no"]] {
        let scenario = Scenario::new(PARLOR).with_test_agent();
        let id = scenario.new_session("say hello");
        // These clients are not attached to the session, or only watch it.
        let elsewhere = scenario.new_session("say hello");
        let mut others = [
            spawn(&scenario, &["watch", &id]),
            spawn(&scenario, &["ls", "--watch"]),
            spawn(&scenario, &["prompt", "-s", &elsewhere, "sleep 60000"]),
        ];
        let clients = || scenario.run(&["status", "--json"]).json()["clients"].as_u64();
        wait_until("the clients are connected", || clients() >= Some(3));
        let mut first = spawn(&scenario, &["prompt", "-s", &id, "sleep 1000\nask Delete it\nsay first"]);
        let state = || scenario.run(&["show", &id, "--json"]).json()["state"].clone();
        wait_until("the turn runs", || state()["state"] == "running");
        let second = spawn(&scenario, &[&["prompt", "-s", &id, "say second"], waiting].concat());
        exit_status(&mut first);
        let output = first.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{err}");
        // A prompt that is queued later does not close the request either.
        let output = scenario.run(&["prompt", "-s", &id, "--timeout", "1s", "say third"]).exit_code(124);
        assert!(output.stderr.contains("the prompt is still queued after 1 s"), "{output:#?}");
        let open = scenario.run(&["inbox", "--json"]).success().json();
        assert_eq!(open.as_array().unwrap().len(), 1, "{open}");
        scenario.run(&["answer", open[0]["requestId"].as_str().unwrap(), "--allow"]).success();
        let output = second.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "second\n");
        assert!(output.status.success(), "{output:?}");
        wait_until("the third turn ends", || scenario.run(&["show", &id]).stdout.contains("\n  third\n"));
        for other in &mut others {
            send_signal(other.id(), rustix::process::Signal::TERM);
            other.wait().unwrap();
        }
    }
}

#[test]
fn a_request_stays_open_if_the_client_that_could_answer_it_leaves() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    let id = scenario.new_session("say hello");
    let mut editor = crate::editor(&scenario);
    editor.load(&id);
    let mut prompt = spawn(&scenario, &["prompt", "-s", &id, "ask Delete it\nsay done"]);
    let mut err = BufReader::new(prompt.stderr.take().unwrap()).lines().map(Result::unwrap);
    let line = err.find(|line| line.contains("Delete it"));
    assert!(line.unwrap().contains("left to other clients"));
    drop(editor);
    assert_eq!(prompt.wait().unwrap().code(), Some(3), "{:?}", err.collect::<Vec<_>>());
    assert_eq!(scenario.run(&["inbox", "--json"]).json().as_array().unwrap().len(), 1);
}

#[test]
fn a_prompt_that_is_queued_when_the_time_is_over_stays_queued() {
    for agent in ["--version 1", "--version 2"] {
        let mut scenario = Scenario::new(PARLOR);
        scenario.serve(&["--agent", &format!("test={} {agent}", programs::test_agent())]);
        scenario.run(&["prompt", "--new", "--no-wait", "sleep 3000"]).success();
        let output = scenario.run(&["prompt", "--timeout", "1s", "say queued"]).exit_code(124);
        assert!(
            output.stderr.contains("the prompt is still queued after 1 s")
                && output.stderr.contains("--queued"),
            "{output:#?}"
        );
        assert_eq!(scenario.run(&["prompt", "say last"]).success().stdout, "last\n");
        let shown = scenario.run(&["show", "latest"]).success().stdout;
        assert!(shown.contains("\n  queued\n"), "{shown}");
        scenario.stop();
    }
}

#[test]
fn a_request_that_a_queued_prompt_leaves_open_can_be_decided_by_an_editor() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    let id = scenario.new_session("say hello");
    let mut editor = crate::editor(&scenario);
    editor.load(&id);
    let first = spawn(&scenario, &["prompt", "-s", &id, "sleep 500\nask Delete it\nsay first"]);
    wait_until("the turn runs", || scenario.run(&["ls", "--json"]).json()[0]["state"] == "running");
    let second = spawn(&scenario, &["prompt", "-s", &id, "say second"]);
    crate::allow(&mut editor, "Delete it");
    let output = first.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("first"), "{output:?}");
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
                spawn(&scenario, &["prompt", "-s", &id, &text])
            })
            .collect();
        for (n, child) in children.into_iter().enumerate() {
            let output = child.wait_with_output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{n}\n"), "{agent}");
            assert_eq!(output.status.code(), Some(i32::from(n % 3 == 2)), "{agent}: {n}: {output:?}");
        }
        scenario.stop();
    }
}

#[test]
fn errors_are_reported_with_hints_and_exit_codes() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    let output = scenario.run(&["prompt", "some text"]).exit_code(2);
    assert!(output.stderr.contains("no sessions yet") && output.stderr.contains("--new"), "{output:#?}");
    assert!(scenario.run(&["prompt", "--new", "  "]).exit_code(2).stderr.contains("the prompt is empty"));
    scenario.run(&["prompt", "--new", "-s", "latest", "x"]).exit_code(2);
    scenario.run(&["prompt", "--new", "--timeout", "soon", "x"]).exit_code(2);
    scenario.run(&["prompt", "-s", "latest", "--agent", "demo", "x"]).exit_code(2);
    let output = scenario.run(&["prompt", "terminal", "ls", "-la", "/"]).exit_code(2);
    assert!(output.stderr.contains("parlor prompt -- TEXT..."), "{output:#?}");
    let output = scenario.run(&["prompt", "--new", "--agent", "nobody", "x"]).exit_code(2);
    assert!(output.stderr.starts_with("parlor: unknown agent 'nobody'"), "{output:#?}");
    let output = scenario.run(&["prompt", "--new", "--agent", "clade", "x"]).exit_code(2);
    assert!(output.stderr.ends_with("hint: did you mean 'claude'?\n"), "{output:#?}");
    let output = scenario.run(&["prompt", "--new", "--agent", "goose", "x"]).exit_code(4);
    assert!(
        output.stderr.contains("agent 'goose' is not installed: there is no program 'goose'")
            && output.stderr.contains("` installs it; `parlor agents`"),
        "{output:#?}"
    );
    assert!(
        scenario
            .run(&["prompt", "--new", "--cwd", "/nowhere", "x"])
            .exit_code(2)
            .stderr
            .contains("is not a directory")
    );
    let output = scenario.run(&["prompt", "--new", "crash"]).exit_code(1);
    assert!(output.stderr.contains("the turn failed"), "{output:#?}");
}

#[test]
fn the_directory_is_stored_as_a_canonical_path_and_options_without_effect_are_rejected() {
    let mut scenario = Scenario::new(PARLOR);
    std::fs::create_dir(scenario.work().join("inner")).unwrap();
    std::fs::write(scenario.work().join("own.toml"), "").unwrap();
    std::fs::write(scenario.work().join("other.toml"), "").unwrap();
    scenario.serve(&["--config", "own.toml"]);
    scenario.run(&["prompt", "--new", "--cwd", "inner/..", "say hello"]).success();
    let listed = scenario.run(&["ls", "--json"]).json();
    let work = scenario.work().canonicalize().unwrap();
    assert_eq!(listed[0]["cwd"], work.to_str().unwrap());

    // The agent of the session is accepted.
    scenario.run(&["prompt", "-s", "latest", "--agent", "demo", "say", "again"]).success();
    for refused in [&["--agent", "goose"][..], &["--cwd", "inner"], &["--agent", "demo", "--cwd", "inner"]] {
        let output = scenario.run(&[&["prompt", "-s", "latest", "x"], refused].concat()).exit_code(2);
        let option = refused[refused.len() - 2..].join(" ");
        assert!(output.stderr.contains(&format!("{option} has no effect")), "{output:#?}");
    }
    let output =
        scenario.run(&["prompt", "--config", "other.toml", "-s", "latest", "say again"]).exit_code(2);
    assert!(output.stderr.contains("--config other.toml has no effect"), "{output:#?}");
    // The configuration of the running server is accepted.
    scenario.run(&["prompt", "--config", "own.toml", "-s", "latest", "say again"]).success();
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
    scenario.run(&["prompt", "-s", &id, "say Another thing"]).success();
    assert_eq!(title(&scenario), before);
    let shown = scenario.run(&["show", &id, "--json"]).success().json();
    assert_eq!(shown["info"]["_meta"]["parlor/title"], "made");
}

/// Agents that start slowly or never.
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
fn a_notice_is_printed_while_a_slow_agent_starts() {
    let mut scenario = Scenario::new(PARLOR);
    slow_agents(&scenario);
    scenario.serve(&["--config", "slow.toml"]);
    let waiting = "waiting for agent 'slow' to start ...";
    for flag in [None, Some("--json")] {
        let args = [&["prompt", "--new", "--agent", "slow", "say hello"][..], flag.as_slice()].concat();
        let output = scenario.run(&args).success();
        assert_eq!(output.stderr.lines().filter(|line| *line == waiting).count(), 1, "{output:#?}");
        assert!(output.stdout.contains("hello"), "{output:#?}");
        scenario.stop();
        scenario.serve(&["--config", "slow.toml"]);
    }
    // The same if the agent is started for the prompt only, and on a terminal.
    let terminal = Terminal::new(&scenario, &["prompt", "-s", "latest", "say again"]);
    terminal.wait_for("waiting for agent 'slow'");
    let (code, seen) = terminal.wait();
    assert_eq!((code, seen.matches("waiting for").count()), (Some(0), 1), "{seen}");
    assert!(seen.contains("again"), "{seen}");
    // No notice is printed once the agent runs.
    let output = scenario.run(&["prompt", "-s", "latest", "sleep 3000\nsay done"]).success();
    assert_eq!(output.stdout, "done\n");
    assert!(output.stderr.starts_with("session ") && output.stderr.lines().count() == 1, "{output:#?}");
}

#[test]
fn an_agent_that_does_not_start_is_reported_with_its_stderr_and_a_hint() {
    let mut scenario = Scenario::new(PARLOR);
    slow_agents(&scenario);
    scenario.serve(&["--config", "slow.toml"]);
    let output = scenario.run(&["prompt", "--new", "--agent", "hangs", "say hello"]).exit_code(4);
    let expected = "waiting for agent 'hangs' to start ...\n\
                    parlor: agent 'hangs' did not answer initialize within 4 s: the license server is down\n  \
                    the agent's last lines on standard error:\n    reading the license\n    the license server is down\n  \
                    hint: ";
    assert!(output.stderr.starts_with(expected), "{output:#?}");
    assert!(output.stderr.contains("startup_timeout") && output.stdout.is_empty(), "{output:#?}");
}

/// Interrupts a turn `times` times after its first output.
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
    let mut output = vec![err.next().unwrap()];
    for _ in 0..times {
        send_signal(child.id(), rustix::process::Signal::INT);
        output.push(err.next().unwrap());
    }
    output.extend(err);
    (child.wait().unwrap().code(), output)
}

#[test]
fn an_interrupt_cancels_the_turn() {
    let scenario = Scenario::new(PARLOR).with_server();
    let (code, output) = interrupted(&scenario, "say Hanging.\nsleep 60000", 1);
    assert_eq!(code, Some(130));
    assert_eq!(output[1..], ["cancelling; Ctrl-C again detaches", "the turn was cancelled"]);
    assert!(scenario.run(&["show", "latest"]).success().stdout.contains("turn cancelled"));
}

#[test]
fn an_interrupt_keeps_the_queued_prompts_of_other_clients() {
    for agent in ["--version 1", "--version 2"] {
        let mut scenario = Scenario::new(PARLOR);
        scenario.serve(&["--agent", &format!("test={} {agent}", programs::test_agent())]);
        let mut first = spawn(&scenario, &["prompt", "--new", "say Hanging.\nsleep 60000"]);
        let mut spoken = [0; 8];
        first.stdout.as_mut().unwrap().read_exact(&mut spoken).unwrap();
        assert_eq!(&spoken, b"Hanging.");
        let mut second = spawn(&scenario, &["prompt", "-s", "latest", "say Queued."]);
        let mut err = BufReader::new(second.stderr.take().unwrap()).lines().map(Result::unwrap);
        let line = err.find(|line| !line.starts_with("session "));
        assert_eq!(line.as_deref(), Some("another turn is running; the prompt is queued"), "{agent}");
        send_signal(first.id(), rustix::process::Signal::INT);
        let output = first.wait_with_output().unwrap();
        let first_err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(130), "{agent}: {first_err}");
        assert!(first_err.ends_with("the turn was cancelled\n"), "{agent}: {first_err}");
        let output = second.wait_with_output().unwrap();
        let rest: Vec<_> = err.collect();
        assert!(output.status.success(), "{agent}: {rest:?}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "Queued.\n", "{agent}: {rest:?}");
        scenario.stop();
    }
}

#[test]
fn a_second_interrupt_exits_and_the_turn_continues() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    let (code, output) = interrupted(&scenario, "hang", 2);
    assert_eq!(code, Some(130));
    assert!(output[2].contains("the turn continues"), "{output:?}");
    assert_eq!(scenario.run(&["ls", "--json"]).json()[0]["state"], "running");
}

#[test]
fn a_prompt_is_queued_during_a_running_turn() {
    let scenario = Scenario::new(PARLOR).with_server();
    let mut first = spawn(&scenario, &["prompt", "--new", "sleep 60000"]);
    let row = || scenario.run(&["ls", "--json"]).json()[0].clone();
    wait_until("the turn runs", || row()["state"] == "running");
    let second = spawn(&scenario, &["prompt", "-s", "latest", "say second"]);
    wait_until("the prompt is queued", || row()["queued"] == 1);
    scenario.run(&["cancel", "latest"]).success();
    let output = second.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "second\n", "{err}");
    assert!(output.status.success() && err.contains("another turn is running"), "{err}");
    assert!(!first.wait().unwrap().success(), "its turn was cancelled");
}

#[test]
fn an_interrupt_withdraws_a_queued_prompt() {
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
            .command(&["prompt", "-s", "latest", "say never"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut err = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let line = err.find(|line| !line.starts_with("session "));
        assert_eq!(line.as_deref(), Some("another turn is running; the prompt is queued"), "{args:?}");
        send_signal(child.id(), rustix::process::Signal::INT);
        assert_eq!(
            err.collect::<Vec<_>>(),
            ["cancelling; Ctrl-C again detaches", "parlor: the prompt was withdrawn before its turn started"]
        );
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert_eq!(
            scenario.run(&["ls", "--json"]).json()[0]["state"],
            "running",
            "the turn of other clients continues"
        );
        assert!(!scenario.run(&["show", "latest"]).success().stdout.contains("never"));
        scenario.stop();
        first.wait().unwrap();
    }
}

#[test]
fn output_before_a_request_is_printed_before_it() {
    let scenario = Scenario::new(PARLOR).with_server();
    for _ in 0..10 {
        let output = scenario.run(&["prompt", "--new", "--yes", "tool First\nask Second"]).success();
        let lines: Vec<_> = output.stderr.lines().skip(1).collect();
        assert_eq!(lines[..2], ["✓ First", "Second: Allow once"], "{output:#?}");
    }
}

#[test]
fn without_a_session_the_latest_one_of_this_directory_is_continued() {
    let scenario = Scenario::new(PARLOR).with_server();
    let elsewhere = scenario.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let here = scenario.new_session("say one");
    let there = ["prompt", "--new", "--cwd", elsewhere.to_str().unwrap(), "title", "Far", "away"];
    let there = scenario.run(&there).success();
    let there = there.stderr.lines().next().unwrap().strip_prefix("session ").unwrap().to_owned();
    // Words need no quotes.
    let output = scenario.run(&["prompt", "say", "two", "words"]).success();
    assert_eq!(output.stdout, "two words\n");
    assert!(output.stderr.starts_with(&format!("session {here} \"say one\", latest in ")), "{output:#?}");
    scenario.run(&["prompt", "-s", &there, "say", "newest"]).success();
    for args in [
        &["--all"][..],
        &["-s", "latest", "--all"],
        &["-s", "far away"],
        &["-s", "Far"],
        &["-s", &there[..20]],
    ] {
        let output = scenario.run(&[&["prompt", "say", "there"], args].concat()).success();
        assert!(output.stderr.starts_with(&format!("session {there} \"Far away\"")), "{args:?}: {output:#?}");
        scenario.run(&["prompt", "-s", &here, "say", "newer"]).success();
        scenario.run(&["prompt", "-s", &there, "say", "newest"]).success();
    }
    let mut command = scenario.command(&["prompt", "say", "hello"]);
    let output = command.current_dir(scenario.path()).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(
        err.contains("there is no session in ") && err.contains("--new") && err.contains("--all"),
        "{err}"
    );
    // The same holds for other commands.
    assert!(scenario.run(&["show", "latest"]).success().stdout.contains(&here));
    assert!(scenario.run(&["show", "latest", "--all"]).success().stdout.contains(&there));
    assert!(scenario.run(&["show", "FAR"]).success().stdout.contains(&there));
}

#[test]
fn standard_input_files_images_and_an_editor_make_up_the_prompt() {
    let scenario = Scenario::new(PARLOR).with_server();
    let output = scenario.run_with(&["prompt", "--new", "say", "one"], "say two\n").success();
    assert_eq!(output.stdout, "one\n\ntwo\n");
    assert_eq!(scenario.run_with(&["prompt", "-"], "say three\n").success().stdout, "three\n");
    assert_eq!(scenario.run_with(&["prompt"], "say four\n").success().stdout, "four\n");
    scenario.run(&["prompt"]).exit_code(2);
    let mut command = scenario.command(&["prompt", "-e", "say five"]);
    command.env("EDITOR", "sh -c 'echo say six >> \"$0\"'").stdin(Stdio::null());
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "fivesay six\n");
    let mut command = scenario.command(&["prompt", "-e", "say five"]);
    let output = command.env("EDITOR", "false").stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("the editor 'false' failed with exit status: 1; nothing was sent")
    );
    // The editor starts with the words and standard input, of which it gets nothing itself.
    let mut command = scenario.command(&["prompt", "-e", "say", "seven"]);
    command.env("EDITOR", "sh -c 'cat >> \"$0\"; echo >> \"$0\"; echo say nine >> \"$0\"'");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"say eight").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "seven\n\neight\n\nnine\n");
    let mut command = scenario.command(&["prompt", "-e", "say five"]);
    let output = command.env_remove("EDITOR").env_remove("VISUAL").env("PARLOR_TTY", "").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .starts_with("parlor: -e cannot open an editor: there is no terminal\n")
    );
    std::fs::write(scenario.work().join("notes.txt"), "remember").unwrap();
    std::fs::write(scenario.work().join("dot.gif"), b"GIF89a").unwrap();
    let output = scenario.run(&["prompt", "-f", "notes.txt", "say", "read"]).success();
    assert_eq!(output.stdout, "read\n");
    let shown = scenario.run(&["show", "latest", "--json"]).success().json();
    let prompt =
        shown["messages"].as_array().unwrap().iter().rfind(|message| message["role"] == "user").unwrap();
    let uri = format!("file://{}/notes.txt", scenario.work().canonicalize().unwrap().display());
    let block = &prompt["content"][1];
    assert!(block["uri"] == uri.as_str() || block["resource"]["uri"] == uri.as_str(), "{prompt}");
    let output = scenario.run(&["prompt", "-i", "notes.txt", "look"]).exit_code(2);
    assert!(output.stderr.contains("not a PNG"), "{output:#?}");
    let output = scenario.run(&["prompt", "-f", "missing", "look"]).exit_code(2);
    assert!(output.stderr.contains("missing"), "{output:#?}");
    let output = scenario.run(&["prompt", "-i", "dot.gif", "say", "seen"]);
    assert!(output.stdout == "seen\n" || output.stderr.contains("does not accept images"), "{output:#?}");
}

#[test]
fn a_prompt_that_is_not_waited_for_runs_on_and_its_requests_wait() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    let output =
        scenario.run(&["prompt", "--new", "--no-wait", "--json", "ask Delete it\nsay one"]).success();
    let sent = output.json();
    let id = sent["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(sent["queued"], false);
    let state = || scenario.run(&["ls", "--json"]).json()[0]["state"].clone();
    wait_until("the request is open", || state() == "needs_you");
    let sent = scenario.run(&["prompt", "-s", &id, "--no-wait", "--json", "say two"]).success().json();
    assert_eq!(sent["queued"], true);
    let requests = scenario.run(&["inbox", "--json"]).success().json();
    scenario.run(&["answer", requests[0]["requestId"].as_str().unwrap(), "--allow"]).success();
    wait_until("both turns have ended", || {
        let shown = scenario.run(&["show", &id]).success().stdout;
        state() == "idle" && shown.contains("\n  one\n") && shown.contains("\n  two\n")
    });
}

#[test]
fn a_turn_that_takes_too_long_continues() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    let output = scenario.run(&["prompt", "--new", "--timeout", "1s", "sleep 60000"]).exit_code(124);
    assert!(
        output.stderr.contains("did not end within 1 s") && output.stderr.contains("parlor watch"),
        "{output:#?}"
    );
    assert_eq!(scenario.run(&["ls", "--json"]).json()[0]["state"], "running");
    scenario.run(&["cancel", "latest"]).success();
    // A request that is open when the time is over stays open.
    let mut terminal = Terminal::new(&scenario, &["prompt", "--new", "--timeout", "1", "ask Delete it"]);
    terminal.wait_for("Answer (1-");
    terminal.type_text("x");
    assert_eq!(terminal.wait().0, Some(124));
    assert_eq!(scenario.run(&["inbox", "--json"]).json().as_array().unwrap().len(), 1);
}

#[test]
fn mode_and_model_are_set_before_the_prompt() {
    let scenario = Scenario::new(PARLOR).with_server();
    let output = scenario.run(&["prompt", "--new", "--mode", "code", "--model", "large", "whoami"]).success();
    assert!(output.stdout.contains("code") && output.stdout.contains("large"), "{output:#?}");
    let output = scenario.run(&["prompt", "--mode", "nonsense", "whoami"]).exit_code(2);
    assert!(
        output.stderr.contains("no value 'nonsense'") && output.stderr.contains("ask, code"),
        "{output:#?}"
    );
    let listed = scenario.run(&["ls", "--json"]).json();
    assert_eq!((&listed[0]["mode"], &listed[0]["model"]), (&json!("code"), &json!("large")));
}

#[test]
fn requests_are_asked_on_the_terminal_if_standard_input_is_a_pipe() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    let mut device = crate::terminal::Device::open();
    let mut command = scenario.command(&["prompt", "--new", "-"]);
    command
        .env("PARLOR_TTY", device.name())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"ask Delete it\nsay done\n").unwrap();
    device.wait_for("Answer (1-");
    device.type_text("y\n");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("done"), "{output:?}");
}

#[test]
fn errors_of_the_configuration_have_the_exit_codes_of_bad_input_and_of_agents() {
    let mut scenario = Scenario::new(PARLOR);
    let config = scenario.work().join("own.toml");
    std::fs::write(&config, "[agents.mine\n").unwrap();
    let output = scenario.run(&["prompt", "--config", "own.toml", "--new", "say hello"]).exit_code(2);
    assert!(
        output.stderr.contains("cannot start the server: ") && output.stderr.contains("hint: "),
        "{output:#?}"
    );
    let output = scenario.run(&["agents", "--config", "own.toml"]).exit_code(2);
    assert!(output.stderr.contains("hint: "), "{output:#?}");
    let output = scenario.run(&["serve", "--listen", "0.0.0.0:0"]).exit_code(2);
    assert!(output.stderr.contains("--allow-remote"), "{output:#?}");

    let agent = format!("[agents.mine]\ncommand = [\"{}\"]\n", programs::test_agent());
    std::fs::write(&config, agent).unwrap();
    scenario.serve(&["--config", "own.toml"]);
    let output = scenario.run(&["prompt", "--new", "--agent", "mine", "say hello"]).success();
    let id = output.stderr.lines().next().unwrap().strip_prefix("session ").unwrap().to_owned();
    scenario.stop();
    std::fs::write(&config, "").unwrap();
    scenario.serve(&["--config", "own.toml"]);
    let output = scenario.run(&["prompt", "-s", &id, "say again"]).exit_code(4);
    assert!(output.stderr.contains("not configured any more"), "{output:#?}");

    // A running server keeps the configuration that was valid, and commands say so.
    std::fs::write(&config, "[agents.mine\n").unwrap();
    let status = || scenario.run(&["status", "--json"]).json();
    wait_until("the server has read the file", || status()["config"]["error"].is_object());
    let notice = "the configuration is invalid and not used (";
    let output = scenario.run(&["agents", "--config", "own.toml"]).success();
    assert!(output.stderr.starts_with(notice) && output.stdout.contains("demo"), "{output:#?}");
    let output = scenario.run(&["prompt", "--new", "say hello"]).success();
    assert!(output.stderr.starts_with(notice), "{output:#?}");
}

#[test]
fn titles_that_the_demo_agent_makes_are_no_loss() {
    let scenario = Scenario::new(PARLOR).with_server();
    scenario.run(&["prompt", "--new", "--agent", "demo", "say hello"]).success();
    scenario.run(&["prompt", "title A title\nsay hello"]).success();
    assert_eq!(scenario.run(&["status", "--json"]).json()["losses"], json!([]));
}

#[test]
fn a_prompt_is_sent_into_the_running_turn_or_cancels_it_on_request() {
    let mut scenario = Scenario::new(PARLOR);
    let agent = programs::test_agent();
    let steered = format!("steered={agent} --offers load,steering");
    scenario.serve(&["--agent", &steered, "--agent", &format!("plain={agent}")]);
    let start = |agent: &str, text: &str| {
        let started =
            scenario.run(&["prompt", "--new", "--agent", agent, "--no-wait", "--json", text]).success();
        let id = started.last_json()["sessionId"].as_str().unwrap().to_owned();
        wait_until("the turn runs", || scenario.run(&["show", &id]).success().stdout.contains("Busy."));
        id
    };
    let id = start("steered", "say Busy.\nawait-steering");
    let output = scenario.run(&["prompt", "-s", &id, "--now", "Hurry."]).success();
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("Steered: Hurry.\n", ""));

    let id = start("plain", "say Busy.\nsleep 60000");
    let output = scenario.run(&["prompt", "-s", &id, "--now", "say Now."]).exit_code(2);
    assert!(
        output.stderr.contains("accepts no prompts while it works") && output.stderr.contains("--now=cancel"),
        "{output:#?}"
    );
    let output = scenario.run(&["prompt", "-s", &id, "--now=cancel", "say Now."]).success();
    assert_eq!(output.stdout, "Now.\n");
    // Without a turn, the prompt is an ordinary one.
    assert_eq!(scenario.run(&["prompt", "-s", &id, "--now", "say Idle."]).success().stdout, "Idle.\n");
}

#[test]
fn a_turn_that_a_person_saw_on_the_terminal_is_not_unread() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    let unread = || scenario.run(&["ls", "--json"]).success().json()[0]["unread"].clone();
    scenario.run(&["prompt", "--new", "say hello"]).success();
    assert_eq!(unread(), true, "nobody saw the output of a script");
    let (code, seen) = Terminal::new(&scenario, &["prompt", "say again"]).wait();
    assert_eq!(code, Some(0), "{seen}");
    assert_eq!(unread(), false);
}

#[test]
fn a_prompt_is_read_from_a_socket() {
    let scenario = Scenario::new(PARLOR).with_server();
    // Some programs, such as those that run on Node.js, connect their children with sockets instead of pipes.
    let (mut input, stdin) = UnixStream::pair().unwrap();
    let mut command = scenario.command(&["prompt", "--new", "say words"]);
    command.stdin(OwnedFd::from(stdin)).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    // The ends that the child has are its own.
    drop(command);
    input.write_all(b"say from the socket\n").unwrap();
    drop(input);
    let output = CommandOutput::from(child.wait_with_output().unwrap()).success();
    assert_eq!(output.stdout, "words\n\nfrom the socket\n");
}

#[test]
fn a_socket_that_sends_nothing_does_not_keep_the_words_back() {
    let scenario = Scenario::new(PARLOR).with_server();
    let (_open, stdin) = UnixStream::pair().unwrap();
    let mut command = scenario.command(&["prompt", "--new", "say words"]);
    command.stdin(OwnedFd::from(stdin));
    let output = CommandOutput::from(command.output().unwrap()).success();
    assert_eq!(output.stdout, "words\n");
    assert!(output.stderr.contains("standard input sent nothing"), "{output:#?}");
}

#[test]
fn a_pipe_that_sends_nothing_is_waited_for_and_named() {
    let scenario = Scenario::new(PARLOR).with_server();
    let mut command = scenario.command(&["prompt", "--new", "say words"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut notice = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    stderr.read_line(&mut notice).unwrap();
    assert!(notice.contains("waiting for the end of standard input"), "{notice}");
    child.stdin.take().unwrap().write_all(b"say from the pipe\n").unwrap();
    let output = CommandOutput::from(child.wait_with_output().unwrap()).success();
    assert_eq!(output.stdout, "words\n\nfrom the pipe\n");
}

#[test]
fn a_log_of_both_streams_has_every_notice_on_its_own_line() {
    let scenario = Scenario::new(PARLOR).with_server();
    let log = |args: &[&str], ends: &str| {
        let path = scenario.work().join("log");
        let file = std::fs::File::create(&path).unwrap();
        let mut command = scenario.command(args);
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        let mut child = command.spawn().unwrap();
        wait_until("the log is complete", || {
            child.try_wait().unwrap().is_some() || std::fs::read_to_string(&path).unwrap().contains(ends)
        });
        let _ = child.kill();
        child.wait().unwrap();
        std::fs::read_to_string(&path).unwrap()
    };
    let prompted = log(&["prompt", "--new", "say one\ntool Edit it\nsay two"], "no such text");
    assert!(prompted.contains("one\n✓ Edit it\n"), "{prompted}");
    let id = scenario.run(&["ls", "--json"]).success().json()[0]["sessionId"].as_str().unwrap().to_owned();
    scenario.run(&["prompt", "-s", &id, "say partial\nrefuse"]).exit_code(1);
    let watched = log(&["watch", &id], "refused");
    assert!(watched.contains("one\n✓ Edit it\n") && watched.contains("partial\n⊘ turn refused"), "{watched}");
}

#[test]
fn the_result_in_json_is_printed_also_if_the_turn_goes_on() {
    let scenario = Scenario::new(PARLOR).with_server();
    let output = scenario.run(&["prompt", "--new", "--json", "say one\nask Delete it"]).exit_code(3);
    let result = output.last_json();
    assert_eq!((&result["outcome"], &result["text"]), (&json!("request_open"), &json!("one")), "{output:#?}");
    assert_eq!(result["stopReason"], json!(null));
    assert!(result["messageId"].is_string(), "{result}");
    // The error is an object, too.
    let errors: Vec<serde_json::Value> =
        output.stderr.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let [error] = &errors[..] else { panic!("{output:#?}") };
    assert_eq!(error["error"]["kind"], "request_open");
    assert_eq!(error["error"]["message"], result["error"]);
    assert!(error["error"]["hint"].as_str().unwrap().contains("parlor answer"), "{error}");

    let args = ["prompt", "--new", "--json", "--timeout", "1s", "say one\nsleep 60000"];
    let output = scenario.run(&args).exit_code(124);
    let result = output.last_json();
    assert_eq!((&result["outcome"], &result["text"]), (&json!("timed_out"), &json!("one")), "{output:#?}");
    let output = scenario.run(&["prompt", "--new", "--json", "say one"]).success();
    assert_eq!(output.last_json()["outcome"], "ended");
}
