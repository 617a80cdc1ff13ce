//! The stored form of a session: rows of text that are opaque to the store.
//!
//! A row is an entry's head (JSON), an entry's content (lines that are only appended to), or a slot (JSON). A
//! transcript that is restored from its rows is equal to the original, with the same seqs.
//!
//! Lines of content: `=N` gives all following items the seq N; `@N` gives them N, N+1 and so on. `"text"` is a plain
//! text block in its shortest form, `{...}` any other block, `+` a block followed by U+001E and the other members of
//! its chunk; `~` is terminal output in base64. No line contains a line break.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use parlor_json::{Json, JsonRef, JsonStr, Object};

use crate::content::canonical_text;
use crate::revisions::{Revisions, SeqRuns};
use crate::{
    Activity, Body, Change, Content, Entry, EntryId, Role, Slot, State, Target, Transcript, UnixMillis,
    Update, Upsert,
};

/// A row to write; it replaces the stored row of the same kind and key, except for `Append`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Row {
    /// An entry's head, and its content if that was replaced.
    Entry {
        /// The change that created the entry.
        created: u64,
        /// The last change of the entry.
        seq: u64,
        /// The entry's head.
        head: String,
        /// All of its content; `None` if the stored content is unchanged.
        content: Option<String>,
    },
    /// Content to append to the stored content of an entry.
    Append {
        /// The change that created the entry.
        created: u64,
        /// The last change of the entry.
        seq: u64,
        /// The lines to append.
        content: String,
    },
    /// A slot, or the state.
    Slot {
        /// The slot's name.
        name: &'static str,
        /// The last change of the slot.
        seq: u64,
        /// The slot's value.
        body: String,
    },
}

/// The parts of a transcript that are not written to the store yet.
#[derive(Debug, Clone, Default)]
pub struct DirtyParts {
    /// By the change that created the entry.
    entries: BTreeMap<u64, Parts>,
    slots: Vec<Slot>,
    state: bool,
}

#[derive(Debug, Clone, Copy)]
struct Parts {
    head: bool,
    /// The last change whose content is stored; `None` if the content must be written as a whole.
    content: Option<u64>,
}

/// A stored row that cannot be read, with a description of the row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidRow(pub String);

impl DirtyParts {
    /// Marks the parts that an applied change touched.
    pub fn on_applied(&mut self, change: &Change) {
        match &change.update {
            Update::Append { .. } | Update::Output { .. } => {
                let is_new = change.is_creation();
                self.entries
                    .entry(change.created)
                    .or_insert(Parts { head: is_new, content: (!is_new).then(|| change.seq - 1) });
            }
            Update::Upsert { target: Target::Entry(_), upsert } => {
                let replaces = upsert.whole || !upsert.content.is_omitted() || !upsert.output.is_omitted();
                self.head(change, replaces || change.is_creation());
            }
            Update::Remove { .. } | Update::Note { .. } => self.head(change, true),
            Update::Upsert { target: Target::Slot(slot), .. } => {
                if !self.slots.contains(slot) {
                    self.slots.push(*slot);
                }
            }
            Update::State(_) => self.state = true,
        }
    }

    fn head(&mut self, change: &Change, replaces: bool) {
        let saved = Parts { head: true, content: Some(change.seq - 1) };
        let parts = self.entries.entry(change.created).or_insert(saved);
        parts.head = true;
        if replaces {
            parts.content = None;
        }
    }

