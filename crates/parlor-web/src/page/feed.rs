//! A session that tabs show: one replica and one rendering for all of them.
//!
//! The replica is that of an observer. While a driver shows the session, a second connection is attached as a driver
//! ([`Steering`]): it has the prompt queue and the open requests, holds the requests of the agent open, and sends what people do.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use parlor_client::{Client, Error, Json, Session};
use parlor_server::hub::Role;
use parlor_session::{Activity, Entry, EntryId, MessageNumbers, SessionId, Slot, ToolCallId, Transcript};
use tokio::sync::{Notify, broadcast};
use tokio::task::AbortHandle;

use super::hub_client::HubConnector;
use super::list_feed::ListView;
use super::regions::{self, FileCounts, QueuedPrompt, RegionView};
use super::session_row::{SessionRow, SessionState};
use super::to_tab::{TabMessage, TabPatch};
use super::{PageState, media, side};
use crate::render::content_block::MediaSource;
use crate::render::text::element_id;
use crate::render::{EntryContext, Fragments, RequestCard, entry, is_shown};

/// Entries of a session that are loaded first.
const FIRST_ENTRIES: usize = 200;

/// Entries that a tab gets at a time.
pub(super) const PAGE_ENTRIES: usize = 100;

/// Messages that wait for a slow tab. A tab that falls behind gets the difference instead.
const MAX_WAITING: usize = 64;

/// The pause between two messages of a session.
const PAUSE: Duration = Duration::from_millis(33);

/// How long a session is kept that no tab shows any more, for a tab that is loaded again.
const LINGER: Duration = Duration::from_secs(10);

/// Sessions that tabs can show at a time.
const MAX_FEEDS: usize = 256;

/// Pages of older entries that are read to find media.
const MAX_PAGES: usize = 200;

/// Files of a directory that are listed for completion.
const MAX_LISTED_FILES: usize = 20_000;

/// How long a list of files is used.
const FILES_AGE: Duration = Duration::from_secs(10);

/// How long a deletion can be undone.
pub(super) const UNDO_TIME: Duration = Duration::from_secs(10);

