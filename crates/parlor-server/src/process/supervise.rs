//! One task a process: it sees the process end, ends it when asked, and clears away what it leaves.

use std::future;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use tokio::process::Child;
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::warn;

use super::Watcher;
use super::family::{self, Family};

/// How a process is to be ended: SIGTERM after `wait`, SIGKILL another `grace` later.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask {
    pub(super) wait: Duration,
    pub(super) grace: Duration,
}

/// How a process is ended that nobody holds any more.
const DROPPED: Ask = Ask { wait: Duration::ZERO, grace: Duration::from_secs(1) };

/// What a process leaves behind has this long between SIGTERM and SIGKILL.
const LEFT_BEHIND: Duration = Duration::from_secs(1);

/// How long to read the standard error of a process of which nothing is left. Only one who hides from us can still
/// hold the other end.
const STDERR: Duration = Duration::from_millis(500);

pub(super) struct Supervisor {
    child: Child,
    pid: u32,
    mark: String,
    watcher: Watcher,
    stderr: Option<JoinHandle<()>>,
    family: Family,
}

/// Tells when any child has ended. It must be made before the child is started, so that no end is missed.
pub(super) fn child_signals() -> io::Result<unix::Signal> {
    unix::signal(SignalKind::child())
}

impl Supervisor {
    pub(super) fn new(
        child: Child,
        pid: u32,
        mark: String,
        watcher: Watcher,
        stderr: Option<JoinHandle<()>>,
    ) -> Self {
        let family = Family::of_child(pid, &mark);
        Self { child, pid, mark, watcher, stderr, family }
    }

    pub(super) async fn run(
        mut self,
        mut children: unix::Signal,
        mut asked: mpsc::UnboundedReceiver<Ask>,
        publish: watch::Sender<Option<ExitStatus>>,
    ) {
        let killed = self.until_exit(&mut children, &mut asked).await;
        self.end_rest(if killed { Duration::ZERO } else { LEFT_BEHIND }).await;
        if let Some(mut stderr) = self.stderr.take()
            && timeout(STDERR, &mut stderr).await.is_err()
        {
            stderr.abort();
        }
        self.watcher.forget(&self.mark);
        let status = self.child.wait().await.unwrap_or_else(|error| {
            warn!(pid = self.pid, %error, "cannot tell how a process ended");
            ExitStatus::default()
        });
        publish.send_replace(Some(status));
    }

    /// Waits until the process has ended, without reaping it, and ends it if asked to. Says whether it was killed.
    async fn until_exit(
        &mut self,
        children: &mut unix::Signal,
        asked: &mut mpsc::UnboundedReceiver<Ask>,
    ) -> bool {
        let mut sent = None;
        let mut next: Option<Instant> = None;
        let mut grace = Duration::MAX;
        let mut held = true;
        loop {
            if self.has_ended() {
                return sent == Some(Signal::KILL);
            }
            let due = async {
                match next {
                    Some(next) => sleep_until(next).await,
                    None => future::pending().await,
                }
            };
            tokio::select! {
                _ = children.recv() => {}
                ask = asked.recv(), if held => {
                    held = ask.is_some();
                    let ask = ask.unwrap_or(DROPPED);
                    // Who is in a hurry is heard, and nobody makes it take longer.
                    grace = grace.min(ask.grace);
                    let at = Instant::now() + if sent.is_none() { ask.wait } else { ask.grace };
                    next = Some(next.map_or(at, |next| next.min(at)));
                }
                () = due => {
                    let signal = if sent.is_none() { Signal::TERM } else { Signal::KILL };
                    self.remember().await;
                    self.family.signal_group(signal);
                    sent = Some(signal);
                    next = (signal == Signal::TERM).then(|| Instant::now() + grace);
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
                self.family.lose_leader();
                true
            }
        }
    }

    async fn remember(&mut self) {
        let mut family = self.family.clone();
        let seen = spawn_blocking(move || {
            family.remember();
            family
        });
        if let Ok(family) = seen.await {
            self.family = family;
        }
    }

    async fn end_rest(&mut self, grace: Duration) {
        let mut family = self.family.clone();
        let ended = spawn_blocking(move || family::end(std::slice::from_mut(&mut family), grace));
        if let Ok(left) = ended.await
            && !left.is_empty()
        {
            warn!(pid = self.pid, ?left, "processes that cannot be killed");
        }
    }
}
