//! `backup`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};

use parlor_testkit::process::exit_status;
use parlor_testkit::scenario::Scenario;
use parlor_testkit::wait::wait_until;

use crate::PARLOR;
use crate::terminal::Terminal;

/// The transcript of a session in the database that a backup was restored to.
fn restored(backup: &Scenario, session: &str) -> String {
    let restored = Scenario::new(PARLOR);
    fs::create_dir(restored.data()).unwrap();
    fs::copy(backup.work().join("copy.db"), restored.data().join("parlor.db")).unwrap();
    restored.run(&["show", "--json", session]).success().stdout
}

/// A turn that streams text and does not end by itself.
fn start_streaming(scenario: &Scenario) -> Child {
    let mut prompt = scenario.command(&["prompt", "--new", "title Streaming\nstream 1000000 20 2000"]);
    let prompt = prompt.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the turn runs", || {
        scenario.run(&["status", "--json"]).json()["turns"][0]["title"] == "Streaming"
    });
    prompt
}

#[test]
fn a_backup_has_all_sessions_also_while_a_server_writes() {
    let mut scenario = Scenario::new(PARLOR).with_server();
    let id = scenario.new_session("say hello");
    let mut streaming = start_streaming(&scenario);
    let output = scenario.run(&["backup", "copy.db"]).success().plain();
    assert!(output.stdout.starts_with("wrote copy.db: 2 sessions, "), "{output:#?}");
    let copy = scenario.work().join("copy.db");
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    let files: Vec<_> =
        fs::read_dir(scenario.work()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files, ["copy.db"], "the backup is one file");
    let transcript = scenario.run(&["show", "--json", &id]).success().stdout;
    assert_eq!(restored(&scenario, &id), transcript);
    scenario.stop();
    exit_status(&mut streaming);
    // Without a server.
    fs::remove_file(&copy).unwrap();
    let report = scenario.run(&["backup", "--json", "copy.db"]).success().json();
    assert_eq!((&report["file"], &report["sessions"]), (&"copy.db".into(), &2.into()), "{report}");
    assert_eq!(restored(&scenario, &id), transcript);
}

#[test]
fn a_restored_backup_is_used_by_a_server() {
    let mut scenario = Scenario::new(PARLOR).with_server();
    let id = scenario.new_session("say hello");
    scenario.run(&["backup", "copy.db"]).success();
    scenario.run(&["rm", "--yes", &id]).success();
    scenario.stop();
    fs::copy(scenario.work().join("copy.db"), scenario.data().join("parlor.db")).unwrap();
    scenario.serve(&[]);
    let output = scenario.run(&["search", "hello"]).success();
    assert!(output.stdout.contains(&id), "{output:#?}");
    assert_eq!(scenario.run(&["prompt", "-s", &id, "say again"]).success().stdout, "again\n");
}

#[test]
fn a_backup_of_a_killed_server_has_what_was_only_in_its_journal() {
    let mut scenario = Scenario::new(PARLOR).with_server();
    let id = scenario.new_session("say hello");
    scenario.kill();
    scenario.run(&["backup", "copy.db"]).success();
    assert!(restored(&scenario, &id).contains("hello"));
}

#[test]
fn a_backup_overwrites_nothing() {
    let scenario = Scenario::new(PARLOR).with_server();
    scenario.new_session("say hello");
    let copy = scenario.work().join("copy.db");
    fs::write(&copy, "mine").unwrap();
    let output = scenario.run(&["backup", "copy.db"]).exit_code(2);
    assert!(output.stderr.starts_with("parlor: copy.db exists\n  hint: "), "{output:#?}");
    assert_eq!(fs::read_to_string(&copy).unwrap(), "mine");
    let output = scenario.run(&["backup", "missing/copy.db"]).exit_code(2);
    assert_eq!(output.stderr, "parlor: there is no directory missing\n");
    let output = scenario.run(&["backup", "."]).exit_code(2);
    assert!(output.stderr.starts_with("parlor: . is a directory\n"), "{output:#?}");
    let (code, seen) = Terminal::new(&scenario, &["backup", "other.db"]).wait();
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.starts_with("wrote other.db: 1 session, "), "{seen}");
}

#[test]
fn without_sessions_there_is_nothing_to_back_up() {
    let scenario = Scenario::new(PARLOR);
    let output = scenario.run(&["backup", "copy.db"]).exit_code(1);
    assert!(output.stderr.starts_with("parlor: nothing to back up: "), "{output:#?}");
    assert!(!scenario.work().join("copy.db").exists());
}
