//! Runs programs on pseudo-terminals.
//!
//! A program gets a controlling terminal only from inside its own process, before it starts. So a helper process
//! ([`exec_on_terminal`]) creates the process session, takes the terminal and then becomes the program.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{ioctl_tiocsctty, setsid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::net::unix::pipe;

/// The size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    /// The number of columns.
    pub columns: u16,
    /// The number of rows.
    pub rows: u16,
}

impl Default for TerminalSize {
    fn default() -> Self {
        Self { columns: 80, rows: 24 }
    }
}

/// The side of a pseudo-terminal at which a person types and reads.
#[derive(Debug)]
pub struct Terminal {
    output: pipe::Receiver,
    input: pipe::Sender,
    /// Stays open, so that reading does not fail while no program has the terminal open.
    program: File,
}

impl Terminal {
    /// Opens a new terminal. Must be called within a tokio runtime.
    pub(crate) fn open(size: TerminalSize) -> io::Result<Self> {
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&person)?;
        unlockpt(&person)?;
        let name = ptsname(&person, Vec::new())?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let program = rustix::fs::open(&name, flags, Mode::empty())?;
        fcntl_setfd(&person, FdFlags::CLOEXEC)?;
        fcntl_setfl(&person, fcntl_getfl(&person)? | OFlags::NONBLOCK)?;
        // The type of the file is not checked: a terminal is read and written like a pipe.
        let input = pipe::Sender::from_owned_fd_unchecked(person.try_clone()?)?;
        let output = pipe::Receiver::from_owned_fd_unchecked(person)?;
        let terminal = Self { output, input, program: File::from(program) };
        terminal.resize(size)?;
        Ok(terminal)
    }

    /// The terminal as a standard stream of a program.
    pub(crate) fn stream(&self) -> io::Result<Stdio> {
        Ok(Stdio::from(OwnedFd::from(self.program.try_clone()?)))
    }

    /// Waits for output of the program and reads it. Dropping the future loses nothing.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.output.readable().await?;
            match self.output.try_read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }

    /// Reads output that is there already; 0 if there is none.
    pub fn try_read(&self, buffer: &mut [u8]) -> usize {
        self.output.try_read(buffer).unwrap_or(0)
    }

    /// Types input, as much of it as the terminal takes, and returns how much that is. Dropping the future loses nothing.
    pub async fn write(&self, input: &[u8]) -> io::Result<usize> {
        loop {
            self.input.writable().await?;
            match self.input.try_write(input) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }

    /// Changes the size, of which the program is notified.
    pub fn resize(&self, size: TerminalSize) -> io::Result<()> {
        let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(tcsetwinsize(&self.program, size)?)
    }
}

/// Replaces this process by a program in a process session of its own, whose terminal is the standard input. Returns only if
/// that fails.
pub fn exec_on_terminal(command: &[OsString]) -> io::Error {
    let Some((program, args)) = command.split_first() else {
        return io::Error::new(io::ErrorKind::InvalidInput, "there is no program to run");
    };
    let prepared = setsid().and_then(|_| ioctl_tiocsctty(io::stdin()));
    match prepared {
        Ok(()) => Command::new(program).args(args).exec(),
        Err(error) => error.into(),
    }
}
