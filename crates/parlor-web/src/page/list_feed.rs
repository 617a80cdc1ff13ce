//! The sessions and the open requests of the server, followed once and rendered once for all tabs.
//!
//! The feed has one connection to the hub while a tab or a page needs it: a server in the background stops when it has no clients.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use parlor_client::{Client, Connection, Error, ListUpdate, Object, OpenRequest, RequestsUpdate};
use parlor_server::hub::{ClientRole, Hub};
use parlor_session::SessionId;
use tokio::sync::{Notify, watch};
use tokio::time::{interval, sleep, timeout};

use super::hub_client::HubConnector;
use super::session_row::{SessionRow, SessionState};
use super::side::SessionTree;
use super::{archive, inbox};
use crate::render::RequestCard;
use crate::render::text::clean_line;

/// How often ages are rendered again, and how long the connection stays without a tab.
const REFRESH: Duration = Duration::from_secs(30);

/// How long a page waits for the list.
const LOAD_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause before the next attempt to connect.
const RETRY: Duration = Duration::from_secs(1);

/// Follows the list of sessions and the open requests.
pub(super) struct ListFeed {
    hub: Arc<Hub>,
    view: watch::Sender<Option<Arc<ListView>>>,
    is_running: Mutex<bool>,
    /// The requests that a person has put off, by id and time.
    postponed: Mutex<HashSet<(String, String)>>,
    has_postponed: Notify,
}

/// The server did not list its sessions in time.
#[derive(Debug)]
pub(super) struct ListUnavailable;

/// A tab that follows the list.
#[derive(Debug)]
pub(super) struct ListSubscription {
    view: watch::Receiver<Option<Arc<ListView>>>,
}

/// The sessions and the open requests at one time, rendered.
#[derive(Debug)]
pub(super) struct ListView {
    /// The sessions, archived ones included, the most recently active first.
    pub(super) rows: Vec<SessionRow>,
    /// The open requests, the oldest first.
    pub(super) requests: Vec<InboxRequest>,
    /// The list at the side.
    pub(super) tree: SessionTree,
    /// The number of requests beside the link to the inbox.
    pub(super) inbox_count: Arc<str>,
    /// The content of the inbox.
    pub(super) inbox: Arc<str>,
    /// The archived sessions.
    pub(super) archived: Arc<str>,
}

/// An open request with its session.
#[derive(Debug)]
pub(super) struct InboxRequest {
    pub(super) card: RequestCard,
    pub(super) title: String,
    pub(super) agent: String,
    pub(super) cwd: String,
    pub(super) opened_at: Option<Timestamp>,
    /// Whether a person has put it off.
    pub(super) is_postponed: bool,
}

/// Something that a person may want to know of while the page is in the background.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PageNotice {
    /// What it is about: a later notice with the same tag replaces it.
    pub(super) tag: String,
    pub(super) title: String,
    pub(super) text: String,
    /// The address of the page that shows it.
    pub(super) address: String,
}

impl std::fmt::Debug for ListFeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListFeed").finish_non_exhaustive()
    }
}

impl ListFeed {
    pub(super) fn new(hub: Arc<Hub>) -> Arc<Self> {
        Arc::new(Self {
            hub,
            view: watch::Sender::new(None),
            is_running: Mutex::new(false),
            postponed: Mutex::default(),
            has_postponed: Notify::new(),
        })
    }

    /// Follows the list.
    pub(super) fn subscribe(self: &Arc<Self>) -> ListSubscription {
        // The task ends only without subscribers, so this comes first.
        let view = self.view.subscribe();
        let mut is_running = lock(&self.is_running);
        if !*is_running {
            *is_running = true;
            tokio::spawn(Arc::clone(self).run());
        }
        ListSubscription { view }
    }

    /// The present list.
    pub(super) async fn view(self: &Arc<Self>) -> Result<Arc<ListView>, ListUnavailable> {
        let mut subscription = self.subscribe();
        timeout(LOAD_TIMEOUT, subscription.next()).await.map_err(|_| ListUnavailable)
    }

