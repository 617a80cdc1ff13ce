//! Turns the messages in a session's mailbox into events for its machine.

use std::sync::Arc;

use parlor_engine::{AgentCall, AgentEpoch, AgentEvent, CachedAgentInfo, ClientCall, Event};
use parlor_session::session::ClientId;

use super::task::SessionTask;
use super::{AgentMessage, Forwarded, SessionCall, SessionMessage};
use crate::client::Client;

/// How many bytes of updates are handled in one batch.
const MAX_BATCH: usize = 1 << 20;

impl SessionTask {
    /// Waits for a message, and adds the events of all messages that are ready to `events`, up to the size of a batch.
    pub(super) async fn receive(&mut self, events: &mut Vec<Event>) -> bool {
        let first = match self.pending.pop_front() {
            Some(message) => Some(message),
            None if self.machine.has_pending() => self.mailbox.try_recv().ok(),
            None => match self.mailbox.recv().await {
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
            next = self.pending.pop_front().or_else(|| self.mailbox.try_recv().ok());
        }
        true
    }

    /// Adds the events that a message stands for.
    pub(super) async fn add_events(&mut self, message: SessionMessage, events: &mut Vec<Event>) {
        match message {
            SessionMessage::Call(client, mut call) => {
                if let ClientCall::Fork(request) = &mut call {
                    request.known_agent = self.known_agent();
                }
                self.register_client(&client, &call);
                let is_connected = !client.queue.is_closed();
                events.push(Event::Client { client: client.info(), is_connected, call });
            }
            SessionMessage::Event(event) => {
                if let Event::Disconnected(client) = &event {
                    self.remove_client(*client);
                } else if let Event::Answered { request, by, .. } = &event {
                    self.requests.remove(&(*by, *request));
                }
                events.push(event);
            }
            SessionMessage::Agent(epoch, message) => {
                let event = self.agent_event(epoch, message);
                events.extend(event.map(|event| Event::Agent(epoch, event)));
            }
            SessionMessage::AgentReady(restored) => self.on_agent_ready(*restored, events).await,
            SessionMessage::SendToAttached { frame, clients, sent } => {
                let id = self.next_relay;
                self.next_relay += 1;
                self.relays.insert(id, sent);
                events.push(Event::Relay { id, frame, clients });
            }
            SessionMessage::Read { message, reply } => self.readers.push((message, reply)),
            // The agent would end its subagents with the session.
            SessionMessage::Tick if self.hub.subagents().has_busy(self.machine.id()) => {}
            SessionMessage::Tick => {
                let (idle, idle_unrestorable) = (self.hub.idle_timeout(true), self.hub.idle_timeout(false));
                events.push(Event::Tick { idle, idle_unrestorable });
            }
            SessionMessage::Stop(done) => {
                self.stopping.push(done);
                events.push(Event::Stop);
            }
        }
    }

    /// Registers a client that calls the session. The client's queue must be checked afterwards: a client closes it before it
    /// reads which sessions to notify.
    fn register_client(&mut self, client: &Arc<Client>, call: &ClientCall) {
        if call.is_act(client.is_driver()) {
            self.hub.set_requesting_client(self.machine.id(), client);
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

    /// The cached information of the agent, which need not be running.
    fn known_agent(&self) -> Option<CachedAgentInfo> {
        let config = self.hub.config_of(self.machine.row())?;
        self.hub.agent_pool().cached_agent_info(&config)
    }

    fn remove_client(&mut self, client: ClientId) {
        self.clients.remove(&client);
        self.requests.retain(|(by, _), _| *by != client);
    }

    /// The event that a message of the agent stands for. Outcomes of file and terminal requests are sent to the agent and are
    /// no event.
    pub(super) fn agent_event(&mut self, epoch: AgentEpoch, message: AgentMessage) -> Option<AgentEvent> {
        let is_current = self.agent_sessions.contains_key(&epoch);
        Some(match message {
            AgentMessage::Updates(lines, _) => AgentEvent::Updates(lines),
            AgentMessage::Request { id, method, params } => AgentEvent::Request { id, method, params },
            AgentMessage::FileAllowed { id, method, params, request } => {
                if is_current {
                    self.file_requests.insert(id.clone(), request);
                }
                AgentEvent::FileAllowed { id, method, params }
            }
            AgentMessage::RequestCancelled(id) => AgentEvent::CancelRequest(id),
            AgentMessage::Notification(line) => AgentEvent::Notification(line),
            AgentMessage::Response(call, reply) => {
                AgentEvent::Response(self.finish_call(call, is_current)?, reply)
            }
            AgentMessage::CallFailed(call, error) => AgentEvent::Response(call, Err(error)),
            AgentMessage::Gone(error) => AgentEvent::Gone(error),
            AgentMessage::Served(id, reply, permit) => {
                self.send_served(epoch, &id, &reply, permit);
                return None;
            }
        })
    }

    /// Removes a call that has a response. A prompt of an older epoch may be in flight again in the current one.
    fn finish_call(&mut self, call: SessionCall, is_current: bool) -> Option<AgentCall> {
        match call {
            SessionCall::Restore => None,
            SessionCall::SetTitle => Some(AgentCall::SetTitle),
            SessionCall::Prompt(prompt) | SessionCall::Steer(prompt) => {
                if is_current {
                    self.sent_prompts.remove(&prompt);
                }
                let is_steer = matches!(call, SessionCall::Steer(_));
                Some(if is_steer { AgentCall::Steer(prompt) } else { AgentCall::Prompt(prompt) })
            }
            SessionCall::Forwarded(Forwarded { call, .. }) => {
                if is_current {
                    self.sent_calls.remove(&(call.client, call.id.clone()));
                }
                Some(AgentCall::Forwarded(call))
            }
        }
    }
}