    /// Whether everything is written.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.slots.is_empty() && !self.state
    }

    /// Returns the rows to write and marks everything as written.
    pub fn take_rows(&mut self, transcript: &Transcript) -> Vec<Row> {
        let Self { entries, slots, state } = std::mem::take(self);
        let mut rows = Vec::with_capacity(entries.len() + slots.len() + 1);
        for (created, parts) in entries {
            let Some(entry) = transcript.entry_created_by(created) else { continue };
            let content = content_text(entry, parts.content);
            match (parts.head, parts.content) {
                (false, Some(_)) => rows.push(Row::Append { created, seq: entry.seq(), content }),
                (true, Some(_)) => {
                    rows.push(Row::Entry {
                        created,
                        seq: entry.seq(),
                        head: head_text(entry),
                        content: None,
                    });
                    if !content.is_empty() {
                        rows.push(Row::Append { created, seq: entry.seq(), content });
                    }
                }
                (_, None) => {
                    let (seq, head) = (entry.seq(), head_text(entry));
                    rows.push(Row::Entry { created, seq, head, content: Some(content) });
                }
            }
        }
        for slot in slots {
            let (seq, body, revisions) = transcript.tracked_slot(slot);
            rows.push(Row::Slot { name: slot_name(slot), seq, body: body_object(body, revisions, 0).text() });
        }
        if let Some(state) = transcript.state().filter(|_| state) {
            rows.push(Row::Slot {
                name: STATE,
                seq: transcript.state_seq(),
                body: state_object(state).text(),
            });
        }
        rows
    }
}

/// The name of the slot row that holds the state.
const STATE: &str = "state";

fn slot_name(slot: Slot) -> &'static str {
    match slot {
        Slot::Info => "info",
        Slot::Usage => "usage",
        Slot::Commands => "commands",
        Slot::Options => "options",
        Slot::Mode => "mode",
        Slot::Model => "model",
    }
}

impl Transcript {
    /// Restores an entry. `inherited` is the number of bytes at the start of the content whose seqs are those of the
    /// session that this one was forked from: they count as created with the entry.
    pub fn restore_entry(
        &mut self,
        created: u64,
        seq: u64,
        head: &str,
        content: &str,
        inherited: usize,
    ) -> Result<(), InvalidRow> {
        let bad = || InvalidRow(format!("entry {created}"));
        let head = JsonRef::parse(head).ok().and_then(JsonRef::to_object).ok_or_else(bad)?;
        let id = entry_id(&head).ok_or_else(bad)?;
        let (mut body, mut revisions) = read_body(&head, created).ok_or_else(bad)?;
        // Content that follows a removal is appended, and a removal leaves none, so that an entry with content is not
        // removed.
        body.removed = head.get("removed").is_some() && content.is_empty();
        if inherited > 0 {
            revisions.content.on_replaced(created);
            revisions.output.on_replaced(created);
        }
        let mut reader = ContentReader { item_seqs: ItemSeqs::All(created), inherited };
        for line in content.split_terminator('\n') {
            reader.line(line, &mut body, &mut revisions).ok_or_else(bad)?;
        }
        let created_at = head.get(AT).and_then(|at| at.as_str().parse().ok()).map(UnixMillis);
        self.put(id, (created, created_at), seq, body, revisions);
        Ok(())
    }

    /// Restores a slot. A slot with an unknown name is ignored.
    pub fn restore_slot(&mut self, name: &str, seq: u64, body: &str) -> Result<(), InvalidRow> {
        let bad = || InvalidRow(format!("slot {name}"));
        let object = || JsonRef::parse(body).ok().and_then(JsonRef::to_object).ok_or_else(bad);
        if name == STATE {
            self.put_state(seq, read_state(&object()?).ok_or_else(bad)?);
        } else if let Some(slot) = Slot::ALL.into_iter().find(|slot| slot_name(*slot) == name) {
            let (body, revisions) = read_body(&object()?, seq).ok_or_else(bad)?;
            self.put_slot(slot, seq, body, revisions);
        }
        // A slot of another version may hold anything.
        Ok(())
    }
}

fn head_text(entry: &Entry) -> String {
    head_of(entry, entry.id(), &body_object(entry.body(), entry.revisions(), entry.created()))
}

