//! Keeps clients informed of changes in the list of sessions, and of the requests that wait for a person.
//!
//! The store reports which rows changed, and sessions report their open requests. A task sends each subscriber what changed
//! since the last time, at most every [`INTERVAL`]: many changes of one session are one. A client that does not keep up is
//! sent nothing until it does, and then only the present state, so a subscriber costs a bounded amount of memory.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use parlor_engine::rows::Write;
use parlor_engine::{Frame, OpenRequest};
use parlor_json::{Json, Object};
use parlor_session::SessionId;
use parlor_session::session::{ClientId, PeerRequestId};
use parlor_wire::RpcError;
use tokio::sync::Notify;

use crate::client::Client;
use crate::connection::{self, ListQuery};
use crate::hub::Shared;
use crate::lock;
use crate::stored;

/// How often a subscriber is sent changes.
const INTERVAL: Duration = Duration::from_millis(100);

/// How often a client that does not keep up is looked at again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// How many changed sessions are remembered for one subscriber. With more, it is told to list all sessions again.
const MAX_CHANGED: usize = 1000;

/// The subscribers, and the open requests of all sessions.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    state: Mutex<State>,
    wake: Notify,
    /// How many clients have subscribed to the list: without any, row changes cost nothing.
    list_subscribers: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    lists: HashMap<ClientId, ListSubscriber>,
    inboxes: HashMap<ClientId, RequestSubscriber>,
    requests: BTreeMap<u64, ListedRequest>,
    next_request: u64,
}

/// A client that is sent changes of the list of sessions.
#[derive(Debug)]
struct ListSubscriber {
    client: Weak<Client>,
    query: Arc<ListQuery>,
    /// The method of the notifications.
    method: &'static str,
    /// The sessions whose rows changed, as JSON literals.
    changed: HashSet<String>,
    /// Whether more changed than is remembered.
    has_overflown: bool,
}

/// A client that is sent open requests.
#[derive(Debug)]
struct RequestSubscriber {
    client: Weak<Client>,
    /// The requests that it was sent and that were open then.
    sent: BTreeSet<u64>,
}

/// An open request, as clients are sent it.
#[derive(Debug, Clone)]
pub(crate) struct ListedRequest {
    pub(crate) session: SessionId,
    pub(crate) request: Arc<OpenRequest>,
}

impl Feed {
    /// Subscribes a client to changes of the list. A second subscription replaces the first.
    pub(crate) fn subscribe_list(&self, client: &Arc<Client>, query: ListQuery, method: &'static str) {
        let subscriber = ListSubscriber {
            client: Arc::downgrade(client),
            query: Arc::new(query),
            method,
            changed: HashSet::new(),
            has_overflown: false,
        };
        let mut state = lock(&self.state);
        state.lists.insert(client.id, subscriber);
        self.list_subscribers.store(state.lists.len(), Ordering::Relaxed);
    }

    /// Subscribes a client to the open requests.
    pub(crate) fn subscribe_requests(&self, client: &Arc<Client>) {
        let subscriber = RequestSubscriber { client: Arc::downgrade(client), sent: BTreeSet::new() };
        lock(&self.state).inboxes.insert(client.id, subscriber);
        self.wake.notify_one();
    }

    /// Ends the subscriptions of a client.
    pub(crate) fn unsubscribe(&self, client: ClientId) {
        let mut state = lock(&self.state);
        state.lists.remove(&client);
        state.inboxes.remove(&client);
        self.list_subscribers.store(state.lists.len(), Ordering::Relaxed);
    }

    /// The sessions whose rows a batch changes, as JSON literals; none if nobody has subscribed.
    pub(crate) fn changed_rows(&self, writes: &[Write]) -> Vec<String> {
        if self.list_subscribers.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let session = |write: &Write| match write {
            Write::Session(row) => Some(row.id.clone()),
            Write::Delete { session } => Some(session.clone()),
            Write::Slot { .. }
            | Write::Entry { .. }
            | Write::Append { .. }
            | Write::Copy { .. }
            | Write::Index { .. }
            | Write::Indexed { .. }
            | Write::Value { .. } => None,
        };
        writes.iter().filter_map(session).collect()
    }

