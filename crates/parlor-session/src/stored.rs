//! The form in which a session is kept: rows of text that a store need not understand.
//!
//! A row is an entry's head (JSON), an entry's content (lines that are only ever added to), or a slot (JSON). A
//! session that is read back from its rows says the same and numbers it the same.
//!
//! The lines of a content: `=N` and `@N` say that the following items came all with change N, or one each with N, N+1
//! and so on. `"text"` is a plain text block written in the shortest way, `{...}` any other block, `+` a block and,
//! after U+001E, what else its chunk said; `~` is terminal output in base64. None of them can hold a line end.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use parlor_json::{Json, JsonStr, Object};

use crate::content::usual_text;
use crate::news::{News, Numbers};
use crate::{
    Activity, Body, Change, Content, Entry, EntryId, Role, Slot, State, Target, Transcript, Update, Upsert,
};

/// One thing to keep, in place of what was kept of it before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Row {
    /// An entry's head, and its content if that was replaced.
    Entry {
        /// The change that made the entry.
        created: u64,
        /// The last change to it.
        seq: u64,
        /// Its head.
        head: String,
        /// All of its content; `None` if it is as it was.
        content: Option<String>,
    },
    /// More content of an entry.
    Append {
        /// The change that made the entry.
        created: u64,
        /// The last change to it.
        seq: u64,
        /// What comes at the end of its content.
        content: String,
    },
    /// A slot, or the state.
    Slot {
        /// Its name.
        name: &'static str,
        /// The change that brought it.
        seq: u64,
        /// What it holds.
        body: String,
    },
}

/// What of a transcript has to be written.
#[derive(Debug, Clone, Default)]
pub struct Unsaved {
    /// By the change that made the entry.
    entries: BTreeMap<u64, Parts>,
    slots: Vec<Slot>,
    state: bool,
}

#[derive(Debug, Clone, Copy)]
struct Parts {
    head: bool,
    /// Up to which change the content was saved; `None` if it has to be written as a whole.
    content: Option<u64>,
}

/// A row that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow(pub String);

impl Unsaved {
    /// A change was taken.
    pub fn note(&mut self, change: &Change) {
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

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.slots.is_empty() && !self.state
    }

    /// The rows to write now. Afterwards nothing is unsaved.
    pub fn take(&mut self, transcript: &Transcript) -> Vec<Row> {
        let Self { entries, slots, state } = std::mem::take(self);
        let mut rows = Vec::with_capacity(entries.len() + slots.len() + 1);
        for (created, parts) in entries {
            let Some(entry) = transcript.entry_made_by(created) else { continue };
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
            let (seq, body, news) = transcript.tracked_slot(slot);
            rows.push(Row::Slot {
                name: slot_name(slot),
                seq,
                body: body_object(body, news, 0).to_json().as_str().to_owned(),
            });
        }
        if let Some(state) = transcript.state().filter(|_| state) {
            rows.push(Row::Slot { name: STATE, seq: transcript.state_seq(), body: state_text(state) });
        }
        rows
    }
}

