use std::collections::HashMap;
use std::fmt;

use parlor_json::JsonStr;

use crate::{Body, Change, Content, EntryId, Slot, State, TITLE, Target, Update, Upsert};

/// A session's conversation: its entries in order of first appearance, its slots and its state.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    seq: u64,
    entries: Vec<Entry>,
    places: HashMap<EntryId, usize>,
    /// Where the last change went: a stream of chunks finds its entry without a look-up.
    latest: usize,
    slots: [Stamped<Body>; Slot::COUNT],
    state: Option<Stamped<State>>,
    limits: Limits,
}

/// One item of a transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    id: EntryId,
    body: Stamped<Body>,
}

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
    /// The transcript has as many entries as it may have.
    TooManyEntries {
        /// How many that is.
        limit: usize,
    },
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
        let change = Change { seq, update: self.settled(update) };
        self.apply(&change)?;
        Ok(change)
    }

    /// Takes a change that has its number already: one that was stored, or that another transcript made.
    pub fn apply(&mut self, change: &Change) -> Result<(), Refused> {
        let seq = change.seq;
        match &change.update {
            Update::Upsert { target, upsert } => self.upsert(target, upsert, seq)?,
            Update::Append { entry, item, extra } => {
                let size = item.as_str().len() + extra.as_ref().map_or(0, |extra| extra.as_str().len());
                let body = self.grow(entry, size, seq)?;
                body.content.push(item.raw(), extra.clone());
            }
            Update::Output { terminal, bytes } => {
                let body = self.grow(&EntryId::Terminal(terminal.clone()), bytes.len(), seq)?;
                body.output.extend_from_slice(bytes);
            }
            Update::Remove { entry } => {
                let place = self.place_or_new(entry)?;
                self.entries[place].body = Stamped { seq, value: Body { removed: true, ..Body::default() } };
            }
            Update::Note { fields } => {
                let upsert = Upsert { whole: true, fields: fields.clone(), ..Upsert::default() };
                self.upsert(&Target::Entry(EntryId::Note(seq)), &upsert, seq)?;
            }
            Update::State(state) => self.state = Some(Stamped { seq, value: state.clone() }),
        }
        self.seq = self.seq.max(seq);
        Ok(())
    }

    /// What changed after change number `seq`, as updates that bring any transcript at `seq` to this one.
    ///
    /// Entries come in their order, each once and as a whole, however often it changed.
    pub fn changes_since(&self, seq: u64) -> impl Iterator<Item = Change> + '_ {
        let entries = self.entries.iter().filter(move |entry| entry.seq() > seq).map(|entry| {
            let update = if entry.body().removed {
                Update::Remove { entry: entry.id.clone() }
            } else {
                Update::Upsert { target: Target::Entry(entry.id.clone()), upsert: entry.body().to_upsert() }
            };
            Change { seq: entry.seq(), update }
        });
        let slots = Slot::ALL.into_iter().map(|slot| (slot, &self.slots[slot.place()]));
        let slots = slots.filter(move |(_, body)| body.seq > seq).map(|(slot, body)| Change {
            seq: body.seq,
            update: Update::Upsert { target: Target::Slot(slot), upsert: body.value.to_upsert() },
        });
        let state = self.state.iter().filter(move |state| state.seq > seq);
        let state = state.map(|state| Change { seq: state.seq, update: Update::State(state.value.clone()) });
        entries.chain(slots).chain(state)
    }

    /// The number of the last change.
    pub fn seq(&self) -> u64 {
        self.seq
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

    /// The last reported state.
    pub fn state(&self) -> Option<&State> {
        self.state.as_ref().map(|state| &state.value)
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

    fn upsert(&mut self, target: &Target, upsert: &Upsert, seq: u64) -> Result<(), Refused> {
        let stored = match target {
            Target::Entry(id) => self.get(id).map(Entry::body),
            Target::Slot(slot) => Some(&self.slots[slot.place()].value),
        };
        let patched = stored.unwrap_or(&Body::default()).patched(upsert);
        if *target == Target::Slot(Slot::Info) && patched.meta_bytes > self.limits.meta_bytes {
            return Err(Refused::MetaTooLarge { bytes: patched.meta_bytes, limit: self.limits.meta_bytes });
        }
        self.limits.check_entry(patched.bytes)?;
        let body = match target {
            Target::Entry(id) => {
                let place = self.place_or_new(id)?;
                &mut self.entries[place].body
            }
            Target::Slot(slot) => &mut self.slots[slot.place()],
        };
        body.seq = seq;
        body.value.take(patched, upsert);
        Ok(())
    }

    /// The body of an entry that is to grow by `bytes`, made if it is not there.
    fn grow(&mut self, id: &EntryId, bytes: usize, seq: u64) -> Result<&mut Body, Refused> {
        let stored = self.get(id).map_or(0, |entry| entry.body().size());
        self.limits.check_entry(stored + bytes)?;
        let place = self.place_or_new(id)?;
        let body = &mut self.entries[place].body;
        body.seq = seq;
        body.value.removed = false;
        Ok(&mut body.value)
    }

    fn place(&self, id: &EntryId) -> Option<usize> {
        match self.entries.get(self.latest) {
            Some(latest) if latest.id == *id => Some(self.latest),
            Some(_) | None => self.places.get(id).copied(),
        }
    }

    fn place_or_new(&mut self, id: &EntryId) -> Result<usize, Refused> {
        if let Some(place) = self.place(id) {
            self.latest = place;
            return Ok(place);
        }
        let place = self.entries.len();
        if place >= self.limits.entries {
            return Err(Refused::TooManyEntries { limit: self.limits.entries });
        }
        self.entries.push(Entry { id: id.clone(), body: Stamped::default() });
        self.places.insert(id.clone(), place);
        self.latest = place;
        Ok(place)
    }
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

    /// The number of the last change to this entry.
    pub fn seq(&self) -> u64 {
        self.body.seq
    }

    /// What is known of it.
    pub fn body(&self) -> &Body {
        &self.body.value
    }
}

impl Slot {
    const ALL: [Self; Self::COUNT] = [Self::Info, Self::Usage, Self::Commands, Self::Options, Self::Mode];
    const COUNT: usize = 5;

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

    fn sane(self) -> Self {
        Self { entry_bytes: self.entry_bytes.min(Content::MAX_BYTES), ..self }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { title_chars: 500, meta_bytes: 64 << 10, entry_bytes: 256 << 20, entries: 1_000_000 }
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
            Self::TooManyEntries { limit } => write!(f, "the transcript has {limit} entries, the limit"),
        }
    }
}

impl std::error::Error for Refused {}
