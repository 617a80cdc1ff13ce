//! `parlor search`.

use parlor_testkit::scenario::Scenario;
use serde_json::json;

use crate::PARLOR;

#[test]
fn the_command_searches_with_and_without_a_server() {
    let mut scenario = Scenario::new(PARLOR);
    let nothing = "No entries match.\nhint: 'any* thing*' also finds words that begin with any or thing\n";
    assert_eq!(scenario.run(&["search", "any", "thing"]).success().plain().stdout, nothing);
    assert_eq!(scenario.run(&["search", "any*"]).success().plain().stdout, "No entries match.\n");
    assert_eq!(scenario.run(&["search", "--json", "anything"]).success().json(), json!([]));
    for query in [&["role:agent"][..], &["since:1d", "role:user"], &["role:agent since:1d"]] {
        let output = scenario.run(&[&["search"], query].concat()).exit_code(2);
        assert!(output.stderr.contains("the query has filters and no words"), "{output:#?}");
    }
    assert!(!scenario.data().exists(), "looking makes nothing");

    let id = scenario.new_session("title A \u{9b}31mtitle\nthink About the café\nsay The CAFÉ is open, \u{7}friends.\ntool Open the café");
    let other = scenario.new_session("say Another cafe, elsewhere");
    let mut answers = Vec::new();
    for _ in 0..2 {
        let output = scenario.run(&["search", "cafe", "open"]).success().plain();
        for part in [
            "A \u{fffd}31mtitle",
            &id,
            "  agent · #",
            "  tool · ",
            "just now\n  The CAFÉ is open, \u{fffd}friends.",
        ] {
            assert!(output.stdout.contains(part), "{part}: {output:#?}");
        }
        assert!(output.stderr.is_empty() && !output.stdout.contains(&other), "{output:#?}");
        let found = |args: &[&str]| -> Vec<String> {
            let args = [&["search", "--json"], args].concat();
            let hits = scenario.run(&args).success().json();
            let name = |hit: &serde_json::Value| {
                let session = if hit["sessionId"] == *id { "first" } else { "second" };
                format!("{session} {}", hit["role"].as_str().unwrap())
            };
            let mut names: Vec<_> = hits.as_array().unwrap().iter().map(name).collect();
            names.sort_unstable();
            names
        };
        assert_eq!(found(&["cafe -another"]), ["first agent", "first thought", "first tool", "first user"]);
        assert_eq!(found(&["--role", "tool", "café"]), ["first tool"]);
        assert_eq!(found(&["cafe", "--role", "agent", "--", "-elsewhere"]), ["first agent"]);
        assert_eq!(found(&["\"another cafe\" role:agent"]), ["second agent"]);
        assert_eq!(found(&["cafe role:agent", "--cwd", "."]).len(), 2);
        assert_eq!(found(&["cafe role:agent", "--cwd", "/elsewhere"]).len(), 0);
        assert_eq!(found(&["cafe role:agent", "cwd:."]).len(), 2);
        assert_eq!(found(&["cafe role:agent cwd:/elsewhere"]).len(), 0);
        assert_eq!(found(&["cafe", "--agent", "demo", "--since", "1h", "--limit", "3"]).len(), 3);
        assert_eq!(found(&["cafe", "--agent", "other"]).len(), 0);
        assert_eq!(found(&["cafe", "--since", "2999-01-01"]).len(), 0);
        assert!(
            scenario
                .run(&["search", "cafe", "--limit", "1"])
                .success()
                .stdout
                .contains("There are more matches")
        );
        answers.push(scenario.run(&["search", "--json", "cafe"]).success().stdout);

        for args in [&["cafe", "--since", "yesterday"][..], &["colour:blue"], &["role:nobody", "x"]] {
            let output = scenario.run(&[&["search"], args].concat()).exit_code(2);
            assert!(output.stderr.contains("hint:"), "{output:#?}");
        }
        let many: String = (0..100).map(|n| format!("w{n} ")).collect();
        let output = scenario.run(&["search", &many]).success();
        assert!(
            output.stderr.contains("36 words") && output.stdout.contains("No entries match"),
            "{output:#?}"
        );
        scenario.stop();
    }
    assert_eq!(answers[0], answers[1], "the server and the store say the same");
    scenario.run(&["search"]).exit_code(2);
}

#[test]
fn matches_are_highlighted_on_a_terminal() {
    let scenario = Scenario::new(PARLOR);
    scenario.new_session("say A needle here.");
    let out =
        scenario.command(&["search", "needle", "role:agent"]).env("CLICOLOR_FORCE", "1").output().unwrap();
    let out = String::from_utf8(out.stdout).unwrap();
    assert!(out.contains("A \u{1b}[1m\u{1b}[4mneedle\u{1b}[0m here."), "{out:?}");
}

#[test]
fn a_session_is_exported_as_html() {
    let scenario = Scenario::new(PARLOR);
    let id = scenario.new_session(
        "say # Heading\\n<script>alert(1)</script>\ntool Edit the notes\nplan One;Two\nthink Well",
    );
    let page = scenario.run(&["export", &id, "--format", "html"]).success().plain().stdout;
    for part in
        ["<!DOCTYPE html>", "&lt;script&gt;", "<span>Edit</span>", "<tr class=\"add\">", "<span>One</span>"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("<script"), "{page}");
    let file = scenario.path().join("page.html");
    scenario.run(&["export", &id, "--format", "html", "-o", file.to_str().unwrap()]).success();
    assert_eq!(std::fs::read_to_string(file).unwrap(), page);
}
