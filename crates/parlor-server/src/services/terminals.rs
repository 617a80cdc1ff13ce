//! `terminal/*`: commands that parlor runs for an agent.

use std::collections::HashMap;
use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use parlor_engine::TerminalEvent;
use parlor_json::{Json, Object};
use parlor_wire::{RpcError, code};
use rustix::process::Signal;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot, watch};
use uuid::Uuid;

use super::output::Output;
use super::params;
use crate::config::Sandbox;
use crate::lock;
use parlor_process::{Command, Process, Reaper};

/// How many terminals a session may have that are not released.
pub const MAX_TERMINALS: usize = 64;

/// How many bytes of output are kept by default.
pub const DEFAULT_OUTPUT: u64 = 1 << 20;

/// How many bytes of output an agent can have kept.
pub const MAX_OUTPUT: u64 = 16 << 20;

/// The time between SIGTERM and SIGKILL for a command that is killed.
const GRACE: Duration = Duration::from_secs(1);

/// How long output is read after the command has ended. Its output is in the pipe by then; only a descendant that was not
/// found can still write.
const DRAIN_TIME: Duration = Duration::from_millis(100);

/// The terminals of one session; dropping them ends their commands.
#[derive(Debug)]
pub struct Terminals {
    reaper: Reaper,
    env: Vec<(OsString, OsString)>,
    cwd: PathBuf,
    /// Where commands run.
    sandbox: Sandbox,
    events: mpsc::Sender<TerminalEvent>,
    live: Mutex<HashMap<Arc<str>, Terminal>>,
}

#[derive(Debug)]
struct Terminal {
    process: Process,
    output: Arc<Mutex<Output>>,
    exit: watch::Receiver<Option<Exit>>,
    /// Dropped when the terminal is released.
    _release: oneshot::Sender<()>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Exit {
    code: Option<u32>,
    signal: Option<String>,
}

impl Terminals {
    /// Creates an empty set of terminals. Commands run in `cwd`, unless the agent chooses another directory, and with `env`.
    /// While `events` is full, the output of commands is not read.
    pub fn new(
        reaper: Reaper,
        env: Vec<(OsString, OsString)>,
        cwd: PathBuf,
        events: mpsc::Sender<TerminalEvent>,
    ) -> Self {
        Self { reaper, env, cwd, sandbox: Sandbox::default(), events, live: Mutex::default() }
    }

    /// Runs later commands in the sandbox of the agent.
    pub fn set_sandbox(&mut self, sandbox: &Sandbox) {
        self.sandbox.clone_from(sandbox);
    }

    /// Handles a request before this returns; the future is the response, which only `terminal/wait_for_exit` delays. Must be
    /// called within a tokio runtime.
    pub fn serve(
        &self,
        method: &str,
        params: &Object,
    ) -> impl Future<Output = Result<Json, RpcError>> + Send + use<> {
        let answer = match method {
            "terminal/create" => self.create(params).map(Answer::Now),
            "terminal/output" => self.with(params, |terminal| Answer::Now(terminal.output())),
            "terminal/wait_for_exit" => self.with(params, |terminal| Answer::Exit(terminal.exit.clone())),
            "terminal/kill" => self.with(params, |terminal| {
                terminal.process.end(Duration::ZERO, GRACE);
                Answer::Now(Object::default().to_json())
            }),
            "terminal/release" => self.release(params).map(Answer::Now),
            _ => Err(RpcError::new(code::METHOD_NOT_FOUND, format!("method not found: {method}"))),
        };
        async {
            match answer? {
                Answer::Now(result) => Ok(result),
                Answer::Exit(mut exit) => match exit.wait_for(Option::is_some).await.map(|exit| exit.clone())
                {
                    Ok(Some(exit)) => Ok(exit.to_json()),
                    Ok(None) | Err(_) => Err(RpcError::new(code::INTERNAL_ERROR, "the server is stopping")),
                },
            }
        }
    }

