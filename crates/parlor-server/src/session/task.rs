//! The loop of a session's task: receives events, has the machine handle them, stores the batch, and releases the output.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parlor_engine::{AgentEpoch, AgentSessionEnd, ClientRequestId, Event, Now, SessionEnd, SessionMachine};
use parlor_session::session::{ClientId, PromptId};
use parlor_session::{MessageId, Transcript, UnixMillis};
use parlor_wire::RequestId;
use tokio::sync::{mpsc, oneshot};

use super::{Mailbox, SessionMessage, now};
use crate::agent::AgentSessionGuard;
use crate::client::Client;
use crate::hub::HubState;
use crate::memory::SessionMemory;
use crate::services::budget::FileRequest;
use crate::services::terminals::Terminals;

/// A session's machine, with the handles to clients and agents that its output needs.
pub(super) struct SessionTask {
    pub(super) hub: Arc<HubState>,
    pub(super) machine: SessionMachine,
    pub(super) mailbox: mpsc::Receiver<SessionMessage>,
    pub(super) me: Mailbox,
    /// Messages that are handled before those in the mailbox.
    pub(super) pending: VecDeque<SessionMessage>,
    /// The start of the machine's monotonic time.
    pub(super) started: Instant,
    /// The connections of the clients that called the session.
    pub(super) clients: HashMap<ClientId, Weak<Client>>,
    /// The clients whose forks wait for the agent: the forks are created even if the client disconnects.
    pub(super) forking: Vec<Arc<Client>>,
    /// The ids under which clients were sent requests.
    pub(super) requests: HashMap<(ClientId, ClientRequestId), RequestId>,
    /// The agent sessions in use, with that of the current epoch.
    pub(super) agent_sessions: HashMap<AgentEpoch, AgentSessionGuard>,
    /// The request ids of the prompts and forwarded calls that the agent was sent.
    pub(super) sent_prompts: HashMap<PromptId, RequestId>,
    pub(super) sent_calls: HashMap<(ClientId, RequestId), RequestId>,
    pub(super) terminals: Option<Terminals>,
    /// File requests that a client serves, by the agent's ids: they count against the budget until they are answered.
    pub(super) file_requests: HashMap<RequestId, FileRequest>,
    /// Callers that wait until relayed frames are sent.
    pub(super) relays: HashMap<u64, oneshot::Sender<Vec<ClientId>>>,
    pub(super) next_relay: u64,
    /// Callers that wait for the transcript, until it contains a message.
    pub(super) readers: Vec<(Option<MessageId>, oneshot::Sender<Transcript>)>,
    /// Callers that wait until the session has stopped.
    pub(super) stopping: Vec<oneshot::Sender<()>>,
    pub(super) memory: SessionMemory,
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
            if matches!(self.machine.end(), Some(SessionEnd::Deleted)) && !self.machine.is_owned() {
                self.end_subagents().await;
            }
            match self.hub.store().write_inline(std::mem::take(&mut output.batch)).await {
                Ok(()) => self.machine.on_stored(output.seq),
                Err(error) => output = self.machine.on_store_failed(output, &error.to_string()),
            }
            let subagents = std::mem::take(&mut output.subagents).into_iter();
            let (clients, others): (Vec<_>, _) = subagents.partition(|one| one.command.is_of_client());
            let relayed = std::mem::take(&mut output.relayed);
            // A subagent knows what the owner says of it before clients do, and they are attached to it when they know of it.
            self.run_subagents(others).await;
            self.release(output);
            self.run_subagents(clients).await;
            // The agent's reader continues.
            self.answer_relays(relayed);
            if self.machine.end().is_some() && !self.is_called_again() {
                return self.finish().await;
            }
            if !self.receive(&mut events).await {
                return;
            }
        }
    }

    /// The time at which the next events are handled.
    fn read_clocks(&self) -> Now {
        Now { monotonic: self.started.elapsed(), wall: UnixMillis(now()) }
    }

    /// Unregisters an idle session, unless it has received messages meanwhile.
    fn is_called_again(&mut self) -> bool {
        if !matches!(self.machine.end(), Some(SessionEnd::Unused)) {
            return false;
        }
        let id = self.machine.id().clone();
        let is_called = self.machine.has_pending()
            || !self.pending.is_empty()
            || !self.hub.unregister_if_idle(&id, &mut self.mailbox);
        if is_called {
            self.machine.stay();
        }
        is_called
    }

    /// Ends the session: rejects or resends its last messages, and releases its agent session.
    async fn finish(mut self) {
        let id = self.machine.id().clone();
        let end = self.machine.end().cloned();
        self.hub.subagents().end_delete(&id);
        let mut rest = Vec::new();
        // Before another task can open the session: that one may know the same clients.
        self.clients.values().filter_map(Weak::upgrade).for_each(|client| client.remove_session(&id));
        match end {
            Some(SessionEnd::Unused) => {
                let mut late = Vec::new();
                while let Some(message) = self.mailbox.recv().await {
                    late.push(message);
                }
                self.hub.resend(&id, late);
            }
            Some(SessionEnd::Deleted | SessionEnd::Failed(_)) | None => {
                self.hub.unregister(&id);
                self.mailbox.close();
                while let Some(message) = self.pending.pop_front() {
                    self.add_events(message, &mut rest).await;
                }
                while let Some(message) = self.mailbox.recv().await {
                    self.add_events(message, &mut rest).await;
                }
            }
            Some(SessionEnd::Stopped) => {}
        }
        let mut output = self.machine.finish(rest);
        let relayed = std::mem::take(&mut output.relayed);
        self.release(output);
        self.answer_relays(relayed);
        if !matches!(end, Some(SessionEnd::Stopped)) {
            self.unbind_subagents().await;
        }
        if matches!(end, Some(SessionEnd::Deleted)) && !self.machine.is_owned() {
            self.hub.losses().remove(&id);
        }
        let guard = self.machine.agent().and_then(|link| self.agent_sessions.remove(&link.epoch));
        match (self.machine.agent_session_end(), guard) {
            (AgentSessionEnd::Discard, Some(guard)) => guard.discard(),
            (AgentSessionEnd::Discard, None) if self.machine.agent().is_none() => self.delete_at_agent(),
            (AgentSessionEnd::Release, Some(guard)) => guard.release(&self.hub, &id),
            // Dropping the guard unbinds the session.
            (AgentSessionEnd::Keep | AgentSessionEnd::Unbind, guard) => drop(guard),
            (AgentSessionEnd::Release | AgentSessionEnd::Discard, None) => {}
        }
        for done in self.stopping {
            let _ = done.send(());
        }
    }
}