/// The row of the state.
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
    /// Takes an entry that was kept. `inherited` is how many bytes at the start of the content were numbered in another
    /// session: all of it counts as having come with the entry.
    pub fn restore_entry(
        &mut self,
        created: u64,
        seq: u64,
        head: &str,
        content: &str,
        inherited: usize,
    ) -> Result<(), BadRow> {
        let bad = || BadRow(format!("entry {created}"));
        let head = Json::parse(head).ok().and_then(|head| Object::parse(head.raw()).ok()).ok_or_else(bad)?;
        let id = entry_id(&head).ok_or_else(bad)?;
        let (mut body, mut news) = read_body(&head, created).ok_or_else(bad)?;
        // What comes after a removal is only added to the content, and the removal has left none.
        body.removed = head.get("removed").is_some() && content.is_empty();
        if inherited > 0 {
            news.content.replaced(created);
            news.output.replaced(created);
        }
        let mut reader = ContentReader { numbering: Numbering::All(created), inherited };
        for line in content.split_terminator('\n') {
            reader.line(line, &mut body, &mut news).ok_or_else(bad)?;
        }
        self.put(id, created, seq, body, news);
        Ok(())
    }

    /// Takes a slot that was kept. One with a name nobody knows is left alone.
    pub fn restore_slot(&mut self, name: &str, seq: u64, body: &str) -> Result<(), BadRow> {
        let bad = || BadRow(format!("slot {name}"));
        let object =
            || Json::parse(body).ok().and_then(|body| Object::parse(body.raw()).ok()).ok_or_else(bad);
        if name == STATE {
            self.put_state(seq, read_state(&object()?).ok_or_else(bad)?);
        } else if let Some(slot) = Slot::ALL.into_iter().find(|slot| slot_name(*slot) == name) {
            let (body, news) = read_body(&object()?, seq).ok_or_else(bad)?;
            self.put_slot(slot, seq, body, news);
        }
        // A slot that this version does not know may hold anything.
        Ok(())
    }
}

fn head_text(entry: &Entry) -> String {
    head_of(entry.id(), &body_object(entry.body(), entry.news(), entry.created()), entry.body().removed)
}

/// The head of an entry that comes to stand in another session under `id`; `None` if its own will do, because it says
/// the same wherever it stands.
pub(crate) fn moved_head(entry: &Entry, id: &EntryId, failed: Option<&Upsert>) -> Option<String> {
    let news = entry.news();
    let is_movable = news.cleared.is_empty() && later_numbers(news, entry.created()).is_none();
    if is_movable && failed.is_none() && id == entry.id() {
        return None;
    }
    let mut body = movable_body(entry.body());
    if let Some(failed) = failed {
        let mut fields = entry.body().fields.clone();
        fields.merge_keys(&failed.fields);
        body.set("fields", fields.to_json());
    }
    Some(head_of(id, &body, entry.body().removed))
}

/// A slot as it comes to stand in another session.
pub(crate) fn moved_slot(slot: Slot, body: &Body, seq: u64) -> Row {
    Row::Slot { name: slot_name(slot), seq, body: movable_body(body).to_json().as_str().to_owned() }
}

fn head_of(id: &EntryId, body: &Object, removed: bool) -> String {
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
        EntryId::Note(seq) => ("note", number(*seq)),
    };
    head.set("kind", JsonStr::new(kind));
    head.set("id", id);
    for (name, value) in body.iter() {
        head.set(name.clone(), value.clone());
    }
    if removed {
        head.set("removed", Json::parse("true").expect("it is JSON"));
    }
    head.to_json().as_str().to_owned()
}

fn entry_id(head: &Object) -> Option<EntryId> {
    let id = head.get("id")?;
    let text = || JsonStr::from_raw(id.raw());
    Some(match JsonStr::from_raw(head.get("kind")?.raw())?.inner() {
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
        "note" => EntryId::Note(id.as_str().parse().ok()?),
        _ => return None,
    })
}

/// All of a body but its content and output. `made` is the change that made it.
fn body_object(body: &Body, news: &News, made: u64) -> Object {
    let mut object = movable_body(body);
    if let Some(numbers) = later_numbers(news, made) {
        object.set(
            "seqs",
            Json::parse(format!("[{}]", numbers.map(|number| number.to_string()).join(",")))
                .expect("numbers are JSON"),
        );
    }
    if !news.cleared.is_empty() {
        let names: Vec<_> = news.cleared.iter().map(JsonStr::as_literal).collect();
        object.set("cleared", Json::parse(format!("[{}]", names.join(","))).expect("names are JSON"));
    }
    object
}

/// A body without the numbers of its changes, all of which came with it.
fn movable_body(body: &Body) -> Object {
    let mut object = Object::default();
    object.set("fields", body.fields.to_json());
    if let Some(meta) = &body.meta {
        object.set("meta", meta.to_json());
    }
    object
}

