//! Starts processes and ends them with all their descendants.
//!
//! Each process has a process group of its own. When it ends, is stopped or is dropped, the rest of its group is killed, and
//! so are descendants that left the group: they are found by a tag in their environment. When parlor itself is killed, the
//! [`Reaper`] does the same.
//!
//! **Invariant:** only processes that were started here, and their descendants, are signalled. An ended process keeps its
//! pid until it is reaped, so it is reaped last.
//!
//! parlor is not a subreaper (`PR_SET_CHILD_SUBREAPER`): a detached descendant would become a child of parlor without showing
//! which agent it came from, which the tag does, and parlor would have to reap it.

mod reaper;
pub mod reaper_process;
mod supervise;
mod table;
mod tail;
mod terminal;
mod tree;

use std::ffi::{OsStr, OsString};
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::watch as latest;
use tracing::Instrument;
use uuid::Uuid;

use self::supervise::{StopDeadlines, Supervisor};
use self::table::ENV_TAG;
use self::tail::Tail;

pub use self::reaper::Reaper;
pub use self::terminal::{Terminal, TerminalSize, exec_on_terminal};

/// Locks a mutex. Its data is valid also after a panic: no update of it can panic halfway.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The program: a path, or a name that is looked up in the `PATH` of `env`.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// All of its environment; nothing is inherited.
    pub env: Vec<(OsString, OsString)>,
    /// The working directory.
    pub cwd: PathBuf,
}

/// A running process and its descendants.
///
/// Dropping it sends SIGTERM at once and SIGKILL a second later.
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
    pub fn start(command: &Command, reaper: &Reaper) -> io::Result<Self> {
        let tag = Uuid::new_v4().to_string();
        let mut builder = builder(command, &tag);
        builder.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self::spawn(builder, tag, reaper).map_err(|error| explain(command, &error))
    }

    /// Starts a process with a command of the caller, which keeps its environment and its standard error. Must be called
    /// within a tokio runtime.
    pub fn start_with(mut command: tokio::process::Command, reaper: &Reaper) -> io::Result<Self> {
        let tag = Uuid::new_v4().to_string();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let given = command.as_std().get_envs().find(|(name, _)| *name == ENV_TAG);
        let outer = match given {
            Some((_, value)) => value.map(ToOwned::to_owned),
            None => std::env::var_os(ENV_TAG),
        };
        command.env(ENV_TAG, add_tag(outer.as_deref(), &tag));
        Self::spawn(command, tag, reaper)
    }

    /// Starts a process without input whose standard output and standard error are one pipe, so that they stay in order.
    pub fn start_merged(command: &Command, reaper: &Reaper) -> io::Result<(Self, pipe::Receiver)> {
        let tag = Uuid::new_v4().to_string();
        let mut builder = builder(command, &tag);
        let (reader, writer) = io::pipe()?;
        builder.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        let reader = pipe::Receiver::from_owned_fd(reader.into())?;
        let process = Self::spawn(builder, tag, reaper).map_err(|error| explain(command, &error))?;
        Ok((process, reader))
    }

    /// Starts a process on a new terminal, as the leader of a process session of its own. The program of the reaper must have
    /// the command `run-on-terminal`, which calls [`exec_on_terminal`] with its arguments.
    pub fn start_on_terminal(
        command: &Command,
        size: TerminalSize,
        reaper: &Reaper,
    ) -> io::Result<(Self, Terminal)> {
        let Some(helper) = reaper.program() else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "this program starts no other programs"));
        };
        let tag = Uuid::new_v4().to_string();
        let mut args: Vec<OsString> = vec!["run-on-terminal".into(), "--".into(), command.program.clone()];
        args.extend(command.args.iter().cloned());
        let helper = Command { program: helper.to_owned(), args, ..command.clone() };
        // The leader of a process group could not create a process session, which has a group of its own.
        let mut builder = builder_without_group(&helper, &tag);
        let terminal = Terminal::open(size)?;
        builder.stdin(terminal.stream()?).stdout(terminal.stream()?).stderr(terminal.stream()?);
        let process = Self::spawn(builder, tag, reaper).map_err(|error| explain(command, &error))?;
        Ok((process, terminal))
    }

    fn spawn(command: tokio::process::Command, tag: String, reaper: &Reaper) -> io::Result<Self> {
        let (stop, stop_requests) = latest::channel(None);
        let (publish, status) = latest::channel(None);
        let signals = supervise::child_signals()?;
        let mut child = reaper.spawn(&tag, command)?;
        let pid = child.id().expect("the child has not been reaped");
        let tail = Tail::default();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let reading =
            child.stderr.take().map(|stderr| tokio::spawn(tail.clone().read(stderr, pid).in_current_span()));
        tokio::spawn(Supervisor::new(child, pid, tag, reaper.clone(), reading).run(
            signals,
            stop_requests,
            publish,
        ));
        Ok(Self { pid, stdin, stdout, tail, stop, status })
    }

    /// The process id, which is also the id of the process group.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Takes the writing end of its standard input.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.stdin.take()
    }

    /// Takes the reading end of its standard output.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.stdout.take()
    }

    /// The last 64 KiB of its standard error, with U+FFFD for bytes that are not UTF-8.
    pub fn stderr_tail(&self) -> String {
        self.tail.text()
    }

    /// Waits until the process and its descendants have ended. Several callers may wait.
    pub fn wait(&self) -> impl Future<Output = ExitStatus> + Send + use<> {
        let mut status = self.status.clone();
        async move {
            match status.wait_for(Option::is_some).await.map(|status| *status) {
                Ok(Some(status)) => status,
                // The runtime is shutting down, and the caller with it.
                Ok(None) | Err(_) => std::future::pending().await,
            }
        }
    }

    /// Gives the process `grace` to end by itself, which it should when its input is closed; then sends SIGTERM to its
    /// group, and after another `grace` SIGKILL, also to descendants that left the group. Returns when all have ended.
    /// Dropping the future does not stop the termination.
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

fn builder(command: &Command, tag: &str) -> tokio::process::Command {
    let mut builder = builder_without_group(command, tag);
    builder.process_group(0);
    builder
}

fn builder_without_group(command: &Command, tag: &str) -> tokio::process::Command {
    let mut builder = tokio::process::Command::new(&command.program);
    builder
        .args(&command.args)
        .env_clear()
        .envs(command.env.iter().map(|(name, value)| (name, value)))
        .current_dir(&command.cwd);
    let outer = command.env.iter().rev().find(|(name, _)| name == ENV_TAG);
    builder.env(ENV_TAG, add_tag(outer.map(|(_, value)| value.as_os_str()), tag));
    builder
}

/// Adds a tag to those of the outer process: a parlor that is itself an agent keeps the tag of the outer parlor, which must
/// find all descendants.
fn add_tag(outer: Option<&OsStr>, tag: &str) -> String {
    match outer.and_then(OsStr::to_str).filter(|outer| !outer.is_empty()) {
        Some(outer) => format!("{outer}:{tag}"),
        None => tag.to_owned(),
    }
}

/// Names the program, or the directory that is missing, in the error of the system.
fn explain(command: &Command, error: &io::Error) -> io::Error {
    let program = command.program.display();
    let reason = if command.cwd.is_dir() {
        format!("cannot start `{program}`: {error}")
    } else {
        format!("cannot start `{program}`: `{}` is not a directory", command.cwd.display())
    };
    io::Error::new(error.kind(), reason)
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
