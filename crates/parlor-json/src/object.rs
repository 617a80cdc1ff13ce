use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::{Json, JsonStr, MAX_DEPTH, Members, NotAnObject};

/// An object by itself: its members in order, each value as it came.
///
/// ```
/// use parlor_json::{Json, Object};
///
/// let object = |text: &str| Object::parse(Json::parse(text).unwrap().raw()).unwrap();
/// let mut stored = object(r#"{"a":{"x":1,"y":2},"b":3}"#);
///
/// let mut by_key = stored.clone();
/// by_key.merge_keys(&object(r#"{"a":{"y":null},"b":null}"#));
/// assert_eq!(by_key, object(r#"{"a":{"y":null}}"#));
///
/// stored.merge_deep(&object(r#"{"a":{"y":null},"b":null}"#));
/// assert_eq!(stored, object(r#"{"a":{"x":1}}"#));
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Object(Vec<(JsonStr, Json)>);

impl Object {
    /// Reads an object. Where a name stands twice, the last value counts.
    pub fn parse(raw: &RawValue) -> Result<Self, NotAnObject> {
        Ok(Self::from(&Members::of(raw)?))
    }

    /// The value of the member called `name`.
    pub fn get(&self, name: &str) -> Option<&Json> {
        self.0.iter().find(|(key, _)| *key == *name).map(|(_, value)| value)
    }

    /// The value of a member whose name may be one that Rust's strings cannot hold.
    pub fn get_key(&self, name: &JsonStr) -> Option<&Json> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Sets a member; one that is there keeps its place.
    pub fn set(&mut self, name: impl Into<JsonStr>, value: impl Into<Json>) {
        let (name, value) = (name.into(), value.into());
        match self.0.iter_mut().find(|(key, _)| *key == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }

    /// Takes the member called `name` out.
    pub fn remove(&mut self, name: &str) -> Option<Json> {
        let place = self.0.iter().position(|(key, _)| *key == *name)?;
        Some(self.0.remove(place).1)
    }

    /// Names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&JsonStr, &Json)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many bytes the object is as text.
    pub fn text_len(&self) -> usize {
        let members: usize =
            self.0.iter().map(|(key, value)| key.as_literal().len() + value.as_str().len() + 2).sum();
        (members + 1).max(2)
    }

    /// The object as text.
    pub fn to_json(&self) -> Json {
        let mut text = String::with_capacity(self.text_len());
        self.write_to(&mut text);
        Json::parse(text).expect("members are valid JSON, so the object is")
    }

    /// Adds the members of `other` whose names are not there yet.
    pub fn add_missing(&mut self, other: &Object) {
        let mut places = Places::of(self, other.0.len());
        for (name, value) in other.iter() {
            if places.find(&self.0, name).is_none() {
                places.push(&mut self.0, name.clone(), value.clone());
            }
        }
    }

    /// Applies a patch by top-level key: a null removes the key, any other value replaces it.
    pub fn merge_keys(&mut self, patch: &Object) {
        self.merge(patch, |_, new| new.clone());
    }

    /// Applies a patch recursively, as JSON Merge Patch (RFC 7386) says: a null removes the key, an object
    /// is merged into the object that is there, any other value replaces.
    pub fn merge_deep(&mut self, patch: &Object) {
        self.merge_to_depth(patch, MAX_DEPTH);
    }

    fn merge_to_depth(&mut self, patch: &Object, depth: usize) {
        self.merge(patch, |old, new| match Object::parse(new.raw()) {
            Ok(nested) if depth > 0 => {
                let mut target = old.and_then(|old| Object::parse(old.raw()).ok()).unwrap_or_default();
                target.merge_to_depth(&nested, depth - 1);
                target.to_json()
            }
            Ok(_) | Err(_) => new.clone(),
        });
    }

    /// Applies a patch: a null removes, and `value` makes the new value from the old and the patch's.
    fn merge(&mut self, patch: &Object, value: impl Fn(Option<&Json>, &Json) -> Json) {
        let mut places = Places::of(self, patch.0.len());
        let mut removed = false;
        for (name, new) in patch.iter() {
            match (places.find(&self.0, name), new.is_null()) {
                // Removed at the end, all at once; until then a null stands in the place.
                (Some(place), true) => {
                    self.0[place].1 = new.clone();
                    removed = true;
                }
                (None, true) => {}
                (Some(place), false) => self.0[place].1 = value(Some(&self.0[place].1), new),
                (None, false) => places.push(&mut self.0, name.clone(), value(None, new)),
            }
        }
        if removed {
            let gone: HashSet<_> =
                patch.iter().filter(|(_, new)| new.is_null()).map(|(name, _)| name).collect();
            self.0.retain(|(name, _)| !gone.contains(name));
        }
    }

    fn write_to(&self, text: &mut String) {
        text.push('{');
        for (place, (key, value)) in self.0.iter().enumerate() {
            if place > 0 {
                text.push(',');
            }
            text.push_str(key.as_literal());
            text.push(':');
            text.push_str(value.as_str());
        }
        text.push('}');
    }
}

impl From<&Members<'_>> for Object {
    fn from(members: &Members<'_>) -> Self {
        members.iter().map(|(name, value)| (name, value.into())).collect()
    }
}

