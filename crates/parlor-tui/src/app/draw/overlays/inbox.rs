//! Draws the inbox.

use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::Drawn;
use crate::app::App;
use crate::app::draw::Hint;
use crate::app::draw::panels::SENDING_ANSWER;
use crate::clean::Clean;
use crate::keys::{Action, KeyContext};
use crate::overlay::InboxView;
use crate::request::{Permission, Subject};
use crate::text::{count, cut, pad};
use crate::theme::{Mark, Role};
use crate::time::{moment, seconds_between, waiting};

impl App {
    pub(super) fn inbox_hints(&self) -> Vec<Hint> {
        let key = |action| self.keys.label(KeyContext::Inbox, action);
        vec![
            (format!("{} {}", key(Action::Next), key(Action::Previous)), "move"),
            (
                format!("1-9 or {} {} {}", key(Action::Allow), key(Action::AllowAlways), key(Action::Reject)),
                "answer",
            ),
            (key(Action::Open), "open session"),
            (key(Action::View), "view all"),
            ("Esc".to_owned(), "close"),
        ]
    }

    pub(super) fn inbox_lines(&self, inbox: &mut InboxView, area: Rect) -> Drawn {
        let columns = area.width;
        let now = self.look.now;
        let dot = self.mark(Mark::Dot);
        let open = self.requests.len();
        let ellipsis = self.mark(Mark::Ellipsis);
        let verb = if open == 1 { "waits" } else { "wait" };
        let right =
            if open == 0 { String::new() } else { format!("{} {verb} for you", count(open, "request")) };
        let mut lines = vec![
            self.spread(vec![self.bold(" Inbox")], vec![self.span(right, Role::Warning)], columns),
            Line::default(),
        ];
        if open == 0 {
            lines.push(Line::raw("   Nothing waits for you."));
        }
        let head = lines.len();
        let mut selected = 0..0;
        let mut items = vec![None; head];
        for (index, request) in self.requests.iter().rev().enumerate() {
            let first = lines.len();
            let is_current = inbox.selected() == Some(&request.id);
            let pointer = if is_current { self.mark(Mark::Prompt) } else { " " };
            let about = format!("  {} {dot} {}", request.agent, self.look.short_path(&request.cwd));
            let left = vec![
                self.span(pointer, Role::Accent),
                self.span("! ", Role::Warning),
                self.bold(request.session_title.to_string()),
                self.span(about, Role::Dim),
            ];
            let waits = if self.answered_here.contains_key(&request.id) {
                SENDING_ANSWER.to_owned()
            } else {
                request.opened.map(|opened| waiting(seconds_between(opened, now))).unwrap_or_default()
            };
            lines.push(self.spread(left, vec![self.span(waits, Role::Dim)], columns));
            // The unfolded request has the command and the paths below.
            let summary = match &request.subject {
                Subject::Permission(_) if is_current => Clean::line(&request.summary()),
                Subject::Permission(_) | Subject::Form(_) | Subject::Unknown(_) => request.details(),
            };
            let details = format!("   {summary}");
            lines.push(Line::raw(cut(&details, usize::from(columns), ellipsis)));
            if is_current && let Subject::Permission(permission) = &request.subject {
                let all = self.request_lines(request, columns);
                // Others keep two lines each.
                let options = self.inbox_options(permission, columns);
                let others = 3 * (open - 1) + 4;
                // The options stay on the screen, whatever the request permits.
                let most = usize::from(area.height).saturating_sub(head + 3 + options.len()).max(1);
                let room = most.saturating_sub(others).max(most.min(4));
                inbox.scroll = inbox.scroll.min(all.len().saturating_sub(room));
                let below = all.len().saturating_sub(inbox.scroll + room);
                lines.extend(all.into_iter().skip(inbox.scroll).take(room));
                if below > 0 {
                    lines.push(Line::from(vec![
                        self.span(format!("     {ellipsis} {}", count(below, "more line")), Role::Dim),
                    ]));
                }
                lines.extend(options);
            }
            if is_current {
                selected = first..lines.len();
            }
            items.resize(lines.len(), Some(index));
            lines.push(Line::default());
            items.push(None);
        }
        if !self.answered.is_empty() {
            lines.push(Line::default());
            lines.push(Line::from(vec![self.bold(" Answered")]));
            for answered in &self.answered {
                let (mark, role) = match answered.outcome.is_rejection {
                    Some(true) => (self.mark(Mark::Failed), Role::Error),
                    Some(false) => (self.mark(Mark::Completed), Role::Added),
                    None => (" ", Role::Dim),
                };
                let left = vec![
                    self.span(format!("   {mark} "), role),
                    Span::raw(pad(answered.title.as_str(), 22, ellipsis)),
                    Span::raw(format!(" {}", pad(answered.details.as_str(), 24, ellipsis))),
                    self.span(format!(" {}", answered.outcome.text), Role::Dim),
                ];
                let at = moment(answered.at, now, &self.look.zone);
                lines.push(self.spread(left, vec![self.span(at, Role::Dim)], columns));
            }
        }
        // The selected request stays on the screen.
        let below = selected.end.saturating_sub(usize::from(area.height));
        let above = head..head + below.min(selected.start.saturating_sub(head));
        lines.drain(above.clone());
        items.drain(above);
        Drawn { lines, cursor: None, items }
    }

    /// The options of a request in one line, if all of them fit, else below each other.
    fn inbox_options(&self, permission: &Permission, columns: u16) -> Vec<Line<'static>> {
        let mut options = vec![Span::raw("   ")];
        for (index, option) in permission.options.iter().enumerate() {
            let key = self.option_key(permission, option).unwrap_or_default();
            options.push(self.span(format!("{} {key}", index + 1), Role::Accent));
            options.push(Span::raw(format!("  {}   ", Clean::line(&option.name))));
        }
        let used: usize = options.iter().map(Span::width).sum();
        if used <= usize::from(columns) + 3 {
            return vec![Line::from(options)];
        }
        self.options_below(permission, columns, false)
    }
}
