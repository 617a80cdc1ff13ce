//! Removes a transcript that was handed over to an agent from the agent's messages.
//!
//! An agent without the history is sent the transcript as text in front of a prompt, between an opening and a closing
//! line with a unique id. Agents repeat and quote their prompts: the text from the opening line to the closing one,
//! or to the end of the message, is cut out of every message.

use std::collections::VecDeque;

use parlor_json::{Json, JsonStr, Object};

use crate::turns::size_of;
use crate::{Content, EntryId, IdSource, MessageId, MetaPatch, Patch, Role, Target, Update, text_of};

/// The start of every opening line, before the id of the envelope.
const OPENING: &str = "<conversation id=\"";

/// The end of every opening line.
const OPENING_END: &str = "\">";

/// The lines that enclose a transcript that is handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    id: String,
}

impl Envelope {
    /// An envelope with an unpredictable id, so that no earlier text contains its lines.
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into() }
    }

    /// The line before the transcript, without its line break.
    pub fn opening(&self) -> String {
        format!("{OPENING}{}{OPENING_END}", self.id)
    }

    /// The line after the transcript, without its line break.
    pub fn closing(&self) -> String {
        format!("</conversation id=\"{}\">", self.id)
    }
}

/// The envelopes that agents were sent, and the messages that may be repeating one.
#[derive(Debug, Clone, Default)]
pub(super) struct Envelopes {
    used: VecDeque<Envelope>,
    /// The message whose chunks are being scanned.
    open: Option<ScannedMessage>,
    /// Messages that were interrupted inside an envelope or its opening line, and may continue.
    interrupted: VecDeque<ScannedMessage>,
}

/// Maximum number of envelopes that are remembered.
const MAX_USED: usize = 16;

/// Maximum number of interrupted messages that are remembered.
const MAX_INTERRUPTED: usize = 16;

/// Maximum number of chunks held back for an opening line, and bytes of those after the first.
const MAX_HELD_BACK: (usize, usize) = (256, 64 << 10);

const KEY: &str = "envelopes";

/// A message whose chunks are being scanned.
#[derive(Debug, Clone)]
struct ScannedMessage {
    role: Role,
    /// Its id; `None` if the agent gives none.
    id: Option<MessageId>,
    /// The id assigned to its chunks in the session if the agent gives none, from the first chunk that is held back:
    /// until one is applied, each chunk is assigned a different id.
    assigned: Option<MessageId>,
    scan: Scan,
    /// The chunks held back because they end with what may be the start of an opening line.
    held_back: Vec<(Update, IdSource)>,
    /// Bytes of those after the first.
    held_back_bytes: usize,
}

/// Cuts envelopes out of a text that arrives in pieces.
#[derive(Debug, Clone, Default)]
struct Scan {
    position: Position,
    /// The end of the text so far, if it may be the start of the line that is searched.
    partial_line: String,
}

/// The position of the end of a text.
#[derive(Debug, Clone, Default)]
enum Position {
    #[default]
    Outside,
    /// Inside the envelope with this closing line.
    Inside(String),
    /// After an envelope, followed only by the line breaks that separate it from the text.
    After,
}

/// The remainder of one piece of a text.
#[derive(Debug, Default, PartialEq, Eq)]
struct Remainder {
    /// Bytes at the end of the previous pieces that belong to an envelope that starts there.
    before: usize,
    /// The remainder of this piece; `None` if nothing was cut.
    text: Option<String>,
    /// Whether the previous pieces may still end with the start of an envelope.
    is_undecided: bool,
}

/// Updates without envelopes, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CutUpdates {
    /// Updates that were held back before, and the remainder of an update that was cut.
    pub(super) before: Vec<(Update, IdSource)>,
    /// The update itself, if nothing was cut.
    pub(super) update: Option<Update>,
}

