//! `parlor search`.

use serde_json::json;

use crate::place::Place;

#[test]
fn the_command_finds_with_and_without_a_server() {
    let mut place = Place::new();
    let nothing = "Nothing was found.\n'any* thing*' finds words that begin so.\n";
    assert_eq!(place.run(&["search", "any", "thing"]).done().plain().out, nothing);
    assert_eq!(place.run(&["search", "any*"]).done().plain().out, "Nothing was found.\n");
    assert_eq!(place.run(&["search", "--json", "anything"]).done().json(), json!([]));
    assert!(!place.data().exists(), "looking makes nothing");

    let id = place.begin("title A \u{9b}31mtitle\nthink About the café\nsay The CAFÉ is open, \u{7}friends.\ntool Open the café");
    let other = place.begin("say Another cafe, elsewhere");
    let mut answers = Vec::new();
    for _ in 0..2 {
        let said = place.run(&["search", "cafe", "open"]).done().plain();
        for part in [
            "A \u{fffd}31mtitle",
            &id,
            "  agent · ",
            "  tool · ",
            "just now\n  The CAFÉ is open, \u{fffd}friends.",
        ] {
            assert!(said.out.contains(part), "{part}: {said:#?}");
        }
        assert!(said.err.is_empty() && !said.out.contains(&other), "{said:#?}");
        let found = |args: &[&str]| -> Vec<String> {
            let args = [&["search", "--json"], args].concat();
            let hits = place.run(&args).done().json();
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
        assert_eq!(found(&["cafe", "--agent", "demo", "--since", "1h", "--limit", "3"]).len(), 3);
        assert_eq!(found(&["cafe", "--agent", "other"]).len(), 0);
        assert_eq!(found(&["cafe", "--since", "2999-01-01"]).len(), 0);
        assert!(place.run(&["search", "cafe", "--limit", "1"]).done().out.contains("There is more"));
        answers.push(place.run(&["search", "--json", "cafe"]).done().out);

        for args in [&["cafe", "--since", "yesterday"][..], &["colour:blue"], &["role:nobody", "x"]] {
            let said = place.run(&[&["search"], args].concat()).ended(2);
            assert!(said.err.contains("hint:"), "{said:#?}");
        }
        let many: String = (0..100).map(|n| format!("w{n} ")).collect();
        let said = place.run(&["search", &many]).done();
        assert!(said.err.contains("36 words") && said.out.contains("Nothing"), "{said:#?}");
        place.stop();
    }
    assert_eq!(answers[0], answers[1], "the server and the store say the same");
    place.run(&["search"]).ended(2);
}

#[test]
fn matches_stand_out_on_a_terminal() {
    let place = Place::new();
    place.begin("say A needle here.");
    let out = place.command(&["search", "needle", "role:agent"]).env("CLICOLOR_FORCE", "1").output().unwrap();
    let out = String::from_utf8(out.stdout).unwrap();
    assert!(out.contains("A \u{1b}[1m\u{1b}[4mneedle\u{1b}[0m here."), "{out:?}");
}

#[test]
fn a_session_is_exported_as_a_page() {
    let place = Place::new();
    let id = place
        .begin("say # Heading\\n<script>alert(1)</script>\ntool Edit the notes\nplan One;Two\nthink Well");
    let page = place.run(&["export", &id, "--format", "html"]).done().plain().out;
    for part in
        ["<!DOCTYPE html>", "&lt;script&gt;", "<strong>Edit the notes</strong>", "class=\"added\"", "One"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("<script"), "{page}");
    let file = place.path().join("page.html");
    place.run(&["export", &id, "--format", "html", "-o", file.to_str().unwrap()]).done();
    assert_eq!(std::fs::read_to_string(file).unwrap(), page);
}
