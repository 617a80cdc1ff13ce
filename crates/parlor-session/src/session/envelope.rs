//! A conversation that is handed to an agent, and comes back.
//!
//! An agent that was not there is given the conversation as text in front of a prompt, between two lines that only that
//! text has. Agents repeat their prompts and quote them: what stands between the lines is cut out wherever a message has
//! it, from the opening line to the closing one or to the end of the message.

use std::collections::VecDeque;

use parlor_json::{Json, JsonStr, Object};

use super::echo::size_of;
use crate::{Content, EntryId, MessageId, MetaPatch, Naming, Patch, Role, Target, Update, text_of};

/// What every opening line begins with, before the id of the envelope.
const OPENING: &str = "<conversation id=\"";

/// What every opening line ends with.
const OPENING_END: &str = "\">";

/// The lines between which a conversation is handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    id: String,
}

impl Envelope {
    /// An envelope with an id that nobody can know before it is used: nothing in the conversation can have its lines.
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into() }
    }

    /// The line before the conversation, without its end.
    pub fn opening(&self) -> String {
        format!("{OPENING}{}{OPENING_END}", self.id)
    }

    /// The line after the conversation, without its end.
    pub fn closing(&self) -> String {
        format!("</conversation id=\"{}\">", self.id)
    }
}

/// The envelopes that an agent was given, and the messages that may be about to repeat one.
#[derive(Debug, Clone, Default)]
pub(super) struct Envelopes {
    used: VecDeque<Envelope>,
    /// The message whose chunks are being looked at.
    open: Option<Cutting>,
    /// Messages that were interrupted within an envelope or its opening line, and may go on.
    interrupted: VecDeque<Cutting>,
}

/// How many envelopes are remembered.
const MAX_USED: usize = 16;

/// How many interrupted messages are remembered.
const MAX_INTERRUPTED: usize = 16;

/// How many chunks of an opening line are kept, and how much of those after the first: empty ones get no further.
const MAX_KEPT: (usize, usize) = (256, 64 << 10);

const KEY: &str = "envelopes";

/// A message whose chunks are being looked at.
#[derive(Debug, Clone)]
struct Cutting {
    role: Role,
    /// Its id; `None` if the agent gives none.
    id: Option<MessageId>,
    /// The id that its chunks have in the session if the agent gives none, from one that may be kept on: each gets one of
    /// its own until one is taken.
    assigned: Option<MessageId>,
    scan: Scan,
    /// The chunks that end with what may be the beginning of an opening line.
    kept: Vec<(Update, Naming)>,
    /// How long those after the first are.
    kept_bytes: usize,
}

/// Cuts envelopes out of a text that comes in pieces.
#[derive(Debug, Clone, Default)]
struct Scan {
    place: Place,
    /// The end of the text, if it may be the beginning of the line that is looked for.
    begun: String,
}

/// Where a text ended.
#[derive(Debug, Clone, Default)]
enum Place {
    #[default]
    Outside,
    /// In the envelope with this closing line.
    Inside(String),
    /// Behind an envelope, where nothing has come but the line breaks that separate it from the text.
    Behind,
}

/// What is left of one piece of a text.
#[derive(Debug, Default, PartialEq, Eq)]
struct Left {
    /// How many bytes at the end of the pieces before this one belong to an envelope that began there.
    before: usize,
    /// What is left of this piece; `None` if all of it is.
    text: Option<String>,
    /// Whether the pieces before this one may still end in an envelope that begins there.
    is_undecided: bool,
}

/// Updates in which nothing is repeated, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Uncovered {
    /// What was kept before, and what is left of an update of which something was cut out.
    pub(super) before: Vec<(Update, Naming)>,
    /// The update itself, as it came.
    pub(super) update: Option<Update>,
}

