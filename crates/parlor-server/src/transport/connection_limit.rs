//! How many connections there may be, and how they are asked to end.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use super::Limits;

use crate::lock;

/// Counts all connections of a server. Those through the Unix socket, those over HTTP and those that have not shown a token
/// yet have separate limits, so that none of them can use up those of the others.
#[derive(Debug)]
pub(super) struct ConnectionLimit {
    local: Slots,
    remote: Slots,
    unauthenticated: Slots,
    /// The connections without a token, the oldest first.
    waiting: Mutex<VecDeque<Weak<ConnectionGuard>>>,
    phase: watch::Sender<Phase>,
}

#[derive(Debug)]
struct Slots {
    free: Arc<Semaphore>,
    limit: u32,
}

/// The slot of one connection. It is free again when this is dropped.
#[derive(Debug)]
pub(super) struct ConnectionGuard {
    phase: watch::Receiver<Phase>,
    slot: Mutex<Slot>,
    /// The slots of connections that have shown a token.
    remote: Arc<Semaphore>,
    /// Another connection got the slot.
    evicted: Notify,
}

#[derive(Debug)]
enum Slot {
    Authenticated(#[expect(dead_code, reason = "holding it is what it is for")] OwnedSemaphorePermit),
    Unauthenticated(OwnedSemaphorePermit),
    Evicted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Open,
    /// Connections end when their queued frames have been written.
    Closing,
    /// Connections end at once.
    Aborted,
}

impl Slots {
    fn new(limit: u32) -> Self {
        Self { free: Arc::new(Semaphore::new(limit as usize)), limit }
    }

    fn try_acquire(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.free).try_acquire_owned().ok()
    }

    /// Waits until all are free.
    async fn all_free(&self) {
        let _ = self.free.acquire_many(self.limit).await;
    }
}

impl ConnectionLimit {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            local: Slots::new(limits.local_connections),
            remote: Slots::new(limits.connections),
            unauthenticated: Slots::new(limits.unauthenticated_connections),
            waiting: Mutex::default(),
            phase: watch::Sender::new(Phase::Open),
        }
    }

    /// A slot for a program of the same user, if one is free.
    pub(super) fn try_acquire_local(&self) -> Option<ConnectionGuard> {
        Some(self.guard(Slot::Authenticated(self.local.try_acquire()?)))
    }

    /// A slot for a connection that has yet to show a token. If none is free, the connection that has been without a token for
    /// the longest time loses its own.
    pub(super) fn try_acquire_unauthenticated(&self) -> Option<Arc<ConnectionGuard>> {
        let mut waiting = lock(&self.waiting);
        waiting.retain(|guard| guard.upgrade().is_some_and(|guard| guard.is_unauthenticated()));
        let mut permit = self.unauthenticated.try_acquire();
        while permit.is_none() {
            permit = waiting.pop_front()?.upgrade().and_then(|guard| guard.evict());
        }
        let guard = Arc::new(self.guard(Slot::Unauthenticated(permit?)));
        waiting.push_back(Arc::downgrade(&guard));
        Some(guard)
    }

    fn guard(&self, slot: Slot) -> ConnectionGuard {
        ConnectionGuard {
            phase: self.phase.subscribe(),
            slot: Mutex::new(slot),
            remote: Arc::clone(&self.remote.free),
            evicted: Notify::new(),
        }
    }

    /// Asks all connections to end, and aborts those that have not after `grace`.
    pub(super) async fn close(self, grace: Duration) {
        self.phase.send_replace(Phase::Closing);
        if tokio::time::timeout(grace, self.all_free()).await.is_err() {
            tracing::warn!("aborted connections whose clients did not read what was sent to them");
            self.phase.send_replace(Phase::Aborted);
            // Nothing waits for a peer now, so this is only as long as the tasks take to be run.
            let _ = tokio::time::timeout(grace, self.all_free()).await;
        }
    }

    async fn all_free(&self) {
        tokio::join!(self.local.all_free(), self.remote.all_free(), self.unauthenticated.all_free());
    }
}

impl ConnectionGuard {
    /// Moves a connection that has shown a token to the limit of those. `false` if no slot is free there.
    pub(super) fn authenticate(&self) -> bool {
        let mut slot = lock(&self.slot);
        match (&*slot, Arc::clone(&self.remote).try_acquire_owned()) {
            (Slot::Authenticated(_), _) => true,
            (Slot::Unauthenticated(_), Ok(permit)) => {
                *slot = Slot::Authenticated(permit);
                true
            }
            (Slot::Unauthenticated(_), Err(_)) | (Slot::Evicted, _) => false,
        }
    }

    fn is_unauthenticated(&self) -> bool {
        matches!(*lock(&self.slot), Slot::Unauthenticated(_))
    }

    /// Takes the slot of a connection without a token.
    fn evict(&self) -> Option<OwnedSemaphorePermit> {
        let mut slot = lock(&self.slot);
        match std::mem::replace(&mut *slot, Slot::Evicted) {
            Slot::Unauthenticated(permit) => {
                self.evicted.notify_one();
                Some(permit)
            }
            other @ (Slot::Authenticated(_) | Slot::Evicted) => {
                *slot = other;
                None
            }
        }
    }

    /// Waits until another connection got the slot.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Waits until the connection has to end after its queued frames have been written.
    pub(super) async fn closing(&self) {
        self.reached(Phase::Closing).await;
    }

    /// Waits until the connection has to end at once.
    pub(super) async fn aborted(&self) {
        self.reached(Phase::Aborted).await;
    }

    async fn reached(&self, phase: Phase) {
        // An error means that the listeners are gone, which ends connections as well.
        let _ = self.phase.clone().wait_for(|now| *now >= phase).await;
    }
}
