use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use parlor_client::{Hello, Object};
use parlor_server::data_dir::DataDir;
use parlor_server::stored::SessionData;
use parlor_session::SessionId;
use parlor_store::SessionRow;

use crate::command_error::CommandError;
use crate::offline_sessions::{
    LatestOption, LatestScope, OfflineSessions, id_json, literal_text, session_id,
};
use crate::output;
use crate::path_options::PathOptions;
use crate::render::safe;
use crate::runtime;
use crate::server;

/// Cancel the running turn of a session
///
/// Waits until the turn has ended. Requests of the agent that wait for an answer are cancelled with it. Queued prompts of other
/// clients stay and run next, unless `--queued` withdraws them.
#[derive(Args)]
#[command(after_help = "Examples:\n  parlor cancel latest\n  parlor cancel 3f9c --queued")]
pub(crate) struct Cancel {
    #[command(flatten)]
    paths: PathOptions,
    #[command(flatten)]
    latest: LatestOption,
    /// Select the session: its id, a unique prefix of its id or name, or `latest`
    #[arg(value_name = "SESSION")]
    session: String,
    /// Withdraw all queued prompts of the session as well
    #[arg(long)]
    queued: bool,
    /// Print the id of the session and whether a turn was running, as JSON
    #[arg(long)]
    json: bool,
}

/// How long an agent may take to end the turn, and how often the session is looked at.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

impl Cancel {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let row = OfflineSessions::open(&self.paths)?.find(&self.session, self.latest.scope())?;
        if let Some(owner) = row.owner.as_deref().filter(|_| self.queued) {
            let id = session_id(&row);
            return Err(CommandError::bad_input(format_args!(
                "--queued has no effect: session {id} is that of a subagent, which has no queue of prompts"
            ))
            .hint(format_args!("`parlor cancel {} --queued` cancels its owner", literal_text(owner))));
        }
        let data = self.paths.existing_data_dir()?.filter(|data| server::is_running(&data.socket()));
        // Without a server no turn runs.
        let data = data.filter(|_| row.busy);
        if let Some(data) = &data {
            self.cancel(data, &row)?;
        }
        let (name, was_running) = (session_id(&row), data.is_some());
        if self.json {
            output::print_json(&serde_json::json!({ "sessionId": name, "cancelled": was_running }))?;
        } else if was_running {
            let withdrawn = if self.queued { " and withdrew all queued prompts" } else { "" };
            output::print(|out| writeln!(out, "cancelled the turn of {}{withdrawn}", safe(&name)))?;
        } else {
            output::print(|out| writeln!(out, "no turn is running in {}", safe(&name)))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Cancels the turn and waits until it has ended.
    fn cancel(&self, data: &DataDir, row: &SessionRow) -> Result<(), CommandError> {
        let id = SessionId::from(id_json(row));
        runtime::single_threaded()?.block_on(server::respond_in_time(async {
            let client = server::connect(data, &Hello::new()).await?;
            // The session is not attached to, so that requests of the agent are not sent to this client.
            let session = client.session(&id);
            if row.owner.is_some() {
                // Only this has a response: the agent decides which of its subagents may be cancelled.
                return client.call("_parlor/cancel", &Object::new().with("sessionId", id.as_json())).await;
            }
            if self.queued { session.cancel().await } else { session.cancel_turn().await }?;
            // The server responds to this after it has read the notification.
            client.call("session/status", &Object::new().with("sessionId", id.as_json())).await
        }))?;
        let deadline = Instant::now() + CANCEL_TIMEOUT;
        while Instant::now() < deadline {
            let now = OfflineSessions::open(&self.paths)?.find(&session_id(row), LatestScope::All)?;
            // Another turn may be running already.
            if !now.busy || turn_end(&now) != turn_end(row) {
                return Ok(());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        let seconds = CANCEL_TIMEOUT.as_secs();
        Err(CommandError::failed(format_args!("the agent did not end the turn within {seconds} s"))
            .hint("the turn ends as soon as the agent reports it"))
    }
}

/// The change with which the last turn ended.
fn turn_end(row: &SessionRow) -> Option<u64> {
    SessionData::of(row).summary.last_turn_seq
}
