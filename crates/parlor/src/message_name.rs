//! Names of messages on the command line: numbers, ids, prefixes of ids and ranges.

use std::ops::Range;

use parlor_json::JsonStr;
use parlor_session::{Entry, EntryId, MessageNumbers, Role, Transcript};

use crate::command_error::CommandError;

/// How many digits are the prefix of an id, and not a number: as many as other commands print of an id.
const MIN_DIGITS: usize = 8;

/// Selects a message by its number (`#3`, `3`, or `#-1` for the last one), its id, a unique prefix of its id, or `latest`, the
/// latest prompt.
///
/// Prefixes match only messages whose role is accepted. Digits are a number, not a prefix: the ids of a long session start with all
/// digits, so that a mistyped number would select any message. [`MIN_DIGITS`] or more are a prefix.
pub(crate) fn find(
    transcript: &Transcript,
    name: &str,
    is_accepted: fn(Role) -> bool,
) -> Result<JsonStr, CommandError> {
    match select(transcript, name, is_accepted)? {
        Some(entry) => Ok(message_id(entry).cloned().expect("only messages are selected")),
        // It may be an alias that only the server can resolve.
        None => Ok(JsonStr::new(name)),
    }
}

/// The entries that a message (`#7`) or a range of messages (`#7..#9`, `#7..`, `..#9`) selects, as indexes. A range includes both
/// messages and everything between them.
pub(crate) fn find_range(transcript: &Transcript, name: &str) -> Result<Range<usize>, CommandError> {
    let entries = transcript.entries();
    let index = |name: &str| {
        let entry = select(transcript, name, |_| true)?.ok_or_else(|| unknown(name))?;
        let index = entries.binary_search_by_key(&entry.created(), Entry::created);
        Ok(index.expect("it is one of them"))
    };
    let has_it = entries.iter().filter_map(message_id).any(|id| id.to_text() == name);
    let Some((first, last)) = name.split_once("..").filter(|_| !has_it) else {
        let index = index(name)?;
        return Ok(index..index + 1);
    };
    let start = if first.is_empty() { 0 } else { index(first)? };
    let end = if last.is_empty() { entries.len() } else { index(last)? + 1 };
    if start >= end {
        return Err(CommandError::bad_input(format_args!("the range '{name}' ends before it starts")));
    }
    Ok(start..end)
}

fn select<'a>(
    transcript: &'a Transcript,
    name: &str,
    is_accepted: fn(Role) -> bool,
) -> Result<Option<&'a Entry>, CommandError> {
    let numbers = MessageNumbers::of(transcript);
    let messages: Vec<(usize, &Entry)> = numbers.iter().filter(|(_, entry)| !entry.body().removed).collect();
    let has_role =
        |entry: &Entry, is: fn(Role) -> bool| matches!(entry.id(), EntryId::Message(role, _) if is(*role));
    if name == "latest" {
        let prompt = messages.iter().rfind(|(_, entry)| has_role(entry, |role| role == Role::User));
        let (_, entry) = prompt.ok_or_else(|| CommandError::bad_input("the session has no prompt yet"))?;
        return Ok(Some(entry));
    }
    let id = |entry: &'a Entry| message_id(entry).map(JsonStr::to_text).unwrap_or_default();
    if let Some((_, entry)) = messages.iter().find(|(_, entry)| id(entry) == name) {
        return Ok(Some(entry));
    }
    let has_prefix = |entry: &'a Entry| !name.is_empty() && id(entry).starts_with(name);
    let by_prefix: Vec<_> = messages
        .iter()
        .map(|(_, entry)| *entry)
        .filter(|entry| has_role(entry, is_accepted) && has_prefix(entry))
        .collect();
    let digits = name.strip_prefix('#').unwrap_or(name);
    let is_prefix = digits.len() == name.len() && digits.len() >= MIN_DIGITS;
    let Some(number) = digits.parse::<i64>().ok().filter(|_| !is_prefix) else {
        return one_of(name, &by_prefix);
    };
    let absolute = if number < 0 {
        i64::try_from(numbers.last()).unwrap_or(i64::MAX).saturating_add(number).saturating_add(1)
    } else {
        number
    };
    let numbered = usize::try_from(absolute).ok().and_then(|number| numbers.get(number));
    numbered.map(Some).ok_or_else(|| no_number(digits, numbers.last()))
}

/// The only one of the messages that a prefix matches; `None` if it matches none.
fn one_of<'a>(name: &str, found: &[&'a Entry]) -> Result<Option<&'a Entry>, CommandError> {
    match found {
        [] => Ok(None),
        [entry] => Ok(Some(entry)),
        several => {
            let ids = several.iter().take(3).filter_map(|entry| message_id(entry));
            let ids: Vec<_> = ids.map(|id| id.to_text().into_owned()).collect();
            Err(CommandError::bad_input(format_args!("'{name}' matches {} messages", several.len()))
                .hint(format_args!("use a longer prefix: {}", ids.join(", "))))
        }
    }
}

