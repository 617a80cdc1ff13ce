//! What lies over the panes: pickers, the inbox, the search, the fork tree and the help.

use parlor_client::{Json, SessionId};

use crate::clean::Clean;
use crate::event::Hit;
use crate::field::TextField;
use crate::fuzzy;
use crate::keys::{Action, KeyContext};
use crate::sessions::ListLine;
use crate::theme::{Mark, Role};

/// Something that takes the keys and the screen until it is closed.
#[derive(Debug)]
pub enum Overlay {
    /// A list with a text field.
    Picker(Picker),
    /// The requests that wait for a person.
    Inbox(InboxView),
    /// The search.
    Search(Search),
    /// The forks of a session.
    Forks(ForkTree),
    /// All keys.
    Help(HelpView),
    /// A question that is answered with a text, such as a title.
    Ask(Ask),
}

impl Overlay {
    /// The table of its keys.
    pub fn key_context(&self) -> KeyContext {
        match self {
            Self::Picker(_) | Self::Search(_) | Self::Ask(_) => KeyContext::List,
            Self::Inbox(_) => KeyContext::Inbox,
            Self::Forks(_) => KeyContext::Sessions,
            Self::Help(_) => KeyContext::Messages,
        }
    }
}

impl Overlay {
    /// Whether it acts on the open session, so that it makes no sense for another one.
    pub fn is_of_session(&self) -> bool {
        match self {
            Self::Picker(picker) => {
                let is_of_list =
                    |choice: &Choice| matches!(choice, Choice::Session(_) | Choice::NewSession(_));
                !picker.items.iter().all(|item| is_of_list(&item.choice))
            }
            Self::Ask(ask) => ask.purpose == AskPurpose::Find,
            Self::Inbox(_) | Self::Search(_) | Self::Forks(_) | Self::Help(_) => false,
        }
    }
}

/// The effect of choosing an item.
#[derive(Debug, Clone, PartialEq)]
pub enum Choice {
    /// Opens a session.
    Session(SessionId),
    /// Prepares a new session with a title-like text in the input.
    NewSession(String),
    /// Does what a key does.
    Action(Action),
    /// Asks for the directory of new sessions.
    Directory,
    /// Sets an option.
    Option {
        /// The option.
        option: Json,
        /// The value.
        value: Json,
        /// The note that is shown when it is set.
        note: String,
    },
    /// An option with several values, which the arrow keys change.
    Values {
        /// The option.
        option: Json,
        /// Its name.
        name: Clean,
        /// The values with their names.
        values: Vec<(Json, Clean)>,
        /// The present value.
        now: usize,
    },
    /// Puts a text into the input.
    Text(String),
    /// Continues with another agent.
    OtherAgent(String),
    /// Chooses the agent of the new session.
    NewAgent(String),
}

/// An item of a picker.
#[derive(Debug, Clone)]
pub struct PickItem {
    /// The heading above it, if it is the first one of its section.
    pub section: Option<&'static str>,
    /// A mark before it.
    pub mark: Option<(Mark, Role)>,
    /// The name.
    pub name: Clean,
    /// A description beside the name.
    pub about: Clean,
    /// A short text at the right edge, such as an age.
    pub right: Clean,
    /// The effect of choosing it.
    pub choice: Choice,
    /// Whether it needs a second Enter.
    pub needs_confirmation: bool,
}

/// A list with a text field that filters it.
#[derive(Debug)]
pub struct Picker {
    /// The kind of item, which determines the heading and the layout.
    pub kind: PickerKind,
    /// Shown at the right of the heading, in place of the number of items.
    pub subtitle: Clean,
    /// The filter.
    pub query: TextField,
    /// All items.
    pub items: Vec<PickItem>,
    /// The indexes of the items that fit, with the characters that fit.
    pub shown: Vec<(usize, Vec<usize>)>,
    /// The cursor in `shown`.
    pub cursor: usize,
    /// The item that was chosen once and needs a second Enter.
    pub confirming: Option<usize>,
    /// Lines below the list.
    pub footer: Vec<Clean>,
}

