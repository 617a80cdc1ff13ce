//! The live sessions of a server: opens them, routes messages to them, and unregisters them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use parlor_engine::{ClientCall, Event, no_session};
use parlor_session::SessionId;
use parlor_wire::{RpcError, code};
use tokio::sync::{OnceCell, mpsc};

use super::{HubState, LiveSessions, MAX_ATTACH_ON_OPEN};
use crate::agent::BoundAgent;
use crate::client::Client;
use crate::lock;
use crate::session::{self, Mailbox, SessionMessage};
use crate::stored::StoredSession;

impl HubState {
    /// The mailbox of a session, which is opened from the store if it is not live.
    async fn mailbox(self: &Arc<Self>, id: &SessionId) -> Result<Mailbox, RpcError> {
        self.open_or_else(id, async || Err(no_session(id))).await
    }

    /// The mailbox of a session, which is opened from the store or, if it is not stored, with `otherwise`. Other callers that
    /// want the same session wait meanwhile.
    pub(crate) async fn open_or_else(
        self: &Arc<Self>,
        id: &SessionId,
        otherwise: impl AsyncFnOnce() -> Result<Mailbox, RpcError>,
    ) -> Result<Mailbox, RpcError> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(RpcError::new(code::INTERNAL_ERROR, "the server is stopping"));
        }
        let cell = self.cell(id);
        let opened = cell.get_or_try_init(async || {
            // Boxed because it is rare: otherwise the future of each connection would have its size.
            let Some(opened) = Box::pin(self.open(id)).await? else { return otherwise().await };
            let mailbox = session::start(Arc::clone(self), opened, None, None);
            if let Some(client) = lock(&self.attach_on_open).remove(id).and_then(|client| client.upgrade()) {
                // The mailbox of a session that was just started is empty.
                let _ = mailbox.try_send(SessionMessage::Call(client, ClientCall::Follow));
            }
            Ok(mailbox)
        });
        match opened.await {
            Ok(mailbox) => Ok(mailbox.clone()),
            Err(error) => {
                self.unregister_unopened(id, &cell);
                Err(error)
            }
        }
    }

    /// Attaches a client to a stored session as soon as the session is opened.
    pub(crate) fn attach_on_open(&self, id: &SessionId, client: &Arc<Client>) {
        let mut waiting = lock(&self.attach_on_open);
        if waiting.len() >= MAX_ATTACH_ON_OPEN {
            waiting.retain(|_, client| client.strong_count() > 0);
        }
        if waiting.len() < MAX_ATTACH_ON_OPEN {
            waiting.insert(id.clone(), Arc::downgrade(client));
        }
    }

    /// Sends a message to a session, which is opened if it is not live.
    pub(crate) async fn send(
        self: &Arc<Self>,
        id: &SessionId,
        message: SessionMessage,
    ) -> Result<(), RpcError> {
        let mut message = message;
        loop {
            let mailbox = self.mailbox(id).await?;
            match mailbox.send(message).await {
                Ok(()) => return Ok(()),
                // The session ended meanwhile: open it again.
                Err(mpsc::error::SendError(unsent)) => {
                    self.unregister_mailbox(id, &mailbox);
                    message = unsent;
                }
            }
        }
    }

    /// Sends a message to a session if it is live.
    pub(crate) async fn send_live(&self, id: &SessionId, message: SessionMessage) {
        let mailbox = lock(&self.sessions).get(id).and_then(|cell| cell.get().cloned());
        if let Some(mailbox) = mailbox {
            let _ = mailbox.send(message).await;
        }
    }

    /// Sends a message that ends a session if it is live, and waits for the end.
    pub(crate) async fn end_live(&self, id: &SessionId, message: SessionMessage) {
        let Some(cell) = lock(&self.sessions).get(id).cloned() else { return };
        // A session that is being opened is waited for.
        match cell.get_or_try_init(async || Err(())).await {
            Ok(mailbox) => {
                if mailbox.send(message).await.is_ok() {
                    mailbox.closed().await;
                }
            }
            Err(()) => self.unregister_unopened(id, &cell),
        }
    }

    /// Sends the messages that a session received while it was evicted to the session again, which opens it.
    pub(crate) fn resend(self: &Arc<Self>, id: &SessionId, messages: Vec<SessionMessage>) {
        let matters = |message: &SessionMessage| {
            !matches!(message, SessionMessage::Tick | SessionMessage::Event(Event::Disconnected(_)))
        };
        let messages: Vec<_> = messages.into_iter().filter(matters).collect();
        if messages.is_empty() {
            return;
        }
        let (hub, id) = (Arc::clone(self), id.clone());
        tokio::spawn(async move {
            for message in messages {
                let request = message.to_rejectable();
                if let Err(error) = hub.send(&id, message).await {
                    tracing::warn!(session = %id, "dropping a message to an evicted session: {}", error.message());
                    if let Some(request) = request {
                        request.reject(&error);
                    }
                }
            }
        });
    }

    /// Starts a session that its agent has just created.
    pub(crate) fn start_session(self: &Arc<Self>, opened: StoredSession, id: &SessionId, bound: BoundAgent) {
        // Registered before its task runs: a task that ends at once unregisters this cell.
        let _ = self.cell(id).set(session::start(Arc::clone(self), opened, Some(bound), None));
    }

    /// Starts a stored fork with the agent session that its agent forked. Returns the agent session if another caller has
    /// opened the fork already, and with the error if the fork could not be opened.
    pub(crate) async fn start_bound(
        self: &Arc<Self>,
        id: &SessionId,
        bound: BoundAgent,
    ) -> Result<Option<BoundAgent>, (RpcError, Option<BoundAgent>)> {
        let cell = self.cell(id);
        let mut bound = Some(bound);
        let started = cell.get_or_try_init(async || {
            let opened = self.open(id).await?.ok_or_else(|| no_session(id))?;
            Ok(session::start(Arc::clone(self), opened, bound.take(), None))
        });
        match started.await {
            Ok(_) => Ok(bound),
            Err(error) => {
                self.unregister_unopened(id, &cell);
                Err((error, bound))
            }
        }
    }

    /// The registration of a session, which is empty until the session is open.
    fn cell(&self, id: &SessionId) -> Arc<OnceCell<Mailbox>> {
        Arc::clone(lock(&self.sessions).entry(id.clone()).or_default())
    }

    /// Unregisters a session that could not be opened, unless another caller is opening it.
    fn unregister_unopened(&self, id: &SessionId, cell: &Arc<OnceCell<Mailbox>>) {
        let mut sessions = lock(&self.sessions);
        let is_ours = |other: &Arc<_>| Arc::ptr_eq(other, cell) && Arc::strong_count(cell) == 2;
        if !cell.initialized() && sessions.get(id).is_some_and(is_ours) {
            sessions.remove(id);
        }
    }

    /// Closes the mailbox of an idle session and unregisters the session, unless the mailbox has messages.
    pub(crate) fn unregister_if_idle(
        &self,
        id: &SessionId,
        mailbox: &mut mpsc::Receiver<SessionMessage>,
    ) -> bool {
        let sessions = lock(&self.sessions);
        if !mailbox.is_empty() {
            return false;
        }
        mailbox.close();
        self.remove(id, sessions);
        true
    }

    /// Unregisters a session that has ended.
    pub(crate) fn unregister(&self, id: &SessionId) {
        self.remove(id, lock(&self.sessions));
    }

    fn remove(&self, id: &SessionId, mut sessions: MutexGuard<'_, LiveSessions>) {
        sessions.remove(id);
        // Before another task can open and register it again.
        self.subagents().remove(id);
        drop(sessions);
        lock(&self.requesting_clients).remove(id);
        self.feed().set_requests(id, Vec::new());
        self.memory.on_evicted();
    }

    /// Unregisters a session whose mailbox is closed although its task did not unregister it: the task panicked, or the server
    /// stops.
    fn unregister_mailbox(&self, id: &SessionId, mailbox: &Mailbox) {
        let sessions = lock(&self.sessions);
        let is_same =
            |cell: &Arc<OnceCell<Mailbox>>| cell.get().is_some_and(|other| other.same_channel(mailbox));
        if sessions.get(id).is_some_and(is_same) {
            self.remove(id, sessions);
            self.subagents().end_delete(id);
        }
    }

    /// Notifies the live sessions that a client has called of its disconnect. The client's queue must be closed: a session
    /// that handles a call of the client later sees that.
    pub(crate) async fn disconnect(&self, client: &Client) {
        for session in client.take_sessions() {
            let mailbox = lock(&self.sessions).get(&session).and_then(|cell| cell.get().cloned());
            if let Some(mailbox) = mailbox {
                let _ = mailbox.send(SessionMessage::Event(Event::Disconnected(client.id))).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parlor_dialect::Dialect;
    use parlor_session::session::ClientId;
    use parlor_store::{ErrorKind, FaultyStore, MemoryStore, Store};

    use super::*;
    use crate::agent::Agent;
    use crate::hub::{ClientRole, ConnectOptions, Hub, TransportKind};
    use crate::send_queue::send_queue;
    use crate::stored::session_for_tests;

    fn client(id: u64) -> Client {
        let options = ConnectOptions::new(TransportKind::Stdio, ClientRole::Driver);
        Client::new(ClientId(id), Arc::new(options), send_queue().0)
    }

    #[tokio::test]
    async fn a_disconnect_is_sent_only_to_the_sessions_that_the_client_called() {
        let hub = Hub::for_tests(Arc::new(MemoryStore::default())).await;
        let [mut called, mut other] = ["called", "other"].map(|id| {
            let (mailbox, messages) = mpsc::channel(8);
            let cell = Arc::new(OnceCell::new_with(Some(mailbox)));
            lock(&hub.shared.sessions).insert(id.into(), cell);
            messages
        });
        let client = client(7);
        client.add_session(&"called".into());
        client.add_session(&"evicted".into());
        hub.shared.disconnect(&client).await;
        let message = called.try_recv();
        assert!(
            matches!(message, Ok(SessionMessage::Event(Event::Disconnected(ClientId(7))))),
            "the session that the client called got {message:?}"
        );
        assert!(called.is_empty() && other.try_recv().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn idle_sessions_are_looked_for_as_soon_as_memory_is_short() {
        let hub = Hub::for_tests(Arc::new(MemoryStore::default())).await;
        let (mailbox, mut messages) = mpsc::channel(8);
        lock(&hub.shared.sessions).insert("s".into(), Arc::new(OnceCell::new_with(Some(mailbox))));
        let start = tokio::time::Instant::now();
        let mut memory = hub.shared.memory().track_session();
        memory.set(1 << 30);
        assert!(matches!(messages.recv().await, Some(SessionMessage::Tick)));
        assert!(start.elapsed() < Duration::from_millis(10), "after {:?}", start.elapsed());
    }

    #[tokio::test]
    async fn a_session_whose_task_panicked_leaves_nothing_behind() {
        let hub = Hub::for_tests(Arc::new(MemoryStore::default())).await;
        let id = SessionId::from("s");
        let (mailbox, _) = mpsc::channel(1);
        lock(&hub.shared.sessions).insert(id.clone(), Arc::new(OnceCell::new_with(Some(mailbox))));
        hub.shared.subagents().register(&id, vec!["owner".into()]);
        hub.shared.subagents().set_busy(&id, true);
        hub.shared.subagents().begin_delete(&id);
        assert!(hub.shared.send(&id, SessionMessage::Tick).await.is_err(), "it is not stored");
        assert_eq!(hub.shared.live_sessions(), 0);
        assert!(!hub.shared.subagents().has_busy(&"owner".into()));
        assert!(hub.shared.subagents().register(&"below".into(), vec![id]), "its subagents can be opened");
    }

    #[tokio::test]
    async fn a_session_knows_its_clients_and_they_know_it_until_it_ends() {
        let hub = Hub::for_tests(Arc::new(MemoryStore::default())).await;
        let (agent, _stream) = Agent::for_tests(Dialect::V2);
        let id = SessionId::from("s");
        hub.shared.start_session(session_for_tests("s"), &id, BoundAgent::for_tests(&agent, "theirs"));
        let client = Arc::new(client(7));
        let call = SessionMessage::Call(Arc::clone(&client), ClientCall::Follow);
        hub.shared.send(&id, call).await.unwrap();
        hub.transcript(&id, None).await.unwrap();
        assert!(client.take_sessions().contains(&id));
        client.add_session(&id);
        hub.stop().await;
        assert!(client.take_sessions().is_empty());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_session_that_fails_at_once_leaves_no_mailbox_behind() {
        let store = Arc::new(FaultyStore::new(MemoryStore::default()));
        let hub = Hub::for_tests(Arc::clone(&store) as Arc<dyn Store>).await;
        let (agent, _stream) = Agent::for_tests(Dialect::V2);
        store.fail_next(usize::MAX, ErrorKind::Io);
        for n in 0..500 {
            let id = format!("s{n}");
            let bound = BoundAgent::for_tests(&agent, &id);
            hub.shared.start_session(session_for_tests(&id), &id.as_str().into(), bound);
            let unregistered = async {
                while hub.shared.live_sessions() > 0 {
                    tokio::task::yield_now().await;
                }
            };
            let limit = Duration::from_secs(10);
            assert!(tokio::time::timeout(limit, unregistered).await.is_ok(), "{id} is still registered");
        }
    }
}
