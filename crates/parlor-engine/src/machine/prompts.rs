//! Checks and queues the prompts of clients, and answers them with their outcomes.

use std::sync::Arc;

use parlor_dialect::{Dialect, Losses, live};
use parlor_json::{Json, Object};
use parlor_session::session::{ClientId, Input, Prompt, PromptId, PromptOutcome, PromptTiming, STEER_MARK};
use parlor_session::{EventKind, Update};
use parlor_wire::{RequestId, RpcError, code};

use super::broadcast::BufferOffsets;
use super::prompt_requests::TakenPrompt;
use super::{SessionMachine, StepOffsets, steering};
use crate::{ClientInfo, Frame, fields};

impl SessionMachine {
    pub(super) fn on_prompt(&mut self, client: &Arc<ClientInfo>, id: RequestId, mut params: Object) {
        let content = params.remove("prompt").unwrap_or_else(Json::null);
        if let Err(error) = self.check_prompt(&content) {
            return self.send(client.id, Frame::error(&id, &error));
        }
        if let Some(error) = self.take_refusal() {
            return self.send(client.id, Frame::error(&id, &error));
        }
        let key = params.get_nested("_meta", "parlor/key").and_then(|key| key.to_json_str());
        let steer = params.get_nested("_meta", STEER_MARK);
        let timing = match self.prompt_timing(client.id, steer.as_ref(), key.as_ref()) {
            Ok(timing) => timing,
            Err(error) => return self.send(client.id, Frame::error(&id, &error)),
        };
        self.set_archived(false);
        params.remove("sessionId");
        // A server that acts as the agent would take a prompt that it dropped, and that is sent again, for the one it dropped.
        fields::keep_foreign_meta(&mut params);
        let prompt = self.prompts.add(client.id, id);
        let prompt = Prompt { id: prompt, by: client.id, content, extra: params, key, timing };
        self.step(Input::Prompted(prompt));
    }

    /// Rejects a prompt that is invalid, or of which the agent's protocol version supports nothing.
    pub(super) fn check_prompt(&self, content: &Json) -> Result<(), RpcError> {
        live::check_prompt(content).map_err(|problem| RpcError::new(code::INVALID_PARAMS, problem))?;
        let mut losses = Losses::default();
        let sent = live::prompt_to_agent(content, self.agent_dialect(), &mut losses);
        if sent.as_str() != "[]" {
            return Ok(());
        }
        let mut names: Vec<_> = losses.as_slice().iter().map(|loss| loss.kind.to_string()).collect();
        names.dedup();
        let mut data = Object::default();
        data.set("losses", Json::array(names));
        let message = "the agent's protocol version supports none of the prompt's content: send text";
        Err(RpcError::new(code::INVALID_PARAMS, message).with_data(data.to_json()))
    }

    /// A prompt without a request. If the agent rejects it, the transcript records that.
    pub(super) fn on_prompt_without_request(
        &mut self,
        client: &Arc<ClientInfo>,
        content: Json,
        answer: Option<(RequestId, Object)>,
    ) {
        if let Some((id, answer)) = answer {
            self.send(client.id, Frame::response(&id, &answer));
        }
        if let Some(error) = self.take_refusal() {
            return self.record_outcome(&PromptOutcome::Rejected { error: error.to_json(), by: None });
        }
        let prompt = self.prompts.add_without_request();
        let more = Object::default();
        let (key, timing) = (None, PromptTiming::InOrder);
        let prompt = Prompt { id: prompt, by: client.id, content, extra: more, key, timing };
        self.step(Input::Prompted(prompt));
    }

    pub(super) fn cancel_client_request(&mut self, client: ClientId, id: &RequestId) {
        match self.prompts.find(client, id) {
            Some(prompt) => self.step(Input::Withdrawn { prompt, by: client }),
            None => self.cancel_forwarded_call(client, id),
        }
    }

    pub(super) fn on_withdraw_prompt(&mut self, client: &Arc<ClientInfo>, id: &RequestId, prompt: PromptId) {
        if self.session.queued_prompts().iter().any(|held| held.id == prompt) {
            self.step(Input::Withdrawn { prompt, by: client.id });
            self.send(client.id, Frame::response(id, &Object::default()));
        } else {
            let message = "the prompt is not queued: it was sent to the agent, withdrawn, or never existed";
            let error = RpcError::new(code::INVALID_PARAMS, message);
            self.send(client.id, Frame::error(id, &error));
        }
    }

