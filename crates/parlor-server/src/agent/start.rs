//! Starts an agent and negotiates its version of the protocol.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parlor_dialect::{Dialect, live};
use parlor_engine::{AgentProfile, CachedAgentInfo};
use parlor_json::{Json, Object};
use parlor_wire::{
    Batches, Body, Incoming, InputLine, LineDecoder, Outcome, RequestId, RpcError, code, write,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, ChildStdout};

use super::{Agent, Startup, agent_error, timeout_error};
use crate::auth_method::TERMINAL_AUTH;
use crate::config::{AgentConfig, EmbeddedAgent, Preset, Sandbox};
use crate::hub::InitializeMeta;
use crate::services::access::FileAccess;
use parlor_process::{Command, Process, Reaper};

/// How long a process may take to end when its input is closed, and again after SIGTERM.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// A process that answered `initialize`.
struct Initialized {
    process: Process,
    stdin: ChildStdin,
    stdout: ChildStdout,
    result: Object,
}

/// Why an agent could not be started.
struct StartError {
    error: RpcError,
    /// Whether it did not answer in time.
    timed_out: bool,
}

impl From<RpcError> for StartError {
    fn from(error: RpcError) -> Self {
        Self { error, timed_out: false }
    }
}

impl From<StartError> for RpcError {
    fn from(failed: StartError) -> Self {
        failed.error
    }
}

/// The `reason` in the data of an error: the agent cannot be started.
pub const AGENT_UNAVAILABLE: &str = "agent_unavailable";

/// The `reason` in the data of an error: the agent of a session is not configured any more.
pub const AGENT_NOT_CONFIGURED: &str = "agent_not_configured";

/// Starts an agent, with this metadata in `initialize`. `known` is its last response to that. Errors have the reason
/// [`AGENT_UNAVAILABLE`].
pub(crate) async fn start(
    config: &AgentConfig,
    env: &[(String, String)],
    cwd: &Path,
    meta: &InitializeMeta,
    known: Option<&CachedAgentInfo>,
    reaper: &Reaper,
    startup: Startup,
) -> Result<Arc<Agent>, RpcError> {
    let starter = Starter { config, env, cwd, meta, reaper, startup };
    start_with_version(&starter, known).await.map_err(|error| {
        let data = error.data().and_then(Json::to_object).unwrap_or_default();
        error.with_data(data.with("reason", AGENT_UNAVAILABLE).to_json())
    })
}

/// Starts an agent with version 2 of the protocol, unless it is known to speak version 1. An agent that does not speak version
/// 2, or offers more in version 1, is started again, because some agents do not accept a second `initialize`. One that is known
/// to speak version 1 is started with version 2 as well if it is another release, and if it fails with version 1.
async fn start_with_version(
    starter: &Starter<'_>,
    known: Option<&CachedAgentInfo>,
) -> Result<Arc<Agent>, RpcError> {
    let config = starter.config;
    if let Some(embedded) = &config.embedded {
        return start_embedded(config, embedded, starter.startup).await;
    }
    let fixed = match (config.dialect, config.version) {
        (Some(dialect), _) => Some(dialect),
        (None, Some(1)) => Some(Dialect::V1),
        (None, version) => version.map(|_| Dialect::V2),
    };
    let known = known.filter(|known| known.dialect == Dialect::V1);
    let (started, dialect) = match (fixed, known) {
        (Some(Dialect::V1), _) => (starter.start(Dialect::V1).await?, Dialect::V1),
        (None, Some(known)) => starter.start_known(&known.initialize).await?,
        (fixed, _) => starter.negotiate(fixed.unwrap_or(Dialect::V2)).await?,
    };
    let Initialized { process, stdin, stdout, result } = started;
    tracing::info!(agent = config.name, %dialect, pid = process.pid(), "agent started");
    let sandbox = config.sandbox.clone();
    Ok(Agent::new(&config.name, config.label(), stdout, stdin, Some(process), dialect, result, sandbox))
}

/// Starts the process of an agent, more than once if necessary.
struct Starter<'a> {
    config: &'a AgentConfig,
    env: &'a [(String, String)],
    cwd: &'a Path,
    meta: &'a InitializeMeta,
    reaper: &'a Reaper,
    startup: Startup,
}

