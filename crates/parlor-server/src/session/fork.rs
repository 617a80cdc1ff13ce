//! Opens forks that are stored: has the agent fork where it can, and answers the client.

use std::sync::Arc;

use parlor_dialect::settings::Settings;
use parlor_engine::{ClientCall, FORK, ForkAgent, ForkStart, Frame, ReplayFrom};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::SessionId;
use parlor_wire::{RequestId, RpcError, code};

use super::task::SessionTask;
use super::{Bound, Message};
use crate::agent::{Agent, History, Reply, Startup};
use crate::client::Client;
use crate::config::AgentConfig;
use crate::hub::Shared;
use crate::json;

/// How the agent of a fork knows the conversation.
enum How {
    /// It has forked by itself.
    Native(Box<Bound>),
    /// It is given the conversation with the first prompt; it may have failed to fork by itself.
    Transcript(Option<RpcError>),
}

impl SessionTask {
    /// Opens a fork in a task of its own.
    pub(super) fn start_fork(&self, mut start: ForkStart) {
        let forking = self.forking.iter().find(|client| client.id == start.client).cloned();
        let Some(client) = forking.or_else(|| self.client(start.client)) else { return };
        let hub = Arc::clone(&self.hub);
        let row = self.machine.row();
        let config = hub.config_of(row).unwrap_or_else(|| AgentConfig::new("", Vec::new()));
        let (timeout, startup) = (config.startup_timeout, Startup::new(config.startup_timeout));
        let (native, error) = match std::mem::replace(&mut start.agent, ForkAgent::Transcript(None)) {
            ForkAgent::Native { epoch, mut params, settings } => {
                let asked = self.ties.get(&epoch).map(|tie| {
                    if let Some(session) = JsonStr::from_literal(&start.row.id) {
                        tie.agent.name_session(&mut params, &session.into());
                    }
                    let beginning = tie.agent.beginnings.begin();
                    let answer = tie.agent.call_now("session/fork", &params);
                    (Arc::clone(&tie.agent), beginning, answer, settings)
                });
                (asked, None)
            }
            ForkAgent::Transcript(error) => (None, error),
        };
        let history = native.as_ref().map(|_| History::of(self.machine.session())).unwrap_or_default();
        tokio::spawn(async move {
            let how = match native {
                Some((agent, _beginning, answer, settings)) => {
                    let reply = match answer {
                        Ok(answer) => match tokio::time::timeout_at(startup.until.into(), answer).await {
                            Ok(Ok(reply)) => reply,
                            Ok(Err(_)) => Err(json::error_object(&agent.error())),
                            Err(_) => Err(json::error_object(&agent.late("session/fork", timeout, None))),
                        },
                        Err(error) => Err(error),
                    };
                    forked_by(&agent, reply, &settings, &history, startup).await
                }
                None => How::Transcript(error),
            };
            announce(&hub, client, start, how).await;
        });
    }
}

/// What came of having the agent fork by itself.
async fn forked_by(
    agent: &Arc<Agent>,
    reply: Reply,
    wanted: &Settings,
    history: &Arc<History>,
    startup: Startup,
) -> How {
    let forked = match reply {
        Ok(result) => Bound::forked(agent, json::object(Some(result.raw())), wanted, history, startup).await,
        Err(error) => Err(RpcError::from_raw(error.raw())),
    };
    match forked {
        Ok(bound) => How::Native(Box::new(bound)),
        Err(error) => {
            tracing::info!(agent = agent.about.name, "the agent could not fork: {}", error.message());
            How::Transcript(Some(error))
        }
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
                let from = ReplayFrom::Forked(vec![(FORK, json::string("native"))]);
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
        json::note(&mut answer, "parlor/forkFailed", json::string(error.message()));
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
