//! The task of a session: receives what is ready, has the machine handle it, stores the batch, releases the output.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parlor_engine::{AgentEpoch, Event, Now, SessionEnd, SessionMachine};
use parlor_session::session::{ClientId, PromptId, QuestionId};
use parlor_session::{MessageId, Transcript, UnixMillis};
use parlor_wire::RequestId;
use tokio::sync::{mpsc, oneshot};

use super::{Inbox, Message, now};
use crate::agent::Tie;
use crate::client::Client;
use crate::hub::Shared;
use crate::resident::Share;
use crate::services::budget::FileRequest;
use crate::services::terminals::Terminals;

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
    pub(super) requests: HashMap<(ClientId, QuestionId), RequestId>,
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
            match self.hub.store().write_inline(std::mem::take(&mut output.batch)).await {
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

    /// The time, for the events that are handled next.
    fn read_clocks(&self) -> Now {
        Now { monotonic: self.started.elapsed(), wall: UnixMillis(now()) }
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
        self.clients.values().filter_map(Weak::upgrade).for_each(|client| client.remove_session(&id));
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
