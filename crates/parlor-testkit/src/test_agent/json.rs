//! Writing and reading the little JSON that an agent needs.

use parlor_json::{Json, Object, string_literal};

/// An object that is being written, member by member in the order they are given.
pub(super) struct Text(String);

impl Text {
    /// `{`
    pub(super) fn new() -> Self {
        Self(String::from("{"))
    }

    /// Adds a member whose value is JSON.
    pub(super) fn raw(mut self, name: &str, json: &str) -> Self {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(&string_literal(name));
        self.0.push(':');
        self.0.push_str(json);
        self
    }

    /// Adds a member whose value is a string.
    pub(super) fn str(self, name: &str, text: &str) -> Self {
        let literal = string_literal(text);
        self.raw(name, &literal)
    }

    /// Adds a member whose value is a whole number.
    pub(super) fn int(self, name: &str, number: u64) -> Self {
        self.raw(name, &number.to_string())
    }

    /// Adds a member if there is a value.
    pub(super) fn maybe(self, name: &str, text: Option<&str>) -> Self {
        match text {
            Some(text) => self.str(name, text),
            None => self,
        }
    }

    /// Adds a member that is an empty object, if `is_there`.
    pub(super) fn mark(self, name: &str, is_there: bool) -> Self {
        if is_there { self.raw(name, "{}") } else { self }
    }

    /// `}`
    pub(super) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// A list of JSON texts.
pub(super) fn list<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.as_ref().to_owned()).collect();
    format!("[{}]", items.join(","))
}

/// A text that this agent wrote, as a value.
pub(super) fn value(text: String) -> Json {
    Json::parse(text).expect("the agent writes valid JSON")
}

/// The member called `name`, if it is a string.
pub(super) fn text(object: &Object, name: &str) -> Option<String> {
    object.get_string(name)
}

/// The member called `name`, if it is an object.
pub(super) fn object(object: &Object, name: &str) -> Option<Object> {
    Object::parse(object.get(name)?.raw()).ok()
}

/// The elements of the member called `name`, if it is an array.
pub(super) fn array(object: &Object, name: &str) -> Option<Vec<Json>> {
    let elements = object.get_array(name)?;
    Some(elements.into_iter().map(Json::from).collect())
}
