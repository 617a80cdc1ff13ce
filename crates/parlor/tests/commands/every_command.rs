//! Every command with a server, without one, with one that was killed and with one that does not answer; in a pipe and on terminals
//! of 40 and 120 columns.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixListener;
use std::process::Stdio;

use parlor_testkit::output::CommandOutput;
use parlor_testkit::process::exit_status;
use parlor_testkit::scenario::Scenario;
use parlor_testkit::server::TestDir;

use crate::PARLOR;
use crate::help::commands;
use crate::terminal::Terminal;

/// How a command ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// With this exit code.
    Exits(i32),
    /// Not by itself: it prints this text and runs until it is killed.
    Runs(&'static str),
}

use End::{Exits, Runs};

/// A command with its arguments, and how it ends.
#[derive(Clone, Copy)]
struct Case {
    /// The arguments. `SESSION` stands for the id of a session.
    args: &'static [&'static str],
    with_server: End,
    without_server: End,
    killed_server: End,
    silent_server: End,
    /// Whether all lines fit the terminal, however narrow. Errors are not wrapped, so that they can be copied.
    fits: bool,
}

/// A command that reads the store or nothing, and needs no server.
const fn offline(args: &'static [&'static str]) -> Case {
    Case {
        args,
        with_server: Exits(0),
        without_server: Exits(0),
        killed_server: Exits(0),
        silent_server: Exits(0),
        fits: true,
    }
}

/// A command that uses the server, and starts one if none is running.
const fn online(args: &'static [&'static str]) -> Case {
    Case { silent_server: Exits(5), ..offline(args) }
}

/// A command that prints text for programs, text of a session, or one sentence, which the terminal wraps.
const fn whole(case: Case) -> Case {
    Case { fits: false, ..case }
}

/// All commands, each at least once. Those that change the sessions or the server of the others come last.
const CASES: &[Case] = &[
    offline(&["ls"]),
    offline(&["ls", "--tree"]),
    Case {
        without_server: Exits(5),
        killed_server: Exits(5),
        silent_server: Exits(5),
        with_server: Runs("A title"),
        ..offline(&["ls", "--watch"])
    },
    whole(offline(&["show", "SESSION", "--no-pager"])),
    whole(offline(&["show", "SESSION", "1..2", "--tools", "--ids"])),
    whole(offline(&["export", "SESSION"])),
    whole(offline(&["export", "SESSION", "--format", "md"])),
    offline(&["usage"]),
    offline(&["usage", "SESSION", "--by", "session"]),
    offline(&["set", "SESSION"]),
    online(&["set", "SESSION", "mode", "code"]),
    online(&["search", "hello", "role:agent"]),
    Case {
        killed_server: Exits(1),
        without_server: Exits(1),
        silent_server: Exits(5),
        ..offline(&["status"])
    },
    online(&["inbox"]),
    whole(online(&["open", "--print"])),
    Case {
        with_server: Exits(2),
        without_server: Exits(2),
        killed_server: Exits(2),
        ..online(&["answer", "r999", "--allow"])
    },
    // No turn runs in the session, which the store knows.
    whole(offline(&["cancel", "SESSION"])),
    Case {
        with_server: Runs("hello"),
        without_server: Exits(5),
        killed_server: Exits(5),
        ..whole(online(&["watch", "SESSION"]))
    },
    whole(offline(&["logs", "-n", "1"])),
    online(&["agents"]),
    offline(&["agents", "available"]),
    offline(&["agents", "update"]),
    Case {
        with_server: Exits(2),
        without_server: Exits(2),
        killed_server: Exits(2),
        silent_server: Exits(2),
        ..offline(&["agents", "remove", "claude"])
    },
    Case { silent_server: Exits(1), ..offline(&["doctor"]) },
    whole(offline(&["setup", "--yes", "--agent", "demo"])),
    whole(online(&["login", "demo"])),
    whole(online(&["import", "--agent", "demo"])),
    Case {
        with_server: Exits(1),
        without_server: Exits(1),
        killed_server: Exits(1),
        silent_server: Exits(1),
        ..whole(offline(&["service", "install"]))
    },
    whole(offline(&["completions", "bash"])),
    whole(offline(&["man"])),
    offline(&["fold"]),
    offline(&["translate", "--from", "v1", "--to", "v2"]),
    whole(offline(&["demo-agent"])),
    whole(online(&["acp"])),
    whole(offline(&["mcp"])),
    Case {
        with_server: Exits(5),
        without_server: Runs("is ready"),
        killed_server: Runs("is ready"),
        silent_server: Runs("is ready"),
        ..offline(&["serve", "--listen", "127.0.0.1:0"])
    },
    whole(offline(&["backup", "FILE"])),
    online(&["prompt", "-s", "SESSION", "say", "hello"]),
    online(&["fork", "SESSION", "--at", "1"]),
    whole(online(&["edit", "SESSION", "1", "say hello"])),
    whole(online(&["regenerate", "SESSION", "1"])),
    online(&["title", "SESSION", "A title"]),
    whole(online(&["archive", "SESSION"])),
    whole(online(&["rm", "--yes", "SESSION"])),
    whole(online(&["restart"])),
    // It is the last one with a server.
    offline(&["stop"]),
];

