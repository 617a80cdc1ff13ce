//! Replay: the part of a session that a subscriber has not received, in pieces.

use parlor_json::Json;

use crate::{Body, Entry, EntryId, MetaPatch, Patch, Slot, Target, Transcript, Update, Upsert};

/// Returns the updates that a subscriber with the changes up to one seq lacks up to another.
///
/// Attaching, resuming and catching up all use it. Updates are returned one at a time, and the session may change
/// between them: later changes are left to the next replay. Text that the subscriber has is not returned again; a
/// message is returned as a whole only if it is new to the subscriber or was replaced.
///
/// ```
/// use parlor_json::Json;
/// use parlor_session::{EntryId, ReplayCursor, Role, Transcript, Update};
///
/// let mut transcript = Transcript::default();
/// let mut append = |text: &str| {
///     let entry = EntryId::Message(Role::Agent, "m".into());
///     let item = Json::parse(format!(r#"{{"type":"text","text":"{text}"}}"#)).unwrap();
///     transcript.push(Update::Append { entry, item, extra: None }).unwrap();
/// };
/// ["a", "b", "c"].map(&mut append);
/// let mut cursor = ReplayCursor::new(1, 3);
/// let Some(Update::Append { item, .. }) = cursor.next(&transcript, 1 << 20) else { panic!() };
/// assert_eq!(item.as_str(), r#"{"type":"text","text":"bc"}"#);
/// assert_eq!(cursor.next(&transcript, 1 << 20), None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayCursor {
    since: u64,
    through: u64,
    position: Position,
    /// The creation of the first entry that is not replayed, if only some entries are.
    end: Option<u64>,
    /// Slots that the subscriber receives by other means.
    without: &'static [Slot],
}

/// How far a replay has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// Before the first entry that was created after this change.
    Entries(u64),
    /// Inside the entry that this change created.
    Within(u64, Part),
    /// Before this slot.
    Slots(usize),
    /// Before the metadata of this slot; the subscriber's copy was cleared.
    SlotMeta(usize),
    /// Before the state.
    State,
    /// At the end.
    End,
}

/// The next part of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Its existence and its fields.
    Head,
    /// Its metadata; the subscriber's copy was cleared.
    Meta,
    /// Its content from this item on.
    Content(usize),
    /// Its output from this byte on.
    Output(usize),
}

impl ReplayCursor {
    /// Replays the changes after `since`, up to and including `through`.
    pub fn new(since: u64, through: u64) -> Self {
        Self { since, through, position: Position::Entries(0), end: None, without: &[] }
    }

    /// Replays the present state to a new subscriber, without the entries that were created before `first`.
    pub fn tail(first: u64, through: u64) -> Self {
        Self { position: Position::Entries(first.saturating_sub(1)), ..Self::new(0, through) }
    }

    /// Replays the present state of the entries that were created from `first` on and before `end`, and nothing else.
    pub fn range(first: u64, end: u64, through: u64) -> Self {
        Self { end: Some(end), ..Self::tail(first, through) }
    }

    /// Leaves these slots out.
    #[must_use]
    pub fn without(self, slots: &'static [Slot]) -> Self {
        Self { without: slots, ..self }
    }

    /// The last change that is replayed.
    pub fn through(&self) -> u64 {
        self.through
    }

