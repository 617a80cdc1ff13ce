use std::collections::HashMap;
use std::fmt;

use parlor_json::Object;

use crate::body::Patched;
use crate::revisions::Revisions;
use crate::{
    Body, Change, Content, EntryId, MetaPatch, Slot, State, TITLE, Target, UnixMillis, Update, Upsert,
};

/// A session's conversation: its entries in order of first appearance, its slots and its state.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    seq: u64,
    entries: Vec<Entry>,
    /// The change that created each entry. `entries` is sorted by it.
    created: HashMap<EntryId, u64>,
    /// The index of the entry that changed last, events excluded: consecutive chunks need no look-up.
    latest: usize,
    slots: [Tracked; Slot::COUNT],
    state: Option<Stamped<State>>,
    /// Bytes of all entries.
    bytes: usize,
    limits: Limits,
}

/// One item of a transcript.
#[derive(Debug, Clone)]
pub struct Entry {
    id: EntryId,
    created: u64,
    created_at: Option<UnixMillis>,
    body: Tracked,
}

/// Times are not compared: only the server knows them, so that copies of one transcript differ in them.
impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.created == other.created && self.body == other.body
    }
}

impl Eq for Entry {}

/// A body with its revisions.
#[derive(Debug, Clone, Default)]
struct Tracked {
    seq: u64,
    value: Body,
    revisions: Revisions,
}

/// Revisions are not compared: equal values at an equal seq are equal, in however many changes they came about.
impl PartialEq for Tracked {
    fn eq(&self, other: &Self) -> bool {
        self.seq == other.seq && self.value == other.value
    }
}

impl Eq for Tracked {}

/// Limits of a transcript; an update that exceeds one is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Characters of a session's title. A longer title is truncated, not rejected.
    pub title_chars: usize,
    /// Bytes of a session's metadata as JSON.
    pub meta_bytes: usize,
    /// Bytes of one entry.
    pub entry_bytes: usize,
    /// Entries of one transcript.
    pub entries: usize,
    /// Bytes of all entries together.
    pub total_bytes: usize,
}

