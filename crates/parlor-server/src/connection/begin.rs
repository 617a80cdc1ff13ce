//! Where clients and sessions begin.

use std::sync::Arc;

use parlor_dialect::{Dialect, Losses, live};
use parlor_engine::opening::OpeningPlan;
use parlor_engine::{ClientCall, Frame, ReplayFrom};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::{SessionId, Transcript};
use parlor_store::SessionRow;
use parlor_wire::{RequestId, RpcError, code};
use tokio::sync::oneshot;

use crate::agent::{Agent, AgentRequest, Cancel, Opener, Origin, Startup};
use crate::client::Client;
use crate::config::AgentConfig;
use crate::hub::{AgentChoice, Shared};
use crate::json;
use crate::session::{self, Message};
use crate::stored::StoredSession;

/// The agent that a client asked for.
pub(super) fn config(hub: &Shared, client: &Client) -> Result<AgentConfig, RpcError> {
    hub.registry()
        .agents
        .chosen(client.peer.agent.as_ref())
        .map_err(|error| RpcError::new(code::INVALID_PARAMS, error.to_string()))
}

/// The answer to `initialize`: what parlor can do, and what the agent can do as far as it is known. Only the first
/// client of an agent ever waits for it.
pub(super) async fn initialized(
    hub: &Arc<Shared>,
    client: &Arc<Client>,
    dialect: Dialect,
) -> Result<Object, RpcError> {
    let config = config(hub, client)?;
    // One inside this process is there at once, and may be another than it was the last time.
    let mut known = hub.registry().recall(&config).await.filter(|_| config.local.is_none());
    if known.is_none() && client.drives() {
        let cwd = client.peer.cwd.clone().unwrap_or_else(|| "/".into());
        // One that cannot be started is no reason to turn the client away: there may be sessions to look at.
        let startup = Startup::new(config.startup_timeout);
        match hub.registry().get(&config, Some(&client.peer), &cwd, &SessionId::from(""), startup).await {
            Ok(_) => known = hub.registry().recall(&config).await,
            Err(error) => {
                tracing::warn!(agent = config.name, "{}", error.message());
                client.start_failed(error);
            }
        }
    }
    let mut losses = Losses::default();
    let agents = known.map(|known| live::agent_info(&known.info, known.dialect, dialect, &mut losses));
    Ok(capabilities(dialect, &config, &agents.unwrap_or_default()))
}

/// Every session can be forked at any message, whatever its agent can do.
const FORK: &str = r#"{"atMessageId":true}"#;

/// Who parlor is, before an agent.
fn parlor(agent: &str) -> Object {
    let mut info = Object::default();
    info.set("name", "parlor");
    info.set("title", format!("parlor ({agent})"));
    info.set("version", env!("CARGO_PKG_VERSION"));
    info
}

/// What parlor says of itself to a client. An agent inside this process is who it says it is: nobody stands before it.
fn capabilities(dialect: Dialect, config: &AgentConfig, agents: &Object) -> Object {
    let agent = config.name.as_str();
    let who = if dialect == Dialect::V1 { "agentInfo" } else { "info" };
    let own = config.local.as_ref().and_then(|_| agents.get_object(who));
    let info = own.unwrap_or_else(|| parlor(agent)).to_json();
    let mut result = Object::default();
    result.set("protocolVersion", dialect.version());
    match dialect {
        Dialect::V1 => {
            let mut capabilities = agents.get_object("agentCapabilities").unwrap_or_default();
            capabilities.set("loadSession", true);
            let agents_session = capabilities.get_object("sessionCapabilities").unwrap_or_default();
            let mut session = passed_on(&agents_session, &["additionalDirectories", "systemPrompt"]);
            for name in ["list", "resume", "close", "delete", "archive", "title", "status"] {
                session.set(name, Object::new().to_json());
            }
            session.set("fork", json::json(FORK));
            capabilities.set("sessionCapabilities", session.to_json());
            result.set("agentCapabilities", capabilities.to_json());
        }
        Dialect::V2 | Dialect::Draft => {
            let mut capabilities = agents.get_object("capabilities").unwrap_or_default();
            let agents_session = capabilities.get_object("session").unwrap_or_default();
            let names = ["prompt", "mcp", "additionalDirectories", "systemPrompt"];
            let mut session = passed_on(&agents_session, &names);
            for name in ["delete", "archive", "title", "status"] {
                session.set(name, Object::new().to_json());
            }
            session.set("fork", json::json(FORK));
            capabilities.set("session", session.to_json());
            result.set("capabilities", capabilities.to_json());
        }
    }
    result.set(who, info);
    if let Some(methods) = agents.get("authMethods") {
        result.set("authMethods", methods.clone());
    }
    json::note(&mut result, "parlor/agent", Json::from(agent));
    if dialect == Dialect::Draft {
        json::note(&mut result, Dialect::MARK, Json::from(dialect.name()));
    }
    result
}

