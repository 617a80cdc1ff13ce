use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::command_error::CommandError;
use crate::path_options::{DataOption, PathOptions};
use crate::render::safe;
use crate::{input, logging, output};

/// Print the log of the server
///
/// The log has the events of the server and what its agents write to their standard error. It is kept when the server stops.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Logs {
    #[command(flatten)]
    data: DataOption,
    /// Wait for more lines and print them, until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// Print only lines about this agent
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Print only the last lines; 0 for all
    #[arg(short = 'n', long, value_name = "N", default_value_t = 200, value_parser = input::parse_count, allow_negative_numbers = true)]
    lines: usize,
}

const EXAMPLES: &str = "Examples:
  parlor logs -f
  parlor logs --agent claude -n 20
  PARLOR_LOG=debug parlor serve    # log more: error, warn, info (the default), debug or trace";

/// How often a log file is checked for new lines.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

impl Logs {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let paths = PathOptions::from(self.data);
        let Some(data) = paths.existing_data_dir()? else {
            print_stderr!(
                "no log: {} does not exist",
                output::short_path(&paths.data_dir()?.display().to_string())
            );
            return Ok(ExitCode::SUCCESS);
        };
        let filter = self.agent.as_ref().map(|agent| AgentFilter::new(&paths.agent_name(agent)));
        let is_wanted = |line: &str| filter.as_ref().is_none_or(|filter| filter.matches(line));
        let mut last_lines = VecDeque::new();
        let mut keep = |line: String| {
            if is_wanted(&line) {
                if self.lines > 0 && last_lines.len() == self.lines {
                    last_lines.pop_front();
                }
                last_lines.push_back(line);
            }
        };
        if let Some(mut old) = LogReader::open(&logging::old_path(&data))? {
            old.read(&mut keep)?;
        }
        let path = logging::path(&data);
        let mut log = LogReader::open(&path)?;
        if let Some(log) = &mut log {
            log.read(&mut keep)?;
        }
        if log.is_none() && !self.follow {
            print_stderr!(
                "no log in {}: no server has run",
                output::short_path(&data.path().display().to_string())
            );
        }
        if let Some(agent) = self.agent.as_ref().filter(|_| log.is_some() && last_lines.is_empty()) {
            print_stderr!("the log has no lines about agent '{}'", safe(agent));
        }
        print_lines(&last_lines)?;
        if self.follow {
            follow(&path, log, is_wanted)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints new lines of a log file, also after it was renamed because it was full.
fn follow(
    path: &Path,
    mut log: Option<LogReader>,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<(), CommandError> {
    loop {
        let mut new_lines = VecDeque::new();
        let mut keep = |line: String| {
            if is_wanted(&line) {
                new_lines.push_back(line);
            }
        };
        if log.as_ref().is_none_or(LogReader::was_replaced) {
            // Lines that were written before the file was renamed.
            if let Some(log) = &mut log {
                log.read(&mut keep)?;
            }
            if let Some(new) = LogReader::open(path)? {
                log = Some(new);
            }
        }
        if let Some(log) = &mut log {
            log.read(&mut keep)?;
        }
        if new_lines.is_empty() {
            std::thread::sleep(POLL_INTERVAL);
        } else {
            print_lines(&new_lines)?;
        }
    }
}

fn print_lines(lines: &VecDeque<String>) -> Result<(), CommandError> {
    output::print(|out| lines.iter().try_for_each(|line| writeln!(out, "{}", safe(line))))
}

/// Matches the lines about an agent.
struct AgentFilter(String);

impl AgentFilter {
    fn new(agent: &str) -> Self {
        // Log lines have names in quotes, and quotes in other texts escaped.
        Self(format!("agent={agent:?}"))
    }

    fn matches(&self, line: &str) -> bool {
        line.contains(&self.0)
    }
}

/// Reads the whole lines of a log file that may grow.
struct LogReader {
    path: PathBuf,
    file: BufReader<File>,
    /// The start of a line that is not yet whole.
    rest: Vec<u8>,
}

impl LogReader {
    /// Opens a log file; `None` if it does not exist.
    fn open(path: &Path) -> Result<Option<Self>, CommandError> {
        match File::open(path) {
            Ok(file) => {
                Ok(Some(Self { path: path.to_owned(), file: BufReader::new(file), rest: Vec::new() }))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(read_error(path, &error)),
        }
    }

    /// Calls `keep` with each whole line up to the present end of the file.
    fn read(&mut self, mut keep: impl FnMut(String)) -> Result<(), CommandError> {
        loop {
            let length = self.file.read_until(b'\n', &mut self.rest);
            if length.map_err(|error| read_error(&self.path, &error))? == 0 {
                return Ok(());
            }
            if self.rest.ends_with(b"\n") {
                self.rest.pop();
                keep(String::from_utf8_lossy(&self.rest).into_owned());
                self.rest.clear();
            }
        }
    }

    /// Whether the path names another file now.
    fn was_replaced(&self) -> bool {
        let (Ok(ours), Ok(theirs)) = (self.file.get_ref().metadata(), std::fs::metadata(&self.path)) else {
            return false;
        };
        (ours.dev(), ours.ino()) != (theirs.dev(), theirs.ino())
    }
}

fn read_error(path: &Path, error: &io::Error) -> CommandError {
    CommandError::server_unavailable(format_args!("cannot read the log {}: {error}", path.display()))
}
