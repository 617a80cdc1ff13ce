//! Keys of the list of sessions.

use parlor_client::SessionId;

use crate::app::{App, Focus, OpenAt, PendingRemoval};
use crate::event::{Call, Effect};
use crate::keys::Action;
use crate::overlay::{AskPurpose, step};
use crate::sessions::ListLine;

impl App {
    /// The sessions of the list in order.
    pub(super) fn listed(&self) -> Vec<SessionId> {
        self.sessions.lines(&self.list_filter).iter().filter_map(ListLine::session).cloned().collect()
    }

    /// Moves the cursor of the list.
    pub(super) fn step_list(&mut self, forward: bool) {
        let listed = self.listed();
        let index = self.list_cursor.as_ref().and_then(|id| listed.iter().position(|known| known == id));
        self.list_cursor = listed.get(index.map_or(0, |index| step(index, listed.len(), forward))).cloned();
    }

    pub(super) fn on_session_action(&mut self, action: Action, effects: &mut Vec<Effect>) {
        let listed = self.listed();
        let index = self.list_cursor.as_ref().and_then(|id| listed.iter().position(|known| known == id));
        let go = |index: usize| listed.get(index).cloned();
        let current = index.and_then(go);
        match action {
            Action::Next | Action::Previous => self.step_list(action == Action::Next),
            Action::First => self.list_cursor = go(0),
            Action::Last => self.list_cursor = listed.last().cloned(),
            Action::Open => self.open_listed(effects),
            Action::Filter => self.ask("Filter", self.list_filter.clone(), AskPurpose::Filter),
            Action::Archived => self.toggle_archived(),
            Action::Collapse | Action::Expand => {
                let Some(id) = current else { return };
                self.list_cursor = Some(self.fold_forks(&listed, id, action == Action::Collapse));
            }
            Action::Title | Action::Archive | Action::Delete => {
                let Some(id) = current else { return };
                self.change_session(&id, action, effects);
                if self.sessions.hidden.contains(&id) {
                    self.list_cursor =
                        index.and_then(|index| go(index + 1).or_else(|| go(index.checked_sub(1)?)));
                }
            }
            Action::Undo => self.undo(effects),
            Action::ForkTree => {
                if let Some(id) = current {
                    self.show_forks_of(&id);
                }
            }
            Action::Detach => self.quit(effects),
            _ => {}
        }
    }

    /// Shows or hides the archived sessions of the list.
    pub(super) fn toggle_archived(&mut self) {
        self.sessions.shows_archived = !self.sessions.shows_archived;
        let listed = self.listed();
        if self.list_cursor.as_ref().is_none_or(|id| !listed.contains(id)) {
            self.list_cursor = listed.last().cloned();
        }
        let has_archived = self.sessions.lines("").iter().any(|line| matches!(line, ListLine::Archived(_)));
        if !has_archived {
            self.note("No sessions are archived");
        }
    }

    /// Folds or unfolds the forks of a session; one without forks folds those of its parent. Returns where the cursor is then.
    pub(super) fn fold_forks(&mut self, listed: &[SessionId], id: SessionId, is_fold: bool) -> SessionId {
        if !is_fold {
            self.sessions.collapsed.remove(&id);
            return id;
        }
        let parent = self.sessions.get(&id).and_then(|row| row.parent.clone());
        let folded = parent.filter(|parent| listed.contains(parent)).unwrap_or(id);
        self.sessions.collapsed.insert(folded.clone());
        folded
    }

    /// Changes the title of a session, archives or restores it, or deletes it.
    pub(super) fn change_session(&mut self, id: &SessionId, action: Action, effects: &mut Vec<Effect>) {
        let Some(row) = self.sessions.get(id) else { return };
        match action {
            Action::Title => {
                let title = row.title.to_string();
                self.ask("Title", title, AskPurpose::Title(id.clone()));
            }
            Action::Archive if row.is_archived => {
                let note = format!("Restored \"{}\"", row.title);
                effects.push(Effect::Send(Call::Restore { id: id.clone(), note }));
            }
            Action::Archive => self.remove_session(id, false, effects),
            Action::Delete => self.remove_session(id, true, effects),
            _ => {}
        }
    }

    pub(super) fn open_listed(&mut self, effects: &mut Vec<Effect>) {
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
        self.carry_out_all(effects);
        self.sessions.hidden.insert(id.clone());
        let was_open = self.open_id().as_ref() == Some(id);
        if was_open {
            self.keep_draft();
            self.conversation = None;
        }
        let at = self.look.now;
        self.removals.push(PendingRemoval { id: id.clone(), title, is_deletion, forks, at, was_open });
    }

    /// Takes back the last archiving or deletion.
    pub(super) fn undo(&mut self, effects: &mut Vec<Effect>) {
        match self.removals.pop() {
            Some(removal) => {
                self.sessions.hidden.remove(&removal.id);
                self.list_cursor = Some(removal.id.clone());
                let cwd = self.sessions.get(&removal.id).map(|row| row.cwd.clone());
                if let Some(cwd) = cwd.filter(|_| removal.was_open && self.conversation.is_none()) {
                    let has_focus = self.focus == Focus::Sessions;
                    self.open(removal.id, cwd, effects);
                    self.open_at = has_focus.then_some(OpenAt::List);
                }
                self.note(&format!("Kept \"{}\"", removal.title));
            }
            None => self.note("Nothing to undo"),
        }
    }
}
