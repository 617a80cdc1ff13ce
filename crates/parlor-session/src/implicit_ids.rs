use crate::{Change, EntryId, MessageId, Role, Target, Update};

/// Assigns ids to message chunks that have none.
///
/// A new message starts when the role changes, when a tool call starts, at the start or end of a turn, and after a
/// chunk that carries an id. All chunks up to the next of these get one id.
///
/// [`assign`](Self::assign) changes nothing; only applied changes ([`on_applied`](Self::on_applied)) and chunks that are held back
/// ([`on_message_applied`](Self::on_message_applied)) move the boundary.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImplicitMessageIds {
    /// The message that further chunks without an id belong to.
    open: Option<(Role, MessageId)>,
}

/// How an update got its message id, and whether it starts a tool call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IdSource {
    /// The agent gave the id, or the update needs none.
    #[default]
    Given,
    /// The agent gave no id; parlor assigned one.
    Assigned,
    /// The update starts a tool call. Agents reuse tool call ids, so this cannot be derived from the change.
    StartsToolCall,
}

impl ImplicitMessageIds {
    /// The id for a chunk without one: the id of the open message, or one from `new_id`.
    pub fn assign(&self, role: Role, new_id: &mut dyn FnMut() -> MessageId) -> MessageId {
        match &self.open {
            Some((open, id)) if *open == role => id.clone(),
            Some(_) | None => new_id(),
        }
    }

    /// Tracks an applied change.
    pub fn on_applied(&mut self, change: &Change, id_source: IdSource) {
        let entry = match &change.update {
            Update::Upsert { target: Target::Entry(entry), .. } | Update::Append { entry, .. } => entry,
            Update::State(_) => return self.on_turn_boundary(),
            Update::Upsert { .. } | Update::Output { .. } | Update::Remove { .. } | Update::Note { .. } => {
                return;
            }
        };
        match entry {
            EntryId::Message(role, id) => self.on_message_applied(*role, id, id_source),
            EntryId::ToolCall(_) if change.is_creation() || id_source == IdSource::StartsToolCall => {
                self.open = None;
            }
            EntryId::ToolCall(_)
            | EntryId::Plan(_)
            | EntryId::Terminal(_)
            | EntryId::Compaction(_)
            | EntryId::Subagent(_)
            | EntryId::SessionMessage(_)
            | EntryId::Event(_)
            | EntryId::Note(_) => {}
        }
    }

    /// Tracks an applied change of a message; see [`on_applied`](Self::on_applied).
    pub fn on_message_applied(&mut self, role: Role, id: &MessageId, id_source: IdSource) {
        self.open = (id_source == IdSource::Assigned).then(|| (role, id.clone()));
    }

    /// Tracks the start or end of a turn.
    pub fn on_turn_boundary(&mut self) {
        self.open = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Transcript, Upsert};

    enum Step {
        Chunk(Role, Option<&'static str>),
        ToolCall(&'static str),
        ToolCallStarts(&'static str),
        Turn,
    }
    use Step::{Chunk, ToolCall, ToolCallStarts, Turn};

    fn assigned_ids(steps: &[Step]) -> Vec<String> {
        let (mut ids, mut transcript, mut count) = (ImplicitMessageIds::default(), Transcript::default(), 0);
        let mut new_id = || {
            count += 1;
            MessageId::from(format!("new{count}").as_str())
        };
        let mut assigned_ids = Vec::new();
        for step in steps {
            let entry = match step {
                Chunk(role, given) => {
                    let id = given.map_or_else(|| ids.assign(*role, &mut new_id), MessageId::from);
                    assigned_ids.push(id.to_string());
                    EntryId::Message(*role, id)
                }
                ToolCall(id) | ToolCallStarts(id) => EntryId::ToolCall((*id).into()),
                Turn => {
                    ids.on_turn_boundary();
                    continue;
                }
            };
            let id_source = match step {
                Chunk(_, None) => IdSource::Assigned,
                ToolCallStarts(_) => IdSource::StartsToolCall,
                Chunk(_, Some(_)) | ToolCall(_) | Turn => IdSource::Given,
            };
            let upsert = Update::Upsert { target: Target::Entry(entry), upsert: Upsert::default() };
            ids.on_applied(&transcript.push(upsert).unwrap(), id_source);
        }
        assigned_ids
    }

    #[test]
    fn chunks_without_an_id_are_one_message_until_a_boundary() {
        use Role::{Agent, Thought, User};
        for (steps, expected) in [
            (&[Chunk(Agent, None), Chunk(Agent, None)][..], &["new1", "new1"][..]),
            (&[Chunk(Thought, None), Chunk(Agent, None), Chunk(Thought, None)], &["new1", "new2", "new3"]),
            (&[Chunk(Agent, None), ToolCall("t"), Chunk(Agent, None)], &["new1", "new2"]),
            // Only the start of a tool call is a boundary, not its updates.
            (&[ToolCall("t"), Chunk(Agent, None), ToolCall("t"), Chunk(Agent, None)], &["new1", "new1"]),
            // A tool call id that is used again is a new tool call, if the update starts one.
            (
                &[ToolCall("t"), Chunk(Agent, None), ToolCallStarts("t"), Chunk(Agent, None)],
                &["new1", "new2"],
            ),
            (&[Chunk(User, None), Turn, Chunk(User, None)], &["new1", "new2"]),
            (&[Chunk(Agent, None), Chunk(Agent, Some("x")), Chunk(Agent, None)], &["new1", "x", "new2"]),
        ] {
            assert_eq!(assigned_ids(steps), expected);
        }
    }
}
