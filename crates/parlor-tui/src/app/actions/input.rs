//! Keys of the input: editing, sending, history, completion and queued prompts.

use std::collections::HashSet;

use crossterm::event::KeyCode;
use jiff::SignedDuration;
use parlor_client::{DuringTurn, SessionId};

use crate::app::{App, Completion, CompletionItem, Focus, MAX_HISTORY, Opening};
use crate::clean::Clean;
use crate::conversation::Conversation;
use crate::event::{Call, Effect, SessionCall};
use crate::fuzzy;
use crate::input::Completed;
use crate::keys::{Action, Key, KeyContext};
use crate::overlay::{Overlay, step};

/// An Enter this soon after the connection was made again sends nothing.
const RECONNECT_GUARD: SignedDuration = SignedDuration::from_secs(1);

/// How a prompt names a file.
fn reference(path: &str) -> String {
    if path.contains(char::is_whitespace) { format!("@\"{path}\"") } else { format!("@{path}") }
}

/// How many rows of completions are shown.
const MAX_COMPLETIONS: usize = 6;

impl App {
    pub(super) fn on_input_action(&mut self, action: Action, key: Key, effects: &mut Vec<Effect>) {
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
    pub(in crate::app) fn send(&mut self, during_turn: DuringTurn, effects: &mut Vec<Effect>) {
        if self.is_offline() {
            effects.push(Effect::Reconnect);
            return;
        }
        if self.reopening.is_some_and(|reopening| reopening.attempts > 0) && self.opening.is_none() {
            self.reopen(effects);
            return;
        }
        if let Some(agent) = &self.needs_login {
            effects.push(Effect::Login(agent.clone()));
            return;
        }
        if self.input.is_blank() || self.has_ended {
            return;
        }
        if self.reconnected.take().is_some_and(|at| self.look.now < at + RECONNECT_GUARD) {
            self.note("Connected again. Enter sends");
            return;
        }
        let text = self.input.full_text();
        if !self.can_send() {
            self.is_send_pending = true;
            return;
        }
        self.input.set("");
        self.add_to_history(text.clone());
        let Some(conversation) = &mut self.conversation else {
            let ticket = self.new_ticket();
            self.opening = Some(Opening { ticket, session: None, note: None });
            self.drafts.insert(None, text.clone());
            let (agent, cwd) = (self.agent.clone(), self.new_cwd.clone());
            effects.push(Effect::Send(Call::New { ticket, agent, cwd, prompt: text }));
            return;
        };
        conversation.deselect();
        conversation.follow();
        if let Some(message) = self.editing.take() {
            let note = "Forked with the edited prompt. Esc returns to the parent.".to_owned();
            let edited = (message.clone(), text.clone());
            self.start_fork(note, |ticket| SessionCall::EditPrompt { message, text, ticket }, effects);
            if let Some(forking) = &mut self.forking {
                forking.edited = Some(edited);
            }
            return;
        }
        self.send_prompt(text, during_turn, effects);
    }

    /// Sends a prompt to the open session, with a key that makes a repetition the same prompt.
    fn send_prompt(&mut self, text: String, during_turn: DuringTurn, effects: &mut Vec<Effect>) {
        self.prompts_sent += 1;
        let key = format!("{}-{}", self.look.now.as_nanosecond(), self.prompts_sent);
        self.on_prompt_sent();
        self.send_to_session(SessionCall::Prompt { text, key, during_turn }, effects);
    }

    /// Up: the queued prompts, the last one first, then the history.
    fn go_back(&mut self) {
        let queued = self.queue().len();
        match self.queued_cursor {
            None if queued > 0 && self.history_index.is_none() && self.input.is_blank() => {
                self.queued_cursor = Some(queued - 1);
                return;
            }
            Some(index) if index > 0 => {
                self.queued_cursor = Some(index - 1);
                return;
            }
            _ => self.queued_cursor = None,
        }
        let history = self.history();
        let next = self.history_index.map_or(0, |index| index + 1);
        if let Some(text) = history.get(next) {
            if self.history_index.is_none() && !self.input.is_blank() {
                // What was being written comes back with Down.
                self.drafts.insert(self.open_id(), self.input.full_text());
            }
            self.history_index = Some(next);
            self.input.set(text);
        }
    }

    /// Down: later prompts of the history, then what was being written.
    fn go_forward(&mut self) {
        if let Some(index) = self.queued_cursor {
            self.queued_cursor = Some(index + 1).filter(|next| *next < self.queue().len());
            return;
        }
        let Some(index) = self.history_index else { return };
        self.history_index = index.checked_sub(1);
        let text = match self.history_index {
            Some(index) => self.history().get(index).cloned(),
            None => self.drafts.remove(&self.open_id()),
        };
        self.input.set(&text.unwrap_or_default());
    }

    /// The prompts that were sent, the latest first: those that were written here for the session, which may wait in its queue, then
    /// the others of the session, then those of other sessions.
    pub(in crate::app) fn history(&self) -> Vec<String> {
        let open = self.open_id();
        let (own, others): (Vec<_>, Vec<_>) = self.history.iter().partition(|(session, _)| *session == open);
        let texts = |prompts: Vec<&(Option<SessionId>, String)>| {
            prompts.into_iter().map(|(_, text)| text.clone()).collect::<Vec<_>>()
        };
        let mut prompts = texts(own);
        prompts.extend(self.conversation.as_ref().map(Conversation::prompts).unwrap_or_default());
        prompts.extend(texts(others));
        let mut seen = HashSet::new();
        prompts.retain(|prompt| !prompt.trim().is_empty() && seen.insert(prompt.clone()));
        prompts.truncate(MAX_HISTORY);
        prompts
    }

    /// Keys of a selected queued prompt. Returns whether the key was used.
    pub(super) fn on_queued_key(&mut self, key: Key, effects: &mut Vec<Effect>) -> bool {
        let Some(index) = self.queued_cursor else { return false };
        let Some(prompt) = self.queue().into_iter().nth(index) else {
            self.queued_cursor = None;
            return false;
        };
        match self.keys.action(KeyContext::Messages, key) {
            Some(Action::Edit) => {
                self.replace_input(&prompt.text);
                self.withdrawn.push(prompt.text);
                self.send_to_session(SessionCall::Withdraw(prompt.id), effects);
            }
            Some(Action::Withdraw) => {
                self.add_to_history(prompt.text.clone());
                self.withdrawn.push(prompt.text);
                self.send_to_session(SessionCall::Withdraw(prompt.id), effects);
                self.note("Withdrawn");
            }
            Some(Action::SendNow) => {
                self.withdrawn.push(prompt.text.clone());
                self.send_to_session(SessionCall::Withdraw(prompt.id), effects);
                self.send_prompt(prompt.text, DuringTurn::SteerOrCancel, effects);
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

    pub(in crate::app) fn on_paste(&mut self, text: &str, effects: &mut Vec<Effect>) {
        self.last_key = Some(self.look.now);
        if self.hold_paste(text) {
            return;
        }
        let is_form = self.focus == Focus::Request && self.shown_form();
        match self.overlays.last_mut() {
            None if is_form => {
                self.form.text.insert(text);
                self.store_form_text();
            }
            None => {
                if self.focus != Focus::Input {
                    self.set_focus(Focus::Input);
                }
                if !self.input.paste(text) {
                    self.fail("The pasted text is too large for a prompt");
                }
            }
            Some(Overlay::Picker(picker)) => {
                picker.query.insert(text);
                picker.filter();
                self.refresh_picker();
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

    /// Finds what completes the word before the cursor.
    pub(in crate::app) fn complete(&mut self, effects: &mut Vec<Effect>) {
        let word =
            self.input.completed_word().filter(|_| self.focus == Focus::Input && self.overlays.is_empty());
        let is_file = matches!(word, Some(Completed::File(_)));
        let is_listed = std::mem::replace(&mut self.has_listed, is_file);
        let Some(word) = word.filter(|word| self.closed_completion.as_ref() != Some(word)) else {
            self.completion = None;
            return;
        };
        let cwd = self.cwd().to_owned();
        if is_file && !is_listed && self.wanted_files.as_ref() != Some(&cwd) {
            self.wanted_files = Some(cwd.clone());
            effects.push(Effect::ListFiles(cwd.clone()));
        }
        let is_shown = |shown: &Completion| shown.word == word && shown.listing == self.listings;
        if self.completion.as_ref().is_some_and(is_shown) {
            return;
        }
        let cursor = match &self.completion {
            Some(completion) if completion.word == word => completion.cursor,
            Some(_) | None => 0,
        };
        let mut fits: Vec<CompletionItem> = match &word {
            Completed::Command(name) => self
                .agent_commands()
                .into_iter()
                .filter(|(command, ..)| command.starts_with(name.as_str()))
                .map(|(command, hint, about)| CompletionItem {
                    insert: format!("/{command}"),
                    hint: Clean::line(&hint),
                    about: Clean::line(&about),
                    score: 0,
                })
                .collect(),
            Completed::File(path) => match &self.files {
                Some((listed, files)) if *listed == cwd => files
                    .iter()
                    .filter_map(|file| {
                        let (score, _) = fuzzy::fit(path, file)?;
                        let length = i32::try_from(file.len()).unwrap_or(i32::MAX);
                        Some(CompletionItem {
                            insert: reference(file),
                            score: score * 16 - length.min(200),
                            ..CompletionItem::default()
                        })
                    })
                    .collect(),
                _ => Vec::new(),
            },
        };
        fits.sort_by(|a, b| b.score.cmp(&a.score).then_with(|| a.insert.cmp(&b.insert)));
        let total = fits.len();
        fits.truncate(MAX_COMPLETIONS * 8);
        self.completion = (!fits.is_empty()).then(|| Completion {
            cursor: cursor.min(fits.len() - 1),
            items: fits,
            total,
            word,
            listing: self.listings,
        });
    }

    /// Keys of the open completion. Returns whether the key was used.
    pub(in crate::app) fn on_completion_key(&mut self, key: Key) -> bool {
        let Some(completion) = &mut self.completion else { return false };
        match key.code() {
            KeyCode::Up => completion.cursor = step(completion.cursor, completion.items.len(), false),
            KeyCode::Down => completion.cursor = step(completion.cursor, completion.items.len(), true),
            KeyCode::Tab | KeyCode::Enter if !key.is_alt() => {
                let Some(item) = completion.items.get(completion.cursor) else { return false };
                let insert = item.insert.clone();
                // A command that is complete is sent with Enter.
                if key.code() == KeyCode::Enter && self.input.text() == *insert {
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
}
