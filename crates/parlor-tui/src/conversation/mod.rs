//! The conversation of one session: which entries are shown, where the view is, and what is selected.
//!
//! The view is an anchor, an entry and a row of it, and not an offset from the start. Entries are laid out only where the view
//! walks over them, so that an entry far away costs nothing and never moves what is shown.

mod scroll;
mod selection;
mod turn;

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use parlor_client::{
    Activity, ConfigOption, Entry, EntryId, Json, Role, Session, SessionId, Slot, Snapshot, State, ToolCall,
    ToolCallId, ToolCallStatus, Transcript, is_numbered,
};

pub use self::selection::NumberedText;
pub use self::turn::{Doing, TurnChanges};
use crate::clean::Clean;
use crate::entry::tool_view::shown_input;
use crate::entry::{EntryTimes, EntryView, Fold};
use crate::theme::Theme;
use parlor_view::content_block;
use parlor_view::tool_call::ToolDetails;

/// The theme, time and paths that everything is drawn with.
#[derive(Debug, Clone)]
pub struct Look {
    /// Styles and marks.
    pub theme: Theme,
    /// The time zone of shown times.
    pub zone: TimeZone,
    /// The present time.
    pub now: Timestamp,
    /// The home directory, shown as `~`.
    pub home: Option<String>,
}

impl Look {
    /// A path with `~` for the home directory.
    pub fn short_path(&self, path: &str) -> Clean {
        Clean::line(&crate::text::short_path(path, self.home.as_deref()))
    }
}

/// The source of a conversation: the client's copy of the session, or a transcript that does not change.
#[derive(Debug, Clone)]
pub enum Replica {
    /// A session that a connection keeps up to date.
    Live(Session),
    /// A fixed transcript.
    Fixed(Arc<Transcript>),
}

/// A transcript that is being read. It is dropped before the next update is awaited, so that it is never copied.
pub enum ReplicaGuard {
    /// That of a session.
    Live(Snapshot),
    /// A fixed one.
    Fixed(Arc<Transcript>),
}

impl Deref for ReplicaGuard {
    type Target = Transcript;

    fn deref(&self) -> &Transcript {
        match self {
            Self::Live(snapshot) => snapshot,
            Self::Fixed(transcript) => transcript,
        }
    }
}

impl Replica {
    /// The transcript as it is now.
    pub fn read(&self) -> ReplicaGuard {
        match self {
            Self::Live(session) => ReplicaGuard::Live(session.transcript()),
            Self::Fixed(transcript) => ReplicaGuard::Fixed(Arc::clone(transcript)),
        }
    }
}

/// Identifies an entry of the conversation and orders it: the page that it was loaded with, and the change that created it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemKey {
    page: u32,
    created: u64,
}

/// The pauses before entries that could not be loaded are requested again.
const OLDER_RETRIES: [SignedDuration; 4] = [
    SignedDuration::from_secs(1),
    SignedDuration::from_secs(2),
    SignedDuration::from_secs(5),
    SignedDuration::from_secs(10),
];

/// The page of entries that the session itself has; earlier pages have lower numbers.
const LIVE: u32 = u32::MAX;

/// The kinds of entries that have different blank lines around them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Prompt,
    Message,
    /// Entries that follow each other without a blank line if they have one line.
    Compact,
    /// A decision about the entry above it.
    Below,
    Other,
}

/// An entry of the conversation.
#[derive(Debug, Clone, Copy)]
struct Item {
    key: ItemKey,
    revision: u64,
    kind: Kind,
    is_message: bool,
    is_thought: bool,
}

/// The first row that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Anchor {
    key: ItemKey,
    /// The row inside of the entry, counted with the blank line before it.
    row: usize,
}

/// A rendered entry.
#[derive(Debug, Default)]
struct CachedView {
    view: EntryView,
    used: u64,
}

/// A session and the view of it.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent of each other")]
pub struct Conversation {
    /// The session.
    pub id: SessionId,
    /// Its working directory.
    pub cwd: String,
    replica: Replica,
    pages: Vec<(u32, Arc<Transcript>)>,
    /// The cursor for entries before the first page, if there are any.
    pub older: Option<Json>,
    /// How many messages there are before the first page.
    pub older_messages: usize,
    /// Whether entries before the first page were requested.
    pub is_loading_older: bool,
    /// How often they could not be loaded in succession.
    older_failures: usize,
    /// When entries that could not be loaded are requested again.
    pub older_retry: Option<Timestamp>,
    /// Whether all earlier entries are to be loaded.
    pub wants_first: bool,
    items: Vec<Item>,
    views: HashMap<ItemKey, CachedView>,
    frame: u64,
    times: HashMap<ItemKey, EntryTimes>,
    is_observed: bool,
    last_edit: Option<ItemKey>,
    turn_changes: Option<TurnChanges>,
    shown_terminals: Vec<String>,
    anchor: Option<Anchor>,
    /// Whether the view follows the end.
    pub is_following: bool,
    selected: Option<ItemKey>,
    folds: HashMap<ItemKey, Fold>,
    fold_all: Option<Fold>,
    /// The words that are marked, in lower case.
    pub matches: Vec<String>,
    /// The tool calls about which requests wait for a person.
    pub waiting: Vec<ToolCallId>,
    size: (u16, u16),
    last_output: Option<Timestamp>,
    /// How many messages there were when the view left the end.
    messages_at_leave: usize,
    seen_seq: u64,
}

