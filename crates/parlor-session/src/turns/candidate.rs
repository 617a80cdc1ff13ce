//! User messages of the agent that may be prompts, held back until that is decided.

use std::sync::Arc;

use super::PromptId;
use super::pattern::{MatchRule, Pattern, Progress};
use super::repetition::{Claim, Repetition};
use crate::{EntryId, IdSource, MessageId, MetaPatch, Patch, Role, Target, Transcript, Update};

/// Updates of a new user message that may be a prompt.
///
/// Chunks without ids are one message, so that they may also be several prompts, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The agent's id of the message, if it gives one.
    pub message: Option<MessageId>,
    /// The prompt that the message is even if it equals no prompt: the agent accepted that prompt before, without a
    /// message id.
    pub otherwise: Option<PromptId>,
    pub(crate) buffered: Buffered,
    /// The ways in which the message repeats prompts, the one with the oldest prompts first.
    repetitions: Vec<Repetition>,
    rule: MatchRule,
}

/// Maximum number of ways in which a message may repeat prompts.
const MAX_REPETITIONS: usize = 256;

impl Candidate {
    /// A candidate with these claims; `None` if there are none.
    pub(super) fn new(
        message: Option<MessageId>,
        claims: &[(Claim, Arc<Pattern>)],
        otherwise: Option<PromptId>,
        rule: MatchRule,
    ) -> Option<Self> {
        let repetitions: Vec<_> = claims.iter().take(MAX_REPETITIONS).map(Repetition::new).collect();
        let is_any = !repetitions.is_empty();
        is_any.then(|| Self { message, otherwise, buffered: Buffered::default(), repetitions, rule })
    }

    /// Whether an update with this id belongs to the same message.
    pub fn is_of(&self, id: &MessageId, id_source: IdSource) -> bool {
        self.message == agents_id(id, id_source)
    }

    /// Holds back one more update of the message, or returns it if it repeats no prompt. `more` is the number of bytes
    /// that the caller keeps with the update, `claims` the prompts that the agent may repeat now, in order.
    pub fn on_update(
        &mut self,
        mut update: Update,
        id_source: IdSource,
        more: usize,
        claims: &[(Claim, Arc<Pattern>)],
    ) -> Option<Update> {
        // No chunk was applied yet, so that each chunk without an id may have been assigned a different one; they are
        // one message.
        if let Some(first) = self.buffered.message().filter(|_| id_source == IdSource::Assigned) {
            rename(&mut update, first);
        }
        let may_be_several = self.message.is_none() && matches!(update, Update::Append { .. });
        for repetition in std::mem::take(&mut self.repetitions) {
            let followed =
                if may_be_several { repetition.followed(&update, claims, self.rule) } else { Vec::new() };
            for next in repetition.continued(&update, self.rule).into_iter().chain(followed) {
                let is_new = !self.repetitions.iter().any(|other| other.is_at_same_point(&next));
                if is_new && self.repetitions.len() < MAX_REPETITIONS {
                    self.repetitions.push(next);
                }
            }
        }
        let other = match self.repetitions.iter().map(Repetition::size).max() {
            Some(longest) => self.buffered.push(update, id_source, more, longest),
            None => Some(update),
        };
        if other.is_some() {
            self.repetitions.clear();
        }
        other
    }

    /// Whether the message has repeated every claim completely, so that no later update changes the decision.
    pub fn is_certain(&self) -> bool {
        self.rule == MatchRule::Equal && self.repetitions.iter().all(|one| one.is_whole(self.rule))
    }

    /// Keeps the repetitions of claims that are still possible; returns whether any is left.
    pub(super) fn retain(&mut self, can_be: impl Fn(&Claim) -> bool) -> bool {
        self.repetitions.retain(|one| one.claims().all(&can_be));
        !self.repetitions.is_empty()
    }