    /// Returns the next update. One that carries content has at most about `bytes` bytes, unless a single item is
    /// longer.
    pub fn next(&mut self, transcript: &Transcript, bytes: usize) -> Option<Update> {
        loop {
            match self.position {
                Position::Entries(after) => {
                    let entries = transcript.entries();
                    let first = entries.partition_point(|entry| entry.created() <= after);
                    let changed = entries[first..].iter().find(|entry| entry.seq() > self.since);
                    let is_included =
                        |created: u64| created <= self.through && self.end.is_none_or(|end| created < end);
                    self.position = match changed.filter(|entry| is_included(entry.created())) {
                        Some(entry) => Position::Within(entry.created(), Part::Head),
                        None if self.end.is_some() => Position::End,
                        None => Position::Slots(0),
                    };
                }
                Position::Within(created, part) => {
                    let index = transcript.entries().binary_search_by_key(&created, Entry::created);
                    let entry = index.ok().map(|index| &transcript.entries()[index]);
                    let (update, next) = entry.map_or((None, None), |entry| self.part(entry, part, bytes));
                    self.position =
                        next.map_or(Position::Entries(created), |next| Position::Within(created, next));
                    if update.is_some() {
                        return update;
                    }
                }
                Position::Slots(index) => match Slot::ALL.get(index) {
                    Some(slot) => {
                        let (seq, body, revisions) = transcript.tracked_slot(*slot);
                        self.position = Position::Slots(index + 1);
                        if seq > self.since && seq <= self.through && !self.without.contains(slot) {
                            let meta = match &body.meta {
                                None => MetaPatch::Clear,
                                // Only the session info is patched; every other slot is sent as a whole.
                                Some(meta) if self.since == 0 || *slot != Slot::Info => {
                                    MetaPatch::Replace(meta.clone())
                                }
                                Some(_) => {
                                    self.position = Position::SlotMeta(index);
                                    MetaPatch::Clear
                                }
                            };
                            let fields = revisions.fields_with_cleared(body);
                            let upsert = Upsert { fields, meta, ..Upsert::default() };
                            return Some(Update::Upsert { target: Target::Slot(*slot), upsert });
                        }
                    }
                    None => self.position = Position::State,
                },
                Position::SlotMeta(index) => {
                    self.position = Position::Slots(index + 1);
                    let meta = transcript.slot(Slot::ALL[index]).and_then(|body| body.meta.clone());
                    if let Some(meta) = meta {
                        let upsert = Upsert { meta: MetaPatch::Replace(meta), ..Upsert::default() };
                        return Some(Update::Upsert { target: Target::Slot(Slot::ALL[index]), upsert });
                    }
                }
                Position::State => {
                    self.position = Position::End;
                    let seq = transcript.state_seq();
                    if seq > self.since && seq <= self.through {
                        return transcript.state().cloned().map(Update::State);
                    }
                }
                Position::End => return None,
            }
        }
    }

    /// Returns one part of an entry as an update, and the part that follows it.
    fn part(&self, entry: &Entry, part: Part, bytes: usize) -> (Option<Update>, Option<Part>) {
        let (body, revisions) = (entry.body(), entry.revisions());
        let is_new = entry.created() > self.since;
        if body.removed {
            let removal = Update::Remove { entry: entry.id().clone(), extra: None };
            // An entry that was removed after `through` is sent now if it is new to the subscriber, so that it keeps its
            // position if it is created again.
            return ((is_new || entry.seq() <= self.through).then_some(removal), None);
        }
        let upsert =
            |upsert: Upsert| Some(Update::Upsert { target: Target::Entry(entry.id().clone()), upsert });
        if let EntryId::Plan(_) = entry.id() {
            // A plan is sent as a whole: no dialect can send a part of it.
            let meta = body.meta.clone().map_or(MetaPatch::Keep, MetaPatch::Replace);
            let whole = Upsert { whole: true, fields: body.fields.clone(), meta, ..Upsert::default() };
            return (upsert(whole), None);
        }
        match part {
            Part::Head if is_new => {
                let (content, next) = self.first_content(entry, bytes);
                let (output, next) = match next {
                    Some(next) => (Patch::Omitted, Some(next)),
                    None => self.first_output(body, entry, bytes),
                };
                let meta = body.meta.clone().map_or(MetaPatch::Keep, MetaPatch::Replace);
                (upsert(Upsert { whole: true, fields: body.fields.clone(), content, output, meta }), next)
            }
            Part::Head => {
                let fields = revisions.fields_with_cleared(body);
                let head = (revisions.fields > self.since).then(|| Upsert { fields, ..Upsert::default() });
                let cleared = (revisions.meta > self.since).then_some(MetaPatch::Clear);
                let next = if cleared.is_some() { Part::Meta } else { self.content_part(entry) };
                match (head, cleared) {
                    (None, None) => (None, Some(next)),
                    (head, cleared) => {
                        let meta = cleared.unwrap_or_default();
                        (upsert(Upsert { meta, ..head.unwrap_or_default() }), Some(next))
                    }
                }
            }
            Part::Meta => {
                let meta = body.meta.clone().map(MetaPatch::Replace);
                let update = meta.and_then(|meta| upsert(Upsert { meta, ..Upsert::default() }));
                (update, Some(self.content_part(entry)))
            }
            Part::Content(0) if revisions.content.replaced_at() > self.since && !is_new => {
                if revisions.content.replaced_at() > self.through {
                    return (None, Some(self.output_part(entry)));
                }
                let (content, next) = self.first_content(entry, bytes);
                let next = next.unwrap_or_else(|| self.output_part(entry));
                (upsert(Upsert { content, ..Upsert::default() }), Some(next))
            }
            Part::Content(from) => {
                let end = revisions.content.first_after(self.through, body.content.len());
                if from >= end {
                    return (None, Some(self.output_part(entry)));
                }
                // A chunk carries one block, so this is one joined block.
                let (piece, next) =
                    body.content.joined_range(from..first_block(body, from..end, bytes), bytes);
                let first = piece.iter().next().and_then(|item| {
                    let update = Json::parse(item.json).ok()?;
                    Some(Update::Append {
                        entry: entry.id().clone(),
                        item: update,
                        extra: item.extra.cloned(),
                    })
                });
                (first, Some(Part::Content(next)))
            }
            Part::Output(from) => {
                let EntryId::Terminal(terminal) = entry.id() else { return (None, None) };
                let replaced = revisions.output.replaced_at();
                if from == 0 && replaced > self.since && !is_new {
                    if replaced > self.through {
                        return (None, None);
                    }
                    let (output, next) = self.first_output(body, entry, bytes);
                    let output = if output == Patch::Omitted { Patch::Clear } else { output };
                    return (upsert(Upsert { output, ..Upsert::default() }), next);
                }
                let end = revisions.output.first_chunk_after(self.through, body.output.len());
                if from >= end {
                    return (None, None);
                }
                let to = end.min(from + bytes.max(1));
                let update = Update::Output {
                    terminal: terminal.clone(),
                    bytes: body.output[from..to].to_vec(),
                    extra: None,
                };
                (Some(update), Some(Part::Output(to)))
            }
        }
    }

