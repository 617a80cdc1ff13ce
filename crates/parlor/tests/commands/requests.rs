//! `inbox`, `answer` and `cancel`.

use std::os::unix::net::UnixListener;
use std::thread;

use parlor_testkit::client::Client;
use parlor_testkit::scenario::Scenario;
use parlor_testkit::wait::wait_until;
use serde_json::{Value, json};

use crate::PARLOR;
use crate::terminal::Terminal;

/// An editor whose session waits for an answer: the editor, its session, its prompt, and the id of the request.
fn waiting(scenario: &Scenario, prompt: &str) -> (Client, String, u64, String) {
    let mut editor = crate::editor(scenario);
    let session = editor.new_session_in(scenario.work().to_str().unwrap());
    let prompt = editor.prompt(&session, prompt);
    let request = || open(scenario).iter().find(|request| request["sessionId"] == session.as_str()).cloned();
    wait_until("the request is open", || request().is_some());
    let id = request().unwrap()["requestId"].as_str().unwrap().to_owned();
    (editor, session, prompt, id)
}

/// The open requests.
fn open(scenario: &Scenario) -> Vec<Value> {
    scenario.run(&["inbox", "--json"]).success().json().as_array().unwrap().clone()
}

#[test]
fn without_a_server_no_requests_are_open() {
    let mut scenario = Scenario::new(PARLOR);
    for _ in 0..2 {
        assert_eq!(scenario.run(&["inbox"]).success().plain().stdout, "No requests wait for you.\n");
        assert_eq!(scenario.run(&["inbox", "--json"]).success().stdout, "[]\n");
        for args in [&["inbox", "r1"][..], &["answer", "r1", "--allow"]] {
            let output = scenario.run(args).exit_code(2);
            assert!(output.stderr.contains("no server is running, so no request is open"), "{output:#?}");
        }
        // A server that was killed leaves its socket behind.
        scenario.serve(&[]);
        scenario.kill();
    }
    assert!(scenario.run(&["cancel", "latest"]).exit_code(2).stderr.contains("no sessions yet"));
}

#[test]
fn open_requests_are_listed_and_shown_in_full() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    let (_editor, session, _, id) = waiting(&scenario, "ask Delete \u{1b}[2Jit\nsay done");
    let listed = open(&scenario);
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!((&listed[0]["requestId"], &listed[0]["agent"]), (&json!(id), &json!("test")));
    let output = scenario.run(&["inbox"]).success().plain();
    for part in [&id, "Delete \u{fffd}[2Jit", "test ·", "waits", "1 "] {
        assert!(output.stdout.contains(part), "{part}: {output:#?}");
    }
    assert_eq!(output.stderr, "");
    let output = scenario.run(&["inbox", &id]).success().plain();
    for part in [&session, "directory ", "kind ", "allow-once", "reject-once"] {
        assert!(output.stdout.contains(part), "{part}: {output:#?}");
    }
    assert_eq!(scenario.run(&["inbox", &id, "--json"]).success().json(), listed[0]);
    for columns in [40, 120] {
        let (code, seen) = Terminal::with_columns(&scenario, &["inbox"], columns).wait();
        assert_eq!(code, Some(0));
        let plain = anstream::adapter::strip_str(&seen).to_string();
        assert!(plain.contains(&format!("parlor answer {id}")), "{plain}");
        let fits = |line: &str| line.chars().count() <= usize::from(columns);
        assert!(plain.lines().filter(|line| !line.starts_with("answer:")).all(fits), "{plain}");
    }
}

#[test]
fn a_request_is_answered_by_flags_and_by_option() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    for (flags, name) in [
        (&["--allow"][..], "allow-once"),
        (&["--deny"], "reject-once"),
        (&["--option", "allow-always"], "allow-always"),
    ] {
        let (mut editor, session, prompt, id) = waiting(&scenario, "ask Delete it\nsay done");
        let args = [&["answer", &id, "--json"][..], flags].concat();
        let answered = scenario.run(&args).success().json();
        assert_eq!((&answered["requestId"], &answered["sessionId"]), (&json!(id), &json!(session)));
        editor.end_of_turn(&session, prompt);
        let shown = scenario.run(&["show", &session]).success().stdout;
        assert!(shown.contains(name), "{name}: {shown}");
        assert!(shown.contains("(on the command line)"), "who answered: {shown}");
        assert!(open(&scenario).is_empty());
        let output = scenario.run(&args).exit_code(2);
        assert!(
            output.stderr.contains("there is no open request") && output.stderr.contains("\"hint\":"),
            "{output:#?}"
        );
    }
}

#[test]
fn an_answer_that_the_request_does_not_offer_is_rejected() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    let (_editor, _, _, id) = waiting(&scenario, "ask Delete it\nsay done");
    let output = scenario.run(&["answer", &id, "--option", "nonsense"]).exit_code(2);
    assert!(output.stderr.contains("no such option") && output.stderr.contains("allow-once"), "{output:#?}");
    let output = scenario.run(&["answer", &id]).exit_code(2);
    assert!(output.stderr.contains("no terminal") && output.stderr.contains("--allow"), "{output:#?}");
    scenario.run(&["answer", &id, "--allow", "--deny"]).exit_code(2);
    assert_eq!(open(&scenario).len(), 1, "it is still open");
    assert!(scenario.run(&["answer", &id[1..], "--deny"]).success().stdout.starts_with("answered "));
}