/// The sessions that tabs show.
#[derive(Default)]
pub(super) struct Feeds {
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
pub(super) struct FeedHandle {
    state: Arc<PageState>,
    slot: Arc<FeedSlot>,
    feed: Arc<Feed>,
    is_driver: bool,
}

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
    steering: tokio::sync::Mutex<Option<Arc<Steering>>>,
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

/// The connection that acts in a session for all drivers' tabs.
#[derive(Debug)]
pub(super) struct Steering {
    pub(super) client: Client,
    pub(super) session: Session,
    tasks: Vec<AbortHandle>,
}

#[derive(Default)]
struct FeedState {
    fragments: Fragments,
    /// How often the transcript was loaded again.
    reloads: u64,
    /// The regions as they were sent last.
    regions: HashMap<&'static str, String>,
    requests: Vec<RequestCard>,
    /// How many requests a person has put off.
    postponed: usize,
    queue: Vec<QueuedPrompt>,
    /// The tool calls that open requests are about.
    waiting: HashSet<ToolCallId>,
    /// Changed files of each tool call at its change.
    files: HashMap<EntryId, (u64, FileCounts)>,
    deletion: Option<AbortHandle>,
    tabs: Vec<(u64, Role, String)>,
    next_tab: u64,
    was_running: bool,
    /// How many requests were announced.
    announced: usize,
    has_ended: bool,
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

/// A part of the entries, for a tab.
pub(super) struct EntryPage {
    pub(super) html: String,
    /// The ids of its elements.
    pub(super) ids: Vec<String>,
    /// The cursor for the entries before it; `None` if there are none.
    pub(super) before: Option<String>,
    /// Whether there are no entries after it.
    pub(super) is_last: bool,
}

impl EntryPage {
    /// The patch that answers a request for it.
    pub(super) fn into_patch(self, key: String, below: Option<Vec<String>>) -> TabPatch {
        TabPatch::Page { key, html: self.html, before: self.before, is_last: self.is_last, below }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Feeds {
    /// Opens the feed of a session, or shares the one that is open. `None` if there is no such session.
    pub(super) async fn open(
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
        let client = HubConnector::new(Role::Observer).connect(&state.hub).await?;
        let row = match view.row(id) {
            Some(row) => row.clone(),
            // The list that is followed may be older than the session.
            None => {
                let listed = client.list_all_agents().await?;
                let listed = listed.iter().find(|listed| listed.id == *id);
                listed.map(SessionRow::new).ok_or(OpenError::NoSession)?
            }
        };
        let session = client.load_tail(id, Path::new(&row.cwd), FIRST_ENTRIES).await?;
        let feed = Arc::new(Self {
            row,
            epoch: uuid::Uuid::new_v4().simple().to_string(),
            state: Mutex::new(FeedState { reloads: session.reloads(), ..FeedState::default() }),
            session: session.clone(),
            messages: broadcast::Sender::new(MAX_WAITING),
            wake: Notify::new(),
            steering: tokio::sync::Mutex::default(),
            tasks: Mutex::default(),
            files: tokio::sync::Mutex::default(),
        });
        feed.set_requests(&view);
        feed.refresh();
        let (listed, mut lists) = (Arc::downgrade(&feed), state.lists.subscribe());
        let mut was_listed = view.row(id).is_some();
        let list = tokio::spawn(async move {
            loop {
                let view = lists.next().await;
                let Some(feed) = listed.upgrade() else { return };
                feed.set_requests(&view);
                let is_listed = view.row(&feed.row.id).is_some();
                if was_listed && !is_listed {
                    // It was deleted or archived.
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
                if outcome.is_err() {
                    lock(&feed.state).has_ended = true;
                }
                feed.wake.notify_one();
                if outcome.is_err() {
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
        self.stop_steering().await;
        self.session.client().disconnect().await;
        lock(&self.tasks).drain(..).for_each(|task| task.abort());
    }

    /// The connection that acts for drivers, which is opened if there is none.
    pub(super) async fn steering(self: &Arc<Self>, state: &PageState) -> Result<Arc<Steering>, Error> {
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

    async fn stop_steering(&self) {
        let steering = self.steering.lock().await.take();
        if let Some(steering) = steering {
            // Requests that are dropped before would be declined.
            steering.client.disconnect().await;
            steering.tasks.iter().for_each(AbortHandle::abort);
            let mut state = lock(&self.state);
            state.queue.clear();
        }
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

    /// Renders what changed, and sends it to all tabs.
    fn refresh(&self) {
        let mut state = lock(&self.state);
        let state = &mut *state;
        let transcript = self.session.transcript();
        let mut patches = Vec::new();
        let waiting: HashSet<ToolCallId> =
            state.requests.iter().filter_map(RequestCard::tool_call).cloned().collect();
        if waiting != state.waiting {
            for call in waiting.symmetric_difference(&state.waiting) {
                state.fragments.mark_stale(EntryId::ToolCall(call.clone()));
            }
            state.waiting = waiting;
        }
        let reloads = self.session.reloads();
        if reloads != state.reloads {
            state.reloads = reloads;
            patches.extend(state.fragments.reload(&transcript));
        }
        let context = self.contexts(&transcript, &state.waiting);
        patches.extend(state.fragments.update(&transcript, |one| context.of(one)));
        let mut all: Vec<TabPatch> = patches.into_iter().map(TabPatch::from).collect();
        let mut drivers = Vec::new();
        let view = Self::count_files(&self.row, &mut state.files, &transcript);
        let view = self.view(state, &transcript, view);
        let is_running = view.state == SessionState::Running || view.state == SessionState::NeedsYou;
        if is_running != state.was_running && state.fragments.revision() > 0 {
            let agent = crate::render::text::clean_line(&self.row.agent);
            let agent = if agent.is_empty() { "The agent".to_owned() } else { agent };
            let what = if is_running { "is answering" } else { "has finished" };
            all.push(TabPatch::Announce(format!("{agent} {what}")));
        }
        if let Some(request) = state.requests.last()
            && state.requests.len() > state.announced
        {
            drivers.push(TabPatch::Announce(request.headline()));
        }
        let announced = state.requests.len();
        let rendered = regions::all(&view);
        state.was_running = is_running;
        state.announced = announced;
        for (id, audience, html) in rendered {
            let html = html.into_string();
            if state.regions.get(id) != Some(&html) {
                let patch = TabPatch::Replace { id: id.to_owned(), html: html.clone() };
                if audience == Audience::All {
                    all.push(patch);
                } else {
                    drivers.push(patch);
                }
                state.regions.insert(id, html);
            }
        }
        let revision = state.fragments.revision();
        for (patch, audience, revision) in
            [(all, Audience::All, Some(revision)), (drivers, Audience::Drivers, None)]
        {
            if !patch.is_empty() {
                let text = TabMessage { patch, revision }.encode().into();
                // Without tabs there is nobody to send it to.
                let _ =
                    self.messages.send(FeedMessage { text, audience, revision: state.fragments.revision() });
            }
        }
    }

    /// Counts the changed files of tool calls that changed since they were counted.
    fn count_files(
        row: &SessionRow,
        known: &mut HashMap<EntryId, (u64, FileCounts)>,
        transcript: &Transcript,
    ) -> (FileCounts, FileCounts) {
        let (mut session, mut turn) = (FileCounts::default(), FileCounts::default());
        for one in transcript.entries() {
            match one.id() {
                EntryId::Message(parlor_session::Role::User, _) => turn = FileCounts::default(),
                EntryId::ToolCall(_) => {
                    let counted = known.get(one.id()).filter(|(seq, _)| *seq == one.seq());
                    let counts = match counted {
                        Some((_, counts)) => counts.clone(),
                        None => {
                            let counts = FileCounts::of_entry(one, &row.cwd);
                            known.insert(one.id().clone(), (one.seq(), counts.clone()));
                            counts
                        }
                    };
                    session.add(&counts);
                    turn.add(&counts);
                }
                EntryId::Message(..)
                | EntryId::Plan(_)
                | EntryId::Terminal(_)
                | EntryId::Compaction(_)
                | EntryId::Subagent(_)
                | EntryId::SessionMessage(_)
                | EntryId::Event(_)
                | EntryId::Note(_) => {}
            }
        }
        (turn, session)
    }

    fn view<'a>(
        &'a self,
        state: &'a FeedState,
        transcript: &'a Transcript,
        (turn_files, session_files): (FileCounts, FileCounts),
    ) -> RegionView<'a> {
        let activity = transcript.state().map(|state| &state.activity);
        let last_failed = regions::has_failed(transcript);
        let shown = match activity {
            _ if !state.requests.is_empty() => SessionState::NeedsYou,
            Some(Activity::RequiresAction) => SessionState::NeedsYou,
            Some(Activity::Running) => SessionState::Running,
            Some(Activity::Idle | Activity::Other(_)) | None if last_failed => SessionState::Failed,
            Some(Activity::Idle | Activity::Other(_)) | None => SessionState::Idle,
        };
        RegionView {
            row: &self.row,
            title: self.title(),
            state: shown,
            transcript,
            opened: self.session.opened(),
            requests: &state.requests,
            postponed: state.postponed,
            queue: &state.queue,
            turn_files,
            session_files,
            is_deleted: state.deletion.is_some(),
            tabs: &state.tabs,
        }
    }

    fn contexts<'a>(&'a self, transcript: &'a Transcript, waiting: &'a HashSet<ToolCallId>) -> Contexts<'a> {
        Contexts {
            transcript,
            numbers: MessageNumbers::after(self.session.older_messages(), transcript),
            row: &self.row,
            media: format!("{}/media/", side::address(&self.row.id)),
            waiting,
        }
    }

    /// The regions of a page that is loaded.
    pub(super) fn regions(&self) -> HashMap<&'static str, String> {
        lock(&self.state).regions.clone()
    }

    /// The latest entries, with their revision.
    pub(super) fn tail(&self) -> (EntryPage, u64) {
        let state = lock(&self.state);
        let transcript = self.session.transcript();
        (
            self.page_of(&state, &transcript, transcript.entries().len(), PAGE_ENTRIES),
            state.fragments.revision(),
        )
    }

    /// What a tab is sent that shows the session from now on, and the messages after that.
    pub(super) fn show(&self, role: Role, epoch: Option<&str>, revision: Option<u64>) -> Shown {
        let state = lock(&self.state);
        // Messages are sent under the same lock: none is lost, and none is about something that the tab has.
        let messages = self.messages.subscribe();
        let transcript = self.session.transcript();
        let context = self.contexts(&transcript, &state.waiting);
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
            .filter(|(id, _)| role == Role::Driver || regions::audience(id) == Audience::All);
        patch
            .extend(regions.map(|(id, html)| TabPatch::Replace { id: (*id).to_owned(), html: html.clone() }));
        let revision = state.fragments.revision();
        Shown { message: TabMessage { patch, revision: Some(revision) }, messages, revision }
    }

    /// The entries before a cursor.
    pub(super) async fn older(&self, cursor: &str) -> Result<EntryPage, Error> {
        if let Some(element) = cursor.strip_prefix("e:") {
            let state = lock(&self.state);
            let transcript = self.session.transcript();
            let at = transcript.entries().iter().position(|one| element_id(one.id()) == element);
            let at = at.ok_or(Error::Protocol("the entry is not shown any more"))?;
            return Ok(self.page_of(&state, &transcript, at, PAGE_ENTRIES));
        }
        let parsed = cursor.strip_prefix("c:").and_then(|cursor| cursor.split_once(':'));
        let (messages, before) = parsed.ok_or(Error::Protocol("the cursor is unknown"))?;
        let messages: usize = messages.parse().map_err(|_| Error::Protocol("the cursor is unknown"))?;
        let before = Json::parse(before).map_err(|_| Error::Protocol("the cursor is unknown"))?;
        let page = self.session.older(&before, PAGE_ENTRIES).await?;
        let transcript = &page.transcript;
        let own = transcript.entries().iter().filter(|one| parlor_session::is_numbered(one)).count();
        let skipped = messages.saturating_sub(own);
        let media = format!("{}/media/", side::address(&self.row.id));
        let waiting = HashSet::new();
        let context = Contexts {
            transcript,
            numbers: MessageNumbers::after(skipped, transcript),
            row: &self.row,
            media,
            waiting: &waiting,
        };
        let elements = transcript.entries().iter().filter_map(|one| entry(one, &context.of(one)));
        let html = elements.map(maud::Markup::into_string).collect();
        let before = page.before.map(|before| format!("c:{skipped}:{}", before.as_str()));
        let ids = transcript.entries().iter().map(|one| element_id(one.id())).collect();
        Ok(EntryPage { html, ids, before, is_last: false })
    }

    /// The entries after an element; the first ones that the feed has if it does not have that one.
    pub(super) fn newer(&self, element: &str) -> EntryPage {
        let state = lock(&self.state);
        let transcript = self.session.transcript();
        let at = transcript.entries().iter().position(|one| element_id(one.id()) == element);
        let end = (at.map_or(0, |at| at + 1) + PAGE_ENTRIES).min(transcript.entries().len());
        let start = at.map_or(0, |at| at + 1);
        let mut page = self.page_of(&state, &transcript, end, end - start);
        page.is_last = end == transcript.entries().len();
        page
    }

    /// The entries before an index, at most this many.
    fn page_of(&self, state: &FeedState, transcript: &Transcript, end: usize, entries: usize) -> EntryPage {
        let context = self.contexts(transcript, &state.waiting);
        let start = end.saturating_sub(entries);
        let shown = transcript.entries()[start..end].iter();
        let html = shown.clone().filter_map(|one| state.fragments.html(one, &context.of(one)));
        let html: String = html.map(|html| html.to_string()).collect();
        let first = shown.clone().find(|one| is_shown(one, transcript));
        let before = match first {
            Some(first) if start > 0 => Some(format!("e:{}", element_id(first.id()))),
            Some(_) | None => self
                .session
                .older_cursor()
                .map(|cursor| format!("c:{}:{}", self.session.older_messages(), cursor.as_str())),
        };
        let ids = shown.map(|one| element_id(one.id())).collect();
        EntryPage { html, ids, before, is_last: end == transcript.entries().len() }
    }

    /// The type and the bytes of the media at a place, also in entries that are not loaded.
    pub(super) async fn media(&self, place: &str) -> Result<Option<(String, Vec<u8>)>, Error> {
        if let Some(found) = media::find(&self.session.transcript(), place) {
            return Ok(Some(found));
        }
        let mut before = self.session.older_cursor();
        for _ in 0..MAX_PAGES {
            let Some(cursor) = before else { break };
            let page = self.session.older(&cursor, FIRST_ENTRIES).await?;
            if let Some(found) = media::find(&page.transcript, place) {
                return Ok(Some(found));
            }
            before = page.before;
        }
        Ok(None)
    }

    /// The files of the session's directory without those that `.gitignore` names, for completion.
    pub(super) async fn files(&self) -> Arc<Vec<String>> {
        let mut known = self.files.lock().await;
        if let Some((at, files)) = &*known
            && at.elapsed() < FILES_AGE
        {
            return Arc::clone(files);
        }
        let cwd = self.row.cwd.clone();
        let listed = tokio::task::spawn_blocking(move || files_of(Path::new(&cwd))).await;
        let files = Arc::new(listed.unwrap_or_default());
        *known = Some((tokio::time::Instant::now(), Arc::clone(&files)));
        files
    }

    /// Deletes the session after the time in which this can be undone.
    pub(super) fn delete_later(self: &Arc<Self>, steering: Arc<Steering>) {
        let feed = Arc::downgrade(self);
        let task = tokio::spawn(async move {
            tokio::time::sleep(UNDO_TIME).await;
            if let Err(error) = steering.session.delete().await {
                tracing::warn!(%error, "cannot delete a session for the page");
                if let Some(feed) = feed.upgrade() {
                    feed.keep();
                }
            }
        });
        let before = lock(&self.state).deletion.replace(task.abort_handle());
        if let Some(before) = before {
            before.abort();
        }
        self.wake.notify_one();
    }

    /// Undoes a deletion.
    pub(super) fn keep(&self) {
        let deletion = lock(&self.state).deletion.take();
        if let Some(deletion) = deletion {
            deletion.abort();
        }
        self.wake.notify_one();
    }

    fn set_queue(&self, queue: Vec<QueuedPrompt>) {
        let mut state = lock(&self.state);
        if state.queue != queue {
            state.queue = queue;
            self.wake.notify_one();
        }
    }

    /// Takes the open requests of the session from the list of all.
    fn set_requests(&self, view: &ListView) {
        let (postponed, requests): (Vec<_>, Vec<_>) =
            view.requests_of(&self.row.id).partition(|request| request.is_postponed);
        let requests: Vec<RequestCard> = requests.into_iter().map(|request| request.card.clone()).collect();
        let names = |cards: &[RequestCard]| cards.iter().map(RequestCard::element_id).collect::<Vec<_>>();
        let mut state = lock(&self.state);
        let is_same = state.postponed == postponed.len()
            && names(&state.requests) == names(&requests)
            && state.requests.iter().zip(&requests).all(|(known, now)| known.is_same(now));
        if !is_same {
            state.requests = requests;
            state.postponed = postponed.len();
            self.wake.notify_one();
        }
    }

    /// Lists a tab among those that show the session, until the guard is dropped.
    pub(super) fn enter(self: &Arc<Self>, role: Role, name: &str) -> TabGuard {
        let mut state = lock(&self.state);
        let id = state.next_tab;
        state.next_tab += 1;
        state.tabs.push((id, role, name.to_owned()));
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
        lock(&self.feed.state).tabs.retain(|(id, ..)| *id != self.id);
        self.feed.wake.notify_one();
    }
}

fn files_of(directory: &Path) -> Vec<String> {
    let walk = ignore::WalkBuilder::new(directory).require_git(false).build();
    let files = walk.flatten().filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()));
    let relative =
        files.filter_map(|entry| Some(entry.path().strip_prefix(directory).ok()?.to_str()?.to_owned()));
    relative.take(MAX_LISTED_FILES).collect()
}

/// What entries are rendered with.
struct Contexts<'a> {
    transcript: &'a Transcript,
    numbers: MessageNumbers<'a>,
    row: &'a SessionRow,
    media: String,
    waiting: &'a HashSet<ToolCallId>,
}

impl Contexts<'_> {
    fn of(&self, one: &Entry) -> EntryContext<'_> {
        EntryContext {
            transcript: self.transcript,
            agent: &self.row.agent,
            cwd: &self.row.cwd,
            media: MediaSource::Served(&self.media),
            number: self.numbers.number_of(one),
            created_at: super::created_at(one),
            is_waiting: matches!(one.id(), EntryId::ToolCall(call) if self.waiting.contains(call)),
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
