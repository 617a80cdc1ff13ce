//! Starting an agent and finding out what it speaks.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parlor_dialect::{Dialect, live};
use parlor_json::Object;
use parlor_wire::{Batches, Body, Frame, Incoming, Lines, Outcome, RequestId, RpcError, code, write};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, ChildStdout};

use super::Agent;
use crate::config::{AgentConfig, Local};
use crate::json;
use crate::process::{Command, Process, Watcher};

/// How long a process gets to end by itself, and again after it was asked to.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// What came of a first conversation.
struct Begun {
    process: Process,
    stdin: ChildStdin,
    stdout: ChildStdout,
    result: Object,
}

/// Why nothing came of it.
struct NotBegun {
    error: RpcError,
    /// Whether the agent took all the time it had.
    hangs: bool,
}

impl From<RpcError> for NotBegun {
    fn from(error: RpcError) -> Self {
        Self { error, hangs: false }
    }
}

impl From<NotBegun> for RpcError {
    fn from(failed: NotBegun) -> Self {
        failed.error
    }
}

/// Starts an agent. It is asked for version 2 first, unless it is known to speak another; one that does not speak it is
/// started again, because some are confused by a second `initialize`.
pub(crate) async fn start(
    config: &AgentConfig,
    env: &[(String, String)],
    cwd: &Path,
    version: Option<u16>,
    watcher: &Watcher,
) -> Result<Arc<Agent>, RpcError> {
    if let Some(local) = &config.local {
        return start_local(config, local).await;
    }
    let wanted = match (config.dialect, config.version.or(version)) {
        (Some(dialect), _) => dialect,
        (None, Some(1)) => Dialect::V1,
        (None, _) => Dialect::V2,
    };
    let begun = begin(config, env, cwd, wanted, watcher).await;
    let (begun, dialect) = match begun {
        Ok(begun) if wanted == Dialect::V1 || live::speaks_v2(&begun.result) => (begun, wanted),
        Ok(begun) => {
            drop(begun.stdin);
            begun.process.stop(GRACE).await;
            (begin(config, env, cwd, Dialect::V1, watcher).await?, Dialect::V1)
        }
        // Some agents answer an unknown version with an error, or end. One that hangs would only hang again.
        Err(NotBegun { hangs: false, .. }) if wanted != Dialect::V1 && config.version.is_none() => {
            (begin(config, env, cwd, Dialect::V1, watcher).await?, Dialect::V1)
        }
        Err(failed) => return Err(failed.error),
    };
    let Begun { process, stdin, stdout, result } = begun;
    tracing::info!(agent = config.name, %dialect, pid = process.pid(), "the agent is ready");
    Ok(Agent::over(&config.name, stdout, stdin, Some(process), |_| (dialect, result)))
}

/// How much an agent inside this process may say before somebody reads it, and the other way round.
const LOCAL_BYTES: usize = 1 << 20;

/// Starts an agent inside this process, which speaks version 2.
async fn start_local(config: &AgentConfig, local: &Local) -> Result<Arc<Agent>, RpcError> {
    let (ours, theirs) = tokio::io::duplex(LOCAL_BYTES);
    local.start(theirs);
    let (mut read, mut write) = tokio::io::split(ours);
    let first = async {
        write.write_all(first_line(Dialect::V2).as_bytes()).await.ok()?;
        first_answer(&mut read).await
    };
    match tokio::time::timeout(config.patience, first).await {
        Ok(Some(result)) => {
            let result = result?;
            Ok(Agent::over(&config.name, read, write, None, |_| (Dialect::V2, result)))
        }
        Ok(None) => Err(failed(config, "ended before it said who it is", "")),
        Err(_) => Err(failed(config, "does not say who it is", "")),
    }
}

fn first_line(dialect: Dialect) -> String {
    write::request(&RequestId::from(0), "initialize", Some(initialize(dialect).to_json().raw())) + "\n"
}

