use std::fmt::{self, Display};
use std::io;
use std::process::ExitCode;

use parlor_client::Error;
use parlor_json::{Members, text};
use parlor_wire::code;

use crate::render::safe;

/// Why a command ended without doing what it was asked to.
#[derive(Debug)]
pub(crate) struct CommandError {
    kind: ErrorClass,
    message: String,
    /// The end of what an agent wrote to its standard error, if the message does not say it all.
    stderr: Vec<String>,
    hint: Option<String>,
}

/// How many lines of an agent's standard error are shown, and how much of each.
const STDERR_LINES: usize = 8;
const STDERR_CHARS: usize = 400;

/// What sort of failure it is; each has its exit code.
#[derive(Debug, Clone, Copy)]
enum ErrorClass {
    /// The work could not be done.
    Failed,
    /// What was handed in is wrong.
    BadInput,
    /// Whoever read the output went away. That is their right, and no news.
    OutputClosed,
}

impl Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl CommandError {
    pub(crate) fn failed(message: impl Display) -> Self {
        Self { kind: ErrorClass::Failed, message: message.to_string(), stderr: Vec::new(), hint: None }
    }

    pub(crate) fn bad_input(message: impl Display) -> Self {
        Self { kind: ErrorClass::BadInput, message: message.to_string(), stderr: Vec::new(), hint: None }
    }

    /// What writing to standard output came to.
    pub(crate) fn write(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self {
                kind: ErrorClass::OutputClosed,
                message: String::new(),
                stderr: Vec::new(),
                hint: None,
            };
        }
        Self::failed(format_args!("cannot write the output: {error}"))
    }

    /// What came of asking the server.
    pub(crate) fn client(error: &Error) -> Self {
        let failure = match error {
            Error::Connect(error) => Self::failed(format_args!("no server answers: {error}")),
            Error::Disconnected => Self::failed("the server is gone"),
            Error::Refused(_) | Error::Rpc(_) | Error::Protocol(_) | Error::Busy | _ => Self::failed(error),
        };
        let Error::Rpc(rpc) = error else { return failure };
        let data = rpc.data().and_then(|data| Members::of(data.raw()).ok()).unwrap_or_default();
        let failure = match data.get("stderr").and_then(text) {
            Some(stderr) => Self { stderr: last_lines(&stderr), ..failure },
            None => failure,
        };
        match data.get("hint").and_then(text) {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }

    /// What came of asking something that a person wrote: if it makes no sense, that is a matter of the input.
    pub(crate) fn query(error: &Error) -> Self {
        let failure = Self::client(error);
        if let Error::Rpc(rpc) = error
            && rpc.code() == code::INVALID_PARAMS
        {
            return Self { kind: ErrorClass::BadInput, message: rpc.message().to_owned(), ..failure };
        }
        failure
    }

    pub(crate) fn hint(self, hint: impl Display) -> Self {
        Self { hint: Some(hint.to_string()), ..self }
    }

    /// Tells the person at the terminal, and says which code to exit with.
    pub(crate) fn report(&self) -> ExitCode {
        let code = match self.kind {
            ErrorClass::Failed => 1,
            ErrorClass::BadInput => 2,
            ErrorClass::OutputClosed => return ExitCode::SUCCESS,
        };
        print_stderr!("parlor: {}", safe(&self.message));
        // One line is in the message.
        if self.stderr.len() > 1 {
            print_stderr!("  its standard error ends with:");
            self.stderr.iter().for_each(|line| print_stderr!("    {}", safe(line)));
        }
        if let Some(hint) = &self.hint {
            print_stderr!("  hint: {}", safe(hint));
        }
        ExitCode::from(code)
    }
}

/// The last lines of a text that say something.
fn last_lines(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    let lines: Vec<_> = lines.map(|line| line.chars().take(STDERR_CHARS).collect()).collect();
    lines[lines.len().saturating_sub(STDERR_LINES)..].to_vec()
}
