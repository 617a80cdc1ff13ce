//! Lists sessions and agents, and reports the status of the server.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parlor_dialect::Dialect;
use parlor_engine::{ClientCall, Frame};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::SessionId;
use parlor_store::{Cursor, Filter, SessionRow, Store, StoreError};
use parlor_wire::{RequestId, RpcError, code};

use super::session_info::session_info;
use super::{adopt, initialize, login};
use crate::agent_sessions;
use crate::client::Client;
use crate::config::{AgentConfig, DefaultAgent, McpConfig};
use crate::hub::HubState;
use crate::session::SessionMessage;
use crate::stored;

/// How many sessions a page has.
const PAGE: usize = 50;

/// How long the status of the server waits for the list of running turns.
const TURNS_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) async fn list(hub: &Arc<HubState>, client: &Arc<Client>, id: &RequestId, params: &Object) {
    let response = match page(hub, client, params).await {
        Ok(result) => Frame::response(id, &result),
        Err(error) => Frame::error(id, &error),
    };
    client.queue.push(response);
}

/// The sessions that a client lists.
#[derive(Debug, Clone)]
pub(crate) struct ListQuery {
    /// The agent, unless the sessions of all agents are listed.
    agent: Option<String>,
    config: Option<AgentConfig>,
    filter: Filter,
}

impl ListQuery {
    /// Decodes the params of `session/list` and of a subscription to the list.
    pub(crate) async fn of(hub: &HubState, client: &Client, params: &Object) -> Result<Self, RpcError> {
        let requested = params.get_nested("_meta", "parlor/agent").and_then(|agent| agent.to_json_str());
        let (agent, config) = match requested.as_ref().map(JsonStr::to_text) {
            Some(all) if all == "*" => (None, None),
            Some(named) => {
                let config = hub.agent_pool().agents().get(&named).cloned();
                (
                    Some(config.as_ref().map_or_else(|| named.into_owned(), |config| config.name.clone())),
                    config,
                )
            }
            None => {
                match initialize::config(hub, client).await {
                    Ok(config) => (Some(config.name.clone()), Some(config)),
                    // Without a default agent, the sessions of all agents.
                    Err(_) if client.options.agent.is_none() => (None, None),
                    Err(error) => return Err(error),
                }
            }
        };
        let filter = Filter {
            agent: agent.clone(),
            cwd: params.get_string("cwd"),
            archived: which_archived(params)?,
            owned: params
                .get_nested("_meta", "parlor/subagents")
                .is_some_and(|all| all.as_bool() == Some(true)),
            ..Filter::default()
        };
        Ok(Self { agent, config, filter })
    }

    fn includes(&self, row: &SessionRow) -> bool {
        let Filter { agent, cwd, archived, .. } = &self.filter;
        agent.as_ref().is_none_or(|agent| *agent == row.agent)
            && cwd.as_ref().is_none_or(|cwd| *cwd == row.cwd)
            && archived.is_none_or(|archived| archived == row.archived)
            && (self.filter.owned || row.owner.is_none())
    }
}

async fn page(hub: &Arc<HubState>, client: &Client, params: &Object) -> Result<Object, RpcError> {
    let ListQuery { agent, config, filter } = ListQuery::of(hub, client, params).await?;
    let after =
        match params.get("cursor").filter(|cursor| !cursor.is_null()) {
            Some(cursor) => Some(read_cursor(cursor).ok_or_else(|| {
                RpcError::new(code::INVALID_PARAMS, "`cursor` is not a cursor of this server")
            })?),
            None => None,
        };
    if let Some(config) = config.as_ref().filter(|_| client.is_driver()) {
        hub.agent_pool().refresh_list(config).await;
    }
    let cache = Arc::clone(&hub.agent_pool().session_cache);
    let shown = agent_names(hub, client);
    let open = hub.open_counts();
    let (listed, next) = hub
        .read(move |store| {
            let agent_only: Arc<[SessionRow]> = match (&agent, &config) {
                (None, _) => agent_sessions::of_all(store)?.into(),
                (Some(_), Some(config)) => cache.of_agent(store, &stored::agent_key(config))?,
                (Some(_), None) => Arc::default(),
            };
            let mut rows = agent_sessions::page(store, &agent_only, &filter, after.as_ref(), PAGE + 1)?;
            let next = (rows.len() > PAGE).then(|| {
                rows.truncate(PAGE);
                rows.last().map(|last| format!("{} {}", last.active_at, last.id))
            });
            let mut listed = Vec::with_capacity(rows.len());
            for mut row in rows {
                if let Some(agent) = &agent {
                    // Several configured agents may be the same program.
                    row.agent.clone_from(agent);
                }
                row.agent = shown(&row.agent);
                listed.push(session_info(store, &row, open.get(&row.id).copied().unwrap_or_default())?);
            }
            Ok((listed, next.flatten()))
        })
        .await?;
    let mut result = Object::default();
    result.set("sessions", Json::array(listed));
    if let Some(next) = next {
        result.set("nextCursor", &next);
    }
    Ok(result)
}

