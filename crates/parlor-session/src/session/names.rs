//! Which names an agent uses for what the session knows under another.

use std::collections::{HashMap, HashSet};

use parlor_json::{Json, JsonStr, Object};

use crate::{Body, Entry, EntryId, MessageId, Role, ToolCallId, Transcript};

/// What an agent calls entries that have another name in the session.
///
/// Nearly all entries keep the agent's name. Towards clients names are unique: an agent that uses one for a thought and
/// for a message, or again for another tool call, or that was restarted and counts from the beginning, gets them
/// replaced, both ways.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    renamed: HashMap<Agents, JsonStr>,
    /// Entries that were made up to this change have names that mean nothing to the agent.
    strange_upto: u64,
}

/// A name as the agent uses it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Agents {
    Message(Role, MessageId),
    ToolCall(ToolCallId),
}

/// How many names are kept; the agent's own is used for one more.
const MAX_RENAMED: usize = 100_000;

const KEY: &str = "names";

impl Names {
    /// The name in the session of a message that the agent names.
    pub(crate) fn known(&self, role: Role, id: &MessageId, transcript: &Transcript) -> Option<MessageId> {
        if let Some(name) = self.renamed.get(&Agents::Message(role, id.clone())) {
            return Some(name.clone().into());
        }
        let entry = transcript.get(&EntryId::Message(role, id.clone()))?;
        (entry.created() > self.strange_upto).then(|| id.clone())
    }

    /// The name in the session of a tool call that the agent names.
    pub fn tool_call(&self, id: &ToolCallId) -> ToolCallId {
        self.renamed.get(&Agents::ToolCall(id.clone())).map_or_else(|| id.clone(), |name| name.clone().into())
    }

    /// The agent's name of a tool call that the session names. The least of several, so that it is always the same one.
    pub fn agents_tool_call(&self, id: &ToolCallId) -> ToolCallId {
        let renamed = self.renamed.iter().filter_map(|(agents, name)| match agents {
            Agents::ToolCall(agents) if name == id.as_json() => Some(agents),
            Agents::Message(..) | Agents::ToolCall(_) => None,
        });
        renamed.min().unwrap_or(id).clone()
    }

    /// The agent's name of a message that the session names; `None` if it is older than what the agent has names for.
    /// The least of several, so that it is always the same one.
    pub(crate) fn agents_message(
        &self,
        role: Role,
        id: &MessageId,
        transcript: &Transcript,
    ) -> Option<MessageId> {
        let renamed = self.renamed.iter().filter_map(|(agents, name)| match agents {
            Agents::Message(of, agents) if *of == role && name == id.as_json() => Some(agents),
            Agents::Message(..) | Agents::ToolCall(_) => None,
        });
        if let Some(agents) = renamed.min() {
            return Some(agents.clone());
        }
        let entry = transcript.get(&EntryId::Message(role, id.clone()))?;
        (entry.created() > self.strange_upto).then(|| id.clone())
    }

