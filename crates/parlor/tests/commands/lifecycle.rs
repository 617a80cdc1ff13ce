//! Starting, stopping and restarting servers: `stop`, `restart`, servers in the background, servers of other versions.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use parlor_testkit::process::{exit_status, is_alive, send_signal};
use parlor_testkit::scenario::Scenario;
use parlor_testkit::wait::wait_until;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::PARLOR;
use crate::terminal::Terminal;

/// A turn that does not end by itself.
const LONG_TURN: &str = "title A long turn\nsleep 3600000";

/// Starts a turn that does not end by itself, in a new session, and waits until it runs.
fn start_turn(scenario: &Scenario) -> Child {
    let mut prompt = scenario.command(&["prompt", "--new", LONG_TURN]);
    let prompt = prompt.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the turn runs with its title", || {
        let output = scenario.run(&["status", "--json"]);
        output.code == Some(0) && output.json()["turns"][0]["title"] == "A long turn"
    });
    prompt
}

/// A server whose output is read by the test.
fn spawn_server(scenario: &Scenario, args: &[&str]) -> Child {
    let mut command = scenario.command(&["serve", "--listen", "127.0.0.1:0"]);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let server = command.spawn().unwrap();
    wait_until("the server accepts connections", || scenario.server_pid().is_some());
    server
}

#[test]
fn stop_without_a_server_says_so_and_succeeds() {
    let scenario = Scenario::new(PARLOR);
    let output = scenario.run(&["stop"]).success().plain();
    assert!(output.stdout.starts_with("no server is running for "), "{output:#?}");
    assert!(!scenario.data().exists(), "it creates no data directory");
    assert_eq!(scenario.run(&["stop", "--json"]).success().json(), json!({ "stopped": false }));
    // A killed server leaves its files.
    let mut scenario = scenario.with_server();
    scenario.kill();
    let output = scenario.run(&["stop"]).success();
    assert!(output.stdout.starts_with("no server is running for "), "{output:#?}");
}

#[test]
fn stop_waits_for_the_server_and_names_the_interrupted_turns() {
    let mut scenario = Scenario::new(PARLOR).with_server();
    let mut prompt = start_turn(&scenario);
    let output = scenario.run(&["stop"]).success().plain();
    assert_eq!(scenario.server_pid(), None);
    let mut lines = output.stdout.lines();
    assert!(lines.next().unwrap().starts_with("stopped the server (process "), "{output:#?}");
    let interrupted = lines.next().unwrap();
    assert!(
        interrupted.starts_with("  interrupted  ") && interrupted.ends_with("A long turn (demo)"),
        "{output:#?}"
    );
    exit_status(&mut prompt);
    scenario.serve(&[]);
    let report = scenario.run(&["stop", "--json"]).success().json();
    assert_eq!((&report["stopped"], &report["interrupted"]), (&json!(true), &json!([])), "{report}");
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn stop_on_a_terminal_prints_the_same() {
    let scenario = Scenario::new(PARLOR).with_server();
    let (code, seen) = Terminal::new(&scenario, &["stop"]).wait();
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.starts_with("stopped the server (process "), "{seen}");
    let (code, seen) = Terminal::new(&scenario, &["stop"]).wait();
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.starts_with("no server is running for "), "{seen}");
}

#[test]
fn stop_gives_up_on_a_server_that_does_not_react() {
    let scenario = Scenario::new(PARLOR).with_server();
    let pid = scenario.server_pid().unwrap();
    send_signal(pid, Signal::STOP);
    let output = scenario.run(&["stop", "--timeout", "1"]).exit_code(5);
    send_signal(pid, Signal::CONT);
    assert!(
        output.stderr.contains(&format!("the server (process {pid}) did not stop within 1 s")),
        "{output:#?}"
    );
    assert!(output.stderr.contains(&format!("hint: `kill -9 {pid}`")), "{output:#?}");
    // It gets the signal as soon as it runs again.
    wait_until("the server has stopped", || scenario.server_pid().is_none());
}