/// Subscribes a client to changes of the list.
pub(super) async fn subscribe(
    hub: &Arc<HubState>,
    client: &Arc<Client>,
    id: &RequestId,
    method: &str,
    params: &Object,
) -> Result<(), RpcError> {
    let query = ListQuery::of(hub, client, params).await?;
    let update = if method.starts_with('_') { "_parlor/list/update" } else { "session/list/update" };
    // The response comes first: a client knows that the changes from then on follow.
    client.queue.push(Frame::response(id, &Object::default()));
    hub.feed().subscribe_list(client, query, update);
    Ok(())
}

/// Lists those of these sessions that a query includes, and names the others, each by the literal of its id.
pub(crate) async fn changes(
    hub: &Arc<HubState>,
    client: &Client,
    query: Arc<ListQuery>,
    sessions: HashSet<String>,
) -> Result<(Vec<Object>, Vec<Json>), RpcError> {
    let shown = agent_names(hub, client);
    let open = hub.open_counts();
    hub.read(move |store| {
        let (mut listed, mut removed) = (Vec::new(), Vec::new());
        for id in sessions {
            match store.session(&id)?.filter(|row| query.includes(row)) {
                Some(mut row) => {
                    row.agent = shown(&row.agent);
                    listed.push(session_info(store, &row, open.get(&id).copied().unwrap_or_default())?);
                }
                None if is_owned(store, &id)? => {}
                None => removed.push(Json::parse(&id).unwrap_or_default()),
            }
        }
        Ok((listed, removed))
    })
    .await
}

/// Whether a session is that of a subagent, which no list has.
fn is_owned(store: &dyn Store, id: &str) -> Result<bool, StoreError> {
    Ok(store.session(id)?.is_some_and(|row| row.owner.is_some()))
}

/// Decodes the filter for archived sessions, which are excluded by default.
fn which_archived(params: &Object) -> Result<Option<bool>, RpcError> {
    let archived = params.get("archived").filter(|archived| !archived.is_null());
    match archived.map(|archived| archived.to_json_str().unwrap_or_else(|| JsonStr::new(""))) {
        None if params.get_nested("_meta", "parlor/archived").and_then(|all| all.as_bool()) == Some(true) => {
            Ok(None)
        }
        None => Ok(Some(false)),
        Some(archived) => match archived.inner() {
            "exclude" => Ok(Some(false)),
            "include" => Ok(None),
            "only" => Ok(Some(true)),
            _ => Err(RpcError::new(code::INVALID_PARAMS, "`archived` must be exclude, include or only")),
        },
    }
}

fn read_cursor(cursor: &Json) -> Option<Cursor> {
    let text = cursor.to_json_str()?.to_text().into_owned();
    let (active_at, id) = text.split_once(' ')?;
    Some(Cursor { active_at: active_at.parse().ok()?, id: id.to_owned() })
}

/// Maps agent names to those that a client may see. The name of an agent that was given as a command is its command line,
/// which may contain secrets: observers see only the program.
pub(crate) fn agent_names(hub: &Arc<HubState>, client: &Client) -> impl Fn(&str) -> String + Send + 'static {
    let (hub, drives) = (Arc::clone(hub), client.is_driver());
    move |name| {
        let hides_args = !drives && hub.agent_pool().agents().get(name).is_none();
        let shown = if hides_args { name.split(' ').next().unwrap_or_default() } else { name };
        shown.to_owned()
    }
}

