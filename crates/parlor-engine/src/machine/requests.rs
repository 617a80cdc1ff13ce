//! The agent's requests to clients: permission requests, elicitations, and requests to one client. Also deletes sessions.

use std::collections::BTreeMap;
use std::sync::Arc;

use parlor_dialect::live::EncodeContext;
use parlor_dialect::{Dialect, Losses, live};
use parlor_json::{Json, Object};
use parlor_session::session::{Answer, ClientId, Effect, Input, PeerRequestId, Reply, Scope};
use parlor_session::{Activity, Body, Decider, EntryId, State, ToolCallId, Update};
use parlor_wire::{RequestId, RpcError, code};

use super::{SessionEnd, SessionMachine};
use crate::{AgentCommand, ClientInfo, ClientRequestId, Delivery, Frame, FrameKind, OpenRequest, Outgoing};

/// A request of the agent to all drivers or to one client.
#[derive(Debug)]
pub(super) struct PeerRequest {
    /// The agent's id for it.
    pub(super) id: RequestId,
    pub(super) method: String,
    pub(super) params: Object,
    /// The clients that were sent it and have not answered.
    pub(super) clients: BTreeMap<ClientId, ClientRequestId>,
    /// Whether it is sent to one client, and any answer is forwarded unchanged.
    pub(super) forwarded: bool,
    /// When the agent sent it.
    pub(super) opened_at: i64,
    /// The client that answered it without having been sent it.
    pub(super) decided_by: Option<Decider>,
    /// Whether only a client can answer it, and not the server in place of the client.
    pub(super) client_only: bool,
}

impl SessionMachine {
    /// Sends a frame to those of the clients that are attached, in order with their updates.
    pub(super) fn on_relay(&mut self, id: u64, frame: &Frame, clients: &[ClientId]) {
        let here: Vec<_> =
            clients.iter().copied().filter(|client| self.subscribers.contains_key(client)).collect();
        here.iter().for_each(|client| self.send(*client, frame.clone()));
        self.output.relayed.push((id, here));
    }

    /// Deletes the session: ends its turn and answers all prompts.
    pub(super) fn on_delete(&mut self, client: &Arc<ClientInfo>, id: &RequestId, is_connected: bool) {
        self.step(Input::Cancelled { by: client.id, scope: Scope::Session });
        self.step(Input::AgentLost(cancelled_state()));
        self.follow(client, is_connected);
        self.send(client.id, Frame::response(id, &Object::default()));
        self.end = Some(SessionEnd::Deleted);
    }

    /// Ends the replays of clients that had not caught up when the session was deleted.
    pub(super) fn end_replays(&mut self, error: &RpcError) {
        let transcript = self.session.transcript();
        let encode_context = EncodeContext { from: self.decoder.dialect(), transcript, meta_before: None };
        let ids = &mut self.ids;
        for subscriber in self.subscribers.values_mut().filter(|subscriber| !subscriber.is_live()) {
            let ended = Update::State(cancelled_state());
            let mut lines = String::new();
            for update in
                subscriber.encoder.encode(&ended, encode_context, &mut || ids.new_id(), &mut self.losses)
            {
                lines.push_str(&live::update_line(&self.id, &update, None));
            }
            let id = subscriber.client.id;
            self.output.sends.push(Delivery::new(id, Frame::updates(lines)));
            self.output
                .sends
                .extend(subscriber.take_remaining().into_iter().map(|frame| Delivery::new(id, frame)));
            self.output.sends.extend(
                subscriber
                    .take_open_requests()
                    .into_iter()
                    .map(|request| Delivery::new(id, Frame::error(&request.id, error))),
            );
        }
    }

    /// Applies modes, options and commands that a response of the agent reports.
    pub(super) fn apply_reported_settings(&mut self, result: &Object) {
        for update in live::updates_from_response(result) {
            self.on_settings_reported(&update);
            self.step(Input::ServerUpdate(update));
        }
    }

    /// Handles a request of the agent, by its method.
    pub(super) fn on_agent_request(&mut self, id: RequestId, method: String, params: Object) {
        match method.as_str() {
            "session/request_permission" => self.open_request(id, method, params, false),
            "elicitation/create" => self.open_request(id, method, params, true),
            "fs/read_text_file" | "fs/write_text_file" => self.serve_file(id, method, params),
            live::SETTLED => self.on_settled_request(&id),
            _ if method.starts_with(live::CLIENT_SERVICE) => {
                self.request_service(id, &method[live::CLIENT_SERVICE.len()..], params);
            }
            _ if method.starts_with("terminal/") => {
                self.command(AgentCommand::ServeTerminal { id, method, params });
            }
            _ => self.forward_to_client(id, method, params),
        }
    }