/// The capabilities that only the agent can have.
fn passed_on(agents: &Object, names: &[&str]) -> Object {
    let offered = names.iter().filter_map(|name| Some(((*name).into(), agents.get(name)?.clone())));
    offered.collect()
}

/// Begins a session: first at the agent, then here.
pub(super) async fn new_session(
    hub: &Arc<Shared>,
    client: &Arc<Client>,
    id: &RequestId,
    params: Object,
    session: SessionId,
    cancel: Cancel,
) {
    if let Err(error) = try_new(hub, client, id, params, &session, cancel).await {
        client.queue.push(Frame::error(id, &error));
    }
}

async fn try_new(
    hub: &Arc<Shared>,
    client: &Arc<Client>,
    id: &RequestId,
    mut params: Object,
    session: &SessionId,
    mut cancel: Cancel,
) -> Result<(), RpcError> {
    let config = config(hub, client)?;
    let cwd = json::absolute(&params, "cwd");
    let cwd = cwd.ok_or_else(|| RpcError::new(code::INVALID_PARAMS, "`cwd` must be an absolute path"))?;
    if let Some(error) = client.take_failed_start(config.startup_timeout) {
        return Err(error);
    }
    let startup = Startup::new(config.startup_timeout);
    let agent = cancel.unless(agent(hub, client, &config, cwd.as_ref(), session, startup)).await??;
    agent.add_client(client);
    agent.declare_mcp(client, &mut params);
    let dialect = client.dialect();
    let mut losses = Losses::default();
    let (_, mut agents_params) =
        live::request_to_agent("session/new", &params, dialect, agent.about.dialect, None, &mut losses)
            .map_err(|loss| {
                RpcError::new(code::INVALID_PARAMS, format!("the agent cannot be told this: {loss}"))
            })?;
    agent.name_session(&mut agents_params, session);
    let origin = Origin { client: Arc::clone(client), id: id.clone() };
    let opener = Opener::start(&agent, OpeningPlan::Create { params: agents_params }, startup, Some(origin));
    let begun = opener.opened(Some(cancel)).await?;
    let agents_session = begun.session.session.clone();
    let now = session::now();
    let row = SessionRow {
        id: session.as_json().as_literal().to_owned(),
        agent: config.name.clone(),
        agent_session: Some(agents_session.as_json().as_literal().to_owned()),
        cwd,
        title: None,
        parent: None,
        created_at: now,
        active_at: now,
        archived: false,
        busy: false,
        data: data(client, params, agent.about.dialect).to_json().as_str().to_owned(),
    };
    let opened =
        StoredSession { row, transcript: Transcript::default(), kept: None, aliases: None, opened: None };
    hub.note_peer(session, &client.peer);
    hub.losses().count(session, losses);
    hub.begin(opened, session, begun);
    let attach = ClientCall::Attach { id: id.clone(), from: ReplayFrom::New, cwd: None };
    let join = Message::Call(Arc::clone(client), attach);
    hub.send(session, join).await?;
    if config.local.is_some() {
        let mut begun = Object::default();
        begun.set("sessionId", agents_session.as_json());
        agent.notify(live::BEGUN, &begun);
    }
    Ok(())
}

/// What has to be known to give the session to an agent again.
pub(super) fn data(client: &Client, mut params: Object, agent: Dialect) -> Object {
    params.remove("cwd");
    params.remove("_meta");
    let mut data = Object::default();
    data.set("params", params.to_json());
    data.set("dialect", client.dialect().name());
    data.set("agentDialect", agent.name());
    if let Some(AgentChoice::Command(command)) = &client.peer.agent {
        let words: Vec<_> = command.iter().map(|word| Json::from(word).as_str().to_owned()).collect();
        data.set("command", json::json(format!("[{}]", words.join(","))));
    }
    data
}

/// The agent for a client, started if it does not run. Who waits no more does not keep it from starting.
async fn agent(
    hub: &Arc<Shared>,
    client: &Arc<Client>,
    config: &AgentConfig,
    cwd: &std::path::Path,
    session: &SessionId,
    startup: Startup,
) -> Result<Arc<Agent>, RpcError> {
    let (hub, client, config) = (Arc::clone(hub), Arc::clone(client), config.clone());
    let (cwd, session) = (cwd.to_owned(), session.clone());
    let started = tokio::spawn(async move {
        hub.registry().get(&config, Some(&client.peer), &cwd, &session, startup).await
    });
    started
        .await
        .unwrap_or_else(|_| Err(RpcError::new(code::INTERNAL_ERROR, "the agent could not be started")))
}

/// Something of a client's that concerns the agent and no session; without an id it wants no answer.
pub(super) struct Call {
    pub(super) client: Arc<Client>,
    pub(super) id: Option<RequestId>,
    pub(super) method: String,
    pub(super) params: Object,
}

/// The agent that a call is for, if it runs.
pub(super) async fn running(hub: &Shared, call: &Call) -> Result<Option<Arc<Agent>>, RpcError> {
    if let Some((agent, _)) = call.mcp_request() {
        return Ok(Some(agent));
    }
    let config = config(hub, &call.client)?;
    Ok(hub.registry().get_running(&config, &call.client.peer, &SessionId::from("")).await)
}

