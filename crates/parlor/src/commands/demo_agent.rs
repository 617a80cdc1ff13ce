use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::command_error::CommandError;
use crate::demo::commands::COMMANDS;
use crate::{demo, script, setup};

/// Run a small agent on standard input and output, to try things with
///
/// It speaks the Agent Client Protocol, both versions, and does what the prompt says: one command a line, listed below.
/// Any other text gets a friendly answer. It needs no account, no network and no model.
#[derive(Args)]
#[command(after_help = after_help(), after_long_help = after_long_help())]
pub(crate) struct DemoAgent {
    /// Keep sessions in this file, so that they are found again the next time; one process at a time can have it
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
}

/// How long turns have to end when the agent does.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

fn after_help() -> String {
    "Commands of a prompt: see --help, or say `help` to the agent.".to_owned()
}

fn after_long_help() -> String {
    format!("Commands of a prompt, one a line:\n{}\n\ndocs/demo-agent.md has more.", script::list(COMMANDS))
}

impl DemoAgent {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let runtime = setup::runtime()?;
        let done = runtime.block_on(async {
            tokio::select! {
                done = demo::serve(self.state.as_deref()) => done,
                () = setup::stop_requested() => Ok(()),
            }
        });
        // Turns end here, and with them what they run. Reading standard input cannot always be interrupted.
        runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        done.map_err(CommandError::failed)?;
        Ok(ExitCode::SUCCESS)
    }
}
