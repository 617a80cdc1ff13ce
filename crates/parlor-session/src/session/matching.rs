//! Which user message of an agent that assigns the ids is which prompt.
//!
//! A new user message is a prompt that the agent has if it equals it: at once if it is a whole message, and else when
//! its chunks are all of the prompt. Until then they are kept; when they turn out to be something else they are a message
//! of their own. The answer to a prompt may name its message, and then that message is the prompt whatever it says.
//! Without an id in the answer, the first new user message after it is.

use parlor_json::Object;

use super::echo::{Candidate, Claim, Rest, content_of, left_of, user_message};
use super::{PromptId, Session, Step, entry_of};
use crate::{EntryId, MessageId, Naming, Patch, Role, Target, Update, Upsert};

impl Session {
    /// Takes an update of an agent that assigns the ids if it has to do with a prompt; else it is handed back as it is.
    pub(super) fn without_prompts(
        &mut self,
        mut update: Update,
        naming: Naming,
        fresh: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) -> Option<Update> {
        let Some(id) = user_message(&update).cloned() else {
            self.not_a_user_message(&mut update, fresh, out);
            return Some(update);
        };
        if self.candidate.as_ref().is_some_and(|candidate| candidate.id != id) {
            self.settle_candidate(fresh, out);
        }
        let Some(message) = self.names.known(Role::User, &id, &self.transcript) else {
            return self.new_user_message(update, naming, &id, fresh, out);
        };
        if !content_of(&update).is_omitted() && self.bare.as_ref() == Some(&message) {
            self.bare = None;
        }
        let Some(entry) = self.transcript.get(&EntryId::Message(Role::User, message.clone())) else {
            return Some(update);
        };
        let Rest { before, update } = self.echoes.hears(update, naming, &message, &entry.body().content);
        before.into_iter().for_each(|(update, naming)| self.take(update, naming, fresh, out));
        update
    }

    fn not_a_user_message(
        &mut self,
        update: &mut Update,
        fresh: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        if let Update::Remove { entry: EntryId::Message(Role::User, id), .. } = update
            && let Some(message) = self.names.known(Role::User, id, &self.transcript)
        {
            self.echoes.forget(&message);
        }
        let is_output = match update {
            Update::Upsert { target: Target::Slot(_), .. } | Update::State(_) => false,
            Update::Output { .. } | Update::Note { .. } => true,
            // What is there already may change at any time.
            Update::Upsert { .. } | Update::Append { .. } | Update::Remove { .. } => {
                entry_of(update).is_some_and(|entry| self.transcript.get(entry).is_none())
            }
        };
        if !is_output {
            return;
        }
        self.settle_candidate(fresh, out);
        // The agent answers what it took and did not name.
        if entry_of(update).is_some()
            && self.prompts.running().is_none()
            && let Some(prompt) = self.prompts.accepted_unnamed().first()
        {
            self.insert(*prompt, None, fresh, out);
        }
    }

    /// The agent tells of a user message that it has not told of.
    fn new_user_message(
        &mut self,
        update: Update,
        naming: Naming,
        id: &MessageId,
        fresh: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) -> Option<Update> {
        let is_whole = matches!(update, Update::Upsert { .. }) && !content_of(&update).is_omitted();
        if is_whole {
            if self.candidate.is_some() {
                self.give_up_candidate(fresh, out);
                return Some(update);
            }
            return self.whole_user_message(update, naming, id, fresh, out);
        }
        let mut candidate = match self.candidate.take() {
            Some(candidate) => candidate,
            None => {
                let sent = self.prompts.with_agent();
                let sent = sent.map(|open| (Claim::Prompt(open.prompt.id), open.pattern.clone()));
                let unnamed = self.echoes.unnamed();
                let unnamed =
                    unnamed.map(|(message, pattern)| (Claim::Message(message.clone()), pattern.clone()));
                let claims: Vec<_> = sent.chain(unnamed).collect();
                if claims.is_empty() {
                    return Some(update);
                }
                Candidate::new(id, claims, self.prompts.accepted_unnamed().first().copied())
            }
        };
        let other = candidate.hears(update, naming);
        let is_certain = other.is_none() && candidate.is_certain();
        self.candidate = Some(candidate);
        match other {
            None if is_certain => self.settle_candidate(fresh, out),
            None => {}
            Some(update) => {
                let otherwise = self.give_up_candidate_for(Some((update, naming)), fresh, out);
                self.adopt_if_any(otherwise, id, out);
            }
        }
        None
    }

