//! What a session knows of its agent: whether it is bound to one, and whether that agent has the conversation.

use core::time::Duration;

use parlor_json::Object;
use parlor_session::session::PromptId;
use parlor_wire::RequestId;

use crate::opening::RefusedSettings;
use crate::{AgentEpoch, AgentLink, fields};

/// How many bytes of the agent's response to opening a session are kept.
const MAX_OPENED: usize = 256 << 10;

/// The agent's side of a session.
#[derive(Debug)]
pub(super) struct AgentState {
    binding: Binding,
    context: Context,
    /// The epoch of the current agent session, or of the last one.
    pub(super) epoch: AgentEpoch,
    /// The settings that the agent refused when it was restored, until a prompt was answered with that error.
    pub(super) refused_settings: Option<RefusedSettings>,
    /// The agent's `_parlor/settled` requests, each answered when its epoch is bound.
    pub(super) settled_requests: Vec<(AgentEpoch, RequestId)>,
    /// The agent's response when it opened the session, without modes, models, options and commands.
    pub(super) open_result: Object,
}

/// Whether the session is bound to an agent session.
#[derive(Debug)]
enum Binding {
    /// It has no agent.
    Unbound,
    /// The replay of an adopted session is being applied.
    Adopting,
    /// The agent session is being restored.
    Restoring { since: Duration },
    /// It has an agent.
    Bound(AgentLink),
}

/// Whether the agent has the conversation.
#[derive(Debug, PartialEq, Eq)]
enum Context {
    /// It has all of it.
    Known,
    /// It has to be given the conversation with the next prompt.
    Missing,
    /// It was given the conversation with this prompt, whose turn is not over.
    SentWith(PromptId),
}

impl AgentState {
    /// No agent. `open_result` is the stored response of the last one.
    pub(super) fn new(open_result: Object) -> Self {
        Self {
            binding: Binding::Unbound,
            context: Context::Known,
            epoch: AgentEpoch::NONE,
            refused_settings: None,
            settled_requests: Vec::new(),
            open_result,
        }
    }

    /// The agent, while the session has one.
    pub(super) fn link(&self) -> Option<&AgentLink> {
        match &self.binding {
            Binding::Bound(link) => Some(link),
            Binding::Unbound | Binding::Adopting | Binding::Restoring { .. } => None,
        }
    }

    pub(super) fn is_bound(&self) -> bool {
        self.link().is_some()
    }

    pub(super) fn is_restoring(&self) -> bool {
        matches!(self.binding, Binding::Restoring { .. })
    }

    /// Whether what the agent sends comes after the session released it.
    pub(super) fn is_released(&self) -> bool {
        matches!(self.binding, Binding::Unbound | Binding::Restoring { .. })
    }

    /// Starts to restore the agent session. Returns whether that is necessary and not yet in progress.
    pub(super) fn restore(&mut self, now: Duration) -> bool {
        let starts = matches!(self.binding, Binding::Unbound);
        if starts {
            self.binding = Binding::Restoring { since: now };
        }
        starts
    }

    /// The agent session is restored, or cannot be. Returns how long that took.
    pub(super) fn on_restored(&mut self, now: Duration) -> Duration {
        match std::mem::replace(&mut self.binding, Binding::Unbound) {
            Binding::Restoring { since } => now.saturating_sub(since),
            binding @ (Binding::Unbound | Binding::Adopting | Binding::Bound(_)) => {
                self.binding = binding;
                Duration::ZERO
            }
        }
    }

    /// The replay of an adopted session begins.
    pub(super) fn adopt(&mut self) {
        self.binding = Binding::Adopting;
    }

    /// Binds the session to an agent session. `has_context`: the agent has the conversation.
    pub(super) fn bind(&mut self, link: AgentLink, has_context: bool) {
        self.binding = Binding::Bound(link);
        self.context = if has_context { Context::Known } else { Context::Missing };
    }

    /// Ends the binding.
    pub(super) fn unbind(&mut self) {
        self.binding = Binding::Unbound;
    }

    /// Whether the agent has all of the conversation, for certain.
    pub(super) fn knows_conversation(&self) -> bool {
        self.context == Context::Known
    }

    /// Whether a prompt that is sent now has to contain the conversation; it then counts as sent with it.
    pub(super) fn takes_context(&mut self, prompt: PromptId) -> bool {
        let is_missing = self.context == Context::Missing;
        if is_missing {
            self.context = Context::SentWith(prompt);
        }
        is_missing
    }

