//! `agents` and `doctor`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use parlor_testkit::programs;
use parlor_testkit::scenario::Scenario;
use parlor_testkit::wait::wait_until;
use serde_json::{Value, json};

use crate::{PARLOR, editor};

fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    list.as_array().unwrap().iter().find(|agent| agent["name"] == name).unwrap()
}

#[test]
fn agents_are_listed_from_server_configuration_and_presets() {
    let mut scenario = Scenario::new(PARLOR);
    let config = scenario.path().join("config.toml");
    fs::write(&config, "default_agent = 'mine'\n[agents.mine]\ncommand = 'no-such-program acp'\n").unwrap();
    let config = config.to_str().unwrap().to_owned();
    let list = scenario.run(&["agents", "--json", "--config", &config]).success().json();
    assert_eq!(
        (&named(&list, "mine")["source"], &named(&list, "mine")["default"]),
        (&json!("config"), &json!(true))
    );
    assert_eq!(named(&list, "mine")["path"], json!(null));
    assert_eq!(
        (&named(&list, "demo")["source"], &named(&list, "demo")["dialect"]),
        (&json!("preset"), &json!(null))
    );
    assert_eq!(named(&list, "claude")["install"], "parlor agents install claude");
    let output = scenario.run(&["agents", "--config", &config]).success().plain();
    assert!(
        output.stdout.contains("*  mine") && output.stdout.contains("no: parlor agents install"),
        "{output:#?}"
    );

    let agent = format!("own={} --version 1", programs::test_agent());
    scenario.serve(&["--agent", &agent]);
    scenario.new_session("say hello");
    let list = scenario.run(&["agents", "--json"]).success().json();
    let own = named(&list, "own");
    assert_eq!(
        (&own["source"], &own["default"], &own["dialect"]),
        (&json!("command line"), &json!(true), &json!("v1"))
    );
    assert_eq!(own["features"], json!(["resume", "list", "delete"]));
    assert_eq!(named(&list, "claude")["features"], json!(null), "it was never started");
    let output = scenario.run(&["agents"]).success().plain();
    assert!(output.stdout.contains("v1      resume, list, delete"), "{output:#?}");
    assert_eq!(own["path"], programs::test_agent());
}

#[test]
fn doctor_reports_no_problems_for_a_healthy_installation() {
    let mut scenario = Scenario::new(PARLOR);
    let report = scenario.run(&["doctor", "--json"]).success().json();
    assert_eq!(report["ok"], true);
    assert!(!scenario.data().exists(), "looking makes nothing");
    scenario.serve(&[]);
    scenario.new_session("say hello");
    let output = scenario.run(&["doctor"]).success().plain();
    for part in [
        "format version",
        "read 1 session",
        "running as process",
        "demo (Demo agent of parlor) answers initialize, speaks v2",
    ] {
        assert!(output.stdout.contains(part), "{part}: {output:#?}");
    }
    assert!(output.stdout.lines().all(|line| line.starts_with("ok ")), "{output:#?}");
}

#[test]
fn doctor_reports_losses_and_rejected_updates() {
    let mut scenario = Scenario::new(PARLOR);
    scenario.serve(&["--agent", &format!("test={} --version 2", programs::test_agent())]);
    let id = scenario.new_session("say hello");
    let other = scenario.new_session("say hello");
    for command in ["status", "doctor"] {
        let output = scenario.run(&[command]).success().plain();
        assert!(!output.stdout.contains("losses"), "{output:#?}");
    }
    let mut editor = crate::editor(&scenario);
    for (session, times) in [(&id, 2), (&other, 1)] {
        editor.load(session);
        // v1 has no notices.
        let notice = r#"raw {"sessionId":"SESSION","update":{"sessionUpdate":"notice","severity":"info","title":"n"}}"#;
        let text = [notice].repeat(times).join("\n");
        scenario.run(&["prompt", "-s", session, &text]).success();
    }
    let bad = r#"raw {"sessionId":"SESSION","update":{"sessionUpdate":"agent_message_chunk","content":7}}"#;
    scenario.run(&["prompt", "-s", &id, bad]).success();
    let losses = || scenario.run(&["status", "--json"]).success().json()["losses"].clone();
    let counts = |session: &str| {
        let all = losses();
        let one = all.as_array().unwrap().iter().find(|one| one["sessionId"] == session).cloned();
        let kinds = one.map(|one| one["losses"].as_array().unwrap().clone()).unwrap_or_default();
        assert!(kinds.iter().all(|kind| !kind["meaning"].as_str().unwrap().is_empty()), "{all}");
        kinds.iter().map(|kind| format!("{} {}", kind["count"], kind["loss"])).collect::<Vec<_>>()
    };
    wait_until("the losses are counted", || {
        counts(&id) == ["2 \"notice\"", "1 \"update_refused\""] && counts(&other) == ["1 \"notice\""]
    });
    let output = scenario.run(&["status"]).success().plain();
    for line in
        [format!("losses    {id}: 2 notice, 1 update_refused"), format!("losses    {other}: 1 notice")]
    {
        assert!(output.stdout.lines().any(|found| found.trim() == line), "{line}: {output:#?}");
    }
    let output = scenario.run(&["doctor"]).success().plain();
    for part in [
        "ok    losses          since the server started: 3 notice: ",
        "warn  refused updates since the server started: 1 update_refused: ",
    ] {
        assert!(output.stdout.lines().any(|line| line.starts_with(part)), "{part}: {output:#?}");
    }
    let report = scenario.run(&["doctor", "--json"]).success().json();
    let verdict = |name: &str| &named(&report["checks"], name)["verdict"];
    assert_eq!(
        (&report["ok"], verdict("losses"), verdict("refused updates")),
        (&json!(true), &json!("ok"), &json!("warn"))
    );
}

