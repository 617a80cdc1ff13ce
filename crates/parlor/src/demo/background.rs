//! Messages that the agent sends after the turn.

use std::sync::Arc;
use std::time::Duration;

use parlor_agent::Turn;
use tokio::sync::Semaphore;

use super::messages::say;

/// How many background tasks run at a time.
const MAX_TASKS: usize = 100;

/// The background tasks of the agent.
pub(super) struct BackgroundTasks(Arc<Semaphore>);

impl Default for BackgroundTasks {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_TASKS)))
    }
}

impl BackgroundTasks {
    /// Sends texts from a background task, each `after` the previous one.
    pub(super) async fn say<T>(&self, turn: &Turn, after: Duration, texts: T)
    where
        T: IntoIterator<Item = String, IntoIter: Send> + Send + 'static,
    {
        let Ok(permit) = Arc::clone(&self.0).try_acquire_owned() else {
            return say(turn, "Too many background tasks are running.").await;
        };
        // The session outlives the turn.
        let session = turn.session();
        tokio::spawn(async move {
            for text in texts {
                tokio::time::sleep(after).await;
                session.say(&text).await;
                session.end_message();
            }
            drop(permit);
        });
    }

    /// Sends progress messages from a background task.
    pub(super) async fn background(&self, turn: &Turn, count: u32) {
        let texts = (1..=count).map(move |number| format!("Background update {number} of {count}."));
        self.say(turn, Duration::from_millis(200), texts).await;
    }
}
