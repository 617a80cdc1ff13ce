//! Foreign text, made safe to draw.

use std::fmt::{self, Write};
use std::ops::RangeInclusive;

use unicode_segmentation::UnicodeSegmentation;

use crate::text::width;

/// Columns of a tab.
const TAB: usize = 4;

/// The marks that one character may carry; more are counted in place of being drawn.
const MAX_MARKS: usize = 8;

/// One line of foreign text in which control characters are visible (`␛`), bidirectional and invisible ones are named
/// (`‹U+202E›`) and tabs are expanded to 4 columns.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Clean(String);

impl Clean {
    /// Cleans a text that is shown as one line: a line break is shown as `↵`.
    pub fn line(text: &str) -> Self {
        let text = text.trim_end_matches(['\n', '\r']);
        if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return Self(text.to_owned());
        }
        let mut clean = Self(String::with_capacity(text.len()));
        let mut column = 0;
        for cluster in text.graphemes(true) {
            let start = clean.0.len();
            clean.push_cluster(cluster, column);
            column += width(&clean.0[start..]);
        }
        clean
    }

    /// Cleans each line of a text.
    pub fn lines(text: &str) -> Vec<Self> {
        text.lines().map(Self::line).collect()
    }

    /// The text to draw.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Columns of the text.
    pub fn width(&self) -> usize {
        width(&self.0)
    }

    /// The text in parts, each with whether it stands for a character that would not be visible.
    pub fn parts(&self) -> Vec<(&str, bool)> {
        let mut parts = Vec::new();
        let mut rest = self.0.as_str();
        while !rest.is_empty() {
            let visible = rest.char_indices().find_map(|(at, _)| Some((at, hidden_at(&rest[at..])?)));
            let (at, length) = visible.unwrap_or((rest.len(), 0));
            if at > 0 {
                parts.push((&rest[..at], false));
            }
            if length > 0 {
                parts.push((&rest[at..at + length], true));
            }
            rest = &rest[at + length..];
        }
        parts
    }

    fn push_cluster(&mut self, cluster: &str, column: usize) {
        let mut marks = 0;
        let mut previous = None;
        for character in cluster.chars() {
            match character {
                '\r' if cluster == "\r\n" => {}
                '\n' => self.0.push('↵'),
                '\t' => self.0.extend(std::iter::repeat_n(' ', TAB - column % TAB)),
                '\u{7f}' => self.0.push('␡'),
                control if control.is_ascii_control() => {
                    self.0.push(char::from_u32(0x2400 + u32::from(control)).unwrap_or('?'));
                }
                hidden if is_hidden(hidden, previous) => {
                    let _ = write!(self.0, "‹U+{:04X}›", u32::from(hidden));
                }
                visible if previous.is_some() && width(visible.encode_utf8(&mut [0; 4])) == 0 => {
                    marks += 1;
                    if marks <= MAX_MARKS {
                        self.0.push(visible);
                    }
                }
                visible => self.0.push(visible),
            }
            previous = Some(character);
        }
        if marks > MAX_MARKS {
            let _ = write!(self.0, "‹+{}›", marks - MAX_MARKS);
        }
    }
}