    fn create(&self, params: &Object) -> Result<Json, RpcError> {
        let program = params::text(params, "command")?;
        let args = params::texts(params, "args")?;
        let cwd = params::optional_path(params, "cwd")?.unwrap_or_else(|| self.cwd.clone());
        let limit = params::number(params, "outputByteLimit")?.unwrap_or(DEFAULT_OUTPUT).min(MAX_OUTPUT);
        let own = params::pairs(params, "env")?;
        let own_env = own.iter().map(|(name, value)| (name.into(), value.into()));
        let env = self.env.iter().cloned().chain(own_env).collect();
        let mut live = lock(&self.live);
        if live.len() >= MAX_TERMINALS {
            return Err(RpcError::new(
                code::INVALID_REQUEST,
                format!("the session has {MAX_TERMINALS} terminals: release some with `terminal/release`"),
            ));
        }
        let (line, mut command) = command(program, args, env, cwd);
        let shown_cwd = command.cwd.clone();
        if self.sandbox.is_wrapped() {
            self.wrap(&mut command, &own);
        }
        let (process, reader) = Process::start_merged(&command, &self.reaper)
            .map_err(|error| cannot_start(&error, &command.program.to_string_lossy()))?;

        let id: Arc<str> = Uuid::new_v4().to_string().into();
        let output = Arc::new(Mutex::new(Output::new(usize::try_from(limit).unwrap_or(usize::MAX))));
        let (publish, exit) = watch::channel(None);
        let (release, released) = oneshot::channel();
        let created = TerminalEvent::Created { id: Arc::clone(&id), command: line, cwd: shown_cwd };
        let reader_task =
            OutputReader { id: Arc::clone(&id), output: Arc::clone(&output), events: self.events.clone() };
        tokio::spawn(reader_task.run(created, reader, process.wait(), publish, released));
        live.insert(Arc::clone(&id), Terminal { process, output, exit, _release: release });

        let mut result = Object::default();
        result.set("terminalId", &*id);
        Ok(result.to_json())
    }

    /// Puts a command into the wrapper. `own` are the variables that the agent chose for it: a container does not pass on those of
    /// the wrapper.
    fn wrap(&self, command: &mut Command, own: &[(String, String)]) {
        if !own.is_empty() {
            let program = std::mem::replace(&mut command.program, "env".into());
            let own = own.iter().map(|(name, value)| format!("{name}={value}").into());
            command.args = own.chain([program]).chain(std::mem::take(&mut command.args)).collect();
        }
        self.sandbox.wrap(command);
        // A directory that only the agent has.
        if !command.cwd.is_dir() {
            command.cwd.clone_from(&self.cwd);
        }
    }

    fn release(&self, params: &Object) -> Result<Json, RpcError> {
        let id = params::text(params, "terminalId")?;
        // Dropping the terminal ends its command.
        lock(&self.live).remove(&*id).ok_or_else(|| unknown(&id))?;
        Ok(Object::default().to_json())
    }

    fn with<T>(&self, params: &Object, act: impl FnOnce(&Terminal) -> T) -> Result<T, RpcError> {
        let id = params::text(params, "terminalId")?;
        lock(&self.live).get(&*id).map(act).ok_or_else(|| unknown(&id))
    }
}

enum Answer {
    Now(Json),
    Exit(watch::Receiver<Option<Exit>>),
}

impl Terminal {
    fn output(&self) -> Json {
        // Read first: once the exit status is set, the output is complete.
        let exit = self.exit.borrow().clone();
        let output = lock(&self.output);
        let mut result = Object::default();
        result.set("output", output.text());
        result.set("truncated", output.is_truncated());
        if let Some(exit) = exit {
            result.set("exitStatus", exit.to_json());
        }
        result.to_json()
    }
}

/// Reads the output of a command and reports events.
struct OutputReader {
    id: Arc<str>,
    output: Arc<Mutex<Output>>,
    events: mpsc::Sender<TerminalEvent>,
}

impl OutputReader {
    async fn run(
        self,
        created: TerminalEvent,
        reader: pipe::Receiver,
        ended: impl Future<Output = ExitStatus>,
        publish: watch::Sender<Option<Exit>>,
        released: oneshot::Receiver<()>,
    ) {
        self.send(created).await;
        let exit = Exit::from(self.read(reader, ended).await);
        lock(&self.output).finish();
        publish.send_replace(Some(exit.clone()));
        let Exit { code, signal } = exit;
        self.send(TerminalEvent::Exited { id: Arc::clone(&self.id), code, signal }).await;
        let _ = released.await;
        self.send(TerminalEvent::Released { id: Arc::clone(&self.id) }).await;
    }

