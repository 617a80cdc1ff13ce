//! Agents that say a prompt again before they answer it.

use std::collections::VecDeque;

use parlor_json::Json;

use crate::{Content, EntryId, MessageId, MetaPatch, Naming, Patch, Role, Target, Update, text_of};

/// What an agent that takes prompts one by one may say again of the prompt that it was sent. Such an agent has no name
/// for it, so that only the text tells, and only until there is output. It may name the prompt that way; it adds
/// nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Echo {
    /// The prompt's message in the session.
    message: MessageId,
    /// What the agent calls it, if it has said so.
    named: Option<MessageId>,
    text: String,
    said: String,
    /// What was said so far, should it turn out to be something else.
    heard: Vec<(Update, Naming)>,
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
    /// The prompt, which is this message, once more; with the agent's name for it.
    Again(MessageId, Option<MessageId>),
    /// Something else, or nothing.
    News(Vec<(Update, Naming)>),
}

impl Echo {
    pub(super) fn of(message: &MessageId, content: &Content) -> Self {
        Self {
            message: message.clone(),
            named: None,
            text: content.to_text(),
            said: String::new(),
            heard: Vec::new(),
        }
    }

    /// Hears an update. `is_late`: it is about something of an earlier turn.
    pub(super) fn hears(&mut self, mut update: Update, naming: Naming, is_late: bool) -> Heard {
        let Some((id, text)) = user_text(&update) else {
            // What a session has once may come at any time.
            let is_beside = match &update {
                Update::Upsert { target: Target::Slot(_), .. } => true,
                Update::Note { .. } => self.heard.is_empty(),
                Update::Upsert { .. }
                | Update::Append { .. }
                | Update::Output { .. }
                | Update::Remove { .. }
                | Update::State(_) => is_late,
            };
            return if is_beside { Heard::Beside(update) } else { Heard::Over(update) };
        };
        let named = (naming != Naming::Named).then(|| id.clone());
        let is_same = self.heard.is_empty() || named == self.named;
        if !is_same {
            return Heard::Over(update);
        }
        let first = self.heard.first().and_then(|(first, _)| user_text(first)).map(|(id, _)| id.clone());
        let said = format!("{}{text}", self.said);
        if self.text.starts_with(&said) {
            self.said = said;
            self.named = named;
            self.heard.push((update, naming));
            return Heard::Waits;
        }
        // It goes on with what was said, and so what was said is not the prompt either.
        self.said = said;
        if let Some(first) = first.filter(|_| naming == Naming::Named) {
            rename(&mut update, &first);
        }
        Heard::Over(update)
    }

    pub(super) fn ending(self) -> Ending {
        if !self.heard.is_empty() && self.said == self.text {
            return Ending::Again(self.message, self.named);
        }
        let mut heard = self.heard;
        // Nobody has taken them yet, so each chunk without an id got one of its own; they are one message.
        let first = heard.first().and_then(|(first, _)| user_text(first)).map(|(id, _)| id.clone());
        if let Some(first) = first {
            let unnamed = heard.iter_mut().filter(|(_, naming)| *naming == Naming::Named);
            unnamed.for_each(|(update, _)| rename(update, &first));
        }
        Ending::News(heard)
    }
}

/// What an agent that names prompts may say again of those that are in the conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Echoes(VecDeque<Expected>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Expected {
    message: MessageId,
    /// What the agent calls it, if it has said so.
    named: Option<MessageId>,
    text: String,
    said: String,
    /// Whether all of it was said again.
    whole: bool,
    /// Whether something else was said since.
    aged: bool,
}

/// How many prompts are expected to be said again. The oldest is given up for one more.
const MAX_EXPECTED: usize = 64;

/// What came of an update of a user's message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Again {
    /// The prompt once more. If the agent named it only now: the name, and the message it is for. What is left says
    /// something besides the prompt.
    Yes { named: Option<(MessageId, MessageId)>, left: Option<Update> },
    /// Something else.
    No(Update),
}

impl Echoes {
    pub(super) fn expect(&mut self, message: &MessageId, named: Option<&MessageId>, content: &Content) {
        // A name that is used again means the later prompt.
        self.0.retain(|expected| named.is_none() || expected.named.as_ref() != named);
        if self.0.len() >= MAX_EXPECTED {
            self.0.pop_front();
        }
        self.0.push_back(Expected {
            message: message.clone(),
            named: named.cloned(),
            text: content.to_text(),
            said: String::new(),
            whole: false,
            aged: false,
        });
    }

    /// Something else was said. Later the text must be that of the prompt, for then the agent may change it as well.
    pub(super) fn age(&mut self) {
        self.0.retain_mut(|expected| {
            expected.aged = true;
            !expected.whole
        });
    }

    pub(super) fn hears(&mut self, update: Update) -> Again {
        let Some((id, text)) = user_text(&update) else { return Again::No(update) };
        let is_chunk = matches!(update, Update::Append { .. });
        let named = self.0.iter().position(|expected| expected.named.as_ref() == Some(id));
        let found = named.or_else(|| self.0.iter().position(|expected| expected.may_be(&text, is_chunk)));
        let Some(place) = found else { return Again::No(update) };
        let expected = &mut self.0[place];
        if expected.aged && !expected.goes_on(&text, is_chunk) {
            self.0.remove(place);
            return Again::No(update);
        }
        expected.said.push_str(&text);
        expected.whole |= !is_chunk || expected.said == expected.text;
        let named = expected.named.is_none().then(|| (id.clone(), expected.message.clone()));
        expected.named = Some(id.clone());
        Again::Yes { named, left: left_of(update) }
    }
}

impl Expected {
    /// Whether something may be this prompt, which the agent has not named.
    fn may_be(&self, text: &str, is_chunk: bool) -> bool {
        self.named.is_none() && self.goes_on(text, is_chunk)
    }

    fn goes_on(&self, text: &str, is_chunk: bool) -> bool {
        if self.whole {
            return false;
        }
        if is_chunk {
            !text.is_empty() && self.text.strip_prefix(&self.said).is_some_and(|rest| rest.starts_with(text))
        } else {
            text == self.text
        }
    }
}

/// What an update that says a prompt again says about it that the prompt did not.
fn left_of(update: Update) -> Option<Update> {
    let Update::Upsert { target, mut upsert } = update else { return None };
    upsert.whole = false;
    upsert.content = Patch::Omitted;
    let says_more = !upsert.fields.is_empty() || upsert.meta != MetaPatch::Keep;
    says_more.then_some(Update::Upsert { target, upsert })
}

/// The message of a user that an update is about, and the text in the update.
pub(super) fn user_text(update: &Update) -> Option<(&MessageId, String)> {
    match update {
        Update::Append { entry: EntryId::Message(Role::User, id), item, .. } => {
            Some((id, text_of(item.as_str()).unwrap_or_default().into_owned()))
        }
        Update::Upsert { target: Target::Entry(EntryId::Message(Role::User, id)), upsert } => {
            match &upsert.content {
                Patch::Value(content) => Some((id, content.to_text())),
                Patch::Omitted | Patch::Clear => Some((id, String::new())),
            }
        }
        Update::Append { .. }
        | Update::Upsert { .. }
        | Update::Output { .. }
        | Update::Remove { .. }
        | Update::Note { .. }
        | Update::State(_) => None,
    }
}

fn rename(update: &mut Update, name: &MessageId) {
    if let Some(EntryId::Message(_, id)) = super::entry_of(update) {
        id.clone_from(name);
    }
}

/// The blocks of a prompt.
pub(super) fn blocks(content: &Json) -> Content {
    Content::parse(content.raw()).unwrap_or_default()
}
