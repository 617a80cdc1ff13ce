//! Images and sounds of entries, by the addresses that the page has for them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parlor_json::Members;
use parlor_session::{Body, EntryId, Transcript, text_of};

use crate::render::content_block::ContentBlock;
use crate::render::text::element_id;

/// The type and the bytes of the media at a place: the element of an entry, and a number in it.
pub(super) fn find(transcript: &Transcript, place: &str) -> Option<(String, Vec<u8>)> {
    let (element, number) = place.rsplit_once(':')?;
    let number: usize = number.parse().ok()?;
    let entry = transcript.entries().iter().find(|entry| element_id(entry.id()) == element)?;
    let block = match entry.id() {
        EntryId::Message(..) => message_block(entry.body(), number),
        EntryId::ToolCall(_) => tool_block(entry.body(), number),
        EntryId::Plan(_)
        | EntryId::Terminal(_)
        | EntryId::Compaction(_)
        | EntryId::Subagent(_)
        | EntryId::SessionMessage(_)
        | EntryId::Event(_)
        | EntryId::Note(_) => None,
    }?;
    let ContentBlock::Media { mime, data, .. } = ContentBlock::of(&block) else { return None };
    Some((mime, STANDARD.decode(data).ok()?))
}

/// The block with this number among those of a message that are not text.
fn message_block(body: &Body, number: usize) -> Option<String> {
    let items = body.content.iter().filter(|item| text_of(item.json).is_none());
    items.map(|item| item.json.to_owned()).nth(number)
}

/// The block in the item with this number of a tool call's content.
fn tool_block(body: &Body, number: usize) -> Option<String> {
    let content = body.content.joined();
    let item = content.get(number)?;
    Some(Members::parse(item)?.get("content")?.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use parlor_dialect::{Dialect, Fold};

    use super::*;

    #[test]
    fn media_is_found_by_its_element_and_number() {
        let image = r#"{"type":"image","mimeType":"image/png","data":"AAEC"}"#;
        let svg = r#"{"type":"image","mimeType":"image/svg+xml","data":"AAEC"}"#;
        let text = r#"{"type":"text","text":"x"}"#;
        let mut fold = Fold::new(Dialect::V2);
        for update in [
            format!(
                r#"{{"sessionUpdate":"agent_message","messageId":"a b","content":[{text},{svg},{text},{image}]}}"#
            ),
            format!(
                r#"{{"sessionUpdate":"tool_call_update","toolCallId":"t","content":[{{"type":"content","content":{image}}}]}}"#
            ),
        ] {
            fold.line(&update).unwrap();
        }
        let found = |place: &str| find(fold.transcript(), place);
        let png = Some(("image/png".to_owned(), vec![0, 1, 2]));
        assert_eq!(found("m-a%20b:1"), png);
        assert_eq!(found("t-t:0"), png);
        for other in ["m-a%20b:0", "m-a%20b:2", "m-a%20b", "m-a b:1", "t-t:1", "t-x:0", "t-t:-1", ":0", ""] {
            assert_eq!(found(other), None, "{other}");
        }
    }
}
