//! Servers that commands start in the background.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{ChildStderr, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use parlor_server::data_dir::DataDir;
use serde::{Deserialize, Serialize};

use crate::command_error::CommandError;
use crate::commands::status;
use crate::output::count;
use crate::path_options::PathOptions;
use crate::render::safe;
use crate::server;
use crate::shutdown::{self, STOP_TIMEOUT};

/// How much is read of the standard error of a server that does not start.
const MAX_STDERR: u64 = 64 << 10;

/// How long the data directory may be locked while no server accepts connections.
const LOCK_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a server may take to start before a notice is printed. Migrating a large database takes longer.
const NOTICE_DELAY: Duration = Duration::from_secs(2);

/// How often the socket of a starting server is tried.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The pauses between attempts to start a server while another one has the lock.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Why a background server did not start, as it reports it on standard error.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StartupError {
    /// Whether another server has locked the data directory.
    is_locked: bool,
    /// Whether the arguments or the configuration are invalid.
    #[serde(default)]
    is_bad_input: bool,
    message: String,
    hint: Option<String>,
}

impl StartupError {
    pub(crate) fn new(error: &CommandError) -> Self {
        let hint = error.hint_text().map(str::to_owned);
        let (is_locked, is_bad_input) = (error.is_locked(), error.is_bad_input());
        Self { is_locked, is_bad_input, message: error.to_string(), hint }
    }

    /// Parses the report on the last line; other output, such as that of a panic, becomes the message.
    fn parse(stderr: &str) -> Self {
        let report = stderr.lines().next_back().and_then(|line| serde_json::from_str(line).ok());
        report.unwrap_or_else(|| {
            let output = stderr.lines().collect::<Vec<_>>().join("; ");
            let message = if output.is_empty() { "it exited without a message".to_owned() } else { output };
            Self { is_locked: false, is_bad_input: false, message, hint: None }
        })
    }
}

/// Returns the data directory once a server accepts connections there, and starts one if none is running.
///
/// If several commands start servers at the same time, one server gets the lock and all commands use it. If the lock belongs
/// to a server that is stopping, the start is repeated. A server that is starting is waited for as long as it runs.
pub(crate) fn ensure_running(paths: &PathOptions) -> Result<DataDir, CommandError> {
    let data = paths.open_data_dir()?;
    let started_at = Instant::now();
    let mut starting: Option<Receiver<StartupError>> = None;
    let mut locked_since: Option<Instant> = None;
    let mut is_notice_printed = false;
    let mut pause = RETRY_PAUSE;
    let error = loop {
        if server::is_running(&data.socket()) {
            if starting.is_some() {
                return Ok(data);
            }
            paths.check_used(&data)?;
            if is_usable(&data)? {
                return Ok(data);
            }
            continue;
        }
        if !is_notice_printed && started_at.elapsed() > NOTICE_DELAY {
            is_notice_printed = true;
            let _ = writeln!(anstream::stderr(), "waiting for the server to start ...");
        }
        let exited = match &starting {
            Some(exited) => exited,
            None => starting.insert(start(&data, paths)?),
        };
        if let Ok(error) = exited.try_recv() {
            let locked_since = locked_since.get_or_insert_with(Instant::now);
            if !error.is_locked || locked_since.elapsed() > LOCK_TIMEOUT {
                break error;
            }
            starting = None;
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_RETRY_PAUSE);
        }
        std::thread::sleep(POLL_INTERVAL);
    };
    let log = data.path().join("log");
    let hint = error.hint.unwrap_or_else(|| format!("the log is in {}", log.display()));
    let message = format!("cannot start the server: {}", error.message);
    let failed = if error.is_bad_input {
        CommandError::bad_input(message)
    } else {
        CommandError::server_unavailable(message)
    };
    Err(failed.hint(hint))
}

