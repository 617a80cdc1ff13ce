//! Starting an agent and finding out what it speaks.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parlor_dialect::{Dialect, live};
use parlor_json::Object;
use parlor_wire::{
    Batches, Body, Incoming, InputLine, LineDecoder, Outcome, RequestId, RpcError, code, write,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, ChildStdout};

use super::{Agent, Startup, failure, late};
use crate::config::{AgentConfig, Local};
use crate::json;
use crate::process::{Command, Process, Watcher};
use crate::services::access::FileAccess;

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
    startup: Startup,
) -> Result<Arc<Agent>, RpcError> {
    if let Some(local) = &config.local {
        return start_local(config, local, startup).await;
    }
    let wanted = match (config.dialect, config.version.or(version)) {
        (Some(dialect), _) => dialect,
        (None, Some(1)) => Dialect::V1,
        (None, _) => Dialect::V2,
    };
    let begin = async |dialect| begin(config, env, cwd, dialect, watcher, startup).await;
    let begun = begin(wanted).await;
    let is_fixed = config.dialect.is_some() || config.version.is_some();
    let (begun, dialect) = match begun {
        // One that spoke version 1 before and does not any more.
        Ok(begun) if wanted == Dialect::V1 && !is_fixed && live::speaks_v2(&begun.result) => {
            end(begun.process, begun.stdin, startup).await;
            (begin(Dialect::V2).await?, Dialect::V2)
        }
        Ok(begun) if wanted == Dialect::V1 || live::speaks_v2(&begun.result) => (begun, wanted),
        Ok(begun) => {
            end(begun.process, begun.stdin, startup).await;
            (begin(Dialect::V1).await?, Dialect::V1)
        }
        // Some agents answer an unknown version with an error, or end. One that hangs would only hang again.
        Err(NotBegun { hangs: false, .. }) if wanted != Dialect::V1 && config.version.is_none() => {
            (begin(Dialect::V1).await?, Dialect::V1)
        }
        Err(failed) => return Err(failed.error),
    };
    let Begun { process, stdin, stdout, result } = begun;
    tracing::info!(agent = config.name, %dialect, pid = process.pid(), "the agent is ready");
    Ok(Agent::over(&config.name, config.label(), stdout, stdin, Some(process), |_| (dialect, result)))
}

/// How much an agent inside this process may say before somebody reads it, and the other way round.
const LOCAL_BYTES: usize = 1 << 20;

/// Starts an agent inside this process, which speaks version 2.
async fn start_local(config: &AgentConfig, local: &Local, startup: Startup) -> Result<Arc<Agent>, RpcError> {
    let (ours, theirs) = tokio::io::duplex(LOCAL_BYTES);
    local.start(theirs);
    let (mut read, mut write) = tokio::io::split(ours);
    let first = async {
        write.write_all(first_line(Dialect::V2, config.fs).as_bytes()).await.ok()?;
        first_answer(&mut read).await
    };
    match tokio::time::timeout_at(startup.until.into(), first).await {
        Ok(Some(result)) => {
            let result = result?;
            Ok(Agent::over(&config.name, config.label(), read, write, None, |_| (Dialect::V2, result)))
        }
        Ok(None) => Err(failure(config.label(), "ended before it answered initialize", "")),
        Err(_) => Err(late(config.label(), "initialize", startup.timeout, "")),
    }
}

fn first_line(dialect: Dialect, fs: FileAccess) -> String {
    write::request(&RequestId::from(0), "initialize", Some(initialize(dialect, fs).to_json().raw())) + "\n"
}

