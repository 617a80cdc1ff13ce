//! Many clients that one thread reads.
//!
//! A thread for each client would cost more than what is measured: here a chunk costs its share of one wait, and one
//! read.

use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::client::Client;
use super::measure::quantile;
use super::received::{Faults, Received};
use crate::failure::Failure;

/// A group of clients that are read together.
pub(crate) struct ClientGroup {
    runtime: Runtime,
    pub(crate) clients: Vec<Client>,
}

impl ClientGroup {
    pub(crate) fn new(clients: Vec<Client>) -> Result<Self, Failure> {
        Ok(Self { runtime: super::runtime()?, clients })
    }

    /// Reads until a condition holds for all clients, or until the timeout.
    pub(crate) fn until(
        &mut self,
        within: Duration,
        received: impl Fn(&Received) -> bool,
    ) -> Result<(), Failure> {
        self.clients.iter().try_for_each(|client| client.set_blocking(false))?;
        let reading = self.clients.iter_mut().map(|client| client.until_beside_others(&received));
        // The caller counts missing chunks.
        let read = self.runtime.block_on(async { timeout(within, try_join_all(reading)).await });
        read.unwrap_or(Ok(Vec::new()))?;
        self.clients.iter().try_for_each(|client| client.set_blocking(true))
    }

    /// Returns the faults of all clients.
    pub(crate) fn faults(&self, messages: usize, chunks: u32) -> Faults {
        let mut faults = Faults::default();
        self.clients.iter().for_each(|client| faults.add(client.received.faults(messages, chunks)));
        faults
    }

    /// Returns p50 and p99 of the latency of stamped chunks of all clients, in microseconds.
    #[expect(clippy::cast_precision_loss, reason = "no chunk is on its way for months")]
    pub(crate) fn latency(&self) -> (f64, f64) {
        let all = self.clients.iter().flat_map(|client| &client.received.latencies);
        let all: Vec<f64> = all.map(|nanoseconds| *nanoseconds as f64 / 1e3).collect();
        (quantile(&all, 0.5), quantile(&all, 0.99))
    }
}