impl Starter<'_> {
    async fn start(&self, dialect: Dialect) -> Result<Initialized, StartError> {
        self.start_within(dialect, self.startup).await
    }

    async fn start_within(&self, dialect: Dialect, startup: Startup) -> Result<Initialized, StartError> {
        let config = self.config;
        start_and_initialize(config, self.env, self.cwd, (dialect, self.meta), self.reaper, startup).await
    }

    async fn end(&self, started: Initialized) {
        end(started.process, started.stdin, self.startup).await;
    }

    /// Starts with version 2, or its draft, and again with version 1 if the agent does not speak that or offers less in it.
    async fn negotiate(&self, wanted: Dialect) -> Result<(Initialized, Dialect), StartError> {
        let is_fixed = self.config.dialect.is_some() || self.config.version.is_some();
        match self.start(wanted).await {
            Ok(started) if live::speaks_v2(&started.result) && (is_fixed || !prefers_v1(&started.result)) => {
                Ok((started, wanted))
            }
            Ok(started) => {
                self.end(started).await;
                Ok((self.start(Dialect::V1).await?, Dialect::V1))
            }
            // Some agents answer an unknown version with an error, or exit. One that hangs would hang again.
            Err(StartError { timed_out: false, .. }) if self.config.version.is_none() => {
                Ok((self.start(Dialect::V1).await?, Dialect::V1))
            }
            Err(failed) => Err(failed),
        }
    }

    /// Starts an agent with version 1, with this response to `initialize` before.
    async fn start_known(&self, known: &Object) -> Result<(Initialized, Dialect), StartError> {
        match self.start(Dialect::V1).await {
            Ok(started) if live::speaks_v2(&started.result) => {
                self.end(started).await;
                self.negotiate(Dialect::V2).await
            }
            Ok(started) if may_prefer_v2(&started.result, known) => {
                // The process that works is kept meanwhile, with time left to open a session.
                Ok(match self.try_v2(self.startup.first_half()).await {
                    Some(other) => {
                        self.end(started).await;
                        (other, Dialect::V2)
                    }
                    None => (started, Dialect::V1),
                })
            }
            Ok(started) => Ok((started, Dialect::V1)),
            // A later release may reject version 1.
            Err(failed) if !failed.timed_out => {
                let started = self.try_v2(self.startup).await;
                started.map(|started| (started, Dialect::V2)).ok_or(failed)
            }
            Err(failed) => Err(failed),
        }
    }

    /// Starts with version 2. Returns `None` if the agent does not start with it in time, does not speak it, or offers more in
    /// version 1.
    async fn try_v2(&self, startup: Startup) -> Option<Initialized> {
        let log = |failed: &StartError| {
            let error = failed.error.message();
            tracing::info!(agent = self.config.name, "cannot start the agent with version 2: {error}");
        };
        let started = self.start_within(Dialect::V2, startup).await.inspect_err(log).ok()?;
        if live::speaks_v2(&started.result) && !prefers_v1(&started.result) {
            return Some(started);
        }
        self.end(started).await;
        None
    }
}

/// Whether version 2 is tried with an agent that spoke version 1 before and has done so again: it is another agent or release
/// than before, of which nothing says that it offers more in version 1.
fn may_prefer_v2(result: &Object, known: &Object) -> bool {
    let release = |initialize: &Object| {
        let info = initialize.get_object("agentInfo").unwrap_or_default();
        (info.get_string("name"), info.get_string("version"))
    };
    let wants_v1 = AgentProfile::of(Dialect::V1, result).is_some_and(|profile| profile.version() == 1);
    !wants_v1 && release(result) != release(known)
}

/// Whether an agent with this response of version 2 offers more in version 1.
fn prefers_v1(result: &Object) -> bool {
    AgentProfile::of(Dialect::V2, result).is_some_and(|profile| profile.version() == 1)
}

/// How many bytes may wait between the server and an embedded agent, in each direction.
const EMBEDDED_BYTES: usize = 1 << 20;

