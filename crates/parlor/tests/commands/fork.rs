//! `fork`, `edit`, `regenerate` and `ls --tree`.

use parlor_testkit::programs;
use parlor_testkit::scenario::Scenario;
use parlor_testkit::wait::wait_until;
use serde_json::{Value, json};

use crate::PARLOR;

/// A session with two turns: its id and the ids of its messages.
fn spawn(scenario: &Scenario) -> (String, Vec<String>) {
    let session = scenario.new_session("say One.");
    scenario.run(&["prompt", "-s", &session, "say Two."]).success();
    let shown = scenario.run(&["show", &session, "--json"]).success().json();
    let messages = shown["messages"].as_array().unwrap();
    (session, messages.iter().map(|message| message["messageId"].as_str().unwrap().to_owned()).collect())
}

fn texts(scenario: &Scenario, session: &str) -> Vec<String> {
    let shown = scenario.run(&["show", session, "--json"]).success().json();
    let text = |message: &Value| -> String {
        let blocks = message["content"].as_array().unwrap();
        blocks.iter().map(|block| block["text"].as_str().unwrap()).collect()
    };
    shown["messages"].as_array().unwrap().iter().map(text).collect()
}

#[test]
fn a_prefix_selects_the_prompt_to_edit_even_if_other_messages_match() {
    let scenario = Scenario::new(PARLOR).with_server();
    let (mut session, mut messages) = spawn(&scenario);
    // Ids are random: send prompts until an answer has the same first digit as the first prompt, which is not a number.
    while !messages[1..].iter().any(|id| id[..1] == messages[0][..1])
        || messages[2][..1] == messages[0][..1]
        || messages[0].starts_with(|first: char| first.is_ascii_digit())
    {
        (session, messages) = spawn(&scenario);
    }
    scenario.run(&["edit", &session, &messages[0][..1], "say Else."]).success();
    assert_eq!(texts(&scenario, "latest"), ["say Else.", "Else."]);
    // The ids of a prompt and its answer are independent.
    let same = messages[0].chars().zip(messages[1].chars()).take_while(|(a, b)| a == b).count();
    assert!(same < 8, "{messages:?}");
}

#[test]
fn a_session_is_forked_at_a_message() {
    let scenario = Scenario::new(PARLOR).with_server();
    let (session, messages) = spawn(&scenario);
    let forked = scenario.run(&["fork", &session, "--at", &messages[1]]).success().plain();
    let id = forked.stdout.trim_end().to_owned();
    assert_eq!(texts(&scenario, &id), ["say One.", "One."]);
    assert_eq!(scenario.run(&["prompt", "-s", &id, "say Else."]).success().stdout, "Else.\n");

    let forked = scenario.run(&["fork", &session, "--json"]).success().json();
    assert_eq!((&forked["parent"], &forked["messageId"]), (&json!(session), &json!(null)));
    assert!(["native", "transcript"].contains(&forked["fork"].as_str().unwrap()), "{forked}");
    assert_eq!(texts(&scenario, forked["sessionId"].as_str().unwrap()).len(), 4);
    assert_eq!(texts(&scenario, &session).len(), 4);
}

#[test]
fn a_prompt_is_edited_or_regenerated() {
    let mut scenario = Scenario::new(PARLOR).with_server();
    let (session, messages) = spawn(&scenario);
    let output = scenario.run(&["edit", &session, &messages[2], "say Instead."]).success();
    assert_eq!(output.stdout, "Instead.\n");
    let id = output.stderr.trim_end().strip_prefix("session ").unwrap().to_owned();
    assert_eq!(texts(&scenario, &id), ["say One.", "One.", "say Instead.", "Instead."]);

    let output = scenario
        .run_with(&["edit", &session, &messages[0], "-", "--json"], "say First.")
        .success()
        .last_json();
    assert_eq!((&output["text"], &output["stopReason"]), (&json!("First."), &json!("end_turn")));
    assert_eq!(texts(&scenario, output["sessionId"].as_str().unwrap()), ["say First.", "First."]);

    // A server is started if none is running.
    scenario.stop();
    assert_eq!(scenario.run(&["regenerate", &session]).success().stdout, "Two.\n");
    assert_eq!(scenario.run(&["regenerate", &session, &messages[1]]).success().stdout, "One.\n");
    assert_eq!(texts(&scenario, &session).len(), 4);
}

#[test]
fn forking_an_unknown_session_or_message_is_an_error() {
    let scenario = Scenario::new(PARLOR).with_server();
    let (session, messages) = spawn(&scenario);
    let output = scenario.run(&["fork", &session, "--at", "nothing"]).exit_code(2);
    assert!(output.stderr.contains("no such message"), "{output:#?}");
    let output = scenario.run(&["edit", &session, &messages[1], "x"]).exit_code(2);
    assert!(output.stderr.contains("only a prompt can be edited"), "{output:#?}");
    scenario.run(&["fork", "nothing"]).exit_code(2);
    assert!(
        scenario
            .run(&["edit", &session, &messages[0], " "])
            .exit_code(2)
            .stderr
            .contains("the prompt is empty")
    );
    let none = scenario.run(&["ls", "--json"]).success().json();
    assert_eq!(none.as_array().unwrap().len(), 1);
}

