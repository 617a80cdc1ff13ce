//! Tool calls, diffs and terminal output as rows.

use std::collections::HashMap;

use parlor_client::{Entry, EntryId, Json, TerminalId, ToolKind, Transcript};
use ratatui::style::{Color, Modifier, Style};

use super::markdown::{MarkdownLayout, code_line, markdown};
use super::row::{Text, Wrap};
use super::{EntryContext, Fold, content_block, is_narrow};
use crate::clean::Clean;
use crate::text::cut_path;
use crate::theme::{Colors, Mark, Role, Theme};
use crate::time;
use parlor_view::diff::{FileDiff, FileOperation, LineKind};
use parlor_view::highlight::Highlighter;
use parlor_view::terminal::{TerminalColor, TerminalScreen, TerminalStyle};
use parlor_view::tool_call::{ToolContent, ToolDetails, ToolStatus, ToolSubject, verb, without_fence};

/// Lines of a diff or of output that an entry shows.
const MAX_ROWS: usize = 2_000;

/// Rows of output that a failed tool call keeps when it is folded, with the row that counts the others.
const FAILED_ROWS: usize = 3;

/// Bytes that are read for the first lines of output that is too long to keep.
const HEAD: usize = 4 << 10;

/// The screens of the terminals that a view has shown, so that only new output is interpreted.
#[derive(Debug, Default)]
pub(crate) struct Screens(HashMap<TerminalId, (u64, TerminalScreen)>);

impl Screens {
    /// Interprets the new output of a terminal.
    fn update(&mut self, id: &TerminalId, terminal: &Entry) {
        let replaced = terminal.output_replaced_at();
        let output = &terminal.body().output;
        let (of, screen) = self.0.entry(id.clone()).or_default();
        if *of != replaced || screen.bytes() > output.len() {
            (*of, *screen) = (replaced, TerminalScreen::default());
        }
        screen.update(output);
    }
}

/// The rows of a tool call.
pub(crate) fn tool_rows(
    details: &ToolDetails,
    context: &EntryContext<'_>,
    width: usize,
    fold: Fold,
    screens: &mut Screens,
) -> Vec<Text> {
    let mut rows = title_rows(details, context, width, fold);
    let body = Body { details, context, width, indent: indent(width) };
    let (preview, diffs) = match fold {
        Fold::Unfolded => {
            rows.extend(body.everything(screens));
            return rows;
        }
        Fold::Folded => (0, false),
        Fold::Auto => (usize::from(details.status == ToolStatus::Failed), false),
        Fold::Preview => (usize::from(details.status == ToolStatus::Failed), true),
    };
    if diffs {
        rows.extend(body.diffs(0, false));
    }
    if fold != Fold::Folded && details.status == ToolStatus::Running {
        rows.extend(body.last_line(screens));
    } else if preview > 0 {
        rows.extend(body.first_lines(screens));
    }
    rows
}

/// Columns before what a tool call produced.
pub(crate) fn indent(width: usize) -> usize {
    if is_narrow(width) { 2.min(width / 4) } else { 4 }
}

fn title_rows(details: &ToolDetails, context: &EntryContext<'_>, width: usize, fold: Fold) -> Vec<Text> {
    let theme = *context.theme;
    let (mark, role) = match details.status {
        ToolStatus::Pending | ToolStatus::Running if context.needs_answer => (Mark::NeedsYou, Role::Warning),
        ToolStatus::Pending => (Mark::Pending, Role::Dim),
        ToolStatus::Running => (Mark::Running, Role::Accent),
        ToolStatus::Completed => (Mark::Completed, Role::Added),
        ToolStatus::Failed => (Mark::Failed, Role::Error),
        ToolStatus::Cancelled => (Mark::Cancelled, Role::Dim),
    };
    let mark = Text::own(theme.mark(mark), theme.style(role)).with_own(" ", Style::new());
    let right = right(details, context, width);
    let room = width.saturating_sub(mark.width());
    let reserved = if right.is_empty() { 0 } else { right.width() + 2 };
    let first = room.saturating_sub(reserved);
    let (verb, subject) = details.summary();
    let verb = if verb.is_empty() { Text::default() } else { Text::own(format!("{verb} "), Style::new()) };
    if fold == Fold::Unfolded || context.needs_answer {
        let text = match &subject {
            ToolSubject::Command(text) | ToolSubject::Path(text) | ToolSubject::Text(text) => text,
        };
        let title = verb.with_foreign(theme, text, Style::new());
        let rows = title.wrap(first.max(room.min(8)), room, Wrap::Words);
        return with_marks(rows, &mark, right, width);
    }
    let title = match &subject {
        ToolSubject::Path(path) => {
            let path = Clean::line(path);
            let columns = first.saturating_sub(verb.width());
            let short = cut_path(path.as_str(), columns, theme.mark(Mark::Ellipsis));
            verb.with_foreign(theme, &short, Style::new())
        }
        ToolSubject::Command(text) | ToolSubject::Text(text) => verb.with_foreign(theme, text, Style::new()),
    };
    with_marks(vec![title.cut(first, theme)], &mark, right, width)
}

