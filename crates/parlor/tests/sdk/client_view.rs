//! What a client was shown.

/// The messages of a session, folded as a client of the SDK has to do it itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientView {
    messages: Vec<Message>,
    /// Why each turn ended of which that was said.
    pub(crate) idles: Vec<String>,
    /// Whether a turn runs, as far as that was said.
    pub(crate) running: bool,
    /// How many questions it was asked.
    pub(crate) requests: usize,
}

#[derive(Debug, Clone)]
struct Message {
    role: &'static str,
    id: Option<String>,
    text: String,
}

impl ClientView {
    /// One more piece of a message.
    pub(crate) fn chunk(&mut self, role: &'static str, id: Option<String>, text: &str) {
        self.message(role, id).push_str(text);
    }

    /// All of a message.
    pub(crate) fn whole(&mut self, role: &'static str, id: String, text: String) {
        *self.message(role, Some(id)) = text;
    }

    fn message(&mut self, role: &'static str, id: Option<String>) -> &mut String {
        let existing = match &id {
            Some(_) => self.messages.iter().position(|message| message.role == role && message.id == id),
            // Without an id it goes on with the last message, if that is of its kind.
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

    /// All that the agent said.
    pub(crate) fn text(&self) -> String {
        self.texts("agent").concat()
    }

    pub(crate) fn ids(&self) -> Vec<Option<String>> {
        self.messages.iter().map(|message| message.id.clone()).collect()
    }
}
