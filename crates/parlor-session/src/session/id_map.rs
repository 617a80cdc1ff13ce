//! The map between the agent's ids of entries and the session's.

use std::collections::{HashMap, HashSet};

use parlor_json::{Json, JsonStr, Object};

use crate::{Body, Entry, EntryId, MessageId, Role, ToolCallId, Transcript};

/// The entries whose id in the session differs from the agent's id.
///
/// Nearly all entries keep the agent's id. Clients need unique ids: where an agent uses one id for a thought and a
/// message, reuses a tool call id, or restarts its counters, the session replaces the id in both directions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdMap {
    aliases: HashMap<AgentId, JsonStr>,
    /// Entries created up to this seq have ids that the agent does not know.
    foreign_through: u64,
}

/// An id of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum AgentId {
    Message(Role, MessageId),
    ToolCall(ToolCallId),
}

/// Maximum number of aliases; beyond it entries keep the agent's id.
const MAX_ALIASES: usize = 100_000;

const KEY: &str = "names";

impl IdMap {
    /// The session's id of a message of the agent.
    pub(crate) fn resolve(&self, role: Role, id: &MessageId, transcript: &Transcript) -> Option<MessageId> {
        if let Some(name) = self.aliases.get(&AgentId::Message(role, id.clone())) {
            return Some(name.clone().into());
        }
        let entry = transcript.get(&EntryId::Message(role, id.clone()))?;
        (entry.created() > self.foreign_through).then(|| id.clone())
    }

    /// The session's id of a tool call of the agent.
    pub fn tool_call(&self, id: &ToolCallId) -> ToolCallId {
        self.aliases
            .get(&AgentId::ToolCall(id.clone()))
            .map_or_else(|| id.clone(), |name| name.clone().into())
    }

    /// The agent's id of a tool call; the least of several, so that the result is stable.
    pub fn agents_tool_call(&self, id: &ToolCallId) -> ToolCallId {
        let aliases = self.aliases.iter().filter_map(|(agents, name)| match agents {
            AgentId::ToolCall(agents) if name == id.as_json() => Some(agents),
            AgentId::Message(..) | AgentId::ToolCall(_) => None,
        });
        aliases.min().unwrap_or(id).clone()
    }

    /// The agent's id of a message; `None` if the agent does not know the message. The least of several, so that the
    /// result is stable.
    pub(crate) fn agents_message(
        &self,
        role: Role,
        id: &MessageId,
        transcript: &Transcript,
    ) -> Option<MessageId> {
        let aliases = self.aliases.iter().filter_map(|(agents, name)| match agents {
            AgentId::Message(of, agents) if *of == role && name == id.as_json() => Some(agents),
            AgentId::Message(..) | AgentId::ToolCall(_) => None,
        });
        if let Some(agents) = aliases.min() {
            return Some(agents.clone());
        }
        let entry = transcript.get(&EntryId::Message(role, id.clone()))?;
        (entry.created() > self.foreign_through).then(|| id.clone())
    }

