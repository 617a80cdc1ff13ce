//! Draws the panes: header, list of sessions, conversation, turn line, input, request and status line.

mod overlays;
mod panels;

use jiff::Timestamp;
use parlor_client::Slot;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::actions::SelectedKind;
use super::{App, Focus, Link};
use crate::clean::Clean;
use crate::conversation::margin;
use crate::input::MAX_ROWS;
use crate::keys::{Action, Place};
use crate::sessions::{ListLine, RowState, SessionRow, Usage};
use crate::text::{cut, pad, width};
use crate::theme::{Mark, Role};
use crate::time::{age, clock, of_day, seconds_between, tokens};

/// From this width on the list of sessions is beside the conversation.
pub(super) const WIDE: u16 = 100;

/// The columns of the list beside the conversation, and of the line between them.
const LIST_WIDTH: u16 = 36;

/// Below this width there are no margins, times and directories.
const NARROW: u16 = 60;

/// The rows above the conversation.
pub(super) const HEADER_ROWS: u16 = 2;

/// The smallest usable screen.
const MIN_SIZE: (u16, u16) = (40, 10);

/// After this time without output the turn line says so.
const SILENCE: u64 = 30;

/// How many requests the list shows.
const MAX_LISTED_REQUESTS: usize = 3;

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

    fn is_narrow(&self) -> bool {
        self.size.0 < NARROW
    }

    fn style(&self, role: Role) -> Style {
        self.look.theme.style(role)
    }

    fn mark(&self, mark: Mark) -> &'static str {
        self.look.theme.mark(mark)
    }

    fn span(&self, text: impl Into<String>, role: Role) -> Span<'static> {
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
            (true, true) => LIST_WIDTH,
            (true, false) => self.size.0,
        }
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
            let label = format!(" {}: ", ask.title);
            let line = Line::from(vec![
                self.span(label.clone(), Role::Accent),
                Span::raw(Clean::line(ask.text.text()).to_string()),
            ]);
            buf.set_string(status.x, status.y, " ".repeat(usize::from(status.width)), Style::new());
            buf.set_line(status.x, status.y, &line, status.width);
            let before = width(Clean::line(ask.text.before_cursor()).as_str());
            let column = u16::try_from(width(&label) + before).unwrap_or(u16::MAX);
            cursor = Some(Position::new(column.min(status.width - 1), status.y));
        }
        cursor
    }

    /// A line with text at the left and at the right; the left one is cut.
    fn spread(&self, left: Vec<Span<'static>>, right: Vec<Span<'static>>, columns: u16) -> Line<'static> {
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
    fn rule(
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
        let (rows, place) = self.input.rows(columns.max(2));
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
        let first = (place.0 + 1).saturating_sub(shown_rows).min(rows.len() - shown_rows);
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
            let column = area.x + u16::try_from(lead + 2 + place.1).unwrap_or(0);
            let row = input_top + u16::try_from(place.0 - first).unwrap_or(0);
            Position::new(column.min(area.right() - 1), row.min(area.bottom() - 1))
        })
    }

    /// The first line: title, agent, model, mode, and what waits elsewhere.
    fn header(&self, columns: u16) -> Line<'static> {
        let dot = self.mark(Mark::Dot);
        let lead = " ".repeat(usize::from(margin(columns)));
        let mut left = vec![Span::raw(lead)];
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let mut right = Vec::new();
        match &self.conversation {
            Some(conversation) => {
                left.push(Span::styled(self.session_title().to_string(), bold));
                let row = self.sessions.get(&conversation.id);
                let mut facts = vec![self.agent_name().to_string()];
                if self.link == Link::Direct {
                    facts = vec!["direct".to_owned()];
                }
                facts.extend(self.option_name("model").map(|model| model.to_string()));
                facts.extend(self.option_name("mode").map(|mode| format!("mode {mode}")));
                if self.size.0 >= WIDE {
                    facts.extend(row.map(|row| self.look.short_path(&row.cwd).to_string()));
                }
                if !self.is_narrow() {
                    left.push(self.span(format!("  {}", facts.join(&format!(" {dot} "))), Role::Dim));
                }
            }
            None => {
                let version: Vec<&str> = self.version.split('.').take(2).collect();
                left.push(Span::styled(format!("parlor {}", version.join(".")), bold));
            }
        }
        if self.is_offline() {
            right.push(self.span(format!("{} offline", self.mark(Mark::Failed)), Role::Error));
        } else if !self.shows_list() {
            let open = self.requests.len();
            if open > 0 {
                let key = if self.is_narrow() {
                    String::new()
                } else {
                    format!(" {}", self.keys.label(Place::Input, Action::Inbox))
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
        self.spread(left, right, columns)
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
            if is_selected {
                buf.set_string(area.x, y, bar, self.style(Role::Accent));
            }
            buf.set_line(area.x + lead, y, &line, area.width - lead);
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
                format!(" #{first}-{last} of {all_text} {dot} {percent}%")
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
        let mut lines: Vec<Line<'static>> = Vec::new();
        lines.push(Line::default());
        if let Link::Connecting = self.link {
            lines.push(Line::from(vec![self.span("   Connecting to the server …", Role::Dim)]));
        } else if self.opening.is_some() {
            let agent =
                self.agent.clone().or_else(|| self.default_agent()).unwrap_or_else(|| "the agent".to_owned());
            lines.push(Line::from(vec![
                self.span(format!("   Starting {} …", Clean::line(&agent)), Role::Dim),
            ]));
        } else if self.sessions.is_empty() && self.sessions.is_loaded {
            lines
                .push(Line::raw(format!("   No sessions yet. Write a prompt below to start one in {path}.")));
        } else {
            lines.push(Line::raw(format!("   Write a prompt below to start a session in {path}.")));
        }
        if !self.agents.is_empty() {
            lines.push(Line::default());
            lines
                .push(Line::from(vec![Span::styled("   Agents", Style::new().add_modifier(Modifier::BOLD))]));
            let chosen = self.agent.clone().or_else(|| self.default_agent());
            let mut agents: Vec<_> = self.agents.iter().collect();
            agents.sort_by_key(|agent| !agent.is_installed);
            let most = usize::from(area.height).saturating_sub(10).max(3);
            for agent in agents.into_iter().take(most) {
                let is_chosen = Some(&agent.name) == chosen.as_ref();
                let mark = if is_chosen { self.mark(Mark::Prompt) } else { " " };
                let state = match (agent.name.as_str(), agent.is_installed) {
                    ("demo", _) => "built in, needs no model and no network",
                    (_, true) => "installed",
                    (_, false) => "not installed",
                };
                let role = if agent.is_installed { Role::Text } else { Role::Dim };
                let left = vec![
                    self.span(format!("{mark}    "), Role::Accent),
                    self.span(pad(Clean::line(&agent.name).as_str(), 10, self.mark(Mark::Ellipsis)), role),
                    self.span(state, Role::Dim),
                ];
                let right = if agent.is_default { vec![self.span("default", Role::Dim)] } else { Vec::new() };
                lines.push(self.spread(left, right, area.width));
            }
        }
        if area.height > 16 {
            lines.push(Line::default());
            for text in [
                "   You can close this at any time: the agent keeps working.",
                "   parlor            comes back here",
                "   parlor prompt …   does the same from a script",
            ] {
                lines.push(Line::from(vec![self.span(text, Role::Dim)]));
            }
        }
        for (y, line) in (area.y..area.bottom()).zip(&lines) {
            buf.set_line(area.x, y, line, area.width);
        }
    }

    /// What is possible with the selected entry.
    fn action_line(&self, columns: u16) -> Option<Line<'static>> {
        if self.focus != Focus::Messages {
            return None;
        }
        let kind = self.selected_kind()?;
        let conversation = self.conversation.as_ref()?;
        let number = conversation.selected_number().map(|number| format!("#{number}  ")).unwrap_or_default();
        let actions: &[(Action, &str)] = match kind {
            SelectedKind::Prompt => &[
                (Action::Edit, "edit"),
                (Action::Fork, "fork here"),
                (Action::Regenerate, "regenerate"),
                (Action::Copy, "copy"),
                (Action::View, "view"),
            ],
            SelectedKind::Answer => &[
                (Action::Copy, "copy"),
                (Action::Fork, "fork here"),
                (Action::Regenerate, "regenerate"),
                (Action::OtherAgent, "other agent"),
                (Action::View, "view"),
                (Action::Toggle, "fold"),
            ],
            SelectedKind::Other => {
                &[(Action::Toggle, "unfold"), (Action::Copy, "copy"), (Action::View, "view")]
            }
        };
        let hints = actions
            .iter()
            .map(|(action, text)| format!("{} {text}", self.keys.label(Place::Messages, *action)));
        let lead = " ".repeat(usize::from(margin(columns)));
        let text = format!("{lead}{number}{}", hints.collect::<Vec<_>>().join("  "));
        Some(Line::from(vec![
            self.span(cut(&text, usize::from(columns), self.mark(Mark::Ellipsis)), Role::Accent),
        ]))
    }

    /// What the agent is doing, or what it waits for.
    pub(super) fn turn_line(&self, columns: u16) -> Line<'static> {
        let now = self.look.now;
        let dot = format!(" {} ", self.mark(Mark::Dot));
        if let Link::Retrying { since, next, .. } = &self.link {
            let text = format!(
                "{} No connection to the server since {}",
                self.mark(Mark::Failed),
                crate::time::with_seconds(*since, &self.look.zone)
            );
            let retry = format!("retry in {} s{dot}Enter now", seconds_between(now, *next));
            return self.rule(
                vec![self.span(text, Role::Error)],
                vec![self.span(retry, Role::Error)],
                columns,
                Role::Error,
            );
        }
        let Some(conversation) = &self.conversation else {
            let text = format!("New session in {}", self.look.short_path(&self.new_cwd));
            let agent = self
                .agent
                .clone()
                .or_else(|| self.default_agent())
                .unwrap_or_else(|| "choose an agent".to_owned());
            let right = format!("{}{dot}Tab agent", Clean::line(&agent));
            return self.rule(vec![Span::raw(text)], vec![self.span(right, Role::Dim)], columns, Role::Dim);
        };
        if let Some(request) = self.shown_request() {
            let text = format!("! {} asks: {}", self.asker(), self.summary_of(request));
            let answer = self.keys.label(Place::Input, Action::NextPane);
            return self.rule(
                vec![self.span(text, Role::Warning)],
                vec![self.span(format!("{answer} answers"), Role::Warning)],
                columns,
                Role::Dim,
            );
        }
        if self.editing.is_some() {
            let text = "Editing a prompt: Enter sends it in a fork";
            return self.rule(
                vec![self.span(text, Role::Accent)],
                vec![self.span("Esc gives up", Role::Dim)],
                columns,
                Role::Dim,
            );
        }
        if conversation.is_busy() {
            let doing = conversation.doing();
            let mut what = doing.what.to_string();
            if self.is_narrow() {
                what = what.strip_prefix("Running ").map(str::to_owned).unwrap_or(what);
            }
            let since = doing.since.or(self.turn_started);
            let time =
                since.map(|since| format!("  {}", clock(seconds_between(since, now)))).unwrap_or_default();
            let mut left =
                vec![self.span(format!("{} {what}{time}", self.mark(Mark::Running)), Role::Accent)];
            let quiet = conversation.last_output().or(self.turn_started);
            let quiet = quiet.map_or(0, |last| seconds_between(last, now));
            if quiet >= SILENCE && !conversation.is_waiting() {
                left.push(self.span(format!("  no output for {}", clock(quiet)), Role::Warning));
            }
            let mut right = Vec::new();
            if !self.is_narrow() {
                right.extend(conversation.plan().map(|(done, all)| format!("plan {done}/{all}")));
                right.extend(
                    self.turn_started.map(|started| format!("turn {}", clock(seconds_between(started, now)))),
                );
            }
            let escape = if self.escape_cancels() { "cancels" } else { "back" };
            right.push(format!("{} {escape}", self.keys.label(Place::Anywhere, Action::Escape)));
            return self.rule(left, vec![self.span(right.join(&dot), Role::Dim)], columns, Role::Dim);
        }
        if let (1.., Some(since)) = self.sending {
            let text = format!(
                "{} Sending the prompt  {}",
                self.mark(Mark::Running),
                clock(seconds_between(since, now))
            );
            return self.rule(vec![self.span(text, Role::Accent)], Vec::new(), columns, Role::Dim);
        }
        let row = self.sessions.get(&conversation.id);
        let mut parts = Vec::new();
        let ended = row.and_then(|row| row.turn_ended);
        let state = row.map_or(RowState::Idle, |row| row.state);
        let word = if state == RowState::Failed { "Failed" } else { "Idle" };
        parts.push(ended.map_or_else(
            || word.to_owned(),
            |ended| format!("{word}, {}", of_day(ended, now, &self.look.zone)),
        ));
        if let Some((prompted, ended)) = row.and_then(|row| row.prompted).zip(ended)
            && ended >= prompted
        {
            parts.push(clock(seconds_between(prompted, ended)));
        }
        let role = if state == RowState::Failed { Role::Error } else { Role::Dim };
        self.rule(vec![self.span(parts.join(&dot), role)], Vec::new(), columns, Role::Dim)
    }

    /// Whether Esc cancels the turn now, and does not close something.
    fn escape_cancels(&self) -> bool {
        let is_following = self.conversation.as_ref().is_none_or(|conversation| conversation.is_following);
        self.focus == Focus::Input
            && self.overlays.is_empty()
            && self.completion.is_none()
            && self.queued_cursor.is_none()
            && is_following
    }

    fn queue_lines(&self, columns: u16) -> Vec<Line<'static>> {
        let queue = self.queue();
        let lead = if self.is_narrow() { "" } else { "   " };
        let count = queue.len();
        let shown = queue
            .into_iter()
            .enumerate()
            .filter(|(index, _)| self.queued_cursor.map_or(*index < 2, |cursor| index.abs_diff(cursor) < 2));
        let line = |(index, prompt): (usize, super::QueuedPrompt)| {
            let is_selected = self.queued_cursor == Some(index);
            let mark = if is_selected { self.mark(Mark::Prompt) } else { " " };
            let lead = if lead.is_empty() { String::new() } else { format!(" {mark} ") };
            let label = if index == 0 || is_selected {
                format!("queued {}  ", if is_selected { index + 1 } else { count })
            } else {
                "          ".to_owned()
            };
            let text = Clean::line(prompt.text.lines().next().unwrap_or_default());
            let hint = match (is_selected, index == 0) {
                (true, _) => "e edit  w withdraw  s send now".to_owned(),
                (false, true) if !self.is_narrow() => format!("{} selects", self.mark(Mark::Up)),
                (false, _) => String::new(),
            };
            let role = if is_selected { Role::Accent } else { Role::Dim };
            let left =
                vec![self.span(lead, Role::Accent), self.span(label, role), Span::raw(text.to_string())];
            self.spread(left, vec![self.span(hint, role)], columns)
        };
        shown.map(line).collect()
    }

    /// What to know while there is no connection.
    fn offline_lines(&self, columns: u16) -> Vec<Line<'static>> {
        let Link::Retrying { server, reason, .. } = &self.link else { return Vec::new() };
        let lead = if self.is_narrow() { "" } else { "   " };
        let first = format!("{lead}{server}  {reason}");
        let second = format!("{lead}The turn goes on if the server runs. What you write is kept.");
        let line = |text: String| {
            Line::from(vec![
                self.span(cut(&text, usize::from(columns), self.mark(Mark::Ellipsis)), Role::Dim),
            ])
        };
        vec![line(first), line(second)]
    }

    fn completion_lines(&self, columns: u16) -> Vec<Line<'static>> {
        let Some(completion) = &self.completion else { return Vec::new() };
        let first = (completion.cursor + 1).saturating_sub(6);
        let shown: Vec<_> = completion.items.iter().enumerate().skip(first).take(6).collect();
        let last = shown.len();
        let names =
            shown.iter().map(|(_, (insert, _))| width(Clean::line(insert).as_str())).max().unwrap_or(0);
        let lines = shown.into_iter().enumerate().map(|(row, (index, (insert, about)))| {
            let is_current = index == completion.cursor;
            let style = if is_current { self.style(Role::Selected) } else { Style::new() };
            let insert = insert.strip_prefix('@').unwrap_or(insert);
            let name = pad(Clean::line(insert).as_str(), names, self.mark(Mark::Ellipsis));
            let left =
                vec![Span::raw("     "), Span::styled(name, style), self.span(about.to_string(), Role::Dim)];
            let count = format!("{} of {}", completion.cursor + 1, completion.total);
            let right = if row + 1 == last { vec![self.span(count, Role::Dim)] } else { Vec::new() };
            self.spread(left, right, columns)
        });
        lines.collect()
    }

    /// The name of the one who asks.
    fn asker(&self) -> String {
        let request = self.shown_request().map(|request| request.agent.to_string());
        request.filter(|agent| !agent.is_empty()).unwrap_or_else(|| self.agent_name().to_string())
    }

    /// The usage of the open session.
    pub(super) fn usage(&self) -> Option<Usage> {
        let conversation = self.conversation.as_ref()?;
        let live = conversation.slot(Slot::Usage).and_then(|slot| Usage::of(&slot.fields));
        live.or_else(|| self.sessions.get(&conversation.id)?.usage.clone())
    }

    /// The last line: a note or the keys that work now, and the use of the context.
    fn draw_status(&self, area: Rect, buf: &mut Buffer) {
        let right = self.context_spans(area.width);
        let lead = if self.is_narrow() { "" } else { " " };
        if let Some(removal) = self.removals.last() {
            let left = (removal.at + super::UNDO_TIME).duration_since(self.look.now).as_secs().max(0);
            let what = if removal.is_deletion { "Deleted" } else { "Archived" };
            let forks = match removal.forks {
                0 => String::new(),
                1 => " and kept its 1 fork".to_owned(),
                forks => format!(" and kept its {forks} forks"),
            };
            let text = format!("{lead}{what} \"{}\"{forks}.  ", removal.title);
            let left_spans = vec![Span::raw(text), Span::raw("u"), self.span(" undo", Role::Dim)];
            let line = self.spread(left_spans, vec![self.span(format!("{left} s"), Role::Dim)], area.width);
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

    /// Keys and what they do, as many as fit. The last hint is kept.
    fn hint_line(&self, mut hints: Vec<Hint>, right: Vec<Span<'static>>, columns: u16) -> Line<'static> {
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
        let at =
            |place: Place| move |action: Action, text: &'static str| (self.keys.label(place, action), text);
        let both = |place: Place, one: Action, other: Action, text: &'static str| {
            (format!("{} {}", self.keys.label(place, one), self.keys.label(place, other)), text)
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
                let key = at(Place::Input);
                vec![
                    key(Action::Send, "retry now"),
                    key(Action::Editor, "$EDITOR"),
                    ("Ctrl-C twice".to_owned(), "quit"),
                    key(Action::Help, "help"),
                ]
            }
            Focus::Input if self.conversation.is_none() => {
                let key = at(Place::Input);
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
                let key = at(Place::Input);
                let send = if self.is_busy() { "queue" } else { "send" };
                vec![
                    key(Action::Send, send),
                    key(Action::NextPane, if self.shown_request().is_some() { "answer" } else { "messages" }),
                    key(Action::OpenSession, "sessions"),
                    key(Action::NewLine, "new line"),
                    key(Action::Options, "model"),
                    key(Action::Help, if self.is_narrow() { "" } else { "help" }),
                ]
            }
            Focus::Messages => {
                let key = at(Place::Messages);
                vec![
                    both(Place::Messages, Action::Next, Action::Previous, "move"),
                    both(Place::Messages, Action::PreviousPrompt, Action::NextPrompt, "prompts"),
                    key(Action::Find, "find"),
                    key(Action::FocusInput, "input"),
                    key(Action::Help, "help"),
                ]
            }
            Focus::Sessions => {
                let key = at(Place::Sessions);
                vec![
                    key(Action::Open, "open"),
                    key(Action::Filter, "filter"),
                    key(Action::Title, "title"),
                    key(Action::Archive, "archive"),
                    key(Action::Delete, "delete"),
                    key(Action::ForkTree, "forks"),
                    key(Action::Help, if self.is_narrow() { "" } else { "help" }),
                ]
            }
            Focus::Request => self.request_hints(),
        }
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

    // The list of sessions.

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
                let key = format!("{} ", self.keys.label(Place::Input, Action::Inbox));
                let left = vec![self.span(format!("{lead}! Inbox {open}"), Role::Warning)];
                lines.push(self.spread(left, vec![self.span(key, Role::Dim)], columns));
                request_lines(&mut lines, "   ");
                lines.push(Line::default());
            }
            let filter = format!("{} filter ", self.keys.label(Place::Sessions, Action::Filter));
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

    /// The lines of the list with what they are, beginning below the head.
    fn list_lines(&self, columns: u16) -> Vec<(Option<ListLine>, Line<'static>)> {
        let mut drawn = Vec::new();
        let lead = if self.is_narrow() { "" } else { " " };
        for line in self.sessions.lines(&self.list_filter) {
            match &line {
                ListLine::Directory(cwd) => {
                    if !drawn.is_empty() {
                        drawn.push((None, Line::default()));
                    }
                    let path = crate::text::cut_path(
                        self.look.short_path(cwd).as_str(),
                        usize::from(columns) - 2,
                        self.mark(Mark::Ellipsis),
                    );
                    drawn.push((None, Line::from(vec![self.span(format!("{lead}{path}"), Role::Dim)])));
                }
                ListLine::Session { id, branches } => {
                    let Some(row) = self.sessions.get(id) else { continue };
                    let is_current = self.focus == Focus::Sessions && self.list_cursor.as_ref() == Some(id);
                    drawn.push((Some(line.clone()), self.list_row_line(row, branches, columns, is_current)));
                    if is_current && self.is_narrow() {
                        let state = self.state_word(row);
                        let about = format!("   {}, {state}", row.agent);
                        drawn.push((
                            None,
                            Line::from(vec![self.span(cut(&about, usize::from(columns), "…"), Role::Dim)]),
                        ));
                    }
                }
            }
        }
        if drawn.is_empty() {
            let text = match (self.sessions.is_loaded, self.list_filter.is_empty()) {
                (false, _) => "loading …",
                (true, true) => "No sessions yet",
                (true, false) => "No sessions match",
            };
            drawn.push((None, Line::from(vec![self.span(format!("{lead}  {text}"), Role::Dim)])));
        }
        drawn
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

    fn draw_list(&mut self, area: Rect, buf: &mut Buffer) {
        let head = self.list_head(area.width);
        let lines = self.list_lines(area.width);
        for (y, line) in (area.y..area.bottom()).zip(&head) {
            buf.set_line(area.x, y, line, area.width);
        }
        let top = area.y + u16::try_from(head.len()).unwrap_or(0);
        let height = usize::from(area.bottom().saturating_sub(top));
        let cursor = lines.iter().position(|(line, _)| {
            matches!(line, Some(ListLine::Session { id, .. }) if self.list_cursor.as_ref() == Some(id))
        });
        // The cursor stays on the screen.
        if let Some(cursor) = cursor.filter(|_| self.focus == Focus::Sessions) {
            self.list_scroll =
                self.list_scroll.min(cursor.saturating_sub(1)).max((cursor + 2).saturating_sub(height));
        }
        self.list_scroll = self.list_scroll.min(lines.len().saturating_sub(height));
        let shown = lines.iter().skip(self.list_scroll).take(height);
        for (y, (_, line)) in (top..area.bottom()).zip(shown) {
            buf.set_line(area.x, y, line, area.width);
            if line.style.add_modifier.contains(Modifier::REVERSED) {
                buf.set_style(Rect { x: area.x, y, width: area.width, height: 1 }, line.style);
            }
        }
    }

    /// The line of the list at a row of the screen.
    pub(super) fn list_row(&self, row: u16) -> Option<ListLine> {
        let width = self.list_width();
        let head = self.list_head(width).len();
        let index = usize::from(row).checked_sub(head)? + self.list_scroll;
        self.list_lines(width).into_iter().nth(index)?.0
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
