//! Agents that repeat a prompt.

use std::collections::VecDeque;
use std::sync::Arc;

use parlor_json::Json;

use super::PromptId;
use super::pattern::{Pattern, Progress, Rule, are_same_blocks};
use crate::{Content, EntryId, MessageId, MetaPatch, Naming, Patch, Role, Target, Update};

/// What an agent that takes prompts one by one may repeat of the prompt that it was sent. Such an agent has no name
/// for it, so that only the text tells, and only until there is output. It may name the prompt that way; it adds
/// nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Echo {
    /// The prompt's message in the session.
    message: MessageId,
    pattern: Arc<Pattern>,
    progress: Progress,
    /// The agent's id of the message, if it has one.
    named: Option<MessageId>,
    /// What may be the echo.
    buffered: Buffered,
    /// Whether something came that is not the prompt.
    diverged: bool,
}

/// What came of an update.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It may be the prompt.
    Waits,
    /// Something that has nothing to do with it.
    Beside(Update),
    /// Something else, after which nothing is the prompt.
    Over(Update),
}

/// What was heard in the end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The prompt once more.
    Again {
        /// Its message.
        message: MessageId,
        /// The agent's id for it.
        named: Option<MessageId>,
        /// What was said about it besides its content.
        left: Vec<Update>,
    },
    /// Something else, or nothing.
    News(Vec<(Update, Naming)>),
}

/// Updates of one message that may repeat a prompt, until it is known whether they do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Buffered {
    updates: Vec<(Update, Naming)>,
    bytes: usize,
}

/// How much may be buffered of an echo: this many times the prompt, and this much for what says nothing of it.
const MAX_BUFFERED: (usize, usize) = (64, 64 << 10);

/// What an update counts for besides what it says.
const UPDATE_BYTES: usize = 16;

impl Buffered {
    /// Keeps an update, and hands it back if what is kept would be far more than the prompt.
    fn push(&mut self, update: Update, naming: Naming, pattern: &Pattern) -> Option<Update> {
        self.bytes += UPDATE_BYTES + size_of(&update);
        if self.bytes > MAX_BUFFERED.0 * pattern.size() + MAX_BUFFERED.1 {
            return Some(update);
        }
        self.updates.push((update, naming));
        None
    }

    pub(super) fn is_empty(&self) -> bool {
        self.updates.is_empty()
    }

    pub(super) fn take(&mut self) -> Vec<(Update, Naming)> {
        std::mem::take(self).updates
    }

    /// Whether nothing of it is about the content of its message.
    pub(super) fn is_bare(&self) -> bool {
        self.updates.iter().all(|(update, _)| content_of(update).is_omitted())
    }

    /// What was said about a prompt that was repeated, besides its content.
    pub(super) fn left(&mut self) -> Vec<Update> {
        self.take().into_iter().filter_map(|(update, _)| left_of(update)).collect()
    }
}

impl Echo {
    pub(super) fn of(message: &MessageId, pattern: Arc<Pattern>) -> Self {
        Self {
            message: message.clone(),
            pattern,
            progress: Progress::default(),
            named: None,
            buffered: Buffered::default(),
            diverged: false,
        }
    }

    /// Hears an update. `is_late`: it is about something of an earlier turn.
    pub(super) fn hears(&mut self, mut update: Update, naming: Naming, is_late: bool) -> Heard {
        let Some(id) = user_message(&update) else {
            // What a session has once may come at any time.
            let is_beside = match &update {
                Update::Upsert { target: Target::Slot(_), .. } => true,
                Update::Note { .. } => self.buffered.is_empty(),
                Update::Upsert { .. }
                | Update::Append { .. }
                | Update::Output { .. }
                | Update::Remove { .. }
                | Update::State(_) => is_late,
            };
            return if is_beside { Heard::Beside(update) } else { Heard::Over(update) };
        };
        let named = (naming != Naming::Named).then(|| id.clone());
        if !self.buffered.is_empty() && named != self.named {
            return Heard::Over(update);
        }
        if let Some(progress) = advance(&self.pattern, self.progress, &update, Rule::EqualText) {
            match self.buffered.push(update, naming, &self.pattern) {
                None => {
                    self.progress = progress;
                    self.named = named;
                    return Heard::Waits;
                }
                Some(back) => update = back,
            }
        }
        // It goes on with what was said, and so what was said is not the prompt either.
        self.diverged = true;
        let first = self.buffered.updates.first().and_then(|(first, _)| user_message(first));
        if let Some(first) = first.filter(|_| naming == Naming::Named).cloned() {
            rename(&mut update, &first);
        }
        Heard::Over(update)
    }

