use std::borrow::Cow;
use std::fmt::{self, Write};
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// A JSON string, held as its canonical literal.
///
/// JSON can write strings that Rust's `String` cannot hold: half a surrogate pair (`"\ud83d"`), which
/// JavaScript agents really emit when they cut a stream between two code units. The literal holds them all.
/// Each string has exactly one canonical literal (an escape only where JSON demands one), so comparing
/// literals compares strings: `"\u0061"` is `"a"`.
///
/// ```
/// use parlor_json::JsonStr;
///
/// let escaped = JsonStr::from_literal(r#""\u0061\/b""#).unwrap();
/// assert_eq!(escaped, JsonStr::new("a/b"));
/// assert_eq!(escaped.as_literal(), r#""a/b""#);
///
/// let half = JsonStr::from_literal(r#""\uD83D""#).unwrap();
/// assert_eq!(half.as_literal(), r#""\ud83d""#);
/// assert_eq!(half.to_text(), "\u{fffd}");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JsonStr(Arc<str>);

/// One character of a JSON string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A Unicode scalar value.
    Char(char),
    /// Half a surrogate pair, which is no character.
    Surrogate(u16),
}

/// The characters of a JSON string literal.
#[derive(Debug, Clone)]
pub struct Units<'a>(std::str::Chars<'a>);

impl JsonStr {
    /// A string that Rust can hold.
    pub fn new(text: &str) -> Self {
        Self(crate::string_literal(text).into())
    }

    /// Reads a JSON string literal (with its quotes); `None` if the text is not one.
    pub fn from_literal(literal: &str) -> Option<Self> {
        let raw: &RawValue = serde_json::from_str(literal).ok()?;
        Self::from_raw(raw)
    }

    /// Reads a raw value; `None` if it is not a string.
    pub fn from_raw(raw: &RawValue) -> Option<Self> {
        let literal = raw.get();
        if !literal.starts_with('"') {
            return None;
        }
        if memchr::memchr(b'\\', literal.as_bytes()).is_none() {
            return Some(Self(literal.into()));
        }
        Some(Units::of_literal(literal).collect())
    }

    /// The canonical literal, with its quotes: JSON that can be written as it is.
    pub fn as_literal(&self) -> &str {
        &self.0
    }

    /// The literal without its quotes, escapes still in it.
    pub fn inner(&self) -> &str {
        &self.0[1..self.0.len() - 1]
    }

    /// The string itself; half surrogate pairs show as U+FFFD.
    pub fn to_text(&self) -> Cow<'_, str> {
        if self.inner().contains('\\') {
            Cow::Owned(self.units().map(Unit::or_replacement).collect())
        } else {
            Cow::Borrowed(self.inner())
        }
    }

    /// The string itself if Rust can hold it.
    pub fn to_exact(&self) -> Option<Cow<'_, str>> {
        if !self.inner().contains('\\') {
            return Some(Cow::Borrowed(self.inner()));
        }
        self.units()
            .map(|unit| match unit {
                Unit::Char(c) => Some(c),
                Unit::Surrogate(_) => None,
            })
            .collect::<Option<String>>()
            .map(Cow::Owned)
    }

    /// The characters of the string.
    pub fn units(&self) -> Units<'_> {
        Units::of_literal(&self.0)
    }

    /// The string cut to at most `max` characters, or `None` if it is no longer than that.
    pub fn truncated(&self, max: usize) -> Option<Self> {
        self.units().nth(max)?;
        Some(self.units().take(max).collect())
    }
}

impl<'a> Units<'a> {
    /// The characters of a valid literal. Text that is not a literal gives some characters, never a panic.
    pub fn of_literal(literal: &'a str) -> Self {
        Self(literal.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(literal).chars())
    }

    fn hex4(&mut self) -> u16 {
        let digit = |c: char| u16::try_from(c.to_digit(16).unwrap_or(0)).unwrap_or(0);
        self.0.by_ref().take(4).fold(0, |value, c| value << 4 | digit(c))
    }
}

impl Iterator for Units<'_> {
    type Item = Unit;

    fn next(&mut self) -> Option<Unit> {
        let c = self.0.next()?;
        if c != '\\' {
            return Some(Unit::Char(c));
        }
        Some(Unit::Char(match self.0.next()? {
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let first = self.hex4();
                let mut ahead = self.clone();
                let second = match first {
                    0xd800..=0xdbff if ahead.0.next() == Some('\\') && ahead.0.next() == Some('u') => {
                        Some(ahead.hex4())
                    }
                    _ => None,
                };
                if let Some(c) = second.and_then(|second| joined(first, Unit::Surrogate(second))) {
                    *self = ahead;
                    return Some(Unit::Char(c));
                }
                return Some(char::from_u32(u32::from(first)).map_or(Unit::Surrogate(first), Unit::Char));
            }
            other => other,
        }))
    }
}

/// The character that two halves make, if they do.
fn joined(high: u16, low: Unit) -> Option<char> {
    match low {
        Unit::Surrogate(low) => char::decode_utf16([high, low]).next().and_then(Result::ok),
        Unit::Char(_) => None,
    }
}

impl Unit {
    fn or_replacement(self) -> char {
        match self {
            Self::Char(c) => c,
            Self::Surrogate(_) => char::REPLACEMENT_CHARACTER,
        }
    }
}

