//! The task of a session: receives what is ready, has the machine handle it, stores the batch, releases the output.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parlor_engine::rows::Batch;
use parlor_engine::{AgentEpoch, ClientCall, Event, KnownAgent, Now, SessionEnd, SessionMachine};
use parlor_session::session::{ClientId, PeerRequestId, PromptId};
use parlor_session::{EntryId, MessageId, Role, Transcript, UnixMillis};
use parlor_store::{ErrorKind, Store, StoreError};
use parlor_wire::RequestId;
use tokio::sync::{mpsc, oneshot};

use super::{Inbox, Message, now};
use crate::agent::Tie;
use crate::client::Client;
use crate::hub::Shared;
use crate::resident::Share;
use crate::services::budget::FileRequest;
use crate::services::terminals::Terminals;
use crate::stored::Remembered;

/// How many bytes of updates are handled before what changed is stored and released.
const MAX_BATCH: usize = 1 << 20;

/// A session's machine with what it needs of the server.
pub(super) struct SessionTask {
    pub(super) hub: Arc<Shared>,
    pub(super) machine: SessionMachine,
    pub(super) inbox: mpsc::Receiver<Message>,
    pub(super) me: Inbox,
    /// Messages that come before those in the inbox.
    pub(super) pending: VecDeque<Message>,
    /// When the task began, from which it counts time.
    pub(super) started: Instant,
    /// The connections of the clients that called the session.
    pub(super) clients: HashMap<ClientId, Weak<Client>>,
    /// The clients whose forks wait for the agent: these are made also if the client disconnects.
    pub(super) forking: Vec<Arc<Client>>,
    /// The ids under which clients were sent requests.
    pub(super) requests: HashMap<(ClientId, PeerRequestId), RequestId>,
    /// The agent sessions that the session has, or had until what it wants of them is done.
    pub(super) ties: HashMap<AgentEpoch, Tie>,
    /// The ids under which the agent was sent prompts, and calls of clients.
    pub(super) sent_prompts: HashMap<PromptId, RequestId>,
    pub(super) sent_calls: HashMap<(ClientId, RequestId), RequestId>,
    pub(super) terminals: Option<Terminals>,
    /// Requests for files that wait at a client, by the agent's ids: they count until they are answered.
    pub(super) file_requests: HashMap<RequestId, FileRequest>,
    /// Callers that wait until relayed frames are sent.
    pub(super) relays: HashMap<u64, oneshot::Sender<Vec<ClientId>>>,
    pub(super) next_relay: u64,
    /// Callers that want the conversation, once a message is in it.
    pub(super) readers: Vec<(Option<MessageId>, oneshot::Sender<Transcript>)>,
    /// Callers that wait until the session has stopped.
    pub(super) stopping: Vec<oneshot::Sender<()>>,
    /// What the session takes in memory.
    pub(super) share: Share,
}

impl SessionTask {
    /// Runs until the session is not live any more. `first` is handled before any message.
    pub(super) async fn run(mut self, first: Vec<Event>) {
        let mut events = first;
        loop {
            let (clients, now) = (&self.clients, self.read_clocks());
            let has_room = |client| match clients.get(&client).and_then(Weak::upgrade) {
                Some(client) => client.queue.has_room(),
                None => true,
            };
            let mut output = self.machine.handle(events.drain(..), now, &has_room);
            match store(self.hub.store(), std::mem::take(&mut output.batch)).await {
                Ok(()) => self.machine.on_stored(output.seq),
                Err(error) => output = self.machine.on_store_failed(output, &error.to_string()),
            }
            self.release(output);
            if self.machine.end().is_some() && !self.is_called_again() {
                return self.leave().await;
            }
            if !self.receive(&mut events).await {
                return;
            }
        }
    }

    /// Waits for something to do, and adds all that is ready to `events`, as far as a batch goes.
    async fn receive(&mut self, events: &mut Vec<Event>) -> bool {
        let first = match self.pending.pop_front() {
            Some(message) => Some(message),
            None if self.machine.has_pending() => self.inbox.try_recv().ok(),
            None => match self.inbox.recv().await {
                Some(message) => Some(message),
                None => return false,
            },
        };
        let mut next = first;
        let mut bytes = 0;
        while let Some(message) = next {
            bytes += message.weight();
            self.add_events(message, events).await;
            if bytes >= MAX_BATCH {
                break;
            }
            next = self.pending.pop_front().or_else(|| self.inbox.try_recv().ok());
        }
        true
    }

    /// Adds what a message means to the machine.
    async fn add_events(&mut self, message: Message, events: &mut Vec<Event>) {
        match message {
            Message::Call(client, mut call) => {
                if let ClientCall::Fork(request) = &mut call {
                    request.known_agent = self.known_agent();
                }
                self.register_client(&client, &call);
                let is_connected = !client.queue.is_closed();
                events.push(Event::Client { client: client.info(), is_connected, call });
            }
            Message::Event(event) => {
                if let Event::Disconnected(client) = &event {
                    self.forget_client(*client);
                } else if let Event::Answered { peer_request, by, .. } = &event {
                    self.requests.remove(&(*by, *peer_request));
                }
                events.push(event);
            }
            Message::Agent(epoch, message) => {
                let event = self.agent_event(epoch, message);
                events.extend(event.map(|event| Event::Agent(epoch, event)));
            }
            Message::AgentReady(restored) => self.on_agent_ready(*restored, events).await,
            Message::Relay { frame, clients, sent } => {
                let id = self.next_relay;
                self.next_relay += 1;
                self.relays.insert(id, sent);
                events.push(Event::Relay { id, frame, clients });
            }
            Message::Read { message, reply } => self.readers.push((message, reply)),
            Message::Tick => {
                let (idle, idle_unrestorable) = (self.hub.idle(true), self.hub.idle(false));
                events.push(Event::Tick { idle, idle_unrestorable });
            }
            Message::Stop(done) => {
                self.stopping.push(done);
                events.push(Event::Stop);
            }
        }
    }