    pub(super) fn ending(mut self) -> Ending {
        let is_whole = !self.diverged && self.pattern.is_whole(self.progress, Rule::EqualText);
        if is_whole && !self.buffered.is_empty() {
            let mut left = self.buffered.left();
            left.iter_mut().for_each(|update| rename(update, &self.message));
            return Ending::Again { message: self.message, named: self.named, left };
        }
        let mut news = self.buffered.take();
        // Nobody has taken them yet, so each chunk without an id got one of its own; they are one message.
        let first = news.first().and_then(|(first, _)| user_message(first)).cloned();
        if let Some(first) = first {
            let unnamed = news.iter_mut().filter(|(_, naming)| *naming == Naming::Named);
            unnamed.for_each(|(update, _)| rename(update, &first));
        }
        Ending::News(news)
    }
}

/// What an agent that assigns the ids may repeat of the prompts that are in the conversation.
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

/// What is left to take of updates of a message that may repeat a prompt, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Rest {
    /// What was kept before and is not the prompt, and what is left of an update that is in part.
    pub(super) before: Vec<(Update, Naming)>,
    /// The update itself, as it came.
    pub(super) update: Option<Update>,
}

impl From<Update> for Rest {
    fn from(update: Update) -> Self {
        Self { before: Vec::new(), update: Some(update) }
    }
}

impl Echoes {
    /// Expects a prompt that is this message now.
    pub(super) fn expect(&mut self, message: &MessageId, is_named: bool, pattern: Arc<Pattern>) {
        self.forget(message);
        if self.0.len() >= MAX_EXPECTED {
            self.0.pop_front();
        }
        self.0.push_back(Expected {
            message: message.clone(),
            is_named,
            is_past: false,
            pattern,
            progress: Progress::default(),
            buffered: Buffered::default(),
        });
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
        if expected.pattern.is_whole(progress, Rule::Equal) {
            self.0.remove(place);
            return said.left();
        }
        let other = said.updates.extract_if(.., |(update, _)| !matches!(update, Update::Append { .. }));
        let left = other.filter_map(|(update, _)| left_of(update)).collect();
        expected.progress = progress;
        expected.buffered = said;
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
    pub(super) fn unnamed(&self) -> impl Iterator<Item = (&MessageId, &Arc<Pattern>)> {
        self.0
            .iter()
            .filter(|expected| !expected.is_named)
            .map(|expected| (&expected.message, &expected.pattern))
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

    /// Hears an update of a message that is in the conversation, with this content.
    pub(super) fn hears(
        &mut self,
        update: Update,
        naming: Naming,
        message: &MessageId,
        stored: &Content,
    ) -> Rest {
        let Some(place) = self.place(message) else { return update.into() };
        let expected = &mut self.0[place];
        match &update {
            Update::Append { .. } => {
                let Some(progress) = advance(&expected.pattern, expected.progress, &update, Rule::EqualText)
                else {
                    return Rest { before: self.given_up(place), update: Some(update) };
                };
                if let Some(update) = expected.buffered.push(update, naming, &expected.pattern) {
                    return Rest { before: self.given_up(place), update: Some(update) };
                }
                expected.progress = progress;
                if expected.pattern.is_whole(progress, Rule::Equal) {
                    self.0.remove(place);
                }
                Rest::default()
            }
            Update::Upsert { upsert, .. } => match &upsert.content {
                Patch::Omitted => update.into(),
                Patch::Value(content) if expected.pattern.equals(content) => {
                    // What was kept would have been replaced by this.
                    expected.progress = Progress::default();
                    expected.buffered = Buffered::default();
                    if are_same_blocks(content, stored) {
                        let left = left_of(update).map(|left| (left, naming));
                        Rest { before: left.into_iter().collect(), update: None }
                    } else {
                        update.into()
                    }
                }
                Patch::Value(_) | Patch::Clear => {
                    self.0.remove(place);
                    update.into()
                }
            },
            Update::Output { .. } | Update::Remove { .. } | Update::Note { .. } | Update::State(_) => {
                update.into()
            }
        }
    }

    /// What was kept of a prompt that is not repeated after all, unless it was in all but what is no text.
    fn given_up(&mut self, place: usize) -> Vec<(Update, Naming)> {
        let Some(mut expected) = self.0.remove(place) else { return Vec::new() };
        if expected.pattern.is_whole(expected.progress, Rule::EqualText) {
            return Vec::new();
        }
        expected.buffered.take()
    }

    /// The turn is over: what was begun is not finished any more. What is left to take of it.
    pub(super) fn turn_ended(&mut self) -> Vec<(Update, Naming)> {
        let mut left = Vec::new();
        for place in (0..self.0.len()).rev() {
            if !self.0[place].buffered.is_empty() {
                left.splice(0..0, self.given_up(place));
            }
        }
        left
    }
}

/// Chunks of a new user message that may be a prompt, until they are one or are something else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    /// The agent's id of the message.
    pub(super) id: MessageId,
    pub(super) buffered: Buffered,
    /// What it may be.
    claims: Vec<(Claim, Arc<Pattern>, Progress)>,
    /// The prompt that this is whatever it says: the agent has accepted that before, and says no ids with that.
    pub(super) otherwise: Option<PromptId>,
}

/// What a new user message may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Claim {
    /// A prompt that the agent has.
    Prompt(PromptId),
    /// A prompt in the conversation for which the agent has given no id.
    Message(MessageId),
}

