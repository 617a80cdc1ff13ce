//! Draws a request in place of the input.

use std::rc::Rc;

use jiff::Timestamp;
use parlor_client::Transcript;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::{Line, Span};

use super::{App, HEADER_ROWS, Hint};
use crate::clean::Clean;
use crate::conversation::margin;
use crate::entry::{EntryContext, EntryTimes};
use crate::keys::{Action, KeyContext};
use crate::request::{Permission, Request, Subject};
use crate::text::{cut, width, wrap};
use crate::theme::{Mark, Role};
use crate::time::{clock, seconds_between};

/// The lines of the request that was drawn last, for its id, when it was opened, and the width.
#[derive(Debug)]
pub(in crate::app) struct DrawnRequest {
    key: (String, Option<Timestamp>, u16),
    lines: Rc<Vec<Line<'static>>>,
}

/// Shown with a request from the answer until the server closes it.
pub(super) const SENDING_ANSWER: &str = "sending the answer";

/// The columns of a request in a pager.
const PAGER_COLUMNS: u16 = 100;

impl App {
    pub(super) fn request_hints(&self) -> Vec<Hint> {
        let close = (self.keys.label(KeyContext::Anywhere, Action::Escape), "not now");
        let Some(request) = self.shown_request() else { return vec![close] };
        match &request.subject {
            Subject::Permission(permission) => {
                let keys = permission.options.iter().filter_map(|option| self.option_key(permission, option));
                let keys: Vec<String> = keys.collect();
                let last = permission.options.len().min(9);
                let numbers = if last > 1 { format!("1-{last}") } else { "1".to_owned() };
                let label =
                    if keys.is_empty() { numbers } else { format!("{numbers} or {}", keys.join(" ")) };
                let scroll = format!(
                    "{} {}",
                    self.keys.label(KeyContext::Request, Action::Next),
                    self.keys.label(KeyContext::Request, Action::Previous)
                );
                let mut hints = vec![(label, "")];
                if !self.is_narrow() {
                    hints.push((scroll, "scroll"));
                }
                hints.push((self.keys.label(KeyContext::Request, Action::View), "view all"));
                hints.push(close);
                hints
            }
            Subject::Form(form) if form.url().is_some() => {
                vec![
                    ("Enter".to_owned(), "open in browser"),
                    ("y".to_owned(), "copy"),
                    ("n".to_owned(), "decline"),
                    close,
                ]
            }
            Subject::Form(_) => vec![
                (self.keys.label(KeyContext::Form, Action::NextPane), "next"),
                (self.keys.label(KeyContext::Form, Action::Switch), "choose"),
                (self.keys.label(KeyContext::Form, Action::Open), "next"),
                close,
            ],
            Subject::Unknown(_) => {
                vec![(self.keys.label(KeyContext::Request, Action::View), "view all"), close]
            }
        }
    }

    /// The key of an option, if it is the only one of its kind.
    pub(super) fn option_key(
        &self,
        permission: &Permission,
        option: &parlor_client::PermissionOption,
    ) -> Option<String> {
        use parlor_client::PermissionOptionKind as Kind;
        let action = match option.kind {
            Kind::AllowOnce => Action::Allow,
            Kind::AllowAlways => Action::AllowAlways,
            Kind::RejectOnce => Action::Reject,
            Kind::RejectAlways => Action::RejectAlways,
            Kind::Other(_) | _ => return None,
        };
        permission.only_option(&option.kind).map(|_| self.keys.label(KeyContext::Request, action))
    }

