//! What a client has received.

/// The messages of a session, folded by the test, because the SDK does not do it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientView {
    messages: Vec<Message>,
    /// The stop reasons that were received.
    pub(crate) idles: Vec<String>,
    /// Whether a turn is running, by the received states.
    pub(crate) running: bool,
    /// How many requests were received.
    pub(crate) requests: usize,
}

#[derive(Debug, Clone)]
struct Message {
    role: &'static str,
    id: Option<String>,
    text: String,
}

impl ClientView {
    /// Appends a chunk to a message.
    pub(crate) fn chunk(&mut self, role: &'static str, id: Option<String>, text: &str) {
        self.message(role, id).push_str(text);
    }

    /// Replaces a message.
    pub(crate) fn whole(&mut self, role: &'static str, id: String, text: String) {
        *self.message(role, Some(id)) = text;
    }

    fn message(&mut self, role: &'static str, id: Option<String>) -> &mut String {
        let existing = match &id {
            Some(_) => self.messages.iter().position(|message| message.role == role && message.id == id),
            // Without an id the chunk continues the last message, if that has the same role.
            None => self.messages.len().checked_sub(1).filter(|last| self.messages[*last].role == role),
        };
        let index = existing.unwrap_or_else(|| {
            self.messages.push(Message { role, id, text: String::new() });
            self.messages.len() - 1
        });
        &mut self.messages[index].text
    }

    pub(crate) fn texts(&self, role: &str) -> Vec<String> {
        self.messages
            .iter()
            .filter(|message| message.role == role)
            .map(|message| message.text.clone())
            .collect()
    }

    /// The text of the agent's messages.
    pub(crate) fn text(&self) -> String {
        self.texts("agent").concat()
    }

    pub(crate) fn ids(&self) -> Vec<Option<String>> {
        self.messages.iter().map(|message| message.id.clone()).collect()
    }
}