#[test]
fn a_request_is_answered_on_the_terminal() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    let (mut editor, session, prompt, id) = waiting(&scenario, "ask Delete it\nsay done");
    let mut terminal = Terminal::new(&scenario, &["answer", &id]);
    terminal.wait_for("Answer (1-");
    terminal.wait_for("directory");
    // An empty line selects nothing.
    terminal.type_text("\n");
    wait_until("the question is repeated", || terminal.seen().matches("Answer (1-").count() == 2);
    assert!(terminal.seen().contains("  type a number from 1 to "), "{}", terminal.seen());
    terminal.type_text("n\n");
    let (code, seen) = terminal.wait();
    assert_eq!(code, Some(0), "{seen}");
    editor.end_of_turn(&session, prompt);
    assert!(scenario.run(&["show", &session]).success().stdout.contains("reject-once"));
}

#[test]
fn a_form_is_listed_filled_in_and_declined() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    let form = || {
        let terminal = Terminal::with_columns(&scenario, &["prompt", "--new", "elicit"], 120);
        terminal.wait_for("Answer (1-2, l later)");
        wait_until("the form is open", || open(&scenario).len() == 1);
        (terminal, open(&scenario)[0]["requestId"].as_str().unwrap().to_owned())
    };
    let (client, id) = form();
    assert!(scenario.run(&["inbox"]).success().stdout.contains("form: Who wants coffee?"));
    assert!(scenario.run(&["inbox", &id]).success().stdout.contains("Your name"));
    assert!(scenario.run(&["answer", &id, "--allow"]).exit_code(2).stderr.contains("is a form"));
    let mut terminal = Terminal::new(&scenario, &["answer", &id]);
    for (question, line) in [("Answer (1-2)", "1\n"), ("Text", "Ada\n"), ("y or n", "y\n")] {
        terminal.wait_for(question);
        terminal.type_text(line);
    }
    assert_eq!(terminal.wait().0, Some(0));
    let (_, seen) = client.wait();
    assert!(seen.contains(r#""name":"Ada""#), "{seen}");
    let (client, id) = form();
    let fields = scenario.run(&["inbox", &id]).success().stdout;
    assert!(fields.contains("name: Your name (text; required)"), "{fields}");
    let output = scenario.run(&["answer", &id, "--field", "colour=Bob"]).exit_code(2);
    assert!(output.stderr.contains("no field 'colour'; it has: name"), "{}", output.stderr);
    scenario.run(&["answer", &id, "--field", "name"]).exit_code(2);
    scenario.run(&["answer", &id, "--field", "name=Bob = Ada", "--field", "sugar=n"]).success();
    let (_, seen) = client.wait();
    assert!(seen.contains(r#""name":"Bob = Ada""#), "{seen}");
    let (client, id) = form();
    assert!(scenario.run(&["answer", &id, "--deny"]).success().stdout.contains("declined"));
    client.wait();
}

#[test]
fn a_turn_is_cancelled_and_queued_prompts_of_others_stay() {
    cancels_only_the_turn(&Scenario::new(PARLOR).with_test_agent());
}

/// The demo agent drops the prompts of its own queue after it has ended the turn.
#[test]
fn prompts_that_the_agent_drops_after_the_cancelled_turn_are_sent_again() {
    cancels_only_the_turn(&Scenario::new(PARLOR));
}

fn cancels_only_the_turn(scenario: &Scenario) {
    let mut editor = crate::editor(scenario);
    let session = editor.new_session_in(scenario.work().to_str().unwrap());
    let output = scenario.run(&["cancel", &session]).success().plain();
    assert_eq!(output.stdout, format!("no turn is running in {session}\n"));
    for (flags, said, rest) in
        [(&[][..], "", "end_turn"), (&["--queued"], " and withdrew all queued prompts", "cancelled")]
    {
        let first = editor.prompt(&session, "sleep 60000");
        let state = || scenario.run(&["ls", "--json"]).json()[0]["state"].clone();
        wait_until("the turn runs", || state() == "running");
        let second = editor.prompt(&session, "say second");
        editor.wait_for_queue(&session, &["say second"]);
        let output = scenario.run(&[&["cancel", &session][..], flags].concat()).success().plain();
        assert_eq!(output.stdout, format!("cancelled the turn of {session}{said}\n"));
        assert_eq!(editor.end_of_turn(&session, first), "cancelled");
        assert_eq!(editor.end_of_turn(&session, second), rest);
        wait_until("no turn runs", || state() == "idle");
    }
    assert_eq!(
        scenario.run(&["cancel", &session, "--json"]).success().json(),
        json!({ "sessionId": session, "cancelled": false })
    );
}

#[test]
fn cancelling_a_turn_closes_its_requests() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    let (mut editor, session, prompt, _) = waiting(&scenario, "ask Delete it\nsay done");
    scenario.run(&["cancel", &session]).success();
    assert_eq!(editor.end_of_turn(&session, prompt), "cancelled");
    assert!(open(&scenario).is_empty());
}

#[test]
fn a_server_that_accepts_no_connection_is_reported_and_ls_prints_what_is_stored() {
    let mut scenario = Scenario::new(PARLOR);
    scenario.new_session("say hello");
    scenario.stop();
    let _ = std::fs::remove_file(scenario.socket());
    let _listener = UnixListener::bind(scenario.socket()).unwrap();
    // Each of them waits for its timeout.
    thread::scope(|threads| {
        for args in [&["inbox"][..], &["answer", "r1", "--allow"], &["status"], &["ls", "--watch"]] {
            let scenario = &scenario;
            threads.spawn(move || {
                let output = scenario.run(args).exit_code(5);
                assert!(output.stderr.contains("the server did not respond within"), "{output:#?}");
            });
        }
        let output = scenario.run(&["ls"]).success();
        assert!(
            output.stderr.contains("did not respond") && output.stdout.contains("say hello"),
            "{output:#?}"
        );
    });
}