impl Scan {
    fn next(&mut self, used: &VecDeque<Envelope>, piece: &str) -> Remainder {
        let partial_len = self.partial_line.len();
        let mut text = std::mem::take(&mut self.partial_line);
        text.push_str(piece);
        let (mut left, mut rest, mut at, mut is_cut) = (Remainder::default(), String::new(), 0, false);
        loop {
            match &self.position {
                Position::Outside => {
                    let Some((offset, envelope)) = find_opening(used, &text[at..]) else {
                        rest.push_str(&text[at.max(partial_len)..]);
                        let partial = partial_line_at_end(&text[at..], |tail| {
                            used.iter().any(|used| used.opening().starts_with(tail))
                        });
                        left.is_undecided = partial_len > 0 && at == 0 && partial.len() == text.len();
                        partial.clone_into(&mut self.partial_line);
                        break;
                    };
                    let offset = at + offset;
                    left.before = left.before.max(partial_len.saturating_sub(offset));
                    rest.push_str(text.get(at.max(partial_len)..offset).unwrap_or_default());
                    at = offset + envelope.opening().len();
                    self.position = Position::Inside(envelope.closing());
                    is_cut = true;
                }
                Position::Inside(closing) => {
                    is_cut = true;
                    let Some(offset) = text[at..].find(closing.as_str()) else {
                        self.partial_line =
                            partial_line_at_end(&text[at..], |tail| closing.starts_with(tail)).to_owned();
                        break;
                    };
                    at += offset + closing.len();
                    self.position = Position::After;
                }
                Position::After => {
                    let trimmed = text[at..].trim_start_matches('\n');
                    is_cut |= trimmed.is_empty() || trimmed.len() < text.len() - at;
                    if trimmed.is_empty() {
                        break;
                    }
                    at = text.len() - trimmed.len();
                    self.position = Position::Outside;
                }
            }
        }
        left.text = is_cut.then_some(rest);
        left
    }

    /// Handles a block that is not text, which is never part of an envelope or of its lines.
    fn next_block(&mut self) {
        self.partial_line.clear();
        if matches!(self.position, Position::After) {
            self.position = Position::Outside;
        }
    }

    /// Whether the next piece is scanned independently of the previous ones.
    fn is_neutral(&self) -> bool {
        matches!(self.position, Position::Outside) && self.partial_line.is_empty()
    }
}

impl ScannedMessage {
    fn new(role: Role, id: Option<MessageId>) -> Self {
        Self { role, id, assigned: None, scan: Scan::default(), held_back: Vec::new(), held_back_bytes: 0 }
    }

    fn is_of(&self, role: Role, id: Option<&MessageId>) -> bool {
        self.role == role && self.id.as_ref() == id
    }

    /// Removes and returns the chunks held back.
    fn release(&mut self) -> Vec<(Update, IdSource)> {
        self.held_back_bytes = 0;
        std::mem::take(&mut self.held_back)
    }

    /// Holds back a chunk. Returns all of them if a limit is exceeded.
    fn hold_back(&mut self, update: Update, id_source: IdSource) -> Vec<(Update, IdSource)> {
        if !self.held_back.is_empty() {
            self.held_back_bytes += size_of(&update);
        }
        self.held_back.push((update, id_source));
        if self.held_back.len() > MAX_HELD_BACK.0 || self.held_back_bytes > MAX_HELD_BACK.1 {
            self.release()
        } else {
            Vec::new()
        }
    }

    /// Scans one more text chunk; returns the chunk itself if nothing is cut.
    fn chunk(
        &mut self,
        used: &VecDeque<Envelope>,
        mut update: Update,
        id_source: IdSource,
        text: &str,
        before: &mut Vec<(Update, IdSource)>,
    ) -> Option<Update> {
        if self.scan.is_neutral() {
            // All earlier chunks are applied, so that the chunk's own id is the right one.
            self.assigned = None;
        }
        let left = self.scan.next(used, text);
        if left.before > 0 {
            trim_end(&mut self.held_back, left.before, |(update, _)| item_of(update));
        }
        let mut is_unchanged = left.text.is_none();
        if let (Some(text), Some(item)) = (&left.text, item_of(&mut update)) {
            if text.is_empty() {
                before.extend(self.release());
                return None;
            }
            *item = with_text(item, text);
        }
        if id_source == IdSource::Assigned
            && let Some(EntryId::Message(_, id)) = super::entry_of(&mut update)
        {
            let assigned = self.assigned.get_or_insert_with(|| id.clone());
            is_unchanged &= id == assigned;
            id.clone_from(assigned);
        }
        if !left.is_undecided {
            before.extend(self.release());
        }
        if matches!(self.scan.position, Position::Outside) && !self.scan.partial_line.is_empty() {
            before.extend(self.hold_back(update, id_source));
            return None;
        }
        if is_unchanged {
            return Some(update);
        }
        before.push((update, id_source));
        None
    }
}

