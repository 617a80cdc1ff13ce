//! What keys and the mouse do.

#![expect(clippy::wildcard_enum_match_arm, reason = "each pane handles some of the actions and keys")]

use crossterm::event::KeyCode;
use parlor_client::{
    DuringTurn, Elicitation, EntryId, Json, PermissionOptionKind, Role as MessageRole, SessionId,
};

use super::{
    App, Completion, ESCAPE_GUARD, Focus, INTERRUPT_TIME, Link, MAX_HISTORY, OpenAt, PendingRemoval,
};
use crate::clean::Clean;
use crate::entry::export;
use crate::event::{Call, Effect};
use crate::field::TextField;
use crate::form::{FieldValue, Form};
use crate::fuzzy;
use crate::input::Completed;
use crate::keys::{Action, Key, Place};
use crate::overlay::{
    Ask, AskPurpose, Choice, ForkTree, HelpView, InboxView, Overlay, PickItem, Picker, Search, step,
};
use crate::request::{Request, Subject, selection};
use crate::sessions::{ListLine, RowState};
use crate::theme::{Mark, Role};

/// How many rows of completions are shown.
const MAX_COMPLETIONS: usize = 6;

impl App {
    /// Where the keys go.
    fn place(&self) -> Place {
        match (self.overlays.last(), self.focus) {
            (Some(overlay), _) => overlay.place(),
            (None, Focus::Input) => Place::Input,
            (None, Focus::Messages) => Place::Messages,
            (None, Focus::Sessions) => Place::Sessions,
            (None, Focus::Request) if self.shown_form() => Place::Form,
            (None, Focus::Request) => Place::Request,
        }
    }

    pub(super) fn on_key(&mut self, key: Key, effects: &mut Vec<Effect>) {
        let now = self.look.now;
        let place = self.place();
        let action = self.keys.action(place, key);
        if self.ignore_keys_until.is_some_and(|until| now < until) && action != Some(Action::Interrupt) {
            return;
        }
        self.ignore_keys_until = None;
        self.last_key = Some(now);
        if action != Some(Action::Interrupt) {
            self.last_interrupt = None;
        }
        match action {
            Some(Action::Interrupt) => return self.on_interrupt(effects),
            Some(Action::Escape) => return self.on_escape(effects),
            _ => {}
        }
        if self.overlays.is_empty() {
            self.on_pane_key(place, key, action, effects);
        } else {
            self.on_overlay_key(key, action, effects);
        }
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
        self.note =
            Some(super::Note { text: Clean::line(text), role: Role::Warning, until: now + INTERRUPT_TIME });
    }

