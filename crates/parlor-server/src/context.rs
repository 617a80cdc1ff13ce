//! A conversation as a text for an agent that was not there.

use std::fmt::Write as _;

use parlor_session::{Entry, EntryId, Role, Transcript};

/// How much of a conversation is handed over. The oldest goes first.
const MOST: usize = 200 << 10;

/// How much of what one tool call brought is handed over.
const TOOL: usize = 4 << 10;

/// All that was said before the last message of a person, which is the prompt itself.
pub(crate) fn of(transcript: &Transcript) -> String {
    let is_prompt = |entry: &Entry| matches!(entry.id(), EntryId::Message(Role::User, _));
    let entries = transcript.entries();
    let end = entries.iter().rposition(is_prompt).unwrap_or(entries.len());
    let mut parts: Vec<String> = entries[..end].iter().filter_map(part).collect();
    if parts.is_empty() {
        return String::new();
    }
    let mut length: usize = parts.iter().map(String::len).sum();
    let mut dropped = 0;
    while length > MOST && parts.len() > 1 {
        length -= parts.remove(0).len();
        dropped += 1;
    }
    let mut text = String::from(
        "The conversation so far, from before you joined it. Go on from here; do not answer it again.\n\n",
    );
    if dropped > 0 {
        let _ = write!(text, "(the first {dropped} parts are left out)\n\n");
    }
    text.extend(parts);
    text
}

fn part(entry: &Entry) -> Option<String> {
    let body = entry.body();
    if body.removed {
        return None;
    }
    match entry.id() {
        EntryId::Message(role, _) => {
            let who = match role {
                Role::User => "User",
                Role::Agent => "Assistant",
                Role::Thought => return None,
            };
            let text = body.content.to_text();
            (!text.is_empty()).then(|| format!("## {who}\n\n{text}\n\n"))
        }
        EntryId::ToolCall(_) => {
            let field = |name: &str| crate::json::text(&body.fields, name);
            let title = field("title").unwrap_or_else(|| "tool call".to_owned());
            let status = field("status").unwrap_or_default();
            let mut output: String = body
                .content
                .iter()
                .filter_map(|item| {
                    let block = crate::json::object(Some(serde_json::from_str(item.json).ok()?));
                    parlor_session::text_of(block.get("content")?.as_str()).map(std::borrow::Cow::into_owned)
                })
                .collect();
            if output.len() > TOOL {
                let cut = (0..=TOOL).rev().find(|place| output.is_char_boundary(*place)).unwrap_or(0);
                output.truncate(cut);
                output.push_str(" …");
            }
            Some(format!("## Tool: {title} ({status})\n\n{output}\n\n"))
        }
        EntryId::Plan(_)
        | EntryId::Terminal(_)
        | EntryId::Compaction(_)
        | EntryId::Subagent(_)
        | EntryId::SessionMessage(_)
        | EntryId::Note(_) => None,
    }
}
