//! Sessions that only the agent knows, taken over when somebody wants to see them.
//!
//! The agent tells the whole session while nobody else hears it; when it has finished, all of it is stored at once, and
//! from then on the session is one like any other. If it cannot be had, nothing was stored.

use std::sync::Arc;

use parlor_dialect::{Losses, live};
use parlor_engine::opening::{OpeningPlan, session_not_found};
use parlor_json::Object;
use parlor_session::{SessionId, Transcript};
use parlor_store::SessionRow;
use parlor_wire::RpcError;

use super::begin;
use crate::agent::{Cancel, Opener, Startup};
use crate::client::Client;
use crate::config::AgentConfig;
use crate::hub::{AgentChoice, Shared, no_session};
use crate::json;
use crate::known;
use crate::session::{self, Inbox, Message};
use crate::stored::{self, StoredSession};

/// Whether a session is one that only an agent is known to have.
pub(super) async fn is_foreign(hub: &Arc<Shared>, id: &SessionId) -> Result<bool, RpcError> {
    if hub.is_live(id) {
        return Ok(false);
    }
    let key = id.as_json().as_literal().to_owned();
    hub.read(move |store| {
        Ok(store.session(&key)?.is_none() && known::of_all(store)?.iter().any(|row| row.id == key))
    })
    .await
}

/// A client has something for a session that nobody here knows. The params are those of its request.
pub(super) async fn hand_over(
    hub: &Arc<Shared>,
    client: &Arc<Client>,
    params: &Object,
    session: &SessionId,
    message: Message,
    cancel: Cancel,
) -> Result<(), RpcError> {
    hub.open_or(session, async || adopt(hub, client, session, params, cancel).await).await?;
    hub.send(session, message).await
}

/// Takes over a session of an agent's.
async fn adopt(
    hub: &Arc<Shared>,
    client: &Arc<Client>,
    id: &SessionId,
    params: &Object,
    cancel: Cancel,
) -> Result<Inbox, RpcError> {
    let literal = id.as_json().as_literal().to_owned();
    let (config, listed) = agent_of(hub, client, &literal).await?;
    // One inside this process has no sessions but those that are here.
    if config.local.is_some() {
        return Err(no_session(id));
    }
    let row = known::row(&config.name, &{
        let mut info = Object::default();
        info.set("sessionId", id.as_json());
        info.set("cwd", "/");
        info
    });
    let row = row.ok_or_else(|| no_session(id))?;
    let is_kept = {
        let row = row.clone();
        hub.read(move |store| known::is_kept(store, &row)).await?
    };
    if is_kept {
        return Err(session_not_found(id, "the session has another id here"));
    }
    let named = json::absolute(params, "cwd");
    let is_placed = named.is_some();
    let cwd = named.or_else(|| listed.as_ref().map(|row| row.cwd.clone())).unwrap_or_else(|| "/".to_owned());
    let startup = Startup::new(config.startup_timeout);
    let agent = hub.registry().get(&config, Some(&client.peer), cwd.as_ref(), id, startup).await;
    let agent = agent.map_err(|error| session_not_found(id, error.message()))?;
    agent.add_client(client);
    let mut params = params.clone();
    for name in ["sessionId", "replayFrom", "_meta"] {
        params.remove(name);
    }
    params.set("cwd", &cwd);
    if params.get("mcpServers").is_none() {
        params.set("mcpServers", json::json("[]"));
    }
    let mut losses = Losses::default();
    let agents_params = live::request_to_agent(
        "session/new",
        &params,
        client.dialect(),
        agent.about.dialect,
        None,
        &mut losses,
    );
    let (_, agents_params) = agents_params
        .map_err(|loss| session_not_found(id, &format!("the agent cannot be told this: {loss}")))?;
    let (session, is_listed) = (id.clone(), listed.is_some());
    let plan = OpeningPlan::Adopt { session, params: agents_params, is_listed };
    let mut adopted = Opener::start(&agent, plan, startup, None).opened(Some(cancel)).await?;
    let replay = std::mem::take(&mut adopted.session.replay);
    hub.losses().count(id, losses);
    let now = session::now();
    let mut data = begin::data(client, params, agent.about.dialect);
    if matches!(&client.peer.agent, Some(AgentChoice::Command(command)) if *command != config.command) {
        data.remove("command");
    }
    if !is_placed {
        data.set(parlor_engine::UNPLACED, true);
    }
    let row = SessionRow {
        cwd,
        created_at: listed.as_ref().map_or(now, |row| row.created_at).max(1),
        active_at: now,
        data: data.to_json().as_str().to_owned(),
        ..row
    };
    let mut lines = Vec::with_capacity(replay.len() + 1);
    if let Some(title) = listed.and_then(|row| row.title) {
        // What the agent lists is what it says first.
        let update = format!(r#"{{"sessionUpdate":"session_info_update","title":{title}}}"#);
        lines.push(live::update_line(id, &update, None));
    }
    lines.extend(replay);
    let opened =
        StoredSession { row, transcript: Transcript::default(), kept: None, aliases: None, opened: None };
    hub.note_peer(id, &client.peer);
    Ok(session::start(Arc::clone(hub), opened, Some(adopted), Some(lines)))
}

/// The agent that is asked for a session, and how it lists it: one that has it in its list, else the client's own.
async fn agent_of(
    hub: &Arc<Shared>,
    client: &Client,
    id: &str,
) -> Result<(AgentConfig, Option<SessionRow>), RpcError> {
    let chosen = begin::config(hub, client)?;
    let (lists, key, id) = (Arc::clone(&hub.registry().lists), stored::key_of(&chosen), id.to_owned());
    let (own, other) = hub
        .read(move |store| {
            let own = lists.of_agent(store, &key)?.iter().find(|row| row.id == id).cloned();
            let other = match own {
                Some(_) => None,
                None => known::of_all(store)?.into_iter().find(|row| row.id == id),
            };
            Ok((own, other))
        })
        .await?;
    let others = other.and_then(|row| Some((hub.registry().agents.get(&row.agent)?.clone(), Some(row))));
    Ok(match own {
        Some(_) => (chosen, own),
        None => others.unwrap_or((chosen, None)),
    })
}
