use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use parlor_process::exec_on_terminal;

use crate::command_error::CommandError;

/// Run a program on the terminal of standard input
///
/// The server starts this process to log in to agents. It creates a process session, takes the terminal and becomes the program.
#[derive(Args)]
pub(crate) struct RunOnTerminal {
    /// Run this program with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl RunOnTerminal {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let error = exec_on_terminal(&self.command);
        let program = self.command.first().map(|program| program.display().to_string()).unwrap_or_default();
        Err(CommandError::failed(format_args!("cannot run `{program}`: {error}")))
    }
}
