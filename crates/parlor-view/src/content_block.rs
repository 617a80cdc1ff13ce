//! Content blocks that are not text, as one line each, for any output.

use parlor_json::{Json, JsonRef, Object};

/// A content block in a few words: `[image image/png 412 KB]`. A block of an unknown type is its JSON.
pub fn label(block: &Object) -> String {
    let text = |name: &str| block.get_string(name).filter(|text| !text.is_empty());
    let size = |data: Option<String>| data.map(|data| bytes(data.len() as u64 / 4 * 3));
    let words = |words: [Option<String>; 4]| {
        let words: Vec<String> = words.into_iter().flatten().collect();
        format!("[{}]", words.join(" "))
    };
    match block.get_str("type").as_deref() {
        Some(kind @ ("image" | "audio")) => words([
            Some(kind.to_owned()),
            text("uri").or_else(|| text("name")),
            text("mimeType"),
            size(text("data")),
        ]),
        Some("resource_link") => {
            let (name, uri) = (text("title").or_else(|| text("name")), text("uri"));
            let name = name.filter(|name| uri.as_ref() != Some(name));
            words([Some("link".to_owned()), name, uri, block.get_u64("size").map(bytes)])
        }
        Some("resource") => {
            let resource = block.get_object("resource").unwrap_or_default();
            let lines = resource.get_string("text").map(|text| match text.lines().count() {
                1 => "1 line".to_owned(),
                lines => format!("{lines} lines"),
            });
            let size = || size(resource.get_string("blob"));
            words([
                Some("file".to_owned()),
                resource.get_string("uri"),
                resource.get_string("mimeType"),
                lines.or_else(size),
            ])
        }
        Some(_) | None => block.to_json().as_str().to_owned(),
    }
}

/// The label of a content block, or the JSON if it is not an object.
pub fn label_of(block: &str) -> String {
    let object = JsonRef::parse(block).ok().and_then(JsonRef::to_object);
    object.map_or_else(|| block.to_owned(), |object| label(&object))
}

/// The text inside an embedded file.
pub fn resource_text(block: &Object) -> Option<String> {
    block.get_object("resource").and_then(|resource| resource.get_string("text"))
}

/// JSON on one line, as the peer sent it.
pub fn compact(json: &Json) -> String {
    json.as_str().split('\n').map(str::trim).collect()
}

fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} KB", bytes.div_ceil(1_000)),
        _ => format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_says_what_it_is() {
        for (block, shown) in [
            (r#"{"type":"image","mimeType":"image/png","data":"AAAAAAAA"}"#, "[image image/png 6 B]"),
            (r#"{"type":"audio","mimeType":"audio/wav","data":""}"#, "[audio audio/wav]"),
            (
                r#"{"type":"resource_link","uri":"file:///a.rs","name":"a.rs","size":2048}"#,
                "[link a.rs file:///a.rs 3 KB]",
            ),
            (
                r#"{"type":"resource","resource":{"uri":"file:///b","text":"x\ny"}}"#,
                "[file file:///b 2 lines]",
            ),
            (r#"{"type":"hologram","depth":3}"#, r#"{"type":"hologram","depth":3}"#),
            ("7", "7"),
        ] {
            assert_eq!(label_of(block), shown);
        }
    }
}