    /// The messages and tool calls that the agent knows, by its names.
    pub(crate) fn agents_entries<'a>(
        &'a self,
        transcript: &'a Transcript,
    ) -> impl Iterator<Item = EntryId> + 'a {
        let renamed = self.renamed.keys().map(|agents| match agents {
            Agents::Message(role, id) => EntryId::Message(*role, id.clone()),
            Agents::ToolCall(id) => EntryId::ToolCall(id.clone()),
        });
        let named = transcript.entries().iter().filter(|entry| {
            entry.created() > self.strange_upto
                && matches!(entry.id(), EntryId::Message(..) | EntryId::ToolCall(_))
        });
        renamed.chain(named.map(|entry| entry.id().clone()))
    }

    /// Names an entry as the session does; whether a new name was given.
    pub(crate) fn rename(
        &mut self,
        entry: &mut EntryId,
        transcript: &Transcript,
        starts: bool,
        turn_began: u64,
        is_over: impl Fn(&Body) -> bool,
        fresh: &mut dyn FnMut() -> MessageId,
    ) -> bool {
        let is_strange = |entry: &Entry| entry.created() <= self.strange_upto;
        let (agents, is_taken) = match entry {
            EntryId::Message(role, id) => {
                let agents = Agents::Message(*role, id.clone());
                if let Some(name) = self.renamed.get(&agents) {
                    *id = name.clone().into();
                    return false;
                }
                // A stream of chunks needs no look-up.
                if transcript.latest().is_some_and(|latest| latest.id() == entry && !is_strange(latest)) {
                    return false;
                }
                let EntryId::Message(role, id) = entry else { return false };
                let is_taken = [Role::User, Role::Agent, Role::Thought].into_iter().any(|other| {
                    let same = transcript.get(&EntryId::Message(other, id.clone()));
                    same.is_some_and(|found| other != *role || is_strange(found))
                });
                (agents, is_taken)
            }
            EntryId::ToolCall(id) => {
                let agents = Agents::ToolCall(id.clone());
                let known = self.renamed.get(&agents).cloned().map_or_else(|| id.clone(), ToolCallId::from);
                let found = transcript.get(&EntryId::ToolCall(known.clone()));
                let starts_again =
                    |found: &Entry| starts && (is_over(found.body()) || found.created() <= turn_began);
                let is_taken = found.is_some_and(|found| is_strange(found) || starts_again(found));
                if !is_taken {
                    *id = known;
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
        if !is_taken || self.renamed.len() >= MAX_RENAMED {
            return false;
        }
        let name = fresh().as_json().clone();
        match entry {
            EntryId::Message(_, id) => *id = name.clone().into(),
            EntryId::ToolCall(id) => *id = name.clone().into(),
            EntryId::Plan(_)
            | EntryId::Terminal(_)
            | EntryId::Compaction(_)
            | EntryId::Subagent(_)
            | EntryId::SessionMessage(_)
            | EntryId::Event(_)
            | EntryId::Note(_) => {}
        }
        self.renamed.insert(agents, name);
        true
    }

    /// The agent's name for a message that the session named.
    pub(crate) fn same(&mut self, role: Role, agents: MessageId, name: &MessageId) {
        if agents != *name && self.renamed.len() < MAX_RENAMED {
            self.renamed.insert(Agents::Message(role, agents), name.as_json().clone());
        }
    }

    /// The names of the first entries only, as they are numbered where they stand alone.
    pub(crate) fn up_to(&self, taken: &[Entry]) -> Self {
        let names: HashSet<&JsonStr> = taken
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
        let renamed = self.renamed.iter().filter(|(_, name)| names.contains(name));
        let strange = taken.iter().filter(|entry| entry.created() <= self.strange_upto);
        Self {
            renamed: renamed.map(|(agents, name)| (agents.clone(), name.clone())).collect(),
            strange_upto: strange.count() as u64,
        }
    }

    /// The agent's names mean something else from here on.
    pub(crate) fn begin_anew(&mut self, seq: u64) {
        *self = Self { renamed: HashMap::new(), strange_upto: seq };
    }

    pub(crate) fn keep(&self, kept: &mut Object) {
        if *self == Self::default() {
            return;
        }
        let mut renamed: Vec<String> = self
            .renamed
            .iter()
            .map(|(agents, name)| {
                let (kind, id) = match agents {
                    Agents::Message(Role::User, id) => ("user", id.as_json()),
                    Agents::Message(Role::Agent, id) => ("agent", id.as_json()),
                    Agents::Message(Role::Thought, id) => ("thought", id.as_json()),
                    Agents::ToolCall(id) => ("tool", id.as_json()),
                };
                format!(r#"["{kind}",{},{}]"#, id.as_literal(), name.as_literal())
            })
            .collect();
        renamed.sort();
        let text = format!(r#"{{"upto":{},"renamed":[{}]}}"#, self.strange_upto, renamed.join(","));
        kept.set(KEY, Json::parse(text).expect("it is made of JSON"));
    }

    pub(crate) fn restored(kept: Option<&Object>) -> Self {
        let names = || {
            let names = Object::parse(kept?.get(KEY)?.raw()).ok()?;
            let mut renamed = HashMap::new();
            for triple in names.get_array("renamed")? {
                let parts = triple.elements()?;
                let [kind, id, name] = parts[..] else { return None };
                let id = JsonStr::from_raw(id)?;
                let agents = match JsonStr::from_raw(kind)?.inner() {
                    "user" => Agents::Message(Role::User, id.into()),
                    "agent" => Agents::Message(Role::Agent, id.into()),
                    "thought" => Agents::Message(Role::Thought, id.into()),
                    _ => Agents::ToolCall(id.into()),
                };
                renamed.insert(agents, JsonStr::from_raw(name)?);
            }
            let strange_upto = names.get("upto")?.as_str().parse().ok()?;
            Some(Self { renamed, strange_upto })
        };
        names().unwrap_or_default()
    }
}