impl fmt::Display for Clean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a character changes the direction of the text around it.
pub fn is_bidirectional(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Characters that are drawn as nothing, and are no part of others.
const INVISIBLE: &[RangeInclusive<char>] = &[
    '\u{ad}'..='\u{ad}',
    '\u{34f}'..='\u{34f}',
    '\u{115f}'..='\u{1160}',
    '\u{17b4}'..='\u{17b5}',
    '\u{180b}'..='\u{180f}',
    '\u{200b}'..='\u{200b}',
    '\u{2028}'..='\u{2029}',
    '\u{2060}'..='\u{2065}',
    '\u{206a}'..='\u{206f}',
    '\u{3164}'..='\u{3164}',
    '\u{feff}'..='\u{feff}',
    '\u{ffa0}'..='\u{ffa0}',
    '\u{fff0}'..='\u{fffb}',
    '\u{e0000}'..='\u{e0fff}',
];

/// Whether a character is not drawn, or changes how others are drawn. A joiner is drawn as part of an emoji or of a script that
/// needs it, and hidden between ASCII characters.
fn is_hidden(character: char, previous: Option<char>) -> bool {
    match character {
        '\u{200c}' | '\u{200d}' => previous.is_none_or(|previous| previous.is_ascii()),
        character => {
            INVISIBLE.iter().any(|range| range.contains(&character))
                || character.is_control()
                || is_bidirectional(character)
        }
    }
}

/// The length of the characters at the start of a clean text that stand for one that would not be visible.
fn hidden_at(text: &str) -> Option<usize> {
    let first = text.chars().next()?;
    if matches!(first, '\u{2400}'..='\u{2421}') {
        return Some(first.len_utf8());
    }
    let rest = text.strip_prefix('‹')?;
    let end = rest.find('›').filter(|end| *end <= 8)?;
    let digits = rest.strip_prefix("U+").or_else(|| rest.strip_prefix('+'))?;
    let digits = &digits[..end - (rest.len() - digits.len())];
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_number.then_some('‹'.len_utf8() + end + '›'.len_utf8())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn characters_that_change_the_terminal_or_the_direction_are_visible() {
        for (text, clean) in [
            ("a\u{1b}[2Jb", "a␛[2Jb"),
            ("a\u{7}\u{8}\u{7f}\r", "a␇␈␡"),
            ("x\ry", "x␍y"),
            ("\u{9b}1m", "‹U+009B›1m"),
            ("only \u{202e}\u{2066}here", "only ‹U+202E›‹U+2066›here"),
            ("zero\u{200b}width\u{feff}", "zero‹U+200B›width‹U+FEFF›"),
            ("tag\u{e0041}", "tag‹U+E0041›"),
            ("rm\u{200d}x", "rm‹U+200D›x"),
            ("two\nlines\r\nthree\n", "two↵lines↵three"),
            ("👩\u{200d}💻", "👩\u{200d}💻"),
        ] {
            assert_eq!(Clean::line(text).as_str(), clean);
        }
    }

    #[test]
    fn tabs_end_at_multiples_of_four_columns() {
        assert_eq!(Clean::line("\ta\tbcd\t漢\t.").as_str(), "    a   bcd 漢  .");
    }

    #[test]
    fn many_combining_marks_are_counted_not_drawn() {
        let clean = Clean::line(&format!("e{}", "\u{301}".repeat(50)));
        assert_eq!(clean.as_str(), format!("e{}‹+42›", "\u{301}".repeat(8)));
    }

    #[test]
    fn parts_name_the_characters_that_were_not_visible() {
        let clean = Clean::line("a\u{1b}b\u{202e}‹c›");
        let parts = clean.parts();
        assert_eq!(parts, [("a", false), ("␛", true), ("b", false), ("‹U+202E›", true), ("‹c›", false)]);
    }

    fn is_safe(text: &str) -> bool {
        !text.chars().any(|c| c.is_control() || is_bidirectional(c))
    }

    proptest! {
        #[test]
        fn no_control_character_survives(text: String) {
            let clean = Clean::line(&text);
            prop_assert!(is_safe(clean.as_str()));
            prop_assert_eq!(clean.parts().iter().map(|(part, _)| *part).collect::<String>(), clean.as_str());
            prop_assert_eq!(Clean::line(clean.as_str()), clean);
        }

        #[test]
        fn hostile_characters_are_named(text in "[a漢\u{301}\u{200d}\u{1b}\u{9b}\u{202e}\u{2067}\u{feff}\t\r\n👩🏽\u{1f1e6}]{0,40}") {
            prop_assert!(is_safe(Clean::line(&text).as_str()));
        }

    }
}
