use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use parlor_json::{Json, JsonRef, Type};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The id of a JSON-RPC request, kept as the literal in which it was received.
///
/// A response carries the id exactly as the request did. Two ids are equal if their values are: a peer may write
/// `"a"` in a request and `"\u0061"` in its cancellation. A string never equals a number.
///
/// ```
/// use parlor_wire::RequestId;
///
/// let escaped: RequestId = serde_json::from_str(r#""\u0061""#).unwrap();
/// assert_eq!(escaped, RequestId::from("a"));
/// assert_eq!(escaped.as_literal(), r#""\u0061""#);
/// assert_ne!(RequestId::from(1), RequestId::from("1"));
/// ```
#[derive(Clone)]
pub struct RequestId(Json);

/// The error for a value that cannot be the id of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidId {
    /// The value is a boolean, an array or an object.
    #[error("the id must be a string, an integer or null, and is {0}")]
    Type(Type),
    /// The value is a number with a fraction or an exponent, which many peers do not return unchanged.
    #[error("the id is a number with a fraction or an exponent")]
    NotAnInteger,
    /// The value is an integer below `i64::MIN` or above `u64::MAX`.
    #[error("the id is an integer that does not fit into 64 bits")]
    OutOfRange,
}

impl RequestId {
    /// Returns the id `null`, for the response to a message whose id could not be read.
    pub fn null() -> Self {
        Self(Json::null())
    }

    /// Reads an id and keeps its literal.
    pub fn from_raw(raw: JsonRef<'_>) -> Result<Self, InvalidId> {
        let literal = raw.as_str();
        match raw.type_of() {
            Type::Null | Type::String => Ok(Self(raw.into())),
            Type::Number if literal.contains(['.', 'e', 'E']) => Err(InvalidId::NotAnInteger),
            Type::Number if literal.parse::<u64>().is_ok() || literal.parse::<i64>().is_ok() => {
                Ok(Self(raw.into()))
            }
            Type::Number => Err(InvalidId::OutOfRange),
            other @ (Type::Bool | Type::Array | Type::Object) => Err(InvalidId::Type(other)),
        }
    }

    /// Returns the id as it was received, which is valid JSON.
    pub fn as_literal(&self) -> &str {
        self.0.as_str()
    }

    /// Returns the id as a JSON value.
    pub fn to_json(&self) -> Json {
        self.0.clone()
    }

    /// Returns the id if it is an integer that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        self.canonical().parse().ok()
    }

    /// Returns whether the id is `null`.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Returns the literal that all equal ids have in common.
    fn canonical(&self) -> Cow<'_, str> {
        // Only zero has two integer literals in JSON, and only strings with escapes have several literals.
        if self.as_literal() == "-0" {
            return Cow::Borrowed("0");
        }
        if !self.as_literal().contains('\\') {
            return Cow::Borrowed(self.as_literal());
        }
        match self.0.to_json_str() {
            Some(string) => Cow::Owned(string.as_literal().to_owned()),
            None => Cow::Borrowed(self.as_literal()),
        }
    }
}

impl From<u64> for RequestId {
    fn from(number: u64) -> Self {
        Self(number.into())
    }
}

impl From<&str> for RequestId {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl PartialEq for RequestId {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0 || self.canonical() == other.canonical()
    }
}

impl Eq for RequestId {}

impl Hash for RequestId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.canonical().hash(state);
    }
}

/// An unspecified total order that agrees with equality, for ordered maps.
impl Ord for RequestId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.canonical().cmp(&other.canonical())
    }
}

impl PartialOrd for RequestId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_literal())
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_literal())
    }
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_raw(Json::deserialize(deserializer)?.raw()).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashSet};

    use super::*;

    fn read(literal: &str) -> Result<RequestId, InvalidId> {
        RequestId::from_raw(serde_json::from_str(literal).unwrap())
    }

    #[test]
    fn literals_are_kept_unchanged() {
        for literal in [
            "null",
            "0",
            "-0",
            "-1",
            "18446744073709551615",
            "-9223372036854775808",
            r#""""#,
            r#""9e107d9d-372b""#,
            r#""\u0061\/\ud800""#,
            r#""é""#,
        ] {
            let id = read(literal).unwrap();
            assert_eq!(id.as_literal(), literal);
            assert_eq!(id.to_string(), literal);
            assert_eq!(serde_json::to_string(&id).unwrap(), literal);
            assert_eq!(serde_json::from_str::<RequestId>(literal).unwrap(), id);
        }
    }

    #[test]
    fn values_that_cannot_be_ids_are_rejected() {
        for (literal, error) in [
            ("1.0", InvalidId::NotAnInteger),
            ("1e3", InvalidId::NotAnInteger),
            ("1E3", InvalidId::NotAnInteger),
            ("18446744073709551616", InvalidId::OutOfRange),
            ("-9223372036854775809", InvalidId::OutOfRange),
            ("true", InvalidId::Type(Type::Bool)),
            ("[1]", InvalidId::Type(Type::Array)),
            ("{}", InvalidId::Type(Type::Object)),
        ] {
            assert_eq!(read(literal), Err(error), "{literal}");
            assert!(serde_json::from_str::<RequestId>(literal).is_err());
        }
    }

    #[test]
    fn ids_compare_by_value() {
        let same = [("1", "1"), ("0", "-0"), (r#""a/""#, r#""\u0061\/""#), (r#""\ud83d\uDE00""#, r#""😀""#)];
        for (left, right) in same {
            let (left, right) = (read(left).unwrap(), read(right).unwrap());
            assert_eq!(left, right);
            assert_eq!(
                HashSet::from([left.clone()]).len(),
                HashSet::from([left.clone(), right.clone()]).len()
            );
            assert_eq!(BTreeSet::from([left, right]).len(), 1);
        }
        let different =
            [("1", r#""1""#), ("null", r#""null""#), ("1", "-1"), (r#""\ud83d""#, r#""\\ud83d""#)];
        for (left, right) in different {
            assert_ne!(read(left).unwrap(), read(right).unwrap());
        }
    }

    #[test]
    fn as_u64_returns_integers_that_are_not_negative() {
        for (literal, number) in [
            ("7", Some(7)),
            ("18446744073709551615", Some(u64::MAX)),
            ("-0", Some(0)),
            ("-1", None),
            (r#""7""#, None),
            ("null", None),
        ] {
            assert_eq!(read(literal).unwrap().as_u64(), number, "{literal}");
        }
        assert_eq!(RequestId::from(7).as_literal(), "7");
        assert_eq!(RequestId::from("a\"b").as_literal(), r#""a\"b""#);
        assert!(RequestId::null().is_null() && !RequestId::from("null").is_null());
    }
}
