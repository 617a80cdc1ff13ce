use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parlor_dialect::{Dialect, PathMap};
use parlor_process::Command;
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};

use tokio::io::DuplexStream;

use super::env::DEFAULT_PASS_ENV;
use super::{ConfigError, InstalledAgent, Preset};
use crate::services::access::FileAccess;

/// The default of [`AgentConfig::startup_timeout`].
const STARTUP_TIMEOUT: Duration = Duration::from_secs(30);

/// The default of [`AgentConfig::cancel_timeout`].
const CANCEL_TIMEOUT: Duration = Duration::from_secs(30);

/// The default of [`AgentConfig::idle`].
const IDLE: Duration = Duration::from_secs(30 * 60);

/// How an agent is started and used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentConfig {
    /// The name by which clients choose it.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The sandbox or container that it runs in.
    pub sandbox: Sandbox,
    /// Variables that are set in its environment.
    pub env: BTreeMap<String, String>,
    /// Names of variables that are passed from the client's environment; `*` matches any characters.
    pub pass_env: Vec<String>,
    /// How sessions share processes.
    pub process: ProcessMode,
    /// The version of the protocol that it speaks; negotiated if `None`.
    pub version: Option<u16>,
    /// The dialect that it speaks; negotiated if `None`.
    pub dialect: Option<Dialect>,
    /// How long a process that no session uses keeps running.
    pub idle: Duration,
    /// The files that it may access through parlor.
    pub fs: FileAccess,
    /// The agent in this process that is used instead of a program.
    pub embedded: Option<EmbeddedAgent>,
    /// The time to start, with negotiation of the version, and to create, restore or fork a session.
    pub startup_timeout: Duration,
    /// The time to end a cancelled turn.
    pub cancel_timeout: Duration,
}

/// The sandbox or container of an agent: the settings `wrap` and `paths`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Sandbox {
    /// The program and its arguments that start the agent and its terminals; empty for none. `{cwd}` in an argument stands for the
    /// working directory as the agent sees it.
    pub wrap: Vec<String>,
    /// Where the agent sees the directories of this machine.
    pub paths: PathMap,
}

impl Sandbox {
    /// Whether programs are started by a wrapper.
    pub(crate) fn is_wrapped(&self) -> bool {
        !self.wrap.is_empty()
    }

    /// Puts a command, which runs in a directory of this machine, into the wrapper.
    pub(crate) fn wrap(&self, command: &mut Command) {
        if !self.is_wrapped() {
            return;
        }
        let cwd = command.cwd.to_string_lossy();
        let cwd = self.paths.path_to_agent(&cwd);
        let mut words = self.wrap.iter().map(|word| OsString::from(word.replace("{cwd}", &cwd)));
        let program = words.next().unwrap_or_default();
        let wrapped = std::mem::replace(&mut command.program, program);
        command.args = words.chain([wrapped]).chain(std::mem::take(&mut command.args)).collect();
    }
}

/// An agent in this process, which speaks version 2 of the protocol over an in-memory stream.
///
/// It uses the server's session ids: `session/new` and `session/fork` carry them in `_meta["parlor/session"]`.
#[derive(Clone)]
pub struct EmbeddedAgent(Arc<dyn Fn(DuplexStream) + Send + Sync>);

impl EmbeddedAgent {
    /// Creates an agent that this function starts with its end of the stream. The function must not block.
    pub fn new(start: impl Fn(DuplexStream) + Send + Sync + 'static) -> Self {
        Self(Arc::new(start))
    }

    pub(crate) fn start(&self, stream: DuplexStream) {
        (self.0)(stream);
    }
}

impl PartialEq for EmbeddedAgent {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for EmbeddedAgent {}

impl fmt::Debug for EmbeddedAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EmbeddedAgent")
    }
}

/// How sessions share processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessMode {
    /// One process serves all sessions with the same environment.
    #[default]
    Shared,
    /// Each session has a process of its own.
    Session,
}

/// An `[agents.NAME]` table.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    #[serde(default, deserialize_with = "command")]
    command: Option<Vec<String>>,
    #[serde(default, deserialize_with = "command")]
    wrap: Option<Vec<String>>,
    #[serde(default)]
    paths: BTreeMap<String, String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    pass_env: Option<Vec<String>>,
    #[serde(default)]
    process: ProcessMode,
    #[serde(default, deserialize_with = "version")]
    version: Option<u16>,
    #[serde(default, deserialize_with = "dialect")]
    dialect: Option<Dialect>,
    idle_minutes: Option<u32>,
    #[serde(default)]
    fs: FileAccess,
    #[serde(default, deserialize_with = "seconds")]
    startup_timeout: Option<Duration>,
    #[serde(default, deserialize_with = "seconds")]
    cancel_timeout: Option<Duration>,
}

impl AgentConfig {
    /// Creates the configuration of an agent that this command starts, with defaults.
    pub fn new(name: impl Into<String>, command: Vec<String>) -> Self {
        Self {
            name: name.into(),
            command,
            sandbox: Sandbox::default(),
            env: BTreeMap::new(),
            pass_env: DEFAULT_PASS_ENV.map(str::to_owned).into(),
            process: ProcessMode::default(),
            version: None,
            dialect: None,
            idle: IDLE,
            fs: FileAccess::default(),
            embedded: None,
            startup_timeout: STARTUP_TIMEOUT,
            cancel_timeout: CANCEL_TIMEOUT,
        }
    }

    /// Creates the configuration of an embedded agent, which is never stopped.
    pub fn embedded(name: impl Into<String>, embedded: EmbeddedAgent) -> Self {
        let name = name.into();
        let command = vec![format!("(inside) {name}")];
        let (pass_env, idle) = (Vec::new(), Duration::MAX);
        Self { embedded: Some(embedded), pass_env, idle, ..Self::new(name, command) }
    }

