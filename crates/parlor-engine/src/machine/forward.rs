//! Requests of clients that only the agent can answer.

use std::sync::Arc;

use parlor_dialect::settings::{self, Setting};
use parlor_dialect::{Dialect, live};
use parlor_json::{Json, Object};
use parlor_session::session::{ClientId, Input};
use parlor_wire::{RequestId, RpcError, code};

use super::SessionMachine;
use crate::{AgentCall, AgentCommand, ClientInfo, ForwardedCall, Frame};

/// A request of a client for the agent; without an id it is a notification.
#[derive(Debug)]
pub(super) struct WaitingCall {
    client: Arc<ClientInfo>,
    id: Option<RequestId>,
    method: String,
    params: Object,
}

impl SessionMachine {
    /// Forwards a request to the agent, which is restored for that if it has to be.
    pub(super) fn on_forward(
        &mut self,
        client: Arc<ClientInfo>,
        id: Option<RequestId>,
        method: String,
        params: Object,
    ) {
        if method == "terminal/cancel"
            && let Some(id) = &id
            && self.agent_dialect() == Dialect::V1
        {
            let line = match self.cancel_terminal(&params) {
                Ok(()) => Frame::response(id, &Object::default()),
                Err(error) => Frame::error(id, &error),
            };
            return self.send(client.id, line);
        }
        let forward = WaitingCall { client, id, method, params };
        if self.agent.is_bound() {
            self.forward_to_agent(forward);
        } else if self.waiting_calls.len() < self.config.limits.waiting_calls {
            self.waiting_calls.push(forward);
            self.start_agent();
        } else {
            let error =
                RpcError::new(code::INTERNAL_ERROR, "too many requests wait for the agent: try again later");
            self.refuse_call(&forward, &error);
        }
    }

    /// Forwards the requests that waited for the agent, or answers them with the error.
    pub(super) fn resume_calls(&mut self, error: Option<&RpcError>) {
        for forward in std::mem::take(&mut self.waiting_calls) {
            match error {
                None => self.forward_to_agent(forward),
                Some(error) => self.refuse_call(&forward, error),
            }
        }
    }

    /// Answers the requests that wait for the agent when the session ends.
    pub(super) fn refuse_calls(&mut self, error: &RpcError) {
        for forward in std::mem::take(&mut self.waiting_calls) {
            if let Some(id) = &forward.id {
                self.send_unattached(forward.client.id, Frame::error(id, error));
            }
        }
    }

    /// A client cancels its request. If the agent has it, the agent decides how it ends.
    pub(super) fn cancel_forwarded_call(&mut self, client: ClientId, id: &RequestId) {
        let is_it = |waiting: &WaitingCall| waiting.client.id == client && waiting.id.as_ref() == Some(id);
        if let Some(place) = self.waiting_calls.iter().position(is_it) {
            let forward = self.waiting_calls.remove(place);
            let error = RpcError::new(code::REQUEST_CANCELLED, "the request was cancelled");
            return self.refuse_call(&forward, &error);
        }
        self.command(AgentCommand::CancelForwarded(client, id.clone()));
    }

    fn refuse_call(&mut self, forward: &WaitingCall, error: &RpcError) {
        if let Some(id) = &forward.id {
            self.respond_to(forward.client.id, Frame::error(id, error));
        }
    }

    fn forward_to_agent(&mut self, mut forward: WaitingCall) {
        let Some(link) = self.agent.link() else { return };
        let to = link.agent.dialect;
        forward.params.set("sessionId", link.session.as_json());
        if forward.method == "tool_call/cancel"
            && let Some(call) = forward.params.get_json_str("toolCallId")
        {
            let agents = self.session.id_map().agents_tool_call(&call.into());
            forward.params.set("toolCallId", agents.as_json());
        }
        let transcript = Some(self.session.transcript());
        let from = forward.client.dialect;
        let request =
            live::request_to_agent(&forward.method, &forward.params, from, to, transcript, &mut self.losses);
        let (method, params) = match request {
            Ok(request) => request,
            Err(loss) => {
                self.losses.add(loss);
                let error = loss.request_error("agent", &forward.method);
                return self.refuse_call(&forward, &error);
            }
        };
        let Some(id) = forward.id else { return self.command(AgentCommand::Notify { method, params }) };
        let call = AgentCall::Forwarded(ForwardedCall {
            client: forward.client.id,
            id,
            asked: forward.method,
            method: method.clone(),
            params: params.clone(),
        });
        self.command(AgentCommand::Call { call, method, params });
    }

    /// The agent answered a forwarded request.
    pub(super) fn on_forwarded_response(&mut self, call: &ForwardedCall, reply: Result<Json, Json>) {
        let ForwardedCall { client, id, asked, method, params } = call;
        let client = *client;
        let line = match reply {
            Err(error) => Frame::error(id, &RpcError::from_raw(error.raw())),
            Ok(result) => {
                let result = match result.type_of() {
                    parlor_json::Type::Object => result.to_object().unwrap_or_default(),
                    // Some agents answer so where the protocol has an object.
                    parlor_json::Type::Null if !method.starts_with('_') => Object::default(),
                    parlor_json::Type::Null
                    | parlor_json::Type::Bool
                    | parlor_json::Type::Number
                    | parlor_json::Type::String
                    | parlor_json::Type::Array => {
                        return self.respond_to(client, Frame::result(id, &result));
                    }
                };
                let sets_option = method == "session/set_config_option";
                let chosen = match result.get("configOptions") {
                    None if sets_option => settings::option_chosen(self.session.transcript(), params),
                    Some(_) | None => settings::chosen_by(method, params),
                };
                let sets = sets_option || chosen.is_some();
                if let Some(setting) = Setting::set_by(method, params, self.session.transcript()) {
                    self.on_setting_chosen(&setting);
                }
                self.apply_reported_settings(&result);
                if let Some(update) = chosen {
                    self.step(Input::ServerUpdate(update));
                }
                let mut response = result.clone();
                if sets && let Some(subscriber) = self.subscribers.get_mut(&client) {
                    let fields =
                        subscriber.encoder.session_fields(self.session.transcript(), &mut self.losses);
                    response.remove("modes");
                    response.remove("models");
                    response.remove("configOptions");
                    // The v1 requests for modes and models have no options in their responses.
                    if asked == "session/set_config_option"
                        && let Some(options) = fields.get("configOptions")
                    {
                        response.set("configOptions", options.clone());
                    }
                }
                if response.get("sessionId").is_some() {
                    response.set("sessionId", self.id.as_json());
                }
                Frame::response(id, &response)
            }
        };
        self.respond_to(client, line);
    }

    /// Responds to a client in order with its updates, or directly if it is not attached.
    fn respond_to(&mut self, client: ClientId, frame: Frame) {
        if self.subscribers.contains_key(&client) {
            self.send(client, frame);
        } else {
            self.send_unattached(client, frame);
        }
    }
}
