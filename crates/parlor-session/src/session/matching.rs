//! Matches user messages of the agent with prompts.
//!
//! A new user message is a prompt that the agent was sent if their content is equal: a whole message is compared at
//! once, chunks are held back until they are the whole prompt, or released as a message of their own when they
//! differ. The response to a prompt may have a message id: then that message is the prompt, whatever its content. If
//! the response has no id, the first new user message after it is the prompt.
//!
//! An agent with [`PromptMode::Serial`] has no id for the prompt in the transcript: a user message with the same
//! text, before any other output, is that prompt.

use parlor_json::Object;

use super::echo::Echoes;
use super::{PromptId, PromptMode, Session, Step, entry_of};
use crate::turns::{Claim, MatchRule, OpenPrompt, has_content, is_output, user_message, without_content};
use crate::{EntryId, IdSource, MessageId, MetaPatch, Patch, Role, Target, Update, Upsert};

impl Session {
    /// Handles an update that concerns a prompt; returns any other update unchanged.
    pub(super) fn without_prompts(
        &mut self,
        mut update: Update,
        id_source: IdSource,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) -> Option<Update> {
        let Some(id) = user_message(&update).cloned() else {
            self.not_a_user_message(&mut update, new_id, out);
            return Some(update);
        };
        if self.candidate.as_ref().is_some_and(|candidate| !candidate.is_of(&id, id_source)) {
            self.decide_candidate(new_id, out);
        }
        // A serial agent's prompt is matched by its text alone, whatever id the agent uses.
        let by_text = self.is_serial() && self.echoes.unnamed().next().is_some();
        let is_undecided = by_text || self.candidate.is_some();
        let resolved = self.id_map.resolve(Role::User, &id, &self.transcript).filter(|_| !is_undecided);
        let Some(message) = resolved else {
            let update = self.new_user_message(update, id_source, &id, new_id, out);
            if self.candidate.is_none() {
                self.close_echo();
            }
            return update;
        };
        if has_content(&update) && self.empty_message.as_ref() == Some(&message) {
            self.empty_message = None;
        }
        let Some(entry) = self.transcript.get(&EntryId::Message(Role::User, message.clone())) else {
            return Some(update);
        };
        let left = self.echoes.on_update(update, id_source, &message, &entry.body().content);
        self.apply_all(left, new_id, out);
        None
    }

    fn not_a_user_message(
        &mut self,
        update: &mut Update,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        if let Update::Remove { entry: EntryId::Message(Role::User, id), .. } = update
            && let Some(message) = self.id_map.resolve(Role::User, id, &self.transcript)
        {
            self.echoes.forget(&message);
        }
        if !is_output(update, &self.transcript) {
            return;
        }
        self.decide_candidate(new_id, out);
        if self.is_serial() {
            // The agent took these into its turn while it repeated a prompt.
            self.insert_accepted(new_id, out);
        }
        if !matches!(update, Update::Note { .. }) {
            self.close_echo();
        }
        // The agent responds to a prompt that it accepted without an id.
        if entry_of(update).is_some()
            && self.prompts.open.running().is_none()
            && let Some(prompt) = self.prompts.open.accepted().first()
        {
            self.insert(*prompt, None, new_id, out);
        }
    }

    /// Whether the agent, or the last one, accepts one prompt at a time.
    fn is_serial(&self) -> bool {
        self.last_mode != Some(PromptMode::Queued)
    }

    /// Stops expecting a repetition: a serial agent repeats its prompt before any other output, or not at all.
    pub(super) fn close_echo(&mut self) {
        if self.is_serial() {
            self.echoes = Echoes::default();
        }
    }

    /// Handles the first update of a user message.
    fn new_user_message(
        &mut self,
        update: Update,
        id_source: IdSource,
        id: &MessageId,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) -> Option<Update> {
        let is_whole = matches!(update, Update::Upsert { .. }) && has_content(&update);
        if is_whole {
            if self.candidate.is_some() {
                self.release_candidate(None, new_id, out);
                return Some(update);
            }
            return self.whole_user_message(update, id_source, id, new_id, out);
        }
        let started = self.candidate.take();
        let rule = if self.is_serial() { MatchRule::EqualText } else { MatchRule::Equal };
        let claims = self.prompts.open.claims(self.echoes.unnamed(), rule);
        let new = || self.prompts.open.candidate(id, id_source, &claims, rule);
        let Some(mut candidate) = started.or_else(new) else { return Some(update) };
        let other = candidate.on_update(update, id_source, 0, &claims);
        let is_certain = other.is_none() && candidate.is_certain();
        self.candidate = Some(candidate);
        match other {
            None if is_certain => self.decide_candidate(new_id, out),
            None => {}
            Some(update) => {
                let otherwise = self.release_candidate(Some((update, id_source)), new_id, out);
                self.adopt_if_any(otherwise, id, out);
            }
        }
        None
    }

