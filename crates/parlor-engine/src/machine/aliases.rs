//! Aliases under which v1 clients receive the new content of replaced messages.

use std::collections::{HashMap, VecDeque};

use parlor_json::Json;
use parlor_session::{EntryId, MessageId, Target, Update};

use super::SessionMachine;

/// How many are known; the oldest are forgotten.
const MAX_ALIASES: usize = 1000;

/// Which message is meant by which alias.
#[derive(Debug, Default)]
pub(super) struct Aliases {
    meant: HashMap<MessageId, MessageId>,
    /// The oldest first.
    order: VecDeque<MessageId>,
}

impl Aliases {
    /// Those that were kept as a JSON list of pairs.
    pub(super) fn restored(kept: Option<&str>) -> Self {
        let mut aliases = Self::default();
        let list = kept.and_then(|kept| Json::parse(kept).ok());
        for pair in list.as_ref().and_then(Json::elements).unwrap_or_default() {
            let parts = pair.elements().unwrap_or_default();
            if let [alias, message] = parts[..]
                && let (Some(alias), Some(message)) = (alias.to_json_str(), message.to_json_str())
            {
                aliases.add(alias.into(), message.into());
            }
        }
        aliases
    }

    pub(super) fn to_json(&self) -> String {
        let pairs = self.order.iter().filter_map(|alias| {
            let message = self.meant.get(alias)?;
            Some(Json::array([alias.as_json(), message.as_json()]))
        });
        Json::array(pairs).as_str().to_owned()
    }

    fn add(&mut self, alias: MessageId, message: MessageId) {
        if self.order.len() >= MAX_ALIASES
            && let Some(oldest) = self.order.pop_front()
        {
            self.meant.remove(&oldest);
        }
        self.order.push_back(alias.clone());
        self.meant.insert(alias, message);
    }
}

impl SessionMachine {
    /// Adds the alias under which a message was sent.
    pub(super) fn add_alias(&mut self, alias: MessageId, update: &Update) {
        if let Update::Upsert { target: Target::Entry(EntryId::Message(_, message)), .. }
        | Update::Append { entry: EntryId::Message(_, message), .. }
        | Update::Remove { entry: EntryId::Message(_, message), .. } = update
        {
            self.aliases.add(alias, message.clone());
            self.rows.dirty.aliases = true;
        }
    }

    /// The message that a client names by its id or by an alias.
    pub(super) fn resolve_alias(&self, message: MessageId) -> MessageId {
        self.aliases.meant.get(&message).cloned().unwrap_or(message)
    }
}
