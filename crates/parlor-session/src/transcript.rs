use std::collections::HashMap;
use std::fmt;

use parlor_json::{JsonStr, Object};

use crate::body::Patched;
use crate::revisions::Revisions;
use crate::{Body, Change, Content, EntryId, MetaPatch, Slot, State, TITLE, Target, Update, Upsert};

/// A session's conversation: its entries in order of first appearance, its slots and its state.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    seq: u64,
    entries: Vec<Entry>,
    /// The change that made each entry. Entries are in that order, so it leads to the place of one.
    created: HashMap<EntryId, u64>,
    /// Where the last change went, unless it was an event: a stream of chunks finds its entry without a look-up.
    latest: usize,
    slots: [Tracked; Slot::COUNT],
    state: Option<Stamped<State>>,
    /// What all entries take.
    bytes: usize,
    limits: Limits,
}

/// One item of a transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    id: EntryId,
    created: u64,
    body: Tracked,
}

/// A body with the numbers of its changes.
#[derive(Debug, Clone, Default)]
struct Tracked {
    seq: u64,
    value: Body,
    news: Revisions,
}

/// Who says the same at the same number is equal, in however many steps it came about.
impl PartialEq for Tracked {
    fn eq(&self, other: &Self) -> bool {
        self.seq == other.seq && self.value == other.value
    }
}

impl Eq for Tracked {}

/// How much a transcript takes before it refuses more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Characters of a session's title. A longer one is cut, not refused.
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

/// Why an update was not taken. The transcript is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The session's metadata would be too large.
    MetaTooLarge {
        /// What it would be.
        bytes: usize,
        /// What it may be.
        limit: usize,
    },
    /// The entry would be too large.
    EntryTooLarge {
        /// What it would be.
        bytes: usize,
        /// What it may be.
        limit: usize,
    },
    /// The transcript would be too large.
    TranscriptTooLarge {
        /// What it would be.
        bytes: usize,
        /// What it may be.
        limit: usize,
    },
    /// The transcript has as many entries as it may have.
    TooManyEntries {
        /// How many that is.
        limit: usize,
    },
    /// Only parlor itself writes events.
    ReservedEntry,
    /// An agent that takes prompts one by one reported a state: its turns end with the answers to its prompts.
    UnexpectedState,
}

/// A value with the number of its last change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Stamped<T> {
    seq: u64,
    value: T,
}

impl Transcript {
    /// An empty transcript with limits of its own.
    pub fn with_limits(limits: Limits) -> Self {
        Self { limits: limits.sane(), ..Self::default() }
    }