#[test]
fn the_tree_lists_forks_below_their_parent() {
    let scenario = Scenario::new(PARLOR).with_server();
    let (session, messages) = spawn(&scenario);
    let fork =
        |of: &str, at: &str| scenario.run(&["fork", of, "--at", at]).success().stdout.trim_end().to_owned();
    let first = fork(&session, &messages[3]);
    let second = fork(&first, &messages[2]);
    let third = fork(&session, &messages[1]);
    let listed = scenario.run(&["ls", "--tree", "--json"]).success().json();
    let ids: Vec<_> =
        listed.as_array().unwrap().iter().map(|one| one["sessionId"].as_str().unwrap()).collect();
    assert_eq!(ids, [&session, &third, &first, &second]);
    assert_eq!(listed[1]["parent"], json!(session));
    assert_eq!(listed[1]["forkedAt"], json!(messages[1]));
    let output = scenario.run(&["ls", "--tree"]).success().plain();
    let marks = |mark: &str| output.stdout.lines().filter(|line| line.contains(mark)).count();
    assert_eq!((marks("├─ "), marks("  └─ "), marks("└─ ")), (1, 2, 2), "{}", output.stdout);

    // A fork of a deleted session is a root.
    scenario.run(&["rm", "--yes", &session]).success();
    let listed = scenario.run(&["ls", "--tree"]).success().stdout;
    assert_eq!(listed.lines().filter(|line| line.contains("─ ")).count(), 1, "{listed}");
}

#[test]
fn forks_with_the_title_of_their_parent_are_told_apart() {
    let scenario = Scenario::new(PARLOR).with_server();
    let session = scenario.new_session("say one");
    scenario.run(&["prompt", "-s", &session, "say two"]).success();
    let fork =
        |at: &str| scenario.run(&["fork", &session, "--at", at]).success().stdout.trim_end().to_owned();
    let (first, second) = (fork("2"), fork("4"));
    let line = |id: &str, args: &[&str]| {
        let listed = scenario.run(args).success().plain().stdout;
        listed.lines().find(|line| line.starts_with(&id[..8])).unwrap().to_owned()
    };
    assert!(line(&second, &["ls"]).contains("  say one (fork at #4)  "), "{}", line(&second, &["ls"]));
    scenario.run(&["prompt", "-s", &first, "say shorter"]).success();
    assert!(line(&first, &["ls"]).contains("  say shorter  "), "{}", line(&first, &["ls"]));
    let tree = line(&first, &["ls", "--tree"]);
    assert!(tree.contains("─ say shorter ") && tree.contains("  at #2  "), "{tree}");
    let listed = scenario.run(&["ls", "--json"]).success().json();
    let listed = listed.as_array().unwrap().iter().find(|one| one["sessionId"] == first.as_str()).unwrap();
    assert_eq!(
        (&listed["title"], &listed["forkName"], &listed["forkedMessages"]),
        (&json!("say one"), &json!("say shorter"), &json!(2))
    );
    // Its own title is stronger, and the parent keeps its own.
    scenario.run(&["title", &first, "Mine"]).success();
    assert!(line(&first, &["ls"]).contains("  Mine  "), "{}", line(&first, &["ls"]));
    assert!(line(&session, &["ls", "--tree"]).contains("  say one  "));
    // A title that a fork has from its parent is not its own.
    scenario.run(&["title", &session, "Ours"]).success();
    let third = fork("4");
    scenario.run(&["prompt", "-s", &third, "say longer"]).success();
    assert!(line(&third, &["ls"]).contains("  say longer  "), "{}", line(&third, &["ls"]));
}