    /// Rows were stored.
    pub(crate) fn on_stored(&self, sessions: &[String]) {
        if sessions.is_empty() {
            return;
        }
        let mut state = lock(&self.state);
        for subscriber in state.lists.values_mut() {
            subscriber.note(sessions);
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Replaces the open requests of a session. Requests that stay open keep their ids.
    pub(crate) fn set_requests(&self, session: &SessionId, open: Vec<OpenRequest>) {
        let mut state = lock(&self.state);
        let is_open = |request: PeerRequestId| open.iter().any(|open| open.request == request);
        let before = (state.requests.len(), state.next_request);
        state.requests.retain(|_, listed| listed.session != *session || is_open(listed.request.request));
        for request in open {
            let is_listed = |listed: &ListedRequest| {
                listed.session == *session && listed.request.request == request.request
            };
            if !state.requests.values().any(is_listed) {
                state.next_request += 1;
                let id = state.next_request;
                let listed = ListedRequest { session: session.clone(), request: Arc::new(request) };
                state.requests.insert(id, listed);
            }
        }
        if (state.requests.len(), state.next_request) == before {
            return;
        }
        let changed = [session.as_json().as_literal().to_owned()];
        state.lists.values_mut().for_each(|subscriber| subscriber.note(&changed));
        drop(state);
        self.wake.notify_one();
    }

    /// How many requests of each session are open, by the JSON literal of its id.
    pub(crate) fn open_counts(&self) -> HashMap<String, usize> {
        let mut counts = HashMap::new();
        for listed in lock(&self.state).requests.values() {
            *counts.entry(listed.session.as_json().as_literal().to_owned()).or_default() += 1;
        }
        counts
    }

    /// The open requests with their ids, the oldest first.
    pub(crate) fn requests(&self) -> Vec<(u64, ListedRequest)> {
        lock(&self.state).requests.iter().map(|(id, listed)| (*id, listed.clone())).collect()
    }

    /// An open request, by its id.
    pub(crate) fn request(&self, id: u64) -> Option<ListedRequest> {
        lock(&self.state).requests.get(&id).cloned()
    }

    /// Waits until something changes. While a client that does not keep up has to be sent something, only for a while.
    async fn changed(&self) {
        if lock(&self.state).has_due() {
            let _ = tokio::time::timeout(RETRY_INTERVAL, self.wake.notified()).await;
        } else {
            self.wake.notified().await;
        }
    }

    /// Takes what the clients that keep up have to be sent. Subscriptions of clients that are gone end.
    fn take_due(&self) -> Due {
        let mut state = lock(&self.state);
        let State { lists, inboxes, requests, .. } = &mut *state;
        lists.retain(|_, subscriber| subscriber.client.strong_count() > 0);
        inboxes.retain(|_, subscriber| subscriber.client.strong_count() > 0);
        self.list_subscribers.store(lists.len(), Ordering::Relaxed);
        let mut due = Due::default();
        for subscriber in lists.values_mut() {
            let Some(client) = subscriber.ready() else { continue };
            due.lists.push(ListUpdate {
                client,
                query: Arc::clone(&subscriber.query),
                method: subscriber.method,
                changed: std::mem::take(&mut subscriber.changed),
                must_list_again: std::mem::take(&mut subscriber.has_overflown),
            });
        }
        for subscriber in inboxes.values_mut() {
            let Some(client) = subscriber.client.upgrade().filter(|client| client.queue.has_room()) else {
                continue;
            };
            let open: BTreeSet<_> = requests.keys().copied().collect();
            let closed: Vec<_> = subscriber.sent.difference(&open).copied().collect();
            let opened: Vec<_> = open.difference(&subscriber.sent).copied().collect();
            if closed.is_empty() && opened.is_empty() {
                continue;
            }
            let opened = opened.into_iter().map(|id| (id, requests[&id].clone())).collect();
            due.inboxes.push(RequestUpdate { client, opened, closed });
            subscriber.sent = open;
        }
        due
    }
}

impl State {
    /// Whether a client has to be sent something.
    fn has_due(&self) -> bool {
        self.lists.values().any(ListSubscriber::is_due)
            || self.inboxes.values().any(|subscriber| !subscriber.sent.iter().eq(self.requests.keys()))
    }
}

impl ListSubscriber {
    fn note(&mut self, sessions: &[String]) {
        if self.has_overflown {
            return;
        }
        self.changed.extend(sessions.iter().cloned());
        if self.changed.len() > MAX_CHANGED {
            self.changed.clear();
            self.has_overflown = true;
        }
    }

    fn is_due(&self) -> bool {
        !self.changed.is_empty() || self.has_overflown
    }

    /// The client, if it has to be sent something and keeps up.
    fn ready(&self) -> Option<Arc<Client>> {
        self.client.upgrade().filter(|client| self.is_due() && client.queue.has_room())
    }
}

/// What subscribers have to be sent.
#[derive(Debug, Default)]
struct Due {
    lists: Vec<ListUpdate>,
    inboxes: Vec<RequestUpdate>,
}

#[derive(Debug)]
struct ListUpdate {
    client: Arc<Client>,
    query: Arc<ListQuery>,
    method: &'static str,
    changed: HashSet<String>,
    must_list_again: bool,
}

#[derive(Debug)]
struct RequestUpdate {
    client: Arc<Client>,
    opened: Vec<(u64, ListedRequest)>,
    closed: Vec<u64>,
}

/// Sends subscribers what changed, until the server ends.
pub(crate) async fn run(shared: Weak<Shared>) {
    loop {
        let Some(feed) = shared.upgrade().map(|shared| Arc::clone(shared.feed())) else { return };
        feed.changed().await;
        let Some(shared) = shared.upgrade() else { return };
        let due = feed.take_due();
        for update in due.lists {
            update.send(&shared).await;
        }
        for update in due.inboxes {
            update.send(&shared).await;
        }
        drop(shared);
        tokio::time::sleep(INTERVAL).await;
    }
}

impl ListUpdate {
    async fn send(self, hub: &Arc<Shared>) {
        let Self { client, query, method, changed, must_list_again } = self;
        let mut params = Object::default();
        match connection::list_changes(hub, &client, query, changed).await {
            Ok((sessions, removed)) if !must_list_again => {
                params.set("sessions", Json::array(sessions));
                params.set("removed", Json::array(removed));
            }
            // The client reads the list, which reports why it cannot be read.
            Ok(_) | Err(_) => params.set("listAgain", true),
        }
        client.queue.push(Frame::notification(method, &params));
    }
}

impl RequestUpdate {
    async fn send(self, hub: &Arc<Shared>) {
        let Self { client, opened, closed } = self;
        let opened = match requests_to_json(hub, &client, opened).await {
            Ok(opened) => opened,
            Err(error) => return tracing::warn!("cannot list open requests: {}", error.message()),
        };
        let closed = Json::array(closed.into_iter().map(|id| Json::from(request_name(id).as_str())));
        let params = Object::new().with("opened", opened).with("closed", closed);
        client.queue.push(Frame::notification(REQUESTS_UPDATE, &params));
    }
}

/// The notification of opened and closed requests.
const REQUESTS_UPDATE: &str = "_parlor/requests/update";

/// The id of an open request, as people type it.
pub(crate) fn request_name(id: u64) -> String {
    format!("r{id}")
}

/// Reads the id of an open request.
pub(crate) fn request_of_name(name: &str) -> Option<u64> {
    name.strip_prefix('r')?.parse().ok()
}

/// Open requests as JSON, with what a person has to know of their sessions.
pub(crate) async fn requests_to_json(
    hub: &Arc<Shared>,
    client: &Client,
    requests: Vec<(u64, ListedRequest)>,
) -> Result<Json, RpcError> {
    let shown = connection::agent_names(hub, client);
    hub.read(move |store| {
        let mut listed = Vec::with_capacity(requests.len());
        for (id, ListedRequest { session, request }) in requests {
            let row = store.session(session.as_json().as_literal())?;
            let mut object = Object::new()
                .with("requestId", request_name(id).as_str())
                .with("sessionId", session.as_json())
                .with("method", request.method.as_str())
                .with("params", request.params.to_json());
            if let Some(call) = &request.tool_call {
                object.set("toolCall", call.to_json());
            }
            if let Some(at) = stored::time(request.opened_at) {
                object.set("openedAt", at);
            }
            if let Some(row) = row {
                object.set("agent", shown(&row.agent).as_str());
                object.set("cwd", &row.cwd);
                if let Some(title) = stored::title(&row) {
                    object.set("title", &title);
                }
            }
            listed.push(object);
        }
        Ok(Json::array(listed))
    })
    .await
}