/// Whether the running server can be used. A server of an earlier version is stopped if it has neither clients nor running
/// turns; a notice is printed if it has.
fn is_usable(data: &DataDir) -> Result<bool, CommandError> {
    let socket = data.socket();
    let server = match status::query(&socket) {
        Ok(server) => server,
        Err(error) if server::is_running(&socket) => return Err(error),
        // It has just stopped.
        Err(_) => return Ok(false),
    };
    let ours = env!("CARGO_PKG_VERSION");
    if server.version == ours {
        return Ok(true);
    }
    let name = format!("parlor {} (process {})", safe(&server.version), server.pid);
    let turns = server.turns.as_ref().map_or(0, Vec::len);
    if version_numbers(&server.version) > version_numbers(ours) {
        print_stderr!("the running server is {name}, which is newer than this program ({ours})");
    } else if server.clients > 0 || server.turns.is_none() || turns > 0 {
        let clients = count(usize::try_from(server.clients).unwrap_or(usize::MAX), "client");
        print_stderr!(
            "the running server is {name}, this program is {ours}; the server is not replaced because it is in use \
             ({clients}, {}): `parlor stop` stops it",
            count(turns, "running turn")
        );
    } else {
        print_stderr!("replacing the running server, {name}, by parlor {ours}");
        shutdown::stop(data, STOP_TIMEOUT)?;
        return Ok(false);
    }
    Ok(true)
}

/// The numbers of a version, which compare like versions.
fn version_numbers(version: &str) -> Vec<u64> {
    version.split(['.', '-', '+']).map_while(|number| number.parse().ok()).collect()
}

/// Starts a server that is independent of this process. If it exits, the channel gets its error.
fn start(data: &DataDir, paths: &PathOptions) -> Result<Receiver<StartupError>, CommandError> {
    let exe = std::env::current_exe().map_err(CommandError::failed)?;
    let mut command = Command::new(exe);
    command.args(["detach", "--", "serve", "--background", "--data"]).arg(data.path());
    // The server runs in another directory, so the path has to be absolute.
    let from_env = std::env::var_os("PARLOR_CONFIG").filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(config) = paths.config.clone().or(from_env) {
        command.arg("--config").arg(std::path::absolute(config).map_err(CommandError::bad_input)?);
    }
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let failed = |error| CommandError::server_unavailable(format_args!("cannot start the server: {error}"));
    let mut detach = command.spawn().map_err(failed)?;
    let stderr = detach.stderr.take();
    // `detach` exits as soon as it has started the server, which inherits its standard error: end of file means that the
    // server has exited.
    detach.wait().map_err(failed)?;
    let (sender, exited) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let stderr = stderr.map(read_to_end).unwrap_or_default();
        sender.send(StartupError::parse(&stderr))
    });
    Ok(exited)
}

/// Reads until end of file and returns the first `MAX_STDERR` bytes.
fn read_to_end(mut stderr: ChildStderr) -> String {
    let mut bytes = Vec::new();
    let _ = (&mut stderr).take(MAX_STDERR).read_to_end(&mut bytes);
    let _ = std::io::copy(&mut stderr, &mut std::io::sink());
    String::from_utf8_lossy(&bytes).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(version_numbers("0.10.0") > version_numbers("0.9.3"));
        assert!(version_numbers("0.1.0-rc.1") == version_numbers("0.1.0"));
    }

    #[test]
    fn the_report_of_a_server_is_parsed_and_other_output_becomes_the_message() {
        let error = CommandError::failed("the disk is full").hint("free some space");
        let report = serde_json::to_string(&StartupError::new(&error)).unwrap();
        let parsed = StartupError::parse(&format!("a warning\n{report}"));
        assert_eq!((parsed.is_locked, &*parsed.message), (false, "the disk is full"));
        assert_eq!(parsed.hint.as_deref(), Some("free some space"));
        let parsed = StartupError::parse("thread 'main' panicked\nat main.rs");
        assert_eq!((parsed.is_locked, &*parsed.message), (false, "thread 'main' panicked; at main.rs"));
    }
}
