//! Serves files and terminals for a session's agent.

use std::path::PathBuf;

use parlor_engine::{AgentEpoch, Event, SessionData, TerminalEvent};
use parlor_json::{JsonStr, Object};
use parlor_wire::{RequestId, RpcError, code};

use super::task::SessionTask;
use super::{AgentMessage, Route, SessionMessage};
use crate::agent::{Agent, Reply};
use crate::config::chosen_env;
use crate::services::access::FileScope;
use crate::services::budget::{FilePermit, FileRequest};
use crate::services::files;
use crate::services::terminals::Terminals;

impl SessionTask {
    /// Sends the agent the response to a file or terminal request, if the agent session still has this epoch.
    pub(super) fn send_served(
        &self,
        epoch: AgentEpoch,
        id: &RequestId,
        reply: &Reply,
        permit: Option<FilePermit>,
    ) {
        let Some(guard) = self.agent_sessions.get(&epoch) else { return };
        guard.agent.answer(id, reply);
        let queue = guard.agent.send_queue();
        // The agent has read the response then, so the next one may follow.
        tokio::spawn(async move {
            queue.drained().await;
            drop(permit);
        });
    }

    /// Checks whether the agent may access a file, and reports that to the session.
    pub(super) fn check_file(
        &self,
        agent: &Agent,
        route: Route,
        id: RequestId,
        method: String,
        params: Object,
    ) {
        let Some(request) = admit_file(agent, &id, &params) else { return };
        let scope = self.file_scope();
        tokio::spawn(async move {
            let checked = tokio::task::spawn_blocking(move || {
                let allowed = files::check(&params, &scope);
                allowed.map(|()| params)
            });
            let failed = || RpcError::new(code::INTERNAL_ERROR, "the file request was interrupted");
            let _ = match checked.await.unwrap_or_else(|_| Err(failed())) {
                Ok(params) => route.send(AgentMessage::FileAllowed { id, method, params, request }).await,
                Err(error) => route.send(AgentMessage::Served(id, Err(error.to_json()), None)).await,
            };
        });
    }

    /// Reads or writes a file for the agent.
    pub(super) fn read_or_write(
        &mut self,
        agent: &Agent,
        route: Route,
        id: RequestId,
        method: String,
        params: Object,
    ) {
        // A client that was to serve it may have disconnected.
        let admitted = self.file_requests.remove(&id);
        let Some(request) = admitted.or_else(|| admit_file(agent, &id, &params)) else { return };
        let (queue, scope) = (agent.send_queue(), self.file_scope());
        tokio::spawn(async move {
            let measuring = request.lock_measuring().await;
            let measured = tokio::task::spawn_blocking(move || {
                let length = files::length(&method, &params, &scope);
                (length, method, params, scope)
            });
            let failed = || RpcError::new(code::INTERNAL_ERROR, "the file request was interrupted").to_json();
            let Ok((length, method, params, scope)) = measured.await else {
                let _ = route.send(AgentMessage::Served(id, Err(failed()), None)).await;
                return;
            };
            drop(measuring);
            let mut permit = request.acquire(length).await;
            let done = tokio::task::spawn_blocking(move || match method.as_str() {
                "fs/read_text_file" => files::read(&params, &scope),
                _ => files::write(&params, &scope),
            });
            let done = done.await.map(|done| done.map_err(|error| error.to_json()));
            let reply = done.unwrap_or_else(|_| Err(failed()));
            permit.lock_response().await;
            queue.drained().await;
            let _ = route.send(AgentMessage::Served(id, reply, Some(permit))).await;
        });
    }

    /// The files that the agent may access.
    fn file_scope(&self) -> FileScope {
        let row = self.machine.row();
        let access = self.hub.config_of(row).map(|config| config.fs).unwrap_or_default();
        let data = SessionData::of(row);
        let more = data.additional_directories().and_then(|more| more.elements());
        let more = more.unwrap_or_default();
        let more = more.into_iter().filter_map(|path| Some(JsonStr::from_raw(path)?.to_text().into_owned()));
        let cwd = (!data.is_cwd_unconfirmed).then(|| row.cwd.clone());
        // Relative directories would be relative to the server's working directory.
        let directories =
            more.chain(cwd).map(PathBuf::from).filter(|directory| directory.is_absolute()).collect();
        FileScope::new(access, directories, self.hub.private().to_vec())
    }

    /// Handles a terminal request of the agent.
    pub(super) fn serve_terminal(
        &mut self,
        agent: &Agent,
        route: Route,
        id: RequestId,
        method: &str,
        params: &Object,
    ) {
        let hub = &self.hub;
        let (row, me, id_here) = (self.machine.row(), &self.me, self.machine.id());
        let config = hub.config_of(row);
        let terminals = self.terminals.get_or_insert_with(|| {
            let client = hub.requesting_client(id_here);
            let client_env = client.as_ref().map_or(&[][..], |client| &client.options.env);
            let env = config.map(|config| chosen_env(&config, client_env)).unwrap_or_default();
            let env = env.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
            let (events, mut reader) = tokio::sync::mpsc::channel::<TerminalEvent>(64);
            let session = me.downgrade();
            tokio::spawn(async move {
                while let Some(event) = reader.recv().await {
                    let Some(session) = session.upgrade() else { return };
                    if session.send(SessionMessage::Event(Event::Terminal(event))).await.is_err() {
                        return;
                    }
                }
            });
            Terminals::new(hub.reaper().clone(), env, row.cwd.clone().into(), events)
        });
        // The agent may have been started again with another configuration.
        terminals.set_sandbox(&agent.sandbox);
        let served = terminals.serve(method, params);
        tokio::spawn(async move {
            let reply = served.await.map_err(|error| error.to_json());
            let _ = route.send(AgentMessage::Served(id, reply, None)).await;
        });
    }
}

/// Admits a file request to the budget, or responds with an error.
fn admit_file(agent: &Agent, id: &RequestId, params: &Object) -> Option<FileRequest> {
    let admitted = agent.files.admit(params);
    admitted.map_err(|error| agent.answer(id, &Err(error.to_json()))).ok()
}
