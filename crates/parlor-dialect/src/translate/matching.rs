//! Matches user messages of an agent with prompts, and states of a v2 or draft agent with the ends of their turns.

use std::mem;

use parlor_json::Object;
use parlor_session::turns::{Candidate, Claim, MatchRule, PromptId, PromptState, is_output, user_message};
use parlor_session::{Activity, EntryId, IdSource, MessageId, Patch, Role, State, Update};
use parlor_wire::{Message, write};

use super::envelope;
use super::session::{LineExtras, SessionOutput, TranslatedSession};
use crate::Dialect;
use crate::values::turn_end;

impl TranslatedSession {
    /// Inserts the prompts that an update decides. Returns the update unless it is held back because it may be a
    /// prompt.
    pub(super) fn without_prompts(
        &mut self,
        update: Update,
        id_source: IdSource,
        extras: &mut LineExtras,
        out: &mut SessionOutput<'_>,
    ) -> Option<Update> {
        if let Update::State(state) = &update {
            self.on_state(state, out);
        }
        // The prompt response of a draft client has no message id, so that no message needs to be found.
        let needs_no_message = out.agent.from != Dialect::V1 && out.agent.to == Dialect::Draft;
        let id = user_message(&update).cloned();
        // A v1 agent's prompt is matched by its text alone, whatever id the agent uses.
        let by_text = id.is_some() && self.turns.echo.is_some();
        if needs_no_message || !(by_text || is_output(&update, &self.transcript)) {
            return Some(update);
        }
        let is_note = matches!(update, Update::Note { .. });
        let is_same = |candidate: &Candidate| id.as_ref().is_some_and(|id| candidate.is_of(id, id_source));
        if !self.turns.candidate.as_ref().is_none_or(is_same) {
            self.decide_candidate(out);
        }
        let other = match &id {
            Some(id) => self.user_message(update, id_source, id, extras, out),
            None => Some(update),
        };
        // A v1 agent repeats its prompt before any other output.
        if self.turns.candidate.is_none() && !is_note {
            self.turns.echo = None;
        }
        other
    }

    /// Handles an update of a user message that is new, or may be a prompt by its text.
    fn user_message(
        &mut self,
        update: Update,
        id_source: IdSource,
        id: &MessageId,
        extras: &mut LineExtras,
        out: &mut SessionOutput<'_>,
    ) -> Option<Update> {
        let is_v1 = out.agent.from == Dialect::V1;
        if let Update::Upsert { upsert, .. } = &update
            && (is_v1 || !upsert.content.is_omitted())
        {
            self.decide_candidate(out);
            let content = if let Patch::Value(content) = &upsert.content { Some(content) } else { None };
            let equal = content.and_then(|content| self.turns.prompts.equal_to(content));
            let prompt = equal.or_else(|| self.turns.prompts.accepted().first().copied());
            prompt.into_iter().for_each(|prompt| self.insert(prompt, id.clone(), out));
            return Some(update);
        }
        let rule = if is_v1 { MatchRule::EqualText } else { MatchRule::Equal };
        let known = self.turns.candidate.take();
        let claims = self.turns.prompts.claims(self.turns.echo.iter().cloned(), rule);
        let new = || self.turns.prompts.candidate(id, id_source, &claims, rule);
        let Some(mut candidate) = known.or_else(new) else { return Some(update) };
        let other = candidate.on_update(update, id_source, extras.len(), &claims);
        let is_decided = other.is_some() || candidate.is_certain();
        self.turns.candidate = Some(candidate);
        if other.is_none() {
            // The next chunk without an id belongs to the same message.
            self.decoder.on_message_applied(Role::User, id, id_source);
            self.turns.held.push(mem::take(extras));
        }
        if is_decided {
            self.decide_candidate(out);
        }
        other
    }

    /// Decides about the updates held back: nothing that follows repeats the prompt of a v1 agent.
    pub(super) fn end_echo(&mut self, out: &mut SessionOutput<'_>) {
        self.decide_candidate(out);
        self.turns.echo = None;
    }

