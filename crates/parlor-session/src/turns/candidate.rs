//! User messages of the agent that may be prompts, held back until that is decided.

use std::sync::Arc;

use super::PromptId;
use super::pattern::{MatchRule, Pattern, Progress};
use crate::{EntryId, IdSource, MessageId, MetaPatch, Patch, Role, Target, Transcript, Update};

/// Updates of a new user message that may be a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The agent's id of the message, if it gives one.
    pub message: Option<MessageId>,
    /// The prompt that the message is even if it equals no prompt: the agent accepted that prompt before, without a
    /// message id.
    pub otherwise: Option<PromptId>,
    pub(crate) buffered: Buffered,
    /// The prompts that the message may be, with how much of each it has repeated.
    claims: Vec<(Claim, Arc<Pattern>, Progress)>,
    rule: MatchRule,
}

/// A prompt that a new user message may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// A prompt that the agent was sent and that is not in the transcript.
    Prompt(PromptId),
    /// A prompt in the transcript for which the agent has given no id.
    Message(MessageId),
}

impl Candidate {
    /// A candidate with these claims; `None` if there are none.
    pub(super) fn new(
        message: Option<MessageId>,
        claims: impl Iterator<Item = (Claim, Arc<Pattern>)>,
        otherwise: Option<PromptId>,
        rule: MatchRule,
    ) -> Option<Self> {
        let claims: Vec<_> = claims.map(|(claim, pattern)| (claim, pattern, Progress::default())).collect();
        let is_any = !claims.is_empty();
        is_any.then(|| Self { message, otherwise, buffered: Buffered::default(), claims, rule })
    }

    /// Whether an update with this id belongs to the same message.
    pub fn is_of(&self, id: &MessageId, id_source: IdSource) -> bool {
        self.message == agents_id(id, id_source)
    }

    /// Holds back one more update of the message, or returns it if no claim is left. `more` is the number of bytes
    /// that the caller keeps with the update.
    pub fn on_update(&mut self, mut update: Update, id_source: IdSource, more: usize) -> Option<Update> {
        // No chunk was applied yet, so that each chunk without an id may have been assigned a different one; they are
        // one message.
        if let Some(first) = self.buffered.message().filter(|_| id_source == IdSource::Assigned) {
            rename(&mut update, first);
        }
        self.claims.retain_mut(|(_, pattern, progress)| {
            let next = advance(pattern, *progress, &update, self.rule);
            next.map(|next| *progress = next).is_some()
        });
        let longest = self.claims.iter().map(|(_, pattern, _)| pattern).max_by_key(|pattern| pattern.size());
        let other = match longest {
            Some(longest) => self.buffered.push(update, id_source, more, longest),
            None => Some(update),
        };
        if other.is_some() {
            self.claims.clear();
        }
        other
    }

    /// Whether the message has repeated every claim completely, so that no later update changes the decision.
    pub fn is_certain(&self) -> bool {
        self.rule == MatchRule::Equal
            && self.claims.iter().all(|(_, pattern, progress)| pattern.is_whole(*progress, self.rule))
    }

    /// Keeps the claims that are still possible; returns whether any is left.
    pub(super) fn retain(&mut self, can_be: impl Fn(&Claim) -> bool) -> bool {
        self.claims.retain(|(claim, ..)| can_be(claim));
        !self.claims.is_empty()
    }

    /// The oldest claim that the message has repeated completely.
    pub fn claim(&self) -> Option<&Claim> {
        let mut whole = self.claims.iter().filter(|(_, pattern, at)| pattern.is_whole(*at, self.rule));
        whole.next().map(|(claim, ..)| claim).filter(|_| !self.buffered.is_empty())
    }

    /// How much of a prompt the message has repeated, if that prompt is one of its claims.
    pub(crate) fn progress(&self, prompt: PromptId) -> Option<Progress> {
        let found = self.claims.iter().find(|(claim, ..)| *claim == Claim::Prompt(prompt));
        found.map(|(.., progress)| *progress)
    }

