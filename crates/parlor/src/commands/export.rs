use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::command_error::CommandError;
use crate::offline_sessions::{self, LatestOption, OfflineSessions};
use crate::path_options::PathOptions;
use crate::render::safe;
use crate::session_list::{ListedSession, LiveState};
use crate::{html, markdown, output, session_json, text_file};

/// Write a session to a file or to standard output
///
/// `json` is one object: id, agent, directory and dates of the session, and its transcript in the format of `parlor fold`. `jsonl`
/// has one session update of protocol version 2 per line, which `parlor fold` reads. `markdown` (`md`) and `html` are for people;
/// the HTML page is self-contained and has no scripts.
///
/// The file appears when it is complete. An existing one is replaced only with `--force`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Export {
    #[command(flatten)]
    paths: PathOptions,
    #[command(flatten)]
    latest: LatestOption,
    /// Select the session: its id, a unique prefix of its id or name, or `latest`
    #[arg(value_name = "SESSION")]
    session: String,
    /// Select the format [default: that of the file's name, else json]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    /// Write to this file; `-` stands for standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long, requires = "output")]
    force: bool,
    /// Select the format `json`
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  parlor export latest -o session.html
  parlor export latest --format md | less
  parlor export latest | jq -r .agent";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Json,
    Jsonl,
    #[value(alias = "md")]
    Markdown,
    Html,
}

impl Export {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let file = self.output.as_deref().filter(|file| *file != Path::new("-"));
        let format = match (self.format, file) {
            (Some(format), _) => format,
            (None, Some(file)) if !self.json => Format::of_file(file)?,
            (None, _) => Format::Json,
        };
        let sessions = OfflineSessions::open(&self.paths)?;
        let opened = sessions.read(&sessions.find(&self.session, self.latest.scope())?)?;
        let name = sessions.display_name(&opened.row)?;
        let transcript = || offline_sessions::v2_transcript(&opened);
        let text = match format {
            Format::Json => {
                let session = ListedSession::new(&sessions, &opened.row, &LiveState::default())?;
                format!("{}\n", session_json::session(&session, &opened, &transcript()).as_str())
            }
            Format::Jsonl => {
                offline_sessions::updates(&opened).into_iter().map(|update| update + "\n").collect()
            }
            Format::Markdown => markdown::session(name.as_deref(), &opened, &transcript()),
            Format::Html => html::session(name.as_deref(), &opened, &transcript()),
        };
        match file {
            Some(file) => {
                text_file::write(file, &text, self.force)?;
                print_stderr!("wrote {}", safe(&file.display().to_string()));
            }
            None if matches!(format, Format::Markdown | Format::Html) => {
                output::print(|out| out.write_all(text.as_bytes()))?;
            }
            None => output::print_raw_json(&text)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Format {
    /// The format that the name of a file stands for.
    fn of_file(file: &Path) -> Result<Self, CommandError> {
        let extension = file.extension().map(|extension| extension.to_string_lossy().to_lowercase());
        match extension.as_deref() {
            Some("json") => Ok(Self::Json),
            Some("jsonl" | "ndjson") => Ok(Self::Jsonl),
            Some("md" | "markdown") => Ok(Self::Markdown),
            Some("html" | "htm") => Ok(Self::Html),
            Some(_) | None => {
                Err(CommandError::bad_input(format_args!("the name {} has no known format", file.display()))
                    .hint("end it in .json, .jsonl, .md or .html, or select one with --format"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_that_of_the_file_name() {
        for (name, format) in [
            ("x.json", Format::Json),
            ("x.JSONL", Format::Jsonl),
            ("a.b/x.md", Format::Markdown),
            ("x.markdown", Format::Markdown),
            ("x.tar.htm", Format::Html),
        ] {
            assert_eq!(Format::of_file(Path::new(name)).unwrap(), format, "{name}");
        }
        for name in ["x", "x.txt", "md", ".md"] {
            assert!(Format::of_file(Path::new(name)).is_err(), "{name}");
        }
    }
}
