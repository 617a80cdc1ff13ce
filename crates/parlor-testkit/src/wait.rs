//! Waiting for something that must happen, with a deadline instead of a guess how long it takes.

use std::panic::Location;
use std::time::{Duration, Instant};

/// How long anything may take that must happen. It only matters for tests that fail.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// How often a condition is looked at.
const INTERVAL: Duration = Duration::from_millis(5);

/// Waits for a future, and panics if it is not ready within [`TIMEOUT`].
#[track_caller]
pub fn within_timeout<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let caller = Location::caller();
    async move {
        let done = tokio::time::timeout(TIMEOUT, future).await;
        done.unwrap_or_else(|_| panic!("{caller}: still waiting after {TIMEOUT:?}"))
    }
}

/// Waits until a condition holds, and panics with `what` if it does not within [`TIMEOUT`].
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "still waiting after {TIMEOUT:?}: {what}");
        std::thread::sleep(INTERVAL);
    }
}

/// Waits until an asynchronous condition holds, and panics with `what` if it does not within [`TIMEOUT`].
pub async fn wait_until_async(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(INTERVAL).await;
        }
    };
    let done = tokio::time::timeout(TIMEOUT, wait).await;
    assert!(done.is_ok(), "still waiting after {TIMEOUT:?}: {what}");
}