    /// The updates that were held back, in order.
    pub fn into_updates(mut self) -> Vec<(Update, IdSource)> {
        self.buffered.take()
    }
}

/// Updates of one message that are held back, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Buffered {
    updates: Vec<(Update, IdSource)>,
    bytes: usize,
}

/// Limits of the bytes held back: a multiple of the prompt's size, plus an allowance for updates without content, and
/// a maximum.
const MAX_BYTES: (usize, usize, usize) = (256, 64 << 10, 64 << 20);

/// Bytes that each update counts for besides its content.
const UPDATE_BYTES: usize = 128;

impl Buffered {
    /// Holds back an update, or returns it if that exceeds the limits.
    pub(crate) fn push(
        &mut self,
        update: Update,
        id_source: IdSource,
        more: usize,
        prompt: &Pattern,
    ) -> Option<Update> {
        let (times, least, most) = MAX_BYTES;
        self.bytes += UPDATE_BYTES + size_of(&update) + more;
        if self.bytes > prompt.size().saturating_mul(times).saturating_add(least).min(most) {
            return Some(update);
        }
        self.updates.push((update, id_source));
        None
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.updates.is_empty()
    }

    pub(crate) fn take(&mut self) -> Vec<(Update, IdSource)> {
        std::mem::take(self).updates
    }

    /// The message that the updates belong to.
    fn message(&self) -> Option<&MessageId> {
        self.updates.first().and_then(|(first, _)| user_message(first))
    }

    /// Whether none of the updates changes the content of the message.
    pub(crate) fn has_no_content(&self) -> bool {
        !self.updates.iter().any(|(update, _)| has_content(update))
    }

    /// Removes the updates and returns those parts of them that are not content.
    pub(crate) fn take_without_content(&mut self) -> Vec<Update> {
        self.take().into_iter().filter_map(|(update, _)| without_content(update)).collect()
    }

