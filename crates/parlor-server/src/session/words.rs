//! Which entries have other words than those that they are found by.

use std::collections::BTreeSet;

use parlor_session::{Change, EntryId, Role, Target, Transcript, Update};
use parlor_store::Write;

use crate::search::words_of;

/// The entries whose words have to be handed to the store.
#[derive(Debug, Default)]
pub(super) struct Unworded {
    /// By the changes that made them.
    due: BTreeSet<u64>,
    /// Those that are being written: their words are handed in when the next entry begins.
    open: BTreeSet<u64>,
}

impl Unworded {
    /// What a server that was killed in the middle of a turn may not have handed in any more: all that changed since a
    /// person last spoke.
    pub(super) fn of_last_turn(transcript: &Transcript) -> Self {
        let entries = transcript.entries();
        let prompt = entries.iter().rfind(|entry| matches!(entry.id(), EntryId::Message(Role::User, _)));
        let since = prompt.map_or(0, parlor_session::Entry::created);
        let due = entries.iter().filter(|entry| entry.seq() >= since).map(parlor_session::Entry::created);
        Self { due: due.collect(), open: BTreeSet::new() }
    }

    /// A change was taken.
    pub(super) fn note(&mut self, change: &Change) {
        if change.is_creation() {
            self.due.append(&mut self.open);
        }
        match &change.update {
            Update::Append { .. } => {
                self.open.insert(change.created);
            }
            // The store forgets the words with the content, and a tool call is found by one of its fields.
            Update::Upsert { target: Target::Entry(_), upsert } => {
                let says_more = upsert.whole || !upsert.content.is_omitted() || !upsert.fields.is_empty();
                if says_more || change.is_creation() {
                    self.due.insert(change.created);
                }
            }
            Update::Remove { .. } => {
                self.due.insert(change.created);
            }
            Update::Upsert { target: Target::Slot(_), .. }
            | Update::Output { .. }
            | Update::Note { .. }
            | Update::State(_) => {}
        }
    }

    /// The words of what is finished; of all, if nothing is being written any more.
    pub(super) fn take(&mut self, session: &str, transcript: &Transcript, all: bool, now: i64) -> Vec<Write> {
        if all {
            self.due.append(&mut self.open);
        }
        let entries = transcript.entries();
        let due = std::mem::take(&mut self.due).into_iter();
        due.filter_map(|created| {
            let place = entries.binary_search_by_key(&created, parlor_session::Entry::created).ok()?;
            let (entry, session) = (&entries[place], session.to_owned());
            let words = Some(words_of(entry, now)?);
            Some(Write::Words { session, created, seq: entry.seq(), words, only_missing: false })
        })
        .collect()
    }
}
