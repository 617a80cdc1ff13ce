use std::fmt;

use parlor_json::JsonStr;
use serde::{Deserialize, Serialize};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// Opaque: compared as a string, never parsed. Any JSON string is one, also the empty one.
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(JsonStr);

        impl $name {
            /// The id as the JSON string it is.
            pub fn as_json(&self) -> &JsonStr {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(id: &str) -> Self {
                Self(id.into())
            }
        }

        impl From<JsonStr> for $name {
            fn from(id: JsonStr) -> Self {
                Self(id)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    )*};
}

ids! {
    /// Names one message within a session.
    MessageId;
    /// Names one tool call within a session.
    ToolCallId;
    /// Names one plan within a session.
    PlanId;
    /// Names one terminal within a session.
    TerminalId;
    /// Names one compaction of the context within a session.
    CompactionId;
    /// Names one event within a session.
    EventId;
    /// Names one session.
    SessionId;
}
