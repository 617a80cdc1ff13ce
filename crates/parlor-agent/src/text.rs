//! Writing JSON objects member by member.

use parlor_json::string_literal;

/// An object that is being written.
pub(crate) struct Text(String);

impl Text {
    pub(crate) fn new() -> Self {
        Self(String::from("{"))
    }

    /// An update of a session, to be continued.
    pub(crate) fn update(kind: &str) -> Self {
        Self::new().str("sessionUpdate", kind)
    }

    pub(crate) fn str(self, name: &str, value: &str) -> Self {
        self.raw(name, &string_literal(value))
    }

    pub(crate) fn maybe(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.str(name, value),
            None => self,
        }
    }

    /// A member whose value is JSON already.
    pub(crate) fn raw(mut self, name: &str, value: &str) -> Self {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(&string_literal(name));
        self.0.push(':');
        self.0.push_str(value);
        self
    }

    pub(crate) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// A list of values that are JSON already.
pub(crate) fn list(values: &[String]) -> String {
    format!("[{}]", values.join(","))
}

/// A content block of words.
pub(crate) fn words(text: &str) -> String {
    Text::new().str("type", "text").str("text", text).end()
}