    fn whole_user_message(
        &mut self,
        update: Update,
        naming: Naming,
        id: &MessageId,
        fresh: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) -> Option<Update> {
        let Update::Upsert { upsert: Upsert { content, .. }, .. } = &update else { return Some(update) };
        if let Patch::Value(content) = content {
            let equal = self.prompts.with_agent().find(|open| open.pattern.equals(content));
            if let Some(prompt) = equal.map(|open| open.prompt.id) {
                self.insert(prompt, Some(id), fresh, out);
                left_of(update).into_iter().for_each(|left| self.take(left, naming, fresh, out));
                return None;
            }
            let unnamed = self.echoes.unnamed().find(|(_, pattern)| pattern.equals(content));
            if let Some(message) = unnamed.map(|(message, _)| message.clone()) {
                self.name_message(id, &message, out);
                left_of(update).into_iter().for_each(|left| self.take(left, naming, fresh, out));
                return None;
            }
        }
        if let Some(prompt) = self.prompts.accepted_unnamed().first().copied() {
            self.take(update, naming, fresh, out);
            self.adopt_if_any(Some(prompt), id, out);
            return None;
        }
        if let Some(message) = self.echoes.unnamed_in_turn().cloned() {
            self.name_message(id, &message, out);
            self.echoes.forget(&message);
        }
        Some(update)
    }

    /// The agent has an id for a message of which it had none.
    fn name_message(&mut self, id: &MessageId, message: &MessageId, out: &mut Step) {
        self.names.same(Role::User, id.clone(), message);
        self.echoes.named(message);
        out.upkeep = true;
    }

    /// What may be a prompt is one, or is something else.
    pub(super) fn settle_candidate(&mut self, fresh: &mut dyn FnMut() -> MessageId, out: &mut Step) {
        self.narrow_candidate();
        let Some(candidate) = &mut self.candidate else { return };
        let id = candidate.id.clone();
        let left = match candidate.claim().cloned() {
            None => {
                let otherwise = self.give_up_candidate(fresh, out);
                self.adopt_if_any(otherwise, &id, out);
                return;
            }
            Some(Claim::Prompt(prompt)) => {
                let left = candidate.buffered.left();
                self.candidate = None;
                self.insert(prompt, Some(&id), fresh, out);
                left
            }
            Some(Claim::Message(message)) => {
                let left = candidate.buffered.left();
                self.candidate = None;
                self.name_message(&id, &message, out);
                left
            }
        };
        if let Some(message) = self.names.known(Role::User, &id, &self.transcript) {
            self.echoes.forget(&message);
        }
        left.into_iter().for_each(|update| self.take(update, Naming::Silent, fresh, out));
    }

    /// Leaves out what a candidate cannot be, because the agent does not have it any more; whether anything is left.
    fn narrow_candidate(&mut self) -> bool {
        let Self { candidate: Some(candidate), prompts, .. } = self else { return true };
        candidate.retain(|claim| match claim {
            Claim::Prompt(prompt) => prompts.with_agent().any(|open| open.prompt.id == *prompt),
            Claim::Message(_) => true,
        })
    }

    /// Looks again at what a candidate can be, when the agent has a prompt less.
    pub(super) fn review_candidate(&mut self, fresh: &mut dyn FnMut() -> MessageId, out: &mut Step) {
        if !self.narrow_candidate() {
            self.settle_candidate(fresh, out);
        }
    }

    /// What may be a prompt is none. The prompt that it is all the same, if there is one.
    fn give_up_candidate(
        &mut self,
        fresh: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) -> Option<PromptId> {
        self.give_up_candidate_for(None, fresh, out)
    }

