//! A session that tabs show: one replica and one rendering for all of them.
//!
//! The replica is that of an observer. While a browser that may act shows the session, another connection is attached as a driver, under
//! the name of that browser ([`DriverConnection`]): it has the prompt queue, holds the requests of the agent open, and sends what people do.

mod driver;
mod entry_page;
mod files;
mod refresh;
mod slots;
mod times;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use parlor_client::{Error, Session};
use parlor_server::browsers::SignedIn;
use parlor_server::hub::ClientRole;
use parlor_session::{SessionId, Slot, ToolCallId, Transcript};
use tokio::sync::{Notify, broadcast};
use tokio::task::AbortHandle;

pub(super) use self::driver::DriverConnection;
pub(super) use self::entry_page::PAGE_ENTRIES;
pub(super) use self::slots::{FeedHandle, Feeds};
use self::times::EntryTimes;
use super::hub_client::HubConnector;
use super::list_feed::{InboxRequest, ListView};
use super::regions;
use super::session_row::SessionRow;
use super::to_tab::{TabMessage, TabPatch};
use super::{PageState, row_of};
use crate::render::{Fragments, RequestCard, TurnFiles};

/// Entries of a session that are loaded first.
const FIRST_ENTRIES: usize = 200;

/// Messages that wait for a slow tab. A tab that falls behind gets the difference instead.
const MAX_WAITING: usize = 64;

/// The pause between two messages of a session.
const PAUSE: Duration = Duration::from_millis(33);

/// How long tabs show a session that the server has closed before they open it again.
const CLOSED_TIME: Duration = Duration::from_secs(2);

/// How long a deletion can be undone.
pub(super) const UNDO_TIME: Duration = Duration::from_secs(10);

/// A session that tabs show.
pub(super) struct Feed {
    /// The session as it was listed when the feed was opened.
    pub(super) row: SessionRow,
    /// Names this feed: revisions of another one mean nothing here.
    pub(super) epoch: String,
    session: Session,
    state: Mutex<FeedState>,
    messages: broadcast::Sender<FeedMessage>,
    /// Something changed.
    wake: Notify,
    /// The connections that act, by the ids of their browsers.
    drivers: Mutex<BTreeMap<String, Arc<DriverConnection>>>,
    /// Is held while a connection that acts is opened or ended.
    opening: tokio::sync::Mutex<()>,
    tasks: Mutex<Vec<AbortHandle>>,
    files: tokio::sync::Mutex<Option<(tokio::time::Instant, Arc<Vec<String>>)>>,
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").field("session", &self.row.id).finish_non_exhaustive()
    }
}

/// A message for the tabs that show a session.
#[derive(Debug, Clone)]
pub(super) struct FeedMessage {
    pub(super) text: Arc<str>,
    pub(super) audience: Audience,
    /// The revision of the entries after it.
    pub(super) revision: u64,
}

/// The tabs that a message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Audience {
    All,
    Drivers,
}

#[derive(Default)]
struct FeedState {
    fragments: Fragments,
    /// How often the transcript was loaded again.
    reloads: u64,
    /// The regions as they were sent last.
    regions: HashMap<&'static str, String>,
    requests: Vec<RequestCard>,
    /// The requests that a person has put off.
    postponed: Vec<RequestCard>,
    /// The tool calls that open requests are about.
    waiting: HashSet<ToolCallId>,
    /// The files that turns changed.
    files: TurnFiles,
    /// When entries were created.
    times: EntryTimes,
    /// The deletion that can be undone, and when it happens.
    deletion: Option<(AbortHandle, Timestamp)>,
    is_archived: bool,
    /// The tokens of all turns.
    tokens: Option<u64>,
    tabs: Vec<ShowingTab>,
    next_tab: u64,
    was_running: bool,
    /// How many requests were announced.
    announced: usize,
    has_ended: bool,
}

/// A tab that shows a session.
#[derive(Debug, Clone)]
pub(super) struct ShowingTab {
    id: u64,
    pub(super) role: ClientRole,
    /// The id of its browser.
    pub(super) browser: String,
    /// What its browser calls itself.
    pub(super) name: String,
}

