//! The clients that are attached to a session, and the prompts that they have queued.

use parlor_json::JsonRef;
use parlor_server::hub::ClientRole;
use parlor_session::{Slot, Transcript};

use super::hub_client::PAGE_NAME;

/// A client that is attached to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AttachedClient {
    pub(super) number: u64,
    pub(super) name: Option<String>,
    pub(super) role: ClientRole,
}

/// A prompt that waits for the end of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QueuedPrompt {
    pub(super) id: String,
    pub(super) text: String,
    /// The number of the client that sent it.
    pub(super) from: Option<u64>,
}

impl AttachedClient {
    /// The clients, as the server reports them.
    pub(super) fn list(transcript: &Transcript) -> Vec<Self> {
        let meta = transcript.slot(Slot::Info).and_then(|info| info.meta.as_ref());
        let clients = meta.and_then(|meta| meta.get_array("parlor/clients")).unwrap_or_default();
        clients.into_iter().filter_map(Self::decode).collect()
    }

    fn decode(raw: JsonRef<'_>) -> Option<Self> {
        let client = raw.to_object()?;
        let role = if client.get_str("role").as_deref() == Some("driver") {
            ClientRole::Driver
        } else {
            ClientRole::Observer
        };
        Some(Self { number: client.get_u64("client")?, name: client.get_string("name"), role })
    }

    /// Whether it is a connection of the page itself, whose browsers have these numbers.
    pub(super) fn is_page(&self, browsers: &[u64]) -> bool {
        browsers.contains(&self.number) || self.name.as_deref() == Some(PAGE_NAME)
    }
}

impl QueuedPrompt {
    /// The queued prompts of a session, of which only drivers know.
    pub(super) fn list(transcript: &Transcript) -> Vec<Self> {
        let meta = transcript.slot(Slot::Info).and_then(|info| info.meta.as_ref());
        let queue = meta.and_then(|meta| meta.get_array("parlor/queue")).unwrap_or_default();
        let prompt = |prompt: JsonRef<'_>| {
            let prompt = prompt.to_object()?;
            let text = prompt.get_string("text").unwrap_or_default();
            Some(Self { id: prompt.get("id")?.as_str().to_owned(), text, from: prompt.get_u64("from") })
        };
        queue.into_iter().filter_map(prompt).collect()
    }
}
