//! Where clients and sessions begin.

use std::sync::Arc;

use parlor_dialect::{Dialect, Losses, live};
use parlor_json::Object;
use parlor_session::{SessionId, Transcript};
use parlor_store::SessionRow;
use parlor_wire::{RequestId, RpcError, code, write};

use crate::client::Client;
use crate::config::AgentConfig;
use crate::hub::{AgentChoice, Shared};
use crate::json;
use crate::session::{self, Bound, From, Message};
use crate::stored::Opened;

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
    let mut known = hub.registry().remembered(&config).filter(|_| config.local.is_none());
    if known.is_none() && client.drives() {
        let cwd = client.peer.cwd.clone().unwrap_or_else(|| "/".into());
        // One that cannot be started is no reason to turn the client away: there may be sessions to look at.
        match hub.registry().get(&config, Some(&client.peer), &cwd, &SessionId::from("")).await {
            Ok(_) => known = hub.registry().remembered(&config),
            Err(error) => tracing::warn!(agent = config.name, "{}", error.message()),
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
    info.set("name", json::string("parlor"));
    info.set("title", json::string(&format!("parlor ({agent})")));
    info.set("version", json::string(env!("CARGO_PKG_VERSION")));
    info
}

/// What parlor says of itself to a client. An agent inside this process is who it says it is: nobody stands before it.
fn capabilities(dialect: Dialect, config: &AgentConfig, agents: &Object) -> Object {
    let agent = config.name.as_str();
    let who = if dialect == Dialect::V1 { "agentInfo" } else { "info" };
    let own = config.local.as_ref().and_then(|_| json::member(agents, who));
    let info = own.unwrap_or_else(|| parlor(agent)).to_json();
    let mut result = Object::default();
    result.set("protocolVersion", json::json(dialect.version().to_string()));
    match dialect {
        Dialect::V1 => {
            let mut capabilities = json::member(agents, "agentCapabilities").unwrap_or_default();
            capabilities.set("loadSession", json::json("true"));
            capabilities.set(
                "sessionCapabilities",
                json::json(format!(
                    r#"{{"list":{{}},"resume":{{}},"close":{{}},"delete":{{}},"archive":{{}},"title":{{}},"fork":{FORK}}}"#
                )),
            );
            result.set("agentCapabilities", capabilities.to_json());
        }
        Dialect::V2 | Dialect::Draft => {
            let mut capabilities = json::member(agents, "capabilities").unwrap_or_default();
            let agents_session = json::member(&capabilities, "session").unwrap_or_default();
            let mut session = Object::default();
            for name in ["prompt", "mcp"] {
                if let Some(value) = agents_session.get(name) {
                    session.set(name, value.clone());
                }
            }
            session.set("delete", json::json("{}"));
            session.set("fork", json::json(FORK));
            session.set("archive", json::json("{}"));
            session.set("title", json::json("{}"));
            capabilities.set("session", session.to_json());
            result.set("capabilities", capabilities.to_json());
        }
    }
    result.set(who, info);
    if let Some(methods) = agents.get("authMethods") {
        result.set("authMethods", methods.clone());
    }
    json::note(&mut result, "parlor/agent", json::string(agent));
    if dialect == Dialect::Draft {
        json::note(&mut result, Dialect::MARK, json::string(dialect.name()));
    }
    result
}

/// Begins a session: first at the agent, then here.
pub(super) async fn new_session(
    hub: &Arc<Shared>,
    client: &Arc<Client>,
    id: &RequestId,
    params: Object,
    session: SessionId,
) {
    if let Err(error) = try_new(hub, client, id, params, &session).await {
        client.outbox.push(json::error(id, &error).into());
    }
}

async fn try_new(
    hub: &Arc<Shared>,
    client: &Arc<Client>,
    id: &RequestId,
    params: Object,
    session: &SessionId,
) -> Result<(), RpcError> {
    let config = config(hub, client)?;
    let cwd = json::text(&params, "cwd").filter(|cwd| cwd.starts_with('/'));
    let cwd = cwd.ok_or_else(|| RpcError::new(code::INVALID_PARAMS, "`cwd` must be an absolute path"))?;
    let agent = hub.registry().get(&config, Some(&client.peer), cwd.as_ref(), session).await?;
    agent.add_client(client);
    let dialect = client.dialect();
    let mut losses = Losses::default();
    let (method, mut agents_params) =
        live::request_to_agent("session/new", &params, dialect, agent.dialect, None, &mut losses).map_err(
            |loss| RpcError::new(code::INVALID_PARAMS, format!("the agent cannot be told this: {loss}")),
        )?;
    agent.name_session(&mut agents_params, session);
    let _beginning = agent.beginnings.begin();
    let result =
        agent.call(&method, &agents_params).await.map_err(|error| RpcError::from_raw(error.raw()))?;
    let mut result = json::object(Some(result.raw()));
    let agents_session = json::session_of(&result)
        .ok_or_else(|| RpcError::new(code::INTERNAL_ERROR, "the agent began a session without an id"))?;
    result.remove("sessionId");
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
        data: data(client, params, agent.dialect).to_json().as_str().to_owned(),
    };
    let opened = Opened { row, transcript: Transcript::default(), kept: None, answers: None, aliases: None };
    let mut begun = Object::default();
    begun.set("sessionId", agents_session.as_json());
    let bound = Bound {
        agent: Arc::clone(&agent),
        session: agents_session,
        replays: false,
        anew: false,
        result: Object::default(),
    };
    hub.note_peer(session, &client.peer);
    hub.begin(opened, session, bound, result);
    hub.send(session, Message::Join { client: Arc::clone(client), id: id.clone(), from: From::New }).await?;
    if config.local.is_some() {
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
    data.set("dialect", json::string(client.dialect().name()));
    data.set("agentDialect", json::string(agent.name()));
    if let Some(AgentChoice::Command(command)) = &client.peer.agent {
        let words: Vec<_> = command.iter().map(|word| json::string(word).as_str().to_owned()).collect();
        data.set("command", json::json(format!("[{}]", words.join(","))));
    }
    data
}

/// Something that concerns the agent and no session.
pub(super) async fn for_agent(
    hub: &Arc<Shared>,
    client: &Arc<Client>,
    id: &RequestId,
    method: &str,
    params: &Object,
) {
    let answer = async {
        let config = config(hub, client)?;
        let cwd = client.peer.cwd.clone().unwrap_or_else(|| "/".into());
        let agent = hub.registry().get(&config, Some(&client.peer), &cwd, &SessionId::from("")).await?;
        agent.add_client(client);
        let mut losses = Losses::default();
        let request =
            live::request_to_agent(method, params, client.dialect(), agent.dialect, None, &mut losses);
        let (method, params) = request.map_err(|loss| {
            let message = format!("the agent's version of the protocol has no {method}: {loss}");
            RpcError::new(code::METHOD_NOT_FOUND, message)
        })?;
        agent.call(&method, &params).await.map_err(|error| RpcError::from_raw(error.raw()))
    };
    let line = match answer.await {
        Ok(result) => {
            write::response(id, if result.is_null() { json::json("{}") } else { result }.raw()) + "\n"
        }
        Err(error) => json::error(id, &error),
    };
    client.outbox.push(line.into());
}

#[cfg(test)]
mod tests {
    use parlor_json::Json;

    use super::*;

    #[test]
    fn parlors_own_capabilities_stand_beside_the_agents() {
        let agents = json::object(Some(
            Json::parse(r#"{"agentCapabilities":{"promptCapabilities":{"image":true}},"authMethods":[{"id":"a","name":"A"}]}"#)
                .unwrap()
                .raw(),
        ));
        let said = capabilities(Dialect::V1, &AgentConfig::new("x", Vec::new()), &agents);
        let capabilities = json::member(&said, "agentCapabilities").unwrap();
        assert_eq!(capabilities.get("loadSession").unwrap().as_str(), "true");
        assert_eq!(capabilities.get("promptCapabilities").unwrap().as_str(), r#"{"image":true}"#);
        assert!(said.get("authMethods").is_some());
    }
}