/// What a tab gets that shows a session.
pub(super) struct Shown {
    /// Patches from the tab's revision on, or the latest entries.
    pub(super) message: TabMessage,
    /// The messages after that.
    pub(super) messages: broadcast::Receiver<FeedMessage>,
    /// The revision of the entries after the message.
    pub(super) revision: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the server has closed the session, because it cannot be stored: there are no more updates.
fn is_closed(transcript: &Transcript) -> bool {
    let error = transcript.state().and_then(|state| state.fields.get_object("error"));
    let data = error.and_then(|error| error.get_object("data"));
    data.is_some_and(|data| data.get_str("reason").as_deref() == Some("session_closed"))
}

/// Why a feed cannot be opened.
enum OpenError {
    NoSession,
    Failed(Error),
}

impl From<Error> for OpenError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Feed {
    async fn open(state: &Arc<PageState>, id: &SessionId) -> Result<Arc<Self>, OpenError> {
        let view = state.lists.view().await.map_err(|_| OpenError::Failed(Error::Disconnected))?;
        let client =
            HubConnector::new(ClientRole::Observer).with_clients().with_times().connect(&state.hub).await?;
        let row = row_of(&client, &view, id).await?.ok_or(OpenError::NoSession)?;
        let session = client.load_tail(id, Path::new(&row.cwd), FIRST_ENTRIES).await?;
        let feed = Arc::new(Self {
            row,
            epoch: uuid::Uuid::new_v4().simple().to_string(),
            state: Mutex::new(FeedState { reloads: session.reloads(), ..FeedState::default() }),
            session: session.clone(),
            messages: broadcast::Sender::new(MAX_WAITING),
            wake: Notify::new(),
            drivers: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            tasks: Mutex::default(),
            files: tokio::sync::Mutex::default(),
        });
        lock(&feed.state).is_archived = feed.row.is_archived;
        feed.set_list(&view);
        feed.refresh();
        let (listed, mut lists) = (Arc::downgrade(&feed), state.lists.subscribe());
        let mut was_listed = view.row(id).is_some();
        let list = tokio::spawn(async move {
            loop {
                let view = lists.next().await;
                let Some(feed) = listed.upgrade() else { return };
                feed.set_list(&view);
                let is_listed = view.row(&feed.row.id).is_some();
                if was_listed && !is_listed {
                    // It was deleted.
                    lock(&feed.state).has_ended = true;
                    feed.wake.notify_one();
                }
                was_listed |= is_listed;
                lists.wait().await;
            }
        });
        let mut changes = session.changes();
        let following = Arc::downgrade(&feed);
        let follow = tokio::spawn(async move {
            loop {
                let outcome = changes.next().await;
                let Some(feed) = following.upgrade() else { return };
                feed.wake.notify_one();
                let is_closed = is_closed(&feed.session.transcript());
                if is_closed {
                    // Tabs see why, and then connect again to what is stored.
                    drop(feed);
                    tokio::time::sleep(CLOSED_TIME).await;
                }
                if is_closed || outcome.is_err() {
                    let Some(feed) = following.upgrade() else { return };
                    lock(&feed.state).has_ended = true;
                    feed.wake.notify_one();
                    return;
                }
            }
        });
        let rendered = Arc::downgrade(&feed);
        let render = tokio::spawn(async move {
            loop {
                let Some(feed) = rendered.upgrade() else { return };
                feed.refresh();
                if lock(&feed.state).has_ended {
                    // Tabs see that the channel is closed when the last handle is dropped; this ends them before.
                    let text: Arc<str> = "".into();
                    let _ = feed.messages.send(FeedMessage { text, audience: Audience::All, revision: 0 });
                    return;
                }
                let pause = tokio::time::sleep(PAUSE);
                feed.wake.notified().await;
                drop(feed);
                pause.await;
            }
        });
        *lock(&feed.tasks) = vec![list.abort_handle(), follow.abort_handle(), render.abort_handle()];
        Ok(feed)
    }

    async fn close(&self) {
        lock(&self.state).has_ended = true;
        self.stop_all_drivers().await;
        self.session.client().disconnect().await;
        lock(&self.tasks).drain(..).for_each(|task| task.abort());
    }

    /// The title.
    pub(super) fn title(&self) -> String {
        let transcript = self.session.transcript();
        let title = transcript.slot(Slot::Info).and_then(|info| info.fields.get_string("title"));
        title.unwrap_or_else(|| self.row.title.clone())
    }

    /// The transcript of the latest entries.
    pub(super) fn transcript(&self) -> parlor_client::Snapshot {
        self.session.transcript()
    }

    /// The replica's session.
    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    /// The regions of a page that is loaded.
    pub(super) fn regions(&self) -> HashMap<&'static str, String> {
        lock(&self.state).regions.clone()
    }

