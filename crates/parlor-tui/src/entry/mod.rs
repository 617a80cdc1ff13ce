//! One entry of a transcript as lines: Markdown, thoughts, tool calls, diffs, terminal output, plans and events.
//!
//! Lines have no left margin and no blank lines before or after the entry: the conversation adds both. A line is never wider than
//! the given width.
//!
//! | what | where |
//! |---|---|
//! | what is shown, for any output | [`parlor_view`] |
//! | rows | `markdown`, `row`, `table`, `tool_view`, [`request`] |
//! | text to copy | [`export`] |
//!
//! **Invariant:** appending to a message parses only its open block again, and appending to a terminal only the new output.

pub mod export;
pub(crate) mod markdown;
pub mod request;
pub(crate) mod row;
mod table;
pub(crate) mod tool_view;

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use parlor_client::{Entry, EntryId, JsonRef, Role as Sender, Transcript, text_of};
use parlor_view::content_block;
use parlor_view::event::{self, EventMark, EventWords};
use parlor_view::tool_call::ToolDetails;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

use self::markdown::{MAX_PROSE, MarkdownLayout, MarkdownView};
use self::row::{Text, Wrap};
use self::tool_view::{Screens, foreign_lines, with_marks};
use crate::theme::{Mark, Role, Theme};
use crate::time;

/// Below this width, numbers, times and durations are left out and indents are smaller.
const NARROW: usize = 58;

/// Columns before the text of a message.
const INDENT: usize = 2;

/// How much of an entry is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Fold {
    /// As its kind and state say: a completed tool call is one line, a failed one keeps its first 3 lines of output, a running one
    /// its last line; a thought is one line; messages and plans are whole.
    #[default]
    Auto,
    /// One line.
    Folded,
    /// As [`Fold::Auto`], with the lines that a tool call changes: for the last edit of a turn.
    Preview,
    /// Everything.
    Unfolded,
}

/// When an entry was first seen and when it ended, as this client observed it. Transcripts have no times but those of events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EntryTimes {
    /// When it began.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub ended: Option<Timestamp>,
}

/// Everything beside the entry that its lines are made from.
#[derive(Debug, Clone, Copy)]
pub struct EntryContext<'a> {
    /// Styles and marks.
    pub theme: &'a Theme,
    /// The transcript of the entry, for the terminals that tool calls refer to.
    pub transcript: &'a Transcript,
    /// The number of a message, if it is known.
    pub number: Option<usize>,
    /// When the entry began and ended, if this client saw it.
    pub times: EntryTimes,
    /// The present time, for the duration of entries that run.
    pub now: Timestamp,
    /// The time zone in which times are shown.
    pub zone: &'a TimeZone,
    /// The working directory of the session: paths inside it are shown relative to it.
    pub cwd: &'a str,
    /// The home directory, shown as `~`.
    pub home: Option<&'a str>,
    /// The words to mark as search hits, in lower case.
    pub matches: &'a [String],
    /// Whether a request about the tool call waits for a person.
    pub needs_answer: bool,
}

/// The rendered lines of one entry, kept so that a change of a message parses only its open block again.
#[derive(Debug, Default)]
pub struct EntryView {
    lines: Vec<Line<'static>>,
    key: Option<Key>,
    /// The revision that the lines show.
    revision: u64,
    message: MessageState,
    screens: Screens,
}

/// Identifies rendered lines: they are made again if it changes, or the entry.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Key {
    width: usize,
    fold: Fold,
    theme: Theme,
    number: Option<usize>,
    times: EntryTimes,
    /// Changes every second while the entry runs, and on another day.
    clock: (i64, i8),
    matches: Vec<String>,
    needs_answer: bool,
    /// Whether the entry is the one that the agent works on.
    is_running: bool,
    content_replaced: u64,
}

/// How far the content of a message is rendered.
#[derive(Debug, Default)]
struct MessageState {
    /// Items of the content that were read.
    items: usize,
    /// The text since the last block that is not text.
    text: String,
    markdown: MarkdownView,
    /// Lines that do not change any more.
    closed: usize,
}

/// The revision of what an entry shows: its own, or that of a terminal that it refers to.
pub fn revision(entry: &Entry, transcript: &Transcript) -> u64 {
    let EntryId::ToolCall(_) = entry.id() else { return entry.seq() };
    let terminals = entry.body().content.iter().filter_map(|item| {
        // An item that refers to a terminal is short.
        let is_reference = item.json.len() < 512 && item.json.contains("terminalId");
        let item = is_reference.then(|| JsonRef::parse(item.json).ok()).flatten()?;
        let id = item.to_object()?.get_json_str("terminalId")?;
        transcript.get(&EntryId::Terminal(id.into())).map(Entry::seq)
    });
    terminals.fold(entry.seq(), u64::max)
}