    /// Reads the output to its end and returns the exit status.
    async fn read(&self, mut reader: pipe::Receiver, ended: impl Future<Output = ExitStatus>) -> ExitStatus {
        let mut ended = std::pin::pin!(ended);
        let mut status = None;
        let mut buffer = vec![0; 16 << 10];
        loop {
            tokio::select! {
                biased;
                length = reader.read(&mut buffer) => match length {
                    Ok(length @ 1..) => self.on_output(&buffer[..length]).await,
                    Ok(0) | Err(_) => break,
                },
                end = &mut ended, if status.is_none() => status = Some(end),
                () = tokio::time::sleep(DRAIN_TIME), if status.is_some() => break,
            }
        }
        match status {
            Some(status) => status,
            None => ended.await,
        }
    }

    async fn on_output(&self, bytes: &[u8]) {
        lock(&self.output).push(bytes);
        self.send(TerminalEvent::Output { id: Arc::clone(&self.id), bytes: bytes.to_vec() }).await;
    }

    async fn send(&self, event: TerminalEvent) {
        // Without a receiver, the agent can still request the output.
        let _ = self.events.send(event).await;
    }
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        Self {
            code: status.code().and_then(|code| u32::try_from(code).ok()),
            signal: status.signal().map(signal_name),
        }
    }
}

impl Exit {
    fn to_json(&self) -> Json {
        let mut result = Object::default();
        result.set("exitCode", self.code.map(Json::from).unwrap_or_default());
        result.set("signal", self.signal.as_deref().map(Json::from).unwrap_or_default());
        result.to_json()
    }
}

/// The command to start, and its command line for display.
///
/// Some agents send a shell command line without arguments, because editors run it in a shell. It is recognised by characters
/// that names of programs do not have.
fn command(
    program: String,
    args: Vec<String>,
    env: Vec<(OsString, OsString)>,
    cwd: PathBuf,
) -> (String, Command) {
    let is_line = args.is_empty()
        && program.contains(|c: char| c.is_whitespace() || "|&;<>()$`\\\"'*?~".contains(c))
        && !cwd.join(Path::new(&program)).is_file();
    if is_line {
        let args = vec!["-c".into(), program.clone().into()];
        return (program, Command { program: "sh".into(), args, env, cwd });
    }
    let line = shell_words::join([&program].into_iter().chain(&args));
    let args = args.into_iter().map(OsString::from).collect();
    (line, Command { program: program.into(), args, env, cwd })
}

fn cannot_start(error: &io::Error, program: &str) -> RpcError {
    if error.kind() == io::ErrorKind::NotFound {
        return params::not_found(error.to_string(), "command", program);
    }
    params::io_error(error, error.to_string())
}

fn unknown(id: &str) -> RpcError {
    params::not_found(format!("terminal `{id}` does not exist or was released"), "terminalId", id)
}

fn signal_name(number: i32) -> String {
    let names = [
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::TERM, "SIGTERM"),
    ];
    let known = names.iter().find(|(signal, _)| signal.as_raw() == number);
    known.map_or_else(|| format!("signal {number}"), |(_, name)| (*name).to_owned())
}
