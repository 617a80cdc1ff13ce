//! Keys of the conversation: copy, fork, edit, regenerate.

use parlor_client::{EntryId, Role as MessageRole};

use crate::app::{App, Focus, Link};
use crate::entry::export;
use crate::event::{Effect, SessionCall};
use crate::keys::Action;
use crate::overlay::AskPurpose;

impl App {
    pub(super) fn on_message_action(&mut self, action: Action, effects: &mut Vec<Effect>) {
        if action == Action::Toggle && self.open_subagent(effects) {
            return;
        }
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
            Action::NextHit | Action::PreviousHit => self.find(action == Action::NextHit),
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

    /// Opens the session of the selected subagent. Returns whether one is selected.
    fn open_subagent(&mut self, effects: &mut Vec<Effect>) -> bool {
        let Some(conversation) = self.conversation.as_ref().filter(|_| self.link == Link::Live) else {
            return false;
        };
        let subagent = conversation.with_selected(|entry, _| {
            let EntryId::Subagent(session) = entry.id() else { return None };
            Some(session.clone())
        });
        let Some(subagent) = subagent.flatten() else { return false };
        let cwd = conversation.cwd.clone();
        // Esc returns to the owner.
        self.parents.extend(self.open_id().map(|owner| (owner, cwd.clone())));
        self.open(subagent, cwd, effects);
        true
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
    pub(super) fn branch(&mut self, action: Action, effects: &mut Vec<Effect>) {
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
                let call = |ticket| SessionCall::Fork { at: message, agent: None, ticket };
                self.start_fork(note, call, effects);
            }
            Action::Regenerate => {
                match message.or_else(|| conversation.selected_prompt().map(|(id, _)| id)) {
                    Some(message) => {
                        let note = "Regenerating in a fork. Esc returns to the parent.".to_owned();
                        self.start_fork(note, |ticket| SessionCall::Regenerate { message, ticket }, effects);
                    }
                    None => self.note("Nothing to regenerate: there is no prompt yet"),
                }
            }
            Action::Edit => match conversation.selected_prompt() {
                Some((message, text)) => {
                    if self.editing.is_none() {
                        self.keep_draft();
                    }
                    self.input.set(&text);
                    self.editing = Some(message);
                    self.set_focus(Focus::Input);
                    self.note("Enter sends the edited prompt in a fork; Esc gives up");
                }
                None => self.note("Nothing to edit: there is no prompt yet"),
            },
            _ => self.pick_agent(true, effects),
        }
    }

    /// The role of the selected entry, for the actions that are possible.
    pub(in crate::app) fn selected_kind(&self) -> Option<SelectedKind> {
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

/// The kinds of entries that have different actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::app) enum SelectedKind {
    Prompt,
    Answer,
    Other,
}
