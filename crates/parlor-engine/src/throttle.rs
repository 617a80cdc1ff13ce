//! Limits how fast an agent changes the title and metadata of a session.
//!
//! The first updates pass at once. After that, updates that come too fast are merged into one, which passes when its time
//! has come: in order, and the last value of everything is kept.

use core::time::Duration;

use parlor_dialect::live::ParamsExtra;
use parlor_session::{Slot, Transcript, UpdateError, Upsert};

/// How many updates pass at once.
const AT_ONCE: u32 = 20;

/// After which time one more update may pass.
const EVERY: Duration = Duration::from_millis(50);

/// A rate limiter for updates of one session's title and metadata. Times are since some fixed moment.
#[derive(Debug)]
pub struct InfoThrottle {
    /// How many updates may pass now.
    room: u32,
    /// The time for which `room` was last increased.
    since: Duration,
    /// The merged update that waits.
    held: Option<(Upsert, ParamsExtra)>,
}

impl InfoThrottle {
    /// Lets the first updates pass at once.
    pub fn new(now: Duration) -> Self {
        Self { room: AT_ONCE, since: now, held: None }
    }

    /// Whether no update waits.
    pub fn is_empty(&self) -> bool {
        self.held.is_none()
    }

    /// Whether an update may pass now. A held update goes first.
    pub fn passes(&mut self, now: Duration) -> bool {
        self.make_room(now);
        let passes = self.held.is_none() && self.room > 0;
        self.room -= u32::from(passes);
        passes
    }

    /// Merges an update into the one that waits. Fails if the session would reject the result.
    pub fn hold(
        &mut self,
        update: Upsert,
        params_extra: &ParamsExtra,
        transcript: &Transcript,
    ) -> Result<(), UpdateError> {
        let stored = transcript.slot(Slot::Info).and_then(|info| info.meta.as_ref());
        let both = match &self.held {
            Some((held, _)) => held.clone().then(update, stored),
            None => update,
        };
        transcript.check_upsert(Slot::Info, &both)?;
        // Other params are not merged: those of the last update count.
        self.held = Some((both, params_extra.clone()));
        Ok(())
    }

    /// How long the held update has to wait.
    pub fn wait(&self, now: Duration) -> Duration {
        if self.room > 0 { Duration::ZERO } else { (self.since + EVERY).saturating_sub(now) }
    }

    /// Takes the held update if it is due.
    pub fn due(&mut self, now: Duration) -> Option<(Upsert, ParamsExtra)> {
        self.make_room(now);
        if self.room == 0 {
            return None;
        }
        let held = self.held.take()?;
        self.room -= 1;
        Some(held)
    }

    /// What is held, whether or not its time has come: something follows that must not overtake it.
    pub fn take(&mut self) -> Option<(Upsert, ParamsExtra)> {
        self.held.take()
    }

    fn make_room(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.since).as_millis() / EVERY.as_millis();
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
    use parlor_json::{Json, Object};
    use parlor_session::MetaPatch;

    use super::*;

    fn said(n: usize) -> Upsert {
        let object = |text: String| serde_json::from_str::<Object>(&text).unwrap();
        let meta = MetaPatch::MergeDeep(object(format!(r#"{{"k{n}":{n},"last":{n}}}"#)));
        Upsert { fields: object(format!(r#"{{"title":"{n}"}}"#)), meta, ..Upsert::default() }
    }

    #[test]
    fn the_first_pass_at_once_and_the_rest_is_made_one() {
        let begun = Duration::ZERO;
        let transcript = Transcript::default();
        let mut throttle = InfoThrottle::new(begun);
        let passed = (0..100).filter(|n| {
            let passes = throttle.passes(begun);
            if !passes {
                throttle.hold(said(*n), &ParamsExtra::default(), &transcript).unwrap();
            }
            passes
        });
        assert_eq!(passed.count(), 20);
        assert_eq!((throttle.due(begun), throttle.wait(begun)), (None, EVERY));
        let later = begun + EVERY;
        assert!(!throttle.passes(later), "what is held goes first");
        let (held, _) = throttle.due(later).unwrap();
        assert_eq!(held.fields.get("title").unwrap().as_str(), r#""99""#);
        let MetaPatch::MergeDeep(meta) = held.meta else { panic!() };
        assert_eq!((meta.iter().count(), meta.get("last").unwrap().as_str()), (81, "99"));
        assert_eq!(throttle.due(later + EVERY), None);
    }

    #[test]
    fn room_comes_back_with_time_and_there_is_never_more_than_at_first() {
        let begun = Duration::ZERO;
        let mut throttle = InfoThrottle::new(begun);
        let passing = |throttle: &mut InfoThrottle, now| (0..100).filter(|_| throttle.passes(now)).count();
        assert_eq!(passing(&mut throttle, begun), 20);
        assert_eq!(passing(&mut throttle, begun + EVERY * 3 + EVERY / 2), 3);
        assert_eq!(passing(&mut throttle, begun + EVERY * 4), 1);
        assert_eq!(passing(&mut throttle, begun + EVERY * 1000), 20);
    }

    #[test]
    fn one_that_is_too_large_is_refused_and_the_others_stay() {
        let begun = Duration::ZERO;
        let transcript = Transcript::default();
        let mut throttle = InfoThrottle::new(begun);
        throttle.hold(said(1), &ParamsExtra::default(), &transcript).unwrap();
        let mut big = said(2);
        big.meta =
            MetaPatch::MergeKeys([("big".into(), Json::from(&"x".repeat(70_000)))].into_iter().collect());
        assert!(throttle.hold(big, &ParamsExtra::default(), &transcript).is_err());
        assert_eq!(throttle.take(), Some((said(1), ParamsExtra::default())));
    }
}
