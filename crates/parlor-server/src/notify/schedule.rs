//! Decides when a notification is due. It has no clock: times are in milliseconds since 1970.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::config::NotifyKind;

/// Sessions whose last turn is remembered. Turns of the others are known to have ended before a certain time.
const MAX_REMEMBERED: usize = 4096;

/// The notifications of one target, and when they are due.
///
/// A session with open requests gets one notification, when the first of them has been open for the delay, and another one when all
/// of them were answered and a new one is opened. The end of a turn is notified if no person has seen it within the delay and no
/// other turn runs.
#[derive(Debug)]
pub(super) struct Schedule {
    delay: i64,
    requests: BTreeMap<String, OpenRequests>,
    turns: BTreeMap<String, EndedTurn>,
    /// When the last known turn of a session ended.
    known_turns: HashMap<String, i64>,
    /// Turns that ended before this are known.
    known_until: i64,
}

/// The open requests of a session.
#[derive(Debug)]
struct OpenRequests {
    ids: BTreeSet<u64>,
    /// When their notification is due; `None` if it was sent.
    due: Option<i64>,
}

#[derive(Debug)]
struct EndedTurn {
    due: i64,
    has_failed: bool,
}

/// What the store has of the last turn of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LastTurn {
    pub(super) ended_at: Option<i64>,
    pub(super) has_failed: bool,
    /// Whether no person has seen its end.
    pub(super) is_unread: bool,
    /// Whether another turn runs.
    pub(super) is_running: bool,
}

/// A notification that is due. Sessions are JSON literals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DueNotification {
    pub(super) session: String,
    pub(super) kind: NotifyKind,
    /// The requests that are open.
    pub(super) requests: Vec<u64>,
}

impl Schedule {
    /// A schedule of a target that is notified of turns which end after `now`.
    pub(super) fn new(delay: i64, now: i64) -> Self {
        Self {
            delay,
            requests: BTreeMap::new(),
            turns: BTreeMap::new(),
            known_turns: HashMap::new(),
            known_until: now,
        }
    }

