//! What is known to be in the database or in the journal, so that a batch can be checked without asking the database.

use std::collections::{HashMap, HashSet};

use crate::check::number;
use crate::{Batch, Write};

/// How many sessions and entries are remembered. Beyond that all of it is forgotten, and learned again.
const MOST_SESSIONS: usize = 4096;
const MOST_ENTRIES: usize = 1 << 16;

/// Sessions that are there, with entries that are there. What is not here may be there as well.
#[derive(Default)]
pub(super) struct Facts {
    sessions: HashMap<String, HashSet<u64>>,
    entries: usize,
}

impl Facts {
    /// Whether a batch makes sense for all that is known, and is one of those that can wait in the journal. If so, it
    /// is learned from, as one that will be done.
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
        } else if self.sessions.len() > MOST_SESSIONS || self.entries > MOST_ENTRIES {
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
            Write::Append { session, created, seq, .. } | Write::Words { session, created, seq, .. } => {
                number(*seq).is_ok()
                    && self.sessions.get(session).is_some_and(|entries| entries.contains(created))
            }
            Write::Value { .. } => true,
            Write::Copy { .. } | Write::Indexed { .. } | Write::Delete { .. } => false,
        }
    }

    /// A batch was written to the database.
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
                | Write::Words { session, created, .. } => self.entry(session, *created),
                // There may be thousands of entries, and few of them are written to again.
                Write::Copy { from, to, .. } => {
                    self.session(from);
                    self.session(to);
                }
                Write::Delete { session } => self.forget_session(session),
                Write::Indexed { .. } | Write::Value { .. } => {}
            }
            if self.sessions.len() > MOST_SESSIONS || self.entries > MOST_ENTRIES {
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
