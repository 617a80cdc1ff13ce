//! Draws the search.

use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::Drawn;
use crate::app::App;
use crate::app::draw::Hint;
use crate::keys::{Action, KeyContext};
use crate::overlay::{Scope, Search};
use crate::shell::MAX_HITS;
use crate::text::{count, cut, pad, wrap};
use crate::theme::{Mark, Role};
use crate::time::{age, moment, seconds_between};

impl App {
    pub(super) fn search_hints(&self) -> Vec<Hint> {
        // The first ones stay where there is little room.
        let (open, scope) =
            if self.is_narrow() { ("open", "scope") } else { ("open at the message", "where to search") };
        vec![
            (self.keys.label(KeyContext::List, Action::Open), open),
            (self.keys.label(KeyContext::List, Action::Scope), scope),
            (self.arrows(), "move"),
            ("Esc".to_owned(), "close"),
        ]
    }

    pub(super) fn search_lines(&self, search: &Search, area: Rect) -> Drawn {
        let columns = area.width;
        let now = self.look.now;
        let ellipsis = self.mark(Mark::Ellipsis);
        let mut lines = self.search_head(search, columns);
        let query_row = lines.len();
        let (query, column) = self.query_line(&search.query, columns);
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
                let right = vec![self.span(count(of_session, "hit"), Role::Dim)];
                rows.push((None, self.spread(left, right, columns)));
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
            rows.push((Some(index), self.spread(left, vec![self.span(at, Role::Dim)], columns)));
        }
        let first = (cursor_row + 2).saturating_sub(room);
        let mut items = vec![None; lines.len()];
        for (item, line) in rows.into_iter().skip(first).take(room) {
            items.push(item);
            lines.push(line);
        }
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
        Drawn { lines, cursor: Some((query_row, column)), items }
    }

    /// The scopes, and the number of hits.
    fn search_head(&self, search: &Search, columns: u16) -> Vec<Line<'static>> {
        let mut scopes = Vec::new();
        for (scope, name) in
            [(Scope::All, "all sessions"), (Scope::Directory, "directory"), (Scope::Session, "this session")]
        {
            let style = if scope == search.scope {
                Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED)
            } else {
                self.style(Role::Dim)
            };
            scopes.push(Span::raw("  "));
            scopes.push(Span::styled(name, style));
        }
        let mut sessions: Vec<_> = search.hits.iter().map(|hit| hit.session.clone()).collect();
        sessions.sort_by_key(ToString::to_string);
        sessions.dedup();
        let found = match (&search.problem, search.is_answered) {
            (Some(_), _) | (None, false) => String::new(),
            (None, true) if search.hits.is_empty() => "no hits".to_owned(),
            (None, true) => {
                // The server returns only the best ones.
                let best = if search.hits.len() >= MAX_HITS { "the best " } else { "" };
                let (hits, sessions) = (count(search.hits.len(), "hit"), count(sessions.len(), "session"));
                let millis = if self.is_narrow() { String::new() } else { format!("  {} ms", search.millis) };
                format!("{best}{hits} in {sessions}{millis}")
            }
        };
        let found = vec![self.span(found, Role::Dim)];
        let mut head = vec![self.bold(" Search")];
        if self.is_narrow() {
            vec![self.spread(head, found, columns), self.spread(scopes, Vec::new(), columns)]
        } else {
            head.extend(scopes);
            vec![self.spread(head, found, columns)]
        }
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
}