/// Why an update was rejected. The transcript is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateError {
    /// The session's metadata would be too large.
    MetaTooLarge {
        /// The size that it would have.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The entry would be too large.
    EntryTooLarge {
        /// The size that it would have.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The transcript would be too large.
    TranscriptTooLarge {
        /// The size that it would have.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The transcript has the maximum number of entries.
    TooManyEntries {
        /// The limit.
        limit: usize,
    },
    /// The agent sent an event, which only parlor writes.
    ReservedEntry,
    /// An agent with [`PromptMode::Serial`](crate::session::PromptMode) reported a state: its turns end with the
    /// responses to its prompts.
    UnexpectedState,
}

/// A value with the seq of its last change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Stamped<T> {
    seq: u64,
    value: T,
}

impl Transcript {
    /// An empty transcript with the given limits.
    pub fn with_limits(limits: Limits) -> Self {
        Self { limits: limits.clamped(), ..Self::default() }
    }

    /// Applies an update as the session's next change.
    ///
    /// The returned change is what was applied and what subscribers are sent: a title that is too long is truncated
    /// in it.
    pub fn push(&mut self, update: Update) -> Result<Change, UpdateError> {
        let seq = self.seq + 1;
        let update = self.with_title_limit(update);
        let entry = match &update {
            Update::Upsert { target: Target::Entry(entry), .. }
            | Update::Append { entry, .. }
            | Update::Remove { entry, .. } => Some(entry.clone()),
            Update::Output { terminal, .. } => Some(EntryId::Terminal(terminal.clone())),
            Update::Note { .. } => Some(EntryId::Note(seq)),
            Update::Upsert { target: Target::Slot(_), .. } | Update::State(_) => None,
        };
        let created = entry.map_or(0, |entry| self.get(&entry).map_or(seq, Entry::created));
        let meta_before = self.meta_before(&update);
        let change = Change { seq, created, update, meta_before };
        self.apply(&change)?;
        Ok(change)
    }

    /// Applies an update as the session's next change, at this time.
    pub fn push_at(&mut self, update: Update, at: UnixMillis) -> Result<Change, UpdateError> {
        let change = self.push(update)?;
        if change.is_creation()
            && let Ok(index) = self.entries.binary_search_by_key(&change.created, Entry::created)
        {
            self.entries[index].created_at = Some(at);
        }
        Ok(change)
    }

    /// Applies a change that has a seq already: a stored one, or one of another transcript.
    pub fn apply(&mut self, change: &Change) -> Result<(), UpdateError> {
        let Change { seq, created, .. } = *change;
        match &change.update {
            Update::Upsert { target: Target::Entry(entry), upsert } => {
                self.upsert_entry(entry, upsert, seq, created)?;
            }
            Update::Upsert { target: Target::Slot(slot), upsert } => self.upsert_slot(*slot, upsert, seq)?,
            Update::Append { entry, item, extra } => {
                let size = item.as_str().len() + extra.as_ref().map_or(0, |extra| extra.as_str().len());
                let body = self.grow(entry, size, seq, created)?;
                body.revisions.content.on_appended(body.value.content.len(), seq);
                body.value.content.push(item.raw(), extra.clone());
            }
            Update::Output { terminal, bytes, extra: _ } => {
                let body = self.grow(&EntryId::Terminal(terminal.clone()), bytes.len(), seq, created)?;
                body.revisions.output.on_chunk_appended(body.value.output.len(), seq);
                body.value.output.extend_from_slice(bytes);
            }
            Update::Remove { entry, extra: _ } => {
                let index = self.index_or_new(entry, created)?;
                let body = &mut self.entries[index].body;
                self.bytes -= body.value.size();
                let revisions = Revisions::removed(&body.value, &body.revisions, seq);
                *body = Tracked { seq, value: Body::tombstone(), revisions };
            }
            Update::Note { fields } => {
                let upsert = Upsert { whole: true, fields: fields.clone(), ..Upsert::default() };
                self.upsert_entry(&EntryId::Note(created), &upsert, seq, created)?;
            }
            Update::State(state) => self.state = Some(Stamped { seq, value: state.clone() }),
        }
        self.seq = self.seq.max(seq);
        Ok(())
    }

    /// The limits of this transcript.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The seq of the last change.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Bytes of all entries.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// About how many bytes of memory the transcript takes: its text, and what its containers cost for each entry.
    pub fn memory(&self) -> usize {
        self.bytes + self.entries.len() * Self::ENTRY_OVERHEAD
    }

    /// An entry, its place in the index, and the allocations of its id, its fields and its content.
    const ENTRY_OVERHEAD: usize = size_of::<Entry>() + 2 * size_of::<(EntryId, u64)>() + 192;

    /// The entries in order of first appearance, removed ones included.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// One entry.
    pub fn get(&self, id: &EntryId) -> Option<&Entry> {
        self.index(id).map(|index| &self.entries[index])
    }

    /// The value of a slot; `None` if it was never set.
    pub fn slot(&self, slot: Slot) -> Option<&Body> {
        let body = &self.slots[slot.index()];
        (body.seq > 0).then_some(&body.value)
    }

    /// The value of a slot with its seq and revisions.
    pub(crate) fn tracked_slot(&self, slot: Slot) -> (u64, &Body, &Revisions) {
        let tracked = &self.slots[slot.index()];
        (tracked.seq, &tracked.value, &tracked.revisions)
    }

    /// The seq of the change that reported the state, 0 if none did.
    pub fn state_seq(&self) -> u64 {
        self.state.as_ref().map_or(0, |state| state.seq)
    }

    /// The last reported state.
    pub fn state(&self) -> Option<&State> {
        self.state.as_ref().map(|state| &state.value)
    }

    /// The entry that a change created.
    pub(crate) fn entry_created_by(&self, created: u64) -> Option<&Entry> {
        let index = self.entries.binary_search_by_key(&created, Entry::created).ok()?;
        Some(&self.entries[index])
    }

    /// The entry that changed last, events excluded: a decision that is recorded during a message does not end the
    /// message.
    pub(crate) fn latest(&self) -> Option<&Entry> {
        self.entries.get(self.latest)
    }

    /// Inserts a restored entry at its position.
    pub(crate) fn put(
        &mut self,
        id: EntryId,
        (created, created_at): (u64, Option<UnixMillis>),
        seq: u64,
        body: Body,
        revisions: Revisions,
    ) {
        let index = self.entries.partition_point(|entry| entry.created < created);
        self.bytes += body.size();
        self.created.insert(id.clone(), created);
        let body = Tracked { seq, value: body, revisions };
        self.entries.insert(index, Entry { id, created, created_at, body });
        self.seq = self.seq.max(seq);
    }

    /// Inserts a restored slot.
    pub(crate) fn put_slot(&mut self, slot: Slot, seq: u64, body: Body, revisions: Revisions) {
        self.slots[slot.index()] = Tracked { seq, value: body, revisions };
        self.seq = self.seq.max(seq);
    }

    /// Inserts the restored state.
    pub(crate) fn put_state(&mut self, seq: u64, state: State) {
        self.state = Some(Stamped { seq, value: state });
        self.seq = self.seq.max(seq);
    }

    /// The metadata that an update will patch.
    fn meta_before(&self, update: &Update) -> Option<Object> {
        let Update::Upsert { target, upsert } = update else { return None };
        if upsert.meta == MetaPatch::Keep {
            return None;
        }
        match target {
            Target::Entry(id) => self.get(id)?.body().meta.clone(),
            Target::Slot(slot) => self.slot(*slot)?.meta.clone(),
        }
    }

    /// Truncates a title that is too long.
    fn with_title_limit(&self, mut update: Update) -> Update {
        if let Update::Upsert { target: Target::Slot(Slot::Info), upsert } = &mut update {
            let title = upsert.fields.get_json_str(TITLE);
            if let Some(cut) = title.and_then(|title| title.truncated(self.limits.title_chars)) {
                upsert.fields.set(TITLE, &cut);
            }
        }
        update
    }

    /// Checks whether a patch of a slot would be applied.
    pub fn check_upsert(&self, slot: Slot, upsert: &Upsert) -> Result<(), UpdateError> {
        self.patched_slot(slot, upsert).map(drop)
    }

    fn patched_slot(&self, slot: Slot, upsert: &Upsert) -> Result<Patched, UpdateError> {
        if slot == Slot::Info {
            // Checked before merging: a patch that is too large by itself need not be merged.
            self.limits.check_meta(upsert.meta.size())?;
        }
        let patched = self.slots[slot.index()].value.patched(upsert);
        if slot == Slot::Info {
            self.limits.check_meta(patched.meta_bytes)?;
        }
        self.limits.check_entry(patched.bytes)?;
        Ok(patched)
    }

    fn upsert_slot(&mut self, slot: Slot, upsert: &Upsert, seq: u64) -> Result<(), UpdateError> {
        let patched = self.patched_slot(slot, upsert)?;
        let stored = &mut self.slots[slot.index()];
        stored.revisions.on_upsert(&stored.value, upsert, seq);
        stored.seq = seq;
        stored.value.apply(patched, upsert);
        Ok(())
    }

    fn upsert_entry(
        &mut self,
        id: &EntryId,
        upsert: &Upsert,
        seq: u64,
        created: u64,
    ) -> Result<(), UpdateError> {
        let stored = self.get(id).map(Entry::body);
        let before = stored.map_or(0, Body::size);
        let patched = stored.unwrap_or(&Body::default()).patched(upsert);
        self.limits.check_entry(patched.bytes)?;
        let total = self.bytes - before + patched.bytes;
        self.limits.check_total(total)?;
        let index = self.index_or_new(id, created)?;
        self.bytes = total;
        let body = &mut self.entries[index].body;
        body.revisions.on_upsert(&body.value, upsert, seq);
        body.seq = seq;
        body.value.apply(patched, upsert);
        Ok(())
    }

    /// The body of an entry that will grow by `bytes`, created if it does not exist.
    fn grow(
        &mut self,
        id: &EntryId,
        bytes: usize,
        seq: u64,
        created: u64,
    ) -> Result<&mut Tracked, UpdateError> {
        self.limits.check_entry(self.get(id).map_or(0, |entry| entry.body().size()) + bytes)?;
        self.limits.check_total(self.bytes + bytes)?;
        let index = self.index_or_new(id, created)?;
        self.bytes += bytes;
        let body = &mut self.entries[index].body;
        body.seq = seq;
        body.value.removed = false;
        Ok(body)
    }

    fn index(&self, id: &EntryId) -> Option<usize> {
        match self.entries.get(self.latest) {
            Some(latest) if latest.id == *id => Some(self.latest),
            Some(_) | None => {
                let created = self.created.get(id)?;
                self.entries.binary_search_by_key(created, |entry| entry.created).ok()
            }
        }
    }

    fn index_or_new(&mut self, id: &EntryId, created: u64) -> Result<usize, UpdateError> {
        let is_event = matches!(id, EntryId::Event(_));
        if let Some(index) = self.index(id) {
            if !is_event {
                self.latest = index;
            }
            return Ok(index);
        }
        if self.entries.len() >= self.limits.entries {
            return Err(UpdateError::TooManyEntries { limit: self.limits.entries });
        }
        // Entries are created in order, except in a replica that catches up: there an entry that was created early
        // and changed late arrives after one that was created in between.
        let index = self.entries.partition_point(|entry| entry.created <= created);
        self.entries
            .insert(index, Entry { id: id.clone(), created, created_at: None, body: Tracked::default() });
        self.created.insert(id.clone(), created);
        if !is_event {
            self.latest = index;
        } else if index <= self.latest {
            self.latest += 1;
        }
        Ok(index)
    }
}

/// Transcripts are equal if their values and seqs are equal.
impl PartialEq for Transcript {
    fn eq(&self, other: &Self) -> bool {
        self.seq == other.seq
            && self.entries == other.entries
            && self.slots == other.slots
            && self.state == other.state
    }
}

impl Entry {
    /// The entry's id.
    pub fn id(&self) -> &EntryId {
        &self.id
    }

    /// The seq of the change that created it.
    pub fn created(&self) -> u64 {
        self.created
    }

    /// When it was created, if that is known.
    pub fn created_at(&self) -> Option<UnixMillis> {
        self.created_at
    }

    /// The seq of its last change.
    pub fn seq(&self) -> u64 {
        self.body.seq
    }

    /// Its value.
    pub fn body(&self) -> &Body {
        &self.body.value
    }

    /// The seq of the change that last replaced its content. Since then, content was only appended.
    pub fn content_replaced_at(&self) -> u64 {
        self.body.revisions.content.replaced_at()
    }

    /// The seq of the change that last replaced its output. Since then, output was only appended.
    pub fn output_replaced_at(&self) -> u64 {
        self.body.revisions.output.replaced_at()
    }

    /// The seqs of its parts.
    pub(crate) fn revisions(&self) -> &Revisions {
        &self.body.revisions
    }
}

impl Slot {
    /// All slots.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Info, Self::Usage, Self::Commands, Self::Options, Self::Mode, Self::Model];
    const COUNT: usize = 6;

    const fn index(self) -> usize {
        self as usize
    }
}

impl Limits {
    fn check_entry(&self, bytes: usize) -> Result<(), UpdateError> {
        if bytes > self.entry_bytes {
            return Err(UpdateError::EntryTooLarge { bytes, limit: self.entry_bytes });
        }
        Ok(())
    }

    fn check_total(&self, bytes: usize) -> Result<(), UpdateError> {
        if bytes > self.total_bytes {
            return Err(UpdateError::TranscriptTooLarge { bytes, limit: self.total_bytes });
        }
        Ok(())
    }

    fn check_meta(&self, bytes: usize) -> Result<(), UpdateError> {
        if bytes > self.meta_bytes {
            return Err(UpdateError::MetaTooLarge { bytes, limit: self.meta_bytes });
        }
        Ok(())
    }

    fn clamped(self) -> Self {
        Self { entry_bytes: self.entry_bytes.min(Content::MAX_BYTES), ..self }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            title_chars: 500,
            meta_bytes: 64 << 10,
            entry_bytes: 256 << 20,
            entries: 1_000_000,
            total_bytes: 2 << 30,
        }
    }
}

impl fmt::Display for UpdateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MetaTooLarge { bytes, limit } => {
                write!(f, "the session's metadata would be {bytes} bytes, the limit is {limit}")
            }
            Self::EntryTooLarge { bytes, limit } => {
                write!(f, "the entry would be {bytes} bytes, the limit is {limit}")
            }
            Self::TranscriptTooLarge { bytes, limit } => {
                write!(f, "the transcript would be {bytes} bytes, the limit is {limit}")
            }
            Self::TooManyEntries { limit } => write!(f, "the transcript has the maximum of {limit} entries"),
            Self::ReservedEntry => f.write_str("an agent cannot send events: only the server writes them"),
            Self::UnexpectedState => f.write_str("an agent of version 1 cannot report a state"),
        }
    }
}

impl std::error::Error for UpdateError {}