/// The head of a forked entry in its new session under `id`; `None` if the stored head can be reused because it has
/// no seqs.
pub(crate) fn forked_head(entry: &Entry, id: &EntryId, failed: Option<&Upsert>) -> Option<String> {
    let revisions = entry.revisions();
    let has_no_seqs = revisions.cleared.is_empty() && later_seqs(revisions, entry.created()).is_none();
    if has_no_seqs && failed.is_none() && id == entry.id() {
        return None;
    }
    let mut body = body_without_seqs(entry.body());
    if let Some(failed) = failed {
        let mut fields = entry.body().fields.clone();
        fields.merge_keys(&failed.fields);
        body.set("fields", fields.to_json());
    }
    Some(head_of(entry, id, &body))
}

/// The row of a slot in a forked session.
pub(crate) fn forked_slot(slot: Slot, body: &Body, seq: u64) -> Row {
    Row::Slot { name: slot_name(slot), seq, body: body_without_seqs(body).text() }
}

/// The member of a head with the time at which the entry was created.
const AT: &str = "at";

/// The head of an entry under an id, with a body.
fn head_of(entry: &Entry, id: &EntryId, body: &Object) -> String {
    let mut head = Object::default();
    let (kind, id) = match id {
        EntryId::Message(Role::User, id) => ("user", Json::from(id.as_json())),
        EntryId::Message(Role::Agent, id) => ("agent", id.as_json().into()),
        EntryId::Message(Role::Thought, id) => ("thought", id.as_json().into()),
        EntryId::ToolCall(id) => ("tool", id.as_json().into()),
        EntryId::Plan(id) => ("plan", id.as_json().into()),
        EntryId::Terminal(id) => ("terminal", id.as_json().into()),
        EntryId::Compaction(id) => ("compaction", id.as_json().into()),
        EntryId::Subagent(id) => ("subagent", id.as_json().into()),
        EntryId::SessionMessage(id) => ("message", id.as_json().into()),
        EntryId::Event(id) => ("event", id.as_json().into()),
        EntryId::Note(seq) => ("note", (*seq).into()),
    };
    head.set("kind", kind);
    head.set("id", id);
    if let Some(UnixMillis(at)) = entry.created_at() {
        head.set(AT, at);
    }
    for (name, value) in body.iter() {
        head.set(name.clone(), value.clone());
    }
    if entry.body().removed {
        head.set("removed", true);
    }
    head.text()
}

fn entry_id(head: &Object) -> Option<EntryId> {
    let id = head.get("id")?;
    let text = || id.to_json_str();
    Some(match head.get_json_str("kind")?.inner() {
        "user" => EntryId::Message(Role::User, text()?.into()),
        "agent" => EntryId::Message(Role::Agent, text()?.into()),
        "thought" => EntryId::Message(Role::Thought, text()?.into()),
        "tool" => EntryId::ToolCall(text()?.into()),
        "plan" => EntryId::Plan(text()?.into()),
        "terminal" => EntryId::Terminal(text()?.into()),
        "compaction" => EntryId::Compaction(text()?.into()),
        "subagent" => EntryId::Subagent(text()?.into()),
        "message" => EntryId::SessionMessage(text()?.into()),
        "event" => EntryId::Event(text()?.into()),
        "note" => EntryId::Note(id.as_u64()?),
        _ => return None,
    })
}

/// A body without content and output. `created` is the change that created it.
fn body_object(body: &Body, revisions: &Revisions, created: u64) -> Object {
    let mut object = body_without_seqs(body);
    if let Some(seqs) = later_seqs(revisions, created) {
        object.set("seqs", Json::array(seqs));
    }
    if !revisions.cleared.is_empty() {
        object.set("cleared", Json::array(&revisions.cleared));
    }
    object
}

/// A body without seqs.
fn body_without_seqs(body: &Body) -> Object {
    let mut object = Object::default();
    object.set("fields", body.fields.to_json());
    if let Some(meta) = &body.meta {
        object.set("meta", meta.to_json());
    }
    object
}

/// The seqs of a body's parts, if any is later than the change that created it. Most bodies have none, so that forks
/// can share them.
fn later_seqs(revisions: &Revisions, created: u64) -> Option<[u64; 4]> {
    let seqs =
        [revisions.fields, revisions.meta, revisions.content.replaced_at(), revisions.output.replaced_at()];
    seqs.iter().any(|seq| *seq > created).then_some(seqs)
}

