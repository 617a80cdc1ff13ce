//! Prompts that a client sends into the running turn.

use parlor_dialect::live;
use parlor_json::{Json, JsonStr, Object};
use parlor_session::session::{ClientId, Input, Prompt, PromptId, PromptTiming, STEER_MARK, Scope};
use parlor_wire::{RpcError, code};

use super::{SessionMachine, params_for};
use crate::{AgentCall, AgentCommand, AgentLink, Capability};

/// The agents' method for a prompt in the running turn.
const METHOD: &str = "_session/steering";

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
        let agent = self.agent.as_ref().filter(|_| self.session.is_wanted_turn_running());
        let Some(AgentLink { agent, .. }) = agent else { return Ok(PromptTiming::Next) };
        if agent.has(Capability::Steering) {
            return Ok(PromptTiming::InTurn);
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

    /// Sends a prompt to the agent for its running turn.
    pub(super) fn steer(&mut self, prompt: &Prompt) {
        let Some(AgentLink { agent, session, .. }) = self.agent.clone() else { return };
        let content = live::prompt_to_agent(&prompt.content, agent.dialect, &mut self.losses);
        let mut params = params_for(&session);
        params.set("prompt", content);
        // Without a running turn, the agent must not start one by itself.
        let behavior = Object::new().with("idleBehavior", "promptRequired");
        params.set_nested("_meta", "steering", behavior.to_json());
        let (call, method) = (AgentCall::Steer(prompt.id), METHOD.to_owned());
        self.command(AgentCommand::Call { call, method, params });
    }

    pub(super) fn on_steer_response(&mut self, prompt: PromptId, reply: Result<Json, Json>) {
        self.flush_info();
        let outcome = reply.map(|result| result.to_object().unwrap_or_default().get_string("outcome"));
        let input = match outcome.as_ref().map(Option::as_deref) {
            Ok(Some("promptRequired")) => Input::NotSteered(prompt),
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
            Err(error) => Input::Rejected { prompt, error: error.clone() },
        };
        self.step(input);
    }
}
