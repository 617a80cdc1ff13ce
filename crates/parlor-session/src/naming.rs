use std::collections::HashSet;

use crate::{MessageId, Role, ToolCallId};

/// Gives ids to message chunks that came without one.
///
/// Where an agent names no messages, a new one starts when the role changes, when a tool call starts, at a
/// turn's boundary, or after a chunk that did carry an id. All chunks up to the next such point are one
/// message and get one id.
#[derive(Debug, Clone, Default)]
pub struct Namer {
    /// The unnamed message that chunks without an id belong to.
    open: Option<(Role, MessageId)>,
    tool_calls: HashSet<ToolCallId>,
}

impl Namer {
    /// The id of a chunk: the one it came with, that of the open message, or a `fresh` one.
    pub fn name(
        &mut self,
        role: Role,
        given: Option<MessageId>,
        fresh: &mut dyn FnMut() -> MessageId,
    ) -> MessageId {
        if let Some(given) = given {
            self.open = None;
            return given;
        }
        match &self.open {
            Some((open, id)) if *open == role => id.clone(),
            Some(_) | None => {
                let id = fresh();
                self.open = Some((role, id.clone()));
                id
            }
        }
    }

    /// A tool call was spoken of; one that was not known before starts here.
    pub fn tool_call(&mut self, id: &ToolCallId) {
        if !self.tool_calls.contains(id) {
            self.tool_calls.insert(id.clone());
            self.open = None;
        }
    }

    /// A turn began or ended.
    pub fn turn_boundary(&mut self) {
        self.open = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    enum Step {
        Chunk(Role, Option<&'static str>),
        ToolCall(&'static str),
        Turn,
    }
    use Step::{Chunk, ToolCall, Turn};

    fn names(steps: &[Step]) -> Vec<String> {
        let (mut namer, mut count) = (Namer::default(), 0);
        let mut fresh = || {
            count += 1;
            MessageId::from(format!("new{count}").as_str())
        };
        let mut names = Vec::new();
        for step in steps {
            match step {
                Chunk(role, given) => {
                    names.push(namer.name(*role, given.map(MessageId::from), &mut fresh).to_string());
                }
                ToolCall(id) => namer.tool_call(&(*id).into()),
                Turn => namer.turn_boundary(),
            }
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
            (&[Chunk(User, None), Turn, Chunk(User, None)], &["new1", "new2"]),
            (&[Chunk(Agent, None), Chunk(Agent, Some("x")), Chunk(Agent, None)], &["new1", "x", "new2"]),
        ] {
            assert_eq!(names(steps), expected);
        }
    }
}
