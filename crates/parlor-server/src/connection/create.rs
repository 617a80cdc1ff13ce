//! Creates sessions.

use std::sync::Arc;

use parlor_dialect::{Dialect, Losses, live};
use parlor_engine::opening::OpeningPlan;
use parlor_engine::{ClientCall, Frame, ReplayFrom};
use parlor_json::Object;
use parlor_session::SessionId;
use parlor_store::SessionRow;
use parlor_wire::{RequestId, RpcError, code};

use super::initialize::config;
use crate::agent::{Agent, CancelToken, Origin, Startup};
use crate::client::Client;
use crate::config::AgentConfig;
use crate::fields;
use crate::hub::{AgentChoice, HubState};
use crate::session::{self, SessionMessage};
use crate::stored::{SessionData, StoredSession};

/// Creates a session: first at the agent, then here.
pub(super) async fn new_session(
    hub: &Arc<HubState>,
    client: &Arc<Client>,
    id: &RequestId,
    params: Object,
    session: SessionId,
    cancel: CancelToken,
) {
    if let Err(error) = try_new(hub, client, id, params, &session, cancel).await {
        client.queue.push(Frame::error(id, &error));
    }
}

async fn try_new(
    hub: &Arc<HubState>,
    client: &Arc<Client>,
    id: &RequestId,
    mut params: Object,
    session: &SessionId,
    mut cancel: CancelToken,
) -> Result<(), RpcError> {
    let config = config(hub, client).await?;
    let cwd = fields::absolute(&params, "cwd");
    let cwd = cwd.ok_or_else(|| RpcError::new(code::INVALID_PARAMS, "`cwd` must be an absolute path"))?;
    if let Some(error) = client.take_start_error(config.startup_timeout) {
        return Err(error);
    }
    let startup = Startup::new(config.startup_timeout);
    let agent = cancel.or_cancelled(agent(hub, client, &config, cwd.as_ref(), session, startup)).await??;
    agent.add_client(client);
    agent.assign_mcp_ids(client, &mut params);
    let dialect = client.dialect();
    let mut losses = Losses::default();
    let (_, mut agents_params) =
        live::request_to_agent("session/new", &params, dialect, agent.info.dialect, None, &mut losses)
            .map_err(|loss| loss.request_error("agent", "session/new"))?;
    agent.name_session(&mut agents_params, session);
    let origin = Origin { client: Arc::clone(client), id: id.clone() };
    let plan = OpeningPlan::Create { params: agents_params };
    let opener = hub.open_at_agent(session, (&agent, &config.name), plan, startup, Some(origin));
    let bound = opener.opened(Some(cancel)).await?;
    let agents_session = bound.session.session.clone();
    let now = session::now();
    let row = SessionRow {
        id: session.as_json().as_literal().to_owned(),
        agent: config.name.clone(),
        agent_session: Some(agents_session.as_json().as_literal().to_owned()),
        cwd,
        title: None,
        parent: None,
        owner: None,
        created_at: now,
        active_at: now,
        archived: false,
        busy: false,
        data: data(client, params, agent.info.dialect).to_text(),
    };
    let opened = StoredSession::new(row);
    hub.set_requesting_client(session, client);
    hub.losses().count(session, losses);
    hub.start_session(opened, session, bound);
    let attach =
        ClientCall::Attach { id: id.clone(), from: ReplayFrom::New, cwd: None, members: Object::default() };
    let join = SessionMessage::Call(Arc::clone(client), attach);
    hub.send(session, join).await?;
    if config.embedded.is_some() {
        let mut begun = Object::default();
        begun.set("sessionId", agents_session.as_json());
        agent.notify(live::BEGUN, &begun);
    }
    Ok(())
}

/// The stored data with which an agent can restore the session.
pub(super) fn data(client: &Client, mut params: Object, agent: Dialect) -> SessionData {
    params.remove("cwd");
    params.remove("_meta");
    let command = match &client.options.agent {
        Some(AgentChoice::Command(command)) => Some(command.clone()),
        Some(AgentChoice::Named(_)) | None => None,
    };
    let (params_dialect, agent_dialect) = (Some(client.dialect()), Some(agent));
    SessionData { params, params_dialect, agent_dialect, command, ..SessionData::default() }
}

/// Returns the agent for a client, and starts it if it is not running. Dropping the future does not cancel the start.
pub(super) async fn agent(
    hub: &Arc<HubState>,
    client: &Arc<Client>,
    config: &AgentConfig,
    cwd: &std::path::Path,
    session: &SessionId,
    startup: Startup,
) -> Result<Arc<Agent>, RpcError> {
    let (hub, client, config) = (Arc::clone(hub), Arc::clone(client), config.clone());
    let (cwd, session) = (cwd.to_owned(), session.clone());
    let started = tokio::spawn(async move {
        hub.agent_pool().get(&config, Some(&client.to_requesting_client()), &cwd, &session, startup).await
    });
    started.await.unwrap_or_else(|_| {
        Err(RpcError::new(code::INTERNAL_ERROR, "cannot start the agent: the server is stopping"))
    })
}
