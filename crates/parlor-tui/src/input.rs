//! The input box: a prompt of several lines, its history and pasted blocks.

use crossterm::event::KeyCode;
use ratatui_textarea::{CursorMove, TextArea};
use unicode_segmentation::UnicodeSegmentation;

use crate::clean::Clean;
use crate::keys::Key;
use crate::text;

/// A pasted text of more lines or bytes than this is shown as one token.
const MAX_PASTED_LINES: usize = 10;
const MAX_PASTED_BYTES: usize = 2000;

/// How large a prompt can become.
const MAX_BYTES: usize = 4 << 20;

/// How many rows the box grows to.
pub const MAX_ROWS: usize = 8;

/// A prompt that is being written.
#[derive(Debug)]
pub struct InputBox {
    area: TextArea<'static>,
    /// Pasted blocks by the token that stands for them.
    pasted: Vec<(String, String)>,
}

/// One row of the box on the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputRow {
    /// The text.
    pub text: Clean,
}

impl Default for InputBox {
    fn default() -> Self {
        Self { area: area(Vec::new()), pasted: Vec::new() }
    }
}

fn area(lines: Vec<String>) -> TextArea<'static> {
    let mut area = TextArea::new(lines);
    area.set_tab_length(4);
    area.move_cursor(CursorMove::Bottom);
    area.move_cursor(CursorMove::End);
    area
}

impl InputBox {
    /// Replaces the text; the cursor is behind it.
    pub fn set(&mut self, text: &str) {
        self.area = area(text.split('\n').map(|line| line.trim_end_matches('\r').to_owned()).collect());
        self.pasted.retain(|(token, _)| text.contains(token.as_str()));
    }

    /// The text with its tokens.
    pub fn text(&self) -> String {
        self.area.lines().join("\n")
    }

    /// The text with pasted blocks in place of their tokens.
    pub fn full_text(&self) -> String {
        let text = self.text();
        let mut blocks: Vec<_> = self
            .pasted
            .iter()
            .filter_map(|(token, block)| Some((text.find(token.as_str())?, token, block)))
            .collect();
        blocks.sort_by_key(|(at, ..)| *at);
        let mut full = String::new();
        let mut end = 0;
        for (at, token, block) in blocks {
            full.push_str(&text[end..at]);
            full.push_str(block);
            end = at + token.len();
        }
        full + &text[end..]
    }

    /// Whether it has no text.
    pub fn is_empty(&self) -> bool {
        self.area.is_empty()
    }

    /// Whether it has nothing but white space.
    pub fn is_blank(&self) -> bool {
        self.area.lines().iter().all(|line| line.trim().is_empty())
    }

    /// Whether the cursor is in the first line.
    pub fn is_at_top(&self) -> bool {
        self.area.cursor().0 == 0
    }

    /// Whether the cursor is in the last line.
    pub fn is_at_bottom(&self) -> bool {
        self.area.cursor().0 + 1 >= self.area.lines().len()
    }

    /// Inserts a line break.
    pub fn new_line(&mut self) {
        self.area.insert_newline();
    }

    /// Inserts pasted text; a long one and the path of an image as a token. Returns false if it is too large.
    pub fn paste(&mut self, pasted: &str) -> bool {
        let pasted = pasted.replace("\r\n", "\n").replace('\r', "\n");
        // Blocks whose tokens were removed are kept for undo.
        let blocks: usize = self.pasted.iter().map(|(_, block)| block.len()).sum();
        if self.text().len() + blocks + pasted.len() > MAX_BYTES {
            return false;
        }
        if let Some(path) = image_path(&pasted) {
            let name = path.rsplit('/').next().unwrap_or_default();
            self.insert_token(&format!("image {name}"), format!("@\"{path}\""));
            return true;
        }
        let lines = pasted.lines().count();
        if lines <= MAX_PASTED_LINES && pasted.len() <= MAX_PASTED_BYTES {
            self.area.insert_str(&pasted);
            return true;
        }
        let what = if lines > 1 {
            text::count(lines, "line")
        } else {
            text::count(pasted.chars().count(), "character")
        };
        self.insert_token(&format!("pasted {what}"), pasted);
        true
    }

    /// Inserts a token that stands for a block.
    fn insert_token(&mut self, name: &str, block: String) {
        let mut token = format!("[{name}]");
        for number in 2.. {
            if !self.pasted.iter().any(|(known, _)| *known == token) {
                break;
            }
            token = format!("[{name}, {number}]");
        }
        self.area.insert_str(&token);
        self.pasted.push((token, block));
    }

