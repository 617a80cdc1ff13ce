//! What keys and the mouse do.

#![expect(clippy::wildcard_enum_match_arm, reason = "each pane handles some of the actions and keys")]

mod fork_tree;
mod input;
mod messages;
mod mouse;
mod overlays;
mod pickers;
mod requests;
mod sessions;

use crossterm::event::KeyCode;

pub(super) use self::messages::SelectedKind;
use super::{App, CANCELLING, Focus, GUARD_TIME, INTERRUPT_TIME, Link, OpenAt, TAB_GUARD_TIME};
use crate::event::{Call, Effect, SessionCall};
use crate::keys::{Action, Key, KeyContext};
use crate::overlay::{AskPurpose, HelpView, InboxView, Overlay, Search};
use crate::theme::Role;

impl App {
    /// The table of the keys that work now.
    fn key_context(&self) -> KeyContext {
        match (self.overlays.last(), self.focus) {
            (Some(overlay), _) => overlay.key_context(),
            (None, Focus::Input) => KeyContext::Input,
            (None, Focus::Messages) => KeyContext::Messages,
            (None, Focus::Sessions) => KeyContext::Sessions,
            (None, Focus::Request) if self.shown_form() => KeyContext::Form,
            (None, Focus::Request) => KeyContext::Request,
        }
    }

    pub(super) fn on_key(&mut self, key: Key, effects: &mut Vec<Effect>) {
        let now = self.look.now;
        if !self.takes_key(key) {
            return;
        }
        if self.forking.is_some() {
            // A click may have moved the focus.
            self.focus = Focus::Input;
        }
        let context = self.key_context();
        let action = self.keys.action(context, key);
        if self.ignore_keys_until.is_some_and(|until| now < until) && action != Some(Action::Interrupt) {
            return;
        }
        self.ignore_keys_until = None;
        self.last_key = Some(now);
        // A failure stays for its time; a note is about the key before this one.
        self.note = self.note.take().filter(|note| note.role != Role::Text);
        if action != Some(Action::Interrupt) {
            self.last_interrupt = None;
        }
        if action != Some(Action::Escape) {
            self.cancel_announced = None;
        }
        // Whoever writes has seen that the connection is back.
        if action != Some(Action::Send) {
            self.reconnected = None;
        }
        if self.hold_key(key, action) {
            return;
        }
        match action {
            Some(Action::Interrupt) => return self.on_interrupt(effects),
            Some(Action::Escape) => return self.on_escape(effects),
            _ => {}
        }
        if self.overlays.is_empty() {
            self.on_pane_key(context, key, action, effects);
        } else {
            self.on_overlay_key(key, action, effects);
        }
    }

    /// Whether a key is used. One that is pressed right after a request took the focus was meant for the input: a letter is
    /// typed there, and others that could answer are ignored.
    fn takes_key(&mut self, key: Key) -> bool {
        let is_soon = self.took_focus.is_some_and(|took| self.look.now < took + GUARD_TIME);
        if !is_soon || self.focus != Focus::Request || !self.overlays.is_empty() {
            return true;
        }
        if key.typed().is_some() {
            self.focus = Focus::Input;
            return true;
        }
        key.code() != KeyCode::Enter
    }

    /// Ctrl-C: the second one detaches. The draft is kept.
    fn on_interrupt(&mut self, effects: &mut Vec<Effect>) {
        let now = self.look.now;
        if self.last_interrupt.is_some_and(|last| last + INTERRUPT_TIME > now) {
            return self.quit(effects);
        }
        self.last_interrupt = Some(now);
        let text = match (&self.link, self.is_busy()) {
            (Link::Direct, _) => "Ctrl-C again quits and ends the agent",
            (_, true) => "Ctrl-C again detaches; the turn goes on",
            (_, false) => "Ctrl-C again detaches",
        };
        self.warn(text, INTERRUPT_TIME);
    }