#[test]
fn doctor_finds_what_is_broken() {
    let scenario = Scenario::new(PARLOR);
    fs::create_dir(scenario.data()).unwrap();
    fs::set_permissions(scenario.data(), Permissions::from_mode(0o755)).unwrap();
    fs::write(
        scenario.data().join("parlor.db"),
        "this is no database, and long enough to see that it is none",
    )
    .unwrap();
    fs::write(scenario.data().join("token"), "secret").unwrap();
    fs::set_permissions(scenario.data().join("token"), Permissions::from_mode(0o644)).unwrap();
    drop(UnixListener::bind(scenario.data().join("parlor.sock")).unwrap());
    let config = scenario.path().join("config.toml");
    fs::write(&config, "default_agnet = 'x'\n").unwrap();
    let args = ["doctor", "--config", config.to_str().unwrap()];
    let report = scenario.run(&[&args[..], &["--json"]].concat()).exit_code(1).json();
    let verdict = |name: &str| {
        let check = named(&report["checks"], name);
        assert!(check["hint"].is_string(), "{check}");
        check["verdict"].as_str().unwrap().to_owned()
    };
    assert_eq!(report["ok"], false);
    assert_eq!(verdict("data directory"), "warn");
    assert_eq!(verdict("database"), "fail");
    assert_eq!(verdict("token"), "fail");
    assert_eq!(verdict("server"), "warn");
    assert_eq!(verdict("configuration"), "fail");
    let output = scenario.run(&args).exit_code(1).plain();
    assert!(
        output.stdout.contains("fail  database") && output.stdout.contains("3 checks failed."),
        "{output:#?}"
    );
    let output = scenario.run(&["ls"]).exit_code(5);
    assert!(output.stderr.contains("parlor.db") && output.stderr.contains("`parlor doctor`"), "{output:#?}");
}

/// Checks that `doctor` reports a damaged journal and no other failure.
fn finds_damaged_journal(scenario: &Scenario, part: &str) {
    let report = scenario.run(&["doctor", "--json"]).exit_code(1).json();
    let failed: Vec<_> =
        report["checks"].as_array().unwrap().iter().filter(|check| check["verdict"] == "fail").collect();
    let [check] = failed[..] else { panic!("{report}") };
    assert_eq!(check["name"], "journal");
    let (message, hint) = (check["message"].as_str().unwrap(), check["hint"].as_str().unwrap());
    assert!(message.contains("parlor.db.journal.damaged-1: ") && message.contains(part), "{check}");
    assert!(hint.contains("delete the file"), "{check}");
}

#[test]
fn doctor_reports_a_damaged_journal_until_it_is_deleted() {
    let mut scenario = Scenario::new(PARLOR).with_server();
    let id = scenario.new_session("say fine");
    scenario.stop();
    let damaged = scenario.data().join("parlor.db.journal.damaged-1");
    fs::write(scenario.data().join("parlor.db.journal"), "this is not a journal at all").unwrap();
    for _ in 0..2 {
        finds_damaged_journal(&scenario, "its header is damaged");
    }
    assert_eq!(fs::read_to_string(&damaged).unwrap(), "this is not a journal at all");
    scenario.serve(&[]);
    scenario.run(&["prompt", "-s", &id, "say again"]).success();
    finds_damaged_journal(&scenario, "its header is damaged");
    fs::remove_file(damaged).unwrap();
    scenario.run(&["doctor"]).success();
}

#[test]
fn a_server_reports_a_damaged_journal_and_continues() {
    let mut scenario = Scenario::new(PARLOR).with_server();
    let id = scenario.new_session("say fine");
    let mut editor = editor(&scenario);
    editor.load(&id);
    assert_eq!(editor.turn(&id, "say before"), "end_turn");
    scenario.run(&["show", &id]).success();
    // The journal cannot be moved to the database any more.
    let locking = rusqlite::Connection::open(scenario.data().join("parlor.db")).unwrap();
    locking.execute_batch("BEGIN IMMEDIATE").unwrap();
    let journal = scenario.data().join("parlor.db.journal");
    let first = fs::read(&journal).unwrap();
    editor.turn(&id, "say damaged");
    editor.turn(&id, "say behind the damage");
    scenario.kill();
    drop(locking);
    let mut bytes = fs::read(&journal).unwrap();
    let end = first.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[end + 30] ^= 1;
    fs::write(&journal, &bytes).unwrap();
    scenario.serve(&[]);
    let log = fs::read_to_string(scenario.data().join("log/parlor.log")).unwrap();
    assert!(log.contains("the journal of the last changes is damaged: the record at byte "), "{log}");
    finds_damaged_journal(&scenario, "whole record");
    let output = scenario.run(&["show", &id]).success();
    assert!(output.stdout.contains("before") && !output.stdout.contains("damage"), "{output:#?}");
    scenario.run(&["prompt", "-s", &id, "say again"]).success();
}

