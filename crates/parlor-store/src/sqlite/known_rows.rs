//! The sessions and entries that are known to exist, so that a batch can be checked without a query.

use std::collections::{HashMap, HashSet};

use crate::check::number;
use crate::{Batch, Write};

/// The most sessions and entries that are remembered; beyond that, all are dropped and learned again.
const MAX_SESSIONS: usize = 4096;
const MAX_ENTRIES: usize = 1 << 16;

/// Sessions and entries that exist in the database or the journal; others may exist too.
#[derive(Default)]
pub(super) struct KnownRows {
    sessions: HashMap<String, HashSet<u64>>,
    entries: usize,
}

impl KnownRows {
    /// Returns whether a batch is valid as far as is known and may go to the journal; if so, its rows are remembered.
    pub(super) fn admit(&mut self, batch: &Batch) -> bool {
        let mut learned = Vec::new();
        let is_admitted = batch.writes.iter().all(|write| self.admit_write(write, &mut learned));
        if !is_admitted {
            for (session, created) in learned.into_iter().rev() {
                match created {
                    Some(created) => self.forget_entry(session, created),
                    None => self.forget_session(session),
                }
            }
        } else if self.sessions.len() > MAX_SESSIONS || self.entries > MAX_ENTRIES {
            self.clear();
        }
        is_admitted
    }

    fn admit_write<'a>(&mut self, write: &'a Write, learned: &mut Vec<(&'a str, Option<u64>)>) -> bool {
        match write {
            Write::Session(row) => {
                if !self.sessions.contains_key(&row.id) {
                    self.sessions.insert(row.id.clone(), HashSet::new());
                    learned.push((&row.id, None));
                }
                true
            }
            Write::Slot { session, seq, .. } => number(*seq).is_ok() && self.sessions.contains_key(session),
            Write::Entry { session, created, seq, .. } => {
                let are_numbers = number(*created).and(number(*seq)).is_ok();
                let Some(entries) = self.sessions.get_mut(session).filter(|_| are_numbers) else {
                    return false;
                };
                if entries.insert(*created) {
                    self.entries += 1;
                    learned.push((session, Some(*created)));
                }
                true
            }
            Write::Append { session, created, seq, .. } | Write::Index { session, created, seq, .. } => {
                number(*seq).is_ok()
                    && self.sessions.get(session).is_some_and(|entries| entries.contains(created))
            }
            Write::Value { .. } => true,
            Write::Copy { .. } | Write::Indexed { .. } | Write::Delete { .. } => false,
        }
    }

    /// Remembers the rows of a batch that was written to the database.
    pub(super) fn learn(&mut self, batch: &Batch) {
        for write in &batch.writes {
            match write {
                Write::Session(row) => {
                    self.session(&row.id);
                }
                Write::Slot { session, .. } => {
                    self.session(session);
                }
                Write::Entry { session, created, .. }
                | Write::Append { session, created, .. }
                | Write::Index { session, created, .. } => self.entry(session, *created),
                // There may be thousands of entries, and few of them are written to again.
                Write::Copy { from, to, .. } => {
                    self.session(from);
                    self.session(to);
                }
                Write::Delete { session } => self.forget_session(session),
                Write::Indexed { .. } | Write::Value { .. } => {}
            }
            if self.sessions.len() > MAX_SESSIONS || self.entries > MAX_ENTRIES {
                self.clear();
            }
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn session(&mut self, session: &str) -> &mut HashSet<u64> {
        if !self.sessions.contains_key(session) {
            self.sessions.insert(session.to_owned(), HashSet::new());
        }
        self.sessions.get_mut(session).expect("it was just put there")
    }

    fn entry(&mut self, session: &str, created: u64) {
        self.entries += usize::from(self.session(session).insert(created));
    }

    fn forget_session(&mut self, session: &str) {
        self.entries -= self.sessions.remove(session).map_or(0, |entries| entries.len());
    }

    fn forget_entry(&mut self, session: &str, created: u64) {
        let was_there = self.sessions.get_mut(session).is_some_and(|entries| entries.remove(&created));
        self.entries -= usize::from(was_there);
    }
}
