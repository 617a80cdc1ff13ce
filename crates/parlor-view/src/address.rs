//! Addresses on the page: of a session, and of the element of an entry in it.

use std::fmt::Write;

use parlor_session::{EntryId, SessionId};

/// The path of a session's page.
pub fn session_path(id: &SessionId) -> String {
    format!("/s/{}", percent_encoded(&id.to_string()))
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
    // The literal of a string: other than its text, this differs for all strings.
    format!("{kind}-{}", percent_encoded(id.inner()))
}

/// Percent-encodes a text for a part of an address.
pub fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use parlor_json::JsonStr;
    use parlor_session::{MessageId, Role};

    use super::*;

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
        assert_eq!(session_path(&SessionId::from("a/b")), "/s/a%2Fb");
    }
}