/// An MCP server of the configuration, without what may be secret.
fn mcp_server(server: &McpConfig) -> Object {
    Object::new().with("name", &server.name).with("transport", server.endpoint.transport().name())
}

/// Responds with the state of the server and its agents.
pub(super) async fn status(hub: &Arc<HubState>, client: &Client, id: &RequestId) -> Result<(), RpcError> {
    let mut result = Object::default();
    result.set("version", env!("CARGO_PKG_VERSION"));
    result.set("pid", std::process::id());
    result.set("uptimeSeconds", hub.uptime().as_secs());
    result.set("clients", hub.clients());
    result.set("liveSessions", hub.live_sessions());
    let shown = agent_names(hub, client);
    let agents = hub.agent_pool().running().await.into_iter().map(|running| {
        let mut agent = Object::default();
        agent.set("name", shown(&running.name));
        if let Some(pid) = running.pid {
            agent.set("pid", pid);
        }
        agent.set("sessions", running.sessions);
        if client.is_driver() {
            agent.set("program", running.program);
        }
        agent
    });
    result.set("agents", Json::array(agents));
    // Without them if the disk is stalled.
    if let Ok(turns) = tokio::time::timeout(TURNS_TIMEOUT, hub.running_turns()).await {
        let turns = turns?.into_iter().map(|turn| {
            let mut running = Object::default();
            running.set("sessionId", turn.session);
            running.set("title", turn.title.map_or_else(Json::default, |title| Json::from(&title)));
            running.set("name", turn.name.map_or_else(Json::default, |name| Json::from(&name)));
            running.set("agent", shown(&turn.agent));
            running
        });
        result.set("turns", Json::array(turns));
    }
    if let Some(timeout) = hub.idle_exit() {
        result.set("idleTimeoutSeconds", timeout.as_secs());
    }
    if client.is_driver()
        && let Some(config) = hub.config_status().await
    {
        result.set("config", config.to_json());
    }
    let servers = hub.agent_pool().agents();
    let servers: Vec<_> = servers.enabled_mcp().map(mcp_server).collect();
    if !servers.is_empty() {
        result.set("mcpServers", Json::array(servers));
    }
    result.set("losses", hub.losses().all());
    result.set("dialect", client.negotiated().map_or(Dialect::V2, |info| info.dialect).name());
    client.queue.push(Frame::response(id, &result));
    Ok(())
}

/// Responds with the state of a session, without opening it.
pub(super) async fn session_status(
    hub: &Arc<HubState>,
    client: &Arc<Client>,
    id: &RequestId,
    session: &SessionId,
) -> Result<(), RpcError> {
    if hub.is_live(session) {
        let status = SessionMessage::Call(Arc::clone(client), ClientCall::Status { id: id.clone() });
        return hub.send(session, status).await;
    }
    // A session that only its agent has is listed, so it exists for clients.
    if !hub.exists(session).await? && !adopt::is_agent_only(hub, session).await? {
        return Err(crate::hub::no_session(session));
    }
    let mut result = Object::default();
    result.set("status", "saved");
    client.queue.push(Frame::response(id, &result));
    Ok(())
}

/// Responds with the losses of a session.
pub(super) async fn losses(
    hub: &Arc<HubState>,
    client: &Client,
    id: &RequestId,
    session: &SessionId,
) -> Result<(), RpcError> {
    if !hub.exists(session).await? {
        return Err(crate::hub::no_session(session));
    }
    let mut result = Object::default();
    result.set("losses", hub.losses().of(session));
    client.queue.push(Frame::response(id, &result));
    Ok(())
}

