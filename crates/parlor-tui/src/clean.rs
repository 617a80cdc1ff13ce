//! Foreign text, made safe to draw.

use std::fmt;

/// One line of foreign text in which control characters are visible (`␛`), bidirectional ones are named (`‹U+202E›`) and
/// tabs are expanded to 4 columns.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Clean(String);

impl Clean {
    /// Cleans a text that is shown as one line: a line break is shown as `↵`.
    pub fn line(text: &str) -> Self {
        let mut clean = String::with_capacity(text.len());
        for character in text.trim_end_matches(['\n', '\r']).chars() {
            match character {
                '\n' => clean.push('↵'),
                '\t' => clean.push_str("    "),
                '\u{7f}' => clean.push('␡'),
                control if control.is_ascii_control() => {
                    clean.push(char::from_u32(0x2400 + control as u32).unwrap_or('?'));
                }
                hidden if hidden.is_control() || is_bidirectional(hidden) => {
                    clean.push_str(&format!("‹U+{:04X}›", hidden as u32));
                }
                visible => clean.push(visible),
            }
        }
        Self(clean)
    }

    /// Cleans each line of a text.
    pub fn lines(text: &str) -> Vec<Self> {
        text.lines().map(Self::line).collect()
    }

    /// The text to draw.
    pub fn as_str(&self) -> &str {
        &self.0
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
