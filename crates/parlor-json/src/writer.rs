use crate::{Json, JsonStr, Object, string_literal};

/// Writes the text of an object member by member.
///
/// Values are appended as they are, so the caller must pass valid JSON and each name only once.
///
/// ```
/// use parlor_json::ObjectWriter;
///
/// let block = ObjectWriter::new().str("type", "text").str("text", "hello").u64("size", 5).finish();
/// assert_eq!(block, r#"{"type":"text","text":"hello","size":5}"#);
/// ```
#[derive(Debug, Clone)]
pub struct ObjectWriter(String);

impl ObjectWriter {
    /// Starts an object.
    pub fn new() -> Self {
        Self::with_capacity(64)
    }

    /// Starts an object whose text is expected to take this many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        let mut text = String::with_capacity(bytes);
        text.push('{');
        Self(text)
    }

    /// Adds a string.
    #[must_use]
    pub fn str(mut self, name: &str, value: &str) -> Self {
        self.push_name(name);
        push_literal(&mut self.0, value);
        self
    }

    /// Adds a string if there is one.
    #[must_use]
    pub fn optional_str(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.str(name, value),
            None => self,
        }
    }

    /// Adds a string that may have unpaired surrogates.
    #[must_use]
    pub fn json_str(self, name: &str, value: &JsonStr) -> Self {
        self.raw(name, value.as_literal())
    }

    /// Adds a number.
    #[must_use]
    pub fn u64(self, name: &str, value: u64) -> Self {
        self.raw(name, &value.to_string())
    }

    /// Adds a value that is JSON.
    #[must_use]
    pub fn raw(mut self, name: &str, json: &str) -> Self {
        self.push_name(name);
        self.0.push_str(json);
        self
    }

    /// Adds a value that is JSON, if there is one.
    #[must_use]
    pub fn optional_raw(self, name: &str, json: Option<&str>) -> Self {
        match json {
            Some(json) => self.raw(name, json),
            None => self,
        }
    }

    /// Adds a value, if there is one.
    #[must_use]
    pub fn optional_json(self, name: &str, value: Option<&Json>) -> Self {
        self.optional_raw(name, value.map(Json::as_str))
    }

    /// Adds a member by the literal of its name.
    #[must_use]
    pub fn member(mut self, name_literal: &str, json: &str) -> Self {
        self.push_comma();
        self.0.push_str(name_literal);
        self.0.push(':');
        self.0.push_str(json);
        self
    }

    /// Adds all members of an object.
    #[must_use]
    pub fn members(self, object: &Object) -> Self {
        object.iter().fold(self, |writer, (name, value)| writer.member(name.as_literal(), value.as_str()))
    }

    /// Adds all members of a value, if it is an object.
    #[must_use]
    pub fn optional_members(self, value: Option<&Json>) -> Self {
        match value.and_then(Json::to_object) {
            Some(object) => self.members(&object),
            None => self,
        }
    }

    /// Adds members that are written already, with commas between them.
    #[must_use]
    pub fn raw_members(mut self, members: &str) -> Self {
        if !members.is_empty() {
            self.push_comma();
            self.0.push_str(members);
        }
        self
    }

    /// Ends the object and returns it as a value, without checking the text again.
    pub fn into_json(self) -> Json {
        Json::from_valid(&self.finish())
    }

    /// Ends the object and returns its text.
    pub fn finish(mut self) -> String {
        self.0.push('}');
        self.0
    }

    fn push_name(&mut self, name: &str) {
        self.push_comma();
        push_literal(&mut self.0, name);
        self.0.push(':');
    }

    fn push_comma(&mut self) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
    }
}

impl Default for ObjectWriter {
    fn default() -> Self {
        Self::new()
    }
}

/// Writes the text of an array element by element.
///
/// Elements are appended as they are, so the caller must pass valid JSON.
///
/// ```
/// use parlor_json::ArrayWriter;
///
/// let mut array = ArrayWriter::new();
/// array.push("1");
/// array.push(r#"{"a":2}"#);
/// assert_eq!(array.finish(), r#"[1,{"a":2}]"#);
/// ```
#[derive(Debug, Clone)]
pub struct ArrayWriter(String);

impl ArrayWriter {
    /// Starts an array.
    pub fn new() -> Self {
        Self::with_capacity(64)
    }

    /// Starts an array whose text is expected to take this many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        let mut text = String::with_capacity(bytes);
        text.push('[');
        Self(text)
    }

    /// Adds an element.
    pub fn push(&mut self, json: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(json);
    }

    /// Ends the array and returns it as a value, without checking the text again.
    pub fn into_json(self) -> Json {
        Json::from_valid(&self.finish())
    }

    /// Ends the array and returns its text.
    pub fn finish(mut self) -> String {
        self.0.push(']');
        self.0
    }
}

impl Default for ArrayWriter {
    fn default() -> Self {
        Self::new()
    }
}

/// Appends a string literal, without a temporary copy if nothing needs an escape.
fn push_literal(text: &mut String, value: &str) {
    if value.bytes().any(|byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        text.push_str(&string_literal(value));
    } else {
        text.push('"');
        text.push_str(value);
        text.push('"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_separated_and_strings_escaped() {
        let object = Json::parse(r#"{"x":1.0,"\ud800":[]}"#).unwrap().to_object().unwrap();
        let text = ObjectWriter::new()
            .members(&object)
            .str("a\"", "\n")
            .optional_str("b", None)
            .optional_str("c", Some(""))
            .json_str("d", &JsonStr::new("\u{1}"))
            .optional_raw("e", None)
            .optional_json("f", Some(&Json::null()))
            .optional_members(None)
            .optional_members(Some(&Json::null()))
            .optional_members(Json::parse(r#"{"g":1}"#).ok().as_ref())
            .raw_members("")
            .raw_members(r#""h":2,"i":3"#);
        let expected = r#"{"x":1.0,"\ud800":[],"a\"":"\n","c":"","d":"\u0001","f":null,"g":1,"h":2,"i":3}"#;
        assert_eq!(text.clone().finish(), expected);
        assert_eq!(Json::parse(expected), Ok(text.into_json()));
    }

    #[test]
    fn objects_and_arrays_may_be_empty() {
        assert_eq!(ObjectWriter::default().finish(), "{}");
        assert_eq!(ArrayWriter::default().finish(), "[]");
    }

    #[test]
    fn literals_are_those_of_serde_json() {
        for value in ["", "plain", "\"", "\\", "\u{1f}", "\u{7f}é😀\u{2028}"] {
            let mut text = String::new();
            push_literal(&mut text, value);
            assert_eq!(text, string_literal(value));
        }
    }
}