    /// The turn of a prompt has ended. Returns whether the agent was given the conversation with it, successfully; if the
    /// turn was not completed, the next prompt contains the conversation again.
    pub(super) fn on_turn_ended(&mut self, prompt: PromptId, is_completed: bool) -> bool {
        if self.context != Context::SentWith(prompt) {
            return false;
        }
        self.context = if is_completed { Context::Known } else { Context::Missing };
        is_completed
    }

    /// Keeps the agent's response to opening the session for all clients that open it. Returns whether it changed; a response
    /// that is too long is an error.
    pub(super) fn keep_open_result(&mut self, result: &Object) -> Result<bool, OpenResultTooLong> {
        let mut opened = self.open_result.clone();
        for (name, value) in result.iter() {
            match name.inner() {
                "sessionId" | "modes" | "models" | "configOptions" | "availableCommands" => {}
                "_meta" => {
                    for (key, value) in fields::foreign_meta(result).iter() {
                        opened.set_nested("_meta", &key.to_text(), value.clone());
                    }
                }
                _ => opened.set(name.clone(), value.clone()),
            }
        }
        if opened == self.open_result {
            return Ok(false);
        }
        if opened.to_json().as_str().len() > MAX_OPENED {
            return Err(OpenResultTooLong);
        }
        self.open_result = opened;
        Ok(true)
    }
}

/// The agent's response to opening a session has more than [`MAX_OPENED`] bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OpenResultTooLong;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parlor_dialect::Dialect;

    use super::*;
    use crate::{AgentInfo, SessionLookup};

    const SECOND: Duration = Duration::from_secs(1);

    fn link() -> AgentLink {
        let agent = AgentInfo {
            name: "a".to_owned(),
            label: "a".to_owned(),
            dialect: Dialect::V1,
            initialize: Object::default(),
            is_embedded: false,
        };
        let sessions = SessionLookup::new(|_| None);
        AgentLink { epoch: AgentEpoch(1), agent: Arc::new(agent), session: "s".into(), sessions }
    }

    #[test]
    fn an_agent_session_is_restored_once_and_only_without_an_agent() {
        let mut agent = AgentState::new(Object::default());
        assert!(agent.restore(SECOND));
        assert!(!agent.restore(SECOND), "it is being restored");
        assert!(agent.is_restoring() && agent.is_released());
        assert_eq!(agent.on_restored(3 * SECOND), 2 * SECOND);
        agent.bind(link(), true);
        assert!(!agent.restore(SECOND), "the session has its agent");
        agent.unbind();
        assert!(agent.restore(SECOND));
    }

    #[test]
    fn an_agent_whose_session_is_adopted_is_not_released() {
        let mut agent = AgentState::new(Object::default());
        assert!(agent.is_released());
        agent.adopt();
        assert!(!agent.is_released() && !agent.is_bound());
    }

    #[test]
    fn the_conversation_is_sent_until_a_turn_with_it_is_completed() {
        let mut agent = AgentState::new(Object::default());
        agent.bind(link(), false);
        assert!(!agent.knows_conversation());
        assert!(agent.takes_context(PromptId(1)));
        assert!(!agent.takes_context(PromptId(2)), "the first prompt has it");
        assert!(!agent.knows_conversation(), "its turn is not over");
        assert!(!agent.on_turn_ended(PromptId(2), true), "another turn");
        assert!(!agent.on_turn_ended(PromptId(1), false), "it failed");
        assert!(agent.takes_context(PromptId(3)));
        assert!(agent.on_turn_ended(PromptId(3), true));
        assert!(agent.knows_conversation());
        assert!(!agent.takes_context(PromptId(4)));
    }

    #[test]
    fn the_open_result_is_kept_without_settings_and_within_its_limit() {
        let mut agent = AgentState::new(Object::default());
        let result = Object::new().with("sessionId", "s").with("modes", Object::new()).with("extra", 1_u64);
        assert_eq!(agent.keep_open_result(&result), Ok(true));
        assert_eq!(agent.open_result.text(), r#"{"extra":1}"#);
        assert_eq!(agent.keep_open_result(&result), Ok(false), "nothing new");
        let long = Object::new().with("more", "x".repeat(MAX_OPENED));
        assert_eq!(agent.keep_open_result(&long), Err(OpenResultTooLong));
        assert_eq!(agent.open_result.text(), r#"{"extra":1}"#);
    }
}
