//! The open session: its names, its queue, its clients.

use parlor_client::{SessionId, Slot};

use super::App;
use super::state::QueuedPrompt;
use crate::clean::Clean;
use crate::conversation::Conversation;

impl App {
    /// Whether a turn of the open session runs.
    pub(super) fn is_busy(&self) -> bool {
        self.conversation.as_ref().is_some_and(Conversation::is_busy)
    }

    pub(super) fn open_id(&self) -> Option<SessionId> {
        self.conversation.as_ref().map(|conversation| conversation.id.clone())
    }

    /// The directory of the open session, or that of a new one.
    pub(super) fn cwd(&self) -> &str {
        self.conversation.as_ref().map_or(&self.new_cwd, |conversation| &conversation.cwd)
    }

    pub(super) fn session_title(&self) -> Clean {
        let Some(conversation) = &self.conversation else { return Clean::line("New session") };
        if let Some(row) = self.sessions.get(&conversation.id).filter(|row| row.has_title) {
            return row.title.clone();
        }
        let info = conversation.slot(Slot::Info);
        let title = info.and_then(|info| info.fields.get_string("title"));
        Clean::line(&title.unwrap_or_else(|| "New session".to_owned()))
    }

    /// The name of the agent of the open session.
    pub(super) fn agent_name(&self) -> Clean {
        let row = self.open_id().and_then(|id| self.sessions.get(&id));
        row.map_or_else(|| Clean::line("agent"), |row| row.agent.clone())
    }

    /// The queued prompts of the open session.
    pub(super) fn queue(&self) -> Vec<QueuedPrompt> {
        let info = self.conversation.as_ref().and_then(|conversation| conversation.slot(Slot::Info));
        let Some(meta) = info.and_then(|info| info.meta) else { return Vec::new() };
        let queue = meta.get_array("parlor/queue").unwrap_or_default();
        let prompt = |raw: parlor_client::JsonRef<'_>| {
            let prompt = raw.to_object()?;
            let id = prompt.get("id")?.clone();
            Some(QueuedPrompt { id, text: prompt.get_string("text").unwrap_or_default() })
        };
        queue.into_iter().filter_map(prompt).collect()
    }

    /// How many clients are attached to the open session, this one included; 0 if the server does not say.
    pub(super) fn attached_clients(&self) -> u64 {
        let info = self.conversation.as_ref().and_then(|conversation| conversation.slot(Slot::Info));
        let Some(meta) = info.and_then(|info| info.meta) else { return 0 };
        let listed = meta.get_array("parlor/clients").map_or(0, |clients| clients.len());
        listed as u64 + meta.get_u64("parlor/moreClients").unwrap_or_default()
    }
}