    /// Moves a request to the end of the inbox and out of its session, until it is answered. Returns false if it is not open.
    pub(super) fn postpone(&self, request: &str, opened_at: &str) -> bool {
        let view = self.view.borrow().clone();
        let is_open = view.is_some_and(|view| view.request(request, opened_at).is_some());
        if is_open {
            lock(&self.postponed).insert((request.to_owned(), opened_at.to_owned()));
            self.has_postponed.notify_one();
        }
        is_open
    }

    async fn run(self: Arc<Self>) {
        loop {
            if let Err(error) = self.follow().await {
                tracing::debug!(%error, "the page cannot follow the list of sessions");
                sleep(RETRY).await;
            }
            let mut is_running = lock(&self.is_running);
            if self.view.receiver_count() == 0 {
                *is_running = false;
                self.view.send_replace(None);
                return;
            }
        }
    }

    async fn follow(&self) -> Result<(), Error> {
        // Neither connection starts an agent. Only drivers see requests; this one is attached to no session.
        let client = HubConnector::new(ClientRole::Observer).connect(&self.hub).await?;
        let followed =
            self.follow_client(&client, &HubConnector::new(ClientRole::Driver).connection(&self.hub)).await;
        client.disconnect().await;
        followed
    }

    /// Publishes the list until nobody needs it.
    async fn follow_client(&self, client: &Client, connection: &Connection) -> Result<(), Error> {
        let (mut of_list, mut of_requests) = (client.notifications(), connection.notifications());
        client.subscribe_list_with_archived().await?;
        connection.call("_parlor/requests/subscribe", &Object::default()).await?;
        let mut list =
            FollowedList { rows: all_rows(client).await?, requests: connection.open_requests().await? };
        let mut refresh = interval(REFRESH);
        refresh.reset();
        let mut was_needed = true;
        loop {
            self.publish(&mut list);
            tokio::select! {
                notification = of_list.next() => {
                    match ListUpdate::of(&notification.ok_or(Error::Disconnected)?) {
                        Some(update) if update.list_again => list.rows = all_rows(client).await?,
                        Some(update) => list.change(&update),
                        None => {}
                    }
                }
                notification = of_requests.next() => {
                    if let Some(update) = RequestsUpdate::of(&notification.ok_or(Error::Disconnected)?) {
                        list.change_requests(update);
                    }
                }
                () = self.has_postponed.notified() => {}
                _ = refresh.tick() => {
                    let is_needed = self.view.receiver_count() > 0;
                    if !is_needed && !was_needed {
                        return Ok(());
                    }
                    was_needed = is_needed;
                }
            }
        }
    }

    fn publish(&self, list: &mut FollowedList) {
        let postponed = {
            let mut postponed = lock(&self.postponed);
            postponed
                .retain(|(id, at)| list.requests.iter().any(|open| open.id == *id && opened_at(open) == at));
            postponed.clone()
        };
        list.rows
            .sort_by(|one, other| other.active_at.cmp(&one.active_at).then_with(|| one.id.cmp(&other.id)));
        self.view.send_replace(Some(Arc::new(ListView::new(list, &postponed, Timestamp::now()))));
    }
}

async fn all_rows(client: &Client) -> Result<Vec<SessionRow>, Error> {
    Ok(client.list_with_archived().await?.iter().map(SessionRow::new).collect())
}

