use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Json, JsonRef, JsonStr, MAX_DEPTH, Members, NotAnObject};

/// An owned object: its members in order, each value as it was received.
///
/// ```
/// use parlor_json::Object;
///
/// let object = Object::new().with("name", "a").with("size", 5_u64);
/// assert_eq!(object.get_str("name").as_deref(), Some("a"));
/// assert_eq!(object.get_u64("size"), Some(5));
/// assert_eq!(object.get_bool("size"), None);
/// assert_eq!(object.to_json().as_str(), r#"{"name":"a","size":5}"#);
/// ```
///
/// Metadata is merged by one of two rules:
///
/// ```
/// use parlor_json::{Json, Object};
///
/// let object = |text: &str| Json::parse(text).unwrap().to_object().unwrap();
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
    /// Returns an object without members.
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses an object; of duplicate names the last value is kept.
    pub fn parse(raw: JsonRef<'_>) -> Result<Self, NotAnObject> {
        Ok(Self::from(&Members::of(raw)?))
    }

    /// Returns the value of the member `name`.
    pub fn get(&self, name: &str) -> Option<&Json> {
        self.0.iter().find(|(key, _)| *key == *name).map(|(_, value)| value)
    }

    /// Returns the value of a member whose name may have unpaired surrogates.
    pub fn get_key(&self, name: &JsonStr) -> Option<&Json> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Returns a member that is a string, with U+FFFD for each unpaired surrogate.
    pub fn get_str(&self, name: &str) -> Option<Cow<'_, str>> {
        self.get(name)?.to_text()
    }

    /// Returns a member that is a string as [`get_str`](Object::get_str) does, owned.
    pub fn get_string(&self, name: &str) -> Option<String> {
        self.get_str(name).map(Cow::into_owned)
    }

    /// Returns a member that is a string, without loss.
    pub fn get_json_str(&self, name: &str) -> Option<JsonStr> {
        self.get(name)?.to_json_str()
    }

    /// Returns a member that is a number written as an integer, if it fits.
    pub fn get_u64(&self, name: &str) -> Option<u64> {
        self.get(name)?.as_u64()
    }

    /// Returns a member that is `true` or `false`.
    pub fn get_bool(&self, name: &str) -> Option<bool> {
        self.get(name)?.as_bool()
    }

    /// Returns a member that is an object.
    pub fn get_object(&self, name: &str) -> Option<Object> {
        self.get(name)?.to_object()
    }

    /// Returns the elements of a member that is an array.
    pub fn get_array(&self, name: &str) -> Option<Vec<JsonRef<'_>>> {
        self.get(name)?.elements()
    }

    /// Sets a member and returns the object, to build one in a single expression.
    #[must_use]
    pub fn with(mut self, name: impl Into<JsonStr>, value: impl Into<Json>) -> Self {
        self.set(name, value);
        self
    }

    /// Sets a member; an existing one keeps its position.
    pub fn set(&mut self, name: impl Into<JsonStr>, value: impl Into<Json>) {
        let (name, value) = (name.into(), value.into());
        match self.0.iter_mut().find(|(key, _)| *key == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }

    /// Removes the member `name` and returns its value.
    pub fn remove(&mut self, name: &str) -> Option<Json> {
        let index = self.0.iter().position(|(key, _)| *key == *name)?;
        Some(self.0.remove(index).1)
    }

    /// Returns a member of the member `name`, which must be an object.
    pub fn get_nested(&self, name: &str, key: &str) -> Option<Json> {
        Members::of(self.get(name)?.raw()).ok()?.get(key).map(Json::from)
    }

    /// Sets a member of the member `name`, which becomes an object if it is not one.
    pub fn set_nested(&mut self, name: &str, key: &str, value: impl Into<Json>) {
        self.set(name, self.get_object(name).unwrap_or_default().with(key, value));
    }

    /// Removes a member of the member `name`, and the member `name` if it is empty then.
    pub fn remove_nested(&mut self, name: &str, key: &str) -> Option<Json> {
        let mut nested = self.get_object(name)?;
        let value = nested.remove(key)?;
        if nested.is_empty() {
            self.remove(name);
        } else {
            self.set(name, nested);
        }
        Some(value)
    }

    /// Iterates over names and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&JsonStr, &Json)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// Returns whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the length of the object's text in bytes.
    pub fn text_len(&self) -> usize {
        let members: usize =
            self.0.iter().map(|(key, value)| key.as_literal().len() + value.as_str().len() + 2).sum();
        (members + 1).max(2)
    }

    /// Returns the object's text.
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(self.text_len());
        text.push('{');
        for (index, (key, value)) in self.0.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            text.push_str(key.as_literal());
            text.push(':');
            text.push_str(value.as_str());
        }
        text.push('}');
        text
    }

    /// Returns the object as a value.
    pub fn to_json(&self) -> Json {
        Json::from_valid(&self.text())
    }

    /// Adds the members of `other` whose names the object does not have.
    pub fn add_missing(&mut self, other: &Object) {
        let mut names = NameIndex::new(self, other.0.len());
        for (name, value) in other.iter() {
            if names.find(&self.0, name).is_none() {
                names.push(&mut self.0, name.clone(), value.clone());
            }
        }
    }

    /// Applies a patch by top-level name: null removes the member, any other value replaces it.
    pub fn merge_keys(&mut self, patch: &Object) {
        self.merge(patch, |_, new| new.clone());
    }

    /// Applies a patch recursively as JSON Merge Patch (RFC 7386): null removes the member, an object is merged into
    /// the existing one, any other value replaces it.
    pub fn merge_deep(&mut self, patch: &Object) {
        self.merge_to_depth(patch, MAX_DEPTH);
    }

    fn merge_to_depth(&mut self, patch: &Object, depth: usize) {
        self.merge(patch, |old, new| match new.to_object() {
            Some(nested) if depth > 0 => {
                let mut target = old.and_then(Json::to_object).unwrap_or_default();
                target.merge_to_depth(&nested, depth - 1);
                target.to_json()
            }
            Some(_) | None => new.clone(),
        });
    }

    /// Applies a patch: null removes a member, and `value` computes each new value from the old one and the patch's.
    fn merge(&mut self, patch: &Object, value: impl Fn(Option<&Json>, &Json) -> Json) {
        let mut names = NameIndex::new(self, patch.0.len());
        let mut removed = false;
        for (name, new) in patch.iter() {
            match (names.find(&self.0, name), new.is_null()) {
                // All are removed at the end in one pass; until then the value is null.
                (Some(index), true) => {
                    self.0[index].1 = new.clone();
                    removed = true;
                }
                (None, true) => {}
                (Some(index), false) => self.0[index].1 = value(Some(&self.0[index].1), new),
                (None, false) => names.push(&mut self.0, name.clone(), value(None, new)),
            }
        }
        if removed {
            let nulls: HashSet<_> =
                patch.iter().filter(|(_, new)| new.is_null()).map(|(name, _)| name).collect();
            self.0.retain(|(name, _)| !nulls.contains(name));
        }
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
        let mut names = NameIndex(None);
        for (name, value) in members {
            match names.find(&object.0, &name) {
                Some(index) => object.0[index].1 = value,
                None => names.push(&mut object.0, name, value),
            }
        }
        object
    }
}