    /// Answers the request of a prompt with its outcome.
    pub(super) fn respond_prompt(
        &mut self,
        prompt: PromptId,
        client: ClientId,
        outcome: &PromptOutcome,
        offsets: &StepOffsets,
    ) {
        let TakenPrompt { request, is_without_request, is_steering } = self.prompts.take(prompt, client);
        if is_without_request {
            return self.record_outcome(outcome);
        }
        let Some(id) = request else { return };
        if is_steering {
            return self.send(client, steering::response(&id, outcome, self.session.transcript()));
        }
        let Some(subscriber) = self.subscribers.get(&client) else { return };
        let dialect = subscriber.client.dialect;
        let (line, place): (Frame, Option<&BufferOffsets>) = match outcome {
            PromptOutcome::Accepted { message, fields } => {
                let mut result = Object::default();
                match dialect {
                    Dialect::V2 => result.set("messageId", message.as_json()),
                    Dialect::V1 => result.set("stopReason", "end_turn"),
                    Dialect::Draft => {}
                }
                result.add_missing(fields);
                if dialect == Dialect::Draft {
                    result.remove("messageId");
                }
                // The response comes right before the message, and after the turn before it.
                let inserted = offsets.inserted.iter().find(|(inserted, _)| *inserted == prompt);
                (
                    Frame::response(&id, &result),
                    Some(inserted.map_or(&offsets.before, |(_, offsets)| offsets)),
                )
            }
            PromptOutcome::Ended { message, state, fields } => {
                let agent = self.decoder.dialect();
                match live::turn_result(state, fields, agent, &mut self.losses) {
                    Ok(mut result) => {
                        // v1 has no field for the message id; clients with seqs get it in `_meta`.
                        if subscriber.client.wants_seq {
                            result.set_nested("_meta", live::MESSAGE, message.as_json());
                        }
                        (Frame::response(&id, &result), Some(&offsets.ended))
                    }
                    Err(error) => (Frame::error(&id, &error), Some(&offsets.ended)),
                }
            }
            PromptOutcome::Withdrawn { by } if dialect == Dialect::V1 => {
                (Frame::response(&id, &cancelled(*by)), None)
            }
            PromptOutcome::Withdrawn { by } => {
                let message = self.withdrawn_by(*by, client);
                let error = RpcError::new(code::REQUEST_CANCELLED, message);
                (Frame::error(&id, &with_by(error, *by)), None)
            }
            PromptOutcome::Rejected { error, by } => {
                let error = RpcError::from_raw(error.raw());
                let is_cancelled = error.code() == code::REQUEST_CANCELLED;
                // An agent with a queue of its own reports a withdrawn prompt like this.
                if dialect == Dialect::V1 && is_cancelled {
                    (Frame::response(&id, &cancelled(*by)), None)
                } else {
                    let error = if is_cancelled { with_by(error, *by) } else { error };
                    (Frame::error(&id, &error), None)
                }
            }
            // The prompt itself may have crashed the agents.
            PromptOutcome::Failed(state) => {
                let failed =
                    live::turn_result(state, &Object::default(), self.decoder.dialect(), &mut self.losses);
                let gone = || RpcError::new(code::INTERNAL_ERROR, "the agent is gone");
                let error = failed.err().unwrap_or_else(gone);
                (Frame::error(&id, &error), None)
            }
            PromptOutcome::NoRoom(refused) => {
                let error = RpcError::new(
                    code::INTERNAL_ERROR,
                    format!("the session cannot store the prompt: {refused}"),
                );
                (Frame::error(&id, &error), None)
            }
            PromptOutcome::TooMany { limit } => {
                let message = format!("{limit} prompts wait in this session already: try again later");
                (Frame::error(&id, &RpcError::new(code::INTERNAL_ERROR, message)), None)
            }
        };
        self.send_at(client, line, place);
    }

    /// Answers the remaining prompts of a client that closes the session, as withdrawn. Their turns may continue: the agent may
    /// already have a prompt.
    pub(super) fn withdraw_prompts(&mut self, client: ClientId) {
        let left: Vec<_> = self.prompts.of(client).map(|(prompt, _)| prompt).collect();
        for prompt in left {
            self.respond_prompt(
                prompt,
                client,
                &PromptOutcome::Withdrawn { by: Some(client) },
                &StepOffsets::default(),
            );
        }
    }