    /// Esc: closes the topmost thing, else cancels the turn.
    fn on_escape(&mut self, effects: &mut Vec<Effect>) {
        let now = self.look.now;
        let is_soon = self.last_escape.is_some_and(|last| last + ESCAPE_GUARD > now);
        if self.close_topmost(effects) {
            self.last_escape = Some(now);
            return;
        }
        if is_soon {
            return;
        }
        if self.is_busy() && !self.is_offline() {
            effects.push(Effect::Send(Call::Cancel));
            self.note("Cancelling the turn");
        }
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
                if self.queued_cursor.take().is_some() {
                    return true;
                }
                if self.editing.take().is_some() {
                    self.input.set("");
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

    fn on_pane_key(&mut self, place: Place, key: Key, action: Option<Action>, effects: &mut Vec<Effect>) {
        if place == Place::Input && self.on_completion_key(key) {
            return;
        }
        if place == Place::Input && self.on_queued_key(key, effects) {
            return;
        }
        if let Some(digit) = key.typed().and_then(|letter| letter.to_digit(10))
            && place == Place::Request
        {
            return self.choose_option(usize::try_from(digit).unwrap_or(0), effects);
        }
        if place == Place::Form && self.on_form_key(key, action, effects) {
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
            None if place == Place::Input => {
                self.is_send_pending = false;
                if self.input.on_key(key) {
                    self.history_place = None;
                    self.closed_completion = None;
                }
            }
            None => {}
        }
    }

    /// Actions that work in every pane. Returns false if the action is another one.
    fn on_common_action(&mut self, action: Action, effects: &mut Vec<Effect>) -> bool {
        match action {
            Action::OpenSession => self.pick_session(),
            Action::NewSession => self.new_session(),
            Action::Inbox => self.overlays.push(Overlay::Inbox(InboxView::default())),
            Action::Search => self.overlays.push(Overlay::Search(Search::new())),
            Action::Palette => self.pick_command(),
            Action::Options => self.pick_option(),
            Action::Help => {
                let place = self.place();
                self.overlays.push(Overlay::Help(HelpView { place, scroll: 0, query: None }));
            }
            Action::Suspend => effects.push(Effect::Suspend),
            Action::Redraw => effects.push(Effect::Redraw),
            Action::PageUp | Action::PageDown => {
                self.scroll_pages(if action == Action::PageUp { -1 } else { 1 });
            }
            Action::NextPane => self.next_pane(),
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
    fn next_pane(&mut self) {
        let has_request = self.shown_request().is_some();
        let next = match self.focus {
            Focus::Input if has_request => Focus::Request,
            Focus::Input if self.conversation.is_some() => Focus::Messages,
            Focus::Input => {
                self.pick_agent(false);
                return;
            }
            Focus::Messages if self.link != Link::Direct => Focus::Sessions,
            Focus::Messages | Focus::Sessions | Focus::Request => Focus::Input,
        };
        self.set_focus(next);
    }

    fn set_focus(&mut self, focus: Focus) {
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
        if focus == Focus::Request {
            self.put_off = None;
            self.load_form_field();
        }
        self.focus = focus;
    }

    fn new_session(&mut self) {
        self.keep_draft();
        self.conversation = None;
        self.opening = None;
        self.overlays.clear();
        self.focus = Focus::Input;
        self.input.set(&self.drafts.remove(&None).unwrap_or_default());
    }

    // The input.

    fn on_input_action(&mut self, action: Action, key: Key, effects: &mut Vec<Effect>) {
        match action {
            Action::Send => self.send(DuringTurn::Queue, effects),
            Action::SendNow => self.send(DuringTurn::Steer, effects),
            Action::NewLine => self.input.new_line(),
            Action::Previous if self.input.is_at_top() => self.go_back(),
            Action::Next if self.input.is_at_bottom() => self.go_forward(),
            Action::Editor => effects.push(Effect::Edit(self.input.full_text())),
            Action::History => self.pick_history(),
            _ => {
                self.input.on_key(key);
            }
        }
    }

    /// Sends the input as a prompt.
    pub(super) fn send(&mut self, during_turn: DuringTurn, effects: &mut Vec<Effect>) {
        if self.is_offline() {
            effects.push(Effect::Reconnect);
            return;
        }
        if self.input.is_blank() {
            return;
        }
        let text = self.input.full_text();
        if !self.can_send() {
            self.is_send_pending = true;
            return;
        }
        self.input.set("");
        self.history.retain(|known| *known != text);
        self.history.insert(0, text.clone());
        self.history.truncate(MAX_HISTORY);
        self.history_place = None;
        let Some(conversation) = &mut self.conversation else {
            let ticket = self.new_ticket();
            self.opening = Some((ticket, SessionId::from("")));
            self.drafts.insert(None, text.clone());
            let (agent, cwd) = (self.agent.clone(), self.new_cwd.clone());
            effects.push(Effect::Send(Call::New { ticket, agent, cwd, prompt: text }));
            return;
        };
        conversation.deselect();
        conversation.follow();
        if let Some(message) = self.editing.take() {
            let note = "Forked with the edited prompt. Esc returns to the parent.".to_owned();
            effects.push(Effect::Send(Call::EditPrompt { message, text, note }));
            return;
        }
        self.prompts_sent += 1;
        let key = format!("{}-{}", self.look.now.as_nanosecond(), self.prompts_sent);
        self.on_prompt_sent();
        effects.push(Effect::Send(Call::Prompt { text, key, during_turn }));
    }

    /// Up: the queued prompts, the last one first, then the history.
    fn go_back(&mut self) {
        let queued = self.queue().len();
        match self.queued_cursor {
            None if queued > 0 && self.history_place.is_none() && self.input.is_blank() => {
                self.queued_cursor = Some(queued - 1);
                return;
            }
            Some(place) if place > 0 => {
                self.queued_cursor = Some(place - 1);
                return;
            }
            _ => self.queued_cursor = None,
        }
        let history = self.history();
        let next = self.history_place.map_or(0, |place| place + 1);
        if let Some(text) = history.get(next) {
            if self.history_place.is_none() && !self.input.is_blank() {
                // What was being written comes back with Down.
                self.drafts.insert(self.open_id(), self.input.full_text());
            }
            self.history_place = Some(next);
            self.input.set(text);
        }
    }

    /// Down: later prompts of the history, then what was being written.
    fn go_forward(&mut self) {
        if let Some(place) = self.queued_cursor {
            self.queued_cursor = Some(place + 1).filter(|next| *next < self.queue().len());
            return;
        }
        let Some(place) = self.history_place else { return };
        self.history_place = place.checked_sub(1);
        let text = match self.history_place {
            Some(place) => self.history().get(place).cloned(),
            None => self.drafts.remove(&self.open_id()),
        };
        self.input.set(&text.unwrap_or_default());
    }

    /// The prompts that were sent: those of the session, then others, the latest first.
    fn history(&self) -> Vec<String> {
        let mut prompts =
            self.conversation.as_ref().map(crate::conversation::Conversation::prompts).unwrap_or_default();
        prompts.extend(self.history.iter().cloned());
        let mut seen = std::collections::HashSet::new();
        prompts.retain(|prompt| !prompt.trim().is_empty() && seen.insert(prompt.clone()));
        prompts.truncate(MAX_HISTORY);
        prompts
    }

    /// Keys of a selected queued prompt. Returns whether the key was used.
    fn on_queued_key(&mut self, key: Key, effects: &mut Vec<Effect>) -> bool {
        let Some(place) = self.queued_cursor else { return false };
        let Some(prompt) = self.queue().into_iter().nth(place) else {
            self.queued_cursor = None;
            return false;
        };
        match self.keys.action(Place::Messages, key) {
            Some(Action::Edit) => {
                self.input.set(&prompt.text);
                effects.push(Effect::Send(Call::Withdraw(prompt.id)));
            }
            Some(Action::Withdraw) => {
                effects.push(Effect::Send(Call::Withdraw(prompt.id)));
                self.note("Withdrawn");
            }
            Some(Action::SendNow) => {
                effects.push(Effect::Send(Call::Withdraw(prompt.id)));
                self.prompts_sent += 1;
                let key = format!("{}-{}", self.look.now.as_nanosecond(), self.prompts_sent);
                self.on_prompt_sent();
                let during_turn = DuringTurn::SteerOrCancel;
                effects.push(Effect::Send(Call::Prompt { text: prompt.text, key, during_turn }));
            }
            _ => {
                let is_move = matches!(key.code(), KeyCode::Up | KeyCode::Down);
                if !is_move {
                    self.queued_cursor = None;
                }
                return false;
            }
        }
        self.queued_cursor = None;
        true
    }

    pub(super) fn on_paste(&mut self, text: &str, effects: &mut Vec<Effect>) {
        self.last_key = Some(self.look.now);
        let is_form = self.focus == Focus::Request && self.shown_form();
        match self.overlays.last_mut() {
            None if is_form => {
                self.form.text.insert(text);
                self.store_form_text();
            }
            None if self.focus == Focus::Request => {}
            None => {
                if self.focus != Focus::Input {
                    self.set_focus(Focus::Input);
                }
                self.input.paste(text);
            }
            Some(Overlay::Picker(picker)) => {
                picker.query.insert(text);
                picker.filter();
            }
            Some(Overlay::Search(search)) => {
                search.query.insert(text);
                search.changed = Some(self.look.now);
            }
            Some(Overlay::Ask(ask)) => {
                ask.text.insert(text);
                self.on_ask_changed();
            }
            Some(Overlay::Inbox(_) | Overlay::Forks(_) | Overlay::Help(_)) => {}
        }
        self.complete(effects);
    }

    // Completion.

    /// Finds what completes the word before the cursor.
    pub(super) fn complete(&mut self, effects: &mut Vec<Effect>) {
        let word =
            self.input.completed_word().filter(|_| self.focus == Focus::Input && self.overlays.is_empty());
        let Some(word) = word.filter(|word| self.closed_completion.as_ref() != Some(word)) else {
            self.completion = None;
            return;
        };
        if self.completion.as_ref().is_some_and(|completion| completion.word == word)
            && !matches!((&word, &self.files), (Completed::File(_), Some(_)))
        {
            return;
        }
        let cursor = match &self.completion {
            Some(completion) if completion.word == word => completion.cursor,
            Some(_) | None => 0,
        };
        let mut fits: Vec<(i32, String, Clean)> = match &word {
            Completed::Command(name) => self
                .agent_commands()
                .into_iter()
                .filter(|(command, ..)| command.starts_with(name.as_str()))
                .map(|(command, hint, about)| {
                    let hint = if hint.is_empty() { hint } else { format!(" [{hint}]") };
                    (0, format!("/{command}"), Clean::line(&format!("{hint}\t{about}").replace('\t', "    ")))
                })
                .collect(),
            Completed::File(path) => {
                let cwd = self.cwd().to_owned();
                match &self.files {
                    Some((listed, files)) if *listed == cwd => files
                        .iter()
                        .filter_map(|file| {
                            let (score, _) = fuzzy::fit(path, file)?;
                            let length = i32::try_from(file.len()).unwrap_or(i32::MAX);
                            Some((score * 16 - length.min(200), format!("@{file}"), Clean::default()))
                        })
                        .collect(),
                    _ => {
                        if self.wanted_files.as_ref() != Some(&cwd) {
                            self.wanted_files = Some(cwd.clone());
                            effects.push(Effect::ListFiles(cwd));
                        }
                        Vec::new()
                    }
                }
            }
        };
        fits.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        let total = fits.len();
        fits.truncate(MAX_COMPLETIONS * 8);
        let items: Vec<_> = fits.into_iter().map(|(_, insert, about)| (insert, about)).collect();
        self.completion = (!items.is_empty()).then_some(Completion {
            cursor: cursor.min(total - usize::from(total > 0)),
            items,
            total,
            word,
        });
    }

    /// Keys of the open completion. Returns whether the key was used.
    fn on_completion_key(&mut self, key: Key) -> bool {
        let Some(completion) = &mut self.completion else { return false };
        match key.code() {
            KeyCode::Up => completion.cursor = step(completion.cursor, completion.items.len(), false),
            KeyCode::Down => completion.cursor = step(completion.cursor, completion.items.len(), true),
            KeyCode::Tab | KeyCode::Enter if !key.is_alt() => {
                let Some((insert, _)) = completion.items.get(completion.cursor).cloned() else {
                    return false;
                };
                // A command that is complete is sent with Enter.
                if key.code() == KeyCode::Enter && self.input.text() == insert {
                    self.completion = None;
                    return false;
                }
                self.input.replace_word(&format!("{insert} "));
                self.completion = None;
            }
            _ => return false,
        }
        true
    }

    // The conversation.

    fn on_message_action(&mut self, action: Action, effects: &mut Vec<Effect>) {
        let look = &self.look;
        let Some(conversation) = &mut self.conversation else { return };
        let half = (conversation.page() / 2).max(1);
        match action {
            Action::Next => conversation.select_next(look),
            Action::Previous => conversation.select_previous(look),
            Action::HalfDown => conversation.scroll(half, look),
            Action::HalfUp => conversation.scroll(-half, look),
            Action::First => conversation.select_first(look),
            Action::Last => conversation.select_last(look),
            Action::PreviousPrompt => conversation.select_previous_prompt(look),
            Action::NextPrompt => conversation.select_next_prompt(look),
            Action::Toggle => conversation.toggle(look),
            Action::ToggleAll => conversation.toggle_all(),
            Action::NextHit | Action::PreviousHit
                if conversation.select_match(action == Action::NextHit, look) => {}
            Action::NextHit | Action::PreviousHit => self.note("No hits here"),
            Action::Find => self.ask("Find", String::new(), AskPurpose::Find),
            Action::Copy | Action::CopyMarkdown => self.copy(action == Action::CopyMarkdown, effects),
            Action::View => {
                let text = conversation.with_selected(|entry, transcript| {
                    export::markdown(entry, transcript, &conversation.cwd)
                });
                effects.extend(text.map(Effect::Page));
            }
            Action::Fork | Action::Edit | Action::Regenerate | Action::OtherAgent => {
                self.branch(action, effects);
            }
            Action::FocusInput => self.set_focus(Focus::Input),
            Action::ForkTree => self.show_forks(),
            Action::Detach => self.quit(effects),
            Action::Withdraw | Action::SendNow => {
                self.note("Select a queued prompt: Up in the empty input");
            }
            _ => {}
        }
    }

    fn copy(&mut self, as_markdown: bool, effects: &mut Vec<Effect>) {
        let Some(conversation) = &self.conversation else { return };
        let text = conversation.with_selected(|entry, transcript| {
            let export = if as_markdown { export::markdown } else { export::plain };
            export(entry, transcript, &conversation.cwd)
        });
        effects.extend(text.filter(|text| !text.is_empty()).map(Effect::Copy));
    }

    /// Forks, edits, regenerates, or continues with another agent.
    fn branch(&mut self, action: Action, effects: &mut Vec<Effect>) {
        if self.link != Link::Live {
            self.note("This needs the server");
            return;
        }
        let Some(conversation) = &self.conversation else { return };
        let number =
            conversation.selected_number().map(|number| format!(" at #{number}")).unwrap_or_default();
        let message = conversation.selected_message();
        match action {
            Action::Fork => {
                let note = format!("Forked{number}. Esc returns to the parent.");
                effects.push(Effect::Send(Call::Fork { at: message, agent: None, note }));
            }
            Action::Regenerate => {
                match message.or_else(|| conversation.selected_prompt().map(|(id, _)| id)) {
                    Some(message) => {
                        let note = "Regenerating in a fork. Esc returns to the parent.".to_owned();
                        effects.push(Effect::Send(Call::Regenerate { message, note }));
                    }
                    None => self.note("Nothing to regenerate: there is no prompt yet"),
                }
            }
            Action::Edit => match conversation.selected_prompt() {
                Some((message, text)) => {
                    self.input.set(&text);
                    self.editing = Some(message);
                    self.set_focus(Focus::Input);
                    self.note("Enter sends the edited prompt in a fork; Esc gives up");
                }
                None => self.note("Nothing to edit: there is no prompt yet"),
            },
            _ => self.pick_agent(true),
        }
    }

    pub(super) fn on_wheel(&mut self, rows: isize) {
        match self.overlays.last_mut() {
            None if self.focus == Focus::Request => {
                self.request_scroll = self.request_scroll.saturating_add_signed(rows);
            }
            None => {
                if let Some(conversation) = &mut self.conversation {
                    conversation.scroll(rows, &self.look);
                }
            }
            Some(Overlay::Picker(picker)) => picker.step(rows > 0),
            Some(Overlay::Inbox(inbox)) => inbox.scroll = inbox.scroll.saturating_add_signed(rows),
            Some(Overlay::Search(search)) => search.cursor = step(search.cursor, search.hits.len(), rows > 0),
            Some(Overlay::Forks(forks)) => forks.cursor = step(forks.cursor, forks.lines.len(), rows > 0),
            Some(Overlay::Help(help)) => help.scroll = help.scroll.saturating_add_signed(rows),
            Some(Overlay::Ask(_)) => {}
        }
    }

    pub(super) fn on_click(&mut self, column: u16, row: u16, effects: &mut Vec<Effect>) {
        if !self.overlays.is_empty() {
            return;
        }
        let left = self.list_width();
        if self.shows_list() && (column < left || self.size.0 < super::draw::WIDE) {
            if let Some(ListLine::Session { id, .. }) = self.list_row(row) {
                self.list_cursor = Some(id);
                self.open_listed(effects);
            }
            return;
        }
        let Some(conversation) = &mut self.conversation else { return };
        let top = super::draw::HEADER_ROWS;
        let height = u16::try_from(conversation.page()).unwrap_or(0);
        if row >= top && row < top + height {
            if conversation.select_row(row - top, &self.look) {
                conversation.toggle(&self.look);
            }
            if self.focus == Focus::Input || self.focus == Focus::Sessions {
                self.set_focus(Focus::Messages);
            }
        } else if row >= top + height {
            let focus = if self.shown_request().is_some() && self.focus == Focus::Request {
                Focus::Request
            } else {
                Focus::Input
            };
            self.set_focus(focus);
        }
    }

    // The list of sessions.

    /// The sessions of the list in order.
    fn listed(&self) -> Vec<SessionId> {
        let id = |line: ListLine| match line {
            ListLine::Session { id, .. } => Some(id),
            ListLine::Directory(_) => None,
        };
        self.sessions.lines(&self.list_filter).into_iter().filter_map(id).collect()
    }

    fn on_session_action(&mut self, action: Action, effects: &mut Vec<Effect>) {
        let listed = self.listed();
        let place = self.list_cursor.as_ref().and_then(|id| listed.iter().position(|known| known == id));
        let go = |place: usize| listed.get(place).cloned();
        let current = place.and_then(go);
        match action {
            Action::Next => self.list_cursor = go(place.map_or(0, |place| step(place, listed.len(), true))),
            Action::Previous => {
                self.list_cursor = go(place.map_or(0, |place| step(place, listed.len(), false)));
            }
            Action::First => self.list_cursor = go(0),
            Action::Last => self.list_cursor = listed.last().cloned(),
            Action::Open => self.open_listed(effects),
            Action::Filter => self.ask("Filter", self.list_filter.clone(), AskPurpose::Filter),
            Action::Collapse | Action::Expand => {
                let Some(id) = current else { return };
                if action == Action::Expand {
                    self.sessions.collapsed.remove(&id);
                } else if let Some(parent) = self.sessions.get(&id).and_then(|row| row.parent.clone())
                    && listed.contains(&parent)
                {
                    self.sessions.collapsed.insert(parent.clone());
                    self.list_cursor = Some(parent);
                } else {
                    self.sessions.collapsed.insert(id);
                }
            }
            Action::Title => {
                if let Some(row) = current.and_then(|id| self.sessions.get(&id)) {
                    let (id, title) = (row.id.clone(), row.title.to_string());
                    self.ask("Title", title, AskPurpose::Title(id));
                }
            }
            Action::Archive | Action::Delete => {
                if let Some(id) = current {
                    let next = place.and_then(|place| go(place + 1).or_else(|| go(place.checked_sub(1)?)));
                    self.list_cursor = next;
                    self.remove_session(&id, action == Action::Delete, effects);
                }
            }
            Action::Undo => self.undo(),
            Action::ForkTree => {
                if let Some(id) = current {
                    self.show_forks_of(&id);
                }
            }
            Action::Detach => self.quit(effects),
            _ => {}
        }
    }

    fn open_listed(&mut self, effects: &mut Vec<Effect>) {
        let row = self.list_cursor.clone().and_then(|id| self.sessions.get(&id));
        let Some((id, cwd)) = row.map(|row| (row.id.clone(), row.cwd.clone())) else { return };
        self.set_focus(Focus::Input);
        self.list_filter.clear();
        self.parents.clear();
        self.open(id, cwd, effects);
    }

    /// Hides a session, and archives or deletes it after some seconds.
    fn remove_session(&mut self, id: &SessionId, is_deletion: bool, effects: &mut Vec<Effect>) {
        let Some(row) = self.sessions.get(id) else { return };
        let title = row.title.clone();
        let rows = self.sessions.latest_first();
        let forks = rows.iter().filter(|row| row.parent.as_ref() == Some(id)).count();
        // The one before can no longer be taken back by `u`: it happens now.
        effects.extend(self.removals.drain(..).map(|removal| removal.effect()));
        self.sessions.hidden.insert(id.clone());
        if self.open_id().as_ref() == Some(id) {
            self.keep_draft();
            self.conversation = None;
        }
        self.removals.push(PendingRemoval { id: id.clone(), title, is_deletion, forks, at: self.look.now });
    }

    /// Takes back the last archiving or deletion.
    fn undo(&mut self) {
        match self.removals.pop() {
            Some(removal) => {
                self.sessions.hidden.remove(&removal.id);
                self.list_cursor = Some(removal.id);
                self.note(&format!("Kept \"{}\"", removal.title));
            }
            None => self.note("Nothing to undo"),
        }
    }

    // Requests and forms.

    fn on_request_action(&mut self, action: Action, effects: &mut Vec<Effect>) {
        let half = usize::from(self.size.1 / 4).max(1);
        match action {
            Action::Allow | Action::AllowAlways | Action::Reject | Action::RejectAlways => {
                let id = self.shown_request().map(|request| request.id.clone());
                self.answer(id.as_ref(), action, effects);
            }
            Action::Next => self.request_scroll += 1,
            Action::Previous => self.request_scroll = self.request_scroll.saturating_sub(1),
            Action::HalfDown => self.request_scroll += half,
            Action::HalfUp => self.request_scroll = self.request_scroll.saturating_sub(half),
            Action::First => self.request_scroll = 0,
            Action::Last => self.request_scroll = usize::MAX / 2,
            Action::View => {
                effects.extend(self.shown_request().map(|request| Effect::Page(self.request_text(request))));
            }
            _ => {}
        }
    }

    /// Whether a key may answer a request now: not one that was meant for something else.
    fn choose_option(&mut self, number: usize, effects: &mut Vec<Effect>) {
        let Some(request) = self.shown_request() else { return };
        let chosen = number.checked_sub(1).and_then(|index| request.options().get(index)).cloned();
        if let Some(option) = chosen {
            let id = request.id.clone();
            self.send_answer(id, selection(&option), effects);
        }
    }

    /// Sends the answer to a request.
    fn send_answer(&mut self, id: String, result: parlor_client::Object, effects: &mut Vec<Effect>) {
        self.answered_here.insert(id.clone());
        effects.push(Effect::Send(Call::Answer { id, result }));
    }

    /// Answers a request with the only option of a kind.
    fn answer(&mut self, id: Option<&String>, action: Action, effects: &mut Vec<Effect>) {
        let request = self.requests.iter().find(|request| Some(&request.id) == id);
        let Some(Request { id, subject: Subject::Permission(permission), .. }) = request else { return };
        let kind = match action {
            Action::Allow => PermissionOptionKind::AllowOnce,
            Action::AllowAlways => PermissionOptionKind::AllowAlways,
            Action::Reject => PermissionOptionKind::RejectOnce,
            _ => PermissionOptionKind::RejectAlways,
        };
        match permission.only_option(&kind) {
            Some(option) => {
                let (id, result) = (id.clone(), selection(option));
                self.send_answer(id, result, effects);
            }
            None if permission.options.iter().any(|option| option.kind == kind) => {
                self.note("Several options fit this key: choose by number");
            }
            None => self.note("The agent does not offer this"),
        }
    }

    fn store_form_text(&mut self) {
        let (cursor, typed) = (self.form.cursor, self.form.text.text().to_owned());
        let id = self.form.request.clone();
        let request = self.requests.iter_mut().find(|request| request.id == id);
        let Some(Request { subject: Subject::Form(form), .. }) = request else { return };
        match form.fields.get_mut(cursor).map(|field| &mut field.value) {
            Some(FieldValue::Text(text)) => *text = typed,
            Some(FieldValue::Boolean(_) | FieldValue::One { .. } | FieldValue::Many { .. }) | None => {}
        }
    }

    /// Keys of a form. Returns whether the key was used.
    fn on_form_key(&mut self, key: Key, action: Option<Action>, effects: &mut Vec<Effect>) -> bool {
        let id = self.shown_request().map(|request| request.id.clone()).unwrap_or_default();
        if self.form.request != id {
            self.form = super::FormState { request: id.clone(), ..Default::default() };
            self.load_form_field();
        }
        let Some(request) = self.requests.iter_mut().find(|request| request.id == id) else { return false };
        let Subject::Form(form) = &mut request.subject else { return false };
        let fields = form.fields.len();
        let cursor = self.form.cursor;
        if let Some(url) = form.url().map(str::to_owned) {
            match (action, key.typed()) {
                (Some(Action::Open), _) => {
                    effects.push(Effect::OpenLink(url));
                    let result = Form::accept(form).unwrap_or_else(|_| Elicitation::decline());
                    self.send_answer(id, result, effects);
                }
                (_, Some('y')) => effects.push(Effect::Copy(url)),
                (_, Some('n')) => self.send_answer(id, Elicitation::decline(), effects),
                _ => return false,
            }
            return true;
        }
        let value = form.fields.get_mut(cursor).map(|field| &mut field.value);
        match (action, value) {
            (Some(Action::NextPane), _) => self.go_to_field(step(cursor, fields + 2, true)),
            (Some(Action::PreviousField), _) => self.go_to_field(step(cursor, fields + 2, false)),
            (Some(Action::Open), None) => self.submit(cursor > fields, effects),
            (Some(Action::Open), Some(_)) => self.go_to_field(cursor + 1),
            (Some(Action::Switch), Some(FieldValue::Boolean(value))) => *value = !*value,
            (Some(Action::Switch), Some(FieldValue::One { options, chosen })) => {
                *chosen = Some(chosen.map_or(0, |chosen| (chosen + 1) % options.len().max(1)));
            }
            (Some(Action::Switch), Some(FieldValue::Many { chosen, cursor, .. })) => {
                if let Some(chosen) = chosen.get_mut(*cursor) {
                    *chosen = !*chosen;
                }
            }
            (Some(Action::Previous | Action::Next), Some(FieldValue::One { options, chosen })) => {
                let forward = action == Some(Action::Next);
                *chosen = Some(chosen.map_or(0, |chosen| step(chosen, options.len(), forward)));
            }
            (Some(Action::Previous | Action::Next), Some(FieldValue::Many { options, cursor, .. })) => {
                *cursor = step(*cursor, options.len(), action == Some(Action::Next));
            }
            (Some(Action::Previous | Action::Next), _) => {
                self.go_to_field(step(cursor, fields + 2, action == Some(Action::Next)));
            }
            (_, Some(FieldValue::Many { options, cursor, .. }))
                if matches!(key.code(), KeyCode::Left | KeyCode::Right) =>
            {
                *cursor = step(*cursor, options.len(), key.code() == KeyCode::Right);
            }
            (_, None) if matches!(key.code(), KeyCode::Left | KeyCode::Right) => {
                self.form.cursor = if key.code() == KeyCode::Left { fields } else { fields + 1 };
            }
            (_, Some(FieldValue::Text(_))) => {
                if !self.form.text.on_key(key) {
                    return false;
                }
                self.form.problem = None;
                self.store_form_text();
            }
            _ => return false,
        }
        true
    }

    fn go_to_field(&mut self, cursor: usize) {
        self.form.cursor = cursor;
        self.load_form_field();
    }

    fn submit(&mut self, is_declined: bool, effects: &mut Vec<Effect>) {
        let Some(Request { id, subject: Subject::Form(form), .. }) = self.shown_request() else { return };
        let id = id.clone();
        if is_declined {
            self.send_answer(id, Elicitation::decline(), effects);
            return;
        }
        match form.accept() {
            Ok(result) => self.send_answer(id, result, effects),
            Err((field, problem)) => {
                self.form.problem = Some(Clean::line(&problem));
                self.go_to_field(field);
            }
        }
    }

    // Overlays.

    fn ask(&mut self, title: &'static str, text: String, purpose: AskPurpose) {
        self.overlays.push(Overlay::Ask(Ask { title, text: TextField::new(text), purpose }));
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each overlay")]
    fn on_overlay_key(&mut self, key: Key, action: Option<Action>, effects: &mut Vec<Effect>) {
        let has_session = self.conversation.is_some();
        match self.overlays.last_mut() {
            Some(Overlay::Picker(picker)) => match action {
                Some(Action::Previous) => picker.step(false),
                Some(Action::Next) => picker.step(true),
                Some(Action::Open) => self.choose(effects),
                Some(Action::ValueLeft | Action::ValueRight)
                    if matches!(picker.current().map(|item| &item.choice), Some(Choice::Values { .. })) =>
                {
                    self.change_value(action == Some(Action::ValueRight), effects);
                }
                Some(Action::PageUp) => (0..10).for_each(|_| picker.step(false)),
                Some(Action::PageDown) => (0..10).for_each(|_| picker.step(true)),
                Some(Action::Clear) => {
                    picker.query.clear();
                    picker.filter();
                }
                _ => {
                    if picker.query.on_key(key) {
                        picker.filter();
                        self.refresh_picker();
                    }
                }
            },
            Some(Overlay::Search(search)) => match action {
                Some(Action::Previous) => search.cursor = step(search.cursor, search.hits.len(), false),
                Some(Action::Next) => search.cursor = step(search.cursor, search.hits.len(), true),
                Some(Action::Scope) => {
                    search.next_scope(has_session);
                    search.changed = Some(self.look.now);
                }
                Some(Action::Open) => self.open_hit(effects),
                Some(Action::Clear) => {
                    search.query.clear();
                    search.changed = Some(self.look.now);
                }
                _ => {
                    if search.query.on_key(key) {
                        search.changed = Some(self.look.now);
                    }
                }
            },
            Some(Overlay::Ask(ask)) => match action {
                Some(Action::Open) => self.on_asked(effects),
                Some(Action::Clear) => ask.text.clear(),
                _ => {
                    if ask.text.on_key(key) {
                        self.on_ask_changed();
                    }
                }
            },
            Some(Overlay::Inbox(_)) => self.on_inbox_key(key, action, effects),
            Some(Overlay::Forks(forks)) => {
                let current = forks.current().cloned();
                match action {
                    Some(Action::Next) => forks.cursor = step(forks.cursor, forks.lines.len(), true),
                    Some(Action::Previous) => forks.cursor = step(forks.cursor, forks.lines.len(), false),
                    Some(Action::First) => forks.cursor = 0,
                    Some(Action::Last) => forks.cursor = forks.lines.len().saturating_sub(1),
                    Some(Action::Open) => {
                        if let Some(row) = current.and_then(|id| self.sessions.get(&id)) {
                            let (id, cwd) = (row.id.clone(), row.cwd.clone());
                            self.overlays.clear();
                            self.open(id, cwd, effects);
                        }
                    }
                    Some(Action::Title | Action::Archive | Action::Delete | Action::Undo) => {
                        self.list_cursor = current;
                        self.on_session_action(action.unwrap_or(Action::Title), effects);
                    }
                    Some(Action::Detach) => self.quit(effects),
                    _ => {}
                }
            }
            Some(Overlay::Help(help)) => {
                if let Some(query) = &mut help.query {
                    if key.code() == KeyCode::Enter {
                        help.query = None;
                    } else {
                        query.on_key(key);
                        help.scroll = 0;
                    }
                    return;
                }
                let page = usize::from(self.size.1.saturating_sub(3)).max(1);
                match action {
                    Some(Action::Next) => help.scroll += 1,
                    Some(Action::Previous) => help.scroll = help.scroll.saturating_sub(1),
                    Some(Action::HalfDown | Action::PageDown) => help.scroll += page,
                    Some(Action::HalfUp | Action::PageUp) => help.scroll = help.scroll.saturating_sub(page),
                    Some(Action::First) => help.scroll = 0,
                    Some(Action::Last) => help.scroll = usize::MAX / 2,
                    Some(Action::Find) => help.query = Some(TextField::default()),
                    Some(Action::Help | Action::Detach) => {
                        self.overlays.pop();
                    }
                    _ => {}
                }
            }
            None => {}
        }
    }

    /// The filter of the sessions follows each key.
    fn on_ask_changed(&mut self) {
        if let Some(Overlay::Ask(ask)) = self.overlays.last()
            && ask.purpose == AskPurpose::Filter
        {
            self.list_filter = ask.text.text().to_owned();
            self.list_cursor = self.listed().first().cloned();
        }
    }

    fn on_asked(&mut self, effects: &mut Vec<Effect>) {
        let Some(Overlay::Ask(ask)) = self.overlays.pop() else { return };
        let text = ask.text.text().trim().to_owned();
        match ask.purpose {
            AskPurpose::Title(id) => effects.push(Effect::Send(Call::SetTitle(id, text))),
            AskPurpose::Directory => {
                if !text.is_empty() {
                    self.new_cwd = match (text.strip_prefix('~'), &self.look.home) {
                        (Some(rest), Some(home)) => format!("{home}{rest}"),
                        _ => text,
                    };
                }
            }
            AskPurpose::Find => {
                let Some(conversation) = &mut self.conversation else { return };
                conversation.matches = text.split_whitespace().map(str::to_lowercase).collect();
                if !text.is_empty() && !conversation.select_match(false, &self.look) {
                    self.note("No hits here");
                }
            }
            AskPurpose::Filter => self.open_listed(effects),
        }
    }

    fn on_inbox_key(&mut self, key: Key, action: Option<Action>, effects: &mut Vec<Effect>) {
        // The newest comes first.
        let ids: Vec<String> = self.requests.iter().rev().map(|request| request.id.clone()).collect();
        let half = usize::from(self.size.1 / 4).max(1);
        let Some(Overlay::Inbox(inbox)) = self.overlays.last_mut() else { return };
        inbox.cursor = inbox.cursor.min(ids.len().saturating_sub(1));
        let current = ids.get(inbox.cursor).cloned();
        match action {
            Some(Action::Next | Action::Previous) => {
                inbox.cursor = step(inbox.cursor, ids.len(), action == Some(Action::Next));
                inbox.scroll = 0;
            }
            Some(Action::HalfDown) => inbox.scroll += half,
            Some(Action::HalfUp) => inbox.scroll = inbox.scroll.saturating_sub(half),
            Some(action @ (Action::Allow | Action::AllowAlways | Action::Reject | Action::RejectAlways)) => {
                self.answer(current.as_ref(), action, effects);
            }
            Some(Action::View) => {
                let request = self.requests.iter().find(|request| Some(&request.id) == current.as_ref());
                effects.extend(request.map(|request| Effect::Page(self.request_text(request))));
            }
            Some(Action::Open) => {
                let request = self.requests.iter().find(|request| Some(&request.id) == current.as_ref());
                if let Some((id, cwd)) = request.map(|request| (request.session.clone(), request.cwd.clone()))
                {
                    self.overlays.clear();
                    if self.open_id().as_ref() == Some(&id) {
                        self.set_focus(Focus::Request);
                    } else {
                        self.open_at = Some(OpenAt::Request);
                        self.open(id, cwd, effects);
                    }
                }
            }
            _ => {
                let digit = key.typed().and_then(|letter| letter.to_digit(10));
                let number = digit.and_then(|digit| usize::try_from(digit).ok()?.checked_sub(1));
                let request = self.requests.iter().find(|request| Some(&request.id) == current.as_ref());
                let option = request.zip(number).and_then(|(request, number)| request.options().get(number));
                if let (Some(result), Some(id)) = (option.map(selection), current) {
                    self.send_answer(id, result, effects);
                }
            }
        }
    }

    fn open_hit(&mut self, effects: &mut Vec<Effect>) {
        let Some(Overlay::Search(search)) = self.overlays.last() else { return };
        let Some(hit) = search.hits.get(search.cursor).cloned() else { return };
        let words = search.words();
        self.open_at = match (hit.message, hit.tool_call) {
            (Some(id), _) => Some(OpenAt::Message(id, words)),
            (None, Some(id)) => Some(OpenAt::ToolCall(id, words)),
            (None, None) => None,
        };
        self.results = self.overlays.pop().map(Box::new);
        if self.open_id().as_ref() == Some(&hit.session) {
            self.overlays.clear();
            self.select_now();
        } else {
            self.open(hit.session, hit.cwd, effects);
        }
    }

    fn select_now(&mut self) {
        if let (Some(conversation), Some(OpenAt::Message(id, words))) =
            (&mut self.conversation, self.open_at.take())
            && conversation.select_message(&id, &self.look)
        {
            conversation.matches = words;
            self.focus = Focus::Messages;
        }
    }

    fn show_forks(&mut self) {
        if let Some(id) = self.open_id() {
            self.show_forks_of(&id);
        }
    }

    fn show_forks_of(&mut self, id: &SessionId) {
        let lines = self.sessions.tree(id);
        let is_it = |line: &ListLine| matches!(line, ListLine::Session { id: known, .. } if known == id);
        let cursor = lines.iter().position(is_it).unwrap_or(0);
        self.overlays.push(Overlay::Forks(ForkTree { lines, cursor }));
    }

    // Pickers.

    fn pick_session(&mut self) {
        let order = |state: RowState| match state {
            RowState::NeedsYou => 0,
            RowState::Running => 1,
            RowState::Failed | RowState::Idle => 2,
        };
        let mut rows = self.sessions.latest_first();
        rows.sort_by_key(|row| order(row.state));
        let now = self.look.now;
        let item = |row: &crate::sessions::SessionRow| PickItem {
            section: None,
            mark: super::draw::state_mark(row),
            name: row.title.clone(),
            about: Clean::line(&format!("{}  {}", row.agent, self.look.short_path(&row.cwd))),
            right: Clean::line(&super::draw::age_of(row, now)),
            choice: Choice::Session(row.id.clone()),
            needs_confirmation: false,
        };
        let items = rows.into_iter().map(item).collect();
        let mut picker = Picker::new("Open a session", items);
        picker.subtitle = Clean::line(&self.sessions.len().to_string());
        self.overlays.push(Overlay::Picker(picker));
    }

    /// Offers a new session with the text of the picker of sessions.
    fn refresh_picker(&mut self) {
        let agent = self.agent.clone().or_else(|| self.default_agent());
        let with = agent.map(|agent| format!(" with {agent}")).unwrap_or_default();
        let path = self.look.short_path(&self.new_cwd);
        let Some(Overlay::Picker(picker)) = self.overlays.last_mut() else { return };
        if picker.title != "Open a session" {
            return;
        }
        picker.items.retain(|item| !matches!(item.choice, Choice::NewSession(_)));
        let query = picker.query.text().trim().to_owned();
        if !query.is_empty() {
            picker.items.push(PickItem {
                section: None,
                mark: None,
                name: Clean::line(&format!("+ New session \"{query}\" in {path}{with}")),
                about: Clean::default(),
                right: Clean::default(),
                choice: Choice::NewSession(query),
                needs_confirmation: false,
            });
        }
        picker.filter();
    }

    pub(super) fn default_agent(&self) -> Option<String> {
        self.agents.iter().find(|agent| agent.is_default).map(|agent| agent.name.clone())
    }

    fn pick_command(&mut self) {
        const COMMANDS: [(Action, &str); 16] = [
            (Action::OpenSession, "Open a session"),
            (Action::NewSession, "New session"),
            (Action::Inbox, "Inbox"),
            (Action::Search, "Search all sessions"),
            (Action::Options, "Model, mode and options"),
            (Action::Fork, "Fork here"),
            (Action::Edit, "Edit the prompt"),
            (Action::Regenerate, "Regenerate the answer"),
            (Action::OtherAgent, "Continue with another agent"),
            (Action::ForkTree, "Fork tree"),
            (Action::Title, "Change the title"),
            (Action::Filter, "Directory of new sessions"),
            (Action::Archive, "Archive this session"),
            (Action::Delete, "Delete this session"),
            (Action::Undo, "Undo"),
            (Action::Help, "Help"),
        ];
        let item = |(action, name): (Action, &str)| {
            let places = [Place::Messages, Place::Sessions];
            let key = places.into_iter().find_map(|place| self.keys.key(place, action));
            let key = key.filter(|_| action != Action::Filter).map(|key| key.to_string());
            PickItem {
                section: None,
                mark: None,
                name: Clean::line(name),
                about: Clean::default(),
                right: Clean::line(&key.unwrap_or_default()),
                choice: Choice::Action(action),
                needs_confirmation: false,
            }
        };
        let mut items: Vec<_> = COMMANDS.into_iter().map(item).collect();
        items.push(PickItem {
            section: None,
            mark: None,
            name: Clean::line("Detach"),
            about: Clean::default(),
            right: Clean::line("Ctrl-C Ctrl-C"),
            choice: Choice::Action(Action::Detach),
            needs_confirmation: false,
        });
        self.overlays.push(Overlay::Picker(Picker::new("All commands", items)));
    }

    fn pick_history(&mut self) {
        let item = |text: String| PickItem {
            section: None,
            mark: None,
            name: Clean::line(&text),
            about: Clean::default(),
            right: Clean::default(),
            choice: Choice::Text(text),
            needs_confirmation: false,
        };
        let items = self.history().into_iter().map(item).collect();
        self.overlays.push(Overlay::Picker(Picker::new("History", items)));
    }

    fn pick_agent(&mut self, is_fork: bool) {
        let chosen = self.agent.clone().or_else(|| self.default_agent());
        let item = |agent: &crate::event::AgentInfo| PickItem {
            section: None,
            mark: None,
            name: Clean::line(&agent.name),
            about: Clean::line(if agent.is_installed { "installed" } else { "not installed" }),
            right: Clean::line(if Some(&agent.name) == chosen.as_ref() { "now" } else { "" }),
            choice: if is_fork {
                Choice::OtherAgent(agent.name.clone())
            } else {
                Choice::NewAgent(agent.name.clone())
            },
            needs_confirmation: false,
        };
        let items = self.agents.iter().map(item).collect();
        let title = if is_fork { "Continue with another agent" } else { "Agent of the new session" };
        self.overlays.push(Overlay::Picker(Picker::new(title, items)));
    }

    fn pick_option(&mut self) {
        let Some(conversation) = &self.conversation else {
            self.pick_agent(false);
            return;
        };
        let mut items = Vec::new();
        let mut rest = Vec::new();
        for option in conversation.options() {
            let name = Clean::line(&option.name);
            let section = match option.category.as_deref() {
                Some("mode") => Some("Mode"),
                Some("model") => Some("Model"),
                Some(_) | None => None,
            };
            if let Some(section) = section {
                for (index, choice) in option.values.into_iter().enumerate() {
                    let (value, value_name) = (choice.value, Clean::line(&choice.name));
                    let is_now = Some(&value) == option.value.as_ref();
                    let text = value.to_text().unwrap_or_default().to_lowercase();
                    let asks_nothing = section == "Mode"
                        && (text.contains("bypass") || text.contains("yolo") || text.contains("dont_ask"));
                    items.push(PickItem {
                        section: Some(section).filter(|_| index == 0),
                        mark: asks_nothing.then_some((Mark::NeedsYou, Role::Warning)),
                        name: value_name.clone(),
                        about: Clean::line(&choice.description.unwrap_or_default()),
                        right: Clean::line(if is_now { "now" } else { "" }),
                        choice: Choice::Option {
                            option: option.id.clone(),
                            value,
                            note: format!("{}: {value_name}", section.to_lowercase()),
                        },
                        needs_confirmation: asks_nothing && !is_now,
                    });
                }
                continue;
            }
            let values = if option.is_boolean {
                vec![(Json::from(false), Clean::line("off")), (Json::from(true), Clean::line("on"))]
            } else {
                option.values.into_iter().map(|value| (value.value, Clean::line(&value.name))).collect()
            };
            let place =
                values.iter().position(|(value, _)| Some(value) == option.value.as_ref()).unwrap_or(0);
            let shown = values.get(place).map(|(_, name)| name.clone()).unwrap_or_default();
            rest.push(PickItem {
                section: Some("Options").filter(|_| rest.is_empty()),
                mark: None,
                name: name.clone(),
                about: shown,
                right: Clean::default(),
                choice: Choice::Values { option: option.id, name, values, now: place },
                needs_confirmation: false,
            });
        }
        items.extend(rest);
        if items.is_empty() {
            self.note("The agent has no model, mode or other options");
            return;
        }
        let mut picker = Picker::new("Model, mode and options", items);
        picker.subtitle = self.session_title();
        picker.is_options = true;
        picker.footer = self.session_facts();
        self.overlays.push(Overlay::Picker(picker));
    }

    /// Facts about the session, below its options.
    fn session_facts(&self) -> Vec<Clean> {
        let Some(conversation) = &self.conversation else { return Vec::new() };
        let mut first = Vec::new();
        if let Some(usage) = self.usage() {
            let (used, size) = (crate::time::tokens(usage.used), crate::time::tokens(usage.size));
            first.push(format!("context {used} of {size} ({}%)", usage.percent()));
            first.extend(usage.cost.map(|cost| format!("cost {cost}")));
        }
        first.push(format!("messages {}", conversation.messages()));
        let second = format!("agent {}   id {}", self.agent_name(), conversation.id);
        vec![Clean::line(&first.join("   ")), Clean::line(&second)]
    }

    /// Does what the chosen item says.
    fn choose(&mut self, effects: &mut Vec<Effect>) {
        let Some(Overlay::Picker(picker)) = self.overlays.last_mut() else { return };
        let Some(item) = picker.current().cloned() else { return };
        if item.needs_confirmation && picker.confirming != Some(picker.cursor) {
            picker.confirming = Some(picker.cursor);
            self.note("This mode asks nothing before it acts. Enter again sets it");
            return;
        }
        if let Choice::Values { .. } = item.choice {
            self.change_value(true, effects);
            return;
        }
        self.overlays.pop();
        match item.choice {
            Choice::Session(id) => {
                if let Some(cwd) = self.sessions.get(&id).map(|row| row.cwd.clone()) {
                    self.parents.clear();
                    self.set_focus(Focus::Input);
                    self.open(id, cwd, effects);
                }
            }
            Choice::NewSession(text) => {
                self.new_session();
                self.input.set(&text);
            }
            Choice::Action(action) => self.run_command(action, effects),
            Choice::Option { option, value, note } => {
                let note = if self.is_busy() { format!("{note} (from the next turn)") } else { note };
                effects.push(Effect::Send(Call::SetOption { option, value, note }));
            }
            Choice::Values { .. } => {}
            Choice::Text(text) => {
                self.input.set(&text);
                self.set_focus(Focus::Input);
            }
            Choice::OtherAgent(agent) => self.continue_with(agent, effects),
            Choice::NewAgent(agent) => self.agent = Some(agent),
        }
    }

    /// Forks the session for another agent, which gets the transcript with its first prompt.
    fn continue_with(&mut self, agent: String, effects: &mut Vec<Effect>) {
        let Some(conversation) = &self.conversation else { return };
        let at = conversation.selected_message();
        let note = format!("Continues with {agent}. Esc returns to the parent.");
        effects.push(Effect::Send(Call::Fork { at, agent: Some(agent), note }));
    }

    /// Sets the next or previous value of an option.
    fn change_value(&mut self, forward: bool, effects: &mut Vec<Effect>) {
        let Some(Overlay::Picker(picker)) = self.overlays.last_mut() else { return };
        let Some((index, _)) = picker.shown.get(picker.cursor) else { return };
        let item = &mut picker.items[*index];
        let Choice::Values { option, name, values, now } = &mut item.choice else { return };
        if values.is_empty() {
            return;
        }
        *now = if forward { (*now + 1) % values.len() } else { (*now + values.len() - 1) % values.len() };
        let (value, shown) = values[*now].clone();
        item.about = shown.clone();
        let note = format!("{name}: {shown}");
        effects.push(Effect::Send(Call::SetOption { option: option.clone(), value, note }));
    }

    /// Runs a command of the palette.
    fn run_command(&mut self, action: Action, effects: &mut Vec<Effect>) {
        if self.on_common_action(action, effects) {
            return;
        }
        match action {
            Action::Filter => {
                let cwd = self.look.short_path(&self.new_cwd).to_string();
                self.ask("Directory", cwd, AskPurpose::Directory);
            }
            Action::Fork | Action::Edit | Action::Regenerate | Action::OtherAgent => {
                if self.conversation.is_some() {
                    self.branch(action, effects);
                } else {
                    self.note("No session is open");
                }
            }
            Action::ForkTree => self.show_forks(),
            Action::Detach => self.quit(effects),
            Action::Undo => self.undo(),
            Action::Title | Action::Archive | Action::Delete => {
                self.list_cursor = self.open_id();
                if self.list_cursor.is_some() {
                    self.on_session_action(action, effects);
                } else {
                    self.note("No session is open");
                }
            }
            _ => {}
        }
    }

    /// The role of the selected entry, for the actions that are possible.
    pub(super) fn selected_kind(&self) -> Option<SelectedKind> {
        let conversation = self.conversation.as_ref()?;
        conversation.with_selected(|entry, _| match entry.id() {
            EntryId::Message(MessageRole::User, _) => SelectedKind::Prompt,
            EntryId::Message(MessageRole::Agent, _) => SelectedKind::Answer,
            EntryId::Message(MessageRole::Thought, _)
            | EntryId::ToolCall(_)
            | EntryId::Plan(_)
            | EntryId::Terminal(_)
            | EntryId::Compaction(_)
            | EntryId::Subagent(_)
            | EntryId::SessionMessage(_)
            | EntryId::Event(_)
            | EntryId::Note(_) => SelectedKind::Other,
        })
    }
}

/// What is selected, as far as its actions differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SelectedKind {
    Prompt,
    Answer,
    Other,
}
