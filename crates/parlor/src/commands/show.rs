use std::process::ExitCode;

use clap::Args;
use parlor_dialect::view;

use crate::command_error::CommandError;
use crate::offline_sessions::{self, LatestOption, OfflineSessions, session_id, session_title};
use crate::output::{self, BOLD, DIM, ago, short_path};
use crate::path_options::PathOptions;
use crate::render::{self, safe};

/// Print the transcript of a session
///
/// Reads the stored session and starts neither a server nor an agent. The JSON output has the format of `parlor fold`.
#[derive(Args)]
pub(crate) struct Show {
    #[command(flatten)]
    paths: PathOptions,
    #[command(flatten)]
    latest: LatestOption,
    /// Select the session: its id, a unique prefix of its id or title, or `latest`
    #[arg(value_name = "SESSION")]
    session: String,
    /// Print the transcript as one JSON object
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let sessions = OfflineSessions::open(&self.paths)?;
        let opened = sessions.read(&sessions.find(&self.session, self.latest.scope())?)?;
        let transcript = offline_sessions::v2_transcript(&opened);
        if self.json {
            output::print_raw_json(&format!("{}\n", view::transcript(&transcript).as_str()))?;
            return Ok(ExitCode::SUCCESS);
        }
        output::print(|mut out| {
            let row = &opened.row;
            if let Some(title) = session_title(row) {
                writeln!(out, "{BOLD}{}{BOLD:#}", safe(&title))?;
            }
            writeln!(
                out,
                "{DIM}{} · {} · {} · {}{DIM:#}\n",
                safe(&session_id(row)),
                safe(&row.agent),
                safe(&short_path(&row.cwd)),
                ago(row.active_at, output::now())
            )?;
            render::entries(&transcript, &mut out)
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
