//! Releases the output of a session whose batch is stored: frames to clients, commands to agents, timers.

use std::iter;
use std::sync::{Arc, Weak};

use parlor_engine::{AgentCall, AgentCommand, AgentEpoch, Event, Frame, Outgoing, Output, Timer};
use parlor_json::Object;
use parlor_session::session::{Answer, ClientId};
use parlor_session::{EntryId, MessageId, Role};

use super::task::SessionTask;
use super::{AgentMessage, Forwarded, Route, SessionCall, SessionMessage};
use crate::agent::{Agent, AgentSessionGuard};
use crate::client::{Client, SessionRequestToClient};

impl SessionTask {
    /// Releases an output in order.
    pub(super) fn release(&mut self, output: Output) {
        for (session, losses) in output.losses {
            self.hub.losses().count(&session, losses);
        }
        self.memory.set(self.machine.transcript().memory());
        self.report_busy();
        if let Some(open) = output.open_requests {
            self.hub.feed().set_requests(self.machine.id(), open);
            let root = self.hub.subagents().root_owner(self.machine.id()).cloned();
            if let Some(root) = root {
                // Its row counts the requests of its subagents.
                self.hub.feed().on_stored(&[root.as_json().as_literal().to_owned()]);
            }
        }
        self.deliver(output.sends);
        for start in output.forks {
            self.start_fork(start);
        }
        if !self.machine.has_waiting_forks() {
            self.forking.clear();
        }
        for (epoch, command) in output.agent {
            self.run_command(epoch, command);
        }
        for (wait, timer) in output.timers {
            self.arm_timer(wait, timer);
        }
        self.answer_readers();
    }

    /// Tells callers which clients were sent relayed frames.
    pub(super) fn answer_relays(&mut self, relayed: Vec<(u64, Vec<ClientId>)>) {
        for (relay, clients) in relayed {
            if let Some(sent) = self.relays.remove(&relay) {
                let _ = sent.send(clients);
            }
        }
    }

    pub(super) fn client(&self, id: ClientId) -> Option<Arc<Client>> {
        self.clients.get(&id).and_then(Weak::upgrade)
    }

    /// Sends frames to clients; consecutive frames for one client are written together.
    fn deliver(&mut self, sends: Vec<parlor_engine::Delivery>) {
        let mut sends = sends.into_iter().peekable();
        while let Some(first) = sends.next() {
            let to = first.to;
            let rest = iter::from_fn(|| sends.next_if(|next| next.to == to));
            let outgoing: Vec<_> = iter::once(first).chain(rest).map(|delivery| delivery.what).collect();
            if let Some(client) = self.client(to) {
                self.deliver_to(&client, outgoing);
            }
        }
    }

    fn deliver_to(&mut self, client: &Client, outgoing: Vec<Outgoing>) {
        let mut frames = Vec::with_capacity(outgoing.len());
        let mut awaits_drain = false;
        for outgoing in outgoing {
            match outgoing {
                Outgoing::Frame(frame) => frames.push(frame),
                Outgoing::Request { request, method, params } => {
                    let about = SessionRequestToClient { session: self.me.clone(), request };
                    if let Some(id) = client.add_session_request(about) {
                        frames.push(Frame::request(&id, &method, &params));
                        self.requests.insert((client.id, request), id);
                    } else {
                        let answer = Answer::Error(parlor_engine::cannot_ask());
                        let answered = Event::Answered { request, by: client.id, answer };
                        self.pending.push_back(SessionMessage::Event(answered));
                    }
                }
                Outgoing::CancelRequest(request) => {
                    if let Some(id) = self.requests.remove(&(client.id, request)) {
                        client.take_request(&id);
                        frames.push(Frame::cancel(&id));
                    }
                }
                Outgoing::AwaitDrain => awaits_drain = true,
                Outgoing::Disconnect => client.queue.close(),
            }
        }
        client.queue.push_all(frames);
        if awaits_drain {
            let (queue, me, id) = (client.queue.clone(), self.me.clone(), client.id);
            tokio::spawn(async move {
                queue.drained().await;
                let _ = me.send(SessionMessage::Event(Event::Drained(id))).await;
            });
        }
    }

