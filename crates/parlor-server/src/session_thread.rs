//! The thread on which sessions run and agents are read and written.
//!
//! A session commits its changes inline: the thread may wait for the disk. Everything else of the server (connections, lists,
//! reads of the store) runs on the workers of the caller's runtime and goes on meanwhile.

use std::io;
use std::thread;

use tokio::runtime::{Builder, Handle, RuntimeFlavor};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Runs sessions and agents. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct SessionThread {
    handle: Handle,
    /// Its end ends the thread. A runtime with one thread, as tests with paused time have it, runs sessions itself.
    _stop: Option<oneshot::Sender<()>>,
}

impl SessionThread {
    /// Starts the thread. Must be called within a tokio runtime.
    pub(crate) fn start() -> io::Result<Self> {
        let current = Handle::current();
        if current.runtime_flavor() == RuntimeFlavor::CurrentThread {
            return Ok(Self { handle: current, _stop: None });
        }
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        thread::Builder::new().name("parlor-sessions".to_owned()).spawn(move || {
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Self { handle, _stop: Some(stop) })
    }

    /// Runs a task on the thread.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.handle.spawn(task)
    }
}
