//! The beginning and the end of turns, and prompts on their way.

use parlor_client::SessionId;

use super::state::Link;
use super::{App, CANCELLING};
use crate::event::{Call, Effect};
use crate::keys::{Action, KeyContext};
use crate::sessions::{RowState, SessionRow};

impl App {
    /// Notices the beginning and the end of turns.
    pub(super) fn follow_turn(&mut self, effects: &mut Vec<Effect>) {
        let is_busy = self.is_busy();
        if is_busy == self.was_busy {
            return;
        }
        self.was_busy = is_busy;
        let now = self.look.now;
        if is_busy {
            // A turn that ran before the session was opened began with its last prompt.
            let prompted = self.open_id().and_then(|id| self.sessions.get(&id)?.prompted);
            let started = prompted.filter(|prompted| *prompted <= now && self.opened_at == Some(now));
            self.turn_started = started.or(Some(now));
            return;
        }
        self.mark_seen(effects);
        if self.note.as_ref().is_some_and(|note| note.text.as_str() == CANCELLING) {
            self.note = None;
        }
        if let Some(started) = self.turn_started.take()
            && self.is_away()
        {
            let time = crate::time::clock(crate::time::seconds_between(started, now));
            effects.push(Effect::Notify(format!("Turn ended after {time} ({})", self.session_title())));
        }
    }

    /// Notifies about turns of other sessions that have ended.
    pub(super) fn notify_ended(&self, changed: &[SessionRow], effects: &mut Vec<Effect>) {
        let open = self.open_id();
        for row in changed.iter().filter(|row| self.is_away() && Some(&row.id) != open.as_ref()) {
            let before = self.sessions.get(&row.id).and_then(|known| known.turn_ended);
            let is_known = self.sessions.get(&row.id).is_some();
            if is_known && row.turn_ended > before && !row.is_archived {
                let how = if row.state == RowState::Failed { "failed" } else { "ended" };
                effects.push(Effect::Notify(format!("Turn {how} ({})", row.title)));
            }
        }
    }

    /// Says that the open session was seen, if a person looks at it.
    pub(super) fn mark_seen(&self, effects: &mut Vec<Effect>) {
        if let (true, Some(conversation), Link::Live) = (self.has_focus, &self.conversation, &self.link)
            && !conversation.is_busy()
            && self.sessions.get(&conversation.id).is_some_and(|row| row.is_unread)
        {
            effects.push(Effect::Send(Call::Seen(conversation.id.clone())));
        }
    }

    pub(super) fn title_of_window(&self) -> String {
        let waiting =
            if self.requests.is_empty() { String::new() } else { format!("! {} ", self.requests.len()) };
        let running = if self.is_busy() { "● " } else { "" };
        match &self.conversation {
            Some(_) => format!("{waiting}{running}{} - parlor", self.session_title()),
            None => format!("{waiting}parlor"),
        }
    }

    /// Counts a prompt of the open session that is sent.
    pub(super) fn on_prompt_sent(&mut self) {
        self.sending = (self.sending.0 + 1, self.sending.1.or(Some(self.look.now)));
    }

    /// Counts a prompt that was accepted or rejected.
    pub(super) fn on_prompt_settled(&mut self, session: &SessionId) {
        if self.open_id().as_ref() != Some(session) {
            return;
        }
        let left = self.sending.0.saturating_sub(1);
        self.sending = (left, self.sending.1.filter(|_| left > 0));
    }

    /// A queued prompt was withdrawn. Unless the person did that here, its text comes back: into the input, or into the history if
    /// something else is being written.
    pub(super) fn on_prompt_withdrawn(&mut self, session: &SessionId, text: String) {
        self.on_prompt_settled(session);
        if let Some(index) = self.withdrawn.iter().position(|known| *known == text) {
            self.withdrawn.remove(index);
            return;
        }
        if self.open_id().as_ref() != Some(session) || self.forking.is_some() {
            let draft = self.drafts.entry(Some(session.clone())).or_default();
            *draft = if draft.is_empty() { text } else { format!("{draft}\n\n{text}") };
            return self.note("A queued prompt was withdrawn. It is in the input of its session");
        }
        self.history_index = None;
        let written = self.input.full_text();
        if self.input.is_blank() {
            self.input.set(&text);
        } else if self.returned.as_ref() == Some(&written) {
            self.input.set(&format!("{written}\n\n{text}"));
        } else {
            self.add_to_history(text);
            let key = self.keys.label(KeyContext::Input, Action::History);
            return self.note(&format!("A queued prompt was not sent. {key} finds it"));
        }
        self.returned = Some(self.input.full_text());
        self.note("What was queued was not sent. It is in the input again");
    }

    /// Whether a prompt would be sent at once, and not wait for a connection or a session.
    pub(super) fn can_send(&self) -> bool {
        let is_connected = matches!(self.link, Link::Live | Link::Direct);
        let has_session = self.conversation.is_some() && self.reopening.is_none() && !self.has_ended;
        let is_new = self.conversation.is_none() && self.opening.is_none();
        is_connected && self.is_started && self.forking.is_none() && (has_session || is_new)
    }
}
