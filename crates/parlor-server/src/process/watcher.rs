//! Parlor's end of the helper process in [`watch`](super::watch).

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, PipeWriter, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_setfl};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tracing::warn;

/// Ends the agents when parlor is killed: it tells a helper process which agents there are, and the helper hears by
/// the end of its input that parlor is gone.
///
/// Clones are handles to the same helper. When the last one is dropped, the helper ends what is still registered.
#[derive(Debug, Clone)]
pub struct Watcher(Arc<Handle>);

/// Between the death of a helper and the next one, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(10));

/// A helper that lived this long was fine.
const FINE: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Handle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    program: OsString,
    args: Vec<OsString>,
    state: Mutex<State>,
    /// Whether the helper cannot be told anything.
    stuck: watch::Sender<bool>,
    closing: watch::Sender<bool>,
    /// Whether the last helper has ended.
    closed: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    pipe: Option<PipeWriter>,
    /// The groups by their marks. Zero stands for one that is about to be started.
    groups: HashMap<String, i32>,
}

impl Watcher {
    /// Starts `exe watch-agents`. Must be called within a tokio runtime.
    pub fn start(exe: &Path) -> io::Result<Self> {
        Self::start_with(exe, &["watch-agents".into()])
    }

    /// Starts a helper by another command, which has to call [`watch`](super::watch::watch) with its standard input.
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
        tokio::spawn(keep(Arc::clone(&shared), child));
        Ok(Self(Arc::new(Handle(shared))))
    }

    /// No helper at all, for those who start no programs. Should they do so nevertheless, the programs outlive a process
    /// that is killed.
    pub fn nobody() -> Self {
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

    /// Ends the helper, which ends all agents that are left, and waits for it.
    pub async fn close(&self) {
        let shared = &self.0.0;
        shared.close();
        // The other end cannot go away before this one.
        let _ = shared.closed.subscribe().wait_for(|closed| *closed).await;
    }

    /// Starts a child that the helper knows of from before it starts until [`forget`](Self::forget).
    pub(super) fn spawn(&self, mark: &str, mut command: Command) -> io::Result<Child> {
        let shared = &self.0.0;
        // The lock is held while the child starts: its pipes and a new helper's are never made at the same time, so
        // that on no system one can inherit an end of the other's.
        let mut state = shared.lock();
        if *shared.closing.borrow() {
            return Err(shutting_down());
        }
        state.groups.insert(mark.to_owned(), 0);
        shared.say(&state, '+', 0, mark);
        match command.spawn() {
            Ok(child) => {
                let group = child.id().and_then(|id| i32::try_from(id).ok()).unwrap_or(0);
                state.groups.insert(mark.to_owned(), group);
                shared.say(&state, '+', group, mark);
                Ok(child)
            }
            Err(error) => {
                state.groups.remove(mark);
                shared.say(&state, '-', 0, mark);
                Err(error)
            }
        }
    }

    /// All of a child's family is gone; it itself is still to be reaped, so that its number is still its own.
    pub(super) fn forget(&self, mark: &str) {
        let shared = &self.0.0;
        let mut state = shared.lock();
        if let Some(group) = state.groups.remove(mark) {
            shared.say(&state, '-', group, mark);
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.closing.send_replace(true);
        self.lock().pipe = None;
    }

    /// Starts a helper and tells it all groups.
    fn launch(&self) -> io::Result<Child> {
        let mut state = self.lock();
        if *self.closing.borrow() {
            return Err(shutting_down());
        }
        let (reader, mut writer) = io::pipe()?;
        // Its own group, so that what ends parlor's group does not end it. No environment, so that it carries no mark.
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
                io::Error::new(error.kind(), format!("cannot start {program}: {error}"))
            })?;
        for (mark, group) in &state.groups {
            writer.write_all(line('+', *group, mark).as_bytes())?;
        }
        fcntl_setfl(&writer, OFlags::NONBLOCK)?;
        state.pipe = Some(writer);
        self.stuck.send_replace(false);
        Ok(child)
    }

    /// Tells the helper, if there is one. The next one hears it in any case.
    fn say(&self, state: &State, sign: char, group: i32, mark: &str) {
        let Some(mut pipe) = state.pipe.as_ref() else { return };
        let line = line(sign, group, mark);
        // A line is short enough to be written whole or not at all.
        if !pipe.write(line.as_bytes()).is_ok_and(|length| length == line.len()) {
            self.stuck.send_replace(true);
        }
    }
}

fn shutting_down() -> io::Error {
    io::Error::other("parlor is shutting down")
}

fn line(sign: char, group: i32, mark: &str) -> String {
    format!("{sign} {group} {mark}\n")
}

/// Starts another helper whenever one has died.
async fn keep(shared: Arc<Shared>, mut child: Child) {
    let mut closing = shared.closing.subscribe();
    let mut stuck = shared.stuck.subscribe();
    let mut pause = PAUSE.0;
    let mut started = Instant::now();
    loop {
        let deaf = tokio::select! {
            _ = child.wait() => false,
            deaf = async { stuck.wait_for(|stuck| *stuck).await.is_ok() } => deaf,
        };
        if deaf {
            // It must be dead before its pipe is closed, or it would end all agents.
            let _ = child.kill().await;
        }
        if started.elapsed() > FINE {
            pause = PAUSE.0;
        }
        loop {
            if *closing.borrow() {
                shared.closed.send_replace(true);
                return;
            }
            warn!("the process that ends agents when parlor is killed has died; starting another");
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = closing.wait_for(|closing| *closing) => continue,
            }
            pause = (pause * 2).min(PAUSE.1);
            started = Instant::now();
            match shared.launch() {
                Ok(next) => {
                    child = next;
                    break;
                }
                Err(error) => warn!(%error, "without it, agents outlive a parlor that is killed"),
            }
        }
    }
}
