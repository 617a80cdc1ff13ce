mod contents;
mod search;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use self::contents::Contents;
use crate::check::{entry_exists, no_entry, no_session, number};
use crate::{
    Batch, CopiedEntry, Cursor, Done, EntryRow, Filter, Hit, Search, SessionRow, SlotRow, Store, StoreError,
    Write, list_order,
};

/// Keeps sessions in memory; `done` is called before `write` returns.
///
/// Lists are sorted on every call and a search reads everything, so this store is for tests and for servers that
/// persist nothing.
#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    sessions: BTreeMap<String, Session>,
    contents: Contents,
    values: BTreeMap<String, String>,
    /// The number of sessions that were ever created.
    made: u64,
}

#[derive(Debug)]
struct Session {
    /// The session's number in the order of creation.
    number: u64,
    row: SessionRow,
    slots: BTreeMap<String, SlotRow>,
    entries: BTreeMap<u64, Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    seq: u64,
    head: String,
    /// The number of the entry's content, which it shares with its copies until one of them changes it.
    content: u64,
    inherited: usize,
}

impl Store for MemoryStore {
    fn write(&self, batch: Batch, done: Done) {
        let mut state = self.lock();
        let result = BatchCheck::new(&state).batch(&batch);
        if result.is_ok() {
            batch.writes.into_iter().for_each(|write| state.apply(write));
        }
        // The callback may call the store, so the lock is released first.
        drop(state);
        done(result);
    }

    fn session(&self, id: &str) -> Result<Option<SessionRow>, StoreError> {
        Ok(self.lock().sessions.get(id).map(|session| session.row.clone()))
    }

    fn sessions(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Vec<SessionRow>, StoreError> {
        let state = self.lock();
        let mut rows: Vec<_> = state.sessions.values().map(|session| &session.row).collect();
        rows.retain(|row| filter.includes(row) && after.is_none_or(|cursor| cursor.precedes(row)));
        rows.sort_unstable_by(|a, b| list_order(a).cmp(&list_order(b)));
        Ok(rows.into_iter().take(limit).cloned().collect())
    }

    fn slots(&self, session: &str, since: u64) -> Result<Vec<SlotRow>, StoreError> {
        let state = self.lock();
        let slots = state.sessions.get(session).into_iter().flat_map(|session| session.slots.values());
        Ok(slots.filter(|slot| slot.seq > since).cloned().collect())
    }

    fn entries(
        &self,
        session: &str,
        since: u64,
        after: u64,
        bytes: usize,
    ) -> Result<Vec<EntryRow>, StoreError> {
        let state = self.lock();
        let Some(session) = state.sessions.get(session) else { return Ok(Vec::new()) };
        let mut rows = Vec::new();
        let mut total = 0_usize;
        let later = session.entries.range((Bound::Excluded(after), Bound::Unbounded));
        for (created, entry) in later.filter(|(_, entry)| entry.seq > since) {
            let content = state.contents.text(entry.content);
            total = total.saturating_add(entry.head.len() + content.len());
            if total > bytes && !rows.is_empty() {
                break;
            }
            rows.push(EntryRow {
                created: *created,
                seq: entry.seq,
                head: entry.head.clone(),
                content: content.to_owned(),
                inherited: entry.inherited,
            });
        }
        Ok(rows)
    }

    fn value(&self, key: &str) -> Result<Option<String>, StoreError> {
        Ok(self.lock().values.get(key).cloned())
    }

    fn search(&self, search: &Search, offset: usize, limit: usize) -> Result<Vec<Hit>, StoreError> {
        let state = self.lock();
        let rows = |id: &str| state.sessions.get(id).map(|session| &session.row);
        let titles = state.sessions.values().map(|session| &session.row);
        Ok(search::search(search, titles, &state.contents, rows, offset, limit))
    }

    fn unindexed(&self, _: usize) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }
}

