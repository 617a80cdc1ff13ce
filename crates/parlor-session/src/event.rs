//! Events: entries that parlor itself writes about a conversation.

use std::fmt;

use jiff::Timestamp;
use parlor_json::{Json, JsonStr};

use crate::session::ClientId;
use crate::{EventId, MessageId, ToolCallId};

/// Milliseconds since 1970 by the caller's clock. Displayed as RFC 3339 in UTC; values outside the years -9999 to
/// 9999 are clamped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixMillis(pub i64);

/// Where a person has acted, by the name of the client: "on the command line", "by Zed".
pub fn acted_where(client: &str) -> String {
    match client {
        // Clients of this project: the person acted, not the program.
        "parlor" => "on the command line".to_owned(),
        "parlor terminal client" => "in the terminal client".to_owned(),
        name => format!("by {name}"),
    }
}

/// One event of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Unique in the session.
    pub id: EventId,
    /// The time of the event.
    pub at: UnixMillis,
    /// The kind of event with its data.
    pub kind: EventKind,
}

/// The kinds of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// A turn ended with an error.
    TurnFailed {
        /// The user message that started the turn, if any.
        prompt: Option<MessageId>,
        /// The error object.
        error: Option<Json>,
    },
    /// The agent refused to continue a turn.
    TurnRefused {
        /// The user message that started the turn, if any.
        prompt: Option<MessageId>,
    },
    /// A turn was cancelled.
    TurnCancelled {
        /// The user message that started the turn, if any.
        prompt: Option<MessageId>,
        /// The first client that cancelled it, if a client did.
        by: Option<Decider>,
        /// Whether the turn was ended without the agent, because the agent did not respond to the cancellation.
        unanswered: bool,
    },
    /// A person answered a permission request or another peer request.
    Decision(Decision),
    /// The agent session could not be restored, and the agent was sent the transcript instead.
    MemoryRebuilt {
        /// The reason, for people.
        reason: String,
    },
}

/// The answer to a peer request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The method of the request.
    pub request: String,
    /// The tool call that the request is about.
    pub tool_call: Option<ToolCallId>,
    /// The title of the request, for people.
    pub title: Option<JsonStr>,
    /// The tool input, or the command, that permission was requested for.
    pub input: Option<Json>,
    /// The outcome or action in the answer.
    pub outcome: Option<JsonStr>,
    /// The chosen option, as the request listed it.
    pub option: Option<Json>,
    /// The client that answered.
    pub by: Decider,
}

/// A client that made a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decider {
    /// Its connection.
    pub client: ClientId,
    /// The name that the client gave in `initialize`.
    pub name: Option<JsonStr>,
}

impl fmt::Display for UnixMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nearest = if self.0 < 0 { Timestamp::MIN } else { Timestamp::MAX };
        write!(f, "{:.3}", Timestamp::from_millisecond(self.0).unwrap_or(nearest))
    }
}

#[cfg(test)]
mod tests {
    use super::UnixMillis;

    #[test]
    fn a_time_is_written_as_rfc_3339_also_before_1970_and_on_leap_days() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_709_210_096_007, "2024-02-29T12:34:56.007Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (i64::MAX, "9999-12-30T22:00:00.999Z"),
            (i64::MIN, "-009999-01-02T01:59:59.000Z"),
        ] {
            assert_eq!(UnixMillis(millis).to_string(), text);
        }
    }
}
