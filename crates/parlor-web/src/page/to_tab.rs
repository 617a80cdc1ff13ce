//! What the server sends to a tab.

use serde::Serialize;

use crate::render::Patch;

/// A message for a tab: changes of the page, in order.
#[derive(Debug, Default, Serialize)]
pub(super) struct TabMessage {
    pub(super) patch: Vec<TabPatch>,
    /// The revision of the entries after this message, if it is about them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) revision: Option<u64>,
}

/// A change of the page in a tab.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TabPatch {
    /// Replaces an element of the conversation or inserts it after another one.
    Put { id: String, after: Option<String>, html: String },
    /// Replaces the children of an element from an index on.
    Blocks { id: String, from: usize, html: String },
    /// Removes an element.
    Remove { id: String },
    /// Replaces a region.
    Replace { id: String, html: String },
    /// The latest entries, for a tab that has others or none.
    Tail { epoch: String, html: String, before: Option<String> },
    /// The entries before a cursor, or after an element. With `below`, they replace all that are shown: these are the cursors of the
    /// pages between them and the latest entries, the next one last.
    Page {
        key: String,
        html: String,
        before: Option<String>,
        is_last: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        below: Option<Vec<String>>,
    },
    /// Why the page of entries with this key cannot be sent.
    NoPage { key: String, text: String },
    /// Reads a text to people who use a screen reader.
    Announce(String),
    /// Shows why an action failed.
    Error(String),
    /// Shows that an action succeeded.
    Note(String),
    /// Opens an address of the page.
    Go(String),
    /// The prompt with this key was accepted or withdrawn.
    Sent { key: String },
    /// The prompt with this key was not accepted.
    Unsent { key: String },
    /// The text of a message, and the names of what is attached to it.
    Source { message: String, to: String, text: String, files: Vec<String> },
    /// Why a session could not be created.
    NewError(String),
    /// Something that a person may want to know of while the page is in the background.
    Notice { tag: String, title: String, text: String, address: String },
    /// What completes a word.
    Completions { word: String, items: Vec<Completion> },
}

/// A text that completes a word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Completion {
    /// What is inserted.
    pub(super) text: String,
    /// What it means.
    pub(super) about: String,
}

impl TabMessage {
    /// A message with changes that are not about entries.
    pub(super) fn new(patch: Vec<TabPatch>) -> Self {
        Self { patch, revision: None }
    }

    /// The message as JSON.
    pub(super) fn encode(&self) -> String {
        serde_json::to_string(self).expect("strings and numbers are JSON")
    }
}

impl TabPatch {
    /// Why an action failed; `page` is the key of the page that it requested.
    pub(super) fn failed(page: Option<String>, text: String) -> Self {
        match page {
            Some(key) => Self::NoPage { key, text },
            None => Self::Error(text),
        }
    }
}

impl From<TabPatch> for TabMessage {
    fn from(patch: TabPatch) -> Self {
        Self::new(vec![patch])
    }
}

impl From<Patch> for TabPatch {
    fn from(patch: Patch) -> Self {
        match patch {
            Patch::Put { id, after, html } => Self::Put { id, after, html: html.to_string() },
            Patch::Blocks { id, from, html } => Self::Blocks { id, from, html: html.to_string() },
            Patch::Remove { id } => Self::Remove { id },
        }
    }
}