impl Envelopes {
    /// Registers an envelope before it is sent to an agent.
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

    pub(super) fn store(&self, side_state: &mut Object) {
        if !self.used.is_empty() {
            side_state.set(KEY, Json::array(self.used.iter().map(|used| &used.id)));
        }
    }

    pub(super) fn restored(side_state: Option<&Object>) -> Self {
        let ids = side_state.and_then(|state| state.get_array(KEY)).unwrap_or_default();
        let used = ids.into_iter().filter_map(|id| Some(Envelope::new(id.to_text()?)));
        Self { used: used.collect(), ..Self::default() }
    }

    /// Ends all messages, at the end of a turn or of the agent; returns the updates held back.
    pub(super) fn end(&mut self) -> Vec<(Update, IdSource)> {
        let held_back = self.interrupt();
        self.interrupted.clear();
        held_back
    }

    /// Ends messages without an id, before a prompt starts a turn; returns the updates held back.
    pub(super) fn begin_turn(&mut self) -> Vec<(Update, IdSource)> {
        let held_back = if self.open.as_ref().is_some_and(|open| open.id.is_none()) {
            self.interrupt()
        } else {
            Vec::new()
        };
        self.end_messages_without_id();
        held_back
    }

    /// Interrupts the open message; returns the updates held back for it.
    fn interrupt(&mut self) -> Vec<(Update, IdSource)> {
        let Some(mut open) = self.open.take() else { return Vec::new() };
        let held_back = open.release();
        if !open.scan.is_neutral() {
            if self.interrupted.len() >= MAX_INTERRUPTED {
                self.interrupted.pop_front();
            }
            self.interrupted.push_back(open);
        }
        held_back
    }

    /// Ends messages without an id.
    fn end_messages_without_id(&mut self) {
        self.interrupted.retain(|message| message.id.is_some());
    }

    /// Cuts envelopes out of an update. `is_new` returns whether an entry of the agent is not in the transcript.
    pub(super) fn cut(
        &mut self,
        update: Update,
        id_source: IdSource,
        is_new: impl FnOnce(&EntryId) -> bool,
    ) -> CutUpdates {
        match update {
            Update::Append { entry: EntryId::Message(role, ref id), ref item, .. } => {
                let id = (id_source != IdSource::Assigned).then(|| id.clone());
                let text = text_of(item.as_str());
                let mut before = Vec::new();
                if !self.open.as_ref().is_some_and(|open| open.is_of(role, id.as_ref())) {
                    before = self.interrupt();
                    if id.is_some() {
                        self.end_messages_without_id();
                    } else {
                        self.interrupted.retain(|message| message.id.is_some() || message.role == role);
                    }
                    self.open = self.interrupted_message(role, id.as_ref());
                }
                let Self { used, open, .. } = self;
                let open = open.get_or_insert_with(|| ScannedMessage::new(role, id));
                let update = match text.map(std::borrow::Cow::into_owned) {
                    Some(text) => open.chunk(used, update, id_source, &text, &mut before),
                    None => {
                        before.extend(open.release());
                        open.scan.next_block();
                        Some(update)
                    }
                };
                CutUpdates { before, update }
            }
            Update::Upsert { target: Target::Entry(ref entry @ EntryId::Message(role, ref id)), .. } => {
                let before = self.interrupt();
                self.end_messages_without_id();
                let (is_new, id) = (is_new(entry), id.clone());
                self.cut_upsert(update, id_source, role, &id, is_new, before)
            }
            // Slots may change at any time.
            Update::Upsert { target: Target::Slot(_), .. } => update.into(),
            Update::Upsert { target: Target::Entry(ref entry), .. } | Update::Append { ref entry, .. } => {
                let before = self.interrupt();
                if matches!(entry, EntryId::ToolCall(_))
                    && (id_source == IdSource::StartsToolCall || is_new(entry))
                {
                    self.end_messages_without_id();
                }
                CutUpdates { before, update: Some(update) }
            }
            Update::Output { .. } | Update::Remove { .. } | Update::Note { .. } | Update::State(_) => {
                CutUpdates { before: self.interrupt(), update: Some(update) }
            }
        }
    }

