use std::sync::{Arc, Mutex, PoisonError};

/// How many descriptions are kept.
const LATEST: usize = 20;

/// Messages that could not be decoded, or not expressed in the peer's version of the protocol. Everything else goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Losses {
    /// How many there were.
    pub count: u64,
    /// Descriptions of the last 20, in order.
    pub latest: Vec<String>,
}

impl Losses {
    pub(crate) fn record(&mut self, loss: String) {
        self.count += 1;
        if self.latest.len() >= LATEST {
            self.latest.remove(0);
        }
        self.latest.push(loss);
    }
}

/// The losses of a connection, shared between its task and its clients.
#[derive(Debug, Clone, Default)]
pub(crate) struct LossLog(Arc<Mutex<Losses>>);

impl LossLog {
    pub(crate) fn record(&self, loss: impl Into<String>) {
        let loss = loss.into();
        tracing::warn!(loss, "message lost");
        self.0.lock().unwrap_or_else(PoisonError::into_inner).record(loss);
    }

    pub(crate) fn read(&self) -> Losses {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