    fn arm_timer(&self, wait: std::time::Duration, timer: Timer) {
        let me = self.me.clone();
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            let _ = me.send(SessionMessage::Event(Event::Timer(timer))).await;
        });
    }

    fn run_command(&mut self, epoch: AgentEpoch, command: AgentCommand) {
        if matches!(command, AgentCommand::Start) {
            return self.spawn_restore();
        }
        let Some(agent) = self.agent_sessions.get(&epoch).map(|guard| Arc::clone(&guard.agent)) else {
            return;
        };
        let route = Route { mailbox: self.me.clone(), epoch, is_session: true };
        match command {
            AgentCommand::Call { call, method, params } => self.call(&agent, &route, call, &method, &params),
            AgentCommand::CancelPrompt(prompt) => {
                self.sent_prompts.get(&prompt).into_iter().for_each(|id| agent.cancel_call(id));
            }
            AgentCommand::CancelForwarded(client, id) => {
                self.sent_calls.get(&(client, id)).into_iter().for_each(|id| agent.cancel_call(id));
            }
            AgentCommand::Notify { method, params } => agent.notify(&method, &params),
            AgentCommand::Respond { id, reply } => {
                self.file_requests.remove(&id);
                agent.answer(&id, &reply);
            }
            AgentCommand::ServeFile { id, method, params } => {
                self.read_or_write(&agent, route, id, method, params);
            }
            AgentCommand::CheckFile { id, method, params } => {
                self.check_file(&agent, route, id, method, params);
            }
            AgentCommand::ServeTerminal { id, method, params } => {
                self.serve_terminal(&agent, route, id, &method, &params);
            }
            AgentCommand::KillTerminal { params } => {
                // The process is signalled before this returns.
                drop(self.terminals.as_ref().map(|terminals| terminals.serve("terminal/kill", &params)));
            }
            AgentCommand::AddClient(client) => {
                self.client(client).iter().for_each(|client| agent.add_client(client));
            }
            AgentCommand::Start => {}
            AgentCommand::Retire => agent.retire(),
            AgentCommand::Release => {
                if let Some(guard) = self.take_agent_session(epoch) {
                    guard.release(&self.hub, self.machine.id());
                }
            }
            AgentCommand::DropSession => {
                self.terminals = None;
                drop(self.take_agent_session(epoch));
            }
        }
    }

    fn take_agent_session(&mut self, epoch: AgentEpoch) -> Option<AgentSessionGuard> {
        self.sent_prompts.clear();
        self.sent_calls.clear();
        self.file_requests.clear();
        self.agent_sessions.remove(&epoch)
    }

    fn call(&mut self, agent: &Agent, route: &Route, call: AgentCall, method: &str, params: &Object) {
        let waiting = match &call {
            AgentCall::Prompt(prompt) => SessionCall::Prompt(*prompt),
            AgentCall::Steer(prompt) => SessionCall::Steer(*prompt),
            AgentCall::SetTitle => SessionCall::SetTitle,
            AgentCall::Forwarded(call) => {
                let connection = self.clients.get(&call.client).cloned().unwrap_or_default();
                SessionCall::Forwarded(Forwarded { call: call.clone(), connection })
            }
        };
        match agent.call_for(route, waiting, method, params) {
            Ok(id) => match call {
                AgentCall::Prompt(prompt) | AgentCall::Steer(prompt) => {
                    drop(self.sent_prompts.insert(prompt, id));
                }
                AgentCall::Forwarded(call) => drop(self.sent_calls.insert((call.client, call.id), id)),
                AgentCall::SetTitle => {}
            },
            Err(error) => {
                let answered = AgentMessage::CallFailed(call, error);
                self.pending.push_back(SessionMessage::Agent(route.epoch, answered));
            }
        }
    }

    /// Sends the transcript to callers that wait for it.
    pub(super) fn answer_readers(&mut self) {
        if self.readers.is_empty() {
            return;
        }
        let transcript = self.machine.transcript();
        let is_contained = |message: &Option<MessageId>| {
            message
                .as_ref()
                .is_none_or(|id| transcript.get(&EntryId::Message(Role::User, id.clone())).is_some())
        };
        for (_, reply) in self.readers.extract_if(.., |(message, _)| is_contained(message)) {
            let _ = reply.send(transcript.clone());
        }
        self.readers.retain(|(_, reply)| !reply.is_closed());
    }
}
