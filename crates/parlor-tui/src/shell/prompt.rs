//! The content of a prompt: its text, and the files that it names after `@`.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parlor_client::{Json, Object, Prompt};

/// The largest image that is attached.
const MAX_IMAGE: u64 = 10 << 20;

/// How many files are attached.
const MAX_FILES: usize = 50;

/// The prompt for a text. Files that exist are attached as links, images as images if the agent accepts them.
pub(super) fn prompt(text: &str, cwd: &Path, info: &Object) -> Prompt {
    let capabilities = info.get_object("capabilities").and_then(|all| all.get_object("session"));
    let accepted = capabilities.and_then(|session| session.get_object("prompt")).unwrap_or_default();
    let accepts_images = accepted.get("image").is_some_and(|value| !value.is_null());
    let mut blocks = vec![Object::new().with("type", "text").with("text", text)];
    let mut attached = Vec::new();
    for name in references(text).into_iter().take(MAX_FILES) {
        let bare = name.trim_end_matches([',', '.', ';', ':', '!', '?', ')']);
        let found = [name, bare].into_iter().map(|name| resolve(name, cwd)).find(|path| path.is_file());
        let Some(path) = found.filter(|path| !attached.contains(path)) else { continue };
        let image = if accepts_images { image(&path) } else { None };
        blocks.push(image.unwrap_or_else(|| {
            let uri = file_uri(&path);
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            Object::new().with("type", "resource_link").with("uri", uri).with("name", name)
        }));
        attached.push(path);
    }
    Prompt::blocks(Json::array(blocks))
}

/// The names after `@` at the start of words; one with spaces is in quotes.
fn references(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('@') {
        let starts_word = rest[..at].chars().next_back().is_none_or(char::is_whitespace);
        rest = &rest[at + 1..];
        if !starts_word {
            continue;
        }
        let quoted = rest.strip_prefix('"').and_then(|rest| rest.split_once('"'));
        let (name, after) = quoted.unwrap_or_else(|| {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            rest.split_at(end)
        });
        names.push(name);
        rest = after;
    }
    names
}

/// The `file://` address of a path.
fn file_uri(path: &Path) -> String {
    let mut uri = "file://".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
                uri.push(char::from(*byte));
            }
            _ => {
                let _ = write!(uri, "%{byte:02X}");
            }
        }
    }
    uri
}

/// The file that a name stands for: `~` is the home directory.
fn resolve(name: &str, cwd: &Path) -> PathBuf {
    match (name.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => cwd.join(name),
    }
}

/// The content block of an image; `None` if the file is not an image or too large.
fn image(path: &Path) -> Option<Object> {
    if path.metadata().ok()?.len() > MAX_IMAGE {
        return None;
    }
    let bytes = std::fs::read(path).ok()?;
    let mime = match bytes.as_slice() {
        [0x89, b'P', b'N', b'G', ..] => "image/png",
        [0xff, 0xd8, 0xff, ..] => "image/jpeg",
        [b'G', b'I', b'F', b'8', ..] => "image/gif",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "image/webp",
        _ => return None,
    };
    Some(Object::new().with("type", "image").with("mimeType", mime).with("data", STANDARD.encode(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::tests::object;

    #[test]
    fn an_address_has_no_spaces() {
        assert_eq!(file_uri(Path::new("/a b/ü.rs")), "file:///a%20b/%C3%BC.rs");
    }

    #[test]
    fn names_with_spaces_are_quoted() {
        assert_eq!(references("see @a.rs, mail me@host @\"b c.png\" @"), ["a.rs,", "b c.png", ""]);
    }

    #[test]
    fn files_that_exist_are_attached_and_others_stay_text() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a.rs"), "").unwrap();
        std::fs::write(directory.path().join("shot.png"), b"\x89PNG...").unwrap();
        let blocks = |info: &str| {
            let prompt = prompt("see @a.rs, @gone and @shot.png @a.rs", directory.path(), &object(info));
            let blocks = prompt.content().elements().unwrap().into_iter();
            blocks.map(|block| block.to_object().unwrap().get_string("type").unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(blocks("{}"), ["text", "resource_link", "resource_link"]);
        let images = r#"{"capabilities":{"session":{"prompt":{"image":{}}}}}"#;
        assert_eq!(blocks(images), ["text", "resource_link", "image"]);
    }
}
