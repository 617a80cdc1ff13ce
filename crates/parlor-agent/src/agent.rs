use std::fmt;

use parlor_json::{Json, Object};
use parlor_wire::{RpcError, code};

use crate::Turn;

/// An agent: it answers prompts, one turn at a time in each session, any number of sessions at once.
///
/// Everything else that the protocol wants of an agent is done for it: sessions with their history, ids, states,
/// prompts that wait, cancellation, forks, titles, both versions.
pub trait Agent: Send + Sync + 'static {
    /// Answers a prompt, and says why it ends. When the turn is cancelled the future is dropped.
    fn prompt(&self, turn: Turn) -> impl Future<Output = Result<Stop, Failure>> + Send;

    /// Who the agent is.
    fn info(&self) -> Info {
        Info::new("agent", "0")
    }

    /// Answers what only this agent knows: a method that is not the protocol's own. `session` is the one it is about.
    fn other(&self, method: &str, params: &Object) -> impl Future<Output = Result<Json, Failure>> + Send {
        let _ = params;
        let failure = Failure(RpcError::new(code::METHOD_NOT_FOUND, format!("there is no method {method}")));
        async move { Err(failure) }
    }
}

/// Who an agent is, and what it takes.
#[derive(Debug, Clone)]
pub struct Info {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) title: Option<String>,
    pub(crate) prompt: Object,
}

/// Why a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Stop {
    /// All is said.
    #[default]
    EndTurn,
    /// The model's answer was cut because it was too long.
    MaxTokens,
    /// The agent asked the model too often.
    MaxTurnRequests,
    /// The agent does not want to answer.
    Refusal,
}

/// Why a turn failed, for the person at the other end.
#[derive(Debug, Clone)]
pub struct Failure(pub(crate) RpcError);

impl Info {
    /// A name and a version.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self { name: name.into(), version: version.into(), title: None, prompt: Object::default() }
    }

    /// What people are shown.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Prompts may have content of this kind besides text, such as `image`, `audio` or `embeddedContext`.
    #[must_use]
    pub fn takes(mut self, kind: &str) -> Self {
        self.prompt.set(kind, Object::default().to_json());
        self
    }
}

impl Stop {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::EndTurn => "end_turn",
            Self::MaxTokens => "max_tokens",
            Self::MaxTurnRequests => "max_turn_requests",
            Self::Refusal => "refusal",
        }
    }
}

impl Failure {
    /// A failure in words.
    pub fn new(message: impl fmt::Display) -> Self {
        Self(RpcError::new(code::INTERNAL_ERROR, message.to_string()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.message())
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}
