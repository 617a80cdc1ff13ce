//! What an agent says about a session as a whole, no faster than people can read.
//!
//! The first updates pass at once. After that, those that come too fast are made one, which is told when its time has
//! come: in order, and nothing that was said last is lost.

use std::time::{Duration, Instant};

use parlor_session::{Refused, Slot, Transcript, Upsert};

/// How many updates pass at once.
const AT_ONCE: u32 = 20;

/// How much later there is room for one more.
const EVERY: Duration = Duration::from_millis(50);

/// How fast the updates of one session come.
#[derive(Debug)]
pub(super) struct Bursts {
    room: u32,
    /// Up to when room was made.
    since: Instant,
    /// What was said and not told yet.
    held: Option<Upsert>,
}

impl Bursts {
    pub(super) fn new(now: Instant) -> Self {
        Self { room: AT_ONCE, since: now, held: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_none()
    }

    /// Whether an update may pass now. What is held goes first.
    pub(super) fn passes(&mut self, now: Instant) -> bool {
        self.make_room(now);
        let passes = self.held.is_none() && self.room > 0;
        self.room -= u32::from(passes);
        passes
    }

    /// Keeps an update for later, made one with what is there; refused if the session would not take both.
    pub(super) fn hold(&mut self, said: Upsert, transcript: &Transcript) -> Result<(), Refused> {
        let stored = transcript.slot(Slot::Info).and_then(|info| info.meta.as_ref());
        let both = match &self.held {
            Some(held) => held.clone().then(said, stored),
            None => said,
        };
        transcript.would_take(Slot::Info, &both)?;
        self.held = Some(both);
        Ok(())
    }

    /// When what is held may be told.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        if self.room > 0 { Duration::ZERO } else { (self.since + EVERY).saturating_duration_since(now) }
    }

    /// What is held, if its time has come.
    pub(super) fn due(&mut self, now: Instant) -> Option<Upsert> {
        self.make_room(now);
        if self.room == 0 {
            return None;
        }
        let held = self.held.take()?;
        self.room -= 1;
        Some(held)
    }

    /// What is held, whether or not its time has come: something follows that must not overtake it.
    pub(super) fn take(&mut self) -> Option<Upsert> {
        self.held.take()
    }

    fn make_room(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.since).as_millis() / EVERY.as_millis();
        let more = u32::try_from(passed).unwrap_or(u32::MAX).min(AT_ONCE);
        self.room = (self.room + more).min(AT_ONCE);
        if passed >= u128::from(AT_ONCE) {
            self.since = now;
        } else {
            self.since += EVERY * more;
        }
    }
}

#[cfg(test)]
mod tests {
    use parlor_json::Object;
    use parlor_session::MetaPatch;

    use super::*;

    fn said(n: usize) -> Upsert {
        let object = |text: String| serde_json::from_str::<Object>(&text).unwrap();
        let meta = MetaPatch::MergeDeep(object(format!(r#"{{"k{n}":{n},"last":{n}}}"#)));
        Upsert { fields: object(format!(r#"{{"title":"{n}"}}"#)), meta, ..Upsert::default() }
    }

    #[test]
    fn the_first_pass_at_once_and_the_rest_is_made_one() {
        let begun = Instant::now();
        let transcript = Transcript::default();
        let mut bursts = Bursts::new(begun);
        let passed = (0..100).filter(|n| {
            let passes = bursts.passes(begun);
            if !passes {
                bursts.hold(said(*n), &transcript).unwrap();
            }
            passes
        });
        assert_eq!(passed.count(), 20);
        assert_eq!((bursts.due(begun), bursts.wait(begun)), (None, EVERY));
        let later = begun + EVERY;
        assert!(!bursts.passes(later), "what is held goes first");
        let held = bursts.due(later).unwrap();
        assert_eq!(held.fields.get("title").unwrap().as_str(), r#""99""#);
        let MetaPatch::MergeDeep(meta) = held.meta else { panic!() };
        assert_eq!((meta.iter().count(), meta.get("last").unwrap().as_str()), (81, "99"));
        assert_eq!(bursts.due(later + EVERY), None);
    }

    #[test]
    fn room_comes_back_with_time_and_there_is_never_more_than_at_first() {
        let begun = Instant::now();
        let mut bursts = Bursts::new(begun);
        let passing = |bursts: &mut Bursts, now| (0..100).filter(|_| bursts.passes(now)).count();
        assert_eq!(passing(&mut bursts, begun), 20);
        assert_eq!(passing(&mut bursts, begun + EVERY * 3 + EVERY / 2), 3);
        assert_eq!(passing(&mut bursts, begun + EVERY * 4), 1);
        assert_eq!(passing(&mut bursts, begun + EVERY * 1000), 20);
    }

    #[test]
    fn one_that_is_too_large_is_refused_and_the_others_stay() {
        let begun = Instant::now();
        let transcript = Transcript::default();
        let mut bursts = Bursts::new(begun);
        bursts.hold(said(1), &transcript).unwrap();
        let mut big = said(2);
        big.meta = MetaPatch::MergeKeys(
            [("big".into(), crate::json::string(&"x".repeat(70_000)))].into_iter().collect(),
        );
        assert!(bursts.hold(big, &transcript).is_err());
        assert_eq!(bursts.take(), Some(said(1)));
    }
}
