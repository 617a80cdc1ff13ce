//! The key map: which key does what where. The help, the hints and the configuration are generated from it.

#![expect(clippy::wildcard_enum_match_arm, reason = "few codes of keys are special")]

use std::fmt::{self, Write as _};
use std::str::FromStr;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

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

macro_rules! actions {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// What a key does.
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
    /// Archives.
    Archive = "archive",
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

/// A key with its modifiers. Shift is part of a letter, and not a modifier of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    code: KeyCode,
    modifiers: KeyModifiers,
}

impl Key {
    /// A key without modifiers.
    pub const fn plain(code: KeyCode) -> Self {
        Self { code, modifiers: KeyModifiers::NONE }
    }

    /// The letter or other character that the key types, if it types one.
    pub fn typed(self) -> Option<char> {
        match self.code {
            KeyCode::Char(letter) if self.modifiers.is_empty() => Some(letter),
            _ => None,
        }
    }

    /// The code without modifiers.
    pub fn code(self) -> KeyCode {
        self.code
    }

    /// Whether Ctrl is held.
    pub fn is_ctrl(self) -> bool {
        self.modifiers.contains(KeyModifiers::CONTROL)
    }

    /// Whether Alt is held.
    pub fn is_alt(self) -> bool {
        self.modifiers.contains(KeyModifiers::ALT)
    }
}

impl From<KeyEvent> for Key {
    fn from(event: KeyEvent) -> Self {
        let mut modifiers =
            event.modifiers & (KeyModifiers::CONTROL | KeyModifiers::ALT | KeyModifiers::SHIFT);
        let code = match event.code {
            KeyCode::BackTab => {
                modifiers |= KeyModifiers::SHIFT;
                KeyCode::Tab
            }
            KeyCode::Char(letter) => {
                modifiers -= KeyModifiers::SHIFT;
                let is_ctrl = modifiers.contains(KeyModifiers::CONTROL);
                KeyCode::Char(if is_ctrl { letter.to_ascii_lowercase() } else { letter })
            }
            code => code,
        };
        Self { code, modifiers }
    }
}

/// A text that names no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a key: write it as in Ctrl-D, Alt-Enter, PgUp, F1, Space or j")]
pub struct UnknownKey(String);

impl FromStr for Key {
    type Err = UnknownKey;

    fn from_str(text: &str) -> Result<Self, UnknownKey> {
        let mut modifiers = KeyModifiers::NONE;
        let mut rest = text;
        loop {
            let prefix = [
                ("Ctrl-", KeyModifiers::CONTROL),
                ("Alt-", KeyModifiers::ALT),
                ("Shift-", KeyModifiers::SHIFT),
            ]
            .into_iter()
            .find(|(name, _)| {
                rest.len() > name.len()
                    && rest.is_char_boundary(name.len())
                    && rest[..name.len()].eq_ignore_ascii_case(name)
            });
            let Some((name, modifier)) = prefix else { break };
            modifiers |= modifier;
            rest = &rest[name.len()..];
        }
        let mut letters = rest.chars();
        let code = match (letters.next(), letters.next()) {
            (Some(letter), None) => {
                let is_ctrl = modifiers.contains(KeyModifiers::CONTROL);
                KeyCode::Char(if is_ctrl { letter.to_ascii_lowercase() } else { letter })
            }
            _ => named(rest).ok_or_else(|| UnknownKey(text.to_owned()))?,
        };
        Ok(Self { code, modifiers })
    }
}

const NAMED: [(&str, KeyCode); 14] = [
    ("Enter", KeyCode::Enter),
    ("Esc", KeyCode::Esc),
    ("Tab", KeyCode::Tab),
    ("Space", KeyCode::Char(' ')),
    ("Backspace", KeyCode::Backspace),
    ("Delete", KeyCode::Delete),
    ("Up", KeyCode::Up),
    ("Down", KeyCode::Down),
    ("Left", KeyCode::Left),
    ("Right", KeyCode::Right),
    ("Home", KeyCode::Home),
    ("End", KeyCode::End),
    ("PgUp", KeyCode::PageUp),
    ("PgDn", KeyCode::PageDown),
];

