use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use parlor_dialect::{Dialect, LineProblem, view};
use parlor_session::SessionId;
use parlor_wire::DEFAULT_LINE_LIMIT;

use crate::command_error::CommandError;
use crate::{input, output, render};

/// Fold session updates into a transcript
///
/// Reads JSON-RPC lines (`session/update` notifications; `session/prompt` and its response mark turns; other messages are
/// skipped), bare update objects, or recordings whose lines start with `C->A` or `A->C`. Prints the transcript as text on a
/// terminal, else as one JSON object.
///
/// An invalid line is skipped and reported on standard error with its number and the reason; the exit code is then 2.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Fold {
    /// Read these files in order [default: standard input]
    files: Vec<PathBuf>,

    /// Decode the lines in this dialect: v1, v2 or draft
    #[arg(long, value_name = "DIALECT", default_value_t = Dialect::V2)]
    dialect: Dialect,

    /// Fold only this session, if the lines are of several
    #[arg(long, value_name = "ID")]
    session: Option<String>,

    /// Print JSON even on a terminal
    #[arg(long, conflicts_with = "text")]
    json: bool,

    /// Print text even into a pipe
    #[arg(long)]
    text: bool,

    /// Skip lines that are longer than this many bytes
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_LINE_LIMIT)]
    max_line: usize,
}

const EXAMPLES: &str = "Examples:
  parlor export latest --format jsonl | parlor fold --text
  parlor fold --dialect v1 recording.jsonl";

impl Fold {
    pub(crate) fn run(&self) -> Result<ExitCode, CommandError> {
        let mut fold = match &self.session {
            Some(session) => {
                parlor_dialect::Fold::of_session(self.dialect, SessionId::from(session.as_str()))
            }
            None => parlor_dialect::Fold::new(self.dialect),
        };
        let mut bad_lines = 0;
        input::each_line(&self.files, self.max_line, |line| {
            let folded = line.text.clone().map_err(LineProblem::Malformed).and_then(|text| fold.line(text));
            if let Err(problem) = folded {
                bad_lines += 1;
                line.report(&problem);
            }
            Ok(())
        })?;
        self.check_sessions(fold.sessions())?;
        self.print(fold.transcript()).map_err(|error| CommandError::write(&error))?;
        Ok(if bad_lines > 0 { ExitCode::from(2) } else { ExitCode::SUCCESS })
    }

    fn check_sessions(&self, seen: &[SessionId]) -> Result<(), CommandError> {
        let names = || seen.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match &self.session {
            None if seen.len() > 1 => {
                Err(CommandError::bad_input(format_args!("the lines are of {} sessions", seen.len()))
                    .hint(format_args!("select one with --session: {}", names())))
            }
            Some(wanted) if !seen.is_empty() && !seen.contains(&SessionId::from(wanted.as_str())) => {
                Err(CommandError::bad_input(format_args!("no line is of session {wanted}"))
                    .hint(format_args!("the lines are of: {}", names())))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn print(&self, transcript: &parlor_session::Transcript) -> io::Result<()> {
        let as_text = self.text || !self.json && io::stdout().is_terminal();
        let mut out = io::BufWriter::new(anstream::stdout().lock());
        if as_text {
            render::transcript(transcript, &mut out)?;
        } else {
            writeln!(out, "{}", output::for_stdout(view::transcript(transcript).as_str()))?;
        }
        out.flush()
    }
}