/// Finds the index of a member by its name: by a scan of few members, by a hash table of many.
///
/// Without the table, parsing an object with 65,536 names would take seconds.
struct NameIndex(Option<HashMap<JsonStr, usize>>);

impl NameIndex {
    /// The most members that are scanned.
    const MAX_SCAN: usize = 32;

    /// Prepares `count` lookups in an object.
    fn new(object: &Object, count: usize) -> Self {
        Self((object.0.len() > Self::MAX_SCAN && count > 1).then(|| Self::table(&object.0)))
    }

    fn table(members: &[(JsonStr, Json)]) -> HashMap<JsonStr, usize> {
        members.iter().enumerate().map(|(index, (name, _))| (name.clone(), index)).collect()
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
            None if members.len() > Self::MAX_SCAN => self.0 = Some(Self::table(members)),
            None => {}
        }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
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
    fn merging_keeps_numbers_and_the_order_of_members() {
        let mut stored = object(r#"{"big":123456789012345678901234567890,"a":{"n":1.0},"z":0}"#);
        stored.merge_deep(&object(r#"{"a":{"m":-0.0},"new":1e999}"#));
        assert_eq!(
            stored.to_json().as_str(),
            r#"{"big":123456789012345678901234567890,"a":{"n":1.0,"m":-0.0},"z":0,"new":1e999}"#
        );
    }

    #[test]
    fn getters_return_members_of_their_type() {
        let object = object(r#"{"s":"\ud800a","n":7,"b":false,"o":{"x":1},"a":[1,2.0],"null":null}"#);
        assert_eq!(object.get_str("s").as_deref(), Some("\u{fffd}a"));
        assert_eq!(object.get_string("s").as_deref(), Some("\u{fffd}a"));
        assert_eq!(object.get_json_str("s").unwrap().as_literal(), r#""\ud800a""#);
        assert_eq!(object.get_u64("n"), Some(7));
        assert_eq!(object.get_bool("b"), Some(false));
        assert_eq!(object.get_object("o").unwrap().get_u64("x"), Some(1));
        let elements = object.get_array("a").unwrap();
        assert_eq!(elements.iter().map(|element| element.as_str()).collect::<Vec<_>>(), ["1", "2.0"]);
        for name in ["n", "b", "o", "a", "null", "missing"] {
            assert_eq!(object.get_str(name), None, "{name}");
            assert_eq!(object.get_json_str(name), None, "{name}");
        }
        for name in ["s", "null", "missing"] {
            assert_eq!(object.get_u64(name), None, "{name}");
            assert_eq!(object.get_bool(name), None, "{name}");
            assert_eq!(object.get_object(name), None, "{name}");
            assert_eq!(object.get_array(name), None, "{name}");
        }
    }

    #[test]
    fn setting_an_existing_member_keeps_its_position() {
        let object = Object::new().with("a", 1_u64).with("b", true).with("a", "x").with("c", Object::new());
        assert_eq!(object.to_json().as_str(), r#"{"a":"x","b":true,"c":{}}"#);
    }

    #[test]
    fn nested_members_are_read_set_and_removed() {
        let mut holder = object(r#"{"a":1,"_meta":{"x":1.0},"b":7}"#);
        assert_eq!(holder.get_nested("_meta", "x").unwrap().as_str(), "1.0");
        assert_eq!(holder.get_nested("_meta", "y"), None);
        assert_eq!(holder.get_nested("a", "x"), None);

        holder.set_nested("_meta", "y", true);
        holder.set_nested("b", "z", "text");
        let text = r#"{"a":1,"_meta":{"x":1.0,"y":true},"b":{"z":"text"}}"#;
        assert_eq!(holder.to_json().as_str(), text);

        assert_eq!(holder.remove_nested("_meta", "z"), None);
        assert_eq!(holder.remove_nested("a", "x"), None);
        assert_eq!(holder.remove_nested("missing", "x"), None);
        assert_eq!(holder.remove_nested("_meta", "x").unwrap().as_str(), "1.0");
        assert_eq!(holder.remove_nested("b", "z").unwrap().as_str(), r#""text""#);
        assert_eq!(holder.to_json().as_str(), r#"{"a":1,"_meta":{"y":true}}"#);
    }

    #[test]
    fn text_len_is_the_length_of_the_text() {
        for text in ["{}", r#"{"a":1}"#, r#"{"a":1,"b":[2,3]}"#] {
            assert_eq!(object(text).text_len(), text.len());
            assert_eq!(object(text).text(), text);
        }
    }

    #[test]
    fn a_merge_below_the_depth_limit_replaces_the_value() {
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
