//! The strings that the protocol has for something, as enums that keep unknown values.

/// Defines an enum of the strings that the protocol has for something, with a variant for other ones.
macro_rules! protocol_strings {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
            /// Any other value, as the protocol has it.
            Other(String),
        }

        impl $name {
            /// The value as the protocol has it.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)*
                    Self::Other(value) => value,
                }
            }
        }

        impl From<&str> for $name {
            fn from(value: &str) -> Self {
                match value {
                    $($text => Self::$variant,)*
                    _ => Self::Other(value.to_owned()),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

pub(crate) use protocol_strings;

#[cfg(test)]
mod tests {
    use crate::{
        PermissionOptionKind, PlanEntryPriority, PlanEntryStatus, PromptCapability, SettingCategory,
        StopReason, ToolCallStatus, ToolKind,
    };

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
            assert_eq!(unknown, $name::Other("_later".to_owned()));
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
