use std::ffi::OsString;
use std::process::{Command, ExitCode, Stdio};

use clap::Args;

use crate::command_error::CommandError;

/// Run parlor in a new process session
///
/// Commands start the background server with this. The server is not a descendant of the command and not in its process group,
/// so that it survives when an editor kills its agent and all processes that the agent started.
#[derive(Args)]
pub(crate) struct Detach {
    /// Run parlor with these arguments
    #[arg(last = true, required = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

impl Detach {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        rustix::process::setsid().map_err(|error| {
            CommandError::failed(format_args!("cannot create a process session: {error}"))
        })?;
        let exe = std::env::current_exe().map_err(CommandError::failed)?;
        let mut command = Command::new(exe);
        command.args(self.arguments).stdin(Stdio::null()).stdout(Stdio::null());
        // This process exits now, so the server is adopted by init.
        command
            .spawn()
            .map_err(|error| CommandError::failed(format_args!("cannot start the server: {error}")))?;
        Ok(ExitCode::SUCCESS)
    }
}
