//! The strings that the protocol has for something, as enums that keep unknown values.

use std::borrow::Cow;
use std::fmt;

use parlor_json::JsonStr;

/// Defines an enum of the strings that the protocol has for something, with a variant for unknown ones.
macro_rules! protocol_strings {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
            /// Any other value, as the peer sent it.
            Other(JsonStr),
        }

        impl $name {
            /// The value as the protocol has it.
            pub fn as_str(&self) -> Cow<'_, str> {
                match self {
                    $(Self::$variant => Cow::Borrowed($text),)*
                    Self::Other(value) => value.to_text(),
                }
            }
        }

        impl From<&str> for $name {
            fn from(value: &str) -> Self {
                match value {
                    $($text => Self::$variant,)*
                    _ => Self::Other(value.into()),
                }
            }
        }

        impl From<&JsonStr> for $name {
            fn from(value: &JsonStr) -> Self {
                match &*value.to_text() {
                    $($text => Self::$variant,)*
                    _ => Self::Other(value.clone()),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.as_str())
            }
        }
    };
}

protocol_strings! {
    /// Why a turn ended.
    ///
    /// A client of version 1 receives a reason that its version does not have as `end_turn`.
    ///
    /// ```
    /// use parlor_wire::StopReason;
    ///
    /// assert_eq!(StopReason::EndTurn.as_str(), "end_turn");
    /// assert_eq!(StopReason::from("_budget"), StopReason::Other("_budget".into()));
    /// ```
    StopReason {
        /// The agent finished.
        EndTurn = "end_turn",
        /// The model reached its limit of tokens.
        MaxTokens = "max_tokens",
        /// The agent reached its limit of model requests in one turn.
        MaxTurnRequests = "max_turn_requests",
        /// The agent refused to go on.
        Refusal = "refusal",
        /// The turn was cancelled. The library ends a turn that a client cancels with this reason by itself.
        Cancelled = "cancelled",
    }
}

protocol_strings! {
    /// What sort of operation a tool call is. The protocol's own `other` is [`ToolKind::Other`].
    ToolKind {
        /// Reads files or data.
        Read = "read",
        /// Changes files.
        Edit = "edit",
        /// Removes files or data.
        Delete = "delete",
        /// Moves or renames files.
        Move = "move",
        /// Searches.
        Search = "search",
        /// Runs commands.
        Execute = "execute",
        /// Plans or reasons.
        Think = "think",
        /// Retrieves external data.
        Fetch = "fetch",
        /// Changes the session's mode.
        SwitchMode = "switch_mode",
    }
}

protocol_strings! {
    /// How far a tool call has come.
    ToolCallStatus {
        /// It has not started.
        Pending = "pending",
        /// It runs.
        InProgress = "in_progress",
        /// It waits, for instance for a permission.
        Paused = "paused",
        /// It succeeded.
        Completed = "completed",
        /// It failed.
        Failed = "failed",
        /// It was cancelled.
        Cancelled = "cancelled",
    }
}

protocol_strings! {
    /// What selecting a permission option means.
    PermissionOptionKind {
        /// Allows this operation.
        AllowOnce = "allow_once",
        /// Allows this operation and remembers the choice.
        AllowAlways = "allow_always",
        /// Rejects this operation.
        RejectOnce = "reject_once",
        /// Rejects this operation and remembers the choice.
        RejectAlways = "reject_always",
    }
}

protocol_strings! {
    /// How far an entry of a plan has come.
    PlanEntryStatus {
        /// It has not started.
        Pending = "pending",
        /// The agent works on it.
        InProgress = "in_progress",
        /// It is done.
        Completed = "completed",
        /// It will not be done. Clients of version 1 do not have this status.
        Cancelled = "cancelled",
    }
}

protocol_strings! {
    /// How important an entry of a plan is.
    PlanEntryPriority {
        /// The goal depends on it.
        High = "high",
        /// It is important.
        Medium = "medium",
        /// It is optional.
        Low = "low",
    }
}

protocol_strings! {
    /// Content that prompts may have besides text and links.
    PromptCapability {
        /// Images.
        Image = "image",
        /// Recordings.
        Audio = "audio",
        /// Resources with their contents.
        EmbeddedContext = "embeddedContext",
    }
}

protocol_strings! {
    /// What a setting is about, so that clients show it where people look for it.
    SettingCategory {
        /// A mode. Its values are the modes of version 1.
        Mode = "mode",
        /// A model.
        Model = "model",
        /// How much the model thinks.
        ThoughtLevel = "thought_level",
    }
}

impl PermissionOptionKind {
    /// Whether the option allows the operation. An unknown kind does not.
    pub fn allows(&self) -> bool {
        matches!(self, Self::AllowOnce | Self::AllowAlways)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that all values of a type are converted to these strings and back.
    macro_rules! check {
        ($name:ident: $($text:literal)*) => {
            $(
                let value = $name::from($text);
                assert!(!matches!(value, $name::Other(_)), "{} is a variant of {}", $text, stringify!($name));
                assert_eq!(value.as_str(), $text);
                assert_eq!(value.to_string(), $text);
            )*
            let unknown = $name::from("_later");
            assert_eq!(unknown, $name::Other("_later".into()));
            assert_eq!(unknown.as_str(), "_later");
        };
    }

    #[test]
    fn strings_of_the_protocol_are_converted_both_ways_and_unknown_ones_are_kept() {
        check!(StopReason: "end_turn" "max_tokens" "max_turn_requests" "refusal" "cancelled");
        check!(ToolKind: "read" "edit" "delete" "move" "search" "execute" "think" "fetch" "switch_mode");
        check!(ToolCallStatus: "pending" "in_progress" "paused" "completed" "failed" "cancelled");
        check!(PlanEntryStatus: "pending" "in_progress" "completed" "cancelled");
        check!(PlanEntryPriority: "high" "medium" "low");
        check!(PermissionOptionKind: "allow_once" "allow_always" "reject_once" "reject_always");
        check!(SettingCategory: "mode" "model" "thought_level");
        check!(PromptCapability: "image" "audio" "embeddedContext");
    }
}
