//! Commands on a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use parlor_testkit::scenario::Scenario;
use parlor_testkit::wait::wait_until;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::PARLOR;

/// A command that runs on a terminal.
pub(crate) struct Terminal {
    child: Child,
    keys: File,
    seen: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl Terminal {
    /// Runs a command on a terminal with 60 columns.
    pub(crate) fn new(scenario: &Scenario, args: &[&str]) -> Self {
        Self::with(scenario, args, &[], 60)
    }

    /// Runs a command with these environment variables.
    pub(crate) fn with_env(scenario: &Scenario, args: &[&str], env: &[(&str, &str)]) -> Self {
        Self::with(scenario, args, env, 60)
    }

    /// Runs a command on a terminal of this width.
    pub(crate) fn with_columns(scenario: &Scenario, args: &[&str], columns: u16) -> Self {
        Self::with(scenario, args, &[], columns)
    }

    pub(crate) fn with(scenario: &Scenario, args: &[&str], env: &[(&str, &str)], columns: u16) -> Self {
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&person).unwrap();
        unlockpt(&person).unwrap();
        let name = ptsname(&person, Vec::new()).unwrap();
        let line = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        tcsetwinsize(&line, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let stream = || Stdio::from(OwnedFd::from(line.try_clone().unwrap()));
        let child = scenario
            .command(args)
            .env("TERM", "xterm-256color")
            .envs(env.iter().copied())
            .stdin(stream())
            .stdout(stream())
            .stderr(stream())
            .spawn()
            .unwrap();
        drop(line);
        let seen = Arc::new(Mutex::new(String::new()));
        let keys = File::from(person);
        let (mut screen, into) = (keys.try_clone().unwrap(), Arc::clone(&seen));
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = screen.read(&mut bytes) {
                into.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
        });
        Self { child, keys, seen, reader }
    }

    pub(crate) fn wait_for(&self, text: &str) {
        wait_until(text, || self.seen.lock().unwrap().contains(text));
    }

    /// What the command has printed so far, without colours.
    pub(crate) fn seen(&self) -> String {
        anstream::adapter::strip_str(&self.seen.lock().unwrap()).to_string()
    }

    /// Types the end of the input.
    pub(crate) fn end_input(&self) {
        (&self.keys).write_all(b"\x04").unwrap();
    }

    /// Ends a command that runs until it is interrupted.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.reader.join().unwrap();
    }

    pub(crate) fn type_text(&mut self, text: &str) {
        self.keys.write_all(text.as_bytes()).unwrap();
    }

    /// Waits for the command: its exit code and its whole output.
    pub(crate) fn wait(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        // No other process has the terminal open, so reading ends with the last output.
        self.reader.join().unwrap();
        (code, self.seen.lock().unwrap().clone())
    }
}

#[test]
fn a_permission_option_is_selected_by_number() {
    let scenario = Scenario::new(PARLOR).with_server();
    let mut terminal = Terminal::new(&scenario, &["prompt", "--new", "tool Look\nask Delete \u{1b}[2Jit"]);
    terminal.wait_for("Answer (1-");
    terminal.type_text("9\n");
    wait_until("the request is shown again", || {
        terminal.seen.lock().unwrap().matches("Answer (1-").count() == 2
    });
    assert!(
        terminal.seen().contains("there is no '9': type a number from 1 to 3, or y, a, n"),
        "{}",
        terminal.seen()
    );
    // An empty line selects nothing.
    terminal.type_text("\n");
    wait_until("the request is shown again", || {
        terminal.seen.lock().unwrap().matches("Answer (1-").count() == 3
    });
    terminal.type_text("1\n");
    let (code, seen) = terminal.wait();
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.contains("You allowed it this once.") && seen.contains("Edit notes.txt"), "{seen}");
    assert!(!seen.contains("\u{1b}[2J"), "{seen:?}");
}

