//! The terminal on which people are asked, also if standard input or output is a pipe.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::termios::{OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcgetwinsize, tcsetattr};

use crate::render::safe;

/// The environment variable that names the terminal device; if it is empty, nobody is asked on a device.
const DEVICE_VARIABLE: &str = "PARLOR_TTY";

/// A terminal: standard input and error, or else the device of the process.
#[derive(Debug)]
pub(crate) struct Tty {
    /// `None` for standard input and error.
    device: Option<File>,
}

impl Tty {
    /// Opens the terminal; `None` if there is none.
    pub(crate) fn open() -> Option<Self> {
        if io::stdin().is_terminal() && io::stderr().is_terminal() {
            return Some(Self { device: None });
        }
        let device = std::env::var_os(DEVICE_VARIABLE).unwrap_or_else(|| "/dev/tty".into());
        if device.is_empty() {
            return None;
        }
        let device = File::options().read(true).write(true).open(device).ok()?;
        device.is_terminal().then_some(Self { device: Some(device) })
    }

    /// Writes to the terminal.
    pub(crate) fn write(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        match &self.device {
            Some(device) => {
                let mut out = anstream::AutoStream::auto(device.try_clone()?);
                write(&mut out)?;
                out.flush()
            }
            None => {
                let mut out = anstream::stderr();
                write(&mut out)?;
                out.flush()
            }
        }
    }

    /// Reads the lines that are typed.
    pub(crate) fn reader(&self) -> io::Result<Box<dyn BufRead + Send>> {
        Ok(match &self.device {
            Some(device) => Box::new(BufReader::new(device.try_clone()?)),
            None => Box::new(BufReader::new(io::stdin())),
        })
    }

    /// A stream of the terminal for another program.
    pub(crate) fn stream(&self) -> io::Result<OwnedFd> {
        self.with_input(|input| input.try_clone_to_owned())
    }

    /// Discards what was typed and not read yet.
    pub(crate) fn discard_input(&self) {
        // This fails if the terminal is gone, which reading reports.
        let _ = self.with_input(|input| tcflush(input, QueueSelector::IFlush));
    }

    /// Writes bytes as they are.
    pub(crate) fn write_raw(&self, bytes: &[u8]) -> io::Result<()> {
        match &self.device {
            Some(device) => (&*device).write_all(bytes),
            None => {
                let mut out = io::stderr().lock();
                out.write_all(bytes)?;
                out.flush()
            }
        }
    }

    /// The numbers of columns and rows.
    pub(crate) fn size(&self) -> Option<(u16, u16)> {
        let size = self.with_input(|input| tcgetwinsize(input)).ok()?;
        Some((size.ws_col, size.ws_row)).filter(|(columns, rows)| *columns > 0 && *rows > 0)
    }

    /// Passes every key to the program, until the result is dropped.
    pub(crate) fn set_raw(&self) -> io::Result<RawMode> {
        self.with_input(|input| {
            let saved = tcgetattr(input)?;
            let mut raw = saved.clone();
            raw.make_raw();
            tcsetattr(input, OptionalActions::Now, &raw)?;
            Ok(RawMode { input: input.try_clone_to_owned()?, saved })
        })
    }

    fn with_input<T>(&self, use_input: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
        match &self.device {
            Some(device) => use_input(device.as_fd()),
            None => use_input(io::stdin().as_fd()),
        }
    }
}

/// Why a typed line selects none of several numbered choices, which may also be typed by these names.
pub(crate) fn number_problem(typed: &str, choices: usize, names: &[String]) -> String {
    let numbers = if choices == 1 { "1".to_owned() } else { format!("a number from 1 to {choices}") };
    let names = if names.is_empty() { String::new() } else { format!(", or {}", names.join(", ")) };
    match typed.trim() {
        "" => format!("type {numbers}{names}"),
        typed => format!("there is no '{}': type {numbers}{names}", safe(typed)),
    }
}

/// A terminal that passes every key to the program. Dropping it restores the terminal.
#[derive(Debug)]
pub(crate) struct RawMode {
    input: OwnedFd,
    saved: Termios,
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // This fails if the terminal is gone.
        let _ = tcsetattr(&self.input, OptionalActions::Drain, &self.saved);
    }
}

#[cfg(test)]
mod tests {
    use super::number_problem;

    #[test]
    fn a_line_that_selects_nothing_is_answered_with_what_can_be_typed() {
        let names = ["y".to_owned(), "n".to_owned()];
        assert_eq!(
            number_problem("7\u{1b}", 3, &names),
            "there is no '7�': type a number from 1 to 3, or y, n"
        );
        assert_eq!(number_problem(" ", 2, &[]), "type a number from 1 to 2");
        assert_eq!(number_problem("2", 1, &[]), "there is no '2': type 1");
    }
}
