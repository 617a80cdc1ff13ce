//! One tab of a browser: its WebSocket, the session that it shows, and what its person does.

use std::sync::Arc;

use parlor_server::hub::ClientRole;
use parlor_server::transport::{PageSocket, TabGone};
use parlor_session::SessionId;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Semaphore, broadcast, mpsc};

use super::PageState;
use super::action::Action;
use super::feed::{Audience, FeedHandle, FeedMessage, Feeds, TabGuard};
use super::list_feed::{ListSubscription, ListView, PageNotice};
use super::perform::{Performer, decoded, reason};
use super::to_tab::{TabMessage, TabPatch};

/// Responses to a tab's actions that wait to be sent.
const MAX_RESPONSES: usize = 64;

/// Actions of a tab that are being performed.
const MAX_ACTIONS: usize = 64;

/// A tab that is connected.
struct Tab {
    state: Arc<PageState>,
    socket: PageSocket,
    role: ClientRole,
    shown: Option<ShownSession>,
    responses: mpsc::Sender<TabMessage>,
    actions: Arc<Semaphore>,
    lists: ListSubscription,
    /// The list that the tab has.
    list: Option<Arc<ListView>>,
}

/// The session that a tab shows.
struct ShownSession {
    messages: broadcast::Receiver<FeedMessage>,
    /// The revision of the entries that the tab has.
    revision: u64,
    feed: FeedHandle,
    _guard: TabGuard,
}

/// Serves a tab until it is gone.
pub(super) async fn serve(state: Arc<PageState>, socket: PageSocket) {
    let (responses, mut waiting) = mpsc::channel(MAX_RESPONSES);
    let role = socket.browser().role;
    let actions = Arc::new(Semaphore::new(MAX_ACTIONS));
    let lists = state.lists.subscribe();
    let mut tab = Tab { state, socket, role, shown: None, responses, actions, lists, list: None };
    while tab.step(&mut waiting).await.is_ok() {}
    tab.socket.close().await;
}

impl Tab {
    async fn step(&mut self, waiting: &mut mpsc::Receiver<TabMessage>) -> Result<(), TabGone> {
        let next = async {
            match &mut self.shown {
                Some(shown) => shown.messages.recv().await,
                None => std::future::pending().await,
            }
        };
        let is_first = self.list.is_none();
        let listed = async { if is_first { self.lists.next().await } else { self.lists.changed().await } };
        tokio::select! {
            received = self.socket.receive() => {
                let text = received.ok_or(TabGone)?;
                match Action::parse(&text) {
                    Ok(action) => self.on_action(action).await,
                    Err(message) => self.send(&TabPatch::Error(message).into()).await,
                }
            }
            message = next => self.on_message(message).await,
            view = listed => self.on_list(view).await,
            Some(response) = waiting.recv() => self.send(&response).await,
        }
    }

    async fn on_list(&mut self, view: Arc<ListView>) -> Result<(), TabGone> {
        let mut patch: Vec<TabPatch> = Vec::new();
        let changes = match &self.list {
            Some(before) => {
                let notices = view.notices_since(before, self.role);
                patch.extend(notices.into_iter().map(|PageNotice { tag, title, text, address }| {
                    TabPatch::Notice { tag, title, text, address }
                }));
                view.changes_since(before, self.role)
            }
            None => view.all(self.role),
        };
        let changes = changes.into_iter();
        patch.extend(changes.map(|(id, html)| TabPatch::Replace { id, html: html.to_string() }));
        self.list = Some(view);
        if patch.is_empty() { Ok(()) } else { self.send(&TabMessage::new(patch)).await }
    }

    async fn on_message(&mut self, message: Result<FeedMessage, RecvError>) -> Result<(), TabGone> {
        let Some(shown) = &mut self.shown else { return Ok(()) };
        match message {
            // The session ended; a tab that connects again learns why.
            Ok(message) if message.text.is_empty() => Err(TabGone),
            Ok(message) => {
                if message.audience == Audience::Drivers && self.role != ClientRole::Driver {
                    return Ok(());
                }
                shown.revision = message.revision;
                self.socket.send(&message.text).await
            }
            Err(RecvError::Lagged(_)) => {
                // The tab reads too slowly: it gets the difference in place of what it missed.
                let epoch = shown.feed.epoch.clone();
                let again = shown.feed.show(self.role, Some(&epoch), Some(shown.revision));
                shown.messages = again.messages;
                shown.revision = again.revision;
                self.send(&again.message).await
            }
            Err(RecvError::Closed) => Err(TabGone),
        }
    }

    async fn send(&mut self, message: &TabMessage) -> Result<(), TabGone> {
        self.socket.send(&message.encode()).await
    }

    async fn on_action(&mut self, action: Action) -> Result<(), TabGone> {
        if action.needs_driver() && self.role != ClientRole::Driver {
            let message = "This browser may only watch: `parlor open` signs in one that may act.".to_owned();
            return self.send(&TabPatch::Error(message).into()).await;
        }
        if let Action::Show { session, epoch, revision } = action {
            return self.show(session.as_deref(), epoch.as_deref(), revision).await;
        }
        let Ok(permit) = Arc::clone(&self.actions).try_acquire_owned() else {
            let message = "Too many actions of this tab are in progress.".to_owned();
            return self.send(&TabPatch::failed(action.page_key(), message).into()).await;
        };
        let performer = Performer {
            state: Arc::clone(&self.state),
            feed: self.shown.as_ref().map(|shown| Arc::clone(&shown.feed)),
            browser: self.socket.browser().clone(),
            responses: self.responses.clone(),
        };
        // What a person does is done also if the tab is closed meanwhile.
        tokio::spawn(async move {
            performer.perform(action).await;
            drop(permit);
        });
        Ok(())
    }

    async fn show(
        &mut self,
        session: Option<&str>,
        epoch: Option<&str>,
        revision: Option<u64>,
    ) -> Result<(), TabGone> {
        self.shown = None;
        let Some(session) = session.and_then(decoded) else { return Ok(()) };
        let id = SessionId::from(session.as_str());
        let feed = match Feeds::open(&self.state, &id, Some(self.socket.browser())).await {
            Ok(Some(feed)) => feed,
            Ok(None) => return self.send(&TabPatch::Go("/".to_owned()).into()).await,
            Err(error) => return self.send(&TabPatch::Error(reason(&error)).into()).await,
        };
        if self.role == ClientRole::Driver {
            // The agent may have to be started: the tab does not wait for that.
            let (feed, state, responses) =
                (Arc::clone(&feed), Arc::clone(&self.state), self.responses.clone());
            let browser = self.socket.browser().clone();
            tokio::spawn(async move {
                if let Err(error) = feed.driver(&state, &browser).await {
                    let _ = responses.send(TabPatch::Error(reason(&error)).into()).await;
                }
            });
        }
        let guard = feed.enter(self.socket.browser());
        let shown = feed.show(self.role, epoch, revision);
        let (message, revision) = (shown.message, shown.revision);
        self.shown = Some(ShownSession { messages: shown.messages, revision, feed, _guard: guard });
        self.send(&message).await
    }
}
