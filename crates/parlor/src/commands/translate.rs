use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use parlor_dialect::{Dialect, LineProblem, Loss, Recorded, Side, Translation, Translator};
use parlor_wire::DEFAULT_LINE_LIMIT;

use crate::command_error::CommandError;
use crate::input::{self, Line};
use crate::output;

/// Translate messages of an agent or a client to another protocol version
///
/// Reads one JSON-RPC message per line and writes the translated lines. Missing ids are assigned, and updates of tool calls are
/// merged where the dialect requires it. What the other dialect cannot express is a loss, one JSON line on standard error:
/// `{"line":3,"loss":"message_replaced","messageId":"m1"}`; the exit code is then 3.
///
/// In a recording, each line starts with its direction (`C->A {json}`, `A->C {json}`): both sides are translated, including the
/// start and end of turns, and the output has directions as well. Without directions, only the messages of the side in --side
/// are translated and no messages are added.
#[derive(Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Translate {
    /// Read these files in order [default: standard input]
    files: Vec<PathBuf>,

    /// Decode the lines in this dialect: v1, v2 or draft
    #[arg(long, value_name = "DIALECT")]
    from: Dialect,

    /// Encode them in this dialect: v1, v2 or draft
    #[arg(long, value_name = "DIALECT")]
    to: Dialect,

    /// Treat lines without a direction as messages of this side
    #[arg(long, value_enum, default_value_t = SenderSide::Agent)]
    side: SenderSide,

    /// Skip lines that are longer than this many bytes
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_LINE_LIMIT)]
    max_line: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum SenderSide {
    /// Messages that an agent sends
    Agent,
    /// Messages that a client sends
    Client,
}

const EXAMPLE: &str = "Examples:
  parlor translate --from v1 --to v2 < agent-output.jsonl
  parlor translate --from v2 --to v1 recording.jsonl";

impl Translate {
    pub(crate) fn run(&self) -> Result<ExitCode, CommandError> {
        let mut run = TranslationRun {
            recorded: Translator::record(self.from, self.to),
            plain: Translator::one_sided(self.from, self.to),
            side: match self.side {
                SenderSide::Agent => Side::Agent,
                SenderSide::Client => Side::Client,
            },
            out: io::BufWriter::new(io::stdout().lock()),
            number: 0,
            bad_lines: 0,
            losses: 0,
        };
        input::each_line(&self.files, self.max_line, |line| run.line(&line))?;
        let rest = run.recorded.finish();
        run.write_translation(&Line::last(run.number), &rest, true)?;
        run.out.flush().map_err(|error| CommandError::write(&error))?;
        Ok(ExitCode::from(match (run.bad_lines, run.losses) {
            (0, 0) => 0,
            (0, _) => 3,
            (_, _) => 2,
        }))
    }
}

struct TranslationRun<'a> {
    /// Translates lines with a direction.
    recorded: Translator,
    /// Translates lines without a direction.
    plain: Translator,
    side: Side,
    out: io::BufWriter<io::StdoutLock<'a>>,
    /// The number of the last line.
    number: usize,
    bad_lines: usize,
    losses: usize,
}

impl TranslationRun<'_> {
    fn line(&mut self, line: &Line<'_>) -> Result<(), CommandError> {
        self.number = line.number;
        let text = match &line.text {
            Ok(text) => *text,
            Err(malformed) => {
                self.report(line, &LineProblem::Malformed(malformed.clone()));
                return Ok(());
            }
        };
        let Some(recorded) = Recorded::read(text) else {
            return self.write(text);
        };
        let translation = match recorded.from {
            Some(side) => self.recorded.line(side, recorded.message),
            None => self.plain.line(self.side, recorded.message),
        };
        match translation {
            Ok(translation) => self.write_translation(line, &translation, recorded.from.is_some()),
            Err(problem) => {
                self.report(line, &problem);
                Ok(())
            }
        }
    }

    fn write_translation(
        &mut self,
        line: &Line<'_>,
        translation: &Translation<'_>,
        has_direction: bool,
    ) -> Result<(), CommandError> {
        for line in &translation.lines {
            let mark = match line.by {
                Side::Client if has_direction => "C->A ",
                Side::Agent if has_direction => "A->C ",
                Side::Client | Side::Agent => "",
            };
            self.write(&format!("{mark}{}", line.text))?;
        }
        for loss in &translation.losses {
            self.losses += 1;
            print_stderr!("{}", loss_line(line.number, loss));
        }
        for problem in &translation.problems {
            self.report(line, problem);
        }
        Ok(())
    }

    fn write(&mut self, text: &str) -> Result<(), CommandError> {
        writeln!(self.out, "{}", output::for_stdout(text)).map_err(|error| CommandError::write(&error))
    }

    fn report(&mut self, line: &Line<'_>, problem: &LineProblem) {
        self.bad_lines += 1;
        line.report(problem);
    }
}

fn loss_line(number: usize, loss: &Loss) -> String {
    let message = loss.message_id.as_ref().map(|id| format!(",\"messageId\":{}", id.as_json().as_literal()));
    format!(r#"{{"line":{number},"loss":"{}"{}}}"#, loss.kind, message.unwrap_or_default())
}
