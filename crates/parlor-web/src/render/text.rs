//! Untrusted text, made safe to show, and the ids of elements.

use std::fmt::Write;

use parlor_json::JsonStr;
pub use parlor_server::transport::percent_encoded;
use parlor_session::EntryId;

/// Replaces control characters, and writes bidirectional ones as `‹U+202E›`. Line breaks and tabs stay.
pub fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\r' if characters.peek() == Some(&'\n') => {}
            '\n' | '\t' => clean.push(character),
            _ if character.is_control() => clean.push(char::REPLACEMENT_CHARACTER),
            _ if is_bidirectional(character) => {
                let _ = write!(clean, "‹U+{:04X}›", u32::from(character));
            }
            _ => clean.push(character),
        }
    }
    clean
}

/// Cleans a text and joins its lines.
pub fn clean_line(text: &str) -> String {
    clean(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Whether a character changes the order in which others are shown.
pub fn is_bidirectional(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The id of the element that shows an entry: a letter for the kind and the entry's id, encoded so that it is also the fragment of an
/// address.
pub fn element_id(entry: &EntryId) -> String {
    let (kind, id) = match entry {
        // Clients get messages with ids that are unique, whatever their role.
        EntryId::Message(_, id) => ('m', id.as_json()),
        EntryId::ToolCall(id) => ('t', id.as_json()),
        EntryId::Plan(id) => ('p', id.as_json()),
        EntryId::Terminal(id) => ('x', id.as_json()),
        EntryId::Compaction(id) => ('c', id.as_json()),
        EntryId::Subagent(id) => ('a', id.as_json()),
        EntryId::SessionMessage(id) => ('s', id.as_json()),
        EntryId::Event(id) => ('e', id.as_json()),
        EntryId::Note(seq) => return format!("n-{seq}"),
    };
    format!("{kind}-{}", encoded(id))
}

/// Percent-encodes the literal of a string: other than its text, this differs for all strings.
fn encoded(id: &JsonStr) -> String {
    percent_encoded(id.inner())
}

#[cfg(test)]
mod tests {
    use parlor_session::{MessageId, Role};

    use super::*;

    #[test]
    fn control_characters_are_replaced_and_bidirectional_ones_are_visible() {
        assert_eq!(
            clean("a\r\nb\tc\u{1b}[2J\u{9b}\r\u{202e}d"),
            "a\nb\tc\u{fffd}[2J\u{fffd}\u{fffd}‹U+202E›d"
        );
        assert_eq!(clean_line(" a\n  b\u{7} "), "a b\u{fffd}");
    }

    #[test]
    fn element_ids_differ_and_are_fragments() {
        let id = |literal: &str| {
            let id = JsonStr::from_literal(literal).unwrap();
            element_id(&EntryId::Message(Role::Agent, MessageId::from(id)))
        };
        assert_eq!(id(r#""a b\"<%é""#), "m-a%20b%5C%22%3C%25%C3%A9");
        assert_ne!(id(r#""\ud800""#), id(r#""\ud801""#));
        assert_ne!(id(r#""""#), id(r#"" ""#));
        assert_eq!(element_id(&EntryId::Note(7)), "n-7");
    }
}
