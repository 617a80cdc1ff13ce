//! `agents` and `doctor`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use parlor_testkit::programs;
use serde_json::{Value, json};

use crate::place::{Editor, Place, until};

fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    list.as_array().unwrap().iter().find(|agent| agent["name"] == name).unwrap()
}

#[test]
fn agents_come_from_everywhere() {
    let mut place = Place::new();
    let config = place.path().join("config.toml");
    fs::write(&config, "default_agent = 'mine'\n[agents.mine]\ncommand = 'no-such-program acp'\n").unwrap();
    let config = config.to_str().unwrap().to_owned();
    let list = place.run(&["agents", "--json", "--config", &config]).done().json();
    assert_eq!(
        (&named(&list, "mine")["source"], &named(&list, "mine")["default"]),
        (&json!("config"), &json!(true))
    );
    assert_eq!(named(&list, "mine")["path"], json!(null));
    assert_eq!(
        (&named(&list, "demo")["source"], &named(&list, "demo")["dialect"]),
        (&json!("preset"), &json!(null))
    );
    assert!(named(&list, "claude")["install"].as_str().unwrap().contains("npm"));
    let said = place.run(&["agents", "--config", &config]).done().plain();
    assert!(said.out.contains("*  mine") && said.out.contains("no: npm install"), "{said:#?}");

    let agent = format!("own={} --version 1", programs::test_agent());
    place.serve(&["--agent", &agent]);
    place.begin("say hello");
    let list = place.run(&["agents", "--json"]).done().json();
    let own = named(&list, "own");
    assert_eq!(
        (&own["source"], &own["default"], &own["dialect"]),
        (&json!("command line"), &json!(true), &json!("v1"))
    );
    assert_eq!(own["path"], programs::test_agent());
}

#[test]
fn a_healthy_place_is_healthy() {
    let mut place = Place::new();
    let report = place.run(&["doctor", "--json"]).done().json();
    assert_eq!(report["ok"], true);
    assert!(!place.data().exists(), "looking makes nothing");
    place.serve(&[]);
    place.begin("say hello");
    let said = place.run(&["doctor"]).done().plain();
    for part in
        ["format version", "read 1 session", "runs as process", "demo (Demo agent of parlor) answers, in v2"]
    {
        assert!(said.out.contains(part), "{part}: {said:#?}");
    }
    assert!(said.out.lines().all(|line| line.starts_with("ok ")), "{said:#?}");
}

#[test]
fn what_a_client_was_not_told_and_what_was_refused_is_reported() {
    let mut place = Place::new();
    place.serve(&["--agent", &format!("test={} --version 2", programs::test_agent())]);
    let id = place.begin("say hello");
    let other = place.begin("say hello");
    for command in ["status", "doctor"] {
        let said = place.run(&[command]).done().plain();
        assert!(!said.out.contains("losses"), "{said:#?}");
    }
    let mut editor = Editor::start(&place);
    for (session, times) in [(&id, 2), (&other, 1)] {
        editor.load(session);
        // v1 has no notices.
        let notice = r#"raw {"sessionId":"SESSION","update":{"sessionUpdate":"notice","severity":"info","title":"n"}}"#;
        let text = [notice].repeat(times).join("\n");
        place.run(&["prompt", session, &text]).done();
    }
    let bad = r#"raw {"sessionId":"SESSION","update":{"sessionUpdate":"agent_message_chunk","content":7}}"#;
    place.run(&["prompt", &id, bad]).done();
    let losses = || place.run(&["status", "--json"]).done().json()["losses"].clone();
    let counts = |session: &str| {
        let all = losses();
        let one = all.as_array().unwrap().iter().find(|one| one["sessionId"] == session).cloned();
        let kinds = one.map(|one| one["losses"].as_array().unwrap().clone()).unwrap_or_default();
        assert!(kinds.iter().all(|kind| !kind["meaning"].as_str().unwrap().is_empty()), "{all}");
        kinds.iter().map(|kind| format!("{} {}", kind["count"], kind["loss"])).collect::<Vec<_>>()
    };
    until(|| counts(&id) == ["2 \"notice\"", "1 \"update_refused\""] && counts(&other) == ["1 \"notice\""]);
    let said = place.run(&["status"]).done().plain();
    for line in
        [format!("losses    {id}: 2 notice, 1 update_refused"), format!("losses    {other}: 1 notice")]
    {
        assert!(said.out.lines().any(|found| found.trim() == line), "{line}: {said:#?}");
    }
    let said = place.run(&["doctor"]).done().plain();
    for part in [
        "ok    losses          since the server started: 3 notice: ",
        "warn  refused updates since the server started: 1 update_refused: ",
    ] {
        assert!(said.out.lines().any(|line| line.starts_with(part)), "{part}: {said:#?}");
    }
    let report = place.run(&["doctor", "--json"]).done().json();
    let verdict = |name: &str| &named(&report["checks"], name)["verdict"];
    assert_eq!(
        (&report["ok"], verdict("losses"), verdict("refused updates")),
        (&json!(true), &json!("ok"), &json!("warn"))
    );
}

