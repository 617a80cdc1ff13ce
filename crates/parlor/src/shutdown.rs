//! Stops and restarts the server of a data directory.

use std::time::{Duration, Instant};

use parlor_server::data_dir::DataDir;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use crate::command_error::CommandError;
use crate::commands::status::{self, RunningTurn, ServerStatus};
use crate::output::short_path;
use crate::server;
use crate::signals::RESTART;

/// How long a server may take to stop. It gives its sessions, agents and connections up to 25 seconds.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the server may take to answer which turns are running.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a restarting server may take to lock its data directory again.
const START_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a server may take before a notice is printed.
const NOTICE_DELAY: Duration = Duration::from_secs(2);

/// How often the server is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A server that was stopped.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoppedServer {
    pub(crate) pid: u32,
    /// `None` if the server did not answer.
    pub(crate) version: Option<String>,
    /// The turns that were running.
    pub(crate) interrupted: Vec<RunningTurn>,
}

/// Asks the server of a data directory to stop and waits until it has. `None` if no server is running.
pub(crate) fn stop(data: &DataDir, timeout: Duration) -> Result<Option<StoppedServer>, CommandError> {
    let Some(server) = signal(data, Signal::TERM)? else { return Ok(None) };
    // An editor may have started another server at once.
    let is_stopped = || data.lock_holder().is_none_or(|holder| holder.is_some_and(|pid| pid != server.pid));
    wait(server.pid, "stop", timeout, is_stopped)?;
    Ok(Some(server))
}

/// Asks the server of a data directory to start again, with the same arguments, and waits until it has. `None` if no server is
/// running.
pub(crate) fn restart(data: &DataDir, timeout: Duration) -> Result<Option<StoppedServer>, CommandError> {
    let locked_at = data.locked_at();
    let Some(server) = signal(data, RESTART)? else { return Ok(None) };
    let mut unlocked_since: Option<Instant> = None;
    wait(server.pid, "restart", timeout, || {
        if data.lock_holder().is_some() {
            unlocked_since = None;
            return data.locked_at() != locked_at && server::is_running(&data.socket());
        }
        // The caller reports that the server is not running.
        unlocked_since.get_or_insert_with(Instant::now).elapsed() > START_TIMEOUT
    })?;
    Ok(Some(server))
}

/// Sends a signal to the server of a data directory.
fn signal(data: &DataDir, signal: Signal) -> Result<Option<StoppedServer>, CommandError> {
    let Some(holder) = data.lock_holder() else { return Ok(None) };
    let server = running(data);
    let Some(pid) = server.as_ref().map(|server| server.pid).or(holder) else {
        let message = format!("a server is starting in {}", short_path(&data.path().display().to_string()));
        return Err(CommandError::server_unavailable(message).hint("try again in a moment"));
    };
    let failed = |error: &dyn std::fmt::Display| {
        CommandError::failed(format_args!("cannot send a signal to the server (process {pid}): {error}"))
    };
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let process = process.ok_or_else(|| failed(&"its process id is invalid"))?;
    match kill_process(process, signal) {
        // It has just ended by itself.
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => return Err(failed(&error)),
    }
    let (version, interrupted) =
        server.map_or((None, Vec::new()), |server| (Some(server.version), server.turns.unwrap_or_default()));
    Ok(Some(StoppedServer { pid, version, interrupted }))
}

/// The status of a server, unless it does not answer.
pub(crate) fn running(data: &DataDir) -> Option<ServerStatus> {
    let socket = data.socket();
    server::is_running(&socket).then(|| status::query_within(&socket, ANSWER_TIMEOUT).ok()).flatten()
}

/// Waits until the server has done what it was asked to do.
fn wait(
    pid: u32,
    action: &str,
    timeout: Duration,
    mut is_done: impl FnMut() -> bool,
) -> Result<(), CommandError> {
    let started_at = Instant::now();
    let mut is_notice_printed = false;
    while !is_done() {
        if started_at.elapsed() >= timeout {
            let seconds = timeout.as_secs();
            return Err(CommandError::server_unavailable(format_args!(
                "the server (process {pid}) did not {action} within {seconds} s"
            ))
            .hint(format_args!("`kill -9 {pid}` ends it at once, with its agents; stored sessions stay")));
        }
        if !is_notice_printed && started_at.elapsed() > NOTICE_DELAY {
            is_notice_printed = true;
            print_stderr!("waiting for the server (process {pid}) to {action} ...");
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}
