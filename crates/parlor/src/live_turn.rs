//! Prints a turn on a terminal while it runs: rendered Markdown, tool calls with their output and diffs, and below them what
//! still changes and a spinner.
//!
//! What cannot change any more is printed once and stays in the scrollback. The rows below it, the live part, are erased and printed
//! again with each change.

use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use parlor_dialect::view;
use parlor_session::{Entry, EntryId, Role, Transcript};
use parlor_tui::ansi::{MarkdownRows, ansi};
use parlor_tui::entry::{EntryContext, EntryTimes, EntryView, Fold};
use parlor_tui::theme::{Colors, Theme};
use terminal_size::terminal_size_of;

use crate::output::elapsed;
use crate::render;
use crate::turn_printer::{is_turn_end, text};

/// The shortest time between two changes of the live part, and the time between two pictures of the spinner.
const FRAME: Duration = Duration::from_millis(100);

/// How many rows of the live part are printed, beside the spinner. The last ones are printed; all of them are printed in the end.
const MAX_LIVE_ROWS: usize = 12;

const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// A turn on a terminal.
pub(crate) struct LiveTurn {
    theme: Theme,
    zone: TimeZone,
    cwd: String,
    home: Option<String>,
    started: Instant,
    started_at: Timestamp,
    /// How many entries were printed completely.
    printed: usize,
    /// The message whose closed rows are printed, after the entries that were printed completely, and its text so far.
    message: Option<(String, MarkdownRows)>,
    /// Whether a row of the first entry that was not printed completely was printed.
    has_begun: bool,
    /// Whether the last printed entry was a message; `None` if nothing was printed.
    was_message: Option<bool>,
    times: HashMap<EntryId, EntryTimes>,
    /// How many rows the live part has on the terminal.
    live_rows: usize,
    drawn: Option<Instant>,
    frame: usize,
    /// What is said beside the spinner instead of how to cancel the turn.
    notice: Option<String>,
}

impl LiveTurn {
    /// Creates it if standard output and error are a terminal that can move its cursor.
    pub(crate) fn open(cwd: &str) -> Option<Self> {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        if !io::stdout().is_terminal() || !io::stderr().is_terminal() || is_dumb {
            return None;
        }
        let mut theme = Theme { is_ascii: false, ..Theme::from_env(|name| std::env::var(name).ok()) };
        if anstream::AutoStream::choice(&io::stdout()) == anstream::ColorChoice::Never {
            theme.colors = Colors::None;
        }
        Some(Self {
            theme,
            zone: TimeZone::system(),
            cwd: cwd.to_owned(),
            home: crate::output::home(),
            started: Instant::now(),
            started_at: Timestamp::now(),
            printed: 0,
            message: None,
            has_begun: false,
            was_message: None,
            times: HashMap::new(),
            live_rows: 0,
            drawn: None,
            frame: 0,
            notice: None,
        })
    }

    /// Says something beside the spinner, from now on.
    pub(crate) fn set_notice(&mut self, notice: &str, transcript: &Transcript) -> io::Result<()> {
        self.notice = Some(notice.to_owned());
        self.draw(transcript, false)
    }

    /// When the live part is due to be printed again.
    pub(crate) fn next_tick(&self) -> Instant {
        self.drawn.map_or(self.started + FRAME, |drawn| drawn + FRAME)
    }

    /// Prints what is new, unless it was printed just now.
    pub(crate) fn update(&mut self, transcript: &Transcript) -> io::Result<()> {
        if Instant::now() < self.next_tick() { Ok(()) } else { self.draw(transcript, false) }
    }

    /// Prints what cannot change any more, and erases the live part.
    pub(crate) fn pause(&mut self, transcript: &Transcript) -> io::Result<()> {
        self.draw(transcript, false)?;
        self.hide()
    }

    /// Prints everything, and erases the live part.
    pub(crate) fn end(&mut self, transcript: &Transcript) -> io::Result<()> {
        self.draw(transcript, true)?;
        self.hide()
    }

    /// Erases the live part, so that something else can be printed.
    pub(crate) fn hide(&mut self) -> io::Result<()> {
        let erase = self.erase();
        let mut out = io::stdout().lock();
        out.write_all(erase.as_bytes())?;
        out.flush()
    }

    /// The sequence that erases the live part.
    fn erase(&mut self) -> String {
        match std::mem::take(&mut self.live_rows) {
            0 => String::new(),
            1 => "\r\u{1b}[J".to_owned(),
            rows => format!("\r\u{1b}[{}A\u{1b}[J", rows - 1),
        }
    }

    fn draw(&mut self, transcript: &Transcript, is_ended: bool) -> io::Result<()> {
        let (columns, rows) = terminal_size_of(io::stdout()).map_or((80, 24), |(w, h)| (w.0, h.0));
        // A full last column would break the line on some terminals.
        let width = columns.saturating_sub(1).max(1);
        let mut output = self.erase();
        let (lasting, mut live) = self.rows(transcript, width, is_ended);
        for row in lasting {
            output.push_str(&row);
            output.push('\n');
        }
        if !is_ended {
            let room = MAX_LIVE_ROWS.min(usize::from(rows).saturating_sub(2));
            live.drain(..live.len().saturating_sub(room));
            live.push(self.status(transcript, width));
            output.push_str(&live.join("\n"));
            self.live_rows = live.len();
        }
        self.drawn = Some(Instant::now());
        let mut out = io::stdout().lock();
        out.write_all(output.as_bytes())?;
        out.flush()
    }

