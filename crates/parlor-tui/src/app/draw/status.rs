//! The last row: keys that can be pressed, and how full the context is.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::{Hint, NARROW, WIDE};
use crate::app::{App, Focus, Link};
use crate::keys::{Action, KeyContext};
use crate::text::{cut, width};
use crate::theme::{Mark, Role};
use crate::time::tokens;

impl App {
    /// The last line: a note or the keys that work now, and the use of the context.
    pub(super) fn draw_status(&self, area: Rect, buf: &mut Buffer) {
        let right = self.context_spans(area.width);
        let lead = if self.is_narrow() { "" } else { " " };
        // A note is about the last key, and so shorter than the time in which a removal can be taken back.
        if self.note.is_none()
            && let Some(line) = self.removal_line(area.width)
        {
            buf.set_line(area.x, area.y, &line, area.width);
            return;
        }
        let line = match &self.note {
            Some(note) => {
                let text = format!("{lead}{}", note.text);
                let room = usize::from(area.width);
                let right = if width(&text) + 30 > room { Vec::new() } else { right };
                self.spread(vec![self.span(text, note.role)], right, area.width)
            }
            None => self.hint_line(self.hints(), right, area.width),
        };
        buf.set_line(area.x, area.y, &line, area.width);
    }

    /// Names the last archiving or deletion, and the key that takes it back.
    pub(super) fn removal_line(&self, columns: u16) -> Option<Line<'static>> {
        let removal = self.removals.last()?;
        let lead = if self.is_narrow() { "" } else { " " };
        let left = (removal.at + crate::app::UNDO_TIME).duration_since(self.look.now).as_secs().max(0);
        let what = if removal.is_deletion { "Deleted" } else { "Archived" };
        let forks = match removal.forks {
            0 => String::new(),
            1 => " and kept its 1 fork".to_owned(),
            forks => format!(" and kept its {forks} forks"),
        };
        // The title is cut before the key that takes it back.
        let fixed = width(lead) + what.len() + forks.len() + 20;
        let room = usize::from(columns).saturating_sub(fixed).max(8);
        let title = cut(removal.title.as_str(), room, self.mark(Mark::Ellipsis));
        let text = format!("{lead}{what} \"{}\"{forks}.  ", title.trim_end());
        let undo = self.keys.label(KeyContext::Sessions, Action::Undo);
        let left_spans = vec![Span::raw(text), Span::raw(undo), self.span(" undo", Role::Dim)];
        Some(self.spread(left_spans, vec![self.span(format!("{left} s"), Role::Dim)], columns))
    }

    /// Keys and what they do, as many as fit. The last hint is kept.
    pub(super) fn hint_line(
        &self,
        mut hints: Vec<Hint>,
        right: Vec<Span<'static>>,
        columns: u16,
    ) -> Line<'static> {
        let lead = usize::from(!self.is_narrow());
        let right_width: usize = right.iter().map(Span::width).sum();
        let room = usize::from(columns).saturating_sub(right_width + 2);
        let wide = |hints: &[Hint]| -> usize {
            let each = hints.iter().map(|(key, text)| width(key) + width(text) + 1);
            lead + each.sum::<usize>() + 2 * hints.len().saturating_sub(1)
        };
        while hints.len() > 1 && wide(&hints) > room {
            hints.remove(hints.len() - 2);
        }
        let mut spans = vec![Span::raw(" ".repeat(lead))];
        for (index, (key, text)) in hints.into_iter().enumerate() {
            let gap = if index == 0 { "" } else { "  " };
            spans.push(Span::raw(format!("{gap}{key}")));
            if !text.is_empty() {
                spans.push(self.span(format!(" {text}"), Role::Dim));
            }
        }
        self.spread(spans, right, columns)
    }

    /// The keys that work now.
    fn hints(&self) -> Vec<Hint> {
        let at = |context: KeyContext| {
            move |action: Action, text: &'static str| (self.keys.label(context, action), text)
        };
        let both = |context: KeyContext, one: Action, other: Action, text: &'static str| {
            (format!("{} {}", self.keys.label(context, one), self.keys.label(context, other)), text)
        };
        if self.completion.is_some() && self.focus == Focus::Input {
            let arrows = format!("{} {}", self.mark(Mark::Up), self.mark(Mark::Down));
            return vec![
                (arrows, "choose"),
                ("Tab or Enter".to_owned(), "insert"),
                ("Esc".to_owned(), "close"),
            ];
        }
        match self.focus {
            Focus::Input if self.is_offline() => {
                let key = at(KeyContext::Input);
                vec![
                    key(Action::Send, "retry now"),
                    key(Action::Editor, "$EDITOR"),
                    ("Ctrl-C twice".to_owned(), "quit"),
                    key(Action::Help, "help"),
                ]
            }
            Focus::Input if self.conversation.is_none() => {
                let key = at(KeyContext::Input);
                vec![
                    key(Action::Send, "start"),
                    key(Action::NextPane, "agents"),
                    key(Action::OpenSession, "sessions"),
                    key(Action::NewLine, "new line"),
                    ("@".to_owned(), "file"),
                    key(Action::Help, "help"),
                ]
            }
            Focus::Input => {
                let key = at(KeyContext::Input);
                let send = if self.is_busy() { "queue" } else { "send" };
                let mut hints = vec![
                    key(Action::Send, send),
                    key(Action::NextPane, if self.shown_request().is_some() { "answer" } else { "messages" }),
                    key(Action::OpenSession, "sessions"),
                    key(Action::NewLine, "new line"),
                    key(Action::Options, "model"),
                    key(Action::Help, if self.is_narrow() { "" } else { "help" }),
                ];
                if self.link == Link::Direct {
                    // There are no other sessions.
                    hints.remove(2);
                }
                hints
            }
            Focus::Messages => {
                let key = at(KeyContext::Messages);
                vec![
                    both(KeyContext::Messages, Action::Next, Action::Previous, "move"),
                    both(KeyContext::Messages, Action::PreviousPrompt, Action::NextPrompt, "prompts"),
                    key(Action::Find, "find"),
                    key(Action::FocusInput, "input"),
                    key(Action::Help, "help"),
                ]
            }
            Focus::Sessions => {
                let key = at(KeyContext::Sessions);
                vec![
                    key(Action::Open, "open"),
                    key(Action::Filter, "filter"),
                    key(Action::Title, "title"),
                    key(Action::Archive, if self.is_on_archived() { "restore" } else { "archive" }),
                    key(Action::Delete, "delete"),
                    key(Action::ForkTree, "forks"),
                    key(Action::Help, if self.is_narrow() { "" } else { "help" }),
                ]
            }
            Focus::Request => self.request_hints(),
        }
    }

    /// Whether the cursor of the list is on an archived session.
    fn is_on_archived(&self) -> bool {
        let row = self.list_cursor.as_ref().and_then(|id| self.sessions.get(id));
        row.is_some_and(|row| row.is_archived)
    }

    /// How much of the context is used, and what the session has cost.
    fn context_spans(&self, columns: u16) -> Vec<Span<'static>> {
        let Some(usage) = self.usage() else { return Vec::new() };
        let percent = usage.percent();
        let role = match percent {
            95.. => Role::Error,
            80..95 => Role::Warning,
            _ => Role::Dim,
        };
        let cost = usage.cost.as_ref().map(|cost| format!("  {cost}")).unwrap_or_default();
        let text = if columns < NARROW {
            format!("ctx {percent}%")
        } else if columns < WIDE {
            format!("ctx {percent}% {}/{}", tokens(usage.used), tokens(usage.size))
        } else {
            let filled = usize::try_from(percent.min(100) / 10).unwrap_or(10);
            let meter =
                self.mark(Mark::Meter).repeat(filled) + &self.mark(Mark::MeterRest).repeat(10 - filled);
            format!("ctx {meter} {percent}% {}", tokens(usage.used))
        };
        let mut spans = vec![self.span(text, role)];
        if columns >= NARROW {
            spans.push(self.span(cost, Role::Dim));
        }
        spans
    }
}