    /// Remembers the connection of a client that calls the session.
    fn register_client(&mut self, client: &Arc<Client>, call: &ClientCall) {
        let works = matches!(call, ClientCall::Follow | ClientCall::Prompt { .. } | ClientCall::Say { .. });
        // The agent works for this client from now on, in its environment.
        if works || matches!(call, ClientCall::Attach { .. }) && client.drives() {
            self.hub.note_peer(self.machine.id(), &client.peer);
        }
        if let ClientCall::Fork(_) = call {
            self.forking.push(Arc::clone(client));
        }
        if self.clients.len() >= 2 * self.machine.subscribers().count() + 16 {
            self.clients.retain(|_, client| client.strong_count() > 0);
        }
        self.clients.insert(client.id, Arc::downgrade(client));
    }

    /// What is known of the agent while it does not run.
    fn known_agent(&self) -> Option<KnownAgent> {
        let config = self.hub.config_of(self.machine.row())?;
        let Remembered { dialect, info } = self.hub.registry().remembered(&config)?;
        Some(KnownAgent { dialect, initialize: info })
    }

    fn forget_client(&mut self, client: ClientId) {
        self.clients.remove(&client);
        self.requests.retain(|(by, _), _| *by != client);
    }

    /// The time, for the events that are handled next.
    fn read_clocks(&self) -> Now {
        Now { monotonic: self.started.elapsed(), wall: UnixMillis(now()) }
    }

    /// Sends the conversation to callers that wait for it.
    pub(super) fn answer_readers(&mut self) {
        if self.readers.is_empty() {
            return;
        }
        let transcript = self.machine.transcript();
        let is_there = |message: &Option<MessageId>| {
            message
                .as_ref()
                .is_none_or(|id| transcript.get(&EntryId::Message(Role::User, id.clone())).is_some())
        };
        for (_, reply) in self.readers.extract_if(.., |(message, _)| is_there(message)) {
            let _ = reply.send(transcript.clone());
        }
        self.readers.retain(|(_, reply)| !reply.is_closed());
    }

    /// Unregisters a session that nobody uses, unless it was called meanwhile: then it stays.
    fn is_called_again(&mut self) -> bool {
        if !matches!(self.machine.end(), Some(SessionEnd::Unused)) {
            return false;
        }
        let id = self.machine.id().clone();
        let is_called =
            self.machine.has_pending() || !self.pending.is_empty() || !self.hub.forget(&id, &mut self.inbox);
        if is_called {
            self.machine.stay();
        }
        is_called
    }

    /// The session is not live any more. What it has is stored; its agent may forget it.
    async fn leave(mut self) {
        let id = self.machine.id().clone();
        let end = self.machine.end().cloned();
        let mut rest = Vec::new();
        match end {
            Some(SessionEnd::Unused) => {
                let mut late = Vec::new();
                while let Some(message) = self.inbox.recv().await {
                    late.push(message);
                }
                self.hub.send_again(&id, late);
            }
            Some(SessionEnd::Deleted | SessionEnd::Failed(_)) | None => {
                self.hub.forget_now(&id);
                self.inbox.close();
                while let Some(message) = self.pending.pop_front() {
                    self.add_events(message, &mut rest).await;
                }
                while let Some(message) = self.inbox.recv().await {
                    self.add_events(message, &mut rest).await;
                }
            }
            Some(SessionEnd::Stopped) => {}
        }
        let output = self.machine.finish(rest);
        self.release(output);
        if matches!(end, Some(SessionEnd::Deleted)) {
            self.hub.losses().forget(&id);
            if self.machine.agent().is_none() {
                self.delete_at_agent();
            }
        }
        let tie = self.machine.agent().and_then(|link| self.ties.remove(&link.epoch));
        match (tie, end) {
            // Agents end with the server.
            (None, _) | (Some(_), Some(SessionEnd::Stopped)) => {}
            (Some(tie), Some(SessionEnd::Deleted)) => tie.discard(),
            (Some(tie), _) => tie.release(&self.hub, &id),
        }
        for done in self.stopping {
            let _ = done.send(());
        }
    }
}

/// Stores a batch and waits until it is stored.
async fn store(store: &dyn Store, batch: Batch) -> Result<(), StoreError> {
    if batch.writes.is_empty() {
        return Ok(());
    }
    let (sender, done) = oneshot::channel();
    store.write(batch, Box::new(move |result| drop(sender.send(result))));
    let closed = || StoreError { kind: ErrorKind::Closed, message: "the store is gone".to_owned() };
    done.await.unwrap_or_else(|_| Err(closed()))
}
