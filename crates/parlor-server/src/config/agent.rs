use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parlor_dialect::Dialect;
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};

use tokio::io::DuplexStream;

use super::env::DEFAULT_PASS_ENV;
use super::{ConfigError, Preset};
use crate::services::access::FileAccess;

/// How long an agent may take until it can be prompted.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(30);

/// How long an agent may take to end a turn that was cancelled.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a process that nobody uses is kept.
const IDLE: Duration = Duration::from_secs(30 * 60);

/// How an agent is started, and what it is known to speak.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentConfig {
    /// The name by which clients ask for it.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Variables that are added to its environment.
    pub env: BTreeMap<String, String>,
    /// Names of variables that it gets from its client; `*` stands for any characters.
    pub pass_env: Vec<String>,
    /// How sessions share processes.
    pub process: ProcessMode,
    /// The version of the protocol that it speaks, if it need not be asked.
    pub version: Option<u16>,
    /// The dialect of it.
    pub dialect: Option<Dialect>,
    /// How long a process is kept that no session uses.
    pub idle: Duration,
    /// Which files it may read and write through parlor.
    pub fs: FileAccess,
    /// An agent inside this process, in place of a program.
    pub local: Option<Local>,
    /// How long it may take in all to start, in both versions of the protocol, and to begin, restore or fork a session.
    pub startup_timeout: Duration,
    /// How long it may take to end a turn that was cancelled.
    pub cancel_timeout: Duration,
}

/// How an agent inside this process is started: it is handed the other end of what would be its standard streams, and
/// speaks version 2 of the protocol there.
///
/// Its sessions have the names that the hub gives them: `session/new` and `session/fork` say them in
/// `_meta["parlor/session"]`.
#[derive(Clone)]
pub struct Local(Arc<dyn Fn(DuplexStream) + Send + Sync>);

impl Local {
    /// One that is started by this function, which must not block.
    pub fn new(start: impl Fn(DuplexStream) + Send + Sync + 'static) -> Self {
        Self(Arc::new(start))
    }

    pub(crate) fn start(&self, stream: DuplexStream) {
        (self.0)(stream);
    }
}

impl PartialEq for Local {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Local {}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Local")
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

/// One `[agents.NAME]` part.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    #[serde(default, deserialize_with = "command")]
    command: Option<Vec<String>>,
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
    /// An agent that is started by this command, with everything else as usual.
    pub fn new(name: impl Into<String>, command: Vec<String>) -> Self {
        Self {
            name: name.into(),
            command,
            env: BTreeMap::new(),
            pass_env: DEFAULT_PASS_ENV.map(str::to_owned).into(),
            process: ProcessMode::default(),
            version: None,
            dialect: None,
            idle: IDLE,
            fs: FileAccess::default(),
            local: None,
            startup_timeout: STARTUP_TIMEOUT,
            cancel_timeout: CANCEL_TIMEOUT,
        }
    }

    /// An agent inside this process, which stays.
    pub fn local(name: impl Into<String>, local: Local) -> Self {
        let name = name.into();
        let command = vec![format!("(inside) {name}")];
        let (pass_env, idle) = (Vec::new(), Duration::MAX);
        Self { local: Some(local), pass_env, idle, ..Self::new(name, command) }
    }

    /// Reads `NAME=COMMAND`, as it stands on the command line. The command is split as a shell would, without one.
    pub fn from_flag(flag: &str) -> Result<Self, ConfigError> {
        let wrong = |message: String, hint: &str| ConfigError {
            location: format!("--agent {flag}"),
            message,
            hint: Some(hint.to_owned()),
        };
        let Some((name, command)) = flag.split_once('=') else {
            return Err(wrong("there is no '='".to_owned(), EXAMPLE));
        };
        check_name(name).map_err(|message| wrong(message, EXAMPLE))?;
        match words(command) {
            Ok(command) => Ok(Self::new(name, command)),
            Err(message) => Err(wrong(message, EXAMPLE)),
        }
    }
}

const EXAMPLE: &str = "write it as --agent 'NAME=COMMAND ARGUMENTS', such as --agent 'gemini=gemini --acp'";

impl Table {
    /// The agent that is meant. One that has the name of a preset need not say its command.
    pub(super) fn into_agent(self, name: String, file: &str) -> Result<AgentConfig, ConfigError> {
        let wrong = |message: String, hint: Option<String>| ConfigError {
            location: format!("{file}, [agents.{name}]"),
            message,
            hint,
        };
        check_name(&name).map_err(|message| wrong(message, None))?;
        let command = match (self.command, Preset::named(&name)) {
            (Some(command), _) => command,
            (None, Some(preset)) => preset
                .command()
                .map_err(|error| wrong(format!("the command of the preset is not known: {error}"), None))?,
            (None, None) => {
                let hint = "add a line such as command = [\"my-agent\", \"acp\"]".to_owned();
                return Err(wrong("there is no command".to_owned(), Some(hint)));
            }
        };
        if let (Some(version), Some(dialect)) = (self.version, self.dialect)
            && version != dialect.version()
        {
            let belongs = dialect.version();
            let message = format!("dialect '{dialect}' belongs to version {belongs}, not {version}");
            return Err(wrong(message, Some("leave out one of the two".to_owned())));
        }
        let usual = AgentConfig::new(name, command);
        Ok(AgentConfig {
            env: self.env,
            pass_env: self.pass_env.unwrap_or(usual.pass_env),
            process: self.process,
            version: self.version.or_else(|| self.dialect.map(Dialect::version)),
            dialect: self.dialect,
            fs: self.fs,
            idle: self.idle_minutes.map_or(IDLE, |minutes| Duration::from_secs(60 * u64::from(minutes))),
            startup_timeout: self.startup_timeout.unwrap_or(STARTUP_TIMEOUT),
            cancel_timeout: self.cancel_timeout.unwrap_or(CANCEL_TIMEOUT),
            ..usual
        })
    }
}

/// Names stand in addresses and flags.
fn check_name(name: &str) -> Result<(), String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !name.is_empty() && name.bytes().all(fits) {
        return Ok(());
    }
    Err(format!("'{name}' is no name: it may only hold letters, digits and -_."))
}

fn words(command: &str) -> Result<Vec<String>, String> {
    let words =
        shell_words::split(command).map_err(|error| format!("the command cannot be split: {error}"))?;
    check_command(words)
}

fn check_command(words: Vec<String>) -> Result<Vec<String>, String> {
    match words.first() {
        Some(program) if !program.is_empty() => Ok(words),
        Some(_) | None => Err("the command is empty".to_owned()),
    }
}

fn command<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    struct Command;

    impl<'de> Visitor<'de> for Command {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a command: a string, or a list of strings")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<String>, E> {
            words(text).map_err(E::custom)
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
        other => Err(de::Error::custom(format!("there is no version {other} of the protocol, only 1 and 2"))),
    }
}

fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    match u32::deserialize(deserializer)? {
        0 => Err(de::Error::custom("a timeout is at least 1 second")),
        seconds => Ok(Some(Duration::from_secs(seconds.into()))),
    }
}

fn dialect<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Dialect>, D::Error> {
    String::deserialize(deserializer)?.parse().map(Some).map_err(de::Error::custom)
}