fn opened_at(open: &OpenRequest) -> &str {
    open.opened_at.as_deref().unwrap_or_default()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The list as the server sent it.
#[derive(Debug, Default)]
struct FollowedList {
    rows: Vec<SessionRow>,
    requests: Vec<OpenRequest>,
}

impl FollowedList {
    fn change(&mut self, update: &ListUpdate) {
        let changed: Vec<SessionRow> = update.changed.iter().map(SessionRow::new).collect();
        let replaced: HashSet<&SessionId> =
            changed.iter().map(|row| &row.id).chain(&update.removed).collect();
        self.rows.retain(|row| !replaced.contains(&row.id));
        self.rows.extend(changed);
    }

    fn change_requests(&mut self, update: RequestsUpdate) {
        let is_replaced =
            |id: &String| update.closed.contains(id) || update.opened.iter().any(|open| open.id == *id);
        self.requests.retain(|open| !is_replaced(&open.id));
        self.requests.extend(update.opened);
        self.requests.sort_by(|one, other| one.opened_at.cmp(&other.opened_at));
    }
}

impl ListSubscription {
    /// The first list, or the next one after a change. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Arc<ListView> {
        loop {
            if let Some(view) = self.view.borrow_and_update().clone() {
                return view;
            }
            if self.view.changed().await.is_err() {
                // The feed lives as long as the routes of the page.
                return std::future::pending().await;
            }
        }
    }

    /// Waits for the next change. Dropping the future loses nothing.
    pub(super) async fn wait(&mut self) {
        if self.view.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The list after the next change. Dropping the future loses nothing.
    pub(super) async fn changed(&mut self) -> Arc<ListView> {
        self.wait().await;
        self.next().await
    }
}

impl ListView {
    fn new(list: &FollowedList, postponed: &HashSet<(String, String)>, now: Timestamp) -> Self {
        let request = |open: &OpenRequest| InboxRequest {
            card: RequestCard::new(open),
            title: open.session_title.clone().unwrap_or_else(|| "New session".to_owned()),
            agent: open.agent.clone(),
            cwd: open.cwd.clone(),
            opened_at: open.opened_at.as_deref().and_then(|at| at.parse().ok()),
            is_postponed: postponed.contains(&(open.id.clone(), opened_at(open).to_owned())),
        };
        let requests: Vec<InboxRequest> = list.requests.iter().map(request).collect();
        let waiting = requests.iter().filter(|request| !request.is_postponed).count();
        Self {
            tree: SessionTree::new(&list.rows, now),
            inbox_count: inbox::count(waiting).into_string().into(),
            inbox: inbox::content(&requests, &list.rows, now).into_string().into(),
            archived: archive::content(&list.rows, now).into_string().into(),
            rows: list.rows.clone(),
            requests,
        }
    }

    /// A session of the list.
    pub(super) fn row(&self, id: &SessionId) -> Option<&SessionRow> {
        self.rows.iter().find(|row| row.id == *id)
    }

    /// The open request with this id that was opened at this time.
    pub(super) fn request(&self, id: &str, opened_at: &str) -> Option<&InboxRequest> {
        self.requests.iter().find(|request| request.card.is(id, opened_at))
    }

    /// The open requests of a session, the oldest first.
    pub(super) fn requests_of<'a>(
        &'a self,
        session: &'a SessionId,
    ) -> impl Iterator<Item = &'a InboxRequest> {
        self.requests.iter().filter(move |request| request.card.session() == session)
    }

    /// All elements of the list by their ids, for a tab of which nothing is known.
    pub(super) fn all(&self, role: ClientRole) -> Vec<(String, Arc<str>)> {
        let mut all = vec![
            ("sessions".to_owned(), self.tree.html().into()),
            ("archived".to_owned(), Arc::clone(&self.archived)),
        ];
        if role == ClientRole::Driver {
            all.push(("inbox-count".to_owned(), Arc::clone(&self.inbox_count)));
            all.push(("inbox".to_owned(), Arc::clone(&self.inbox)));
        }
        all
    }

    /// The elements that changed since another view, by their ids: the rows of the list or all of it, and the inbox for drivers.
    pub(super) fn changes_since(&self, before: &Self, role: ClientRole) -> Vec<(String, Arc<str>)> {
        let mut changes = self.tree.changes_since(&before.tree);
        if self.archived != before.archived {
            changes.push(("archived".to_owned(), Arc::clone(&self.archived)));
        }
        if role == ClientRole::Driver {
            let regions = [
                ("inbox-count", &before.inbox_count, &self.inbox_count),
                ("inbox", &before.inbox, &self.inbox),
            ];
            let changed = regions.into_iter().filter(|(_, before, now)| before != now);
            changes.extend(changed.map(|(id, _, now)| (id.to_owned(), Arc::clone(now))));
        }
        changes
    }

    /// What happened since another view that a person may want to know of: requests, and turns that ended.
    pub(super) fn notices_since(&self, before: &Self, role: ClientRole) -> Vec<PageNotice> {
        let mut notices = Vec::new();
        if role == ClientRole::Driver {
            let is_new = |request: &&InboxRequest| {
                !before.requests.iter().any(|known| known.card.is_same(&request.card))
            };
            notices.extend(self.requests.iter().filter(is_new).map(|request| PageNotice {
                tag: request.card.element_id(),
                title: request.card.headline(),
                text: clean_line(&format!("{}: {}", request.title, request.card.summary())),
                address: super::side::address(request.card.session()),
            }));
        }
        for row in self.rows.iter().filter(|row| !row.is_archived) {
            let was_busy = before.row(&row.id).is_some_and(|before| before.state.is_busy());
            let text = match row.state {
                SessionState::Idle if was_busy && row.is_unread => "The turn ended",
                SessionState::Failed if was_busy => "The turn failed",
                SessionState::Idle
                | SessionState::Failed
                | SessionState::Running
                | SessionState::NeedsYou => continue,
            };
            notices.push(PageNotice {
                tag: super::side::row_id(&row.id),
                title: clean_line(&row.title),
                text: format!("{text} · {}", clean_line(&row.agent)),
                address: super::side::address(&row.id),
            });
        }
        notices
    }
}

