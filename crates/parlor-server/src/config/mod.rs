//! `config.toml`: the configured agents and MCP servers, the address of the server and the targets of notifications.

#[cfg_attr(not(feature = "config"), expect(dead_code, reason = "the tables of the file are not read"))]
mod agent;
mod choice;
#[cfg(feature = "config")]
mod edit;
mod env;
mod installed;
mod mcp;
mod notify;
mod preset;
mod reload;
#[cfg(feature = "config")]
mod syntax;

#[cfg(feature = "config")]
use std::collections::BTreeMap;
#[cfg(feature = "config")]
use std::ffi::OsString;
#[cfg(feature = "config")]
use std::fs;
#[cfg(feature = "config")]
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr};
#[cfg(feature = "config")]
use std::path::Path;
use std::path::PathBuf;

#[cfg(feature = "config")]
use etcetera::BaseStrategy;
use serde::de::{self, Deserialize, Deserializer};

#[cfg(feature = "http")]
use crate::transport::HttpOptions;

pub use self::agent::{AgentConfig, EmbeddedAgent, ProcessMode, Sandbox};
pub use self::choice::{Agents, DefaultAgent, closest};
#[cfg(feature = "config")]
pub use self::edit::{set_default_agent, with_default_agent};
pub use self::env::{DEFAULT_PASS_ENV, chosen_env, chosen_env_from, matches};
pub use self::installed::{InstalledAgent, MANIFEST};
pub use self::mcp::{McpConfig, McpEndpoint};
pub use self::notify::{NotifyFormat, NotifyKind, NotifySink, NotifyTarget};
pub use self::preset::{PRESETS, Preset, installed, program_at};
pub(crate) use self::reload::ConfigWatch;
pub use self::reload::{ConfigSource, LoadedConfig};

/// The port of the HTTP listener unless another is chosen.
pub const DEFAULT_PORT: u16 = 7667;

/// The contents of `config.toml`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// The path of the file, if there is one.
    pub path: Option<PathBuf>,
    /// The name of the agent for clients that choose none.
    pub default_agent: Option<String>,
    /// The configured agents, sorted by name.
    pub agents: Vec<AgentConfig>,
    /// The MCP servers that agents get, sorted by name.
    pub mcp: Vec<McpConfig>,
    /// The address and access rules of the server.
    pub server: ServerConfig,
    /// The settings of the terminal client.
    pub client: ClientConfig,
    /// The targets of notifications.
    pub notify: Vec<NotifyTarget>,
    /// A registry of agents, whose entries come before those that parlor has.
    pub agent_registry: Option<PathBuf>,
    /// The installed agents, which are not part of the file.
    pub installed: Vec<InstalledAgent>,
}

/// The settings of the terminal client: `ascii`, `background` and the `[keys]` tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientConfig {
    /// Whether marks are ASCII.
    pub ascii: bool,
    /// The background of the terminal, if the terminal shall not be asked for it.
    pub background: Option<Background>,
    /// The keys of actions, in the order of the tables.
    pub keys: Vec<KeySetting>,
}

/// The background of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "config", derive(serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum Background {
    /// Dark, with light text.
    Dark,
    /// Light, with dark text.
    Light,
}

/// A setting such as `fork = "f"` in `[keys.messages]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySetting {
    /// The table: a part of the screen.
    pub place: String,
    /// The action.
    pub action: String,
    /// The keys, separated by spaces.
    pub keys: String,
    /// The line in the file, from 1 on.
    pub line: usize,
}

/// The `[server]` table.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// The address of the HTTP listener.
    #[serde(deserialize_with = "address")]
    pub listen: SocketAddr,
    /// Origins of pages that may connect, besides the server's own.
    pub origins: Vec<String>,
    /// Host names of the server, besides `localhost`.
    pub hosts: Vec<String>,
    /// Whether the address may be reachable from other machines.
    pub allow_remote: bool,
    /// Whether the server listens on the Unix socket only.
    pub socket_only: bool,
    /// How many seconds a server in the background stays without clients and turns before it stops; 0 for ever.
    pub idle_timeout: u32,
}

/// The default of [`ServerConfig::idle_timeout`]: half an hour.
const IDLE_TIMEOUT: u32 = 30 * 60;

/// A setting in a file or on the command line that is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{location}{}{message}", if location.is_empty() { "" } else { ": " })]
pub struct ConfigError {
    /// The file with the line or table, or the command-line flag; empty for a request of a client.
    pub location: String,
    /// What is wrong with the setting.
    pub message: String,
    /// How to correct it.
    pub hint: Option<String>,
}

#[cfg(feature = "config")]
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    default_agent: Option<String>,
    agent_registry: Option<PathBuf>,
    #[serde(default)]
    agents: BTreeMap<String, agent::Table>,
    #[serde(default)]
    mcp: BTreeMap<String, mcp::McpTable>,
    #[serde(default)]
    server: ServerConfig,
    #[serde(default)]
    ascii: bool,
    background: Option<Background>,
    #[serde(default)]
    keys: BTreeMap<String, BTreeMap<String, toml::Spanned<String>>>,
    #[serde(default)]
    notify: Vec<notify::NotifyTable>,
}

/// The configuration file of a server or a command.
#[cfg(feature = "config")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFile {
    path: PathBuf,
    /// Whether the file may be missing.
    is_optional: bool,
}

/// The longest configuration file.
#[cfg(feature = "config")]
const MAX_FILE: u64 = 1 << 20;