fn no_number(number: &str, last: usize) -> CommandError {
    let hint = match last {
        0 => "it has no messages yet".to_owned(),
        last => format!("the last message is #{last}; `parlor show` prints the numbers"),
    };
    CommandError::bad_input(format_args!("the session has no message #{number}")).hint(hint)
}

fn unknown(name: &str) -> CommandError {
    CommandError::bad_input(format_args!("no message has the number or an id that starts with '{name}'"))
        .hint("`parlor show` prints the numbers, with --ids also the ids")
}

fn message_id(entry: &Entry) -> Option<&JsonStr> {
    match entry.id() {
        EntryId::Message(_, id) => Some(id.as_json()),
        EntryId::ToolCall(_)
        | EntryId::Plan(_)
        | EntryId::Terminal(_)
        | EntryId::Compaction(_)
        | EntryId::Subagent(_)
        | EntryId::SessionMessage(_)
        | EntryId::Event(_)
        | EntryId::Note(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use parlor_json::Json;
    use parlor_session::Update;

    use super::*;

    /// Two turns: prompt, thought, tool call, answer; prompt, answer.
    fn transcript() -> Transcript {
        let mut transcript = Transcript::default();
        let message = |role, id: &str| EntryId::Message(role, id.into());
        for entry in [
            message(Role::User, "8d41"),
            message(Role::Thought, "52a6"),
            EntryId::ToolCall("call".into()),
            message(Role::Agent, "52ff"),
            message(Role::User, "4x"),
            message(Role::Agent, "7..9"),
        ] {
            let item = Json::parse(r#"{"type":"text","text":"x"}"#).unwrap();
            transcript.push(Update::Append { entry, item, extra: None }).unwrap();
        }
        transcript
    }

    fn found(name: &str) -> Result<String, String> {
        let id = find(&transcript(), name, |_| true);
        id.map(|id| id.to_text().into_owned()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_message_is_selected_by_number_id_prefix_or_as_the_latest_prompt() {
        for (name, id) in [
            ("#1", "8d41"),
            ("1", "8d41"),
            ("#3", "52ff"),
            ("3", "52ff"),
            ("#-1", "7..9"),
            ("-2", "4x"),
            ("8d", "8d41"),
            ("52a", "52a6"),
            ("latest", "4x"),
            ("#4", "4x"),
            // Number 5, and the prefix of other ids.
            ("5", "7..9"),
            ("7..9", "7..9"),
            // The server knows other names of messages.
            ("alias", "alias"),
        ] {
            assert_eq!(found(name).as_deref(), Ok(id), "{name}");
        }
    }

    #[test]
    fn a_number_that_does_not_exist_and_an_ambiguous_name_are_errors() {
        for (name, error) in [
            ("#6", "the session has no message #6"),
            ("#0", "the session has no message #0"),
            ("#-6", "the session has no message #-6"),
            ("9", "the session has no message #9"),
            // The prefix of an id.
            ("8", "the session has no message #8"),
        ] {
            assert_eq!(found(name).unwrap_err(), error, "{name}");
        }
    }

    #[test]
    fn only_messages_of_accepted_roles_match_a_prefix() {
        let mut transcript = transcript();
        for (role, id) in [(Role::Thought, "b6a"), (Role::Agent, "b6f"), (Role::Agent, "12345678x")] {
            let item = Json::parse(r#"{"type":"text","text":"x"}"#).unwrap();
            let entry = EntryId::Message(role, id.into());
            transcript.push(Update::Append { entry, item, extra: None }).unwrap();
        }
        let found =
            |name, is_accepted| find(&transcript, name, is_accepted).map(|id| id.to_text().into_owned());
        assert_eq!(found("b6", |role| role == Role::Thought).unwrap(), "b6a");
        assert_eq!(found("b6", |_| true).unwrap_err().to_string(), "'b6' matches 2 messages");
        // Eight digits are a prefix, seven a number.
        assert_eq!(found("12345678", |_| true).unwrap(), "12345678x");
        assert!(found("1234567", |_| true).unwrap_err().to_string().contains("no message #1234567"));
    }

    #[test]
    fn a_range_has_both_messages_and_everything_between_them() {
        let range = |name: &str| find_range(&transcript(), name).map_err(|error| error.to_string());
        for (name, expected) in [
            ("#2..#3", 1..4),
            ("2..3", 1..4),
            ("#4..", 4..6),
            ("..8d", 0..1),
            ("..", 0..6),
            ("#-2..#-1", 4..6),
            ("#3", 3..4),
            // An id that looks like a range.
            ("7..9", 5..6),
        ] {
            assert_eq!(range(name), Ok(expected), "{name}");
        }
        assert!(range("#3..#2").unwrap_err().contains("ends before it starts"));
        assert!(range("#2..#9").unwrap_err().contains("no message #9"));
        assert!(range("nothing").unwrap_err().contains("'nothing'"));
    }
}