#[test]
fn restart_keeps_process_and_arguments() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    let pid = scenario.server_pid().unwrap();
    let mut prompt = {
        let mut prompt = scenario.command(&["prompt", "--new", "--agent", "demo", LONG_TURN]);
        prompt.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    wait_until("the turn runs", || {
        scenario.run(&["status", "--json"]).json()["turns"][0]["title"] == "A long turn"
    });
    let output = scenario.run(&["restart"]).success().plain();
    assert!(output.stdout.starts_with("restarted the server: parlor "), "{output:#?}");
    assert!(
        output.stdout.contains("  interrupted  ") && output.stdout.contains("A long turn"),
        "{output:#?}"
    );
    exit_status(&mut prompt);
    let status = scenario.run(&["status", "--json"]).success().json();
    assert_eq!((&status["pid"], &status["turns"]), (&json!(pid), &json!([])), "{status}");
    let agents = scenario.run(&["agents", "--json"]).success().json();
    let default = agents.as_array().unwrap().iter().find(|agent| agent["default"] == true).unwrap();
    assert_eq!(default["name"], "test", "the agent of the command line is still there");
    assert!(is_alive(pid));
}

#[test]
fn restart_without_a_server_starts_one() {
    let mut scenario = Scenario::new(PARLOR);
    let output = scenario.run(&["restart"]).success();
    assert!(output.stdout.starts_with("started the server: parlor "), "{output:#?}");
    scenario.run(&["status"]).success();
    scenario.stop();
}

#[test]
fn restart_reports_a_server_that_does_not_start_again() {
    let scenario = Scenario::new(PARLOR);
    fs::write(scenario.config(), "").unwrap();
    let config = scenario.config();
    let mut server = spawn_server(&scenario, &["--config", config.to_str().unwrap()]);
    fs::write(scenario.data().join("token"), "short").unwrap();
    let output = scenario.run(&["restart"]).exit_code(5);
    assert!(output.stderr.contains("parlor: the server did not start again: "), "{output:#?}");
    assert!(output.stderr.contains("hint: `parlor serve` starts it in this terminal"), "{output:#?}");
    assert_eq!(exit_status(&mut server).code(), Some(5));
}

#[test]
fn a_server_with_an_invalid_configuration_is_not_restarted() {
    let scenario = Scenario::new(PARLOR);
    fs::write(scenario.config(), "").unwrap();
    let config = scenario.config();
    let mut server = spawn_server(&scenario, &["--config", config.to_str().unwrap()]);
    fs::write(scenario.config(), "what?").unwrap();
    let output = scenario.run(&["restart"]).exit_code(2);
    assert!(output.stderr.contains("the server was not restarted"), "{output:#?}");
    assert!(output.stderr.contains(".toml:1"), "{output:#?}");
    assert_eq!(scenario.server_pid(), Some(server.id()), "it still runs");
    fs::write(scenario.config(), "").unwrap();
    scenario.run(&["restart"]).success();
    scenario.run(&["stop"]).success();
    assert!(exit_status(&mut server).success());
}

#[test]
fn a_wrong_key_is_reported_by_every_command_that_reads_the_configuration() {
    let scenario = Scenario::new(PARLOR);
    fs::write(scenario.config(), "").unwrap();
    let config = scenario.config();
    let config = config.to_str().unwrap();
    let mut server = spawn_server(&scenario, &["--config", config]);
    fs::write(scenario.config(), "[keys.messages]\nfork = \"e\"\n").unwrap();
    let error = "config.toml:2: e is assigned twice in 'messages': to 'fork' and to 'edit'";
    wait_until("the server has read it", || scenario.run(&["status"]).success().stdout.contains(error));
    for args in [&["doctor", "--config", config][..], &["restart"], &["serve", "--config", config]] {
        let output = scenario.run(args);
        let seen = format!("{}{}", output.stdout, output.stderr);
        assert!(seen.contains(error), "{args:?}: {seen}");
        assert_ne!(output.code, Some(0), "{args:?}");
    }
    fs::write(scenario.config(), "[keys.messages]\nfork = \"e\"\nedit = \"f\"\n").unwrap();
    wait_until("it is valid", || !scenario.run(&["status"]).success().stdout.contains("assigned twice"));
    scenario.run(&["stop"]).success();
    assert!(exit_status(&mut server).success());
}

