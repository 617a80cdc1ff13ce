//! Errors of commands: what is printed, and the exit code.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use parlor_client::Error;
use parlor_json::{JsonRef, Members};
use parlor_server::config::ConfigError;
use parlor_server::data_dir::DataDirError;
use parlor_server::{AGENT_NOT_CONFIGURED, AGENT_UNAVAILABLE};
use parlor_wire::code;
use serde::Serialize;

use crate::output;
use crate::render::safe;

/// The error with which a command ends.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct CommandError {
    class: ErrorClass,
    message: String,
    /// Lines below the message.
    details: Vec<String>,
    /// The last lines of the agent's standard error.
    stderr: Vec<String>,
    hint: Option<String>,
}

/// An error as JSON.
#[derive(Serialize)]
struct ErrorLine<'a> {
    error: ErrorObject<'a>,
}

#[derive(Serialize)]
struct ErrorObject<'a> {
    kind: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    details: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stderr: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
}

/// How many lines of an agent's standard error are printed, and how many characters of each.
const STDERR_LINES: usize = 8;
const STDERR_CHARS: usize = 400;

/// The exit code of an agent that is not available.
pub(crate) const AGENT_UNAVAILABLE_CODE: u8 = 4;

/// The class of an error; it determines the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ErrorClass {
    /// The command could not be carried out.
    Failed,
    /// Another server has locked the data directory.
    Locked,
    /// The arguments or the input are invalid.
    BadInput,
    /// A request of the agent waits for an answer.
    RequestOpen,
    /// The agent cannot be used: it is not installed, not logged in, or does not start.
    AgentUnavailable,
    /// The server cannot be reached or started, or its data cannot be read.
    ServerUnavailable,
    /// Ctrl-C ended the command.
    Interrupted,
    /// `--timeout` elapsed.
    TimedOut,
    /// The reader of standard output has closed it, which is not an error.
    OutputClosed,
}

impl ErrorClass {
    /// The name in JSON.
    const fn kind(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::BadInput => "bad_input",
            Self::RequestOpen => "request_open",
            Self::AgentUnavailable => "agent_unavailable",
            Self::ServerUnavailable | Self::Locked => "server_unavailable",
            Self::Interrupted => "interrupted",
            Self::TimedOut => "timed_out",
            Self::OutputClosed => "output_closed",
        }
    }

    const fn exit_code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::BadInput => 2,
            Self::RequestOpen => 3,
            Self::AgentUnavailable => AGENT_UNAVAILABLE_CODE,
            Self::ServerUnavailable | Self::Locked => 5,
            Self::Interrupted => 130,
            Self::TimedOut => 124,
            Self::OutputClosed => 0,
        }
    }
}

impl CommandError {
    fn new(class: ErrorClass, message: impl Display) -> Self {
        Self { class, message: message.to_string(), details: Vec::new(), stderr: Vec::new(), hint: None }
    }

    pub(crate) fn failed(message: impl Display) -> Self {
        Self::new(ErrorClass::Failed, message)
    }

    pub(crate) fn bad_input(message: impl Display) -> Self {
        Self::new(ErrorClass::BadInput, message)
    }

    pub(crate) fn timed_out(message: impl Display) -> Self {
        Self::new(ErrorClass::TimedOut, message)
    }

    /// A setting in the configuration or on the command line is invalid.
    pub(crate) fn config(error: ConfigError) -> Self {
        let failure = Self::bad_input(&error);
        match error.hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }

    /// A request of the agent waits for an answer.
    pub(crate) fn request_open(message: impl Display) -> Self {
        Self::new(ErrorClass::RequestOpen, message)
    }

    /// The agent is not installed, not logged in, or does not start.
    pub(crate) fn agent_unavailable(message: impl Display) -> Self {
        Self::new(ErrorClass::AgentUnavailable, message)
    }

