use std::ffi::OsString;
use std::process::{Command, ExitCode, Stdio};

use clap::Args;

use crate::command_error::CommandError;

/// Start parlor in a session of its own, apart from whoever wants it
///
/// Parlor starts its servers with this by itself. The server is no descendant of the process that started it, and belongs to
/// none of its process groups: who ends an editor's agent with all that it has started does not end the server.
#[derive(Args)]
pub(crate) struct Detach {
    /// The arguments of the detached command
    #[arg(last = true, required = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

impl Detach {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        rustix::process::setsid()
            .map_err(|error| CommandError::failed(format_args!("cannot start a session: {error}")))?;
        let exe = std::env::current_exe().map_err(CommandError::failed)?;
        let mut command = Command::new(exe);
        command.args(self.arguments).stdin(Stdio::null()).stdout(Stdio::null());
        // Nobody waits for it here: it goes to whom orphans go when this process ends, which is now.
        command
            .spawn()
            .map_err(|error| CommandError::failed(format_args!("cannot start a server: {error}")))?;
        Ok(ExitCode::SUCCESS)
    }
}