    /// Replaces the open requests, with their sessions.
    pub(super) fn on_requests<'a>(&mut self, open: impl IntoIterator<Item = (u64, &'a str)>, now: i64) {
        let mut by_session: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
        for (id, session) in open {
            by_session.entry(session).or_default().insert(id);
        }
        self.requests.retain(|session, _| by_session.contains_key(session.as_str()));
        for (session, ids) in by_session {
            match self.requests.get_mut(session) {
                Some(known) => known.ids = ids,
                None => {
                    let due = Some(now.saturating_add(self.delay));
                    self.requests.insert(session.to_owned(), OpenRequests { ids, due });
                }
            }
        }
    }

    /// Updates the last turn of a session whose row has changed.
    pub(super) fn on_turn(&mut self, session: &str, turn: LastTurn, now: i64) {
        if !turn.is_unread || turn.is_running {
            self.turns.remove(session);
        }
        let known = self.known_turns.get(session).copied().unwrap_or(self.known_until);
        let Some(ended_at) = turn.ended_at.filter(|ended_at| *ended_at > known) else { return };
        self.remember(session, ended_at);
        if turn.is_unread && !turn.is_running {
            let due = now.saturating_add(self.delay);
            self.turns.insert(session.to_owned(), EndedTurn { due, has_failed: turn.has_failed });
        }
    }

    fn remember(&mut self, session: &str, ended_at: i64) {
        self.known_turns.insert(session.to_owned(), ended_at);
        if self.known_turns.len() > MAX_REMEMBERED {
            let mut ends: Vec<i64> = self.known_turns.values().copied().collect();
            ends.sort_unstable();
            self.known_until = self.known_until.max(ends[ends.len() / 2]);
            self.known_turns.retain(|_, ended_at| *ended_at > self.known_until);
        }
    }

    /// Makes a notification due later that could not be read from the store, unless there is no reason for it any more.
    pub(super) fn postpone(&mut self, notification: DueNotification, until: i64) {
        let DueNotification { session, kind, .. } = notification;
        match kind {
            NotifyKind::NeedsYou => {
                if let Some(open) = self.requests.get_mut(&session) {
                    open.due.get_or_insert(until);
                }
            }
            NotifyKind::TurnEnded | NotifyKind::TurnFailed => {
                let has_failed = kind == NotifyKind::TurnFailed;
                self.turns.entry(session).or_insert(EndedTurn { due: until, has_failed });
            }
        }
    }

    /// When the next notification is due.
    pub(super) fn next_due(&self) -> Option<i64> {
        let requests = self.requests.values().filter_map(|open| open.due);
        requests.chain(self.turns.values().map(|turn| turn.due)).min()
    }

    /// Removes and returns the notifications that are due.
    pub(super) fn take_due(&mut self, now: i64) -> Vec<DueNotification> {
        let mut due = Vec::new();
        for (session, open) in &mut self.requests {
            if open.due.is_some_and(|at| at <= now) {
                open.due = None;
                let requests = open.ids.iter().copied().collect();
                due.push(DueNotification { session: session.clone(), kind: NotifyKind::NeedsYou, requests });
            }
        }
        self.turns.retain(|session, turn| {
            let is_due = turn.due <= now;
            if is_due {
                let kind = if turn.has_failed { NotifyKind::TurnFailed } else { NotifyKind::TurnEnded };
                due.push(DueNotification { session: session.clone(), kind, requests: Vec::new() });
            }
            !is_due
        });
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(due: &[DueNotification]) -> Vec<(&str, &'static str, &[u64])> {
        due.iter().map(|due| (due.session.as_str(), due.kind.name(), due.requests.as_slice())).collect()
    }

    const ENDED: LastTurn =
        LastTurn { ended_at: Some(1_500), has_failed: false, is_unread: true, is_running: false };

    #[test]
    fn a_request_that_is_answered_within_the_delay_is_not_notified() {
        let mut schedule = Schedule::new(1_000, 0);
        schedule.on_requests([(1, "a"), (2, "b")], 0);
        assert_eq!(schedule.next_due(), Some(1_000));
        assert!(schedule.take_due(999).is_empty());
        schedule.on_requests([(2, "b")], 500);
        assert_eq!(names(&schedule.take_due(1_000)), [("b", "needs_you", &[2][..])]);
        assert_eq!(schedule.next_due(), None);
    }

    #[test]
    fn a_session_is_notified_once_until_all_its_requests_are_answered() {
        let mut schedule = Schedule::new(0, 0);
        schedule.on_requests([(1, "a"), (2, "a")], 0);
        assert_eq!(names(&schedule.take_due(0)), [("a", "needs_you", &[1, 2][..])]);
        schedule.on_requests([(2, "a"), (3, "a")], 1);
        assert!(schedule.take_due(10).is_empty());
        schedule.on_requests([], 2);
        schedule.on_requests([(4, "a")], 3);
        assert_eq!(names(&schedule.take_due(10)), [("a", "needs_you", &[4][..])]);
    }

    #[test]
    fn a_turn_is_notified_once_unless_a_person_sees_it() {
        let mut schedule = Schedule::new(1_000, 1_000);
        schedule.on_turn("old", LastTurn { ended_at: Some(900), ..ENDED }, 1_500);
        schedule.on_turn("a", ENDED, 1_500);
        schedule.on_turn("seen", ENDED, 1_500);
        schedule.on_turn("again", ENDED, 1_500);
        schedule.on_turn("failed", LastTurn { has_failed: true, ..ENDED }, 1_500);
        schedule.on_turn("seen", LastTurn { is_unread: false, ..ENDED }, 1_600);
        schedule.on_turn("again", LastTurn { is_running: true, ..ENDED }, 1_600);
        assert_eq!(schedule.next_due(), Some(2_500));
        let due = schedule.take_due(2_500);
        assert_eq!(names(&due), [("a", "turn_ended", &[][..]), ("failed", "turn_failed", &[][..])]);
        schedule.on_turn("a", ENDED, 3_000);
        assert_eq!(schedule.next_due(), None, "the row changed, and no turn has ended");
        schedule.on_turn("a", LastTurn { ended_at: Some(3_000), ..ENDED }, 3_000);
        assert_eq!(schedule.next_due(), Some(4_000));
    }

    #[test]
    fn a_postponed_notification_is_due_later_unless_its_reason_is_gone() {
        let mut schedule = Schedule::new(0, 0);
        schedule.on_requests([(1, "a"), (2, "b")], 0);
        schedule.on_turn("c", LastTurn { has_failed: true, ..ENDED }, 1_500);
        schedule.on_turn("d", ENDED, 1_500);
        for due in schedule.take_due(1_500) {
            schedule.postpone(due, 2_000);
        }
        assert!(schedule.take_due(1_999).is_empty());
        assert_eq!(schedule.next_due(), Some(2_000));
        schedule.on_requests([(2, "b")], 1_999);
        schedule.on_turn("d", LastTurn { is_unread: false, ..ENDED }, 1_999);
        let due = schedule.take_due(2_000);
        assert_eq!(names(&due), [("b", "needs_you", &[2][..]), ("c", "turn_failed", &[][..])]);
        assert_eq!(schedule.next_due(), None);
    }

    #[test]
    fn sessions_that_are_forgotten_are_not_notified_again() {
        let mut schedule = Schedule::new(0, 0);
        let ended = |at: i64| LastTurn { ended_at: Some(at), ..ENDED };
        let count = i64::try_from(MAX_REMEMBERED).unwrap() * 2;
        for at in 1..=count {
            schedule.on_turn(&at.to_string(), ended(at), at);
        }
        assert!(schedule.known_turns.len() <= MAX_REMEMBERED);
        assert_eq!(schedule.take_due(count).len(), MAX_REMEMBERED * 2);
        for at in 1..=count {
            schedule.on_turn(&at.to_string(), ended(at), count);
        }
        assert_eq!(schedule.next_due(), None);
    }
}