/// Stops the processes of an agent, unless one of its turns is running; with `force`, in any case.
pub(super) async fn stop_agent(
    hub: &Arc<HubState>,
    client: &Client,
    id: &RequestId,
    params: &Object,
) -> Result<(), RpcError> {
    let name = params.get_string("agent");
    let name = name.ok_or_else(|| RpcError::new(code::INVALID_PARAMS, "`agent` must be a string"))?;
    let is_forced = params.get("force").is_some_and(|force| force.as_str() == "true");
    let turns = hub.running_turns().await?.into_iter().filter(|turn| turn.agent == name).count();
    if turns > 0 && !is_forced {
        let turns = if turns == 1 { "a turn".to_owned() } else { format!("{turns} turns") };
        let data = Object::new().with("reason", "busy").with("agent", &name);
        let message = format!("agent '{name}' is running {turns}");
        return Err(RpcError::new(code::INVALID_REQUEST, message).with_data(data.to_json()));
    }
    let stopped = hub.agent_pool().stop_agent(&name).await;
    client.queue.push(Frame::response(id, &Object::new().with("stopped", stopped)));
    Ok(())
}

/// Responds with the agents that clients can choose.
pub(super) async fn agents(hub: &Arc<HubState>, client: &Client, id: &RequestId) -> Result<(), RpcError> {
    let path = client.options.search_path();
    let inspected = hub.agent_pool().inspect(move |agents| {
        let default = agents.default_agent(&path);
        let reason = match &default {
            DefaultAgent::Configured(_) => "configured",
            DefaultAgent::OnlyInstalled(_) => "onlyInstalled",
            DefaultAgent::BuiltIn(_) => "builtIn",
            DefaultAgent::Ambiguous(_) => "ambiguous",
        };
        let default = default.agent().ok().map(|agent| agent.name.clone());
        let installed: Vec<_> = agents.all().iter().map(|agent| agent.is_installed(&path)).collect();
        (Arc::clone(agents), installed, default, reason)
    });
    let (agents, installed, default, reason) = inspected.await?;
    let mut listed = Vec::new();
    for (config, is_installed) in agents.all().iter().zip(installed) {
        let mut agent = Object::default();
        agent.set("name", &config.name);
        if client.is_driver() {
            agent.set("command", Json::array(&config.command));
            if !config.sandbox.wrap.is_empty() {
                agent.set("wrap", Json::array(&config.sandbox.wrap));
            }
        }
        let servers = agents.enabled_mcp().filter(|server| server.is_for(&config.name));
        agent.set("mcpServers", Json::array(servers.map(mcp_server)));
        agent.set("default", Some(&config.name) == default.as_ref());
        agent.set("installed", is_installed);
        if let Some(is_logged_in) = hub.agent_pool().login_state(config).await {
            agent.set("loggedIn", is_logged_in);
        }
        if let Some(known) = hub.agent_pool().load_agent_info(config).await {
            agent.set("dialect", known.dialect.name());
            agent.set("features", Json::array(known.features()));
        }
        listed.push(agent);
    }
    let mut result = Object::default();
    result.set("agents", Json::array(listed));
    result.set("defaultReason", reason);
    client.queue.push(Frame::response(id, &result));
    Ok(())
}

/// Responds with the sessions that only an agent has. Unlike `session/list`, this starts the agent and waits for its list.
pub(super) async fn agent_sessions(
    hub: &Arc<HubState>,
    client: &Arc<Client>,
    id: &RequestId,
    params: &Object,
) {
    client.queue.push(match try_agent_sessions(hub, client, params).await {
        Ok(result) => Frame::response(id, &result),
        Err(error) => Frame::error(id, &error),
    });
}

async fn try_agent_sessions(
    hub: &Arc<HubState>,
    client: &Arc<Client>,
    params: &Object,
) -> Result<Object, RpcError> {
    let (config, agent) = login::started_agent(hub, client, params).await?;
    let key = stored::agent_key(&config);
    let rows = hub.agent_pool().session_cache.refresh_now(&agent, &key).await.map_err(|reason| {
        let message = format!("agent '{}' {reason}", config.label());
        RpcError::new(code::INTERNAL_ERROR, message)
    })?;
    let sessions = hub
        .read(move |store| rows.iter().map(|row| session_info(store, row, 0)).collect::<Result<Vec<_>, _>>());
    Ok(Object::new().with("agent", &config.name).with("sessions", Json::array(sessions.await?)))
}
