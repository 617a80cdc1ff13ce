use std::fmt;

use parlor_json::{Json, Object};
use parlor_wire::{RpcError, code};

use crate::{Info, Session, Turn};

/// An agent: it answers prompts, one turn at a time in each session, any number of sessions at once.
///
/// Everything else that the protocol wants of an agent is done for it: sessions with their history, ids, states,
/// prompts that wait, cancellation, forks, titles, both versions.
pub trait Agent: Send + Sync + 'static {
    /// Answers a prompt, and says why it ends. When the turn is cancelled the future is dropped.
    fn prompt(&self, turn: Turn) -> impl Future<Output = Result<Stop, Failure>> + Send;

    /// A session begins, in which the agent may say something before it is asked.
    fn begun(&self, session: Session) -> impl Future<Output = ()> + Send {
        drop(session);
        async {}
    }

    /// Who the agent is, what it takes, and what can be chosen. Asked once.
    fn info(&self) -> Info {
        Info::new("agent", "0")
    }

    /// Answers what only this agent knows: a method that is not the protocol's own. When the
    /// client does not want the answer any more the future is dropped.
    fn other(&self, method: &str, params: &Object) -> impl Future<Output = Result<Json, Failure>> + Send {
        let _ = params;
        let failure = Failure(RpcError::new(code::METHOD_NOT_FOUND, format!("there is no method {method}")));
        async move { Err(failure) }
    }
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
///
/// ```
/// use parlor_agent::Failure;
///
/// fn read() -> Result<String, Failure> {
///     Ok(std::fs::read_to_string("/no/such/file")?)
/// }
/// fn log_in() -> Result<(), Failure> {
///     Err(Failure::with_code(-32000, "log in first"))
/// }
/// assert!(read().unwrap_err().to_string().contains("No such file"));
/// assert_eq!(log_in().unwrap_err().code(), -32000);
/// ```
#[derive(Debug, Clone)]
pub struct Failure(pub(crate) RpcError);

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

    /// A failure with a code, as JSON-RPC and the protocol have them, for clients that look at it.
    pub fn with_code(code: i64, message: impl fmt::Display) -> Self {
        Self(RpcError::new(code, message.to_string()))
    }

    /// The code.
    pub fn code(&self) -> i64 {
        self.0.code()
    }

    /// What was asked makes no sense.
    pub(crate) fn wrong(message: impl fmt::Display) -> Self {
        Self::with_code(code::INVALID_PARAMS, message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.message())
    }
}

/// Any error ends a turn by `?`: those of the standard library, `anyhow`'s, boxed ones, and words.
impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error.into())
    }
}
