use std::process::ExitCode;

use clap::Args;
use parlor_dialect::view;

use crate::failure::Failure;
use crate::library::{self, Library, id_of, title_of};
use crate::output::{self, BOLD, DIM, ago, short_path};
use crate::render::{self, safe};
use crate::setup::Common;

/// Show what was said in a session
///
/// Reads the stored session; no server and no agent is started. The JSON has the shape that `parlor fold` prints.
#[derive(Args)]
pub(crate) struct Show {
    #[command(flatten)]
    common: Common,
    /// The session: its id, the beginning of it, or `latest`
    #[arg(value_name = "SESSION")]
    session: String,
    /// Print the transcript as one JSON object
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let library = Library::open(&self.common)?;
        let opened = library.read(&library.find(&self.session)?)?;
        let transcript = library::in_v2(&opened);
        if self.json {
            output::print_text(&format!("{}\n", view::transcript(&transcript).as_str()))?;
            return Ok(ExitCode::SUCCESS);
        }
        output::print(|mut out| {
            let row = &opened.row;
            if let Some(title) = title_of(row) {
                writeln!(out, "{BOLD}{}{BOLD:#}", safe(&title))?;
            }
            writeln!(
                out,
                "{DIM}{} · {} · {} · {}{DIM:#}\n",
                safe(&id_of(row)),
                safe(&row.agent),
                safe(&short_path(&row.cwd)),
                ago(row.active_at, output::now())
            )?;
            render::entries(&transcript, &mut out)
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
