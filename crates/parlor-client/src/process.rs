//! Agents that run as child processes.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::process::{Child, Command};
use tokio::signal::unix::{self, SignalKind};
use tokio::time::{Instant, sleep, sleep_until};

use crate::Error;
use crate::transport::{Tasks, Transport};

/// How long a process may run after its standard input was closed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the rest of a process group has between SIGTERM and SIGKILL.
const TERM_TIMEOUT: Duration = Duration::from_millis(500);

/// Starts a process in a process group of its own, and ends the group with it.
pub(crate) fn spawn(mut command: Command) -> Result<Transport, Error> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).kill_on_drop(true);
    // Before the process exists, so that its end is not missed.
    let children = unix::signal(SignalKind::child()).map_err(Error::Connect)?;
    let mut child = command.spawn().map_err(Error::Connect)?;
    let (Some(write), Some(read)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(Error::Protocol("the process has no standard streams"));
    };
    let (transport, tasks) = Transport::over("process", read, write);
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let pid = pid.ok_or(Error::Protocol("the process has no id"))?;
    tokio::spawn(supervise(Process { child, group: Some(pid) }, pid, children, tasks));
    Ok(transport)
}

/// A child process, which is killed with its whole group when this is dropped.
struct Process {
    child: Child,
    /// Its process group, until it is reaped: then the id may be reused.
    group: Option<Pid>,
}

impl Process {
    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // The only possible error is that the group has no members.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Waits for a process to exit, kills it if it does not after its input was closed, and kills what remains of its group.
async fn supervise(mut process: Process, pid: Pid, mut children: unix::Signal, tasks: Tasks) {
    let Tasks { reader, written } = tasks;
    let mut written = Some(written);
    let mut kill_at = None;
    while !has_exited(pid) {
        tokio::select! {
            _ = children.recv() => {}
            () = once(&mut written) => kill_at = Some(Instant::now() + EXIT_TIMEOUT),
            () = sleep_until_some(kill_at) => {
                process.signal(Signal::KILL);
                kill_at = None;
            }
        }
    }
    process.signal(Signal::TERM);
    sleep(TERM_TIMEOUT).await;
    process.signal(Signal::KILL);
    process.group = None;
    let _ = process.child.wait().await;
    // A process that left the group may have the streams open. It does not count as the agent.
    sleep(EXIT_TIMEOUT).await;
    reader.abort();
}

/// Waits for a signal, and after that forever.
async fn once(signal: &mut Option<tokio::sync::oneshot::Receiver<()>>) {
    match signal {
        Some(receiver) => {
            let _ = receiver.await;
            *signal = None;
        }
        None => std::future::pending().await,
    }
}

async fn sleep_until_some(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Whether a child has exited. This does not reap it, so that its id is not reused.
fn has_exited(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match waitid(WaitId::Pid(pid), options) {
        Ok(status) => status.is_some(),
        Err(error) => error != rustix::io::Errno::INTR,
    }
}
