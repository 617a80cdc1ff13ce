//! What keys can do.

macro_rules! actions {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// An action that a key can have.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Action {
            $($(#[$doc])* $variant,)*
        }

        impl Action {
            /// All actions.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name in the configuration.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

actions! {
    /// Detaches after a second press.
    Interrupt = "detach",
    /// Closes the topmost thing, or cancels the turn.
    Escape = "escape",
    /// Opens a session by name.
    OpenSession = "open_session",
    /// Starts a new session.
    NewSession = "new_session",
    /// Shows the inbox.
    Inbox = "inbox",
    /// Searches all sessions.
    Search = "search",
    /// Lists all commands.
    Palette = "commands",
    /// Scrolls up by a page.
    PageUp = "page_up",
    /// Scrolls down by a page.
    PageDown = "page_down",
    /// Shows all keys.
    Help = "help",
    /// Suspends the program.
    Suspend = "suspend",
    /// Draws the screen again.
    Redraw = "redraw",
    /// Goes to the next pane or field, or switches between request and input.
    NextPane = "next_pane",
    /// Opens the picker of model, mode and options.
    Options = "options",
    /// Sends the prompt.
    Send = "send",
    /// Inserts a line break.
    NewLine = "new_line",
    /// The row, entry, field or line above.
    Previous = "previous",
    /// The row, entry, field or line below.
    Next = "next",
    /// Finds a prompt in the history.
    History = "history",
    /// Opens the text in an editor.
    Editor = "editor",
    /// Scrolls down by half a page.
    HalfDown = "half_page_down",
    /// Scrolls up by half a page.
    HalfUp = "half_page_up",
    /// The first row, entry or line.
    First = "first",
    /// The last row, entry or line.
    Last = "last",
    /// The previous prompt.
    PreviousPrompt = "previous_prompt",
    /// The next prompt.
    NextPrompt = "next_prompt",
    /// Unfolds or folds the entry.
    Toggle = "toggle",
    /// Unfolds or folds everything.
    ToggleAll = "toggle_all",
    /// Finds text in the conversation.
    Find = "find",
    /// The next hit.
    NextHit = "next_hit",
    /// The previous hit.
    PreviousHit = "previous_hit",
    /// Copies the text.
    Copy = "copy",
    /// Copies the text as Markdown.
    CopyMarkdown = "copy_markdown",
    /// Shows the text in a pager.
    View = "view",
    /// Forks the session.
    Fork = "fork",
    /// Edits a prompt.
    Edit = "edit",
    /// Regenerates an answer.
    Regenerate = "regenerate",
    /// Continues with another agent.
    OtherAgent = "other_agent",
    /// Withdraws a queued prompt.
    Withdraw = "withdraw",
    /// Sends the input, or a queued prompt, while a turn is running.
    SendNow = "send_now",
    /// Goes to the input.
    FocusInput = "input",
    /// Shows the fork tree.
    ForkTree = "fork_tree",
    /// Detaches.
    Detach = "quit",
    /// Folds.
    Collapse = "fold",
    /// Unfolds.
    Expand = "unfold",
    /// Opens or chooses.
    Open = "open",
    /// Filters the list.
    Filter = "filter",
    /// Changes the title.
    Title = "title",
    /// Archives, or restores what is archived.
    Archive = "archive",
    /// Shows or hides archived sessions.
    Archived = "archived",
    /// Deletes.
    Delete = "delete",
    /// Takes back an archiving or a deletion.
    Undo = "undo",
    /// Allows once.
    Allow = "allow",
    /// Allows always.
    AllowAlways = "allow_always",
    /// Rejects once.
    Reject = "reject",
    /// Rejects always.
    RejectAlways = "reject_always",
    /// The previous field.
    PreviousField = "previous_field",
    /// Switches a choice on or off.
    Switch = "switch",
    /// Changes where to search.
    Scope = "scope",
    /// The previous value of an option.
    ValueLeft = "value_left",
    /// The next value of an option.
    ValueRight = "value_right",
    /// Clears the text.
    Clear = "clear",
}
