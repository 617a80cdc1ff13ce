//! What was asked and promised, to be compared with what came of it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parlor_engine::ClientInfo;
use parlor_session::SessionId;
use parlor_session::session::ClientId;

/// Keeps track of promises.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    clients: HashMap<ClientId, Arc<ClientInfo>>,
    /// All prompts, by the marks of their texts.
    pub(super) prompts: BTreeMap<u64, PromptRecord>,
}

/// A prompt of a client.
#[derive(Debug)]
pub(super) struct PromptRecord {
    pub(super) session: SessionId,
    pub(super) stage: PromptStage,
    /// Why it may be lost.
    pub(super) excuse: Option<&'static str>,
    /// How many agents of its session were lost since it was sent.
    pub(super) crashes: usize,
}

/// After how many lost agents a prompt may have failed.
const MAX_CRASHES: usize = 2;

/// What is known of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PromptStage {
    /// It was sent.
    Sent,
    /// Its sender was told that it is in the conversation.
    Accepted,
    /// Its sender was told that it is not.
    Refused,
}

impl Ledger {
    pub(super) fn add_client(&mut self, info: Arc<ClientInfo>) {
        self.clients.insert(info.id, info);
    }

    pub(super) fn client(&self, id: ClientId) -> Option<Arc<ClientInfo>> {
        self.clients.get(&id).cloned()
    }

    /// The server ended, and its clients with it.
    pub(super) fn server_ended(&mut self) {
        self.clients.clear();
    }

    /// Notes why prompts of a session that are not in the conversation may be lost.
    pub(super) fn session_ended(&mut self, session: &SessionId, why: &'static str) {
        for prompt in self.prompts.values_mut().filter(|prompt| prompt.session == *session) {
            prompt.excuse.get_or_insert(why);
        }
    }

    /// The power was cut: only what was promised is safe.
    pub(super) fn power_cut(&mut self) {
        for prompt in self.prompts.values_mut() {
            prompt.excuse.get_or_insert("the power was cut");
        }
    }

    /// A session lost its agent.
    pub(super) fn agent_lost(&mut self, session: &SessionId) {
        for prompt in self.prompts.values_mut().filter(|prompt| prompt.session == *session) {
            prompt.crashes += 1;
            if prompt.crashes >= MAX_CRASHES {
                prompt.excuse.get_or_insert("too many agents were lost");
            }
        }
    }

    /// Notes why a prompt may be lost.
    pub(super) fn excuse(&mut self, token: Option<u64>, why: &'static str) {
        if let Some(prompt) = token.and_then(|token| self.prompts.get_mut(&token)) {
            prompt.excuse.get_or_insert(why);
        }
    }
}