    fn peer_request(&self, id: RequestId, method: String, params: Object, forwarded: bool) -> PeerRequest {
        let (clients, opened_at) = (BTreeMap::new(), self.now.wall.0);
        PeerRequest {
            id,
            method,
            params,
            clients,
            forwarded,
            opened_at,
            decided_by: None,
            client_only: false,
        }
    }

    fn add_request(&mut self, request: PeerRequest) -> PeerRequestId {
        let peer_request = PeerRequestId(self.next_peer_request);
        self.next_peer_request += 1;
        self.requests.insert(peer_request, request);
        peer_request
    }

    fn open_request(&mut self, id: RequestId, method: String, mut params: Object, form: bool) {
        let mut about = self.map_tool_call(&mut params);
        if let Some(mut subject) = params.get_object("subject") {
            about = self.map_tool_call(&mut subject).or(about);
            params.set("subject", subject.to_json());
        }
        // Only a tool call that waits for permission is over without an answer.
        let call = about.filter(|_| !form);
        let request = self.peer_request(id, method, params, false);
        let peer_request = self.add_request(request);
        self.step(Input::RequestOpened { peer_request, form, call });
    }

    /// Replaces the agent's id of the tool call in a request by the session's id, and returns it. The request contains the tool
    /// call, or only its id.
    fn map_tool_call(&self, holder: &mut Object) -> Option<ToolCallId> {
        let name = |holder: &mut Object| {
            let id = self.session.id_map().tool_call(&holder.get_json_str("toolCallId")?.into());
            holder.set("toolCallId", id.as_json());
            Some(id)
        };
        let named = name(holder);
        let Some(mut call) = holder.get_object("toolCall") else { return named };
        let id = name(&mut call);
        holder.set("toolCall", call.to_json());
        id.or(named)
    }

    /// Sends a request to one client: the one whose prompt runs, else the attached driver that is connected the longest.
    pub(super) fn forward_to_client(&mut self, id: RequestId, method: String, params: Object) {
        let running_prompt_sender =
            self.session.running_prompt_sender().filter(|client| self.is_staying(*client));
        let Some(client) = running_prompt_sender.or_else(|| self.session.drivers().next()) else {
            let error =
                RpcError::new(code::METHOD_NOT_FOUND, format!("no client is attached to answer {method}"));
            return self.respond_to_agent(id, Err(error.to_json()));
        };
        self.forward_to(client, id, method, params);
    }

    pub(super) fn forward_to(&mut self, client: ClientId, id: RequestId, method: String, params: Object) {
        let request = self.peer_request(id, method, params, true);
        let peer_request = self.add_request(request);
        self.send_request(peer_request, client);
    }

    /// Requests a service of a client: of the one whose prompt runs, else of the attached driver that is connected the longest
    /// and serves it.
    fn request_service(&mut self, id: RequestId, service: &str, params: Object) {
        let serves = |client: &ClientId| {
            let subscriber = self.subscribers.get(client);
            self.is_staying(*client) && subscriber.is_some_and(|subscriber| subscriber.client.serves(service))
        };
        let client = match self.session.running_prompt_sender().filter(|client| self.is_staying(*client)) {
            Some(sender) => Some(sender).filter(serves),
            None => self.session.drivers().find(serves),
        };
        let Some(client) = client else {
            let message = format!("the client does not support {service}");
            return self.respond_to_agent(id, Err(RpcError::new(code::METHOD_NOT_FOUND, message).to_json()));
        };
        let request =
            PeerRequest { client_only: true, ..self.peer_request(id, service.to_owned(), params, true) };
        let peer_request = self.add_request(request);
        self.send_request(peer_request, client);
    }

    /// Whether a client is attached and does not close the session.
    pub(super) fn is_staying(&self, client: ClientId) -> bool {
        self.subscribers.contains_key(&client) && !self.is_closing(client)
    }

    /// Answers requests that were sent only to this client, which leaves: files are served from the disk, others fail.
    pub(super) fn answer_without_client(&mut self, client: ClientId) {
        let is_its = |request: &PeerRequest| request.forwarded && request.clients.contains_key(&client);
        let its: Vec<_> = self
            .requests
            .iter()
            .filter(|(_, request)| is_its(request))
            .map(|(peer_request, _)| *peer_request)
            .collect();
        for peer_request in its {
            self.cancel_request(peer_request, client);
            let Some(PeerRequest { id, method, params, client_only, .. }) =
                self.requests.remove(&peer_request)
            else {
                continue;
            };
            if method.starts_with("fs/") && !client_only {
                self.serve_file_from_disk(id, method, params);
            } else {
                let message = format!("the client that received {method} has left the session");
                let data = Object::new().with("reason", live::CLIENT_GONE);
                let error = RpcError::new(code::INTERNAL_ERROR, message).with_data(data.to_json());
                self.respond_to_agent(id, Err(error.to_json()));
            }
        }
    }