impl FromIterator<Unit> for JsonStr {
    fn from_iter<I: IntoIterator<Item = Unit>>(units: I) -> Self {
        let mut literal = String::from('"');
        let mut units = units.into_iter().peekable();
        while let Some(unit) = units.next() {
            // Two halves that meet are one character, and have one spelling.
            let unit = match unit {
                Unit::Surrogate(high) => match units.peek().and_then(|next| joined(high, *next)) {
                    Some(c) => {
                        units.next();
                        Unit::Char(c)
                    }
                    None => unit,
                },
                Unit::Char(_) => unit,
            };
            let written = match unit {
                Unit::Char('"') => literal.write_str("\\\""),
                Unit::Char('\\') => literal.write_str("\\\\"),
                Unit::Char('\u{8}') => literal.write_str("\\b"),
                Unit::Char('\u{c}') => literal.write_str("\\f"),
                Unit::Char('\n') => literal.write_str("\\n"),
                Unit::Char('\r') => literal.write_str("\\r"),
                Unit::Char('\t') => literal.write_str("\\t"),
                Unit::Char(c @ '\0'..='\u{1f}') => write!(literal, "\\u{:04x}", u32::from(c)),
                Unit::Char(c) => literal.write_char(c),
                Unit::Surrogate(half) => write!(literal, "\\u{half:04x}"),
            };
            written.expect("writing to a string cannot fail");
        }
        literal.push('"');
        Self(literal.into())
    }
}

/// Compares with the string itself, not with its literal.
impl PartialEq<str> for JsonStr {
    fn eq(&self, text: &str) -> bool {
        if self.inner().contains('\\') {
            self.units().eq(text.chars().map(Unit::Char))
        } else {
            self.inner() == text
        }
    }
}

impl From<&str> for JsonStr {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for JsonStr {
    fn from(text: String) -> Self {
        Self::new(&text)
    }
}

impl fmt::Display for JsonStr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.to_text())
    }
}

impl fmt::Debug for JsonStr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for JsonStr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.to_exact() {
            Some(text) => serializer.serialize_str(&text),
            None => serde_json::from_str::<&RawValue>(&self.0)
                .map_err(serde::ser::Error::custom)?
                .serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for JsonStr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::from_raw(&raw).ok_or_else(|| {
            D::Error::custom(format_args!("expected a string, found {}", crate::type_of(&raw)))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn canonical_literals_match_what_serde_json_writes() {
        for text in ["", "a", "\"\\/", "\u{0}\u{1f}\u{7f}", "\u{8}\u{c}\n\r\t", "é😀\u{2028}"] {
            let literal = serde_json::to_string(text).unwrap();
            assert_eq!(JsonStr::from_literal(&literal).unwrap().as_literal(), literal);
            assert_eq!(JsonStr::new(text).as_literal(), literal);
            assert_eq!(JsonStr::new(text).to_text(), text);
        }
    }

    #[test]
    fn an_escaped_pair_is_one_character_and_a_half_pair_is_kept() {
        assert_eq!(JsonStr::from_literal(r#""\ud83d\ude00""#).unwrap(), JsonStr::new("😀"));
        for half in [r#""\ud83d""#, r#""\ude00\ud83d""#, r#""\ud83d\ud83d""#, r#""\ud83dx""#, r#""\ud83d\n""#]
        {
            let kept = JsonStr::from_literal(half).unwrap();
            assert_eq!(kept.as_literal(), half);
            assert_eq!(kept.to_exact(), None);
            assert_eq!(serde_json::to_string(&kept).unwrap(), half);
            assert_eq!(serde_json::from_str::<JsonStr>(half).unwrap(), kept);
        }
        assert_ne!(JsonStr::from_literal(r#""\ud83d""#).unwrap(), JsonStr::new("\\ud83d"));
        // The first and the last pair there are, as characters of a literal that is not canonical.
        for (literal, c) in [(r#""\ud800\udc00""#, '\u{10000}'), (r#""\udbff\udfff""#, '\u{10ffff}')] {
            assert_eq!(Units::of_literal(literal).collect::<Vec<_>>(), [Unit::Char(c)]);
        }
        let halves = [Unit::Surrogate(0xd83d), Unit::Surrogate(0xde00)];
        assert_eq!(halves.into_iter().collect::<JsonStr>(), JsonStr::new("😀"));
    }

    #[test]
    fn truncation_counts_characters_and_never_splits_one() {
        assert_eq!(JsonStr::new("añ😀z").truncated(4), None);
        assert_eq!(JsonStr::new("añ😀z").truncated(3), Some(JsonStr::new("añ😀")));
        assert_eq!(JsonStr::new("\n\n\n").truncated(2), Some(JsonStr::new("\n\n")));
        assert_eq!(JsonStr::new("").truncated(0), None);
        assert_eq!(JsonStr::new("a").truncated(0), Some(JsonStr::new("")));
    }

    #[test]
    fn what_is_not_a_string_is_refused() {
        for text in ["null", "1", "{}", "[]", "\"open", "", "\"a\" \"b\""] {
            assert_eq!(JsonStr::from_literal(text), None, "{text}");
        }
        assert!(serde_json::from_str::<JsonStr>("null").is_err());
    }

    proptest! {
        #[test]
        fn any_spelling_of_a_string_is_the_same_string(units in prop::collection::vec(any::<u16>(), 0..20), plain in any::<u32>()) {
            let escaped: String = units.iter().map(|unit| format!("\\u{unit:04X}")).collect();
            let one = JsonStr::from_literal(&format!("\"{escaped}\"")).unwrap();
            // The same code units, each written bare where the canonical form allows it.
            let again = JsonStr::from_literal(one.as_literal()).unwrap();
            prop_assert_eq!(&one, &again);
            if let Ok(text) = String::from_utf16(&units) {
                prop_assert_eq!(&one, &JsonStr::new(&text));
                prop_assert_eq!(one.to_exact().unwrap(), text);
            } else {
                prop_assert_eq!(one.to_text(), String::from_utf16_lossy(&units));
            }
            let max = plain as usize % 25;
            if let Some(cut) = one.truncated(max) {
                prop_assert_eq!(cut.units().count(), max);
            }
        }
    }
}
