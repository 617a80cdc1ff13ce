//! Prompts that a client sends into the running turn.

use std::sync::Arc;

use parlor_dialect::live;
use parlor_json::{Json, JsonStr, Object};
use parlor_session::session::{
    ClientId, Input, Prompt, PromptId, PromptOutcome, PromptTiming, STEER_MARK, Scope, is_steered,
};
use parlor_session::{EntryId, Role, Transcript};
use parlor_wire::{RequestId, RpcError, code};

use super::prompt_requests::IdleBehavior;
use super::{SessionMachine, params_for};
use crate::{AgentCall, AgentCommand, AgentLink, Capability, ClientInfo, Frame};

/// The method for a prompt in the running turn, of agents and of clients that know it.
pub const STEER: &str = "_session/steering";

impl SessionMachine {
    /// When the agent is to get a prompt with this value of `parlor/steer`. With an agent that does not accept prompts in its
    /// turn, the value `"cancel"` cancels the turn.
    pub(super) fn prompt_timing(
        &mut self,
        client: ClientId,
        steer: Option<&Json>,
        key: Option<&JsonStr>,
    ) -> Result<PromptTiming, RpcError> {
        let cancels = match steer.map(Json::as_str) {
            None | Some("false" | "null") => return Ok(PromptTiming::InOrder),
            Some("true") => false,
            Some(r#""cancel""#) => true,
            Some(_) => {
                let message = format!("`{STEER_MARK}` must be true or \"cancel\"");
                return Err(RpcError::new(code::INVALID_PARAMS, message));
            }
        };
        // A prompt that is sent again may already be the running one.
        if key.is_some_and(|key| self.session.has_prompt_key(key)) {
            return Ok(PromptTiming::InOrder);
        }
        let agent = self.agent.link().filter(|_| self.session.is_wanted_turn_running());
        let Some(AgentLink { agent, .. }) = agent else { return Ok(PromptTiming::Next) };
        if agent.has(Capability::Steering) {
            let has_turn = self.session.has_turn_to_steer();
            return Ok(if has_turn { PromptTiming::InTurn } else { PromptTiming::Next });
        }
        if !cancels {
            let message = format!(
                "agent '{}' accepts no prompts while it works: queue the prompt, or cancel the turn and send it",
                agent.label
            );
            let data = Object::new().with("reason", "no_steering");
            return Err(RpcError::new(code::INVALID_PARAMS, message).with_data(data.to_json()));
        }
        self.step(Input::Cancelled { by: client, scope: Scope::Prompt });
        Ok(PromptTiming::Next)
    }

    /// A `_session/steering` of a client: a prompt for the running turn with another response.
    pub(super) fn on_steer(&mut self, client: &Arc<ClientInfo>, id: RequestId, mut params: Object) {
        let content = params.remove("prompt").unwrap_or_else(Json::null);
        let steering = params.get_nested("_meta", "steering").and_then(|steering| steering.to_object());
        let behavior = steering.and_then(|steering| steering.get_string("idleBehavior"));
        let behavior = match behavior.as_deref() {
            Some("promptRequired") => IdleBehavior::PromptRequired,
            Some(_) | None => IdleBehavior::StartTurn,
        };
        let timing = self
            .check_prompt(&content)
            .and_then(|()| self.prompt_timing(client.id, Some(&Json::from(true)), None))
            .and_then(|timing| self.take_refusal().map_or(Ok(timing), Err));
        match timing {
            Err(error) => self.send(client.id, Frame::error(&id, &error)),
            Ok(PromptTiming::InTurn) => {
                let prompt = self.prompts.add_steering(client.id, id, behavior);
                let (extra, key, timing) = (Object::default(), None, PromptTiming::InTurn);
                let prompt = Prompt { id: prompt, by: client.id, content, extra, key, timing };
                self.step(Input::Prompted(prompt));
            }
            Ok(PromptTiming::Next | PromptTiming::InOrder) if behavior == IdleBehavior::PromptRequired => {
                self.send(client.id, Frame::response(&id, &outcome("promptRequired")));
            }
            Ok(PromptTiming::Next | PromptTiming::InOrder) => {
                self.on_prompt_without_request(client, content, Some((id, outcome("startedNewTurn"))));
            }
        }
    }

    /// Answers a `_session/steering` that has no response yet.
    fn respond_steer(&mut self, prompt: PromptId, result: &Object) {
        if let Some((client, id)) = self.prompts.take_steering(prompt) {
            self.send(client, Frame::response(&id, result));
        }
    }

    /// Gives a prompt whose turn has ended back to the client, which asked for that.
    fn give_back(&mut self, prompt: PromptId) {
        self.respond_steer(prompt, &outcome("promptRequired"));
        let error = RpcError::new(code::REQUEST_CANCELLED, "the turn has ended").to_json();
        self.step(Input::Rejected { prompt, error });
        // After a power cut it would be queued again, and the client may have sent it once more.
        self.rows.dirty.durable = true;
    }

    /// Gives the prompts back that clients wanted in the turn of a lost agent and in no other.
    pub(super) fn give_back_all(&mut self) {
        let mut prompts = self.prompts.for_this_turn_only();
        prompts.retain(|prompt| self.session.is_being_steered(*prompt));
        prompts.into_iter().for_each(|prompt| self.give_back(prompt));
    }

    /// Sends a prompt to the agent for its running turn.
    pub(super) fn steer(&mut self, prompt: &Prompt) {
        let Some(AgentLink { agent, session, .. }) = self.agent.link().cloned() else { return };
        let content = live::prompt_to_agent(&prompt.content, agent.dialect, &mut self.losses);
        let mut params = params_for(&session);
        params.set("prompt", content);
        // Without a running turn, the agent must not start one by itself.
        let behavior = Object::new().with("idleBehavior", "promptRequired");
        params.set_nested("_meta", "steering", behavior.to_json());
        let (call, method) = (AgentCall::Steer(prompt.id), STEER.to_owned());
        self.command(AgentCommand::Call { call, method, params });
    }

    pub(super) fn on_steer_response(&mut self, prompt: PromptId, reply: Result<Json, Json>) {
        self.flush_info();
        let [started, injected] = ["startedNewTurn", "injected"].map(outcome);
        let outcome = reply.map(|result| result.to_object().unwrap_or_default().get_string("outcome"));
        let input = match outcome.as_ref().map(Option::as_deref) {
            Ok(Some("promptRequired")) => match self.prompts.idle_behavior(prompt) {
                Some(IdleBehavior::PromptRequired) => return self.give_back(prompt),
                Some(IdleBehavior::StartTurn) | None => {
                    self.respond_steer(prompt, &started);
                    Input::NotSteered(prompt)
                }
            },
            Ok(Some("failed")) => {
                let error =
                    RpcError::new(code::INTERNAL_ERROR, "the agent could not take the prompt into its turn");
                Input::Rejected { prompt, error: error.to_json() }
            }
            // Also a new turn, which an agent may start against the request.
            Ok(_) => {
                self.decoder.on_turn_boundary();
                Input::Steered(prompt)
            }
            // An agent may drop it with a turn that was cancelled.
            Err(error) if RpcError::from_raw(error.raw()).code() == code::REQUEST_CANCELLED => {
                Input::Dropped { prompt, error: error.clone() }
            }
            Err(error) => Input::Rejected { prompt, error: error.clone() },
        };
        let is_steered = matches!(input, Input::Steered(_));
        self.step(input);
        // A client of version 1 gets the response to a prompt at the end of the turn, but to this request now.
        if is_steered {
            self.respond_steer(prompt, &injected);
        }
    }
}

/// The response to a `_session/steering` whose prompt has this outcome.
pub(super) fn response(id: &RequestId, of: &PromptOutcome, transcript: &Transcript) -> Frame {
    match of {
        PromptOutcome::Accepted { message, .. } | PromptOutcome::Ended { message, .. } => {
            // It is the prompt of a turn of its own if the agent was lost.
            let entry = transcript.get(&EntryId::Message(Role::User, message.clone()));
            let name = if entry.is_some_and(is_steered) { "injected" } else { "startedNewTurn" };
            Frame::response(id, &outcome(name))
        }
        PromptOutcome::Rejected { error, .. } => Frame::error(id, &RpcError::from_raw(error.raw())),
        PromptOutcome::Withdrawn { .. } => {
            Frame::error(id, &RpcError::new(code::REQUEST_CANCELLED, "the prompt was withdrawn"))
        }
        PromptOutcome::Failed(_) | PromptOutcome::NoRoom(_) | PromptOutcome::TooMany { .. } => {
            Frame::response(id, &outcome("failed"))
        }
    }
}

/// The result of `_session/steering`.
fn outcome(name: &str) -> Object {
    Object::new().with("outcome", name)
}
