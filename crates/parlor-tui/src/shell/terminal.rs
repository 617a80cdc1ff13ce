//! The terminal: its modes, synchronized frames, the clipboard and notifications.

use std::io::{self, Stdout, Write, stdout};
use std::process::{Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use crossterm::event::{
    DisableBracketedPaste, DisableFocusChange, DisableMouseCapture, EnableBracketedPaste, EnableFocusChange,
    EnableMouseCapture, KeyboardEnhancementFlags, PopKeyboardEnhancementFlags, PushKeyboardEnhancementFlags,
};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, SetTitle, disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute, queue};
use ratatui::backend::CrosstermBackend;
use ratatui::{Frame, Terminal};
use tokio::sync::mpsc;

use crate::Event;
use crate::clean::Clean;
use crate::text::count;

/// How much text is copied with an escape sequence: terminals ignore longer ones.
const MAX_OSC52: usize = 74_000;

/// The programs that copy their standard input, with their arguments.
const COPY_PROGRAMS: [(&str, &[&str]); 4] = [
    ("pbcopy", &[]),
    ("wl-copy", &[]),
    ("xclip", &["-selection", "clipboard"]),
    ("xsel", &["--clipboard", "--input"]),
];

/// The terminal while the client has it.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    is_open: bool,
}

impl Screen {
    /// Takes the terminal. A panic gives it back before its message is printed.
    pub(super) fn open() -> io::Result<Self> {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave();
            hook(panic);
        }));
        enter()?;
        let terminal = Terminal::new(CrosstermBackend::new(stdout()));
        Ok(Self { terminal: terminal.inspect_err(|_| leave())?, is_open: true })
    }

    /// Gives the terminal back.
    pub(super) fn close(&mut self) {
        if std::mem::take(&mut self.is_open) {
            leave();
        }
    }

    /// The columns and rows.
    pub(super) fn size(&self) -> io::Result<(u16, u16)> {
        let size = self.terminal.size()?;
        Ok((size.width, size.height))
    }

    /// Draws a frame at once.
    pub(super) fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        queue!(stdout(), BeginSynchronizedUpdate)?;
        self.terminal.draw(render)?;
        execute!(stdout(), EndSynchronizedUpdate)
    }

    /// Has the next frame drawn as a whole. `Terminal::clear` would ask for the cursor's position, which not every terminal answers.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        execute!(stdout(), Clear(ClearType::All))?;
        self.terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
        Ok(())
    }

    /// Runs something that uses the terminal itself.
    pub(super) fn outside<T>(&mut self, run: impl FnOnce() -> T) -> io::Result<T> {
        leave();
        let result = run();
        enter()?;
        self.clear()?;
        Ok(result)
    }

    /// Stops the process until the shell continues it.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        self.outside(|| {
            #[cfg(unix)]
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TSTP);
        })
    }

    /// Sets the title of the window.
    pub(super) fn set_title(title: &Clean) {
        let _ = execute!(stdout(), SetTitle(title.as_str()));
    }

    /// Rings the bell and sends a desktop notification.
    pub(super) fn notify(text: &Clean) {
        let text: String = text.as_str().chars().filter(|letter| *letter != ';').take(200).collect();
        let term = std::env::var("TERM").unwrap_or_default();
        let is_777 = term.starts_with("rxvt") || term.starts_with("foot");
        let sequence = if is_777 {
            format!("\u{1b}]777;notify;parlor;{text}\u{7}")
        } else {
            format!("\u{1b}]9;{text}\u{7}")
        };
        let mut out = stdout();
        let _ = write!(out, "\u{7}{sequence}").and_then(|()| out.flush());
    }

    /// Copies a text: with a program of the system, over ssh and without one with an escape sequence.
    pub(super) fn copy(text: &str, events: &mpsc::Sender<Event>) {
        let is_remote = std::env::var_os("SSH_TTY").is_some() || std::env::var_os("SSH_CONNECTION").is_some();
        let copied = !is_remote && COPY_PROGRAMS.iter().any(|(program, args)| copy_with(program, args, text));
        let event = if copied || (text.len() <= MAX_OSC52 && copy_by_sequence(text).is_ok()) {
            Event::Note(format!("Copied {}", count(text.lines().count(), "line")))
        } else {
            Event::Failed("Cannot copy here; v opens the text in $PAGER".to_owned())
        };
        let _ = events.try_send(event);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.close();
    }
}

fn copy_by_sequence(text: &str) -> io::Result<()> {
    let mut out = stdout();
    write!(out, "\u{1b}]52;c;{}\u{7}", STANDARD.encode(text))?;
    out.flush()
}

/// Runs a program that copies its standard input. Returns false if it is not there or fails.
fn copy_with(program: &str, args: &[&str], text: &str) -> bool {
    let has_display = ["WAYLAND_DISPLAY", "DISPLAY"].into_iter().any(|name| std::env::var_os(name).is_some());
    if program != "pbcopy" && !has_display {
        return false;
    }
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return false };
    let written = child.stdin.take().is_some_and(|mut stdin| stdin.write_all(text.as_bytes()).is_ok());
    child.wait().is_ok_and(|status| status.success()) && written
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    let flags = KeyboardEnhancementFlags::DISAMBIGUATE_ESCAPE_CODES;
    execute!(
        stdout(),
        EnterAlternateScreen,
        EnableBracketedPaste,
        EnableFocusChange,
        EnableMouseCapture,
        PushKeyboardEnhancementFlags(flags),
    )
    .inspect_err(|_| leave())
}

fn leave() {
    let _ = execute!(
        stdout(),
        PopKeyboardEnhancementFlags,
        DisableMouseCapture,
        DisableFocusChange,
        DisableBracketedPaste,
        LeaveAlternateScreen,
        cursor::Show,
    );
    let _ = disable_raw_mode();
}