    /// The server cannot be reached or started, or its data cannot be read.
    pub(crate) fn server_unavailable(message: impl Display) -> Self {
        Self::new(ErrorClass::ServerUnavailable, message)
    }

    /// Ctrl-C ended the command.
    pub(crate) fn interrupted(message: impl Display) -> Self {
        Self::new(ErrorClass::Interrupted, message)
    }

    /// The data directory could not be locked.
    pub(crate) fn lock(error: &DataDirError) -> Self {
        let is_locked = matches!(error, DataDirError::Locked { .. });
        Self::new(if is_locked { ErrorClass::Locked } else { ErrorClass::ServerUnavailable }, error)
    }

    /// Standard output could not be written.
    pub(crate) fn write(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::new(ErrorClass::OutputClosed, "");
        }
        Self::failed(format_args!("cannot write the output: {error}"))
    }

    /// A request to the server failed.
    pub(crate) fn client(error: &Error) -> Self {
        let failure = match error {
            Error::Connect(error) => {
                Self::server_unavailable(format_args!("cannot connect to the server: {error}"))
            }
            Error::Disconnected => Self::server_unavailable("the server closed the connection"),
            Error::Refused(_) | Error::Unavailable(_) | Error::Protocol(_) | Error::TooLong => {
                Self::server_unavailable(error)
            }
            Error::Rpc(_) | Error::Busy | _ => Self::failed(error),
        };
        let Error::Rpc(rpc) = error else { return failure };
        let failure = Self { message: with_actor(&failure.message), ..failure };
        let data = rpc.data().and_then(|data| Members::of(data.raw()).ok()).unwrap_or_default();
        let reason = data.get_str("reason");
        let failure = match (rpc.code(), reason.as_deref()) {
            (code::AUTH_REQUIRED, _) | (_, Some(AGENT_UNAVAILABLE | AGENT_NOT_CONFIGURED)) => {
                Self { class: ErrorClass::AgentUnavailable, ..failure }
            }
            (code::INVALID_PARAMS | code::RESOURCE_NOT_FOUND, _) => {
                Self { class: ErrorClass::BadInput, ..failure }
            }
            _ => failure,
        };
        // Some agents give a general message, and the reason here.
        let reason = data.get_str("details").map(|details| details.trim().to_owned());
        let details = reason.filter(|reason| !reason.is_empty()).into_iter();
        let failure = Self { details: details.chain(login_methods(rpc.code(), &data)).collect(), ..failure };
        let failure = match data.get_str("stderr") {
            Some(stderr) => Self { stderr: last_lines(&stderr), ..failure },
            None => failure,
        };
        match data.get_str("hint") {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }

    pub(crate) fn hint(self, hint: impl Display) -> Self {
        Self { hint: Some(hint.to_string()), ..self }
    }

    /// Adds lines below the message.
    pub(crate) fn details(self, details: Vec<String>) -> Self {
        Self { details, ..self }
    }

    /// Gives it the exit code of an error without a code of its own.
    pub(crate) fn into_failed(self) -> Self {
        Self { class: ErrorClass::Failed, ..self }
    }

    /// Puts what could not be done before the message.
    pub(crate) fn context(self, context: impl Display) -> Self {
        Self { message: format!("{context}: {}", self.message), ..self }
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.class == ErrorClass::Interrupted
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.class == ErrorClass::Locked
    }

    pub(crate) fn is_bad_input(&self) -> bool {
        self.class == ErrorClass::BadInput
    }

    pub(crate) fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Prints the error to standard error and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        let code = ExitCode::from(self.class.exit_code());
        if self.class == ErrorClass::OutputClosed {
            return code;
        }
        print_stderr!("parlor: {}", safe(&without_os_codes(&self.message)));
        self.details.iter().for_each(|line| print_stderr!("  {}", safe(&without_os_codes(line))));
        // The message contains a single line.
        if self.stderr.len() > 1 {
            print_stderr!("  the agent's last lines on standard error:");
            self.stderr.iter().for_each(|line| print_stderr!("    {}", safe(line)));
        }
        if let Some(hint) = &self.hint {
            print_stderr!("  hint: {}", safe(hint));
        }
        code
    }

    /// The same, as one line of JSON.
    pub(crate) fn report_json(&self) -> ExitCode {
        if self.class != ErrorClass::OutputClosed {
            let lines = |lines: &[String]| lines.iter().map(|line| without_os_codes(line)).collect();
            let error = ErrorObject {
                kind: self.kind(),
                message: without_os_codes(&self.message),
                details: lines(&self.details),
                stderr: lines(&self.stderr),
                hint: self.hint.as_deref(),
            };
            print_stderr!("{}", output::escaped(&output::to_json(&ErrorLine { error })));
        }
        ExitCode::from(self.class.exit_code())
    }

    /// The kind of the error in JSON.
    pub(crate) const fn kind(&self) -> &'static str {
        self.class.kind()
    }
}

