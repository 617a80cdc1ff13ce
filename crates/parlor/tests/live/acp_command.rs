//! `parlor acp`, as editors run it.

use std::{fs, thread};

use parlor_dialect::Dialect;
use parlor_testkit::client::{Client, ClientBuilder};
use parlor_testkit::process::{is_alive, send_signal, to_pid};
use parlor_testkit::programs;
use parlor_testkit::server::TestDir;
use parlor_testkit::transport::{TransportKind, Writer, stdio};
use parlor_testkit::wait::wait_until;
use rustix::process::Signal;
use serde_json::json;

use crate::{PARLOR, start_server};

/// Starts `parlor acp` as an editor does; it starts a server if none is running.
fn editor(dir: &TestDir, dialect: Dialect, agent: &str) -> Client {
    let mut command = dir.acp();
    command.args(["--agent", agent]);
    if dialect == Dialect::Draft {
        command.args(["--dialect", "draft"]);
    }
    ClientBuilder::new(TransportKind::Stdio, dialect, agent).over(stdio(command))
}

/// A directory with the test agents, and no server.
fn test_dir() -> TestDir {
    TestDir::new(PARLOR).with_test_agents("")
}

#[test]
fn the_first_editor_starts_a_server_and_the_next_one_uses_it() {
    let dir = test_dir();
    let mut one = editor(&dir, Dialect::V1, "v1");
    let session = one.new_session();
    one.turn(&session, "say Hello.");
    let mut two = editor(&dir, Dialect::Draft, "v2");
    two.load(&session);
    assert_eq!(two.turn(&session, "say Hello again."), "end_turn");
    one.wait_for_message(&session, "Hello again.");
    let status = two.call("_parlor/status", json!({})).unwrap();
    assert_eq!(status["pid"].as_u64().unwrap(), u64::from(dir.server_pid().unwrap()));
    // The editors exit; the server continues.
    assert_eq!((one.close(), two.close()), (Some(0), Some(0)));
    let mut three = editor(&dir, Dialect::V2, "v1");
    three.load(&session);
    assert_eq!(three.transcript(&session).len(), 4);
}

/// The process tree below a process, as programs find it that kill a process with its children.
fn tree_of(root: u32) -> Vec<u32> {
    let listed = std::process::Command::new("ps").args(["-A", "-o", "pid=,ppid="]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let numbers = listed.lines().map(|line| line.split_whitespace().map(|word| word.parse().unwrap()));
    let pairs: Vec<Vec<u32>> = numbers.map(Iterator::collect).collect();
    let mut tree = vec![root];
    let mut next = 0;
    while let Some(parent) = tree.get(next).copied() {
        tree.extend(pairs.iter().filter(|pair| pair[1] == parent).map(|pair| pair[0]));
        next += 1;
    }
    tree
}

/// The process session of a process. `getsid` cannot be used: rustix panics at the session 0, which is that of a leader
/// outside of this process namespace.
fn process_session(pid: u32) -> String {
    let pid = pid.to_string();
    let listed = std::process::Command::new("ps").args(["-o", "sess=", "-p", &pid]).output().unwrap();
    let session = String::from_utf8(listed.stdout).unwrap().trim().to_owned();
    assert_ne!(session, "", "process {pid} is listed");
    session
}

#[test]
fn killing_an_editors_agent_with_its_process_tree_does_not_kill_the_server() {
    let dir = test_dir();
    let mut command = dir.acp();
    command.args(["--agent", "v2"]);
    // In its own process group, as editors do it to kill the whole group.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let (writer, reader) = stdio(command);
    let Writer::Stdio { process, .. } = &writer else { panic!("it is a command") };
    let pid = process.id();
    let mut one = ClientBuilder::new(TransportKind::Stdio, Dialect::V2, "v2").over((writer, reader));
    let session = one.new_session();
    assert_eq!(one.turn(&session, "say Hello."), "end_turn");
    let server = dir.server_pid().unwrap();
    let tree = tree_of(pid);
    assert!(!tree.contains(&server), "{tree:?}");
    let group = |pid| rustix::process::getpgid(Some(to_pid(pid))).unwrap();
    assert_ne!(group(pid), group(server));
    assert_ne!(process_session(pid), process_session(server));
    for pid in tree {
        send_signal(pid, Signal::KILL);
    }
    let _ = rustix::process::kill_process_group(to_pid(pid), Signal::KILL);
    one.read_to_end();
    assert!(is_alive(server));
    let mut two = editor(&dir, Dialect::V1, "v2");
    two.load(&session);
    assert_eq!(two.turn(&session, "say Still here."), "end_turn");
    assert_eq!(dir.server_pid(), Some(server));
}

#[test]
fn editors_that_start_at_the_same_time_use_one_server() {
    let dir = test_dir();
    let mut pids: Vec<_> = thread::scope(|scope| {
        let starts: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut editor = editor(&dir, Dialect::V2, "v2");
                    let status = editor.call("_parlor/status", json!({})).unwrap();
                    status["pid"].as_u64().unwrap()
                })
            })
            .collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    pids.dedup();
    assert_eq!(pids, [u64::from(dir.server_pid().unwrap())]);
}

