use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::{ArrayWriter, InvalidJson, JsonRef, JsonStr, Object, Type, string_literal};

/// An owned JSON value, kept as the text in which it was received.
///
/// Clones share the text. Two values are equal if their texts are: `1.0` and `1` differ, and so do two objects
/// whose members are in a different order. A relay needs exactly this equality.
///
/// ```
/// use parlor_json::Json;
///
/// let json = Json::parse(r#"{"b":18446744073709551616,"a":1.50}"#).unwrap();
/// assert_eq!(json.as_str(), r#"{"b":18446744073709551616,"a":1.50}"#);
///
/// let array = Json::array(["a\n", "b"]);
/// assert_eq!(array.as_str(), r#"["a\n","b"]"#);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Json(Arc<str>);

impl Json {
    /// Checks that `text` is one JSON value and copies it without the white space around it.
    pub fn parse(text: impl AsRef<str>) -> Result<Self, InvalidJson> {
        JsonRef::parse(text.as_ref()).map(Self::from)
    }

    /// Copies text that is JSON by construction.
    pub(crate) fn from_valid(text: &str) -> Self {
        Self::from(JsonRef::from_valid(text))
    }

    /// Returns the value `null`.
    pub fn null() -> Self {
        Self::from(JsonRef::NULL)
    }

    /// Returns an array of values.
    pub fn array<T: Into<Json>>(values: impl IntoIterator<Item = T>) -> Self {
        let mut array = ArrayWriter::new();
        values.into_iter().for_each(|value| array.push(value.into().as_str()));
        array.into_json()
    }

    /// Returns the text of the value, as it was received.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Borrows the value.
    pub fn raw(&self) -> JsonRef<'_> {
        JsonRef(&self.0)
    }

    /// Returns the type of the value.
    pub fn type_of(&self) -> Type {
        self.raw().type_of()
    }

    /// Returns whether the value is `null`.
    pub fn is_null(&self) -> bool {
        self.raw().is_null()
    }

    /// See [`JsonRef::as_bool`].
    pub fn as_bool(&self) -> Option<bool> {
        self.raw().as_bool()
    }

    /// See [`JsonRef::as_u64`].
    pub fn as_u64(&self) -> Option<u64> {
        self.raw().as_u64()
    }

    /// See [`JsonRef::to_text`].
    pub fn to_text(&self) -> Option<Cow<'_, str>> {
        self.raw().to_text()
    }

    /// See [`JsonRef::to_json_str`].
    pub fn to_json_str(&self) -> Option<JsonStr> {
        self.raw().to_json_str()
    }

    /// See [`JsonRef::to_object`].
    pub fn to_object(&self) -> Option<Object> {
        self.raw().to_object()
    }

    /// See [`JsonRef::elements`].
    pub fn elements(&self) -> Option<Vec<JsonRef<'_>>> {
        self.raw().elements()
    }
}

/// The value `null`.
impl Default for Json {
    fn default() -> Self {
        Self::null()
    }
}

impl From<JsonRef<'_>> for Json {
    fn from(value: JsonRef<'_>) -> Self {
        Self(value.as_str().into())
    }
}

impl From<&Json> for Json {
    fn from(json: &Json) -> Self {
        json.clone()
    }
}

impl From<&JsonStr> for Json {
    fn from(string: &JsonStr) -> Self {
        Self::from_valid(string.as_literal())
    }
}

impl From<JsonStr> for Json {
    fn from(string: JsonStr) -> Self {
        Self::from(&string)
    }
}

/// Makes a JSON string; [`Json::parse`] reads JSON text.
impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::from_valid(&string_literal(text))
    }
}

/// Makes a JSON string; [`Json::parse`] reads JSON text.
impl From<&String> for Json {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

/// Makes a JSON string; [`Json::parse`] reads JSON text.
impl From<String> for Json {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<bool> for Json {
    fn from(value: bool) -> Self {
        Self::from_valid(if value { "true" } else { "false" })
    }
}

impl From<Object> for Json {
    fn from(object: Object) -> Self {
        object.to_json()
    }
}

macro_rules! from_integer {
    ($($integer:ty),*) => {$(
        impl From<$integer> for Json {
            fn from(value: $integer) -> Self {
                Self::from_valid(&value.to_string())
            }
        }
    )*};
}

from_integer!(u16, u32, u64, usize, i32, i64);

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.raw().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(|raw| Self::from(JsonRef::from(&*raw)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_built_as_valid_json() {
        for (json, text) in [
            (Json::null(), "null"),
            (Json::default(), "null"),
            (Json::from("a\"\n\u{1}é"), r#""a\"\n\u0001é""#),
            (Json::from(String::new()), r#""""#),
            (Json::from(&JsonStr::from_literal(r#""\ud800""#).unwrap()), r#""\ud800""#),
            (Json::from(false), "false"),
            (Json::from(u64::MAX), "18446744073709551615"),
            (Json::from(i64::MIN), "-9223372036854775808"),
            (Json::from(Object::default()), "{}"),
            (Json::array::<Json>([]), "[]"),
            (Json::array([&Json::null(), &Json::from(1_u64)]), "[null,1]"),
            (Json::array([Object::new().with("a", true)]), r#"[{"a":true}]"#),
        ] {
            assert_eq!(json.as_str(), text);
            assert_eq!(Json::parse(text), Ok(json), "{text}");
        }
    }

    #[test]
    fn text_that_is_not_one_value_is_rejected() {
        let error = Json::parse("{\"a\"}").unwrap_err();
        assert!(error.to_string().starts_with("not JSON: expected `:`"), "{error}");
        assert!(Json::parse("1 2").is_err());
        assert_eq!(Json::parse(" [1] ").unwrap().as_str(), "[1]");
    }

    #[test]
    fn serde_reads_and_writes_the_text_as_it_is() {
        let text = r#"[{"b":1.50,"a":1e400}]"#;
        let values: Vec<Json> = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&values).unwrap(), text);
    }
}
