//! The connections of browsers that act in a session.

use std::path::Path;
use std::sync::Arc;

use parlor_client::{Client, Error, Session};
use parlor_server::browsers::SignedIn;
use tokio::task::AbortHandle;

use super::super::PageState;
use super::super::hub_client::HubConnector;
use super::{Feed, lock};

/// The connection that acts in a session for the tabs of one browser.
#[derive(Debug)]
pub(in crate::page) struct DriverConnection {
    pub(in crate::page) client: Client,
    pub(in crate::page) session: Session,
    /// The number of the client, by which others name it.
    pub(super) number: Option<u64>,
    tasks: Vec<AbortHandle>,
}

impl Feed {
    /// The connection that acts for a browser, which is opened if there is none.
    pub(in crate::page) async fn driver(
        self: &Arc<Self>,
        state: &PageState,
        browser: &SignedIn,
    ) -> Result<Arc<DriverConnection>, Error> {
        let _opening = self.opening.lock().await;
        if let Some(open) = lock(&self.drivers).get(&browser.id) {
            return Ok(Arc::clone(open));
        }
        if lock(&self.state).has_ended {
            return Err(Error::Disconnected);
        }
        let open = Arc::new(DriverConnection::open(self, state, browser).await?);
        lock(&self.drivers).insert(browser.id.clone(), Arc::clone(&open));
        self.wake.notify_one();
        Ok(open)
    }

    /// Ends the connection that acts for a browser, unless `is_shown` says that one of its tabs shows the session again.
    pub(super) async fn stop_driver(&self, browser: &str, is_shown: impl Fn() -> bool) {
        let _opening = self.opening.lock().await;
        if is_shown() {
            return;
        }
        let driver = lock(&self.drivers).remove(browser);
        if let Some(driver) = driver {
            driver.end().await;
            self.wake.notify_one();
        }
    }

    /// Ends all connections that act in the session.
    pub(super) async fn stop_all_drivers(&self) {
        let _opening = self.opening.lock().await;
        let all = std::mem::take(&mut *lock(&self.drivers));
        for driver in all.into_values() {
            driver.end().await;
        }
    }
}

impl DriverConnection {
    async fn open(feed: &Arc<Feed>, state: &PageState, browser: &SignedIn) -> Result<Self, Error> {
        let row = &feed.row;
        let cwd = Path::new(&row.cwd);
        let connector = HubConnector::driver(browser).with_agent(&row.agent, cwd.to_owned());
        let client = connector.connect(&state.hub).await?;
        let number = client.info().get_nested("_meta", "parlor/client").and_then(|number| number.as_u64());
        let mut requests = client.requests();
        let session = client.join(&row.id, cwd).await?;
        let hold = tokio::spawn(async move {
            while let Some(mut request) = requests.next().await {
                // People answer it by its id at the server. Dropping it would decline it.
                tokio::spawn(async move { request.cancelled().await });
            }
        });
        let (watched, closed, id) = (Arc::downgrade(feed), client.clone(), browser.id.clone());
        let watch = tokio::spawn(async move {
            closed.closed().await;
            // The connection was lost, if it was not closed here. Tabs that connect again open another one.
            if let Some(feed) = watched.upgrade()
                && lock(&feed.drivers).get(&id).is_some_and(|listed| listed.number == number)
            {
                lock(&feed.state).has_ended = true;
                feed.wake.notify_one();
            }
        });
        let mut changes = session.changes();
        let queued = Arc::downgrade(feed);
        let queue = tokio::spawn(async move {
            while changes.next().await.is_ok() {
                let Some(feed) = queued.upgrade() else { return };
                feed.wake.notify_one();
            }
        });
        let tasks = vec![hold.abort_handle(), watch.abort_handle(), queue.abort_handle()];
        Ok(Self { client, session, number, tasks })
    }

    async fn end(&self) {
        // Requests that are dropped before would be declined.
        self.client.disconnect().await;
        self.tasks.iter().for_each(AbortHandle::abort);
    }

    /// Whether the agent takes prompts into a running turn.
    pub(super) fn can_steer(&self) -> bool {
        let steering = self.client.info().get_nested("_meta", "steering");
        let steering = steering.and_then(|steering| steering.to_object());
        steering.is_some_and(|steering| steering.get_bool("supported") == Some(true))
    }
}
