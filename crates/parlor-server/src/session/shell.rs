//! Does what a session wants: sends frames to clients, and has agents and services do their part.

use std::iter;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use parlor_engine::{AgentCall as Call, AgentCommand, AgentEpoch, Frame, Now, Outgoing};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::UnixMillis;
use parlor_session::session::{Answer, ClientId};
use parlor_wire::{RequestId, RpcError, code};

use super::{Actor, AgentCall, AgentMessage, Forwarded, Link, Message, UNPLACED, calls, now};
use crate::agent::{Agent, Reply};
use crate::client::{Client, Question};
use crate::config::chosen_env;
use crate::json;
use crate::services::access::FileScope;
use crate::services::budget::{FileRequest, FileShare};
use crate::services::files;
use crate::services::terminals::Terminals;

impl Actor {
    /// Remembers the connection of a client that asks something of the session.
    pub(super) fn register_client(&mut self, client: &Arc<Client>, notes_peer: bool) {
        if notes_peer {
            self.hub.note_peer(&self.id, &client.peer);
        }
        if self.clients.len() >= 2 * self.seats.len() + 16 {
            self.clients.retain(|_, client| client.strong_count() > 0);
        }
        self.clients.insert(client.id, Arc::downgrade(client));
    }

    /// Whether a client's connection has ended: it has left all its sessions already.
    pub(super) fn is_gone(&self, client: ClientId) -> bool {
        self.client(client).is_none_or(|client| client.queue.is_closed())
    }

    fn client(&self, id: ClientId) -> Option<Arc<Client>> {
        self.clients.get(&id).and_then(Weak::upgrade)
    }

    /// Sends clients what is theirs, now that all is stored.
    pub(super) fn deliver(&mut self) {
        let mut sends = std::mem::take(&mut self.sends).into_iter().peekable();
        while let Some(first) = sends.next() {
            let to = first.to;
            let rest = iter::from_fn(|| sends.next_if(|next| next.to == to));
            let outgoing: Vec<_> = iter::once(first).chain(rest).map(|delivery| delivery.what).collect();
            if let Some(client) = self.client(to) {
                self.deliver_to(&client, outgoing);
            }
        }
    }

    /// Sends one client what is its own, which is written together.
    fn deliver_to(&mut self, client: &Client, outgoing: Vec<Outgoing>) {
        let mut frames = Vec::with_capacity(outgoing.len());
        let mut awaits_drain = false;
        for outgoing in outgoing {
            match outgoing {
                Outgoing::Frame(frame) => frames.push(frame),
                Outgoing::Request { question, method, params } => {
                    let about = Question { session: self.me.clone(), about: question };
                    if let Some(request) = client.ask(about) {
                        frames.push(Frame::request(&request, &method, &params));
                        self.requests.insert((client.id, question), request);
                    } else {
                        let answer = Answer::Error(calls::cannot_ask());
                        self.pending.push_back(Message::Answered { question, by: client.id, answer });
                    }
                }
                Outgoing::CancelRequest(question) => {
                    let request = self.requests.remove(&(client.id, question));
                    frames.extend(request.map(|request| Frame::cancel(&request)));
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
                let _ = me.send(Message::Drained(id)).await;
            });
        }
    }

    /// The batch is stored: sends what clients get, and runs what agents are to do.
    pub(super) fn release_output(&mut self) {
        self.hub.losses().count(&self.id, std::mem::take(&mut self.losses));
        self.share.set(self.session.transcript().bytes());
        self.deliver();
        self.start_forks();
        self.run_commands();
        self.arm_timers();
        self.show();
        for (told, clients) in std::mem::take(&mut self.relayed) {
            let _ = told.send(clients);
        }
    }

    /// The time, for all that is taken next.
    pub(super) fn read_clocks(&self) -> Now {
        Now { monotonic: self.started.elapsed(), wall: UnixMillis(now()) }
    }