#[test]
fn doctor_reports_an_agent_that_does_not_start() {
    let scenario = Scenario::new(PARLOR);
    let config = scenario.path().join("config.toml");
    for (command, part) in
        [("no-such-program", "is not installed"), ("sh -c 'echo broken >&2; exit 3'", "broken")]
    {
        fs::write(&config, format!("default_agent = 'mine'\n[agents.mine]\ncommand = \"{command}\"\n"))
            .unwrap();
        let output = scenario.run(&["doctor", "--config", config.to_str().unwrap()]).exit_code(1);
        let line = output.stdout.lines().find(|line| line.contains("default agent")).unwrap();
        assert!(line.starts_with("fail") && line.contains(part), "{output:#?}");
    }
}

/// Changes the database while no server runs.
fn edit(scenario: &Scenario, sql: &str) {
    rusqlite::Connection::open(scenario.data().join("parlor.db")).unwrap().execute_batch(sql).unwrap();
}

#[test]
fn doctor_reports_a_session_that_cannot_be_read() {
    let mut scenario = Scenario::new(PARLOR).with_server();
    let (good, bad) = (scenario.new_session("say fine"), scenario.new_session("say broken"));
    scenario.stop();
    edit(
        &scenario,
        &format!(
            "UPDATE entries SET head = 'no head' WHERE session = (SELECT key FROM sessions WHERE id = '\"{bad}\"')"
        ),
    );
    for args in [&["doctor", "--json"][..], &["doctor", "--full", "--json"]] {
        let report = scenario.run(args).exit_code(1).json();
        let check = named(&report["checks"], "sessions");
        assert_eq!(check["verdict"], "fail");
        let message = check["message"].as_str().unwrap();
        assert!(message.contains(&bad) && !message.contains(&good), "{message}");
        assert_eq!(named(&report["checks"], "database")["verdict"], "ok");
    }
}

#[test]
fn without_full_a_sample_of_many_sessions_is_read() {
    let mut scenario = Scenario::new(PARLOR).with_server();
    scenario.new_session("say fine");
    scenario.stop();
    // The maximum number, including the session that was created above.
    edit(
        &scenario,
        "WITH RECURSIVE n(n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM n WHERE n < 2000)
         INSERT INTO sessions SELECT n, '\"many-' || n || '\"', agent, NULL, cwd, NULL, NULL, created_at, rank + n, archived,
             busy, data, NULL FROM n, sessions WHERE key = 1;
         INSERT INTO entries SELECT 1000, 1, 1, 1000000, 0, 'no head';",
    );
    let message = |args: &[&str], code| {
        let report = scenario.run(args).exit_code(code).json();
        named(&report["checks"], "sessions")["message"].as_str().unwrap().to_owned()
    };
    let sampled = message(&["doctor", "--json"], 0);
    assert!(sampled.contains("of 2000 sessions") && sampled.contains("--full"), "{sampled}");
    assert!(message(&["doctor", "--full", "--json"], 1).contains("many-1000"));
}

#[test]
fn doctor_finds_damage_outside_of_the_sampled_sessions() {
    let mut scenario = Scenario::new(PARLOR).with_server();
    scenario.new_session("say fine");
    scenario.stop();
    // A row that is missing in an index.
    edit(
        &scenario,
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, 'WHERE busy = 1', 'WHERE busy = 0')
         WHERE name = 'sessions_busy';",
    );
    let report = scenario.run(&["doctor", "--full", "--json"]).exit_code(1).json();
    let check = named(&report["checks"], "database");
    assert!(check["message"].as_str().unwrap().contains("sessions_busy"), "{check}");
}

#[test]
fn an_unreadable_data_directory_is_an_error_and_not_treated_as_empty() {
    let scenario = Scenario::new(PARLOR);
    let here = |name: &str| scenario.path().join(name).to_str().unwrap().to_owned();
    std::os::unix::fs::symlink(here("loop"), here("loop")).unwrap();
    fs::write(here("file"), "").unwrap();
    for name in ["loop", "file", "file/data"] {
        for command in [&["ls"][..], &["ls", "--json"], &["show", "latest"], &["search", "x"], &["status"]] {
            let output = scenario.run(&[command, &["--data", &here(name)]].concat()).exit_code(5);
            assert!(output.stderr.contains(&here(name)), "{command:?}: {output:#?}");
        }
        let output = scenario.run(&["doctor", "--data", &here(name)]).exit_code(1).plain();
        assert!(output.stdout.contains("fail  data directory"), "{output:#?}");
    }
    // The database itself.
    fs::create_dir_all(scenario.data().join("parlor.db")).unwrap();
    assert!(scenario.run(&["ls"]).exit_code(5).stderr.contains("parlor.db"));
}
