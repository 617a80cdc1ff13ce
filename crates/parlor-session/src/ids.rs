use std::fmt;

use parlor_json::JsonStr;
use serde::{Deserialize, Serialize};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        ///
        ///
        /// Opaque: compared as a string, never parsed. Any JSON string is valid, including the empty one.
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(JsonStr);

        impl $name {
            /// The id as a JSON string.
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
    /// Identifies a message in its session.
    MessageId;
    /// Identifies a tool call in its session.
    ToolCallId;
    /// Identifies a plan in its session.
    PlanId;
    /// Identifies a terminal in its session.
    TerminalId;
    /// Identifies a compaction of the context in its session.
    CompactionId;
    /// Identifies an event in its session.
    EventId;
    /// Identifies a session.
    SessionId;
}