impl MemoryStore {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Applies a write of a batch that was checked, so that the rows it refers to exist.
    fn apply(&mut self, write: Write) {
        match write {
            Write::Session(row) => match self.sessions.get_mut(&row.id) {
                Some(session) => session.row = row,
                None => {
                    self.made += 1;
                    let (number, slots, entries) = (self.made, BTreeMap::new(), BTreeMap::new());
                    self.sessions.insert(row.id.clone(), Session { number, row, slots, entries });
                }
            },
            Write::Slot { session, name, seq, body } => {
                let slots = &mut self.session(&session).slots;
                match body {
                    Some(body) => drop(slots.insert(name.clone(), SlotRow { name, seq, body })),
                    None => drop(slots.remove(&name)),
                }
            }
            Write::Entry { session, created, seq, head, content } => {
                match self.session(&session).entries.get_mut(&created) {
                    Some(entry) => {
                        entry.seq = entry.seq.max(seq);
                        entry.head = head;
                        if let Some(content) = content {
                            self.change(&session, created, |_| content);
                            self.entry(&session, created).inherited = 0;
                        }
                    }
                    None => {
                        let content = self.contents.create(content.unwrap_or_default());
                        let entry = Entry { seq, head, content, inherited: 0 };
                        self.session(&session).entries.insert(created, entry);
                    }
                }
            }
            Write::Append { session, created, seq, content } => {
                let entry = self.entry(&session, created);
                entry.seq = entry.seq.max(seq);
                let number = entry.content;
                match self.contents.exclusive(number) {
                    Some(text) => text.push_str(&content),
                    None => self.change(&session, created, |text| format!("{text}{content}")),
                }
            }
            Write::Copy { from, to, entries } => {
                for CopiedEntry { from: created, to: seq, head } in entries {
                    let mut entry = self.session(&from).entries[&created].clone();
                    entry.seq = seq;
                    entry.inherited = self.contents.share(entry.content).len();
                    entry.head = head.unwrap_or(entry.head);
                    self.session(&to).entries.insert(seq, entry);
                }
            }
            Write::Index { session, created, seq, document, only_missing } => {
                let entry = self.entry(&session, created).clone();
                let has_document = self.contents.has_document(entry.content);
                if entry.seq > seq || (only_missing && has_document) {
                    return;
                }
                if has_document && self.contents.exclusive(entry.content).is_none() {
                    self.change(&session, created, str::to_owned);
                }
                let content = self.entry(&session, created).content;
                self.contents.set_document(content, (session, created), document);
            }
            // All sessions of this store are indexed from the start.
            Write::Indexed { .. } => {}
            Write::Delete { session } => {
                for session in self.with_owned(&session) {
                    let Some(gone) = self.sessions.remove(&session) else { continue };
                    for (created, entry) in gone.entries {
                        self.release(&session, created, entry.content);
                    }
                }
            }
            Write::Value { key, value: Some(value) } => drop(self.values.insert(key, value)),
            Write::Value { key, value: None } => drop(self.values.remove(&key)),
        }
    }

    /// A session, the sessions that it owns, those that they own, and so on.
    fn with_owned(&self, session: &str) -> Vec<String> {
        let mut found = vec![session.to_owned()];
        let mut next = 0;
        while let Some(owner) = found.get(next) {
            let is_owned = |session: &&Session| session.row.owner.as_ref() == Some(owner);
            let owned: Vec<_> =
                self.sessions.values().filter(is_owned).map(|session| session.row.id.clone()).collect();
            found.extend(owned);
            next += 1;
        }
        found
    }

    fn session(&mut self, id: &str) -> &mut Session {
        self.sessions.get_mut(id).expect("it was checked")
    }

    fn entry(&mut self, session: &str, created: u64) -> &mut Entry {
        self.session(session).entries.get_mut(&created).expect("it was checked")
    }

    /// Gives an entry a new content, computed from its present one.
    fn change(&mut self, session: &str, created: u64, change: impl FnOnce(&str) -> String) {
        let old = self.entry(session, created).content;
        let new = change(self.contents.text(old));
        let new = self.contents.create(new);
        self.entry(session, created).content = new;
        self.release(session, created, old);
    }

