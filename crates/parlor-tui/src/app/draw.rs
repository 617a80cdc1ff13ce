//! Draws the panes: header, list of sessions, conversation, turn line, input, request and status line.

mod form;
mod input_lines;
mod list;
mod overlays;
mod panels;
mod status;
mod turn_line;

use jiff::Timestamp;
use parlor_client::Slot;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

pub(super) use self::panels::DrawnRequest;
use super::{App, Focus, Link};
use crate::clean::Clean;
use crate::conversation::margin;
use crate::field::TextField;
use crate::input::MAX_ROWS;
use crate::keys::{Action, KeyContext};
use crate::sessions::{RowState, SessionRow, Usage};
use crate::text::{cut, pad, width, window, wrap};
use crate::theme::{Mark, Role};
use crate::time::{age, seconds_between};

/// From this width on the list of sessions is beside the conversation.
pub(super) const WIDE: u16 = 100;

/// The columns of the list beside the conversation: a fourth of the screen between these.
const LIST_WIDTHS: (u16, u16) = (36, 60);

/// Below this width there are no margins, times and directories.
const NARROW: u16 = 60;

/// The rows above the conversation.
pub(super) const HEADER_ROWS: u16 = 2;

/// The smallest usable screen.
const MIN_SIZE: (u16, u16) = (40, 10);