/// Kills the server of a directory.
fn kill_server(dir: &TestDir) -> u32 {
    let pid = dir.server_pid().unwrap();
    send_signal(pid, Signal::KILL);
    wait_until("the server has ended", || !is_alive(pid));
    pid
}

/// The transcript of a session as a client gets it that was never there before.
fn stored_transcript(dir: &TestDir, session: &str) -> Vec<String> {
    let mut client = editor(dir, Dialect::V2, "v2");
    client.load(session);
    client.transcript(session)
}

#[test]
fn an_editor_continues_after_its_server_was_killed_in_a_turn() {
    for (dialect, agent) in
        [(Dialect::V1, "v1"), (Dialect::V2, "v2"), (Dialect::Draft, "v1"), (Dialect::V1, "v2")]
    {
        let dir = test_dir();
        let mut editor = editor(&dir, dialect, agent);
        let (session, idle) = (editor.new_session(), editor.new_session());
        editor.turn(&idle, "say Idle.");
        assert_eq!(editor.turn(&session, "tool Edit the notes\nsay Before."), "end_turn");
        let mark = editor.mark();
        let prompt = editor.prompt(&session, "say Busy.\nstream 100000 40 200");
        editor.wait_for_message(&session, "Busy.");
        let count = editor.mark() + 100;
        editor.wait_for("chunks arrive", |editor| (editor.mark() >= count).then_some(()));
        let killed = kill_server(&dir);
        if dialect == Dialect::V1 {
            let error = editor.response(prompt).unwrap_err();
            assert_eq!(error["code"], -32603, "{error}");
        } else {
            assert_eq!(editor.end_of_turn(&session, prompt), "error");
        }
        assert_ne!(dir.server_pid(), Some(killed), "the relay has started another server");
        // Both sessions go on over the same connection, and nothing is there twice.
        assert_eq!(editor.turn(&session, "say After."), "end_turn");
        assert_eq!(editor.turn(&idle, "say Still idle."), "end_turn");
        for session in [&session, &idle] {
            editor.wait_for_transcript(session, &stored_transcript(&dir, session));
        }
        let seqs = editor.seqs(&session, mark);
        assert!(seqs.is_sorted(), "{seqs:?}");
        assert_eq!(editor.close(), Some(0));
    }
}

#[test]
fn an_editor_does_not_notice_a_restart() {
    let dir = test_dir();
    let mut server = dir.serve();
    for dialect in Dialect::ALL {
        let mut editor = editor(&dir, dialect, "v2");
        let session = editor.new_session();
        assert_eq!(editor.turn(&session, "say One."), "end_turn");
        server.restart();
        assert_eq!(editor.turn(&session, "say Two."), "end_turn");
        editor.wait_for_transcript(&session, &server.stored_transcript(&session));
        assert_eq!(editor.close(), Some(0));
    }
}

#[test]
fn a_stopped_server_is_started_again_when_the_editor_needs_it() {
    let dir = test_dir();
    let mut editor = editor(&dir, Dialect::V2, "v2");
    let session = editor.new_session();
    assert_eq!(editor.turn(&session, "say One."), "end_turn");
    dir.run(&["stop"]).success();
    assert_eq!(dir.server_pid(), None, "an editor that waits for nothing starts no server");
    assert_eq!(editor.turn(&session, "say Two."), "end_turn");
    assert!(dir.server_pid().is_some());
}

#[test]
fn an_open_permission_request_is_cancelled_when_the_server_is_killed() {
    let dir = test_dir();
    let mut editor = editor(&dir, Dialect::V2, "v2");
    let session = editor.new_session();
    let prompt = editor.prompt(&session, "ask Delete it?");
    let question = editor.peer_request("session/request_permission");
    kill_server(&dir);
    editor.wait_for_cancel(&question);
    assert_eq!(editor.end_of_turn(&session, prompt), "error");
    editor.choose(&question, "allow-once");
    // The next request is another one, although servers number them in the same way.
    editor.prompt(&session, "ask Delete it now?");
    let next = editor.peer_request("session/request_permission");
    assert_ne!(next["id"], question["id"]);
    let mark = editor.mark();
    editor.choose(&next, "allow-once");
    assert_eq!(editor.wait_for_idle(&session, mark), "end_turn");
}

#[test]
fn an_editor_gets_errors_if_no_server_can_be_started() {
    let dir = test_dir();
    let mut command = dir.acp();
    command.args(["--agent", "v1", "--reconnect-timeout", "2"]);
    let mut editor = ClientBuilder::new(TransportKind::Stdio, Dialect::V1, "v1").over(stdio(command));
    let session = editor.new_session();
    let prompt = editor.prompt(&session, "say Busy.\nsleep 60000");
    editor.wait_for_message(&session, "Busy.");
    fs::write(dir.config(), "this is no configuration").unwrap();
    kill_server(&dir);
    let error = editor.response(prompt).unwrap_err();
    assert_eq!(error["code"], -32603, "{error}");
    editor.read_to_end();
    assert_eq!(editor.close(), Some(5));
}