    /// The rows that are printed once and those of the live part.
    fn rows(&mut self, transcript: &Transcript, width: u16, is_ended: bool) -> (Vec<String>, Vec<String>) {
        let (mut lasting, mut live) = (Vec::new(), Vec::new());
        let entries = transcript.entries();
        let mut is_blocked = false;
        let mut was_message = self.was_message;
        for (index, entry) in entries.iter().enumerate().skip(self.printed) {
            let is_last = index + 1 == entries.len();
            let is_done = is_ended || is_done(entry, is_last);
            self.observe(entry, is_done);
            let is_message = matches!(entry.id(), EntryId::Message(Role::Agent, _));
            let (mut closed, mut open) = self.entry_rows(entry, transcript, width, is_blocked, is_done);
            if is_done {
                closed.append(&mut open);
            }
            let has_begun = self.has_begun && !is_blocked;
            let has_rows = !closed.is_empty() || !open.is_empty();
            let is_first_row = has_rows && !has_begun;
            // A blank row separates messages from everything else.
            if is_first_row && was_message.is_some_and(|was| was || is_message) {
                let first = if closed.is_empty() { &mut open } else { &mut closed };
                first.insert(0, String::new());
            }
            if is_first_row {
                was_message = Some(is_message);
            }
            if is_blocked {
                live.extend(closed.into_iter().chain(open));
                continue;
            }
            if !closed.is_empty() {
                self.has_begun = true;
                self.was_message = Some(is_message);
            }
            lasting.append(&mut closed);
            live.append(&mut open);
            if is_done {
                (self.printed, self.message, self.has_begun) = (index + 1, None, false);
            } else {
                is_blocked = true;
            }
        }
        (lasting, live)
    }

    /// The rows of an entry that cannot change any more and were not returned before, and the others.
    fn entry_rows(
        &mut self,
        entry: &Entry,
        transcript: &Transcript,
        width: u16,
        is_blocked: bool,
        is_done: bool,
    ) -> (Vec<String>, Vec<String>) {
        match entry.id() {
            EntryId::Message(Role::Agent, _) => {
                let text = text(&entry.body().content);
                // A message that the agent has replaced is printed again.
                let printed =
                    self.message.take().filter(|(printed, _)| text.starts_with(printed) && !is_blocked);
                let (_, mut rows) = printed.unwrap_or_default();
                let result = rows.rows(&text, self.theme, width);
                if !is_blocked {
                    self.message = Some((text, rows));
                }
                return result;
            }
            // The prompt is that of the person, and the spinner counts the steps of the plan.
            EntryId::Message(Role::User, _) | EntryId::Plan(_) => return Default::default(),
            // The command prints the end of the turn.
            EntryId::Event(_) if is_turn_end(entry.body()) => return Default::default(),
            EntryId::Note(_) if view::kind_name(entry).inner() != "notice" => return Default::default(),
            EntryId::Message(Role::Thought, _)
            | EntryId::ToolCall(_)
            | EntryId::Terminal(_)
            | EntryId::Compaction(_)
            | EntryId::Subagent(_)
            | EntryId::SessionMessage(_)
            | EntryId::Event(_)
            | EntryId::Note(_) => {}
        }
        let context = EntryContext {
            theme: &self.theme,
            transcript,
            number: None,
            times: self.times.get(entry.id()).copied().unwrap_or_default(),
            now: Timestamp::now(),
            zone: &self.zone,
            cwd: &self.cwd,
            home: self.home.as_deref(),
            matches: &[],
            needs_answer: false,
        };
        let fold = if is_done { Fold::Preview } else { Fold::Auto };
        let rows = EntryView::new().lines(entry, &context, width, fold).iter().map(ansi).collect();
        (Vec::new(), rows)
    }

    /// Records when an entry began and ended.
    fn observe(&mut self, entry: &Entry, is_done: bool) {
        let now = Timestamp::now();
        let times = self.times.entry(entry.id().clone()).or_default();
        times.started.get_or_insert(now);
        if is_done {
            times.ended.get_or_insert(now);
        }
    }

    /// The last row: that the agent works, and for how long.
    fn status(&mut self, transcript: &Transcript, width: u16) -> String {
        self.frame = (self.frame + 1) % SPINNER.len();
        let time = elapsed(self.started_at.as_millisecond(), Timestamp::now().as_millisecond());
        let is_plan = |entry: &&Entry| matches!(entry.id(), EntryId::Plan(_)) && !entry.body().removed;
        let plan = transcript.entries().iter().rev().find(is_plan);
        let plan = plan.map(|plan| format!(" · {}", render::plan_line(plan.body()).text)).unwrap_or_default();
        let spinner = SPINNER[self.frame];
        let status = match &self.notice {
            Some(notice) => format!("{spinner} {notice}"),
            None => format!("{spinner} Working {time}{plan} · Ctrl-C cancels"),
        };
        let status: String = status.chars().take(usize::from(width)).collect();
        if self.theme.colors == Colors::None { status } else { format!("\u{1b}[2m{status}\u{1b}[0m") }
    }
}

/// Whether an entry cannot change any more, as far as is known during a turn.
fn is_done(entry: &Entry, is_last: bool) -> bool {
    match entry.id() {
        EntryId::Message(..) | EntryId::Terminal(_) => !is_last,
        EntryId::ToolCall(_) => {
            let status = render::field(entry.body(), "status");
            entry.body().removed || matches!(status.as_deref(), Some("completed" | "failed" | "cancelled"))
        }
        EntryId::Plan(_)
        | EntryId::Compaction(_)
        | EntryId::Subagent(_)
        | EntryId::SessionMessage(_)
        | EntryId::Event(_)
        | EntryId::Note(_) => true,
    }
}
