//! A program on a pseudo-terminal, and the screen that it draws.

use std::fs::File;
use std::io::{self, Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::scenario::Scenario;
use crate::wait::TIMEOUT;

/// A program on a screen of characters.
#[derive(Debug)]
pub struct Screen {
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
    /// When each frame was complete.
    frames: Vec<Instant>,
}

impl std::fmt::Debug for Terminal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Terminal").field("written", &self.written.len()).finish_non_exhaustive()
    }
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
        let shown = &self.written[self.shown..self.shown + end];
        let ended = shown.windows(FRAME_END.len()).filter(|part| *part == FRAME_END).count();
        self.frames.extend(std::iter::repeat_n(Instant::now(), ended));
        self.parser.process(&self.written[self.shown..self.shown + end]);
        self.shown += end;
    }
}

/// A dark background, as a terminal answers.
pub const DARK: &str = "rgb:1e1e/1e1e/1e1e";
/// A light background.
pub const LIGHT: &str = "rgb:fafa/fafa/fafa";

/// The key Esc.
pub const ESC: &str = "\u{1b}";
/// The key C with Ctrl.
pub const CTRL_C: &str = "\u{3}";
/// The key Enter.
pub const ENTER: &str = "\r";
/// The key Tab.
pub const TAB: &str = "\t";

impl Screen {
    /// Runs a command on a screen of 80 columns and 24 rows.
    pub fn open(scenario: &Scenario, args: &[&str]) -> Self {
        Self::with_size(scenario, args, 80, 24)
    }

    /// Runs a command on a screen of this size.
    pub fn with_size(scenario: &Scenario, args: &[&str], columns: u16, rows: u16) -> Self {
        Self::run(&scenario.command(args), columns, rows)
    }

    /// Runs a command that the test has made.
    pub fn run(program: &Command, columns: u16, rows: u16) -> Self {
        Self::run_on(DARK, program, columns, rows)
    }

    /// Runs a command on a screen with a background, as the terminal answers when it is asked for it.
    pub fn run_on(background: &'static str, program: &Command, columns: u16, rows: u16) -> Self {
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
        grantpt(&person).expect("it is ours");
        unlockpt(&person).expect("it is ours");
        let name = ptsname(&person, Vec::new()).expect("it has a name");
        let line = File::options()
            .read(true)
            .write(true)
            .open(name.to_str().expect("its name is text"))
            .expect("it can be opened");
        tcsetwinsize(&line, size(columns, rows)).expect("a terminal has a size");
        let stream = || Stdio::from(OwnedFd::from(line.try_clone().expect("a descriptor")));
        let mut command = in_session(program);
        command
            .env("TERM", "xterm-256color")
            .env("LC_ALL", "C.UTF-8")
            .env_remove("NO_COLOR")
            .env_remove("COLORTERM");
        command.stdin(stream()).stdout(stream()).stderr(stream());
        let child = command.spawn().expect("the program can be run");
        drop(line);
        let terminal = Terminal {
            parser: vt100::Parser::new(nonzero(rows), nonzero(columns), 0),
            written: Vec::new(),
            shown: 0,
            frames: Vec::new(),
        };
        let terminal = Arc::new(Mutex::new(terminal));
        let person = File::from(person);
        let (mut output, into) = (person.try_clone().expect("a descriptor"), Arc::clone(&terminal));
        let mut answers = person.try_clone().expect("a descriptor");
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                let answer = answer(&bytes[..read], background);
                // A program that has ended reads no answer.
                let _ = answers.write_all(answer.as_bytes());
                into.lock().unwrap_or_else(PoisonError::into_inner).write(&bytes[..read]);
            }
        });
        Self { child, person, terminal, reader: Some(reader) }
    }

    fn terminal(&self) -> MutexGuard<'_, Terminal> {
        self.terminal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process of the program.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// When each frame so far was complete.
    pub fn frames(&self) -> Vec<Instant> {
        self.terminal().frames.clone()
    }

    /// The rows of the screen, without spaces at their ends.
    pub fn text(&self) -> String {
        let terminal = self.terminal();
        let (_, columns) = terminal.parser.screen().size();
        let rows: Vec<String> =
            terminal.parser.screen().rows(0, columns.get()).map(|row| row.trim_end().to_owned()).collect();
        rows.join("\n")
    }

    /// Everything that was written to the terminal.
    pub fn written(&self) -> String {
        String::from_utf8_lossy(&self.terminal().written).into_owned()
    }

    /// The row and column of the cursor.
    pub fn cursor(&self) -> (u16, u16) {
        self.terminal().parser.screen().cursor_position()
    }

    /// Waits until the screen has a text.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        self.wait_until(text, |screen| screen.contains(text));
    }

    /// Waits until the screen has a text no more.
    #[track_caller]
    pub fn wait_for_no(&self, text: &str) {
        self.wait_until(text, |screen| !screen.contains(text));
    }

    /// Waits until the text of the screen meets a condition.
    #[track_caller]
    pub fn wait_until(&self, what: &str, holds: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !holds(&self.text()) {
            assert!(Instant::now() < deadline, "still waiting for {what:?}:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Types text or keys.
    pub fn press(&mut self, keys: &str) {
        self.try_press(keys).expect("the program reads");
    }

    /// Types text or keys; fails if the program does not read.
    pub fn try_press(&mut self, keys: &str) -> io::Result<()> {
        self.person.write_all(keys.as_bytes())
    }

    /// Types a line and sends it as a prompt when it is on the screen.
    #[track_caller]
    pub fn prompt(&mut self, text: &str) {
        self.press(text);
        self.wait_for(&format!("› {}", text.lines().next().unwrap_or_default()));
        self.press(ENTER);
    }

    /// Gives the screen another size.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        self.terminal().parser.screen_mut().set_size(nonzero(rows), nonzero(columns));
        tcsetwinsize(&self.person, size(columns, rows)).expect("a terminal has a size");
    }

    /// Detaches, and waits for the exit code.
    pub fn detach(mut self) -> Option<i32> {
        self.press(CTRL_C);
        self.wait_for("Ctrl-C again");
        self.press(CTRL_C);
        let code = self.child.wait().expect("it is a child").code();
        drop(self.reader.take().map(JoinHandle::join));
        code
    }

    /// Whether the program has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it is a child").is_some()
    }

    /// Waits until the program has ended.
    pub fn wait(&mut self) -> Option<i32> {
        self.child.wait().expect("it is a child").code()
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

/// What a terminal answers to questions for its colours and its type.
fn answer(written: &[u8], background: &str) -> String {
    let written = String::from_utf8_lossy(written);
    let foreground = if background == DARK { LIGHT } else { DARK };
    let questions = [
        ("\x1b]10;?", format!("\x1b]10;{foreground}\x07")),
        ("\x1b]11;?", format!("\x1b]11;{background}\x07")),
    ];
    let colors = questions.into_iter().filter(|(question, _)| written.contains(question));
    let mut answer: String = colors.map(|(_, answer)| answer).collect();
    if written.contains("\x1b[c") {
        answer.push_str("\x1b[?62;22c");
    }
    answer
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
