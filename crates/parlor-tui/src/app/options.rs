//! What the client is started with.

use jiff::tz::TimeZone;
use parlor_client::SessionId;

use crate::keys::KeyMap;
use crate::theme::Theme;

/// The settings and arguments of the client.
#[derive(Debug, Clone)]
pub struct TerminalOptions {
    /// Styles and marks.
    pub theme: Theme,
    /// The keys.
    pub keys: KeyMap,
    /// The time zone of shown times.
    pub zone: TimeZone,
    /// The home directory.
    pub home: Option<String>,
    /// The directory of new sessions.
    pub cwd: String,
    /// The agent of new sessions; the default one if missing.
    pub agent: Option<String>,
    /// The session that is shown first.
    pub start: Start,
    /// The version of the program.
    pub version: String,
    /// The command that starts the server; `None` if it runs on another machine.
    pub serve: Option<String>,
    /// The command that logs in to an agent, whose name follows; empty if the agents run on another machine.
    pub login: Vec<String>,
}

/// The session that the client shows first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// The latest session of the directory, or a new one.
    Latest,
    /// A session and its working directory.
    Session(SessionId, String),
    /// A session of a remote server by a prefix of its id or title.
    Named(String),
    /// A new session.
    New,
    /// An agent without a server.
    Direct,
}
