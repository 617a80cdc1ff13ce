//! The task of one process: waits for its end, stops it on request, and kills the descendants that it leaves.

use std::future;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use tokio::process::Child;
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::warn;

use crate::Reaper;
use crate::tree::{self, ProcessTree};

/// When a process is sent SIGTERM, and SIGKILL if it is still alive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StopDeadlines {
    terminate: Instant,
    kill: Instant,
}

impl StopDeadlines {
    /// Adds a request for SIGTERM after `wait` and SIGKILL another `grace` later: the earliest deadlines of all requests
    /// count. A request that follows SIGTERM waits only for `grace`.
    pub(crate) fn earliest(earlier: Option<Self>, wait: Duration, grace: Duration) -> Self {
        let now = Instant::now();
        let is_terminated = earlier.is_some_and(|earlier| earlier.terminate <= now);
        let terminate = if is_terminated { now } else { now + wait };
        let new = Self { terminate, kill: terminate + grace };
        earlier.map_or(new, |earlier| Self {
            terminate: earlier.terminate.min(new.terminate),
            kill: earlier.kill.min(new.kill),
        })
    }
}

/// The time between SIGTERM and SIGKILL for a process whose handle was dropped.
const DROP_GRACE: Duration = Duration::from_secs(1);

/// The time between SIGTERM and SIGKILL for descendants that outlive the process.
const DESCENDANT_GRACE: Duration = Duration::from_secs(1);

/// How long standard error is read after the process and its descendants have ended: only a process that was not found can
/// still have it open.
const STDERR_TIMEOUT: Duration = Duration::from_millis(500);

pub(crate) struct Supervisor {
    child: Child,
    pid: u32,
    tag: String,
    reaper: Reaper,
    stderr: Option<JoinHandle<()>>,
    tree: ProcessTree,
}

/// Signals that any child has ended. Must be created before the child is started, so that no end is missed.
pub(crate) fn child_signals() -> io::Result<unix::Signal> {
    unix::signal(SignalKind::child())
}

/// When the runtime shuts down, nobody waits for the process any more: its group is killed.
impl Drop for Supervisor {
    fn drop(&mut self) {
        self.tree.signal_group(Signal::KILL);
    }
}

impl Supervisor {
    pub(crate) fn new(
        child: Child,
        pid: u32,
        tag: String,
        reaper: Reaper,
        stderr: Option<JoinHandle<()>>,
    ) -> Self {
        let tree = ProcessTree::of_child(pid, &tag);
        Self { child, pid, tag, reaper, stderr, tree }
    }

    pub(crate) async fn run(
        mut self,
        mut children: unix::Signal,
        mut stop: watch::Receiver<Option<StopDeadlines>>,
        publish: watch::Sender<Option<ExitStatus>>,
    ) {
        let killed = self.until_exit(&mut children, &mut stop).await;
        self.end_rest(if killed { Duration::ZERO } else { DESCENDANT_GRACE }).await;
        if let Some(mut stderr) = self.stderr.take()
            && timeout(STDERR_TIMEOUT, &mut stderr).await.is_err()
        {
            stderr.abort();
        }
        self.reaper.unregister(&self.tag);
        self.tree.lose_leader();
        let status = self.child.wait().await.unwrap_or_else(|error| {
            warn!(pid = self.pid, %error, "cannot read the exit status of a process");
            ExitStatus::default()
        });
        publish.send_replace(Some(status));
    }

    /// Waits until the process has ended, without reaping it, and stops it on request. Returns whether it was killed.
    async fn until_exit(
        &mut self,
        children: &mut unix::Signal,
        stop: &mut watch::Receiver<Option<StopDeadlines>>,
    ) -> bool {
        let mut sent = None;
        let mut deadlines: Option<StopDeadlines> = None;
        let mut is_held = true;
        loop {
            if self.has_ended() {
                return sent == Some(Signal::KILL);
            }
            let next = match sent {
                None => deadlines.map(|deadlines| deadlines.terminate),
                Some(Signal::TERM) => deadlines.map(|deadlines| deadlines.kill),
                Some(_) => None,
            };
            let due = async {
                match next {
                    Some(next) => sleep_until(next).await,
                    None => future::pending().await,
                }
            };
            tokio::select! {
                _ = children.recv() => {}
                changed = stop.changed(), if is_held => {
                    is_held = changed.is_ok();
                    deadlines = *stop.borrow_and_update();
                    if !is_held {
                        deadlines = Some(StopDeadlines::earliest(deadlines, Duration::ZERO, DROP_GRACE));
                    }
                }
                () = due => {
                    let signal = if sent.is_none() { Signal::TERM } else { Signal::KILL };
                    self.note_detached().await;
                    self.tree.signal_group(signal);
                    sent = Some(signal);
                }
            }
        }
    }

    fn has_ended(&mut self) -> bool {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return true };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(pid), options) {
            Ok(status) => status.is_some(),
            Err(rustix::io::Errno::INTR) => false,
            Err(error) => {
                warn!(pid = self.pid, %error, "cannot wait for a process");
                self.tree.lose_leader();
                true
            }
        }
    }

    async fn note_detached(&mut self) {
        let mut tree = self.tree.clone();
        let noted = spawn_blocking(move || {
            tree.note_detached();
            tree
        });
        if let Ok(tree) = noted.await {
            self.tree = tree;
        }
    }

    async fn end_rest(&mut self, grace: Duration) {
        let mut tree = self.tree.clone();
        let ended = spawn_blocking(move || tree::end(std::slice::from_mut(&mut tree), grace));
        if let Ok(left) = ended.await
            && !left.is_empty()
        {
            warn!(pid = self.pid, ?left, "processes survive SIGKILL");
        }
    }
}
