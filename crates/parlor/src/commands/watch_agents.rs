use std::io;
use std::process::ExitCode;

use clap::Args;

use crate::command_error::CommandError;

/// Kill the agents of a server that was killed
///
/// The server starts this process and writes the process groups of its agents to its standard input. At end of file, this
/// process kills them.
#[derive(Args)]
pub(crate) struct WatchAgents {}

impl WatchAgents {
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "all commands have this signature")]
    pub(crate) fn run(&self) -> Result<ExitCode, CommandError> {
        parlor_process::reaper_process::run(io::stdin().lock());
        Ok(ExitCode::SUCCESS)
    }
}