impl Scan {
    fn next(&mut self, used: &VecDeque<Envelope>, piece: &str) -> Left {
        let known = self.begun.len();
        let mut text = std::mem::take(&mut self.begun);
        text.push_str(piece);
        let (mut left, mut rest, mut at, mut is_cut) = (Left::default(), String::new(), 0, false);
        loop {
            match &self.place {
                Place::Outside => {
                    let Some((place, envelope)) = find_opening(used, &text[at..]) else {
                        rest.push_str(&text[at.max(known)..]);
                        let beginning = beginning_of(&text[at..], |tail| {
                            used.iter().any(|used| used.opening().starts_with(tail))
                        });
                        left.is_undecided = known > 0 && at == 0 && beginning.len() == text.len();
                        beginning.clone_into(&mut self.begun);
                        break;
                    };
                    let place = at + place;
                    left.before = left.before.max(known.saturating_sub(place));
                    rest.push_str(text.get(at.max(known)..place).unwrap_or_default());
                    at = place + envelope.opening().len();
                    self.place = Place::Inside(envelope.closing());
                    is_cut = true;
                }
                Place::Inside(closing) => {
                    is_cut = true;
                    let Some(place) = text[at..].find(closing.as_str()) else {
                        self.begun = beginning_of(&text[at..], |tail| closing.starts_with(tail)).to_owned();
                        break;
                    };
                    at += place + closing.len();
                    self.place = Place::Behind;
                }
                Place::Behind => {
                    let trimmed = text[at..].trim_start_matches('\n');
                    is_cut |= trimmed.is_empty() || trimmed.len() < text.len() - at;
                    if trimmed.is_empty() {
                        break;
                    }
                    at = text.len() - trimmed.len();
                    self.place = Place::Outside;
                }
            }
        }
        left.text = is_cut.then_some(rest);
        left
    }

    /// A block that is no text comes next. It is never part of an envelope, nor of one of its lines.
    fn next_block(&mut self) {
        self.begun.clear();
        if matches!(self.place, Place::Behind) {
            self.place = Place::Outside;
        }
    }

    /// Whether what follows is looked at as if nothing had come before it.
    fn is_at_rest(&self) -> bool {
        matches!(self.place, Place::Outside) && self.begun.is_empty()
    }
}

impl Cutting {
    fn new(role: Role, id: Option<MessageId>) -> Self {
        Self { role, id, assigned: None, scan: Scan::default(), kept: Vec::new(), kept_bytes: 0 }
    }

    fn is_of(&self, role: Role, id: Option<&MessageId>) -> bool {
        self.role == role && self.id.as_ref() == id
    }

    /// The chunks that were kept.
    fn release(&mut self) -> Vec<(Update, Naming)> {
        self.kept_bytes = 0;
        std::mem::take(&mut self.kept)
    }

    /// Keeps a chunk. Hands all of them back if they are too many.
    fn keep(&mut self, update: Update, naming: Naming) -> Vec<(Update, Naming)> {
        if !self.kept.is_empty() {
            self.kept_bytes += size_of(&update);
        }
        self.kept.push((update, naming));
        if self.kept.len() > MAX_KEPT.0 || self.kept_bytes > MAX_KEPT.1 { self.release() } else { Vec::new() }
    }

    /// One more chunk with a text; the chunk itself if there is nothing to cut.
    fn chunk(
        &mut self,
        used: &VecDeque<Envelope>,
        mut update: Update,
        naming: Naming,
        text: &str,
        before: &mut Vec<(Update, Naming)>,
    ) -> Option<Update> {
        if self.scan.is_at_rest() {
            // All before it is taken, so that its own id says which message it belongs to.
            self.assigned = None;
        }
        let left = self.scan.next(used, text);
        if left.before > 0 {
            trim_end(&mut self.kept, left.before, |(update, _)| item_of(update));
        }
        let mut is_as_it_came = left.text.is_none();
        if let (Some(text), Some(item)) = (&left.text, item_of(&mut update)) {
            if text.is_empty() {
                before.extend(self.release());
                return None;
            }
            *item = with_text(item, text);
        }
        if naming == Naming::Named
            && let Some(EntryId::Message(_, id)) = super::entry_of(&mut update)
        {
            let assigned = self.assigned.get_or_insert_with(|| id.clone());
            is_as_it_came &= id == assigned;
            id.clone_from(assigned);
        }
        if !left.is_undecided {
            before.extend(self.release());
        }
        if matches!(self.scan.place, Place::Outside) && !self.scan.begun.is_empty() {
            before.extend(self.keep(update, naming));
            return None;
        }
        if is_as_it_came {
            return Some(update);
        }
        before.push((update, naming));
        None
    }
}

impl Envelopes {
    /// An agent is about to be given a conversation.
    pub(super) fn add(&mut self, envelope: Envelope) {
        if self.used.len() >= MAX_USED {
            self.used.pop_front();
        }
        self.used.push_back(envelope);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used.is_empty()
    }

    pub(super) fn last(&self) -> Option<&Envelope> {
        self.used.back()
    }