    /// The claims that the message has repeated completely, in order; the oldest ones if several are possible.
    pub fn claims(&self) -> Vec<Claim> {
        let mut whole = self.repetitions.iter().filter(|one| one.is_whole(self.rule));
        let first = whole.next().filter(|_| !self.buffered.is_empty());
        first.map(|one| one.claims().cloned().collect()).unwrap_or_default()
    }

    /// Whether the message may repeat a prompt, perhaps after others.
    pub(crate) fn repeats(&self, prompt: PromptId) -> bool {
        self.repetitions.iter().any(|one| one.claims().any(|claim| *claim == Claim::Prompt(prompt)))
    }

    /// Whether the message ends with the response to a prompt for the running turn: it has no id, and consists of prompts. It
    /// goes on if this prompt has been repeated in part.
    pub(crate) fn is_ended_by_response(&self, prompt: PromptId) -> bool {
        let claims = self.claims();
        let is_whole = claims.contains(&Claim::Prompt(prompt)) || !self.repeats(prompt);
        self.message.is_none() && !claims.is_empty() && is_whole
    }

    /// How much of a prompt the message has repeated, if that prompt is one of its claims.
    pub(crate) fn progress(&self, prompt: PromptId) -> Option<Progress> {
        self.repetitions.iter().find_map(|one| one.progress(prompt))
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
        prompt_size: usize,
    ) -> Option<Update> {
        let (times, least, most) = MAX_BYTES;
        self.bytes += UPDATE_BYTES + size_of(&update) + more;
        if self.bytes > prompt_size.saturating_mul(times).saturating_add(least).min(most) {
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

    /// Prompts in the transcript with these texts.
    fn claims(texts: &[&str]) -> Vec<(Claim, Arc<Pattern>)> {
        let claim = |(index, text): (usize, &&str)| {
            let prompt = format!(r#"[{{"type":"text","text":"{text}"}}]"#);
            let pattern = Pattern::of(&Content::parse(Json::parse(prompt).unwrap().raw()).unwrap());
            (message(index), Arc::new(pattern))
        };
        texts.iter().enumerate().map(claim).collect()
    }

    fn message(index: usize) -> Claim {
        Claim::Message(format!("prompt{index}").as_str().into())
    }

    fn candidate(text: &str, rule: MatchRule) -> Candidate {
        Candidate::new(None, &claims(&[text]), None, rule).unwrap()
    }

    /// Adds a chunk without an id, which was assigned one.
    fn add_chunk(candidate: &mut Candidate, text: &str, number: usize, more: usize) -> Option<Update> {
        let item = Json::parse(format!(r#"{{"type":"text","text":"{text}"}}"#)).unwrap();
        let entry = EntryId::Message(Role::User, format!("~{number}").as_str().into());
        candidate.on_update(Update::Append { entry, item, extra: None }, IdSource::Assigned, more, &[])
    }

    #[test]
    fn a_prompt_may_be_repeated_character_by_character() {
        const LENGTH: usize = 100_000;
        for rule in [MatchRule::Equal, MatchRule::EqualText] {
            let mut candidate = candidate(&"x".repeat(LENGTH), rule);
            for number in 0..LENGTH {
                assert_eq!(candidate.claims(), []);
                assert_eq!(add_chunk(&mut candidate, "x", number, 0), None);
            }
            assert_eq!(candidate.claims(), [message(0)]);
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
            assert_eq!(candidate.claims(), [], "it is something else then");
        }
        let mut candidate = candidate(&"x".repeat(1 << 20), MatchRule::Equal);
        let held = (0..10_000)
            .take_while(|number| add_chunk(&mut candidate, "x", *number, 1 << 20).is_none())
            .count();
        assert_eq!(held, 63, "it is never more than 64 MiB");
    }

    /// The prompts that chunks without ids are, by their indexes; `None` if they repeat no prompts.
    fn repeated(prompts: &[&str], chunks: &[&str]) -> Option<Vec<usize>> {
        let claims = claims(prompts);
        let mut candidate = Candidate::new(None, &claims, None, MatchRule::EqualText).unwrap();
        for (number, text) in chunks.iter().enumerate() {
            let item = Json::parse(format!(r#"{{"type":"text","text":"{text}"}}"#)).unwrap();
            let entry = EntryId::Message(Role::User, format!("~{number}").as_str().into());
            let chunk = Update::Append { entry, item, extra: None };
            if candidate.on_update(chunk, IdSource::Assigned, 0, &claims).is_some() {
                return None;
            }
        }
        let index = |claim: &Claim| claims.iter().position(|(other, _)| other == claim).unwrap();
        Some(candidate.claims().iter().map(index).collect())
    }

    #[test]
    fn chunks_without_ids_may_be_several_prompts_in_order() {
        for (prompts, chunks, expected) in [
            (&["one", "two"][..], &["one", "two"][..], Some(&[0, 1][..])),
            (&["one", "two"], &["o", "ne", "tw", "o"], Some(&[0, 1])),
            (&["one", "two", "three"], &["one", "two", "three"], Some(&[0, 1, 2])),
            (&["one", "two", "three"], &["one", "three"], Some(&[0, 2])),
            (&["one", "two"], &["one", "tw"], Some(&[])),
            (&["one", "two"], &["one", "two!"], None),
            (&["one", "two"], &["one", "one"], None),
            (&["one", "two"], &["two", "one"], None),
            (&["one", "two"], &["onetwo"], None),
            (&["one", "one", "one"], &["one", "one"], Some(&[0, 1])),
            // One prompt begins like the other, or like the other after it.
            (&["go", "go on"], &["go", "go on"], Some(&[0, 1])),
            (&["go", "go on"], &["go", " on"], Some(&[1])),
            (&["go on", "go"], &["go", " on", "go"], Some(&[0, 1])),
            (&["aa", "aaa"], &["a", "a", "a", "a", "a"], Some(&[0, 1])),
            (&["a", "ab", "b"], &["a", "a", "b", "b"], Some(&[0, 1, 2])),
            // A prompt that has no text is not repeated by text.
            (&["", "one", "", "two"], &["one", "two"], Some(&[1, 3])),
        ] {
            assert_eq!(repeated(prompts, chunks).as_deref(), expected, "{prompts:?} {chunks:?}");
        }
    }

    #[test]
    fn a_message_with_an_id_is_one_prompt() {
        let claims = claims(&["one", "two"]);
        let mut candidate = Candidate::new(Some("u".into()), &claims, None, MatchRule::EqualText).unwrap();
        let chunk = |text: &str| {
            let item = Json::parse(format!(r#"{{"type":"text","text":"{text}"}}"#)).unwrap();
            Update::Append { entry: EntryId::Message(Role::User, "u".into()), item, extra: None }
        };
        assert_eq!(candidate.on_update(chunk("one"), IdSource::Given, 0, &claims), None);
        assert_eq!(candidate.claims(), [message(0)]);
        assert!(candidate.on_update(chunk("two"), IdSource::Given, 0, &claims).is_some());
    }

    #[test]
    fn the_ways_to_repeat_prompts_are_limited() {
        let prompts: Vec<_> = (1..=64).map(|length| "x".repeat(length * length)).collect();
        let prompts: Vec<_> = prompts.iter().map(String::as_str).collect();
        let claims = claims(&prompts);
        let mut candidate = Candidate::new(None, &claims, None, MatchRule::EqualText).unwrap();
        for number in 0..1000 {
            let item = Json::parse(r#"{"type":"text","text":"x"}"#).unwrap();
            let entry = EntryId::Message(Role::User, format!("~{number}").as_str().into());
            let chunk = Update::Append { entry, item, extra: None };
            assert_eq!(candidate.on_update(chunk, IdSource::Assigned, 0, &claims), None);
        }
        assert_eq!(candidate.repetitions.len(), MAX_REPETITIONS);
    }
}