    fn whole_user_message(
        &mut self,
        update: Update,
        id_source: IdSource,
        id: &MessageId,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) -> Option<Update> {
        let Update::Upsert { upsert: Upsert { content, .. }, .. } = &update else { return Some(update) };
        if let Patch::Value(content) = content {
            if let Some(prompt) = self.prompts.open.equal_to(content) {
                self.insert(prompt, Some(id), new_id, out);
                without_content(update).into_iter().for_each(|left| self.apply(left, id_source, new_id, out));
                return None;
            }
            let unnamed = self.echoes.unnamed().find(|(_, pattern)| pattern.equals(content));
            if let Some((message, _)) = unnamed {
                self.name_message(id, &message, out);
                without_content(update).into_iter().for_each(|left| self.apply(left, id_source, new_id, out));
                return None;
            }
        }
        if let Some(prompt) = self.prompts.open.accepted().first().copied() {
            self.apply(update, id_source, new_id, out);
            self.adopt_if_any(Some(prompt), id, out);
            return None;
        }
        let in_turn = self.echoes.unnamed_in_turn().filter(|_| !self.is_serial());
        if let Some(message) = in_turn.cloned() {
            self.name_message(id, &message, out);
            self.echoes.forget(&message);
        }
        Some(update)
    }

    /// Adds the agent's id for a message for which it had given none.
    fn name_message(&mut self, id: &MessageId, message: &MessageId, out: &mut Step) {
        self.id_map.add_alias(Role::User, id.clone(), message);
        self.echoes.set_named(message);
        out.side_state_dirty = true;
    }

    /// Decides about the candidate with what has arrived.
    pub(super) fn decide_candidate(&mut self, new_id: &mut dyn FnMut() -> MessageId, out: &mut Step) {
        let Some(candidate) = &mut self.candidate else { return };
        self.prompts.open.narrow(candidate);
        let id = candidate.message.clone();
        let claims = candidate.claims();
        if claims.is_empty() {
            let otherwise = self.release_candidate(None, new_id, out);
            return id.into_iter().for_each(|id| self.adopt_if_any(otherwise, &id, out));
        }
        let left = candidate.buffered.take_without_content();
        self.candidate = None;
        for claim in claims {
            let message = match claim {
                Claim::Prompt(prompt) => self.insert(prompt, id.as_ref(), new_id, out),
                Claim::Message(message) => {
                    id.iter().for_each(|id| self.name_message(id, &message, out));
                    Some(message)
                }
            };
            message.into_iter().for_each(|message| self.echoes.forget(&message));
        }
        left.into_iter().for_each(|update| self.apply(update, IdSource::Given, new_id, out));
    }

    /// Checks the candidate again after the agent lost a prompt.
    pub(super) fn review_candidate(&mut self, new_id: &mut dyn FnMut() -> MessageId, out: &mut Step) {
        let candidate = self.candidate.as_mut();
        if candidate.is_some_and(|candidate| !self.prompts.open.narrow(candidate)) {
            self.decide_candidate(new_id, out);
        }
    }

    /// Releases the candidate as a message of its own. Returns the prompt that the message is even so.
    fn release_candidate(
        &mut self,
        last: Option<(Update, IdSource)>,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) -> Option<PromptId> {
        let mut candidate = self.candidate.take()?;
        let has_no_content = candidate.buffered.has_no_content() && last.is_none();
        let updates = candidate.buffered.take().into_iter().chain(last);
        updates.for_each(|(update, id_source)| self.apply(update, id_source, new_id, out));
        if has_no_content {
            let id = candidate.message.as_ref();
            self.empty_message = id.and_then(|id| self.id_map.resolve(Role::User, id, &self.transcript));
        }
        self.close_echo();
        candidate.otherwise
    }

    /// Handles the acceptance of a prompt by the agent.
    pub(super) fn on_accepted(
        &mut self,
        prompt: PromptId,
        named: Option<&MessageId>,
        fields: Object,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        self.prompts.on_accepted(prompt, fields);
        if let Some(named) = named {
            self.on_message_id(prompt, named, new_id, out);
        }
        self.prompts.respond_accepted(prompt, out);
        self.review_candidate(new_id, out);
    }

