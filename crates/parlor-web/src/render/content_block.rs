//! Blocks of content of messages and tool calls.

use std::borrow::Cow;

use maud::{Markup, html};
use parlor_json::Members;
use parlor_session::text_of;

use super::code;
use super::text::{clean, clean_line, percent_encoded};
use crate::assets::icon;

/// A block of content of a message or a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentBlock<'a> {
    /// Text.
    Text(Cow<'a, str>),
    /// An image or a sound of a type that browsers show and that contains no scripts.
    Media {
        /// What it is.
        kind: MediaKind,
        /// Its type, such as `image/png`.
        mime: String,
        /// Its bytes in base64.
        data: String,
        /// Its name.
        name: String,
    },
    /// A file that the page only offers for keeping: an image that may contain scripts, or bytes that are not text.
    Download {
        /// Its bytes in base64.
        data: String,
        /// Its name.
        name: String,
        /// It in words, with its type and size.
        label: String,
    },
    /// A link to a resource.
    Link {
        /// Its address.
        uri: String,
        /// Its name.
        name: String,
    },
    /// An embedded text file.
    File {
        /// Its address.
        uri: String,
        /// Its text.
        text: String,
    },
    /// Any other block, described in words.
    Other(String),
}

/// A kind of media.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaKind {
    /// An image.
    Image,
    /// A sound.
    Audio,
}

/// Where a page gets images and sounds from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaSource<'a> {
    /// They are in the page itself.
    Embedded,
    /// They have addresses that begin with this and end with the element of their entry and their index in it.
    Served(&'a str),
}

/// The types of media that are shown. All others may contain scripts or cannot be shown.
const MEDIA: [(&str, MediaKind); 10] = [
    ("image/png", MediaKind::Image),
    ("image/jpeg", MediaKind::Image),
    ("image/gif", MediaKind::Image),
    ("image/webp", MediaKind::Image),
    ("audio/mpeg", MediaKind::Audio),
    ("audio/mp4", MediaKind::Audio),
    ("audio/ogg", MediaKind::Audio),
    ("audio/wav", MediaKind::Audio),
    ("audio/webm", MediaKind::Audio),
    ("audio/flac", MediaKind::Audio),
];

impl<'a> ContentBlock<'a> {
    /// Reads the JSON of a block.
    pub fn of(block: &'a str) -> Self {
        if let Some(text) = text_of(block) {
            return Self::Text(text);
        }
        let members = Members::parse(block).unwrap_or_default();
        let named = |name: &str| members.get_string(name);
        match named("type").as_deref() {
            Some("image" | "audio") => media(&members, block),
            Some("resource_link") => named("uri").map(|uri| {
                let name = named("title").or_else(|| named("name")).unwrap_or_else(|| uri.clone());
                Self::Link { uri, name }
            }),
            Some("resource") => {
                let resource = members.get("resource").and_then(|resource| Members::of(resource).ok());
                let resource = resource.unwrap_or_default();
                let uri = resource.get_string("uri").unwrap_or_default();
                match (
                    resource.get_string("text"),
                    resource.get_string("blob").filter(|blob| is_base64(blob)),
                ) {
                    (Some(text), _) => Some(Self::File { uri, text }),
                    (None, Some(data)) => {
                        Some(Self::Download { data, name: file_name(&uri).to_owned(), label: label(block) })
                    }
                    (None, None) => None,
                }
            }
            Some(_) | None => None,
        }
        .unwrap_or_else(|| Self::Other(label(block)))
    }

    /// What it is called in a few words.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Media { name, .. } | Self::Download { name, .. } | Self::Link { name, .. } => name.clone(),
            Self::File { uri, .. } => file_name(uri).to_owned(),
            Self::Text(text) => text.clone().into_owned(),
            Self::Other(label) => label.clone(),
        }
    }

    /// The block as HTML, except for its text. `place` is the end of the address of its media.
    pub(crate) fn html(&self, source: MediaSource<'_>, place: &str) -> Markup {
        match self {
            Self::Text(text) => html! { p.written { (clean(text)) } },
            Self::Media { kind, mime, data, name } => {
                let address = match source {
                    MediaSource::Embedded => format!("data:{mime};base64,{data}"),
                    MediaSource::Served(prefix) => format!("{prefix}{}", percent_encoded(place)),
                };
                let name = clean_line(name);
                match kind {
                    MediaKind::Image => html! { img.media src=(address) alt=(name) loading="lazy"; },
                    MediaKind::Audio => {
                        html! { audio.media controls src=(address) preload="none" aria-label=(name) {} }
                    }
                }
            }
            Self::Download { data, name, label } => {
                // As a type that no browser shows.
                let address = match source {
                    MediaSource::Embedded => format!("data:application/octet-stream;base64,{data}"),
                    MediaSource::Served(prefix) => format!("{prefix}{}", percent_encoded(place)),
                };
                let name = clean_line(name);
                html! { div.chips { a.chip href=(address) download=(name) title=(clean_line(label)) { (icon("down", "")) (name) } } }
            }
            Self::Link { uri, name } => {
                let inside = html! { (icon("file", "")) (clean_line(name)) };
                let uri = clean_line(uri);
                html! {
                    div.chips {
                        // Other addresses are not links: a page must not open local files or run scripts.
                        @if is_web_or_mail(&uri) {
                            a.chip href=(uri) rel="noopener noreferrer nofollow" target="_blank" { (inside) }
                        } @else {
                            span.chip title=(uri) { (inside) }
                        }
                    }
                }
            }
            Self::File { uri, text } => {
                let name = file_name(uri);
                html! {
                    details.file {
                        summary.chip title=(clean_line(uri)) { (icon("file", "")) (clean_line(name)) }
                        (code::file(&clean(text), name))
                    }
                }
            }
            Self::Other(label) => html! { p.muted { (clean_line(label)) } },
        }
    }
}

