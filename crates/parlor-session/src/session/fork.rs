//! A conversation that goes on in another session.

use parlor_json::{Json, JsonStr, Object};

use super::Session;
use crate::stored::{moved_head, moved_slot};
use crate::{Entry, EntryId, MessageId, Role, Row, Slot};

/// Where a conversation is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Point {
    /// At its end; while a turn runs, after the last entry that is finished.
    End,
    /// After a message.
    After(MessageId),
    /// Before a prompt: the message itself, or the last one that a person said before it.
    BeforePrompt(MessageId),
}

/// Why a conversation cannot be left there. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotForked {
    /// The session has no such message.
    Unknown,
    /// The agent is still at it.
    BeingWritten,
    /// Nobody said anything before the message.
    NoPrompt,
}

/// What another session begins with. It starts no turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fork {
    /// The entries, in order.
    pub entries: Vec<Moved>,
    /// What else it takes along.
    pub slots: Vec<Row>,
    /// Its title.
    pub title: Option<JsonStr>,
    /// Whether the title was made of the first prompt.
    pub is_title_made: bool,
    /// What has to be kept beside its transcript.
    pub kept: Object,
    /// How the agent names the point.
    pub agents: AgentsPoint,
    /// The prompt before which the conversation is left, if it is.
    pub prompt: Option<(MessageId, Json)>,
}

/// An entry on its way into another session, with the content that it has now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// The change that made it here.
    pub from: u64,
    /// The change that makes it there.
    pub to: u64,
    /// Its head, where it is not the same.
    pub head: Option<String>,
}

/// A point of a conversation, for its agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentsPoint {
    /// Before all that was said.
    Start,
    /// After all that was said.
    End,
    /// After a message, by the agent's name for it.
    After(MessageId),
    /// One that it has no name for.
    Nameless,
}

/// What goes along besides the entries. What was used so far is not used up again.
const SLOTS: [Slot; 5] = [Slot::Info, Slot::Commands, Slot::Options, Slot::Mode, Slot::Model];

impl Session {
    /// Leaves the conversation at a point. Nothing changes here.
    pub fn fork(&self, point: &Point) -> Result<Fork, NotForked> {
        let entries = self.transcript.entries();
        let end = match point {
            Point::End => self.finished(),
            Point::After(message) => {
                let place = self.place_of(message)?;
                if self.is_being_written(&entries[place]) {
                    return Err(NotForked::BeingWritten);
                }
                place + 1
            }
            Point::BeforePrompt(message) => {
                let upto = self.place_of(message)? + 1;
                entries[..upto].iter().rposition(is_prompt).ok_or(NotForked::NoPrompt)?
            }
        };
        let prompt = match (point, entries.get(end).map(|entry| (entry.id(), entry))) {
            (Point::BeforePrompt(_), Some((EntryId::Message(_, id), entry))) => {
                Some((id.clone(), entry.body().content.to_json()))
            }
            (Point::End | Point::After(_) | Point::BeforePrompt(_), _) => None,
        };
        let taken = &entries[..end];
        let moved = (1..).zip(taken).map(|(to, entry)| {
            let is_call = matches!(entry.id(), EntryId::ToolCall(_));
            let failed = is_call.then(|| (self.hooks.failed)(entry.body())).flatten();
            let is_note = matches!(entry.id(), EntryId::Note(_));
            let id = if is_note { &EntryId::Note(to) } else { entry.id() };
            Moved { from: entry.created(), to, head: moved_head(entry, id, failed.as_ref()) }
        });
        let last = taken.len().max(1) as u64;
        let titles = self.titles.of_fork(taken.is_empty());
        let slots = SLOTS.into_iter().filter_map(|slot| {
            let mut body = self.transcript.slot(slot)?.clone();
            if slot == Slot::Info {
                titles.set_in(&mut body);
            }
            Some(moved_slot(slot, &body, last))
        });
        let mut kept = Object::default();
        self.id_map.up_to(taken).keep(&mut kept);
        titles.keep(&mut kept);
        self.envelopes.keep(&mut kept);
        Ok(Fork {
            entries: moved.collect(),
            slots: slots.collect(),
            title: titles.title().cloned(),
            is_title_made: titles.is_made(),
            kept,
            agents: self.agents_point(end),
            prompt,
        })
    }

    fn place_of(&self, message: &MessageId) -> Result<usize, NotForked> {
        let roles = [Role::User, Role::Agent, Role::Thought];
        let entry = roles.into_iter().find_map(|role| {
            self.transcript
                .get(&EntryId::Message(role, message.clone()))
                .filter(|entry| !entry.body().removed)
        });
        let created = entry.ok_or(NotForked::Unknown)?.created();
        let entries = self.transcript.entries();
        entries.binary_search_by_key(&created, Entry::created).map_err(|_| NotForked::Unknown)
    }

    /// Whether the running turn's latest change went to this entry. What a person said is finished when it is there.
    fn is_being_written(&self, entry: &Entry) -> bool {
        let is_latest = self.transcript.latest().is_some_and(|latest| latest.created() == entry.created());
        self.activity().is_busy() && is_latest && entry.seq() > self.turn_began && !is_prompt(entry)
    }

    /// How many entries there are, up to the last one that is finished.
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
        last.map_or(0, |place| place + 1)
    }

    fn agents_point(&self, end: usize) -> AgentsPoint {
        let entries = self.transcript.entries();
        // The agent knows of no events.
        match entries[..end].iter().rfind(|entry| !is_event(entry)).map(Entry::id) {
            None => AgentsPoint::Start,
            Some(_) if entries[end..].iter().all(is_event) && !self.activity().is_busy() => AgentsPoint::End,
            Some(EntryId::Message(role, id)) => {
                self.agents_message(*role, id).map_or(AgentsPoint::Nameless, AgentsPoint::After)
            }
            Some(_) => AgentsPoint::Nameless,
        }
    }
}

fn is_event(entry: &Entry) -> bool {
    matches!(entry.id(), EntryId::Event(_))
}

fn is_prompt(entry: &Entry) -> bool {
    matches!(entry.id(), EntryId::Message(Role::User, _))
}
