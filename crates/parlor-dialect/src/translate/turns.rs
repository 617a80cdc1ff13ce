//! Turns between dialects. In v1 a turn is a prompt without a response; in v2 a prompt is answered when it is
//! accepted, and states report the turn.
//!
//! [`parlor_session::turns`] tracks the prompts; this module sends the client the responses, messages and states that
//! follow.

use std::collections::VecDeque;
use std::sync::Arc;

use parlor_json::{Json, Object};
use parlor_session::turns::{Candidate, Claim, OpenPrompts, Pattern, PromptId};
use parlor_session::{Activity, IdSource, MessageId, State, Update};
use parlor_wire::{Message, Outcome, RequestId, RpcError, code, write};

use super::notification;
use super::session::{LineExtras, SessionOutput, TranslatedSession};
use crate::encode::update_writer;
use crate::encode::v2;
use crate::fold::GeneratedIds;
use crate::values::turn_end;
use crate::{Dialect, LossKind, Losses, Side, json_ext};

/// Maximum number of messages with two ids. The oldest are dropped.
const MAX_ALIASES: usize = 1000;

/// The turns of a session.
#[derive(Debug, Default)]
pub(super) struct Turns {
    pub(super) prompts: OpenPrompts<ClientPrompt>,
    /// Number of prompts so far.
    sent: u64,
    /// The message of the running turn's prompt, while a v1 agent may repeat it: until any other output.
    pub(super) echo: Option<(MessageId, Arc<Pattern>)>,
    /// A user message of the agent that may be a prompt.
    pub(super) candidate: Option<Candidate>,
    /// The extras of the lines whose updates are held back, in the same order.
    pub(super) held: Vec<LineExtras>,
    /// Number of unanswered requests of the agent to people.
    blocked: usize,
    /// Whether the agent reported `requires_action` and has not sent a request since.
    requires_action_without_request: bool,
    /// The client's ids of messages with the agent's, where they differ.
    aliases: VecDeque<(MessageId, MessageId)>,
}

/// The data that a translator keeps with an open prompt.
#[derive(Debug)]
pub(super) struct ClientPrompt {
    pub(super) request: RequestId,
    pub(super) content: Json,
    /// The id for its message if the agent gives none.
    pub(super) own_id: MessageId,
}

impl SessionOutput<'_> {
    pub(super) fn send(&mut self, text: String) {
        self.out.say(Side::Agent, text);
    }

    fn state(&mut self, activity: Activity) {
        self.idle(&State::new(activity));
    }

    fn idle(&mut self, state: &State) {
        self.send(notification(
            self.id,
            &v2::state_writer(state, self.agent.to).finish(),
            &LineExtras::default(),
        ));
    }

    /// The response to a v2 or draft client whose prompt is inserted.
    pub(super) fn accept(&mut self, request: &RequestId, message: &MessageId, mut fields: Object) {
        fields.remove("messageId");
        if self.agent.to == Dialect::V2 {
            fields = json_ext::in_front(&fields, "messageId", message.as_json());
        }
        self.send(write::response(request, fields.to_json().raw()));
    }

    pub(super) fn user_message(&mut self, id: &MessageId, content: &Json) {
        let update = update_writer("user_message").json_str("messageId", id.as_json());
        let update = update.raw("content", content.as_str()).finish();
        self.send(notification(self.id, &update, &LineExtras::default()));
    }

    /// Starts the turn of a v1 agent: the client gets its response and the message.
    fn begin(&mut self, prompt: &ClientPrompt, activity: Activity) {
        self.accept(&prompt.request, &prompt.own_id, Object::default());
        self.user_message(&prompt.own_id, &prompt.content);
        self.state(activity);
    }
}

impl Turns {
    /// The agent's id of a message of the client.
    pub(super) fn agents_id(&self, id: &MessageId) -> Option<&MessageId> {
        let candidate = self.candidate.as_ref();
        let repeated = candidate.filter(|candidate| candidate.claims() == [Claim::Message(id.clone())]);
        let name = || self.aliases.iter().rev().find(|(ours, _)| ours == id).map(|(_, theirs)| theirs);
        repeated.and_then(|candidate| candidate.message.as_ref()).or_else(name)
    }

    /// Adds the agent's id of a message that differs from the client's.
    pub(super) fn add_alias(&mut self, ours: MessageId, theirs: MessageId) {
        if self.aliases.len() >= MAX_ALIASES {
            self.aliases.pop_front();
        }
        self.aliases.push_back((ours, theirs));
    }

    /// Whether a v1 client can derive a state. `requires_action` follows from the request that accompanies it, which
    /// may come after it: if none came before the next state, the loss is reported then.
    pub(super) fn implies(&mut self, state: &State, losses: &mut Losses) -> bool {
        if std::mem::take(&mut self.requires_action_without_request) {
            losses.add(LossKind::State);
        }
        let is_turn = !self.prompts.all.is_empty();
        let is_known = is_turn && state.meta.is_none() && state.fields.is_empty();
        match state.activity {
            Activity::Running => is_known,
            Activity::RequiresAction => {
                self.requires_action_without_request = is_known && self.blocked == 0;
                is_known
            }
            Activity::Idle => is_turn,
            Activity::Other(_) => false,
        }
    }

    /// Tracks a request of the agent to people.
    pub(super) fn block(&mut self, out: &mut SessionOutput<'_>) {
        self.blocked += 1;
        self.requires_action_without_request = false;
        if out.agent.from == Dialect::V1 {
            out.state(Activity::RequiresAction);
        }
    }