#[test]
fn every_command_has_the_same_name_of_a_fork_and_selects_it_by_that_name() {
    let scenario = Scenario::new(PARLOR).with_server();
    let session = scenario.new_session("say one");
    let fork = scenario.run(&["fork", &session, "--at", "2"]).success().stdout.trim_end().to_owned();
    let selected = |name: &str| {
        let output = scenario.run(&["export", name]).success().json();
        output["sessionId"].as_str().unwrap().to_owned()
    };
    for (name, id) in [
        ("say one", &session),
        ("SAY ONE", &session),
        ("say one (fork at #2)", &fork),
        ("say one (fork", &fork),
        ("say one (f…", &fork),
    ] {
        assert_eq!(selected(name), *id, "{name}");
    }
    let output = scenario.run(&["show", "say"]).exit_code(2);
    assert!(output.stderr.contains("'say' matches 2 sessions\n  "), "{output:#?}");
    assert!(output.stderr.contains("  say one (fork at #2) ("), "{output:#?}");

    scenario
        .run(&["prompt", "-s", "say one (fork at #2)", "--no-wait", "say first\nask Delete it"])
        .success();
    wait_until("the request is open", || scenario.run(&["inbox"]).success().stdout.contains("Delete it"));
    let (id, name) = (&fork[..8], "say first");
    let shown = |args: &[&str], line: &str| {
        let output = scenario.run(args).success().plain();
        let all = output.stdout + &output.stderr;
        assert!(all.lines().any(|shown| shown.starts_with(line)), "{args:?} lacks {line:?}: {all}");
    };
    shown(&["ls"], &format!("{id}  {name}  "));
    shown(&["inbox"], &format!("r1  {name}"));
    shown(&["inbox", "r1"], &format!("r1 · {name} · "));
    shown(&["search", "ask"], &format!("{name} {fork}"));
    shown(&["status"], &format!("  running   {id}  {name} (demo)"));
    shown(&["status"], &format!("{id}  {name}  "));
    shown(&["show", name], name);
    shown(&["export", "--format", "md", name], &format!("# {name}"));
    scenario.run(&["answer", "r1", "--allow"]).success();
    wait_until("the turn has ended", || {
        scenario.run(&["ls", "--json"]).success().json()[0]["state"] == "idle"
    });
    shown(&["usage", "--by", "session"], &format!("{id}  {name}"));
    shown(&["prompt", "-s", name, "say end"], &format!("session {fork} \"{name}\" (demo)"));
}

/// The `--agent` of a server with the test agent as `test`.
fn test_agent() -> String {
    format!("test={}", programs::test_agent())
}

#[test]
fn another_agent_continues_a_session() {
    let mut scenario = Scenario::new(PARLOR);
    scenario.serve(&["--agent", "demo", "--agent", &test_agent()]);
    let (session, messages) = spawn(&scenario);
    let output = scenario.run(&["fork", &session, "--agent", "nobody"]).exit_code(2);
    assert!(output.stderr.contains("unknown agent 'nobody' (known: test, "), "{output:#?}");
    // The name of a preset whose program does not exist.
    let output = scenario.run(&["fork", &session, "--agent", "goose"]).exit_code(4);
    assert!(output.stderr.contains("agent 'goose' is not installed"), "{output:#?}");
    assert!(output.stderr.contains("hint: `brew install block-goose-cli` installs it"), "{output:#?}");
    assert_eq!(
        scenario.run(&["ls", "--json"]).success().json().as_array().unwrap().len(),
        1,
        "nothing was created"
    );
    let forked = scenario.run(&["fork", &session, "--at", &messages[1], "--agent", "test", "--json"]);
    let forked = forked.success().json();
    let id = forked["sessionId"].as_str().unwrap();
    assert_eq!((&forked["fork"], &forked["messageId"]), (&json!("transcript"), &json!(messages[1])));
    let said = scenario.run(&["prompt", "-s", id, "whoami"]).success().stdout;
    assert!(said.contains("conversation"), "{said}");
    let listed = scenario.run(&["ls", "--json"]).success().json();
    assert_eq!((&listed[0]["agent"], &listed[1]["agent"]), (&json!("test"), &json!("demo")));
    assert_eq!((&listed[0]["parent"], &listed[0]["forkedAt"]), (&json!(session), &json!(messages[1])));
}

#[test]
fn a_session_of_an_agent_that_is_not_configured_any_more_is_read_and_continued_by_another_one() {
    let mut scenario = Scenario::new(PARLOR);
    scenario.serve(&["--agent", &test_agent()]);
    let (session, _) = spawn(&scenario);
    scenario.stop();
    scenario.serve(&["--agent", "demo"]);
    assert_eq!(texts(&scenario, &session), ["say One.", "One.", "say Two.", "Two."]);
    assert!(scenario.run(&["export", &session]).success().stdout.contains("One."));
    let listed = scenario.run(&["ls", "--json"]).success().json();
    assert_eq!((&listed[0]["sessionId"], &listed[0]["agent"]), (&json!(session), &json!("test")));
    let output = scenario.run(&["prompt", "-s", &session, "say Three."]).exit_code(4);
    let way_out = format!("parlor fork {session} --agent OTHER");
    assert!(output.stderr.contains("agent 'test'") && output.stderr.contains(&way_out), "{output:#?}");
    let forked = scenario.run(&["fork", &session, "--agent", "demo"]).success().stdout;
    let said = scenario.run(&["prompt", "-s", forked.trim_end(), "say Three."]).success().stdout;
    assert_eq!(said, "Three.\n");
}

#[test]
fn the_result_in_json_names_the_prompt_of_the_fork() {
    let scenario = Scenario::new(PARLOR).with_server();
    let session = scenario.new_session("say One.");
    for args in
        [&["edit", &session, "latest", "say Else.", "--json"][..], &["regenerate", &session, "--json"]]
    {
        let result = scenario.run(args).success().last_json();
        let fork = result["sessionId"].as_str().unwrap();
        let shown = scenario.run(&["show", fork, "--json"]).success().json();
        assert_eq!(result["messageId"], shown["messages"][0]["messageId"], "{args:?}");
        assert!(result["messageId"].is_string(), "{args:?}: {result}");
    }
}
