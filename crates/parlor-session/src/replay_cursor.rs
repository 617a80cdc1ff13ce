//! Telling somebody what they have not seen yet, at their own pace.

use parlor_json::Json;

use crate::{Body, Entry, EntryId, MetaPatch, Patch, Slot, Target, Transcript, Update, Upsert};

/// What a reader who has seen a session up to one change lacks of it up to another.
///
/// Joining, coming back and catching up are all this. Updates come one at a time, and the session may change between
/// them: what is added later is left to the next reading. Text that the reader has is never told again; a message
/// comes as a whole only if it is new to the reader or was replaced.
///
/// ```
/// use parlor_json::Json;
/// use parlor_session::{EntryId, Reading, Role, Transcript, Update};
///
/// let mut transcript = Transcript::default();
/// let mut say = |text: &str| {
///     let entry = EntryId::Message(Role::Agent, "m".into());
///     let item = Json::parse(format!(r#"{{"type":"text","text":"{text}"}}"#)).unwrap();
///     transcript.push(Update::Append { entry, item, extra: None }).unwrap();
/// };
/// ["a", "b", "c"].map(&mut say);
/// let mut reading = Reading::new(1, 3);
/// let Some(Update::Append { item, .. }) = reading.next(&transcript, 1 << 20) else { panic!() };
/// assert_eq!(item.as_str(), r#"{"type":"text","text":"bc"}"#);
/// assert_eq!(reading.next(&transcript, 1 << 20), None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayCursor {
    since: u64,
    upto: u64,
    place: Place,
    /// Slots that the reader is told of in another way.
    without: &'static [Slot],
}

/// How far a reading has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before the first entry that was created after this change.
    Entries(u64),
    /// In the middle of the entry that this change created.
    Within(u64, Part),
    /// Before this slot.
    Slots(usize),
    /// Before the metadata of this slot, after what the reader had was cleared.
    SlotMeta(usize),
    /// Before the state.
    State,
    /// At the end.
    End,
}

/// What comes next of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// That it is there, and its fields.
    Head,
    /// Its metadata, after what the reader had was cleared.
    Meta,
    /// Its content from this item on.
    Content(usize),
    /// Its output from this byte on.
    Output(usize),
}

impl ReplayCursor {
    /// What changed after `since`, up to and with `upto`.
    pub fn new(since: u64, upto: u64) -> Self {
        Self { since, upto, place: Place::Entries(0), without: &[] }
    }

    /// The same, but for these slots.
    #[must_use]
    pub fn without(self, slots: &'static [Slot]) -> Self {
        Self { without: slots, ..self }
    }

    /// Up to which change this tells.
    pub fn upto(&self) -> u64 {
        self.upto
    }

    /// The next update. One that carries content is at most about `bytes` long, unless a single item is longer.
    pub fn next(&mut self, transcript: &Transcript, bytes: usize) -> Option<Update> {
        loop {
            match self.place {
                Place::Entries(after) => {
                    let entries = transcript.entries();
                    let first = entries.partition_point(|entry| entry.created() <= after);
                    let changed = entries[first..].iter().find(|entry| entry.seq() > self.since);
                    match changed.filter(|entry| entry.created() <= self.upto) {
                        Some(entry) => self.place = Place::Within(entry.created(), Part::Head),
                        None => self.place = Place::Slots(0),
                    }
                }
                Place::Within(created, part) => {
                    let place = transcript.entries().binary_search_by_key(&created, Entry::created);
                    let entry = place.ok().map(|place| &transcript.entries()[place]);
                    let (update, next) = entry.map_or((None, None), |entry| self.part(entry, part, bytes));
                    self.place = next.map_or(Place::Entries(created), |next| Place::Within(created, next));
                    if update.is_some() {
                        return update;
                    }
                }
                Place::Slots(place) => match Slot::ALL.get(place) {
                    Some(slot) => {
                        let (seq, body, news) = transcript.tracked_slot(*slot);
                        self.place = Place::Slots(place + 1);
                        if seq > self.since && seq <= self.upto && !self.without.contains(slot) {
                            let meta = match &body.meta {
                                None => MetaPatch::Clear,
                                // Only the info of a session is patched; all else is reported as a whole.
                                Some(meta) if self.since == 0 || *slot != Slot::Info => {
                                    MetaPatch::Replace(meta.clone())
                                }
                                Some(_) => {
                                    self.place = Place::SlotMeta(place);
                                    MetaPatch::Clear
                                }
                            };
                            let fields = news.fields_with_cleared(body);
                            let upsert = Upsert { fields, meta, ..Upsert::default() };
                            return Some(Update::Upsert { target: Target::Slot(*slot), upsert });
                        }
                    }
                    None => self.place = Place::State,
                },
                Place::SlotMeta(place) => {
                    self.place = Place::Slots(place + 1);
                    let meta = transcript.slot(Slot::ALL[place]).and_then(|body| body.meta.clone());
                    if let Some(meta) = meta {
                        let upsert = Upsert { meta: MetaPatch::Replace(meta), ..Upsert::default() };
                        return Some(Update::Upsert { target: Target::Slot(Slot::ALL[place]), upsert });
                    }
                }
                Place::State => {
                    self.place = Place::End;
                    let seq = transcript.state_seq();
                    if seq > self.since && seq <= self.upto {
                        return transcript.state().cloned().map(Update::State);
                    }
                }
                Place::End => return None,
            }
        }
    }

