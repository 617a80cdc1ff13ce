//! The words that an entry is found by.

use parlor_session::{Content, Entry, EntryId, Role, Transcript, plain_text, text_of};
use parlor_store::{EntryRow, Words};
use serde_json::value::RawValue;

use crate::json;

/// How much of an entry can be found. Who writes more than a book in one message is found by its beginning.
const MOST: usize = 1 << 20;

/// What an entry is found by: a message by its text, a tool call by its title. `None` for what is never found.
pub(crate) fn words_of(entry: &Entry, at: i64) -> Option<Words> {
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
        EntryId::ToolCall(_) => ("tool", json::text(&body.fields, "title").unwrap_or_default()),
        EntryId::Plan(_)
        | EntryId::Terminal(_)
        | EntryId::Compaction(_)
        | EntryId::Subagent(_)
        | EntryId::SessionMessage(_)
        | EntryId::Note(_) => return None,
    };
    let mut text = text;
    text.truncate((0..=MOST.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0));
    Some(Words { kind: kind.to_owned(), at, text })
}

/// As much of a content as has all the text that counts.
fn beginning(content: &Content) -> Content {
    let mut length = 0;
    let items = content.iter().take_while(|item| {
        let is_wanted = length <= MOST;
        length += plain_text(item.json).map_or(0, str::len);
        is_wanted
    });
    items.filter_map(|item| serde_json::from_str::<&RawValue>(item.json).ok()).collect()
}

/// What a stored entry is found by; `None` also for one that cannot be read.
pub(crate) fn words_of_row(row: &EntryRow, at: i64) -> Option<Words> {
    let mut transcript = Transcript::default();
    transcript.restore_entry(row.created, row.seq, &row.head, &row.content, row.inherited).ok()?;
    words_of(transcript.entries().first()?, at)
}
