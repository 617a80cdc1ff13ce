use std::borrow::Cow;
use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::{Json, JsonStr, MAX_ELEMENTS, Object};

/// A JSON value borrowed from the text that contains it.
///
/// The text is valid JSON without white space around it. It differs from [`RawValue`] in that it can also be
/// borrowed from a [`Json`], whose text is not checked a second time.
///
/// ```
/// use parlor_json::JsonRef;
///
/// let value = JsonRef::parse(r#" [1, "a", {"b": 2.50}] "#).unwrap();
/// let elements = value.elements().unwrap();
/// assert_eq!(elements[0].as_u64(), Some(1));
/// assert_eq!(elements[1].to_text().as_deref(), Some("a"));
/// assert_eq!(elements[2].as_str(), r#"{"b": 2.50}"#);
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct JsonRef<'a>(pub(crate) &'a str);

/// The error for text that is not exactly one JSON value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not JSON: {0}")]
pub struct InvalidJson(String);

/// The type of a JSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// Any number.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

impl<'a> JsonRef<'a> {
    /// The value `null`.
    pub const NULL: JsonRef<'static> = JsonRef("null");

    /// Checks that `text` is one JSON value and borrows it without the white space around it.
    pub fn parse(text: &'a str) -> Result<Self, InvalidJson> {
        serde_json::from_str(text).map_err(|error| InvalidJson(error.to_string()))
    }

    /// Borrows text that is JSON by construction.
    pub(crate) fn from_valid(text: &'a str) -> Self {
        debug_assert_eq!(Self::parse(text), Ok(Self(text)));
        Self(text)
    }

    /// Returns the text of the value, as it was received.
    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// Returns the type of the value, which its first byte determines.
    pub fn type_of(self) -> Type {
        match self.0.as_bytes().first() {
            Some(b'{') => Type::Object,
            Some(b'[') => Type::Array,
            Some(b'"') => Type::String,
            Some(b't' | b'f') => Type::Bool,
            Some(b'n') | None => Type::Null,
            Some(_) => Type::Number,
        }
    }

    /// Returns whether the value is `null`.
    pub fn is_null(self) -> bool {
        self.type_of() == Type::Null
    }

    /// Returns a boolean, or `None` for any other value.
    pub fn as_bool(self) -> Option<bool> {
        self.0.parse().ok()
    }

    /// Returns a number that is written as an integer and fits, or `None` for any other value.
    pub fn as_u64(self) -> Option<u64> {
        self.0.parse().ok()
    }

    /// Returns a string with U+FFFD for each unpaired surrogate, or `None` for any other value.
    pub fn to_text(self) -> Option<Cow<'a, str>> {
        let inner = self.0.strip_prefix('"')?.strip_suffix('"')?;
        if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
            return Some(Cow::Borrowed(inner));
        }
        Some(Cow::Owned(self.to_json_str()?.to_text().into_owned()))
    }

    /// Returns a string without any loss, or `None` for any other value.
    pub fn to_json_str(self) -> Option<JsonStr> {
        JsonStr::from_raw(self)
    }

    /// Returns an object, or `None` for any other value and for one with more than
    /// [`MAX_MEMBERS`](crate::MAX_MEMBERS) members.
    pub fn to_object(self) -> Option<Object> {
        Object::parse(self).ok()
    }

    /// Returns the elements of an array, or `None` for any other value and for an array with more than
    /// [`MAX_ELEMENTS`] elements.
    pub fn elements(self) -> Option<Vec<JsonRef<'a>>> {
        if self.type_of() != Type::Array {
            return None;
        }
        serde_json::from_str(self.0).ok().map(|Elements(elements)| elements)
    }
}

impl<'a> From<&'a RawValue> for JsonRef<'a> {
    fn from(raw: &'a RawValue) -> Self {
        Self(raw.get())
    }
}

impl<'a> From<&'a Json> for JsonRef<'a> {
    fn from(json: &'a Json) -> Self {
        json.raw()
    }
}

impl fmt::Debug for JsonRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Display for JsonRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Checks the text once more, because `serde_json` accepts raw text only as a [`RawValue`].
impl Serialize for JsonRef<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for JsonRef<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&'a RawValue>::deserialize(deserializer).map(Self::from)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Null => "null",
            Self::Bool => "a boolean",
            Self::Number => "a number",
            Self::String => "a string",
            Self::Array => "an array",
            Self::Object => "an object",
        })
    }
}

struct Elements<'a>(Vec<JsonRef<'a>>);

impl<'de> Deserialize<'de> for Elements<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ElementsVisitor;

        impl<'de> Visitor<'de> for ElementsVisitor {
            type Value = Elements<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Elements<'de>, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = seq.next_element()? {
                    if elements.len() == MAX_ELEMENTS {
                        return Err(A::Error::custom("too many elements"));
                    }
                    elements.push(element);
                }
                Ok(Elements(elements))
            }
        }

        deserializer.deserialize_seq(ElementsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> JsonRef<'_> {
        JsonRef::parse(text).unwrap()
    }

    #[test]
    fn getters_return_only_values_of_their_type() {
        for (text, boolean, number, string) in [
            ("true", Some(true), None, None),
            ("0", None, Some(0), None),
            ("18446744073709551615", None, Some(u64::MAX), None),
            ("18446744073709551616", None, None, None),
            ("-1", None, None, None),
            ("1.0", None, None, None),
            ("1e2", None, None, None),
            (r#""1""#, None, None, Some("1")),
            (r#""true""#, None, None, Some("true")),
            (r#""\u0061\ud800""#, None, None, Some("a\u{fffd}")),
            ("null", None, None, None),
            ("{}", None, None, None),
        ] {
            let value = parse(text);
            let read = (value.as_bool(), value.as_u64(), value.to_text());
            assert_eq!(read, (boolean, number, string.map(Cow::Borrowed)), "{text}");
        }
    }

    #[test]
    fn elements_keep_their_text() {
        let texts: Vec<_> = parse("[1.0 , {\"b\":1,\"a\": 2},[]]")
            .elements()
            .unwrap()
            .into_iter()
            .map(JsonRef::as_str)
            .collect();
        assert_eq!(texts, ["1.0", "{\"b\":1,\"a\": 2}", "[]"]);
        assert_eq!(parse("[]").elements(), Some(Vec::new()));
        assert_eq!(parse("{}").elements(), None);
    }

    #[test]
    fn an_array_with_too_many_elements_is_not_read() {
        let array = |count: usize| format!("[{}]", vec!["0"; count].join(","));
        assert_eq!(parse(&array(MAX_ELEMENTS)).elements().map(|elements| elements.len()), Some(MAX_ELEMENTS));
        assert_eq!(parse(&array(MAX_ELEMENTS + 1)).elements(), None);
    }

    #[test]
    fn white_space_around_a_value_is_not_part_of_it() {
        assert_eq!(parse(" \n{ }\t").as_str(), "{ }");
        assert!(JsonRef::parse("1 2").is_err());
        assert!(JsonRef::parse("").is_err());
    }
}
