//! Turns the messages in a session's inbox into events for its machine.

use std::sync::Arc;

use parlor_engine::{AgentCall as Call, AgentEpoch, AgentEvent, ClientCall, Event, KnownAgent};
use parlor_session::session::ClientId;

use super::task::SessionTask;
use super::{AgentCall, AgentMessage, Forwarded, Message};
use crate::client::Client;
use crate::stored::Remembered;

/// How many bytes of updates are handled before what changed is stored and released.
const MAX_BATCH: usize = 1 << 20;

impl SessionTask {
    /// Waits for something to do, and adds all that is ready to `events`, as far as a batch goes.
    pub(super) async fn receive(&mut self, events: &mut Vec<Event>) -> bool {
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
    pub(super) async fn add_events(&mut self, message: Message, events: &mut Vec<Event>) {
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
                } else if let Event::Answered { question, by, .. } = &event {
                    self.requests.remove(&(*by, *question));
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
            self.hub.set_peer(self.machine.id(), &client.peer);
        }
        if let ClientCall::Fork(_) = call {
            self.forking.push(Arc::clone(client));
        }
        if self.clients.len() >= 2 * self.machine.subscribers().count() + 16 {
            self.clients.retain(|_, client| client.strong_count() > 0);
        }
        self.clients.insert(client.id, Arc::downgrade(client));
        client.add_session(self.machine.id());
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

    /// What a message of the agent means to the machine. Some of it is done here: answers of the server to requests of the
    /// agent, which need no decision.
    pub(super) fn agent_event(&mut self, epoch: AgentEpoch, message: AgentMessage) -> Option<AgentEvent> {
        let is_current = self.ties.contains_key(&epoch);
        Some(match message {
            AgentMessage::Lines(lines, _) => AgentEvent::Updates(lines),
            AgentMessage::Asks { id, method, params } => AgentEvent::Request { id, method, params },
            AgentMessage::FileAllowed { id, method, params, request } => {
                if is_current {
                    self.file_requests.insert(id.clone(), request);
                }
                AgentEvent::FileAllowed { id, method, params }
            }
            AgentMessage::Unasks(id) => AgentEvent::CancelRequest(id),
            AgentMessage::Notes(line) => AgentEvent::Notification(line),
            AgentMessage::Answered(call, reply) => {
                AgentEvent::Response(self.finish_call(call, is_current)?, reply)
            }
            AgentMessage::Failed(call, error) => AgentEvent::Response(call, Err(error)),
            AgentMessage::Gone(error) => AgentEvent::Gone(error),
            AgentMessage::Served(id, reply, share) => {
                self.served(epoch, &id, &reply, share);
                return None;
            }
        })
    }

    /// The agent answered a call. A prompt that an older incarnation was sent may be open at the current one.
    fn finish_call(&mut self, call: AgentCall, is_current: bool) -> Option<Call> {
        match call {
            AgentCall::Restore => None,
            AgentCall::SetTitle => Some(Call::SetTitle),
            AgentCall::Prompt(prompt) => {
                if is_current {
                    self.sent_prompts.remove(&prompt);
                }
                Some(Call::Prompt(prompt))
            }
            AgentCall::Forwarded(Forwarded { call, .. }) => {
                if is_current {
                    self.sent_calls.remove(&(call.client, call.id.clone()));
                }
                Some(Call::Forwarded(call))
            }
        }
    }
}