/// The kind of item that a picker chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PickerKind {
    /// The session that is opened.
    Session,
    /// The command that is run.
    Command,
    /// The prompt that is put into the input.
    History,
    /// The agent of the new session.
    NewAgent,
    /// The agent that continues the session.
    OtherAgent,
    /// The model, the mode and other options.
    Options,
}

impl PickerKind {
    /// The heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Session => "Open a session",
            Self::Command => "All commands",
            Self::History => "History",
            Self::NewAgent => "Agent of the new session",
            Self::OtherAgent => "Continue with another agent",
            Self::Options => "Model, mode and options",
        }
    }
}

impl Picker {
    /// A picker with all items.
    pub fn new(kind: PickerKind, items: Vec<PickItem>) -> Self {
        let mut picker = Self {
            kind,
            subtitle: Clean::default(),
            query: TextField::default(),
            items,
            shown: Vec::new(),
            cursor: 0,
            confirming: None,
            footer: Vec::new(),
        };
        picker.filter();
        picker
    }

    /// Applies the filter.
    pub fn filter(&mut self) {
        let query = self.query.text();
        let mut fits: Vec<_> = self
            .items
            .iter()
            .enumerate()
            .filter_map(|(index, item)| {
                // An offer to create something with this name fits every text.
                if matches!(item.choice, Choice::NewSession(_)) {
                    return Some((i32::MIN, index, Vec::new()));
                }
                let length = item.name.as_str().chars().count();
                let text = format!("{} {}", item.name, item.about);
                let (score, mut matches) = fuzzy::fit(query, &text)?;
                let in_name = matches.iter().filter(|index| **index < length).count();
                matches.retain(|index| *index < length);
                Some((score + i32::try_from(in_name).unwrap_or(0) * 4, index, matches))
            })
            .collect();
        if !query.trim().is_empty() {
            fits.sort_by_key(|(score, index, _)| (std::cmp::Reverse(*score), *index));
        }
        self.shown = fits.into_iter().map(|(_, index, matches)| (index, matches)).collect();
        self.cursor = 0;
        self.confirming = None;
    }

    /// The item under the cursor.
    pub fn current(&self) -> Option<&PickItem> {
        self.shown.get(self.cursor).map(|(index, _)| &self.items[*index])
    }

    /// Moves the cursor.
    pub fn step(&mut self, forward: bool) {
        self.confirming = None;
        self.cursor = step(self.cursor, self.shown.len(), forward);
    }
}

/// The next or previous index; it stays at the ends.
pub fn step(cursor: usize, count: usize, forward: bool) -> usize {
    if forward { (cursor + 1).min(count.saturating_sub(1)) } else { cursor.saturating_sub(1) }
}

/// The inbox. A request is selected by its id: others come and go.
#[derive(Debug, Default)]
pub struct InboxView {
    selected: Option<String>,
    cursor: usize,
    /// How far the selected request is scrolled.
    pub scroll: usize,
}

impl InboxView {
    /// The inbox with these requests; the first one is selected.
    pub fn new(ids: &[String]) -> Self {
        Self { selected: ids.first().cloned(), cursor: 0, scroll: 0 }
    }

    /// The selected request.
    pub fn selected(&self) -> Option<&String> {
        self.selected.as_ref()
    }

    /// Selects the next or previous request.
    pub fn step(&mut self, ids: &[String], forward: bool) {
        self.select(ids, step(self.cursor, ids.len(), forward));
    }

    /// Selects the request at an index.
    pub fn select(&mut self, ids: &[String], index: usize) {
        if std::mem::replace(&mut self.cursor, index) != index {
            self.selected = ids.get(index).cloned();
            self.scroll = 0;
        }
    }

    /// Keeps the selected request if it is still open. Returns whether another one is selected now.
    pub fn update(&mut self, ids: &[String]) -> bool {
        let index = ids.iter().position(|id| Some(id) == self.selected.as_ref());
        if let Some(index) = index {
            self.cursor = index;
            return false;
        }
        self.cursor = self.cursor.min(ids.len().saturating_sub(1));
        let before = std::mem::replace(&mut self.selected, ids.get(self.cursor).cloned());
        self.scroll = 0;
        self.selected.is_some() && self.selected != before
    }
}

/// The sessions that a search covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All sessions.
    All,
    /// The sessions of the directory.
    Directory,
    /// The open session.
    Session,
}