    pub(super) fn used(&self) -> impl Iterator<Item = &Envelope> {
        self.used.iter()
    }

    pub(super) fn keep(&self, kept: &mut Object) {
        if !self.used.is_empty() {
            let ids: Vec<_> = self.used.iter().map(|used| parlor_json::string_literal(&used.id)).collect();
            kept.set(KEY, Json::parse(format!("[{}]", ids.join(","))).expect("it is made of JSON"));
        }
    }

    pub(super) fn restored(kept: Option<&Object>) -> Self {
        let ids = kept.and_then(|kept| kept.get_array(KEY)).unwrap_or_default();
        let used = ids.into_iter().filter_map(|id| Some(Envelope::new(id.to_text()?)));
        Self { used: used.collect(), ..Self::default() }
    }

    /// The turn is over, or the agent is: so are all messages. What was kept of them.
    pub(super) fn end(&mut self) -> Vec<(Update, Naming)> {
        let kept = self.interrupt();
        self.interrupted.clear();
        kept
    }

    /// A prompt begins a turn: messages without an id from before it do not go on. What was kept of them.
    pub(super) fn begin_turn(&mut self) -> Vec<(Update, Naming)> {
        let kept = if self.open.as_ref().is_some_and(|open| open.id.is_none()) {
            self.interrupt()
        } else {
            Vec::new()
        };
        self.end_unnamed();
        kept
    }

    /// Something else is said. What was kept of the message that it interrupts.
    fn interrupt(&mut self) -> Vec<(Update, Naming)> {
        let Some(mut open) = self.open.take() else { return Vec::new() };
        let kept = open.release();
        if !open.scan.is_at_rest() {
            if self.interrupted.len() >= MAX_INTERRUPTED {
                self.interrupted.pop_front();
            }
            self.interrupted.push_back(open);
        }
        kept
    }

    /// A message without an id does not go on.
    fn end_unnamed(&mut self) {
        self.interrupted.retain(|message| message.id.is_some());
    }

    /// Cuts out what an update repeats. `is_new` says whether the session does not have an entry of the agent's.
    pub(super) fn cut(
        &mut self,
        update: Update,
        naming: Naming,
        is_new: impl FnOnce(&EntryId) -> bool,
    ) -> Uncovered {
        match update {
            Update::Append { entry: EntryId::Message(role, ref id), ref item, .. } => {
                let id = (naming != Naming::Named).then(|| id.clone());
                let text = text_of(item.as_str());
                let mut before = Vec::new();
                if !self.open.as_ref().is_some_and(|open| open.is_of(role, id.as_ref())) {
                    before = self.interrupt();
                    if id.is_some() {
                        self.end_unnamed();
                    } else {
                        self.interrupted.retain(|message| message.id.is_some() || message.role == role);
                    }
                    self.open = self.interrupted_message(role, id.as_ref());
                }
                let Self { used, open, .. } = self;
                let open = open.get_or_insert_with(|| Cutting::new(role, id));
                let update = match text.map(std::borrow::Cow::into_owned) {
                    Some(text) => open.chunk(used, update, naming, &text, &mut before),
                    None => {
                        before.extend(open.release());
                        open.scan.next_block();
                        Some(update)
                    }
                };
                Uncovered { before, update }
            }
            Update::Upsert { target: Target::Entry(ref entry @ EntryId::Message(role, ref id)), .. } => {
                let before = self.interrupt();
                self.end_unnamed();
                let (is_new, id) = (is_new(entry), id.clone());
                self.cut_whole(update, naming, role, &id, is_new, before)
            }
            // What a session has once may come at any time.
            Update::Upsert { target: Target::Slot(_), .. } => update.into(),
            Update::Upsert { target: Target::Entry(ref entry), .. } | Update::Append { ref entry, .. } => {
                let before = self.interrupt();
                if matches!(entry, EntryId::ToolCall(_))
                    && (naming == Naming::StartsToolCall || is_new(entry))
                {
                    self.end_unnamed();
                }
                Uncovered { before, update: Some(update) }
            }
            Update::Output { .. } | Update::Remove { .. } | Update::Note { .. } | Update::State(_) => {
                Uncovered { before: self.interrupt(), update: Some(update) }
            }
        }
    }

    fn interrupted_message(&mut self, role: Role, id: Option<&MessageId>) -> Option<Cutting> {
        let place = self.interrupted.iter().position(|message| message.is_of(role, id))?;
        self.interrupted.remove(place)
    }