    /// Parses `NAME=COMMAND` of the command line. The command is split like in a shell, without expansions.
    pub fn from_flag(flag: &str) -> Result<Self, ConfigError> {
        let invalid = |message: String, hint: &str| ConfigError {
            location: format!("--agent {flag}"),
            message,
            hint: Some(hint.to_owned()),
        };
        let Some((name, command)) = flag.split_once('=') else {
            return Err(invalid("expected NAME=COMMAND".to_owned(), EXAMPLE));
        };
        check_name(name).map_err(|message| invalid(message, EXAMPLE))?;
        match split_command(command) {
            Ok(command) => Ok(Self::new(name, command)),
            Err(message) => Err(invalid(message, EXAMPLE)),
        }
    }
}

const EXAMPLE: &str = "write it as --agent 'NAME=COMMAND ARGUMENTS', such as --agent 'gemini=gemini --acp'";

impl Table {
    /// Creates the configuration of the agent. The command may be missing if an agent or a preset with its name is installed.
    pub(super) fn into_agent(
        self,
        name: String,
        file: &str,
        installed: &[InstalledAgent],
    ) -> Result<AgentConfig, ConfigError> {
        let invalid = |message: String, hint: Option<String>| ConfigError {
            location: format!("{file}, [agents.{name}]"),
            message,
            hint,
        };
        check_name(&name).map_err(|message| invalid(message, None))?;
        let installed = installed.iter().find(|agent| agent.name == name);
        let (command, mut env) = match (self.command, installed, Preset::named(&name)) {
            (Some(command), _, _) => (command, BTreeMap::new()),
            (None, Some(installed), _) => (installed.command(), installed.env.clone()),
            (None, None, Some(preset)) => {
                let command = preset.command().map_err(|error| {
                    invalid(format!("cannot find the command of the preset: {error}"), None)
                })?;
                (command, BTreeMap::new())
            }
            (None, None, None) => {
                let hint = match Preset::canonical_name(&name) {
                    known if known != name => format!("parlor's name of this agent is [agents.{known}]"),
                    _ => "add a line such as command = [\"my-agent\", \"acp\"], or install the agent with `parlor agents install`".to_owned(),
                };
                return Err(invalid("`command` is missing".to_owned(), Some(hint)));
            }
        };
        env.extend(self.env);
        if let (Some(version), Some(dialect)) = (self.version, self.dialect)
            && version != dialect.version()
        {
            let belongs = dialect.version();
            let message = format!("dialect '{dialect}' belongs to version {belongs}, not {version}");
            return Err(invalid(message, Some("leave out one of the two".to_owned())));
        }
        let hint =
            "write it as paths = { \"/home/ada/src\" = \"/work\" }, first the directory of this machine"
                .to_owned();
        let paths =
            PathMap::new(self.paths).map_err(|error| invalid(format!("`paths`: {error}"), Some(hint)))?;
        let defaults = AgentConfig::new(name, command);
        Ok(AgentConfig {
            sandbox: Sandbox { wrap: self.wrap.unwrap_or_default(), paths },
            env,
            pass_env: self.pass_env.unwrap_or(defaults.pass_env),
            process: self.process,
            version: self.version.or_else(|| self.dialect.map(Dialect::version)),
            dialect: self.dialect,
            fs: self.fs,
            idle: self.idle_minutes.map_or(IDLE, |minutes| Duration::from_secs(60 * u64::from(minutes))),
            startup_timeout: self.startup_timeout.unwrap_or(STARTUP_TIMEOUT),
            cancel_timeout: self.cancel_timeout.unwrap_or(CANCEL_TIMEOUT),
            ..defaults
        })
    }
}

/// Checks a name, which is used in URLs and flags.
fn check_name(name: &str) -> Result<(), String> {
    if is_name(name) {
        return Ok(());
    }
    Err(format!("invalid agent name '{name}': it may only contain letters, digits and -_."))
}

/// Whether a text consists of letters, digits and `-_.`.
pub(super) fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !name.is_empty() && name.bytes().all(is_allowed)
}

fn split_command(command: &str) -> Result<Vec<String>, String> {
    let words = shell_words::split(command).map_err(|error| format!("cannot split the command: {error}"))?;
    check_command(words)
}

fn check_command(words: Vec<String>) -> Result<Vec<String>, String> {
    match words.first() {
        Some(program) if !program.is_empty() => Ok(words),
        Some(_) | None => Err("the command is empty".to_owned()),
    }
}

pub(super) fn command<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    struct Command;

    impl<'de> Visitor<'de> for Command {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string, or a list of strings")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<String>, E> {
            split_command(text).map_err(E::custom)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<String>, A::Error> {
            let mut words = Vec::new();
            while let Some(word) = seq.next_element()? {
                words.push(word);
            }
            check_command(words).map_err(de::Error::custom)
        }
    }

    deserializer.deserialize_any(Command).map(Some)
}

fn version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u16>, D::Error> {
    match u16::deserialize(deserializer)? {
        version @ (1 | 2) => Ok(Some(version)),
        other => Err(de::Error::custom(format!("unsupported version {other} of the protocol: use 1 or 2"))),
    }
}

fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    match u32::deserialize(deserializer)? {
        0 => Err(de::Error::custom("a timeout must be at least 1 second")),
        seconds => Ok(Some(Duration::from_secs(seconds.into()))),
    }
}

fn dialect<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Dialect>, D::Error> {
    String::deserialize(deserializer)?.parse().map(Some).map_err(de::Error::custom)
}