    /// One part of an entry, and which part comes after it.
    fn part(&self, entry: &Entry, part: Part, bytes: usize) -> (Option<Update>, Option<Part>) {
        let (body, news) = (entry.body(), entry.news());
        let is_new = entry.created() > self.since;
        if body.removed {
            let gone = Update::Remove { entry: entry.id().clone(), extra: None };
            // One that was removed later is told already now if it is new, so that it keeps its place should it return.
            return ((is_new || entry.seq() <= self.upto).then_some(gone), None);
        }
        let upsert =
            |upsert: Upsert| Some(Update::Upsert { target: Target::Entry(entry.id().clone()), upsert });
        if let EntryId::Plan(_) = entry.id() {
            // A plan is reported as a whole: none of its parts can be said alone.
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
                let fields = news.fields_with_cleared(body);
                let head = (news.fields > self.since).then(|| Upsert { fields, ..Upsert::default() });
                let cleared = (news.meta > self.since).then_some(MetaPatch::Clear);
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
                let said = meta.and_then(|meta| upsert(Upsert { meta, ..Upsert::default() }));
                (said, Some(self.content_part(entry)))
            }
            Part::Content(0) if news.content.replaced_at() > self.since && !is_new => {
                if news.content.replaced_at() > self.upto {
                    return (None, Some(self.output_part(entry)));
                }
                let (content, next) = self.first_content(entry, bytes);
                let next = next.unwrap_or_else(|| self.output_part(entry));
                (upsert(Upsert { content, ..Upsert::default() }), Some(next))
            }
            Part::Content(from) => {
                let end = news.content.first_after(self.upto, body.content.len());
                if from >= end {
                    return (None, Some(self.output_part(entry)));
                }
                // A chunk carries one block, so one joined block at a time.
                let (piece, next) = body.content.piece(from..first_block(body, from..end, bytes), bytes);
                let first = piece.iter().next().and_then(|item| {
                    let said = Json::parse(item.json).ok()?;
                    Some(Update::Append { entry: entry.id().clone(), item: said, extra: item.extra.cloned() })
                });
                (first, Some(Part::Content(next)))
            }
            Part::Output(from) => {
                let EntryId::Terminal(terminal) = entry.id() else { return (None, None) };
                let replaced = news.output.replaced_at();
                if from == 0 && replaced > self.since && !is_new {
                    if replaced > self.upto {
                        return (None, None);
                    }
                    let (output, next) = self.first_output(body, entry, bytes);
                    let output = if output == Patch::Omitted { Patch::Clear } else { output };
                    return (upsert(Upsert { output, ..Upsert::default() }), next);
                }
                let end = news.output.first_chunk_after(self.upto, body.output.len());
                if from >= end {
                    return (None, None);
                }
                let to = end.min(from + bytes.max(1));
                let said = Update::Output {
                    terminal: terminal.clone(),
                    bytes: body.output[from..to].to_vec(),
                    extra: None,
                };
                (Some(said), Some(Part::Output(to)))
            }
        }
    }

    /// The content that a reader gets at once who has none of it, and what comes after.
    fn first_content(&self, entry: &Entry, bytes: usize) -> (Patch<crate::Content>, Option<Part>) {
        let (body, news) = (entry.body(), entry.news());
        if news.content.replaced_at() > self.upto {
            // What is there now came later, and will be told as a whole then.
            return (Patch::Omitted, None);
        }
        let end = news.content.first_after(self.upto, body.content.len());
        if end == 0 {
            let is_new = entry.created() > self.since;
            return (if is_new { Patch::Omitted } else { Patch::Clear }, None);
        }
        let (piece, next) = body.content.piece(0..end, bytes);
        (Patch::Value(piece), (next < end).then_some(Part::Content(next)))
    }

    fn first_output(&self, body: &Body, entry: &Entry, bytes: usize) -> (Patch<Vec<u8>>, Option<Part>) {
        if entry.news().output.replaced_at() > self.upto {
            return (Patch::Omitted, None);
        }
        let end = entry.news().output.first_chunk_after(self.upto, body.output.len());
        if end == 0 {
            return (Patch::Omitted, None);
        }
        let to = end.min(bytes.max(1));
        (Patch::Value(body.output[..to].to_vec()), (to < end).then_some(Part::Output(to)))
    }

    /// Where the content begins that a reader lacks who knows the entry.
    fn content_part(&self, entry: &Entry) -> Part {
        Part::Content(entry.news().content.first_after(self.since, entry.body().content.len()))
    }

    fn output_part(&self, entry: &Entry) -> Part {
        if entry.created() > self.since {
            // The head has as much content as fits, and no output if there is more.
            return Part::Output(0);
        }
        Part::Output(entry.news().output.first_chunk_after(self.since, entry.body().output.len()))
    }
}

/// Where the items end that are one block when joined, of those at `places`. What is beyond `bytes` is not looked at.
fn first_block(body: &Body, places: std::ops::Range<usize>, bytes: usize) -> usize {
    let from = places.start;
    let is_plain = |item: &crate::Item<'_>| item.extra.is_none() && crate::plain_text(item.json).is_some();
    let mut looked_at = 0;
    let fits = |item: &crate::Item<'_>| {
        looked_at += item.json.len();
        looked_at <= bytes
    };
    from + body.content.range(places).take_while(fits).take_while(is_plain).count().max(1)
}