#[test]
fn a_server_in_the_background_listens_like_serve_and_is_stopped_by_stop() {
    let scenario = Scenario::new(PARLOR);
    scenario.new_session("say hello");
    let pid = scenario.server_pid().unwrap();
    let status = scenario.run(&["status", "--json"]).success().json();
    assert!(status["address"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{status}");
    assert_eq!(status["idleTimeoutSeconds"], 1800, "{status}");
    let output = scenario.run(&["status"]).success();
    assert!(output.stdout.contains("  stops     after 30 min without clients and turns\n"), "{output:#?}");
    scenario.run(&["stop"]).success();
    assert!(!is_alive(pid));
}

#[test]
fn a_server_in_the_background_stops_after_the_idle_timeout_and_not_during_a_turn() {
    let scenario = Scenario::new(PARLOR);
    fs::write(scenario.work().join("config.toml"), "[server]\nidle_timeout = 1\nsocket_only = true\n")
        .unwrap();
    // The turn takes longer than the timeout.
    let output =
        scenario.run(&["prompt", "--config", "config.toml", "--new", "sleep 2500\nsay done"]).success();
    assert_eq!(output.stdout, "done\n");
    let status = scenario.run(&["status", "--json"]).success().json();
    assert_eq!(status["address"], Value::Null, "{status}");
    wait_until("the server has stopped", || scenario.server_pid().is_none());
    let log = fs::read_to_string(scenario.data().join("log/parlor.log")).unwrap();
    assert!(log.contains("no client and no turn"), "{log}");
}

#[test]
fn a_server_in_the_background_finishes_a_turn_without_clients() {
    let scenario = Scenario::new(PARLOR);
    fs::write(scenario.work().join("config.toml"), "[server]\nidle_timeout = 1\n").unwrap();
    let mut prompt = scenario
        .command(&["prompt", "--config", "config.toml", "--new", "title Alone\nsleep 2500\nsay finished"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the turn runs", || {
        let output = scenario.run(&["status", "--json"]);
        output.code == Some(0) && output.json()["turns"][0]["title"] == "Alone"
    });
    prompt.kill().unwrap();
    prompt.wait().unwrap();
    wait_until("the server has stopped", || scenario.server_pid().is_none());
    let shown = scenario.run(&["show", "latest", "--json"]).success().json();
    assert_eq!(shown["state"]["stopReason"], "end_turn", "{shown}");
    assert!(scenario.run(&["show", "latest", "-1"]).success().stdout.contains("finished"));
}

#[test]
fn an_interrupt_names_the_turns_and_a_second_one_ends_at_once() {
    let scenario = Scenario::new(PARLOR);
    // An agent that does not end when it is asked to.
    let agent = format!("slow=sh -c 'trap \"\" TERM; {PARLOR} demo-agent; sleep 30'");
    let mut server = spawn_server(&scenario, &["--agent", &agent]);
    let mut prompt = start_turn(&scenario);
    send_signal(server.id(), Signal::INT);
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "stopping; interrupts 1 turn (Ctrl-C again ends at once):");
    assert!(lines.next().unwrap().ends_with("A long turn (slow)"));
    send_signal(server.id(), Signal::INT);
    assert_eq!(exit_status(&mut server).code(), Some(130));
    exit_status(&mut prompt);
}

#[test]
fn a_port_in_use_names_its_holder_and_the_option() {
    let scenario = Scenario::new(PARLOR);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = scenario.run(&["serve", "--listen", &address]).exit_code(5);
    assert!(output.stderr.starts_with(&format!("parlor: cannot listen on {address}: in use")), "{output:#?}");
    if cfg!(target_os = "linux") {
        let holder = format!("in use by process {} (", std::process::id());
        assert!(output.stderr.contains(&holder), "{output:#?}");
    }
    assert!(output.stderr.contains("hint: `parlor serve --listen 127.0.0.1:"), "{output:#?}");
}

/// A server of another version: answers `_parlor/status`, and ends when its process gets a signal.
struct OtherServer {
    process: Child,
}

impl OtherServer {
    fn start(scenario: &Scenario, version: &str, clients: u64) -> Self {
        fs::create_dir_all(scenario.data()).unwrap();
        let mut process = Command::new("sleep").arg("3600").spawn().unwrap();
        let pid = process.id();
        let mut lock = fs::File::create(scenario.data().join("lock")).unwrap();
        writeln!(lock, "{pid}").unwrap();
        lock.lock().unwrap();
        let listener = UnixListener::bind(scenario.socket()).unwrap();
        let status = json!({
            "version": version, "pid": pid, "uptimeSeconds": 1, "clients": clients + 1, "liveSessions": 0, "agents": [],
            "turns": [],
        });
        let (version, socket) = (version.to_owned(), scenario.socket());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                if lines.next().is_none() {
                    continue;
                }
                let welcome = json!({ "parlor": 1, "version": version, "pid": pid });
                let Some(request) = writeln!(stream, "{welcome}").ok().and_then(|()| lines.next()) else {
                    continue;
                };
                let request: Value = serde_json::from_str(&request).unwrap();
                let answer = match request["method"].as_str() {
                    Some("_parlor/status") => {
                        json!({ "jsonrpc": "2.0", "id": request["id"], "result": status })
                    }
                    _ => {
                        json!({ "jsonrpc": "2.0", "id": request["id"], "error": { "code": -1, "message": "other" } })
                    }
                };
                writeln!(stream, "{answer}").unwrap();
            }
        });
        let (sender, started) = mpsc::channel();
        // Ends like a server: it removes its socket and its lock.
        std::thread::spawn(move || {
            sender.send(()).unwrap();
            wait_until("the process ends", || !is_alive(pid));
            let _ = fs::remove_file(socket);
            drop(lock);
        });
        started.recv().unwrap();
        assert!(process.try_wait().unwrap().is_none());
        Self { process }
    }
}

