//! Writes JSON objects member by member.

use parlor_json::{Json, Object, string_literal};

/// A JSON object that is being written.
pub(crate) struct ObjectWriter(String);

impl ObjectWriter {
    pub(crate) fn new() -> Self {
        Self(String::from("{"))
    }

    /// The beginning of a session update of this kind.
    pub(crate) fn update(kind: &str) -> Self {
        Self::new().str("sessionUpdate", kind)
    }

    pub(crate) fn str(self, name: &str, value: &str) -> Self {
        self.raw(name, &string_literal(value))
    }

    pub(crate) fn optional_str(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.str(name, value),
            None => self,
        }
    }

    pub(crate) fn number(self, name: &str, value: impl Into<i128>) -> Self {
        self.raw(name, &value.into().to_string())
    }

    /// Adds a member whose value is JSON.
    pub(crate) fn raw(self, name: &str, value: &str) -> Self {
        self.literal(&string_literal(name), value)
    }

    /// Adds the members of an object.
    pub(crate) fn extend(self, members: &Object) -> Self {
        members.iter().fold(self, |writer, (name, value)| writer.literal(name.as_literal(), value.as_str()))
    }

    fn literal(mut self, name: &str, value: &str) -> Self {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(name);
        self.0.push(':');
        self.0.push_str(value);
        self
    }

    pub(crate) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }

    pub(crate) fn into_json(self) -> Json {
        Json::parse(self.end()).expect("members are JSON")
    }
}

/// Writes an array of JSON values.
pub(crate) fn array<T: AsRef<str>>(values: impl IntoIterator<Item = T>) -> String {
    let mut array = String::from("[");
    for value in values {
        if array.len() > 1 {
            array.push(',');
        }
        array.push_str(value.as_ref());
    }
    array.push(']');
    array
}
