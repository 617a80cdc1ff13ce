use parlor_json::{Json, JsonStr, Object};

/// Writes the text of an object member by member.
///
/// Values are JSON already and are not parsed again; names are constants and need no escapes.
#[derive(Debug, Clone)]
pub(crate) struct ObjectText(String);

impl ObjectText {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        let mut text = String::with_capacity(bytes);
        text.push('{');
        Self(text)
    }

    /// Starts an update of this kind.
    pub(crate) fn update(kind: &str) -> Self {
        let mut text = Self::with_capacity(256);
        text.name("sessionUpdate");
        text.0.push('"');
        text.0.push_str(kind);
        text.0.push('"');
        text
    }

    pub(crate) fn raw(mut self, name: &str, json: &str) -> Self {
        self.name(name);
        self.0.push_str(json);
        self
    }

    pub(crate) fn string(self, name: &str, value: &JsonStr) -> Self {
        self.raw(name, value.as_literal())
    }

    pub(crate) fn maybe(self, name: &str, json: Option<&str>) -> Self {
        match json {
            Some(json) => self.raw(name, json),
            None => self,
        }
    }

    /// Adds the members of an object.
    pub(crate) fn members(self, object: &Object) -> Self {
        object.iter().fold(self, |text, (name, value)| text.member(name.as_literal(), value.as_str()))
    }

    /// Adds members as text with commas between them.
    pub(crate) fn text(mut self, members: &str) -> Self {
        if !members.is_empty() {
            self.comma();
            self.0.push_str(members);
        }
        self
    }

    /// Adds the other members of a chunk.
    pub(crate) fn extra(self, extra: Option<&Json>) -> Self {
        match extra.and_then(|extra| Object::parse(extra.raw()).ok()) {
            Some(extra) => self.members(&extra),
            None => self,
        }
    }

    /// Adds one member, given the literal of its name.
    pub(crate) fn member(mut self, name: &str, json: &str) -> Self {
        self.comma();
        self.0.push_str(name);
        self.0.push(':');
        self.0.push_str(json);
        self
    }

    pub(crate) fn finish(mut self) -> String {
        self.0.push('}');
        self.0
    }

    fn name(&mut self, name: &str) {
        self.comma();
        self.0.push('"');
        self.0.push_str(name);
        self.0.push_str("\":");
    }

    fn comma(&mut self) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
    }
}
