//! How much the sessions in memory take together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// How many sessions, and how many bytes of them, may be in memory before those that nobody needs leave early.
const COMFORTABLE_SESSIONS: usize = 256;
const COMFORTABLE_BYTES: usize = 64 << 20;

/// How long a session that nobody needs stays in memory then.
const IDLE_UNDER_PRESSURE: Duration = Duration::from_secs(5);

/// What the sessions in memory take together.
#[derive(Debug, Default)]
pub(crate) struct Resident {
    bytes: AtomicUsize,
    /// How many callers wait for a session to leave.
    urgent: AtomicUsize,
    left: Notify,
}

/// What one session takes. It counts until this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    resident: Arc<Resident>,
    bytes: usize,
}

/// As long as it lives, sessions that nobody needs leave at once.
#[derive(Debug)]
pub(crate) struct Urgent<'a>(&'a Resident);

impl Resident {
    pub(crate) fn share(self: &Arc<Self>) -> Share {
        Share { resident: Arc::clone(self), bytes: 0 }
    }

    /// How long a session that nobody needs may stay, where that is `idle` without pressure and there are so many.
    pub(crate) fn idle(&self, idle: Duration, sessions: usize) -> Duration {
        if self.urgent.load(Ordering::Relaxed) > 0 {
            Duration::ZERO
        } else if sessions > COMFORTABLE_SESSIONS || self.bytes.load(Ordering::Relaxed) > COMFORTABLE_BYTES {
            idle.min(IDLE_UNDER_PRESSURE)
        } else {
            idle
        }
    }

    pub(crate) fn urge(&self) -> Urgent<'_> {
        self.urgent.fetch_add(1, Ordering::Relaxed);
        Urgent(self)
    }

    /// A session has left.
    pub(crate) fn left(&self) {
        self.left.notify_waiters();
    }
}

impl Urgent<'_> {
    /// Completes when a session leaves.
    pub(crate) fn one_left(&self) -> Notified<'_> {
        self.0.left.notified()
    }
}

impl Drop for Urgent<'_> {
    fn drop(&mut self) {
        self.0.urgent.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Share {
    pub(crate) fn set(&mut self, bytes: usize) {
        self.resident.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.resident.bytes.fetch_sub(std::mem::replace(&mut self.bytes, bytes), Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_may_stay_for_long_while_they_take_little() {
        const IDLE: Duration = Duration::from_secs(600);
        let resident = Arc::new(Resident::default());
        let [mut one, mut other] = [resident.share(), resident.share()];
        one.set(COMFORTABLE_BYTES);
        assert_eq!(resident.idle(IDLE, 2), IDLE);
        other.set(1);
        assert_eq!(resident.idle(IDLE, 2), IDLE_UNDER_PRESSURE);
        assert_eq!(resident.idle(Duration::from_secs(1), 2), Duration::from_secs(1));
        one.set(5);
        drop(other);
        assert_eq!(resident.idle(IDLE, COMFORTABLE_SESSIONS), IDLE);
        assert_eq!(resident.idle(IDLE, COMFORTABLE_SESSIONS + 1), IDLE_UNDER_PRESSURE);
        let urgent = resident.urge();
        assert_eq!(resident.idle(IDLE, 1), Duration::ZERO);
        drop(urgent);
        assert_eq!(resident.idle(IDLE, 1), IDLE);
        drop(one);
        assert_eq!(resident.bytes.load(Ordering::Relaxed), 0);
    }
}
