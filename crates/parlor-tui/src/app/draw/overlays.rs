//! Draws what lies over the panes.

mod fork_tree;
mod help;
mod inbox;
mod picker;
mod search;

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::App;
use crate::field::TextField;
use crate::overlay::Overlay;
use crate::theme::{Mark, Role};

/// The rows of an overlay above the status line.
#[derive(Default)]
struct Drawn {
    lines: Vec<Line<'static>>,
    /// The row and the column of the cursor.
    cursor: Option<(usize, usize)>,
    /// For each line the index of the item that it belongs to.
    items: Vec<Option<usize>>,
}

impl App {
    /// Whether the topmost overlay takes the whole screen.
    pub(super) fn has_full_overlay(&self) -> bool {
        self.overlays.iter().any(|overlay| !matches!(overlay, Overlay::Ask(_)))
    }

    /// Draws the topmost overlay and returns the place of the cursor.
    pub(super) fn draw_overlay(&mut self, area: Rect, buf: &mut Buffer) -> Option<Position> {
        let body = Rect { height: area.height - 1, ..area };
        let mut overlays = std::mem::take(&mut self.overlays);
        let full = overlays.iter_mut().rev().find(|overlay| !matches!(overlay, Overlay::Ask(_)));
        let (Drawn { lines, cursor, items }, hints) = match full {
            Some(Overlay::Picker(picker)) => (self.picker_lines(picker, body), self.picker_hints(picker)),
            Some(Overlay::Inbox(inbox)) => (self.inbox_lines(inbox, body), self.inbox_hints()),
            Some(Overlay::Search(search)) => (self.search_lines(search, body), self.search_hints()),
            Some(Overlay::Forks(forks)) => (self.fork_lines(forks, body), self.fork_hints(forks)),
            Some(Overlay::Help(help)) => (self.help_lines(help, body), Self::help_hints()),
            Some(Overlay::Ask(_)) | None => (Drawn::default(), Vec::new()),
        };
        self.overlays = overlays;
        self.overlay_items = items;
        for (y, line) in (body.y..body.bottom()).zip(&lines) {
            buf.set_line(body.x, y, line, body.width);
            if line.style.add_modifier.contains(Modifier::REVERSED) {
                buf.set_style(Rect { x: body.x, y, width: body.width, height: 1 }, line.style);
            }
        }
        let status = Rect { y: area.bottom() - 1, height: 1, ..area };
        let mut position = cursor.map(|(row, column)| {
            let (row, column) = (u16::try_from(row).unwrap_or(0), u16::try_from(column).unwrap_or(0));
            Position::new(column.min(area.width - 1), row.min(body.height - 1))
        });
        let right = match self.overlays.last() {
            Some(Overlay::Help(_)) if area.width >= 80 => {
                vec![self.span("keys can be changed in config.toml", Role::Dim)]
            }
            _ => Vec::new(),
        };
        let line = match (&self.note, self.overlays.last()) {
            (_, Some(Overlay::Ask(ask))) => {
                let (line, column) = self.field_line(format!(" {}: ", ask.title), &ask.text, status.width);
                position = Some(Position::new(column, status.y));
                line
            }
            (None, Some(Overlay::Forks(_))) if !self.removals.is_empty() => {
                self.removal_line(status.width).unwrap_or_default()
            }
            (Some(note), _) => {
                self.spread(vec![self.span(format!(" {}", note.text), note.role)], right, status.width)
            }
            (None, _) => self.hint_line(hints, right, status.width),
        };
        buf.set_line(status.x, status.y, &line, status.width);
        position
    }

    #[expect(clippy::unused_self, reason = "it is used like the other styles")]
    fn bold(&self, text: impl Into<String>) -> Span<'static> {
        Span::styled(text.into(), Style::new().add_modifier(Modifier::BOLD))
    }

    fn arrows(&self) -> String {
        format!("{} {}", self.mark(Mark::Up), self.mark(Mark::Down))
    }

    /// The line of a text field, and the column of its cursor.
    fn query_line(&self, query: &TextField, columns: u16) -> (Line<'static>, usize) {
        let (line, column) = self.field_line(format!(" {} ", self.mark(Mark::Prompt)), query, columns);
        (line, usize::from(column))
    }

    /// A text in which some characters are marked as matches.
    fn marked(&self, text: &str, matches: &[usize]) -> Vec<Span<'static>> {
        let mut spans: Vec<Span<'static>> = Vec::new();
        let mut last = None;
        for (index, letter) in text.chars().enumerate() {
            let is_match = matches.binary_search(&index).is_ok();
            if last == Some(is_match)
                && let Some(span) = spans.last_mut()
            {
                span.content.to_mut().push(letter);
            } else {
                spans.push(self.span(letter, if is_match { Role::Match } else { Role::Text }));
            }
            last = Some(is_match);
        }
        spans
    }
}
