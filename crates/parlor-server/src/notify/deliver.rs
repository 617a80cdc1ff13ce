//! Tells one target of events, one after the other.

use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::event::NotifyEvent;
use super::http_post::post;
use crate::config::{NotifyFormat, NotifySink, NotifyTarget};

/// Events that wait for a target.
pub(super) const MAX_WAITING: usize = 64;

/// How long an address may take.
const URL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a program may run.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// The pauses before an address is tried again.
const RETRIES: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(10)];

/// Bytes of the standard error of a program that failed, for the log.
const MAX_STDERR: u64 = 2048;

/// An event with the address of the page.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) event: NotifyEvent,
    pub(super) page: Option<String>,
}

/// Why an event was not delivered.
#[derive(Debug)]
enum Failure {
    /// It may succeed later.
    Temporary(String),
    Final(String),
}

/// Delivers events until no more can arrive.
pub(super) async fn run(target: Arc<NotifyTarget>, mut waiting: mpsc::Receiver<Delivery>) {
    while let Some(delivery) = waiting.recv().await {
        let event = delivery.event.kind.name();
        if let Err(reason) = deliver(&target, &delivery).await {
            tracing::warn!(target = target.name(), event, "cannot notify: {reason}");
        }
    }
}

async fn deliver(target: &NotifyTarget, delivery: &Delivery) -> Result<(), String> {
    let mut retries = RETRIES.iter();
    loop {
        let outcome = match &target.sink {
            NotifySink::Url { .. } => {
                timeout(URL_TIMEOUT, post_event(target, delivery)).await.unwrap_or_else(|_| {
                    Err(Failure::Temporary(format!("no answer within {} s", URL_TIMEOUT.as_secs())))
                })
            }
            NotifySink::Command(words) => run_command(words, delivery).await.map_err(Failure::Final),
        };
        match (outcome, retries.next()) {
            (Ok(()), _) => return Ok(()),
            (Err(Failure::Temporary(reason)), Some(pause)) => {
                tracing::debug!(target = target.name(), "cannot notify, will try again: {reason}");
                sleep(*pause).await;
            }
            (Err(Failure::Temporary(reason) | Failure::Final(reason)), _) => return Err(reason),
        }
    }
}

async fn post_event(target: &NotifyTarget, Delivery { event, page }: &Delivery) -> Result<(), Failure> {
    let NotifySink::Url { url, format, headers } = &target.sink else { return Ok(()) };
    let page = page.as_deref();
    let sent = match format {
        NotifyFormat::Json => post(url, headers, "application/json", event.to_json(page)).await,
        NotifyFormat::Ntfy => {
            let separator = if url.contains('?') { '&' } else { '?' };
            let url = format!("{url}{separator}{}", event.ntfy_query(page));
            post(&url, headers, "text/plain; charset=utf-8", event.body()).await
        }
    };
    match sent {
        Ok(status) if status.is_success() => Ok(()),
        Ok(status) if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
            Err(Failure::Temporary(format!("status {status}")))
        }
        Ok(status) => Err(Failure::Final(format!("status {status}"))),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(Failure::Final(error.to_string())),
        Err(error) => Err(Failure::Temporary(error.to_string())),
    }
}

/// Runs a program in a process group of its own, which is killed if it takes too long.
async fn run_command(words: &[String], Delivery { event, page }: &Delivery) -> Result<(), String> {
    let (program, args) = words.split_first().ok_or("the command is empty")?;
    let page = page.as_deref();
    let mut child = Command::new(program)
        .args(args)
        .envs(event.variables(page))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| error.to_string())?;
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let input = format!("{}\n", event.to_json(page));
    let write = async {
        if let Some(mut stdin) = stdin {
            // A program need not read it.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
    };
    let read = async {
        let mut text = Vec::new();
        if let Some(mut stderr) = stderr {
            let _ = (&mut stderr).take(MAX_STDERR).read_to_end(&mut text).await;
            let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
        }
        String::from_utf8_lossy(&text).trim().to_owned()
    };
    // A child of the program may keep the standard error open: only the program itself is waited for.
    let ended = async {
        let status = tokio::select! {
            biased;
            ((), stderr) = async { tokio::join!(write, read) } => return (child.wait().await, stderr),
            status = child.wait() => status,
        };
        (status, String::new())
    };
    let Ok((status, stderr)) = timeout(COMMAND_TIMEOUT, ended).await else {
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        return Err(format!("it did not end within {} s", COMMAND_TIMEOUT.as_secs()));
    };
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) if stderr.is_empty() => Err(status.to_string()),
        Ok(status) => Err(format!("{status}: {stderr}")),
        Err(error) => Err(error.to_string()),
    }
}