impl Conversation {
    /// A conversation that follows its end.
    pub fn new(id: SessionId, cwd: String, replica: Replica) -> Self {
        Self {
            id,
            cwd,
            replica,
            pages: Vec::new(),
            older: None,
            older_messages: 0,
            is_loading_older: false,
            older_failures: 0,
            older_retry: None,
            wants_first: false,
            items: Vec::new(),
            views: HashMap::new(),
            frame: 0,
            times: HashMap::new(),
            is_observed: false,
            last_edit: None,
            turn_changes: None,
            shown_terminals: Vec::new(),
            anchor: None,
            is_following: true,
            selected: None,
            folds: HashMap::new(),
            fold_all: None,
            matches: Vec::new(),
            waiting: Vec::new(),
            size: (80, 20),
            last_output: None,
            messages_at_leave: 0,
            seen_seq: 0,
        }
    }

    /// The transcript of the session, without earlier pages.
    pub fn transcript(&self) -> ReplicaGuard {
        self.replica.read()
    }

    /// The session, if it is live.
    pub fn session(&self) -> Option<&Session> {
        match &self.replica {
            Replica::Live(session) => Some(session),
            Replica::Fixed(_) => None,
        }
    }

    /// Continues on another connection; the view stays.
    pub fn reconnect(&mut self, replica: Replica) {
        self.replica = replica;
        self.is_loading_older = false;
        (self.older_failures, self.older_retry) = (0, None);
    }

    /// Keeps the cursor for entries that could not be loaded, and requests them again later.
    pub fn retry_older(&mut self, now: Timestamp) {
        self.is_loading_older = false;
        self.older_retry = Some(now + OLDER_RETRIES[self.older_failures.min(OLDER_RETRIES.len() - 1)]);
        self.older_failures += 1;
    }

    /// Adds the entries before the first page.
    pub fn add_older(&mut self, page: Transcript, before: Option<Json>) {
        let first = self.pages.first().map_or(LIVE, |(number, _)| *number);
        let number = first - 1;
        self.is_loading_older = false;
        (self.older_failures, self.older_retry) = (0, None);
        self.older = before;
        let messages = page.entries().iter().filter(|entry| is_numbered(entry)).count();
        self.older_messages = self.older_messages.saturating_sub(messages);
        let page = Arc::new(page);
        let items: Vec<_> = page
            .entries()
            .iter()
            .filter(|entry| !entry.body().removed)
            .map(|entry| item(number, entry))
            .collect();
        self.pages.insert(0, (number, page));
        self.items.splice(0..0, items);
        if self.older.is_none() {
            self.wants_first = false;
        }
    }

    /// Applies the changes of the transcript.
    pub fn sync(&mut self, now: Timestamp) {
        let transcript = self.replica.read();
        if self.is_observed && transcript.seq() == self.seen_seq {
            return;
        }
        self.seen_seq = transcript.seq();
        let live = self.items.partition_point(|item| item.key.page < LIVE);
        let mut index = live;
        for entry in transcript.entries() {
            if entry.body().removed {
                continue;
            }
            let new = item(LIVE, entry);
            match self.items.get_mut(index) {
                Some(known) if known.key == new.key => {
                    if known.revision == new.revision {
                        index += 1;
                        continue;
                    }
                    *known = new;
                }
                Some(known) if known.key < new.key => {
                    // Entries in between were removed.
                    let end = self.items[index..].partition_point(|known| known.key < new.key) + index;
                    self.items.drain(index..end);
                    if self.items.get(index).is_some_and(|known| known.key == new.key) {
                        self.items[index] = new;
                    } else {
                        self.items.insert(index, new);
                    }
                }
                Some(_) => self.items.insert(index, new),
                None => self.items.push(new),
            }
            index += 1;
            if let EntryId::ToolCall(_) = entry.id() {
                note_terminals(entry, &mut self.shown_terminals);
            }
            if self.is_observed {
                self.last_output = Some(now);
                let times = self.times.entry(new.key).or_default();
                observe(entry, times, now);
            } else if is_open(entry) {
                self.times.entry(new.key).or_default();
            }
        }
        self.items.truncate(index);
        // What was before is not known.
        self.last_output = self.last_output.or(Some(now));
        self.is_observed = true;
        self.last_edit = turn::last_edit(&transcript);
        self.turn_changes = turn::changes(&transcript, &self.cwd, self.older.is_none());
    }

