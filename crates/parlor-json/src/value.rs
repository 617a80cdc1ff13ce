use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::{JsonStr, MAX_ELEMENTS};

/// One JSON value, kept as the text it came in.
///
/// A clone shares the text. Two values are equal when their texts are: `1.0` and `1` differ, as do two objects whose keys stand in
/// another order. That is the equality a relay needs.
///
/// ```
/// use parlor_json::Json;
///
/// let json = Json::parse(r#"{"b":18446744073709551616,"a":1.50}"#).unwrap();
/// assert_eq!(json.as_str(), r#"{"b":18446744073709551616,"a":1.50}"#);
/// ```
#[derive(Clone)]
pub struct Json(Arc<RawValue>);

/// The text is not one JSON value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidJson(String);

/// What kind of value a JSON text is, told from its first byte.
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

impl Json {
    /// Checks that `text` is one JSON value and keeps it.
    pub fn parse(text: impl Into<String>) -> Result<Self, InvalidJson> {
        RawValue::from_string(text.into()).map(Self::from).map_err(|error| InvalidJson(error.to_string()))
    }

    /// The value `null`.
    pub fn null() -> Self {
        Self::from(RawValue::NULL)
    }

    /// The text of the value, as it came.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// The value as `serde_json` knows raw values.
    pub fn raw(&self) -> &RawValue {
        &self.0
    }

    /// What kind of value this is.
    pub fn type_of(&self) -> Type {
        type_of(&self.0)
    }

    /// Whether this is `null`.
    pub fn is_null(&self) -> bool {
        self.type_of() == Type::Null
    }
}

impl From<&RawValue> for Json {
    fn from(raw: &RawValue) -> Self {
        Self::from(raw.to_owned())
    }
}

impl From<&JsonStr> for Json {
    fn from(string: &JsonStr) -> Self {
        Self::parse(string.as_literal()).expect("a string literal is JSON")
    }
}

impl From<Box<RawValue>> for Json {
    fn from(raw: Box<RawValue>) -> Self {
        Self(raw.into())
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Json {}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self::from)
    }
}

impl fmt::Display for InvalidJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not JSON: {}", self.0)
    }
}

impl std::error::Error for InvalidJson {}

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

/// What kind of value a raw value is. Raw values are valid and start with no white space, so one byte tells.
pub fn type_of(raw: &RawValue) -> Type {
    match raw.get().as_bytes().first() {
        Some(b'{') => Type::Object,
        Some(b'[') => Type::Array,
        Some(b'"') => Type::String,
        Some(b't' | b'f') => Type::Bool,
        Some(b'n') | None => Type::Null,
        Some(_) => Type::Number,
    }
}

/// The elements of an array, each as it came, or `None` if the value is no array or has more than
/// [`MAX_ELEMENTS`] of them.
pub fn elements(raw: &RawValue) -> Option<Vec<&RawValue>> {
    if type_of(raw) != Type::Array {
        return None;
    }
    serde_json::from_str(raw.get()).ok().map(|Elements(elements)| elements)
}

struct Elements<'a>(Vec<&'a RawValue>);

impl<'de> Deserialize<'de> for Elements<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
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

        deserializer.deserialize_seq(InOrder)
    }
}

/// The text of a string, or `None` if the value is none. Half surrogate pairs show as U+FFFD.
pub fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    let inner = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    Some(Cow::Owned(JsonStr::from_raw(raw)?.to_text().into_owned()))
}

/// `text` as a JSON string literal, with its quotes.
pub fn string_literal(text: &str) -> String {
    serde_json::to_string(text).expect("a string is always JSON")
}