#[test]
fn a_permission_request_shows_directory_and_command_and_accepts_a_key() {
    let scenario = Scenario::new(PARLOR).with_server();
    let mut terminal = Terminal::new(&scenario, &["prompt", "--new", "ask Delete \u{202e}it"]);
    terminal.wait_for("Answer (1-");
    let work = scenario.work().canonicalize().unwrap();
    let start: String = work.to_str().unwrap().chars().take(30).collect();
    terminal.wait_for(&start);
    terminal.wait_for("‹U+202E›it");
    terminal.wait_for("delete");
    terminal.type_text("n\n");
    let (_, seen) = terminal.wait();
    assert!(seen.contains("You did not allow it."), "{seen}");
    assert!(!seen.contains('\u{202e}'), "{seen:?}");
}

#[test]
fn input_typed_before_a_request_is_shown_is_discarded() {
    let scenario = Scenario::new(PARLOR).with_server();
    let mut terminal = Terminal::new(&scenario, &["prompt", "--new", "ask First\nask Second"]);
    terminal.wait_for("Answer (1-");
    // The second line and the start of a third one are typed before the second request is shown.
    terminal.type_text("n\nn\n9");
    wait_until("the request is shown again", || {
        terminal.seen.lock().unwrap().matches("Answer (1-").count() == 2
    });
    terminal.type_text("y\n");
    let (_, seen) = terminal.wait();
    let (rejected, allowed) = (seen.find("You did not allow it."), seen.find("You allowed it this once."));
    assert!(rejected.is_some() && rejected < allowed, "{seen}");
    assert_eq!(seen.matches("Answer (1-").count(), 2, "{seen}");
}

#[test]
fn a_form_is_filled_in_on_the_terminal() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    let mut terminal = Terminal::new(&scenario, &["prompt", "--new", "elicit"]);
    terminal.wait_for("Who wants coffee?");
    terminal.type_text("1\n");
    terminal.wait_for("Your name");
    terminal.type_text("Ada\n");
    terminal.wait_for("Sugar?");
    terminal.type_text("y\n");
    let (code, seen) = terminal.wait();
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.contains(r#""name":"Ada""#) && seen.contains(r#""sugar":true"#), "{seen}");
}

#[test]
fn a_turn_is_rendered_on_a_terminal_and_printed_as_it_is_into_a_pipe() {
    let scenario = Scenario::new(PARLOR).with_server();
    let prompt =
        "say Some **bold** text.\ntool Edit it\nplan a;b\nterminal echo wrong; exit 3\nsleep 1500\nsay Done.";
    for columns in [40, 120] {
        let terminal = Terminal::with_columns(&scenario, &["prompt", "--new", prompt], columns);
        terminal.wait_for("Working 0:0");
        terminal.wait_for("plan 2/2");
        let (code, seen) = terminal.wait();
        assert_eq!(code, Some(0), "{seen}");
        assert!(seen.contains("Some \u{1b}[1mbold\u{1b}[0m text.") && !seen.contains("**"), "{seen:?}");
        // What stays: the rows after the last one that was erased.
        let plain = anstream::adapter::strip_str(&seen).to_string();
        for part in ["- Hello\r\n", "+ Hello, world", "exit 3", "wrong\r\n", "Done."] {
            assert!(plain.contains(part), "{part}: {plain}");
        }
        let after = seen.rsplit("Working").next().unwrap();
        assert!(after.contains("\r\u{1b}[J"), "the spinner is gone: {after:?}");
        let fits = |line: &str| line.split('\r').all(|part| part.chars().count() < usize::from(columns));
        let turn = plain.lines().skip_while(|line| !line.contains("bold"));
        assert!(turn.into_iter().all(fits), "{plain}");
    }
    let output = scenario.run(&["prompt", "--new", prompt]).success();
    assert_eq!(output.stdout, "Some **bold** text.\n\nDone.\n");
    assert!(!output.stderr.contains("Working"), "{output:#?}");
}