    /// Cancels a request at the one client that was sent it.
    pub(super) fn cancel_forwarded_request(&mut self, peer_request: PeerRequestId) {
        let request = self.requests.get(&peer_request).filter(|request| request.forwarded);
        let clients: Vec<_> =
            request.map(|request| request.clients.keys().copied().collect()).unwrap_or_default();
        clients.into_iter().for_each(|client| self.cancel_request(peer_request, client));
    }

    /// Sends a peer request to a client.
    pub(super) fn send_request(&mut self, peer_request: PeerRequestId, client: ClientId) {
        let from = self.agent_dialect();
        let Some(request) = self.requests.get_mut(&peer_request) else { return };
        let Some(subscriber) = self.subscribers.get(&client) else { return };
        let mut params = request.params.clone();
        if params.get("sessionId").is_some() {
            params.set("sessionId", self.id.as_json());
        }
        if request.method == "elicitation/create"
            && !subscriber.client.elicits(params.get_string("mode").as_deref())
        {
            return self.apply_answer(peer_request, client, Answer::Error(cannot_ask()));
        }
        let to = subscriber.client.dialect;
        let transcript = self.session.transcript();
        let said = live::request_to_client(
            &request.method,
            &request.id,
            &params,
            from,
            to,
            transcript,
            &mut self.losses,
        );
        let outgoing = said.map(|params| {
            let client_request = ClientRequestId { peer_request, sending: self.next_sending };
            self.next_sending += 1;
            request.clients.insert(client, client_request);
            Outgoing::Request { request: client_request, method: request.method.clone(), params }
        });
        match outgoing {
            Ok(outgoing) => self.send(client, outgoing),
            // A client that cannot be sent the request counts as one that answered with an error.
            Err(_) => self.apply_answer(peer_request, client, Answer::Error(cannot_ask())),
        }
    }

    /// Cancels a request at a client.
    pub(super) fn cancel_request(&mut self, peer_request: PeerRequestId, client: ClientId) {
        let request = self.requests.get_mut(&peer_request);
        if let Some(client_request) = request.and_then(|request| request.clients.remove(&client)) {
            self.send(client, Outgoing::CancelRequest(client_request));
        }
    }

    /// Handles an answer of a client, unless the request was cancelled at it meanwhile.
    pub(super) fn on_answer(&mut self, request: ClientRequestId, by: ClientId, answer: Answer) {
        if self.is_asking(request, by) {
            self.apply_answer(request.peer_request, by, answer);
        }
    }

    fn apply_answer(&mut self, peer_request: PeerRequestId, by: ClientId, answer: Answer) {
        let Some(request) = self.requests.get_mut(&peer_request) else { return };
        request.clients.remove(&by);
        let from = self.subscribers.get(&by).map_or(Dialect::V2, |subscriber| subscriber.client.dialect);
        let to = self.agent.as_ref().map_or(Dialect::V2, |link| link.agent.dialect);
        let answer = match answer {
            Answer::Result(result) => {
                Answer::Result(live::answer_to_agent(&request.method, &result, from, to, &mut self.losses))
            }
            Answer::Error(error) if !request.forwarded && is_left_open(&error) => Answer::LeftOpen,
            answer @ (Answer::Error(_) | Answer::LeftOpen) => answer,
        };
        if request.forwarded {
            let reply = match answer {
                Answer::Result(result) => Reply::Result(result),
                Answer::Error(error) => Reply::Error(error),
                Answer::LeftOpen => Reply::Error(cannot_ask()),
            };
            self.effects.push(Effect::RespondRequest(peer_request, reply));
        } else {
            self.step(Input::RequestAnswered { peer_request, by, answer });
        }
    }

    /// Handles a result of a driver that need not be attached.
    pub(super) fn on_answer_request(
        &mut self,
        client: &ClientInfo,
        id: &RequestId,
        peer_request: PeerRequestId,
        result: &Json,
    ) {
        let to = self.agent_dialect();
        let Some(request) = self.requests.get_mut(&peer_request).filter(|request| !request.forwarded) else {
            return self.send_unattached(client.id, Frame::error(id, &not_open()));
        };
        request.decided_by = Some(client.decider());
        let result = live::answer_to_agent(&request.method, result, client.dialect, to, &mut self.losses);
        self.step(Input::RequestDecided { peer_request, by: client.id, result });
        self.respond(client, id, &Object::default());
    }

