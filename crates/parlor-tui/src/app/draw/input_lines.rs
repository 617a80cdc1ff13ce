//! The lines above the input: what the turn does, queued prompts, completions and a lost connection.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::app::actions::SelectedKind;
use crate::app::{App, Focus, Link};
use crate::clean::Clean;
use crate::conversation::margin;
use crate::keys::{Action, Place};
use crate::sessions::RowState;
use crate::text::{cut, pad, width};
use crate::theme::{Mark, Role};
use crate::time::{clock, of_day, seconds_between};

/// After this time without output the turn line says so.
const SILENCE: u64 = 30;

impl App {
    /// What is possible with the selected entry.
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
            .map(|(action, text)| format!("{} {text}", self.keys.label(Place::Messages, *action)));
        let lead = " ".repeat(usize::from(margin(columns)));
        let text = format!("{lead}{number}{}", hints.collect::<Vec<_>>().join("  "));
        Some(Line::from(vec![
            self.span(cut(&text, usize::from(columns), self.mark(Mark::Ellipsis)), Role::Accent),
        ]))
    }

    /// What the agent is doing, or what it waits for.
    pub(in crate::app) fn turn_line(&self, columns: u16) -> Line<'static> {
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
            let text = format!("! {} asks: {}", self.requesting_agent(), self.summary_of(request));
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
    pub(super) fn offline_lines(&self, columns: u16) -> Vec<Line<'static>> {
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

    pub(super) fn completion_lines(&self, columns: u16) -> Vec<Line<'static>> {
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

    /// The name of the agent whose request is shown.
    pub(super) fn requesting_agent(&self) -> String {
        let request = self.shown_request().map(|request| request.agent.to_string());
        request.filter(|agent| !agent.is_empty()).unwrap_or_else(|| self.agent_name().to_string())
    }
}
