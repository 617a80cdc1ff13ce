//! What the two ends of a server's Unix socket say before the protocol begins.

use std::path::PathBuf;

use parlor_json::JsonRef;
use serde::{Deserialize, Serialize};

/// The version of the greeting.
pub const VERSION: u32 = 1;

/// The first line of a client that brings its surroundings along.
///
/// It is no message of the protocol, so no client says it by chance; one that begins with a message is welcome as well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The version of the greeting; see [`VERSION`].
    pub parlor: u32,
    /// Which agent the client wants; the default one if none.
    #[serde(default)]
    pub agent: Option<Agent>,
    /// The name of the dialect that version 2 of the protocol means.
    #[serde(default)]
    pub dialect: Option<String>,
    /// The variables of its environment.
    #[serde(default)]
    pub env: Vec<(String, String)>,
    /// Where it works.
    #[serde(default)]
    pub cwd: Option<PathBuf>,
}

/// An agent, as a client asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Agent {
    /// One that the server knows.
    Name(String),
    /// The program and its arguments.
    Command(Vec<String>),
}

/// The server's answer to a [`Hello`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The version of the greeting.
    pub parlor: u32,
    /// The server's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The server's process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Why the client is not welcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Hello {
    /// A greeting of today's version that wishes for nothing.
    pub fn new() -> Self {
        Self { parlor: VERSION, agent: None, dialect: None, env: Vec::new(), cwd: None }
    }

    /// Reads the first line of a connection. `None` if it is no greeting; what is wrong if it is a bad one.
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
                "this server speaks version {VERSION} of the greeting, not {theirs}: \
                 both ends must be of the same release of parlor"
            )));
        }
        Some(serde_json::from_str(line).map_err(|error| format!("the greeting cannot be read: {error}")))
    }

    /// The greeting as a line, with its end.
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
    /// The client may go on, with a server of this version and process.
    pub fn come_in(version: &str, pid: u32) -> Self {
        Self { parlor: VERSION, version: Some(version.to_owned()), pid: Some(pid), error: None }
    }

    /// The client may not.
    pub fn refused(why: impl Into<String>) -> Self {
        Self { parlor: VERSION, version: None, pid: None, error: Some(why.into()) }
    }

    /// The answer as a line, with its end.
    pub fn to_line(&self) -> String {
        to_line(self)
    }
}

fn to_line(greeting: &impl Serialize) -> String {
    let mut line = serde_json::to_string(greeting).expect("strings and numbers can be written");
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let hello = Hello {
            agent: Some(Agent::Command(vec!["a".into(), "b c".into()])),
            dialect: Some("draft".into()),
            env: vec![("K".into(), "v\n".into())],
            cwd: Some("/tmp".into()),
            ..Hello::new()
        };
        let line = hello.to_line();
        assert_eq!(
            line,
            "{\"parlor\":1,\"agent\":{\"command\":[\"a\",\"b c\"]},\"dialect\":\"draft\",\
             \"env\":[[\"K\",\"v\\n\"]],\"cwd\":\"/tmp\"}\n"
        );
        assert_eq!(Hello::read(&line), Some(Ok(hello)));
    }

    #[test]
    fn only_greetings_are_greetings() {
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
            (r#"{"parlor":1,"agent":7}"#, "cannot be read"),
        ] {
            let refused = Hello::read(line).unwrap().unwrap_err();
            assert!(refused.contains(part), "{line}: {refused}");
        }
    }
}
