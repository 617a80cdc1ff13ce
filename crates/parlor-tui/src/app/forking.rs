//! A fork that is being made. Until it is open, what is typed is for the fork and not for its parent.

use crossterm::event::KeyCode;
use parlor_client::SessionId;

use super::state::{Focus, Forking};
use super::{App, Failure};
use crate::event::{Effect, Event, SessionCall};
use crate::keys::{Action, Key};

/// How many keys wait for a fork; later ones are ignored, and the client says so.
const MAX_HELD: usize = 256;

impl App {
    /// Makes a fork of the open session with the call for a ticket. From now on the input is that of the fork.
    pub(super) fn start_fork(
        &mut self,
        note: String,
        call: impl FnOnce(u64) -> SessionCall,
        effects: &mut Vec<Effect>,
    ) {
        let Some(parent) = self.open_id() else { return };
        self.end_forking();
        self.keep_draft();
        self.overlays.clear();
        self.set_focus(Focus::Input);
        let ticket = self.new_ticket();
        let since = self.look.now;
        let (edited, held) = (None, Vec::new());
        self.forking = Some(Forking { parent, call: ticket, edited, note, ticket: None, since, held });
        self.send_to_session(call(ticket), effects);
    }

    /// Takes a key for the fork that is being made: text goes to the input at once, Enter and what follows it waits for the fork.
    /// Other keys do nothing, since what they would act on is not on the screen: a request of the fork must not be answered by
    /// a key that was pressed before. Returns whether the key was used.
    pub(super) fn hold_key(&mut self, key: Key, action: Option<Action>) -> bool {
        let Some(forking) = &self.forking else { return false };
        let is_typing = forking.held.is_empty();
        if is_typing && self.on_completion_key(key) {
            return true;
        }
        match action {
            Some(
                Action::Interrupt
                | Action::Escape
                | Action::Suspend
                | Action::Redraw
                | Action::PageUp
                | Action::PageDown,
            ) => return false,
            None | Some(Action::NewLine) if is_typing => return false,
            None | Some(Action::NewLine | Action::Send) => self.hold(Event::Key(key)),
            Some(_) => {}
        }
        true
    }

    /// Holds a pasted text if a key before it is held. Returns whether it is.
    pub(super) fn hold_paste(&mut self, text: &str) -> bool {
        let is_held = self.forking.as_ref().is_some_and(|forking| !forking.held.is_empty());
        if is_held {
            self.hold(Event::Paste(text.to_owned()));
        }
        is_held
    }

    fn hold(&mut self, event: Event) {
        let Some(forking) = &mut self.forking else { return };
        if forking.held.len() < MAX_HELD {
            forking.held.push(event);
        } else {
            self.fail("Too many keys before the fork is made: the last ones were ignored");
        }
    }

    /// Opens the fork, if the person still waits for it. Otherwise it is only in the list.
    pub(super) fn on_forked(
        &mut self,
        parent: SessionId,
        id: SessionId,
        cwd: String,
        ticket: u64,
        effects: &mut Vec<Effect>,
    ) {
        let Some(forking) = self.forking.take_if(|forking| forking.call == ticket) else { return };
        let parent = (parent, self.cwd().to_owned());
        self.open(id, cwd, effects);
        self.parents.push(parent);
        if let Some(opening) = &mut self.opening {
            opening.note = Some(forking.note.clone());
            self.forking = Some(Forking { ticket: Some(opening.ticket), ..forking });
        }
    }

    /// A fork was not made. If the person still waits for it, an edited prompt can be edited again; it is in the history in any case.
    pub(super) fn on_fork_failed(&mut self, parent: &SessionId, ticket: u64, failure: &Failure) {
        if let Some(forking) = self.forking.as_mut().filter(|forking| forking.call == ticket) {
            let edited = forking.edited.take();
            self.end_forking();
            if let Some((message, text)) = edited {
                self.keep_draft();
                self.input.set(&text);
                self.editing = Some(message);
            }
        }
        if self.open_id().as_ref() != Some(parent) {
            self.fail(&failure.reason);
            return;
        }
        let agent = self.agent_name().to_string();
        self.on_failure(failure, Some(agent));
    }

    /// Does what was held for a fork that is open now.
    pub(super) fn release_held(&mut self, forking: Forking, effects: &mut Vec<Effect>) {
        for event in forking.held {
            self.on_event(event, effects);
        }
    }

    /// Stops waiting for a fork. What was typed for it is added to the draft of its parent, and nothing is sent.
    pub(super) fn end_forking(&mut self) {
        let Some(forking) = self.forking.take() else { return };
        let mut typed = self.input.full_text();
        for event in forking.held {
            if let Event::Key(key) = event {
                typed.extend(if key.code() == KeyCode::Enter { Some('\n') } else { key.typed() });
            } else if let Event::Paste(text) = event {
                typed.push_str(&text);
            }
        }
        let draft = self.drafts.remove(&Some(forking.parent)).unwrap_or_default();
        self.input.set(&joined(draft, typed.trim_end()));
    }
}

/// Two texts below each other.
fn joined(first: String, second: &str) -> String {
    match (first.trim().is_empty(), second.trim().is_empty()) {
        (true, _) => second.to_owned(),
        (false, true) => first,
        (false, false) => format!("{first}\n{second}"),
    }
}
