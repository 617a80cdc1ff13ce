//! The memory that live sessions take, and how long idle ones may stay.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Memory is short when there are more live sessions than this, or they take more bytes.
const PRESSURE_SESSIONS: usize = 256;
const PRESSURE_BYTES: usize = 32 << 20;

/// The idle timeout of sessions while memory is short.
const PRESSURE_IDLE_TIMEOUT: Duration = Duration::from_secs(2);

/// The memory of all live sessions.
#[derive(Debug, Default)]
pub(crate) struct MemoryUsage {
    bytes: AtomicUsize,
    /// How many callers wait for a session to be evicted.
    eviction_requests: AtomicUsize,
    evicted: Notify,
    /// Notified when the bytes begin to exceed [`PRESSURE_BYTES`].
    pressure: Notify,
}

/// The memory of one session, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct SessionMemory {
    usage: Arc<MemoryUsage>,
    bytes: usize,
}

/// Has idle sessions evicted at once, until this is dropped.
#[derive(Debug)]
pub(crate) struct EvictionRequest<'a>(&'a MemoryUsage);

impl MemoryUsage {
    pub(crate) fn track_session(self: &Arc<Self>) -> SessionMemory {
        SessionMemory { usage: Arc::clone(self), bytes: 0 }
    }

    /// The idle timeout of sessions: `idle` unless memory is short or another session waits for room.
    pub(crate) fn idle_timeout(&self, idle: Duration, sessions: usize) -> Duration {
        if self.eviction_requests.load(Ordering::Relaxed) > 0 {
            Duration::ZERO
        } else if sessions > PRESSURE_SESSIONS || self.bytes.load(Ordering::Relaxed) > PRESSURE_BYTES {
            idle.min(PRESSURE_IDLE_TIMEOUT)
        } else {
            idle
        }
    }

    /// Completes when memory becomes short, also if it did before this was called.
    pub(crate) async fn under_pressure(&self) {
        self.pressure.notified().await;
    }

    pub(crate) fn request_eviction(&self) -> EvictionRequest<'_> {
        self.eviction_requests.fetch_add(1, Ordering::Relaxed);
        EvictionRequest(self)
    }

    /// Wakes the callers that wait for an eviction.
    pub(crate) fn on_evicted(&self) {
        self.evicted.notify_waiters();
    }
}

impl EvictionRequest<'_> {
    /// Completes when a session is evicted.
    pub(crate) fn evicted(&self) -> Notified<'_> {
        self.0.evicted.notified()
    }
}

impl Drop for EvictionRequest<'_> {
    fn drop(&mut self) {
        self.0.eviction_requests.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SessionMemory {
    pub(crate) fn set(&mut self, bytes: usize) {
        let before = self.usage.bytes.fetch_add(bytes, Ordering::Relaxed);
        let own = std::mem::replace(&mut self.bytes, bytes);
        self.usage.bytes.fetch_sub(own, Ordering::Relaxed);
        if before <= PRESSURE_BYTES && before + bytes - own > PRESSURE_BYTES {
            self.usage.pressure.notify_one();
        }
    }
}

impl Drop for SessionMemory {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn idle_sessions_are_evicted_early_while_memory_is_short_or_another_waits_for_room() {
        const IDLE: Duration = Duration::from_secs(600);
        let memory = Arc::new(MemoryUsage::default());
        let [mut one, mut other] = [memory.track_session(), memory.track_session()];
        one.set(PRESSURE_BYTES);
        assert_eq!(memory.idle_timeout(IDLE, 2), IDLE);
        assert!(memory.under_pressure().now_or_never().is_none());
        other.set(1);
        assert!(memory.under_pressure().now_or_never().is_some());
        assert_eq!(memory.idle_timeout(IDLE, 2), PRESSURE_IDLE_TIMEOUT);
        assert_eq!(memory.idle_timeout(Duration::from_secs(1), 2), Duration::from_secs(1));
        one.set(5);
        drop(other);
        assert_eq!(memory.idle_timeout(IDLE, PRESSURE_SESSIONS), IDLE);
        assert_eq!(memory.idle_timeout(IDLE, PRESSURE_SESSIONS + 1), PRESSURE_IDLE_TIMEOUT);
        let eviction = memory.request_eviction();
        assert_eq!(memory.idle_timeout(IDLE, 1), Duration::ZERO);
        drop(eviction);
        assert_eq!(memory.idle_timeout(IDLE, 1), IDLE);
        drop(one);
        assert_eq!(memory.bytes.load(Ordering::Relaxed), 0);
    }
}
