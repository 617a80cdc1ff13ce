//! Opens stored forks: does the I/O that a [`ForkOpening`] decides on.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use parlor_dialect::settings::Settings;
use parlor_engine::opening::{OpeningPlan, name_session};
use parlor_engine::{AgentEpoch, ForkAction, ForkEvent, ForkOpening, ForkStart};
use parlor_json::Object;
use parlor_session::SessionId;
use parlor_wire::{RpcError, code};

use super::SessionMessage;
use super::task::SessionTask;
use crate::agent::{BoundAgent, History, Opener, Startup};
use crate::client::Client;
use crate::config::AgentConfig;
use crate::hub::HubState;

/// A fork that is opened, with what this needs.
struct ForkTask {
    hub: Arc<HubState>,
    client: Arc<Client>,
    opening: ForkOpening,
    /// The request to the agent, until it is waited for.
    opener: Option<Opener>,
    /// The agent session that the agent has forked, until the session has it.
    bound: Option<BoundAgent>,
}

impl SessionTask {
    /// Opens a fork in a task of its own.
    pub(super) fn start_fork(&self, start: ForkStart) {
        let forking = self.forking.iter().find(|client| client.id == start.client).cloned();
        let Some(client) = forking.or_else(|| self.client(start.client)) else { return };
        let (opening, mut actions) = ForkOpening::start(start);
        let mut opener = None;
        if let Some(ForkAction::ForkAtAgent { epoch, params, settings }) = actions.first_mut() {
            opener =
                self.fork_at_agent(opening.session(), *epoch, mem::take(params), mem::take(&mut **settings));
        }
        let task = ForkTask { hub: Arc::clone(&self.hub), client, opening, opener, bound: None };
        tokio::spawn(task.run(actions.into()));
    }

    /// Asks the agent to fork, if the session still has the agent.
    fn fork_at_agent(
        &self,
        fork: &SessionId,
        epoch: AgentEpoch,
        mut params: Object,
        settings: Settings,
    ) -> Option<Opener> {
        let guard = self.agent_sessions.get(&epoch)?;
        let row = self.machine.row();
        let config = self.hub.config_of(row);
        let timeout = config.unwrap_or_else(|| AgentConfig::new("", Vec::new())).startup_timeout;
        name_session(&guard.agent.info, &mut params, fork);
        let history = History::of(self.machine.session());
        let plan = OpeningPlan::Fork { params, wanted: settings, history };
        Some(self.hub.open_at_agent(fork, (&guard.agent, &row.agent), plan, Startup::new(timeout), None))
    }
}

impl ForkTask {
    async fn run(mut self, mut actions: VecDeque<ForkAction>) {
        while let Some(action) = actions.pop_front() {
            let event = self.perform(action).await;
            actions.extend(event.into_iter().flat_map(|event| self.opening.handle(event)));
        }
    }

    /// Performs an action, and returns the event that follows, if any.
    async fn perform(&mut self, action: ForkAction) -> Option<ForkEvent> {
        let session = self.opening.session();
        match action {
            ForkAction::ForkAtAgent { .. } => Some(match self.opener.take() {
                Some(opener) => match opener.opened(None).await {
                    Ok(bound) => {
                        self.bound = Some(bound);
                        ForkEvent::AgentForked
                    }
                    Err(error) => {
                        tracing::info!(%session, "the agent could not fork its session: {}", error.message());
                        ForkEvent::AgentFailed(error)
                    }
                },
                None => {
                    let message = "the session has released the agent";
                    ForkEvent::AgentFailed(RpcError::new(code::INTERNAL_ERROR, message))
                }
            }),
            ForkAction::Start => Some(match self.hub.start_bound(session, self.bound.take()?).await {
                Ok(None) => ForkEvent::Started,
                Ok(Some(bound)) => {
                    self.bound = Some(bound);
                    ForkEvent::AlreadyOpen
                }
                Err((error, bound)) => {
                    self.bound = bound;
                    ForkEvent::StartFailed(error)
                }
            }),
            ForkAction::DiscardAgentSession => {
                self.bound.take()?.guard.discard();
                None
            }
            ForkAction::AttachOnOpen => {
                self.hub.attach_on_open(session, &self.client);
                None
            }
            ForkAction::Respond(frame) => {
                self.client.queue.push(frame);
                None
            }
            ForkAction::Call(call) => {
                let message = SessionMessage::Call(Arc::clone(&self.client), call);
                Some(ForkEvent::Called(self.hub.send(session, message).await))
            }
        }
    }
}