#[test]
fn direct_mode_starts_no_server() {
    for dialect in Dialect::ALL {
        let dir = test_dir();
        let mut command = dir.command(&[]);
        command
            .args(["acp", "--direct", "--config"])
            .arg(dir.config())
            .args(["--dialect", dialect_name(dialect)]);
        command.args(["--", programs::test_agent(), "--version", "1", "--no-message-ids"]);
        let mut editor = ClientBuilder::new(TransportKind::Stdio, dialect, "v1").over(stdio(command));
        let session = editor.new_session();
        assert_eq!(editor.turn(&session, "say Alone."), "end_turn");
        editor.wait_for_message(&session, "Alone.");
        editor.load(&session);
        assert_eq!(editor.transcript(&session).len(), 2);
        assert_eq!(editor.close(), Some(0));
        assert!(!dir.data().exists(), "nothing is stored");
    }
}

#[test]
fn agents_in_direct_mode_cannot_read_the_data_directory() {
    // The data directory is set by one variable, or is the default below the other.
    for (variable, data) in [("PARLOR_DATA_DIR", "data"), ("XDG_DATA_HOME", "xdg/parlor")] {
        let dir = test_dir();
        let name = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        fs::create_dir_all(name(data)).unwrap();
        fs::write(name(&format!("{data}/token")), "the token").unwrap();
        fs::write(name("notes"), "the notes").unwrap();
        let mut command = dir.command(&[]);
        command.env_remove("PARLOR_DATA_DIR").env(variable, name(data.trim_end_matches("/parlor")));
        command.args(["acp", "--direct", "--config"]).arg(dir.config());
        command.args(["--", programs::test_agent(), "--version", "1"]);
        let mut editor = ClientBuilder::new(TransportKind::Stdio, Dialect::V1, "v1").over(stdio(command));
        let params = json!({ "cwd": dir.path(), "mcpServers": [] });
        let session = editor.call("session/new", params).unwrap()["sessionId"].as_str().unwrap().to_owned();
        editor.turn(&session, &format!("read {}", name("notes")));
        editor.wait_for_message(&session, "the notes");
        editor.turn(&session, &format!("read {}", name(&format!("{data}/token"))));
        let text = editor.transcript(&session).last().unwrap().clone();
        assert!(text.contains("failed") && text.contains("are not served"), "{variable}: {text}");
        assert_eq!(editor.close(), Some(0));
    }
}

/// The value for `--dialect`.
fn dialect_name(dialect: Dialect) -> &'static str {
    if dialect == Dialect::Draft { "draft" } else { "v2" }
}

#[test]
fn the_agent_can_be_a_command() {
    let server = start_server("");
    let mut command = server.dir().acp();
    command.args(["--", programs::test_agent(), "--name", "given", "--version", "2"]);
    let mut editor = ClientBuilder::new(TransportKind::Stdio, Dialect::V2, "").over(stdio(command));
    let session = editor.new_session();
    assert_eq!(editor.turn(&session, "say Given."), "end_turn");
    let stored = server.stored_transcript(&session);
    editor.wait_for_transcript(&session, &stored);
    let listed = editor.call("session/list", json!({})).unwrap();
    assert_eq!(listed["sessions"][0]["sessionId"], session.as_str());
}

#[test]
fn the_agent_gets_the_environment_of_the_editor() {
    let server = start_server("");
    let mut command = server.dir().acp();
    command.args(["--agent", "v1"]).env("EXAMPLE_API_KEY", "heron").env("EXAMPLE_OTHER", "no");
    let mut editor = ClientBuilder::new(TransportKind::Stdio, Dialect::V1, "v1").over(stdio(command));
    let session = editor.new_session();
    editor.turn(&session, "env EXAMPLE_API_KEY");
    editor.wait_for_message(&session, "EXAMPLE_API_KEY=heron");
    editor.turn(&session, "env EXAMPLE_OTHER");
    editor.wait_for_message(&session, "EXAMPLE_OTHER is not set");
    // Clients with another environment get another agent process; all clients without one share a process.
    let pids = [TransportKind::Unix, TransportKind::Stdio, TransportKind::WebSocket].map(|transport| {
        let mut client = server.client(transport, Dialect::V2, "v1");
        let session = client.new_session();
        client.turn(&session, "env EXAMPLE_API_KEY");
        client.wait_for_message(&session, "EXAMPLE_API_KEY is not set");
        client.turn(&session, "pid");
        client.transcript(&session).pop().unwrap().rsplit(' ').next().unwrap().to_owned()
    });
    assert!(pids[0] == pids[1] && pids[1] == pids[2], "{pids:?}");
}
