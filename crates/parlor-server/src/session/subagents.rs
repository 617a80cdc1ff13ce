//! Starts the sessions of subagents, binds them to the agent process of their owner, and passes on what their owner does.

use std::sync::Arc;

use parlor_engine::{ClientCall, Event, OwnerEvent, SubagentCommand, SubagentOutput};
use parlor_session::SessionId;
use parlor_wire::{RpcError, code};

use super::SessionMessage;
use super::task::SessionTask;
use crate::agent::BoundAgent;

impl SessionTask {
    /// Carries out what the session does with those of its subagents.
    ///
    /// This waits for the mailboxes of these sessions. They never wait for the session that owns them.
    pub(super) async fn run_subagents(&mut self, outputs: Vec<SubagentOutput>) {
        for SubagentOutput { session, command } in outputs {
            let message = match command {
                SubagentCommand::Bind { epoch, agent_session, is_bound_again } => {
                    let Some(guard) = self.agent_sessions.get(&epoch) else { continue };
                    if is_bound_again {
                        guard.agent.forget_subagent(&agent_session);
                    }
                    let bound = BoundAgent::of_subagent(&guard.agent, &agent_session);
                    let bound = match bound {
                        Ok(bound) => self.hub.bind_subagent(&session, bound).await,
                        Err(error) => Err(error),
                    };
                    if let Err(error) = bound {
                        tracing::warn!(%session, "cannot open the session of a subagent: {}", error.message());
                    }
                    continue;
                }
                SubagentCommand::Describe(info) => {
                    SessionMessage::Event(Event::Owner(OwnerEvent::Described(info)))
                }
                SubagentCommand::Follow { client, follow } => {
                    let Some(client) = self.client(client) else { continue };
                    SessionMessage::Call(client, ClientCall::FollowOwner(follow))
                }
                SubagentCommand::Leave(client) => {
                    let Some(client) = self.client(client) else { continue };
                    SessionMessage::Call(client, ClientCall::LeaveOwner)
                }
                SubagentCommand::Unbind(error) => {
                    SessionMessage::Event(Event::Owner(OwnerEvent::Unbound(error)))
                }
            };
            self.hub.send_live(&session, message).await;
        }
    }

    /// Ends the live sessions of subagents and of their subagents, and waits until they write no more, before the batch that
    /// deletes this session and them is written. They are not opened again until that is done.
    pub(super) async fn end_subagents(&mut self) {
        let below = self.hub.subagents().begin_delete(self.machine.id());
        for session in below {
            self.hub.end_live(&session, SessionMessage::Event(Event::Owner(OwnerEvent::Deleted))).await;
        }
    }

    /// Unbinds the sessions of subagents when the session ends.
    pub(super) async fn unbind_subagents(&mut self) {
        let error = RpcError::new(code::INTERNAL_ERROR, "the session that owns the subagent has ended");
        for session in self.machine.bound_subagents().cloned().collect::<Vec<SessionId>>() {
            let unbound = Event::Owner(OwnerEvent::Unbound(error.clone()));
            self.hub.send_live(&session, SessionMessage::Event(unbound)).await;
        }
    }

    /// Reports whether this session of a subagent is busy: its owner is not evicted meanwhile.
    pub(super) fn report_busy(&self) {
        if self.machine.is_owned() {
            self.hub.subagents().set_busy(self.machine.id(), self.machine.row().busy);
        }
    }
}

impl crate::hub::HubState {
    /// Binds the session of a subagent to its agent session, and opens it if it is not live.
    async fn bind_subagent(self: &Arc<Self>, id: &SessionId, bound: BoundAgent) -> Result<(), RpcError> {
        if !self.is_live(id) {
            self.check_room()?;
        }
        match self.start_bound(id, bound).await {
            Ok(None) => Ok(()),
            // The agent session belongs to the owner's turn, and is not discarded.
            Err((error, _)) => Err(error),
            Ok(Some(bound)) => self.send(id, SessionMessage::AgentReady(Box::new(Ok(bound)))).await,
        }
    }
}
