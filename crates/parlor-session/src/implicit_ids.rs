use crate::{Change, EntryId, MessageId, Role, Target, Update};

/// Gives ids to message chunks that came without one.
///
/// Where an agent names no messages, a new one starts when the role changes, when a tool call starts, at a
/// turn's boundary, or after a chunk that did carry an id. All chunks up to the next such point are one
/// message and get one id.
///
/// Naming changes nothing by itself; only what was really taken ([`on_applied`](Namer::took)) moves a boundary.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImplicitMessageIds {
    /// The unnamed message that chunks without an id belong to.
    open: Option<(Role, MessageId)>,
}

/// What the words of an update say about messages without ids, beyond what the update changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IdSource {
    /// Nothing.
    #[default]
    Given,
    /// Its message had no id and got one here.
    Assigned,
    /// A tool call starts. Real agents use the ids of their tool calls again, so that the change alone does not
    /// tell.
    StartsToolCall,
}

impl ImplicitMessageIds {
    /// The id of a chunk that has none: that of the open message, or a `new_id` one.
    pub fn name(&self, role: Role, new_id: &mut dyn FnMut() -> MessageId) -> MessageId {
        match &self.open {
            Some((open, id)) if *open == role => id.clone(),
            Some(_) | None => new_id(),
        }
    }

    /// A change was taken.
    pub fn on_applied(&mut self, change: &Change, naming: IdSource) {
        let entry = match &change.update {
            Update::Upsert { target: Target::Entry(entry), .. } | Update::Append { entry, .. } => entry,
            Update::State(_) => return self.turn_boundary(),
            Update::Upsert { .. } | Update::Output { .. } | Update::Remove { .. } | Update::Note { .. } => {
                return;
            }
        };
        match entry {
            EntryId::Message(role, id) => self.on_message_applied(*role, id, naming),
            EntryId::ToolCall(_) if change.is_creation() || naming == IdSource::StartsToolCall => {
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

    /// A change to this message was taken; see [`on_applied`](Namer::took).
    pub fn on_message_applied(&mut self, role: Role, id: &MessageId, naming: IdSource) {
        self.open = (naming == IdSource::Assigned).then(|| (role, id.clone()));
    }

    /// A turn began or ended.
    pub fn turn_boundary(&mut self) {
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

    fn names(steps: &[Step]) -> Vec<String> {
        let (mut namer, mut transcript, mut count) =
            (ImplicitMessageIds::default(), Transcript::default(), 0);
        let mut new_id = || {
            count += 1;
            MessageId::from(format!("new{count}").as_str())
        };
        let mut names = Vec::new();
        for step in steps {
            let entry = match step {
                Chunk(role, given) => {
                    let id = given.map_or_else(|| namer.name(*role, &mut new_id), MessageId::from);
                    names.push(id.to_string());
                    EntryId::Message(*role, id)
                }
                ToolCall(id) | ToolCallStarts(id) => EntryId::ToolCall((*id).into()),
                Turn => {
                    namer.turn_boundary();
                    continue;
                }
            };
            let naming = match step {
                Chunk(_, None) => IdSource::Assigned,
                ToolCallStarts(_) => IdSource::StartsToolCall,
                Chunk(_, Some(_)) | ToolCall(_) | Turn => IdSource::Given,
            };
            let upsert = Update::Upsert { target: Target::Entry(entry), upsert: Upsert::default() };
            namer.on_applied(&transcript.push(upsert).unwrap(), naming);
        }
        names
    }

    #[test]
    fn chunks_without_an_id_are_one_message_until_a_boundary() {
        use Role::{Agent, Thought, User};
        for (steps, expected) in [
            (&[Chunk(Agent, None), Chunk(Agent, None)][..], &["new1", "new1"][..]),
            (&[Chunk(Thought, None), Chunk(Agent, None), Chunk(Thought, None)], &["new1", "new2", "new3"]),
            (&[Chunk(Agent, None), ToolCall("t"), Chunk(Agent, None)], &["new1", "new2"]),
            // Only its start is a boundary, not each update of a tool call.
            (&[ToolCall("t"), Chunk(Agent, None), ToolCall("t"), Chunk(Agent, None)], &["new1", "new1"]),
            // An id that is used again is a tool call that starts again, if the agent says so.
            (
                &[ToolCall("t"), Chunk(Agent, None), ToolCallStarts("t"), Chunk(Agent, None)],
                &["new1", "new2"],
            ),
            (&[Chunk(User, None), Turn, Chunk(User, None)], &["new1", "new2"]),
            (&[Chunk(Agent, None), Chunk(Agent, Some("x")), Chunk(Agent, None)], &["new1", "x", "new2"]),
        ] {
            assert_eq!(names(steps), expected);
        }
    }
}