    /// Draws the request of the open session and returns the place of the cursor.
    pub(super) fn draw_request(&mut self, area: Rect, buf: &mut Buffer) -> Option<Position> {
        let request = self.shown_request()?;
        if let Subject::Form(_) = &request.subject {
            let request = request.clone();
            return self.draw_form(&request, area, buf);
        }
        let rule = self.request_rule(request, area.width);
        let footer = self.option_lines(request, area.width);
        // A long diff is laid out once.
        let key = (request.id.clone(), request.opened, area.width);
        let drawn = self.drawn_request.as_ref().filter(|drawn| drawn.key == key);
        let details = match drawn {
            Some(drawn) => Rc::clone(&drawn.lines),
            None => Rc::new(self.request_lines(request, area.width)),
        };
        self.drawn_request = Some(DrawnRequest { key, lines: Rc::clone(&details) });
        let body = area.height.saturating_sub(HEADER_ROWS);
        let footer_rows = u16::try_from(footer.len()).unwrap_or(body);
        // The conversation keeps what the request does not need.
        let wanted = u16::try_from(details.len()).unwrap_or(u16::MAX).saturating_add(footer_rows + 2);
        let panel = wanted.min(body);
        let view = Rect { y: area.y + HEADER_ROWS, height: body.saturating_sub(panel), ..area };
        if view.height > 0 {
            self.draw_conversation(view, buf);
        }
        let mut y = view.bottom();
        let draw = |line: &Line<'static>, y: &mut u16, buf: &mut Buffer| {
            if *y < area.bottom() {
                buf.set_line(area.x, *y, line, area.width);
                *y += 1;
            }
        };
        draw(&rule, &mut y, buf);
        let room = usize::from(area.bottom().saturating_sub(y + footer_rows + 1));
        let most = details.len().saturating_sub(room);
        self.request_scroll = self.request_scroll.min(most);
        let first = self.request_scroll;
        details.iter().skip(first).take(room).for_each(|line| draw(line, &mut y, buf));
        if most > 0 {
            let last = (first + room).min(details.len());
            let text = format!("lines {}-{last} of {}", first + 1, details.len());
            let below = details.len() - last;
            let right =
                if below > 0 { format!("{} {below} more", self.mark(Mark::Down)) } else { String::new() };
            let right = if right.is_empty() { Vec::new() } else { vec![self.span(right, Role::Warning)] };
            draw(&self.rule(vec![self.span(text, Role::Dim)], right, area.width, Role::Dim), &mut y, buf);
        } else {
            y += 1;
        }
        footer.iter().for_each(|line| draw(line, &mut y, buf));
        None
    }

    /// The line above a request.
    pub(super) fn request_rule(&self, request: &Request, columns: u16) -> Line<'static> {
        let count = self.own_requests().len();
        let of = if count > 1 { format!("  1 of {count}") } else { String::new() };
        let text = format!("! {} asks: {}{of}", self.requesting_agent(), self.summary_of(request));
        let mut parts = Vec::new();
        if let (Subject::Permission(permission), false) = (&request.subject, self.is_narrow()) {
            parts.extend(permission.details.counts.map(|(added, removed)| format!("+{added} -{removed}")));
        }
        if self.answered_here.contains_key(&request.id) {
            parts = vec![SENDING_ANSWER.to_owned()];
        } else if let Some(opened) = request.opened.filter(|_| !self.is_narrow()) {
            parts.push(format!("waits {}", clock(seconds_between(opened, self.look.now))));
        }
        let text_right = parts.join(&format!(" {} ", self.mark(Mark::Dot)));
        let right =
            if text_right.is_empty() { Vec::new() } else { vec![self.span(text_right, Role::Warning)] };
        self.rule(vec![self.span(text, Role::Warning)], right, columns, Role::Warning)
    }

    /// The headline of a request; on narrow screens without the kind.
    pub(super) fn summary_of(&self, request: &Request) -> String {
        if self.is_narrow() { request.short_summary() } else { request.summary() }
    }

    /// Everything that a request would permit.
    pub(super) fn request_lines(&self, request: &Request, columns: u16) -> Vec<Line<'static>> {
        match &request.subject {
            Subject::Permission(permission) => self.permission_lines(permission, &request.cwd, columns),
            Subject::Form(form) => self.wrapped(form.message(), columns, Role::Text),
            Subject::Unknown(text) => self.wrapped(text.as_str(), columns, Role::Text),
        }
    }

    pub(super) fn wrapped(&self, text: &str, columns: u16, role: Role) -> Vec<Line<'static>> {
        let lead = usize::from(margin(columns)) * 3;
        let rows = Clean::lines(text)
            .into_iter()
            .flat_map(|line| wrap(line.as_str(), usize::from(columns).saturating_sub(lead)));
        rows.map(|row| Line::from(vec![Span::raw(" ".repeat(lead)), self.span(row, role)])).collect()
    }

    fn permission_lines(&self, permission: &Permission, cwd: &str, columns: u16) -> Vec<Line<'static>> {
        let lead = if margin(columns) == 0 { 0 } else { 3 };
        let transcript = Transcript::default();
        let context = EntryContext {
            theme: &self.look.theme,
            transcript: &transcript,
            number: None,
            times: EntryTimes::default(),
            now: self.look.now,
            zone: &self.look.zone,
            cwd,
            home: self.look.home.as_deref(),
            matches: &[],
            needs_answer: true,
        };
        let lines = permission.details.lines(&context, columns.saturating_sub(lead));
        let indent = " ".repeat(usize::from(lead));
        let indented = lines.into_iter().map(|mut line| {
            line.spans.insert(0, Span::raw(indent.clone()));
            line
        });
        indented.collect()
    }

    /// Everything that a request says, as plain text for a pager.
    pub(in crate::app) fn request_text(&self, request: &Request) -> String {
        let lines = self.request_lines(request, PAGER_COLUMNS);
        let text =
            |line: &Line<'static>| line.spans.iter().map(|span| span.content.as_ref()).collect::<String>();
        let mut all = format!("{} asks: {}\n\n", request.agent, request.summary());
        for line in &lines {
            all.push_str(text(line).trim_end());
            all.push('\n');
        }
        all
    }

    /// The options of a request, and a warning about hidden characters.
    fn option_lines(&self, request: &Request, columns: u16) -> Vec<Line<'static>> {
        let lead = if margin(columns) == 0 { "" } else { "   " };
        let ellipsis = self.mark(Mark::Ellipsis);
        let mut lines = Vec::new();
        let Subject::Permission(permission) = &request.subject else { return lines };
        lines.extend(self.options_below(permission, columns, true));
        if permission.options.is_empty() {
            lines.push(Line::from(vec![self.span(format!("{lead}The agent offers no options."), Role::Dim)]));
        }
        if let Some(warning) = permission.details.warning() {
            let text = format!("{lead}! {warning}");
            lines.push(Line::default());
            lines
                .push(Line::from(vec![self.span(cut(&text, usize::from(columns), ellipsis), Role::Warning)]));
        }
        lines
    }

    /// The options of a permission below each other. Their texts are never cut: they say what is permitted.
    /// After a rejection in place of the input the person can write, which the inbox does not offer.
    pub(super) fn options_below(
        &self,
        permission: &Permission,
        columns: u16,
        has_input: bool,
    ) -> Vec<Line<'static>> {
        const INSTEAD: &str = ", then write what to do instead";
        let lead = if margin(columns) == 0 { "" } else { "   " };
        let mut lines = Vec::new();
        for (index, option) in permission.options.iter().enumerate() {
            let number = if index < 9 { (index + 1).to_string() } else { " ".to_owned() };
            let key = self.option_key(permission, option).unwrap_or_else(|| " ".to_owned());
            let mark = format!("{number} {key}  ");
            let room = usize::from(columns).saturating_sub(width(lead) + width(&mark)).max(1);
            let rows = wrap(Clean::line(&option.name).as_str(), room);
            let last = rows.len() - 1;
            for (row, text) in rows.into_iter().enumerate() {
                let is_rejection = option.kind == parlor_client::PermissionOptionKind::RejectOnce;
                let has_room = width(&text) + width(INSTEAD) <= room;
                let mark = if row == 0 { mark.clone() } else { " ".repeat(width(&mark)) };
                let mut spans = vec![Span::raw(lead), self.span(mark, Role::Accent), Span::raw(text)];
                if is_rejection && has_input && row == last && has_room {
                    spans.push(self.span(INSTEAD, Role::Dim));
                }
                lines.push(Line::from(spans));
            }
        }
        lines
    }
}
