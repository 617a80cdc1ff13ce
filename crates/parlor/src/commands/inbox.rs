use std::process::ExitCode;

use clap::Args;

use crate::command_error::CommandError;
use crate::open_request;
use crate::output::{self, DIM};
use crate::path_options::PathOptions;
use crate::server;
use crate::table::terminal_width;

/// List the requests of agents that wait for you, in all sessions
///
/// With REQUEST, prints one request in full: everything that it would permit, and its options. `parlor answer` answers it. Without
/// a running server no requests are open.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Inbox {
    #[command(flatten)]
    paths: PathOptions,
    /// Print only this request, in full
    #[arg(value_name = "REQUEST")]
    request: Option<String>,
    /// Print a list of objects as JSON; with REQUEST one object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  parlor inbox
  parlor inbox r3
  parlor inbox --json | jq -r '.[].requestId'";

impl Inbox {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let socket = self.paths.existing_data_dir()?.map(|data| data.socket());
        let requests = match socket.filter(|socket| server::is_running(socket)) {
            Some(socket) => server::open_requests(&socket)?,
            None if self.request.is_some() => return Err(open_request::no_server()),
            None => Vec::new(),
        };
        if let Some(name) = &self.request {
            let request = open_request::find(requests, name)?;
            if self.json {
                output::print_raw_json(&format!("{}\n", request.fields.to_json().as_str()))?;
            } else {
                output::print(|mut out| open_request::write_details(&request, &mut out))?;
            }
        } else if self.json {
            let list = parlor_json::Json::array(requests.into_iter().map(|request| request.fields));
            output::print_raw_json(&format!("{}\n", list.as_str()))?;
        } else if let Some(first) = requests.first() {
            output::print(|out| {
                for request in &requests {
                    open_request::write_summary(request, terminal_width(), out)?;
                    writeln!(out)?;
                }
                Ok(())
            })?;
            if terminal_width().is_some() {
                let id = crate::render::safe(&first.id);
                print_stderr!("{DIM}answer: parlor answer {id}{DIM:#}");
                print_stderr!("{DIM}details: parlor inbox {id}{DIM:#}");
            }
        } else {
            output::print(|out| writeln!(out, "No requests wait for you."))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
