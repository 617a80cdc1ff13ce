//! What was asked and promised, to be compared with what came of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
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
    /// How many prompts agents have taken into their running turns.
    steered: u64,
}

/// A prompt of a client.
#[derive(Debug)]
pub(super) struct PromptRecord {
    pub(super) session: SessionId,
    /// The clients that sent it.
    pub(super) senders: BTreeSet<ClientId>,
    pub(super) stage: PromptStage,
    /// Why it may be lost.
    pub(super) excuse: Option<&'static str>,
    /// How many agents of its session were lost since it was sent.
    pub(super) crashes: usize,
    /// Whether its sender wants it back if the agent cannot take it into its running turn.
    pub(super) is_for_turn_only: bool,
    /// When an agent last took it into its running turn, in the order of all of them.
    pub(super) steered_at: Option<u64>,
}

/// After how many lost agents a prompt may have failed.
const MAX_CRASHES: usize = 2;

/// What is known of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PromptStage {
    /// It was sent.
    Sent,
    /// Its sender has the response that it is in the conversation.
    Accepted,
    /// Its sender has an error as the response.
    Refused,
    /// Its sender has it back, to send it in another turn.
    GivenBack,
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
            if prompt.is_for_turn_only {
                prompt.excuse.get_or_insert("it is given back");
            }
            if prompt.crashes >= MAX_CRASHES {
                prompt.excuse.get_or_insert("too many agents were lost");
            }
        }
    }

    /// A client cancelled a turn: its own prompts that are not in the conversation may be lost.
    pub(super) fn turn_cancelled(&mut self, session: &SessionId, by: ClientId) {
        let is_own = |prompt: &&mut PromptRecord| prompt.session == *session && prompt.senders.contains(&by);
        for prompt in self.prompts.values_mut().filter(is_own) {
            prompt.excuse.get_or_insert("its sender cancelled the turn");
        }
    }

    /// A client sent a prompt, perhaps again.
    pub(super) fn prompt_sent(&mut self, token: u64, session: &SessionId, by: ClientId) {
        let record = self.prompts.entry(token).or_insert_with(|| PromptRecord {
            session: session.clone(),
            senders: BTreeSet::new(),
            stage: PromptStage::Sent,
            excuse: None,
            crashes: 0,
            is_for_turn_only: false,
            steered_at: None,
        });
        record.senders.insert(by);
    }

    /// An agent took a prompt into its running turn.
    pub(super) fn prompt_steered(&mut self, token: Option<u64>) {
        self.steered += 1;
        if let Some(prompt) = token.and_then(|token| self.prompts.get_mut(&token)) {
            prompt.steered_at = Some(self.steered);
        }
    }

    /// An agent did not take a prompt into its turn.
    pub(super) fn prompt_not_steered(&mut self, token: Option<u64>) {
        let prompt = token.and_then(|token| self.prompts.get_mut(&token));
        if let Some(prompt) = prompt.filter(|prompt| prompt.is_for_turn_only) {
            prompt.excuse.get_or_insert("it is given back");
        }
    }

    /// Notes why a prompt may be lost.
    pub(super) fn excuse(&mut self, token: Option<u64>, why: &'static str) {
        if let Some(prompt) = token.and_then(|token| self.prompts.get_mut(&token)) {
            prompt.excuse.get_or_insert(why);
        }
    }
}
