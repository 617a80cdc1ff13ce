use std::borrow::Cow;
use std::fmt::{self, Write};
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::JsonRef;

/// A JSON string, stored as its canonical literal.
///
/// JSON can express strings that Rust's `String` cannot: unpaired surrogates (`"\ud83d"`), which JavaScript
/// agents emit when they cut a stream between two code units. A literal can express all of them. Each string has
/// exactly one canonical literal (escapes only where JSON requires them), so that comparing literals compares
/// strings: `"\u0061"` equals `"a"`.
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

/// A Unicode code point of a JSON string, which may be an unpaired surrogate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodePoint {
    /// A Unicode scalar value.
    Char(char),
    /// An unpaired surrogate.
    Surrogate(u16),
}

/// Iterates over the code points of a JSON string literal.
#[derive(Debug, Clone)]
pub struct CodePoints<'a>(std::str::Chars<'a>);

impl JsonStr {
    /// Encodes a Rust string.
    pub fn new(text: &str) -> Self {
        Self(string_literal(text).into())
    }

    /// Parses a JSON string literal with its quotes; returns `None` for any other text.
    pub fn from_literal(literal: &str) -> Option<Self> {
        Self::from_raw(JsonRef::parse(literal).ok()?)
    }

    /// Reads a JSON value; returns `None` if it is not a string.
    pub fn from_raw(raw: JsonRef<'_>) -> Option<Self> {
        let literal = raw.as_str();
        if !literal.starts_with('"') {
            return None;
        }
        if memchr::memchr(b'\\', literal.as_bytes()).is_none() {
            return Some(Self(literal.into()));
        }
        Some(CodePoints::of_literal(literal).collect())
    }

    /// Returns the canonical literal with its quotes, which is valid JSON.
    pub fn as_literal(&self) -> &str {
        &self.0
    }

    /// Returns the literal without its quotes and with its escapes.
    pub fn inner(&self) -> &str {
        &self.0[1..self.0.len() - 1]
    }

    /// Decodes the string, with U+FFFD for each unpaired surrogate.
    pub fn to_text(&self) -> Cow<'_, str> {
        if self.inner().contains('\\') {
            Cow::Owned(self.code_points().map(CodePoint::or_replacement).collect())
        } else {
            Cow::Borrowed(self.inner())
        }
    }

    /// Decodes the string; returns `None` if it has an unpaired surrogate.
    pub fn to_exact(&self) -> Option<Cow<'_, str>> {
        if !self.inner().contains('\\') {
            return Some(Cow::Borrowed(self.inner()));
        }
        self.code_points()
            .map(|unit| match unit {
                CodePoint::Char(c) => Some(c),
                CodePoint::Surrogate(_) => None,
            })
            .collect::<Option<String>>()
            .map(Cow::Owned)
    }

    /// Iterates over the code points of the string.
    pub fn code_points(&self) -> CodePoints<'_> {
        CodePoints::of_literal(&self.0)
    }

    /// Returns the first `max` code points, or `None` if the string has no more than that.
    pub fn truncated(&self, max: usize) -> Option<Self> {
        self.code_points().nth(max)?;
        Some(self.code_points().take(max).collect())
    }
}

impl<'a> CodePoints<'a> {
    /// Iterates over the code points of a valid literal; other text gives unspecified ones and does not panic.
    pub fn of_literal(literal: &'a str) -> Self {
        Self(literal.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(literal).chars())
    }

    fn hex4(&mut self) -> u16 {
        let digit = |c: char| u16::try_from(c.to_digit(16).unwrap_or(0)).unwrap_or(0);
        self.0.by_ref().take(4).fold(0, |value, c| value << 4 | digit(c))
    }
}

impl Iterator for CodePoints<'_> {
    type Item = CodePoint;

    fn next(&mut self) -> Option<CodePoint> {
        let c = self.0.next()?;
        if c != '\\' {
            return Some(CodePoint::Char(c));
        }
        Some(CodePoint::Char(match self.0.next()? {
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
                if let Some(c) =
                    second.and_then(|second| from_surrogates(first, CodePoint::Surrogate(second)))
                {
                    *self = ahead;
                    return Some(CodePoint::Char(c));
                }
                return Some(
                    char::from_u32(u32::from(first)).map_or(CodePoint::Surrogate(first), CodePoint::Char),
                );
            }
            other => other,
        }))
    }
}

/// Returns the character that two surrogates encode, if they are a pair.
fn from_surrogates(high: u16, low: CodePoint) -> Option<char> {
    match low {
        CodePoint::Surrogate(low) => char::decode_utf16([high, low]).next().and_then(Result::ok),
        CodePoint::Char(_) => None,
    }
}

impl CodePoint {
    fn or_replacement(self) -> char {
        match self {
            Self::Char(c) => c,
            Self::Surrogate(_) => char::REPLACEMENT_CHARACTER,
        }
    }
}

