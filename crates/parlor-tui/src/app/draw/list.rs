//! The list of sessions.

use parlor_client::SessionId;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::{NARROW_COLUMNS, WIDE, age_of, state_mark};
use crate::app::{App, Focus};
use crate::keys::{Action, KeyContext};
use crate::sessions::{ListLine, RowState, SessionRow};
use crate::text::{cut, pad, width};
use crate::theme::{Mark, Role};
use crate::time::{age, clock, seconds_between};

/// How many requests the list shows.
const MAX_LISTED_REQUESTS: usize = 3;

/// A row of the list.
enum ListRow {
    Line(ListLine),
    /// The agent and the state of the session above it, on narrow screens.
    Detail(SessionId),
    Blank,
    /// Why there are no sessions.
    Nothing,
}

impl App {
    /// The lines of the fork tree before a session: for each level, whether another fork follows.
    pub(super) fn branch_marks(&self, branches: &[bool]) -> String {
        let mut tree = String::new();
        for (level, more) in branches.iter().enumerate() {
            let is_last = level + 1 == branches.len();
            tree.push_str(match (is_last, more) {
                (true, true) => self.mark(Mark::Branch),
                (true, false) => self.mark(Mark::LastBranch),
                (false, true) => self.mark(Mark::Vertical),
                (false, false) => " ",
            });
            tree.push(' ');
        }
        tree
    }