fn read_body(object: &Object, created: u64) -> Option<(Body, Revisions)> {
    let fields = object.get_object("fields")?;
    let meta = match object.get("meta") {
        Some(meta) => Some(meta.to_object()?),
        None => None,
    };
    let [fields_at, meta_at, content_at, output_at] = match object.get("seqs") {
        Some(seqs) => {
            let seqs = seqs.elements()?;
            let seqs = seqs.into_iter().map(JsonRef::as_u64).collect::<Option<Vec<_>>>()?;
            seqs.try_into().ok()?
        }
        None => [created; 4],
    };
    let mut revisions = Revisions { fields: fields_at, meta: meta_at, ..Revisions::default() };
    revisions.content.on_replaced(content_at);
    revisions.output.on_replaced(output_at);
    if let Some(cleared) = object.get("cleared") {
        revisions.cleared = cleared.elements()?.into_iter().map(JsonStr::from_raw).collect::<Option<_>>()?;
    }
    Some((Body::restored(fields, meta), revisions))
}

pub(crate) fn state_object(state: &State) -> Object {
    let mut object = Object::default();
    let activity = match &state.activity {
        Activity::Running => Json::from("running"),
        Activity::Idle => "idle".into(),
        Activity::RequiresAction => "waits".into(),
        Activity::Other(other) => Json::array([other]),
    };
    object.set("activity", activity);
    if let Some(reason) = &state.stop_reason {
        object.set("reason", reason);
    }
    object.set("fields", state.fields.to_json());
    if let Some(meta) = &state.meta {
        object.set("meta", meta.to_json());
    }
    object
}

pub(crate) fn read_state(object: &Object) -> Option<State> {
    let activity = object.get("activity")?;
    let activity = match activity.to_json_str() {
        Some(known) => match known.inner() {
            "running" => Activity::Running,
            "idle" => Activity::Idle,
            "waits" => Activity::RequiresAction,
            _ => return None,
        },
        None => Activity::Other(JsonStr::from_raw(*activity.elements()?.first()?)?),
    };
    let stop_reason = match object.get("reason") {
        Some(reason) => Some(reason.to_json_str()?),
        None => None,
    };
    let meta = match object.get("meta") {
        Some(meta) => Some(meta.to_object()?),
        None => None,
    };
    Some(State { activity, stop_reason, fields: object.get_object("fields")?, meta })
}

/// The lines for the content after change `saved`, or for all of it.
fn content_text(entry: &Entry, saved: Option<u64>) -> String {
    let (body, revisions) = (entry.body(), entry.revisions());
    let mut text = String::new();
    let items = ContentWriter { content: &body.content, seqs: &revisions.content, text: &mut text };
    items.write(saved);
    let len = body.output.len();
    let (from, base) = match saved {
        Some(saved) => (revisions.output.first_chunk_after(saved, len), 0),
        None => (0, revisions.output.base(len)),
    };
    let mut output = |from: usize, to: usize, seq: u64| {
        let _ = writeln!(text, "={seq}\n~{}", BASE64_STANDARD.encode(&body.output[from..to]));
    };
    if base > 0 {
        output(0, base, revisions.output.replaced_at());
    }
    for (start, end, seq) in revisions.output.runs(len).filter(|(_, end, _)| *end > from) {
        output(start, end, seq);
    }
    text
}

/// Writes items as lines.
struct ContentWriter<'a> {
    content: &'a Content,
    seqs: &'a SeqRuns,
    text: &'a mut String,
}