    /// What a tab is sent that shows the session from now on, and the messages after that.
    pub(super) fn show(&self, role: ClientRole, epoch: Option<&str>, revision: Option<u64>) -> Shown {
        let state = lock(&self.state);
        // Messages are sent under the same lock: none is lost, and none is about something that the tab has.
        let messages = self.messages.subscribe();
        let transcript = self.session.transcript();
        let context = self.contexts(&transcript, &state);
        let known = revision.filter(|_| epoch == Some(self.epoch.as_str()));
        let since = known.and_then(|known| state.fragments.since(known, &transcript, |one| context.of(one)));
        let mut patch: Vec<TabPatch> = match since {
            Some(patches) => patches.into_iter().map(TabPatch::from).collect(),
            None => {
                let page = self.page_of(&state, &transcript, transcript.entries().len(), PAGE_ENTRIES);
                vec![TabPatch::Tail { epoch: self.epoch.clone(), html: page.html, before: page.before }]
            }
        };
        let regions = state
            .regions
            .iter()
            .filter(|(id, _)| role == ClientRole::Driver || regions::audience(id) == Audience::All);
        patch
            .extend(regions.map(|(id, html)| TabPatch::Replace { id: (*id).to_owned(), html: html.clone() }));
        let revision = state.fragments.revision();
        Shown { message: TabMessage { patch, revision: Some(revision) }, messages, revision }
    }

    /// Deletes the session after the time in which this can be undone.
    pub(super) fn delete_later(self: &Arc<Self>, driver: Arc<DriverConnection>) {
        let feed = Arc::downgrade(self);
        let task = tokio::spawn(async move {
            tokio::time::sleep(UNDO_TIME).await;
            if let Err(error) = driver.session.delete().await {
                tracing::warn!(%error, "cannot delete a session for the page");
                if let Some(feed) = feed.upgrade() {
                    feed.keep();
                }
            }
        });
        let before = lock(&self.state).deletion.replace((task.abort_handle(), Timestamp::now() + UNDO_TIME));
        if let Some((before, _)) = before {
            before.abort();
        }
        self.wake.notify_one();
    }

    /// Undoes a deletion.
    pub(super) fn keep(&self) {
        let deletion = lock(&self.state).deletion.take();
        if let Some((deletion, _)) = deletion {
            deletion.abort();
        }
        self.wake.notify_one();
    }

    /// Takes from the lists what belongs to the session: its open requests, whether it is archived, and its tokens.
    fn set_list(&self, view: &ListView) {
        let (postponed, requests): (Vec<_>, Vec<_>) =
            view.requests_of(&self.row.id).partition(|request| request.is_postponed);
        let cards = |requests: Vec<&InboxRequest>| -> Vec<RequestCard> {
            requests.into_iter().map(|request| request.card.clone()).collect()
        };
        let (postponed, requests) = (cards(postponed), cards(requests));
        let is_same = |known: &[RequestCard], now: &[RequestCard]| {
            known.len() == now.len()
                && known
                    .iter()
                    .zip(now)
                    .all(|(known, now)| known.element_id() == now.element_id() && known.is_same(now))
        };
        let mut state = lock(&self.state);
        let listed = view.row(&self.row.id);
        let is_archived = listed.map_or(state.is_archived, |row| row.is_archived);
        let tokens = listed.map_or(state.tokens, |row| row.tokens);
        let is_same = state.is_archived == is_archived
            && state.tokens == tokens
            && is_same(&state.postponed, &postponed)
            && is_same(&state.requests, &requests);
        if !is_same {
            state.requests = requests;
            state.postponed = postponed;
            state.is_archived = is_archived;
            state.tokens = tokens;
            self.wake.notify_one();
        }
    }

    /// Lists a tab among those that show the session, until the guard is dropped.
    pub(super) fn enter(self: &Arc<Self>, browser: &SignedIn) -> TabGuard {
        let mut state = lock(&self.state);
        let id = state.next_tab;
        state.next_tab += 1;
        state.tabs.push(ShowingTab {
            id,
            role: browser.role,
            browser: browser.id.clone(),
            name: browser.name.clone(),
        });
        drop(state);
        self.wake.notify_one();
        TabGuard { feed: Arc::clone(self), id }
    }
}

/// A tab that shows a session.
pub(super) struct TabGuard {
    feed: Arc<Feed>,
    id: u64,
}

impl Drop for TabGuard {
    fn drop(&mut self) {
        lock(&self.feed.state).tabs.retain(|tab| tab.id != self.id);
        self.feed.wake.notify_one();
    }
}
