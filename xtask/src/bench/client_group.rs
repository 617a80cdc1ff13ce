//! Many clients that one thread reads.
//!
//! A thread for each would cost more than what is measured: here a chunk costs its part of one wait, and one read.

use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::client::Client;
use super::heard::{Faults, Heard};
use super::measure::quantile;
use crate::failure::Failure;

/// Clients that are read together.
pub(crate) struct Crowd {
    runtime: Runtime,
    pub(crate) clients: Vec<Client>,
}

impl Crowd {
    pub(crate) fn new(clients: Vec<Client>) -> Result<Self, Failure> {
        Ok(Self { runtime: super::runtime()?, clients })
    }

    /// Reads until all clients heard something, but not longer than this.
    pub(crate) fn until(&mut self, within: Duration, heard: impl Fn(&Heard) -> bool) -> Result<(), Failure> {
        self.clients.iter().try_for_each(|client| client.set_blocking(false))?;
        let reading = self.clients.iter_mut().map(|client| client.until_beside_others(&heard));
        // What did not come is counted by those who look at what did.
        let read = self.runtime.block_on(async { timeout(within, try_join_all(reading)).await });
        read.unwrap_or(Ok(Vec::new()))?;
        self.clients.iter().try_for_each(|client| client.set_blocking(true))
    }

    /// What all clients together did not hear as it was said.
    pub(crate) fn faults(&self, messages: usize, chunks: u32) -> Faults {
        let mut faults = Faults::default();
        self.clients.iter().for_each(|client| faults.add(client.heard.faults(messages, chunks)));
        faults
    }

    /// How long stamped chunks were on their way, in microseconds: p50 and p99 of all clients together.
    #[expect(clippy::cast_precision_loss, reason = "no chunk is on its way for months")]
    pub(crate) fn latency(&self) -> (f64, f64) {
        let all = self.clients.iter().flat_map(|client| &client.heard.on_the_way);
        let all: Vec<f64> = all.map(|nanoseconds| *nanoseconds as f64 / 1e3).collect();
        (quantile(&all, 0.5), quantile(&all, 0.99))
    }
}
