//! Events: what happened to a conversation besides what was said in it, and stays visible there.

use std::fmt;

use jiff::Timestamp;
use parlor_json::{Json, JsonStr};

use crate::session::ClientId;
use crate::{EventId, MessageId, ToolCallId};

/// A time in milliseconds since 1970, as the caller's clock shows it. It is written as RFC 3339 in UTC; one beyond the
/// years -9999 to 9999 as the nearest within them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixMillis(pub i64);

/// One event of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its id, unique in the session.
    pub id: EventId,
    /// When it happened.
    pub at: UnixMillis,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// A turn ended with an error.
    TurnFailed {
        /// The user message that began the turn, if one did.
        prompt: Option<MessageId>,
        /// The error object.
        error: Option<Json>,
    },
    /// The agent refused to go on with a turn.
    TurnRefused {
        /// The user message that began the turn, if one did.
        prompt: Option<MessageId>,
    },
    /// A turn was cancelled.
    TurnCancelled {
        /// The user message that began the turn, if one did.
        prompt: Option<MessageId>,
        /// Who cancelled it first, if a client did.
        by: Option<Decider>,
        /// Whether the turn ended without the agent, which did not answer the cancellation.
        unanswered: bool,
    },
    /// A person answered a permission request or another peer request.
    Decision(Decision),
    /// The agent lost its memory of the session and was given the transcript instead.
    MemoryRebuilt {
        /// Why, for people.
        reason: String,
    },
}

/// The answer to a peer request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The method of the request.
    pub request: String,
    /// The tool call that it is about.
    pub tool_call: Option<ToolCallId>,
    /// The title of the request, for people.
    pub title: Option<JsonStr>,
    /// The input of the tool, or the command, that permission was asked for.
    pub input: Option<Json>,
    /// What was chosen: the outcome or action that the answer names.
    pub outcome: Option<JsonStr>,
    /// The option that was chosen, as the request listed it.
    pub option: Option<Json>,
    /// Who decided.
    pub by: Decider,
}

/// A client that decided something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decider {
    /// Its connection.
    pub client: ClientId,
    /// The name that it gave itself.
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
