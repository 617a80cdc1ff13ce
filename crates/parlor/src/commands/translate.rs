use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use parlor_dialect::{Dialect, LineProblem, Loss, Recorded, Side, Translation, Translator};
use parlor_wire::DEFAULT_LINE_LIMIT;

use crate::command_error::CommandError;
use crate::input::{self, Line};
use crate::output;

/// Translate what an agent or a client says to another protocol version
///
/// Reads one JSON-RPC message per line and writes the translated lines. State is kept from line to line: ids
/// are given where they are missing, tool calls add up. What cannot be said in the other dialect is a loss, one
/// JSON line on stderr: `{"line":3,"loss":"message_replaced","messageId":"m1"}`; the exit code is then 3.
///
/// Lines of a recording say who speaks (`C->A {json}`, `A->C {json}`): then both sides are translated, turns
/// are told by prompts or by states as the dialect wants it, and the output is marked alike. Without marks only
/// the side named by --side is heard and nothing is added.
#[derive(Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Translate {
    /// Files to read one after another; standard input if none is named
    files: Vec<PathBuf>,

    /// The dialect of the lines: v1, v2 or draft
    #[arg(long, value_name = "DIALECT")]
    from: Dialect,

    /// The dialect to say them in: v1, v2 or draft
    #[arg(long, value_name = "DIALECT")]
    to: Dialect,

    /// Who says the lines that do not tell
    #[arg(long, value_enum, default_value_t = Speaker::Agent)]
    side: Speaker,

    /// Skip lines that are longer than this many bytes
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_LINE_LIMIT)]
    max_line: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum Speaker {
    /// What an agent sends to its client
    Agent,
    /// What a client sends to its agent
    Client,
}

const EXAMPLE: &str = "Examples:
  parlor translate --from v1 --to v2 < agent-output.jsonl
  parlor translate --from v2 --to v1 recording.jsonl

docs/translation.md lists what is translated to what, and every loss.";

impl Translate {
    pub(crate) fn run(&self) -> Result<ExitCode, CommandError> {
        let mut work = Work {
            marked: Translator::record(self.from, self.to),
            plain: Translator::one_sided(self.from, self.to),
            side: match self.side {
                Speaker::Agent => Side::Agent,
                Speaker::Client => Side::Client,
            },
            out: io::BufWriter::new(io::stdout().lock()),
            number: 0,
            bad_lines: 0,
            losses: 0,
        };
        input::each_line(&self.files, self.max_line, |line| work.line(&line))?;
        let rest = work.marked.finish();
        work.say(&Line::last(work.number), &rest, true)?;
        work.out.flush().map_err(|error| CommandError::write(&error))?;
        Ok(ExitCode::from(match (work.bad_lines, work.losses) {
            (0, 0) => 0,
            (0, _) => 3,
            (_, _) => 2,
        }))
    }
}

struct Work<'a> {
    /// For lines that say who speaks.
    marked: Translator,
    /// For lines that do not.
    plain: Translator,
    side: Side,
    out: io::BufWriter<io::StdoutLock<'a>>,
    /// Of the last line.
    number: usize,
    bad_lines: usize,
    losses: usize,
}

impl Work<'_> {
    fn line(&mut self, line: &Line<'_>) -> Result<(), CommandError> {
        self.number = line.number;
        let text = match &line.text {
            Ok(text) => *text,
            Err(malformed) => {
                self.tell(line, &LineProblem::Malformed(malformed.clone()));
                return Ok(());
            }
        };
        let Some(recorded) = Recorded::read(text) else {
            return self.write(text);
        };
        let translation = match recorded.from {
            Some(side) => self.marked.line(side, recorded.message),
            None => self.plain.line(self.side, recorded.message),
        };
        match translation {
            Ok(translation) => self.say(line, &translation, recorded.from.is_some()),
            Err(problem) => {
                self.tell(line, &problem);
                Ok(())
            }
        }
    }

    fn say(
        &mut self,
        line: &Line<'_>,
        translation: &Translation<'_>,
        marked: bool,
    ) -> Result<(), CommandError> {
        for said in &translation.lines {
            let mark = match said.by {
                Side::Client if marked => "C->A ",
                Side::Agent if marked => "A->C ",
                Side::Client | Side::Agent => "",
            };
            self.write(&format!("{mark}{}", said.text))?;
        }
        for loss in &translation.losses {
            self.losses += 1;
            print_stderr!("{}", loss_line(line.number, loss));
        }
        for problem in &translation.problems {
            self.tell(line, problem);
        }
        Ok(())
    }

    fn write(&mut self, text: &str) -> Result<(), CommandError> {
        writeln!(self.out, "{}", output::for_stdout(text)).map_err(|error| CommandError::write(&error))
    }

    fn tell(&mut self, line: &Line<'_>, problem: &LineProblem) {
        self.bad_lines += 1;
        line.tell(problem);
    }
}

fn loss_line(number: usize, loss: &Loss) -> String {
    let message = loss.message_id.as_ref().map(|id| format!(",\"messageId\":{}", id.as_json().as_literal()));
    format!(r#"{{"line":{number},"loss":"{}"{}}}"#, loss.kind, message.unwrap_or_default())
}