/// Whether an entry has lines of its own: it is not removed, and no tool call shows it.
pub fn is_shown(entry: &Entry, transcript: &Transcript) -> bool {
    let is_inside = match entry.id() {
        EntryId::Terminal(id) => tool_view::is_shown_by_tool_call(entry, id, transcript),
        EntryId::Message(..)
        | EntryId::ToolCall(_)
        | EntryId::Plan(_)
        | EntryId::Compaction(_)
        | EntryId::Subagent(_)
        | EntryId::SessionMessage(_)
        | EntryId::Event(_)
        | EntryId::Note(_) => false,
    };
    !entry.body().removed && !is_inside
}

/// Whether an entry is the last of a transcript whose turn runs.
fn is_running(entry: &Entry, transcript: &Transcript) -> bool {
    let is_busy = transcript.state().is_some_and(|state| state.activity.is_busy());
    is_busy && transcript.entries().last().is_some_and(|last| last.id() == entry.id())
}

fn is_narrow(width: usize) -> bool {
    width < NARROW
}

impl EntryView {
    /// A view that has rendered nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The lines of the entry at a width, rendered again only as far as they changed. An entry that is not [shown](is_shown) has
    /// none.
    pub fn lines(
        &mut self,
        entry: &Entry,
        context: &EntryContext<'_>,
        width: u16,
        fold: Fold,
    ) -> &[Line<'static>] {
        let width = usize::from(width.max(1));
        let key = Key::new(entry, context, width, fold);
        let revision = revision(entry, context.transcript);
        let is_same = self.key.as_ref() == Some(&key);
        if is_same && self.revision == revision {
            return &self.lines;
        }
        if !is_same {
            self.message = MessageState::default();
            self.lines.clear();
            self.key = Some(key);
        }
        self.revision = revision;
        if !is_shown(entry, context.transcript) {
            self.lines.clear();
            return &self.lines;
        }
        match entry.id() {
            EntryId::Message(Sender::Agent, _) if fold != Fold::Folded => {
                self.update_message(entry, context, width);
            }
            EntryId::Message(Sender::Thought, _) if fold == Fold::Unfolded => {
                self.update_message(entry, context, width);
            }
            EntryId::Message(..)
            | EntryId::ToolCall(_)
            | EntryId::Plan(_)
            | EntryId::Terminal(_)
            | EntryId::Compaction(_)
            | EntryId::Subagent(_)
            | EntryId::SessionMessage(_)
            | EntryId::Event(_)
            | EntryId::Note(_) => {
                let mut rows = self.rows(entry, context, width, fold);
                if fold == Fold::Folded {
                    rows.truncate(1);
                }
                self.lines.clear();
                self.push(rows, context, width);
            }
        }
        &self.lines
    }

    /// Bytes of Markdown that were parsed, to show what appending costs.
    pub fn parsed(&self) -> u64 {
        self.message.markdown.parsed()
    }

    fn push(&mut self, rows: Vec<Text>, context: &EntryContext<'_>, width: usize) {
        for row in rows {
            let mut line = row.into_line(width, *context.theme);
            row::mark_matches(&mut line, context.matches, *context.theme);
            self.lines.push(line);
        }
    }