#[test]
fn what_is_broken_is_found() {
    let place = Place::new();
    fs::create_dir(place.data()).unwrap();
    fs::set_permissions(place.data(), Permissions::from_mode(0o755)).unwrap();
    fs::write(place.data().join("parlor.db"), "this is no database, and long enough to see that it is none")
        .unwrap();
    fs::write(place.data().join("token"), "secret").unwrap();
    fs::set_permissions(place.data().join("token"), Permissions::from_mode(0o644)).unwrap();
    drop(UnixListener::bind(place.data().join("parlor.sock")).unwrap());
    let config = place.path().join("config.toml");
    fs::write(&config, "default_agnet = 'x'\n").unwrap();
    let args = ["doctor", "--config", config.to_str().unwrap()];
    let report = place.run(&[&args[..], &["--json"]].concat()).ended(1).json();
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
    let said = place.run(&args).ended(1).plain();
    assert!(said.out.contains("fail  database") && said.out.contains("3 checks failed."), "{said:#?}");
    let said = place.run(&["ls"]).ended(1);
    assert!(said.err.contains("parlor.db") && said.err.contains("`parlor doctor`"), "{said:#?}");
}

/// Checks that `doctor` fails because of a damaged journal that is kept, and because of nothing else.
fn finds_damaged_journal(place: &Place, part: &str) {
    let report = place.run(&["doctor", "--json"]).ended(1).json();
    let failed: Vec<_> =
        report["checks"].as_array().unwrap().iter().filter(|check| check["verdict"] == "fail").collect();
    let [check] = failed[..] else { panic!("{report}") };
    assert_eq!(check["name"], "journal");
    let (message, hint) = (check["message"].as_str().unwrap(), check["hint"].as_str().unwrap());
    assert!(message.contains("parlor.db.journal.damaged-1: ") && message.contains(part), "{check}");
    assert!(hint.contains("delete the file"), "{check}");
}

#[test]
fn a_damaged_journal_is_found_until_it_is_deleted_and_the_sessions_can_be_used() {
    let mut place = Place::served();
    let id = place.begin("say fine");
    place.stop();
    let kept = place.data().join("parlor.db.journal.damaged-1");
    fs::write(place.data().join("parlor.db.journal"), "this is no journal at all").unwrap();
    for _ in 0..2 {
        finds_damaged_journal(&place, "its header is damaged");
    }
    assert_eq!(fs::read_to_string(&kept).unwrap(), "this is no journal at all");
    place.serve(&[]);
    place.run(&["prompt", &id, "say again"]).done();
    finds_damaged_journal(&place, "its header is damaged");
    fs::remove_file(kept).unwrap();
    place.run(&["doctor"]).done();
}

#[test]
fn a_server_says_that_the_journal_of_one_that_was_killed_is_damaged_and_goes_on() {
    let mut place = Place::served();
    let id = place.begin("say fine");
    let mut editor = Editor::start(&place);
    editor.load(&id);
    editor.prompt(&id, "say before");
    place.run(&["show", &id]).done();
    // Nothing gets from the journal to the database any more.
    let held = rusqlite::Connection::open(place.data().join("parlor.db")).unwrap();
    held.execute_batch("BEGIN IMMEDIATE").unwrap();
    let journal = place.data().join("parlor.db.journal");
    let first = fs::read(&journal).unwrap();
    editor.prompt(&id, "say damaged");
    editor.prompt(&id, "say behind the damage");
    place.kill();
    drop(held);
    let mut bytes = fs::read(&journal).unwrap();
    let end = first.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[end + 30] ^= 1;
    fs::write(&journal, &bytes).unwrap();
    place.serve(&[]);
    let log = fs::read_to_string(place.data().join("log/parlor.log")).unwrap();
    assert!(log.contains("the journal of the last changes is damaged: the record at byte "), "{log}");
    finds_damaged_journal(&place, "whole record");
    let said = place.run(&["show", &id]).done();
    assert!(said.out.contains("before") && !said.out.contains("damage"), "{said:#?}");
    place.run(&["prompt", &id, "say again"]).done();
}

