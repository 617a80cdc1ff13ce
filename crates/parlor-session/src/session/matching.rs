//! Which user message of the agent is which prompt.
//!
//! A new user message is a prompt that the agent has if it equals it: at once if it is a whole message, and else when
//! its chunks are all of the prompt. Until then they are kept; when they turn out to be something else they are a message
//! of their own. The answer to a prompt may name its message, and then that message is the prompt whatever it says.
//! Without an id in the answer, the first new user message after it is.
//!
//! An agent that takes one prompt at a time has no id for the prompt that is in the conversation: a user message with the
//! same text, before anything else, is that prompt.

use parlor_json::Object;

use super::echo::Echoes;
use super::{PromptId, PromptMode, Session, Step, entry_of};
use crate::turns::{Claim, MatchRule, OpenPrompt, has_content, is_output, left_of, user_message};
use crate::{EntryId, IdSource, MessageId, Patch, Role, Target, Update, Upsert};

impl Session {
    /// Takes an update if it has to do with a prompt; else it is handed back as it is.
    pub(super) fn without_prompts(
        &mut self,
        mut update: Update,
        naming: IdSource,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) -> Option<Update> {
        let Some(id) = user_message(&update).cloned() else {
            self.not_a_user_message(&mut update, new_id, out);
            return Some(update);
        };
        if self.candidate.as_ref().is_some_and(|candidate| !candidate.is_of(&id, naming)) {
            self.settle_candidate(new_id, out);
        }
        // By its text alone a message is the prompt of an agent that takes one at a time, whatever the agent calls it.
        let by_text = self.is_serial() && self.echoes.unnamed().next().is_some();
        let known = self.id_map.known(Role::User, &id, &self.transcript).filter(|_| !by_text);
        let Some(message) = known else {
            let update = self.new_user_message(update, naming, &id, new_id, out);
            if self.candidate.is_none() {
                self.close_echo();
            }
            return update;
        };
        if has_content(&update) && self.bare.as_ref() == Some(&message) {
            self.bare = None;
        }
        let Some(entry) = self.transcript.get(&EntryId::Message(Role::User, message.clone())) else {
            return Some(update);
        };
        let left = self.echoes.on_update(update, naming, &message, &entry.body().content);
        self.take_all(left, new_id, out);
        None
    }

    fn not_a_user_message(
        &mut self,
        update: &mut Update,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        if let Update::Remove { entry: EntryId::Message(Role::User, id), .. } = update
            && let Some(message) = self.id_map.known(Role::User, id, &self.transcript)
        {
            self.echoes.forget(&message);
        }
        if !is_output(update, &self.transcript) {
            return;
        }
        self.settle_candidate(new_id, out);
        if !matches!(update, Update::Note { .. }) {
            self.close_echo();
        }
        // The agent answers what it took and did not name.
        if entry_of(update).is_some()
            && self.prompts.open.running().is_none()
            && let Some(prompt) = self.prompts.open.accepted().first()
        {
            self.insert(*prompt, None, new_id, out);
        }
    }

    /// Whether the agent, or the last one, takes one prompt at a time.
    fn is_serial(&self) -> bool {
        self.last_taking != Some(PromptMode::Queued)
    }

    /// An agent that takes one prompt at a time repeats it before it says anything else, or not at all.
    pub(super) fn close_echo(&mut self) {
        if self.is_serial() {
            self.echoes = Echoes::default();
        }
    }

    /// The agent tells of a user message that it has not told of.
    fn new_user_message(
        &mut self,
        update: Update,
        naming: IdSource,
        id: &MessageId,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) -> Option<Update> {
        let is_whole = matches!(update, Update::Upsert { .. }) && has_content(&update);
        if is_whole {
            if self.candidate.is_some() {
                self.give_up_candidate(None, new_id, out);
                return Some(update);
            }
            return self.whole_user_message(update, naming, id, new_id, out);
        }
        let known = self.candidate.take();
        let rule = if self.is_serial() { MatchRule::EqualText } else { MatchRule::Equal };
        let new = || self.prompts.open.candidate(id, naming, self.echoes.unnamed(), rule);
        let Some(mut candidate) = known.or_else(new) else { return Some(update) };
        let other = candidate.on_update(update, naming, 0);
        let is_certain = other.is_none() && candidate.is_certain();
        self.candidate = Some(candidate);
        match other {
            None if is_certain => self.settle_candidate(new_id, out),
            None => {}
            Some(update) => {
                let otherwise = self.give_up_candidate(Some((update, naming)), new_id, out);
                self.adopt_if_any(otherwise, id, out);
            }
        }
        None
    }

