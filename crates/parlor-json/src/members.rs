use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use crate::{CodePoint, CodePoints, JsonRef, JsonStr, MAX_MEMBERS, Type};

/// The members of an object in order, borrowed from its text.
///
/// Parsing is one pass over the text that does not parse nested values. A duplicate name is listed each time, and
/// [`get`](Members::get) returns its last value, as most parsers do.
#[derive(Debug, Clone, Default)]
pub struct Members<'a>(Vec<(JsonRef<'a>, JsonRef<'a>)>);

/// The error for a value whose members cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAnObject {
    /// The value is of this other type.
    #[error("expected an object, found {0}")]
    WrongType(Type),
    /// The value is an object with more than [`MAX_MEMBERS`] members.
    #[error("the object has more than {MAX_MEMBERS} members")]
    TooManyMembers,
}

impl<'a> Members<'a> {
    /// Parses the text of an object; returns `None` for any other text.
    pub fn parse(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns the members of an object.
    pub fn of(raw: JsonRef<'a>) -> Result<Self, NotAnObject> {
        let type_ = raw.type_of();
        if type_ != Type::Object {
            return Err(NotAnObject::WrongType(type_));
        }
        // The text is a valid object, so only its size can be wrong.
        serde_json::from_str(raw.as_str()).map_err(|_| NotAnObject::TooManyMembers)
    }

    /// Returns the value of the member `name`.
    pub fn get(&self, name: &str) -> Option<JsonRef<'a>> {
        self.0.iter().rev().find(|(key, _)| is_named(*key, name)).map(|(_, value)| *value)
    }

    /// Returns a member that is a string, with U+FFFD for each unpaired surrogate.
    pub fn get_str(&self, name: &str) -> Option<Cow<'a, str>> {
        self.get(name)?.to_text()
    }

    /// Returns a member that is a string as [`get_str`](Members::get_str) does, owned.
    pub fn get_string(&self, name: &str) -> Option<String> {
        self.get_str(name).map(Cow::into_owned)
    }

    /// Returns the elements of a member that is an array.
    pub fn get_array(&self, name: &str) -> Option<Vec<JsonRef<'a>>> {
        self.get(name)?.elements()
    }

    /// Removes the member `name` and returns its value.
    pub fn take(&mut self, name: &str) -> Option<JsonRef<'a>> {
        let found = self.get(name);
        if found.is_some() {
            self.0.retain(|(key, _)| !is_named(*key, name));
        }
        found
    }

    /// Iterates over names and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (JsonStr, JsonRef<'a>)> + '_ {
        self.0.iter().map(|(key, value)| (JsonStr::from_raw(*key).expect("a name is a string"), *value))
    }

    /// Returns the literals of the names and the values, in order.
    pub fn raw(&self) -> &[(JsonRef<'a>, JsonRef<'a>)] {
        &self.0
    }

    /// Returns the number of members, with duplicates.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns whether the literal of a name encodes `name`.
fn is_named(literal: JsonRef<'_>, name: &str) -> bool {
    let literal = literal.as_str();
    if memchr::memchr(b'\\', literal.as_bytes()).is_none() {
        return literal.len() == name.len() + 2 && &literal[1..=name.len()] == name;
    }
    CodePoints::of_literal(literal).eq(name.chars().map(CodePoint::Char))
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;

        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::with_capacity(8);
                while let Some(member) = map.next_entry()? {
                    if members.len() == MAX_MEMBERS {
                        return Err(A::Error::custom(format_args!("more than {MAX_MEMBERS} members")));
                    }
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(MembersVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(text: &str) -> Members<'_> {
        Members::of(serde_json::from_str(text).unwrap()).unwrap()
    }

    #[test]
    fn members_keep_their_order_numbers_and_unpaired_surrogates() {
        let text = r#"{"z":1e400,"a":{"deep":[1,2]},"\u0062":null,"\ud800":0}"#;
        let members = members(text);
        let listed: Vec<_> =
            members.raw().iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(
            listed,
            [
                ("\"z\"", "1e400"),
                ("\"a\"", r#"{"deep":[1,2]}"#),
                (r#""\u0062""#, "null"),
                (r#""\ud800""#, "0")
            ]
        );
        assert_eq!(members.get("b").unwrap().as_str(), "null");
        assert_eq!(members.get_str("b"), None);
        assert_eq!(members.get_array("z"), None);
        assert!(members.get("c").is_none());
        assert!(members.get("\\u0062").is_none(), "names are compared decoded");
    }

    #[test]
    fn get_returns_the_last_value_of_a_duplicate_name() {
        let mut members = members(r#"{"a":1,"b":2,"\u0061":3}"#);
        assert_eq!(members.get("a").unwrap().as_str(), "3");
        assert_eq!(members.take("a").unwrap().as_str(), "3");
        assert_eq!(members.len(), 1);
        assert!(members.take("a").is_none());
    }

    #[test]
    fn values_of_other_types_are_rejected() {
        let error = Members::of(JsonRef::parse("[1]").unwrap()).unwrap_err();
        assert_eq!(error, NotAnObject::WrongType(Type::Array));
        assert_eq!(error.to_string(), "expected an object, found an array");
    }

    #[test]
    fn an_object_with_too_many_members_is_rejected() {
        let object = |count: usize| format!("{{{}}}", vec!["\"\":0"; count].join(","));
        let (fits, too_many) = (object(MAX_MEMBERS), object(MAX_MEMBERS + 1));
        assert_eq!(members(&fits).len(), MAX_MEMBERS);
        let error = Members::of(serde_json::from_str(&too_many).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "the object has more than 65536 members");
    }

    #[test]
    fn deeply_nested_values_do_not_overflow_the_stack() {
        let text = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(members(&text).len(), 1);
    }
}