#[test]
fn rm_asks_for_confirmation() {
    let scenario = Scenario::new(PARLOR).with_server();
    let id = scenario.new_session("say hello");
    for (typed, code) in [("\n", 1), ("y\n", 0)] {
        let mut terminal = Terminal::new(&scenario, &["rm", &id]);
        terminal.wait_for("no longer counted by `parlor usage`");
        terminal.wait_for("Delete 1 session permanently? [y/N] ");
        terminal.type_text(typed);
        assert_eq!(terminal.wait().0, Some(code));
    }
    scenario.run(&["show", &id]).exit_code(2);
}

#[test]
fn terminal_output_is_coloured_and_truncated() {
    let scenario = Scenario::new(PARLOR).with_server();
    scenario.new_session("title A title that is far too long for a terminal of only sixty columns");
    let (code, seen) = Terminal::new(&scenario, &["ls"]).wait();
    assert_eq!(code, Some(0));
    assert!(seen.contains("\u{1b}[1m") && seen.contains('…'), "{seen:?}");
    let plain = anstream::adapter::strip_str(&seen).to_string();
    assert!(plain.lines().all(|line| line.trim_end().chars().count() <= 60), "{plain}");
    let (_, seen) = Terminal::new(&scenario, &["show", "latest"]).wait();
    assert!(seen.contains("\u{1b}[1m\u{1b}[36muser"), "{seen:?}");
}

#[test]
fn a_request_can_be_left_open_for_later() {
    let scenario = Scenario::new(PARLOR).with_server();
    for (prompt, shown) in
        [("ask Delete it\nsay done", "Answer (1-3, l later): "), ("elicit", "Answer (1-2, l later): ")]
    {
        let mut terminal = Terminal::with_columns(&scenario, &["prompt", "--new", prompt], 200);
        terminal.wait_for(shown);
        terminal.type_text("l\n");
        let (code, seen) = terminal.wait();
        assert_eq!(code, Some(3), "{seen}");
        let open = scenario.run(&["inbox", "--json"]).success().json();
        let id = open.as_array().unwrap().last().unwrap()["requestId"].as_str().unwrap().to_owned();
        assert!(
            seen.contains("waits for an answer\r\n") && seen.contains(&format!("`parlor answer {id}")),
            "{seen}"
        );
    }
    assert_eq!(scenario.run(&["inbox", "--json"]).json().as_array().unwrap().len(), 2);
}

#[test]
fn the_last_line_of_a_turn_says_what_it_did_and_how_to_open_the_session() {
    let scenario = Scenario::new(PARLOR).with_server();
    let (code, seen) = Terminal::new(&scenario, &["prompt", "--new", "tool Edit it\nusage\nsay done"]).wait();
    assert_eq!(code, Some(0), "{seen}");
    let plain = anstream::adapter::strip_str(&seen).to_string();
    let id = scenario.run(&["ls", "--json"]).success().json()[0]["sessionId"].as_str().unwrap().to_owned();
    let last = plain.lines().last().unwrap().trim_end();
    assert!(last.starts_with("0:0") && last.contains(" · 1 file +1 -1 · "), "{plain}");
    assert!(last.ends_with(&format!(" · parlor attach {}", &id[..8])), "{plain}");
}

/// A terminal device that is not the standard input of a command.
pub(crate) struct Device {
    name: String,
    keys: File,
    /// Keeps the device open.
    _line: File,
}

impl Device {
    pub(crate) fn open() -> Self {
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&person).unwrap();
        unlockpt(&person).unwrap();
        let name = ptsname(&person, Vec::new()).unwrap().to_str().unwrap().to_owned();
        let line = File::options().read(true).write(true).open(&name).unwrap();
        Self { name, keys: File::from(person), _line: line }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Reads what is written to the device until it contains a text.
    pub(crate) fn wait_for(&mut self, text: &str) {
        let (mut seen, mut bytes) = (String::new(), [0; 4096]);
        while !seen.contains(text) {
            let read = self.keys.read(&mut bytes).unwrap();
            seen.push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
    }

    pub(crate) fn type_text(&mut self, text: &str) {
        self.keys.write_all(text.as_bytes()).unwrap();
    }
}