    fn whole_user_message(
        &mut self,
        update: Update,
        naming: IdSource,
        id: &MessageId,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) -> Option<Update> {
        let Update::Upsert { upsert: Upsert { content, .. }, .. } = &update else { return Some(update) };
        if let Patch::Value(content) = content {
            if let Some(prompt) = self.prompts.open.equal_to(content) {
                self.insert(prompt, Some(id), new_id, out);
                left_of(update).into_iter().for_each(|left| self.take(left, naming, new_id, out));
                return None;
            }
            let unnamed = self.echoes.unnamed().find(|(_, pattern)| pattern.equals(content));
            if let Some((message, _)) = unnamed {
                self.name_message(id, &message, out);
                left_of(update).into_iter().for_each(|left| self.take(left, naming, new_id, out));
                return None;
            }
        }
        if let Some(prompt) = self.prompts.open.accepted().first().copied() {
            self.take(update, naming, new_id, out);
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

    /// The agent has an id for a message of which it had none.
    fn name_message(&mut self, id: &MessageId, message: &MessageId, out: &mut Step) {
        self.id_map.same(Role::User, id.clone(), message);
        self.echoes.named(message);
        out.upkeep = true;
    }

    /// What may be a prompt is one, or is something else.
    pub(super) fn settle_candidate(&mut self, new_id: &mut dyn FnMut() -> MessageId, out: &mut Step) {
        let Some(candidate) = &mut self.candidate else { return };
        self.prompts.open.narrow(candidate);
        let id = candidate.message.clone();
        let Some(claim) = candidate.claim().cloned() else {
            let otherwise = self.give_up_candidate(None, new_id, out);
            return id.into_iter().for_each(|id| self.adopt_if_any(otherwise, &id, out));
        };
        let left = candidate.buffered.left();
        self.candidate = None;
        match claim {
            Claim::Prompt(prompt) => {
                self.insert(prompt, id.as_ref(), new_id, out);
                let message = id.and_then(|id| self.id_map.known(Role::User, &id, &self.transcript));
                message.into_iter().for_each(|message| self.echoes.forget(&message));
            }
            Claim::Message(message) => {
                id.into_iter().for_each(|id| self.name_message(&id, &message, out));
                self.echoes.forget(&message);
            }
        }
        self.close_echo();
        left.into_iter().for_each(|update| self.take(update, IdSource::Given, new_id, out));
    }

    /// Looks again at what a candidate can be, when the agent has a prompt less.
    pub(super) fn review_candidate(&mut self, new_id: &mut dyn FnMut() -> MessageId, out: &mut Step) {
        let candidate = self.candidate.as_mut();
        if candidate.is_some_and(|candidate| !self.prompts.open.narrow(candidate)) {
            self.settle_candidate(new_id, out);
        }
    }

    /// What may be a prompt is none. The prompt that it is all the same, if there is one.
    fn give_up_candidate(
        &mut self,
        last: Option<(Update, IdSource)>,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) -> Option<PromptId> {
        let mut candidate = self.candidate.take()?;
        let is_bare = candidate.buffered.is_bare() && last.is_none();
        let updates = candidate.buffered.take().into_iter().chain(last);
        updates.for_each(|(update, naming)| self.take(update, naming, new_id, out));
        if is_bare {
            let id = candidate.message.as_ref();
            self.bare = id.and_then(|id| self.id_map.known(Role::User, id, &self.transcript));
        }
        self.close_echo();
        candidate.otherwise
    }

    /// The agent has accepted a prompt.
    pub(super) fn accepted(
        &mut self,
        prompt: PromptId,
        named: Option<&MessageId>,
        fields: Object,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        self.prompts.accepted(prompt, fields);
        if let Some(named) = named {
            self.is_named(prompt, named, new_id, out);
        }
        self.prompts.settle_accepted(prompt, out);
        self.review_candidate(new_id, out);
    }

    /// The answer to a prompt names its message.
    fn is_named(
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
                    let said = self.candidate.take().map(|candidate| candidate.buffered).unwrap_or_default();
                    self.insert(prompt, Some(named), new_id, out);
                    if let Some(message) = self.id_map.known(Role::User, named, &self.transcript) {
                        let left = self.echoes.begun(&message, progress, said);
                        left.into_iter().for_each(|update| self.take(update, IdSource::Given, new_id, out));
                    }
                    return;
                }
                None => drop(self.give_up_candidate(None, new_id, out)),
            }
        }
        let Some(open) = self.prompts.open.get(prompt) else { return };
        let (was, sent_after, pattern) = (open.message().cloned(), open.sent_after, open.pattern.clone());
        let Some(known) = self.id_map.known(Role::User, named, &self.transcript) else {
            match was {
                // It was taken for another message of the agent's: both are this one.
                Some(message) => {
                    self.name_message(named, &message, out);
                    self.echoes.expect(&message, true, pattern);
                }
                None => drop(self.insert(prompt, Some(named), new_id, out)),
            }
            return;
        };
        if was.as_ref() == Some(&known) {
            return;
        }
        let other = self.prompts.open.all.iter().find(|open| open.message() == Some(&known));
        let other = other.map(|open| (open.id, open.is_answered));
        let shown = self.transcript.get(&EntryId::Message(Role::User, known.clone()));
        let is_new = shown.is_some_and(|entry| entry.created() > sent_after);
        match (was, other) {
            // By what it says it was taken for another prompt, of which the agent has yet to say the message.
            (None, Some((other, false))) => {
                self.prompts.mistaken(other);
                self.adopt(prompt, known, out);
            }
            (Some(was), Some((other, false))) => {
                self.prompts.inserted(other, was);
                self.prompts.inserted(prompt, known);
                out.upkeep = true;
            }
            (None, None) if is_new => self.adopt(prompt, known, out),
            (Some(_), None) if is_new => {
                self.prompts.inserted(prompt, known);
                out.upkeep = true;
            }
            // A prompt is never a message that was there before, whatever the agent calls it.
            (None, _) => drop(self.insert(prompt, Some(named), new_id, out)),
            (Some(_), _) => {}
        }
    }

    fn adopt_if_any(&mut self, prompt: Option<PromptId>, id: &MessageId, out: &mut Step) {
        let message = self.id_map.known(Role::User, id, &self.transcript);
        if let (Some(prompt), Some(message)) = (prompt, message) {
            self.adopt(prompt, message, out);
        }
    }

    /// A message that is there is a prompt, with the content that it has.
    fn adopt(&mut self, prompt: PromptId, message: MessageId, out: &mut Step) {
        let Some(open) = self.prompts.open.get(prompt).filter(|open| !open.is_inserted()) else {
            return;
        };
        if self.bare.as_ref() == Some(&message) {
            // The agent has not said what it says, and so it says what was sent.
            self.bare = None;
            let content = Patch::Value(super::blocks(&open.prompt.content));
            let target = Target::Entry(EntryId::Message(Role::User, message.clone()));
            let pattern = open.pattern.clone();
            self.push(Update::Upsert { target, upsert: Upsert { content, ..Upsert::default() } }, out);
            self.echoes.expect(&message, true, pattern);
        }
        self.is_in_conversation(prompt, message, out);
    }

    /// A prompt is a message of the conversation now.
    pub(super) fn is_in_conversation(&mut self, prompt: PromptId, message: MessageId, out: &mut Step) {
        let entry = self.transcript.get(&EntryId::Message(Role::User, message.clone()));
        let content = entry.map(|entry| entry.body().content.joined()).unwrap_or_default();
        self.prompts.inserted(prompt, message);
        self.retitle(|titles, _| titles.make(&content), out);
        out.durable = true;
        out.upkeep = true;
        self.prompts.settle_accepted(prompt, out);
        self.prompts.end_if_over(out);
    }
}