    /// Forgets what this client observed: after a reload the changes have other numbers.
    pub fn reload(&mut self) {
        let live = self.items.partition_point(|item| item.key.page < LIVE);
        self.items.truncate(live);
        self.views.clear();
        self.times.clear();
        self.is_observed = false;
        self.seen_seq = 0;
    }

    /// When something of the turn last arrived.
    pub fn last_output(&self) -> Option<Timestamp> {
        self.last_output
    }

    /// The last reported state.
    pub fn state(&self) -> Option<State> {
        self.replica.read().state().cloned()
    }

    /// Whether a turn runs.
    pub fn is_busy(&self) -> bool {
        let transcript = self.replica.read();
        transcript.state().is_some_and(|state| state.activity.is_busy())
    }

    /// Whether the turn waits for a person.
    pub fn is_waiting(&self) -> bool {
        let transcript = self.replica.read();
        transcript.state().is_some_and(|state| state.activity == Activity::RequiresAction)
    }

    /// The value of a slot.
    pub fn slot(&self, slot: Slot) -> Option<parlor_client::Body> {
        self.replica.read().slot(slot).cloned()
    }

    /// The options of the session: those that were last reported, else those with which it was opened.
    pub fn options(&self) -> Vec<ConfigOption> {
        let opened = self.session().map(Session::opened).unwrap_or_default();
        ConfigOption::of_session(&self.replica.read(), &opened)
    }

    /// How many messages are loaded.
    pub fn messages(&self) -> usize {
        self.items.iter().filter(|item| item.is_message).count()
    }

    /// Whether anything is shown.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The number of a message; `None` for other entries.
    pub(super) fn number(&self, index: usize) -> Option<usize> {
        let messages = || self.items[..=index].iter().filter(|item| item.is_message).count();
        self.items[index].is_message.then(|| self.older_messages + messages())
    }

    pub(super) fn fold(&self, key: ItemKey) -> Fold {
        if let Some(fold) = self.folds.get(&key).copied().or(self.fold_all) {
            return fold;
        }
        if self.last_edit == Some(key) { Fold::Preview } else { Fold::Auto }
    }

    pub(super) fn index_of(&self, key: ItemKey) -> usize {
        let index = self.items.partition_point(|item| item.key < key);
        index.min(self.items.len().saturating_sub(1))
    }

    /// When an entry began: as this client saw it, or as the server says.
    fn started(&self, index: usize) -> Option<Timestamp> {
        let key = self.items.get(index)?.key;
        let seen = self.times.get(&key).and_then(|times| times.started);
        seen.or_else(|| self.with_entry(index, |entry, _| created_at(entry))?)
    }

    /// When an entry began and ended. A thought ends when the turn goes on.
    fn times(&self, index: usize) -> EntryTimes {
        let item = &self.items[index];
        let mut times = self.times.get(&item.key).copied().unwrap_or_default();
        times.started = times.started.or_else(|| self.started(index));
        let goes_on = self.items.get(index + 1).is_some_and(|next| next.kind != Kind::Prompt);
        if item.is_thought && goes_on {
            times.ended = self.started(index + 1);
        }
        times
    }

    /// Reads the entry at an index.
    pub(super) fn with_entry<T>(
        &self,
        index: usize,
        read: impl FnOnce(&Entry, &Transcript) -> T,
    ) -> Option<T> {
        let key = self.items.get(index)?.key;
        let find = |transcript: &Transcript| {
            let entries = transcript.entries();
            entries.binary_search_by_key(&key.created, Entry::created).ok()
        };
        if key.page == LIVE {
            let transcript = self.replica.read();
            let found = find(&transcript)?;
            return Some(read(&transcript.entries()[found], &transcript));
        }
        let (_, page) = self.pages.iter().find(|(number, _)| *number == key.page)?;
        Some(read(&page.entries()[find(page)?], page))
    }

    /// The texts of the prompts that are loaded, the latest first.
    pub fn prompts(&self) -> Vec<String> {
        let is_prompt = |index: &usize| self.items[*index].kind == Kind::Prompt;
        let prompts = (0..self.items.len()).rev().filter(is_prompt);
        prompts
            .filter_map(|index| self.with_entry(index, |entry, _| entry.body().content.to_text()))
            .collect()
    }
}

