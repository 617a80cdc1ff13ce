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
}

/// Something that happens after some time.
#[derive(Debug, Clone)]
pub enum Timer {
    /// Updates of title and metadata that came too fast may be sent.
    Throttle,
    /// An incarnation of the agent had its time to end what was cancelled.
    Cancel(AgentEpoch, Cancelled),
}