    fn cut_whole(
        &mut self,
        update: Update,
        naming: Naming,
        role: Role,
        id: &MessageId,
        is_new: bool,
        mut before: Vec<(Update, Naming)>,
    ) -> Uncovered {
        let Update::Upsert { target, mut upsert } = update else {
            return Uncovered { before, update: Some(update) };
        };
        if !upsert.content.is_omitted() {
            self.interrupted_message(role, Some(id));
        }
        let Patch::Value(content) = &upsert.content else {
            return Uncovered { before, update: Some(Update::Upsert { target, upsert }) };
        };
        let (rest, scan) = self.without_envelopes(content);
        if !scan.is_at_rest() {
            // Chunks may follow.
            self.open = Some(Cutting { scan, ..Cutting::new(role, Some(id.clone())) });
        }
        let Some(rest) = rest else {
            return Uncovered { before, update: Some(Update::Upsert { target, upsert }) };
        };
        // A new message that is nothing else is none.
        upsert.content = if rest.is_empty() && is_new { Patch::Omitted } else { Patch::Value(rest) };
        let says_nothing = upsert.content.is_omitted()
            && !upsert.whole
            && upsert.fields.is_empty()
            && upsert.meta == MetaPatch::Keep;
        if !says_nothing {
            before.push((Update::Upsert { target, upsert }, naming));
        }
        Uncovered { before, update: None }
    }

    /// Content without the envelopes in it, `None` if there are none; and where its text ended.
    fn without_envelopes(&self, content: &Content) -> (Option<Content>, Scan) {
        let mut scan = Scan::default();
        let mut rest = Vec::new();
        let mut is_cut = false;
        for item in content.iter() {
            let json = Json::parse(item.json).expect("an item is JSON");
            let Some(text) = text_of(item.json) else {
                scan.next_block();
                rest.push(json);
                continue;
            };
            let left = scan.next(&self.used, &text);
            if left.before > 0 {
                trim_end(&mut rest, left.before, |json| Some(json));
            }
            is_cut |= left.text.is_some();
            match left.text {
                None => rest.push(json),
                Some(text) if !text.is_empty() => rest.push(with_text(&json, &text)),
                Some(_) => {}
            }
        }
        (is_cut.then(|| rest.iter().map(Json::raw).collect()), scan)
    }
}

impl From<Update> for Uncovered {
    fn from(update: Update) -> Self {
        Self { before: Vec::new(), update: Some(update) }
    }
}

/// The first opening line in a text, and its place.
fn find_opening<'a>(used: &'a VecDeque<Envelope>, text: &str) -> Option<(usize, &'a Envelope)> {
    text.match_indices(OPENING).find_map(|(place, _)| {
        let rest = &text[place + OPENING.len()..];
        let is_opening =
            |used: &&Envelope| rest.strip_prefix(&*used.id).is_some_and(|end| end.starts_with(OPENING_END));
        let envelope = used.iter().find(is_opening)?;
        Some((place, envelope))
    })
}

/// The end of a text that is the beginning of a line. Lines have one angle bracket, with which they begin.
fn beginning_of(text: &str, is_beginning: impl Fn(&str) -> bool) -> &str {
    let tail = text.rfind('<').map_or("", |place| &text[place..]);
    if is_beginning(tail) { tail } else { "" }
}

/// Cuts this many bytes of text off the end of blocks.
fn trim_end<T>(
    blocks: &mut Vec<T>,
    mut bytes: usize,
    json: impl for<'a> Fn(&'a mut T) -> Option<&'a mut Json>,
) {
    while bytes > 0 {
        let Some(mut block) = blocks.pop() else { return };
        let Some(block_json) = json(&mut block) else { continue };
        let text = text_of(block_json.as_str()).map(std::borrow::Cow::into_owned).unwrap_or_default();
        if bytes < text.len() {
            *block_json = with_text(block_json, &text[..text.len() - bytes]);
            blocks.push(block);
        }
        bytes = bytes.saturating_sub(text.len());
    }
}

/// A text block with another text.
fn with_text(block: &Json, text: &str) -> Json {
    let mut members = Object::parse(block.raw()).unwrap_or_default();
    members.set("text", JsonStr::new(text));
    members.to_json()
}

/// The block that a chunk adds.
fn item_of(update: &mut Update) -> Option<&mut Json> {
    if let Update::Append { item, .. } = update { Some(item) } else { None }
}
