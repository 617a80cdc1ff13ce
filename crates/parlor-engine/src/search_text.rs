//! The text of an entry that the search index holds.

use crate::rows::IndexDocument;
use anstyle_parse::{DefaultCharAccumulator, Parser, Perform};
use parlor_json::JsonRef;
use parlor_session::{Body, Content, Entry, EntryId, Role, plain_text, text_of};

/// How many bytes of an entry are indexed, from its beginning.
const MAX_BYTES: usize = 1 << 20;

/// The document by which a search finds an entry: the text of a message; the title, input, content and output of a tool call; the
/// command and output of a terminal. `None` for an entry that is not indexed.
pub fn index_document(entry: &Entry, at: i64) -> Option<IndexDocument> {
    let body = entry.body();
    let (kind, text) = match entry.id() {
        EntryId::Message(role, _) => {
            let kind = match role {
                Role::User => "user",
                Role::Agent => "agent",
                Role::Thought => "thought",
            };
            let mut text = String::new();
            // Joined first, so that a character cut in two between chunks is whole.
            for item in beginning(&body.content).joined().iter() {
                match text_of(item.json) {
                    Some(part) => text.push_str(&part),
                    None => text.push('\n'),
                }
            }
            (kind, text)
        }
        EntryId::ToolCall(_) => ("tool", tool_text(body)),
        EntryId::Terminal(_) => {
            let command = body.fields.get_string("command").unwrap_or_default();
            let output = &body.output[..body.output.len().min(MAX_BYTES)];
            ("tool", format!("{command}\n{}", String::from_utf8_lossy(output)))
        }
        EntryId::Plan(_)
        | EntryId::Compaction(_)
        | EntryId::Subagent(_)
        | EntryId::SessionMessage(_)
        | EntryId::Event(_)
        | EntryId::Note(_) => return None,
    };
    // Nobody searches for colours, and snippets would show their escape sequences.
    let mut text = if kind == "tool" { plain(&text) } else { text };
    text.truncate((0..=MAX_BYTES.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0));
    Some(IndexDocument { kind: kind.to_owned(), at, text })
}

/// The text without escape sequences.
fn plain(text: &str) -> String {
    struct Plain(String);
    impl Perform for Plain {
        fn print(&mut self, character: char) {
            self.0.push(character);
        }

        fn execute(&mut self, byte: u8) {
            if byte == b'\n' || byte == b'\t' {
                self.0.push(char::from(byte));
            }
        }
    }
    let mut plain = Plain(String::with_capacity(text.len()));
    let mut parser = Parser::<DefaultCharAccumulator>::new();
    text.bytes().for_each(|byte| parser.advance(&mut plain, byte));
    plain.0
}

/// The fields of a tool call by which it is found.
pub const TOOL_FIELDS: [&str; 3] = ["title", "rawInput", "rawOutput"];

fn tool_text(body: &Body) -> String {
    let mut text = body.fields.get_string("title").unwrap_or_default();
    if let Some(input) = body.fields.get("rawInput") {
        strings(input.raw(), &mut text, 0);
    }
    for item in body.content.iter() {
        if let Ok(item) = serde_json::from_str::<JsonRef<'_>>(item.json) {
            strings(item, &mut text, 0);
        }
    }
    if let Some(output) = body.fields.get("rawOutput") {
        strings(output.raw(), &mut text, 0);
    }
    text
}

/// How deep strings are looked for.
const DEPTH: usize = 16;

/// Adds the strings of a value, each on a line, as far as they count. Pictures and sounds are not text, and neither are the
/// names of types.
fn strings(value: JsonRef<'_>, text: &mut String, depth: usize) {
    if text.len() > MAX_BYTES || depth > DEPTH {
        return;
    }
    if let Some(string) = value.to_text() {
        text.push('\n');
        text.push_str(&string);
    } else if let Some(items) = value.elements() {
        items.into_iter().for_each(|item| strings(item, text, depth + 1));
    } else if let Ok(members) = parlor_json::Members::of(value) {
        for (name, member) in members
            .raw()
            .iter()
            .filter(|(name, _)| !matches!(name.as_str(), "\"type\"" | "\"data\"" | "\"mimeType\""))
        {
            let _ = name;
            strings(*member, text, depth + 1);
        }
    }
}

/// As much of a content as has all the text that counts.
fn beginning(content: &Content) -> Content {
    let mut length = 0;
    let items = content.iter().take_while(|item| {
        let is_wanted = length <= MAX_BYTES;
        length += plain_text(item.json).map_or(0, str::len);
        is_wanted
    });
    items.filter_map(|item| JsonRef::parse(item.json).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_are_removed() {
        assert_eq!(
            plain("\u{1b}[1mrunning\u{1b}[0m 1 test\r\n\u{1b}]0;title\u{7}ok\tdone é\u{1b}[3"),
            "running 1 test\nok\tdone é"
        );
    }
}
