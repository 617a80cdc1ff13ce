//! What clients ask and only the agent can answer.

use std::sync::Arc;

use parlor_dialect::{Dialect, Losses, live};
use parlor_json::{Json, Object};
use parlor_session::session::{ClientId, Input};
use parlor_wire::{RequestId, RpcError, code, write};

use super::{Actor, AgentCall};
use crate::client::Client;
use crate::json;

/// How much may wait for an agent that is being brought back.
const MAX_WAITING: usize = 100;

/// Something for the agent, as a client said it; without an id it wants no answer.
#[derive(Debug)]
pub(super) struct Forward {
    client: Arc<Client>,
    id: Option<RequestId>,
    method: String,
    params: Object,
}

/// What the agent was asked for a client.
#[derive(Debug)]
pub(crate) struct Forwarded {
    pub(super) client: Arc<Client>,
    pub(super) id: RequestId,
    /// The method as the client called it.
    asked: String,
    /// The method and the params as the agent was asked.
    method: String,
    params: Object,
}

impl Actor {
    /// Passes on what only the agent can do. One that is not there is brought back for it.
    pub(super) fn forward(
        &mut self,
        client: Arc<Client>,
        id: Option<RequestId>,
        method: String,
        params: Object,
    ) {
        self.attach(&client);
        if method == "terminal/cancel"
            && let Some(id) = &id
            && self.agent_dialect() == Dialect::V1
        {
            let line = match self.cancel_terminal(&params) {
                Ok(()) => json::response(id, &Object::default()),
                Err(error) => json::error(id, &error),
            };
            return self.say(client.id, line);
        }
        let forward = Forward { client, id, method, params };
        if self.bound().is_some() {
            self.pass_on(forward);
        } else if self.waiting_calls.len() < MAX_WAITING {
            self.waiting_calls.push(forward);
            self.start_agent();
        } else {
            let error = RpcError::new(code::INTERNAL_ERROR, "too much waits for the agent: try again later");
            self.refuse(&forward, &error);
        }
    }

    /// The agent is there, or there is a reason why it is not: what waited for it goes on.
    pub(super) fn go_on_with_calls(&mut self, error: Option<&RpcError>) {
        for forward in std::mem::take(&mut self.waiting_calls) {
            match error {
                None => self.pass_on(forward),
                Some(error) => self.refuse(&forward, error),
            }
        }
    }

    /// The session ends: nobody takes part in it who could be told, so each is told by itself.
    pub(super) fn refuse_calls(&mut self, error: &RpcError) {
        for forward in std::mem::take(&mut self.waiting_calls) {
            if let Some(id) = &forward.id {
                forward.client.outbox.push(json::error(id, error).into());
            }
        }
    }

    /// A client does not want the answer any more. An agent that was asked decides what comes of it.
    pub(super) fn unforward(&mut self, client: ClientId, id: &RequestId) {
        let is_it = |waiting: &Forward| waiting.client.id == client && waiting.id.as_ref() == Some(id);
        if let Some(place) = self.waiting_calls.iter().position(is_it) {
            let forward = self.waiting_calls.remove(place);
            let error = RpcError::new(code::REQUEST_CANCELLED, "it was taken back");
            return self.refuse(&forward, &error);
        }
        if let (Some((agent, _)), Some(asked)) = (self.bound(), self.passed_on.get(&(client, id.clone()))) {
            agent.take_back(asked);
        }
    }

    fn refuse(&mut self, forward: &Forward, error: &RpcError) {
        if let Some(id) = &forward.id {
            self.say(forward.client.id, json::error(id, error));
        }
    }

    fn pass_on(&mut self, mut forward: Forward) {
        let Some((agent, session)) = self.bound() else { return };
        let agent = Arc::clone(agent);
        forward.params.set("sessionId", session.as_json());
        let transcript = Some(self.session.transcript());
        let mut losses = Losses::default();
        let (from, to) = (forward.client.dialect(), agent.dialect);
        let request =
            live::request_to_agent(&forward.method, &forward.params, from, to, transcript, &mut losses);
        let (method, params) = match request {
            Ok(request) => request,
            Err(loss) => {
                let message = format!("the agent's version of the protocol cannot be told this: {loss}");
                return self.refuse(&forward, &RpcError::new(code::METHOD_NOT_FOUND, message));
            }
        };
        let Some(id) = forward.id.clone() else { return agent.notify(&method, &params) };
        let call = AgentCall::Forwarded(Forwarded {
            client: Arc::clone(&forward.client),
            id: id.clone(),
            asked: forward.method.clone(),
            method: method.clone(),
            params: params.clone(),
        });
        match agent.call_for(&self.me, call, &method, &params) {
            Ok(asked) => drop(self.passed_on.insert((forward.client.id, id), asked)),
            Err(error) => self.refuse(&forward, &RpcError::from_raw(error.raw())),
        }
    }

    /// The agent answered what a client asked.
    pub(super) fn forwarded(&mut self, call: &Forwarded, reply: Result<Json, Json>) {
        let Forwarded { client, id, asked, method, params } = call;
        let client = client.id;
        self.passed_on.remove(&(client, id.clone()));
        let line = match reply {
            Err(error) => json::error(id, &RpcError::from_raw(error.raw())),
            Ok(result) => {
                let result = match parlor_json::type_of(result.raw()) {
                    parlor_json::Type::Object => json::object(Some(result.raw())),
                    parlor_json::Type::Null => Object::default(),
                    parlor_json::Type::Bool
                    | parlor_json::Type::Number
                    | parlor_json::Type::String
                    | parlor_json::Type::Array => {
                        let line = write::response(id, result.raw()) + "\n";
                        return self.say(client, line);
                    }
                };
                let sets = matches!(method.as_str(), "session/set_mode" | "session/set_config_option");
                self.learn(&result);
                if method == "session/set_mode"
                    && let Some(mode) = params.get("modeId")
                {
                    self.step(Input::Noted(live::mode_set(mode)));
                }
                let mut said = result.clone();
                if sets && let Some(seat) = self.seats.get_mut(&client) {
                    let fields = seat.listener.session_fields(self.session.transcript(), &mut self.losses);
                    said.remove("modes");
                    said.remove("configOptions");
                    // Who sets a mode the way of v1 is told no options.
                    if asked != "session/set_mode"
                        && let Some(options) = fields.get("configOptions")
                    {
                        said.set("configOptions", options.clone());
                    }
                }
                if said.get("sessionId").is_some() {
                    said.set("sessionId", self.id.as_json());
                }
                json::response(id, &said)
            }
        };
        self.say(client, line);
    }
}
