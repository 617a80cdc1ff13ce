//! Programs that are started to talk to.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::process::{Child, Command};
use tokio::signal::unix::{self, SignalKind};
use tokio::time::{Instant, sleep, sleep_until};

use crate::Error;
use crate::transport::{Tasks, Transport};

/// How long a program gets to end when nothing more is said to it.
const GRACE: Duration = Duration::from_secs(2);

/// How long what a program leaves behind has between SIGTERM and SIGKILL.
const LEFT_BEHIND: Duration = Duration::from_millis(500);

/// Starts a program to talk to, in a process group of its own, which ends with it.
pub(crate) fn start(mut command: Command) -> Result<Transport, Error> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).kill_on_drop(true);
    // Before the program is there, so that its end is not missed.
    let children = unix::signal(SignalKind::child()).map_err(Error::Connect)?;
    let mut child = command.spawn().map_err(Error::Connect)?;
    let (Some(write), Some(read)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(Error::Protocol("a program without standard streams"));
    };
    let (transport, tasks) = Transport::over(read, write);
    let number = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let number = number.ok_or(Error::Protocol("a program without a number"))?;
    tokio::spawn(supervise(Program { child, group: Some(number) }, number, children, tasks));
    Ok(transport)
}

/// A program that was started, and has to end with all that is in its group.
struct Program {
    child: Child,
    /// Its group, until it is reaped: then the number may be somebody else's.
    group: Option<Pid>,
}

impl Program {
    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // The one error that is possible is that all of its members are gone.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Sees a program end, ends it when nothing more is said to it, and clears away what it leaves.
async fn supervise(mut program: Program, number: Pid, mut children: unix::Signal, tasks: Tasks) {
    let Tasks { reader, written } = tasks;
    let mut written = Some(written);
    let mut kill_at = None;
    while !has_ended(number) {
        tokio::select! {
            _ = children.recv() => {}
            () = over(&mut written) => kill_at = Some(Instant::now() + GRACE),
            () = at(kill_at) => {
                program.signal(Signal::KILL);
                kill_at = None;
            }
        }
    }
    program.signal(Signal::TERM);
    sleep(LEFT_BEHIND).await;
    program.signal(Signal::KILL);
    program.group = None;
    let _ = program.child.wait().await;
    // Whoever left the group may have the streams. Nobody speaks for the program any more.
    sleep(GRACE).await;
    reader.abort();
}

/// Waits for something once.
async fn over(once: &mut Option<tokio::sync::oneshot::Receiver<()>>) {
    match once {
        Some(receiver) => {
            let _ = receiver.await;
            *once = None;
        }
        None => std::future::pending().await,
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Whether a child has ended. It is not reaped by this, so that nobody else gets its number.
fn has_ended(number: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match waitid(WaitId::Pid(number), options) {
        Ok(status) => status.is_some(),
        Err(error) => error != rustix::io::Errno::INTR,
    }
}