    /// Renders what was appended to a message.
    fn update_message(&mut self, entry: &Entry, context: &EntryContext<'_>, width: usize) {
        let theme = *context.theme;
        let is_thought = matches!(entry.id(), EntryId::Message(Sender::Thought, _));
        let content = &entry.body().content;
        if self.message.items > content.len() {
            self.message = MessageState::default();
        }
        self.lines.truncate(self.message.closed);
        if is_thought && self.lines.is_empty() {
            let title = thought_title(entry, context, Mark::Unfolded);
            self.push(vec![title], context, width);
            self.message.closed = 1;
        }
        let right = if is_thought { Text::default() } else { message_right(context, width, false) };
        let reserved = if right.is_empty() || !self.lines.is_empty() { 0 } else { right.width() + 2 };
        let indent = INDENT.min(width / 4);
        let base = if is_thought { theme.style(Role::Dim) } else { Style::new() };
        let layout = MarkdownLayout { reserved, base, ..MarkdownLayout::new(theme, width - indent) };
        let mut closed = Vec::new();
        let mut pieces: Vec<String> = Vec::new();
        for index in self.message.items..content.len() {
            let item = content.get(index).unwrap_or_default();
            match text_of(item) {
                Some(text) => pieces.push(text.into_owned()),
                None => {
                    self.append_text(&mut pieces, content);
                    let (mut rows, open) = self.message.markdown.rows(&self.message.text, layout);
                    rows.extend(open);
                    rows.extend(block_rows(&content_block::label_of(item), layout));
                    self.message.markdown = MarkdownView::default();
                    self.message.text.clear();
                    closed.extend(rows);
                }
            }
        }
        self.append_text(&mut pieces, content);
        self.message.items = content.len();
        let (rows, open) = self.message.markdown.rows(&self.message.text, layout);
        closed.extend(rows);
        let is_first = self.lines.is_empty();
        let right = is_first.then_some(right);
        let closed_rows = message_rows(closed, right.clone(), indent, width);
        let is_started = !closed_rows.is_empty();
        self.push(closed_rows, context, width);
        self.message.closed = self.lines.len();
        let open = message_rows(open, right.filter(|_| !is_started), indent, width);
        self.push(open, context, width);
    }

    /// Appends the text of some items. A surrogate pair that was split between items is one character only in the whole.
    fn append_text(&mut self, pieces: &mut Vec<String>, content: &parlor_client::Content) {
        let is_split = |piece: &String| {
            piece.starts_with(char::REPLACEMENT_CHARACTER) || piece.ends_with(char::REPLACEMENT_CHARACTER)
        };
        if pieces.iter().any(is_split) && content.iter().all(|item| text_of(item.json).is_some()) {
            pieces.clear();
            let whole = content.to_text();
            let is_prefix = whole.starts_with(&self.message.text);
            if !is_prefix {
                // What was shown with a replacement character is rendered again.
                self.message.markdown = MarkdownView::default();
                self.message.closed = 0;
                self.lines.clear();
            }
            self.message.text = whole;
            return;
        }
        pieces.drain(..).for_each(|piece| self.message.text.push_str(&piece));
    }

    fn rows(&mut self, entry: &Entry, context: &EntryContext<'_>, width: usize, fold: Fold) -> Vec<Text> {
        match entry.id() {
            EntryId::Message(Sender::Thought, _) => vec![folded_thought(entry, context, width)],
            EntryId::Message(Sender::User, _) => prompt_rows(entry, context, width),
            EntryId::Message(Sender::Agent, _) => folded_message(entry, context, width),
            EntryId::ToolCall(_) => {
                let details = ToolDetails::of_entry(entry, context.cwd);
                tool_view::tool_rows(&details, context, width, fold, &mut self.screens)
            }
            EntryId::Plan(_) => plan_rows(entry, context, width),
            EntryId::Terminal(id) => self.terminal_rows(entry, id, context, width, fold),
            EntryId::Compaction(_)
            | EntryId::Subagent(_)
            | EntryId::SessionMessage(_)
            | EntryId::Event(_)
            | EntryId::Note(_) => event_rows(&EventWords::of_entry(entry), context, width, fold),
        }
    }

    /// A terminal that belongs to no tool call looks like a tool call that runs its command.
    fn terminal_rows(
        &mut self,
        entry: &Entry,
        id: &parlor_client::TerminalId,
        context: &EntryContext<'_>,
        width: usize,
        fold: Fold,
    ) -> Vec<Text> {
        let details = ToolDetails::of_terminal(entry, id);
        tool_view::tool_rows(&details, context, width, fold, &mut self.screens)
    }
}

impl Key {
    fn new(entry: &Entry, context: &EntryContext<'_>, width: usize, fold: Fold) -> Self {
        let is_thought = matches!(entry.id(), EntryId::Message(Sender::Thought, _));
        let is_running = is_running(entry, context.transcript);
        let is_busy = context.transcript.state().is_none_or(|state| state.activity.is_busy());
        let has_clock = (is_busy && matches!(entry.id(), EntryId::ToolCall(_) | EntryId::Terminal(_)))
            || (is_thought && is_running);
        let is_timed = context.times.ended.is_none() && context.times.started.is_some();
        let seconds = if is_timed && has_clock { context.now.as_second() } else { 0 };
        let day = context.now.to_zoned(context.zone.clone()).day();
        Self {
            width,
            fold,
            theme: *context.theme,
            number: context.number,
            times: context.times,
            clock: (seconds, day),
            matches: context.matches.to_vec(),
            needs_answer: context.needs_answer,
            is_running: is_thought && is_running,
            content_replaced: entry.content_replaced_at(),
        }
    }
}

