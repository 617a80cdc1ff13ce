//! Images, sounds and files of entries, by the addresses that the page has for them.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parlor_json::Members;
use parlor_session::{Body, EntryId, Transcript, text_of};

use crate::render::content_block::ContentBlock;
use crate::render::text::{element_id, percent_encoded};

/// Bytes of an entry.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ServedMedia {
    /// An image or a sound of a type that browsers show and that contains no scripts.
    Shown { mime: String, bytes: Vec<u8> },
    /// A file to be kept. Browsers never show it, because it may contain scripts.
    Download { name: String, bytes: Vec<u8> },
}

impl IntoResponse for ServedMedia {
    fn into_response(self) -> Response {
        match self {
            Self::Shown { mime, bytes } => ([(header::CONTENT_TYPE, mime)], bytes).into_response(),
            Self::Download { name, bytes } => {
                let disposition = format!("attachment; filename*=UTF-8''{}", percent_encoded(&name));
                let headers = [
                    (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
                    (header::CONTENT_DISPOSITION, disposition),
                    (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
                ];
                (headers, bytes).into_response()
            }
        }
    }
}

/// The media at a place: the element of an entry, and a number in it.
pub(super) fn find(transcript: &Transcript, place: &str) -> Option<ServedMedia> {
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
    match ContentBlock::of(&block) {
        ContentBlock::Media { mime, data, .. } => {
            Some(ServedMedia::Shown { mime, bytes: STANDARD.decode(data).ok()? })
        }
        ContentBlock::Download { data, name, .. } => {
            Some(ServedMedia::Download { name, bytes: STANDARD.decode(data).ok()? })
        }
        ContentBlock::Text(_)
        | ContentBlock::Link { .. }
        | ContentBlock::File { .. }
        | ContentBlock::Other(_) => None,
    }
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
        let png = Some(ServedMedia::Shown { mime: "image/png".to_owned(), bytes: vec![0, 1, 2] });
        let drawing = Some(ServedMedia::Download { name: "image.svg".to_owned(), bytes: vec![0, 1, 2] });
        assert_eq!(found("m-a%20b:0"), drawing);
        assert_eq!(found("m-a%20b:1"), png);
        assert_eq!(found("t-t:0"), png);
        for other in ["m-a%20b:2", "m-a%20b", "m-a b:1", "t-t:1", "t-x:0", "t-t:-1", ":0", ""] {
            assert_eq!(found(other), None, "{other}");
        }
    }
}