impl Drop for OtherServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn an_idle_server_of_an_earlier_version_is_replaced() {
    let mut scenario = Scenario::new(PARLOR);
    let other = OtherServer::start(&scenario, "0.0.9", 0);
    let output = scenario.run(&["prompt", "--new", "say hello"]).success();
    assert_eq!(output.stdout, "hello\n");
    assert!(output.stderr.contains("replacing the running server, parlor 0.0.9 (process "), "{output:#?}");
    let status = scenario.run(&["status", "--json"]).success().json();
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    drop(other);
    scenario.stop();
}

#[test]
fn a_server_of_another_version_that_is_in_use_or_newer_is_kept_with_a_notice() {
    for (version, clients, notice) in [
        (
            "0.0.9",
            1,
            "the server is not replaced because it is in use (1 client, 0 running turns): `parlor stop` stops it",
        ),
        ("99.0.0", 0, "which is newer than this program"),
    ] {
        let scenario = Scenario::new(PARLOR);
        let mut other = OtherServer::start(&scenario, version, clients);
        let output = scenario.run(&["prompt", "--new", "say hello"]).exit_code(1);
        assert!(output.stderr.contains(notice), "{output:#?}");
        assert!(output.stderr.contains("parlor: other"), "the request goes to that server: {output:#?}");
        assert!(other.process.try_wait().unwrap().is_none());
    }
}

#[test]
fn commands_report_a_server_that_does_not_answer() {
    let scenario = Scenario::new(PARLOR).with_server();
    let pid = scenario.server_pid().unwrap();
    send_signal(pid, Signal::STOP);
    let output = scenario.run(&["status"]).exit_code(5);
    send_signal(pid, Signal::CONT);
    assert!(output.stderr.starts_with("parlor: the server did not respond within 10 s"), "{output:#?}");
    // It answers late: the next command uses it.
    scenario.run(&["status"]).success();
}

#[test]
fn options_that_cannot_take_effect_are_errors() {
    let mut scenario = Scenario::new(PARLOR);
    let path = |name: &str| {
        let path = scenario.work().join(name);
        fs::write(&path, "").unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (own, other) = (path("own.toml"), path("other.toml"));
    scenario.serve(&["--config", &own, "--agent", "demo"]);
    let session = scenario.new_session("say hello");
    let reads: [&[&str]; 10] = [
        &["ls"],
        &["status"],
        &["inbox"],
        &["agents"],
        &["search", "hello"],
        &["show", &session],
        &["cancel", &session],
        &["export", &session],
        &["usage"],
        &["answer", "r1"],
    ];
    for args in reads {
        let output = scenario.run(&[args, &["--config", &other]].concat()).exit_code(2);
        assert!(output.stderr.contains("other.toml has no effect"), "{args:?}: {output:#?}");
        if args[0] != "answer" {
            scenario.run(&[args, &["--config", &own]].concat()).success();
        }
    }
    // A configuration can be checked before a server uses it.
    scenario.run(&["doctor", "--config", &other]).success();
    for (args, option) in [
        (&["prompt", "--no-wait", "--yes", "hi"][..], "--no-wait"),
        (&["prompt", "--no-wait", "--no", "hi"], "--no-wait"),
        (&["prompt", "--new", "--all", "hi"], "--all"),
        (&["serve", "--socket-only", "--allow-remote"], "--allow-remote"),
        (&["attach", "--all", "--", "agent"], "--all"),
    ] {
        let output = scenario.run(args).exit_code(2);
        assert!(output.stderr.contains(option) && output.stderr.contains("cannot be used"), "{output:#?}");
    }
}