    fn interrupted_message(&mut self, role: Role, id: Option<&MessageId>) -> Option<ScannedMessage> {
        let offset = self.interrupted.iter().position(|message| message.is_of(role, id))?;
        self.interrupted.remove(offset)
    }

    fn cut_upsert(
        &mut self,
        update: Update,
        id_source: IdSource,
        role: Role,
        id: &MessageId,
        is_new: bool,
        mut before: Vec<(Update, IdSource)>,
    ) -> CutUpdates {
        let Update::Upsert { target, mut upsert } = update else {
            return CutUpdates { before, update: Some(update) };
        };
        if !upsert.content.is_omitted() {
            self.interrupted_message(role, Some(id));
        }
        let Patch::Value(content) = &upsert.content else {
            return CutUpdates { before, update: Some(Update::Upsert { target, upsert }) };
        };
        let (rest, scan) = self.without_envelopes(content);
        if !scan.is_neutral() {
            // Chunks may follow.
            self.open = Some(ScannedMessage { scan, ..ScannedMessage::new(role, Some(id.clone())) });
        }
        let Some(rest) = rest else {
            return CutUpdates { before, update: Some(Update::Upsert { target, upsert }) };
        };
        // A new message without any other content is dropped.
        upsert.content = if rest.is_empty() && is_new { Patch::Omitted } else { Patch::Value(rest) };
        let is_empty = upsert.content.is_omitted()
            && !upsert.whole
            && upsert.fields.is_empty()
            && upsert.meta == MetaPatch::Keep;
        if !is_empty {
            before.push((Update::Upsert { target, upsert }, id_source));
        }
        CutUpdates { before, update: None }
    }

    /// Content without its envelopes, `None` if it has none; and the scan state at its end.
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

impl From<Update> for CutUpdates {
    fn from(update: Update) -> Self {
        Self { before: Vec::new(), update: Some(update) }
    }
}

/// The first opening line in a text, with its offset.
fn find_opening<'a>(used: &'a VecDeque<Envelope>, text: &str) -> Option<(usize, &'a Envelope)> {
    text.match_indices(OPENING).find_map(|(offset, _)| {
        let rest = &text[offset + OPENING.len()..];
        let is_opening =
            |used: &&Envelope| rest.strip_prefix(&*used.id).is_some_and(|end| end.starts_with(OPENING_END));
        let envelope = used.iter().find(is_opening)?;
        Some((offset, envelope))
    })
}

/// The end of a text that is the start of a line. A line has one angle bracket, at its start.
fn partial_line_at_end(text: &str, is_start: impl Fn(&str) -> bool) -> &str {
    let tail = text.rfind('<').map_or("", |offset| &text[offset..]);
    if is_start(tail) { tail } else { "" }
}

/// Removes this many bytes of text from the end of the blocks.
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

/// A text block with its text replaced.
fn with_text(block: &Json, text: &str) -> Json {
    let mut members = block.to_object().unwrap_or_default();
    members.set("text", JsonStr::new(text));
    members.to_json()
}

/// The block that a chunk appends.
fn item_of(update: &mut Update) -> Option<&mut Json> {
    if let Update::Append { item, .. } = update { Some(item) } else { None }
}
