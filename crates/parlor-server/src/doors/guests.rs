//! Who is in: how many, and how they are asked to leave.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use super::Limits;

/// All connections of a server. Those of the Unix socket, those over HTTP and those that have not shown a token yet have
/// places of their own, so that none of them can take those of the others.
#[derive(Debug)]
pub(super) struct Guests {
    local: Places,
    remote: Places,
    unauthenticated: Places,
    /// The connections without a token, the oldest first.
    waiting: Mutex<VecDeque<Weak<Guest>>>,
    phase: watch::Sender<Phase>,
}

#[derive(Debug)]
struct Places {
    free: Arc<Semaphore>,
    limit: u32,
}

/// One connection's place. It is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Guest {
    phase: watch::Receiver<Phase>,
    place: Mutex<Place>,
    /// The places of those who have shown a token.
    remote: Arc<Semaphore>,
    /// Another connection got the place.
    evicted: Notify,
}

#[derive(Debug)]
enum Place {
    Authenticated(#[expect(dead_code, reason = "holding it is what it is for")] OwnedSemaphorePermit),
    Unauthenticated(OwnedSemaphorePermit),
    Evicted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Open,
    /// What is ready is written, then connections end.
    Closing,
    /// Connections end.
    Cut,
}

impl Places {
    fn new(limit: u32) -> Self {
        Self { free: Arc::new(Semaphore::new(limit as usize)), limit }
    }

    fn take(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.free).try_acquire_owned().ok()
    }

    /// Waits until all are free.
    async fn all_free(&self) {
        let _ = self.free.acquire_many(self.limit).await;
    }
}

impl Guests {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            local: Places::new(limits.local_connections),
            remote: Places::new(limits.connections),
            unauthenticated: Places::new(limits.unauthenticated_connections),
            waiting: Mutex::default(),
            phase: watch::Sender::new(Phase::Open),
        }
    }

    /// A place for a program of the same user, if there is one left.
    pub(super) fn local(&self) -> Option<Guest> {
        Some(self.guest(Place::Authenticated(self.local.take()?)))
    }

    /// A place for a connection that has yet to show a token. If there is none left, the one that has been without a token
    /// for the longest loses its own.
    pub(super) fn unauthenticated(&self) -> Option<Arc<Guest>> {
        let mut waiting = lock(&self.waiting);
        waiting.retain(|guest| guest.upgrade().is_some_and(|guest| guest.is_unauthenticated()));
        let mut place = self.unauthenticated.take();
        while place.is_none() {
            place = waiting.pop_front()?.upgrade().and_then(|guest| guest.evict());
        }
        let guest = Arc::new(self.guest(Place::Unauthenticated(place?)));
        waiting.push_back(Arc::downgrade(&guest));
        Some(guest)
    }

    fn guest(&self, place: Place) -> Guest {
        Guest {
            phase: self.phase.subscribe(),
            place: Mutex::new(place),
            remote: Arc::clone(&self.remote.free),
            evicted: Notify::new(),
        }
    }

    /// Asks all to leave, and shows the door to those who have not after `grace`.
    pub(super) async fn close(self, grace: Duration) {
        self.phase.send_replace(Phase::Closing);
        if tokio::time::timeout(grace, self.all_gone()).await.is_err() {
            tracing::warn!("cut off connections that did not take what waited for them");
            self.phase.send_replace(Phase::Cut);
            // Nothing waits for a peer now, so this is only as long as the tasks take to be run.
            let _ = tokio::time::timeout(grace, self.all_gone()).await;
        }
    }

    async fn all_gone(&self) {
        tokio::join!(self.local.all_free(), self.remote.all_free(), self.unauthenticated.all_free());
    }
}

impl Guest {
    /// The connection has shown a token: it gets a place among those who have. `false` if there is none left.
    pub(super) fn authenticate(&self) -> bool {
        let mut place = lock(&self.place);
        match (&*place, Arc::clone(&self.remote).try_acquire_owned()) {
            (Place::Authenticated(_), _) => true,
            (Place::Unauthenticated(_), Ok(free)) => {
                *place = Place::Authenticated(free);
                true
            }
            (Place::Unauthenticated(_), Err(_)) | (Place::Evicted, _) => false,
        }
    }

    fn is_unauthenticated(&self) -> bool {
        matches!(*lock(&self.place), Place::Unauthenticated(_))
    }

    /// Takes the place of a connection without a token.
    fn evict(&self) -> Option<OwnedSemaphorePermit> {
        let mut place = lock(&self.place);
        match std::mem::replace(&mut *place, Place::Evicted) {
            Place::Unauthenticated(free) => {
                self.evicted.notify_one();
                Some(free)
            }
            other @ (Place::Authenticated(_) | Place::Evicted) => {
                *place = other;
                None
            }
        }
    }

    /// Waits until another connection got the place.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Waits until the connection is to end when what is ready has been written.
    pub(super) async fn closing(&self) {
        self.reached(Phase::Closing).await;
    }

    /// Waits until the connection is to end as it is.
    pub(super) async fn cut(&self) {
        self.reached(Phase::Cut).await;
    }

    async fn reached(&self, phase: Phase) {
        // Without a host there is nothing to stay for either, so an error means the same.
        let _ = self.phase.clone().wait_for(|now| *now >= phase).await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
