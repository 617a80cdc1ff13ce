//! The handshake on a server's Unix socket, before the first message of the protocol.

use std::path::PathBuf;

use parlor_json::JsonRef;
use serde::{Deserialize, Serialize};

/// The version of the handshake.
pub const VERSION: u32 = 1;

/// The first line of a client that sends its environment and working directory.
///
/// It is not a JSON-RPC message. A client may also start with a JSON-RPC message and send no `Hello`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The version of the handshake; see [`VERSION`].
    pub parlor: u32,
    /// The requested agent; the default one if missing.
    #[serde(default)]
    pub agent: Option<Agent>,
    /// The name of the dialect to use for version 2 of the protocol.
    #[serde(default)]
    pub dialect: Option<String>,
    /// The client's environment variables.
    #[serde(default)]
    pub env: Vec<(String, String)>,
    /// The client's working directory.
    #[serde(default)]
    pub cwd: Option<PathBuf>,
    /// Whether the client only observes: it receives updates, and can neither change a session nor answer requests.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub observer: bool,
    /// The client's name, for calls that it sends without `initialize`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// An agent that a client requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Agent {
    /// An agent by its name in the server's configuration.
    Name(String),
    /// A program and its arguments.
    Command(Vec<String>),
}

/// The server's response to a [`Hello`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The version of the handshake.
    pub parlor: u32,
    /// The server's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The server's process id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The reason why the server rejects the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Hello {
    /// Creates a `Hello` of the current version without optional fields.
    pub fn new() -> Self {
        Self {
            parlor: VERSION,
            agent: None,
            dialect: None,
            env: Vec::new(),
            cwd: None,
            observer: false,
            name: None,
        }
    }

    /// Parses the first line of a connection; returns `None` if it is not a `Hello`, and an error message if it is an
    /// invalid one.
    pub fn read(line: &str) -> Option<Result<Self, String>> {
        #[derive(Deserialize)]
        struct Probe<'a> {
            #[serde(borrow)]
            parlor: JsonRef<'a>,
            #[serde(borrow)]
            jsonrpc: Option<JsonRef<'a>>,
        }
        let probe: Probe<'_> = serde_json::from_str(line).ok()?;
        if probe.jsonrpc.is_some() {
            return None;
        }
        if probe.parlor.as_str() != VERSION.to_string() {
            let theirs = probe.parlor.as_str();
            return Some(Err(format!(
                "this server supports handshake version {VERSION}, not {theirs}: \
                 use the same release of parlor for client and server"
            )));
        }
        Some(serde_json::from_str(line).map_err(|error| format!("invalid handshake: {error}")))
    }

    /// Encodes the `Hello` as a line with its line end.
    pub fn to_line(&self) -> String {
        to_line(self)
    }
}

impl Default for Hello {
    fn default() -> Self {
        Self::new()
    }
}

impl Welcome {
    /// Accepts the client, with the server's version and process id.
    pub fn accept(version: &str, pid: u32) -> Self {
        Self { parlor: VERSION, version: Some(version.to_owned()), pid: Some(pid), error: None }
    }

    /// Rejects the client.
    pub fn reject(reason: impl Into<String>) -> Self {
        Self { parlor: VERSION, version: None, pid: None, error: Some(reason.into()) }
    }

    /// Encodes the `Welcome` as a line with its line end.
    pub fn to_line(&self) -> String {
        to_line(self)
    }
}

fn to_line(handshake: &impl Serialize) -> String {
    let mut line = serde_json::to_string(handshake).expect("strings and numbers can be encoded");
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoded_hello_is_parsed_again() {
        let hello = Hello {
            agent: Some(Agent::Command(vec!["a".into(), "b c".into()])),
            dialect: Some("draft".into()),
            env: vec![("K".into(), "v\n".into())],
            cwd: Some("/tmp".into()),
            name: Some("parlor".into()),
            ..Hello::new()
        };
        let line = hello.to_line();
        assert_eq!(
            line,
            "{\"parlor\":1,\"agent\":{\"command\":[\"a\",\"b c\"]},\"dialect\":\"draft\",\
             \"env\":[[\"K\",\"v\\n\"]],\"cwd\":\"/tmp\",\"name\":\"parlor\"}\n"
        );
        assert_eq!(Hello::read(&line), Some(Ok(hello)));
    }

    #[test]
    fn messages_are_not_a_hello_and_an_invalid_hello_is_an_error() {
        for line in [
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#,
            r#"{"jsonrpc":"2.0","method":"x","parlor":1}"#,
            "[1]",
            "what",
        ] {
            assert_eq!(Hello::read(line), None, "{line}");
        }
        assert_eq!(Hello::read(r#"{"parlor":1,"later":true}"#), Some(Ok(Hello::new())));
        for (line, part) in [
            (r#"{"parlor":2,"agent":7}"#, "not 2"),
            (r#"{"parlor":"x"}"#, "not \"x\""),
            (r#"{"parlor":1,"agent":7}"#, "invalid handshake"),
        ] {
            let error = Hello::read(line).unwrap().unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
