//! One entry of a transcript as lines: Markdown, thoughts, tool calls, diffs, terminal output, plans and events.
//!
//! Lines have no left margin and no blank lines before or after the entry: the conversation adds both. A line is never wider than
//! the given width.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use parlor_client::{Entry, Transcript};
use ratatui::text::Line;

use crate::clean::Clean;
use crate::theme::Theme;

/// How much of an entry is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Fold {
    /// As its kind and state say: a completed tool call is one line, a failed one keeps its first 3 lines of output, a running one
    /// its last line; a thought is one line; messages and plans are whole.
    #[default]
    Auto,
    /// One line.
    Folded,
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

/// What an entry is rendered with.
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
    /// The words to mark as search hits, in lower case.
    pub matches: &'a [String],
}

/// The rendered lines of one entry, kept so that a change of a message parses only its open block again.
#[derive(Debug, Default)]
pub struct EntryView {
    lines: Vec<Line<'static>>,
}

impl EntryView {
    /// A view that has rendered nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The lines of the entry at a width, rendered again only as far as they changed.
    pub fn lines(
        &mut self,
        entry: &Entry,
        _context: &EntryContext<'_>,
        _width: u16,
        _fold: Fold,
    ) -> &[Line<'static>] {
        let text = entry.body().content.to_text();
        self.lines = Clean::lines(&text).into_iter().map(|line| Line::raw(line.to_string())).collect();
        &self.lines
    }
}
