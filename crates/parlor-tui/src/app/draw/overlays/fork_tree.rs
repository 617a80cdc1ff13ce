//! Draws the fork tree.

use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::Drawn;
use crate::app::App;
use crate::app::draw::{Hint, age_of, state_mark};
use crate::conversation::NumberedText;
use crate::keys::{Action, KeyContext};
use crate::overlay::ForkTree;
use crate::sessions::{ListLine, SessionRow};
use crate::text::{count, cut, pad, width, wrap};
use crate::theme::{Mark, Role};

/// The rows of a message where sessions differ.
const PREVIEW_ROWS: usize = 3;

/// From this height on, the tree has a part that shows where the selected fork was made.
const PREVIEW_HEIGHT: u16 = 18;

impl App {
    pub(super) fn fork_hints(&self, forks: &ForkTree) -> Vec<Hint> {
        let selected = forks.current().and_then(|id| self.sessions.get(id));
        let archive = if selected.is_some_and(|row| row.is_archived) { "restore" } else { "archive" };
        let key = |action| self.keys.label(KeyContext::Sessions, action);
        vec![
            (format!("{} {}", key(Action::Next), key(Action::Previous)), "move"),
            (format!("{} {}", key(Action::Collapse), key(Action::Expand)), "fold"),
            (key(Action::Open), "open"),
            (key(Action::Title), "title"),
            (key(Action::Archive), archive),
            (key(Action::Delete), "delete"),
            ("Esc".to_owned(), "close"),
        ]
    }

    pub(super) fn fork_lines(&self, forks: &ForkTree, area: Rect) -> Drawn {
        let columns = area.width;
        let first = forks.lines.iter().find_map(|line| self.sessions.get(line.session()?));
        let title = first.map(|row| row.title.to_string()).unwrap_or_default();
        let left = vec![self.bold(" Fork tree"), self.span(format!("  {title}"), Role::Dim)];
        let right = vec![self.span(count(forks.lines.len(), "session"), Role::Dim)];
        let mut lines = vec![self.spread(left, right, columns), Line::default()];
        let selected = forks.current().and_then(|id| self.sessions.get(id));
        let preview = selected.filter(|_| area.height >= PREVIEW_HEIGHT);
        let preview = preview.map(|row| self.fork_preview(row, columns)).unwrap_or_default();
        let room = usize::from(area.height).saturating_sub(lines.len() + preview.len() + 1);
        let rows = forks.lines.iter().filter_map(|line| self.sessions.get(line.session()?));
        let right = rows.map(|row| width(&self.fork_age(row))).max().unwrap_or(0).max(4);
        let skipped = (forks.cursor + 2).saturating_sub(room);
        let mut items = vec![None; lines.len()];
        for (index, line) in forks.lines.iter().enumerate().skip(skipped).take(room) {
            let ListLine::Session { id, branches } = line else { continue };
            if let Some(row) = self.sessions.get(id) {
                lines.push(self.fork_line(row, branches, index == forks.cursor, (columns, right)));
                items.push(Some(index));
            }
        }
        lines.push(Line::default());
        lines.extend(preview);
        Drawn { lines, cursor: None, items }
    }

    fn fork_line(
        &self,
        row: &SessionRow,
        branches: &[bool],
        is_current: bool,
        (columns, right_columns): (u16, usize),
    ) -> Line<'static> {
        let pointer = if is_current { self.mark(Mark::Prompt) } else { " " };
        let at = row.shared_messages.map(|number| format!("at #{number} ")).unwrap_or_default();
        let tree = format!("{}{at}", self.branch_marks(branches));
        let (mark, role) = state_mark(row).map_or((" ", Role::Text), |(mark, role)| (self.mark(mark), role));
        let ellipsis = self.mark(Mark::Ellipsis);
        let agent = if self.is_narrow() {
            String::new()
        } else {
            format!(" {}", pad(row.agent.as_str(), 10, ellipsis))
        };
        let fixed = 3 + width(&tree) + 2 + width(&agent) + 1 + right_columns;
        let room = usize::from(columns).saturating_sub(fixed);
        let left = vec![
            self.span(format!("{pointer}  "), Role::Accent),
            self.span(tree, Role::Dim),
            self.span(format!("{mark} "), role),
            Span::raw(pad(row.title.as_str(), room, ellipsis)),
            self.span(agent, Role::Dim),
        ];
        self.spread(left, vec![self.span(self.fork_age(row), Role::Dim)], columns)
    }

    /// How long ago a session was active, and whether it is archived.
    fn fork_age(&self, row: &SessionRow) -> String {
        let archived = if row.is_archived { "archived " } else { "" };
        format!("{archived}{:>3}", age_of(row, self.look.now))
    }

    /// The message at which a fork was made, and how the open session goes on there.
    fn fork_preview(&self, row: &SessionRow, columns: u16) -> Vec<Line<'static>> {
        let Some(parent) = &row.parent else { return Vec::new() };
        let at = row.shared_messages.map(|number| format!(" after #{number}")).unwrap_or_default();
        let title = cut(row.title.as_str(), usize::from(columns / 2), self.mark(Mark::Ellipsis));
        let text = format!("{}: differs{at}", title.trim_end());
        let mut lines = vec![self.rule(vec![self.span(text, Role::Dim)], Vec::new(), columns, Role::Dim)];
        let (Some(conversation), Some(message)) = (&self.conversation, &row.forked_at) else { return lines };
        let Some((shared, next)) = conversation.around(message) else { return lines };
        lines.push(Line::from(self.span("   same until", Role::Dim)));
        lines.extend(self.numbered_lines(&shared, columns));
        let who = if conversation.id == row.id {
            "this one"
        } else if conversation.id == *parent {
            "its parent"
        } else {
            "the open session"
        };
        if let Some(next) = next {
            lines.push(Line::default());
            lines.push(Line::from(self.span(format!("   {who} continues with"), Role::Dim)));
            lines.extend(self.numbered_lines(&next, columns));
        }
        lines
    }

    /// The beginning of a message with its number.
    fn numbered_lines(&self, message: &NumberedText, columns: u16) -> Vec<Line<'static>> {
        let mut label =
            format!("   {} {}", pad(&format!("#{}", message.number), 5, ""), pad(message.role, 6, ""));
        let lead = " ".repeat(width(&label));
        let room = usize::from(columns).saturating_sub(width(&label) + 2).max(10);
        let rows = wrap(message.text.as_str(), room);
        let is_cut = rows.len() > PREVIEW_ROWS;
        let mut lines = Vec::new();
        for (index, row) in rows.into_iter().take(PREVIEW_ROWS).enumerate() {
            let ellipsis = if is_cut && index + 1 == PREVIEW_ROWS { self.mark(Mark::Ellipsis) } else { "" };
            let label = std::mem::replace(&mut label, lead.clone());
            lines.push(Line::from(vec![self.span(label, Role::Dim), Span::raw(format!(" {row}{ellipsis}"))]));
        }
        lines
    }
}
