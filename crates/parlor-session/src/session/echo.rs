//! Agents that repeat the prompts that are in the conversation.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::turns::{Buffered, MatchRule, Pattern, Progress, are_same_blocks, left_of};
use crate::{Content, IdSource, MessageId, Patch, Update};

/// The prompts in the conversation that the agent may repeat.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Echoes(VecDeque<Expected>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Expected {
    message: MessageId,
    /// Whether the agent has an id for it.
    is_named: bool,
    /// Whether its turn has ended.
    is_past: bool,
    pattern: Arc<Pattern>,
    progress: Progress,
    buffered: Buffered,
}

/// How many prompts are expected to be repeated. The oldest is given up for one more.
const MAX_EXPECTED: usize = 64;

impl Echoes {
    /// Expects a prompt that is this message now.
    pub(super) fn expect(&mut self, message: &MessageId, is_named: bool, pattern: Arc<Pattern>) {
        self.forget(message);
        if self.0.len() >= MAX_EXPECTED {
            self.0.pop_front();
        }
        let (message, progress, buffered) = (message.clone(), Progress::default(), Buffered::default());
        self.0.push_back(Expected { message, is_named, is_past: false, pattern, progress, buffered });
    }

    /// Part of a prompt that is this message now was repeated before that was known. What is left to take of that.
    pub(super) fn begun(
        &mut self,
        message: &MessageId,
        progress: Progress,
        mut said: Buffered,
    ) -> Vec<Update> {
        let Some(place) = self.place(message) else { return said.left() };
        let expected = &mut self.0[place];
        if expected.pattern.is_whole(progress, MatchRule::Equal) {
            self.0.remove(place);
            return said.left();
        }
        let left = said.left_of_upserts();
        (expected.progress, expected.buffered) = (progress, said);
        left
    }

    pub(super) fn forget(&mut self, message: &MessageId) {
        self.0.retain(|expected| expected.message != *message);
    }

    /// The agent has an id for a message.
    pub(super) fn named(&mut self, message: &MessageId) {
        if let Some(place) = self.place(message) {
            self.0[place].is_named = true;
        }
    }

    /// The prompts for which the agent has no id, the oldest first.
    pub(super) fn unnamed(&self) -> impl Iterator<Item = (MessageId, Arc<Pattern>)> {
        let unnamed = self.0.iter().filter(|expected| !expected.is_named);
        unnamed.map(|expected| (expected.message.clone(), expected.pattern.clone()))
    }

    /// The oldest prompt of the present turn for which the agent has no id.
    pub(super) fn unnamed_in_turn(&self) -> Option<&MessageId> {
        let unnamed = self.0.iter().find(|expected| !expected.is_named && !expected.is_past);
        unnamed.map(|expected| &expected.message)
    }

    /// The turn has ended: from here on only an equal text repeats one of its prompts.
    pub(super) fn age(&mut self) {
        self.0.iter_mut().for_each(|expected| expected.is_past = true);
    }

    fn place(&self, message: &MessageId) -> Option<usize> {
        self.0.iter().position(|expected| expected.message == *message)
    }

    /// Takes an update of a message that is in the conversation, with this content. What is left to take of this and of
    /// what was kept before, in order.
    pub(super) fn on_update(
        &mut self,
        update: Update,
        naming: IdSource,
        message: &MessageId,
        stored: &Content,
    ) -> Vec<(Update, IdSource)> {
        let Some(place) = self.place(message) else { return vec![(update, naming)] };
        let expected = &mut self.0[place];
        match &update {
            Update::Append { item, .. } => {
                let next = expected.pattern.advance(expected.progress, item.as_str(), MatchRule::EqualText);
                let other = match next {
                    Some(_) => expected.buffered.push(update, naming, 0, &expected.pattern),
                    None => Some(update),
                };
                if let Some(update) = other {
                    return self.given_up(place).into_iter().chain([(update, naming)]).collect();
                }
                expected.progress = next.unwrap_or_default();
                if expected.pattern.is_whole(expected.progress, MatchRule::Equal) {
                    self.0.remove(place);
                }
                return Vec::new();
            }
            Update::Upsert { upsert, .. } => match &upsert.content {
                Patch::Omitted => {}
                Patch::Value(content) if expected.pattern.equals(content) => {
                    // What was kept would have been replaced by this.
                    (expected.progress, expected.buffered) = Default::default();
                    if are_same_blocks(content, stored) {
                        return left_of(update).map(|left| (left, naming)).into_iter().collect();
                    }
                }
                Patch::Value(_) | Patch::Clear => drop(self.0.remove(place)),
            },
            Update::Output { .. } | Update::Remove { .. } | Update::Note { .. } | Update::State(_) => {}
        }
        vec![(update, naming)]
    }

    /// What was kept of a prompt that is not repeated after all, unless it was in all but what is no text.
    fn given_up(&mut self, place: usize) -> Vec<(Update, IdSource)> {
        let Some(mut expected) = self.0.remove(place) else { return Vec::new() };
        let is_whole = expected.pattern.is_whole(expected.progress, MatchRule::EqualText);
        if is_whole { Vec::new() } else { expected.buffered.take() }
    }

    /// The turn is over: what was begun is not finished any more. What is left to take of it.
    pub(super) fn turn_ended(&mut self) -> Vec<(Update, IdSource)> {
        let mut left = Vec::new();
        for place in (0..self.0.len()).rev() {
            if !self.0[place].buffered.is_empty() {
                left.splice(0..0, self.given_up(place));
            }
        }
        left
    }
}
