//! The sessions that tabs show, and how long each of them is followed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use parlor_client::Error;
use parlor_server::hub::Role;
use parlor_session::SessionId;

use super::super::PageState;
use super::{Feed, OpenError, lock};

/// How long a session is kept that no tab shows any more, for a tab that is loaded again.
const LINGER: Duration = Duration::from_secs(10);

/// Sessions that tabs can show at a time.
const MAX_FEEDS: usize = 256;

/// The sessions that tabs show.
#[derive(Default)]
pub(in crate::page) struct Feeds {
    open: Mutex<HashMap<SessionId, Arc<FeedSlot>>>,
}

/// The place of a session's feed, which may still be opened.
#[derive(Debug, Default)]
struct FeedSlot {
    feed: tokio::sync::OnceCell<Arc<Feed>>,
    viewers: Mutex<Viewers>,
}

#[derive(Debug, Default)]
struct Viewers {
    all: usize,
    drivers: usize,
}

/// Keeps a feed open.
pub(in crate::page) struct FeedHandle {
    state: Arc<PageState>,
    slot: Arc<FeedSlot>,
    feed: Arc<Feed>,
    is_driver: bool,
}

impl Feeds {
    /// Opens the feed of a session, or shares the one that is open. `None` if there is no such session.
    pub(in crate::page) async fn open(
        state: &Arc<PageState>,
        id: &SessionId,
        role: Role,
    ) -> Result<Option<FeedHandle>, Error> {
        let is_driver = role == Role::Driver;
        let slot = {
            let mut open = lock(&state.feeds.open);
            if !open.contains_key(id) && open.len() >= MAX_FEEDS {
                return Err(Error::Busy);
            }
            let slot = Arc::clone(open.entry(id.clone()).or_default());
            let mut viewers = lock(&slot.viewers);
            viewers.all += 1;
            viewers.drivers += usize::from(is_driver);
            drop(viewers);
            slot
        };
        let opened = slot.feed.get_or_try_init(|| Feed::open(state, id)).await;
        match opened {
            Ok(feed) => {
                let feed = Arc::clone(feed);
                Ok(Some(FeedHandle { state: Arc::clone(state), slot, feed, is_driver }))
            }
            Err(error) => {
                release(state, id, &slot, is_driver, true);
                match error {
                    OpenError::NoSession => Ok(None),
                    OpenError::Failed(error) => Err(error),
                }
            }
        }
    }
}

/// Counts a viewer out, and closes a feed that has none.
fn release(state: &Arc<PageState>, id: &SessionId, slot: &Arc<FeedSlot>, is_driver: bool, at_once: bool) {
    let is_last_driver = {
        let mut viewers = lock(&slot.viewers);
        viewers.all -= 1;
        viewers.drivers -= usize::from(is_driver);
        is_driver && viewers.drivers == 0
    };
    let (state, id, slot) = (Arc::clone(state), id.clone(), Arc::clone(slot));
    let close = async move {
        if !at_once {
            tokio::time::sleep(LINGER).await;
        }
        if is_last_driver
            && lock(&slot.viewers).drivers == 0
            && let Some(feed) = slot.feed.get()
        {
            feed.stop_steering().await;
        }
        let is_unused = {
            let mut open = lock(&state.feeds.open);
            let is_unused = lock(&slot.viewers).all == 0
                && open.get(&id).is_some_and(|listed| Arc::ptr_eq(listed, &slot));
            if is_unused {
                open.remove(&id);
            }
            is_unused
        };
        if is_unused && let Some(feed) = slot.feed.get() {
            feed.close().await;
        }
    };
    tokio::spawn(close);
}

impl std::ops::Deref for FeedHandle {
    type Target = Arc<Feed>;

    fn deref(&self) -> &Arc<Feed> {
        &self.feed
    }
}

impl Drop for FeedHandle {
    fn drop(&mut self) {
        let has_ended = lock(&self.feed.state).has_ended;
        if has_ended {
            // A tab that connects again needs another one.
            let mut open = lock(&self.state.feeds.open);
            if open.get(&self.feed.row.id).is_some_and(|slot| Arc::ptr_eq(slot, &self.slot)) {
                open.remove(&self.feed.row.id);
            }
        }
        release(&self.state, &self.feed.row.id, &self.slot, self.is_driver, has_ended);
    }
}