    /// Edits the text with a key. Returns whether the key was used.
    pub fn on_key(&mut self, key: Key) -> bool {
        if let Some(letter) = key.typed() {
            if self.area.lines().iter().map(String::len).sum::<usize>() < MAX_BYTES {
                self.area.insert_char(letter);
            }
            return true;
        }
        let area = &mut self.area;
        match (key.code(), key.is_ctrl(), key.is_alt()) {
            (KeyCode::Backspace, false, true) | (KeyCode::Char('w'), true, false) => {
                area.delete_word();
            }
            (KeyCode::Backspace, false, false) | (KeyCode::Char('h'), true, false) => self.backspace(),
            (KeyCode::Delete, ..) | (KeyCode::Char('d'), true, false) => {
                for _ in 0..self.cluster_after() {
                    self.area.delete_next_char();
                }
            }
            (KeyCode::Char('u'), true, false) => {
                area.delete_line_by_head();
            }
            (KeyCode::Char('k'), true, false) => {
                area.delete_line_by_end();
            }
            (KeyCode::Char('y'), true, false) => {
                area.paste();
            }
            (KeyCode::Char('d'), false, true) => {
                area.delete_next_word();
            }
            (KeyCode::Char('_' | '7'), true, false) => {
                area.undo();
            }
            (KeyCode::Left, true, false) | (KeyCode::Left | KeyCode::Char('b'), false, true) => {
                area.move_cursor(CursorMove::WordBack);
            }
            (KeyCode::Right, true, false) | (KeyCode::Right | KeyCode::Char('f'), false, true) => {
                area.move_cursor(CursorMove::WordForward);
            }
            (KeyCode::Left, ..) => {
                (0..self.cluster_before()).for_each(|_| self.area.move_cursor(CursorMove::Back));
            }
            (KeyCode::Right, ..) => {
                (0..self.cluster_after()).for_each(|_| self.area.move_cursor(CursorMove::Forward));
            }
            (KeyCode::Up, ..) => area.move_cursor(CursorMove::Up),
            (KeyCode::Down, ..) => area.move_cursor(CursorMove::Down),
            (KeyCode::Home, ..) | (KeyCode::Char('a'), true, false) => area.move_cursor(CursorMove::Head),
            (KeyCode::End, ..) | (KeyCode::Char('e'), true, false) => area.move_cursor(CursorMove::End),
            _ => return false,
        }
        true
    }

    /// Removes the character or the token before the cursor.
    fn backspace(&mut self) {
        let before = self.before_cursor();
        let token = self.pasted.iter().find(|(token, _)| before.ends_with(token.as_str()));
        let length = token.map_or_else(|| self.cluster_before(), |(token, _)| token.chars().count());
        for _ in 0..length {
            self.area.delete_char();
        }
    }

    /// How many characters the cluster before the cursor has; 1 for a line break.
    fn cluster_before(&self) -> usize {
        let before = self.before_cursor();
        before.graphemes(true).next_back().map_or(1, |cluster| cluster.chars().count())
    }

    /// How many characters the cluster after the cursor has; 1 for a line break.
    fn cluster_after(&self) -> usize {
        let cursor = self.area.cursor();
        let line = self.area.lines().get(cursor.0).map_or("", String::as_str);
        let start = line.char_indices().nth(cursor.1).map_or(line.len(), |(offset, _)| offset);
        line[start..].graphemes(true).next().map_or(1, |cluster| cluster.chars().count())
    }

    /// The part of the cursor's line that is before the cursor.
    fn before_cursor(&self) -> String {
        let cursor = self.area.cursor();
        let line = self.area.lines().get(cursor.0).map_or("", String::as_str);
        line.chars().take(cursor.1).collect()
    }

    /// The word before the cursor that can be completed: a file after `@`, or an agent's command after a `/` at the start.
    pub fn completed_word(&self) -> Option<Completed> {
        let before = self.before_cursor();
        let word = before.rsplit(char::is_whitespace).next().unwrap_or_default().to_owned();
        if let Some(path) = word.strip_prefix('@') {
            return Some(Completed::File(path.to_owned()));
        }
        let is_first = self.area.cursor().0 == 0 && before == word;
        word.strip_prefix('/').filter(|_| is_first).map(|name| Completed::Command(name.to_owned()))
    }

    /// Replaces the word before the cursor.
    pub fn replace_word(&mut self, with: &str) {
        let before = self.before_cursor();
        let word = before.rsplit(char::is_whitespace).next().unwrap_or_default();
        for _ in 0..word.chars().count() {
            self.area.delete_char();
        }
        self.area.insert_str(with);
    }

    /// The rows of the box at a width, and the row and column of the cursor.
    pub fn rows(&self, columns: usize) -> (Vec<InputRow>, (usize, usize)) {
        let columns = columns.max(2);
        let at = self.area.cursor();
        let mut rows = Vec::new();
        let mut cursor = (0, 0);
        for (number, line) in self.area.lines().iter().enumerate() {
            let cursor_at = (number == at.0)
                .then(|| line.char_indices().nth(at.1).map_or(line.len(), |(offset, _)| offset));
            for (start, end) in row_ranges(line, columns) {
                if let Some(at) = cursor_at.filter(|at| *at >= start && *at <= end) {
                    cursor = (rows.len(), text::width(Clean::line(&line[start..at]).as_str()));
                }
                rows.push(InputRow { text: Clean::line(&line[start..end]) });
            }
        }
        // The cursor behind a full row is on the next one.
        if cursor.1 >= columns {
            cursor = (cursor.0 + 1, 0);
            if cursor.0 >= rows.len() {
                rows.push(InputRow { text: Clean::default() });
            }
        }
        (rows, cursor)
    }
}