    fn arm_timers(&mut self) {
        for (wait, timer) in std::mem::take(&mut self.timers) {
            let me = self.me.clone();
            tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                let _ = me.send(Message::Timer(timer)).await;
            });
        }
    }

    /// Has agents do what is wanted of them, now that all is stored.
    pub(super) fn run_commands(&mut self) {
        for (epoch, command) in std::mem::take(&mut self.commands) {
            self.run_command(epoch, command);
        }
    }

    fn run_command(&mut self, epoch: AgentEpoch, command: AgentCommand) {
        if matches!(command, AgentCommand::Start) {
            return self.spawn_restore();
        }
        let Some(agent) = self.ties.get(&epoch).map(|tie| Arc::clone(&tie.agent)) else { return };
        let link = Link { inbox: self.me.clone(), epoch, is_session: true };
        match command {
            AgentCommand::Call { call, method, params } => self.call(&agent, &link, call, &method, &params),
            AgentCommand::CancelPrompt(prompt) => {
                self.sent.get(&prompt).into_iter().for_each(|id| agent.take_back(id));
            }
            AgentCommand::CancelForwarded(client, id) => {
                self.passed_on.get(&(client, id)).into_iter().for_each(|id| agent.take_back(id));
            }
            AgentCommand::Notify { method, params } => agent.notify(&method, &params),
            AgentCommand::Respond { id, reply } => {
                self.file_requests.remove(&id);
                agent.answer(&id, &reply);
            }
            AgentCommand::ServeFile { id, method, params } => {
                self.read_or_write(&agent, link, id, method, params);
            }
            AgentCommand::CheckFile { id, method, params } => {
                self.check_file(&agent, link, id, method, params);
            }
            AgentCommand::ServeTerminal { id, method, params } => {
                self.serve_terminal(link, id, &method, &params);
            }
            AgentCommand::KillTerminal { params } => {
                // It is asked to end already when this returns.
                drop(self.terminals.as_ref().map(|terminals| terminals.serve("terminal/kill", &params)));
            }
            AgentCommand::AddClient(client) => {
                self.client(client).iter().for_each(|client| agent.add_client(client));
            }
            AgentCommand::Start => {}
            AgentCommand::Retire => agent.retire(),
            AgentCommand::Release => {
                if let Some(tie) = self.unlink(epoch) {
                    tie.release(&self.hub, &self.id);
                }
            }
            AgentCommand::Unlink => {
                self.terminals = None;
                drop(self.unlink(epoch));
            }
        }
    }

    fn unlink(&mut self, epoch: AgentEpoch) -> Option<crate::agent::Tie> {
        self.sent.clear();
        self.passed_on.clear();
        self.file_requests.clear();
        self.ties.remove(&epoch)
    }

    fn call(&mut self, agent: &Agent, link: &Link, call: Call, method: &str, params: &Object) {
        let waiting = match &call {
            Call::Prompt(prompt) => AgentCall::Prompt(*prompt),
            Call::SetTitle => AgentCall::SetTitle,
            Call::Forwarded(call) => {
                let connection = self.clients.get(&call.client).cloned().unwrap_or_default();
                AgentCall::Forwarded(Forwarded { call: call.clone(), connection })
            }
        };
        match agent.call_for(link, waiting, method, params) {
            Ok(id) => match call {
                Call::Prompt(prompt) => drop(self.sent.insert(prompt, id)),
                Call::Forwarded(call) => drop(self.passed_on.insert((call.client, call.id), id)),
                Call::SetTitle => {}
            },
            Err(error) => {
                let answered = AgentMessage::Failed(call, error);
                self.pending.push_back(Message::Agent(link.epoch, answered));
            }
        }
    }

    /// The agent answered a request, which is not open any more.
    pub(super) fn finish_call(&mut self, call: AgentCall) -> Option<Call> {
        match call {
            AgentCall::Restore => None,
            AgentCall::SetTitle => Some(Call::SetTitle),
            AgentCall::Prompt(prompt) => {
                self.sent.remove(&prompt);
                Some(Call::Prompt(prompt))
            }
            AgentCall::Forwarded(Forwarded { call, .. }) => {
                self.passed_on.remove(&(call.client, call.id.clone()));
                Some(Call::Forwarded(call))
            }
        }
    }

    /// The server served a request of the agent's.
    pub(super) fn served(&self, id: &RequestId, reply: &Reply, share: Option<FileShare>) {
        let Some(tie) = self.agent.as_ref().and_then(|link| self.ties.get(&link.epoch)) else { return };
        tie.agent.answer(id, reply);
        let queue = tie.agent.send_queue();
        // The agent has read it then, and the next answer may come.
        tokio::spawn(async move {
            queue.drained().await;
            drop(share);
        });
    }

    /// Looks whether the agent may have a file, and tells the session.
    fn check_file(&self, agent: &Agent, link: Link, id: RequestId, method: String, params: Object) {
        let Some(request) = admit_file(agent, &id, &params) else { return };
        let scope = self.file_scope();
        tokio::spawn(async move {
            let looked = tokio::task::spawn_blocking(move || {
                let allowed = files::check(&params, &scope);
                allowed.map(|()| params)
            });
            let failed = || RpcError::new(code::INTERNAL_ERROR, "the file could not be served");
            let _ = match looked.await.unwrap_or_else(|_| Err(failed())) {
                Ok(params) => link.send(AgentMessage::FileAllowed { id, method, params, request }).await,
                Err(error) => {
                    link.send(AgentMessage::Served(id, Err(json::error_object(&error)), None)).await
                }
            };
        });
    }

    /// Reads or writes a file for the agent on the disk.
    fn read_or_write(&mut self, agent: &Agent, link: Link, id: RequestId, method: String, params: Object) {
        // It may have waited at a client that left.
        let waited = self.file_requests.remove(&id);
        let Some(request) = waited.or_else(|| admit_file(agent, &id, &params)) else { return };
        let (queue, scope) = (agent.send_queue(), self.file_scope());
        tokio::spawn(async move {
            let turn = request.measure_alone().await;
            // The disk may be slow.
            let measured = tokio::task::spawn_blocking(move || {
                let length = files::length(&method, &params, &scope);
                (length, method, params, scope)
            });
            let failed =
                || json::error_object(&RpcError::new(code::INTERNAL_ERROR, "the file could not be served"));
            let Ok((length, method, params, scope)) = measured.await else {
                let _ = link.send(AgentMessage::Served(id, Err(failed()), None)).await;
                return;
            };
            drop(turn);
            let mut share = request.share(length).await;
            let done = tokio::task::spawn_blocking(move || match method.as_str() {
                "fs/read_text_file" => files::read(&params, &scope),
                _ => files::write(&params, &scope),
            });
            let done = done.await.map(|done| done.map_err(|error| json::error_object(&error)));
            let reply = done.unwrap_or_else(|_| Err(failed()));
            share.answer_alone().await;
            queue.drained().await;
            let _ = link.send(AgentMessage::Served(id, reply, Some(share))).await;
        });
    }

    /// The files that the agent may read and write.
    fn file_scope(&self) -> FileScope {
        let access = self.hub.config_of(&self.row).map(|config| config.fs).unwrap_or_default();
        let data = json::object(Json::parse(self.row.data.clone()).ok().as_ref().map(Json::raw));
        let more =
            json::member(&data, "params").and_then(|params| params.get("additionalDirectories").cloned());
        let more = more.as_ref().and_then(|more| parlor_json::elements(more.raw())).unwrap_or_default();
        let more = more.into_iter().filter_map(|path| Some(JsonStr::from_raw(path)?.to_text().into_owned()));
        let cwd = data.get(UNPLACED).is_none().then(|| self.row.cwd.clone());
        // What is relative would be relative to where the server runs.
        let directories =
            more.chain(cwd).map(PathBuf::from).filter(|directory| directory.is_absolute()).collect();
        FileScope::new(access, directories, self.hub.private().to_vec())
    }

    /// Serves a request for a terminal of the agent's.
    fn serve_terminal(&mut self, link: Link, id: RequestId, method: &str, params: &Object) {
        let hub = &self.hub;
        let (row, me, id_here) = (&self.row, &self.me, &self.id);
        let config = hub.config_of(row);
        let terminals = self.terminals.get_or_insert_with(|| {
            let peer = hub.peer_of(id_here);
            let theirs = peer.as_ref().map_or(&[][..], |peer| &peer.env);
            let env = config.map(|config| chosen_env(&config, theirs)).unwrap_or_default();
            let env = env.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
            let (events, mut reader) = tokio::sync::mpsc::channel(64);
            let session = me.downgrade();
            tokio::spawn(async move {
                while let Some(event) = reader.recv().await {
                    let Some(session) = session.upgrade() else { return };
                    if session.send(Message::Terminal(event)).await.is_err() {
                        return;
                    }
                }
            });
            Terminals::new(hub.watcher().clone(), env, row.cwd.clone().into(), events)
        });
        let served = terminals.serve(method, params);
        tokio::spawn(async move {
            let reply = served.await.map_err(|error| json::error_object(&error));
            let _ = link.send(AgentMessage::Served(id, reply, None)).await;
        });
    }
}

/// Lets a request for a file in, or answers it.
fn admit_file(agent: &Agent, id: &RequestId, params: &Object) -> Option<FileRequest> {
    let admitted = agent.files.admit(params);
    admitted.map_err(|error| agent.answer(id, &Err(json::error_object(&error)))).ok()
}