fn named(name: &str) -> Option<KeyCode> {
    if let Some((_, code)) = NAMED.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
        return Some(*code);
    }
    let number = name.strip_prefix(['F', 'f'])?.parse().ok()?;
    (1..=12).contains(&number).then_some(KeyCode::F(number))
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (modifier, name) in
            [(KeyModifiers::CONTROL, "Ctrl-"), (KeyModifiers::ALT, "Alt-"), (KeyModifiers::SHIFT, "Shift-")]
        {
            if self.modifiers.contains(modifier) {
                f.write_str(name)?;
            }
        }
        match (self.code, NAMED.iter().find(|(_, code)| *code == self.code)) {
            (_, Some((name, _))) => f.write_str(name),
            (KeyCode::Char(letter), None) if self.is_ctrl() => write!(f, "{}", letter.to_ascii_uppercase()),
            (KeyCode::Char(letter), None) => write!(f, "{letter}"),
            (KeyCode::F(number), None) => write!(f, "F{number}"),
            (code, None) => write!(f, "{code:?}"),
        }
    }
}

/// The keys of one action in one context.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Binding {
    context: KeyContext,
    action: Action,
    keys: Vec<Key>,
}

/// The keys of all actions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyMap {
    bindings: Vec<Binding>,
}

/// Why a key map was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyMapError {
    /// No context has this name.
    #[error(
        "there is no key context '{0}': choose anywhere, panes, input, messages, sessions, inbox, request, form or list"
    )]
    UnknownContext(String),
    /// The context has no action of this name.
    #[error("'{0}' has no action '{1}'")]
    UnknownAction(&'static str, String),
    /// A text names no key.
    #[error("{0}")]
    UnknownKey(#[from] UnknownKey),
    /// Two actions of one context have the same key.
    #[error("{key} is assigned twice in '{context}': to '{first}' and to '{second}'")]
    Twice {
        /// The context.
        context: &'static str,
        /// The key.
        key: String,
        /// The name of the first action.
        first: &'static str,
        /// The name of the second action.
        second: &'static str,
    },
}

const DEFAULTS: &[(KeyContext, Action, &str)] = &[
    (KeyContext::Anywhere, Action::Interrupt, "Ctrl-C"),
    (KeyContext::Anywhere, Action::Escape, "Esc"),
    (KeyContext::Anywhere, Action::OpenSession, "Ctrl-O"),
    (KeyContext::Anywhere, Action::NewSession, "Ctrl-N"),
    (KeyContext::Anywhere, Action::Inbox, "Ctrl-T"),
    (KeyContext::Anywhere, Action::Search, "Ctrl-F"),
    (KeyContext::Anywhere, Action::Palette, "Ctrl-P"),
    (KeyContext::Anywhere, Action::PageUp, "PgUp"),
    (KeyContext::Anywhere, Action::PageDown, "PgDn"),
    (KeyContext::Anywhere, Action::Help, "F1"),
    (KeyContext::Anywhere, Action::Suspend, "Ctrl-Z"),
    (KeyContext::Anywhere, Action::Redraw, "Ctrl-L"),
    (KeyContext::Panes, Action::NextPane, "Tab"),
    (KeyContext::Panes, Action::Options, "Shift-Tab"),
    (KeyContext::Input, Action::Send, "Enter"),
    (KeyContext::Input, Action::SendNow, "Ctrl-X"),
    (KeyContext::Input, Action::NewLine, "Ctrl-J Alt-Enter Shift-Enter"),
    (KeyContext::Input, Action::Previous, "Up"),
    (KeyContext::Input, Action::Next, "Down"),
    (KeyContext::Input, Action::History, "Ctrl-R"),
    (KeyContext::Input, Action::Editor, "Ctrl-G"),
    (KeyContext::Messages, Action::Next, "j Down"),
    (KeyContext::Messages, Action::Previous, "k Up"),
    (KeyContext::Messages, Action::HalfDown, "Ctrl-D"),
    (KeyContext::Messages, Action::HalfUp, "Ctrl-U"),
    (KeyContext::Messages, Action::First, "g Home"),
    (KeyContext::Messages, Action::Last, "G End"),
    (KeyContext::Messages, Action::PreviousPrompt, "["),
    (KeyContext::Messages, Action::NextPrompt, "]"),
    (KeyContext::Messages, Action::Toggle, "Enter Space"),
    (KeyContext::Messages, Action::ToggleAll, "z"),
    (KeyContext::Messages, Action::Find, "/"),
    (KeyContext::Messages, Action::NextHit, "n"),
    (KeyContext::Messages, Action::PreviousHit, "N"),
    (KeyContext::Messages, Action::Copy, "y"),
    (KeyContext::Messages, Action::CopyMarkdown, "Y"),
    (KeyContext::Messages, Action::View, "v"),
    (KeyContext::Messages, Action::Fork, "f"),
    (KeyContext::Messages, Action::Edit, "e"),
    (KeyContext::Messages, Action::Regenerate, "r"),
    (KeyContext::Messages, Action::OtherAgent, "a"),
    (KeyContext::Messages, Action::Withdraw, "w"),
    (KeyContext::Messages, Action::SendNow, "s"),
    (KeyContext::Messages, Action::FocusInput, "i"),
    (KeyContext::Messages, Action::ForkTree, "F"),
    (KeyContext::Messages, Action::Detach, "q"),
    (KeyContext::Messages, Action::Help, "?"),
    (KeyContext::Sessions, Action::Next, "j Down"),
    (KeyContext::Sessions, Action::Previous, "k Up"),
    (KeyContext::Sessions, Action::First, "g Home"),
    (KeyContext::Sessions, Action::Last, "G End"),
    (KeyContext::Sessions, Action::Collapse, "h Left"),
    (KeyContext::Sessions, Action::Expand, "l Right"),
    (KeyContext::Sessions, Action::Open, "Enter"),
    (KeyContext::Sessions, Action::Filter, "/"),
    (KeyContext::Sessions, Action::Title, "t"),
    (KeyContext::Sessions, Action::Archive, "x"),
    (KeyContext::Sessions, Action::Delete, "D"),
    (KeyContext::Sessions, Action::Undo, "u"),
    (KeyContext::Sessions, Action::ForkTree, "F"),
    (KeyContext::Sessions, Action::Detach, "q"),
    (KeyContext::Sessions, Action::Help, "?"),
    (KeyContext::Inbox, Action::Next, "j Down"),
    (KeyContext::Inbox, Action::Previous, "k Up"),
    (KeyContext::Inbox, Action::Allow, "y"),
    (KeyContext::Inbox, Action::AllowAlways, "a"),
    (KeyContext::Inbox, Action::Reject, "n"),
    (KeyContext::Inbox, Action::RejectAlways, "N"),
    (KeyContext::Inbox, Action::View, "v"),
    (KeyContext::Inbox, Action::HalfDown, "Ctrl-D"),
    (KeyContext::Inbox, Action::HalfUp, "Ctrl-U"),
    (KeyContext::Inbox, Action::Open, "Enter"),
    (KeyContext::Inbox, Action::Help, "?"),
    (KeyContext::Request, Action::Allow, "y"),
    (KeyContext::Request, Action::AllowAlways, "a"),
    (KeyContext::Request, Action::Reject, "n"),
    (KeyContext::Request, Action::RejectAlways, "N"),
    (KeyContext::Request, Action::Next, "j Down"),
    (KeyContext::Request, Action::Previous, "k Up"),
    (KeyContext::Request, Action::HalfDown, "Ctrl-D"),
    (KeyContext::Request, Action::HalfUp, "Ctrl-U"),
    (KeyContext::Request, Action::First, "g Home"),
    (KeyContext::Request, Action::Last, "G End"),
    (KeyContext::Request, Action::View, "v"),
    (KeyContext::Request, Action::NextPane, "Tab"),
    (KeyContext::Request, Action::Help, "?"),
    (KeyContext::Form, Action::NextPane, "Tab"),
    (KeyContext::Form, Action::PreviousField, "Shift-Tab"),
    (KeyContext::Form, Action::Previous, "Up"),
    (KeyContext::Form, Action::Next, "Down"),
    (KeyContext::Form, Action::Switch, "Space"),
    (KeyContext::Form, Action::Open, "Enter"),
    (KeyContext::List, Action::Previous, "Up"),
    (KeyContext::List, Action::Next, "Down"),
    (KeyContext::List, Action::Open, "Enter"),
    (KeyContext::List, Action::Scope, "Tab"),
    (KeyContext::List, Action::ValueLeft, "Left"),
    (KeyContext::List, Action::ValueRight, "Right"),
    (KeyContext::List, Action::Clear, "Ctrl-U"),
];

/// A part of the keys column of the help.
#[derive(Debug, Clone, Copy)]
enum Keys {
    /// The keys of these actions: the first key of each, then the second of each.
    Of(&'static [Action]),
    /// Keys that cannot be changed.
    Fixed(&'static str),
}

/// The rows of the help, in order.
const HELP: &[(KeyContext, &[Keys], &str)] = &[
    (KeyContext::Anywhere, &[Keys::Fixed("Ctrl-C Ctrl-C")], "detach; the turn goes on"),
    (KeyContext::Anywhere, &[Keys::Of(&[Action::Escape])], "close, go back; else cancel the turn"),
    (KeyContext::Anywhere, &[Keys::Of(&[Action::OpenSession])], "open a session by name"),
    (KeyContext::Anywhere, &[Keys::Of(&[Action::NewSession])], "new session"),
    (KeyContext::Anywhere, &[Keys::Of(&[Action::Inbox])], "inbox: requests that wait for you"),
    (KeyContext::Anywhere, &[Keys::Of(&[Action::Search])], "search all sessions"),
    (KeyContext::Anywhere, &[Keys::Of(&[Action::Palette])], "all commands by name"),
    (KeyContext::Anywhere, &[Keys::Of(&[Action::PageUp, Action::PageDown])], "scroll a page"),
    (KeyContext::Anywhere, &[Keys::Of(&[Action::Help])], "this help (? when you are not typing)"),
    (
        KeyContext::Anywhere,
        &[Keys::Of(&[Action::Suspend]), Keys::Of(&[Action::Redraw])],
        "suspend to the shell; redraw",
    ),
    (KeyContext::Panes, &[Keys::Of(&[Action::NextPane])], "next: input, messages, sessions"),
    (KeyContext::Panes, &[Keys::Of(&[Action::Options])], "model, mode and options"),
    (KeyContext::Input, &[Keys::Of(&[Action::Send])], "send; while a turn runs: queue"),
    (KeyContext::Input, &[Keys::Of(&[Action::SendNow])], "send now: into the running turn"),
    (KeyContext::Input, &[Keys::Of(&[Action::NewLine])], "new line"),
    (KeyContext::Input, &[Keys::Of(&[Action::Previous, Action::Next])], "queued prompts, then history"),
    (KeyContext::Input, &[Keys::Of(&[Action::History])], "find in the history"),
    (KeyContext::Input, &[Keys::Of(&[Action::Editor])], "write in $EDITOR"),
    (KeyContext::Input, &[Keys::Fixed("@  /")], "complete a file; an agent command"),
    (KeyContext::Input, &[Keys::Fixed("Ctrl-A E W U K Y")], "edit the line as in a shell"),
    (KeyContext::Messages, &[Keys::Of(&[Action::Next, Action::Previous])], "next, previous entry"),
    (KeyContext::Messages, &[Keys::Of(&[Action::HalfDown, Action::HalfUp])], "half a page down, up"),
    (KeyContext::Messages, &[Keys::Of(&[Action::First, Action::Last])], "first, last entry"),
    (
        KeyContext::Messages,
        &[Keys::Of(&[Action::PreviousPrompt, Action::NextPrompt])],
        "previous, next prompt",
    ),
    (KeyContext::Messages, &[Keys::Of(&[Action::Toggle])], "unfold, fold"),
    (KeyContext::Messages, &[Keys::Of(&[Action::ToggleAll])], "unfold, fold everything"),
    (
        KeyContext::Messages,
        &[Keys::Of(&[Action::Find]), Keys::Of(&[Action::NextHit, Action::PreviousHit])],
        "find here; next, previous hit",
    ),
    (KeyContext::Messages, &[Keys::Of(&[Action::Copy, Action::CopyMarkdown])], "copy text; copy as Markdown"),
    (KeyContext::Messages, &[Keys::Of(&[Action::View])], "view in $PAGER"),
    (KeyContext::Messages, &[Keys::Of(&[Action::Fork])], "fork here"),
    (KeyContext::Messages, &[Keys::Of(&[Action::Edit])], "edit the prompt (queued: in place)"),
    (KeyContext::Messages, &[Keys::Of(&[Action::Regenerate])], "regenerate the answer in a fork"),
    (KeyContext::Messages, &[Keys::Of(&[Action::OtherAgent])], "continue with another agent"),
    (
        KeyContext::Messages,
        &[Keys::Of(&[Action::Withdraw, Action::SendNow])],
        "queued prompt: withdraw, send now",
    ),
    (KeyContext::Messages, &[Keys::Of(&[Action::FocusInput])], "back to the input"),
    (KeyContext::Messages, &[Keys::Of(&[Action::ForkTree, Action::Detach])], "fork tree; detach"),
    (KeyContext::Sessions, &[Keys::Of(&[Action::Next, Action::Previous])], "next, previous row"),
    (KeyContext::Sessions, &[Keys::Of(&[Action::First, Action::Last])], "first, last row"),
    (KeyContext::Sessions, &[Keys::Of(&[Action::Collapse, Action::Expand])], "fold, unfold forks"),
    (KeyContext::Sessions, &[Keys::Of(&[Action::Open]), Keys::Of(&[Action::Filter])], "open; filter"),
    (KeyContext::Sessions, &[Keys::Of(&[Action::Title])], "change the title"),
    (
        KeyContext::Sessions,
        &[Keys::Of(&[Action::Archive, Action::Delete, Action::Undo])],
        "archive; delete; undo",
    ),
    (KeyContext::Sessions, &[Keys::Of(&[Action::ForkTree, Action::Detach])], "fork tree; detach"),
    (KeyContext::Inbox, &[Keys::Of(&[Action::Next, Action::Previous])], "next, previous request"),
    (
        KeyContext::Inbox,
        &[
            Keys::Fixed("1-9"),
            Keys::Of(&[
                Action::Allow,
                Action::AllowAlways,
                Action::Reject,
                Action::RejectAlways,
                Action::View,
            ]),
        ],
        "answer and view as in a request",
    ),
    (KeyContext::Inbox, &[Keys::Of(&[Action::HalfDown, Action::HalfUp])], "scroll what is permitted"),
    (KeyContext::Inbox, &[Keys::Of(&[Action::Open])], "open its session"),
    (KeyContext::Request, &[Keys::Fixed("1-9")], "choose the option with this number"),
    (KeyContext::Request, &[Keys::Of(&[Action::Allow, Action::AllowAlways])], "allow once; allow always"),
    (KeyContext::Request, &[Keys::Of(&[Action::Reject, Action::RejectAlways])], "reject once; reject always"),
    (KeyContext::Request, &[Keys::Of(&[Action::Next, Action::Previous])], "scroll what is permitted"),
    (KeyContext::Request, &[Keys::Of(&[Action::HalfDown, Action::HalfUp])], "half a page down, up"),
    (KeyContext::Request, &[Keys::Of(&[Action::First, Action::Last])], "first, last line"),
    (KeyContext::Request, &[Keys::Of(&[Action::View])], "view everything in $PAGER"),
    (KeyContext::Request, &[Keys::Of(&[Action::NextPane])], "to the input and back"),
    (
        KeyContext::Form,
        &[Keys::Of(&[Action::NextPane]), Keys::Of(&[Action::PreviousField])],
        "next, previous field",
    ),
    (
        KeyContext::Form,
        &[Keys::Of(&[Action::Previous, Action::Next]), Keys::Of(&[Action::Switch])],
        "choose; switch on or off",
    ),
    (KeyContext::Form, &[Keys::Of(&[Action::Open])], "next field; on Submit: send"),
    (KeyContext::List, &[Keys::Of(&[Action::Previous, Action::Next]), Keys::Of(&[Action::Open])], "choose"),
    (KeyContext::List, &[Keys::Of(&[Action::Scope])], "search: all, directory, session"),
    (
        KeyContext::List,
        &[Keys::Of(&[Action::ValueLeft, Action::ValueRight])],
        "change the value of an option",
    ),
    (KeyContext::List, &[Keys::Of(&[Action::Clear])], "clear the text"),
];

/// One row of the help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelpRow {
    /// Where the keys work.
    pub context: KeyContext,
    /// The keys.
    pub keys: String,
    /// What they do.
    pub text: &'static str,
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
    fn is_pane(self) -> bool {
        matches!(self, Self::Input | Self::Messages | Self::Sessions)
    }
}

impl Default for KeyMap {
    fn default() -> Self {
        let parse = |keys: &str| {
            keys.split(' ').map(|key| key.parse().expect("the default keys are valid")).collect()
        };
        let binding = |(context, action, keys): &(KeyContext, Action, &str)| Binding {
            context: *context,
            action: *action,
            keys: parse(keys),
        };
        Self { bindings: DEFAULTS.iter().map(binding).collect() }
    }
}

impl KeyMap {
    /// The default keys with settings: context, action, keys. An error has the index of its setting.
    pub fn with_settings<'a>(
        settings: impl IntoIterator<Item = (&'a str, &'a str, &'a str)>,
    ) -> Result<Self, (usize, KeyMapError)> {
        let mut map = Self::default();
        let mut last = 0;
        for (index, (context, action, keys)) in settings.into_iter().enumerate() {
            map.set(context, action, keys).map_err(|error| (index, error))?;
            last = index;
        }
        // Checked at the end, so that two keys can be exchanged.
        map.check().map_err(|error| (last, error))?;
        Ok(map)
    }

    /// Replaces the keys of an action; several keys are separated by spaces.
    fn set(&mut self, context: &str, action: &str, keys: &str) -> Result<(), KeyMapError> {
        let known = KeyContext::ALL.into_iter().find(|known| known.name() == context);
        let context = known.ok_or_else(|| KeyMapError::UnknownContext(context.to_owned()))?;
        let is_it = |binding: &&mut Binding| binding.context == context && binding.action.name() == action;
        let binding = self.bindings.iter_mut().find(is_it);
        let binding = binding.ok_or_else(|| KeyMapError::UnknownAction(context.name(), action.to_owned()))?;
        binding.keys = keys.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Rejects a key that two actions of one context have.
    fn check(&self) -> Result<(), KeyMapError> {
        for (index, binding) in self.bindings.iter().enumerate() {
            for other in self.bindings[index + 1..].iter().filter(|other| other.context == binding.context) {
                if let Some(key) = binding.keys.iter().find(|key| other.keys.contains(key)) {
                    return Err(KeyMapError::Twice {
                        context: binding.context.name(),
                        key: key.to_string(),
                        first: binding.action.name(),
                        second: other.action.name(),
                    });
                }
            }
        }
        Ok(())
    }

    /// The action of a key: that of the context, else that of all panes, else that of everywhere.
    pub fn action(&self, context: KeyContext, key: Key) -> Option<Action> {
        let at = |context: KeyContext| {
            let found = self
                .bindings
                .iter()
                .find(|binding| binding.context == context && binding.keys.contains(&key));
            found.map(|binding| binding.action)
        };
        at(context)
            .or_else(|| at(KeyContext::Panes).filter(|_| context.is_pane()))
            .or_else(|| at(KeyContext::Anywhere))
    }

    /// The first key of an action, for hints; `None` if it has none.
    pub fn key(&self, context: KeyContext, action: Action) -> Option<Key> {
        let at = |context: KeyContext| {
            let found =
                self.bindings.iter().find(|binding| binding.context == context && binding.action == action);
            found.and_then(|binding| binding.keys.first().copied())
        };
        at(context)
            .or_else(|| at(KeyContext::Panes).filter(|_| context.is_pane()))
            .or_else(|| at(KeyContext::Anywhere))
    }

    /// The first key of an action as text.
    pub fn label(&self, context: KeyContext, action: Action) -> String {
        self.key(context, action).map(|key| key.to_string()).unwrap_or_default()
    }

    /// All rows of the help, in order.
    pub fn help(&self) -> Vec<HelpRow> {
        let row = |(context, keys, text): &(KeyContext, &[Keys], &'static str)| {
            let keys = keys.iter().map(|keys| match keys {
                Keys::Fixed(keys) => (*keys).to_owned(),
                Keys::Of(actions) => self.keys_of(*context, actions),
            });
            // `1-9 y a n N v` is one group.
            let separator = if *context == KeyContext::Inbox { " " } else { "  " };
            HelpRow { context: *context, keys: keys.collect::<Vec<_>>().join(separator), text }
        };
        HELP.iter().map(row).collect()
    }

    /// The help and the names of all actions as tables of Markdown, for the documentation.
    pub fn markdown(&self) -> String {
        let mut page = "| where | key | action |\n|---|---|---|\n".to_owned();
        let mut last = None;
        for row in self.help() {
            let context = if last == Some(row.context) { "" } else { row.context.title() };
            last = Some(row.context);
            let _ = writeln!(page, "| {context} | `{}` | {} |", row.keys, row.text);
        }
        page.push_str("\n| table | actions and their default keys |\n|---|---|\n");
        for context in KeyContext::ALL {
            let bindings = self.bindings.iter().filter(|binding| binding.context == context);
            let actions = bindings.map(|binding| {
                let keys: Vec<_> = binding.keys.iter().map(ToString::to_string).collect();
                format!("{} `{}`", binding.action.name(), keys.join(" "))
            });
            let actions = actions.collect::<Vec<_>>().join(", ");
            let _ = writeln!(page, "| `[keys.{}]` | {actions} |", context.name());
        }
        page
    }

    /// The keys of some actions: the first of each, then the second of each. Shift-Enter is left out: few terminals report it.
    fn keys_of(&self, context: KeyContext, actions: &[Action]) -> String {
        let keys: Vec<&[Key]> = actions
            .iter()
            .map(|action| {
                let is_it = |binding: &&Binding| binding.context == context && binding.action == *action;
                self.bindings.iter().find(is_it).map_or(&[][..], |binding| &binding.keys[..])
            })
            .collect();
        let is_shown = |key: &&Key| !(key.code == KeyCode::Enter && key.modifiers == KeyModifiers::SHIFT);
        let most = keys.iter().map(|keys| keys.iter().filter(is_shown).count()).max().unwrap_or(0);
        let groups = (0..most).map(|index| {
            let mut group: Vec<_> = keys.iter().filter_map(|keys| keys.get(index)).collect();
            // People read "up, down" whatever the order of the actions is.
            if group.iter().map(|key| key.code).eq([KeyCode::Down, KeyCode::Up]) {
                group.reverse();
            }
            group.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        });
        groups.collect::<Vec<_>>().join("  ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_written_as_it_is_read() {
        for text in ["Ctrl-D", "Alt-Enter", "Shift-Tab", "PgUp", "F1", "Space", "j", "G", "[", "?", "é"] {
            assert_eq!(text.parse::<Key>().unwrap().to_string(), text);
        }
        assert_eq!("ctrl-d".parse::<Key>(), "Ctrl-D".parse());
        for text in ["", "Ctrl-", "F13", "Hyper-x", "jj"] {
            assert!(text.parse::<Key>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_key_of_a_place_comes_before_one_of_everywhere() {
        let map = KeyMap::default();
        let key = |text: &str| text.parse::<Key>().unwrap();
        assert_eq!(map.action(KeyContext::Messages, key("Enter")), Some(Action::Toggle));
        assert_eq!(map.action(KeyContext::Input, key("Enter")), Some(Action::Send));
        assert_eq!(map.action(KeyContext::Input, key("Tab")), Some(Action::NextPane));
        assert_eq!(map.action(KeyContext::List, key("Tab")), Some(Action::Scope));
        assert_eq!(map.action(KeyContext::Form, key("Ctrl-C")), Some(Action::Interrupt));
        assert_eq!(map.action(KeyContext::Input, key("j")), None);
    }

    #[test]
    fn the_default_keys_have_no_conflicts_and_need_no_flow_control_keys() {
        let map = KeyMap::default();
        map.check().unwrap();
        for key in ["Ctrl-B", "Ctrl-S", "Ctrl-Q"] {
            let key: Key = key.parse().unwrap();
            assert!(KeyContext::ALL.into_iter().all(|context| map.action(context, key).is_none()), "{key}");
        }
    }

    #[test]
    fn a_configured_key_replaces_the_default_and_a_conflict_is_an_error() {
        let map = KeyMap::with_settings([("messages", "fork", "Ctrl-K")]).unwrap();
        assert_eq!(map.action(KeyContext::Messages, "Ctrl-K".parse().unwrap()), Some(Action::Fork));
        assert_eq!(map.action(KeyContext::Messages, "f".parse().unwrap()), None);
        let exchanged =
            KeyMap::with_settings([("messages", "fork", "e"), ("messages", "edit", "f")]).unwrap();
        assert_eq!(exchanged.action(KeyContext::Messages, "e".parse().unwrap()), Some(Action::Fork));
        let error = |context, action, keys| {
            KeyMap::with_settings([(context, action, keys)]).unwrap_err().1.to_string()
        };
        assert_eq!(
            error("messages", "fork", "e"),
            "e is assigned twice in 'messages': to 'fork' and to 'edit'"
        );
        assert!(error("nowhere", "fork", "f").contains("no key context 'nowhere'"));
        assert!(error("input", "fork", "f").contains("no action 'fork'"));
        assert!(error("messages", "fork", "Hyper-f").contains("'Hyper-f' is not a key"));
    }

    #[test]
    fn the_documentation_lists_all_keys_and_actions() {
        let page = include_str!("../../../docs/terminal.md");
        let wanted = KeyMap::default().markdown();
        let missing: Vec<_> = wanted.lines().filter(|line| !page.contains(line)).collect();
        assert!(missing.is_empty(), "docs/terminal.md lacks:\n{}", missing.join("\n"));
    }

    #[test]
    fn the_help_has_every_action_that_has_a_key() {
        let map = KeyMap::default();
        let help = map.help();
        let row = |text: &str| help.iter().find(|row| row.text == text).unwrap().keys.clone();
        assert_eq!(row("next, previous entry"), "j k  Up Down");
        assert_eq!(row("first, last entry"), "g G  Home End");
        assert_eq!(row("find here; next, previous hit"), "/  n N");
        assert_eq!(row("answer and view as in a request"), "1-9 y a n N v");
        assert_eq!(row("new line"), "Ctrl-J  Alt-Enter");
        for binding in &map.bindings {
            let is_shown = |(context, keys, _): &(KeyContext, &[Keys], &str)| {
                let has =
                    |keys: &Keys| matches!(keys, Keys::Of(actions) if actions.contains(&binding.action));
                *context == binding.context && keys.iter().any(has)
            };
            let is_fixed = matches!(binding.action, Action::Interrupt | Action::Help);
            assert!(is_fixed || HELP.iter().any(is_shown), "{binding:?}");
        }
    }
}
