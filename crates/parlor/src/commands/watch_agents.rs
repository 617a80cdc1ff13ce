use std::io;
use std::process::ExitCode;

use clap::Args;

use crate::command_error::CommandError;

/// End the agents of a parlor that was killed
///
/// Parlor starts this by itself and tells it on standard input which agents there are. When the input ends, all of
/// them are ended.
#[derive(Args)]
pub(crate) struct WatchAgents {}

impl WatchAgents {
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "the shape of a command")]
    pub(crate) fn run(&self) -> Result<ExitCode, CommandError> {
        parlor_server::process::reaper_process::run(io::stdin().lock());
        Ok(ExitCode::SUCCESS)
    }
}