    /// The content that a subscriber without any gets first, and the part that follows.
    fn first_content(&self, entry: &Entry, bytes: usize) -> (Patch<crate::Content>, Option<Part>) {
        let (body, revisions) = (entry.body(), entry.revisions());
        if revisions.content.replaced_at() > self.through {
            // The present content is newer than `through` and will be sent as a whole by a later replay.
            return (Patch::Omitted, None);
        }
        let end = revisions.content.first_after(self.through, body.content.len());
        if end == 0 {
            let is_new = entry.created() > self.since;
            return (if is_new { Patch::Omitted } else { Patch::Clear }, None);
        }
        let (piece, next) = body.content.joined_range(0..end, bytes);
        (Patch::Value(piece), (next < end).then_some(Part::Content(next)))
    }

    fn first_output(&self, body: &Body, entry: &Entry, bytes: usize) -> (Patch<Vec<u8>>, Option<Part>) {
        if entry.revisions().output.replaced_at() > self.through {
            return (Patch::Omitted, None);
        }
        let end = entry.revisions().output.first_chunk_after(self.through, body.output.len());
        if end == 0 {
            return (Patch::Omitted, None);
        }
        let to = end.min(bytes.max(1));
        (Patch::Value(body.output[..to].to_vec()), (to < end).then_some(Part::Output(to)))
    }

    /// The position of the first content that a subscriber with the entry lacks.
    fn content_part(&self, entry: &Entry) -> Part {
        Part::Content(entry.revisions().content.first_after(self.since, entry.body().content.len()))
    }

    fn output_part(&self, entry: &Entry) -> Part {
        if entry.created() > self.since {
            // The head carries as much content as fits, and no output if content is left.
            return Part::Output(0);
        }
        Part::Output(entry.revisions().output.first_chunk_after(self.since, entry.body().output.len()))
    }
}

/// The end of the items that join into the first block of a range. Items beyond `bytes` are not read.
fn first_block(body: &Body, indexes: std::ops::Range<usize>, bytes: usize) -> usize {
    let from = indexes.start;
    let is_plain = |item: &crate::Item<'_>| item.extra.is_none() && crate::plain_text(item.json).is_some();
    let mut bytes_read = 0;
    let fits = |item: &crate::Item<'_>| {
        bytes_read += item.json.len();
        bytes_read <= bytes
    };
    from + body.content.range(indexes).take_while(fits).take_while(is_plain).count().max(1)
}