/// The path of an image that a terminal inserts for a dropped file: alone, whole, possibly quoted or with escaped spaces.
fn image_path(pasted: &str) -> Option<String> {
    let text = pasted.trim();
    let quoted = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    let path = match quoted('\'').or_else(|| quoted('"')) {
        Some(path) => path.to_owned(),
        None => text.strip_prefix("file://").unwrap_or(text).replace("\\ ", " "),
    };
    let is_whole = path.starts_with('/') || path.starts_with("~/");
    let lower = path.to_ascii_lowercase();
    let is_image = [".png", ".jpg", ".jpeg", ".gif", ".webp"].iter().any(|end| lower.ends_with(end));
    let is_plain = !path.chars().any(|letter| letter.is_control() || letter == '"');
    (is_whole && is_image && is_plain).then_some(path)
}

/// A word that can be completed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completed {
    /// A file whose path begins so.
    File(String),
    /// A command of the agent whose name begins so.
    Command(String),
}

/// The byte ranges of the rows of a line, broken behind spaces where possible.
fn row_ranges(line: &str, columns: usize) -> Vec<(usize, usize)> {
    let mut ranges = Vec::new();
    let mut start = 0;
    let mut used = 0;
    let mut last_space = None;
    for (offset, cluster) in line.grapheme_indices(true) {
        let wide = text::width(Clean::line(cluster).as_str());
        if used + wide > columns {
            let end = last_space.filter(|space| *space > start).unwrap_or(offset);
            ranges.push((start, end));
            start = end;
            used = text::width(Clean::line(&line[start..offset]).as_str());
            last_space = None;
        }
        used += wide;
        if cluster == " " {
            last_space = Some(offset + 1);
        }
    }
    ranges.push((start, line.len()));
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(input: &mut InputBox, keys: &str) {
        keys.split(' ').for_each(|key| assert!(input.on_key(key.parse().unwrap()), "{key}"));
    }

    fn rows(input: &InputBox, columns: usize) -> (Vec<String>, (usize, usize)) {
        let (rows, cursor) = input.rows(columns);
        (rows.into_iter().map(|row| row.text.to_string()).collect(), cursor)
    }

    #[test]
    fn a_prompt_is_wrapped_at_spaces_and_the_cursor_follows() {
        let mut input = InputBox::default();
        input.set("one two three");
        assert_eq!(rows(&input, 8), (vec!["one two ".to_owned(), "three".to_owned()], (1, 5)));
        press(&mut input, "Ctrl-A");
        assert_eq!(rows(&input, 8).1, (0, 0));
        input.set("abcdefgh");
        assert_eq!(rows(&input, 4), (vec!["abcd".into(), "efgh".into(), String::new()], (2, 0)));
        input.set("ログイン");
        assert_eq!(rows(&input, 5), (vec!["ログ".into(), "イン".into()], (1, 4)));
        input.set("");
        assert_eq!(rows(&input, 5), (vec![String::new()], (0, 0)));
    }

    #[test]
    fn the_line_is_edited_as_in_a_shell() {
        let mut input = InputBox::default();
        input.set("fix the test");
        press(&mut input, "Ctrl-W Ctrl-W x Ctrl-A y Ctrl-E z");
        assert_eq!(input.text(), "yfix xz");
        press(&mut input, "Ctrl-U");
        assert_eq!(input.text(), "");
        press(&mut input, "Ctrl-Y");
        assert_eq!(input.text(), "yfix xz");
    }

    #[test]
    fn a_long_paste_is_one_token_that_backspace_removes() {
        let mut input = InputBox::default();
        let block = "line\n".repeat(214);
        input.paste(&block);
        assert_eq!(input.text(), "[pasted 214 lines]");
        assert_eq!(input.full_text(), block);
        input.paste(&block);
        assert_eq!(input.text(), "[pasted 214 lines][pasted 214 lines, 2]");
        press(&mut input, "Backspace");
        assert_eq!(input.text(), "[pasted 214 lines]");
        press(&mut input, "Backspace");
        assert!(input.is_empty());
        input.paste("short\r\npaste");
        assert_eq!(input.text(), "short\npaste");
    }

    #[test]
    fn control_and_bidirectional_characters_in_a_paste_are_visible() {
        let mut input = InputBox::default();
        input.paste("a\u{1b}[2Jb\u{202e}c");
        assert_eq!(rows(&input, 80).0, ["a␛[2Jb‹U+202E›c"]);
    }

    #[test]
    fn a_file_is_completed_anywhere_and_a_command_only_at_the_start() {
        let mut input = InputBox::default();
        input.set("look at @src/ma");
        assert_eq!(input.completed_word(), Some(Completed::File("src/ma".into())));
        input.replace_word("@src/main.rs ");
        assert_eq!(input.text(), "look at @src/main.rs ");
        assert_eq!(input.completed_word(), None);
        input.set("/re");
        assert_eq!(input.completed_word(), Some(Completed::Command("re".into())));
        input.set("and /re");
        assert_eq!(input.completed_word(), None);
    }
}
