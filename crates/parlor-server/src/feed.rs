//! Keeps clients informed of changes in the list of sessions, and of the requests that wait for a person.
//!
//! The store reports which rows changed, and sessions report their open requests. A task sends each subscriber what changed
//! since the last time, at most every [`INTERVAL`]: many changes of one session are one. A client that does not keep up is
//! sent nothing until it does, and then only the present state, so a subscriber costs a bounded amount of memory.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
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
use crate::hub::HubState;
use crate::lock;
use crate::stored;

/// How often a subscriber is sent changes.
const INTERVAL: Duration = Duration::from_millis(100);

/// How often a client that does not keep up is looked at again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// How many changed sessions are remembered for one subscriber. With more, the next notification says `listAgain`.
const MAX_CHANGED: usize = 1000;

/// The subscribers, and the open requests of all sessions.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    state: Mutex<State>,
    wake: Notify,
    /// Wakes the notifier.
    #[cfg(feature = "notify")]
    watch: Notify,
}

#[derive(Debug, Default)]
struct State {
    lists: HashMap<ClientId, ListSubscriber>,
    request_subscribers: HashMap<ClientId, RequestSubscriber>,
    requests: BTreeMap<u64, ListedRequest>,
    next_request: u64,
    /// The sessions whose rows changed, as JSON literals, if the notifier has targets.
    #[cfg(feature = "notify")]
    watched: Option<HashSet<String>>,
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
        lock(&self.state).lists.insert(client.id, subscriber);
    }

    /// Subscribes a client to the open requests.
    pub(crate) fn subscribe_requests(&self, client: &Arc<Client>) {
        let subscriber = RequestSubscriber { client: Arc::downgrade(client), sent: BTreeSet::new() };
        lock(&self.state).request_subscribers.insert(client.id, subscriber);
        self.wake.notify_one();
    }

    /// Ends the subscriptions of a client, also when it disconnects.
    pub(crate) fn unsubscribe(&self, client: ClientId) {
        let mut state = lock(&self.state);
        state.lists.remove(&client);
        state.request_subscribers.remove(&client);
    }

    /// The sessions whose list rows a batch changes, as JSON literals.
    pub(crate) fn changed_rows(writes: &[Write]) -> Vec<String> {
        let session = |write: &Write| match write {
            Write::Session(row) => Some(row.id.clone()),
            Write::Delete { session } => Some(session.clone()),
            // The metadata of a session is part of its row.
            Write::Slot { session, name, .. } if name == stored::INFO => Some(session.clone()),
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
        #[cfg(feature = "notify")]
        if let Some(watched) = &mut state.watched {
            // The notifier reads rows faster than sessions write them. With more changes, it misses turns of some sessions.
            watched.extend(sessions.iter().take(MAX_CHANGED.saturating_sub(watched.len())).cloned());
            self.watch.notify_one();
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Starts or stops to remember changed sessions for the notifier.
    #[cfg(feature = "notify")]
    pub(crate) fn set_watched(&self, is_watched: bool) {
        let watched = &mut lock(&self.state).watched;
        *watched = is_watched.then(|| watched.take().unwrap_or_default());
    }

    /// Waits for a change of a row or of the open requests.
    #[cfg(feature = "notify")]
    pub(crate) async fn watched(&self) {
        self.watch.notified().await;
    }

    /// Takes the sessions whose rows changed, as JSON literals.
    #[cfg(feature = "notify")]
    pub(crate) fn take_watched(&self) -> HashSet<String> {
        lock(&self.state).watched.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Remembers sessions again that could not be read, without waking the notifier.
    #[cfg(feature = "notify")]
    pub(crate) fn watch_again(&self, sessions: HashSet<String>) {
        if let Some(watched) = &mut lock(&self.state).watched {
            let room = MAX_CHANGED.saturating_sub(watched.len());
            watched.extend(sessions.into_iter().take(room));
        }
    }

    /// Replaces the open requests of a session. Requests that stay open keep their ids.
    pub(crate) fn set_requests(&self, session: &SessionId, open: Vec<OpenRequest>) {
        let mut state = lock(&self.state);
        let is_open = |request: PeerRequestId| open.iter().any(|open| open.request == request);
        let before = (state.requests.len(), state.next_request);
        state.requests.retain(|_, listed| listed.session != *session || is_open(listed.request.request));
        for request in open {
            let is_it = |listed: &&mut ListedRequest| {
                listed.session == *session && listed.request.request == request.request
            };
            if let Some(listed) = state.requests.values_mut().find(is_it) {
                listed.request = Arc::new(request);
            } else {
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
        #[cfg(feature = "notify")]
        self.watch.notify_one();
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

    /// Takes what the clients that keep up have to be sent.
    fn take_due(&self) -> Due {
        let mut state = lock(&self.state);
        let State { lists, request_subscribers, requests, .. } = &mut *state;
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
        for subscriber in request_subscribers.values_mut() {
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
            due.requests.push(RequestUpdate { client, opened, closed });
            subscriber.sent = open;
        }
        due
    }
}

impl State {
    /// Whether a client has to be sent something.
    fn has_due(&self) -> bool {
        self.lists.values().any(ListSubscriber::is_due)
            || self
                .request_subscribers
                .values()
                .any(|subscriber| !subscriber.sent.iter().eq(self.requests.keys()))
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
    requests: Vec<RequestUpdate>,
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
pub(crate) async fn run(shared: Weak<HubState>) {
    loop {
        let Some(feed) = shared.upgrade().map(|shared| Arc::clone(shared.feed())) else { return };
        feed.changed().await;
        let Some(shared) = shared.upgrade() else { return };
        let due = feed.take_due();
        for update in due.lists {
            update.send(&shared).await;
        }
        for update in due.requests {
            update.send(&shared).await;
        }
        drop(shared);
        tokio::time::sleep(INTERVAL).await;
    }
}

impl ListUpdate {
    async fn send(self, hub: &Arc<HubState>) {
        let Self { client, query, method, changed, must_list_again } = self;
        let mut params = Object::default();
        match connection::list_changes(hub, &client, query, changed).await {
            // Only sessions of subagents changed, which no list has.
            Ok((sessions, removed)) if !must_list_again && sessions.is_empty() && removed.is_empty() => {
                return;
            }
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
    async fn send(self, hub: &Arc<HubState>) {
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
    hub: &Arc<HubState>,
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
                .with("params", request.params.to_json())
                .with("clients", request.clients);
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
                if let Some(name) = stored::display_name(store, &row)? {
                    object.set("name", name);
                }
                if let Some(owner) = &row.owner {
                    object.set("owner", Json::parse(owner).unwrap_or_default());
                }
            }
            listed.push(object);
        }
        Ok(Json::array(listed))
    })
    .await
}

#[cfg(test)]
mod tests {
    use parlor_store::{Batch, MemoryStore, SessionRow};

    use super::*;
    use crate::hub::{ClientRole, ConnectOptions, Hub, TransportKind};
    use crate::send_queue::{SendQueueReader, send_queue};

    fn client() -> (Arc<Client>, SendQueueReader) {
        let options = ConnectOptions::new(TransportKind::Stdio, ClientRole::Driver);
        let (queue, reader) = send_queue();
        (Arc::new(Client::new(ClientId(7), Arc::new(options), queue)), reader)
    }

    /// A server whose list of all sessions a client has subscribed to.
    async fn subscribed() -> (Arc<Hub>, Arc<Client>, SendQueueReader) {
        let hub = Hub::for_tests(Arc::new(MemoryStore::default())).await;
        let (client, reader) = client();
        let params = Object::new().with("_meta", Object::new().with("parlor/agent", "*"));
        let query = ListQuery::of(&hub.shared(), &client, &params).await.unwrap();
        hub.shared().feed().subscribe_list(&client, query, "_parlor/list/update");
        (hub, client, reader)
    }

    async fn write(hub: &Hub, sessions: impl IntoIterator<Item = usize>) {
        let row = |n: usize| SessionRow { id: format!("\"s{n}\""), ..SessionRow::default() };
        let writes = sessions.into_iter().map(|n| Write::Session(row(n))).collect();
        hub.shared().write(Batch { writes, durable: false }).await.unwrap();
    }

    async fn next(reader: &mut SendQueueReader) -> String {
        let frames = tokio::time::timeout(Duration::from_secs(30), reader.next()).await.unwrap().unwrap();
        frames.iter().map(Frame::as_str).collect()
    }

    #[tokio::test]
    async fn many_changes_of_a_session_are_sent_once() {
        let (hub, _client, mut reader) = subscribed().await;
        write(&hub, [1, 1, 2, 1]).await;
        let sent = next(&mut reader).await;
        assert_eq!(sent.matches(r#""sessionId":"s1""#).count(), 1, "{sent}");
        assert!(sent.contains(r#""sessionId":"s2""#) && sent.contains(r#""removed":[]"#), "{sent}");
    }

    #[tokio::test]
    async fn a_client_lists_again_after_more_changes_than_are_remembered() {
        let (hub, _client, mut reader) = subscribed().await;
        write(&hub, 0..=MAX_CHANGED).await;
        let sent = next(&mut reader).await;
        assert!(sent.contains(r#""params":{"listAgain":true}"#), "{sent}");
        write(&hub, [5]).await;
        let sent = next(&mut reader).await;
        assert!(sent.contains(r#""sessionId":"s5""#), "then it is sent changes again: {sent}");
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_sent_the_present_state_when_it_reads_again() {
        let (hub, client, mut reader) = subscribed().await;
        let long = Frame::updates("x".repeat(1 << 20) + "\n");
        client.queue.push(long);
        write(&hub, [1]).await;
        write(&hub, [1, 2]).await;
        let feed = Arc::clone(hub.shared().feed());
        assert!(feed.take_due().lists.is_empty(), "nothing is queued behind what it has not read");
        assert_eq!(next(&mut reader).await.len(), (1 << 20) + 1);
        let sent = next(&mut reader).await;
        assert_eq!(sent.lines().count(), 1, "{sent}");
        assert!(sent.contains(r#""s1""#) && sent.contains(r#""s2""#), "{sent}");
    }

    #[tokio::test]
    async fn a_disconnected_client_leaves_no_subscription_behind() {
        let hub = Hub::for_tests(Arc::new(MemoryStore::default())).await;
        let options = ConnectOptions { role: ClientRole::Driver, ..(*client().0.options).clone() };
        let (mut connection, _reader) = hub.connect(options);
        for method in ["_parlor/list/subscribe", "_parlor/requests/subscribe"] {
            let line = format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"_meta":{{"parlor/agent":"*"}}}}}}"#
            );
            connection.on_line(parlor_wire::InputLine::Line(&line)).await;
        }
        let feed = Arc::clone(hub.shared().feed());
        let count = || {
            let state = lock(&feed.state);
            (state.lists.len(), state.request_subscribers.len())
        };
        assert_eq!(count(), (1, 1));
        drop(connection);
        assert_eq!(count(), (0, 0));
    }

    #[test]
    fn rows_deletions_and_metadata_change_the_list() {
        let slot = |name: &str| Write::Slot {
            session: "\"s\"".to_owned(),
            name: name.to_owned(),
            seq: 1,
            body: None,
        };
        let delete = Write::Delete { session: "\"d\"".to_owned() };
        let row = Write::Session(SessionRow { id: "\"r\"".to_owned(), ..SessionRow::default() });
        assert_eq!(Feed::changed_rows(&[slot("info"), delete, row]), ["\"s\"", "\"d\"", "\"r\""]);
        assert_eq!(Feed::changed_rows(&[slot("usage")]), [""; 0]);
    }
}
