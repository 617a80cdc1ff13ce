use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::command_error::CommandError;
use crate::demo::commands::COMMANDS;
use crate::signals::StopSignals;
use crate::{demo, runtime, script};

/// Run the demo agent on standard input and output
///
/// The agent speaks both versions of the Agent Client Protocol and executes the commands in the prompt, one per line; they are
/// listed below. It needs no account, no network and no model.
#[derive(Args)]
#[command(after_help = after_help(), after_long_help = after_long_help())]
pub(crate) struct DemoAgent {
    /// Store sessions in this file, which one process at a time can open [default: in memory]
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
}

const ON_TERMINAL: &str = "\
`parlor demo-agent` is for clients, which start it as their agent. It waits
for messages of the Agent Client Protocol, one JSON-RPC message per line;
Ctrl-D ends it. To use it from a terminal:
  parlor prompt --new --agent demo help";

const EXAMPLES: &str = "Examples:
  parlor prompt --new --agent demo 'say hello'
  parlor demo-agent --state sessions.db < messages.jsonl";

/// How long running turns may take to end when the agent stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

fn after_help() -> String {
    format!("--help lists the commands of a prompt.\n\n{EXAMPLES}")
}

fn after_long_help() -> String {
    format!("Commands of a prompt, one per line:\n{}\n\n{EXAMPLES}", script::list(COMMANDS))
}

impl DemoAgent {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        if std::io::stdin().is_terminal() {
            print_stderr!("{ON_TERMINAL}");
        }
        let runtime = runtime::multi_threaded()?;
        let result = runtime.block_on(async {
            let mut stop_signals = StopSignals::catch();
            tokio::select! {
                result = demo::serve(self.state.as_deref()) => result,
                () = stop_signals.wait() => Ok(()),
            }
        });
        // Ends the turns and the programs that they run. A blocked read of standard input cannot be interrupted.
        runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        result.map_err(CommandError::failed)?;
        Ok(ExitCode::SUCCESS)
    }
}
