//! The sessions that tabs show, and how long each of them is followed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use parlor_client::Error;
use parlor_server::browsers::SignedIn;
use parlor_server::hub::ClientRole;
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
    /// The tabs of each browser that may act, by the browser's id.
    drivers: HashMap<String, usize>,
}

impl FeedSlot {
    fn has_ended(&self) -> bool {
        self.feed.get().is_some_and(|feed| lock(&feed.state).has_ended)
    }
}

/// Keeps a feed open.
pub(in crate::page) struct FeedHandle {
    state: Arc<PageState>,
    slot: Arc<FeedSlot>,
    feed: Arc<Feed>,
    /// The id of the browser, if it may act.
    driver: Option<String>,
}

impl Feeds {
    /// Opens the feed of a session, or shares the one that is open. `None` if there is no such session.
    pub(in crate::page) async fn open(
        state: &Arc<PageState>,
        id: &SessionId,
        browser: Option<&SignedIn>,
    ) -> Result<Option<FeedHandle>, Error> {
        let driver =
            browser.filter(|browser| browser.role == ClientRole::Driver).map(|browser| browser.id.clone());
        let slot = {
            let mut open = lock(&state.feeds.open);
            // Its tabs are closed before they release it. It says nothing any more, also not that the session was deleted.
            if open.get(id).is_some_and(|slot| slot.has_ended()) {
                open.remove(id);
            }
            if !open.contains_key(id) && open.len() >= MAX_FEEDS {
                return Err(Error::Busy);
            }
            let slot = Arc::clone(open.entry(id.clone()).or_default());
            lock(&slot.viewers).add(driver.as_deref());
            slot
        };
        let opened = slot.feed.get_or_try_init(|| Feed::open(state, id)).await;
        match opened {
            Ok(feed) => {
                let feed = Arc::clone(feed);
                Ok(Some(FeedHandle { state: Arc::clone(state), slot, feed, driver }))
            }
            Err(error) => {
                release(state, id, &slot, driver, true);
                match error {
                    OpenError::NoSession => Ok(None),
                    OpenError::Failed(error) => Err(error),
                }
            }
        }
    }
}

impl Viewers {
    fn add(&mut self, driver: Option<&str>) {
        self.all += 1;
        if let Some(driver) = driver {
            *self.drivers.entry(driver.to_owned()).or_default() += 1;
        }
    }

    fn remove(&mut self, driver: Option<&str>) {
        self.all -= 1;
        if let Some(tabs) = driver.and_then(|driver| self.drivers.get_mut(driver)) {
            *tabs -= 1;
        }
        self.drivers.retain(|_, tabs| *tabs > 0);
    }
}

/// Counts a viewer out, and closes a feed that has none.
fn release(
    state: &Arc<PageState>,
    id: &SessionId,
    slot: &Arc<FeedSlot>,
    driver: Option<String>,
    at_once: bool,
) {
    lock(&slot.viewers).remove(driver.as_deref());
    let (state, id, slot) = (Arc::clone(state), id.clone(), Arc::clone(slot));
    let close = async move {
        if !at_once {
            tokio::time::sleep(LINGER).await;
        }
        if let Some(driver) = driver
            && let Some(feed) = slot.feed.get()
        {
            let is_shown = || lock(&slot.viewers).drivers.contains_key(&driver);
            feed.stop_driver(&driver, is_shown).await;
        }
        let is_unused = {
            let mut open = lock(&state.feeds.open);
            let is_unused = lock(&slot.viewers).all == 0;
            // A feed that has ended is not listed any more; another one may be.
            if is_unused && open.get(&id).is_some_and(|listed| Arc::ptr_eq(listed, &slot)) {
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
        let has_ended = self.slot.has_ended();
        release(&self.state, &self.feed.row.id, &self.slot, self.driver.take(), has_ended);
    }
}
