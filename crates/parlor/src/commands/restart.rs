use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::status;
use super::stop::write_interrupted;
use crate::background_server;
use crate::command_error::CommandError;
use crate::input;
use crate::output;
use crate::path_options::{DataOption, PathOptions};
use crate::shutdown::{self, STOP_TIMEOUT};

/// Restart the server
///
/// The running server stops and starts again with the same arguments, in the same terminal or under the same supervisor, and
/// reads its configuration again. If no server is running, one is started in the background. Prints the turns that were
/// interrupted.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Restart {
    #[command(flatten)]
    data: DataOption,
    /// Wait at most this long
    #[arg(long, value_name = "SECONDS", default_value_t = STOP_TIMEOUT.as_secs(), value_parser = input::parse_seconds, allow_negative_numbers = true)]
    timeout: u64,
}

const EXAMPLES: &str = "Examples:
  parlor restart
  parlor restart --data ./data";

impl Restart {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let paths = PathOptions::from(self.data);
        let restarted = match paths.existing_data_dir()? {
            Some(data) => {
                // A server that does not answer is restarted in any case.
                let problem = shutdown::running(&data).and_then(|server| server.config_problem());
                if let Some(problem) = problem {
                    return Err(CommandError::bad_input(format_args!(
                        "the server was not restarted: {problem}"
                    ))
                    .hint("`parlor status` has the details; the configuration before it is in force"));
                }
                shutdown::restart(&data, Duration::from_secs(self.timeout))?
            }
            None => None,
        };
        let data = match restarted {
            None => background_server::ensure_running(&paths)?,
            Some(_) => paths.open_data_dir()?,
        };
        let server = status::query(&data.socket()).map_err(|error| {
            CommandError::server_unavailable(format_args!("the server did not start again: {error}")).hint(
                "`parlor serve` starts it in this terminal and reports errors; `parlor logs` prints its log",
            )
        })?;
        let action = if restarted.is_some() { "restarted" } else { "started" };
        output::print(|out| {
            writeln!(out, "{action} the server: parlor {}, process {}", server.version, server.pid)?;
            restarted.iter().try_for_each(|restarted| write_interrupted(restarted, out))
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
