//! Starts the [reaper process](crate::reaper_process) and reports agents to it.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, PipeWriter, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_setfl};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tracing::warn;

use crate::lock;

/// Ends the agents when parlor is killed: reports them to a reaper process, whose input ends when parlor is gone.
///
/// Clones share one reaper process. When the last one is dropped, that process ends the agents that are still registered.
#[derive(Debug, Clone)]
pub struct Reaper(Arc<Handle>);

/// The delay before an ended reaper process is restarted: at first, and at most after several failures.
const RESTART_DELAY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(10));

/// The uptime after which the restart delay is reset.
const STABLE_UPTIME: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Handle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    program: OsString,
    args: Vec<OsString>,
    state: Mutex<State>,
    /// Whether the pipe to the reaper process is full or broken.
    stuck: watch::Sender<bool>,
    closing: watch::Sender<bool>,
    /// Whether the last reaper process has ended.
    closed: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    pipe: Option<PipeWriter>,
    /// Process groups by tag; zero for an agent that is about to be started.
    groups: HashMap<String, i32>,
}

impl Reaper {
    /// Starts `exe watch-agents`. Must be called within a tokio runtime.
    pub fn start(exe: &Path) -> io::Result<Self> {
        Self::start_with(exe, &["watch-agents".into()])
    }

    /// Starts the reaper process with another command, which must call [`run`](crate::reaper_process::run) with its standard
    /// input.
    pub fn start_with(program: &Path, args: &[OsString]) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            program: program.into(),
            args: args.into(),
            state: Mutex::default(),
            stuck: watch::Sender::new(false),
            closing: watch::Sender::new(false),
            closed: watch::Sender::new(false),
        });
        let child = shared.launch()?;
        tokio::spawn(restart_on_exit(Arc::clone(&shared), child));
        Ok(Self(Arc::new(Handle(shared))))
    }

    /// Creates a handle without a reaper process, for servers that start no programs: programs would outlive a killed server.
    pub fn disabled() -> Self {
        let (program, args) = (OsString::new(), Vec::new());
        Self(Arc::new(Handle(Arc::new(Shared {
            program,
            args,
            state: Mutex::default(),
            stuck: watch::Sender::new(false),
            closing: watch::Sender::new(false),
            closed: watch::Sender::new(true),
        }))))
    }

    /// The program of the reaper process.
    pub(crate) fn program(&self) -> Option<&OsStr> {
        Some(self.0.0.program.as_os_str()).filter(|program| !program.is_empty())
    }

    /// Ends the reaper process, which ends all remaining agents, and waits for that.
    pub async fn close(&self) {
        let shared = &self.0.0;
        shared.close();
        // `self` holds the sender.
        let _ = shared.closed.subscribe().wait_for(|closed| *closed).await;
    }

    /// Starts a child that is registered from before its start until [`unregister`](Self::unregister).
    pub(crate) fn spawn(&self, tag: &str, mut command: Command) -> io::Result<Child> {
        let shared = &self.0.0;
        // The lock is held while the child starts: on systems without atomic close-on-exec, a child and a reaper process
        // that are started at the same time would inherit each other's pipes.
        let mut state = lock(&shared.state);
        if *shared.closing.borrow() {
            return Err(shutting_down());
        }
        state.groups.insert(tag.to_owned(), 0);
        shared.report(&state, '+', 0, tag);
        match command.spawn() {
            Ok(child) => {
                let group = child.id().and_then(|id| i32::try_from(id).ok()).unwrap_or(0);
                state.groups.insert(tag.to_owned(), group);
                shared.report(&state, '+', group, tag);
                Ok(child)
            }
            Err(error) => {
                state.groups.remove(tag);
                shared.report(&state, '-', 0, tag);
                Err(error)
            }
        }
    }

    /// Unregisters a child whose descendants have ended. The child must not have been reaped, so that its pid is its own.
    pub(crate) fn unregister(&self, tag: &str) {
        let shared = &self.0.0;
        let mut state = lock(&shared.state);
        if let Some(group) = state.groups.remove(tag) {
            shared.report(&state, '-', group, tag);
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Shared {
    fn close(&self) {
        self.closing.send_replace(true);
        lock(&self.state).pipe = None;
    }

    /// Starts a reaper process and registers all groups with it.
    fn launch(&self) -> io::Result<Child> {
        let mut state = lock(&self.state);
        if *self.closing.borrow() {
            return Err(shutting_down());
        }
        let (reader, mut writer) = io::pipe()?;
        // It has its own group, so that signals to parlor's group do not end it, and no environment, so that it has no tag.
        let child = Command::new(&self.program)
            .args(&self.args)
            .env_clear()
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::from(reader))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| {
                let program = Path::new(&self.program).display();
                io::Error::new(error.kind(), format!("cannot start the reaper process {program}: {error}"))
            })?;
        for (tag, group) in &state.groups {
            writer.write_all(line('+', *group, tag).as_bytes())?;
        }
        fcntl_setfl(&writer, OFlags::NONBLOCK)?;
        state.pipe = Some(writer);
        self.stuck.send_replace(false);
        Ok(child)
    }

    /// Reports a change to the reaper process. A later one is sent the whole state.
    fn report(&self, state: &State, sign: char, group: i32, tag: &str) {
        let Some(mut pipe) = state.pipe.as_ref() else { return };
        let line = line(sign, group, tag);
        // A line is shorter than PIPE_BUF, so it is written whole or not at all.
        if !pipe.write(line.as_bytes()).is_ok_and(|length| length == line.len()) {
            self.stuck.send_replace(true);
        }
    }
}

fn shutting_down() -> io::Error {
    io::Error::other("parlor is shutting down")
}

fn line(sign: char, group: i32, tag: &str) -> String {
    format!("{sign} {group} {tag}\n")
}

/// Restarts the reaper process whenever it ends.
async fn restart_on_exit(shared: Arc<Shared>, mut child: Child) {
    let mut closing = shared.closing.subscribe();
    let mut stuck = shared.stuck.subscribe();
    let mut delay = RESTART_DELAY.0;
    let mut started = Instant::now();
    loop {
        let is_stuck = tokio::select! {
            _ = child.wait() => false,
            is_stuck = async { stuck.wait_for(|stuck| *stuck).await.is_ok() } => is_stuck,
        };
        if is_stuck {
            // It must be dead before its pipe is closed, or it would end all agents.
            let _ = child.kill().await;
        }
        if started.elapsed() > STABLE_UPTIME {
            delay = RESTART_DELAY.0;
        }
        loop {
            if *closing.borrow() {
                shared.closed.send_replace(true);
                return;
            }
            warn!("the reaper process ended; starting another");
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                _ = closing.wait_for(|closing| *closing) => continue,
            }
            delay = (delay * 2).min(RESTART_DELAY.1);
            started = Instant::now();
            match shared.launch() {
                Ok(next) => {
                    child = next;
                    break;
                }
                Err(error) => {
                    warn!(%error, "cannot start the reaper process: if parlor is killed, its agents keep running");
                }
            }
        }
    }
}