    /// Esc: closes the topmost thing, else cancels the turn. While a request waits, the first Esc only announces it: the person
    /// may have meant the request.
    fn on_escape(&mut self, effects: &mut Vec<Effect>) {
        let now = self.look.now;
        let is_soon = self.last_escape.is_some_and(|last| last + GUARD_TIME > now);
        if self.close_topmost(effects) {
            self.last_escape = Some(now);
            return;
        }
        if is_soon || !self.is_busy() || self.is_offline() {
            return;
        }
        let is_announced = self.cancel_announced.take().is_some_and(|at| now < at + INTERRUPT_TIME);
        if self.shown_request().is_some() && !is_announced {
            (self.last_escape, self.cancel_announced) = (Some(now), Some(now));
            let escape = self.keys.label(KeyContext::Anywhere, Action::Escape);
            self.warn(&format!("{escape} again cancels the turn"), INTERRUPT_TIME);
            return;
        }
        self.send_to_session(SessionCall::Cancel, effects);
        self.note(CANCELLING);
    }

    /// Closes the topmost thing. Returns false if nothing is open.
    fn close_topmost(&mut self, effects: &mut Vec<Effect>) -> bool {
        if let Some(overlay) = self.overlays.pop() {
            if let (Overlay::Ask(ask), true) = (&overlay, self.overlays.is_empty())
                && ask.purpose == AskPurpose::Filter
            {
                self.list_filter.clear();
            }
            return true;
        }
        if let Some(completion) = self.completion.take() {
            self.closed_completion = Some(completion.word);
            return true;
        }
        match self.focus {
            Focus::Request => {
                self.put_off = self.shown_request().map(|request| request.id.clone());
                self.focus = Focus::Input;
                true
            }
            Focus::Sessions => {
                self.focus = Focus::Input;
                self.list_filter.clear();
                self.sessions.thaw();
                true
            }
            Focus::Messages => {
                if self.open_at.take_if(|at| *at == OpenAt::Match).is_some() {
                    if let Some(conversation) = &mut self.conversation {
                        conversation.wants_first = false;
                    }
                    return true;
                }
                if let Some(results) = self.results.take() {
                    self.overlays.push(*results);
                    return true;
                }
                if let Some(conversation) = &mut self.conversation {
                    conversation.deselect();
                    conversation.matches.clear();
                    conversation.follow();
                }
                self.focus = Focus::Input;
                true
            }
            Focus::Input => {
                if self.forking.is_some() {
                    self.end_forking();
                    self.note("The fork will be in the list of sessions");
                    return true;
                }
                if self.queued_cursor.take().is_some() {
                    return true;
                }
                if self.needs_login.take().is_some() {
                    return true;
                }
                if self.editing.take().is_some() {
                    // What was being written before comes back.
                    let draft = self.drafts.remove(&self.open_id());
                    self.replace_input(&draft.unwrap_or_default());
                    return true;
                }
                if let Some(conversation) = &mut self.conversation
                    && !conversation.is_following
                {
                    conversation.follow();
                    return true;
                }
                if self.is_busy() {
                    return false;
                }
                if let Some((id, cwd)) = self.parents.pop() {
                    self.open(id, cwd, effects);
                    return true;
                }
                false
            }
        }
    }

    fn on_pane_key(
        &mut self,
        context: KeyContext,
        key: Key,
        action: Option<Action>,
        effects: &mut Vec<Effect>,
    ) {
        if context == KeyContext::Input && self.on_completion_key(key) {
            return;
        }
        if context == KeyContext::Input && self.on_queued_key(key, effects) {
            return;
        }
        if let Some(digit) = key.typed().and_then(|letter| letter.to_digit(10))
            && context == KeyContext::Request
        {
            return self.choose_option(usize::try_from(digit).unwrap_or(0), effects);
        }
        if context == KeyContext::Form && self.on_form_key(key, action, effects) {
            return;
        }
        match action {
            Some(action) if self.on_common_action(action, effects) => {}
            Some(action) => match self.focus {
                Focus::Input => self.on_input_action(action, key, effects),
                Focus::Messages => self.on_message_action(action, effects),
                Focus::Sessions => self.on_session_action(action, effects),
                Focus::Request => self.on_request_action(action, effects),
            },
            None if context == KeyContext::Input => {
                self.is_send_pending = false;
                if self.input.on_key(key) {
                    self.history_index = None;
                    self.closed_completion = None;
                }
            }
            None => {}
        }
    }

