//! The failures of commands, with their exit codes.

use std::fmt::{self, Display};
use std::io;
use std::process::ExitCode;

use anstream::eprintln;

/// The failure of a command.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    message: String,
}

/// The kind of a failure, which determines the exit code.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// The command failed.
    Failed,
    /// An argument is invalid.
    BadInput,
    /// The reader of the output has closed it, which is not an error.
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

    /// Converts a failed write to standard output.
    pub(crate) fn writing(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self { kind: Kind::ReaderGone, message: String::new() };
        }
        Self::failed(format_args!("cannot write the output: {error}"))
    }

    /// Prints the message and returns the exit code.
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