    /// As [`take_without_content`](Self::take_without_content), but chunks stay.
    pub(crate) fn take_upserts_without_content(&mut self) -> Vec<Update> {
        let upserts = self.updates.extract_if(.., |(update, _)| !matches!(update, Update::Append { .. }));
        upserts.filter_map(|(update, _)| without_content(update)).collect()
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

/// The part of an update that is not content.
pub(crate) fn without_content(update: Update) -> Option<Update> {
    let Update::Upsert { target, mut upsert } = update else { return None };
    upsert.whole = false;
    upsert.content = Patch::Omitted;
    let says_more = !upsert.fields.is_empty() || upsert.meta != MetaPatch::Keep;
    says_more.then_some(Update::Upsert { target, upsert })
}

/// Whether an update changes content.
pub(crate) fn has_content(update: &Update) -> bool {
    matches!(update, Update::Append { .. })
        || matches!(update, Update::Upsert { upsert, .. } if !upsert.content.is_omitted())
}

/// The user message that an update appends to or patches.
pub fn user_message(update: &Update) -> Option<&MessageId> {
    let (Update::Append { entry, .. } | Update::Upsert { target: Target::Entry(entry), .. }) = update else {
        return None;
    };
    if let EntryId::Message(Role::User, id) = entry { Some(id) } else { None }
}

/// Whether an update adds an entry to the transcript. Slots and existing entries may change at any time.
pub fn is_output(update: &Update, transcript: &Transcript) -> bool {
    match update {
        Update::Upsert { target: Target::Slot(_), .. } | Update::State(_) => false,
        Update::Output { .. } | Update::Note { .. } => true,
        Update::Upsert { target: Target::Entry(entry), .. }
        | Update::Append { entry, .. }
        | Update::Remove { entry, .. } => transcript.get(entry).is_none(),
    }
}

/// Approximate bytes of an update.
pub(crate) fn size_of(update: &Update) -> usize {
    match update {
        Update::Append { item, extra, .. } => {
            item.as_str().len() + extra.as_ref().map_or(0, |extra| extra.as_str().len())
        }
        Update::Upsert { upsert, .. } => {
            let content = if let Patch::Value(content) = &upsert.content { content.size() } else { 0 };
            content + upsert.fields.text_len() + upsert.meta.size()
        }
        Update::Output { .. } | Update::Remove { .. } | Update::Note { .. } | Update::State(_) => 0,
    }
}

/// The id of a message if the agent gave it.
pub(super) fn agents_id(id: &MessageId, id_source: IdSource) -> Option<MessageId> {
    (id_source != IdSource::Assigned).then(|| id.clone())
}

fn rename(update: &mut Update, id: &MessageId) {
    if let Update::Append { entry: EntryId::Message(_, old), .. }
    | Update::Upsert { target: Target::Entry(EntryId::Message(_, old)), .. } = update
    {
        old.clone_from(id);
    }
}

#[cfg(test)]
mod tests {
    use parlor_json::Json;

    use super::*;
    use crate::Content;

    fn candidate(text: &str, rule: MatchRule) -> Candidate {
        let prompt = format!(r#"[{{"type":"text","text":"{text}"}}]"#);
        let pattern = Pattern::of(&Content::parse(Json::parse(prompt).unwrap().raw()).unwrap());
        let claim = (Claim::Message("prompt".into()), Arc::new(pattern));
        Candidate::new(None, [claim].into_iter(), None, rule).unwrap()
    }

    /// Adds a chunk without an id, which was assigned one.
    fn add_chunk(candidate: &mut Candidate, text: &str, number: usize, more: usize) -> Option<Update> {
        let item = Json::parse(format!(r#"{{"type":"text","text":"{text}"}}"#)).unwrap();
        let entry = EntryId::Message(Role::User, format!("~{number}").as_str().into());
        candidate.on_update(Update::Append { entry, item, extra: None }, IdSource::Assigned, more)
    }

    #[test]
    fn a_prompt_may_be_repeated_character_by_character() {
        const LENGTH: usize = 100_000;
        for rule in [MatchRule::Equal, MatchRule::EqualText] {
            let mut candidate = candidate(&"x".repeat(LENGTH), rule);
            for number in 0..LENGTH {
                assert_eq!(candidate.claim(), None);
                assert_eq!(add_chunk(&mut candidate, "x", number, 0), None);
            }
            assert_eq!(candidate.claim(), Some(&Claim::Message("prompt".into())));
            assert_eq!(
                candidate.is_certain(),
                rule == MatchRule::Equal,
                "more of it would be another message"
            );
            let all = candidate.into_updates();
            assert!(all.iter().all(|(update, _)| user_message(update) == Some(&"~0".into())));
        }
    }

    #[test]
    fn updates_without_content_are_held_back_up_to_a_limit() {
        // Each update counts for its size, and at least for what it costs to keep it.
        for (text, more, fewest, most) in [("", 0, 400, 500), ("", 1 << 10, 55, 60), ("", 65 << 10, 0, 0)] {
            let mut candidate = candidate("hi", MatchRule::Equal);
            assert_eq!(add_chunk(&mut candidate, "hi", 0, 0), None);
            let held = (1..10_000)
                .take_while(|number| add_chunk(&mut candidate, text, *number, more).is_none())
                .count();
            assert!((fewest..=most).contains(&held), "{held} with {more} bytes each");
            assert_eq!(candidate.claim(), None, "it is something else then");
        }
        let mut candidate = candidate(&"x".repeat(1 << 20), MatchRule::Equal);
        let held = (0..10_000)
            .take_while(|number| add_chunk(&mut candidate, "x", *number, 1 << 20).is_none())
            .count();
        assert_eq!(held, 63, "it is never more than 64 MiB");
    }
}
