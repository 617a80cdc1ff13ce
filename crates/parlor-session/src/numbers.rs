//! The numbers by which people refer to messages.

use crate::{Entry, EntryId, Transcript};

/// Numbers the messages of a transcript: `#1` is the first one.
///
/// Every message has a number, in the order of first appearance: prompts, answers and thoughts, also those whose
/// content was cleared. Tool calls, plans, terminals, events and other entries have none. A message keeps its number
/// while the session grows, and has the same number in a fork.
///
/// ```
/// use parlor_json::Json;
/// use parlor_session::{EntryId, MessageNumbers, Role, Transcript, Update};
///
/// let mut transcript = Transcript::default();
/// for (role, id) in [(Role::User, "a"), (Role::Thought, "b"), (Role::Agent, "c")] {
///     let item = Json::parse(r#"{"type":"text","text":"..."}"#).unwrap();
///     let entry = EntryId::Message(role, id.into());
///     transcript.push(Update::Append { entry, item, extra: None }).unwrap();
/// }
/// let numbers = MessageNumbers::of(&transcript);
/// let answer = transcript.get(&EntryId::Message(Role::Agent, "c".into())).unwrap();
/// assert_eq!(numbers.number_of(answer), Some(3));
/// assert_eq!(numbers.get(3), Some(answer));
/// ```
#[derive(Debug, Clone)]
pub struct MessageNumbers<'a> {
    /// How many messages precede those of the transcript.
    skipped: usize,
    messages: Vec<&'a Entry>,
}

impl<'a> MessageNumbers<'a> {
    /// Numbers the messages of a whole transcript.
    pub fn of(transcript: &'a Transcript) -> Self {
        Self::after(0, transcript)
    }

    /// Numbers the messages of the end of a transcript, before which the session has `skipped` messages.
    pub fn after(skipped: usize, transcript: &'a Transcript) -> Self {
        Self { skipped, messages: transcript.entries().iter().filter(|entry| is_numbered(entry)).collect() }
    }

    /// The number of the last message; 0 if there are none.
    pub fn last(&self) -> usize {
        self.skipped + self.messages.len()
    }

    /// The message with this number, if the transcript has it.
    pub fn get(&self, number: usize) -> Option<&'a Entry> {
        let index = number.checked_sub(self.skipped + 1)?;
        self.messages.get(index).copied()
    }

    /// The number of a message of the transcript; `None` for other entries.
    pub fn number_of(&self, entry: &Entry) -> Option<usize> {
        let index = self.messages.binary_search_by_key(&entry.created(), |message| message.created()).ok()?;
        Some(self.skipped + index + 1)
    }

    /// The messages with their numbers.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (usize, &'a Entry)> {
        let first = self.skipped + 1;
        self.messages.iter().enumerate().map(move |(index, entry)| (first + index, *entry))
    }
}

/// Whether an entry has a number.
pub fn is_numbered(entry: &Entry) -> bool {
    matches!(entry.id(), EntryId::Message(..))
}

#[cfg(test)]
mod tests {
    use parlor_json::Json;

    use super::*;
    use crate::{Patch, Role, Target, Update, Upsert};

    fn push(transcript: &mut Transcript, entry: EntryId) {
        let item = Json::parse(r#"{"type":"text","text":"x"}"#).unwrap();
        transcript.push(Update::Append { entry, item, extra: None }).unwrap();
    }

    fn message(role: Role, id: &str) -> EntryId {
        EntryId::Message(role, id.into())
    }

    #[test]
    fn messages_are_numbered_and_other_entries_are_not() {
        let mut transcript = Transcript::default();
        push(&mut transcript, message(Role::User, "u"));
        push(&mut transcript, EntryId::ToolCall("t".into()));
        push(&mut transcript, message(Role::Thought, "a"));
        push(&mut transcript, EntryId::Plan("p".into()));
        push(&mut transcript, message(Role::Agent, "a"));
        let numbers = MessageNumbers::of(&transcript);
        let numbered: Vec<_> = numbers.iter().map(|(number, entry)| (number, entry.id().clone())).collect();
        assert_eq!(
            numbered,
            [(1, message(Role::User, "u")), (2, message(Role::Thought, "a")), (3, message(Role::Agent, "a"))]
        );
        assert_eq!((numbers.last(), numbers.number_of(&transcript.entries()[1])), (3, None));
        assert!(numbers.get(0).is_none() && numbers.get(4).is_none());
        for (number, entry) in numbers.iter() {
            assert_eq!(numbers.get(number).map(Entry::id), Some(entry.id()));
            assert_eq!(numbers.number_of(entry), Some(number));
        }
    }

    #[test]
    fn a_message_keeps_its_number_when_it_is_cleared_and_when_the_session_grows() {
        let mut transcript = Transcript::default();
        let (first, second) = (message(Role::User, "u"), message(Role::Agent, "a"));
        push(&mut transcript, first.clone());
        push(&mut transcript, second.clone());
        let cleared = Upsert { content: Patch::Clear, ..Upsert::default() };
        transcript.push(Update::Upsert { target: Target::Entry(first.clone()), upsert: cleared }).unwrap();
        push(&mut transcript, message(Role::User, "v"));
        // The first message changes after the others.
        push(&mut transcript, first.clone());
        let numbers = MessageNumbers::of(&transcript);
        let number = |id: &EntryId| numbers.number_of(transcript.get(id).unwrap());
        assert_eq!((number(&first), number(&second)), (Some(1), Some(2)));
        assert_eq!(number(&message(Role::User, "v")), Some(3));
    }

    #[test]
    fn the_end_of_a_transcript_has_the_numbers_of_the_whole() {
        let mut transcript = Transcript::default();
        push(&mut transcript, message(Role::User, "u"));
        let numbers = MessageNumbers::after(41, &transcript);
        assert_eq!((numbers.last(), numbers.number_of(&transcript.entries()[0])), (42, Some(42)));
        assert!(numbers.get(41).is_none() && numbers.get(42).is_some() && numbers.get(43).is_none());
    }
}