impl Candidate {
    pub(super) fn new(
        id: &MessageId,
        claims: Vec<(Claim, Arc<Pattern>)>,
        otherwise: Option<PromptId>,
    ) -> Self {
        let claims =
            claims.into_iter().map(|(claim, pattern)| (claim, pattern, Progress::default())).collect();
        Self { id: id.clone(), buffered: Buffered::default(), claims, otherwise }
    }

    /// Hears one more update of the message, and hands it back if the message is nothing that it could be.
    pub(super) fn hears(&mut self, update: Update, naming: Naming) -> Option<Update> {
        self.claims.retain_mut(|(_, pattern, progress)| {
            let next = advance(pattern, *progress, &update, Rule::Equal);
            next.map(|next| *progress = next).is_some()
        });
        let longest = self.claims.iter().map(|(_, pattern, _)| pattern).max_by_key(|pattern| pattern.size());
        match longest.cloned() {
            Some(longest) => self.buffered.push(update, naming, &longest),
            None => Some(update),
        }
    }

    /// Whether it is all that it could be.
    pub(super) fn is_certain(&self) -> bool {
        self.claims.iter().all(|(_, pattern, progress)| pattern.is_whole(*progress, Rule::Equal))
    }

    /// Leaves out what it cannot be any more; whether anything is left.
    pub(super) fn retain(&mut self, can_be: impl Fn(&Claim) -> bool) -> bool {
        self.claims.retain(|(claim, ..)| can_be(claim));
        !self.claims.is_empty()
    }

    /// What it is, as far as it was said: the oldest that was said in whole.
    pub(super) fn claim(&self) -> Option<&Claim> {
        let is_whole =
            |(_, pattern, progress): &&(_, Arc<Pattern>, _)| pattern.is_whole(*progress, Rule::Equal);
        self.claims.iter().find(is_whole).map(|(claim, ..)| claim)
    }

    /// How much of a prompt it has repeated, if it may be that prompt.
    pub(super) fn progress(&self, prompt: PromptId) -> Option<Progress> {
        let found = self.claims.iter().find(|(claim, ..)| *claim == Claim::Prompt(prompt));
        found.map(|(.., progress)| *progress)
    }
}

fn advance(pattern: &Pattern, from: Progress, update: &Update, rule: Rule) -> Option<Progress> {
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

/// What an update that repeats a prompt says about it that the prompt did not.
pub(super) fn left_of(update: Update) -> Option<Update> {
    let Update::Upsert { target, mut upsert } = update else { return None };
    upsert.whole = false;
    upsert.content = Patch::Omitted;
    let says_more = !upsert.fields.is_empty() || upsert.meta != MetaPatch::Keep;
    says_more.then_some(Update::Upsert { target, upsert })
}

/// What an update says about content.
pub(super) fn content_of(update: &Update) -> Patch<()> {
    match update {
        Update::Append { .. } => Patch::Value(()),
        Update::Upsert { upsert, .. } => match upsert.content {
            Patch::Omitted => Patch::Omitted,
            Patch::Clear => Patch::Clear,
            Patch::Value(_) => Patch::Value(()),
        },
        Update::Output { .. } | Update::Remove { .. } | Update::Note { .. } | Update::State(_) => {
            Patch::Omitted
        }
    }
}

/// The message of a user that an update says something of.
pub(super) fn user_message(update: &Update) -> Option<&MessageId> {
    match update {
        Update::Append { entry: EntryId::Message(Role::User, id), .. }
        | Update::Upsert { target: Target::Entry(EntryId::Message(Role::User, id)), .. } => Some(id),
        Update::Append { .. }
        | Update::Upsert { .. }
        | Update::Output { .. }
        | Update::Remove { .. }
        | Update::Note { .. }
        | Update::State(_) => None,
    }
}

/// How long an update is, about.
pub(super) fn size_of(update: &Update) -> usize {
    let length = |extra: &Option<Json>| extra.as_ref().map_or(0, |extra| extra.as_str().len());
    match update {
        Update::Append { item, extra, .. } => item.as_str().len() + length(extra),
        Update::Upsert { upsert, .. } => {
            let content = if let Patch::Value(content) = &upsert.content { content.size() } else { 0 };
            let meta = match &upsert.meta {
                MetaPatch::Keep | MetaPatch::Clear => 0,
                MetaPatch::Replace(meta) | MetaPatch::MergeKeys(meta) | MetaPatch::MergeDeep(meta) => {
                    meta.text_len()
                }
            };
            content + upsert.fields.text_len() + meta
        }
        Update::Output { .. } | Update::Remove { .. } | Update::Note { .. } | Update::State(_) => 0,
    }
}

pub(super) fn rename(update: &mut Update, name: &MessageId) {
    if let Some(EntryId::Message(_, id)) = super::entry_of(update) {
        id.clone_from(name);
    }
}

/// The blocks of a prompt.
pub(super) fn blocks(content: &Json) -> Content {
    Content::parse(content.raw()).unwrap_or_default()
}
