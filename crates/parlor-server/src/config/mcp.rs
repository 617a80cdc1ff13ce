//! The `[mcp.NAME]` tables: MCP servers that agents get in addition to those of clients.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

use parlor_engine::mcp::{McpServer, McpTransport};
use parlor_json::{Json, Object};

use super::{AgentConfig, Preset, program_at};
#[cfg(feature = "config")]
use super::{ConfigError, agent};

/// The name of parlor's own MCP server, which needs no command.
#[cfg(feature = "config")]
const OWN: &str = "parlor";

/// An MCP server of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpConfig {
    /// Its name, by which agents show its tools.
    pub name: String,
    /// Whether agents get it.
    pub is_enabled: bool,
    /// The agents that get it; all if `None`.
    pub agents: Option<Vec<String>>,
    /// How agents connect to it.
    pub endpoint: McpEndpoint,
}

/// How agents connect to an MCP server. `Debug` shows no secrets.
#[derive(Clone, PartialEq, Eq)]
pub enum McpEndpoint {
    /// Parlor's own server, `parlor mcp`.
    Own,
    /// A program that the agent starts.
    Command {
        /// The program and its arguments.
        words: Vec<String>,
        /// Variables that are set in its environment.
        env: BTreeMap<String, String>,
    },
    /// An address.
    Url {
        /// The address.
        url: String,
        /// Headers of every request.
        headers: BTreeMap<String, String>,
        /// Whether it has the older transport with server-sent events.
        is_sse: bool,
    },
}

impl fmt::Debug for McpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.transport().name())
    }
}

impl McpEndpoint {
    /// The transport in the protocol.
    pub fn transport(&self) -> McpTransport {
        match self {
            Self::Own | Self::Command { .. } => McpTransport::Stdio,
            Self::Url { is_sse: false, .. } => McpTransport::Http,
            Self::Url { is_sse: true, .. } => McpTransport::Sse,
        }
    }
}

impl McpConfig {
    /// Whether an agent gets it.
    pub fn is_for(&self, agent: &str) -> bool {
        self.is_enabled
            && self.agents.as_ref().is_none_or(|agents| {
                agents.iter().any(|name| name == agent || Preset::canonical_name(name) == agent)
            })
    }

    /// The program that has to exist on this machine, if it is started by one.
    pub fn program(&self) -> Option<&str> {
        match &self.endpoint {
            McpEndpoint::Command { words, .. } => words.first().map(String::as_str),
            McpEndpoint::Own | McpEndpoint::Url { .. } => None,
        }
    }
}

/// The servers of a configuration, with the paths of their programs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct McpServers(Vec<(McpConfig, McpServer)>);

impl McpServers {
    /// Finds the programs in `path_env` (the variable `PATH`). `data` is the data directory for parlor's own server, which is
    /// left out without one.
    pub(super) fn new(configured: &[McpConfig], path_env: &OsStr, data: Option<&Path>) -> Self {
        let server = |config: &McpConfig| {
            let members = members(&config.endpoint, path_env, data)?;
            let (name, transport) = (config.name.clone(), config.endpoint.transport());
            Some((config.clone(), McpServer { name, transport, members }))
        };
        Self(configured.iter().filter_map(server).collect())
    }

    /// The servers that an agent gets.
    pub(super) fn for_agent(&self, name: &str, config: Option<&AgentConfig>) -> Vec<McpServer> {
        let is_wrapped = config.is_some_and(|config| config.sandbox.is_wrapped());
        let servers = self.0.iter().filter(|(config, _)| config.is_for(name));
        servers
            .map(|(config, server)| {
                let mut server = server.clone();
                // Programs in a sandbox may be elsewhere.
                if let Some(program) = config.program().filter(|_| is_wrapped) {
                    server.members.set("command", program);
                }
                server
            })
            .collect()
    }
}

/// The members of a server in version 2 of the protocol.
fn members(endpoint: &McpEndpoint, path_env: &OsStr, data: Option<&Path>) -> Option<Object> {
    let pairs = |pairs: &BTreeMap<String, String>| {
        Json::array(pairs.iter().map(|(name, value)| Object::new().with("name", name).with("value", value)))
    };
    Some(match endpoint {
        McpEndpoint::Own => {
            let program = std::env::current_exe().ok()?;
            let args = ["mcp", "--data", data?.to_str()?];
            Object::new().with("command", &*program.to_string_lossy()).with("args", Json::array(args))
        }
        McpEndpoint::Command { words, env } => {
            let (program, args) = words.split_first()?;
            // The protocol requires absolute paths.
            let found = program_at(program, path_env).and_then(|path| std::path::absolute(path).ok());
            let found = found.map_or_else(|| program.clone(), |path| path.to_string_lossy().into_owned());
            Object::new().with("command", found).with("args", Json::array(args)).with("env", pairs(env))
        }
        McpEndpoint::Url { url, headers, .. } => {
            Object::new().with("url", url).with("headers", pairs(headers))
        }
    })
}

/// The `type` of a table with a `url`.
#[cfg(feature = "config")]
#[derive(Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum UrlType {
    Http,
    Sse,
}

/// An `[mcp.NAME]` table.
#[cfg(feature = "config")]
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct McpTable {
    #[serde(default, deserialize_with = "agent::command")]
    command: Option<Vec<String>>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    url: Option<String>,
    r#type: Option<UrlType>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    agents: Option<Vec<String>>,
    enabled: Option<bool>,
}

#[cfg(feature = "config")]
impl McpTable {
    /// Checks the table. Errors name no values, which may be secret.
    pub(super) fn into_server(self, name: String, file: &str) -> Result<McpConfig, ConfigError> {
        const ONE: &str = "set one of command = [\"program\", \"argument\"] and url = \"https://...\"";
        let fails = |message: &str, hint: &str| {
            Err(ConfigError {
                location: format!("{file}, [mcp.{name}]"),
                message: message.to_owned(),
                hint: Some(hint.to_owned()),
            })
        };
        if !agent::is_name(&name) {
            return fails("invalid name of an MCP server", "use letters, digits and -_.");
        }
        let endpoint = match (self.command, self.url) {
            (Some(_), Some(_)) => return fails("command and url are both set", ONE),
            (None, None) if name != OWN => return fails("neither command nor url is set", ONE),
            (Some(_) | None, None) if !self.headers.is_empty() || self.r#type.is_some() => {
                return fails("headers and type are for a url", ONE);
            }
            (None, None) if !self.env.is_empty() => {
                return fails("env is for a command", "parlor's own server needs no variables");
            }
            (None, None) => McpEndpoint::Own,
            (Some(words), None) => McpEndpoint::Command { words, env: self.env },
            (None, Some(_)) if !self.env.is_empty() => {
                return fails("env is for a command", "a url has headers = { Authorization = \"...\" }");
            }
            (None, Some(url)) => {
                if !["http://", "https://"]
                    .iter()
                    .any(|scheme| url.len() > scheme.len() && url.starts_with(scheme))
                {
                    return fails("url is not an address", "it begins with http:// or https://");
                }
                let is_sse = self.r#type == Some(UrlType::Sse);
                McpEndpoint::Url { url, headers: self.headers, is_sse }
            }
        };
        Ok(McpConfig { name, is_enabled: self.enabled.unwrap_or(true), agents: self.agents, endpoint })
    }
}
