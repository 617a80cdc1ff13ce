use std::borrow::Cow;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use parlor_json::{Json, JsonStr, Object, ObjectWriter};

/// A piece of content: text, an image, audio, or a resource.
///
/// Members that a type does not name, such as `annotations` and `_meta`, are in its `extra`. Content of another type, or that
/// lacks what its type requires, is [`Other`](Self::Other). So a block is the same when it is read and written again.
///
/// ```
/// use parlor_agent::{ContentBlock, Json};
///
/// let json = Json::parse(r#"{"type":"text","text":"Hi","annotations":{"priority":1.0}}"#).unwrap();
/// let ContentBlock::Text(text) = ContentBlock::from(json) else { panic!("it is text") };
/// assert_eq!(text.text, "Hi");
/// assert_eq!(text.extra.get("annotations").unwrap().as_str(), r#"{"priority":1.0}"#);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContentBlock {
    /// Text.
    Text(TextContent),
    /// An image.
    Image(ImageContent),
    /// A recording.
    Audio(AudioContent),
    /// A link to a resource.
    ResourceLink(ResourceLink),
    /// A resource with its contents.
    Resource(EmbeddedResource),
    /// Any other content, as JSON.
    Other(Json),
}

/// Text of a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TextContent {
    /// The text, which may be Markdown.
    pub text: String,
    /// All other members.
    pub extra: Object,
}

/// An image of a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImageContent {
    /// The image, in base64.
    pub data: String,
    /// Its type, such as `image/png`.
    pub mime_type: String,
    /// Where it comes from.
    pub uri: Option<String>,
    /// All other members.
    pub extra: Object,
}

/// A recording of a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AudioContent {
    /// The recording, in base64.
    pub data: String,
    /// Its type, such as `audio/wav`.
    pub mime_type: String,
    /// All other members.
    pub extra: Object,
}

/// A link to a resource, such as a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResourceLink {
    /// Its name.
    pub name: String,
    /// Its address.
    pub uri: String,
    /// Its type.
    pub mime_type: Option<String>,
    /// All other members, such as `title`, `description` and `size`.
    pub extra: Object,
}

/// A resource with its contents, such as a file that a person attached.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EmbeddedResource {
    /// Its address.
    pub uri: String,
    /// Its type.
    pub mime_type: Option<String>,
    /// Its contents.
    pub contents: ResourceContents,
    /// All other members of `resource`.
    pub resource_extra: Object,
    /// All other members.
    pub extra: Object,
}

/// The contents of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResourceContents {
    /// Text.
    Text(String),
    /// Bytes, in base64.
    Blob(String),
}

impl ContentBlock {
    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(TextContent { text: text.into(), ..TextContent::default() })
    }

    /// An image of this type, such as `image/png`.
    pub fn image(bytes: &[u8], mime_type: impl Into<String>) -> Self {
        let data = BASE64_STANDARD.encode(bytes);
        Self::Image(ImageContent { data, mime_type: mime_type.into(), ..ImageContent::default() })
    }

    /// A recording of this type, such as `audio/wav`.
    pub fn audio(bytes: &[u8], mime_type: impl Into<String>) -> Self {
        let data = BASE64_STANDARD.encode(bytes);
        Self::Audio(AudioContent { data, mime_type: mime_type.into(), ..AudioContent::default() })
    }

    /// A link to a resource.
    pub fn resource_link(name: impl Into<String>, uri: impl Into<String>) -> Self {
        Self::ResourceLink(ResourceLink { name: name.into(), uri: uri.into(), ..ResourceLink::default() })
    }

    /// A resource with text, such as a file.
    pub fn resource(uri: impl Into<String>, text: impl Into<String>) -> Self {
        Self::Resource(EmbeddedResource {
            uri: uri.into(),
            mime_type: None,
            contents: ResourceContents::Text(text.into()),
            resource_extra: Object::default(),
            extra: Object::default(),
        })
    }

    /// The text, of a block that is text.
    pub fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(&text.text) } else { None }
    }

    /// The block as the protocol has it.
    pub fn to_json(&self) -> Json {
        match self {
            Self::Text(text) => ObjectWriter::new()
                .str("type", "text")
                .str("text", &text.text)
                .members(&text.extra)
                .into_json(),
            Self::Image(image) => ObjectWriter::new()
                .str("type", "image")
                .str("data", &image.data)
                .str("mimeType", &image.mime_type)
                .optional_str("uri", image.uri.as_deref())
                .members(&image.extra)
                .into_json(),
            Self::Audio(audio) => ObjectWriter::new()
                .str("type", "audio")
                .str("data", &audio.data)
                .str("mimeType", &audio.mime_type)
                .members(&audio.extra)
                .into_json(),
            Self::ResourceLink(link) => ObjectWriter::new()
                .str("type", "resource_link")
                .str("name", &link.name)
                .str("uri", &link.uri)
                .optional_str("mimeType", link.mime_type.as_deref())
                .members(&link.extra)
                .into_json(),
            Self::Resource(embedded) => {
                let resource = ObjectWriter::new()
                    .str("uri", &embedded.uri)
                    .optional_str("mimeType", embedded.mime_type.as_deref());
                let resource = match &embedded.contents {
                    ResourceContents::Text(text) => resource.str("text", text),
                    ResourceContents::Blob(blob) => resource.str("blob", blob),
                };
                let resource = resource.members(&embedded.resource_extra).finish();
                ObjectWriter::new()
                    .str("type", "resource")
                    .raw("resource", &resource)
                    .members(&embedded.extra)
                    .into_json()
            }
            Self::Other(json) => json.clone(),
        }
    }

    fn read(json: &Json) -> Option<Self> {
        let mut members = Object::parse(json.raw()).ok()?;
        let kind = take(&mut members, "type")?;
        Some(match &*kind {
            "text" => Self::Text(TextContent { text: take(&mut members, "text")?, extra: members }),
            "image" => Self::Image(ImageContent {
                data: take(&mut members, "data")?,
                mime_type: take(&mut members, "mimeType")?,
                uri: take(&mut members, "uri"),
                extra: members,
            }),
            "audio" => Self::Audio(AudioContent {
                data: take(&mut members, "data")?,
                mime_type: take(&mut members, "mimeType")?,
                extra: members,
            }),
            "resource_link" => Self::ResourceLink(ResourceLink {
                name: take(&mut members, "name")?,
                uri: take(&mut members, "uri")?,
                mime_type: take(&mut members, "mimeType"),
                extra: members,
            }),
            "resource" => {
                let mut resource = Object::parse(members.remove("resource")?.raw()).ok()?;
                let uri = take(&mut resource, "uri")?;
                let mime_type = take(&mut resource, "mimeType");
                let contents = match take(&mut resource, "text") {
                    Some(text) => ResourceContents::Text(text),
                    None => ResourceContents::Blob(take(&mut resource, "blob")?),
                };
                Self::Resource(EmbeddedResource {
                    uri,
                    mime_type,
                    contents,
                    resource_extra: resource,
                    extra: members,
                })
            }
            _ => return None,
        })
    }
}

