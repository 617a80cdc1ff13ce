//! What a client has received of a session.

use parlor_client::{EntryId, JsonStr, Role, Slot, Transcript};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ClientView {
    pub(crate) messages: Vec<Message>,
    /// The tool calls: title and status.
    pub(crate) tools: Vec<(String, String)>,
    pub(crate) title: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) role: &'static str,
    /// A client of version 1 does not get the ids of its own prompts.
    pub(crate) id: Option<String>,
    pub(crate) text: String,
}

impl ClientView {
    /// The view of a session of `parlor-client`.
    pub(crate) fn of(transcript: &Transcript) -> Self {
        let mut view = Self::default();
        for entry in transcript.entries() {
            let body = entry.body();
            let field = |name: &str| body.fields.get(name).and_then(|value| JsonStr::from_raw(value.raw()));
            let field = |name: &str| field(name).map(|text| text.to_text().into_owned()).unwrap_or_default();
            if let EntryId::Message(role, id) = entry.id() {
                let role = match role {
                    Role::User => "user",
                    Role::Agent => "agent",
                    Role::Thought => "thought",
                };
                let id = Some(id.as_json().to_text().into_owned());
                view.messages.push(Message { role, id, text: body.content.to_text() });
            } else if matches!(entry.id(), EntryId::ToolCall(_)) {
                view.tools.push((field("title"), field("status")));
            }
        }
        let title = transcript.slot(Slot::Info).and_then(|info| info.fields.get("title"));
        view.title =
            title.and_then(|title| JsonStr::from_raw(title.raw())).map(|it| it.to_text().into_owned());
        view
    }

    /// Appends a chunk to a message.
    pub(crate) fn chunk(&mut self, role: &'static str, id: Option<String>, text: &str) {
        self.message(role, id).push_str(text);
    }

    /// Replaces a message.
    pub(crate) fn whole(&mut self, role: &'static str, id: String, text: String) {
        *self.message(role, Some(id)) = text;
    }

    fn message(&mut self, role: &'static str, id: Option<String>) -> &mut String {
        let ids = match &id {
            Some(_) => self.messages.iter().position(|message| message.role == role && message.id == id),
            None => None,
        };
        let index = ids.unwrap_or_else(|| {
            self.messages.push(Message { role, id, text: String::new() });
            self.messages.len() - 1
        });
        &mut self.messages[index].text
    }

    /// The role and the text of each message.
    pub(crate) fn messages(&self) -> Vec<(&str, &str)> {
        self.messages.iter().map(|message| (message.role, message.text.as_str())).collect()
    }
}
