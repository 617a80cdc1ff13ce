//! The output of a session: a batch for the store, frames for clients, commands for agents, timers and forks.

use core::time::Duration;

use parlor_dialect::Losses;
use parlor_json::Object;
use parlor_session::SessionId;
use parlor_session::session::{ClientId, PeerRequestId};
use parlor_wire::RpcError;

use crate::rows::Batch;
use crate::{AgentCommand, AgentEpoch, ForkStart, Frame, FrameKind, OpenRequest, SubagentOutput, Timer};

/// The result of handling events.
///
/// The caller stores `batch` first. If that succeeds, it releases the rest in order; if not, it passes the output to
/// [`on_store_failed`](crate::SessionMachine::on_store_failed) and releases what that returns.
#[derive(Debug, Default)]
pub struct Output {
    /// The writes.
    pub batch: Batch,
    /// The last change that is in the batch or was stored before it.
    pub seq: u64,
    /// What clients are sent.
    pub sends: Vec<Delivery>,
    /// Forks that are opened.
    pub forks: Vec<ForkStart>,
    /// Commands for agents, each with the epoch of the agent session that it is for.
    pub agent: Vec<(AgentEpoch, AgentCommand)>,
    /// What is done with the sessions of subagents.
    pub subagents: Vec<SubagentOutput>,
    /// Timers, each with the time until it runs out.
    pub timers: Vec<(Duration, Timer)>,
    /// The clients that were sent a relayed frame.
    pub relayed: Vec<(u64, Vec<ClientId>)>,
    /// The open requests that any driver may answer, if they changed.
    pub open_requests: Option<Vec<OpenRequest>>,
    /// What could not be translated, by session: a fork counts by itself.
    pub losses: Vec<(SessionId, Losses)>,
}

/// Something that is sent to a client once the changes that it is about are stored.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The client.
    pub to: ClientId,
    /// What it is sent.
    pub what: Outgoing,
    /// Whether the changes that it is about were stored before.
    pub is_stored: bool,
}

impl Delivery {
    /// Something about changes that have yet to be stored.
    pub fn new(to: ClientId, what: impl Into<Outgoing>) -> Self {
        Self { to, what: what.into(), is_stored: false }
    }

    /// Returns what the client is sent if the changes were not stored: an error instead of a response that depends on them, and
    /// otherwise nothing. A client whose backlog was dropped is disconnected also then.
    pub fn if_not_stored(self, error: &RpcError) -> Option<Self> {
        let frame = match &self.what {
            Outgoing::Frame(frame) => frame,
            Outgoing::Disconnect => return Some(self),
            Outgoing::Request { .. } | Outgoing::CancelRequest(_) | Outgoing::AwaitDrain => return None,
        };
        match frame.kind() {
            FrameKind::Response { is_error, .. } if *is_error || self.is_stored => Some(self),
            FrameKind::Response { id, .. } => Some(Self::new(self.to, Frame::error(id, error))),
            FrameKind::Updates
            | FrameKind::Notification
            | FrameKind::Cancel(_)
            | FrameKind::Request(_)
            | FrameKind::Batch(_) => None,
        }
    }
}

/// A peer request as one client was sent it.
///
/// A client that attaches again is sent the open peer requests again, with other ids: its answer to the first sending, which was
/// cancelled, does not answer the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientRequestId {
    /// The request of the agent.
    pub peer_request: PeerRequestId,
    /// The number of this sending in the session.
    pub sending: u64,
}

/// Something for one client.
#[derive(Debug, Clone)]
pub enum Outgoing {
    /// A frame as it is.
    Frame(Frame),
    /// A request to the client. Its id is chosen where it is sent, because a connection has requests of many sessions.
    Request {
        /// The id by which the request is cancelled and answered.
        request: ClientRequestId,
        /// The method.
        method: String,
        /// The params, in the client's dialect.
        params: Object,
    },
    /// Cancels a request that the client was sent.
    CancelRequest(ClientRequestId),
    /// The session gets [`Event::Drained`](crate::Event) when the client has read its frames.
    AwaitDrain,
    /// Too much waits for the client: it is disconnected.
    Disconnect,
}

impl Outgoing {
    /// About how many bytes this takes.
    pub fn len(&self) -> usize {
        match self {
            Self::Frame(frame) => frame.len(),
            Self::Request { method, params, .. } => method.len() + params.text_len() + 64,
            Self::CancelRequest(_) => 64,
            Self::AwaitDrain | Self::Disconnect => 0,
        }
    }

    /// Whether these are updates.
    pub fn is_update(&self) -> bool {
        matches!(self, Self::Frame(frame) if *frame.kind() == FrameKind::Updates)
    }

    /// Whether this takes no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Frame> for Outgoing {
    fn from(frame: Frame) -> Self {
        Self::Frame(frame)
    }
}
