//! The store for async code: its calls run on blocking threads.

use std::sync::Arc;

use parlor_store::{Batch, ErrorKind, Store, StoreError};
use tokio::sync::{Mutex, Semaphore, oneshot};
use tokio::task::spawn_blocking;

use crate::feed::Feed;

/// How many reads run at a time. The limit of searches is lower, so that other reads do not wait for them.
const READERS: usize = 8;

type Read<T> = dyn FnOnce(&dyn Store) -> Result<T, StoreError> + Send;

/// Runs the calls of a store on blocking threads.
///
/// A [`Store`] blocks for as long as its disk does. Async code uses this handle instead. Only the session thread, which may
/// block, writes inline.
pub(crate) struct StoreHandle {
    store: Arc<dyn Store>,
    readers: Arc<Semaphore>,
    /// Held while a batch is passed to the store, so that batches keep the order of the calls.
    writer: Arc<Mutex<()>>,
    feed: Arc<Feed>,
}

impl StoreHandle {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        let readers = Arc::new(Semaphore::new(READERS));
        Self { store, readers, writer: Arc::default(), feed: Arc::default() }
    }

    /// Where changed rows are reported.
    pub(crate) fn feed(&self) -> &Arc<Feed> {
        &self.feed
    }

    #[cfg(test)]
    pub(crate) fn inner(&self) -> &dyn Store {
        &*self.store
    }

    /// Reads on a blocking thread. Dropping the future does not interrupt the read.
    pub(crate) fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Store) -> Result<T, StoreError> + Send + 'static,
    ) -> impl Future<Output = Result<T, StoreError>> + Send {
        // Boxed, so that the futures stay small.
        let read: Box<Read<T>> = Box::new(read);
        let (store, readers) = (Arc::clone(&self.store), Arc::clone(&self.readers));
        async move {
            let reader = readers.acquire_owned().await.map_err(|_| closed())?;
            let done = spawn_blocking(move || {
                let result = read(&*store);
                drop(reader);
                result
            });
            done.await.unwrap_or_else(|_| Err(closed()))
        }
    }

    /// Writes a batch, and waits until it is committed or has failed.
    pub(crate) async fn write(&self, batch: Batch) -> Result<(), StoreError> {
        let changed = Feed::changed_rows(&batch.writes);
        let writer = Arc::clone(&self.writer).lock_owned().await;
        let store = Arc::clone(&self.store);
        let (sender, done) = oneshot::channel();
        // Blocks while the disk is slow or too many batches wait.
        let handed_over = spawn_blocking(move || {
            store.write(batch, Box::new(move |result| drop(sender.send(result))));
            drop(writer);
        });
        handed_over.await.map_err(|_| closed())?;
        done.await.unwrap_or_else(|_| Err(closed()))?;
        self.feed.on_stored(&changed);
        Ok(())
    }

    /// Writes a batch on the calling thread, which may block, and waits until it is committed or has failed.
    pub(crate) async fn write_inline(&self, batch: Batch) -> Result<(), StoreError> {
        if batch.writes.is_empty() {
            return Ok(());
        }
        let changed = Feed::changed_rows(&batch.writes);
        let (sender, done) = oneshot::channel();
        self.store.write(batch, Box::new(move |result| drop(sender.send(result))));
        done.await.unwrap_or_else(|_| Err(closed()))?;
        self.feed.on_stored(&changed);
        Ok(())
    }

    /// Waits until all batches are written, and closes the store.
    pub(crate) async fn close(&self) {
        let store = Arc::clone(&self.store);
        let _ = spawn_blocking(move || store.close()).await;
    }
}

fn closed() -> StoreError {
    StoreError { kind: ErrorKind::Closed, message: "the store is closed".to_owned() }
}