/// The numbers of a body's parts, if any of them is later than the change that made it. Most bodies have none, and so
/// say the same in whatever session they stand.
fn later_numbers(news: &News, made: u64) -> Option<[u64; 4]> {
    let numbers = [news.fields, news.meta, news.content.replaced_at(), news.output.replaced_at()];
    numbers.iter().any(|number| *number > made).then_some(numbers)
}

fn read_body(object: &Object, made: u64) -> Option<(Body, News)> {
    let fields = Object::parse(object.get("fields")?.raw()).ok()?;
    let meta = match object.get("meta") {
        Some(meta) => Some(Object::parse(meta.raw()).ok()?),
        None => None,
    };
    let [fields_at, meta_at, content_at, output_at] = match object.get("seqs") {
        Some(seqs) => {
            let seqs = seqs.elements()?;
            let seqs = seqs.into_iter().map(|seq| seq.as_str().parse().ok()).collect::<Option<Vec<_>>>()?;
            seqs.try_into().ok()?
        }
        None => [made; 4],
    };
    let mut news = News { fields: fields_at, meta: meta_at, ..News::default() };
    news.content.replaced(content_at);
    news.output.replaced(output_at);
    if let Some(cleared) = object.get("cleared") {
        news.cleared = cleared.elements()?.into_iter().map(JsonStr::from_raw).collect::<Option<_>>()?;
    }
    Some((Body::restored(fields, meta), news))
}

pub(crate) fn state_text(state: &State) -> String {
    let mut object = Object::default();
    let activity = match &state.activity {
        Activity::Running => Json::from(&JsonStr::new("running")),
        Activity::Idle => (&JsonStr::new("idle")).into(),
        Activity::RequiresAction => (&JsonStr::new("waits")).into(),
        Activity::Other(other) => {
            Json::parse(format!("[{}]", other.as_literal())).expect("it is made of JSON")
        }
    };
    object.set("activity", activity);
    if let Some(reason) = &state.stop_reason {
        object.set("reason", reason);
    }
    object.set("fields", state.fields.to_json());
    if let Some(meta) = &state.meta {
        object.set("meta", meta.to_json());
    }
    object.to_json().as_str().to_owned()
}

pub(crate) fn read_state(object: &Object) -> Option<State> {
    let activity = object.get("activity")?;
    let activity = match JsonStr::from_raw(activity.raw()) {
        Some(known) => match known.inner() {
            "running" => Activity::Running,
            "idle" => Activity::Idle,
            "waits" => Activity::RequiresAction,
            _ => return None,
        },
        None => Activity::Other(JsonStr::from_raw(*activity.elements()?.first()?)?),
    };
    let stop_reason = match object.get("reason") {
        Some(reason) => Some(JsonStr::from_raw(reason.raw())?),
        None => None,
    };
    let meta = match object.get("meta") {
        Some(meta) => Some(Object::parse(meta.raw()).ok()?),
        None => None,
    };
    Some(State { activity, stop_reason, fields: Object::parse(object.get("fields")?.raw()).ok()?, meta })
}

fn number(seq: u64) -> Json {
    Json::parse(seq.to_string()).expect("a number is JSON")
}

/// The lines for what came after change `saved`, or for all of the content.
fn content_text(entry: &Entry, saved: Option<u64>) -> String {
    let (body, news) = (entry.body(), entry.news());
    let mut text = String::new();
    let items = Lines { content: &body.content, numbers: &news.content, text: &mut text };
    items.write(saved);
    let len = body.output.len();
    let (from, base) = match saved {
        Some(saved) => (news.output.first_chunk_after(saved, len), 0),
        None => (0, news.output.base(len)),
    };
    let mut output = |from: usize, to: usize, seq: u64| {
        let _ = writeln!(text, "={seq}\n~{}", BASE64_STANDARD.encode(&body.output[from..to]));
    };
    if base > 0 {
        output(0, base, news.output.replaced_at());
    }
    for (start, end, seq) in news.output.runs(len).filter(|(_, end, _)| *end > from) {
        output(start, end, seq);
    }
    text
}

