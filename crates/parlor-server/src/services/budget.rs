//! How much memory the files that one agent reads and writes may take.

use std::sync::Arc;

use parlor_json::Object;
use parlor_wire::{RpcError, code};
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

/// How many bytes of requests may wait for their files to be read or written.
const WAITING: usize = 128 << 20;

/// How many bytes of files are read or written at a time; a longer one is alone. Each is in memory a few times.
const SERVED: usize = 32 << 20;

/// What a request counts for at least. Permits are counted in this unit.
const UNIT: usize = 64 << 10;

/// Bounds the bytes of file requests of one agent, in memory and on their way to it.
#[derive(Debug)]
pub(crate) struct FileBudget {
    waiting: Arc<Semaphore>,
    served: Arc<Semaphore>,
    /// One file at a time is measured: a thread for each would keep memory of its own for what it reads later.
    measuring: Arc<Mutex<()>>,
    /// One answer at a time is on its way to the agent.
    answering: Arc<Mutex<()>>,
}

/// A request that was let in, and may wait for its turn.
#[derive(Debug)]
pub(crate) struct FileRequest {
    held: Vec<OwnedSemaphorePermit>,
    served: Arc<Semaphore>,
    measuring: Arc<Mutex<()>>,
    answering: Arc<Mutex<()>>,
}

/// The memory of a request that is being served. It is given back when this is dropped, once the agent has read the answer.
#[derive(Debug)]
pub(crate) struct FileShare {
    request: FileRequest,
    answering: Option<OwnedMutexGuard<()>>,
}

impl Default for FileBudget {
    fn default() -> Self {
        Self {
            waiting: Arc::new(Semaphore::new(WAITING / UNIT)),
            served: Arc::new(Semaphore::new(SERVED / UNIT)),
            measuring: Arc::default(),
            answering: Arc::default(),
        }
    }
}

impl FileBudget {
    /// Lets a request in, unless too much waits already.
    pub(crate) fn admit(&self, params: &Object) -> Result<FileRequest, RpcError> {
        let units = units(params.text_len(), WAITING);
        let waiting = Arc::clone(&self.waiting).try_acquire_many_owned(units);
        let waiting = waiting.map_err(|_| {
            let message = format!("more than {} MiB of file requests wait already", WAITING >> 20);
            RpcError::new(code::INTERNAL_ERROR, message)
        })?;
        Ok(FileRequest {
            held: vec![waiting],
            served: Arc::clone(&self.served),
            measuring: Arc::clone(&self.measuring),
            answering: Arc::clone(&self.answering),
        })
    }
}

impl FileRequest {
    /// Waits until no other file of the agent is measured.
    pub(crate) async fn measure_alone(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.measuring).lock_owned().await
    }

    /// Waits until there is memory for a file of this length.
    pub(crate) async fn share(mut self, bytes: u64) -> FileShare {
        let units = units(usize::try_from(bytes).unwrap_or(usize::MAX), SERVED);
        // It is never closed.
        self.held.extend(Arc::clone(&self.served).acquire_many_owned(units).await);
        FileShare { request: self, answering: None }
    }
}

impl FileShare {
    /// Waits until no other answer is on its way to the agent.
    pub(crate) async fn answer_alone(&mut self) {
        self.answering = Some(Arc::clone(&self.request.answering).lock_owned().await);
    }
}

fn units(bytes: usize, most: usize) -> u32 {
    u32::try_from(bytes.min(most).div_ceil(UNIT).max(1)).unwrap_or(u32::MAX)
}
