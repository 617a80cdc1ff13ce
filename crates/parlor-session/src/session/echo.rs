//! Prompts in the transcript that the agent repeats.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::turns::{Buffered, MatchRule, Pattern, Progress, blocks_are_equal, without_content};
use crate::{Content, IdSource, MessageId, Patch, Update};

/// The prompts in the transcript that the agent may repeat.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Echoes(VecDeque<Expected>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Expected {
    message: MessageId,
    /// Whether the agent has given an id for it.
    is_named: bool,
    /// Whether its turn has ended.
    is_past: bool,
    pattern: Arc<Pattern>,
    progress: Progress,
    buffered: Buffered,
}

/// Maximum number of prompts; the oldest is dropped for a new one.
const MAX_EXPECTED: usize = 64;

impl Echoes {
    /// Expects the agent to repeat a prompt that is this message.
    pub(super) fn expect(&mut self, message: &MessageId, is_named: bool, pattern: Arc<Pattern>) {
        self.forget(message);
        if self.0.len() >= MAX_EXPECTED {
            self.0.pop_front();
        }
        let (message, progress, buffered) = (message.clone(), Progress::default(), Buffered::default());
        self.0.push_back(Expected { message, is_named, is_past: false, pattern, progress, buffered });
    }

    /// Registers a prompt of which a part was repeated before its message was known. Returns the updates to apply.
    pub(super) fn expect_rest(
        &mut self,
        message: &MessageId,
        progress: Progress,
        mut buffered: Buffered,
    ) -> Vec<Update> {
        let Some(index) = self.index(message) else { return buffered.take_without_content() };
        let expected = &mut self.0[index];
        if expected.pattern.is_whole(progress, MatchRule::Equal) {
            self.0.remove(index);
            return buffered.take_without_content();
        }
        let left = buffered.take_upserts_without_content();
        (expected.progress, expected.buffered) = (progress, buffered);
        left
    }

    pub(super) fn forget(&mut self, message: &MessageId) {
        self.0.retain(|expected| expected.message != *message);
    }

    /// Marks that the agent has given an id for a message.
    pub(super) fn set_named(&mut self, message: &MessageId) {
        if let Some(index) = self.index(message) {
            self.0[index].is_named = true;
        }
    }

    /// The prompts for which the agent has given no id, the oldest first.
    pub(super) fn unnamed(&self) -> impl Iterator<Item = (MessageId, Arc<Pattern>)> {
        let unnamed = self.0.iter().filter(|expected| !expected.is_named);
        unnamed.map(|expected| (expected.message.clone(), expected.pattern.clone()))
    }

    /// The oldest prompt of the current turn for which the agent has given no id.
    pub(super) fn unnamed_in_turn(&self) -> Option<&MessageId> {
        let unnamed = self.0.iter().find(|expected| !expected.is_named && !expected.is_past);
        unnamed.map(|expected| &expected.message)
    }

    /// Marks all prompts as past, at the end of the turn: from then on only an equal text repeats one of them.
    pub(super) fn on_turn_end(&mut self) {
        self.0.iter_mut().for_each(|expected| expected.is_past = true);
    }

    fn index(&self, message: &MessageId) -> Option<usize> {
        self.0.iter().position(|expected| expected.message == *message)
    }

    /// Handles an update of a message in the transcript with this content. Returns the updates to apply, including
    /// those held back before, in order.
    pub(super) fn on_update(
        &mut self,
        update: Update,
        id_source: IdSource,
        message: &MessageId,
        stored: &Content,
    ) -> Vec<(Update, IdSource)> {
        let Some(index) = self.index(message) else { return vec![(update, id_source)] };
        let expected = &mut self.0[index];
        match &update {
            Update::Append { item, .. } => {
                let next = expected.pattern.advance(expected.progress, item.as_str(), MatchRule::EqualText);
                let other = match next {
                    Some(_) => expected.buffered.push(update, id_source, 0, expected.pattern.size()),
                    None => Some(update),
                };
                if let Some(update) = other {
                    return self.release(index).into_iter().chain([(update, id_source)]).collect();
                }
                expected.progress = next.unwrap_or_default();
                if expected.pattern.is_whole(expected.progress, MatchRule::Equal) {
                    self.0.remove(index);
                }
                return Vec::new();
            }
            Update::Upsert { upsert, .. } => match &upsert.content {
                Patch::Omitted => {}
                Patch::Value(content) if expected.pattern.equals(content) => {
                    // This would have replaced what was held back.
                    (expected.progress, expected.buffered) = Default::default();
                    if blocks_are_equal(content, stored) {
                        return without_content(update).map(|left| (left, id_source)).into_iter().collect();
                    }
                }
                Patch::Value(_) | Patch::Clear => drop(self.0.remove(index)),
            },
            Update::Output { .. } | Update::Remove { .. } | Update::Note { .. } | Update::State(_) => {}
        }
        vec![(update, id_source)]
    }

    /// Returns the updates held back for a prompt that is not repeated completely; none if its text was.
    fn release(&mut self, index: usize) -> Vec<(Update, IdSource)> {
        let Some(mut expected) = self.0.remove(index) else { return Vec::new() };
        let is_whole = expected.pattern.is_whole(expected.progress, MatchRule::EqualText);
        if is_whole { Vec::new() } else { expected.buffered.take() }
    }

    /// Ends all unfinished repetitions at the end of the turn and returns the updates to apply.
    pub(super) fn take_unfinished(&mut self) -> Vec<(Update, IdSource)> {
        let mut left = Vec::new();
        for index in (0..self.0.len()).rev() {
            if !self.0[index].buffered.is_empty() {
                left.splice(0..0, self.release(index));
            }
        }
        left
    }
}