/// Puts a mark before the first row, and text at its right edge.
pub(crate) fn with_marks(rows: Vec<Text>, mark: &Text, right: Text, width: usize) -> Vec<Text> {
    let blank = Text::own(" ".repeat(mark.width()), Style::new());
    let mut right = Some(right);
    rows.into_iter()
        .enumerate()
        .map(|(index, row)| {
            let row = if index == 0 { mark } else { &blank }.clone().and(row);
            match right.take() {
                Some(right) => row.with_right(right, width).unwrap_or_else(|row| row),
                None => row,
            }
        })
        .collect()
}

/// The input of a tool, if an unfolded entry shows it: a command, a path or a change says it in other words.
pub(crate) fn shown_input<'a>(details: &'a ToolDetails, cwd: &str) -> Option<&'a Json> {
    let is_named = details.command.is_some() || !details.paths.is_empty() || details.diffs().next().is_some();
    details.unshown_input(None, cwd).filter(|_| !is_named)
}

/// The results and the duration at the right edge of the title.
fn right(details: &ToolDetails, context: &EntryContext<'_>, width: usize) -> Text {
    let theme = *context.theme;
    let dim = theme.style(Role::Dim);
    // One that was left open does not go on after the turn.
    let is_busy = context.transcript.state().is_none_or(|state| state.activity.is_busy());
    let is_open = is_busy && matches!(details.status, ToolStatus::Running | ToolStatus::Pending);
    let times = context.times;
    let duration = match (times.started, times.ended) {
        (Some(started), _) if is_open => Some(time::clock(time::seconds_between(started, context.now))),
        (Some(started), Some(ended)) => Some(time::duration(ended.duration_since(started))),
        (Some(_) | None, _) => None,
    };
    let mut parts = details.facts(context.transcript);
    if is_narrow(width) {
        parts.truncate(1);
        parts.extend(duration.filter(|_| is_open && !context.needs_answer));
    } else {
        parts.extend(duration);
    }
    let mut right = Text::default();
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            right = right.with_own("  ", dim);
        }
        match part.strip_prefix('+').and_then(|counts| counts.split_once(" -")) {
            Some((added, removed)) => right.append(counts(added, removed, theme)),
            None => right = right.with_foreign(theme, part, dim),
        }
    }
    right
}

fn counts(added: &str, removed: &str, theme: Theme) -> Text {
    Text::own(format!("+{added}"), theme.style(Role::Added))
        .with_own(" ", Style::new())
        .with_own(format!("-{removed}"), theme.style(Role::Removed))
}

/// The rows of a tool call below its title.
struct Body<'a> {
    details: &'a ToolDetails,
    context: &'a EntryContext<'a>,
    width: usize,
    indent: usize,
}

