use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use parlor_dialect::view;

use crate::command_error::CommandError;
use crate::offline_sessions::{self, LatestOption, OfflineSessions};
use crate::path_options::PathOptions;
use crate::{html, markdown, output};

/// Write a session to a file or to standard output
///
/// `json` is one object in the format of `parlor fold`. `jsonl` has one session update of protocol version 2 per line;
/// `parlor fold` turns it into the same transcript. `markdown` and `html` are for people; the HTML page is self-contained and
/// has no scripts.
#[derive(Args)]
pub(crate) struct Export {
    #[command(flatten)]
    paths: PathOptions,
    #[command(flatten)]
    latest: LatestOption,
    /// Select the session: its id, a unique prefix of its id or title, or `latest`
    #[arg(value_name = "SESSION")]
    session: String,
    /// Select the format
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Json)]
    format: Format,
    /// Write to this file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Select the format `json`
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Json,
    Jsonl,
    Markdown,
    Html,
}

impl Export {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let sessions = OfflineSessions::open(&self.paths)?;
        let opened = sessions.read(&sessions.find(&self.session, self.latest.scope())?)?;
        let text = match self.format {
            Format::Json => {
                format!("{}\n", view::transcript(&offline_sessions::v2_transcript(&opened)).as_str())
            }
            Format::Jsonl => {
                offline_sessions::updates(&opened).into_iter().map(|update| update + "\n").collect()
            }
            Format::Markdown => markdown::session(&opened.row, &offline_sessions::v2_transcript(&opened)),
            Format::Html => html::session(&opened.row, &offline_sessions::v2_transcript(&opened)),
        };
        match &self.output {
            None if matches!(self.format, Format::Markdown | Format::Html) => {
                output::print(|out| out.write_all(text.as_bytes()))?;
            }
            None => output::print_raw_json(&text)?,
            Some(path) => {
                let written =
                    std::fs::File::create(path).and_then(|mut file| file.write_all(text.as_bytes()));
                written.map_err(|error| {
                    CommandError::failed(format_args!("cannot write {}: {error}", path.display()))
                })?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
