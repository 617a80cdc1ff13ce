//! Long output on a terminal goes through a pager.

use std::io::{self, IsTerminal, Write};
use std::process::{Command, Stdio};

use anstream::{AutoStream, ColorChoice};
use tokio::signal::unix::{SignalKind, signal};
use unicode_width::UnicodeWidthStr;

use crate::command_error::CommandError;
use crate::{output, runtime};

/// The pager if `PAGER` is not set. `-R` lets colours through.
const DEFAULT: &str = "less -R";

/// Prints text: through the pager if it is longer than the terminal is high and a pager may be used, else directly.
pub(crate) fn print(
    may_page: bool,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), CommandError> {
    let Some((pager, width, height)) = may_page.then(pager).flatten() else { return output::print(write) };
    let mut text = Vec::new();
    write(&mut text).map_err(|error| CommandError::write(&error))?;
    let plain = anstream::adapter::strip_bytes(&text).into_vec();
    let rows = |line: &str| line.width().div_ceil(width.max(1)).max(1);
    if String::from_utf8_lossy(&plain).lines().map(rows).sum::<usize>() < height {
        return output::print(|out| out.write_all(&text));
    }
    let text = match AutoStream::choice(&io::stdout()) {
        ColorChoice::Never => plain,
        ColorChoice::Auto | ColorChoice::AlwaysAnsi | ColorChoice::Always => text,
    };
    match page(&pager, &text) {
        Ok(()) => Ok(()),
        Err(error) => {
            print_stderr!("cannot run the pager '{pager}': {error} (see PAGER)");
            output::print(|out| out.write_all(&text))
        }
    }
}

/// The pager, and the width and height of the terminal; `None` if no pager is used.
fn pager() -> Option<(String, usize, usize)> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let pager = std::env::var("PAGER").unwrap_or_else(|_| DEFAULT.to_owned());
    let (width, height) = terminal_size::terminal_size()?;
    (!pager.trim().is_empty()).then_some((pager, usize::from(width.0), usize::from(height.0)))
}

/// Runs the pager until the user leaves it. A shell splits its command line, as for other programs.
fn page(pager: &str, text: &[u8]) -> io::Result<()> {
    // Ctrl-C is for the pager: with a handler, it does not end this process.
    let runtime = runtime::single_threaded().map_err(|error| io::Error::other(error.to_string()))?;
    let _interrupts = runtime.block_on(async { signal(SignalKind::interrupt()) })?;
    let mut child = Command::new("sh").arg("-c").arg(pager).stdin(Stdio::piped()).spawn()?;
    // The user may leave the pager before it has read everything.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(text));
    let status = child.wait()?;
    // A shell exits with these codes if it cannot run the command.
    match status.code() {
        Some(code @ (126 | 127)) => Err(io::Error::other(format!("exit code {code}"))),
        Some(_) | None => Ok(()),
    }
}
