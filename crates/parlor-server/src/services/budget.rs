//! Bounds the memory of one agent's file requests.

use std::sync::Arc;

use parlor_json::Object;
use parlor_wire::{RpcError, code};
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

/// How many bytes of requests may wait.
const WAITING: usize = 128 << 20;

/// How many bytes of files are read or written at a time; a longer file is served alone. Each is in memory a few times.
const SERVED: usize = 32 << 20;

/// The smallest size that is counted; permits are counted in this unit.
const UNIT: usize = 64 << 10;

/// Bounds the bytes of one agent's file requests and of the responses that it has not read.
#[derive(Debug, Clone)]
pub(crate) struct FileBudget {
    waiting: Arc<Semaphore>,
    served: Arc<Semaphore>,
    /// Locked while a file is measured: with a thread per file, each thread would keep its buffers.
    measuring: Arc<Mutex<()>>,
    /// Locked until the agent has read a response.
    responding: Arc<Mutex<()>>,
}

/// An admitted request, which may wait.
#[derive(Debug)]
pub(crate) struct FileRequest {
    permits: Vec<OwnedSemaphorePermit>,
    budget: FileBudget,
}

/// The memory of a request that is being served; dropped once the agent has read the response.
#[derive(Debug)]
pub(crate) struct FilePermit {
    request: FileRequest,
    responding: Option<OwnedMutexGuard<()>>,
}

impl Default for FileBudget {
    fn default() -> Self {
        Self {
            waiting: Arc::new(Semaphore::new(WAITING / UNIT)),
            served: Arc::new(Semaphore::new(SERVED / UNIT)),
            measuring: Arc::default(),
            responding: Arc::default(),
        }
    }
}

impl FileBudget {
    /// Admits a request, unless too many bytes wait.
    pub(crate) fn admit(&self, params: &Object) -> Result<FileRequest, RpcError> {
        let units = units(params.text_len(), WAITING);
        let permit = Arc::clone(&self.waiting).try_acquire_many_owned(units).map_err(|_| {
            let limit = WAITING >> 20;
            let message = format!("more than {limit} MiB of file requests are waiting: try again later");
            RpcError::new(code::INTERNAL_ERROR, message)
        })?;
        Ok(FileRequest { permits: vec![permit], budget: self.clone() })
    }
}

impl FileRequest {
    /// Waits until no other file of the agent is being measured.
    pub(crate) async fn lock_measuring(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.budget.measuring).lock_owned().await
    }

    /// Waits until the budget has room for a file of this length.
    pub(crate) async fn acquire(mut self, bytes: u64) -> FilePermit {
        let units = units(usize::try_from(bytes).unwrap_or(usize::MAX), SERVED);
        // The semaphore is never closed.
        self.permits.extend(Arc::clone(&self.budget.served).acquire_many_owned(units).await);
        FilePermit { request: self, responding: None }
    }
}

impl FilePermit {
    /// Waits until the agent has read all other responses.
    pub(crate) async fn lock_response(&mut self) {
        self.responding = Some(Arc::clone(&self.request.budget.responding).lock_owned().await);
    }
}

fn units(bytes: usize, max: usize) -> u32 {
    u32::try_from(bytes.min(max).div_ceil(UNIT).max(1)).unwrap_or(u32::MAX)
}
