//! The program on a pseudo-terminal, and the screen that it draws.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parlor_testkit::scenario::Scenario;
use parlor_testkit::wait::TIMEOUT;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// The terminal client on a screen of characters.
pub(crate) struct Screen {
    child: Child,
    person: File,
    terminal: Arc<Mutex<Terminal>>,
    reader: Option<JoinHandle<()>>,
}

/// The screen, and everything that was written to it.
struct Terminal {
    parser: vt100::Parser,
    written: Vec<u8>,
    /// How much of it is on the screen: a synchronized frame is shown as a whole.
    shown: usize,
}

const FRAME_START: &[u8] = b"\x1b[?2026h";
const FRAME_END: &[u8] = b"\x1b[?2026l";

impl Terminal {
    fn write(&mut self, bytes: &[u8]) {
        self.written.extend_from_slice(bytes);
        let new = &self.written[self.shown..];
        let last = |marker: &[u8]| new.windows(marker.len()).rposition(|part| part == marker);
        let end = match (last(FRAME_START), last(FRAME_END)) {
            (Some(start), Some(end)) if end > start => new.len(),
            (Some(start), _) => start,
            (None, _) => new.len(),
        };
        self.parser.process(&self.written[self.shown..self.shown + end]);
        self.shown += end;
    }
}

pub(crate) const ESC: &str = "\u{1b}";
pub(crate) const CTRL_C: &str = "\u{3}";
pub(crate) const ENTER: &str = "\r";
pub(crate) const TAB: &str = "\t";

impl Screen {
    /// Runs a command on a screen of 80 columns and 24 rows.
    pub(crate) fn open(scenario: &Scenario, args: &[&str]) -> Self {
        Self::with_size(scenario, args, 80, 24)
    }

    pub(crate) fn with_size(scenario: &Scenario, args: &[&str], columns: u16, rows: u16) -> Self {
        Self::run(&scenario.command(args), columns, rows)
    }

    /// Runs a command that the test has made.
    pub(crate) fn run(program: &Command, columns: u16, rows: u16) -> Self {
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&person).unwrap();
        unlockpt(&person).unwrap();
        let name = ptsname(&person, Vec::new()).unwrap();
        let line = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        tcsetwinsize(&line, size(columns, rows)).unwrap();
        let stream = || Stdio::from(OwnedFd::from(line.try_clone().unwrap()));
        let mut command = in_session(program);
        command
            .env("TERM", "xterm-256color")
            .env("LC_ALL", "C.UTF-8")
            .env_remove("NO_COLOR")
            .env_remove("COLORTERM");
        command.stdin(stream()).stdout(stream()).stderr(stream());
        let child = command.spawn().unwrap();
        drop(line);
        let terminal = Terminal {
            parser: vt100::Parser::new(nonzero(rows), nonzero(columns), 0),
            written: Vec::new(),
            shown: 0,
        };
        let terminal = Arc::new(Mutex::new(terminal));
        let person = File::from(person);
        let (mut output, into) = (person.try_clone().unwrap(), Arc::clone(&terminal));
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                into.lock().unwrap().write(&bytes[..read]);
            }
        });
        Self { child, person, terminal, reader: Some(reader) }
    }

    /// The rows of the screen, without spaces at their ends.
    pub(crate) fn text(&self) -> String {
        let terminal = self.terminal.lock().unwrap();
        let (_, columns) = terminal.parser.screen().size();
        let rows: Vec<String> =
            terminal.parser.screen().rows(0, columns.get()).map(|row| row.trim_end().to_owned()).collect();
        rows.join("\n")
    }

    /// Everything that was written to the terminal.
    pub(crate) fn written(&self) -> String {
        String::from_utf8_lossy(&self.terminal.lock().unwrap().written).into_owned()
    }

    /// The row and column of the cursor.
    pub(crate) fn cursor(&self) -> (u16, u16) {
        self.terminal.lock().unwrap().parser.screen().cursor_position()
    }

    /// Waits until the screen has a text.
    #[track_caller]
    pub(crate) fn wait_for(&self, text: &str) {
        self.wait_until(text, |screen| screen.contains(text));
    }

    /// Waits until the screen has a text no more.
    #[track_caller]
    pub(crate) fn wait_for_no(&self, text: &str) {
        self.wait_until(text, |screen| !screen.contains(text));
    }

    #[track_caller]
    pub(crate) fn wait_until(&self, what: &str, holds: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !holds(&self.text()) {
            assert!(Instant::now() < deadline, "still waiting for {what:?}:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Types text or keys.
    pub(crate) fn press(&mut self, keys: &str) {
        self.person.write_all(keys.as_bytes()).unwrap();
    }

    /// Types a line and sends it as a prompt when it is on the screen.
    #[track_caller]
    pub(crate) fn prompt(&mut self, text: &str) {
        self.press(text);
        self.wait_for(&format!("› {}", text.lines().next().unwrap_or_default()));
        self.press(ENTER);
    }

    /// Gives the screen another size.
    pub(crate) fn resize(&mut self, columns: u16, rows: u16) {
        self.terminal.lock().unwrap().parser.screen_mut().set_size(nonzero(rows), nonzero(columns));
        tcsetwinsize(&self.person, size(columns, rows)).unwrap();
    }

    /// Detaches, and waits for the exit code.
    pub(crate) fn detach(mut self) -> Option<i32> {
        self.press(CTRL_C);
        self.wait_for("Ctrl-C again");
        self.press(CTRL_C);
        let code = self.child.wait().unwrap().code();
        self.reader.take().unwrap().join().unwrap();
        code
    }

    /// Waits until the program has ended.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

fn nonzero(number: u16) -> NonZero<u16> {
    NonZero::new(number).expect("a screen has rows and columns")
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// The same command in a session of its own, whose terminal is its standard input.
fn in_session(program: &Command) -> Command {
    let mut command = Command::new("setsid");
    command.arg("--ctty").arg(program.get_program()).args(program.get_args());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    if let Some(directory) = program.get_current_dir() {
        command.current_dir(directory);
    }
    command
}
