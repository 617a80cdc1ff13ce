use std::sync::{Arc, Mutex, PoisonError};

/// How many are remembered.
const LATEST: usize = 20;

/// What a connection could not read, or could not say in the other side's version of the protocol. The rest goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Losses {
    /// How many there were.
    pub count: u64,
    /// What the last of them were, in words, the latest last.
    pub latest: Vec<String>,
}

/// The losses of a connection, for its task and all who ask.
#[derive(Debug, Clone, Default)]
pub(crate) struct LossLog(Arc<Mutex<Losses>>);

impl LossLog {
    pub(crate) fn note(&self, what: String) {
        let mut losses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        losses.count += 1;
        if losses.latest.len() >= LATEST {
            losses.latest.remove(0);
        }
        losses.latest.push(what);
    }

    pub(crate) fn read(&self) -> Losses {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
