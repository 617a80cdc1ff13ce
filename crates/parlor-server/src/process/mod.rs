//! Processes that parlor starts, and the promise that nothing of them is left.
//!
//! A process is started in a group of its own. When it ends, is stopped or is dropped, the rest of its group is ended,
//! and so are its descendants that left the group: each carries a mark in its environment. When parlor itself is
//! killed, a [`Watcher`] does the same.
//!
//! **Invariant:** nothing is signalled that was not started here. A process that has ended keeps its number until
//! it is reaped, so it is reaped last.

mod family;
mod supervise;
mod table;
mod tail;
pub mod watch;
mod watcher;

use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::watch as latest;
use uuid::Uuid;

use self::supervise::{StopDeadlines, Supervisor};
use self::table::MARK;
use self::tail::Tail;

pub use self::watcher::Watcher;

/// What to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The program: a path, or a name that is looked up in the `PATH` of `env`.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// All of its environment; nothing is inherited.
    pub env: Vec<(OsString, OsString)>,
    /// Where it runs.
    pub cwd: PathBuf,
}

/// A process that was started here.
///
/// Dropping it ends it: SIGTERM at once, SIGKILL a second later.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    tail: Tail,
    stop: latest::Sender<Option<StopDeadlines>>,
    status: latest::Receiver<Option<ExitStatus>>,
}

/// The longest wait before a signal: an `Instant` may not be able to represent much more.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

impl Process {
    /// Starts a process with pipes for its three streams. Must be called within a tokio runtime.
    pub fn start(command: &Command, watcher: &Watcher) -> io::Result<Self> {
        let mark = Uuid::new_v4().to_string();
        let mut builder = builder(command, &mark);
        builder.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self::spawn(command, builder, mark, watcher)
    }

    /// Starts a process that has no input and writes both of its outputs to one pipe, so that they stay in order.
    pub fn start_merged(command: &Command, watcher: &Watcher) -> io::Result<(Self, pipe::Receiver)> {
        let mark = Uuid::new_v4().to_string();
        let mut builder = builder(command, &mark);
        let (reader, writer) = io::pipe()?;
        builder.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        let reader = pipe::Receiver::from_owned_fd(reader.into())?;
        Ok((Self::spawn(command, builder, mark, watcher)?, reader))
    }

    fn spawn(
        command: &Command,
        builder: tokio::process::Command,
        mark: String,
        watcher: &Watcher,
    ) -> io::Result<Self> {
        let (stop, stop_requests) = latest::channel(None);
        let (publish, status) = latest::channel(None);
        let signals = supervise::child_signals()?;
        let mut child = watcher.spawn(&mark, builder).map_err(|error| explain(command, &error))?;
        let pid = child.id().expect("nobody has reaped it yet");
        let tail = Tail::default();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let reading = child.stderr.take().map(|stderr| tokio::spawn(tail.clone().read(stderr, pid)));
        tokio::spawn(Supervisor::new(child, pid, mark, watcher.clone(), reading).run(
            signals,
            stop_requests,
            publish,
        ));
        Ok(Self { pid, stdin, stdout, tail, stop, status })
    }

    /// Its process id, which is also the id of its group.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What it reads from; the first caller gets it.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.stdin.take()
    }

    /// What it writes to; the first caller gets it.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.stdout.take()
    }

    /// The last 64 KiB of what it wrote to its standard error; what is not UTF-8 shows as U+FFFD.
    pub fn stderr_tail(&self) -> String {
        self.tail.text()
    }

    /// Waits until it has ended and nothing of it is left. Any number may wait.
    pub fn wait(&self) -> impl Future<Output = ExitStatus> + Send + use<> {
        let mut status = self.status.clone();
        async move {
            match status.wait_for(Option::is_some).await.map(|status| *status) {
                Ok(Some(status)) => status,
                // The runtime is shutting down, and so is whoever waits.
                Ok(None) | Err(_) => std::future::pending().await,
            }
        }
    }

    /// Waits `grace` for it to end by itself, which it should when its input is closed; then SIGTERM to its group, and
    /// after `grace` again SIGKILL, also to those who left the group. Returns when nothing of it is left. It goes on
    /// also if nobody waits for that.
    pub async fn stop(&self, grace: Duration) -> ExitStatus {
        self.end(grace, grace);
        self.wait().await
    }

    /// Schedules SIGTERM after `wait`, and SIGKILL another `grace` later. Of several calls the earliest deadlines count.
    pub fn end(&self, wait: Duration, grace: Duration) {
        let (wait, grace) = (wait.min(LONGEST), grace.min(LONGEST));
        self.stop.send_modify(|stop| *stop = Some(StopDeadlines::earliest(*stop, wait, grace)));
    }
}

fn builder(command: &Command, mark: &str) -> tokio::process::Command {
    let mut builder = tokio::process::Command::new(&command.program);
    builder
        .args(&command.args)
        .env_clear()
        .envs(command.env.iter().map(|(name, value)| (name, value)))
        .current_dir(&command.cwd)
        .process_group(0);
    // Whoever started this parlor as an agent must still know its descendants.
    let outer = command.env.iter().rev().find(|(name, _)| name == MARK).and_then(|(_, value)| value.to_str());
    match outer.filter(|outer| !outer.is_empty()) {
        Some(outer) => builder.env(MARK, format!("{outer}:{mark}")),
        None => builder.env(MARK, mark),
    };
    builder
}

/// The system's "no such file" does not say which.
fn explain(command: &Command, error: &io::Error) -> io::Error {
    let program = command.program.display();
    let reason = if command.cwd.is_dir() {
        format!("cannot start `{program}`: {error}")
    } else {
        format!("cannot start `{program}`: `{}` is not a directory", command.cwd.display())
    };
    io::Error::new(error.kind(), reason)
}
