use std::process::{Command, ExitCode, Stdio};

use clap::Args;
use parlor_server::data_dir::DataDir;

use crate::background_server;
use crate::command_error::CommandError;
use crate::output;
use crate::path_options::PathOptions;
use crate::server::{self, ANSWER_TIMEOUT};

/// Open the page in a browser
///
/// Signs the browser in with a link that works once, for 10 minutes. Starts a server if none is running.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Open {
    #[command(flatten)]
    paths: PathOptions,
    /// Print the link, open nothing
    #[arg(long)]
    print: bool,
}

const EXAMPLES: &str = "Examples:
  parlor open
  parlor open --print";

impl Open {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let data = background_server::ensure_running(&self.paths)?;
        let port = port(&data)?;
        let response = server::call(&data.socket(), "_parlor/browsers/link", ANSWER_TIMEOUT)?;
        let code = response.get_string("code").unwrap_or_default();
        let link = link(port, &code);
        let is_opened = !self.print && open_in_browser(&link);
        output::print(|out| {
            if is_opened {
                writeln!(out, "opened http://parlor.localhost:{port}/")
            } else {
                writeln!(out, "{link}")
            }
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The link that signs a browser in.
pub(crate) fn link(port: u16, code: &str) -> String {
    format!("{}/sign-in?code={code}", address(port))
}

/// The address of the page.
pub(crate) fn address(port: u16) -> String {
    format!("http://parlor.localhost:{port}")
}

/// The port of the server.
fn port(data: &DataDir) -> Result<u16, CommandError> {
    let port = std::fs::read_to_string(data.port_file()).ok().and_then(|port| port.trim().parse().ok());
    port.ok_or_else(|| {
        CommandError::server_unavailable("the server listens on its socket only, so it has no page")
            .hint("start it without --socket-only, and without socket_only under [server] in config.toml")
    })
}

/// Opens a link with the program of the desktop; `false` if there is none.
fn open_in_browser(link: &str) -> bool {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(program);
    command.arg(link).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
