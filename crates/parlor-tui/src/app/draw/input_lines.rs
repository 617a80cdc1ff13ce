//! The lines around the input: what can be done with an entry, queued prompts, completions and a lost connection.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::app::actions::SelectedKind;
use crate::app::{App, CompletionItem, Focus, Link};
use crate::clean::Clean;
use crate::conversation::margin;
use crate::keys::{Action, KeyContext};
use crate::text::{cut, cut_path, pad};
use crate::theme::{Mark, Role};

impl App {
    /// The keys for the selected entry.
    pub(super) fn action_line(&self, columns: u16) -> Option<Line<'static>> {
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
            .map(|(action, text)| format!("{} {text}", self.keys.label(KeyContext::Messages, *action)));
        let lead = " ".repeat(usize::from(margin(columns)));
        let text = format!("{lead}{number}{}", hints.collect::<Vec<_>>().join("  "));
        Some(Line::from(vec![
            self.span(cut(&text, usize::from(columns), self.mark(Mark::Ellipsis)), Role::Accent),
        ]))
    }

    pub(super) fn queue_lines(&self, columns: u16) -> Vec<Line<'static>> {
        let queue = self.queue();
        let lead = if self.is_narrow() { "" } else { "   " };
        let count = queue.len();
        let shown = queue
            .into_iter()
            .enumerate()
            .filter(|(index, _)| self.queued_cursor.map_or(*index < 2, |cursor| index.abs_diff(cursor) < 2));
        let line = |(index, prompt): (usize, crate::app::QueuedPrompt)| {
            let is_selected = self.queued_cursor == Some(index);
            let mark = if is_selected { self.mark(Mark::Prompt) } else { " " };
            let lead = if lead.is_empty() { String::new() } else { format!(" {mark} ") };
            let label = if index == 0 || is_selected {
                format!("queued {}  ", if is_selected { index + 1 } else { count })
            } else {
                "          ".to_owned()
            };
            let text = Clean::line(prompt.text.lines().next().unwrap_or_default());
            let keys = "e edit  w withdraw  s send now";
            let hint = match (is_selected, index == 0) {
                (true, _) if self.is_narrow() => String::new(),
                (true, _) => keys.to_owned(),
                (false, true) if !self.is_narrow() => format!("{} selects", self.mark(Mark::Up)),
                (false, _) => String::new(),
            };
            let role = if is_selected { Role::Accent } else { Role::Dim };
            let left =
                vec![self.span(lead, Role::Accent), self.span(label, role), Span::raw(text.to_string())];
            let mut lines = vec![self.spread(left, vec![self.span(hint, role)], columns)];
            if is_selected && self.is_narrow() {
                lines.push(Line::from(self.span(keys, role)));
            }
            lines
        };
        shown.flat_map(line).collect()
    }

    /// The address of the server and how to start it, while there is no connection.
    pub(super) fn offline_lines(&self, columns: u16) -> Vec<Line<'static>> {
        let Link::Retrying { server, reason, is_down, .. } = &self.link else { return Vec::new() };
        let lead = if self.is_narrow() { "" } else { "   " };
        let first = format!("{lead}{server}  {reason}");
        let advice = match (is_down, &self.serve) {
            (false, _) => "The turn goes on if the server runs.".to_owned(),
            (true, Some(serve)) => format!("`{}` starts the server.", Clean::line(serve)),
            (true, None) => "`parlor serve` on that machine starts the server.".to_owned(),
        };
        let second = format!("{lead}{advice} What you write is kept.");
        let line = |text: String| {
            Line::from(vec![
                self.span(cut(&text, usize::from(columns), self.mark(Mark::Ellipsis)), Role::Dim),
            ])
        };
        vec![line(first), line(second)]
    }

    pub(super) fn completion_lines(&self, columns: u16) -> Vec<Line<'static>> {
        let Some(completion) = &self.completion else { return Vec::new() };
        let first = (completion.cursor + 1).saturating_sub(6);
        let shown: Vec<_> = completion.items.iter().enumerate().skip(first).take(6).collect();
        let last = shown.len();
        let name = |item: &CompletionItem| {
            let insert = item.insert.strip_prefix('@').unwrap_or(&item.insert);
            let hint = match item.hint.as_str() {
                "" => String::new(),
                hint if hint.starts_with(['[', '<']) => format!(" {hint}"),
                hint => format!(" [{hint}]"),
            };
            Clean::line(&format!("{insert}{hint}"))
        };
        let names = shown.iter().map(|(_, item)| name(item).width()).max().unwrap_or(0);
        let names = names.min(usize::from(columns) / 2).max(usize::from(columns / 4)).min(64);
        let lines = shown.into_iter().enumerate().map(|(row, (index, item))| {
            let is_current = index == completion.cursor;
            let style = if is_current { self.style(Role::Selected) } else { Style::new() };
            let is_file = item.about.as_str().is_empty();
            let columns_of_name = if is_file { usize::from(columns).saturating_sub(18) } else { names };
            let cut_name = if is_file {
                cut_path(name(item).as_str(), columns_of_name, self.mark(Mark::Ellipsis))
            } else {
                pad(name(item).as_str(), columns_of_name, self.mark(Mark::Ellipsis))
            };
            let about = if is_file { String::new() } else { format!("  {}", item.about) };
            let left = vec![Span::raw("     "), Span::styled(cut_name, style), self.span(about, Role::Dim)];
            let count = format!("{} of {}", completion.cursor + 1, completion.total);
            let right = if row + 1 == last { vec![self.span(count, Role::Dim)] } else { Vec::new() };
            self.spread(left, right, columns)
        });
        lines.collect()
    }
}
