//! The thread that runs the tasks of sessions and the pipes of agents.
//!
//! Sessions commit their changes inline, so this thread may block on the disk. Everything else of the server (connections,
//! lists, reads of the store) runs on the caller's runtime and is not delayed by that.

use std::io;
use std::sync::{Mutex, mpsc};
use std::thread::{self, ThreadId};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, RuntimeFlavor};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::lock;

/// Runs sessions and agents.
#[derive(Debug)]
pub(crate) struct SessionThread {
    handle: Handle,
    /// `None` after `stop`, or if the caller's runtime has one thread (as in tests with paused time), which then runs the
    /// sessions.
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    /// Dropping it ends the thread.
    stop: oneshot::Sender<()>,
    /// Closed when all tasks are dropped.
    stopped: mpsc::Receiver<()>,
    thread: ThreadId,
}

impl SessionThread {
    /// Starts the thread. Must be called within a tokio runtime.
    pub(crate) fn start() -> io::Result<Self> {
        let current = Handle::current();
        if current.runtime_flavor() == RuntimeFlavor::CurrentThread {
            return Ok(Self { handle: current, running: Mutex::new(None) });
        }
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopping) = oneshot::channel::<()>();
        let (done, stopped) = mpsc::sync_channel(0);
        let thread = thread::Builder::new().name("parlor-sessions".to_owned()).spawn(move || {
            let _ = runtime.block_on(stopping);
            drop(runtime);
            drop(done);
        })?;
        let running = Running { stop, stopped, thread: thread.thread().id() };
        Ok(Self { handle, running: Mutex::new(Some(running)) })
    }

    /// Runs a task on the thread.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.handle.spawn(task)
    }

    /// Drops all tasks, and with them the processes that they own. Blocks until that is done, up to `limit`, and returns whether
    /// it is.
    pub(crate) fn stop(&self, limit: Duration) -> bool {
        let running = lock(&self.running).take();
        let Some(Running { stop, stopped, thread }) = running else { return true };
        drop(stop);
        // A task of this thread may drop the last handle to the server; the thread cannot wait for itself.
        thread::current().id() == thread
            || stopped.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Disconnected)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Reports when it is dropped.
    struct OnDrop(mpsc::Sender<&'static str>);

    impl Drop for OnDrop {
        fn drop(&mut self) {
            let _ = self.0.send("dropped");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn stopping_drops_the_tasks_and_waits_for_that() {
        let sessions = SessionThread::start().unwrap();
        let (sender, dropped) = mpsc::channel();
        let guard = OnDrop(sender);
        sessions.spawn(async move {
            std::future::pending::<()>().await;
            drop(guard);
        });
        assert!(sessions.stop(Duration::from_secs(10)));
        assert_eq!(dropped.try_recv(), Ok("dropped"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_task_of_the_thread_may_stop_the_thread() {
        let sessions = Arc::new(SessionThread::start().unwrap());
        let own = Arc::clone(&sessions);
        let is_stopped = sessions.spawn(async move { own.stop(Duration::from_secs(10)) }).await;
        assert!(is_stopped.unwrap_or(true));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn stopping_a_stalled_thread_returns_after_the_limit() {
        let sessions = SessionThread::start().unwrap();
        let (release, stall) = mpsc::channel::<()>();
        let (sender, began) = mpsc::channel();
        sessions.spawn(async move {
            let _ = sender.send(());
            let _ = stall.recv();
        });
        began.recv().unwrap();
        assert!(!sessions.stop(Duration::from_millis(10)));
        drop(release);
    }
}