/// The commands that open the terminal client, which `tests/terminal_client` tests in each of these situations.
const TERMINAL_CLIENT: [&str; 2] = ["attach", "new"];

/// What the prompt of the session does: something of everything.
const PROMPT: &str = "title A title that is longer than forty columns are wide\nthink Well\ntool Edit the notes\nplan One;Two\nusage\nsay hello";

/// The arguments of a case for a session.
fn arguments(case: &Case, session: &str, unique: &str) -> Vec<String> {
    let file = format!("copy-{unique}.db");
    let argument = |arg: &&str| match *arg {
        "SESSION" => session.to_owned(),
        "FILE" => file.clone(),
        other => other.to_owned(),
    };
    case.args.iter().map(argument).collect()
}

/// Whether a text has an error code of JSON-RPC, such as -32603. The ids of sessions have `-326` between other characters.
fn has_rpc_code(text: &str) -> bool {
    text.match_indices("-32").any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let digits = text[at + 1..].chars().take_while(char::is_ascii_digit).count();
        !before.is_some_and(char::is_alphanumeric) && digits == 5
    })
}

/// Checks what every command must do, whatever happens.
fn check_output(what: &str, output: &CommandOutput) {
    let all = format!("{}{}", output.stdout, output.stderr);
    assert!(!all.contains("panicked"), "{what}: {output:#?}");
    // Codes of the protocol are for programs.
    assert!(!has_rpc_code(&output.stderr), "{what}: {output:#?}");
    let errors = output.stderr.lines().filter(|line| line.starts_with("parlor: ")).count();
    assert_eq!(
        errors,
        usize::from(!matches!(output.code, Some(0 | 130) | None)),
        "{what}: one error: {output:#?}"
    );
    assert!(!output.stderr.contains('\u{1b}'), "{what}: {output:#?}");
}

/// Runs a command in a pipe, and returns its output if it exits. `service` finds no systemd, whatever this machine has.
fn run(dir: &TestDir, what: &str, args: &[String], end: End) -> Option<CommandOutput> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut command = dir.command(&args);
    if args[0] == "service" {
        command.env("PATH", "/nowhere");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let what = format!("{what}: {}", args.join(" "));
    let mut child = command.spawn().unwrap();
    match end {
        Exits(code) => {
            let output = CommandOutput::from(child.wait_with_output().unwrap());
            assert_eq!(output.code, Some(code), "{what}: {output:#?}");
            // `status` and `doctor` report a failure on standard output.
            if !(code == 1 && ["status", "doctor"].contains(&args[0])) {
                check_output(&what, &output);
            }
            Some(output)
        }
        Runs(text) => {
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let found = lines.map_while(Result::ok).any(|line| line.contains(text));
            child.kill().unwrap();
            exit_status(&mut child);
            assert!(found, "{what}: the output has no '{text}'");
            None
        }
    }
}

/// The data of a session that no server serves.
struct Stored {
    scenario: Scenario,
    session: String,
}

impl Stored {
    fn new() -> Self {
        let mut scenario = Scenario::new(PARLOR).with_server();
        let session = scenario.new_session(PROMPT);
        scenario.stop();
        Self { scenario, session }
    }

