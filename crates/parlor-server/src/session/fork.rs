//! Opens stored forks: has the agent fork its session if it can, and responds to the client.

use std::sync::Arc;

use parlor_engine::opening::{OpeningPlan, name_session};
use parlor_engine::{ClientCall, FORK, ForkContext, ForkStart, Frame, ReplayFrom};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::SessionId;
use parlor_wire::{RequestId, RpcError, code};

use super::SessionMessage;
use super::task::SessionTask;
use crate::agent::{BoundAgent, History, Startup};
use crate::client::Client;
use crate::config::AgentConfig;
use crate::hub::HubState;

/// How the agent of a fork gets the conversation.
enum ForkOutcome {
    /// It has forked its own session.
    Native(Box<BoundAgent>),
    /// It gets the transcript with the first prompt, perhaps after an error in forking its own session.
    Transcript(Option<RpcError>),
}

impl SessionTask {
    /// Opens a fork in a task of its own.
    pub(super) fn start_fork(&self, mut start: ForkStart) {
        let forking = self.forking.iter().find(|client| client.id == start.client).cloned();
        let Some(client) = forking.or_else(|| self.client(start.client)) else { return };
        let hub = Arc::clone(&self.hub);
        let config = hub.config_of(self.machine.row());
        let timeout = config.unwrap_or_else(|| AgentConfig::new("", Vec::new())).startup_timeout;
        let (opener, error) = match std::mem::replace(&mut start.agent, ForkContext::Transcript(None)) {
            ForkContext::Native { epoch, mut params, settings } => {
                let fork = JsonStr::from_literal(&start.row.id).map(SessionId::from);
                let opener = self.agent_sessions.get(&epoch).zip(fork).map(|(guard, fork)| {
                    name_session(&guard.agent.info, &mut params, &fork);
                    let history = History::of(self.machine.session());
                    let plan = OpeningPlan::Fork { params, wanted: *settings, history };
                    let agent = (&guard.agent, &*self.machine.row().agent);
                    hub.open_at_agent(&fork, agent, plan, Startup::new(timeout), None)
                });
                (opener, None)
            }
            ForkContext::Transcript(error) => (None, error),
        };
        let agent = self.machine.row().agent.clone();
        tokio::spawn(async move {
            let outcome = match opener {
                Some(opener) => match opener.opened(None).await {
                    Ok(bound) => ForkOutcome::Native(Box::new(bound)),
                    Err(error) => {
                        tracing::info!(agent, "the agent could not fork its session: {}", error.message());
                        ForkOutcome::Transcript(Some(error))
                    }
                },
                None => ForkOutcome::Transcript(error),
            };
            announce(&hub, client, start, outcome).await;
        });
    }
}

/// Responds to the client, attaches it to the fork, and sends the prompt that came with the request.
async fn announce(hub: &Arc<HubState>, client: Arc<Client>, start: ForkStart, outcome: ForkOutcome) {
    let ForkStart { id, row, answer, prompt, .. } = start;
    let Some(session) = JsonStr::from_literal(&row.id).map(SessionId::from) else { return };
    let announced = match outcome {
        ForkOutcome::Native(bound) => match hub.start_bound(&session, *bound).await {
            Ok(None) => {
                hub.set_requesting_client(&session, &client);
                let from = ReplayFrom::Forked(vec![(FORK, Json::from("native"))]);
                let attach =
                    ClientCall::Attach { id: id.clone(), from, cwd: None, members: Object::default() };
                let attach = SessionMessage::Call(Arc::clone(&client), attach);
                match (hub.send(&session, attach).await, prompt) {
                    (Ok(()), Some(content)) => {
                        let say = ClientCall::PromptWithoutRequest { content, answer: None };
                        hub.send(&session, SessionMessage::Call(Arc::clone(&client), say)).await
                    }
                    (joined, _) => joined,
                }
            }
            Ok(Some(bound)) => {
                // Another client has opened the fork, which gets the transcript instead.
                bound.guard.discard();
                let error = RpcError::new(
                    code::INTERNAL_ERROR,
                    "another client opened the fork before its agent was ready",
                );
                announce_transcript(hub, &session, &client, &id, answer, prompt, Some(&error)).await
            }
            Err(error) => Err(error),
        },
        ForkOutcome::Transcript(error) => {
            announce_transcript(hub, &session, &client, &id, answer, prompt, error.as_ref()).await
        }
    };
    if let Err(error) = announced {
        client.queue.push(Frame::error(&id, &error));
    }
}

/// Responds to the client for a fork whose agent gets the transcript; a prompt is stored before the response.
async fn announce_transcript(
    hub: &Arc<HubState>,
    session: &SessionId,
    client: &Arc<Client>,
    id: &RequestId,
    mut answer: Object,
    prompt: Option<Json>,
    error: Option<&RpcError>,
) -> Result<(), RpcError> {
    if let Some(error) = error {
        answer.set_nested("_meta", "parlor/forkFailed", error.message());
    }
    let Some(content) = prompt else {
        hub.attach_on_open(session, client);
        client.queue.push(Frame::response(id, &answer));
        return Ok(());
    };
    let answer = Some((id.clone(), answer));
    let say = ClientCall::PromptWithoutRequest { content, answer };
    hub.send(session, SessionMessage::Call(Arc::clone(client), say)).await
}