    /// Answers the prompts of a client that detaches. They stay as they are.
    pub(super) fn leave_prompts(&mut self, client: &ClientInfo) {
        let left: Vec<_> = self.prompts.of(client.id).map(|(prompt, _)| prompt).collect();
        for prompt in left {
            let TakenPrompt { request: Some(id), is_steering, .. } = self.prompts.take(prompt, client.id)
            else {
                continue;
            };
            let frame = if client.dialect == Dialect::V1 && !is_steering {
                Frame::response(&id, &cancelled(Some(client.id)))
            } else {
                let message =
                    "the client detached from the session before the prompt was accepted; it stays queued";
                Frame::error(&id, &RpcError::new(code::REQUEST_CANCELLED, message))
            };
            self.send(client.id, frame);
        }
    }

    /// The message for the sender of a withdrawn prompt.
    fn withdrawn_by(&self, by: Option<ClientId>, sender: ClientId) -> String {
        let Some(by) = by.filter(|by| *by != sender) else { return "the prompt was withdrawn".to_owned() };
        let client = self.subscribers.get(&by).and_then(|subscriber| subscriber.client.decider().name);
        match client {
            Some(name) => format!("the prompt was withdrawn by another client ({name})"),
            None => "the prompt was withdrawn by another client".to_owned(),
        }
    }

    /// Records the failure of a prompt without a request, if it never got into the transcript.
    fn record_outcome(&mut self, outcome: &PromptOutcome) {
        let error = match outcome {
            PromptOutcome::Accepted { .. }
            | PromptOutcome::Ended { .. }
            | PromptOutcome::Withdrawn { .. }
            | PromptOutcome::Rejected { by: Some(_), .. }
            | PromptOutcome::Failed(_) => return,
            PromptOutcome::Rejected { error, .. } => RpcError::from_raw(error.raw()),
            PromptOutcome::NoRoom(refused) => {
                RpcError::new(code::INTERNAL_ERROR, format!("the session cannot store the prompt: {refused}"))
            }
            PromptOutcome::TooMany { limit } => {
                RpcError::new(code::INTERNAL_ERROR, format!("{limit} prompts wait in this session already"))
            }
        };
        // An agent with a queue of its own reports a withdrawn prompt like this.
        if error.code() == code::REQUEST_CANCELLED {
            return;
        }
        let failed = EventKind::TurnFailed { prompt: None, error: Some(error.to_json()) };
        self.step(Input::EventOccurred(failed));
        // A running turn is another one, and goes on.
        if !self.session.is_running() {
            self.step(Input::ServerUpdate(Update::State(live::failed_state(&error))));
        }
    }

    /// Counts the queued prompts for lists. The first prompt of an idle session is with the agent and waits for no other.
    pub(super) fn on_queue_changed(&mut self) {
        self.queue.on_changed();
        let queued = self.session.queued_prompts().len();
        let queued = if self.session.is_running() { queued } else { queued.saturating_sub(1) } as u64;
        if queued != self.rows.data.summary.queued {
            self.rows.data.summary.queued = queued;
            self.rows.on_data_changed();
        }
    }

    /// Sends the prompt queue to all drivers if it changed, else to those that attached.
    pub(super) fn send_queue_changes(&mut self) {
        let clients = self.queue.receivers(self.session.queued_prompts(), self.session.drivers());
        clients.into_iter().for_each(|client| self.send_queue_to(client));
    }

    fn send_queue_to(&mut self, client: ClientId) {
        if self.config.is_embedded {
            return;
        }
        let held: Vec<_> = self.session.queued_prompts();
        let list = held
            .iter()
            .map(|held| Object::new().with("id", held.id.0).with("text", &held.text).with("from", held.by.0));
        let meta = Object::new().with("parlor/queue", Json::array(list));
        let update = Object::new().with("sessionUpdate", "session_info_update").with("_meta", meta).text();
        // A client that catches up gets no number: it receives this later, when it has already reached a higher one.
        let is_numbered = self
            .subscribers
            .get(&client)
            .is_some_and(|subscriber| subscriber.client.wants_seq && subscriber.is_live());
        let seq = is_numbered.then(|| self.session.transcript().seq());
        self.send(client, Frame::updates(live::update_line(&self.id, &update, seq)));
    }
}

/// The v1 response to a cancelled prompt, with the client that cancelled it.
fn cancelled(by: Option<ClientId>) -> Object {
    let mut result = Object::default();
    result.set("stopReason", "cancelled");
    if let Some(by) = by {
        result.set_nested("_meta", "parlor/by", by.0);
    }
    result
}

/// The error of a prompt that was withdrawn, with the client that did so in its data.
fn with_by(error: RpcError, by: Option<ClientId>) -> RpcError {
    let Some(by) = by else { return error };
    let mut data = error.data().and_then(Json::to_object).unwrap_or_default();
    data.set("by", by.0);
    error.with_data(data.to_json())
}