/// The messages that JSON-RPC has for its codes. parlor's own errors say what failed, so only agents send these alone.
const GENERIC: [&str; 5] =
    ["parse error", "invalid request", "method not found", "invalid params", "internal error"];

/// Says that the agent reported an error whose message names no actor.
pub(crate) fn with_actor(message: &str) -> String {
    let bare = message.trim().trim_end_matches('.').to_lowercase();
    if GENERIC.contains(&bare.as_str()) {
        format!("the agent reported '{}' without a reason", message.trim())
    } else {
        message.to_owned()
    }
}

/// Removes the numbers that the standard library adds to errors of the operating system, as in `No such file (os error 2)`.
fn without_os_codes(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((code, rest)) if code.parse::<i32>().is_ok() => result.push_str(rest),
            Some(_) | None => {
                result.push_str(" (os error ");
                result.push_str(part);
            }
        }
    }
    result
}

/// Lists the login methods of an agent that requires a login.
fn login_methods(code: i64, data: &Members<'_>) -> Option<String> {
    if code != code::AUTH_REQUIRED {
        return None;
    }
    let methods = data.get("methods")?.elements()?;
    let ids = methods.into_iter().filter_map(|method| {
        let method = Members::of(method).ok()?;
        let id = method.get_str("methodId")?.into_owned();
        let variables = method.get("variables").and_then(JsonRef::elements).unwrap_or_default();
        let names = variables
            .into_iter()
            .filter_map(|variable| Some(Members::of(variable).ok()?.get_str("name")?.into_owned()));
        let names = names.collect::<Vec<_>>().join(", ");
        Some(if names.is_empty() { id } else { format!("{id} ({names})") })
    });
    let ids: Vec<_> = ids.collect();
    (!ids.is_empty()).then(|| format!("methods: {}", ids.join(", ")))
}

/// The last lines of a text that are not blank.
fn last_lines(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    let lines: Vec<_> = lines.map(|line| line.chars().take(STDERR_CHARS).collect()).collect();
    lines[lines.len().saturating_sub(STDERR_LINES)..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_without_an_actor_is_one_of_the_agent() {
        let error = parlor_wire::RpcError::new(code::INTERNAL_ERROR, "Internal error");
        let error = CommandError::client(&Error::Rpc(error));
        assert_eq!(error.to_string(), "the agent reported 'Internal error' without a reason");
        assert_eq!(with_actor("agent 'a' has ended"), "agent 'a' has ended");
    }

    #[test]
    fn numbers_of_the_operating_system_are_not_printed() {
        let missing = io::Error::from_raw_os_error(2);
        assert_eq!(
            without_os_codes(&format!("cannot read x: {missing}, twice: {missing}.")),
            "cannot read x: No such file or directory, twice: No such file or directory."
        );
        assert_eq!(without_os_codes("a (os error x) b"), "a (os error x) b");
    }
}