/// A hint: a key and what it does.
type Hint = (String, &'static str);

impl App {
    /// Draws the screen.
    pub fn render(&mut self, frame: &mut Frame<'_>) {
        let area = frame.area();
        if let Some(cursor) = self.draw(area, frame.buffer_mut()) {
            frame.set_cursor_position(cursor);
        }
    }

    /// Draws the screen and returns the place of the cursor, if it is shown.
    pub(super) fn draw(&mut self, area: Rect, buf: &mut Buffer) -> Option<Position> {
        self.size = (area.width, area.height);
        if area.width < MIN_SIZE.0 || area.height < MIN_SIZE.1 {
            let text = format!("{}x{} at least", MIN_SIZE.0, MIN_SIZE.1);
            buf.set_stringn(0, 0, text, usize::from(area.width), Style::new());
            return None;
        }
        if self.has_full_overlay() { self.draw_overlay(area, buf) } else { self.draw_panes(area, buf) }
    }

    pub(super) fn is_narrow(&self) -> bool {
        self.size.0 < NARROW
    }

    pub(super) fn style(&self, role: Role) -> Style {
        self.look.theme.style(role)
    }

    pub(super) fn mark(&self, mark: Mark) -> &'static str {
        self.look.theme.mark(mark)
    }

    pub(super) fn span(&self, text: impl Into<String>, role: Role) -> Span<'static> {
        Span::styled(text.into(), self.style(role))
    }

    /// Whether the list of sessions is on the screen.
    pub(super) fn shows_list(&self) -> bool {
        self.link != Link::Direct && (self.size.0 >= WIDE || self.focus == Focus::Sessions)
    }

    /// The columns of the list of sessions.
    pub(super) fn list_width(&self) -> u16 {
        match (self.shows_list(), self.size.0 >= WIDE) {
            (false, _) => 0,
            (true, true) => (self.size.0 / 4).clamp(LIST_WIDTHS.0, LIST_WIDTHS.1),
            (true, false) => self.size.0,
        }
    }

    /// The size of the conversation, as long as nothing but a line of input is below it.
    pub(super) fn conversation_size(&self) -> (u16, u16) {
        let list = if self.size.0 >= WIDE && self.shows_list() { self.list_width() + 1 } else { 0 };
        (self.size.0.saturating_sub(list), self.size.1.saturating_sub(HEADER_ROWS + 3))
    }

    /// Draws the panes and returns the place of the cursor.
    fn draw_panes(&mut self, area: Rect, buf: &mut Buffer) -> Option<Position> {
        let body = Rect { height: area.height - 1, ..area };
        let status = Rect { y: area.bottom() - 1, height: 1, ..area };
        let list = self.list_width();
        let mut cursor = None;
        if list > 0 {
            self.draw_list(Rect { width: list, ..body }, buf);
        }
        if self.size.0 >= WIDE || list == 0 {
            let mut main = body;
            if list > 0 {
                for y in body.y..body.bottom() {
                    buf.set_string(body.x + list, y, self.mark(Mark::Vertical), self.style(Role::Dim));
                }
                main = Rect { x: body.x + list + 1, width: body.width - list - 1, ..body };
            }
            cursor = self.draw_main(main, buf);
        }
        self.draw_status(status, buf);
        if let Some(crate::overlay::Overlay::Ask(ask)) = self.overlays.last() {
            let (line, column) = self.field_line(format!(" {}: ", ask.title), &ask.text, status.width);
            buf.set_string(status.x, status.y, " ".repeat(usize::from(status.width)), Style::new());
            buf.set_line(status.x, status.y, &line, status.width);
            cursor = Some(Position::new(column, status.y));
        }
        cursor
    }

    /// A label and the part of a text field around its cursor, with the column of the cursor.
    pub(super) fn field_line(&self, label: String, field: &TextField, columns: u16) -> (Line<'static>, u16) {
        let before = width(Clean::line(field.before_cursor()).as_str());
        let room = usize::from(columns).saturating_sub(width(&label));
        let text = Clean::line(field.text());
        let (shown, column) = window(text.as_str(), before, room, self.mark(Mark::Ellipsis));
        let column = u16::try_from(width(&label) + column).unwrap_or(u16::MAX);
        let line = Line::from(vec![self.span(label, Role::Accent), Span::raw(shown)]);
        (line, column.min(columns.saturating_sub(1)))
    }

    /// A line with text at the left and at the right; the left one is cut.
    pub(super) fn spread(
        &self,
        left: Vec<Span<'static>>,
        right: Vec<Span<'static>>,
        columns: u16,
    ) -> Line<'static> {
        let columns = usize::from(columns);
        let right_width: usize = right.iter().map(Span::width).sum();
        let room = columns.saturating_sub(right_width + usize::from(right_width > 0));
        let mut spans = self.cut_spans(left, room);
        let used: usize = spans.iter().map(Span::width).sum();
        spans.push(Span::raw(" ".repeat(columns.saturating_sub(used + right_width))));
        spans.extend(right);
        Line::from(spans)
    }

    /// Cuts a list of spans to a number of columns.
    fn cut_spans(&self, spans: Vec<Span<'static>>, columns: usize) -> Vec<Span<'static>> {
        let mut left = columns;
        let mut kept = Vec::new();
        for span in spans {
            let wide = span.width();
            if wide <= left {
                left -= wide;
                kept.push(span);
                continue;
            }
            let text = cut(&span.content, left, self.mark(Mark::Ellipsis));
            kept.push(Span::styled(text, span.style));
            break;
        }
        kept
    }

    /// A horizontal line with text in it.
    pub(super) fn rule(
        &self,
        left: Vec<Span<'static>>,
        right: Vec<Span<'static>>,
        columns: u16,
        role: Role,
    ) -> Line<'static> {
        let columns = usize::from(columns);
        let dash = self.mark(Mark::Horizontal);
        let right_width: usize = right.iter().map(Span::width).sum();
        let right_room = if right_width > 0 { right_width + 3 } else { 1 };
        let mut spans = vec![self.span(format!("{dash} "), role)];
        let left = self.cut_spans(left, columns.saturating_sub(right_room + 4));
        let left_width: usize = left.iter().map(Span::width).sum();
        spans.extend(left);
        let fill = columns.saturating_sub(2 + left_width + 1 + right_room);
        if right_width > 0 {
            spans.push(self.span(format!(" {} ", dash.repeat(fill)), role));
            spans.extend(right);
            spans.push(self.span(format!(" {dash}"), role));
        } else {
            spans.push(self.span(format!(" {}", dash.repeat(fill + 1)), role));
        }
        Line::from(spans)
    }

    /// Draws header, conversation, turn line, and input or request.
    fn draw_main(&mut self, area: Rect, buf: &mut Buffer) -> Option<Position> {
        buf.set_line(area.x, area.y, &self.header(area.width), area.width);
        if self.focus == Focus::Request && self.shown_request().is_some() {
            return self.draw_request(area, buf);
        }
        let lead = usize::from(margin(area.width));
        let columns = usize::from(area.width).saturating_sub(lead + 2);
        let (rows, cursor) = self.input.rows(columns.max(2));
        let queue = self.queue_lines(area.width);
        let notices = self.offline_lines(area.width);
        let completion = self.completion_lines(area.width);
        let actions = self.action_line(area.width);
        let shown_rows = rows.len().min(MAX_ROWS).min(usize::from(area.height / 2).max(1));
        let below = 1 + queue.len() + notices.len() + shown_rows;
        let above = completion.len() + usize::from(actions.is_some());
        let below_rows = u16::try_from(below + above).unwrap_or(area.height);
        let height = area.height.saturating_sub(HEADER_ROWS + below_rows);
        let view = Rect { y: area.y + HEADER_ROWS, height, ..area };
        self.draw_conversation(view, buf);
        let mut y = view.bottom();
        let draw = |line: &Line<'static>, y: &mut u16, buf: &mut Buffer| {
            if *y < area.bottom() {
                buf.set_line(area.x, *y, line, area.width);
                *y += 1;
            }
        };
        completion.iter().for_each(|line| draw(line, &mut y, buf));
        actions.iter().for_each(|line| draw(line, &mut y, buf));
        draw(&self.turn_line(area.width), &mut y, buf);
        queue.iter().chain(&notices).for_each(|line| draw(line, &mut y, buf));
        // The rows around the cursor are shown.
        let first = (cursor.0 + 1).saturating_sub(shown_rows).min(rows.len() - shown_rows);
        let input_top = y;
        for (index, row) in rows.iter().enumerate().skip(first).take(shown_rows) {
            let mark = if index == 0 { self.mark(Mark::Prompt) } else { " " };
            let mut spans = vec![Span::raw(" ".repeat(lead)), self.span(format!("{mark} "), Role::Accent)];
            spans.push(Span::raw(row.text.to_string()));
            draw(&Line::from(spans), &mut y, buf);
        }
        let is_typing =
            self.focus == Focus::Input && self.overlays.is_empty() && self.queued_cursor.is_none();
        is_typing.then(|| {
            let column = area.x + u16::try_from(lead + 2 + cursor.1).unwrap_or(0);
            let row = input_top + u16::try_from(cursor.0 - first).unwrap_or(0);
            Position::new(column.min(area.right() - 1), row.min(area.bottom() - 1))
        })
    }

    /// The first line: title, agent, model, mode, and what waits elsewhere.
    fn header(&self, columns: u16) -> Line<'static> {
        let dot = self.mark(Mark::Dot);
        let lead = " ".repeat(usize::from(margin(columns)));
        let mut left = vec![Span::raw(lead)];
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let right = self.header_right();
        let right_width: usize = right.iter().map(Span::width).sum();
        match &self.conversation {
            Some(conversation) => {
                let row = self.sessions.get(&conversation.id);
                let mut facts = vec![self.agent_name().to_string()];
                if self.link == Link::Direct {
                    facts = vec!["direct".to_owned()];
                }
                facts.extend(self.option_name("model").map(|model| model.to_string()));
                facts.extend(self.option_name("mode").map(|mode| format!("mode {mode}")));
                if row.is_some_and(|row| row.is_archived) {
                    facts.push("archived".to_owned());
                }
                if self.size.0 >= WIDE {
                    facts.extend(row.map(|row| self.look.short_path(&row.cwd).to_string()));
                }
                if self.is_narrow() {
                    facts.clear();
                }
                // A long title leaves a part of the line to the facts, of which those that do not fit are left out whole.
                let title_room = width(self.session_title().as_str()).min(usize::from(columns / 3));
                let text = |facts: &[String]| match facts {
                    [] => String::new(),
                    facts => format!("  {}", facts.join(&format!(" {dot} "))),
                };
                let room = |facts: &[String]| {
                    usize::from(columns).saturating_sub(width(&text(facts)) + right_width + 3)
                };
                while room(&facts) < title_room && facts.pop().is_some() {}
                let title = cut(self.session_title().as_str(), room(&facts), self.mark(Mark::Ellipsis));
                let facts = text(&facts);
                left.push(Span::styled(title, bold));
                left.push(self.span(facts, Role::Dim));
            }
            None => {
                let version: Vec<&str> = self.version.split('.').take(2).collect();
                left.push(Span::styled(format!("parlor {}", version.join(".")), bold));
            }
        }
        self.spread(left, right, columns)
    }

    /// The right part of the first line: what waits and runs elsewhere, unless the list shows it, and how many clients are attached.
    fn header_right(&self) -> Vec<Span<'static>> {
        let mut right = Vec::new();
        if self.is_offline() {
            right.push(self.span(format!("{} offline", self.mark(Mark::Failed)), Role::Error));
        } else if !self.shows_list() {
            let open = self.requests.len();
            if open > 0 {
                let key = if self.is_narrow() {
                    String::new()
                } else {
                    format!(" {}", self.keys.label(KeyContext::Input, Action::Inbox))
                };
                right.push(self.span(format!("! {open}"), Role::Warning));
                right.push(self.span(key, Role::Dim));
            }
            let running = self.sessions.running(self.open_id().as_ref());
            if running > 0 && !self.is_narrow() {
                let gap = if open > 0 { "  " } else { "" };
                right.push(self.span(format!("{gap}{} {running}", self.mark(Mark::Running)), Role::Accent));
            }
        }
        let clients = self.attached_clients();
        if clients > 1 && !self.is_offline() && !self.is_narrow() {
            let gap = if right.is_empty() { "" } else { "  " };
            right.push(self.span(format!("{gap}{clients} clients"), Role::Dim));
        }
        right
    }

    /// The name of the present value of the option of a category.
    fn option_name(&self, category: &str) -> Option<Clean> {
        let conversation = self.conversation.as_ref()?;
        let options = conversation.options();
        let option = options.iter().find(|option| option.is_of(category));
        let named = option.and_then(|option| Some(Clean::line(&option.value_name()?)));
        named.or_else(|| {
            let row = self.sessions.get(&conversation.id)?;
            if category == "mode" { row.mode.clone() } else { row.model.clone() }
        })
    }

    /// Draws the entries, or what to do without a session.
    fn draw_conversation(&mut self, area: Rect, buf: &mut Buffer) {
        let Some(conversation) = &mut self.conversation else {
            self.draw_start(area, buf);
            return;
        };
        let lead = margin(area.width);
        conversation.resize(area.width, area.height);
        let has_position = !conversation.is_following && !conversation.shows_end(&self.look);
        conversation.resize(area.width, area.height.saturating_sub(u16::from(has_position)));
        let rows = conversation.draw(&self.look);
        let is_loading = conversation.is_loading_older;
        let numbers = conversation.shown_numbers(&self.look);
        let new = conversation.new_messages();
        let bar = self.mark(Mark::Bar);
        if rows.is_empty() {
            let text = match (self.opening.is_some(), self.sending.0) {
                (true, _) => "opening …",
                (false, 0) => "Write a prompt below.",
                (false, _) => "",
            };
            buf.set_string(area.x + lead + 2, area.y, text, self.style(Role::Dim));
        }
        for (index, (line, is_selected)) in rows.into_iter().enumerate() {
            let y = area.y + u16::try_from(index).unwrap_or(0);
            if is_selected && lead > 0 {
                buf.set_string(area.x, y, bar, self.style(Role::Accent));
            }
            buf.set_line(area.x + lead, y, &line, area.width - lead);
            // Without a margin the first column of the text is the bar.
            if is_selected && lead == 0 {
                buf.set_style(Rect { x: area.x, y, width: 1, height: 1 }, self.style(Role::Selected));
            }
        }
        if is_loading {
            // The row above is always blank.
            let text = format!("  loading earlier messages {}", self.mark(Mark::Ellipsis));
            buf.set_stringn(
                area.x + lead,
                area.y - 1,
                text,
                usize::from(area.width - lead),
                self.style(Role::Dim),
            );
        }
        if has_position && area.height > 0 {
            let dot = self.mark(Mark::Dot);
            let left = numbers.map_or_else(String::new, |(first, last, all)| {
                let (all_text, percent) = (crate::text::thousands(all), last * 100 / all.max(1));
                let shown = if first == last { format!("#{first}") } else { format!("#{first}-{last}") };
                format!(" {shown} of {all_text} {dot} {percent}%")
            });
            let down = self.mark(Mark::Down);
            let right = if new > 0 {
                format!("{down} {} below {dot} G goes there", crate::text::count(new, "new message"))
            } else {
                format!("{down} G goes to the end")
            };
            let role = if new > 0 { Role::Accent } else { Role::Dim };
            let line =
                self.spread(vec![self.span(left, Role::Dim)], vec![self.span(right, role)], area.width);
            buf.set_line(area.x, area.bottom() - 1, &line, area.width);
        }
    }

    /// Draws what can be started.
    fn draw_start(&self, area: Rect, buf: &mut Buffer) {
        let path = self.look.short_path(&self.new_cwd);
        let wrapped = |text: &str, role: Role| {
            let rows = wrap(text, usize::from(area.width).saturating_sub(4));
            rows.into_iter().map(|row| Line::from(self.span(format!("   {row}"), role))).collect::<Vec<_>>()
        };
        let mut lines = vec![Line::default()];
        let (text, role) = if let Link::Connecting = self.link {
            ("Connecting to the server …".to_owned(), Role::Dim)
        } else if self.opening.is_some() {
            let agent =
                self.agent.clone().or_else(|| self.default_agent()).unwrap_or_else(|| "the agent".to_owned());
            (format!("Starting {} …", Clean::line(&agent)), Role::Dim)
        } else if self.sessions.is_empty() && self.sessions.is_loaded {
            (format!("No sessions yet. Write a prompt below to start one in {path}."), Role::Text)
        } else {
            (format!("Write a prompt below to start a session in {path}."), Role::Text)
        };
        lines.extend(wrapped(&text, role));
        if !self.agents.is_empty() {
            lines.push(Line::default());
            lines
                .push(Line::from(vec![Span::styled("   Agents", Style::new().add_modifier(Modifier::BOLD))]));
            let chosen = self.agent.clone().or_else(|| self.default_agent());
            let mut agents: Vec<_> = self.agents.iter().collect();
            agents.sort_by_key(|agent| !agent.is_installed);
            let most = usize::from(area.height).saturating_sub(11).max(3);
            for agent in agents.into_iter().take(most) {
                let is_chosen = Some(&agent.name) == chosen.as_ref();
                let mark = if is_chosen { self.mark(Mark::Prompt) } else { " " };
                let role = if agent.is_installed { Role::Text } else { Role::Dim };
                let left = vec![
                    self.span(format!("{mark}    "), Role::Accent),
                    self.span(pad(Clean::line(&agent.name).as_str(), 10, self.mark(Mark::Ellipsis)), role),
                    self.span(agent.state(), Role::Dim),
                ];
                let right = if agent.is_default { vec![self.span("default", Role::Dim)] } else { Vec::new() };
                lines.push(self.spread(left, right, area.width));
            }
        }
        if area.height > 17 {
            lines.push(Line::default());
            for text in [
                "You can close this at any time: the agent keeps working.",
                "parlor            comes back here",
                "parlor prompt …   does the same from a script",
                "parlor agents     lists agents and installs them",
            ] {
                lines.extend(wrapped(text, Role::Dim));
            }
        }
        for (y, line) in (area.y..area.bottom()).zip(&lines) {
            buf.set_line(area.x, y, line, area.width);
        }
    }

    /// The usage of the open session.
    pub(super) fn usage(&self) -> Option<Usage> {
        let conversation = self.conversation.as_ref()?;
        let live = conversation.slot(Slot::Usage).and_then(|slot| Usage::of(&slot.fields));
        live.or_else(|| self.sessions.get(&conversation.id)?.usage.clone())
    }
}

/// [`NARROW`] as a number of columns.
const NARROW_COLUMNS: usize = NARROW as usize;

/// The mark of a session's state.
pub(super) fn state_mark(row: &SessionRow) -> Option<(Mark, Role)> {
    match row.state {
        RowState::NeedsYou => Some((Mark::NeedsYou, Role::Warning)),
        RowState::Running => Some((Mark::Running, Role::Accent)),
        RowState::Failed => Some((Mark::Failed, Role::Error)),
        RowState::Idle if row.is_unread => Some((Mark::Unread, Role::Accent)),
        RowState::Idle => None,
    }
}

/// How long ago a session was active.
pub(super) fn age_of(row: &SessionRow, now: Timestamp) -> String {
    row.active.map(|active| age(seconds_between(active, now))).unwrap_or_default()
}
