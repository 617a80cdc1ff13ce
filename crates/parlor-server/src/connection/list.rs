//! What there is: sessions, agents, the server itself.

use std::sync::Arc;

use parlor_dialect::Dialect;
use parlor_engine::{ClientCall, Frame};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::SessionId;
use parlor_store::{Cursor, Filter, SessionRow, Store, StoreError};
use parlor_wire::{RequestId, RpcError, code};

use super::adopt;
use crate::client::Client;
use crate::hub::Shared;
use crate::json;
use crate::known;
use crate::session::Message;
use crate::stored;

/// How many sessions are listed at once.
const PAGE: usize = 50;

pub(super) async fn list(hub: &Arc<Shared>, client: &Arc<Client>, id: &RequestId, params: &Object) {
    let line = match page(hub, client, params).await {
        Ok(result) => Frame::response(id, &result),
        Err(error) => Frame::error(id, &error),
    };
    client.queue.push(line);
}

async fn page(hub: &Arc<Shared>, client: &Client, params: &Object) -> Result<Object, RpcError> {
    let asked = json::noted(params, "parlor/agent").and_then(|agent| JsonStr::from_raw(agent.raw()));
    let agents = &hub.registry().agents;
    let chosen = match asked.as_ref().map(JsonStr::to_text) {
        Some(all) if all == "*" => None,
        Some(named) => Some((named.clone().into_owned(), agents.get(&named).cloned())),
        None => {
            let chosen = agents.chosen(client.peer.agent.as_ref());
            let config = chosen.map_err(|error| RpcError::new(code::INVALID_PARAMS, error.to_string()))?;
            Some((config.name.clone(), Some(config)))
        }
    };
    let after = match params.get("cursor").filter(|cursor| !cursor.is_null()) {
        Some(cursor) => Some(read_cursor(cursor).ok_or_else(|| {
            RpcError::new(code::INVALID_PARAMS, "`cursor` is not one that this server gave")
        })?),
        None => None,
    };
    let (name, config) = chosen.unzip();
    let config = config.flatten();
    if let Some(config) = config.as_ref().filter(|_| client.drives()) {
        hub.registry().refresh_list(config).await;
    }
    let filter = Filter {
        agent: name.clone(),
        cwd: params.get_string("cwd"),
        archived: which_archived(params)?,
        ..Filter::default()
    };
    let lists = Arc::clone(&hub.registry().lists);
    let shown = agent_names(hub, client);
    let (listed, next) = hub
        .read(move |store| {
            let known: Arc<[SessionRow]> = match (&name, &config) {
                (None, _) => known::of_all(store)?.into(),
                (Some(_), Some(config)) => lists.of_agent(store, &stored::key_of(config))?,
                (Some(_), None) => Arc::default(),
            };
            let mut rows = known::page(store, &known, &filter, after.as_ref(), PAGE + 1)?;
            let next = (rows.len() > PAGE).then(|| {
                rows.truncate(PAGE);
                rows.last().map(|last| format!("{} {}", last.active_at, last.id))
            });
            let mut listed = Vec::with_capacity(rows.len());
            for mut row in rows {
                if let Some(name) = &name {
                    // The same program may have several names.
                    row.agent.clone_from(name);
                }
                row.agent = shown(&row.agent);
                listed.push(info(store, &row)?.to_json().as_str().to_owned());
            }
            Ok((listed, next.flatten()))
        })
        .await?;
    let mut result = Object::default();
    result.set("sessions", json::json(format!("[{}]", listed.join(","))));
    if let Some(next) = next {
        result.set("nextCursor", &next);
    }
    Ok(result)
}

/// Whether sessions that were put away are listed: they are not, unless they are asked for.
fn which_archived(params: &Object) -> Result<Option<bool>, RpcError> {
    let asked = params.get("archived").filter(|asked| !asked.is_null());
    match asked.map(|asked| JsonStr::from_raw(asked.raw()).unwrap_or_else(|| JsonStr::new(""))) {
        None if json::noted(params, "parlor/archived").is_some_and(|all| all.as_str() == "true") => Ok(None),
        None => Ok(Some(false)),
        Some(asked) => match asked.inner() {
            "exclude" => Ok(Some(false)),
            "include" => Ok(None),
            "only" => Ok(Some(true)),
            _ => Err(RpcError::new(code::INVALID_PARAMS, "`archived` is one of exclude, include, only")),
        },
    }
}

fn read_cursor(cursor: &Json) -> Option<Cursor> {
    let text = JsonStr::from_raw(cursor.raw())?.to_text().into_owned();
    let (active_at, id) = text.split_once(' ')?;
    Some(Cursor { active_at: active_at.parse().ok()?, id: id.to_owned() })
}