impl Body<'_> {
    fn room(&self) -> usize {
        self.width - self.indent
    }

    fn indented(&self, rows: impl IntoIterator<Item = Text>) -> Vec<Text> {
        let indent = Text::own(" ".repeat(self.indent), Style::new());
        rows.into_iter().map(|row| if row.is_empty() { row } else { indent.clone().and(row) }).collect()
    }

    /// The output of the tool call: text, terminals, or else the raw output.
    fn output<'s>(&self, screens: &'s mut Screens) -> Output<'s> {
        let terminal = |id: &TerminalId| self.context.transcript.get(&EntryId::Terminal(id.clone()));
        for id in self.details.terminals() {
            if let Some(terminal) = terminal(id) {
                screens.update(id, terminal);
            }
        }
        let screens = &*screens;
        let mut output = Output { screens: Vec::new(), head: None };
        for content in &self.details.content {
            match content {
                ToolContent::Text(text) => output.push_text(without_fence(text)),
                ToolContent::Terminal(id) => {
                    if let (Some((_, screen)), Some(terminal)) = (screens.0.get(id), terminal(id)) {
                        output.push(Screen::Kept(screen), &terminal.body().output);
                    }
                }
                ToolContent::Block(_) | ToolContent::Diffs(_) | ToolContent::Unknown(_) => {}
            }
        }
        if output.screens.is_empty() {
            output.push_text(&self.details.raw_text().unwrap_or_default());
        }
        output
    }

    fn more(&self, lines: usize) -> Text {
        more(lines, *self.context.theme)
    }

    /// The first rows of the output, and how many lines follow.
    fn first_lines(&self, screens: &mut Screens) -> Vec<Text> {
        let output = self.output(screens);
        let all = output.len() + output.dropped();
        let mut rows = Vec::new();
        let mut shown = 0;
        for line in output.first(FAILED_ROWS, *self.context.theme) {
            let parts = line.wrap(self.room(), self.room(), Wrap::Words);
            let limit = if shown + 1 == all { FAILED_ROWS } else { FAILED_ROWS - 1 };
            if rows.len() + parts.len() > limit {
                rows.extend(parts.into_iter().take(limit.saturating_sub(rows.len())));
                break;
            }
            rows.extend(parts);
            shown += 1;
        }
        if shown < all {
            rows.truncate(FAILED_ROWS - 1);
            rows.push(self.more(all - shown));
        }
        self.indented(rows)
    }

    fn last_line(&self, screens: &mut Screens) -> Vec<Text> {
        let output = self.output(screens);
        let theme = *self.context.theme;
        let last = output.len().checked_sub(1).map(|last| output.line(last, theme));
        self.indented(last.map(|line| line.cut(self.room(), theme)))
    }

    fn diffs(&self, context: usize, wraps: bool) -> Vec<Text> {
        let diffs: Vec<&FileDiff> = self.details.diffs().collect();
        let rows = diff_rows(&diffs, *self.context.theme, self.room(), context, wraps, MAX_ROWS);
        self.indented(rows)
    }

    /// Input, output and everything else.
    fn everything(&self, screens: &mut Screens) -> Vec<Text> {
        let (details, theme) = (self.details, *self.context.theme);
        let dim = theme.style(Role::Dim);
        let mut rows = Vec::new();
        if let Some(input) = shown_input(details, self.context.cwd) {
            let input = Text::own("input ", dim).with_foreign(theme, &content_block::compact(input), dim);
            rows.extend(input.wrap(self.room(), self.room(), Wrap::Words));
        }
        for (path, line) in details.paths.iter().skip(1) {
            let line = line.map(|line| format!(":{line}")).unwrap_or_default();
            rows.push(Text::foreign(theme, &format!("{path}{line}"), dim));
        }
        let is_prose = matches!(details.kind, Some(ToolKind::Think | ToolKind::SwitchMode));
        for content in &details.content {
            match content {
                ToolContent::Text(text) if is_prose => {
                    let layout = MarkdownLayout::new(theme, self.room());
                    rows.extend(markdown(text, layout));
                }
                ToolContent::Text(_) | ToolContent::Terminal(_) | ToolContent::Diffs(_) => {}
                ToolContent::Block(block) => {
                    let label = Text::foreign(theme, &content_block::label(block), dim);
                    rows.extend(label.wrap(self.room(), self.room(), Wrap::Words));
                    let text = content_block::resource_text(block).unwrap_or_default();
                    rows.extend(foreign_lines(&text, theme, dim, self.room()));
                }
                ToolContent::Unknown(json) => {
                    let json = Text::foreign(theme, &content_block::compact(json), dim);
                    rows.extend(json.wrap(self.room(), self.room(), Wrap::Anywhere));
                }
            }
        }
        let mut rows = self.indented(rows);
        rows.extend(self.diffs(3, true));
        if !is_prose {
            let lines = self.output(screens);
            let first = lines.len().saturating_sub(MAX_ROWS);
            let mut output = Vec::new();
            if lines.dropped() + first > 0 {
                output.push(self.more(lines.dropped() + first));
            }
            for line in first..lines.len() {
                output.extend(lines.line(line, theme).wrap(self.room(), self.room(), Wrap::Anywhere));
            }
            if output.is_empty()
                && details.content.is_empty()
                && let Some(raw) = &details.output
            {
                let raw = Text::foreign(theme, &content_block::compact(raw), dim);
                output.extend(raw.wrap(self.room(), self.room(), Wrap::Words));
            }
            rows.extend(self.indented(output));
        }
        rows
    }
}

/// `… 31 more lines`.
pub(crate) fn more(lines: usize, theme: Theme) -> Text {
    let noun = if lines == 1 { "line" } else { "lines" };
    Text::own(format!("{} {lines} more {noun}", theme.mark(Mark::Ellipsis)), theme.style(Role::Dim))
}

/// Output of a tool call; its lines are styled when they are shown.
struct Output<'s> {
    screens: Vec<Screen<'s>>,
    /// The beginning of output whose first lines are not kept.
    head: Option<TerminalScreen>,
}

