//! Draws pickers.

use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::Drawn;
use crate::app::App;
use crate::app::draw::Hint;
use crate::keys::{Action, KeyContext};
use crate::overlay::{Picker, PickerKind};
use crate::text::{cut, pad, width};
use crate::theme::{Mark, Role};

impl App {
    pub(super) fn picker_hints(&self, picker: &Picker) -> Vec<Hint> {
        let open = self.keys.label(KeyContext::List, Action::Open);
        let mut hints = vec![(self.arrows(), "move")];
        if picker.kind == PickerKind::Options {
            hints.insert(0, ("type".to_owned(), "to filter"));
            hints.push((open, "set"));
            hints.push((format!("{} {}", self.mark(Mark::Left), self.mark(Mark::Right)), "change value"));
        } else {
            hints.push((open, if picker.kind == PickerKind::Session { "open" } else { "choose" }));
        }
        hints.push(("Esc".to_owned(), "close"));
        hints
    }

    pub(super) fn picker_lines(&self, picker: &Picker, area: Rect) -> Drawn {
        let columns = area.width;
        let shown = picker.shown.iter().filter(|(index, _)| {
            !matches!(picker.items[*index].choice, crate::overlay::Choice::NewSession(_))
        });
        let right = if picker.kind == PickerKind::Options || !picker.subtitle.as_str().is_empty() {
            picker.subtitle.to_string()
        } else {
            let all = picker
                .items
                .iter()
                .filter(|item| !matches!(item.choice, crate::overlay::Choice::NewSession(_)));
            format!("{} of {}", shown.count(), all.count())
        };
        let mut lines = vec![self.spread(
            vec![self.bold(format!(" {}", picker.kind.title()))],
            vec![self.span(right, Role::Dim)],
            columns,
        )];
        let (query, column) = self.query_line(&picker.query, columns);
        lines.push(query);
        lines.push(Line::default());
        let described = picker.items.iter().filter(|item| !item.about.as_str().is_empty());
        let names = described.map(|item| width(item.name.as_str())).max().unwrap_or(0);
        // The names of sessions are long, and say more than their agents and directories.
        let is_session = picker.kind == PickerKind::Session;
        let most = if is_session { usize::from(columns) * 3 / 5 } else { usize::from(columns) * 2 / 5 };
        let names = names.min(most).max(12);
        let mut rows: Vec<(Option<usize>, Line<'static>)> = Vec::new();
        let mut cursor_row = 0;
        let is_filtered = !picker.query.text().trim().is_empty();
        for (row, (index, matches)) in picker.shown.iter().enumerate() {
            let item = &picker.items[*index];
            if let Some(section) = item.section.filter(|_| !is_filtered) {
                if !rows.is_empty() {
                    rows.push((None, Line::default()));
                }
                rows.push((None, Line::from(vec![self.bold(format!(" {section}"))])));
            }
            let is_current = row == picker.cursor;
            if is_current {
                cursor_row = rows.len();
            }
            let pointer = if is_current { self.mark(Mark::Prompt) } else { " " };
            let (mark, role) = item.mark.map_or((" ", Role::Text), |(mark, role)| (self.mark(mark), role));
            let indent = if picker.kind == PickerKind::Options { "  " } else { "" };
            let mut left = vec![
                self.span(pointer, Role::Accent),
                Span::raw(indent),
                self.span(format!("{mark} "), role),
            ];
            let is_alone = item.about.as_str().is_empty() || (is_session && self.is_narrow());
            let right_room = width(item.right.as_str()) + 1;
            let lead = 3 + width(indent);
            let room = if is_alone { usize::from(columns).saturating_sub(lead + right_room) } else { names };
            left.extend(self.marked(&pad(item.name.as_str(), room, self.mark(Mark::Ellipsis)), matches));
            if !is_alone {
                left.push(self.span(format!("  {}", item.about), Role::Dim));
            }
            let right = vec![self.span(item.right.to_string(), Role::Dim)];
            rows.push((Some(row), self.spread(left, right, columns)));
        }
        if rows.is_empty() {
            rows.push((None, Line::from(vec![self.span("   Nothing fits", Role::Dim)])));
        }
        let footer = picker.footer.len() + usize::from(!picker.footer.is_empty());
        let room = usize::from(area.height).saturating_sub(lines.len() + footer);
        let first = (cursor_row + 1).saturating_sub(room);
        let mut items = vec![None; lines.len()];
        for (item, line) in rows.into_iter().skip(first).take(room) {
            items.push(item);
            lines.push(line);
        }
        if !picker.footer.is_empty() {
            lines.resize(usize::from(area.height) - footer, Line::default());
            lines.push(self.rule(vec![self.span("Session", Role::Dim)], Vec::new(), columns, Role::Dim));
            for line in &picker.footer {
                lines.push(Line::from(vec![self.span(
                    cut(&format!("   {line}"), usize::from(columns), self.mark(Mark::Ellipsis)),
                    Role::Dim,
                )]));
            }
        }
        Drawn { lines, cursor: Some((1, column)), items }
    }
}
