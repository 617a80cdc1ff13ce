//! The terminal: its modes, synchronized frames, the title of its window and notifications.

use std::io::{self, Stdout, Write, stdout};

use crossterm::event::{
    DisableBracketedPaste, DisableFocusChange, DisableMouseCapture, EnableBracketedPaste, EnableFocusChange,
    EnableMouseCapture, KeyboardEnhancementFlags, PopKeyboardEnhancementFlags, PushKeyboardEnhancementFlags,
};
use crossterm::style::Print;
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, SetTitle, disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute, queue};
use ratatui::backend::CrosstermBackend;
use ratatui::{Frame, Terminal};

use crate::clean::Clean;

/// Saves and restores the title of the window, in terminals that can.
const PUSH_TITLE: &str = "\u{1b}[22;2t";
const POP_TITLE: &str = "\u{1b}[23;2t";

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

    /// Gives the terminal to another program.
    pub(super) fn leave() {
        leave();
    }

    /// Takes the terminal again and has the next frame drawn as a whole.
    pub(super) fn enter(&mut self) -> io::Result<()> {
        enter()?;
        self.clear()
    }

    /// Stops the processes of the terminal's foreground, as Ctrl-Z does, until the shell continues them.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        leave();
        #[cfg(unix)]
        let _ = rustix::process::kill_current_process_group(rustix::process::Signal::TSTP);
        self.enter()
    }

    /// Sets the title of the window.
    pub(super) fn set_title(title: &Clean) {
        let _ = execute!(stdout(), SetTitle(title.as_str()));
    }

    /// Rings the bell and sends a desktop notification.
    pub(super) fn notify(text: &Clean) {
        let term = std::env::var("TERM").unwrap_or_default();
        let mut out = stdout();
        let _ = write!(out, "{}", notification(text, &term, is_in_tmux())).and_then(|()| out.flush());
    }
}

/// Whether tmux is between the client and the terminal.
pub(super) fn is_in_tmux() -> bool {
    std::env::var_os("TMUX").is_some_and(|value| !value.is_empty())
}

/// The bell and the sequence of a desktop notification. tmux passes the sequence on if `allow-passthrough` is set.
fn notification(text: &Clean, term: &str, is_in_tmux: bool) -> String {
    let text: String = text.as_str().chars().filter(|letter| *letter != ';').take(200).collect();
    let is_777 = term.starts_with("rxvt") || term.starts_with("foot");
    let sequence = if is_777 {
        format!("\u{1b}]777;notify;parlor;{text}\u{7}")
    } else {
        format!("\u{1b}]9;{text}\u{7}")
    };
    if is_in_tmux {
        return format!("\u{7}\u{1b}Ptmux;{}\u{1b}\\", sequence.replace('\u{1b}', "\u{1b}\u{1b}"));
    }
    format!("\u{7}{sequence}")
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.close();
    }
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
        Print(PUSH_TITLE),
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
        Print(POP_TITLE),
    );
    let _ = disable_raw_mode();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_rings_the_bell_and_passes_through_tmux() {
        let text = Clean::line("claude asks; now");
        assert_eq!(notification(&text, "xterm-256color", false), "\u{7}\u{1b}]9;claude asks now\u{7}");
        assert_eq!(notification(&text, "foot", false), "\u{7}\u{1b}]777;notify;parlor;claude asks now\u{7}");
        let in_tmux = "\u{7}\u{1b}Ptmux;\u{1b}\u{1b}]9;claude asks now\u{7}\u{1b}\\";
        assert_eq!(notification(&text, "tmux-256color", true), in_tmux);
    }
}
