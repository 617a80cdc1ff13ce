use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use parlor_client::{Activity, Error, Hello, Object, Session, State, Update};
use parlor_session::SessionId;
use parlor_store::SessionRow;

use crate::command_error::CommandError;
use crate::event_lines::EventLines;
use crate::offline_sessions::{LatestOption, OfflineSessions, id_json, session_id};
use crate::output::{DIM, RED, YELLOW};
use crate::path_options::PathOptions;
use crate::render::safe;
use crate::runtime;
use crate::server;
use crate::turn_printer::{self, TurnPrinter};

/// Follow a session live
///
/// Prints the latest entries and then everything that happens, whichever client sends the prompts, until Ctrl-C. Prompts and
/// answers go to standard output, the rest to standard error. The session is only observed: requests of the agent are not sent to
/// this command, and no agent is started. Requires a running server.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Watch {
    #[command(flatten)]
    paths: PathOptions,
    #[command(flatten)]
    latest: LatestOption,
    /// Select the session: its id, a unique prefix of its id or name, or `latest`
    #[arg(value_name = "SESSION")]
    session: String,
    /// Print this many of the latest entries first
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    entries: usize,
    /// Print one session update of protocol version 2 per line, as JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  parlor watch latest
  parlor watch 3f9c --json | jq -r .sessionUpdate";

impl Watch {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let row = OfflineSessions::open(&self.paths)?.find(&self.session, self.latest.scope())?;
        server::running(&self.paths)?;
        let runtime = runtime::multi_threaded()?;
        let result = runtime.block_on(self.follow(&row));
        runtime.shutdown_background();
        result
    }

    async fn follow(&self, row: &SessionRow) -> Result<ExitCode, CommandError> {
        let data = self.paths.open_data_dir()?;
        let id = SessionId::from(id_json(row));
        let cwd = Path::new(&row.cwd);
        let session = server::respond_in_time(async {
            let client = server::connect(&data, &Hello { observer: true, ..Hello::new() }).await?;
            match self.entries {
                0 => client.join(&id, cwd).await,
                entries => client.load_tail(&id, cwd, entries).await,
            }
        });
        let session = session.await?;
        let mut list_changes = session.client().notifications();
        let all_agents = Object::new().with("parlor/agent", "*");
        let params = Object::new().with("_meta", all_agents.to_json());
        server::respond_in_time(session.client().call("_parlor/list/subscribe", &params)).await?;
        print_stderr!("{DIM}watching {}; Ctrl-C ends it{DIM:#}", safe(&session_id(row)));
        let mut updates = session.updates_since(0);
        let mut printer = WatchPrinter::new(self.json, self.entries == 0);
        loop {
            tokio::select! {
                biased;
                update = updates.next() => match update {
                    Some(update) => printer.print(&update, &session)?,
                    None => return Err(CommandError::client(&Error::Disconnected)),
                },
                Some(_) = list_changes.next() => if !self.exists(row)? {
                    printer.finish()?;
                    return Err(CommandError::failed("the session was deleted"));
                },
            }
        }
    }

    fn exists(&self, row: &SessionRow) -> Result<bool, CommandError> {
        OfflineSessions::open(&self.paths)?.exists(row)
    }
}

enum WatchPrinter {
    Json(Box<EventLines>),
    Text {
        turn: Box<TurnPrinter>,
        /// Whether the state before the first live update is known.
        has_state: bool,
    },
}

impl WatchPrinter {
    fn new(json: bool, has_state: bool) -> Self {
        if json {
            Self::Json(Box::new(EventLines::new()))
        } else {
            Self::Text { turn: Box::new(TurnPrinter::of_session()), has_state }
        }
    }

    /// Completes the current line.
    fn finish(&mut self) -> Result<(), CommandError> {
        match self {
            Self::Json(_) => Ok(()),
            Self::Text { turn, .. } => turn.finish().map_err(|error| CommandError::write(&error)),
        }
    }

    fn print(&mut self, update: &Update, session: &Session) -> Result<(), CommandError> {
        let transcript = session.transcript();
        match self {
            Self::Json(lines) => lines.print(update, &transcript),
            Self::Text { turn, has_state } => {
                let printed = match update {
                    // A short turn may have one state only, the last one.
                    Update::State(state) => print_state(turn, state, !std::mem::replace(has_state, true)),
                    Update::Upsert { .. }
                    | Update::Append { .. }
                    | Update::Output { .. }
                    | Update::Remove { .. }
                    | Update::Note { .. } => turn.print(update, &transcript),
                };
                printed.map_err(|error| CommandError::write(&error))
            }
        }
    }
}

/// Prints that a turn waits for a person or has ended. The end of a turn before the first state is not news.
fn print_state(turn: &mut TurnPrinter, state: &State, is_first: bool) -> std::io::Result<()> {
    match &state.activity {
        Activity::RequiresAction => turn.notice("the agent waits for an answer: parlor inbox", YELLOW),
        Activity::Idle => {
            turn.finish()?;
            let reason = state.stop_reason.as_ref().map(|reason| reason.to_text().into_owned());
            // Failed, refused and cancelled turns are entries, which are printed as such.
            let is_entry = |reason: &str| matches!(reason, "end_turn" | "error" | "refusal" | "cancelled");
            match reason.filter(|reason| !is_entry(reason) && !is_first) {
                Some(reason) => turn.notice(&turn_printer::end_line(&reason, None), RED),
                None => Ok(()),
            }
        }
        Activity::Running | Activity::Other(_) => Ok(()),
    }
}