/// The same, started if it does not run.
pub(super) async fn agent_of(hub: &Arc<Shared>, call: &Call) -> Result<Arc<Agent>, RpcError> {
    let config = config(hub, &call.client)?;
    let cwd = call.client.peer.cwd.clone().unwrap_or_else(|| "/".into());
    let startup = Startup::new(config.startup_timeout);
    agent(hub, &call.client, &config, &cwd, &SessionId::from(""), startup).await
}

impl Call {
    /// Passes it on, and answers the client when the agent does. `sent` is dropped when the agent was told.
    pub(super) async fn pass_on(mut self, agent: Arc<Agent>, cancel: Cancel, sent: oneshot::Sender<()>) {
        agent.add_client(&self.client);
        if self.id.is_none() && self.method == MCP_MESSAGE {
            let Some((agent, server)) = self.mcp_request() else {
                return tracing::debug!("an MCP notification belongs to no open request");
            };
            self.params.set("serverId", &server);
            return agent.notify(MCP_MESSAGE, &self.params);
        }
        let (from, to, mut losses) = (self.client.dialect(), agent.about.dialect, Losses::default());
        let request = live::request_to_agent(&self.method, &self.params, from, to, None, &mut losses);
        let (method, params) = match request {
            Ok(request) => request,
            Err(loss) => {
                let message = format!("the agent's version of the protocol has no {}: {loss}", self.method);
                return self.answer(Err(RpcError::new(code::METHOD_NOT_FOUND, message)));
            }
        };
        let Some(id) = &self.id else { return agent.notify(&method, &params) };
        let origin = Origin { client: Arc::clone(&self.client), id: id.clone() };
        let reply = agent.call_for_client(origin, &method, &params, cancel);
        drop(sent);
        let reply = reply.await;
        self.answer(reply);
    }

    pub(super) fn answer(&self, reply: Result<Json, RpcError>) {
        let line = match (&self.id, reply) {
            (Some(id), Ok(result)) => {
                // Some agents answer so where the protocol has an object.
                let is_empty = result.is_null() && !self.method.starts_with('_');
                Frame::result(id, &if is_empty { Object::new().to_json() } else { result })
            }
            (Some(id), Err(error)) => Frame::error(id, &error),
            (None, Ok(_)) => return,
            (None, Err(error)) => {
                return tracing::debug!(self.method, "a notification reaches nobody: {}", error.message());
            }
        };
        self.client.queue.push(line);
    }

    /// The agent that made the open request to which a notification of an MCP server belongs, and its id for the server.
    fn mcp_request(&self) -> Option<(Arc<Agent>, JsonStr)> {
        if self.id.is_some() || self.method != MCP_MESSAGE {
            return None;
        }
        let (server, request) =
            (self.params.get_json_str("serverId")?, self.params.get_json_str("requestId")?);
        self.client.mcp_request(&server, &request, AgentRequest::provider_of).flatten()
    }
}

const MCP_MESSAGE: &str = "mcp/message";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parlors_own_capabilities_stand_beside_the_agents() {
        let agents = json::object(Some(
            Json::parse(r#"{"agentCapabilities":{"promptCapabilities":{"image":true}},"authMethods":[{"id":"a","name":"A"}]}"#)
                .unwrap()
                .raw(),
        ));
        let said = capabilities(Dialect::V1, &AgentConfig::new("x", Vec::new()), &agents);
        let capabilities = said.get_object("agentCapabilities").unwrap();
        assert_eq!(capabilities.get("loadSession").unwrap().as_str(), "true");
        assert_eq!(capabilities.get("promptCapabilities").unwrap().as_str(), r#"{"image":true}"#);
        assert!(said.get("authMethods").is_some());
    }

    #[test]
    fn what_only_the_agent_can_do_is_offered_if_it_does() {
        let session = r#"{"additionalDirectories":{},"systemPrompt":{"append":true},"status":null,"own":{}}"#;
        for (dialect, holder, name, agents) in [
            (Dialect::V1, "agentCapabilities", "sessionCapabilities", "agentCapabilities"),
            (Dialect::V2, "capabilities", "session", "capabilities"),
        ] {
            let offers = format!(r#"{{"{agents}":{{"{name}":{session}}}}}"#);
            let offers = json::object(Some(Json::parse(offers).unwrap().raw()));
            for (agents, directories) in [(&offers, Some("{}")), (&Object::default(), None)] {
                let said = capabilities(dialect, &AgentConfig::new("x", Vec::new()), agents);
                let said = said.get_object(holder).unwrap().get_object(name).unwrap();
                assert_eq!(said.get("additionalDirectories").map(Json::as_str), directories);
                assert_eq!(said.get("systemPrompt").is_some(), directories.is_some());
                assert_eq!(said.get("status").unwrap().as_str(), "{}", "parlor answers it itself");
                assert_eq!(said.get("own"), None);
            }
        }
    }
}
