//! `[[notify]]`: programs and addresses that receive notifications for people.

use std::collections::BTreeMap;
use std::time::Duration;

#[cfg(feature = "config")]
use super::ConfigError;

/// The default of [`NotifyTarget::delay`].
const DELAY: Duration = Duration::from_secs(10);

/// The most targets.
#[cfg(feature = "config")]
const MAX_TARGETS: usize = 16;

/// The longest delay.
#[cfg(feature = "config")]
const MAX_DELAY: u64 = 24 * 60 * 60;

/// A `[[notify]]` table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotifyTarget {
    /// Where notifications are delivered.
    pub sink: NotifySink,
    /// The events that it is notified of.
    pub events: Vec<NotifyKind>,
    /// How long a request stays open, or a turn unseen, before a notification is sent.
    pub delay: Duration,
    /// The address of the page in links, if it is not the one on this machine.
    pub page: Option<String>,
    /// Whether notifications contain what an agent asks for or answered, and the title of the session.
    pub has_details: bool,
}

/// Where notifications are delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotifySink {
    /// An address, to which the event is posted.
    Url {
        /// An `http://` or `https://` address.
        url: String,
        /// The format of the request.
        format: NotifyFormat,
        /// Headers of the request.
        headers: BTreeMap<String, String>,
    },
    /// A program with its arguments. It gets the event in its environment, and as JSON in its standard input.
    Command(Vec<String>),
}

/// The format of a request with a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NotifyFormat {
    /// A JSON object.
    Json,
    /// The text, with title, priority, tags and link in the query, as ntfy has them.
    Ntfy,
}

/// An event that people are notified of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotifyKind {
    /// A request of an agent waits for a person.
    NeedsYou,
    /// A turn has ended.
    TurnEnded,
    /// A turn has failed.
    TurnFailed,
}

impl NotifyKind {
    /// All events.
    pub const ALL: [Self; 3] = [Self::NeedsYou, Self::TurnEnded, Self::TurnFailed];

    /// Its name in the configuration and in events.
    pub fn name(self) -> &'static str {
        match self {
            Self::NeedsYou => "needs_you",
            Self::TurnEnded => "turn_ended",
            Self::TurnFailed => "turn_failed",
        }
    }
}

impl NotifyTarget {
    /// A target for all events, with the default delay.
    pub fn new(sink: NotifySink) -> Self {
        Self { sink, events: NotifyKind::ALL.to_vec(), delay: DELAY, page: None, has_details: true }
    }

    /// The target without secrets, for logs: the host or the program.
    pub fn name(&self) -> String {
        match &self.sink {
            NotifySink::Url { url, .. } => url.split('/').take(3).collect::<Vec<_>>().join("/"),
            NotifySink::Command(words) => words.first().cloned().unwrap_or_default(),
        }
    }
}

/// The table as it is written.
#[cfg(feature = "config")]
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NotifyTable {
    url: Option<String>,
    format: Option<NotifyFormat>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    command: Option<Vec<String>>,
    events: Option<Vec<NotifyKind>>,
    delay: Option<u64>,
    page: Option<String>,
    details: Option<bool>,
}

/// Checks the tables. `location` is the file.
#[cfg(feature = "config")]
pub(super) fn targets(tables: Vec<NotifyTable>, location: &str) -> Result<Vec<NotifyTarget>, ConfigError> {
    if tables.len() > MAX_TARGETS {
        let message =
            format!("there are {} [[notify]] tables, and at most {MAX_TARGETS} are allowed", tables.len());
        return Err(ConfigError { location: location.to_owned(), message, hint: None });
    }
    let checked = tables.into_iter().enumerate().map(|(index, table)| {
        table.into_target().map_err(|(message, hint)| ConfigError {
            location: format!("{location}: [[notify]] {}", index + 1),
            message,
            hint: Some(hint.to_owned()),
        })
    });
    checked.collect()
}

#[cfg(feature = "config")]
impl NotifyTable {
    fn into_target(self) -> Result<NotifyTarget, (String, &'static str)> {
        const ONE: &str = "set one of url = \"https://...\" and command = [\"program\", \"argument\"]";
        let fails = |message: &str, hint| Err((message.to_owned(), hint));
        let sink = match (self.url, self.command) {
            (Some(_), Some(_)) => return fails("url and command are both set", ONE),
            (None, None) => return fails("neither url nor command is set", ONE),
            (None, Some(words)) if words.first().is_none_or(String::is_empty) => {
                return fails(
                    "the command is empty",
                    "write the program and its arguments: [\"notify-send\", \"parlor\"]",
                );
            }
            (None, Some(_)) if self.format.is_some() || !self.headers.is_empty() => {
                return fails(
                    "format and headers are for a url",
                    "remove them; a command gets the event as JSON",
                );
            }
            (None, Some(words)) => NotifySink::Command(words),
            (Some(url), None) => {
                if !is_web_address(&url) {
                    return Err((
                        format!("'{url}' is not an address such as https://ntfy.sh/topic"),
                        "it begins with http:// or https:// and has no user name; headers can have one",
                    ));
                }
                let bad = self.headers.iter().find(|(name, value)| !is_header(name, value));
                if let Some((name, _)) = bad {
                    return Err((
                        format!("'{name}' is not a header that can be sent"),
                        "use letters, digits and -",
                    ));
                }
                let format = self.format.unwrap_or_else(|| default_format(&url));
                NotifySink::Url { url, format, headers: self.headers }
            }
        };
        let events = self.events.unwrap_or_else(|| NotifyKind::ALL.to_vec());
        if events.is_empty() {
            return fails(
                "events is empty",
                "leave it out for all events, or list needs_you, turn_ended, turn_failed",
            );
        }
        if let Some(page) = self.page.as_deref().filter(|page| !is_web_address(page)) {
            return Err((
                format!("page '{page}' is not an address"),
                "write it as https://parlor.example.org",
            ));
        }
        if self.delay.is_some_and(|seconds| seconds > MAX_DELAY) {
            return fails("delay is longer than a day", "write it in seconds");
        }
        Ok(NotifyTarget {
            sink,
            events,
            delay: self.delay.map_or(DELAY, Duration::from_secs),
            page: self.page.map(|page| page.trim_end_matches('/').to_owned()),
            has_details: self.details.unwrap_or(true),
        })
    }
}

/// Whether a text is an `http://` or `https://` address with a host and without a user name.
#[cfg(feature = "config")]
fn is_web_address(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let host = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    host.is_some_and(|host| !host.is_empty() && !host.contains('@'))
        && text.bytes().all(|byte| byte.is_ascii_graphic())
        && !text.contains('#')
}

#[cfg(feature = "config")]
fn is_header(name: &str, value: &str) -> bool {
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let reserved = ["host", "content-length", "transfer-encoding", "connection"];
    is_name
        && !reserved.contains(&name.to_ascii_lowercase().as_str())
        && value.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')
}

/// Servers of ntfy have their own format of requests.
#[cfg(feature = "config")]
fn default_format(url: &str) -> NotifyFormat {
    let host = url.split('/').nth(2).unwrap_or_default();
    if host.starts_with("ntfy.") { NotifyFormat::Ntfy } else { NotifyFormat::Json }
}
