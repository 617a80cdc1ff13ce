//! The contents of entries by number, shared by entries until one of them changes.

use std::collections::HashMap;

use crate::IndexDocument;
use crate::words::{Word, words};

/// The entry of a search hit: its session and the change that created it.
pub(super) type EntryKey = (String, u64);

#[derive(Debug, Default)]
pub(super) struct Contents {
    all: HashMap<u64, Content>,
    made: u64,
}

#[derive(Debug)]
struct Content {
    text: String,
    /// The number of entries that have this content.
    entries: usize,
    words: Option<IndexedContent>,
}

/// The index document of a content, and the entry in which it is found.
#[derive(Debug)]
pub(super) struct IndexedContent {
    pub(super) entry: EntryKey,
    pub(super) kind: String,
    pub(super) at: i64,
    pub(super) words: Vec<Word>,
}

impl Contents {
    pub(super) fn text(&self, number: u64) -> &str {
        &self.all[&number].text
    }

    /// Creates a content for one entry.
    pub(super) fn create(&mut self, text: String) -> u64 {
        self.made += 1;
        self.all.insert(self.made, Content { text, entries: 1, words: None });
        self.made
    }

    /// Returns the text of a content that only one entry has.
    pub(super) fn exclusive(&mut self, number: u64) -> Option<&mut String> {
        let content = self.content(number);
        (content.entries == 1).then_some(&mut content.text)
    }

    /// Adds an entry to a content and returns its text.
    pub(super) fn share(&mut self, number: u64) -> &str {
        let content = self.content(number);
        content.entries += 1;
        &content.text
    }

    /// Removes an entry from a content; returns whether search hits must move to another entry.
    pub(super) fn release(&mut self, number: u64, (session, created): (&str, u64)) -> bool {
        let content = self.content(number);
        content.entries -= 1;
        if content.entries == 0 {
            self.all.remove(&number);
            return false;
        }
        content.words.as_ref().is_some_and(|words| words.entry.0 == session && words.entry.1 == created)
    }

    pub(super) fn move_hits(&mut self, number: u64, entry: EntryKey) {
        if let Some(words) = &mut self.content(number).words {
            words.entry = entry;
        }
    }

    pub(super) fn has_document(&self, number: u64) -> bool {
        self.all[&number].words.is_some()
    }

    pub(super) fn set_document(&mut self, number: u64, entry: EntryKey, new: Option<IndexDocument>) {
        self.content(number).words = new.and_then(|new| {
            let words: Vec<_> = words(&new.text).collect();
            let indexed = IndexedContent { entry, kind: new.kind, at: new.at, words };
            (!indexed.words.is_empty()).then_some(indexed)
        });
    }

    /// Iterates over all index documents.
    pub(super) fn indexed(&self) -> impl Iterator<Item = &IndexedContent> {
        self.all.values().filter_map(|content| content.words.as_ref())
    }

    fn content(&mut self, number: u64) -> &mut Content {
        self.all.get_mut(&number).expect("an entry has it")
    }
}