/// Takes a member that is a string, and that Rust can hold. Any other value stays.
fn take(members: &mut Object, name: &str) -> Option<String> {
    let value = JsonStr::from_raw(members.get(name)?.raw())?.to_exact().map(Cow::into_owned)?;
    members.remove(name);
    Some(value)
}

impl From<Json> for ContentBlock {
    fn from(json: Json) -> Self {
        Self::read(&json).unwrap_or(Self::Other(json))
    }
}

impl From<&str> for ContentBlock {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<String> for ContentBlock {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(json: &Json) -> serde_json::Value {
        serde_json::from_str(json.as_str()).unwrap()
    }

    #[test]
    fn blocks_are_read_and_written_without_loss() {
        for (text, is_known) in [
            (r#"{"type":"text","text":"a\"\n\u00e9","annotations":{"priority":1},"_meta":{"k":[1]}}"#, true),
            (r#"{"type":"image","data":"AA==","mimeType":"image/png","uri":"file:///a","x":1}"#, true),
            (r#"{"type":"image","data":"AA==","mimeType":"image/png","uri":null}"#, true),
            (r#"{"type":"audio","data":"AA==","mimeType":"audio/wav","_meta":{}}"#, true),
            (
                r#"{"type":"resource_link","name":"n","uri":"u","mimeType":"m","size":12345678901234567890}"#,
                true,
            ),
            (
                r#"{"type":"resource","resource":{"uri":"u","text":"t","mimeType":"m","z":2},"_meta":null}"#,
                true,
            ),
            (r#"{"type":"resource","resource":{"uri":"u","blob":"AA=="}}"#, true),
            (r#"{"type":"_video","frames":[]}"#, false),
            (r#"{"type":"text"}"#, false),
            (r#"{"type":"text","text":"\ud800"}"#, false),
            (r#"{"type":"resource","resource":{"uri":"u"}}"#, false),
            ("[1]", false),
            (r#"{"type":5}"#, false),
        ] {
            let json = Json::parse(text).unwrap();
            let block = ContentBlock::from(json.clone());
            assert_eq!(!matches!(block, ContentBlock::Other(_)), is_known, "{text}");
            let written = block.to_json();
            if is_known {
                assert_eq!(value(&written), value(&json), "{text}");
            } else {
                assert_eq!(written.as_str(), text);
            }
            assert_eq!(ContentBlock::from(written), block, "{text}");
        }
    }

    #[test]
    fn blocks_that_an_agent_creates_are_those_of_the_protocol() {
        for (block, text) in [
            (ContentBlock::text("hi"), r#"{"type":"text","text":"hi"}"#),
            (ContentBlock::from("hi"), r#"{"type":"text","text":"hi"}"#),
            (
                ContentBlock::image(b"\0", "image/png"),
                r#"{"type":"image","data":"AA==","mimeType":"image/png"}"#,
            ),
            (
                ContentBlock::audio(b"\0", "audio/wav"),
                r#"{"type":"audio","data":"AA==","mimeType":"audio/wav"}"#,
            ),
            (ContentBlock::resource_link("n", "u"), r#"{"type":"resource_link","name":"n","uri":"u"}"#),
            (ContentBlock::resource("u", "t"), r#"{"type":"resource","resource":{"uri":"u","text":"t"}}"#),
        ] {
            assert_eq!(block.to_json().as_str(), text);
            assert_eq!(ContentBlock::from(Json::parse(text).unwrap()), block);
        }
    }
}
