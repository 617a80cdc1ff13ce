//! `serve`: startup and shutdown.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use parlor_testkit::process::{exit_status, send_signal};
use parlor_testkit::scenario::Scenario;
use rustix::process::Signal;

use crate::PARLOR;

fn spawn(scenario: &Scenario) -> Child {
    let mut command = scenario.command(&["serve", "--listen", "127.0.0.1:0"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_signal_right_after_startup_stops_the_server_cleanly() {
    for kind in [Signal::TERM, Signal::INT, Signal::HUP] {
        for _ in 0..3 {
            let scenario = Scenario::new(PARLOR);
            let mut server = spawn(&scenario);
            let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
            assert!(lines.next().unwrap().unwrap().ends_with("is ready"));
            send_signal(server.id(), kind);
            let status = server.wait().unwrap();
            assert!(status.success(), "{kind:?}: {status}");
            for left in ["parlor.sock", "port", "parlor.db-wal"] {
                assert!(!scenario.data().join(left).exists(), "{kind:?} leaves {left}");
            }
        }
    }
}

#[test]
fn the_server_stops_when_its_data_directory_is_deleted() {
    let scenario = Scenario::new(PARLOR);
    let mut server = spawn(&scenario);
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("Ctrl-C")));
    fs::remove_dir_all(scenario.data()).unwrap();
    assert_eq!(exit_status(&mut server).code(), Some(1));
    let mut output = String::new();
    server.stderr.take().unwrap().read_to_string(&mut output).unwrap();
    assert!(output.contains("was deleted or moved") && output.contains("data"), "{output}");
    assert!(!scenario.data().exists(), "nothing is left where it was");
}

#[test]
fn log_files_are_readable_by_their_owner_only() {
    let mut scenario = Scenario::new(PARLOR);
    let log = scenario.data().join("log");
    fs::create_dir_all(&log).unwrap();
    // With the permissions that earlier versions set.
    for name in ["parlor.log", "parlor.old.log"] {
        fs::write(log.join(name), "").unwrap();
        fs::set_permissions(log.join(name), Permissions::from_mode(0o644)).unwrap();
    }
    let modes = |scenario: &Scenario| -> Vec<u32> {
        let files = fs::read_dir(scenario.data().join("log")).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().permissions().mode() & 0o777).collect()
    };
    scenario.serve(&[]);
    assert_eq!(modes(&scenario), [0o600, 0o600]);
    scenario.stop();
    fs::remove_dir_all(&log).unwrap();
    scenario.serve(&[]);
    assert_eq!(modes(&scenario), [0o600]);
}

#[test]
fn a_command_waits_for_a_slow_server_and_prints_a_notice() {
    let mut scenario = Scenario::new(PARLOR);
    let config = scenario.work().join("slow.toml");
    assert!(Command::new("mkfifo").arg(&config).status().unwrap().success());
    let mut prompt = scenario
        .command(&["prompt", "--config", "slow.toml", "--new", "say hello"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut err = BufReader::new(prompt.stderr.take().unwrap()).lines().map(Result::unwrap);
    let first = err.next();
    // The server reads its configuration to the end before it starts.
    fs::write(&config, "").unwrap();
    assert_eq!(first.as_deref(), Some("waiting for the server to start ..."));
    let output = prompt.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "hello\n");
    let rest: Vec<_> = err.collect();
    let [agent, session] = &rest[..] else { panic!("{rest:?}") };
    assert!(agent.starts_with("no agent is installed") && session.starts_with("session "), "{rest:?}");
    scenario.stop();
    // A server that has exited is not waited for.
    fs::write(scenario.work().join("wrong.toml"), "what?").unwrap();
    let output = scenario.run(&["prompt", "--config", "wrong.toml", "--new", "say hello"]).exit_code(2);
    assert!(
        output.stderr.contains("cannot start the server") && output.stderr.contains("wrong.toml"),
        "{output:#?}"
    );
    assert!(!output.stderr.contains("waiting for the server"), "{output:#?}");
}
