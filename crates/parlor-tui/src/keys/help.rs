//! The help and the tables of the documentation, from the key map.

use std::fmt::Write as _;

use crossterm::event::{KeyCode, KeyModifiers};

use super::{Action, Binding, Key, KeyContext, KeyMap};

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
        "archive, restore; delete; undo",
    ),
    (KeyContext::Sessions, &[Keys::Of(&[Action::Archived])], "show, hide archived sessions"),
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
    /// The pane in which the keys work.
    pub context: KeyContext,
    /// The keys.
    pub keys: String,
    /// The description of their actions.
    pub text: &'static str,
}

impl KeyMap {
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
    fn the_documentation_lists_all_keys_and_actions() {
        let page = include_str!("../../../../docs/terminal.md");
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