    /// Takes an update as the session's next change.
    ///
    /// The change that comes back is what really happened, and what others are to be told: a title that was
    /// too long is cut in it.
    pub fn push(&mut self, update: Update) -> Result<Change, Refused> {
        let seq = self.seq + 1;
        let update = self.settled(update);
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

    /// Takes a change that has its number already: one that was stored, or that another transcript made.
    pub fn apply(&mut self, change: &Change) -> Result<(), Refused> {
        let Change { seq, created, .. } = *change;
        match &change.update {
            Update::Upsert { target: Target::Entry(entry), upsert } => {
                self.upsert_entry(entry, upsert, seq, created)?;
            }
            Update::Upsert { target: Target::Slot(slot), upsert } => self.upsert_slot(*slot, upsert, seq)?,
            Update::Append { entry, item, extra } => {
                let size = item.as_str().len() + extra.as_ref().map_or(0, |extra| extra.as_str().len());
                let body = self.grow(entry, size, seq, created)?;
                body.news.content.grew(body.value.content.len(), seq);
                body.value.content.push(item.raw(), extra.clone());
            }
            Update::Output { terminal, bytes, extra: _ } => {
                let body = self.grow(&EntryId::Terminal(terminal.clone()), bytes.len(), seq, created)?;
                body.news.output.grew_by_chunk(body.value.output.len(), seq);
                body.value.output.extend_from_slice(bytes);
            }
            Update::Remove { entry, extra: _ } => {
                let place = self.place_or_new(entry, created)?;
                let body = &mut self.entries[place].body;
                self.bytes -= body.value.size();
                let news = Revisions::removed(&body.value, &body.news, seq);
                *body = Tracked { seq, value: Body::tombstone(), news };
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

    /// What changed after change number `seq`, as updates that bring any transcript at `seq` to this one.
    ///
    /// Everything that changed comes once and as a whole, in the order of its last change: a reader that stops
    /// in between and goes on after the last number it took misses nothing.
    pub fn changes_since(&self, seq: u64) -> impl Iterator<Item = Change> + '_ {
        let mut changed: Vec<(u64, Changed<'_>)> = Vec::new();
        changed.extend(self.entries.iter().map(|entry| (entry.seq(), Changed::Entry(entry))));
        changed.extend(Slot::ALL.map(|slot| (self.slots[slot.place()].seq, Changed::Slot(slot))));
        changed.extend(self.state.iter().map(|state| (state.seq, Changed::State(&state.value))));
        changed.retain(|(changed, _)| *changed > seq);
        changed.sort_by_key(|(changed, _)| *changed);
        changed.into_iter().map(|(seq, changed)| match changed {
            Changed::Entry(entry) => {
                let update = if entry.body().removed {
                    Update::Remove { entry: entry.id.clone(), extra: None }
                } else {
                    let target = Target::Entry(entry.id.clone());
                    Update::Upsert { target, upsert: entry.body().to_upsert() }
                };
                Change { seq, created: entry.created, update, meta_before: None }
            }
            Changed::Slot(slot) => {
                let upsert = self.slots[slot.place()].value.to_upsert();
                let update = Update::Upsert { target: Target::Slot(slot), upsert };
                Change { seq, created: 0, update, meta_before: None }
            }
            Changed::State(state) => {
                Change { seq, created: 0, update: Update::State(state.clone()), meta_before: None }
            }
        })
    }

    /// How much it takes.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The number of the last change.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// How many bytes all entries take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The entries in order of first appearance, removed ones included.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// One entry.
    pub fn get(&self, id: &EntryId) -> Option<&Entry> {
        self.place(id).map(|place| &self.entries[place])
    }

    /// What is in a slot, or `None` if nothing was ever said about it.
    pub fn slot(&self, slot: Slot) -> Option<&Body> {
        let body = &self.slots[slot.place()];
        (body.seq > 0).then_some(&body.value)
    }

    /// What is in a slot, with the numbers of its changes.
    pub(crate) fn tracked_slot(&self, slot: Slot) -> (u64, &Body, &Revisions) {
        let tracked = &self.slots[slot.place()];
        (tracked.seq, &tracked.value, &tracked.news)
    }

    /// The number of the change that reported the state, 0 if none did.
    pub fn state_seq(&self) -> u64 {
        self.state.as_ref().map_or(0, |state| state.seq)
    }

    /// The last reported state.
    pub fn state(&self) -> Option<&State> {
        self.state.as_ref().map(|state| &state.value)
    }

    /// The entry that a change made.
    pub(crate) fn entry_made_by(&self, created: u64) -> Option<&Entry> {
        let place = self.entries.binary_search_by_key(&created, Entry::created).ok()?;
        Some(&self.entries[place])
    }

    /// The entry that changed last, events apart: a message is still being written when somebody decides meanwhile.
    pub(crate) fn latest(&self) -> Option<&Entry> {
        self.entries.get(self.latest)
    }

    /// Puts an entry that was kept where it was.
    pub(crate) fn put(&mut self, id: EntryId, created: u64, seq: u64, body: Body, news: Revisions) {
        let place = self.entries.partition_point(|entry| entry.created < created);
        self.bytes += body.size();
        self.created.insert(id.clone(), created);
        self.entries.insert(place, Entry { id, created, body: Tracked { seq, value: body, news } });
        self.seq = self.seq.max(seq);
    }

    /// Puts a slot that was kept where it was.
    pub(crate) fn put_slot(&mut self, slot: Slot, seq: u64, body: Body, news: Revisions) {
        self.slots[slot.place()] = Tracked { seq, value: body, news };
        self.seq = self.seq.max(seq);
    }

    /// Puts the state that was kept where it was.
    pub(crate) fn put_state(&mut self, seq: u64, state: State) {
        self.state = Some(Stamped { seq, value: state });
        self.seq = self.seq.max(seq);
    }

    /// The metadata that an update is about to patch.
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

    /// The update as this transcript will take it.
    fn settled(&self, mut update: Update) -> Update {
        if let Update::Upsert { target: Target::Slot(Slot::Info), upsert } = &mut update {
            let title = upsert.fields.get(TITLE).and_then(|title| JsonStr::from_raw(title.raw()));
            if let Some(cut) = title.and_then(|title| title.truncated(self.limits.title_chars)) {
                upsert.fields.set(TITLE, &cut);
            }
        }
        update
    }

    /// Whether a patch of a slot would be taken.
    pub fn would_take(&self, slot: Slot, upsert: &Upsert) -> Result<(), Refused> {
        self.patched_slot(slot, upsert).map(drop)
    }

    fn patched_slot(&self, slot: Slot, upsert: &Upsert) -> Result<Patched, Refused> {
        if slot == Slot::Info {
            // Looked at before anything is merged: a patch that is too large alone is not worth the work.
            self.limits.check_meta(upsert.meta.size())?;
        }
        let patched = self.slots[slot.place()].value.patched(upsert);
        if slot == Slot::Info {
            self.limits.check_meta(patched.meta_bytes)?;
        }
        self.limits.check_entry(patched.bytes)?;
        Ok(patched)
    }

    fn upsert_slot(&mut self, slot: Slot, upsert: &Upsert, seq: u64) -> Result<(), Refused> {
        let patched = self.patched_slot(slot, upsert)?;
        let stored = &mut self.slots[slot.place()];
        stored.news.upserted(&stored.value, upsert, seq);
        stored.seq = seq;
        stored.value.take(patched, upsert);
        Ok(())
    }

    fn upsert_entry(&mut self, id: &EntryId, upsert: &Upsert, seq: u64, created: u64) -> Result<(), Refused> {
        let stored = self.get(id).map(Entry::body);
        let before = stored.map_or(0, Body::size);
        let patched = stored.unwrap_or(&Body::default()).patched(upsert);
        self.limits.check_entry(patched.bytes)?;
        let total = self.bytes - before + patched.bytes;
        self.limits.check_total(total)?;
        let place = self.place_or_new(id, created)?;
        self.bytes = total;
        let body = &mut self.entries[place].body;
        body.news.upserted(&body.value, upsert, seq);
        body.seq = seq;
        body.value.take(patched, upsert);
        Ok(())
    }

    /// The body of an entry that is to grow by `bytes`, made if it is not there.
    fn grow(&mut self, id: &EntryId, bytes: usize, seq: u64, created: u64) -> Result<&mut Tracked, Refused> {
        self.limits.check_entry(self.get(id).map_or(0, |entry| entry.body().size()) + bytes)?;
        self.limits.check_total(self.bytes + bytes)?;
        let place = self.place_or_new(id, created)?;
        self.bytes += bytes;
        let body = &mut self.entries[place].body;
        body.seq = seq;
        body.value.removed = false;
        Ok(body)
    }

    fn place(&self, id: &EntryId) -> Option<usize> {
        match self.entries.get(self.latest) {
            Some(latest) if latest.id == *id => Some(self.latest),
            Some(_) | None => {
                let created = self.created.get(id)?;
                self.entries.binary_search_by_key(created, |entry| entry.created).ok()
            }
        }
    }

    fn place_or_new(&mut self, id: &EntryId, created: u64) -> Result<usize, Refused> {
        let is_event = matches!(id, EntryId::Event(_));
        if let Some(place) = self.place(id) {
            if !is_event {
                self.latest = place;
            }
            return Ok(place);
        }
        if self.entries.len() >= self.limits.entries {
            return Err(Refused::TooManyEntries { limit: self.limits.entries });
        }
        // Entries are made in order, except for who catches up: there one that was made early and changed
        // late comes after one that was made between.
        let place = self.entries.partition_point(|entry| entry.created <= created);
        self.entries.insert(place, Entry { id: id.clone(), created, body: Tracked::default() });
        self.created.insert(id.clone(), created);
        if !is_event {
            self.latest = place;
        } else if place <= self.latest {
            self.latest += 1;
        }
        Ok(place)
    }
}

/// Something that changed.
enum Changed<'a> {
    Entry(&'a Entry),
    Slot(Slot),
    State(&'a State),
}

/// Two transcripts are equal when they say the same and number it the same.
impl PartialEq for Transcript {
    fn eq(&self, other: &Self) -> bool {
        self.seq == other.seq
            && self.entries == other.entries
            && self.slots == other.slots
            && self.state == other.state
    }
}

impl Entry {
    /// The entry's name.
    pub fn id(&self) -> &EntryId {
        &self.id
    }

    /// The number of the change that made it.
    pub fn created(&self) -> u64 {
        self.created
    }

    /// The number of the last change to this entry.
    pub fn seq(&self) -> u64 {
        self.body.seq
    }

    /// What is known of it.
    pub fn body(&self) -> &Body {
        &self.body.value
    }

    /// Which change brought what.
    pub(crate) fn news(&self) -> &Revisions {
        &self.body.news
    }
}

impl Slot {
    /// All of them.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Info, Self::Usage, Self::Commands, Self::Options, Self::Mode, Self::Model];
    const COUNT: usize = 6;

    const fn place(self) -> usize {
        self as usize
    }
}

impl Limits {
    fn check_entry(&self, bytes: usize) -> Result<(), Refused> {
        if bytes > self.entry_bytes {
            return Err(Refused::EntryTooLarge { bytes, limit: self.entry_bytes });
        }
        Ok(())
    }

    fn check_total(&self, bytes: usize) -> Result<(), Refused> {
        if bytes > self.total_bytes {
            return Err(Refused::TranscriptTooLarge { bytes, limit: self.total_bytes });
        }
        Ok(())
    }

    fn check_meta(&self, bytes: usize) -> Result<(), Refused> {
        if bytes > self.meta_bytes {
            return Err(Refused::MetaTooLarge { bytes, limit: self.meta_bytes });
        }
        Ok(())
    }

    fn sane(self) -> Self {
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

impl fmt::Display for Refused {
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
            Self::TooManyEntries { limit } => write!(f, "the transcript has {limit} entries, the limit"),
            Self::ReservedEntry => f.write_str("an agent cannot write events"),
            Self::UnexpectedState => f.write_str("an agent of version 1 cannot report states"),
        }
    }
}

impl std::error::Error for Refused {}
