use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::string::Units;
use crate::{JsonStr, MAX_MEMBERS, Type, Unit, type_of};

/// The members of an object in their order, borrowed from the text they were read from.
///
/// Reading them is one pass over the text; the values are not looked into. A name that stands twice is
/// listed twice, and [`get`](Members::get) answers with the last one, as most parsers would.
#[derive(Debug, Clone, Default)]
pub struct Members<'a>(Vec<(&'a RawValue, &'a RawValue)>);

/// Why a value's members cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAnObject {
    /// It is of another type.
    Other(Type),
    /// It is an object with more than [`MAX_MEMBERS`] members.
    TooManyMembers,
}

impl<'a> Members<'a> {
    /// The members of an object's text; `None` if it is no object.
    pub fn parse(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The members of a raw value.
    pub fn of(raw: &'a RawValue) -> Result<Self, NotAnObject> {
        let type_ = type_of(raw);
        if type_ != Type::Object {
            return Err(NotAnObject::Other(type_));
        }
        // The text is valid and an object, so nothing but its size can be wrong.
        serde_json::from_str(raw.get()).map_err(|_| NotAnObject::TooManyMembers)
    }

    /// The value of the member called `name`.
    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().rev().find(|(key, _)| is_named(key, name)).map(|(_, value)| *value)
    }

    /// Takes the member called `name` out.
    pub fn take(&mut self, name: &str) -> Option<&'a RawValue> {
        let found = self.get(name);
        if found.is_some() {
            self.0.retain(|(key, _)| !is_named(key, name));
        }
        found
    }

    /// Names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (JsonStr, &'a RawValue)> + '_ {
        self.0.iter().map(|(key, value)| (JsonStr::from_raw(key).expect("a name is a string"), *value))
    }

    /// The literals of the names and the values, in order.
    pub fn raw(&self) -> &[(&'a RawValue, &'a RawValue)] {
        &self.0
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the object is `{}`.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Whether a name's literal spells `name`.
pub(crate) fn is_named(literal: &RawValue, name: &str) -> bool {
    let literal = literal.get();
    if memchr::memchr(b'\\', literal.as_bytes()).is_none() {
        return literal.len() == name.len() + 2 && &literal[1..=name.len()] == name;
    }
    Units::of_literal(literal).eq(name.chars().map(Unit::Char))
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
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

        deserializer.deserialize_map(InOrder)
    }
}

impl fmt::Display for NotAnObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other(found) => write!(f, "expected an object, found {found}"),
            Self::TooManyMembers => write!(f, "the object has more than {MAX_MEMBERS} members"),
        }
    }
}

impl std::error::Error for NotAnObject {}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(text: &str) -> Members<'_> {
        Members::of(serde_json::from_str(text).unwrap()).unwrap()
    }

    #[test]
    fn members_keep_order_numbers_and_odd_names() {
        let text = r#"{"z":1e400,"a":{"deep":[1,2]},"\u0062":null,"\ud800":0}"#;
        let members = members(text);
        let listed: Vec<_> = members.raw().iter().map(|(key, value)| (key.get(), value.get())).collect();
        assert_eq!(
            listed,
            [
                ("\"z\"", "1e400"),
                ("\"a\"", r#"{"deep":[1,2]}"#),
                (r#""\u0062""#, "null"),
                (r#""\ud800""#, "0")
            ]
        );
        assert_eq!(members.get("b").unwrap().get(), "null");
        assert!(members.get("c").is_none());
        assert!(members.get("\\u0062").is_none(), "a literal is no name");
    }

    #[test]
    fn a_name_that_stands_twice_answers_with_the_last() {
        let mut members = members(r#"{"a":1,"b":2,"\u0061":3}"#);
        assert_eq!(members.get("a").unwrap().get(), "3");
        assert_eq!(members.take("a").unwrap().get(), "3");
        assert_eq!(members.len(), 1);
        assert!(members.take("a").is_none());
    }

    #[test]
    fn other_values_are_refused_by_their_type() {
        let raw: &RawValue = serde_json::from_str("[1]").unwrap();
        assert_eq!(Members::of(raw).unwrap_err(), NotAnObject::Other(Type::Array));
    }

    #[test]
    fn an_object_of_too_many_members_is_refused_before_it_costs_memory() {
        let object = |count: usize| format!("{{{}}}", vec!["\"\":0"; count].join(","));
        let (fits, too_many) = (object(MAX_MEMBERS), object(MAX_MEMBERS + 1));
        assert_eq!(members(&fits).len(), MAX_MEMBERS);
        let refused = Members::of(serde_json::from_str(&too_many).unwrap()).unwrap_err();
        assert_eq!(refused.to_string(), "the object has more than 65536 members");
    }

    #[test]
    fn depth_is_no_danger() {
        let text = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(members(&text).len(), 1);
    }
}
