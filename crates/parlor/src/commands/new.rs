use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use parlor_tui::Start;

use crate::command_error::CommandError;
use crate::path_options::PathOptions;
use crate::terminal_client::{self, ServerOption};

/// Open the terminal client with a new session
///
/// The session starts with its first prompt. Starts the local server if it is not running.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct New {
    #[command(flatten)]
    paths: PathOptions,
    #[command(flatten)]
    server: ServerOption,
    /// Use this agent [default: the server's]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Use this working directory, with `--server` one of that machine [default: the current one]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:
  parlor new
  parlor new --agent claude --cwd ~/src/shop";

impl New {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        terminal_client::run(&self.paths, &self.server, Start::New, self.agent, self.cwd)
    }
}
