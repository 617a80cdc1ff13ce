//! Untrusted text, made safe to show, and the ids of elements.

use std::fmt::Write;

use maud::{Markup, html};
pub use parlor_view::address::{element_id, percent_encoded};

/// Replaces control characters, and writes bidirectional ones as `‹U+202E›`. Line breaks and tabs stay.
pub fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\r' if characters.peek() == Some(&'\n') => {}
            '\n' | '\t' => clean.push(character),
            _ if character.is_control() => clean.push(char::REPLACEMENT_CHARACTER),
            _ if is_bidirectional(character) => {
                let _ = write!(clean, "‹U+{:04X}›", u32::from(character));
            }
            _ => clean.push(character),
        }
    }
    clean
}

/// Cleans a text and joins its lines.
pub fn clean_line(text: &str) -> String {
    clean(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Cleans a path, with `~` for the home directory.
pub(crate) fn short_path(path: &str) -> String {
    let home = std::env::home_dir().unwrap_or_default();
    let shown =
        home.to_str().filter(|home| home.len() > 1).and_then(|home| match path.strip_prefix(home)? {
            "" => Some("~".to_owned()),
            inside if inside.starts_with('/') => Some(format!("~{inside}")),
            _ => None,
        });
    clean_line(&shown.unwrap_or_else(|| path.to_owned()))
}

/// A sentence of parlor itself, in which commands are in backticks.
pub(crate) fn sentence_html(sentence: &str) -> Markup {
    html! {
        @for (index, part) in sentence.trim_end().split('`').enumerate() {
            @if index % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

/// Whether a character changes the order in which others are shown.
pub fn is_bidirectional(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_in_sentences_are_code() {
        let html = sentence_html("`parlor open` signs <you> in; see `parlor logs`.\n").into_string();
        assert_eq!(html, "<code>parlor open</code> signs &lt;you&gt; in; see <code>parlor logs</code>.");
    }

    #[test]
    fn control_characters_are_replaced_and_bidirectional_ones_are_visible() {
        assert_eq!(
            clean("a\r\nb\tc\u{1b}[2J\u{9b}\r\u{202e}d"),
            "a\nb\tc\u{fffd}[2J\u{fffd}\u{fffd}‹U+202E›d"
        );
        assert_eq!(clean_line(" a\n  b\u{7} "), "a b\u{fffd}");
    }
}