    /// Detaches an entry from a content; search hits move to the first other entry that has the content.
    fn release(&mut self, session: &str, created: u64, content: u64) {
        if !self.contents.release(content, (session, created)) {
            return;
        }
        let mut sessions: Vec<_> = self.sessions.values().collect();
        sessions.sort_unstable_by_key(|session| session.number);
        let mut entries = sessions.into_iter().flat_map(|session| {
            let has = session.entries.iter().filter(|(_, entry)| entry.content == content);
            has.map(|(created, _)| (session.row.id.clone(), *created))
        });
        let first = entries.next().expect("others have it");
        self.contents.move_hits(content, first);
    }
}

/// Checks a batch before anything is changed, so that nothing has to be undone.
struct BatchCheck<'a> {
    state: &'a State,
    /// The sessions that the batch creates or deletes, and the entries that it creates in them.
    touched: BTreeMap<Cow<'a, str>, Touched>,
}

#[derive(Default)]
struct Touched {
    there: bool,
    /// Whether the batch deletes the session, so that its stored entries do not count.
    emptied: bool,
    entries: BTreeSet<u64>,
}

impl<'a> BatchCheck<'a> {
    fn new(state: &'a State) -> Self {
        Self { state, touched: BTreeMap::new() }
    }

    fn batch(mut self, batch: &'a Batch) -> Result<(), StoreError> {
        batch.writes.iter().try_for_each(|write| self.write(write))
    }

    fn write(&mut self, write: &'a Write) -> Result<(), StoreError> {
        match write {
            Write::Session(row) => self.touch(&row.id).there = true,
            Write::Slot { session, seq, .. } => {
                number(*seq)?;
                self.session(session)?;
            }
            Write::Entry { session, created, seq, .. } => {
                number(*created)?;
                number(*seq)?;
                self.session(session)?.entries.insert(*created);
            }
            Write::Append { session, created, seq, .. } => {
                number(*seq)?;
                self.session(session)?;
                self.has_entry(session, *created).then_some(()).ok_or_else(|| no_entry(session, *created))?;
            }
            Write::Index { session, created, seq, .. } => {
                number(*created)?;
                number(*seq)?;
                self.session(session)?;
                self.has_entry(session, *created).then_some(()).ok_or_else(|| no_entry(session, *created))?;
            }
            Write::Copy { from, to, entries } => {
                self.session(from)?;
                self.session(to)?;
                for copied in entries {
                    number(copied.to)?;
                    if !self.has_entry(from, copied.from) {
                        return Err(no_entry(from, copied.from));
                    }
                    if self.has_entry(to, copied.to) {
                        return Err(entry_exists(to, copied.to));
                    }
                    self.touch(to).entries.insert(copied.to);
                }
            }
            Write::Delete { session } => {
                for session in self.state.with_owned(session) {
                    *self.touch(session) = Touched { there: false, emptied: true, entries: BTreeSet::new() };
                }
            }
            Write::Value { .. } | Write::Indexed { .. } => {}
        }
        Ok(())
    }

    fn session(&mut self, id: &'a str) -> Result<&mut Touched, StoreError> {
        Some(self.touch(id)).filter(|touched| touched.there).ok_or_else(|| no_session(id))
    }

    fn touch(&mut self, id: impl Into<Cow<'a, str>>) -> &mut Touched {
        let id = id.into();
        let there = self.state.sessions.contains_key(&*id);
        self.touched.entry(id).or_insert_with(|| Touched { there, ..Touched::default() })
    }

    fn has_entry(&self, session: &str, created: u64) -> bool {
        let touched = self.touched.get(session);
        let before = || self.state.sessions.get(session).is_some_and(|s| s.entries.contains_key(&created));
        touched.is_some_and(|touched| touched.entries.contains(&created))
            || (!touched.is_some_and(|touched| touched.emptied) && before())
    }
}
