//! The clipboard: programs of the system, or an escape sequence.

use std::io::{Write, stdout};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use tokio::sync::mpsc;

use crate::Event;
use crate::text::count;

/// How much text is copied with an escape sequence: terminals ignore longer ones.
const MAX_OSC52: usize = 74_000;

/// How long a program may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The pause before a program that runs is asked again whether it has ended.
const POLL: Duration = Duration::from_millis(5);

/// A program that copies its standard input.
struct CopyProgram {
    name: &'static str,
    args: &'static [&'static str],
    /// The variables of which one is set where it can be used.
    variables: &'static [&'static str],
    /// Whether it copies to the person's machine also over ssh.
    is_remote: bool,
}

/// The programs in the order in which they are tried.
const COPY_PROGRAMS: [CopyProgram; 5] = [
    CopyProgram { name: "pbcopy", args: &[], variables: &[], is_remote: false },
    CopyProgram { name: "wl-copy", args: &[], variables: &["WAYLAND_DISPLAY"], is_remote: false },
    CopyProgram {
        name: "xclip",
        args: &["-selection", "clipboard"],
        variables: &["DISPLAY"],
        is_remote: false,
    },
    CopyProgram {
        name: "xsel",
        args: &["--clipboard", "--input"],
        variables: &["DISPLAY"],
        is_remote: false,
    },
    // tmux ignores the sequence of programs unless it is configured, but sends one itself.
    CopyProgram { name: "tmux", args: &["load-buffer", "-w", "-"], variables: &["TMUX"], is_remote: true },
];

/// Copies a text with a program of the system, and reports the outcome. Over ssh a program would copy to the other machine. A thread
/// of its own waits for the program, and none waits for the thread: the program may hang.
pub(super) fn copy(text: String, events: mpsc::Sender<Event>) {
    std::thread::spawn(move || {
        let is_copied =
            usable_programs().any(|program| copy_with(program.name, program.args, &text, TIMEOUT));
        let event = if is_copied { copied(&text) } else { Event::NotCopied(text) };
        let _ = events.blocking_send(event);
    });
}

/// Copies a text with an escape sequence.
pub(super) fn copy_by_sequence(text: &str) -> Event {
    let write = || {
        let mut out = stdout();
        write!(out, "\u{1b}]52;c;{}\u{7}", STANDARD.encode(text))?;
        out.flush()
    };
    if text.len() <= MAX_OSC52 && write().is_ok() {
        copied(text)
    } else {
        Event::Failed("Cannot copy here; v opens the text in $PAGER".to_owned())
    }
}

fn copied(text: &str) -> Event {
    Event::Note(format!("Copied {}", count(text.lines().count(), "line")))
}

fn usable_programs() -> impl Iterator<Item = &'static CopyProgram> {
    let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_remote = ["SSH_TTY", "SSH_CONNECTION"].iter().any(is_set);
    COPY_PROGRAMS.iter().filter(move |program| {
        let has_variable = program.variables.is_empty() || program.variables.iter().any(is_set);
        has_variable && (program.is_remote || !is_remote)
    })
}

/// Runs a program that copies its standard input. Returns false if it is not there, fails, or does not end in time.
fn copy_with(name: &str, args: &[&str], text: &str, timeout: Duration) -> bool {
    let mut command = Command::new(name);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return false };
    let Some(mut stdin) = child.stdin.take() else { return false };
    // Writing ends when the program has read everything, or has ended.
    let text = text.to_owned();
    let written = std::thread::spawn(move || stdin.write_all(text.as_bytes()).is_ok());
    let until = Instant::now() + timeout;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success() && written.join().unwrap_or(false),
            Ok(None) if Instant::now() < until => std::thread::sleep(POLL),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_hangs_is_given_up() {
        let timeout = Duration::from_millis(50);
        // More than a pipe holds.
        let text = "x".repeat(1 << 20);
        assert!(!copy_with("sleep", &["600"], &text, timeout));
        assert!(!copy_with("no-such-program", &[], &text, timeout));
        assert!(!copy_with("sh", &["-c", "cat >/dev/null; exit 1"], &text, Duration::from_secs(60)));
        assert!(copy_with("cat", &[], &text, Duration::from_secs(60)));
    }
}
