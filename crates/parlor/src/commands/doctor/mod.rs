mod agents;
mod database;
mod files;
mod server;

pub(crate) use self::agents::INITIALIZE_TIMEOUT;

use std::process::ExitCode;

use clap::Args;
use parlor_server::data_dir::DataDir;
use serde::Serialize;

use crate::command_error::CommandError;
use crate::output::{self, BOLD, DIM, GREEN, PLAIN, RED, YELLOW, count, short_path};
use crate::path_options::PathOptions;
use crate::render::safe;
use crate::server::is_running;
use crate::table::{terminal_width, write_labelled};

/// Check the installation
///
/// Checks the data directory, the database, the sessions in it, the server, the configuration and the agents, and starts the
/// agent that a new session would use. No session is changed. The exit code is 1 if a check fails.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Doctor {
    #[command(flatten)]
    paths: PathOptions,
    /// Read all sessions, not only a sample, and check every index of the database
    #[arg(long)]
    full: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  parlor doctor
  parlor doctor --full --json";

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Ok,
    Warn,
    Fail,
}

/// A check and its result.
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
struct DoctorReport {
    ok: bool,
    checks: Vec<Check>,
}

impl Doctor {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let checks = run_checks(&self.paths, self.full)?;
        let ok = checks.iter().all(|check| check.verdict != Verdict::Fail);
        if self.json {
            output::print_json(&DoctorReport { ok, checks })?;
        } else {
            output::print(|out| {
                for check in &checks {
                    let (word, style) = match check.verdict {
                        Verdict::Ok => ("ok", GREEN),
                        Verdict::Warn => ("warn", YELLOW),
                        Verdict::Fail => ("fail", RED),
                    };
                    let (name, message) = (check.name, safe(&check.message));
                    let label = format!("{style}{word:<4}{style:#}  {BOLD}{name:<15}{BOLD:#} ");
                    write_labelled(out, terminal_width(), &label, &message, PLAIN)?;
                    if let Some(hint) = &check.hint {
                        write_labelled(out, terminal_width(), &" ".repeat(22), &safe(hint), DIM)?;
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

/// Runs all checks.
fn run_checks(paths: &PathOptions, full: bool) -> Result<Vec<Check>, CommandError> {
    let mut checks = vec![files::home()];
    let path = paths.data_dir()?;
    checks.push(files::directory(&path));
    checks.extend(files::disk(&path));
    // If it cannot be opened, the check above has failed.
    let mut socket = None;
    if let Ok(Some(data)) = DataDir::open_existing(&path) {
        socket = Some(data.socket()).filter(|socket| is_running(socket));
        checks.extend(database::database(&data, full));
        checks.extend(["token", "token.read"].into_iter().filter_map(|name| files::token(&data, name)));
        checks.extend(server::running(&data));
    }
    match paths.load_config() {
        Ok(config) => {
            checks.push(match &config.path {
                Some(path) => Check::ok("configuration", short_path(&path.display().to_string())),
                None => Check::ok("configuration", "none (optional)"),
            });
            checks.extend(agents::agents(&config, paths, socket.as_deref())?);
        }
        Err(error) => {
            let hint = error.hint.clone().unwrap_or_default();
            checks.push(Check::fail("configuration", error.to_string(), hint));
        }
    }
    Ok(checks)
}
