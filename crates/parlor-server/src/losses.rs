//! Counts losses, by session and kind, since the server started.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use parlor_dialect::{LossKind, Losses};
use parlor_json::{Json, Object};
use parlor_session::SessionId;

use crate::lock;

/// How many sessions have counts; the one whose last loss is the oldest is dropped for one more.
const MAX_SESSIONS: usize = 1000;

/// The losses of all sessions.
#[derive(Debug, Default)]
pub(crate) struct LossCounts(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    sessions: HashMap<SessionId, SessionLosses>,
    /// Incremented with each report.
    reports: u64,
}

#[derive(Debug, Default)]
struct SessionLosses {
    kinds: BTreeMap<LossKind, u64>,
    last_report: u64,
}

impl LossCounts {
    /// Counts the losses of a session. Each kind is logged when it is counted for the first time.
    pub(crate) fn count(&self, session: &SessionId, losses: Losses) {
        let losses = losses.into_vec();
        if losses.is_empty() {
            return;
        }
        let mut counts = lock(&self.0);
        counts.make_room(session);
        counts.reports += 1;
        let last_report = counts.reports;
        let counted = counts.sessions.entry(session.clone()).or_default();
        counted.last_report = last_report;
        for loss in losses {
            let count = counted.kinds.entry(loss.kind).or_default();
            *count += 1;
            if *count == 1 {
                tracing::info!(%session, loss = %loss.kind, "{}", loss.kind.meaning());
            }
        }
    }

    /// Removes the counts of a deleted session.
    pub(crate) fn remove(&self, session: &SessionId) {
        lock(&self.0).sessions.remove(session);
    }

    /// The counts of one session, as a JSON array.
    pub(crate) fn of(&self, session: &SessionId) -> Json {
        lock(&self.0).sessions.get(session).map_or_else(|| Json::array::<Json>([]), SessionLosses::to_json)
    }

    /// The counts of all sessions, the latest loss first, as a JSON array.
    pub(crate) fn all(&self) -> Json {
        let counts = lock(&self.0);
        let mut sessions: Vec<_> = counts.sessions.iter().collect();
        sessions.sort_by_key(|(_, session)| std::cmp::Reverse(session.last_report));
        Json::array(sessions.into_iter().map(|(id, session)| {
            let mut entry = Object::default();
            entry.set("sessionId", id.as_json());
            entry.set("losses", session.to_json());
            entry
        }))
    }
}

impl Counts {
    fn make_room(&mut self, session: &SessionId) {
        if self.sessions.len() < MAX_SESSIONS || self.sessions.contains_key(session) {
            return;
        }
        let oldest = self.sessions.iter().min_by_key(|(_, session)| session.last_report);
        if let Some(oldest) = oldest.map(|(id, _)| id.clone()) {
            self.sessions.remove(&oldest);
        }
    }
}

impl SessionLosses {
    fn to_json(&self) -> Json {
        Json::array(self.kinds.iter().map(|(kind, count)| {
            let mut entry = Object::default();
            entry.set("loss", kind.name());
            entry.set("count", *count);
            entry.set("meaning", kind.meaning().trim());
            entry
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(kinds: &[LossKind]) -> Losses {
        let mut losses = Losses::default();
        kinds.iter().for_each(|kind| losses.add(*kind));
        losses
    }

    #[test]
    fn losses_are_counted_by_session_and_kind() {
        let counts = LossCounts::default();
        counts.count(&"a".into(), losses(&[LossKind::Notice, LossKind::Notice, LossKind::PlanType]));
        counts.count(&"b".into(), losses(&[LossKind::Notice]));
        counts.count(&"a".into(), losses(&[]));
        let of = |session: &str| counts.of(&session.into()).as_str().to_owned();
        assert!(of("a").contains(r#""loss":"notice","count":2"#), "{}", of("a"));
        assert!(of("b").contains(r#""count":1"#));
        assert_eq!(of("c"), "[]");
        assert!(counts.all().as_str().starts_with(r#"[{"sessionId":"b""#));
        counts.remove(&"b".into());
        assert_eq!(of("b"), "[]");
    }

    #[test]
    fn the_session_with_the_oldest_loss_is_dropped_for_one_more() {
        let counts = LossCounts::default();
        let id = |n: usize| SessionId::from(format!("s{n}").as_str());
        for n in 0..MAX_SESSIONS {
            counts.count(&id(n), losses(&[LossKind::Notice]));
        }
        counts.count(&id(0), losses(&[LossKind::Notice]));
        counts.count(&"new".into(), losses(&[LossKind::Notice]));
        assert_eq!(counts.of(&id(1)).as_str(), "[]");
        assert!(counts.of(&id(0)).as_str().contains(r#""count":2"#));
        assert_eq!(lock(&counts.0).sessions.len(), MAX_SESSIONS);
    }
}