    /// Handles a message id in the response to a prompt.
    fn on_message_id(
        &mut self,
        prompt: PromptId,
        named: &MessageId,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        if self.candidate.as_ref().is_some_and(|candidate| candidate.message.as_ref() == Some(named)) {
            let progress = self.candidate.as_ref().and_then(|candidate| candidate.progress(prompt));
            let has_message = self.prompts.open.get(prompt).is_none_or(OpenPrompt::is_inserted);
            match progress.filter(|_| !has_message) {
                Some(progress) => {
                    let buffered =
                        self.candidate.take().map(|candidate| candidate.buffered).unwrap_or_default();
                    self.insert(prompt, Some(named), new_id, out);
                    if let Some(message) = self.id_map.resolve(Role::User, named, &self.transcript) {
                        let left = self.echoes.expect_rest(&message, progress, buffered);
                        left.into_iter().for_each(|update| self.apply(update, IdSource::Given, new_id, out));
                    }
                    return;
                }
                None => drop(self.release_candidate(None, new_id, out)),
            }
        }
        let Some(open) = self.prompts.open.get(prompt) else { return };
        let (was, sent_after, pattern) = (open.message().cloned(), open.sent_after, open.pattern.clone());
        let Some(resolved) = self.id_map.resolve(Role::User, named, &self.transcript) else {
            match was {
                // It was matched with another message of the agent: both ids are this message.
                Some(message) => {
                    self.name_message(named, &message, out);
                    self.echoes.expect(&message, true, pattern);
                }
                None => drop(self.insert(prompt, Some(named), new_id, out)),
            }
            return;
        };
        if was.as_ref() == Some(&resolved) {
            return;
        }
        let other = self.prompts.open.all.iter().find(|open| open.message() == Some(&resolved));
        let other = other.map(|open| (open.id, open.is_answered));
        let shown = self.transcript.get(&EntryId::Message(Role::User, resolved.clone()));
        let is_new = shown.is_some_and(|entry| entry.created() > sent_after);
        match (was, other) {
            // The message was matched by its content with another prompt, whose message is still to come.
            (None, Some((other, false))) => {
                self.prompts.unmatch(other);
                self.adopt(prompt, resolved, out);
            }
            (Some(was), Some((other, false))) => {
                self.prompts.on_inserted(other, was);
                self.prompts.on_inserted(prompt, resolved);
                out.side_state_dirty = true;
            }
            (None, None) if is_new => self.adopt(prompt, resolved, out),
            (Some(_), None) if is_new => {
                self.prompts.on_inserted(prompt, resolved);
                out.side_state_dirty = true;
            }
            // A prompt is never a message that existed before, even if the agent reuses its id.
            (None, _) => drop(self.insert(prompt, Some(named), new_id, out)),
            (Some(_), _) => {}
        }
    }

    fn adopt_if_any(&mut self, prompt: Option<PromptId>, id: &MessageId, out: &mut Step) {
        let message = self.id_map.resolve(Role::User, id, &self.transcript);
        if let (Some(prompt), Some(message)) = (prompt, message) {
            self.adopt(prompt, message, out);
        }
    }

    /// Makes an existing message the prompt, with the content that it has.
    fn adopt(&mut self, prompt: PromptId, message: MessageId, out: &mut Step) {
        let Some(open) = self.prompts.open.get(prompt).filter(|open| !open.is_inserted()) else {
            return;
        };
        let meta = super::steer_mark(open.prompt.timing);
        if self.empty_message.as_ref() == Some(&message) {
            // The agent sent no content, so that the message gets the content that was sent.
            self.empty_message = None;
            let content = Patch::Value(super::blocks(&open.prompt.content));
            let target = Target::Entry(EntryId::Message(Role::User, message.clone()));
            let pattern = open.pattern.clone();
            self.push(Update::Upsert { target, upsert: Upsert { content, ..Upsert::default() } }, out);
            self.echoes.expect(&message, true, pattern);
        }
        if meta != MetaPatch::default() {
            let target = Target::Entry(EntryId::Message(Role::User, message.clone()));
            self.push(Update::Upsert { target, upsert: Upsert { meta, ..Upsert::default() } }, out);
        }
        self.on_prompt_inserted(prompt, message, out);
    }

    /// Completes the insertion of a prompt: its message is in the transcript.
    pub(super) fn on_prompt_inserted(&mut self, prompt: PromptId, message: MessageId, out: &mut Step) {
        let entry = self.transcript.get(&EntryId::Message(Role::User, message.clone()));
        let content = entry.map(|entry| entry.body().content.joined()).unwrap_or_default();
        self.prompts.on_inserted(prompt, message);
        self.retitle(|titles, _| titles.generate(&content), out);
        out.durable = true;
        out.side_state_dirty = true;
        self.prompts.respond_accepted(prompt, out);
        self.prompts.end_finished(out);
        self.end_if_late(prompt, out);
    }
}