/// The left margin of the conversation at a width.
pub fn margin(width: u16) -> u16 {
    u16::from(width >= 60)
}

fn item(page: u32, entry: &Entry) -> Item {
    let kind = match entry.id() {
        EntryId::Message(Role::User, _) => Kind::Prompt,
        EntryId::Message(Role::Agent, _) => Kind::Message,
        EntryId::Message(Role::Thought, _) | EntryId::ToolCall(_) => Kind::Compact,
        EntryId::Event(_) if is_decision(entry) => Kind::Below,
        EntryId::Plan(_)
        | EntryId::Terminal(_)
        | EntryId::Compaction(_)
        | EntryId::Subagent(_)
        | EntryId::SessionMessage(_)
        | EntryId::Event(_)
        | EntryId::Note(_) => Kind::Other,
    };
    let is_message = is_numbered(entry);
    let is_thought = matches!(entry.id(), EntryId::Message(Role::Thought, _));
    let key = ItemKey { page, created: entry.created() };
    Item { key, revision: entry.seq(), kind, is_message, is_thought }
}

/// Whether an entry says who decided about a tool call.
fn is_decision(entry: &Entry) -> bool {
    let fields = &entry.body().fields;
    fields.get_string("type").as_deref() == Some("decision") && fields.get_string("toolCallId").is_some()
}

/// Whether an entry may still change.
fn is_open(entry: &Entry) -> bool {
    let status = ToolCall::of_entry(entry).and_then(|call| call.status());
    matches!(status, Some(ToolCallStatus::Pending | ToolCallStatus::InProgress | ToolCallStatus::Paused))
}

/// Records when an entry began and ended.
fn observe(entry: &Entry, times: &mut EntryTimes, now: Timestamp) {
    match ToolCall::of_entry(entry).map(|call| call.status()) {
        Some(Some(ToolCallStatus::Completed | ToolCallStatus::Failed | ToolCallStatus::Cancelled)) => {
            times.ended = times.ended.or(Some(now));
        }
        Some(_) | None => times.started = times.started.or(Some(now)),
    }
}

/// When an entry was created, if the server says so.
fn created_at(entry: &Entry) -> Option<Timestamp> {
    let at = entry.body().meta.as_ref()?.get("parlor/at")?;
    Timestamp::from_millisecond(i64::try_from(at.as_u64()?).ok()?).ok()
}

/// Adds the terminals that a tool call shows.
fn note_terminals(entry: &Entry, shown: &mut Vec<String>) {
    for item in entry.body().content.iter().filter(|item| item.json.contains("\"terminal\"")) {
        let terminal =
            Json::parse(item.json).ok().and_then(|item| item.to_object()?.get_string("terminalId"));
        if let Some(terminal) = terminal.filter(|terminal| !shown.contains(terminal)) {
            shown.push(terminal);
        }
    }
}

/// The text of an entry in which words are found: with the input of a tool and the output of its terminals.
fn found_text(entry: &Entry, transcript: &Transcript, cwd: &str) -> String {
    let mut text = entry_text(entry);
    if let EntryId::ToolCall(_) = entry.id() {
        let details = ToolDetails::of_entry(entry, cwd);
        let input = shown_input(&details, cwd).map(content_block::compact);
        for part in [details.command.as_deref(), input.as_deref()].into_iter().flatten() {
            text.push('\n');
            text.push_str(part);
        }
        for terminal in details.terminals().filter_map(|id| transcript.get(&EntryId::Terminal(id.clone()))) {
            text.push('\n');
            text.push_str(&String::from_utf8_lossy(&terminal.body().output));
        }
    }
    text
}

/// The text of an entry as plain text.
fn entry_text(entry: &Entry) -> String {
    let body = entry.body();
    let mut parts = Vec::new();
    parts.extend(body.fields.get_string("title"));
    for item in body.content.iter() {
        if let Some(text) = parlor_client::text_of(item.json) {
            match parts.last_mut().filter(|_| matches!(entry.id(), EntryId::Message(..))) {
                Some(last) => last.push_str(&text),
                None => parts.push(text.into_owned()),
            }
            continue;
        }
        let Some(item) = Json::parse(item.json).ok().and_then(|item| item.to_object()) else { continue };
        if let Some(content) =
            item.get("content").and_then(|block| Some(parlor_client::text_of(block.as_str())?.into_owned()))
        {
            parts.push(content);
        }
        parts.extend(item.get_string("newText"));
    }
    if !body.output.is_empty() {
        parts.push(String::from_utf8_lossy(&body.output).into_owned());
    }
    parts.join("\n")
}
