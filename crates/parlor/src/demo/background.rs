//! Messages that are sent after the turn.

use std::sync::Arc;
use std::time::Duration;

use parlor_agent::Turn;
use tokio::sync::Semaphore;

use super::text::say;

/// How many tasks may run after their turns.
const MAX_TASKS: usize = 100;

/// The tasks that run after their turns.
pub(super) struct Background(Arc<Semaphore>);

impl Default for Background {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_TASKS)))
    }
}

impl Background {
    /// Sends texts as messages, each `after` the previous one.
    pub(super) async fn send_later<T>(&self, turn: &Turn, after: Duration, texts: T)
    where
        T: IntoIterator<Item = String, IntoIter: Send> + Send + 'static,
    {
        let Ok(permit) = Arc::clone(&self.0).try_acquire_owned() else {
            return say(turn, "Too many background tasks are running.").await;
        };
        let session = turn.session();
        tokio::spawn(async move {
            for text in texts {
                tokio::time::sleep(after).await;
                session.send_text(&text).await;
                session.end_message();
            }
            drop(permit);
        });
    }

    /// Sends the progress of background work.
    pub(super) async fn send_progress(&self, turn: &Turn, count: u32) {
        let texts = (1..=count).map(move |number| format!("Background update {number} of {count}."));
        self.send_later(turn, Duration::from_millis(200), texts).await;
    }
}
