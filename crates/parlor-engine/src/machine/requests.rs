//! The agent's requests to clients: permission requests, elicitations, and requests to one client. Also deletes sessions.

use std::sync::Arc;

use parlor_dialect::live::EncodeContext;
use parlor_dialect::{Dialect, Losses, event, live};
use parlor_json::{Json, Object};
use parlor_session::session::{Answer, ClientId, Effect, Input, PeerRequestId, Reply, Scope};
use parlor_session::{Activity, Body, Decider, EntryId, State, ToolCallId, Update};
use parlor_wire::{RequestId, RpcError, code};

use super::peer_requests::{PeerRequest, cannot_ask, is_left_open};
use super::{SessionEnd, SessionMachine};
use crate::{AgentCommand, ClientInfo, ClientRequestId, Delivery, Frame, FrameKind, OpenRequest, Outgoing};

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
            self.output.sends.extend(subscriber.take_remaining(self.rows.stored_batches));
            self.output.sends.extend(
                subscriber
                    .take_open_requests()
                    .into_iter()
                    .map(|request| Delivery::new(id, Frame::error(&request.id, error))),
            );
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

    fn peer_request(&self, id: RequestId, method: String, params: Object) -> PeerRequest {
        PeerRequest::new(id, method, params, self.now.wall.0)
    }

    fn open_request(&mut self, id: RequestId, method: String, mut params: Object, form: bool) {
        let mut about = self.map_tool_call(&mut params);
        if let Some(mut subject) = params.get_object("subject") {
            about = self.map_tool_call(&mut subject).or(about);
            params.set("subject", subject.to_json());
        }
        // Only a tool call that waits for permission is over without an answer.
        let call = about.filter(|_| !form);
        let request = self.peer_request(id, method, params);
        let peer_request = self.requests.add(request);
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
        let request = PeerRequest { is_forwarded: true, ..self.peer_request(id, method, params) };
        let peer_request = self.requests.add(request);
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
        let request = self.peer_request(id, service.to_owned(), params);
        let request = PeerRequest { is_forwarded: true, is_client_only: true, ..request };
        let peer_request = self.requests.add(request);
        self.send_request(peer_request, client);
    }

    /// Whether a client is attached and does not close the session.
    pub(super) fn is_staying(&self, client: ClientId) -> bool {
        self.subscribers.contains_key(&client) && !self.is_closing(client)
    }

    /// Answers requests that were sent only to this client, which leaves: files are served from the disk, others fail.
    pub(super) fn answer_without_client(&mut self, client: ClientId) {
        for peer_request in self.requests.forwarded_to(client) {
            self.cancel_request(peer_request, client);
            let Some(request) = self.requests.remove(peer_request) else { continue };
            let PeerRequest { id, method, params, is_client_only, .. } = request;
            if method.starts_with("fs/") && !is_client_only {
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
        let request = self.requests.get(peer_request).filter(|request| request.is_forwarded);
        let clients: Vec<_> =
            request.map(|request| request.clients.keys().copied().collect()).unwrap_or_default();
        clients.into_iter().for_each(|client| self.cancel_request(peer_request, client));
    }

    /// Sends a peer request to a client.
    pub(super) fn send_request(&mut self, peer_request: PeerRequestId, client: ClientId) {
        let from = self.agent_dialect();
        let Some(request) = self.requests.get(peer_request) else { return };
        let Some(subscriber) = self.subscribers.get(&client) else { return };
        let mut params = request.params.clone();
        if params.get("sessionId").is_some() {
            params.set("sessionId", subscriber.shown_in.as_ref().unwrap_or(&self.id).as_json());
        }
        if request.method == "elicitation/create"
            && !subscriber.client.elicits(params.get_string("mode").as_deref())
        {
            return self.apply_answer(peer_request, client, Answer::Error(cannot_ask()));
        }
        let to = subscriber.client.dialect;
        let transcript = self.session.transcript();
        let converted = live::request_to_client(
            &request.method,
            &request.id,
            &params,
            from,
            to,
            transcript,
            &mut self.losses,
        );
        match converted {
            Ok(params) => {
                let method = request.method.clone();
                let request = self.requests.on_sent(peer_request, client);
                self.send(client, Outgoing::Request { request, method, params });
            }
            // A client that cannot be sent the request counts as one that answered with an error.
            Err(_) => self.apply_answer(peer_request, client, Answer::Error(cannot_ask())),
        }
    }

    /// Cancels a request at a client.
    pub(super) fn cancel_request(&mut self, peer_request: PeerRequestId, client: ClientId) {
        if let Some(client_request) = self.requests.take_sending(peer_request, client) {
            self.send(client, Outgoing::CancelRequest(client_request));
        }
    }

    /// Handles an answer of a client, unless the request was cancelled at it meanwhile.
    pub(super) fn on_answer(&mut self, request: ClientRequestId, by: ClientId, answer: Answer) {
        if self.requests.is_asking(request, by) {
            self.apply_answer(request.peer_request, by, answer);
        }
    }

    fn apply_answer(&mut self, peer_request: PeerRequestId, by: ClientId, answer: Answer) {
        self.requests.take_sending(peer_request, by);
        let Some(request) = self.requests.get(peer_request) else { return };
        let from = self.subscribers.get(&by).map_or(Dialect::V2, |subscriber| subscriber.client.dialect);
        let to = self.agent.link().map_or(Dialect::V2, |link| link.agent.dialect);
        let answer = match answer {
            Answer::Result(result) => {
                Answer::Result(live::answer_to_agent(&request.method, &result, from, to, &mut self.losses))
            }
            Answer::Error(error) if !request.is_forwarded && is_left_open(&error) => Answer::LeftOpen,
            answer @ (Answer::Error(_) | Answer::LeftOpen) => answer,
        };
        if request.is_forwarded {
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
        let open = self.requests.get_mut(peer_request).filter(|request| !request.is_forwarded);
        let Some(request) = open else {
            return self.send_unattached(client.id, Frame::error(id, &not_open()));
        };
        request.decided_by = Some(client.decider());
        let result = live::answer_to_agent(&request.method, result, client.dialect, to, &mut self.losses);
        self.step(Input::RequestDecided { peer_request, by: client.id, result });
        self.respond(client, id, &Object::default());
    }

    /// Records a person's decision, durably, before the agent gets it.
    pub(super) fn record_decision(&mut self, peer_request: PeerRequestId, by: ClientId, result: &Json) {
        let Some(request) = self.requests.get(peer_request) else { return };
        let by = match (&request.decided_by, self.subscribers.get(&by)) {
            (Some(decider), _) => decider.clone(),
            (None, Some(subscriber)) => subscriber.client.decider(),
            (None, None) => Decider { client: by, name: None },
        };
        let decision = event::decision(&request.method, &request.params, result, by);
        self.step(Input::EventOccurred(decision));
        self.rows.dirty.durable = true;
    }

    /// Reports the open requests that any driver may answer, if they or the numbers of their clients are others than before.
    pub(super) fn report_open_requests(&mut self) {
        let open =
            self.requests.for_drivers().map(|(id, request)| (id, self.clients_with(request))).collect();
        if self.requests.report(open) {
            let reported = self.requests.for_drivers();
            let reported = reported.map(|(id, request)| self.open_request_info(id, request)).collect();
            self.output.open_requests = Some(reported);
        }
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
        let found =
            self.requests.find(id).map(|(peer_request, request)| (peer_request, request.is_forwarded));
        match found {
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

/// The error for an answer to a request that is not open.
fn not_open() -> RpcError {
    let data = Object::new().with("reason", "not_open");
    let error = RpcError::new(code::INVALID_PARAMS, "the request is not open: it was answered or cancelled");
    error.with_data(data.to_json())
}

/// The state of a session whose turn was cancelled.
pub(super) fn cancelled_state() -> State {
    let stop_reason = Some("cancelled".into());
    State { activity: Activity::Idle, stop_reason, fields: Object::default(), meta: None }
}
