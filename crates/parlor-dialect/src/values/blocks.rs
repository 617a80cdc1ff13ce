//! Content blocks: v2 has more types, and audiences that v1 does not know.

use parlor_json::{Json, JsonRef, Members, Object, Type};
use parlor_session::plain_text;

use crate::{LossKind, Losses, json_ext};

/// The result of converting a content block to v1.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ForV1 {
    /// The block is valid in v1.
    Same,
    /// The converted block.
    Changed(Json),
    /// v1 cannot parse the block.
    Unknown,
}

/// Whether a content block has the required members of its type. Unknown types have none.
pub(crate) fn is_block(block: JsonRef<'_>) -> bool {
    if plain_text(block.as_str()).is_some() {
        return true;
    }
    let Ok(block) = Members::of(block) else { return false };
    let Some(type_) = block.get_str("type") else { return false };
    let is_string = |holder: &Members<'_>, name: &str| {
        holder.get(name).is_some_and(|value| value.type_of() == Type::String)
    };
    match type_.as_ref() {
        "text" => is_string(&block, "text"),
        "image" | "audio" => is_string(&block, "data") && is_string(&block, "mimeType"),
        "resource_link" => is_string(&block, "name") && is_string(&block, "uri"),
        "resource" => {
            block.get("resource").and_then(|resource| Members::of(resource).ok()).is_some_and(|resource| {
                is_string(&resource, "uri") && (is_string(&resource, "text") || is_string(&resource, "blob"))
            })
        }
        _ => true,
    }
}

/// Converts a block whose members are parsed already.
pub(crate) fn for_v1(block: &Members<'_>, losses: &mut Losses) -> ForV1 {
    let type_ = block.get_str("type");
    if !matches!(type_.as_deref(), Some("text" | "image" | "audio" | "resource_link" | "resource")) {
        return ForV1::Unknown;
    }
    // Nearly all blocks have no annotations and are not parsed further.
    if block.get("annotations").is_none() {
        return ForV1::Same;
    }
    let mut block = Object::from(block);
    let before = block.clone();
    json_ext::within(&mut block, "annotations", |mut annotations| {
        let readers = annotations.get("audience").and_then(|readers| readers.elements());
        if let Some(readers) = readers {
            let known =
                |reader: &JsonRef<'_>| matches!(reader.to_text().as_deref(), Some("user" | "assistant"));
            let kept: Vec<_> = readers.iter().copied().filter(known).map(Json::from).collect();
            if kept.len() < readers.len() {
                losses.add(LossKind::Audience);
                annotations.set("audience", Json::array(&kept));
            }
        }
        annotations
    });
    if block == before { ForV1::Same } else { ForV1::Changed(block.to_json()) }
}

/// Converts a list of blocks to v1.
pub(crate) fn list_to_v1(blocks: &Json, losses: &mut Losses) -> Json {
    json_ext::each(blocks, |block| {
        let json = block.to_json();
        match for_v1(&Members::parse(json.as_str()).unwrap_or_default(), losses) {
            ForV1::Same => Some(block),
            ForV1::Changed(changed) => changed.to_object(),
            ForV1::Unknown => {
                losses.add(LossKind::ContentBlockType);
                None
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::check;

    #[test]
    fn v1_gets_what_it_can_parse() {
        for (blocks, expected, lost) in [
            (r#"[{"type":"text","text":"a"},{"type":"resource_link","x":1}]"#, None, &[][..]),
            (
                r#"[{"type":"_odd"},{"type":"text","text":"a"},{}]"#,
                Some(r#"[{"type":"text","text":"a"}]"#),
                &["content_block_type", "content_block_type"],
            ),
            (
                r#"[{"type":"text","text":"a","annotations":{"audience":["_odd","user"],"priority":1.50}}]"#,
                Some(r#"[{"type":"text","text":"a","annotations":{"audience":["user"],"priority":1.50}}]"#),
                &["audience"],
            ),
            (r#"[{"type":"text","text":"a","annotations":{"audience":["assistant"]}}]"#, None, &[]),
        ] {
            let mut losses = Losses::default();
            let converted = list_to_v1(&check::json(blocks), &mut losses);
            assert_eq!(converted.as_str(), expected.unwrap_or(blocks));
            assert_eq!(check::names(losses), lost);
        }
    }
}