    /// The messages and tool calls that the agent knows, by its ids.
    pub(crate) fn agents_entries<'a>(
        &'a self,
        transcript: &'a Transcript,
    ) -> impl Iterator<Item = EntryId> + 'a {
        let aliases = self.aliases.keys().map(|agents| match agents {
            AgentId::Message(role, id) => EntryId::Message(*role, id.clone()),
            AgentId::ToolCall(id) => EntryId::ToolCall(id.clone()),
        });
        let named = transcript.entries().iter().filter(|entry| {
            entry.created() > self.foreign_through
                && matches!(entry.id(), EntryId::Message(..) | EntryId::ToolCall(_))
        });
        aliases.chain(named.map(|entry| entry.id().clone()))
    }

    /// Replaces the agent's id of an entry by the session's; returns whether an alias was added.
    pub(crate) fn map_entry(
        &mut self,
        entry: &mut EntryId,
        transcript: &Transcript,
        starts: bool,
        turn_began: u64,
        is_over: impl Fn(&Body) -> bool,
        new_id: &mut dyn FnMut() -> MessageId,
    ) -> bool {
        let is_foreign = |entry: &Entry| entry.created() <= self.foreign_through;
        let (agents, is_taken) = match entry {
            EntryId::Message(role, id) => {
                let agents = AgentId::Message(*role, id.clone());
                if let Some(name) = self.aliases.get(&agents) {
                    *id = name.clone().into();
                    return false;
                }
                // Consecutive chunks need no look-up.
                if transcript.latest().is_some_and(|latest| latest.id() == entry && !is_foreign(latest)) {
                    return false;
                }
                let EntryId::Message(role, id) = entry else { return false };
                let is_taken = [Role::User, Role::Agent, Role::Thought].into_iter().any(|other| {
                    let found = transcript.get(&EntryId::Message(other, id.clone()));
                    found.is_some_and(|found| other != *role || is_foreign(found))
                });
                (agents, is_taken)
            }
            EntryId::ToolCall(id) => {
                let agents = AgentId::ToolCall(id.clone());
                let resolved =
                    self.aliases.get(&agents).cloned().map_or_else(|| id.clone(), ToolCallId::from);
                let found = transcript.get(&EntryId::ToolCall(resolved.clone()));
                let starts_again =
                    |found: &Entry| starts && (is_over(found.body()) || found.created() <= turn_began);
                let is_taken = found.is_some_and(|found| is_foreign(found) || starts_again(found));
                if !is_taken {
                    *id = resolved;
                    return false;
                }
                (agents, is_taken)
            }
            EntryId::Plan(_)
            | EntryId::Terminal(_)
            | EntryId::Compaction(_)
            | EntryId::Subagent(_)
            | EntryId::SessionMessage(_)
            | EntryId::Event(_)
            | EntryId::Note(_) => return false,
        };
        if !is_taken || self.aliases.len() >= MAX_ALIASES {
            return false;
        }
        let name = new_id().as_json().clone();
        if let EntryId::Message(_, id) = entry {
            *id = name.clone().into();
        } else if let EntryId::ToolCall(id) = entry {
            *id = name.clone().into();
        }
        self.aliases.insert(agents, name);
        true
    }

    /// Adds an alias: the agent's id for a message of the session.
    pub(crate) fn add_alias(&mut self, role: Role, agents: MessageId, name: &MessageId) {
        if agents != *name && self.aliases.len() < MAX_ALIASES {
            self.aliases.insert(AgentId::Message(role, agents), name.as_json().clone());
        }
    }

    /// The map for a fork that has only these entries, with the seqs of the fork.
    pub(crate) fn for_fork(&self, entries: &[Entry]) -> Self {
        let id_map: HashSet<&JsonStr> = entries
            .iter()
            .filter_map(|entry| match entry.id() {
                EntryId::Message(_, id) => Some(id.as_json()),
                EntryId::ToolCall(id) => Some(id.as_json()),
                EntryId::Plan(_)
                | EntryId::Terminal(_)
                | EntryId::Compaction(_)
                | EntryId::Subagent(_)
                | EntryId::SessionMessage(_)
                | EntryId::Event(_)
                | EntryId::Note(_) => None,
            })
            .collect();
        let aliases = self.aliases.iter().filter(|(_, name)| id_map.contains(name));
        let foreign = entries.iter().filter(|entry| entry.created() <= self.foreign_through);
        Self {
            aliases: aliases.map(|(agents, name)| (agents.clone(), name.clone())).collect(),
            foreign_through: foreign.count() as u64,
        }
    }

    /// Forgets all ids: from here on the agent's ids are new.
    pub(crate) fn forget_all(&mut self, seq: u64) {
        *self = Self { aliases: HashMap::new(), foreign_through: seq };
    }

    pub(crate) fn store(&self, side_state: &mut Object) {
        if *self == Self::default() {
            return;
        }
        let mut aliases: Vec<_> = self
            .aliases
            .iter()
            .map(|(agents, name)| {
                let (kind, id) = match agents {
                    AgentId::Message(Role::User, id) => ("user", id.as_json()),
                    AgentId::Message(Role::Agent, id) => ("agent", id.as_json()),
                    AgentId::Message(Role::Thought, id) => ("thought", id.as_json()),
                    AgentId::ToolCall(id) => ("tool", id.as_json()),
                };
                Json::array([Json::from(kind), id.into(), name.into()])
            })
            .collect();
        aliases.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        let id_map = Object::new().with("upto", self.foreign_through).with("renamed", Json::array(aliases));
        side_state.set(KEY, id_map);
    }

    pub(crate) fn restored(side_state: Option<&Object>) -> Self {
        let id_map = || {
            let id_map = side_state?.get_object(KEY)?;
            let mut aliases = HashMap::new();
            for triple in id_map.get_array("renamed")? {
                let parts = triple.elements()?;
                let [kind, id, name] = parts[..] else { return None };
                let id = JsonStr::from_raw(id)?;
                let agents = match JsonStr::from_raw(kind)?.inner() {
                    "user" => AgentId::Message(Role::User, id.into()),
                    "agent" => AgentId::Message(Role::Agent, id.into()),
                    "thought" => AgentId::Message(Role::Thought, id.into()),
                    _ => AgentId::ToolCall(id.into()),
                };
                aliases.insert(agents, JsonStr::from_raw(name)?);
            }
            Some(Self { aliases, foreign_through: id_map.get_u64("upto")? })
        };
        id_map().unwrap_or_default()
    }
}
