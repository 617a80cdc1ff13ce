use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::checks;
use crate::command_error::CommandError;
use crate::output::{self, BOLD, DIM, GREEN, RED, YELLOW, count};
use crate::render::safe;
use crate::setup::PathOptions;

/// Look for what is wrong
///
/// Looks at the data directory, the database, the sessions in it, the server, the configuration and the agents, and tries
/// the default agent. No session is changed. The exit code is 1 if something fails.
#[derive(Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    paths: PathOptions,
    /// Read every session, not only a sample where there are many, and check every index of the database
    #[arg(long)]
    full: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Ok,
    Warn,
    Fail,
}

/// What came of looking at one thing.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) verdict: Verdict,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Check {
    pub(crate) fn ok(name: &'static str, message: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Ok, message: message.into(), hint: None }
    }

    pub(crate) fn warn(name: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Warn, message: message.into(), hint: Some(hint.into()) }
    }

    pub(crate) fn fail(name: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        let hint = Some(hint.into()).filter(|hint| !hint.is_empty());
        Self { name, verdict: Verdict::Fail, message: message.into(), hint }
    }
}

#[derive(Serialize)]
struct Report {
    ok: bool,
    checks: Vec<Check>,
}

impl Doctor {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let checks = checks::all(&self.paths, self.full)?;
        let ok = checks.iter().all(|check| check.verdict != Verdict::Fail);
        if self.json {
            output::print_json(&Report { ok, checks })?;
        } else {
            output::print(|out| {
                for check in &checks {
                    let (word, style) = match check.verdict {
                        Verdict::Ok => ("ok", GREEN),
                        Verdict::Warn => ("warn", YELLOW),
                        Verdict::Fail => ("fail", RED),
                    };
                    let (name, message) = (check.name, safe(&check.message));
                    writeln!(out, "{style}{word:<4}{style:#}  {BOLD}{name:<15}{BOLD:#} {message}")?;
                    if let Some(hint) = &check.hint {
                        writeln!(out, "{DIM}{:22}{}{DIM:#}", "", safe(hint))?;
                    }
                }
                let failed = checks.iter().filter(|check| check.verdict == Verdict::Fail).count();
                if failed > 0 {
                    writeln!(out, "\n{RED}{} failed.{RED:#}", count(failed, "check"))?;
                }
                Ok(())
            })?;
        }
        Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