    /// Reports the open requests that any driver may answer, if they or the numbers of their clients are others than before.
    pub(super) fn report_open_requests(&mut self) {
        let open = self.requests.iter().filter(|(_, request)| !request.forwarded);
        let open: Vec<_> = open.map(|(id, request)| (*id, self.clients_with(request))).collect();
        if open == self.reported_requests {
            return;
        }
        let reported =
            open.iter().filter_map(|(id, _)| Some(self.open_request_info(*id, self.requests.get(id)?)));
        self.output.open_requests = Some(reported.collect());
        self.reported_requests = open;
    }

    /// How many attached clients have a request and have not answered.
    fn clients_with(&self, request: &PeerRequest) -> usize {
        request.clients.keys().filter(|client| self.subscribers.contains_key(client)).count()
    }

    fn open_request_info(&self, id: PeerRequestId, request: &PeerRequest) -> OpenRequest {
        let mut params = request.params.clone();
        params.set("sessionId", self.id.as_json());
        let encode = |to| {
            let (from, transcript) = (self.agent_dialect(), self.session.transcript());
            let mut losses = Losses::default();
            live::request_to_client(&request.method, &request.id, &params, from, to, transcript, &mut losses)
        };
        OpenRequest {
            request: id,
            method: request.method.clone(),
            tool_call: encode(Dialect::V1).ok().and_then(|params| self.whole_tool_call(&params)),
            params: encode(Dialect::V2).unwrap_or(params),
            opened_at: request.opened_at,
            clients: self.clients_with(request),
        }
    }

    /// The tool call of a permission request of version 1, with what the session knows of it besides the request.
    fn whole_tool_call(&self, params: &Object) -> Option<Object> {
        let mut call = params.get_object("toolCall")?;
        let id = EntryId::ToolCall(call.get_json_str("toolCallId")?.into());
        if let Some(entry) = self.session.transcript().get(&id) {
            let Body { fields, content, .. } = entry.body();
            call.add_missing(fields);
            if call.get("content").is_none() && !content.is_empty() {
                call.set("content", content.to_json());
            }
        }
        Some(call)
    }

    pub(super) fn on_agent_cancels_request(&mut self, id: &RequestId) {
        let found = self.requests.iter().find(|(_, request)| request.id == *id);
        match found.map(|(peer_request, request)| (*peer_request, request.forwarded)) {
            Some((peer_request, true)) => {
                self.cancel_forwarded_request(peer_request);
                self.effects.push(Effect::RespondRequest(peer_request, Reply::CancelledByAgent));
            }
            Some((peer_request, false)) => self.step(Input::RequestCancelled(peer_request)),
            None => {}
        }
    }

    /// Sends a notification of the agent to all subscribers.
    pub(super) fn on_agent_notification(&mut self, line: &str) {
        let line = parlor_dialect::with_ids(line, Some(&self.id), None).unwrap_or_else(|| line.to_owned());
        let frame = Frame::line(line, FrameKind::Notification);
        let clients: Vec<ClientId> = self.subscribers.keys().copied().collect();
        clients.into_iter().for_each(|client| self.send(client, frame.clone()));
    }
}

impl PeerRequest {
    /// Whether this is an elicitation that no client could show.
    pub(super) fn is_unasked_form(&self, error: &Json) -> bool {
        self.method == "elicitation/create" && *error == cannot_ask()
    }
}

/// The error for an answer to a request that is not open.
fn not_open() -> RpcError {
    let data = Object::new().with("reason", "not_open");
    let error = RpcError::new(code::INVALID_PARAMS, "the request is not open: it was answered or cancelled");
    error.with_data(data.to_json())
}

/// Whether a client leaves a request open with its error.
fn is_left_open(error: &Json) -> bool {
    let data = error.to_object().and_then(|error| error.get_object("data"));
    data.and_then(|data| data.get_string("reason")).as_deref() == Some(live::LEFT_OPEN)
}

/// The answer for a client that cannot be sent a request.
pub fn cannot_ask() -> Json {
    RpcError::new(code::METHOD_NOT_FOUND, "the client does not support this request").to_json()
}

/// The state of a session whose turn was cancelled.
pub(super) fn cancelled_state() -> State {
    let stop_reason = Some("cancelled".into());
    State { activity: Activity::Idle, stop_reason, fields: Object::default(), meta: None }
}
