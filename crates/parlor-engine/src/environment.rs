//! The inputs of a session machine besides events: time, ids and configuration; and its timers.

use core::fmt;
use core::time::Duration;

use parlor_session::session::Cancelled;
use parlor_session::{MessageId, SessionId, UnixMillis};

use crate::AgentEpoch;

/// The time of an event.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// The time since some fixed moment; it never decreases.
    pub monotonic: Duration,
    /// The time of day, for what is stored and shown; it may jump.
    pub wall: UnixMillis,
}

/// Generates unique ids for messages, sessions and envelopes.
pub struct IdGen(Box<dyn FnMut() -> u128 + Send>);

impl IdGen {
    /// Generates ids from the numbers that `unique` returns. It must not return a number twice (UUIDs).
    pub fn new(unique: impl FnMut() -> u128 + Send + 'static) -> Self {
        Self(Box::new(unique))
    }

    /// Generates a message id.
    pub fn new_id(&mut self) -> MessageId {
        MessageId::from(format!("{:032x}", (self.0)()).as_str())
    }

    /// Generates a session id.
    pub fn new_session_id(&mut self) -> SessionId {
        let hex = format!("{:032x}", (self.0)());
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        SessionId::from(parts.join("-").as_str())
    }
}

impl fmt::Debug for IdGen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdGen")
    }
}

/// How a session behaves.
#[derive(Debug, Clone, Copy)]
pub struct SessionConfig {
    /// How long an agent may take to end a cancelled turn or prompt; `None` is without limit.
    pub cancel_timeout: Option<Duration>,
    /// Whether the server is embedded in an agent. Its clients are not sent the prompt queue.
    pub is_embedded: bool,
    /// How much may wait in the session.
    pub limits: QueueLimits,
}

/// How much may wait in one session for its subscribers and for its agent.
#[derive(Debug, Clone, Copy)]
pub struct QueueLimits {
    /// How many bytes of a replay a subscriber is sent before it has read them.
    pub catch_up_bytes: usize,
    /// How long one line of a replay is at most, in bytes, unless a single content block is longer.
    pub line_bytes: usize,
    /// How many bytes may wait for a subscriber that catches up; with more it is disconnected.
    pub unsent_bytes: usize,
    /// How many calls of clients that close the session may wait until they are detached.
    pub deferred_calls: usize,
    /// How many calls of clients may wait for the agent to be restored.
    pub waiting_calls: usize,
    /// How many forks may wait for the agent to be restored. The next fork does not wait: its agent gets the transcript.
    pub waiting_forks: usize,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self {
            catch_up_bytes: 256 << 10,
            line_bytes: 1 << 20,
            unsent_bytes: 64 << 20,
            deferred_calls: 1024,
            waiting_calls: 100,
            waiting_forks: 64,
        }
    }
}

/// How much waits in one session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueSizes {
    /// Calls of clients that close the session.
    pub deferred_calls: usize,
    /// Calls of clients that wait for the agent to be restored.
    pub waiting_calls: usize,
    /// Forks that wait for the agent to be restored.
    pub waiting_forks: usize,
    /// Prompts that are not in the conversation.
    pub queued_prompts: usize,
    /// Events that the session itself made.
    pub pending_events: usize,
    /// Requests of the agent without an answer.
    pub peer_requests: usize,
    /// Requests of clients that are answered with the outcomes of prompts.
    pub prompt_requests: usize,
    /// The most bytes that wait for one subscriber.
    pub unsent_bytes: usize,
}

/// A timer of a session.
#[derive(Debug, Clone)]
pub enum Timer {
    /// Updates of title and metadata that came too fast may be sent.
    Throttle,
    /// The agent of this epoch had its time to end what was cancelled.
    Cancel(AgentEpoch, Cancelled),
}