enum Screen<'s> {
    Kept(&'s TerminalScreen),
    Made(Box<TerminalScreen>),
}

impl Screen<'_> {
    fn get(&self) -> &TerminalScreen {
        match self {
            Self::Kept(screen) => screen,
            Self::Made(screen) => screen,
        }
    }
}

impl<'s> Output<'s> {
    fn push(&mut self, screen: Screen<'s>, bytes: &[u8]) {
        if screen.get().is_empty() {
            return;
        }
        if self.screens.is_empty() && screen.get().dropped() > 0 {
            self.head = Some(TerminalScreen::of(&bytes[..bytes.len().min(HEAD)]));
        }
        self.screens.push(screen);
    }

    fn push_text(&mut self, text: &str) {
        self.push(Screen::Made(Box::new(TerminalScreen::of(text.as_bytes()))), text.as_bytes());
    }

    fn len(&self) -> usize {
        self.screens.iter().map(|screen| screen.get().len()).sum()
    }

    /// Lines that are not kept.
    fn dropped(&self) -> usize {
        self.screens.iter().map(|screen| screen.get().dropped()).sum()
    }

    fn line(&self, index: usize, theme: Theme) -> Text {
        let mut index = index;
        for screen in self.screens.iter().map(Screen::get) {
            if index < screen.len() {
                return terminal_line(screen, index, theme);
            }
            index -= screen.len();
        }
        Text::default()
    }

    fn first(&self, count: usize, theme: Theme) -> Vec<Text> {
        match &self.head {
            Some(head) => (0..count.min(head.len())).map(|index| terminal_line(head, index, theme)).collect(),
            None => (0..count.min(self.len())).map(|index| self.line(index, theme)).collect(),
        }
    }
}

/// A line of terminal output in its colours.
pub(crate) fn terminal_line(screen: &TerminalScreen, index: usize, theme: Theme) -> Text {
    let dim = theme.style(Role::Dim);
    screen.line(index).iter().fold(Text::default(), |line, (text, style)| {
        line.with_foreign(theme, text, terminal_style(*style, theme, dim))
    })
}

fn terminal_style(style: TerminalStyle, theme: Theme, plain: Style) -> Style {
    let has_colors = theme.colors != Colors::None;
    let color = |color: TerminalColor| match color {
        TerminalColor::Index(index) => Color::Indexed(index),
        TerminalColor::Rgb(red, green, blue) => Color::Rgb(red, green, blue),
    };
    let foreground = style.foreground.filter(|_| has_colors);
    // Text in the colour of its background would not be visible.
    let background =
        style.background.filter(|background| has_colors && style.foreground != Some(*background));
    let mut shown = if foreground.is_some() || background.is_some() { Style::new() } else { plain };
    if let Some(foreground) = foreground {
        shown = shown.fg(color(foreground));
    }
    if let Some(background) = background {
        shown = shown.bg(color(background));
    }
    for (is_set, modifier) in [
        (style.is_bold, Modifier::BOLD),
        (style.is_dim, Modifier::DIM),
        (style.is_italic, Modifier::ITALIC),
        (style.is_underlined, Modifier::UNDERLINED),
        (style.is_reversed, Modifier::REVERSED),
        (style.is_crossed_out, Modifier::CROSSED_OUT),
    ] {
        if is_set {
            shown = shown.add_modifier(modifier);
        }
    }
    shown
}

/// Each line of a foreign text, wrapped.
pub(crate) fn foreign_lines(text: &str, theme: Theme, style: Style, width: usize) -> Vec<Text> {
    text.lines().flat_map(|line| Text::foreign(theme, line, style).wrap(width, width, Wrap::Words)).collect()
}

/// The rows of changes; each file has a heading if there are several.
pub(crate) fn diff_rows(
    diffs: &[&FileDiff],
    theme: Theme,
    width: usize,
    context: usize,
    wraps: bool,
    limit: usize,
) -> Vec<Text> {
    let mut rows = Vec::new();
    for diff in diffs {
        if diffs.len() > 1 {
            rows.push(file_heading(diff, theme, width));
        }
        let inner = if diffs.len() > 1 { 2.min(width / 8) } else { 0 };
        let indent = Text::own(" ".repeat(inner), Style::new());
        rows.extend(
            file_rows(diff, theme, width - inner, context, wraps, limit)
                .into_iter()
                .map(|row| indent.clone().and(row)),
        );
    }
    rows
}

