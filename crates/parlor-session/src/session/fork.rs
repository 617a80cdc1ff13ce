//! Forks: new sessions that continue from a point of a transcript.

use parlor_json::{Json, JsonStr, Object};

use super::{Session, is_steered};
use crate::stored::{forked_head, forked_slot};
use crate::{Entry, EntryId, MessageId, Role, Row, Slot};

/// The point from which a fork continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Point {
    /// The end; while a turn is running, after the last finished entry.
    End,
    /// After a message.
    After(MessageId),
    /// Before a prompt: the given message, or the last user message before it.
    BeforePrompt(MessageId),
}

/// Why a session cannot be forked at a point. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForkError {
    /// The session has no such message.
    Unknown,
    /// The agent is still writing the message.
    BeingWritten,
    /// There is no prompt before the message.
    NoPrompt,
}

/// The initial content of a forked session. It starts no turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fork {
    /// The entries, in order.
    pub entries: Vec<ForkedEntry>,
    /// How many of them are messages.
    pub messages: usize,
    /// Its slots.
    pub slots: Vec<Row>,
    /// Its title.
    pub title: Option<JsonStr>,
    /// Whether the title was generated from the first prompt.
    pub is_title_generated: bool,
    /// Its side state.
    pub side_state: Object,
    /// The point as the agent identifies it.
    pub agent_point: AgentForkPoint,
    /// The prompt before which the session is forked, if it is.
    pub prompt: Option<(MessageId, Json)>,
}

/// An entry that is copied to a forked session, with its present content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkedEntry {
    /// The seq that created it in the parent.
    pub from: u64,
    /// The seq that creates it in the fork.
    pub to: u64,
    /// Its head, if it differs from the stored one.
    pub head: Option<String>,
}

/// A point of a transcript, as the agent identifies it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentForkPoint {
    /// Before all entries.
    Start,
    /// After all entries.
    End,
    /// After a message.
    After(AgentForkMessage),
    /// A point that no id of the agent identifies.
    WithoutId,
}

/// The last message of a fork, as the agent identifies it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentForkMessage {
    /// The agent's id, which no message of another role has.
    pub id: MessageId,
    /// Its role.
    pub role: Role,
    /// What ends with it.
    pub boundary: Boundary,
}

/// What ends with a message, in the agent's own history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boundary {
    /// A turn: a prompt that started another one follows.
    Turn,
    /// The message: another message of the same turn follows.
    Message,
    /// Perhaps nothing: agents may count the tool call or other entry that follows to the message.
    Unknown,
}

/// The slots that are copied. Usage is not: the fork starts at zero.
const SLOTS: [Slot; 5] = [Slot::Info, Slot::Commands, Slot::Options, Slot::Mode, Slot::Model];

impl Session {
    /// Plans a fork at a point. The session does not change.
    pub fn fork(&self, point: &Point) -> Result<Fork, ForkError> {
        let entries = self.transcript.entries();
        let end = match point {
            Point::End => self.finished(),
            Point::After(message) => {
                let index = self.index_of(message)?;
                if self.is_being_written(&entries[index]) {
                    return Err(ForkError::BeingWritten);
                }
                index + 1
            }
            Point::BeforePrompt(message) => {
                let upto = self.index_of(message)? + 1;
                entries[..upto].iter().rposition(is_prompt).ok_or(ForkError::NoPrompt)?
            }
        };
        let prompt = match (point, entries.get(end).map(|entry| (entry.id(), entry))) {
            (Point::BeforePrompt(_), Some((EntryId::Message(_, id), entry))) => {
                Some((id.clone(), entry.body().content.to_json()))
            }
            (Point::End | Point::After(_) | Point::BeforePrompt(_), _) => None,
        };
        let copied_entries = &entries[..end];
        let copied = (1..).zip(copied_entries).map(|(to, entry)| {
            let is_call = matches!(entry.id(), EntryId::ToolCall(_));
            let failed = is_call.then(|| (self.hooks.mark_failed)(entry.body())).flatten();
            let is_note = matches!(entry.id(), EntryId::Note(_));
            let id = if is_note { &EntryId::Note(to) } else { entry.id() };
            ForkedEntry { from: entry.created(), to, head: forked_head(entry, id, failed.as_ref()) }
        });
        let last = copied_entries.len().max(1) as u64;
        let titles = self.titles.for_fork(copied_entries.is_empty());
        let slots = SLOTS.into_iter().filter_map(|slot| {
            let mut body = self.transcript.slot(slot)?.clone();
            if slot == Slot::Info {
                titles.write_to(&mut body);
            }
            Some(forked_slot(slot, &body, last))
        });
        let mut side_state = Object::default();
        self.id_map.for_fork(copied_entries).store(&mut side_state);
        titles.store(&mut side_state);
        self.envelopes.store(&mut side_state);
        let is_message = |entry: &&Entry| matches!(entry.id(), EntryId::Message(..));
        Ok(Fork {
            entries: copied.collect(),
            messages: copied_entries.iter().filter(is_message).count(),
            slots: slots.collect(),
            title: titles.title().cloned(),
            is_title_generated: titles.is_generated(),
            side_state,
            agent_point: self.agent_point(end),
            prompt,
        })
    }