/// A session in a list, with its metadata.
fn info(store: &dyn Store, row: &SessionRow) -> Result<Object, StoreError> {
    let is_foreign = known::is_foreign(row);
    let mut info = Object::default();
    info.set("sessionId", json::json(row.id.clone()));
    info.set("cwd", &row.cwd);
    if let Some(title) = stored::title(row) {
        info.set("title", &title);
    }
    let own = crate::stored::time(row.active_at).filter(|_| row.active_at != 0);
    if let Some(time) = stored::updated_at(row).map(|time| Json::from(&time)).or(own) {
        info.set("updatedAt", time);
    }
    info.set("archived", json::json(if row.archived { "true" } else { "false" }));
    if is_foreign {
        info.add_missing(&known::listed(row));
    } else {
        if let Some(directories) = stored::additional_directories(row) {
            info.set("additionalDirectories", directories);
        }
        if let Some(meta) = stored::meta(store, &row.id)? {
            info.set("_meta", meta.to_json());
        }
    }
    json::note(&mut info, "parlor/agent", Json::from(&row.agent));
    if let Some(parent) = &row.parent {
        json::note(&mut info, "parlor/parent", json::json(parent.clone()));
        if let Some(message) = stored::forked_at(row) {
            json::note(&mut info, "parlor/forkedAt", Json::from(&message));
        }
    }
    json::note(&mut info, "parlor/busy", json::json(if row.busy { "true" } else { "false" }));
    if is_foreign {
        json::note(&mut info, "parlor/adopted", Json::from(false));
    }
    Ok(info)
}

/// How a client is told of agents. The name of one that a client gave as a command is its command line, which may hold
/// what is not for observers: they are told the program.
pub(super) fn agent_names(hub: &Arc<Shared>, client: &Client) -> impl Fn(&str) -> String + Send + 'static {
    let (hub, drives) = (Arc::clone(hub), client.drives());
    move |name| {
        let is_secret = !drives && hub.registry().agents.get(name).is_none();
        let shown = if is_secret { name.split(' ').next().unwrap_or_default() } else { name };
        shown.to_owned()
    }
}

/// What runs.
pub(super) async fn status(hub: &Arc<Shared>, client: &Client, id: &RequestId) -> Result<(), RpcError> {
    let mut result = Object::default();
    result.set("version", env!("CARGO_PKG_VERSION"));
    result.set("pid", json::json(std::process::id().to_string()));
    result.set("uptimeSeconds", hub.uptime().as_secs());
    result.set("clients", hub.clients());
    result.set("liveSessions", hub.live_sessions());
    let shown = agent_names(hub, client);
    let agents = hub.registry().running().await.into_iter().map(|(name, pid, sessions)| {
        let mut agent = Object::default();
        agent.set("name", shown(&name));
        if let Some(pid) = pid {
            agent.set("pid", pid);
        }
        agent.set("sessions", sessions);
        agent.to_json().as_str().to_owned()
    });
    let agents: Vec<_> = agents.collect();
    result.set("agents", json::json(format!("[{}]", agents.join(","))));
    result.set("losses", hub.losses().all());
    result.set("dialect", client.terms().map_or(Dialect::V2, |terms| terms.dialect).name());
    client.queue.push(Frame::response(id, &result));
    Ok(())
}

/// Whether a session is in memory, and what it does. Nothing is opened for it.
pub(super) async fn session_status(
    hub: &Arc<Shared>,
    client: &Arc<Client>,
    id: &RequestId,
    session: &SessionId,
) -> Result<(), RpcError> {
    if hub.is_live(session) {
        let status = Message::Call(Arc::clone(client), ClientCall::Status { id: id.clone() });
        return hub.send(session, status).await;
    }
    // One that only its agent has is listed, and so it is known.
    if !hub.is_here(session).await? && !adopt::is_foreign(hub, session).await? {
        return Err(crate::hub::no_session(session));
    }
    let mut result = Object::default();
    result.set("status", "saved");
    client.queue.push(Frame::response(id, &result));
    Ok(())
}

/// What could not be told to the clients of a session.
pub(super) async fn losses(
    hub: &Arc<Shared>,
    client: &Client,
    id: &RequestId,
    session: &SessionId,
) -> Result<(), RpcError> {
    if !hub.is_here(session).await? {
        return Err(crate::hub::no_session(session));
    }
    let mut result = Object::default();
    result.set("losses", hub.losses().of(session));
    client.queue.push(Frame::response(id, &result));
    Ok(())
}

/// The agents that clients can ask for.
pub(super) fn agents(hub: &Arc<Shared>, client: &Client, id: &RequestId) {
    let agents = &hub.registry().agents;
    let default = &agents.default_agent().name;
    let listed = agents.all().iter().map(|config| {
        let words: Vec<_> = config.command.iter().map(|word| Json::from(word).as_str().to_owned()).collect();
        let mut agent = Object::default();
        agent.set("name", &config.name);
        if client.drives() {
            agent.set("command", json::json(format!("[{}]", words.join(","))));
        }
        agent.set("default", json::json(if config.name == *default { "true" } else { "false" }));
        agent.to_json().as_str().to_owned()
    });
    let listed: Vec<_> = listed.collect();
    let mut result = Object::default();
    result.set("agents", json::json(format!("[{}]", listed.join(","))));
    client.queue.push(Frame::response(id, &result));
}