/// The operation on a file, its path, and how many lines change.
fn heading_parts(diff: &FileDiff, theme: Theme) -> (Text, Clean, Text) {
    let what = match diff.operation {
        FileOperation::Edit => String::new(),
        FileOperation::Create | FileOperation::Delete | FileOperation::Move => {
            verb(diff.operation).to_lowercase() + " "
        }
    };
    let from = diff.old_path.as_ref().map(|path| format!("{path} to ")).unwrap_or_default();
    let path = Clean::line(&format!("{from}{}", diff.path));
    let right = match diff.counts() {
        (0, 0) => Text::default(),
        (added, removed) => counts(&added.to_string(), &removed.to_string(), theme),
    };
    (Text::own(what, Style::new()), path, right)
}

/// The heading of a file in one row.
fn file_heading(diff: &FileDiff, theme: Theme, width: usize) -> Text {
    let (what, path, right) = heading_parts(diff, theme);
    let room = width.saturating_sub(right.width() + 2 + what.width());
    let path = cut_path(path.as_str(), room, theme.mark(Mark::Ellipsis));
    let heading = what.with_foreign(theme, &path, Style::new());
    heading.with_right(right, width).unwrap_or_else(|heading| heading)
}

/// The heading of a file with its whole path.
pub(crate) fn whole_heading(diff: &FileDiff, theme: Theme, width: usize) -> Vec<Text> {
    let (mut heading, path, right) = heading_parts(diff, theme);
    heading.push_clean(theme, &path, Style::new());
    let reserved = if right.is_empty() { 0 } else { right.width() + 2 };
    let rows = heading.wrap(width.saturating_sub(reserved).max(1), width, Wrap::Words);
    with_marks(rows, &Text::default(), right, width)
}

fn file_rows(
    diff: &FileDiff,
    theme: Theme,
    width: usize,
    context: usize,
    wraps: bool,
    limit: usize,
) -> Vec<Text> {
    let lines: Vec<_> = diff.near_changes(context).collect();
    let digits = lines.iter().filter_map(|line| line.number).max().unwrap_or(0).to_string().len();
    let gap = if is_narrow(width + 4) { 1 } else { 2 };
    // Each side has its own state: a comment that is removed does not continue in what is added.
    let mut old = Highlighter::of_path(&diff.path);
    let mut new = old.clone();
    let mut rows = Vec::new();
    for line in lines.iter().take(limit) {
        let (sign, role) = match line.kind {
            LineKind::Context => (" ", Role::Dim),
            LineKind::Added => ("+", Role::Added),
            LineKind::Removed => ("-", Role::Removed),
            LineKind::Note => ("\\", Role::Dim),
        };
        let number = line.number.map(|number| number.to_string()).unwrap_or_default();
        let text = Clean::line(&line.text);
        let code = match line.kind {
            LineKind::Added => code_line(&text, &mut new, theme).over(theme.style(role)),
            LineKind::Removed => code_line(&text, &mut old, theme).over(theme.style(role)),
            LineKind::Context => {
                old.line(text.as_str());
                code_line(&text, &mut new, theme)
            }
            LineKind::Note => Text::foreign(theme, &line.text, theme.style(Role::Dim)),
        };
        let before = Text::own(format!("{number:>digits$}{:gap$}", ""), theme.style(Role::Dim))
            .with_own(format!("{sign} "), theme.style(role));
        let room = width.saturating_sub(before.width()).max(1);
        let parts = if wraps { code.wrap(room, room, Wrap::Anywhere) } else { vec![code.cut(room, theme)] };
        let blank = Text::own(" ".repeat(before.width()), Style::new());
        for (index, part) in parts.into_iter().enumerate() {
            let row = if index == 0 { before.clone() } else { blank.clone() }.and(part);
            rows.push(match line.kind {
                LineKind::Added => row.over(theme.diff_background(true)),
                LineKind::Removed => row.over(theme.diff_background(false)),
                LineKind::Context | LineKind::Note => row,
            });
        }
    }
    if lines.len() > limit {
        rows.push(more(lines.len() - limit, theme));
    }
    rows
}

/// Whether a tool call shows the output of the terminal.
pub(crate) fn is_shown_by_tool_call(terminal: &Entry, id: &TerminalId, transcript: &Transcript) -> bool {
    let entries = transcript.entries();
    let at = entries.partition_point(|entry| entry.created() < terminal.created());
    let literal = id.as_json().as_literal();
    let refers = |entry: &Entry| {
        let is_call = matches!(entry.id(), EntryId::ToolCall(_));
        is_call
            && entry
                .body()
                .content
                .iter()
                .any(|item| item.json.contains("terminalId") && item.json.contains(literal))
    };
    // A terminal and its tool call are near each other.
    entries[at..].iter().take(64).any(refers) || entries[..at].iter().rev().take(64).any(refers)
}
