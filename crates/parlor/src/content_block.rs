//! Blocks of content as exports show them.

use std::borrow::Cow;

use parlor_json::Members;
use parlor_session::text_of;

use crate::render::{block_text, members_of};

/// A block of content of a message or a tool call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ContentBlock<'a> {
    Text(Cow<'a, str>),
    /// An image of a type that browsers display and that contains no scripts, as a data URL.
    Image {
        url: String,
        name: String,
    },
    /// A link to a resource.
    Link {
        uri: String,
        name: String,
    },
    /// An embedded text file.
    File {
        uri: String,
        text: String,
    },
    /// Any other block, described in words.
    Other(String),
}

impl<'a> ContentBlock<'a> {
    /// Reads the JSON of a block.
    pub(crate) fn of(block: &'a str) -> Self {
        if let Some(text) = text_of(block) {
            return Self::Text(text);
        }
        let members = members_of(block);
        let named = |name: &str| members.get_string(name);
        match named("type").as_deref() {
            Some("image") => {
                let url = image_url(&members);
                let name = named("uri").unwrap_or_else(|| "image".to_owned());
                url.map(|url| Self::Image { url, name })
            }
            Some("resource_link") => named("uri").map(|uri| {
                let name = named("title").or_else(|| named("name")).unwrap_or_else(|| uri.clone());
                Self::Link { uri, name }
            }),
            Some("resource") => {
                let resource = members.get("resource").and_then(|resource| Members::of(resource).ok());
                let resource = resource.unwrap_or_default();
                let text = resource.get_string("text");
                text.map(|text| Self::File { uri: resource.get_string("uri").unwrap_or_default(), text })
            }
            Some(_) | None => None,
        }
        .unwrap_or_else(|| Self::Other(block_text(block)))
    }
}

fn image_url(members: &Members<'_>) -> Option<String> {
    let (mime, data) = (members.get_string("mimeType")?, members.get_string("data")?);
    let is_safe = matches!(&*mime, "image/png" | "image/jpeg" | "image/gif" | "image/webp")
        && data.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
    is_safe.then(|| format!("data:{mime};base64,{data}"))
}

/// Whether a URL opens only a web page or a mail program.
pub(crate) fn is_web_or_mail(address: &str) -> bool {
    let is =
        |scheme: &str| address.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    is("https://") || is("http://") || is("mailto:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_read_by_type() {
        let text = |text: &str| text.to_owned();
        for (block, expected) in [
            (r#"{"type":"text","text":"x"}"#, ContentBlock::Text("x".into())),
            (
                r#"{"type":"image","mimeType":"image/png","data":"iVBORw0KGgo=","uri":"a.png"}"#,
                ContentBlock::Image { url: text("data:image/png;base64,iVBORw0KGgo="), name: text("a.png") },
            ),
            (
                r#"{"type":"resource_link","uri":"file:///x","name":"x"}"#,
                ContentBlock::Link { uri: text("file:///x"), name: text("x") },
            ),
            (
                r#"{"type":"resource","resource":{"uri":"file:///x","text":"y"}}"#,
                ContentBlock::File { uri: text("file:///x"), text: text("y") },
            ),
            (
                r#"{"type":"image","mimeType":"image/svg+xml","data":"PHN2Zz4="}"#,
                ContentBlock::Other(text("[image image/svg+xml, 6 bytes]")),
            ),
            (r#"{"type":"resource_link"}"#, ContentBlock::Other(text("[resource_link]"))),
            ("7", ContentBlock::Other(text("[block]"))),
        ] {
            assert_eq!(ContentBlock::of(block), expected, "{block}");
        }
    }
}