/// The number and the time of a message.
fn message_right(context: &EntryContext<'_>, width: usize, is_prompt: bool) -> Text {
    if is_narrow(width) {
        return Text::default();
    }
    let number = context.number.map(|number| format!("#{number}"));
    let at = if is_prompt { context.times.started } else { context.times.ended };
    let at = at.map(|at| time::moment(at, context.now, context.zone));
    let parts: Vec<String> = number.into_iter().chain(at).collect();
    Text::own(parts.join("  "), context.theme.style(Role::Dim))
}

/// Puts the indent of a message before its rows, and its number at the end of the first row.
fn message_rows(rows: Vec<Text>, right: Option<Text>, indent: usize, width: usize) -> Vec<Text> {
    let blank = Text::own(" ".repeat(indent), Style::new());
    let mut right = right.filter(|right| !right.is_empty());
    let mut shown = Vec::new();
    for row in rows {
        let row = if row.is_empty() { row } else { blank.clone().and(row) };
        let Some(right) = right.take() else {
            shown.push(row);
            continue;
        };
        match row.with_right(right.clone(), width) {
            Ok(row) => shown.push(row),
            // A table or code that leaves no room.
            Err(row) => shown.extend([Text::default().with_right(right, width).unwrap_or_default(), row]),
        }
    }
    shown
}

fn block_rows(label: &str, layout: MarkdownLayout) -> Vec<Text> {
    let label = Text::foreign(layout.theme, label, layout.theme.style(Role::Dim));
    label.wrap(layout.width.saturating_sub(layout.reserved).max(1), layout.width, Wrap::Words)
}

/// A prompt is shown as it was written.
fn prompt_rows(entry: &Entry, context: &EntryContext<'_>, width: usize) -> Vec<Text> {
    let theme = *context.theme;
    let right = message_right(context, width, true);
    let mark = Text::own(theme.mark(Mark::Prompt), theme.style(Role::Accent)).with_own(" ", Style::new());
    let room = width.saturating_sub(mark.width()).clamp(1, MAX_PROSE);
    let reserved = if right.is_empty() { 0 } else { right.width() + 2 };
    let first = room.min(width.saturating_sub(mark.width() + reserved)).max(room.min(8));
    let mut rows: Vec<Text> = Vec::new();
    for item in entry.body().content.joined().iter() {
        let (text, style) = match text_of(item.json) {
            Some(text) => (text.into_owned(), Style::new()),
            None => (content_block::label_of(item.json), theme.style(Role::Dim)),
        };
        for line in text.trim_end().split('\n') {
            let first = if rows.is_empty() { first } else { room };
            rows.extend(Text::foreign(theme, line, style).wrap(first, room, Wrap::Words));
        }
    }
    with_marks(rows, &mark, right, width)
}

/// `▸ Thought 6 s`.
fn thought_title(entry: &Entry, context: &EntryContext<'_>, mark: Mark) -> Text {
    let dim = context.theme.style(Role::Dim);
    let duration = match (context.times.started, context.times.ended) {
        (Some(started), Some(ended)) => {
            let seconds = time::seconds(ended.duration_since(started));
            seconds.map(|seconds| format!(" {seconds}")).unwrap_or_default()
        }
        (Some(started), None) if is_running(entry, context.transcript) => {
            format!(" {}", time::clock(time::seconds_between(started, context.now)))
        }
        (Some(_) | None, _) => String::new(),
    };
    Text::own(format!("{} Thought{duration}", context.theme.mark(mark)), dim)
}

fn folded_thought(entry: &Entry, context: &EntryContext<'_>, width: usize) -> Text {
    let theme = *context.theme;
    let dim = theme.style(Role::Dim);
    let line = markdown::first_line(&beginning(entry));
    let title = thought_title(entry, context, Mark::Folded);
    if line.is_empty() {
        return title;
    }
    title.with_own(": ", dim).with_foreign(theme, &line, dim).cut(width, theme)
}

