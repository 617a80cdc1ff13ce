//! The conversation of one session: which entries are shown, where the view is, and what is selected.
//!
//! The view is an anchor, an entry and a row of it, and not an offset from the start. Entries are laid out only where the view
//! walks over them, so that an entry far away costs nothing and never moves what is shown.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use parlor_client::{
    Activity, ConfigOption, Entry, EntryId, Json, MessageId, Role, Session, SessionId, Slot, Snapshot, State,
    ToolCall, ToolCallId, ToolCallStatus, ToolKind, Transcript, is_numbered,
};
use ratatui::text::Line;

use crate::clean::Clean;
use crate::entry::{EntryContext, EntryTimes, EntryView, Fold};
use crate::theme::Theme;

/// How many rendered entries are kept.
const MAX_VIEWS: usize = 500;

/// What everything is drawn with.
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
        let rest = self.home.as_deref().and_then(|home| path.strip_prefix(home));
        match rest.filter(|rest| rest.is_empty() || rest.starts_with('/')) {
            Some(rest) => Clean::line(&format!("~{rest}")),
            None => Clean::line(path),
        }
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

/// The page of entries that the session itself has; earlier pages have lower numbers.
const LIVE: u32 = u32::MAX;

/// What an entry is, as far as the layout depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Prompt,
    Message,
    /// Entries that follow each other without a blank line if they have one line.
    Compact,
    Other,
}