    /// Tracks a response to the agent.
    pub(super) fn unblock(&mut self, out: &mut SessionOutput<'_>) {
        self.blocked = self.blocked.saturating_sub(1);
        if out.agent.from == Dialect::V1 && self.blocked == 0 {
            out.state(self.activity());
        }
    }

    /// The activity of a session of a v1 agent.
    fn activity(&self) -> Activity {
        match (self.blocked, self.prompts.all.is_empty()) {
            (1.., _) => Activity::RequiresAction,
            (0, false) => Activity::Running,
            (0, true) => Activity::Idle,
        }
    }
}

impl TranslatedSession {
    /// Handles a prompt of the client.
    pub(super) fn on_prompt(&mut self, request: &RequestId, content: &Json, out: &mut SessionOutput<'_>) {
        self.decoder.on_turn_boundary();
        self.stale.clear();
        let is_v1 = out.agent.from == Dialect::V1;
        // A v1 agent never gives an id for its prompt's message, so that the client gets this id at once.
        let own_id = if is_v1 {
            self.generated.new_id(&self.transcript, "parlor", out.generated)
        } else {
            GeneratedIds::unused_id(&self.transcript, "parlor", out.generated)
        };
        let prompt = ClientPrompt { request: request.clone(), content: content.clone(), own_id };
        let turns = &mut self.turns;
        turns.sent += 1;
        turns.prompts.push(PromptId(turns.sent), content, prompt);
        if !is_v1 {
            turns.prompts.send_queued(self.transcript.state().is_none_or(|state| !state.activity.is_busy()));
        } else if turns.prompts.running().is_none() {
            // A v1 agent does not report when it starts a prompt: at once, or after the running turn.
            self.begin_turn(out);
        }
    }

    /// Starts the turn of the next queued prompt of a v1 agent.
    fn begin_turn(&mut self, out: &mut SessionOutput<'_>) {
        let activity = self.turns.activity();
        let Some(prompt) = self.turns.prompts.all.first_mut() else { return };
        prompt.insert(prompt.own_id.clone());
        self.turns.echo = Some((prompt.own_id.clone(), prompt.pattern.clone()));
        out.begin(prompt, activity);
    }

    /// Handles the agent's response to a prompt.
    pub(super) fn on_prompt_response(
        &mut self,
        message: &Message<'_>,
        request: &RequestId,
        outcome: Outcome<'_>,
        out: &mut SessionOutput<'_>,
    ) {
        if out.agent.from == Dialect::V1 {
            self.end_echo(out);
        }
        self.decoder.on_turn_boundary();
        let prompt = self.turns.prompts.all.iter().find(|prompt| prompt.request == *request);
        let Some(prompt) = prompt.map(|prompt| prompt.id) else {
            // The client has no response if its prompt could not be converted, and has one if its turn has ended.
            if out.agent.from == Dialect::V1 || matches!(outcome, Outcome::Error(_)) {
                out.send(message.text().to_owned());
            }
            return;
        };
        match outcome {
            _ if out.agent.from == Dialect::V1 => self.on_v1_response(prompt, message, outcome, out),
            Outcome::Result(result) => {
                self.on_acceptance(prompt, message, Object::parse(result).unwrap_or_default(), out);
            }
            Outcome::Error(error) => {
                self.turns.prompts.remove(prompt);
                let is_cancelled = RpcError::from_raw(error).code() == code::REQUEST_CANCELLED;
                if out.agent.to == Dialect::V1 && is_cancelled {
                    out.send(write::response(
                        request,
                        Object::new().with("stopReason", "cancelled").to_json().raw(),
                    ));
                } else {
                    out.send(message.text().to_owned());
                }
            }
        }
        self.review_candidate(out);
    }

    /// Handles a v1 agent's response to a prompt, which ends its turn, or rejects it while another turn is running.
    fn on_v1_response(
        &mut self,
        prompt: PromptId,
        message: &Message<'_>,
        outcome: Outcome<'_>,
        out: &mut SessionOutput<'_>,
    ) {
        let Some(prompt) = self.turns.prompts.remove(prompt) else { return };
        let (idle, agents_id) = turn_end::idle_and_message(outcome);
        if !prompt.is_inserted() {
            if matches!(outcome, Outcome::Error(_)) {
                return out.send(message.text().to_owned());
            }
            if idle.stop_reason.as_ref().is_some_and(|reason| reason.to_text() == "cancelled") {
                let error = RpcError::new(code::REQUEST_CANCELLED, "the prompt was withdrawn");
                return out.send(write::error_response(&prompt.request, &error));
            }
            // The agent runs several prompts at once.
            out.begin(&prompt, Activity::Running);
        }
        if let Some(agents_id) = agents_id {
            self.turns.add_alias(prompt.own_id.clone(), agents_id);
        }
        out.idle(&idle);
        let is_running = self.turns.prompts.running().is_some();
        if !is_running && !self.turns.prompts.all.is_empty() {
            self.begin_turn(out);
        } else if is_running || self.turns.blocked > 0 {
            out.state(self.turns.activity());
        }
    }

    /// Sends the client updates that were held back.
    pub(super) fn send_held(&mut self, updates: Vec<(Update, IdSource)>, out: &mut SessionOutput<'_>) {
        let held = std::mem::take(&mut self.turns.held);
        for ((update, id_source), extras) in updates.into_iter().zip(held) {
            let sent = self.send_update(update, id_source, &extras, out);
            out.out.problems.extend(sent.err());
        }
    }
}
