//! The live sessions of subagents, by the sessions that own them.

use std::collections::{HashMap, HashSet};

use parlor_session::SessionId;

/// The live sessions of subagents, and the sessions that are being deleted with their subagents.
#[derive(Debug, Default)]
pub(crate) struct LiveSubagents {
    live: HashMap<SessionId, LiveSubagent>,
    deleting: HashSet<SessionId>,
}

#[derive(Debug)]
struct LiveSubagent {
    /// The sessions that own it, directly or through others, from the nearest on. They need not be live.
    owners: Vec<SessionId>,
    is_busy: bool,
}

impl LiveSubagents {
    /// Registers a session that is about to be opened. Returns `false` if it must not be, because an owner is being deleted.
    pub(crate) fn register(&mut self, id: &SessionId, owners: Vec<SessionId>) -> bool {
        if owners.iter().any(|owner| self.deleting.contains(owner)) {
            return false;
        }
        if !owners.is_empty() {
            self.live.insert(id.clone(), LiveSubagent { owners, is_busy: false });
        }
        true
    }

    pub(crate) fn remove(&mut self, id: &SessionId) {
        self.live.remove(id);
    }

    /// Records whether a session runs a turn.
    pub(crate) fn set_busy(&mut self, id: &SessionId, is_busy: bool) {
        if let Some(subagent) = self.live.get_mut(id) {
            subagent.is_busy = is_busy;
        }
    }

    /// The owner of a session that no other session owns.
    pub(crate) fn root_owner(&self, id: &SessionId) -> Option<&SessionId> {
        self.live.get(id)?.owners.last()
    }

    /// Whether a subagent of a session is busy, or a subagent of its subagents.
    pub(crate) fn has_busy(&self, owner: &SessionId) -> bool {
        self.live.values().any(|subagent| subagent.is_busy && subagent.owners.contains(owner))
    }

    /// Has no session below `owner` opened any more, and returns those that are live, the innermost first.
    pub(crate) fn begin_delete(&mut self, owner: &SessionId) -> Vec<SessionId> {
        self.deleting.insert(owner.clone());
        let mut below: Vec<_> =
            self.live.iter().filter(|(_, subagent)| subagent.owners.contains(owner)).collect();
        below.sort_by_key(|(_, subagent)| std::cmp::Reverse(subagent.owners.len()));
        below.into_iter().map(|(id, _)| id.clone()).collect()
    }

    /// The session is deleted, or stays.
    pub(crate) fn end_delete(&mut self, owner: &SessionId) {
        self.deleting.remove(owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> SessionId {
        SessionId::from(name)
    }

    #[test]
    fn a_session_is_below_its_owners_although_those_between_are_not_live() {
        let mut subagents = LiveSubagents::default();
        assert!(subagents.register(&id("inner"), vec![id("between"), id("root")]));
        subagents.set_busy(&id("inner"), true);
        assert_eq!(subagents.root_owner(&id("inner")), Some(&id("root")));
        assert!(subagents.has_busy(&id("root")) && subagents.has_busy(&id("between")));
        assert_eq!(subagents.begin_delete(&id("root")), [id("inner")]);
        subagents.remove(&id("inner"));
        assert!(!subagents.has_busy(&id("root")));
    }

    #[test]
    fn no_session_is_opened_while_an_owner_is_being_deleted() {
        let mut subagents = LiveSubagents::default();
        assert_eq!(subagents.begin_delete(&id("root")), []);
        assert!(!subagents.register(&id("inner"), vec![id("between"), id("root")]));
        assert!(subagents.register(&id("other"), Vec::new()));
        subagents.end_delete(&id("root"));
        assert!(subagents.register(&id("inner"), vec![id("between"), id("root")]));
    }

    #[test]
    fn the_innermost_sessions_are_ended_first() {
        let mut subagents = LiveSubagents::default();
        subagents.register(&id("outer"), vec![id("root")]);
        subagents.register(&id("inner"), vec![id("outer"), id("root")]);
        assert_eq!(subagents.begin_delete(&id("root")), [id("inner"), id("outer")]);
        assert_eq!(subagents.begin_delete(&id("outer")), [id("inner")]);
    }
}