impl FromIterator<CodePoint> for JsonStr {
    fn from_iter<I: IntoIterator<Item = CodePoint>>(units: I) -> Self {
        let mut literal = String::from('"');
        let mut units = units.into_iter().peekable();
        while let Some(unit) = units.next() {
            // A pair of surrogates is one character and has one canonical literal.
            let unit = match unit {
                CodePoint::Surrogate(high) => {
                    match units.peek().and_then(|next| from_surrogates(high, *next)) {
                        Some(c) => {
                            units.next();
                            CodePoint::Char(c)
                        }
                        None => unit,
                    }
                }
                CodePoint::Char(_) => unit,
            };
            let written = match unit {
                CodePoint::Char('"') => literal.write_str("\\\""),
                CodePoint::Char('\\') => literal.write_str("\\\\"),
                CodePoint::Char('\u{8}') => literal.write_str("\\b"),
                CodePoint::Char('\u{c}') => literal.write_str("\\f"),
                CodePoint::Char('\n') => literal.write_str("\\n"),
                CodePoint::Char('\r') => literal.write_str("\\r"),
                CodePoint::Char('\t') => literal.write_str("\\t"),
                CodePoint::Char(c @ '\0'..='\u{1f}') => write!(literal, "\\u{:04x}", u32::from(c)),
                CodePoint::Char(c) => literal.write_char(c),
                CodePoint::Surrogate(surrogate) => write!(literal, "\\u{surrogate:04x}"),
            };
            written.expect("writing to a string cannot fail");
        }
        literal.push('"');
        Self(literal.into())
    }
}

/// Compares the decoded string, not the literal.
impl PartialEq<str> for JsonStr {
    fn eq(&self, text: &str) -> bool {
        if self.inner().contains('\\') {
            self.code_points().eq(text.chars().map(CodePoint::Char))
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
            None => JsonRef(&self.0).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for JsonStr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let raw = JsonRef::from(&*raw);
        Self::from_raw(raw)
            .ok_or_else(|| D::Error::custom(format_args!("expected a string, found {}", raw.type_of())))
    }
}

/// Encodes `text` as a JSON string literal with its quotes.
pub fn string_literal(text: &str) -> String {
    serde_json::to_string(text).expect("every string can be encoded")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn canonical_literals_are_those_of_serde_json() {
        for text in ["", "a", "\"\\/", "\u{0}\u{1f}\u{7f}", "\u{8}\u{c}\n\r\t", "é😀\u{2028}"] {
            let literal = serde_json::to_string(text).unwrap();
            assert_eq!(JsonStr::from_literal(&literal).unwrap().as_literal(), literal);
            assert_eq!(JsonStr::new(text).as_literal(), literal);
            assert_eq!(JsonStr::new(text).to_text(), text);
        }
    }

    #[test]
    fn escaped_surrogate_pairs_are_decoded_and_unpaired_surrogates_are_kept() {
        assert_eq!(JsonStr::from_literal(r#""\ud83d\ude00""#).unwrap(), JsonStr::new("😀"));
        for unpaired in
            [r#""\ud83d""#, r#""\ude00\ud83d""#, r#""\ud83d\ud83d""#, r#""\ud83dx""#, r#""\ud83d\n""#]
        {
            let kept = JsonStr::from_literal(unpaired).unwrap();
            assert_eq!(kept.as_literal(), unpaired);
            assert_eq!(kept.to_exact(), None);
            assert_eq!(serde_json::to_string(&kept).unwrap(), unpaired);
            assert_eq!(serde_json::from_str::<JsonStr>(unpaired).unwrap(), kept);
        }
        assert_ne!(JsonStr::from_literal(r#""\ud83d""#).unwrap(), JsonStr::new("\\ud83d"));
        // The first and the last surrogate pair, in literals that are not canonical.
        for (literal, c) in [(r#""\ud800\udc00""#, '\u{10000}'), (r#""\udbff\udfff""#, '\u{10ffff}')] {
            assert_eq!(CodePoints::of_literal(literal).collect::<Vec<_>>(), [CodePoint::Char(c)]);
        }
        let pair = [CodePoint::Surrogate(0xd83d), CodePoint::Surrogate(0xde00)];
        assert_eq!(pair.into_iter().collect::<JsonStr>(), JsonStr::new("😀"));
    }

    #[test]
    fn truncation_counts_code_points() {
        assert_eq!(JsonStr::new("añ😀z").truncated(4), None);
        assert_eq!(JsonStr::new("añ😀z").truncated(3), Some(JsonStr::new("añ😀")));
        assert_eq!(JsonStr::new("\n\n\n").truncated(2), Some(JsonStr::new("\n\n")));
        assert_eq!(JsonStr::new("").truncated(0), None);
        assert_eq!(JsonStr::new("a").truncated(0), Some(JsonStr::new("")));
    }

    #[test]
    fn text_that_is_not_a_string_literal_is_rejected() {
        for text in ["null", "1", "{}", "[]", "\"open", "", "\"a\" \"b\""] {
            assert_eq!(JsonStr::from_literal(text), None, "{text}");
        }
        assert!(serde_json::from_str::<JsonStr>("null").is_err());
    }

    proptest! {
        #[test]
        fn all_literals_of_a_string_have_the_same_canonical_literal(units in prop::collection::vec(any::<u16>(), 0..20), plain in any::<u32>()) {
            let escaped: String = units.iter().map(|unit| format!("\\u{unit:04X}")).collect();
            let one = JsonStr::from_literal(&format!("\"{escaped}\"")).unwrap();
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
                prop_assert_eq!(cut.code_points().count(), max);
            }
        }
    }
}
