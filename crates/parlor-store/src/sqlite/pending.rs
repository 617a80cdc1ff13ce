//! Batches that are done and not folded yet. Reads lay them over the rows of the database, and so never wait for a
//! write.
//!
//! Only batches of the journal are pending, and none of them copies or deletes: such batches are done when they are in
//! the database.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::{Batch, EntryRow, SessionRow, SlotRow, TITLE, Write, check};

/// A batch in the journal.
#[derive(Clone)]
pub(super) struct Journaled {
    pub(super) batch: Arc<Batch>,
    /// The position after the group that it was appended with: a database folded up to here has it.
    pub(super) end: u64,
}

/// Batches in the order in which they were accepted.
#[derive(Default)]
pub(super) struct Pending(Vec<Journaled>);

/// What pending batches change in an entry.
#[derive(Default)]
pub(super) struct EntryChange<'a> {
    seq: u64,
    head: Option<&'a str>,
    /// The parts of the text that is appended, or of the new content. They are joined only for entries that are read, because a
    /// session may have much more pending text than a read returns.
    text: Vec<&'a str>,
    replaces: bool,
}

/// A pending index document.
pub(super) struct PendingDocument<'a> {
    pub(super) kind: &'a str,
    pub(super) at: i64,
    pub(super) text: Cow<'a, str>,
}

impl Pending {
    pub(super) fn new(batches: Vec<Journaled>) -> Self {
        Self(batches)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Drops the batches that are in a database which is folded up to a position.
    pub(super) fn drop_folded(&mut self, folded: u64) {
        self.0.retain(|journaled| journaled.end > folded);
    }

    fn writes(&self) -> impl DoubleEndedIterator<Item = &Write> {
        self.0.iter().flat_map(|journaled| &journaled.batch.writes)
    }

    /// Returns the new state of a value, if it changes.
    pub(super) fn value(&self, key: &str) -> Option<&Option<String>> {
        self.writes().rev().find_map(|write| {
            if let Write::Value { key: changed, value } = write {
                (changed == key).then_some(value)
            } else {
                None
            }
        })
    }

    /// Returns the new row of a session, if it changes.
    pub(super) fn session(&self, id: &str) -> Option<&SessionRow> {
        self.rows().rev().find(|row| row.id == id)
    }

    /// Returns the new rows of all sessions that change, by id.
    pub(super) fn sessions(&self) -> HashMap<&str, &SessionRow> {
        self.rows().map(|row| (&*row.id, row)).collect()
    }

    fn rows(&self) -> impl DoubleEndedIterator<Item = &SessionRow> {
        self.writes().filter_map(|write| if let Write::Session(row) = write { Some(row) } else { None })
    }

    /// Returns the slots of a session that change, by name; `None` for those that are removed.
    pub(super) fn slots(&self, id: &str) -> BTreeMap<&str, Option<SlotRow>> {
        let mut slots = BTreeMap::new();
        for write in self.writes() {
            if let Write::Slot { session, name, seq, body } = write
                && session == id
            {
                let row = |body: &String| SlotRow { name: name.clone(), seq: *seq, body: body.clone() };
                slots.insert(&**name, body.as_ref().map(row));
            }
        }
        slots
    }

    /// Returns what changes in the entries of a session that were created after a change, by the change that created
    /// them.
    pub(super) fn entries(&self, id: &str, after: u64) -> BTreeMap<u64, EntryChange<'_>> {
        let mut changes: BTreeMap<u64, EntryChange<'_>> = BTreeMap::new();
        for write in self.writes() {
            let (session, created, seq, head, text, replaces) = match write {
                Write::Entry { session, created, seq, head, content } => {
                    let text = content.as_deref().unwrap_or_default();
                    (session, *created, *seq, Some(head), text, content.is_some())
                }
                Write::Append { session, created, seq, content } => {
                    (session, *created, *seq, None, &**content, false)
                }
                Write::Session(_)
                | Write::Slot { .. }
                | Write::Copy { .. }
                | Write::Index { .. }
                | Write::Indexed { .. }
                | Write::Delete { .. }
                | Write::Value { .. } => continue,
            };
            if session != id || created <= after {
                continue;
            }
            let change = changes.entry(created).or_default();
            change.seq = change.seq.max(seq);
            if let Some(head) = head {
                change.head = Some(head);
            }
            if replaces {
                change.text.clear();
                change.replaces = true;
            }
            change.text.push(text);
        }
        changes
    }

    /// Returns the index documents that change, by session and entry, with 0 for titles; `None` for those that are
    /// removed.
    pub(super) fn documents(&self) -> BTreeMap<(&str, u64), Option<PendingDocument<'_>>> {
        let mut documents = BTreeMap::new();
        for write in self.writes() {
            match write {
                Write::Session(row) => {
                    let (kind, at) = (TITLE, row.active_at);
                    let title = check::title(row);
                    let title = title.map(|title| PendingDocument { kind, at, text: title.into() });
                    documents.insert((&*row.id, 0), title);
                }
                Write::Entry { session, created, content: Some(_), .. } => {
                    documents.insert((&**session, *created), None);
                }
                Write::Index { session, created, document, only_missing: false, .. } => {
                    let document = document.as_ref().map(|document| PendingDocument {
                        kind: &document.kind,
                        at: document.at,
                        text: Cow::Borrowed(&document.text),
                    });
                    documents.insert((&**session, *created), document);
                }
                // Old sessions are indexed with `only_missing`. Their index is incomplete until that is in the
                // database.
                Write::Index { only_missing: true, .. }
                | Write::Entry { content: None, .. }
                | Write::Slot { .. }
                | Write::Append { .. }
                | Write::Copy { .. }
                | Write::Indexed { .. }
                | Write::Delete { .. }
                | Write::Value { .. } => {}
            }
        }
        documents
    }
}

impl EntryChange<'_> {
    /// Applies the change to the stored entry, or creates it.
    pub(super) fn apply(self, created: u64, stored: Option<EntryRow>) -> Option<EntryRow> {
        let Self { seq, head, text, replaces } = self;
        let Some(mut row) = stored else {
            let (head, content) = (head?.to_owned(), text.concat());
            return Some(EntryRow { created, seq, head, content, inherited: 0 });
        };
        row.seq = row.seq.max(seq);
        if let Some(head) = head {
            head.clone_into(&mut row.head);
        }
        if replaces {
            (row.content, row.inherited) = (text.concat(), 0);
        } else {
            row.content.extend(text);
        }
        Some(row)
    }
}