fn media<'a>(members: &Members<'_>, block: &str) -> Option<ContentBlock<'a>> {
    let uri = members.get_string("uri").filter(|uri| !uri.is_empty());
    let data = members.get_string("data").filter(|data| is_base64(data));
    let (Some(mime), Some(data)) = (members.get_string("mimeType"), data) else {
        // Showing it would load it from elsewhere.
        return uri.map(|uri| ContentBlock::Link { name: uri.clone(), uri });
    };
    let kind = mime.split('/').next().unwrap_or_default();
    match MEDIA.iter().find(|(known, _)| *known == mime) {
        Some((_, known)) => {
            let name = uri.unwrap_or_else(|| kind.to_owned());
            Some(ContentBlock::Media { kind: *known, mime, data, name })
        }
        None => {
            let ending = mime.split('/').nth(1).unwrap_or_default();
            let ending = ending.split('+').next().unwrap_or_default();
            let name =
                uri.as_deref().map_or_else(|| format!("{kind}.{ending}"), |uri| file_name(uri).to_owned());
            Some(ContentBlock::Download { data, name, label: label(block) })
        }
    }
}

/// Whether a text is not empty and has only characters of base64.
fn is_base64(data: &str) -> bool {
    !data.is_empty() && data.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte))
}

/// The last part of an address.
fn file_name(uri: &str) -> &str {
    match uri.rsplit('/').next() {
        Some(name) if !name.is_empty() => name,
        Some(_) | None => "file",
    }
}

/// A block in words: its type, what it refers to and its size.
pub fn label(block: &str) -> String {
    let members = Members::parse(block).unwrap_or_default();
    let named = |name: &str| members.get_string(name);
    let kind = named("type").unwrap_or_else(|| "block".to_owned());
    let resource =
        members.get("resource").and_then(|resource| Members::of(resource).ok()).unwrap_or_default();
    let inner = |name: &str| resource.get_string(name);
    let what = named("uri").or_else(|| inner("uri")).or_else(|| named("mimeType")).or_else(|| named("name"));
    let what = what.map(|what| format!(" {what}")).unwrap_or_default();
    let size = named("data").map(|data| format!(", {} bytes", data.len() / 4 * 3)).unwrap_or_default();
    format!("[{kind}{what}{size}]")
}

/// Whether a URL opens only a web page or a mail program.
pub fn is_web_or_mail(address: &str) -> bool {
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
                ContentBlock::Media {
                    kind: MediaKind::Image,
                    mime: text("image/png"),
                    data: text("iVBORw0KGgo="),
                    name: text("a.png"),
                },
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
                ContentBlock::Download {
                    data: text("PHN2Zz4="),
                    name: text("image.svg"),
                    label: text("[image image/svg+xml, 6 bytes]"),
                },
            ),
            (
                r#"{"type":"resource","resource":{"uri":"file:///a/b.pdf","mimeType":"application/pdf","blob":"JVBERg=="}}"#,
                ContentBlock::Download {
                    data: text("JVBERg=="),
                    name: text("b.pdf"),
                    label: text("[resource file:///a/b.pdf]"),
                },
            ),
            (
                r#"{"type":"image","mimeType":"image/png","data":"","uri":"https://example.com/a.png"}"#,
                ContentBlock::Link {
                    uri: text("https://example.com/a.png"),
                    name: text("https://example.com/a.png"),
                },
            ),
            (
                r#"{"type":"image","mimeType":"image/png","data":"x\" onerror=\""}"#,
                ContentBlock::Other(text("[image image/png, 9 bytes]")),
            ),
            (r#"{"type":"resource_link"}"#, ContentBlock::Other(text("[resource_link]"))),
            ("7", ContentBlock::Other(text("[block]"))),
        ] {
            assert_eq!(ContentBlock::of(block), expected, "{block}");
        }
    }

    #[test]
    fn media_is_in_the_page_or_has_an_address_of_its_own() {
        let block = r#"{"type":"image","mimeType":"image/png","data":"AAAA"}"#;
        let html = |source| ContentBlock::of(block).html(source, "m-1:0").into_string();
        assert_eq!(
            html(MediaSource::Embedded),
            r#"<img class="media" src="data:image/png;base64,AAAA" alt="image" loading="lazy">"#
        );
        assert_eq!(
            html(MediaSource::Served("/s/1/media/")),
            r#"<img class="media" src="/s/1/media/m-1%3A0" alt="image" loading="lazy">"#
        );
    }
}
