//! The parts of the screen that have keys of their own.

/// A part of the screen that has keys of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyContext {
    /// Everywhere, unless the context itself has the key.
    Anywhere,
    /// The input, the messages and the sessions.
    Panes,
    /// The input box.
    Input,
    /// The conversation.
    Messages,
    /// The list of sessions and the fork tree.
    Sessions,
    /// The inbox.
    Inbox,
    /// A permission request.
    Request,
    /// A form.
    Form,
    /// Lists with a text field.
    List,
}

impl KeyContext {
    /// All contexts, in the order of the help.
    pub const ALL: [Self; 9] = [
        Self::Anywhere,
        Self::Panes,
        Self::Input,
        Self::Messages,
        Self::Sessions,
        Self::Inbox,
        Self::Request,
        Self::Form,
        Self::List,
    ];

    /// The heading in the help.
    pub fn title(self) -> &'static str {
        match self {
            Self::Anywhere => "Anywhere",
            Self::Panes => "Panes",
            Self::Input => "Input",
            Self::Messages => "Messages",
            Self::Sessions => "Sessions, fork tree",
            Self::Inbox => "Inbox",
            Self::Request => "Request",
            Self::Form => "Form",
            Self::List => "Lists with a text field",
        }
    }

    /// The name of its table in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Anywhere => "anywhere",
            Self::Panes => "panes",
            Self::Input => "input",
            Self::Messages => "messages",
            Self::Sessions => "sessions",
            Self::Inbox => "inbox",
            Self::Request => "request",
            Self::Form => "form",
            Self::List => "list",
        }
    }

    /// Whether the panes' common keys work here.
    pub(super) fn is_pane(self) -> bool {
        matches!(self, Self::Input | Self::Messages | Self::Sessions)
    }
}
