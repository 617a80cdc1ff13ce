//! The connections of drivers to a session.

use std::path::Path;
use std::sync::Arc;

use parlor_client::{Client, Error, Session};
use parlor_server::hub::Role;
use tokio::task::AbortHandle;

use super::super::PageState;
use super::super::hub_client::HubConnector;
use super::super::regions::{self, QueuedPrompt};
use super::{Feed, lock};

/// The connection that acts in a session for all drivers' tabs.
#[derive(Debug)]
pub(in crate::page) struct Steering {
    pub(in crate::page) client: Client,
    pub(in crate::page) session: Session,
    tasks: Vec<AbortHandle>,
}

impl Feed {
    /// The connection that acts for drivers, which is opened if there is none.
    pub(in crate::page) async fn steering(
        self: &Arc<Self>,
        state: &PageState,
    ) -> Result<Arc<Steering>, Error> {
        let mut steering = self.steering.lock().await;
        if let Some(open) = &*steering {
            return Ok(Arc::clone(open));
        }
        let open = Arc::new(Steering::open(self, state).await?);
        *steering = Some(Arc::clone(&open));
        drop(steering);
        self.wake.notify_one();
        Ok(open)
    }

    pub(super) async fn stop_steering(&self) {
        let steering = self.steering.lock().await.take();
        if let Some(steering) = steering {
            // Requests that are dropped before would be declined.
            steering.client.disconnect().await;
            steering.tasks.iter().for_each(AbortHandle::abort);
            let mut state = lock(&self.state);
            state.queue.clear();
        }
    }

    pub(super) fn set_queue(&self, queue: Vec<QueuedPrompt>) {
        let mut state = lock(&self.state);
        if state.queue != queue {
            state.queue = queue;
            self.wake.notify_one();
        }
    }
}

impl Steering {
    async fn open(feed: &Arc<Feed>, state: &PageState) -> Result<Self, Error> {
        let row = &feed.row;
        let cwd = Path::new(&row.cwd);
        let connector = HubConnector::new(Role::Driver).with_agent(&row.agent, cwd.to_owned());
        let client = connector.connect(&state.hub).await?;
        let mut requests = client.requests();
        let session = client.join(&row.id, cwd).await?;
        let hold = tokio::spawn(async move {
            while let Some(mut request) = requests.next().await {
                // People answer it by its id at the server. Dropping it would decline it.
                tokio::spawn(async move { request.cancelled().await });
            }
        });
        let (watched, closed) = (Arc::downgrade(feed), client.clone());
        let watch = tokio::spawn(async move {
            closed.closed().await;
            // The connection was lost, if it was not closed here. Tabs that connect again open another one.
            if let Some(feed) = watched.upgrade()
                && feed.steering.lock().await.is_some()
            {
                lock(&feed.state).has_ended = true;
                feed.wake.notify_one();
            }
        });
        let mut changes = session.changes();
        let (queued, own) = (Arc::downgrade(feed), session.clone());
        let queue = tokio::spawn(async move {
            loop {
                let Some(feed) = queued.upgrade() else { return };
                feed.set_queue(regions::queue(&own.transcript()));
                drop(feed);
                if changes.next().await.is_err() {
                    return;
                }
            }
        });
        let tasks = vec![hold.abort_handle(), watch.abort_handle(), queue.abort_handle()];
        Ok(Self { client, session, tasks })
    }
}
