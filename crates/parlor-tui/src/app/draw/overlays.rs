//! Draws what lies over the panes.

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::{App, Hint, age_of, state_mark};
use crate::clean::Clean;
use crate::field::TextField;
use crate::keys::{Action, KeyContext};
use crate::overlay::{ForkTree, HelpView, InboxView, Overlay, Picker, Scope, Search};
use crate::request::{Permission, Subject};
use crate::sessions::ListLine;
use crate::text::{count, cut, pad, width, wrap};
use crate::theme::{Mark, Role};
use crate::time::{age, moment, seconds_between, waiting};

/// From this width on the help has two columns.
const WIDE_HELP: u16 = 110;

/// The lines of a drawn overlay: what is above the status line, and where the cursor is.
type Drawn = (Vec<Line<'static>>, Option<(usize, usize)>);

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
        let ((lines, cursor), hints) = match full {
            Some(Overlay::Picker(picker)) => (self.picker_lines(picker, body), self.picker_hints(picker)),
            Some(Overlay::Inbox(inbox)) => (self.inbox_lines(inbox, body), self.inbox_hints()),
            Some(Overlay::Search(search)) => (self.search_lines(search, body), self.search_hints()),
            Some(Overlay::Forks(forks)) => (self.fork_lines(forks, body), self.fork_hints()),
            Some(Overlay::Help(help)) => (self.help_lines(help, body), Self::help_hints()),
            Some(Overlay::Ask(_)) | None => ((Vec::new(), None), Vec::new()),
        };
        self.overlays = overlays;
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
                let label = format!(" {}: ", ask.title);
                let before = width(&label) + width(Clean::line(ask.text.before_cursor()).as_str());
                position =
                    Some(Position::new(u16::try_from(before).unwrap_or(0).min(area.width - 1), status.y));
                Line::from(vec![
                    self.span(label, Role::Accent),
                    Span::raw(Clean::line(ask.text.text()).to_string()),
                ])
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
    fn query_line(&self, query: &TextField) -> (Line<'static>, usize) {
        let text = Clean::line(query.text()).to_string();
        let line = Line::from(vec![
            self.span(format!(" {} ", self.mark(Mark::Prompt)), Role::Accent),
            Span::raw(text),
        ]);
        (line, 3 + width(Clean::line(query.before_cursor()).as_str()))
    }

    // Pickers.

    fn picker_hints(&self, picker: &Picker) -> Vec<Hint> {
        let open = self.keys.label(KeyContext::List, Action::Open);
        let mut hints = vec![(self.arrows(), "move")];
        if picker.is_options {
            hints.insert(0, ("type".to_owned(), "to filter"));
            hints.push((open, "set"));
            hints.push((format!("{} {}", self.mark(Mark::Left), self.mark(Mark::Right)), "change value"));
        } else {
            hints.push((open, if picker.title == "Open a session" { "open" } else { "choose" }));
        }
        hints.push(("Esc".to_owned(), "close"));
        hints
    }

    fn picker_lines(&self, picker: &Picker, area: Rect) -> Drawn {
        let columns = area.width;
        let shown = picker.shown.iter().filter(|(index, _)| {
            !matches!(picker.items[*index].choice, crate::overlay::Choice::NewSession(_))
        });
        let right = if picker.is_options
            || picker.subtitle.as_str().parse::<usize>().is_err() && !picker.subtitle.as_str().is_empty()
        {
            picker.subtitle.to_string()
        } else {
            let all = picker
                .items
                .iter()
                .filter(|item| !matches!(item.choice, crate::overlay::Choice::NewSession(_)));
            format!("{} of {}", shown.count(), all.count())
        };
        let mut lines = vec![self.spread(
            vec![self.bold(format!(" {}", picker.title))],
            vec![self.span(right, Role::Dim)],
            columns,
        )];
        let (query, column) = self.query_line(&picker.query);
        lines.push(query);
        lines.push(Line::default());
        let names = picker.items.iter().map(|item| width(item.name.as_str())).max().unwrap_or(0);
        let names = names.min(usize::from(columns) * 2 / 5).max(12);
        let mut rows: Vec<Line<'static>> = Vec::new();
        let mut cursor_row = 0;
        let is_filtered = !picker.query.text().trim().is_empty();
        for (row, (index, matches)) in picker.shown.iter().enumerate() {
            let item = &picker.items[*index];
            if let Some(section) = item.section.filter(|_| !is_filtered) {
                if !rows.is_empty() {
                    rows.push(Line::default());
                }
                rows.push(Line::from(vec![self.bold(format!(" {section}"))]));
            }
            let is_current = row == picker.cursor;
            if is_current {
                cursor_row = rows.len();
            }
            let pointer = if is_current { self.mark(Mark::Prompt) } else { " " };
            let (mark, role) = item.mark.map_or((" ", Role::Text), |(mark, role)| (self.mark(mark), role));
            let indent = if picker.is_options { "  " } else { "" };
            let mut left = vec![
                self.span(pointer, Role::Accent),
                Span::raw(indent),
                self.span(format!("{mark} "), role),
            ];
            let is_alone = item.about.as_str().is_empty();
            let right_room = width(item.right.as_str()) + 1;
            let lead = 3 + width(indent);
            let room = if is_alone { usize::from(columns).saturating_sub(lead + right_room) } else { names };
            left.extend(self.marked(&pad(item.name.as_str(), room, self.mark(Mark::Ellipsis)), matches));
            if !is_alone {
                left.push(self.span(format!("  {}", item.about), Role::Dim));
            }
            rows.push(self.spread(left, vec![self.span(item.right.to_string(), Role::Dim)], columns));
        }
        if rows.is_empty() {
            rows.push(Line::from(vec![self.span("   Nothing fits", Role::Dim)]));
        }
        let footer = picker.footer.len() + usize::from(!picker.footer.is_empty());
        let room = usize::from(area.height).saturating_sub(lines.len() + footer);
        let first = (cursor_row + 1).saturating_sub(room);
        lines.extend(rows.into_iter().skip(first).take(room));
        if !picker.footer.is_empty() {
            lines.resize(usize::from(area.height) - footer, Line::default());
            lines.push(self.rule(vec![self.span("Session", Role::Dim)], Vec::new(), columns, Role::Dim));
            for line in &picker.footer {
                lines.push(Line::from(vec![
                    self.span(cut(&format!("   {line}"), usize::from(columns), "…"), Role::Dim),
                ]));
            }
        }
        (lines, Some((1, column)))
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

    // The inbox.

    fn inbox_hints(&self) -> Vec<Hint> {
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

    fn inbox_lines(&self, inbox: &mut InboxView, area: Rect) -> Drawn {
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
        for request in self.requests.iter().rev() {
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
            let waits =
                request.opened.map(|opened| waiting(seconds_between(opened, now))).unwrap_or_default();
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
            lines.push(Line::default());
        }
        if !self.answered.is_empty() {
            lines.push(Line::default());
            lines.push(Line::from(vec![self.bold(" Answered")]));
            for answered in &self.answered {
                let mark = if answered.role == Role::Error { Mark::Failed } else { Mark::Completed };
                let left = vec![
                    self.span(format!("   {} ", self.mark(mark)), answered.role),
                    Span::raw(pad(answered.title.as_str(), 22, ellipsis)),
                    Span::raw(format!(" {}", pad(answered.details.as_str(), 24, ellipsis))),
                    self.span(format!(" {}", answered.outcome), Role::Dim),
                ];
                let at = moment(answered.at, now, &self.look.zone);
                lines.push(self.spread(left, vec![self.span(at, Role::Dim)], columns));
            }
        }
        // The selected request stays on the screen.
        let below = selected.end.saturating_sub(usize::from(area.height));
        lines.drain(head..head + below.min(selected.start.saturating_sub(head)));
        (lines, None)
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
        self.options_below(permission, columns)
    }

    // The search.

    fn search_hints(&self) -> Vec<Hint> {
        vec![
            (self.arrows(), "move"),
            (self.keys.label(KeyContext::List, Action::Open), "open at the message"),
            (self.keys.label(KeyContext::List, Action::Scope), "where to search"),
            ("Esc".to_owned(), "close"),
        ]
    }

    fn search_lines(&self, search: &Search, area: Rect) -> Drawn {
        let columns = area.width;
        let now = self.look.now;
        let ellipsis = self.mark(Mark::Ellipsis);
        let mut head = vec![self.bold(" Search")];
        for (scope, name) in
            [(Scope::All, "all sessions"), (Scope::Directory, "directory"), (Scope::Session, "this session")]
        {
            let style = if scope == search.scope {
                Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED)
            } else {
                self.style(Role::Dim)
            };
            head.push(Span::raw("  "));
            head.push(Span::styled(name, style));
        }
        let mut sessions: Vec<_> = search.hits.iter().map(|hit| hit.session.clone()).collect();
        sessions.sort_by_key(ToString::to_string);
        sessions.dedup();
        let found = match (&search.problem, search.is_answered) {
            (Some(_), _) | (None, false) => String::new(),
            (None, true) if search.hits.is_empty() => "no hits".to_owned(),
            (None, true) => {
                let (hits, sessions) = (count(search.hits.len(), "hit"), count(sessions.len(), "session"));
                format!("{hits} in {sessions}  {} ms", search.millis)
            }
        };
        let mut lines = vec![self.spread(head, vec![self.span(found, Role::Dim)], columns)];
        let (query, column) = self.query_line(&search.query);
        lines.push(query);
        lines.push(Line::default());
        if let Some(problem) = &search.problem {
            lines.push(Line::from(vec![
                self.span(cut(&format!("   {problem}"), usize::from(columns), ellipsis), Role::Error),
            ]));
        }
        let preview = usize::from(area.height) / 3;
        let room = usize::from(area.height).saturating_sub(lines.len() + preview + 2);
        let mut rows = Vec::new();
        let mut cursor_row = 0;
        let mut last = None;
        for (index, hit) in search.hits.iter().enumerate() {
            if last != Some(&hit.session) {
                let of_session =
                    search.hits[index..].iter().take_while(|other| other.session == hit.session).count();
                let left = vec![
                    self.bold(format!("  {}", hit.title)),
                    self.span(
                        format!(
                            "  {} {} {}",
                            hit.agent,
                            self.mark(Mark::Dot),
                            self.look.short_path(&hit.cwd)
                        ),
                        Role::Dim,
                    ),
                ];
                rows.push(self.spread(left, vec![self.span(count(of_session, "hit"), Role::Dim)], columns));
                last = Some(&hit.session);
            }
            let is_current = index == search.cursor;
            if is_current {
                cursor_row = rows.len();
            }
            let pointer = if is_current { self.mark(Mark::Prompt) } else { " " };
            let mut left = vec![
                self.span(format!("{pointer}   "), Role::Accent),
                self.span(pad(hit.role.as_str(), 8, ellipsis), Role::Dim),
            ];
            left.extend(self.snippet_spans(hit));
            let at = hit.at.map(|at| age(seconds_between(at, now))).unwrap_or_default();
            rows.push(self.spread(left, vec![self.span(at, Role::Dim)], columns));
        }
        let first = (cursor_row + 2).saturating_sub(room);
        lines.extend(rows.into_iter().skip(first).take(room));
        lines.resize(usize::from(area.height).saturating_sub(preview + 1), Line::default());
        if let Some(hit) = search.hits.get(search.cursor) {
            let at = hit.at.map(|at| format!(", {}", moment(at, now, &self.look.zone))).unwrap_or_default();
            let text = format!("{} in {}{at}", hit.role, hit.title);
            lines.push(self.rule(vec![self.span(text, Role::Dim)], Vec::new(), columns, Role::Dim));
            for row in
                wrap(hit.snippet.as_str(), usize::from(columns).saturating_sub(6)).into_iter().take(preview)
            {
                let spans = self.words_marked(&row, &search.words());
                let mut line = vec![Span::raw("   ")];
                line.extend(spans);
                lines.push(Line::from(line));
            }
        } else {
            lines.push(Line::default());
            let text = " \"two words\" together   begin*   -without   role: agent: cwd: since:7d";
            lines.push(Line::from(vec![self.span(cut(text, usize::from(columns), ellipsis), Role::Dim)]));
        }
        (lines, Some((1, column)))
    }

    fn snippet_spans(&self, hit: &crate::event::Hit) -> Vec<Span<'static>> {
        let matches: Vec<usize> = hit.matches.iter().flat_map(|(start, end)| *start..*end).collect();
        self.marked(hit.snippet.as_str(), &matches)
    }

    /// A text in which words are marked as matches.
    fn words_marked(&self, text: &str, words: &[String]) -> Vec<Span<'static>> {
        let lower = text.to_lowercase();
        let mut matches = Vec::new();
        // Lower case may have other lengths: then nothing is marked.
        if lower.chars().count() == text.chars().count() {
            for word in words {
                for (offset, found) in lower.match_indices(word.as_str()) {
                    let start = lower[..offset].chars().count();
                    matches.extend(start..start + found.chars().count());
                }
            }
        }
        matches.sort_unstable();
        self.marked(text, &matches)
    }

    // The fork tree.

    fn fork_hints(&self) -> Vec<Hint> {
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

    fn fork_lines(&self, forks: &ForkTree, area: Rect) -> Drawn {
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

    // The help.

    fn help_hints() -> Vec<Hint> {
        vec![("j k".to_owned(), "scroll"), ("/".to_owned(), "find a key"), ("Esc".to_owned(), "close")]
    }

    fn help_lines(&self, help: &mut HelpView, area: Rect) -> Drawn {
        let rows = self.keys.help();
        let query = help.query.as_ref().map(|query| query.text().to_lowercase()).unwrap_or_default();
        let section = |context: KeyContext| -> Vec<Line<'static>> {
            let fits = |row: &&crate::keys::HelpRow| {
                let text = format!("{} {}", row.keys, row.text).to_lowercase();
                row.context == context && (query.is_empty() || text.contains(&query))
            };
            let found: Vec<_> = rows.iter().filter(fits).collect();
            if found.is_empty() {
                return Vec::new();
            }
            let mut lines = vec![Line::from(vec![self.bold(format!(" {}", context.title()))])];
            for row in found {
                lines.push(Line::from(vec![
                    self.span(format!("   {}", pad(&row.keys, 17, "")), Role::Accent),
                    Span::raw(format!(" {}", row.text)),
                ]));
            }
            lines
        };
        let mut lines = Vec::new();
        if area.width >= WIDE_HELP && query.is_empty() {
            const LEFT: [KeyContext; 5] = [
                KeyContext::Anywhere,
                KeyContext::Panes,
                KeyContext::Input,
                KeyContext::Sessions,
                KeyContext::Inbox,
            ];
            let left: Vec<_> = LEFT.into_iter().flat_map(section).collect();
            let right: Vec<_> =
                [KeyContext::Messages, KeyContext::Request, KeyContext::Form, KeyContext::List]
                    .into_iter()
                    .flat_map(section)
                    .collect();
            let half = usize::from(area.width) / 2;
            for index in 0..left.len().max(right.len()) {
                let mut spans = left.get(index).map(|line| line.spans.clone()).unwrap_or_default();
                let used: usize = spans.iter().map(Span::width).sum();
                spans.push(Span::raw(" ".repeat(half.saturating_sub(used))));
                spans.extend(right.get(index).map(|line| line.spans.clone()).unwrap_or_default());
                lines.push(Line::from(spans));
            }
        } else {
            // The section of the pane that had the focus comes first.
            let others = KeyContext::ALL.into_iter().filter(|context| *context != help.context);
            lines.extend([help.context].into_iter().chain(others).flat_map(section));
        }
        let room = usize::from(area.height) - usize::from(help.query.is_some());
        help.scroll = help.scroll.min(lines.len().saturating_sub(room));
        let mut shown: Vec<_> = lines.into_iter().skip(help.scroll).take(room).collect();
        let mut cursor = None;
        if let Some(query) = &help.query {
            let (line, column) = self.query_line(query);
            shown.insert(0, line);
            cursor = Some((0, column));
        }
        (shown, cursor)
    }
}
