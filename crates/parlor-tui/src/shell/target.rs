//! What the client connects to.

use std::path::{Path, PathBuf};
use std::time::Duration;

use parlor_client::{Agent, Client, Connector, Error, Hello, Json, Version};

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// A server, or an agent without one.
#[derive(Debug, Clone)]
pub enum Target {
    /// The Unix socket of a local server.
    Socket {
        /// The socket.
        path: PathBuf,
        /// The environment for agents.
        env: Vec<(String, String)>,
    },
    /// A server at a `ws://` or `wss://` address.
    Url {
        /// The address.
        url: String,
        /// The access token.
        token: Option<String>,
    },
    /// An agent without a server: a program and its arguments.
    Command {
        /// The program and its arguments.
        command: Vec<String>,
        /// The working directory.
        cwd: String,
    },
}

impl Target {
    /// The server, for people.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Socket { path, .. } => path.display().to_string(),
            Self::Url { url, .. } => url.clone(),
            Self::Command { command, .. } => command.join(" "),
        }
    }

    pub(super) async fn connect(&self, agent: Option<&str>, cwd: &Path) -> Result<Client, Error> {
        let modes = Json::parse(r#"{"form":{},"url":{}}"#).expect("it is JSON");
        let connector = Connector::new("parlor terminal client", env!("CARGO_PKG_VERSION"))
            .capability("elicitation", modes)
            .with_clients()
            .with_times();
        let connecting = async {
            match self {
                Self::Socket { path, env } => {
                    let hello = Hello {
                        agent: agent.map(|agent| Agent::Name(agent.to_owned())),
                        env: env.clone(),
                        cwd: Some(cwd.to_owned()),
                        ..Hello::new()
                    };
                    connector.only(Version::V2).socket(path, &hello).await.map(|(client, _)| client)
                }
                Self::Url { url, token } => {
                    let url = with_agent(url, agent);
                    connector.only(Version::V2).url(&url, token.as_deref()).await
                }
                Self::Command { command, .. } => {
                    let (program, args) =
                        command.split_first().ok_or(Error::Protocol("the command is empty"))?;
                    let make = || {
                        let mut command = tokio::process::Command::new(program);
                        // Its standard error would be drawn over the screen.
                        command.args(args).current_dir(cwd).stderr(std::process::Stdio::null());
                        command
                    };
                    connector.spawn_with(make).await
                }
            }
        };
        tokio::time::timeout(CONNECT_TIMEOUT, connecting).await.unwrap_or_else(|_| {
            let text = format!("no answer within {} s", CONNECT_TIMEOUT.as_secs());
            Err(Error::Connect(std::io::Error::new(std::io::ErrorKind::TimedOut, text)))
        })
    }
}

/// A server's address with the choice of an agent.
fn with_agent(url: &str, agent: Option<&str>) -> String {
    let Some(agent) = agent else { return url.to_owned() };
    let escaped: String =
        agent
            .bytes()
            .map(|byte| {
                if byte.is_ascii_alphanumeric() {
                    char::from(byte).to_string()
                } else {
                    format!("%{byte:02X}")
                }
            })
            .collect();
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}agent={escaped}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_chosen_in_the_address() {
        assert_eq!(with_agent("ws://host/acp", Some("my agent")), "ws://host/acp?agent=my%20agent");
        assert_eq!(
            with_agent("ws://host/acp?dialect=draft", Some("demo")),
            "ws://host/acp?dialect=draft&agent=demo"
        );
        assert_eq!(with_agent("ws://host/acp", None), "ws://host/acp");
    }
}
