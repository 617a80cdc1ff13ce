//! Draws the fork tree.

use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::Drawn;
use crate::app::App;
use crate::app::draw::{Hint, age_of, state_mark};
use crate::keys::{Action, KeyContext};
use crate::overlay::ForkTree;
use crate::sessions::ListLine;
use crate::text::{count, pad, width};
use crate::theme::{Mark, Role};

impl App {
    pub(super) fn fork_hints(&self) -> Vec<Hint> {
        let key = |action| self.keys.label(KeyContext::Sessions, action);
        vec![
            (format!("{} {}", key(Action::Next), key(Action::Previous)), "move"),
            (key(Action::Open), "open"),
            (key(Action::Title), "title"),
            (key(Action::Archive), "archive"),
            (key(Action::Delete), "delete"),
            ("Esc".to_owned(), "close"),
        ]
    }

    pub(super) fn fork_lines(&self, forks: &ForkTree, area: Rect) -> Drawn {
        let columns = area.width;
        let now = self.look.now;
        let first = forks.lines.iter().find_map(|line| match line {
            ListLine::Session { id, .. } => self.sessions.get(id),
            ListLine::Directory(_) => None,
        });
        let title = first.map(|row| row.title.to_string()).unwrap_or_default();
        let left = vec![self.bold(" Fork tree"), self.span(format!("  {title}"), Role::Dim)];
        let right = vec![self.span(count(forks.lines.len(), "session"), Role::Dim)];
        let mut lines = vec![self.spread(left, right, columns), Line::default()];
        let ellipsis = self.mark(Mark::Ellipsis);
        let room = usize::from(area.height).saturating_sub(2);
        let skipped = (forks.cursor + 2).saturating_sub(room);
        for (index, line) in forks.lines.iter().enumerate().skip(skipped) {
            let ListLine::Session { id, branches } = line else { continue };
            let Some(row) = self.sessions.get(id) else { continue };
            let is_current = index == forks.cursor;
            let pointer = if is_current { self.mark(Mark::Prompt) } else { " " };
            let tree = self.branch_marks(branches);
            let (mark, role) =
                state_mark(row).map_or((" ", Role::Text), |(mark, role)| (self.mark(mark), role));
            let name_room = usize::from(columns).saturating_sub(26 + width(&tree));
            let left = vec![
                self.span(format!("{pointer}  "), Role::Accent),
                self.span(tree, Role::Dim),
                self.span(format!("{mark} "), role),
                Span::raw(pad(row.title.as_str(), name_room, ellipsis)),
                self.span(format!(" {}", pad(row.agent.as_str(), 10, ellipsis)), Role::Dim),
            ];
            lines.push(self.spread(left, vec![self.span(age_of(row, now), Role::Dim)], columns));
        }
        (lines, None)
    }
}
