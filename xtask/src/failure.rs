//! Why a command failed, and what it exits with.

use std::fmt::{self, Display};
use std::io;
use std::process::ExitCode;

use anstream::eprintln;

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    message: String,
}

/// The kind of a failure; each has its exit code.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// The command could not do its work.
    Failed,
    /// An argument makes no sense.
    BadInput,
    /// The reader of the output has closed it, which is no failure.
    ReaderGone,
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Failure {
    pub(crate) fn failed(message: impl Display) -> Self {
        Self { kind: Kind::Failed, message: message.to_string() }
    }

    pub(crate) fn bad_input(message: impl Display) -> Self {
        Self { kind: Kind::BadInput, message: message.to_string() }
    }

    /// A failed write to standard output.
    pub(crate) fn writing(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self { kind: Kind::ReaderGone, message: String::new() };
        }
        Self::failed(format_args!("cannot write the output: {error}"))
    }

    /// Prints the message, and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        let code = match self.kind {
            Kind::Failed => 1,
            Kind::BadInput => 2,
            Kind::ReaderGone => return ExitCode::SUCCESS,
        };
        eprintln!("xtask: {self}");
        ExitCode::from(code)
    }
}
