//! Who is in: how many, and how they are asked to leave.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// All connections of a server.
#[derive(Debug)]
pub(super) struct Guests {
    places: Arc<Semaphore>,
    limit: u32,
    phase: watch::Sender<Phase>,
}

/// One connection's place. It is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Guest {
    phase: watch::Receiver<Phase>,
    _place: OwnedSemaphorePermit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Open,
    /// What is ready is written, then connections end.
    Closing,
    /// Connections end.
    Cut,
}

impl Guests {
    pub(super) fn new(limit: u32) -> Self {
        let places = Arc::new(Semaphore::new(limit as usize));
        Self { places, limit, phase: watch::Sender::new(Phase::Open) }
    }

    /// A place, if there is one left.
    pub(super) fn come_in(&self) -> Option<Guest> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        Some(Guest { phase: self.phase.subscribe(), _place: place })
    }

    /// Asks all to leave, and shows the door to those who have not after `grace`.
    pub(super) async fn close(self, grace: Duration) {
        self.phase.send_replace(Phase::Closing);
        let all_gone = self.places.acquire_many(self.limit);
        if tokio::time::timeout(grace, all_gone).await.is_err() {
            tracing::warn!("cut off connections that did not take what waited for them");
            self.phase.send_replace(Phase::Cut);
            // Nothing waits for a peer now, so this is only as long as the tasks take to be run.
            let _ = tokio::time::timeout(grace, self.places.acquire_many(self.limit)).await;
        }
    }
}

impl Guest {
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
