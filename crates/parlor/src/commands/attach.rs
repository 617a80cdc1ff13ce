use std::process::ExitCode;

use clap::Args;
use parlor_client::SessionId;
use parlor_tui::Start;

use crate::command_error::CommandError;
use crate::offline_sessions::{LATEST, LatestOption, LatestScope, OfflineSessions, id_json};
use crate::path_options::PathOptions;
use crate::terminal_client::{self, ServerOption};

/// Open the terminal client
///
/// Opens a session, or without SESSION the latest one of this directory. Ctrl-C twice detaches: the turn goes on. Starts the local
/// server if it is not running. With `-- COMMAND` it runs any ACP agent directly, without a server: the agent ends with the client.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Attach {
    #[command(flatten)]
    paths: PathOptions,
    #[command(flatten)]
    latest: LatestOption,
    #[command(flatten)]
    server: ServerOption,
    /// Select the session: its id, a unique prefix of its id or name, or `latest` [default: latest]
    #[arg(value_name = "SESSION")]
    session: Option<String>,
    /// Run this agent and its arguments directly
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["session", "server", "all"])]
    command: Vec<String>,
}

const EXAMPLES: &str = "Examples:
  parlor attach
  parlor attach 3f9c
  parlor attach --server ws://build-box:7667
  parlor attach -- claude-agent-acp";

impl Attach {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        if !self.command.is_empty() {
            return terminal_client::run_agent(&self.paths, self.command);
        }
        let scope = self.latest.scope();
        let start = match (&self.session, &self.server.server) {
            (Some(name), Some(_)) if name != LATEST => Start::Named(name.clone()),
            // The client looks for the latest one in the list of the server.
            (_, Some(_)) if scope == LatestScope::All => Start::Named(LATEST.to_owned()),
            (_, Some(_)) | (None, None) if scope == LatestScope::Directory => Start::Latest,
            (name, _) => {
                let name = name.as_deref().unwrap_or(LATEST);
                let row = OfflineSessions::open(&self.paths)?.find_any(name, scope)?;
                Start::Session(SessionId::from(id_json(&row)), row.cwd)
            }
        };
        terminal_client::run(&self.paths, &self.server, start, None, None)
    }
}
