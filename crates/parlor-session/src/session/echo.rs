//! Agents that say a prompt again before they answer it.

use parlor_json::Json;

use crate::{Content, EntryId, MessageId, Naming, Patch, Role, Target, Update, text_of};

/// What the agent may say again of a prompt that it was sent. It may name the prompt that way; it adds nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Echo {
    /// The prompt's message in the session.
    message: MessageId,
    /// What the agent calls it, if it has said so.
    named: Option<MessageId>,
    /// The prompt's text, for agents that do not name it.
    text: String,
    said: String,
    /// What was said so far, should it turn out to be something else.
    held: Vec<(Update, Naming)>,
}

/// What came of an update.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// The prompt, once more; with the agent's name for it.
    Again(Option<MessageId>),
    /// It may be the prompt.
    Waits,
    /// Something that has nothing to do with it.
    Beside(Update),
    /// Something else, after what was taken for the prompt and is not.
    News(Update, Vec<(Update, Naming)>),
}

impl Echo {
    pub(super) fn of(message: &MessageId, named: Option<&MessageId>, content: &Json) -> Self {
        let content = Content::parse(content.raw()).unwrap_or_default();
        Self {
            message: message.clone(),
            named: named.cloned(),
            text: if named.is_some() { String::new() } else { content.to_text() },
            said: String::new(),
            held: Vec::new(),
        }
    }

    pub(super) fn message(&self) -> &MessageId {
        &self.message
    }

    pub(super) fn held(self) -> Vec<(Update, Naming)> {
        self.held
    }

    pub(super) fn hears(&mut self, update: Update, naming: Naming) -> Heard {
        let news = |echo: &mut Self, update| Heard::News(update, std::mem::take(&mut echo.held));
        let (id, text) = match &update {
            Update::Append { entry: EntryId::Message(Role::User, id), item, .. } => {
                (id, text_of(item.as_str()).unwrap_or_default().into_owned())
            }
            Update::Upsert { target: Target::Entry(EntryId::Message(Role::User, id)), upsert } => {
                match &upsert.content {
                    Patch::Value(content) => (id, content.to_text()),
                    Patch::Omitted | Patch::Clear => (id, String::new()),
                }
            }
            // What a session has once may come at any time.
            Update::Upsert { target: Target::Slot(_), .. } | Update::Note { .. } if self.held.is_empty() => {
                return Heard::Beside(update);
            }
            Update::Append { .. }
            | Update::Upsert { .. }
            | Update::Output { .. }
            | Update::Remove { .. }
            | Update::Note { .. }
            | Update::State(_) => return news(self, update),
        };
        if let Some(named) = &self.named {
            return if named == id { Heard::Again(None) } else { news(self, update) };
        }
        self.said.push_str(&text);
        if self.said == self.text {
            let named = (naming != Naming::Named).then(|| id.clone());
            self.held.clear();
            return Heard::Again(named);
        }
        if self.text.starts_with(&self.said) {
            self.held.push((update, naming));
            return Heard::Waits;
        }
        news(self, update)
    }
}
