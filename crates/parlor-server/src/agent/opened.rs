//! Agent sessions that are open, and what an agent sent about them before.

use std::sync::Arc;

use parlor_engine::AgentEpoch;
use parlor_engine::opening::{AgentSession, EarlyMessage, OpeningEvent};
use parlor_session::SessionId;
use tokio::sync::mpsc;

use super::Agent;
use crate::session::{AgentCall, AgentMessage, INBOX, Link, Message};

/// An agent session that belongs to a session until this is dropped.
#[derive(Debug)]
pub(crate) struct Tie {
    pub(crate) agent: Arc<Agent>,
    pub(crate) session: SessionId,
    pub(crate) epoch: AgentEpoch,
}

impl Drop for Tie {
    fn drop(&mut self) {
        self.agent.unlink(&self.session, self.epoch);
    }
}

/// What an agent sent about a session before the session receives it itself.
#[derive(Debug)]
pub(crate) struct Rest {
    pub(crate) kept: Vec<Message>,
    pub(crate) messages: mpsc::Receiver<Message>,
}

/// An agent session that is open.
#[derive(Debug)]
pub(crate) struct BoundAgent {
    pub(crate) tie: Tie,
    pub(crate) session: AgentSession,
    pub(crate) rest: Rest,
}

impl BoundAgent {
    pub(super) fn new(tie: Tie, mut session: AgentSession, messages: mpsc::Receiver<Message>) -> Self {
        let name = &tie.agent.about.name;
        if let Some(lost) = &session.lost {
            tracing::info!(agent = name, "the agent session is replaced by a new one: {lost}");
        }
        if session.dropped > 0 {
            tracing::warn!(agent = name, "{} early messages of the agent are dropped", session.dropped);
        }
        let kept = std::mem::take(&mut session.early).into_iter().map(|message| {
            let message = match message {
                EarlyMessage::Updates(lines) => AgentMessage::Lines(lines, None),
                EarlyMessage::Request { id, method, params } => AgentMessage::Asks { id, method, params },
                EarlyMessage::RequestCancelled(id) => AgentMessage::Unasks(id),
                EarlyMessage::Notification(line) => AgentMessage::Notes(line),
            };
            Message::Agent(tie.epoch, message)
        });
        let kept = kept.collect();
        Self { tie, session, rest: Rest { kept, messages } }
    }

    /// A session that the agent has just created.
    #[cfg(test)]
    pub(crate) fn for_tests(agent: &Arc<Agent>, session: &str) -> Self {
        let (link, messages) = channel(crate::session::next_epoch());
        let session = SessionId::from(session);
        agent.link(&session, &link).unwrap();
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
        Self::new(Tie { agent: Arc::clone(agent), session, epoch: link.epoch }, opened, messages)
    }
}

/// Where messages about a session that is opened arrive.
pub(super) fn channel(epoch: AgentEpoch) -> (Link, mpsc::Receiver<Message>) {
    let (inbox, messages) = mpsc::channel(INBOX);
    (Link { inbox, epoch, is_session: false }, messages)
}

/// What a message of the agent is; `None` for one that is not about a session that is opened.
pub(super) fn event_of(message: Message) -> Option<OpeningEvent> {
    let Message::Agent(_, message) = message else { return None };
    let message = match message {
        AgentMessage::Answered(AgentCall::Restore, reply) => return Some(OpeningEvent::Response(reply)),
        AgentMessage::Gone(error) => return Some(OpeningEvent::AgentGone(error)),
        AgentMessage::Lines(lines, _) => EarlyMessage::Updates(lines),
        AgentMessage::Asks { id, method, params } => EarlyMessage::Request { id, method, params },
        AgentMessage::Unasks(id) => EarlyMessage::RequestCancelled(id),
        AgentMessage::Notes(line) => EarlyMessage::Notification(line),
        AgentMessage::FileAllowed { .. }
        | AgentMessage::Answered(..)
        | AgentMessage::Failed(..)
        | AgentMessage::Served(..) => return None,
    };
    Some(OpeningEvent::Message(message))
}
