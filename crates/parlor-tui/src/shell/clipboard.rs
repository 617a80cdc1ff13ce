//! The clipboard: programs of the system, or an escape sequence.

use std::io::{self, Write, stdout};
use std::process::{Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::Event;
use crate::text::count;

/// How much text is copied with an escape sequence: terminals ignore longer ones.
const MAX_OSC52: usize = 74_000;

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

/// Copies a text: with a program of the system, else with an escape sequence. Over ssh a program would copy to the other machine.
pub(super) fn copy(text: &str) -> Event {
    let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_remote = ["SSH_TTY", "SSH_CONNECTION"].iter().any(is_set);
    let is_usable = |program: &&CopyProgram| {
        let has_variable = program.variables.is_empty() || program.variables.iter().any(is_set);
        has_variable && (program.is_remote || !is_remote)
    };
    let is_copied = COPY_PROGRAMS.iter().filter(is_usable).any(|program| copy_with(program, text));
    if is_copied || (text.len() <= MAX_OSC52 && copy_by_sequence(text).is_ok()) {
        Event::Note(format!("Copied {}", count(text.lines().count(), "line")))
    } else {
        Event::Failed("Cannot copy here; v opens the text in $PAGER".to_owned())
    }
}

fn copy_by_sequence(text: &str) -> io::Result<()> {
    let mut out = stdout();
    write!(out, "\u{1b}]52;c;{}\u{7}", STANDARD.encode(text))?;
    out.flush()
}

/// Runs a program that copies its standard input. Returns false if it is not there or fails.
fn copy_with(program: &CopyProgram, text: &str) -> bool {
    let mut command = Command::new(program.name);
    command.args(program.args).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return false };
    let written = child.stdin.take().is_some_and(|mut stdin| stdin.write_all(text.as_bytes()).is_ok());
    child.wait().is_ok_and(|status| status.success()) && written
}
