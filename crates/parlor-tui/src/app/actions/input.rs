//! Keys of the input: editing, sending, history, completion and queued prompts.

use crossterm::event::KeyCode;
use parlor_client::{DuringTurn, SessionId};

use crate::app::{App, Completion, Focus, MAX_HISTORY};
use crate::clean::Clean;
use crate::event::{Call, Effect};
use crate::fuzzy;
use crate::input::Completed;
use crate::keys::{Action, Key, Place};
use crate::overlay::{Overlay, step};

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
    pub(super) fn history(&self) -> Vec<String> {
        let mut prompts =
            self.conversation.as_ref().map(crate::conversation::Conversation::prompts).unwrap_or_default();
        prompts.extend(self.history.iter().cloned());
        let mut seen = std::collections::HashSet::new();
        prompts.retain(|prompt| !prompt.trim().is_empty() && seen.insert(prompt.clone()));
        prompts.truncate(MAX_HISTORY);
        prompts
    }

    /// Keys of a selected queued prompt. Returns whether the key was used.
    pub(super) fn on_queued_key(&mut self, key: Key, effects: &mut Vec<Effect>) -> bool {
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

    pub(in crate::app) fn on_paste(&mut self, text: &str, effects: &mut Vec<Effect>) {
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

    /// Finds what completes the word before the cursor.
    pub(in crate::app) fn complete(&mut self, effects: &mut Vec<Effect>) {
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
    pub(super) fn on_completion_key(&mut self, key: Key) -> bool {
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
}