impl FromIterator<(JsonStr, Json)> for Object {
    fn from_iter<I: IntoIterator<Item = (JsonStr, Json)>>(members: I) -> Self {
        let mut object = Self::default();
        let mut places = Places(None);
        for (name, value) in members {
            match places.find(&object.0, &name) {
                Some(place) => object.0[place].1 = value,
                None => places.push(&mut object.0, name, value),
            }
        }
        object
    }
}

/// Finds members by name: one after another while they are few, by a table once they are many. Without the
/// table, an object of 65,536 names would take seconds to read.
struct Places(Option<HashMap<JsonStr, usize>>);

impl Places {
    const FEW: usize = 32;

    /// For an object in which `count` names will be looked up.
    fn of(object: &Object, count: usize) -> Self {
        Self((object.0.len() > Self::FEW && count > 1).then(|| Self::table(&object.0)))
    }

    fn table(members: &[(JsonStr, Json)]) -> HashMap<JsonStr, usize> {
        members.iter().enumerate().map(|(place, (name, _))| (name.clone(), place)).collect()
    }

    fn find(&self, members: &[(JsonStr, Json)], name: &JsonStr) -> Option<usize> {
        match &self.0 {
            Some(table) => table.get(name).copied(),
            None => members.iter().position(|(key, _)| key == name),
        }
    }

    fn push(&mut self, members: &mut Vec<(JsonStr, Json)>, name: JsonStr, value: Json) {
        members.push((name.clone(), value));
        match &mut self.0 {
            Some(table) => drop(table.insert(name, members.len() - 1)),
            None if members.len() > Self::FEW => self.0 = Some(Self::table(members)),
            None => {}
        }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.write_to(&mut text);
        f.write_str(&text)
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(Json::deserialize(deserializer)?.raw()).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> Object {
        serde_json::from_str(text).unwrap()
    }

    /// The table in appendix A of RFC 7386, for the rows whose target and patch are objects.
    #[test]
    fn merge_deep_follows_rfc_7386() {
        for (target, patch, result) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
            ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        ] {
            let mut merged = object(target);
            merged.merge_deep(&object(patch));
            assert_eq!(merged, object(result), "{target} + {patch}");
        }
    }

    #[test]
    fn merging_keeps_numbers_order_and_places() {
        let mut stored = object(r#"{"big":123456789012345678901234567890,"a":{"n":1.0},"z":0}"#);
        stored.merge_deep(&object(r#"{"a":{"m":-0.0},"new":1e999}"#));
        assert_eq!(
            stored.to_json().as_str(),
            r#"{"big":123456789012345678901234567890,"a":{"n":1.0,"m":-0.0},"z":0,"new":1e999}"#
        );
    }

    #[test]
    fn text_len_is_the_length_of_the_text() {
        for text in ["{}", r#"{"a":1}"#, r#"{"a":1,"b":[2,3]}"#] {
            assert_eq!(object(text).text_len(), text.len());
            assert_eq!(object(text).to_json().as_str(), text);
        }
    }

    #[test]
    fn a_merge_deeper_than_the_limit_replaces() {
        let nest =
            |levels: usize, inner: &str| format!("{}{inner}{}", "{\"a\":".repeat(levels), "}".repeat(levels));
        for (levels, merged) in
            [(10, r#"{"x":1,"y":2}"#), (MAX_DEPTH, r#"{"x":1,"y":2}"#), (MAX_DEPTH + 1, r#"{"y":2}"#)]
        {
            let mut nested = object(&nest(levels, r#"{"x":1}"#));
            nested.merge_deep(&object(&nest(levels, r#"{"y":2}"#)));
            assert_eq!(nested, object(&nest(levels, merged)), "{levels} levels");
        }

        let mut deep = object(&nest(20_000, r#"{"x":1}"#));
        deep.merge_deep(&object(&nest(20_000, r#"{"y":2}"#)));
        assert_eq!(deep, object(&nest(20_000, r#"{"y":2}"#)));
    }
}