    /// Actions that work in every pane. Returns false if the action is another one.
    pub(super) fn on_common_action(&mut self, action: Action, effects: &mut Vec<Effect>) -> bool {
        match action {
            Action::OpenSession => self.pick_session(),
            Action::NewSession => self.new_session(effects),
            Action::Inbox => {
                let inbox = InboxView::new(&self.inbox_ids());
                self.overlays.push(Overlay::Inbox(inbox));
            }
            Action::Search => self.overlays.push(Overlay::Search(Search::new())),
            Action::Palette => self.pick_command(),
            Action::Options => self.pick_option(effects),
            Action::Help => {
                let context = self.key_context();
                self.overlays.push(Overlay::Help(HelpView { context, scroll: 0, query: None }));
            }
            Action::Suspend => effects.push(Effect::Suspend),
            Action::Redraw => effects.push(Effect::Redraw),
            Action::PageUp | Action::PageDown => {
                self.scroll_pages(if action == Action::PageUp { -1 } else { 1 });
            }
            Action::NextPane => self.next_pane(effects),
            _ => return false,
        }
        true
    }

    fn scroll_pages(&mut self, pages: isize) {
        if let Some(conversation) = &mut self.conversation {
            let rows = (conversation.page() - 2).max(1);
            conversation.scroll(pages * rows, &self.look);
        }
    }

    /// The next pane: a request, the messages, the sessions, the input.
    fn next_pane(&mut self, effects: &mut Vec<Effect>) {
        let has_request = self.shown_request().is_some();
        // Pressed for the request, which took the focus by itself just before.
        if self.focus == Focus::Request
            && self.took_focus.take().is_some_and(|took| self.look.now < took + TAB_GUARD_TIME)
        {
            return;
        }
        let next = match self.focus {
            Focus::Input if has_request => Focus::Request,
            Focus::Input if self.conversation.is_some() => Focus::Messages,
            Focus::Input => {
                self.pick_agent(false, effects);
                return;
            }
            Focus::Messages if self.link != Link::Direct => Focus::Sessions,
            Focus::Messages | Focus::Sessions | Focus::Request => Focus::Input,
        };
        self.set_focus(next);
    }

    pub(in crate::app) fn set_focus(&mut self, focus: Focus) {
        if self.focus == Focus::Sessions && focus != Focus::Sessions {
            self.sessions.thaw();
        }
        if focus == Focus::Sessions {
            self.sessions.freeze();
            if self.list_cursor.is_none() {
                self.list_cursor = self.open_id();
            }
        }
        if let Some(conversation) = &mut self.conversation {
            if focus == Focus::Messages {
                conversation.select_visible(&self.look);
            } else if focus == Focus::Input {
                conversation.deselect();
            }
        }
        if self.focus == Focus::Request && focus != Focus::Request {
            self.put_off = self.shown_request().map(|request| request.id.clone());
        }
        if focus == Focus::Request {
            self.put_off = None;
            self.took_focus = None;
            self.load_form_field();
        }
        self.focus = focus;
    }

    pub(super) fn new_session(&mut self, effects: &mut Vec<Effect>) {
        self.end_forking();
        self.keep_draft();
        self.conversation = None;
        self.opening = None;
        self.has_opened = true;
        self.is_send_pending = false;
        self.needs_login = None;
        effects.push(Effect::Send(Call::Agents));
        self.overlays.clear();
        self.focus = Focus::Input;
        self.input.set(&self.drafts.remove(&None).unwrap_or_default());
    }

    pub(super) fn default_agent(&self) -> Option<String> {
        self.agents.iter().find(|agent| agent.is_default).map(|agent| agent.name.clone())
    }
}