#[test]
fn an_agent_that_does_not_start_is_found() {
    let place = Place::new();
    let config = place.path().join("config.toml");
    for (command, part) in
        [("no-such-program", "cannot be started"), ("sh -c 'echo broken >&2; exit 3'", "broken")]
    {
        fs::write(&config, format!("default_agent = 'mine'\n[agents.mine]\ncommand = \"{command}\"\n"))
            .unwrap();
        let said = place.run(&["doctor", "--config", config.to_str().unwrap()]).ended(1);
        let line = said.out.lines().find(|line| line.contains("default agent")).unwrap();
        assert!(line.starts_with("fail") && line.contains(part), "{said:#?}");
    }
}

/// Changes the database of a place that no server has.
fn edit(place: &Place, sql: &str) {
    rusqlite::Connection::open(place.data().join("parlor.db")).unwrap().execute_batch(sql).unwrap();
}

#[test]
fn a_session_that_cannot_be_read_is_found() {
    let mut place = Place::served();
    let (good, bad) = (place.begin("say fine"), place.begin("say broken"));
    place.stop();
    edit(
        &place,
        &format!(
            "UPDATE entries SET head = 'no head' WHERE session = (SELECT key FROM sessions WHERE id = '\"{bad}\"')"
        ),
    );
    for args in [&["doctor", "--json"][..], &["doctor", "--full", "--json"]] {
        let report = place.run(args).ended(1).json();
        let check = named(&report["checks"], "sessions");
        assert_eq!(check["verdict"], "fail");
        let message = check["message"].as_str().unwrap();
        assert!(message.contains(&bad) && !message.contains(&good), "{message}");
        assert_eq!(named(&report["checks"], "database")["verdict"], "ok");
    }
}

#[test]
fn without_full_a_sample_of_many_sessions_is_read() {
    let mut place = Place::served();
    place.begin("say fine");
    place.stop();
    // As many as there may be, with the one that was begun among them.
    edit(
        &place,
        "WITH RECURSIVE n(n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM n WHERE n < 2000)
         INSERT INTO sessions SELECT n, '\"many-' || n || '\"', agent, NULL, cwd, NULL, NULL, created_at, rank + n, archived,
             busy, data FROM n, sessions WHERE key = 1;
         INSERT INTO entries SELECT 1000, 1, 1, 1000000, 0, 'no head';",
    );
    let message = |args: &[&str], code| {
        let report = place.run(args).ended(code).json();
        named(&report["checks"], "sessions")["message"].as_str().unwrap().to_owned()
    };
    let sampled = message(&["doctor", "--json"], 0);
    assert!(sampled.contains("of 2000 sessions") && sampled.contains("--full"), "{sampled}");
    assert!(message(&["doctor", "--full", "--json"], 1).contains("many-1000"));
}

#[test]
fn a_damaged_file_is_found_also_where_no_session_is_read() {
    let mut place = Place::served();
    place.begin("say fine");
    place.stop();
    // A row that an index does not have.
    edit(
        &place,
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, 'WHERE busy = 1', 'WHERE busy = 0')
         WHERE name = 'sessions_busy';",
    );
    let report = place.run(&["doctor", "--full", "--json"]).ended(1).json();
    let check = named(&report["checks"], "database");
    assert!(check["message"].as_str().unwrap().contains("sessions_busy"), "{check}");
}

#[test]
fn a_directory_that_cannot_be_read_is_an_error_and_not_an_empty_one() {
    let place = Place::new();
    let here = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    std::os::unix::fs::symlink(here("loop"), here("loop")).unwrap();
    fs::write(here("file"), "").unwrap();
    for name in ["loop", "file", "file/data"] {
        for command in [&["ls"][..], &["ls", "--json"], &["show", "latest"], &["search", "x"], &["status"]] {
            let said = place.run(&[command, &["--data", &here(name)]].concat()).ended(1);
            assert!(said.err.contains(&here(name)), "{command:?}: {said:#?}");
        }
        let said = place.run(&["doctor", "--data", &here(name)]).ended(1).plain();
        assert!(said.out.contains("fail  data directory"), "{said:#?}");
    }
    // The database itself.
    fs::create_dir_all(place.data().join("parlor.db")).unwrap();
    assert!(place.run(&["ls"]).ended(1).err.contains("parlor.db"));
}
