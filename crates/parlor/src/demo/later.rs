//! What is said when the turn is over.

use std::sync::Arc;
use std::time::Duration;

use parlor_agent::Turn;
use tokio::sync::Semaphore;

use super::words::say;

/// How much goes on at a time beside the turns.
const MAX_TASKS: usize = 100;

/// The agent's work beside its turns.
pub(super) struct Later(Arc<Semaphore>);

impl Default for Later {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_TASKS)))
    }
}

impl Later {
    /// Says texts when nobody asks any more, each so long after the one before.
    pub(super) async fn say<T>(&self, turn: &Turn, after: Duration, texts: T)
    where
        T: IntoIterator<Item = String, IntoIter: Send> + Send + 'static,
    {
        let Ok(permit) = Arc::clone(&self.0).try_acquire_owned() else {
            return say(turn, "I have enough to do already.").await;
        };
        // The turn is over by then, the session is not.
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

    /// Tells of work that goes on in the background.
    pub(super) async fn background(&self, turn: &Turn, count: u32) {
        let texts = (1..=count).map(move |number| format!("Background update {number} of {count}."));
        self.say(turn, Duration::from_millis(200), texts).await;
    }
}