/// Says that a person has seen all of a session.
pub(super) async fn mark_seen(hub: &Arc<Hub>, session: &SessionId) -> Result<(), Error> {
    let client = HubConnector::new(ClientRole::Driver).connect(hub).await?;
    // A number after the last change counts as the last one.
    let params = Object::new().with("sessionId", session.as_json()).with("seq", u64::from(u32::MAX));
    let called = client.call("_parlor/seen", &params).await;
    client.disconnect().await;
    called.map(drop)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::side::tests::row;
    use super::*;

    fn open_request(id: &str, command: &str) -> OpenRequest {
        let params = format!(
            r#"{{"opened":[{{"requestId":"{id}","sessionId":"s","agent":"claude","cwd":"/w","title":"T","openedAt":"2026-03-04T09:41:00Z",
                "method":"session/request_permission","params":{{"toolCall":{{"toolCallId":"t","kind":"execute","rawInput":{{"command":"{command}"}}}},
                "options":[{{"optionId":"y","name":"Allow","kind":"allow_once"}}]}}}}]}}"#
        );
        let params = parlor_client::Json::parse(&params).unwrap();
        let notification = parlor_client::Notification::new("_parlor/requests/update", Some(params));
        RequestsUpdate::of(&notification).unwrap().opened.remove(0)
    }

    pub(crate) fn request(id: &str, command: &str) -> InboxRequest {
        InboxRequest {
            card: RequestCard::new(&open_request(id, command)),
            title: "T".to_owned(),
            agent: "claude".to_owned(),
            cwd: "/w".to_owned(),
            opened_at: None,
            is_postponed: false,
        }
    }

    pub(crate) fn view(rows: &[SessionRow], requests: &[&str]) -> ListView {
        let requests = requests.iter().map(|id| open_request(id, "make")).collect();
        let list = FollowedList { rows: rows.to_vec(), requests };
        ListView::new(&list, &HashSet::new(), "2026-03-04T12:00:00Z".parse().unwrap())
    }

    #[test]
    fn changes_replace_rows_and_requests() {
        let mut list =
            FollowedList { rows: vec![row("a", "2026-03-04T11:00:00Z", None)], requests: Vec::new() };
        let params = r#"{"sessions":[{"sessionId":"b","cwd":"/","title":"B"},{"sessionId":"a","cwd":"/","title":"A"}],"removed":["c"]}"#;
        let params = parlor_client::Json::parse(params).unwrap();
        let update = ListUpdate::of(&parlor_client::Notification::new("_parlor/list/update", Some(params)));
        list.change(&update.unwrap());
        let titles: Vec<_> = list.rows.iter().map(|row| row.title.as_str()).collect();
        assert_eq!(titles, ["B", "A"]);
        let opened = |ids: &[&str]| ids.iter().map(|id| open_request(id, "ls")).collect::<Vec<_>>();
        let mut update = RequestsUpdate::of(&parlor_client::Notification::new(
            "_parlor/requests/update",
            Some(parlor_client::Json::parse("{}").unwrap()),
        ))
        .unwrap();
        update.opened = opened(&["r1", "r2"]);
        list.change_requests(update.clone());
        update.opened = opened(&["r2"]);
        update.closed = vec!["r1".to_owned()];
        list.change_requests(update);
        assert_eq!(list.requests.iter().map(|open| open.id.as_str()).collect::<Vec<_>>(), ["r2"]);
    }

    #[test]
    fn only_drivers_are_sent_requests() {
        let rows = [row("s", "2026-03-04T11:00:00Z", None)];
        let (before, after) = (view(&rows, &[]), view(&rows, &["r1"]));
        let ids = |role| after.changes_since(&before, role).into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!(ids(ClientRole::Driver), ["inbox-count", "inbox"]);
        assert!(ids(ClientRole::Observer).is_empty());
        assert!(after.notices_since(&before, ClientRole::Observer).is_empty());
        let notices = after.notices_since(&before, ClientRole::Driver);
        assert_eq!(notices[0].title, "claude asks to run a command");
        assert_eq!((notices[0].text.as_str(), notices[0].address.as_str()), ("T: run make", "/s/s"));
        assert!(after.notices_since(&after, ClientRole::Driver).is_empty());
    }

    #[test]
    fn a_request_is_found_by_its_id_and_time() {
        // After a restart of the server, another request may have the same id.
        let view = view(&[], &["r1"]);
        assert!(view.request("r1", "2026-03-04T09:41:00Z").is_some());
        for (id, at) in [("r1", "2026-03-04T09:42:00Z"), ("r1", ""), ("r2", "2026-03-04T09:41:00Z")] {
            assert!(view.request(id, at).is_none(), "{id} at {at}");
        }
    }

    #[test]
    fn a_turn_that_ends_or_fails_is_a_notice() {
        let mut rows = vec![row("s", "2026-03-04T11:00:00Z", None)];
        let view_in = |rows: &mut Vec<SessionRow>, state, is_unread| {
            (rows[0].state, rows[0].is_unread) = (state, is_unread);
            view(rows, &[])
        };
        let running = view_in(&mut rows, SessionState::Running, false);
        let ended = view_in(&mut rows, SessionState::Idle, true);
        let seen = view_in(&mut rows, SessionState::Idle, false);
        let failed = view_in(&mut rows, SessionState::Failed, true);
        let text = |before: &ListView, after: &ListView| {
            let notices = after.notices_since(before, ClientRole::Driver);
            notices.into_iter().map(|notice| notice.text).collect::<Vec<_>>()
        };
        assert_eq!(text(&running, &ended), ["The turn ended · claude"]);
        assert_eq!(text(&running, &failed), ["The turn failed · claude"]);
        rows[0].is_archived = true;
        let archived = view_in(&mut rows, SessionState::Failed, true);
        assert!(text(&running, &archived).is_empty(), "archiving cancels the turn");
        assert!(
            text(&running, &seen).is_empty()
                && text(&ended, &seen).is_empty()
                && text(&ended, &failed).is_empty()
        );
    }
}
