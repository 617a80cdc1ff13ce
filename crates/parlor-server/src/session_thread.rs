//! The thread on which sessions run and agents are read and written.
//!
//! A session commits its changes inline: the thread may wait for the disk. Everything else of the server (connections, lists,
//! reads of the store) runs on the workers of the caller's runtime and goes on meanwhile.

use std::io;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread::{self, ThreadId};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, RuntimeFlavor};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Runs sessions and agents.
#[derive(Debug)]
pub(crate) struct SessionThread {
    handle: Handle,
    /// None if it was stopped, or if the caller's runtime has one thread, as tests with paused time have it: that runs
    /// sessions itself.
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    /// Its end ends the thread.
    stop: oneshot::Sender<()>,
    /// Ends when all tasks are dropped.
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

    /// Drops all tasks, and with them the processes that they run, and waits for that as long as `limit`. Returns whether it
    /// is done. This blocks.
    pub(crate) fn stop(&self, limit: Duration) -> bool {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Running { stop, stopped, thread }) = running else { return true };
        drop(stop);
        // The last task that holds the server may be one of those that are dropped.
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
    async fn a_task_of_its_own_may_stop_it() {
        let sessions = Arc::new(SessionThread::start().unwrap());
        let own = Arc::clone(&sessions);
        let is_stopped = sessions.spawn(async move { own.stop(Duration::from_secs(10)) }).await;
        assert!(is_stopped.unwrap_or(true));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_thread_that_is_stalled_does_not_keep_the_caller_waiting() {
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