/// Items on their way into text.
struct Lines<'a> {
    content: &'a Content,
    numbers: &'a Numbers,
    text: &'a mut String,
}

impl Lines<'_> {
    fn write(self, saved: Option<u64>) {
        let Self { content, numbers, text } = self;
        let len = content.len();
        let from = match saved {
            Some(saved) => numbers.first_after(saved, len),
            None => {
                let base = numbers.base(len);
                if base > 0 {
                    let _ = writeln!(text, "={}", numbers.replaced_at());
                    write_items(content, 0..base, text);
                }
                base
            }
        };
        for (start, end, seq) in numbers.runs(len).filter(|(_, end, _)| *end > from) {
            // Within a run, a part that goes on where the last one ended needs no number.
            if start >= from {
                let _ = writeln!(text, "@{seq}");
            }
            write_items(content, start.max(from)..end, text);
        }
    }
}

const SEPARATOR: char = '\u{1e}';

fn write_items(content: &Content, places: std::ops::Range<usize>, text: &mut String) {
    for item in content.range(places) {
        let plain = usual_text(item.json);
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

/// JSON may have line ends between its tokens, where they mean nothing.
fn push_line(text: &mut String, json: &str) {
    if json.contains(['\n', '\r']) {
        text.extend(json.chars().filter(|c| !matches!(c, '\n' | '\r')));
    } else {
        text.push_str(json);
    }
}

/// How the next items are numbered.
#[derive(Debug, Clone, Copy, Default)]
enum Numbering {
    #[default]
    Unknown,
    All(u64),
    Each(u64),
}

#[derive(Default)]
struct ContentReader {
    numbering: Numbering,
    /// How many bytes are still to come whose numbers mean nothing here.
    inherited: usize,
}

impl ContentReader {
    fn line(&mut self, line: &str, body: &mut Body, news: &mut News) -> Option<()> {
        let is_inherited = self.inherited > 0;
        self.inherited = self.inherited.saturating_sub(line.len() + 1);
        let (mark, rest) = line.split_at_checked(1)?;
        match mark {
            "=" | "@" if is_inherited => rest.parse::<u64>().ok().map(drop),
            "=" => {
                self.numbering = Numbering::All(rest.parse().ok()?);
                Some(())
            }
            "@" => {
                self.numbering = Numbering::Each(rest.parse().ok()?);
                Some(())
            }
            "~" => {
                let bytes = BASE64_STANDARD.decode(rest).ok()?;
                if let Numbering::All(seq) = self.numbering
                    && seq != news.output.replaced_at()
                    && !is_inherited
                {
                    news.output.grew_by_chunk(body.output.len(), seq);
                }
                body.output.extend_from_slice(&bytes);
                Some(())
            }
            "\"" => {
                self.numbered(body, news);
                body.content.push_plain(serde_json::from_str(line).ok()?);
                Some(())
            }
            "{" => self.item(line, None, body, news),
            "+" => match rest.split_once(SEPARATOR) {
                Some((item, extra)) => self.item(item, Some(Json::parse(extra).ok()?), body, news),
                None => self.item(rest, None, body, news),
            },
            _ => None,
        }
    }

    fn item(&mut self, json: &str, extra: Option<Json>, body: &mut Body, news: &mut News) -> Option<()> {
        self.numbered(body, news);
        body.content.push(serde_json::from_str(json).ok()?, extra);
        Some(())
    }

    /// One more item is about to come.
    fn numbered(&mut self, body: &Body, news: &mut News) {
        if let Numbering::Each(seq) = self.numbering {
            news.content.grew(body.content.len(), seq);
            self.numbering = Numbering::Each(seq + 1);
        }
    }
}

impl std::fmt::Display for BadRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the stored session is damaged: {}", self.0)
    }
}

impl std::error::Error for BadRow {}
