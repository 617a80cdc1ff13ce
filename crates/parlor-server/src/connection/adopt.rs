//! Adopts sessions that only an agent has, when a client uses one.
//!
//! The agent replays the whole session; then all of it is stored at once, and from then on it is an ordinary session. If the
//! agent cannot load it, nothing is stored.

use std::sync::Arc;

use parlor_dialect::{Losses, live};
use parlor_engine::opening::{OpeningPlan, session_not_found};
use parlor_json::{Json, Object, ObjectWriter};
use parlor_session::SessionId;
use parlor_store::SessionRow;
use parlor_wire::RpcError;

use super::{create, initialize};
use crate::agent::{CancelToken, Startup};
use crate::agent_sessions;
use crate::client::Client;
use crate::config::AgentConfig;
use crate::fields;
use crate::hub::{AgentChoice, HubState, no_session};
use crate::session::{self, Mailbox, SessionMessage};
use crate::stored::{self, StoredSession};

/// Whether only an agent has a session.
pub(super) async fn is_agent_only(hub: &Arc<HubState>, id: &SessionId) -> Result<bool, RpcError> {
    if hub.is_live(id) {
        return Ok(false);
    }
    let key = id.as_json().as_literal().to_owned();
    hub.read(move |store| {
        Ok(store.session(&key)?.is_none() && agent_sessions::of_all(store)?.iter().any(|row| row.id == key))
    })
    .await
}

/// Adopts a session with the params of a client's request, and sends the session a message.
pub(super) async fn adopt_and_send(
    hub: &Arc<HubState>,
    client: &Arc<Client>,
    params: &Object,
    session: &SessionId,
    message: SessionMessage,
    cancel: CancelToken,
) -> Result<(), RpcError> {
    hub.open_or_else(session, async || adopt(hub, client, session, params, cancel).await).await?;
    hub.send(session, message).await
}

/// Has the agent load a session, and starts it here.
async fn adopt(
    hub: &Arc<HubState>,
    client: &Arc<Client>,
    id: &SessionId,
    params: &Object,
    cancel: CancelToken,
) -> Result<Mailbox, RpcError> {
    let literal = id.as_json().as_literal().to_owned();
    let (config, listed) = agent_of(hub, client, &literal).await?;
    // All sessions of an embedded agent are stored here.
    if config.embedded.is_some() {
        return Err(no_session(id));
    }
    let row = agent_sessions::row(&config.name, &{
        let mut info = Object::default();
        info.set("sessionId", id.as_json());
        info.set("cwd", "/");
        info
    });
    let row = row.ok_or_else(|| no_session(id))?;
    let is_stored = {
        let row = row.clone();
        hub.read(move |store| agent_sessions::is_stored(store, &row)).await?
    };
    if is_stored {
        return Err(session_not_found(id, "the session has another id on this server (see session/list)"));
    }
    let named = fields::absolute(params, "cwd");
    let has_cwd = named.is_some();
    let cwd = named.or_else(|| listed.as_ref().map(|row| row.cwd.clone())).unwrap_or_else(|| "/".to_owned());
    let startup = Startup::new(config.startup_timeout);
    let agent =
        hub.agent_pool().get(&config, Some(&client.to_requesting_client()), cwd.as_ref(), id, startup).await;
    let agent = agent.map_err(|error| session_not_found(id, error.message()))?;
    agent.add_client(client);
    let mut params = params.clone();
    for name in ["sessionId", "replayFrom", "_meta"] {
        params.remove(name);
    }
    params.set("cwd", &cwd);
    if params.get("mcpServers").is_none() {
        params.set("mcpServers", Json::array::<Json>([]));
    }
    let mut losses = Losses::default();
    let agents_params = live::request_to_agent(
        "session/new",
        &params,
        client.dialect(),
        agent.info.dialect,
        None,
        &mut losses,
    );
    let (_, agents_params) = agents_params
        .map_err(|loss| session_not_found(id, loss.request_error("agent", "session/load").message()))?;
    let (session, is_listed) = (id.clone(), listed.is_some());
    let plan = OpeningPlan::Adopt { session, params: agents_params, is_listed };
    let opener = hub.open_at_agent(id, (&agent, &config.name), plan, startup, None);
    let mut adopted = opener.opened(Some(cancel)).await?;
    let replay = std::mem::take(&mut adopted.session.replay);
    hub.losses().count(id, losses);
    let now = session::now();
    let mut data = create::data(client, params, agent.info.dialect);
    if matches!(&client.options.agent, Some(AgentChoice::Command(command)) if *command != config.command) {
        data.command = None;
    }
    data.is_cwd_unconfirmed = !has_cwd;
    let row = SessionRow {
        cwd,
        created_at: listed.as_ref().map_or(now, |row| row.created_at).max(1),
        active_at: now,
        data: data.to_text(),
        ..row
    };
    let mut lines = Vec::with_capacity(replay.len() + 1);
    if let Some(title) = listed.and_then(|row| row.title) {
        // The listed title precedes the replay, which may change it.
        let update = ObjectWriter::new().str("sessionUpdate", "session_info_update").raw("title", &title);
        lines.push(live::update_line(id, &update.finish(), None));
    }
    lines.extend(replay);
    let opened = StoredSession::new(row);
    hub.set_requesting_client(id, client);
    Ok(session::start(Arc::clone(hub), opened, Some(adopted), Some(lines)))
}

/// The agent that lists a session, with the listed row; otherwise the client's agent.
async fn agent_of(
    hub: &Arc<HubState>,
    client: &Client,
    id: &str,
) -> Result<(AgentConfig, Option<SessionRow>), RpcError> {
    // A client without an agent can adopt the sessions that an agent lists.
    let chosen = initialize::config(hub, client).await;
    let key = chosen.as_ref().ok().map(stored::agent_key);
    let (cache, id) = (Arc::clone(&hub.agent_pool().session_cache), id.to_owned());
    let (own, other) = hub
        .read(move |store| {
            let own = match key {
                Some(key) => cache.of_agent(store, &key)?.iter().find(|row| row.id == id).cloned(),
                None => None,
            };
            let other = match own {
                Some(_) => None,
                None => agent_sessions::of_all(store)?.into_iter().find(|row| row.id == id),
            };
            Ok((own, other))
        })
        .await?;
    let others = other.and_then(|row| Some((hub.agent_pool().agents().get(&row.agent)?.clone(), Some(row))));
    match (own, others) {
        (None, Some(other)) => Ok(other),
        (own, _) => Ok((chosen?, own)),
    }
}
