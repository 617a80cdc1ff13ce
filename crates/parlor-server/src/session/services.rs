//! Serves files and terminals for a session's agent.

use std::path::PathBuf;

use parlor_engine::{AgentEpoch, Event, TerminalEvent, UNPLACED};
use parlor_json::{Json, JsonStr, Object};
use parlor_wire::{RequestId, RpcError, code};

use super::task::SessionTask;
use super::{AgentMessage, Link, Message};
use crate::agent::{Agent, Reply};
use crate::config::chosen_env;
use crate::services::access::FileScope;
use crate::services::budget::{FileRequest, FileShare};
use crate::services::files;
use crate::services::terminals::Terminals;
use crate::stored;

impl SessionTask {
    /// Sends the agent the answer of the server to one of its requests, if that incarnation of the agent is there still.
    pub(super) fn served(&self, epoch: AgentEpoch, id: &RequestId, reply: &Reply, share: Option<FileShare>) {
        let Some(tie) = self.ties.get(&epoch) else { return };
        tie.agent.answer(id, reply);
        let queue = tie.agent.send_queue();
        // The agent has read it then, and the next answer may come.
        tokio::spawn(async move {
            queue.drained().await;
            drop(share);
        });
    }

    /// Looks whether the agent may have a file, and tells the session.
    pub(super) fn check_file(
        &self,
        agent: &Agent,
        link: Link,
        id: RequestId,
        method: String,
        params: Object,
    ) {
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
                Err(error) => link.send(AgentMessage::Served(id, Err(error.to_json()), None)).await,
            };
        });
    }

    /// Reads or writes a file for the agent on the disk.
    pub(super) fn read_or_write(
        &mut self,
        agent: &Agent,
        link: Link,
        id: RequestId,
        method: String,
        params: Object,
    ) {
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
            let failed = || RpcError::new(code::INTERNAL_ERROR, "the file could not be served").to_json();
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
            let done = done.await.map(|done| done.map_err(|error| error.to_json()));
            let reply = done.unwrap_or_else(|_| Err(failed()));
            share.answer_alone().await;
            queue.drained().await;
            let _ = link.send(AgentMessage::Served(id, reply, Some(share))).await;
        });
    }

    /// The files that the agent may read and write.
    fn file_scope(&self) -> FileScope {
        let row = self.machine.row();
        let access = self.hub.config_of(row).map(|config| config.fs).unwrap_or_default();
        let more = stored::additional_directories(row);
        let more = more.as_ref().and_then(Json::elements).unwrap_or_default();
        let more = more.into_iter().filter_map(|path| Some(JsonStr::from_raw(path)?.to_text().into_owned()));
        let cwd = parlor_engine::stored::data(row).get(UNPLACED).is_none().then(|| row.cwd.clone());
        // What is relative would be relative to where the server runs.
        let directories =
            more.chain(cwd).map(PathBuf::from).filter(|directory| directory.is_absolute()).collect();
        FileScope::new(access, directories, self.hub.private().to_vec())
    }

    /// Serves a request for a terminal of the agent's.
    pub(super) fn serve_terminal(&mut self, link: Link, id: RequestId, method: &str, params: &Object) {
        let hub = &self.hub;
        let (row, me, id_here) = (self.machine.row(), &self.me, self.machine.id());
        let config = hub.config_of(row);
        let terminals = self.terminals.get_or_insert_with(|| {
            let peer = hub.peer_of(id_here);
            let theirs = peer.as_ref().map_or(&[][..], |peer| &peer.env);
            let env = config.map(|config| chosen_env(&config, theirs)).unwrap_or_default();
            let env = env.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
            let (events, mut reader) = tokio::sync::mpsc::channel::<TerminalEvent>(64);
            let session = me.downgrade();
            tokio::spawn(async move {
                while let Some(event) = reader.recv().await {
                    let Some(session) = session.upgrade() else { return };
                    if session.send(Message::Event(Event::Terminal(event))).await.is_err() {
                        return;
                    }
                }
            });
            Terminals::new(hub.watcher().clone(), env, row.cwd.clone().into(), events)
        });
        let served = terminals.serve(method, params);
        tokio::spawn(async move {
            let reply = served.await.map_err(|error| error.to_json());
            let _ = link.send(AgentMessage::Served(id, reply, None)).await;
        });
    }
}

/// Lets a request for a file in, or answers it.
fn admit_file(agent: &Agent, id: &RequestId, params: &Object) -> Option<FileRequest> {
    let admitted = agent.files.admit(params);
    admitted.map_err(|error| agent.answer(id, &Err(error.to_json()))).ok()
}
