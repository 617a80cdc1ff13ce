//! `import`.

use std::fs;

use parlor_testkit::programs;
use parlor_testkit::scenario::Scenario;
use serde_json::{Value, json};

use crate::PARLOR;
use crate::terminal::Terminal;

/// A scenario with a server whose default agent stores its sessions, and has those with these ids and directories.
fn scenario(options: &str, sessions: &[(&str, &str)]) -> Scenario {
    let mut scenario = Scenario::new(PARLOR);
    let state = scenario.path().join("state");
    fs::create_dir(&state).unwrap();
    for (id, cwd) in sessions {
        let text = |text: String| json!([{ "type": "text", "text": text }]);
        let session = json!({
            "sessionId": id, "cwd": cwd, "mode": "code", "model": "large", "updatedAt": "2025-05-05T05:05:05Z",
            "title": format!("Title of {id}"),
            "messages": [
                { "role": "user", "messageId": "q1", "content": text(format!("Question of {id}")) },
                { "role": "agent", "messageId": "a1", "content": text(format!("Answer of {id}")) },
            ],
        });
        fs::write(state.join(format!("{id}.json")), session.to_string()).unwrap();
    }
    let agent = format!("mine={} {options} --state {}", programs::test_agent(), state.display());
    scenario.serve(&["--agent", &agent]);
    scenario
}

fn stored(scenario: &Scenario) -> Vec<String> {
    let listed = scenario.run(&["ls", "--json"]).success().json();
    let stored = listed.as_array().unwrap().iter().filter(|row| row["adopted"] != false);
    let mut ids: Vec<_> = stored.map(|row| row["sessionId"].as_str().unwrap().to_owned()).collect();
    ids.sort();
    ids
}

#[test]
fn sessions_of_the_agent_are_listed_and_imported() {
    for version in ["--version 1", "--version 2"] {
        let scenario = scenario(version, &[("abc1", "/"), ("abc2", "/"), ("xyz", "/")]);
        let output = scenario.run(&["import"]).success();
        assert!(output.stdout.starts_with("ID    TITLE"), "{output:#?}");
        assert!(output.stdout.contains("abc1  Title of abc1  2025-05-05  /\n"), "{output:#?}");
        let listed = scenario.run(&["import", "--json"]).success().json();
        let ids: Vec<_> = listed.as_array().unwrap().iter().map(|one| one["sessionId"].clone()).collect();
        assert_eq!(ids, ["abc1", "abc2", "xyz"]);
        assert_eq!(stored(&scenario), Vec::<String>::new(), "nothing was imported yet");

        assert!(
            scenario
                .run(&["import", "ab"])
                .exit_code(2)
                .stderr
                .starts_with("parlor: 'ab' matches 2 sessions\n")
        );
        let output = scenario.run(&["import", "xyz", "nothing"]).exit_code(2);
        assert!(
            output.stderr.starts_with(
                "parlor: agent 'mine' has no session to import whose id starts with 'nothing'\n"
            ),
            "{output:#?}"
        );
        assert_eq!(stored(&scenario), Vec::<String>::new(), "all names are resolved first");

        let output = scenario.run(&["import", "x"]).success();
        assert_eq!(output.stdout, "imported  xyz  Title of xyz\n");
        assert_eq!(stored(&scenario), ["xyz"]);
        let imported = scenario.run(&["import", "--all", "--json"]).success().json();
        let ids: Vec<_> = imported.as_array().unwrap().iter().map(|one| one["sessionId"].clone()).collect();
        assert_eq!(ids, ["abc1", "abc2"], "the other one is imported already");
        assert!(imported.as_array().unwrap().iter().all(|one| one["imported"] == true), "{imported}");
        let transcript = scenario.run(&["show", "abc1"]).success();
        assert!(transcript.stdout.contains("Answer of abc1"), "{transcript:#?}");
        for args in [&["import"][..], &["import", "--all"]] {
            let output = scenario.run(args).success();
            assert_eq!(output.stdout, "agent 'mine' has no sessions that parlor does not have\n");
        }
    }
}

#[test]
fn a_session_that_cannot_be_imported_does_not_stop_the_others() {
    let scenario = scenario("--version 1", &[("a", "/"), ("b", "relative"), ("c", "/")]);
    let output = scenario.run(&["import", "--all"]).exit_code(1);
    let lines: Vec<_> = output.stdout.lines().collect();
    assert_eq!((lines[0], lines[2]), ("imported  a  Title of a", "imported  c  Title of c"), "{output:#?}");
    assert!(lines[1].starts_with("failed    b  Title of b: "), "{output:#?}");
    assert_eq!(output.stderr, "1 of 3 sessions could not be imported\n");
    assert_eq!(stored(&scenario), ["a", "c"]);
    let failed: Value = scenario.run(&["import", "--all", "--json"]).exit_code(1).json();
    assert_eq!((&failed[0]["imported"], failed[0]["error"].is_string()), (&json!(false), true), "{failed}");
}

#[test]
fn an_agent_that_lists_no_sessions_is_named() {
    let scenario = scenario("--version 1 --offers load", &[]);
    let output = scenario.run(&["import"]).exit_code(1);
    assert_eq!(output.stderr, "parlor: agent 'mine' does not list its sessions\n");
    let output = scenario.run(&["import", "--agent", "nobody"]).exit_code(2);
    assert!(output.stderr.contains("unknown agent 'nobody'"), "{output:#?}");
    let output = scenario.run(&["import", "--all", "x"]).exit_code(2);
    assert!(output.stderr.contains("--all cannot be used together with SESSION"), "{output:#?}");
}

#[test]
fn the_list_fits_a_narrow_terminal_and_says_how_to_import() {
    let scenario = scenario("--version 2", &[("abc1", "/tmp"), ("abc2", "/")]);
    for columns in [40, 120] {
        let (code, seen) = Terminal::with_columns(&scenario, &["import"], columns).wait();
        assert_eq!(code, Some(0), "{seen}");
        let plain = anstream::adapter::strip_str(&seen).to_string();
        assert!(plain.lines().all(|line| line.trim_end().chars().count() <= columns.into()), "{plain}");
        assert!(plain.contains("import them: parlor import --all"), "{plain}");
    }
}
