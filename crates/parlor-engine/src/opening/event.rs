//! What happens while an agent session is opened, and what is to be done.

use core::time::Duration;

use parlor_dialect::settings::Settings;
use parlor_json::{Json, Object};
use parlor_session::SessionId;
use parlor_wire::{RequestId, RpcError};

use super::early::EarlyMessage;
use super::refused::RefusedSettings;
use crate::AgentEpoch;

/// Something that happens while an agent session is opened.
#[derive(Debug)]
pub enum OpeningEvent {
    /// The agent has answered `session/close`, or none was open.
    Closed {
        /// The epoch in which the agent still has the session open, if it does.
        open_since: Option<AgentEpoch>,
    },
    /// Messages about the agent session arrive from now on.
    RouteSet,
    /// The agent session belongs to another session, or the agent is gone.
    RouteFailed(RpcError),
    /// The agent answered the open request.
    Response(Result<Json, Json>),
    /// The request could not be sent.
    CallFailed(RpcError),
    /// The agent sent something about the session.
    Message(EarlyMessage),
    /// The sessions that the agent lists, if it does.
    Listed(Option<Vec<SessionId>>),
    /// The client cancelled the request for which the session is opened.
    Cancelled,
    /// The agent is gone.
    AgentGone(RpcError),
    /// The [deadline](OpeningOutput::deadline) has passed.
    Timeout {
        /// Whether the agent waits for a person's answer about no session.
        awaits_person: bool,
    },
}

/// Something to do for an agent session that is opened.
#[derive(Debug)]
pub enum OpeningAction {
    /// Waits until `session/close` for the session is answered, if it was sent; [`OpeningEvent::Closed`] follows.
    AwaitClosed(SessionId),
    /// Receives what the agent sends about a session; [`OpeningEvent::RouteSet`] or [`OpeningEvent::RouteFailed`] follows.
    SetRoute {
        /// The agent's id for the session.
        session: SessionId,
        /// The epoch that continues; `None` for a new one.
        epoch: Option<AgentEpoch>,
        /// Whether early updates are dropped, because the agent is about to send them again; else they arrive first.
        drops_early: bool,
    },
    /// Receives nothing more about the session.
    RemoveRoute,
    /// Sends a request; [`OpeningEvent::Response`] or [`OpeningEvent::CallFailed`] follows. One that is open when the
    /// opening is over is cancelled.
    Call {
        /// The method.
        method: &'static str,
        /// The params.
        params: Object,
        /// Whether it creates an agent session, whose id is not known yet.
        creates: bool,
    },
    /// Cancels the open request at the agent. Its response is still waited for.
    CancelCall,
    /// Asks for the sessions that the agent lists; [`OpeningEvent::Listed`] follows.
    List,
    /// Rejects a request of the agent.
    Reject {
        /// The agent's id for the request.
        id: RequestId,
        /// Why.
        error: RpcError,
    },
    /// The agent session is there. Nothing follows.
    Done(Box<AgentSession>),
    /// There is none. Nothing follows.
    Failed(OpeningError),
}

/// Why there is no agent session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpeningError {
    /// An error.
    Rpc(RpcError),
    /// The agent did not answer this method in time.
    Late(&'static str),
}

/// What to do, and when to call again.
#[derive(Debug)]
pub struct OpeningOutput {
    /// What to do, in this order.
    pub actions: Vec<OpeningAction>,
    /// When [`OpeningEvent::Timeout`] is due unless something else happens before, in monotonic time.
    pub deadline: Option<Duration>,
}

/// An agent session that is open.
#[derive(Debug)]
pub struct AgentSession {
    /// The agent's id for it.
    pub session: SessionId,
    /// What the agent said of it in its response; without the settings if these were applied.
    pub result: Object,
    /// The settings in force, as far as they are known.
    pub settings: Settings,
    /// The settings that the agent did not accept again.
    pub refused: Option<RefusedSettings>,
    /// Whether the agent knows nothing of the conversation.
    pub without_history: bool,
    /// Why the agent does not have the session any more that it had, if it had one.
    pub lost: Option<String>,
    /// The updates from which an adopted session is made.
    pub replay: Vec<String>,
    /// What the session has to take before all else.
    pub early: Vec<EarlyMessage>,
    /// How many early messages were dropped because of a limit.
    pub dropped: usize,
}