/// Starts an embedded agent, which speaks version 2.
async fn start_embedded(
    config: &AgentConfig,
    embedded: &EmbeddedAgent,
    startup: Startup,
) -> Result<Arc<Agent>, RpcError> {
    let (ours, theirs) = tokio::io::duplex(EMBEDDED_BYTES);
    embedded.start(theirs);
    let (mut read, mut write) = tokio::io::split(ours);
    let response = async {
        write
            .write_all(initialize_line(Dialect::V2, config.fs, &InitializeMeta::default()).as_bytes())
            .await
            .ok()?;
        read_response(&mut read).await
    };
    match tokio::time::timeout_at(startup.until.into(), response).await {
        Ok(Some(result)) => {
            let result = result?;
            let sandbox = Sandbox::default();
            Ok(Agent::new(&config.name, config.label(), read, write, None, Dialect::V2, result, sandbox))
        }
        Ok(None) => Err(agent_error(config.label(), "ended before it answered initialize", "")),
        Err(_) => Err(timeout_error(config.label(), "initialize", startup.timeout, "")),
    }
}

fn initialize_line(dialect: Dialect, fs: FileAccess, meta: &InitializeMeta) -> String {
    let mut params = initialize_params(dialect, fs);
    set_meta(&mut params, &meta.params);
    let name = match dialect {
        Dialect::V1 => "clientCapabilities",
        Dialect::V2 | Dialect::Draft => "capabilities",
    };
    let mut capabilities = params.get_object(name).unwrap_or_default();
    set_meta(&mut capabilities, &meta.capabilities);
    params.set(name, capabilities);
    write::request(&RequestId::from(0), "initialize", Some(params.to_json().raw())) + "\n"
}

/// Adds metadata of a client, except what the server itself says.
fn set_meta(holder: &mut Object, meta: &Object) {
    for (name, value) in meta.iter() {
        let name = name.to_text();
        if holder.get_nested("_meta", &name).is_none() {
            holder.set_nested("_meta", &name, value.clone());
        }
    }
}

async fn start_and_initialize(
    config: &AgentConfig,
    env: &[(String, String)],
    cwd: &Path,
    (dialect, meta): (Dialect, &InitializeMeta),
    reaper: &Reaper,
    startup: Startup,
) -> Result<Initialized, StartError> {
    let program = config.program();
    let mut command = Command {
        program: config.command.first().map(Into::into).unwrap_or_default(),
        args: config.command[1..].iter().map(Into::into).collect(),
        env: env.iter().map(|(name, value)| (name.into(), value.into())).collect(),
        cwd: cwd.to_owned(),
    };
    config.sandbox.wrap(&mut command);
    // The lines of its standard error are logged in this span. Later sessions use the process as well as the one that starts it.
    let span = tracing::info_span!(parent: None, "process", agent = config.name);
    let mut process = span.in_scope(|| Process::start(&command, reaper)).map_err(|error| {
        let path = env.iter().find(|(name, _)| name == "PATH").map_or("", |(_, path)| path);
        let is_missing = error.kind() == std::io::ErrorKind::NotFound && !config.is_installed(path.as_ref());
        let message = if is_missing && config.sandbox.is_wrapped() {
            format!(
                "cannot start agent '{}': `wrap` names a program that is not installed: '{program}'",
                config.label()
            )
        } else if is_missing {
            format!("agent '{}' is not installed: there is no program '{program}'", config.label())
        } else {
            format!("cannot start agent '{}': {error}", config.label())
        };
        let is_preset = |preset: &&Preset| preset.agent().is_ok_and(|agent| agent.command == config.command);
        let install = Preset::named(&config.name).filter(is_preset).and_then(|preset| preset.install);
        let hint = match install.filter(|_| is_missing && !config.sandbox.is_wrapped()) {
            Some(install) => {
                format!("`{install}` installs it; `parlor agents` shows which agents are installed")
            }
            None if config.sandbox.is_wrapped() => {
                format!("install it, or change `wrap` of [agents.{}] in config.toml", config.name)
            }
            None => "`parlor agents` shows which agents are installed".to_owned(),
        };
        let data = Object::new().with("hint", hint);
        RpcError::new(code::INTERNAL_ERROR, message).with_data(data.to_json())
    })?;
    let (Some(mut stdin), Some(mut stdout)) = (process.take_stdin(), process.take_stdout()) else {
        let message = format!("agent '{}' has no standard streams", config.label());
        return Err(RpcError::new(code::INTERNAL_ERROR, message).into());
    };
    let response = async {
        stdin.write_all(initialize_line(dialect, config.fs, meta).as_bytes()).await.ok()?;
        read_response(&mut stdout).await
    };
    let response = tokio::time::timeout_at(startup.until.into(), response).await;
    let event = match response {
        Ok(Some(Ok(result))) => return Ok(Initialized { process, stdin, stdout, result }),
        Ok(Some(Err(error))) => {
            end(process, stdin, startup).await;
            return Err(error.into());
        }
        Ok(None) => {
            process.end(GRACE, GRACE);
            // All of its standard error has been read when it has ended.
            match tokio::time::timeout_at(startup.until.into(), process.wait()).await {
                Ok(status) => format!("ended before it answered initialize ({status})"),
                Err(_) => "closed its standard output before it answered initialize".to_owned(),
            }
        }
        Err(_) => {
            let error = timeout_error(config.label(), "initialize", startup.timeout, &process.stderr_tail());
            return Err(StartError { error, timed_out: true });
        }
    };
    // Dropping the process ends it.
    Err(agent_error(config.label(), &event, &process.stderr_tail()).into())
}

