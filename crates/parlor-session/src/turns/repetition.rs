//! Prompts that a message repeats one after the other.

use std::sync::Arc;

use super::PromptId;
use super::pattern::{MatchRule, Pattern, Progress};
use crate::{MessageId, Patch, Update};

/// A prompt that a new user message may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// A prompt that the agent was sent and that is not in the transcript.
    Prompt(PromptId),
    /// A prompt in the transcript for which the agent has given no id.
    Message(MessageId),
}

/// One way in which the chunks of a message repeat prompts. Several are possible while one prompt begins like another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Repetition {
    /// The prompts that are repeated completely, in order.
    before: Vec<Claim>,
    /// The prompt that is being repeated.
    claim: Claim,
    pattern: Arc<Pattern>,
    progress: Progress,
    /// The size of all of these prompts.
    size: usize,
}

impl Repetition {
    pub(super) fn new((claim, pattern): &(Claim, Arc<Pattern>)) -> Self {
        let (size, pattern) = (pattern.size(), pattern.clone());
        Self { before: Vec::new(), claim: claim.clone(), pattern, progress: Progress::default(), size }
    }

    /// The repetition after an update that goes on with its last prompt.
    pub(super) fn continued(mut self, update: &Update, rule: MatchRule) -> Option<Self> {
        self.progress = advance(&self.pattern, self.progress, update, rule)?;
        Some(self)
    }

    /// The repetitions after a chunk with which a prompt begins that comes after the last one in `claims`.
    pub(super) fn followed(
        &self,
        chunk: &Update,
        claims: &[(Claim, Arc<Pattern>)],
        rule: MatchRule,
    ) -> Vec<Self> {
        // A prompt without text is whole before anything of it is repeated.
        if !self.is_whole(rule) || self.progress == Progress::default() {
            return Vec::new();
        }
        let last = claims.iter().position(|(claim, _)| *claim == self.claim);
        let later = claims.iter().skip(last.map_or(0, |last| last + 1));
        let later = later.filter(|(claim, _)| *claim != self.claim && !self.before.contains(claim));
        let next = later.filter_map(|(claim, pattern)| {
            let progress = advance(pattern, Progress::default(), chunk, rule)?;
            let before = self.before.iter().chain([&self.claim]).cloned().collect();
            let (claim, pattern, size) = (claim.clone(), pattern.clone(), self.size + pattern.size());
            Some(Self { before, claim, pattern, progress, size })
        });
        next.collect()
    }

    /// Whether all that follows would change both in the same way.
    pub(super) fn is_at_same_point(&self, other: &Self) -> bool {
        self.claim == other.claim && self.progress == other.progress
    }

    /// Whether its last prompt is repeated completely.
    pub(super) fn is_whole(&self, rule: MatchRule) -> bool {
        self.pattern.is_whole(self.progress, rule)
    }

    /// Its prompts, in order.
    pub(super) fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.before.iter().chain([&self.claim])
    }

    /// The size of its prompts.
    pub(super) const fn size(&self) -> usize {
        self.size
    }

    /// How much of this prompt is repeated, if it is the only one.
    pub(super) fn progress(&self, prompt: PromptId) -> Option<Progress> {
        let is_it = self.before.is_empty() && self.claim == Claim::Prompt(prompt);
        is_it.then_some(self.progress)
    }
}

/// How much of a prompt is repeated after an update; `None` if the update does not continue it.
fn advance(pattern: &Pattern, from: Progress, update: &Update, rule: MatchRule) -> Option<Progress> {
    match update {
        Update::Append { item, .. } => pattern.advance(from, item.as_str(), rule),
        Update::Upsert { upsert, .. } => match &upsert.content {
            Patch::Value(content) => {
                content.iter().try_fold(from, |at, item| pattern.advance(at, item.json, rule))
            }
            Patch::Omitted => Some(from),
            Patch::Clear => None,
        },
        Update::Output { .. } | Update::Remove { .. } | Update::Note { .. } | Update::State(_) => None,
    }
}
