//! What a session machine is given from outside: time, ids, configuration; and the timers that it sets.

use core::fmt;
use core::time::Duration;

use parlor_session::session::Cancelled;
use parlor_session::{MessageId, SessionId, UnixMillis};

use crate::AgentEpoch;

/// The time of an event.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Time since any fixed moment, which only grows.
    pub monotonic: Duration,
    /// What clocks show.
    pub wall: UnixMillis,
}

/// Makes ids that no message, session or envelope has.
pub struct IdGen(Box<dyn FnMut() -> u128 + Send>);

impl IdGen {
    /// Makes ids of the numbers that a function gives, each of which it gives once (UUIDs).
    pub fn new(unique: impl FnMut() -> u128 + Send + 'static) -> Self {
        Self(Box::new(unique))
    }

    /// A message id that nothing has.
    pub fn new_id(&mut self) -> MessageId {
        MessageId::from(format!("{:032x}", (self.0)()).as_str())
    }

    /// A session id that nothing has.
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
    /// How long an agent may take to end what was cancelled, if it is configured at all.
    pub cancel_timeout: Option<Duration>,
    /// Whether the server is part of an agent: its clients have no use for metadata of parlor's own.
    pub is_embedded: bool,
    /// How much it holds for others.
    pub limits: QueueLimits,
}

/// How much may wait in one session for its subscribers and for its agent.
#[derive(Debug, Clone, Copy)]
pub struct QueueLimits {
    /// How many bytes a subscriber that keeps up is sent of what it missed, before it has read them.
    pub catch_up_bytes: usize,
    /// How long one line of a replay is at most, in bytes, unless a single content block is longer.
    pub line_bytes: usize,
    /// How many bytes may wait for a subscriber that catches up; with more it is disconnected.
    pub unsent_bytes: usize,
    /// How many calls of clients that close the session may wait until they are detached.
    pub deferred_calls: usize,
    /// How many calls of clients may wait for the agent to be restored.
    pub waiting_calls: usize,
    /// How many forks may wait for the agent to be restored. One more goes without it.
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

/// Something that happens after some time.
#[derive(Debug, Clone)]
pub enum Timer {
    /// Updates of title and metadata that came too fast may be sent.
    Throttle,
    /// An incarnation of the agent had its time to end what was cancelled.
    Cancel(AgentEpoch, Cancelled),
}