    /// A copy for one command.
    fn copy(&self) -> TestDir {
        let dir = TestDir::new(PARLOR);
        fs::create_dir(dir.data()).unwrap();
        for file in fs::read_dir(self.scenario.data()).unwrap().map(Result::unwrap) {
            if file.file_type().unwrap().is_file() {
                fs::copy(file.path(), dir.data().join(file.file_name())).unwrap();
            }
        }
        fs::set_permissions(dir.data(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        dir
    }
}

#[test]
fn the_table_has_every_command() {
    let mut listed = commands();
    listed.sort_unstable();
    let cases = CASES.iter().map(|case| case.args[0]);
    let mut tested: Vec<_> = cases.chain(TERMINAL_CLIENT).map(str::to_owned).collect();
    tested.sort_unstable();
    tested.dedup();
    assert_eq!(tested, listed);
}

#[test]
fn every_command_with_a_server() {
    let scenario = Scenario::new(PARLOR).with_server();
    for case in CASES {
        let session = scenario.new_session(PROMPT);
        run(&scenario, "with a server", &arguments(case, &session, &session), case.with_server);
    }
}

#[test]
fn every_command_without_a_server() {
    let stored = Stored::new();
    for case in CASES {
        let dir = stored.copy();
        run(&dir, "without a server", &arguments(case, &stored.session, "0"), case.without_server);
        dir.stop_server();
    }
}

#[test]
fn every_command_after_the_server_was_killed() {
    let stored = Stored::new();
    for case in CASES {
        let dir = stored.copy();
        // The socket and the lock file of a process that is gone.
        drop(UnixListener::bind(dir.socket()).unwrap());
        fs::write(dir.data().join("lock"), "4194304\n").unwrap();
        run(&dir, "after a kill", &arguments(case, &stored.session, "0"), case.killed_server);
        dir.stop_server();
    }
}

#[test]
fn every_command_with_a_server_that_does_not_answer() {
    let stored = Stored::new();
    std::thread::scope(|scope| {
        for case in CASES {
            let (dir, session) = (stored.copy(), &stored.session);
            scope.spawn(move || {
                let listener = UnixListener::bind(dir.socket()).unwrap();
                // Connections are accepted, and nothing is ever sent on them.
                let accepting = std::thread::spawn(move || {
                    let _connections: Vec<_> = listener.incoming().take(64).collect();
                });
                let output = run(&dir, "silent server", &arguments(case, session, "0"), case.silent_server);
                if case.silent_server == Exits(5) || case.args == ["ls"] {
                    let output = output.expect("the command exits");
                    assert!(output.stderr.contains("did not respond within"), "{:?}: {output:#?}", case.args);
                }
                drop(accepting);
            });
        }
    });
}

/// Runs every command on terminals of a width, with a server.
fn on_terminal(columns: u16) {
    let scenario = Scenario::new(PARLOR).with_server();
    let mut long = Vec::new();
    for case in CASES {
        let session = scenario.new_session(PROMPT);
        let args = arguments(case, &session, &session);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let what = format!("{columns} columns: {}", args.join(" "));
        // No pager waits for keys, and no systemd is found.
        let env: &[_] = if args[0] == "service" { &[("PATH", "/nowhere")] } else { &[("PAGER", "cat")] };
        let terminal = Terminal::with(&scenario, &args, env, columns);
        let seen = match case.with_server {
            Exits(code) => {
                // These read lines from the terminal until its end.
                if ["fold", "translate", "acp", "mcp", "demo-agent"].contains(&args[0]) {
                    terminal.end_input();
                }
                let (ended, seen) = terminal.wait();
                assert_eq!(ended, Some(code), "{what}: {seen}");
                seen
            }
            Runs(text) => {
                terminal.wait_for(text);
                let seen = terminal.seen();
                terminal.kill();
                seen
            }
        };
        let seen = anstream::adapter::strip_str(&seen).to_string();
        assert!(!seen.contains("panicked") && !has_rpc_code(&seen), "{what}: {seen}");
        if case.fits {
            let is_long = |line: &&str| {
                let is_error = ["parlor: ", "  hint: "].iter().any(|start| line.starts_with(start));
                !is_error && line.trim_end().chars().count() > usize::from(columns)
            };
            long.extend(seen.lines().find(is_long).map(|line| format!("{what}: {line}")));
        }
    }
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn every_command_on_a_terminal_of_40_columns() {
    on_terminal(40);
}

#[test]
fn every_command_on_a_terminal_of_120_columns() {
    on_terminal(120);
}