async fn begin(
    config: &AgentConfig,
    env: &[(String, String)],
    cwd: &Path,
    dialect: Dialect,
    watcher: &Watcher,
    startup: Startup,
) -> Result<Begun, NotBegun> {
    let program = config.command.first().cloned().unwrap_or_default();
    let command = Command {
        program: program.clone().into(),
        args: config.command[1..].iter().map(Into::into).collect(),
        env: env.iter().map(|(name, value)| (name.into(), value.into())).collect(),
        cwd: cwd.to_owned(),
    };
    let mut process = Process::start(&command, watcher).map_err(|error| {
        let message = format!("agent '{}' cannot be started: {program}: {error}", config.label());
        let mut data = Object::default();
        data.set("hint", "`parlor agents` shows which agents are installed");
        RpcError::new(code::INTERNAL_ERROR, message).with_data(data.to_json())
    })?;
    let (Some(mut stdin), Some(mut stdout)) = (process.take_stdin(), process.take_stdout()) else {
        let message = format!("agent '{}' has no standard streams", config.label());
        return Err(RpcError::new(code::INTERNAL_ERROR, message).into());
    };
    let first = async {
        stdin.write_all(first_line(dialect, config.fs).as_bytes()).await.ok()?;
        first_answer(&mut stdout).await
    };
    let first = tokio::time::timeout_at(startup.until.into(), first).await;
    let what = match first {
        Ok(Some(Ok(result))) => return Ok(Begun { process, stdin, stdout, result }),
        Ok(Some(Err(error))) => {
            end(process, stdin, startup).await;
            return Err(error.into());
        }
        Ok(None) => {
            process.end(GRACE, GRACE);
            // Its last words are there when it has ended.
            match tokio::time::timeout_at(startup.until.into(), process.wait()).await {
                Ok(status) => format!("ended before it answered initialize ({status})"),
                Err(_) => "closed its standard output before it answered initialize".to_owned(),
            }
        }
        Err(_) => {
            let error = late(config.label(), "initialize", startup.timeout, &process.stderr_tail());
            return Err(NotBegun { error, hangs: true });
        }
    };
    // Dropping it ends it.
    Err(failure(config.label(), &what, &process.stderr_tail()).into())
}

/// Ends a process, so that another one can take its place.
async fn end(process: Process, stdin: ChildStdin, startup: Startup) {
    drop(stdin);
    let _ = tokio::time::timeout_at(startup.until.into(), process.stop(GRACE)).await;
}

/// The answer to the first request. Nothing else that comes before it concerns anybody.
async fn first_answer(stdout: &mut (impl AsyncRead + Unpin)) -> Option<Result<Object, RpcError>> {
    let mut lines = LineDecoder::default();
    let mut byte = [0; 1];
    loop {
        // Byte by byte, so that nothing of what comes after is taken away from who reads next.
        if stdout.read(&mut byte).await.ok()? == 0 {
            return None;
        }
        lines.extend(&byte);
        while let Some(frame) = lines.next_line() {
            let InputLine::Line(line) = frame else { continue };
            let Ok(Incoming::One(message)) = parlor_wire::parse(line, Batches::Refuse) else { continue };
            if let Body::Response { outcome, .. } = &message.body {
                return Some(match outcome {
                    Outcome::Result(result) => Ok(json::object(Some(*result))),
                    Outcome::Error(error) => Err(RpcError::from_raw(*error)),
                });
            }
        }
    }
}

/// What parlor says of itself to an agent.
fn initialize(dialect: Dialect, fs: FileAccess) -> Object {
    let files = fs != FileAccess::Off;
    let info = format!(r#"{{"name":"parlor","title":"parlor","version":"{}"}}"#, env!("CARGO_PKG_VERSION"));
    let elicitation = r#"{"form":{},"url":{}}"#;
    let text = match dialect {
        Dialect::V1 => format!(
            r#"{{"protocolVersion":1,"clientInfo":{info},"clientCapabilities":{{"fs":{{"readTextFile":{files},"writeTextFile":{files}}},"terminal":true,"elicitation":{elicitation},"session":{{"configOptions":{{"boolean":{{}}}},"notices":{{}},"compaction":{{}}}},"plan":{{}}}}}}"#
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
