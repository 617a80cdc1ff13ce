use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::command_error::CommandError;
use crate::input;
use crate::output::{self, short_path};
use crate::path_options::{DataOption, PathOptions};
use crate::shutdown::{self, STOP_TIMEOUT, StoppedServer};

/// Stop the server
///
/// Asks the running server to stop, waits until it has, and prints the turns that were interrupted. Sessions stay stored. The
/// exit code is 0 also if no server is running.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Stop {
    #[command(flatten)]
    data: DataOption,
    /// Wait at most this long
    #[arg(long, value_name = "SECONDS", default_value_t = STOP_TIMEOUT.as_secs(), value_parser = input::parse_seconds, allow_negative_numbers = true)]
    timeout: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  parlor stop
  parlor stop --timeout 5 || kill -9 $(cat ~/.local/share/parlor/lock)";

#[derive(Serialize)]
struct StopReport {
    stopped: bool,
    #[serde(flatten)]
    server: Option<StoppedServer>,
}

impl Stop {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let paths = PathOptions::from(self.data);
        let path = short_path(&paths.data_dir()?.display().to_string());
        let stopped = match paths.existing_data_dir()? {
            Some(data) => shutdown::stop(&data, Duration::from_secs(self.timeout))?,
            None => None,
        };
        if self.json {
            output::print_json(&StopReport { stopped: stopped.is_some(), server: stopped })?;
        } else {
            output::print(|out| match &stopped {
                None => writeln!(out, "no server is running for {path}"),
                Some(server) => {
                    writeln!(out, "stopped the server (process {})", server.pid)?;
                    write_interrupted(server, out)
                }
            })?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints the turns that the end of a server interrupted.
pub(super) fn write_interrupted(server: &StoppedServer, out: &mut dyn Write) -> io::Result<()> {
    server.interrupted.iter().try_for_each(|turn| writeln!(out, "  interrupted  {}", turn.describe()))
}
