//! Opens forks that are stored: has the agent fork where it can, and answers the client.

use std::sync::Arc;

use parlor_engine::opening::{OpeningPlan, name_session};
use parlor_engine::{ClientCall, FORK, ForkAgent, ForkStart, Frame, ReplayFrom};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::SessionId;
use parlor_wire::{RequestId, RpcError, code};

use super::Message;
use super::task::SessionTask;
use crate::agent::{BoundAgent, History, Opener, Startup};
use crate::client::Client;
use crate::config::AgentConfig;
use crate::hub::Shared;
use crate::json;

/// How the agent of a fork knows the conversation.
enum How {
    /// It has forked by itself.
    Native(Box<BoundAgent>),
    /// It is given the conversation with the first prompt; it may have failed to fork by itself.
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
        let (opener, error) = match std::mem::replace(&mut start.agent, ForkAgent::Transcript(None)) {
            ForkAgent::Native { epoch, mut params, settings } => {
                let opener = self.ties.get(&epoch).map(|tie| {
                    if let Some(session) = JsonStr::from_literal(&start.row.id) {
                        name_session(&tie.agent.about, &mut params, &session.into());
                    }
                    let history = History::of(self.machine.session());
                    let plan = OpeningPlan::Fork { params, wanted: *settings, history };
                    Opener::start(&tie.agent, plan, Startup::new(timeout), None)
                });
                (opener, None)
            }
            ForkAgent::Transcript(error) => (None, error),
        };
        let agent = self.machine.row().agent.clone();
        tokio::spawn(async move {
            let how = match opener {
                Some(opener) => match opener.opened(None).await {
                    Ok(bound) => How::Native(Box::new(bound)),
                    Err(error) => {
                        tracing::info!(agent, "the agent could not fork: {}", error.message());
                        How::Transcript(Some(error))
                    }
                },
                None => How::Transcript(error),
            };
            announce(&hub, client, start, how).await;
        });
    }
}

/// Answers who wanted the fork, lets it take part there, and says what is to be said.
async fn announce(hub: &Arc<Shared>, client: Arc<Client>, start: ForkStart, how: How) {
    let ForkStart { id, row, answer, prompt, .. } = start;
    let Some(session) = JsonStr::from_literal(&row.id).map(SessionId::from) else { return };
    let told = match how {
        How::Native(bound) => match hub.begin_fork(&session, *bound).await {
            Ok(None) => {
                hub.note_peer(&session, &client.peer);
                let from = ReplayFrom::Forked(vec![(FORK, Json::from("native"))]);
                let attach = ClientCall::Attach { id: id.clone(), from, cwd: None };
                let attach = Message::Call(Arc::clone(&client), attach);
                match (hub.send(&session, attach).await, prompt) {
                    (Ok(()), Some(content)) => {
                        let say = ClientCall::Say { content, answer: None };
                        hub.send(&session, Message::Call(Arc::clone(&client), say)).await
                    }
                    (joined, _) => joined,
                }
            }
            Ok(Some(bound)) => {
                // Somebody was quicker to open it, and it goes without this agent.
                bound.tie.discard();
                let why = RpcError::new(code::INTERNAL_ERROR, "the new session was opened meanwhile");
                announce_transcript(hub, &session, &client, &id, answer, prompt, Some(&why)).await
            }
            Err(error) => Err(error),
        },
        How::Transcript(error) => {
            announce_transcript(hub, &session, &client, &id, answer, prompt, error.as_ref()).await
        }
    };
    if let Err(error) = told {
        client.queue.push(Frame::error(&id, &error));
    }
}

/// The same for a fork whose agent is given the conversation. What is said there is stored before it is answered.
async fn announce_transcript(
    hub: &Arc<Shared>,
    session: &SessionId,
    client: &Arc<Client>,
    id: &RequestId,
    mut answer: Object,
    prompt: Option<Json>,
    error: Option<&RpcError>,
) -> Result<(), RpcError> {
    if let Some(error) = error {
        json::note(&mut answer, "parlor/forkFailed", Json::from(error.message()));
    }
    let Some(content) = prompt else {
        hub.expect(session, client);
        client.queue.push(Frame::response(id, &answer));
        return Ok(());
    };
    let answer = Some((id.clone(), answer));
    let say = ClientCall::Say { content, answer };
    hub.send(session, Message::Call(Arc::clone(client), say)).await
}