    fn index_of(&self, message: &MessageId) -> Result<usize, ForkError> {
        let roles = [Role::User, Role::Agent, Role::Thought];
        let entry = roles.into_iter().find_map(|role| {
            self.transcript
                .get(&EntryId::Message(role, message.clone()))
                .filter(|entry| !entry.body().removed)
        });
        let created = entry.ok_or(ForkError::Unknown)?.created();
        let entries = self.transcript.entries();
        entries.binary_search_by_key(&created, Entry::created).map_err(|_| ForkError::Unknown)
    }

    /// Whether the running turn's latest change went to this entry. User messages are finished at once.
    fn is_being_written(&self, entry: &Entry) -> bool {
        let is_latest = self.transcript.latest().is_some_and(|latest| latest.created() == entry.created());
        self.activity().is_busy() && is_latest && entry.seq() > self.turn_began && !is_prompt(entry)
    }

    /// The number of entries up to the last finished one.
    fn finished(&self) -> usize {
        let entries = self.transcript.entries();
        if !self.activity().is_busy() {
            return entries.len();
        }
        let is_open = |entry: &Entry| {
            matches!(entry.id(), EntryId::ToolCall(_)) && !(self.hooks.is_final)(entry.body())
        };
        let is_finished =
            |entry: &Entry| !self.is_being_written(entry) && !is_open(entry) && !is_event(entry);
        let last = entries.iter().rposition(is_finished);
        last.map_or(0, |index| index + 1)
    }

    fn agent_point(&self, end: usize) -> AgentForkPoint {
        let entries = self.transcript.entries();
        // The agent does not know events.
        match entries[..end].iter().rfind(|entry| !is_event(entry)).map(Entry::id) {
            None => AgentForkPoint::Start,
            Some(_) if entries[end..].iter().all(is_event) && !self.activity().is_busy() => {
                AgentForkPoint::End
            }
            Some(EntryId::Message(role, id)) => {
                let id = self.agents_message(*role, id).filter(|id| !self.is_shared(*role, id));
                id.map_or(AgentForkPoint::WithoutId, |id| {
                    let boundary = boundary_before(&entries[end..]);
                    AgentForkPoint::After(AgentForkMessage { id, role: *role, boundary })
                })
            }
            Some(_) => AgentForkPoint::WithoutId,
        }
    }

    /// Whether the agent has given this id to messages of two roles, such as a thought and the message after it.
    fn is_shared(&self, role: Role, agents: &MessageId) -> bool {
        let mut others = [Role::User, Role::Agent, Role::Thought].into_iter().filter(|other| *other != role);
        others.any(|other| self.id_map.resolve(other, agents, &self.transcript).is_some())
    }
}

/// What ends before these entries.
fn boundary_before(entries: &[Entry]) -> Boundary {
    match entries.iter().find(|entry| !is_event(entry)) {
        Some(entry) if is_prompt(entry) && !is_steered(entry) => Boundary::Turn,
        Some(entry) if matches!(entry.id(), EntryId::Message(..)) => Boundary::Message,
        // Without a next entry, the agent is still working on the turn.
        Some(_) | None => Boundary::Unknown,
    }
}

fn is_event(entry: &Entry) -> bool {
    matches!(entry.id(), EntryId::Event(_))
}

fn is_prompt(entry: &Entry) -> bool {
    matches!(entry.id(), EntryId::Message(Role::User, _))
}