impl ContentWriter<'_> {
    fn write(self, saved: Option<u64>) {
        let Self { content, seqs, text } = self;
        let len = content.len();
        let from = match saved {
            Some(saved) => seqs.first_after(saved, len),
            None => {
                let base = seqs.base(len);
                if base > 0 {
                    let _ = writeln!(text, "={}", seqs.replaced_at());
                    write_items(content, 0..base, text);
                }
                base
            }
        };
        for (start, end, seq) in seqs.runs(len).filter(|(_, end, _)| *end > from) {
            // Within a run, an item that continues the previous part needs no seq.
            if start >= from {
                let _ = writeln!(text, "@{seq}");
            }
            write_items(content, start.max(from)..end, text);
        }
    }
}

const SEPARATOR: char = '\u{1e}';

fn write_items(content: &Content, indexes: std::ops::Range<usize>, text: &mut String) {
    for item in content.range(indexes) {
        let plain = canonical_text(item.json);
        match (plain, item.extra) {
            (Some(literal), None) => text.push_str(literal),
            (_, None) if item.json.starts_with('{') => push_line(text, item.json),
            (_, None) => {
                text.push('+');
                push_line(text, item.json);
            }
            (_, Some(extra)) => {
                text.push('+');
                push_line(text, item.json);
                text.push(SEPARATOR);
                push_line(text, extra.as_str());
            }
        }
        text.push('\n');
    }
}

/// Removes line breaks between JSON tokens.
fn push_line(text: &mut String, json: &str) {
    if json.contains(['\n', '\r']) {
        text.extend(json.chars().filter(|c| !matches!(c, '\n' | '\r')));
    } else {
        text.push_str(json);
    }
}

/// The seqs of the items that follow.
#[derive(Debug, Clone, Copy, Default)]
enum ItemSeqs {
    #[default]
    Unknown,
    All(u64),
    Each(u64),
}

#[derive(Default)]
struct ContentReader {
    item_seqs: ItemSeqs,
    /// Bytes that are left of the inherited content, whose seqs are ignored.
    inherited: usize,
}

impl ContentReader {
    fn line(&mut self, line: &str, body: &mut Body, revisions: &mut Revisions) -> Option<()> {
        let is_inherited = self.inherited > 0;
        self.inherited = self.inherited.saturating_sub(line.len() + 1);
        let (mark, rest) = line.split_at_checked(1)?;
        match mark {
            "=" | "@" if is_inherited => rest.parse::<u64>().ok().map(drop),
            "=" => {
                self.item_seqs = ItemSeqs::All(rest.parse().ok()?);
                Some(())
            }
            "@" => {
                self.item_seqs = ItemSeqs::Each(rest.parse().ok()?);
                Some(())
            }
            "~" => {
                let bytes = BASE64_STANDARD.decode(rest).ok()?;
                if let ItemSeqs::All(seq) = self.item_seqs
                    && seq != revisions.output.replaced_at()
                    && !is_inherited
                {
                    revisions.output.on_chunk_appended(body.output.len(), seq);
                }
                body.output.extend_from_slice(&bytes);
                Some(())
            }
            "\"" => {
                self.assign_seq(body, revisions);
                body.content.push_text_literal(serde_json::from_str(line).ok()?);
                Some(())
            }
            "{" => self.item(line, None, body, revisions),
            "+" => match rest.split_once(SEPARATOR) {
                Some((item, extra)) => self.item(item, Some(Json::parse(extra).ok()?), body, revisions),
                None => self.item(rest, None, body, revisions),
            },
            _ => None,
        }
    }

    fn item(
        &mut self,
        json: &str,
        extra: Option<Json>,
        body: &mut Body,
        revisions: &mut Revisions,
    ) -> Option<()> {
        self.assign_seq(body, revisions);
        body.content.push(serde_json::from_str(json).ok()?, extra);
        Some(())
    }

    /// Assigns a seq to the next item.
    fn assign_seq(&mut self, body: &Body, revisions: &mut Revisions) {
        if let ItemSeqs::Each(seq) = self.item_seqs {
            revisions.content.on_appended(body.content.len(), seq);
            self.item_seqs = ItemSeqs::Each(seq + 1);
        }
    }
}

impl std::fmt::Display for InvalidRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the stored session is damaged: {}", self.0)
    }
}

impl std::error::Error for InvalidRow {}
