//! A text field of one line, for filters, searches and forms.

use crossterm::event::KeyCode;
use unicode_segmentation::UnicodeSegmentation;

use crate::keys::Key;

/// The length limit of a text field, in bytes.
const MAX_TEXT: usize = 64 << 10;

/// A text of one line with a cursor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextField {
    text: String,
    /// The byte offset of the cursor.
    cursor: usize,
}

impl TextField {
    /// A field with a text and the cursor behind it.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { cursor: text.len(), text }
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text before the cursor.
    pub fn before_cursor(&self) -> &str {
        &self.text[..self.cursor]
    }

    /// Removes the text.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Inserts a text at the cursor, as one line.
    pub fn insert(&mut self, text: &str) {
        let line: String =
            text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
        if self.text.len() + line.len() <= MAX_TEXT {
            self.text.insert_str(self.cursor, &line);
            self.cursor += line.len();
        }
    }

    /// Edits the text with a key. Returns whether the key was used.
    pub fn on_key(&mut self, key: Key) -> bool {
        if let Some(letter) = key.typed() {
            self.insert(letter.encode_utf8(&mut [0; 4]));
            return true;
        }
        match (key.code(), key.is_ctrl(), key.is_alt()) {
            (KeyCode::Backspace, false, false) | (KeyCode::Char('h'), true, false) => {
                let start = self.left();
                self.remove(start, self.cursor);
            }
            (KeyCode::Delete, false, false) | (KeyCode::Char('d'), true, false) => {
                let end = self.right();
                self.text.replace_range(self.cursor..end, "");
            }
            (KeyCode::Left, false, false) => self.cursor = self.left(),
            (KeyCode::Right, false, false) => self.cursor = self.right(),
            (KeyCode::Home, ..) | (KeyCode::Char('a'), true, false) => self.cursor = 0,
            (KeyCode::End, ..) | (KeyCode::Char('e'), true, false) => self.cursor = self.text.len(),
            (KeyCode::Char('u'), true, false) => self.remove(0, self.cursor),
            (KeyCode::Char('k'), true, false) => self.text.truncate(self.cursor),
            (KeyCode::Char('w'), true, false) => {
                let before = self.text[..self.cursor].trim_end();
                let start = before.rfind(char::is_whitespace).map_or(0, |space| space + 1);
                self.remove(start, self.cursor);
            }
            _ => return false,
        }
        true
    }

    fn remove(&mut self, start: usize, end: usize) {
        self.text.replace_range(start..end, "");
        self.cursor = start;
    }

    fn left(&self) -> usize {
        self.text[..self.cursor].grapheme_indices(true).next_back().map_or(0, |(start, _)| start)
    }

    fn right(&self) -> usize {
        self.text[self.cursor..].graphemes(true).next().map_or(self.cursor, |next| self.cursor + next.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(keys: &str) -> TextField {
        let mut field = TextField::default();
        for key in keys.split(' ') {
            assert!(field.on_key(key.parse().unwrap()), "{key}");
        }
        field
    }

    #[test]
    fn a_line_is_edited_as_in_a_shell() {
        assert_eq!(typed("a b Left c").text(), "acb");
        assert_eq!(typed("a b Ctrl-A c Ctrl-E d").text(), "cabd");
        assert_eq!(typed("a Space b c Ctrl-W").text(), "a ");
        assert_eq!(typed("a b Left Ctrl-K").text(), "a");
        assert_eq!(typed("a b Left Ctrl-U").text(), "b");
        assert_eq!(typed("é Backspace x Left Delete").text(), "");
    }

    #[test]
    fn a_cluster_is_removed_whole_and_line_breaks_become_spaces() {
        let mut field = TextField::new("👩‍👩‍👧‍👦");
        field.on_key("Backspace".parse().unwrap());
        assert_eq!(field.text(), "");
        field.insert("a\nb");
        assert_eq!(field.text(), "a b");
    }
}