async fn begin(
    config: &AgentConfig,
    env: &[(String, String)],
    cwd: &Path,
    dialect: Dialect,
    watcher: &Watcher,
) -> Result<Begun, NotBegun> {
    let program = config.command.first().cloned().unwrap_or_default();
    let command = Command {
        program: program.clone().into(),
        args: config.command[1..].iter().map(Into::into).collect(),
        env: env.iter().map(|(name, value)| (name.into(), value.into())).collect(),
        cwd: cwd.to_owned(),
    };
    let mut process = Process::start(&command, watcher).map_err(|error| {
        let message = format!("the agent '{}' cannot be started: {program}: {error}", config.name);
        let mut data = Object::default();
        data.set("hint", json::string("`parlor agents` shows which agents are installed"));
        RpcError::new(code::INTERNAL_ERROR, message).with_data(data.to_json())
    })?;
    let (Some(mut stdin), Some(mut stdout)) = (process.take_stdin(), process.take_stdout()) else {
        return Err(RpcError::new(code::INTERNAL_ERROR, "the agent has no standard streams").into());
    };
    let first = async {
        stdin.write_all(first_line(dialect).as_bytes()).await.ok()?;
        first_answer(&mut stdout).await
    };
    match tokio::time::timeout(config.patience, first).await {
        Ok(Some(Ok(result))) => Ok(Begun { process, stdin, stdout, result }),
        Ok(Some(Err(error))) => {
            drop(stdin);
            process.stop(GRACE).await;
            Err(error.into())
        }
        Ok(None) => {
            drop(stdin);
            let status = process.stop(GRACE).await;
            let what = format!("ended before it said who it is ({status})");
            Err(failed(config, &what, &process.stderr_tail()).into())
        }
        Err(_) => {
            drop(stdin);
            process.stop(GRACE).await;
            let error = failed(config, "does not say who it is", &process.stderr_tail());
            Err(NotBegun { error, hangs: true })
        }
    }
}

fn failed(config: &AgentConfig, what: &str, stderr: &str) -> RpcError {
    let mut message = format!("the agent '{}' {what}", config.name);
    if let Some(last) = stderr.lines().rev().find(|line| !line.trim().is_empty()) {
        message.push_str(": ");
        message.push_str(last.trim());
    }
    let mut data = Object::default();
    data.set("stderr", json::string(stderr));
    RpcError::new(code::INTERNAL_ERROR, message).with_data(data.to_json())
}

/// The answer to the first request. Nothing else that comes before it concerns anybody.
async fn first_answer(stdout: &mut (impl AsyncRead + Unpin)) -> Option<Result<Object, RpcError>> {
    let mut lines = Lines::default();
    let mut byte = [0; 1];
    loop {
        // Byte by byte, so that nothing of what comes after is taken away from who reads next.
        if stdout.read(&mut byte).await.ok()? == 0 {
            return None;
        }
        lines.extend(&byte);
        while let Some(frame) = lines.next_frame() {
            let Frame::Line(line) = frame else { continue };
            let Ok(Incoming::One(message)) = parlor_wire::parse(line, Batches::Refuse) else { continue };
            if let Body::Response { outcome, .. } = &message.body {
                return Some(match outcome {
                    Outcome::Result(result) => Ok(json::object(Some(result))),
                    Outcome::Error(error) => Err(RpcError::from_raw(error)),
                });
            }
        }
    }
}

/// What parlor says of itself to an agent.
fn initialize(dialect: Dialect) -> Object {
    let info = format!(r#"{{"name":"parlor","title":"parlor","version":"{}"}}"#, env!("CARGO_PKG_VERSION"));
    let elicitation = r#"{"form":{},"url":{}}"#;
    let text = match dialect {
        Dialect::V1 => format!(
            r#"{{"protocolVersion":1,"clientInfo":{info},"clientCapabilities":{{"fs":{{"readTextFile":true,"writeTextFile":true}},"terminal":true,"elicitation":{elicitation},"session":{{"configOptions":{{"boolean":{{}}}},"notices":{{}},"compaction":{{}}}},"plan":{{}}}}}}"#
        ),
        Dialect::V2 => {
            format!(r#"{{"protocolVersion":2,"info":{info},"capabilities":{{"elicitation":{elicitation}}}}}"#)
        }
        Dialect::Draft => format!(
            r#"{{"protocolVersion":2,"info":{info},"capabilities":{{"elicitation":{elicitation}}},"_meta":{{"parlor/dialect":"draft"}}}}"#
        ),
    };
    json::object(Some(json::json(text).raw()))
}