/// The search.
#[derive(Debug)]
pub struct Search {
    /// The words and filters.
    pub query: TextField,
    /// The sessions that it covers.
    pub scope: Scope,
    /// The number of the last search that was sent.
    pub generation: u64,
    /// When the text last changed and was not sent yet.
    pub changed: Option<jiff::Timestamp>,
    /// The hits.
    pub hits: Vec<Hit>,
    /// Why there are no hits.
    pub problem: Option<Clean>,
    /// How long the last search took.
    pub millis: u64,
    /// Whether a search was answered.
    pub is_answered: bool,
    /// The cursor.
    pub cursor: usize,
}

impl Search {
    /// A search without words.
    pub fn new() -> Self {
        Self {
            query: TextField::default(),
            scope: Scope::All,
            generation: 0,
            changed: None,
            hits: Vec::new(),
            problem: None,
            millis: 0,
            is_answered: false,
            cursor: 0,
        }
    }

    /// The next place to search.
    pub fn next_scope(&mut self, has_session: bool) {
        self.scope = match self.scope {
            Scope::All => Scope::Directory,
            Scope::Directory if has_session => Scope::Session,
            Scope::Directory | Scope::Session => Scope::All,
        };
    }

    /// The words that are searched for, without filters, in lower case.
    pub fn words(&self) -> Vec<String> {
        let words = self.query.text().split_whitespace();
        let words = words.filter(|word| !word.starts_with('-') && !word.contains(':'));
        let bare = |word: &str| word.trim_matches(['"', '*', '(', ')']).to_lowercase();
        words.map(bare).filter(|word| !word.is_empty()).collect()
    }
}

impl Default for Search {
    fn default() -> Self {
        Self::new()
    }
}

/// The forks of a session.
#[derive(Debug)]
pub struct ForkTree {
    /// The session for which it was opened. The list may not have it yet.
    pub of: SessionId,
    /// The lines: the first session and its forks.
    pub lines: Vec<ListLine>,
    /// The cursor.
    pub cursor: usize,
}

impl ForkTree {
    /// The session under the cursor.
    pub fn current(&self) -> Option<&SessionId> {
        self.lines.get(self.cursor)?.session()
    }
}

/// The help.
#[derive(Debug)]
pub struct HelpView {
    /// The section that is shown first.
    pub context: KeyContext,
    /// How far it is scrolled.
    pub scroll: usize,
    /// The words to find.
    pub query: Option<TextField>,
}

/// A question that is answered with a text.
#[derive(Debug)]
pub struct Ask {
    /// The question.
    pub title: &'static str,
    /// The answer so far.
    pub text: TextField,
    /// Determines what is done with the answer.
    pub purpose: AskPurpose,
}

/// The use of the answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskPurpose {
    /// The title of a session.
    Title(SessionId),
    /// The directory of the new session.
    Directory,
    /// Text to find in the conversation.
    Find,
    /// The filter of the list of sessions.
    Filter,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(name: &str, about: &str) -> PickItem {
        PickItem {
            section: None,
            mark: None,
            name: Clean::line(name),
            about: Clean::line(about),
            right: Clean::default(),
            choice: Choice::Text(name.to_owned()),
            needs_confirmation: false,
        }
    }

    #[test]
    fn a_picker_shows_what_fits_its_text_the_best_first() {
        let mut picker = Picker::new(
            PickerKind::Command,
            vec![item("plan", "reads only"), item("ask", "asks before edits"), item("ready", "")],
        );
        assert_eq!(picker.shown.len(), 3);
        picker.query.insert("rea");
        picker.filter();
        let names: Vec<_> =
            picker.shown.iter().map(|(index, _)| picker.items[*index].name.as_str()).collect();
        assert_eq!(names, ["ready", "plan"]);
        assert_eq!(picker.current().unwrap().name.as_str(), "ready");
        picker.step(true);
        picker.step(true);
        assert_eq!(picker.current().unwrap().name.as_str(), "plan");
    }

    #[test]
    fn the_words_of_a_search_are_those_that_are_marked() {
        let mut search = Search::new();
        search.query.insert("\"Flaky port\" race* -other role:agent");
        assert_eq!(search.words(), ["flaky", "port", "race"]);
    }
}