    /// Decides whether the candidate is a prompt, and sends its updates to the client unless a v1 agent only repeats
    /// the prompt.
    fn decide_candidate(&mut self, out: &mut SessionOutput<'_>) {
        let Some(mut candidate) = self.turns.candidate.take() else { return };
        self.turns.echo = None;
        self.turns.prompts.narrow(&mut candidate);
        // Only an agent that gives ids has several prompts here.
        let prompt = match candidate.claims().pop() {
            Some(Claim::Prompt(prompt)) => Some(prompt),
            // A v1 agent repeats the prompt, which the client has.
            Some(Claim::Message(message)) => {
                self.turns.held.clear();
                candidate
                    .message
                    .clone()
                    .into_iter()
                    .for_each(|id| self.turns.add_alias(message.clone(), id));
                return;
            }
            None => candidate.otherwise,
        };
        let inserted = prompt.zip(candidate.message.clone());
        inserted.into_iter().for_each(|(prompt, message)| self.insert(prompt, message, out));
        self.send_held(candidate.into_updates(), out);
    }

    /// Decides about the candidate if the agent has none of its prompts any more.
    pub(super) fn review_candidate(&mut self, out: &mut SessionOutput<'_>) {
        let candidate = self.turns.candidate.as_mut();
        if candidate.is_some_and(|candidate| !self.turns.prompts.narrow(candidate)) {
            self.decide_candidate(out);
        }
    }

    /// Handles the acceptance of a prompt by a v2 or draft agent.
    pub(super) fn on_acceptance(
        &mut self,
        prompt: PromptId,
        message: &Message<'_>,
        mut fields: Object,
        out: &mut SessionOutput<'_>,
    ) {
        if out.agent.to == Dialect::Draft {
            fields.remove("messageId");
            out.send(envelope(message, None, &[("result", fields.to_json().as_str())]));
            self.turns.prompts.remove(prompt);
            return;
        }
        let named = fields.get_json_str("messageId").map(MessageId::from);
        self.turns.prompts.get_mut(prompt).into_iter().for_each(|open| open.accept(fields.clone()));
        let Some(named) = named else { return self.respond_if_inserted(prompt, out) };
        self.insert(prompt, named.clone(), out);
        if let Some(candidate) =
            self.turns.candidate.take_if(|candidate| candidate.message.as_ref() == Some(&named))
        {
            self.send_held(candidate.into_updates(), out);
        }
    }

    /// Marks a prompt as inserted with this message.
    fn insert(&mut self, prompt: PromptId, message: MessageId, out: &mut SessionOutput<'_>) {
        let Some(open) = self.turns.prompts.get_mut(prompt) else { return };
        if out.agent.to == Dialect::V1 {
            self.peer.sent(&message, &open.content);
        }
        open.insert(message.clone());
        self.add_message(EntryId::Message(Role::User, message));
        self.respond_if_inserted(prompt, out);
    }

    /// Responds to a prompt: to a v2 client when it is inserted and accepted, to a v1 client when its turn has ended.
    fn respond_if_inserted(&mut self, prompt: PromptId, out: &mut SessionOutput<'_>) {
        if out.agent.to == Dialect::V1 {
            return self.respond_to_ended(out);
        }
        let Some(open) = self.turns.prompts.get(prompt).filter(|open| open.is_answered) else { return };
        if let PromptState::Inserted { message, fields } = &open.state {
            out.accept(&open.request, message, fields.clone());
            self.turns.prompts.remove(prompt);
        }
    }

    /// Responds to the prompts of a v1 client whose turn has ended.
    pub(super) fn respond_to_ended(&mut self, out: &mut SessionOutput<'_>) {
        for (prompt, state) in self.turns.prompts.take_ended() {
            let PromptState::Inserted { fields, .. } = &prompt.state else { continue };
            let response = match turn_end::v1_result(&state, Some(fields), &mut out.out.losses) {
                Ok(result) => write::response(&prompt.request, result.to_json().raw()),
                Err(error) => write::error_response(&prompt.request, &error),
            };
            out.send(response);
        }
    }

    /// Handles a state of a v2 or draft agent.
    fn on_state(&mut self, state: &State, out: &mut SessionOutput<'_>) {
        if state.activity == Activity::Idle {
            self.decide_candidate(out);
            // The agent accepted these and never gave their message ids.
            for prompt in self.turns.prompts.accepted() {
                let Some(open) = self.turns.prompts.get_mut(prompt) else { continue };
                let (message, content) = (open.own_id.clone(), open.content.clone());
                open.insert(message.clone());
                if out.agent.to == Dialect::V2 {
                    self.respond_if_inserted(prompt, out);
                    out.user_message(&message, &content);
                }
            }
        }
        self.turns.prompts.on_state(state);
    }
}