/// An entry of the conversation.
#[derive(Debug, Clone, Copy)]
struct Item {
    key: ItemKey,
    revision: u64,
    kind: Kind,
    is_message: bool,
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

/// What the agent is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doing {
    /// In a few words, such as `Running cargo test`.
    pub what: Clean,
    /// Since when, if this client saw it begin.
    pub since: Option<Timestamp>,
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
    /// Whether all earlier entries are to be loaded.
    pub wants_first: bool,
    items: Vec<Item>,
    views: HashMap<ItemKey, CachedView>,
    frame: u64,
    times: HashMap<ItemKey, EntryTimes>,
    is_observed: bool,
    last_edit: Option<ItemKey>,
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
            wants_first: false,
            items: Vec::new(),
            views: HashMap::new(),
            frame: 0,
            times: HashMap::new(),
            is_observed: false,
            last_edit: None,
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
    }

    /// Adds the entries before the first page.
    pub fn add_older(&mut self, page: Transcript, before: Option<Json>) {
        let first = self.pages.first().map_or(LIVE, |(number, _)| *number);
        let number = first - 1;
        self.is_loading_older = false;
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
        let mut place = live;
        for entry in transcript.entries() {
            if entry.body().removed {
                continue;
            }
            let new = item(LIVE, entry);
            match self.items.get_mut(place) {
                Some(known) if known.key == new.key => {
                    if known.revision == new.revision {
                        place += 1;
                        continue;
                    }
                    *known = new;
                }
                Some(known) if known.key < new.key => {
                    // Entries in between were removed.
                    let end = self.items[place..].partition_point(|known| known.key < new.key) + place;
                    self.items.drain(place..end);
                    if self.items.get(place).is_some_and(|known| known.key == new.key) {
                        self.items[place] = new;
                    } else {
                        self.items.insert(place, new);
                    }
                }
                Some(_) => self.items.insert(place, new),
                None => self.items.push(new),
            }
            place += 1;
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
        self.items.truncate(place);
        // What was before is not known.
        self.last_output = self.last_output.or(Some(now));
        self.is_observed = true;
        self.last_edit = last_edit(&transcript);
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

    /// What the agent is doing now.
    pub fn doing(&self) -> Doing {
        let transcript = self.replica.read();
        let since = |entry: &Entry| {
            let key = ItemKey { page: LIVE, created: entry.created() };
            self.times.get(&key).and_then(|times| times.started)
        };
        let turn = transcript.entries().iter().rev();
        let turn = turn.take_while(|entry| !matches!(entry.id(), EntryId::Message(Role::User, _)));
        let mut last = None;
        for entry in turn.filter(|entry| !entry.body().removed) {
            if let Some(call) = ToolCall::of_entry(entry)
                && call.status() == Some(ToolCallStatus::InProgress)
            {
                let title = call.title().unwrap_or_default();
                return Doing {
                    what: Clean::line(&running(&title, call.kind().as_ref())),
                    since: since(entry),
                };
            }
            if last.is_none() && matches!(entry.id(), EntryId::Message(..)) {
                last = Some(entry);
            }
        }
        let (what, entry) = match last.map(|entry| (entry.id(), entry)) {
            Some((EntryId::Message(Role::Thought, _), entry)) => ("Thinking", Some(entry)),
            Some((_, entry)) => ("Writing", Some(entry)),
            None => ("Working", None),
        };
        Doing { what: Clean::line(what), since: entry.and_then(since) }
    }

    /// How many items of the plan are completed, and how many there are.
    pub fn plan(&self) -> Option<(usize, usize)> {
        let transcript = self.replica.read();
        let is_plan = |entry: &&Entry| matches!(entry.id(), EntryId::Plan(_)) && !entry.body().removed;
        let plan = transcript.entries().iter().rev().find(is_plan)?;
        let plan = plan.body().fields.get_object("plan")?;
        let items = plan.get_array("entries")?;
        let is_done = |item: &parlor_client::JsonRef<'_>| {
            let status = item.to_object().and_then(|item| item.get_string("status"));
            status.as_deref() == Some("completed")
        };
        Some((items.iter().filter(|item| is_done(item)).count(), items.len())).filter(|(_, all)| *all > 0)
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
    fn number(&self, index: usize) -> Option<usize> {
        let messages = || self.items[..=index].iter().filter(|item| item.is_message).count();
        self.items[index].is_message.then(|| self.older_messages + messages())
    }

    fn fold(&self, key: ItemKey) -> Fold {
        if let Some(fold) = self.folds.get(&key).copied().or(self.fold_all) {
            return fold;
        }
        if self.last_edit == Some(key) { Fold::Preview } else { Fold::Auto }
    }

    fn index_of(&self, key: ItemKey) -> usize {
        let index = self.items.partition_point(|item| item.key < key);
        index.min(self.items.len().saturating_sub(1))
    }

    /// Reads the entry at an index.
    fn with_entry<T>(&self, index: usize, read: impl FnOnce(&Entry, &Transcript) -> T) -> Option<T> {
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

    /// Renders the entry at an index and passes its lines on. An entry without lines is not shown.
    fn with_lines<T>(
        &mut self,
        index: usize,
        fold: Option<Fold>,
        look: &Look,
        read: impl FnOnce(&[Line<'static>]) -> T,
    ) -> Option<T> {
        let key = self.items.get(index)?.key;
        let fold = fold.unwrap_or_else(|| self.fold(key));
        let mut cached = self.views.remove(&key).unwrap_or_default();
        cached.used = self.frame;
        let number = self.number(index);
        let times = self.times.get(&key).copied().unwrap_or_default();
        let width = self.entry_width();
        let result = self.with_entry(index, |entry, transcript| {
            if let EntryId::Terminal(id) = entry.id()
                && self.shown_terminals.contains(&id.to_string())
            {
                return read(&[]);
            }
            let context = EntryContext {
                theme: &look.theme,
                transcript,
                number,
                times,
                now: look.now,
                zone: &look.zone,
                cwd: &self.cwd,
                matches: &self.matches,
                needs_answer: matches!(entry.id(), EntryId::ToolCall(id) if self.waiting.contains(id)),
            };
            read(cached.view.lines(entry, &context, width, fold))
        });
        self.views.insert(key, cached);
        result
    }

    /// The width of an entry: without the margin.
    fn entry_width(&self) -> u16 {
        self.size.0.saturating_sub(margin(self.size.0)).max(1)
    }

    fn height(&mut self, index: usize, look: &Look) -> usize {
        self.with_lines(index, None, look, <[_]>::len).unwrap_or(0)
    }

    /// The rows of an entry: the blank line before it, if there is one, and its lines.
    fn block(&mut self, index: usize, look: &Look) -> (usize, usize) {
        let height = self.height(index, look);
        if height == 0 {
            return (0, 0);
        }
        let Some(before) = (0..index).rev().find(|before| self.height(*before, look) > 0) else {
            return (0, height);
        };
        let are_compact = self.items[index].kind == Kind::Compact && self.items[before].kind == Kind::Compact;
        let is_narrow = margin(self.size.0) == 0;
        let has_gap = !(are_compact && (is_narrow || self.height(before, look) == 1));
        (usize::from(has_gap), height)
    }

    /// Sets the size of the view.
    pub fn resize(&mut self, width: u16, height: u16) {
        self.size = (width, height);
    }

    /// The anchor that shows the end.
    fn end_anchor(&mut self, look: &Look) -> Option<Anchor> {
        let mut left = usize::from(self.size.1);
        for index in (0..self.items.len()).rev() {
            let (gap, height) = self.block(index, look);
            let rows = gap + height;
            if rows >= left && rows > 0 {
                return Some(Anchor { key: self.items[index].key, row: rows - left });
            }
            left -= rows;
        }
        self.items.first().map(|first| Anchor { key: first.key, row: 0 })
    }

    /// The present anchor.
    fn top(&mut self, look: &Look) -> Option<Anchor> {
        if self.is_following || self.anchor.is_none() {
            return self.end_anchor(look);
        }
        self.anchor
    }

    /// Scrolls by rows: up if the number is negative.
    pub fn scroll(&mut self, rows: isize, look: &Look) {
        let Some(Anchor { key, row }) = self.top(look) else { return };
        if self.is_following && rows > 0 {
            return;
        }
        let mut index = self.index_of(key);
        let mut row = row;
        for _ in 0..rows.unsigned_abs() {
            let (gap, height) = self.block(index, look);
            if rows > 0 {
                if row + 1 < gap + height {
                    row += 1;
                } else if index + 1 < self.items.len() {
                    index += 1;
                    row = 0;
                }
            } else if row > 0 {
                row -= 1;
            } else if let Some(before) = (0..index).rev().find(|before| self.height(*before, look) > 0) {
                let (gap, height) = self.block(before, look);
                (index, row) = (before, (gap + height).saturating_sub(1));
            } else {
                break;
            }
        }
        self.leave_end();
        self.anchor = Some(Anchor { key: self.items[index].key, row });
        self.follow_at_end(look);
    }

    /// Follows the end again if the view shows it.
    fn follow_at_end(&mut self, look: &Look) {
        let (Some(anchor), Some(end)) = (self.anchor, self.end_anchor(look)) else { return };
        if (anchor.key, anchor.row) >= (end.key, end.row) {
            self.follow();
        }
    }

    /// Stops following the end.
    fn leave_end(&mut self) {
        if self.is_following {
            self.messages_at_leave = self.messages();
        }
        self.is_following = false;
    }

    /// Shows the end and follows it.
    pub fn follow(&mut self) {
        self.is_following = true;
        self.anchor = None;
    }

    /// How many messages have arrived since the view left the end.
    pub fn new_messages(&self) -> usize {
        if self.is_following { 0 } else { self.messages().saturating_sub(self.messages_at_leave) }
    }

    /// Whether the end of the conversation is on the screen.
    pub fn shows_end(&mut self, look: &Look) -> bool {
        let last = (0..self.items.len()).rev().find(|index| self.height(*index, look) > 0);
        let shown = self.visible(look);
        match (last, shown.last()) {
            (Some(last), Some((index, first))) if *index == last => {
                let height = isize::try_from(self.height(last, look)).unwrap_or(0);
                first + height <= self.page()
            }
            (last, _) => last.is_none(),
        }
    }

    /// The height of the view.
    pub fn page(&self) -> isize {
        isize::try_from(self.size.1).unwrap_or(1)
    }

    /// Whether the view shows its first entry, so that earlier ones are needed.
    pub fn needs_older(&mut self, look: &Look) -> bool {
        if self.older.is_none() || self.is_loading_older {
            return false;
        }
        let is_at_start = match self.top(look) {
            Some(anchor) => self.index_of(anchor.key) < 3,
            None => true,
        };
        self.wants_first || is_at_start
    }

    /// The index of the selected entry.
    fn selected_index(&self) -> Option<usize> {
        let key = self.selected?;
        let index = self.index_of(key);
        self.items.get(index).filter(|item| item.key == key).map(|_| index)
    }

    /// Whether an entry is selected.
    pub fn has_selection(&self) -> bool {
        self.selected_index().is_some()
    }

    /// Selects nothing.
    pub fn deselect(&mut self) {
        self.selected = None;
    }

    /// Selects the last entry that is shown.
    pub fn select_visible(&mut self, look: &Look) {
        if self.has_selection() {
            return;
        }
        let shown = self.visible(look);
        self.selected = shown.last().map(|(index, _)| self.items[*index].key);
    }

    /// The indexes of the entries that are shown, with their first rows on the screen, which may be above it.
    fn visible(&mut self, look: &Look) -> Vec<(usize, isize)> {
        let Some(anchor) = self.top(look) else { return Vec::new() };
        let mut shown = Vec::new();
        let mut row = -isize::try_from(anchor.row).unwrap_or(0);
        for index in self.index_of(anchor.key)..self.items.len() {
            if row >= isize::try_from(self.size.1).unwrap_or(isize::MAX) {
                break;
            }
            let (gap, height) = self.block(index, look);
            if height > 0 {
                shown.push((index, row + isize::try_from(gap).unwrap_or(0)));
            }
            row += isize::try_from(gap + height).unwrap_or(0);
        }
        shown
    }

    /// Selects the next or previous entry that a condition holds for, and scrolls to it. An entry that is longer than the screen
    /// is first scrolled through.
    fn select_step(&mut self, forward: bool, look: &Look, fits: impl Fn(&Self, usize) -> bool) {
        let Some(selected) = self.selected_index() else {
            self.select_visible(look);
            return;
        };
        let mut candidates: Vec<usize> =
            if forward { (selected + 1..self.items.len()).collect() } else { (0..selected).rev().collect() };
        candidates.retain(|index| fits(self, *index));
        let next = candidates.into_iter().find(|index| self.height(*index, look) > 0);
        if let Some(next) = next {
            self.selected = Some(self.items[next].key);
            self.reveal(next, look);
        } else if forward {
            self.follow();
        } else if self.older.is_some() {
            self.scroll(-1, look);
        }
    }

    /// Selects the next entry.
    pub fn select_next(&mut self, look: &Look) {
        if self.scroll_in_selected(true, look) {
            return;
        }
        self.select_step(true, look, |_, _| true);
    }

    /// Selects the previous entry.
    pub fn select_previous(&mut self, look: &Look) {
        if self.scroll_in_selected(false, look) {
            return;
        }
        self.select_step(false, look, |_, _| true);
    }

    /// Scrolls if the selected entry goes on below or above the view. Returns whether it did.
    fn scroll_in_selected(&mut self, forward: bool, look: &Look) -> bool {
        let Some(selected) = self.selected_index() else { return false };
        let page = self.page();
        let shown = self.visible(look);
        let Some((_, first)) = shown.iter().find(|(index, _)| *index == selected) else { return false };
        let height = isize::try_from(self.height(selected, look)).unwrap_or(0);
        let hidden = if forward { first + height - page } else { -first };
        if hidden <= 0 || height <= page {
            return false;
        }
        let step = hidden.min((page / 2).max(1));
        self.scroll(if forward { step } else { -step }, look);
        true
    }

    /// Selects the next prompt.
    pub fn select_next_prompt(&mut self, look: &Look) {
        self.select_step(true, look, |this, index| this.items[index].kind == Kind::Prompt);
    }

    /// Selects the previous prompt.
    pub fn select_previous_prompt(&mut self, look: &Look) {
        self.select_step(false, look, |this, index| this.items[index].kind == Kind::Prompt);
    }

    /// Selects the first entry, and has all earlier ones loaded.
    pub fn select_first(&mut self, look: &Look) {
        self.wants_first = self.older.is_some();
        let Some(first) = (0..self.items.len()).find(|index| self.height(*index, look) > 0) else { return };
        self.selected = Some(self.items[first].key);
        self.leave_end();
        self.anchor = Some(Anchor { key: self.items[0].key, row: 0 });
    }

    /// Selects the last entry and follows the end.
    pub fn select_last(&mut self, look: &Look) {
        let last = (0..self.items.len()).rev().find(|index| self.height(*index, look) > 0);
        self.selected = last.map(|index| self.items[index].key);
        self.follow();
    }

    /// Selects the entry at a row of the screen.
    pub fn select_row(&mut self, row: u16, look: &Look) -> bool {
        let row = isize::try_from(row).unwrap_or(0);
        let shown = self.visible(look);
        let Some((index, _)) = shown.into_iter().rev().find(|(_, first)| *first <= row) else { return false };
        let is_again = self.selected == Some(self.items[index].key);
        self.selected = Some(self.items[index].key);
        is_again
    }

    /// Selects a message and shows it. Returns false if it is not loaded.
    pub fn select_message(&mut self, id: &MessageId, look: &Look) -> bool {
        let is_it = |entry: &Entry| matches!(entry.id(), EntryId::Message(_, known) if known == id);
        self.select_where(is_it, look)
    }

    /// Selects the last entry that a condition holds for. Returns false if there is none.
    pub fn select_where(&mut self, is_it: impl Fn(&Entry) -> bool, look: &Look) -> bool {
        let found = (0..self.items.len())
            .rev()
            .find(|index| self.with_entry(*index, |entry, _| is_it(entry)).unwrap_or(false));
        let Some(index) = found else { return false };
        self.selected = Some(self.items[index].key);
        self.leave_end();
        let key = self.items[index].key;
        self.anchor = Some(Anchor { key, row: 0 });
        // Some lines above it show where it belongs.
        self.scroll(-(self.page() / 4), look);
        self.reveal(index, look);
        true
    }

    /// Scrolls until an entry is shown, as far as it fits.
    fn reveal(&mut self, index: usize, look: &Look) {
        let page = self.page();
        let height = isize::try_from(self.height(index, look)).unwrap_or(0);
        let shown = self.visible(look);
        let place = shown.iter().find(|(shown, _)| *shown == index).map(|(_, first)| *first);
        match place {
            Some(first) if first < 0 => self.scroll(first, look),
            Some(first) if first + height > page => self.scroll((first + height - page).min(first), look),
            // The view does not follow the end while something above it is selected.
            Some(_) if self.is_following && index + 1 < self.items.len() => {
                self.anchor = self.end_anchor(look);
                self.leave_end();
            }
            Some(_) => {}
            None => {
                let is_above = shown.first().is_none_or(|(first, _)| index < *first);
                self.leave_end();
                self.anchor = Some(Anchor { key: self.items[index].key, row: 0 });
                if !is_above {
                    self.scroll(-(page - height).max(0), look);
                }
                self.follow_at_end(look);
            }
        }
    }

    /// Unfolds or folds the selected entry.
    pub fn toggle(&mut self, look: &Look) {
        let Some(index) = self.selected_index() else { return };
        let key = self.items[index].key;
        let height =
            |this: &mut Self, fold| this.with_lines(index, Some(fold), look, <[_]>::len).unwrap_or(0);
        let shown = self.height(index, look);
        let next = if height(self, Fold::Unfolded) > shown {
            Fold::Unfolded
        } else if height(self, Fold::Auto) < shown {
            Fold::Auto
        } else {
            Fold::Folded
        };
        self.folds.insert(key, next);
        if !self.is_following {
            self.reveal(index, look);
        }
    }

    /// Unfolds everything, or folds everything again.
    pub fn toggle_all(&mut self) {
        self.folds.clear();
        self.fold_all = match self.fold_all {
            None => Some(Fold::Unfolded),
            Some(_) => None,
        };
    }

    /// Selects the next or previous entry that has the words that are searched for.
    pub fn select_match(&mut self, forward: bool, look: &Look) -> bool {
        let matches = self.matches.clone();
        if matches.is_empty() {
            return false;
        }
        let count = self.items.len();
        let start = self.selected_index().unwrap_or(if forward { 0 } else { count });
        let order: Vec<usize> = if forward {
            (start + 1..count).chain(0..=start.min(count.saturating_sub(1))).collect()
        } else {
            (0..start).rev().chain((start..count).rev()).collect()
        };
        let has_words = |entry: &Entry| {
            let text = entry_text(entry).to_lowercase();
            matches.iter().all(|word| text.contains(word.as_str()))
        };
        let found = order
            .into_iter()
            .find(|index| self.with_entry(*index, |entry, _| has_words(entry)).unwrap_or(false));
        let Some(index) = found else { return false };
        self.selected = Some(self.items[index].key);
        self.reveal(index, look);
        true
    }

    /// Reads the selected entry.
    pub fn with_selected<T>(&self, read: impl FnOnce(&Entry, &Transcript) -> T) -> Option<T> {
        self.with_entry(self.selected_index()?, read)
    }

    /// The number of the selected entry, if it is a message and its number is known.
    pub fn selected_number(&self) -> Option<usize> {
        self.number(self.selected_index()?)
    }

    /// The message at or before the selected entry: where a fork is made.
    pub fn selected_message(&self) -> Option<MessageId> {
        let selected = self.selected_index()?;
        (0..=selected).rev().find_map(|index| {
            self.with_entry(index, |entry, _| {
                let EntryId::Message(_, id) = entry.id() else { return None };
                Some(id.clone())
            })?
        })
    }

    /// The prompt at or before the selected entry, or the last one if nothing is selected.
    pub fn selected_prompt(&self) -> Option<(MessageId, String)> {
        let last = self.items.len().checked_sub(1)?;
        let selected = self.selected_index().unwrap_or(last);
        (0..=selected).rev().find_map(|index| {
            self.with_entry(index, |entry, _| {
                let EntryId::Message(Role::User, id) = entry.id() else { return None };
                Some((id.clone(), entry.body().content.to_text()))
            })?
        })
    }

    /// The texts of the prompts that are loaded, the latest first.
    pub fn prompts(&self) -> Vec<String> {
        let is_prompt = |index: &usize| self.items[*index].kind == Kind::Prompt;
        let prompts = (0..self.items.len()).rev().filter(is_prompt);
        prompts
            .filter_map(|index| self.with_entry(index, |entry, _| entry.body().content.to_text()))
            .collect()
    }

    /// The numbers of the first and last message on the screen, and how many there are.
    pub fn shown_numbers(&mut self, look: &Look) -> Option<(usize, usize, usize)> {
        let shown = self.visible(look);
        let mut messages = shown.iter().filter_map(|(index, _)| self.number(*index));
        let first = messages.next()?;
        let last = messages.next_back().unwrap_or(first);
        Some((first, last, self.older_messages + self.messages()))
    }

    /// The rows of the view. Each has the line and whether its entry is selected.
    pub fn draw(&mut self, look: &Look) -> Vec<(Line<'static>, bool)> {
        self.frame += 1;
        let rows = usize::from(self.size.1);
        let mut drawn = Vec::with_capacity(rows);
        let selected = self.selected_index();
        for (index, first) in self.visible(look) {
            // Blank rows before the entry.
            while isize::try_from(drawn.len()).is_ok_and(|drawn| drawn < first) && drawn.len() < rows {
                drawn.push((Line::default(), false));
            }
            let skipped = usize::try_from(-first).unwrap_or(0);
            let left = rows - drawn.len();
            let lines = self.with_lines(index, None, look, |lines| {
                lines.iter().skip(skipped).take(left).cloned().collect::<Vec<_>>()
            });
            let is_selected = selected == Some(index);
            drawn.extend(lines.unwrap_or_default().into_iter().map(|line| (line, is_selected)));
        }
        if self.views.len() > MAX_VIEWS {
            let mut used: Vec<u64> = self.views.values().map(|view| view.used).collect();
            used.sort_unstable();
            let oldest = used[used.len() - MAX_VIEWS / 2];
            self.views.retain(|_, view| view.used >= oldest);
        }
        drawn
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
        EntryId::Plan(_)
        | EntryId::Terminal(_)
        | EntryId::Compaction(_)
        | EntryId::Subagent(_)
        | EntryId::SessionMessage(_)
        | EntryId::Event(_)
        | EntryId::Note(_) => Kind::Other,
    };
    let is_message = is_numbered(entry);
    Item { key: ItemKey { page, created: entry.created() }, revision: entry.seq(), kind, is_message }
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

/// The last edit of the last turn.
fn last_edit(transcript: &Transcript) -> Option<ItemKey> {
    let turn = transcript.entries().iter().rev();
    let mut turn = turn.take_while(|entry| !matches!(entry.id(), EntryId::Message(Role::User, _)));
    let is_edit = |entry: &&Entry| {
        let call = ToolCall::of_entry(entry);
        call.is_some_and(|call| call.kind() == Some(ToolKind::Edit))
    };
    turn.find(is_edit).map(|entry| ItemKey { page: LIVE, created: entry.created() })
}

/// What a running tool call is called on the turn line.
fn running(title: &str, kind: Option<&ToolKind>) -> String {
    let title = title.trim_matches('`');
    match kind {
        Some(ToolKind::Execute) => {
            let command = title.strip_prefix("Run ").unwrap_or(title);
            let words: Vec<_> = command.split_whitespace().take(2).collect();
            format!("Running {}", words.join(" "))
        }
        _ => title.to_owned(),
    }
}

/// The text of an entry, for copying and finding.
pub fn entry_text(entry: &Entry) -> String {
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
