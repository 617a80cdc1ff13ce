//! The terminal on which people are asked, also if standard input or output is a pipe.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};

use rustix::termios::{QueueSelector, tcflush};

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

    /// Discards what was typed and not read yet.
    pub(crate) fn discard_input(&self) {
        // This fails if the terminal is gone, which reading reports.
        let _ = match &self.device {
            Some(device) => tcflush(device, QueueSelector::IFlush),
            None => tcflush(io::stdin(), QueueSelector::IFlush),
        };
    }
}