#[cfg(feature = "config")]
impl ConfigFile {
    /// Finds the file of the command line, else of `PARLOR_CONFIG`, else the [default](default_path), which may be missing.
    pub fn find(flag: Option<PathBuf>, env: Option<OsString>) -> Option<Self> {
        let named = flag.or_else(|| env.filter(|value| !value.is_empty()).map(PathBuf::from));
        match named {
            Some(path) => Some(Self { path, is_optional: false }),
            None => default_path().map(|path| Self { path, is_optional: true }),
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads its text; `None` if it is missing and may be.
    pub fn read(&self) -> Result<Option<String>, ConfigError> {
        let failed = |message: String, hint: Option<&str>| ConfigError {
            location: self.path.display().to_string(),
            message,
            hint: hint.map(str::to_owned),
        };
        let mut text = String::new();
        let read =
            fs::File::open(&self.path).and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text));
        match read {
            Ok(length) if length as u64 > MAX_FILE => {
                Err(failed("the configuration file is longer than 1 MiB".to_owned(), None))
            }
            Ok(_) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.is_optional => Ok(None),
            Err(error) => {
                let hint = (error.kind() == io::ErrorKind::NotFound).then_some(
                    "correct --config or PARLOR_CONFIG; without them the configuration file is optional",
                );
                Err(failed(format!("cannot read the configuration file: {error}"), hint))
            }
        }
    }

    /// Parses its text; a file that is missing has no settings.
    pub fn parse(&self, text: Option<&str>, installed: Vec<InstalledAgent>) -> Result<Config, ConfigError> {
        match text {
            Some(text) => Config::parse_with(text, &self.path, installed),
            None => Ok(Config { installed, ..Config::default() }),
        }
    }
}

#[cfg(feature = "config")]
impl Config {
    /// Reads the file of the command line, else of `PARLOR_CONFIG`, else the [default](default_path), which may be missing.
    pub fn load(
        flag: Option<PathBuf>,
        env: Option<OsString>,
        installed: Vec<InstalledAgent>,
    ) -> Result<Self, ConfigError> {
        match ConfigFile::find(flag, env) {
            Some(file) => file.parse(file.read()?.as_deref(), installed),
            None => Ok(Self { installed, ..Self::default() }),
        }
    }

    /// Reads and parses a file.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let file = ConfigFile { path: path.to_owned(), is_optional: false };
        file.parse(file.read()?.as_deref(), Vec::new())
    }

    /// Parses the text of a file; `path` is for errors.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        Self::parse_with(text, path, Vec::new())
    }

    /// [`parse`](Self::parse) with installed agents, whose commands agents without a `command` use.
    pub fn parse_with(text: &str, path: &Path, installed: Vec<InstalledAgent>) -> Result<Self, ConfigError> {
        let file: File = toml::from_str(text).map_err(|error| syntax::config_error(&error, text, path))?;
        let mut keys = Vec::new();
        for (place, actions) in file.keys {
            keys.extend(actions.into_iter().map(|(action, setting)| KeySetting {
                place: place.clone(),
                action,
                line: syntax::line_of(text, setting.span().start),
                keys: setting.into_inner(),
            }));
        }
        let location = path.display().to_string();
        let agents = file
            .agents
            .into_iter()
            .map(|(name, table)| table.into_agent(name, &location, &installed))
            .collect::<Result<_, _>>()?;
        let mcp = file.mcp.into_iter().map(|(name, table)| table.into_server(name, &location));
        let mcp = mcp.collect::<Result<_, _>>()?;
        Ok(Self {
            path: Some(path.to_owned()),
            default_agent: file.default_agent,
            agents,
            mcp,
            server: file.server,
            client: ClientConfig { ascii: file.ascii, background: file.background, keys },
            notify: notify::targets(file.notify, &location)?,
            // As seen from the file, so that it does not depend on the directory that a command runs in.
            agent_registry: file.agent_registry.map(|registry| match path.parent() {
                Some(directory) => directory.join(registry),
                None => registry,
            }),
            installed,
        })
    }
}

impl ServerConfig {
    /// The names of the settings that differ in another configuration.
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        let Self { listen, origins, hosts, allow_remote, socket_only, idle_timeout } = self;
        let all = [
            ("server.listen", *listen != other.listen),
            ("server.origins", *origins != other.origins),
            ("server.hosts", *hosts != other.hosts),
            ("server.allow_remote", *allow_remote != other.allow_remote),
            ("server.socket_only", *socket_only != other.socket_only),
            ("server.idle_timeout", *idle_timeout != other.idle_timeout),
        ];
        all.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }
}

#[cfg(feature = "http")]
impl ServerConfig {
    /// The options of the HTTP listener.
    pub fn http(&self) -> HttpOptions {
        HttpOptions {
            listen: self.listen,
            allow_remote: self.allow_remote,
            origins: self.origins.clone(),
            hosts: self.hosts.clone(),
        }
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT)),
            origins: Vec::new(),
            hosts: Vec::new(),
            allow_remote: false,
            socket_only: false,
            idle_timeout: IDLE_TIMEOUT,
        }
    }
}

#[cfg(feature = "config")]
/// The default path of `config.toml`.
pub fn default_path() -> Option<PathBuf> {
    Some(etcetera::base_strategy::Xdg::new().ok()?.config_dir().join("parlor").join("config.toml"))
}

fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|_| {
        de::Error::custom(format!("'{text}' is not an address with a port, such as 127.0.0.1:{DEFAULT_PORT}"))
    })
}
