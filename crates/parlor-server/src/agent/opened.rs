//! Agent sessions that are open, with their early messages.

use std::sync::Arc;

use parlor_engine::AgentEpoch;
use parlor_engine::opening::{AgentSession, EarlyMessage, OpeningEvent};
use parlor_session::SessionId;
use parlor_wire::RpcError;
use tokio::sync::mpsc;

use super::Agent;
use crate::session::{AgentMessage, MAILBOX, Route, SessionCall, SessionMessage, next_epoch};

/// Reserves an agent session for a session of the server; dropping it stops routing its messages.
#[derive(Debug)]
pub(crate) struct AgentSessionGuard {
    pub(crate) agent: Arc<Agent>,
    pub(crate) session: SessionId,
    pub(crate) epoch: AgentEpoch,
}

impl Drop for AgentSessionGuard {
    fn drop(&mut self) {
        self.agent.remove_route(&self.session, self.epoch);
    }
}

/// Messages of an agent session that arrived before its messages were routed to the session.
#[derive(Debug)]
pub(crate) struct UnroutedMessages {
    /// Messages that the opening received.
    pub(crate) kept: Vec<SessionMessage>,
    /// Messages that arrived since.
    pub(crate) messages: mpsc::Receiver<SessionMessage>,
}

/// An open agent session.
#[derive(Debug)]
pub(crate) struct BoundAgent {
    pub(crate) guard: AgentSessionGuard,
    pub(crate) session: AgentSession,
    pub(crate) early: UnroutedMessages,
}

impl BoundAgent {
    pub(super) fn new(
        guard: AgentSessionGuard,
        mut session: AgentSession,
        messages: mpsc::Receiver<SessionMessage>,
    ) -> Self {
        let name = &guard.agent.info.name;
        if let Some(lost) = &session.lost {
            tracing::info!(
                agent = name,
                "the agent session could not be restored and is replaced by a new one: {lost}"
            );
        }
        if session.dropped > 0 {
            tracing::warn!(agent = name, "dropped {} early messages of the agent", session.dropped);
        }
        let kept = std::mem::take(&mut session.early).into_iter().map(|message| {
            let message = match message {
                EarlyMessage::Updates(lines) => AgentMessage::Updates(lines, None),
                EarlyMessage::Request { id, method, params } => AgentMessage::Request { id, method, params },
                EarlyMessage::RequestCancelled(id) => AgentMessage::RequestCancelled(id),
                EarlyMessage::Notification(line) => AgentMessage::Notification(line),
            };
            SessionMessage::Agent(guard.epoch, message)
        });
        let kept = kept.collect();
        Self { guard, session, early: UnroutedMessages { kept, messages } }
    }

    /// Creates a session that the agent has just opened.
    #[cfg(test)]
    pub(crate) fn for_tests(agent: &Arc<Agent>, session: &str) -> Self {
        Self::of_subagent(agent, &SessionId::from(session)).unwrap()
    }

    /// Takes a session of a subagent, which the agent has open.
    pub(crate) fn of_subagent(agent: &Arc<Agent>, session: &SessionId) -> Result<Self, RpcError> {
        let (route, messages) = channel(next_epoch());
        agent.set_route(session, &route)?;
        let session = session.clone();
        let opened = AgentSession {
            session: session.clone(),
            result: parlor_json::Object::default(),
            settings: parlor_dialect::settings::Settings::default(),
            refused: None,
            without_history: false,
            lost: None,
            replay: Vec::new(),
            early: Vec::new(),
            dropped: 0,
        };
        let guard = AgentSessionGuard { agent: Arc::clone(agent), session, epoch: route.epoch };
        Ok(Self::new(guard, opened, messages))
    }
}

/// Creates the channel for messages of a session that is being opened.
pub(super) fn channel(epoch: AgentEpoch) -> (Route, mpsc::Receiver<SessionMessage>) {
    let (mailbox, messages) = mpsc::channel(MAILBOX);
    (Route { mailbox, epoch, is_session: false }, messages)
}

/// Converts a message of the agent to an event of an opening; `None` for a message that an opening does not handle.
pub(super) fn event_of(message: SessionMessage) -> Option<OpeningEvent> {
    let SessionMessage::Agent(_, message) = message else { return None };
    let message = match message {
        AgentMessage::Response(SessionCall::Restore, reply) => return Some(OpeningEvent::Response(reply)),
        AgentMessage::Gone(error) => return Some(OpeningEvent::AgentGone(error)),
        AgentMessage::Updates(lines, _) => EarlyMessage::Updates(lines),
        AgentMessage::Request { id, method, params } => EarlyMessage::Request { id, method, params },
        AgentMessage::RequestCancelled(id) => EarlyMessage::RequestCancelled(id),
        AgentMessage::Notification(line) => EarlyMessage::Notification(line),
        AgentMessage::FileAllowed { .. }
        | AgentMessage::Response(..)
        | AgentMessage::CallFailed(..)
        | AgentMessage::Served(..) => return None,
    };
    Some(OpeningEvent::Message(message))
}
