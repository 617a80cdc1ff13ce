//! What a session machine is given from outside: time, ids, configuration; and the timers that it sets.

use core::fmt;
use core::time::Duration;

use parlor_session::session::Cancelled;
use parlor_session::{MessageId, UnixMillis};

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
pub struct IdGen(Box<dyn FnMut() -> MessageId + Send>);

impl IdGen {
    /// Makes ids with a function.
    pub fn new(new_id: impl FnMut() -> MessageId + Send + 'static) -> Self {
        Self(Box::new(new_id))
    }

    /// An id that nothing has.
    pub fn new_id(&mut self) -> MessageId {
        (self.0)()
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
