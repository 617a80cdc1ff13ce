//! One key with its modifiers, and how it is written.

#![expect(clippy::wildcard_enum_match_arm, reason = "few codes of keys are special")]

use std::fmt;
use std::str::FromStr;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// A key with its modifiers. Shift is part of a letter, and not a modifier of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    pub(super) code: KeyCode,
    pub(super) modifiers: KeyModifiers,
}

impl Key {
    /// A key without modifiers.
    pub const fn plain(code: KeyCode) -> Self {
        Self { code, modifiers: KeyModifiers::NONE }
    }

    /// The letter or other character that the key types, if it types one.
    pub fn typed(self) -> Option<char> {
        match self.code {
            KeyCode::Char(letter) if self.modifiers.is_empty() => Some(letter),
            _ => None,
        }
    }

    /// The code without modifiers.
    pub fn code(self) -> KeyCode {
        self.code
    }

    /// Whether Ctrl is held.
    pub fn is_ctrl(self) -> bool {
        self.modifiers.contains(KeyModifiers::CONTROL)
    }

    /// Whether Alt is held.
    pub fn is_alt(self) -> bool {
        self.modifiers.contains(KeyModifiers::ALT)
    }
}

impl From<KeyEvent> for Key {
    fn from(event: KeyEvent) -> Self {
        let mut modifiers =
            event.modifiers & (KeyModifiers::CONTROL | KeyModifiers::ALT | KeyModifiers::SHIFT);
        let code = match event.code {
            KeyCode::BackTab => {
                modifiers |= KeyModifiers::SHIFT;
                KeyCode::Tab
            }
            KeyCode::Char(letter) => {
                modifiers -= KeyModifiers::SHIFT;
                let is_ctrl = modifiers.contains(KeyModifiers::CONTROL);
                KeyCode::Char(if is_ctrl { letter.to_ascii_lowercase() } else { letter })
            }
            code => code,
        };
        Self { code, modifiers }
    }
}

/// A text that names no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a key: write it as in Ctrl-D, Alt-Enter, PgUp, F1, Space or j")]
pub struct UnknownKey(String);

impl FromStr for Key {
    type Err = UnknownKey;

    fn from_str(text: &str) -> Result<Self, UnknownKey> {
        let mut modifiers = KeyModifiers::NONE;
        let mut rest = text;
        loop {
            let prefix = [
                ("Ctrl-", KeyModifiers::CONTROL),
                ("Alt-", KeyModifiers::ALT),
                ("Shift-", KeyModifiers::SHIFT),
            ]
            .into_iter()
            .find(|(name, _)| {
                rest.len() > name.len()
                    && rest.is_char_boundary(name.len())
                    && rest[..name.len()].eq_ignore_ascii_case(name)
            });
            let Some((name, modifier)) = prefix else { break };
            modifiers |= modifier;
            rest = &rest[name.len()..];
        }
        let mut letters = rest.chars();
        let code = match (letters.next(), letters.next()) {
            (Some(letter), None) => {
                let is_ctrl = modifiers.contains(KeyModifiers::CONTROL);
                KeyCode::Char(if is_ctrl { letter.to_ascii_lowercase() } else { letter })
            }
            _ => named(rest).ok_or_else(|| UnknownKey(text.to_owned()))?,
        };
        Ok(Self { code, modifiers })
    }
}

const NAMED: [(&str, KeyCode); 14] = [
    ("Enter", KeyCode::Enter),
    ("Esc", KeyCode::Esc),
    ("Tab", KeyCode::Tab),
    ("Space", KeyCode::Char(' ')),
    ("Backspace", KeyCode::Backspace),
    ("Delete", KeyCode::Delete),
    ("Up", KeyCode::Up),
    ("Down", KeyCode::Down),
    ("Left", KeyCode::Left),
    ("Right", KeyCode::Right),
    ("Home", KeyCode::Home),
    ("End", KeyCode::End),
    ("PgUp", KeyCode::PageUp),
    ("PgDn", KeyCode::PageDown),
];

fn named(name: &str) -> Option<KeyCode> {
    if let Some((_, code)) = NAMED.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
        return Some(*code);
    }
    let number = name.strip_prefix(['F', 'f'])?.parse().ok()?;
    (1..=12).contains(&number).then_some(KeyCode::F(number))
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (modifier, name) in
            [(KeyModifiers::CONTROL, "Ctrl-"), (KeyModifiers::ALT, "Alt-"), (KeyModifiers::SHIFT, "Shift-")]
        {
            if self.modifiers.contains(modifier) {
                f.write_str(name)?;
            }
        }
        match (self.code, NAMED.iter().find(|(_, code)| *code == self.code)) {
            (_, Some((name, _))) => f.write_str(name),
            (KeyCode::Char(letter), None) if self.is_ctrl() => write!(f, "{}", letter.to_ascii_uppercase()),
            (KeyCode::Char(letter), None) => write!(f, "{letter}"),
            (KeyCode::F(number), None) => write!(f, "F{number}"),
            (code, None) => write!(f, "{code:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_written_as_it_is_read() {
        for text in ["Ctrl-D", "Alt-Enter", "Shift-Tab", "PgUp", "F1", "Space", "j", "G", "[", "?", "é"] {
            assert_eq!(text.parse::<Key>().unwrap().to_string(), text);
        }
        assert_eq!("ctrl-d".parse::<Key>(), "Ctrl-D".parse());
        for text in ["", "Ctrl-", "F13", "Hyper-x", "jj"] {
            assert!(text.parse::<Key>().is_err(), "{text}");
        }
    }
}