/// Ends a process that another one replaces.
async fn end(process: Process, stdin: ChildStdin, startup: Startup) {
    drop(stdin);
    let _ = tokio::time::timeout_at(startup.until.into(), process.stop(GRACE)).await;
}

/// Reads up to the first response, and ignores messages before it.
async fn read_response(stdout: &mut (impl AsyncRead + Unpin)) -> Option<Result<Object, RpcError>> {
    let mut lines = LineDecoder::default();
    let mut byte = [0; 1];
    loop {
        // Byte by byte, so that what follows the response is left in the stream.
        if stdout.read(&mut byte).await.ok()? == 0 {
            return None;
        }
        lines.extend(&byte);
        while let Some(frame) = lines.next_line() {
            let InputLine::Line(line) = frame else { continue };
            let Ok(Incoming::One(message)) = parlor_wire::parse(line, Batches::Refuse) else { continue };
            if let Body::Response { outcome, .. } = &message.body {
                return Some(match outcome {
                    Outcome::Result(result) => Ok(result.to_object().unwrap_or_default()),
                    Outcome::Error(error) => Err(RpcError::from_raw(*error)),
                });
            }
        }
    }
}

/// The params of `initialize` for an agent.
fn initialize_params(dialect: Dialect, fs: FileAccess) -> Object {
    let files = fs != FileAccess::Off;
    let empty = Object::new;
    let info =
        empty().with("name", "parlor").with("title", "parlor").with("version", env!("CARGO_PKG_VERSION"));
    let elicitation = empty().with("form", empty()).with("url", empty());
    let meta = empty().with(TERMINAL_AUTH, true);
    let mut params = empty().with("protocolVersion", dialect.version());
    match dialect {
        Dialect::V1 => {
            let fs = empty().with("readTextFile", files).with("writeTextFile", files);
            let options = empty().with("boolean", empty());
            let session =
                empty().with("configOptions", options).with("notices", empty()).with("compaction", empty());
            let capabilities = empty().with("fs", fs).with("terminal", true).with("elicitation", elicitation);
            let capabilities =
                capabilities.with("session", session).with("plan", empty()).with("subagents", empty());
            // Agents have the authentication methods for which they need a terminal only if the client runs them.
            let capabilities = capabilities.with("auth", empty().with("terminal", true)).with("_meta", meta);
            params.set("clientInfo", info);
            params.set("clientCapabilities", capabilities);
        }
        Dialect::V2 | Dialect::Draft => {
            params.set("info", info);
            let auth = empty().with("terminal", empty());
            let capabilities =
                empty().with("elicitation", elicitation).with("auth", auth).with("_meta", meta);
            params.set("capabilities", capabilities);
        }
    }
    if dialect == Dialect::Draft {
        params.set_nested("_meta", Dialect::MARK, dialect.name());
    }
    params
}