/// The first row of a message.
fn folded_message(entry: &Entry, context: &EntryContext<'_>, width: usize) -> Vec<Text> {
    let indent = INDENT.min(width / 4);
    let right = message_right(context, width, false);
    let line = markdown::first_line(&beginning(entry));
    let reserved = if right.is_empty() { 0 } else { right.width() + 2 };
    let room = width.saturating_sub(indent + reserved);
    let line = Text::foreign(*context.theme, &line, Style::new()).cut(room, *context.theme);
    message_rows(vec![line], Some(right), indent, width)
}

/// The beginning of a message's text: the rest need not be read for its first line.
fn beginning(entry: &Entry) -> String {
    entry.body().content.iter().take(64).filter_map(|item| text_of(item.json)).collect()
}

fn plan_rows(entry: &Entry, context: &EntryContext<'_>, width: usize) -> Vec<Text> {
    let theme = *context.theme;
    let items = event::plan_items(entry.body());
    let done = items.iter().filter(|(status, _)| status == "completed").count();
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let indent = INDENT.min(width / 4);
    let room = width - indent;
    let title = if items.is_empty() { "Plan".to_owned() } else { format!("Plan {done} of {}", items.len()) };
    let mut rows = vec![Text::own(title, bold)];
    for (status, text) in items {
        let (mark, role, style) = match status.as_str() {
            "completed" => (Mark::Completed, Role::Added, theme.style(Role::Dim)),
            "in_progress" => (Mark::Running, Role::Accent, Style::new()),
            "failed" => (Mark::Failed, Role::Error, Style::new()),
            "cancelled" => (Mark::Cancelled, Role::Dim, theme.style(Role::Dim)),
            _ => (Mark::Pending, Role::Dim, Style::new()),
        };
        let mark = Text::own(theme.mark(mark), theme.style(role)).with_own(" ", Style::new());
        let columns = room.saturating_sub(mark.width()).max(1);
        let text = Text::foreign(theme, &text, style).wrap(
            columns.min(MAX_PROSE),
            columns.min(MAX_PROSE),
            Wrap::Words,
        );
        rows.extend(with_marks(text, &mark, Text::default(), room));
    }
    if let Some(text) = event::plan_text(entry.body()) {
        rows.extend(markdown::markdown(&text, MarkdownLayout::new(theme, room)));
    }
    message_rows(rows, None, indent, width)
}

fn event_rows(words: &EventWords, context: &EntryContext<'_>, width: usize, fold: Fold) -> Vec<Text> {
    let theme = *context.theme;
    let dim = theme.style(Role::Dim);
    let at = words.at.as_deref().and_then(|at| at.parse::<Timestamp>().ok());
    let at = at.map(|at| time::moment(at, context.now, context.zone));
    let indent = tool_view::indent(width);
    if words.mark == EventMark::Below {
        let at = at.map(|at| format!(", {at}")).unwrap_or_default();
        let room = width.saturating_sub(indent).max(1);
        let rows =
            Text::foreign(theme, &format!("{}{at}", words.sentence), dim).wrap(room, room, Wrap::Words);
        return rows.into_iter().map(|row| Text::own(" ".repeat(indent), Style::new()).and(row)).collect();
    }
    let (mark, style) = match words.mark {
        EventMark::Failed => (theme.mark(Mark::Failed), theme.style(Role::Error)),
        EventMark::Cancelled => (theme.mark(Mark::Cancelled), dim),
        EventMark::None | EventMark::Below => (" ", dim),
    };
    let mark = Text::own(mark, style).with_own(" ", Style::new());
    let right = at.filter(|_| !is_narrow(width)).map(|at| Text::own(at, dim)).unwrap_or_default();
    let room = width.saturating_sub(mark.width()).max(1);
    let reserved = if right.is_empty() { 0 } else { right.width() + 2 };
    let sentence = Text::foreign(theme, &words.sentence, style);
    let mut rows = with_marks(
        sentence.wrap(room.saturating_sub(reserved).max(1), room, Wrap::Words),
        &mark,
        right,
        width,
    );
    let room = width.saturating_sub(indent).max(1);
    let limit = if fold == Fold::Unfolded { usize::MAX } else { 3 };
    let details = foreign_lines(&words.details.join("\n"), theme, dim, room);
    let more = details.len().saturating_sub(limit);
    let kept = if more > 0 { limit - 1 } else { details.len() };
    let mut details: Vec<Text> = details.into_iter().take(kept).collect();
    if more > 0 {
        details.push(tool_view::more(more + 1, theme));
    }
    rows.extend(details.into_iter().map(|row| Text::own(" ".repeat(indent), Style::new()).and(row)));
    rows
}
