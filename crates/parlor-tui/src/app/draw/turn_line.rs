//! The line above the input: what the turn does or waits for, how the last one ended, or what is wrong.

use ratatui::text::{Line, Span};

use crate::app::{App, Focus, Link};
use crate::clean::Clean;
use crate::conversation::Conversation;
use crate::keys::{Action, KeyContext};
use crate::sessions::RowState;
use crate::theme::{Mark, Role};
use crate::time::{clock, moment, seconds_between, with_seconds};

/// After this time without output the line says so.
const SILENCE: u64 = 30;

impl App {
    /// The line above the input: the activity of the agent, or the person that it waits for.
    pub(in crate::app) fn turn_line(&self, columns: u16) -> Line<'static> {
        if let Some((text, right)) = self.problem() {
            let text = format!("{} {text}", self.mark(Mark::Failed));
            return self.turn_rule((text, Role::Error), (right, Role::Error), columns, Role::Error);
        }
        let Some(conversation) = &self.conversation else {
            let text = format!("New session in {}", self.look.short_path(&self.new_cwd));
            let agent = self.agent.clone().or_else(|| self.default_agent());
            let agent = agent.unwrap_or_else(|| "choose an agent".to_owned());
            let right = format!("{}{}Tab agent", Clean::line(&agent), self.dot());
            return self.turn_rule((text, Role::Text), (right, Role::Dim), columns, Role::Dim);
        };
        if let Some(forking) = &self.forking {
            let time = clock(seconds_between(forking.since, self.look.now));
            let text = format!("{} Opening the fork  {time}", self.mark(Mark::Running));
            let right = format!("{} stays here", self.keys.label(KeyContext::Anywhere, Action::Escape));
            return self.turn_rule((text, Role::Accent), (right, Role::Dim), columns, Role::Dim);
        }
        if let Some(request) = self.shown_request() {
            let text = format!("! {} asks: {}", self.requesting_agent(), self.summary_of(request));
            let mut right = format!("{} answers", self.keys.label(KeyContext::Input, Action::NextPane));
            if conversation.is_busy() && !self.is_narrow() {
                let escape = self.keys.label(KeyContext::Anywhere, Action::Escape);
                right = format!("{right}{}{escape} {escape} cancels", self.dot());
            }
            return self.turn_rule((text, Role::Warning), (right, Role::Warning), columns, Role::Dim);
        }
        if self.editing.is_some() {
            let text = "Editing a prompt: Enter sends it in a fork".to_owned();
            let right = "Esc gives up".to_owned();
            return self.turn_rule((text, Role::Accent), (right, Role::Dim), columns, Role::Dim);
        }
        if conversation.is_busy() {
            return self.busy_line(conversation, columns);
        }
        if let (1.., Some(since)) = self.sending {
            let time = clock(seconds_between(since, self.look.now));
            let text = format!("{} Sending the prompt  {time}", self.mark(Mark::Running));
            return self.turn_rule((text, Role::Accent), (String::new(), Role::Dim), columns, Role::Dim);
        }
        self.idle_line(conversation, columns)
    }

    fn dot(&self) -> String {
        format!(" {} ", self.mark(Mark::Dot))
    }

    /// A horizontal line with a text at the left and one at the right.
    fn turn_rule(
        &self,
        (left, left_role): (String, Role),
        (right, right_role): (String, Role),
        columns: u16,
        role: Role,
    ) -> Line<'static> {
        let right = if right.is_empty() { Vec::new() } else { vec![self.span(right, right_role)] };
        self.rule(vec![self.span(left, left_role)], right, columns, role)
    }

    /// The reason why no prompt can be sent, and the keys that help.
    fn problem(&self) -> Option<(String, String)> {
        let now = self.look.now;
        let retry = |at| match seconds_between(now, at) {
            0 => "connecting".to_owned(),
            left => format!("retry in {left} s{}Enter now", self.dot()),
        };
        if let Link::Retrying { since, next, .. } = &self.link {
            let since = with_seconds(*since, &self.look.zone);
            return Some((format!("No connection to the server since {since}"), retry(*next)));
        }
        if let Some(agent) = &self.needs_login {
            let send = self.keys.label(KeyContext::Input, Action::Send);
            let right = format!("{send} logs in{}Esc not now", self.dot());
            return Some((format!("{} is not logged in", Clean::line(agent)), right));
        }
        if self.has_ended {
            return Some(("The agent ended".to_owned(), "Ctrl-C twice quits".to_owned()));
        }
        // The first attempt is made so soon that nothing is shown.
        let reopening = self.reopening.filter(|reopening| reopening.attempts > 0)?;
        Some(("No connection to this session".to_owned(), retry(reopening.at)))
    }

    /// The line of a turn that runs.
    fn busy_line(&self, conversation: &Conversation, columns: u16) -> Line<'static> {
        let now = self.look.now;
        let doing = conversation.doing();
        let mut what = doing.what.to_string();
        if self.is_narrow() {
            what = what.strip_prefix("Running ").map(str::to_owned).unwrap_or(what);
        }
        let since = doing.since.or(self.turn_started);
        let time = since.map(|since| format!("  {}", clock(seconds_between(since, now)))).unwrap_or_default();
        let mut left = vec![self.span(format!("{} {what}{time}", self.mark(Mark::Running)), Role::Accent)];
        let quiet = conversation.last_output().or(self.turn_started);
        let quiet = quiet.map_or(0, |last| seconds_between(last, now));
        if quiet >= SILENCE && !conversation.is_waiting() {
            left.push(self.span(format!("  no output for {}", clock(quiet)), Role::Warning));
        }
        let mut right = Vec::new();
        if !self.is_narrow() {
            right.extend(conversation.plan().map(|(done, all)| format!("plan {done}/{all}")));
            let turn = self.turn_started.map(|started| clock(seconds_between(started, now)));
            right.extend(turn.map(|time| format!("turn {time}")));
        }
        let escape = if self.escape_cancels() { "cancels" } else { "back" };
        right.push(format!("{} {escape}", self.keys.label(KeyContext::Anywhere, Action::Escape)));
        let right: Vec<Span<'static>> = vec![self.span(right.join(&self.dot()), Role::Dim)];
        self.rule(left, right, columns, Role::Dim)
    }

    /// The line of a session without a turn: how the last one ended, what it changed and how long it took.
    fn idle_line(&self, conversation: &Conversation, columns: u16) -> Line<'static> {
        let row = self.sessions.get(&conversation.id);
        let ended = row.and_then(|row| row.turn_ended);
        let is_failed = row.is_some_and(|row| row.state == RowState::Failed);
        let word = if is_failed { "Failed" } else { "Idle" };
        let mut parts = vec![ended.map_or_else(
            || word.to_owned(),
            |ended| format!("{word}, {}", moment(ended, self.look.now, &self.look.zone)),
        )];
        if let Some(changes) = conversation.turn_changes() {
            let files = crate::text::count(changes.files, "file");
            let changed = if self.is_narrow() { "" } else { " changed" };
            parts.push(format!("{files}{changed} +{} -{}", changes.added, changes.removed));
        }
        if let Some((prompted, ended)) = row.and_then(|row| row.prompted).zip(ended)
            && ended >= prompted
            && (parts.len() < 2 || !self.is_narrow())
        {
            parts.push(clock(seconds_between(prompted, ended)));
        }
        let mut right = String::new();
        if is_failed && self.focus == Focus::Input && !self.is_narrow() {
            let messages = self.keys.label(KeyContext::Input, Action::NextPane);
            let again = self.keys.label(KeyContext::Messages, Action::Regenerate);
            right = format!("{messages} {again} regenerates");
        }
        let role = if is_failed { Role::Error } else { Role::Dim };
        self.turn_rule((parts.join(&self.dot()), role), (right, Role::Dim), columns, Role::Dim)
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

    /// The name of the agent whose request is shown.
    pub(super) fn requesting_agent(&self) -> String {
        let request = self.shown_request().map(|request| request.agent.to_string());
        request.filter(|agent| !agent.is_empty()).unwrap_or_else(|| self.agent_name().to_string())
    }
}
