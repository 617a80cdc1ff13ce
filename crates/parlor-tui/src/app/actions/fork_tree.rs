//! Keys of the fork tree.

use parlor_client::SessionId;

use crate::app::App;
use crate::event::Effect;
use crate::keys::Action;
use crate::overlay::{ForkTree, Overlay, step};
use crate::sessions::ListLine;

impl App {
    /// Shows the tree of the open session.
    pub(super) fn show_forks(&mut self) {
        if let Some(id) = self.open_id() {
            self.show_forks_of(&id);
        }
    }

    /// Shows the tree of a session with the cursor on it.
    pub(super) fn show_forks_of(&mut self, id: &SessionId) {
        self.sessions.reveal(id);
        let lines = self.sessions.tree(id);
        let cursor = lines.iter().position(|line| line.session() == Some(id)).unwrap_or(0);
        self.overlays.push(Overlay::Forks(ForkTree { of: id.clone(), lines, cursor }));
    }

    pub(super) fn on_fork_tree_action(&mut self, action: Option<Action>, effects: &mut Vec<Effect>) {
        let Some(Overlay::Forks(forks)) = self.overlays.last_mut() else { return };
        let count = forks.lines.len();
        match action {
            Some(Action::Next) => forks.cursor = step(forks.cursor, count, true),
            Some(Action::Previous) => forks.cursor = step(forks.cursor, count, false),
            Some(Action::First) => forks.cursor = 0,
            Some(Action::Last) => forks.cursor = count.saturating_sub(1),
            Some(Action::Detach) => self.quit(effects),
            Some(Action::Undo) => self.undo(effects),
            Some(action) => {
                let Some(current) = forks.current().cloned() else { return };
                self.on_forked_session_action(current, action, effects);
            }
            None => {}
        }
    }

    fn on_forked_session_action(&mut self, id: SessionId, action: Action, effects: &mut Vec<Effect>) {
        match action {
            Action::Open => {
                if let Some(cwd) = self.sessions.get(&id).map(|row| row.cwd.clone()) {
                    self.overlays.clear();
                    self.open(id, cwd, effects);
                }
            }
            Action::Collapse | Action::Expand => {
                let listed: Vec<_> =
                    self.sessions.tree(&id).iter().filter_map(ListLine::session).cloned().collect();
                let cursor = self.fold_forks(&listed, id, action == Action::Collapse);
                if let Some(Overlay::Forks(forks)) = self.overlays.last_mut() {
                    forks.cursor = listed.iter().position(|known| *known == cursor).unwrap_or(0);
                }
            }
            Action::Title | Action::Archive | Action::Delete => self.change_session(&id, action, effects),
            _ => {}
        }
    }

    /// Shows the sessions that the fork tree has now.
    pub(in crate::app) fn refresh_forks(&mut self) {
        let sessions = &self.sessions;
        let forks = self.overlays.iter_mut().find_map(|overlay| match overlay {
            Overlay::Forks(forks) => Some(forks),
            _ => None,
        });
        let Some(forks) = forks else { return };
        let is_there = |id: &&SessionId| sessions.get(id).is_some() && !sessions.hidden.contains(*id);
        let root = forks.lines.iter().filter_map(ListLine::session).find(is_there).unwrap_or(&forks.of);
        let lines = sessions.tree(root);
        let cursor = forks.current().and_then(|id| lines.iter().position(|line| line.session() == Some(id)));
        forks.cursor = cursor.unwrap_or(forks.cursor.min(lines.len().saturating_sub(1)));
        forks.lines = lines;
    }
}
