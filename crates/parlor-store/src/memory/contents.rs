//! The contents of entries, by number: shared by entries until one of them changes.

use std::collections::HashMap;

use crate::Words;
use crate::words::{Word, words};

/// The entry in which something is found: its session and the change that made it.
pub(super) type Place = (String, u64);

#[derive(Debug, Default)]
pub(super) struct Contents {
    all: HashMap<u64, Content>,
    made: u64,
}

#[derive(Debug)]
struct Content {
    text: String,
    /// How many entries have it.
    entries: usize,
    words: Option<Found>,
}

/// What a content is found by, and where.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) place: Place,
    pub(super) kind: String,
    pub(super) at: i64,
    pub(super) words: Vec<Word>,
}

impl Contents {
    pub(super) fn text(&self, number: u64) -> &str {
        &self.all[&number].text
    }

    /// A new content that one entry has.
    pub(super) fn make(&mut self, text: String) -> u64 {
        self.made += 1;
        self.all.insert(self.made, Content { text, entries: 1, words: None });
        self.made
    }

    /// The text of a content that one entry has alone.
    pub(super) fn own(&mut self, number: u64) -> Option<&mut String> {
        let content = self.content(number);
        (content.entries == 1).then_some(&mut content.text)
    }

    /// One more entry has it.
    pub(super) fn share(&mut self, number: u64) -> &str {
        let content = self.content(number);
        content.entries += 1;
        &content.text
    }

    /// An entry has it no more. Whether it has to be found in another one from now on.
    pub(super) fn release(&mut self, number: u64, (session, created): (&str, u64)) -> bool {
        let content = self.content(number);
        content.entries -= 1;
        if content.entries == 0 {
            self.all.remove(&number);
            return false;
        }
        content.words.as_ref().is_some_and(|words| words.place.0 == session && words.place.1 == created)
    }

    pub(super) fn move_to(&mut self, number: u64, place: Place) {
        if let Some(words) = &mut self.content(number).words {
            words.place = place;
        }
    }

    pub(super) fn has_words(&self, number: u64) -> bool {
        self.all[&number].words.is_some()
    }

    pub(super) fn put_words(&mut self, number: u64, place: Place, new: Option<Words>) {
        self.content(number).words = new.and_then(|new| {
            let words: Vec<_> = words(&new.text).collect();
            let found = Found { place, kind: new.kind, at: new.at, words };
            (!found.words.is_empty()).then_some(found)
        });
    }

    /// What is to be found.
    pub(super) fn found(&self) -> impl Iterator<Item = &Found> {
        self.all.values().filter_map(|content| content.words.as_ref())
    }

    fn content(&mut self, number: u64) -> &mut Content {
        self.all.get_mut(&number).expect("an entry has it")
    }
}