    /// The lines above the sessions.
    fn list_head(&self, columns: u16) -> Vec<Line<'static>> {
        let is_beside = self.size.0 >= WIDE;
        let lead = if self.is_narrow() { "" } else { " " };
        let mut lines = Vec::new();
        let open = self.requests.len();
        let request_lines = |lines: &mut Vec<Line<'static>>, mark: &str| {
            for request in self.requests.iter().rev().take(MAX_LISTED_REQUESTS) {
                let text = format!("{mark}{}: {}", request.session_title, request.short_summary());
                let waits = request.opened.map(|opened| age(seconds_between(opened, self.look.now)));
                let waits = format!("{}{}", waits.unwrap_or_default(), if is_beside { " " } else { "" });
                let role = if mark.starts_with('!') { Role::Warning } else { Role::Text };
                lines.push(self.spread(
                    vec![self.span(text, role)],
                    vec![self.span(waits, Role::Dim)],
                    columns,
                ));
            }
        };
        let title = format!("{lead}Sessions {}", self.sessions.len());
        let bold = Style::new().add_modifier(Modifier::BOLD);
        if is_beside {
            if open > 0 {
                let key = format!("{} ", self.keys.label(KeyContext::Input, Action::Inbox));
                let left = vec![self.span(format!("{lead}! Inbox {open}"), Role::Warning)];
                lines.push(self.spread(left, vec![self.span(key, Role::Dim)], columns));
                request_lines(&mut lines, "   ");
                lines.push(Line::default());
            }
            let filter = format!("{} filter ", self.keys.label(KeyContext::Sessions, Action::Filter));
            lines.push(self.spread(
                vec![Span::styled(title, bold)],
                vec![self.span(filter, Role::Dim)],
                columns,
            ));
        } else {
            let right =
                if open > 0 { vec![self.span(format!("! {open}"), Role::Warning)] } else { Vec::new() };
            lines.push(self.spread(vec![Span::styled(title, bold)], right, columns));
            request_lines(&mut lines, &format!("{lead}! "));
            lines.push(Line::default());
        }
        lines
    }

    /// The rows of the list below its head.
    fn list_rows(&self) -> Vec<ListRow> {
        let mut rows = Vec::new();
        for line in self.sessions.lines(&self.list_filter) {
            let has_detail = self.is_narrow() && line.session().is_some_and(|id| self.is_list_cursor(id));
            if !matches!(line, ListLine::Session { .. }) && !rows.is_empty() {
                rows.push(ListRow::Blank);
            }
            let detail = line.session().filter(|_| has_detail).cloned().map(ListRow::Detail);
            rows.push(ListRow::Line(line));
            rows.extend(detail);
        }
        if rows.is_empty() {
            rows.push(ListRow::Nothing);
        }
        rows
    }

    fn is_list_cursor(&self, id: &SessionId) -> bool {
        self.focus == Focus::Sessions && self.list_cursor.as_ref() == Some(id)
    }

    fn list_row_text(&self, row: &ListRow, columns: u16) -> Line<'static> {
        let lead = if self.is_narrow() { "" } else { " " };
        match row {
            ListRow::Blank => Line::default(),
            ListRow::Line(ListLine::Directory(cwd)) => {
                let path = self.look.short_path(cwd);
                let room = usize::from(columns) - 2;
                let path = crate::text::cut_path(path.as_str(), room, self.mark(Mark::Ellipsis));
                Line::from(self.span(format!("{lead}{path}"), Role::Dim))
            }
            ListRow::Line(ListLine::Archived(count)) => {
                let key = self.keys.label(KeyContext::Sessions, Action::Archived);
                let verb = if self.sessions.shows_archived { "hides" } else { "shows" };
                let left = vec![self.span(format!("{lead}{count} archived"), Role::Dim)];
                let right = vec![self.span(format!("{key} {verb}{lead}"), Role::Dim)];
                self.spread(left, right, columns)
            }
            ListRow::Line(ListLine::Session { id, branches }) => {
                let row = self.sessions.get(id);
                row.map(|row| self.list_row_line(row, branches, columns, self.is_list_cursor(id)))
                    .unwrap_or_default()
            }
            ListRow::Detail(id) => {
                let Some(row) = self.sessions.get(id) else { return Line::default() };
                let about = format!("   {}, {}", row.agent, self.state_word(row));
                Line::from(self.span(cut(&about, usize::from(columns), self.mark(Mark::Ellipsis)), Role::Dim))
            }
            ListRow::Nothing => {
                let text = match (self.sessions.is_loaded, self.list_filter.is_empty()) {
                    (false, _) => "loading …",
                    (true, true) => "No sessions yet",
                    (true, false) => "No sessions match",
                };
                Line::from(self.span(format!("{lead}  {text}"), Role::Dim))
            }
        }
    }

    fn list_row_line(
        &self,
        row: &SessionRow,
        branches: &[bool],
        columns: u16,
        is_current: bool,
    ) -> Line<'static> {
        let columns = usize::from(columns);
        let is_open = self.open_id().as_ref() == Some(&row.id);
        let pointer = if is_open { self.mark(Mark::Prompt) } else { " " };
        let (mark, role) = state_mark(row).map_or((" ", Role::Text), |(mark, role)| (self.mark(mark), role));
        let tree = self.branch_marks(branches);
        let ellipsis = self.mark(Mark::Ellipsis);
        let age = age_of(row, self.look.now);
        let agent_columns = match columns {
            0..NARROW_COLUMNS if self.size.0 < WIDE => 0,
            NARROW_COLUMNS.. => 12,
            _ => 8,
        };
        let is_beside = self.size.0 >= WIDE;
        let end = usize::from(is_beside || columns >= NARROW_COLUMNS);
        let agent_room = if agent_columns > 0 { agent_columns + 1 } else { 0 };
        let room = columns.saturating_sub(3 + agent_room + 1 + 3 + end + width(&tree));
        let title_style =
            if row.state == RowState::NeedsYou { self.style(Role::Warning) } else { Style::new() };
        let mut spans = vec![
            self.span(pointer, Role::Accent),
            self.span(format!("{mark} "), role),
            self.span(tree, Role::Dim),
            Span::styled(pad(row.title.as_str(), room, ellipsis), title_style),
        ];
        if agent_columns > 0 {
            spans
                .push(self.span(format!(" {}", pad(row.agent.as_str(), agent_columns, ellipsis)), Role::Dim));
        }
        spans.push(self.span(format!(" {age:>3}{}", " ".repeat(end)), Role::Dim));
        let line = Line::from(spans);
        if is_current { line.style(self.style(Role::Selected)) } else { line }
    }

    fn state_word(&self, row: &SessionRow) -> String {
        match row.state {
            _ if row.is_archived => "archived".to_owned(),
            RowState::NeedsYou => "needs you".to_owned(),
            RowState::Running => match row.prompted {
                Some(prompted) => format!("running {}", clock(seconds_between(prompted, self.look.now))),
                None => "running".to_owned(),
            },
            RowState::Failed => "failed".to_owned(),
            RowState::Idle if row.is_unread => "unread".to_owned(),
            RowState::Idle => "idle".to_owned(),
        }
    }

    pub(super) fn draw_list(&mut self, area: Rect, buf: &mut Buffer) {
        let head = self.list_head(area.width);
        let rows = self.list_rows();
        for (y, line) in (area.y..area.bottom()).zip(&head) {
            buf.set_line(area.x, y, line, area.width);
        }
        let top = area.y + u16::try_from(head.len()).unwrap_or(0);
        let height = usize::from(area.bottom().saturating_sub(top));
        let is_cursor = |row: &ListRow| match row {
            ListRow::Line(ListLine::Session { id, .. }) => self.list_cursor.as_ref() == Some(id),
            ListRow::Line(_) | ListRow::Blank | ListRow::Detail(_) | ListRow::Nothing => false,
        };
        let cursor = rows.iter().position(is_cursor);
        // The cursor stays on the screen.
        if let Some(cursor) = cursor.filter(|_| self.focus == Focus::Sessions) {
            self.list_scroll =
                self.list_scroll.min(cursor.saturating_sub(1)).max((cursor + 2).saturating_sub(height));
        }
        self.list_scroll = self.list_scroll.min(rows.len().saturating_sub(height));
        // Only the rows on the screen are laid out: there may be thousands.
        let shown = rows.iter().skip(self.list_scroll).take(height);
        for (y, row) in (top..area.bottom()).zip(shown) {
            let line = self.list_row_text(row, area.width);
            buf.set_line(area.x, y, &line, area.width);
            if line.style.add_modifier.contains(Modifier::REVERSED) {
                buf.set_style(Rect { x: area.x, y, width: area.width, height: 1 }, line.style);
            }
        }
    }

    /// The line of the list at a row of the screen.
    pub(in crate::app) fn list_row(&self, row: u16) -> Option<ListLine> {
        let width = self.list_width();
        let head = self.list_head(width).len();
        let index = usize::from(row).checked_sub(head)? + self.list_scroll;
        match self.list_rows().into_iter().nth(index)? {
            ListRow::Line(line) => Some(line),
            ListRow::Blank | ListRow::Detail(_) | ListRow::Nothing => None,
        }
    }
}
