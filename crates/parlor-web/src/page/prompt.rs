//! The content of a prompt: its text, the files that are attached, and those that it names after `@`.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parlor_json::{Json, Object};
use parlor_session::{Body, text_of};

use super::action::Attachment;
use crate::render::content_block::ContentBlock;
use crate::render::text::clean_line;

/// The most files that a text names.
const MAX_NAMED: usize = 50;

/// The content blocks of a prompt. The error is for people.
pub(super) fn content(text: &str, files: &[Attachment], cwd: &Path, info: &Object) -> Result<Json, String> {
    content_with(text, &[], files, cwd, info)
}

/// The same with blocks of an earlier prompt after the text.
pub(super) fn content_with(
    text: &str,
    earlier: &[Object],
    files: &[Attachment],
    cwd: &Path,
    info: &Object,
) -> Result<Json, String> {
    let capabilities = info.get_object("capabilities").and_then(|all| all.get_object("session"));
    let accepted = capabilities.and_then(|session| session.get_object("prompt"));
    let is_accepted = |kind: &str| {
        // An agent that is not running yet reports nothing: it decides by itself.
        accepted.as_ref().is_none_or(|accepted| accepted.get(kind).is_some_and(|value| !value.is_null()))
    };
    let mut blocks = Vec::new();
    if !text.trim().is_empty() {
        blocks.push(Object::new().with("type", "text").with("text", text));
    }
    blocks.extend(earlier.iter().cloned());
    for file in files {
        blocks.push(attachment(file, is_accepted)?);
    }
    for path in named_files(text, cwd) {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        blocks.push(
            Object::new().with("type", "resource_link").with("uri", file_uri(&path)).with("name", name),
        );
    }
    if blocks.is_empty() {
        return Err("The prompt is empty.".to_owned());
    }
    Ok(Json::array(blocks))
}

/// What is attached to a prompt: its blocks, except for its text and the files that the text names.
pub(super) fn attachments(prompt: &Body, text: &str, cwd: &Path) -> Vec<Object> {
    let named: Vec<String> = named_files(text, cwd).iter().map(|path| file_uri(path)).collect();
    let others = prompt.content.iter().filter(|item| text_of(item.json).is_none());
    let blocks = others.filter_map(|item| Json::parse(item.json).ok()?.to_object());
    blocks.filter(|block| block.get_string("uri").is_none_or(|uri| !named.contains(&uri))).collect()
}

/// The name of an attached block.
pub(super) fn attachment_name(block: &Object) -> String {
    clean_line(&ContentBlock::of(block.to_json().as_str()).name())
}

fn file_uri(path: &Path) -> String {
    format!("file://{}", path.display())
}

/// The files that a text names after `@`.
fn named_files(text: &str, cwd: &Path) -> Vec<PathBuf> {
    let mut named = Vec::new();
    for word in text.split_whitespace().filter_map(|word| word.strip_prefix('@')).take(MAX_NAMED) {
        let name = word.trim_end_matches([',', '.', ';', ':', '!', '?', ')']);
        let found = [word, name].into_iter().map(|name| cwd.join(name)).find(|path| path.is_file());
        named.extend(found.filter(|path| !named.contains(path)));
    }
    named
}

/// The content block of a file that a person attached.
fn attachment(file: &Attachment, is_accepted: impl Fn(&str) -> bool) -> Result<Object, String> {
    let name = &file.name;
    let bytes = STANDARD.decode(&file.data).map_err(|_| format!("{name} was not sent as a whole."))?;
    let mime = file.mime.as_str();
    for (kind, prefix) in [("image", "image/"), ("audio", "audio/")] {
        if mime.starts_with(prefix) && mime != "image/svg+xml" && is_accepted(kind) {
            let block =
                Object::new().with("type", kind).with("mimeType", mime).with("data", file.data.as_str());
            return Ok(block);
        }
    }
    let uri = format!("file:///{}", crate::render::text::percent_encoded(name));
    let resource = Object::new().with("uri", uri);
    let resource = if mime.is_empty() { resource } else { resource.with("mimeType", mime) };
    let resource = match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => resource.with("text", text),
        Ok(_) | Err(_) => resource.with("blob", file.data.as_str()),
    };
    Ok(Object::new().with("type", "resource").with("resource", resource))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, mime: &str, bytes: &[u8]) -> Attachment {
        Attachment { name: name.into(), mime: mime.into(), data: STANDARD.encode(bytes) }
    }

    #[test]
    fn attached_files_become_blocks_of_their_kind() {
        let info = Json::parse(r#"{"capabilities":{"session":{"prompt":{"image":{}}}}}"#).unwrap();
        let info = info.to_object().unwrap();
        let blocks = |files: &[Attachment]| {
            content("look", files, Path::new("/nonexistent"), &info).unwrap().as_str().to_owned()
        };
        let text = r#"{"type":"text","text":"look"}"#;
        assert_eq!(
            blocks(&[file("a.png", "image/png", &[1])]),
            format!(r#"[{text},{{"type":"image","mimeType":"image/png","data":"AQ=="}}]"#)
        );
        assert_eq!(
            blocks(&[file("a b.txt", "text/plain", b"hi")]),
            format!(
                r#"[{text},{{"type":"resource","resource":{{"uri":"file:///a%20b.txt","mimeType":"text/plain","text":"hi"}}}}]"#
            )
        );
        // The agent takes no sounds, and a drawing may have scripts.
        for other in [file("a.mp3", "audio/mpeg", &[0xff]), file("a.svg", "image/svg+xml", &[0xff])] {
            assert!(blocks(&[other]).contains(r#""blob":"/w==""#));
        }
        let broken = Attachment { data: "?".into(), ..file("a", "", &[]) };
        assert!(content("x", &[broken], Path::new("/"), &info).is_err());
        assert!(content(" \n", &[], Path::new("/"), &info).is_err());
    }
}