    fn give_up_candidate_for(
        &mut self,
        last: Option<(Update, Naming)>,
        fresh: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) -> Option<PromptId> {
        let mut candidate = self.candidate.take()?;
        let is_bare = candidate.buffered.is_bare() && last.is_none();
        let updates = candidate.buffered.take().into_iter().chain(last);
        updates.for_each(|(update, naming)| self.take(update, naming, fresh, out));
        if is_bare {
            self.bare = self.names.known(Role::User, &candidate.id, &self.transcript);
        }
        candidate.otherwise
    }

    /// The agent has accepted a prompt.
    pub(super) fn accepted(
        &mut self,
        prompt: PromptId,
        named: Option<&MessageId>,
        fields: Object,
        fresh: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        self.prompts.accepted(prompt, fields);
        if let Some(named) = named {
            self.is_named(prompt, named, fresh, out);
        }
        self.prompts.settle_accepted(prompt, out);
        self.review_candidate(fresh, out);
    }

    /// The answer to a prompt names its message.
    fn is_named(
        &mut self,
        prompt: PromptId,
        named: &MessageId,
        fresh: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        if self.candidate.as_ref().is_some_and(|candidate| candidate.id == *named) {
            let progress = self.candidate.as_ref().and_then(|candidate| candidate.progress(prompt));
            let has_message = self.prompts.get(prompt).is_none_or(|open| open.stage.message().is_some());
            match progress.filter(|_| !has_message) {
                Some(progress) => {
                    let said = self.candidate.take().map(|candidate| candidate.buffered).unwrap_or_default();
                    self.insert(prompt, Some(named), fresh, out);
                    if let Some(message) = self.names.known(Role::User, named, &self.transcript) {
                        let left = self.echoes.begun(&message, progress, said);
                        left.into_iter().for_each(|update| self.take(update, Naming::Silent, fresh, out));
                    }
                    return;
                }
                None => drop(self.give_up_candidate(fresh, out)),
            }
        }
        let Some(open) = self.prompts.get(prompt) else { return };
        let (was, sent_after, pattern) =
            (open.stage.message().cloned(), open.sent_after, open.pattern.clone());
        let Some(known) = self.names.known(Role::User, named, &self.transcript) else {
            match was {
                // It was taken for another message of the agent's: both are this one.
                Some(message) => {
                    self.name_message(named, &message, out);
                    self.echoes.expect(&message, true, pattern);
                }
                None => drop(self.insert(prompt, Some(named), fresh, out)),
            }
            return;
        };
        if was.as_ref() == Some(&known) {
            return;
        }
        let other = self.prompts.of_message(&known).map(|open| (open.prompt.id, open.is_answered()));
        let shown = self.transcript.get(&EntryId::Message(Role::User, known.clone()));
        let is_new = shown.is_some_and(|entry| entry.created() > sent_after);
        match (was, other) {
            // By what it says it was taken for another prompt, of which the agent has yet to say the message.
            (None, Some((other, false))) => {
                self.prompts.mistaken(other);
                self.adopt(prompt, known, out);
            }
            (Some(was), Some((other, false))) => {
                self.prompts.moved(other, was);
                self.prompts.moved(prompt, known);
                out.upkeep = true;
            }
            (None, None) if is_new => self.adopt(prompt, known, out),
            (Some(_), None) if is_new => {
                self.prompts.moved(prompt, known);
                out.upkeep = true;
            }
            // A prompt is never a message that was there before, whatever the agent calls it.
            (None, _) => drop(self.insert(prompt, Some(named), fresh, out)),
            (Some(_), _) => {}
        }
    }

    fn adopt_if_any(&mut self, prompt: Option<PromptId>, id: &MessageId, out: &mut Step) {
        let message = self.names.known(Role::User, id, &self.transcript);
        if let (Some(prompt), Some(message)) = (prompt, message) {
            self.adopt(prompt, message, out);
        }
    }

    /// A message that is there is a prompt, with the content that it has.
    fn adopt(&mut self, prompt: PromptId, message: MessageId, out: &mut Step) {
        let Some(open) = self.prompts.get(prompt).filter(|open| open.stage.message().is_none()) else {
            return;
        };
        if self.bare.as_ref() == Some(&message) {
            // The agent has not said what it says, and so it says what was sent.
            self.bare = None;
            let content = Patch::Value(super::echo::blocks(&open.prompt.content));
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
        self.prompts.end_if_over(prompt, out);
    }
}
