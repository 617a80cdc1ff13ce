//! Responds to `initialize`: the capabilities of parlor and of the client's agent.

use std::ffi::OsStr;
use std::sync::Arc;

use parlor_dialect::{Dialect, Losses, live};
use parlor_engine::{Capability, ClientInfo, HandoffAgent};
use parlor_json::Object;
use parlor_session::SessionId;
use parlor_wire::{RpcError, code};

use crate::agent::Startup;
use crate::auth_method::{TERMINAL_AUTH, for_client};
use crate::client::Client;
use crate::config::{AgentConfig, ConfigError};
use crate::hub::{AgentChoice, HubState};

/// The metadata key of the name of an agent.
pub(super) const AGENT: &str = "parlor/agent";

/// The configuration of the agent that a client chose.
pub(super) async fn config(hub: &HubState, client: &Client) -> Result<AgentConfig, RpcError> {
    chosen(hub, client, client.options.agent.clone()).await
}

/// The configuration of an agent, of the default one if a client has not chosen any.
pub(super) async fn chosen(
    hub: &HubState,
    client: &Client,
    choice: Option<AgentChoice>,
) -> Result<AgentConfig, RpcError> {
    let options = Arc::clone(&client.options);
    let chosen =
        hub.agent_pool().inspect(move |agents| agents.chosen(choice.as_ref(), &options.search_path()));
    chosen.await?.map_err(invalid_choice)
}

/// The error for a client that chose an agent that the server does not have.
fn invalid_choice(error: ConfigError) -> RpcError {
    let failure = RpcError::new(code::INVALID_PARAMS, error.to_string());
    match error.hint {
        Some(hint) => failure.with_data(Object::new().with("hint", hint).to_json()),
        None => failure,
    }
}

/// The agent that the params of `session/fork` name to continue the conversation, if they name one.
pub(super) async fn handoff(hub: &Arc<HubState>, params: &Object) -> Result<Option<HandoffAgent>, RpcError> {
    let Some(named) = params.get_nested("_meta", AGENT).filter(|agent| !agent.is_null()) else {
        return Ok(None);
    };
    let name = named.to_json_str().map(|name| name.to_text().into_owned());
    let name = name
        .ok_or_else(|| RpcError::new(code::INVALID_PARAMS, "`parlor/agent` must be the name of an agent"))?;
    hub.reload_config().await;
    let choice = AgentChoice::Named(name);
    let config = hub.agent_pool().agents().chosen(Some(&choice), OsStr::new("")).map_err(invalid_choice)?;
    let dialect = hub.agent_pool().load_agent_info(&config).await.map(|known| known.dialect);
    Ok(Some(HandoffAgent { name: config.name, dialect }))
}

/// The result of `initialize`: the capabilities of parlor, and those of the agent if it was ever started. Only the first
/// client of an agent waits for its start.
pub(super) async fn initialized(
    hub: &Arc<HubState>,
    client: &Arc<Client>,
    dialect: Dialect,
) -> Result<Object, RpcError> {
    hub.reload_config().await;
    let config = match config(hub, client).await {
        // A client that has to choose an agent for new sessions can use the others without.
        Err(_) if client.options.agent.is_none() => {
            return Ok(capabilities(dialect, &AgentConfig::new("no agent", Vec::new()), &Object::default()));
        }
        chosen => chosen?,
    };
    // An embedded agent starts at once, and may differ from the one of the last process.
    let mut known = hub.agent_pool().load_agent_info(&config).await.filter(|_| config.embedded.is_none());
    if known.is_none() && client.is_driver() {
        let cwd = client.options.cwd.clone().unwrap_or_else(|| "/".into());
        // A client whose agent cannot be started can still read sessions.
        let startup = Startup::new(config.startup_timeout);
        match hub
            .agent_pool()
            .get(&config, Some(&client.to_requesting_client()), &cwd, &SessionId::from(""), startup)
            .await
        {
            Ok(_) => known = hub.agent_pool().load_agent_info(&config).await,
            Err(error) => {
                tracing::warn!(agent = config.name, "{}", error.message());
                client.set_start_error(error);
            }
        }
    }
    let mut losses = Losses::default();
    let agents = known.map(|known| live::agent_info(&known.initialize, known.dialect, dialect, &mut losses));
    let mut agents = agents.unwrap_or_default();
    // The clients of an embedded agent run its own program.
    if let Some(methods) = agents.get("authMethods").filter(|_| config.embedded.is_none()) {
        let usable = for_client(methods, client.negotiated().is_some_and(runs_login_commands));
        agents.set("authMethods", usable);
    }
    Ok(capabilities(dialect, &config, &agents))
}

/// Whether a client is on this machine and runs the commands that agents name in the metadata of their authentication methods.
fn runs_login_commands(client: &ClientInfo) -> bool {
    let capabilities = match client.dialect {
        Dialect::V1 => client.initialize.get_object("clientCapabilities"),
        Dialect::V2 | Dialect::Draft => client.initialize.get_object("capabilities"),
    };
    let declared = capabilities.and_then(|capabilities| capabilities.get_nested("_meta", TERMINAL_AUTH));
    client.is_local && declared.is_some_and(|declared| declared.as_bool() == Some(true))
}

/// Every session can be forked at any message, whatever its agent can do.
fn fork_capability() -> Object {
    Object::new().with("atMessageId", true)
}

/// The implementation info of parlor in front of an agent.
fn parlor_info(agent: &str) -> Object {
    let mut info = Object::default();
    info.set("name", "parlor");
    info.set("title", format!("parlor ({agent})"));
    info.set("version", env!("CARGO_PKG_VERSION"));
    info
}

/// Merges the capabilities of parlor and of the agent. An embedded agent shows its own implementation info.
fn capabilities(dialect: Dialect, config: &AgentConfig, agents: &Object) -> Object {
    let agent = config.name.as_str();
    let info_name = if dialect == Dialect::V1 { "agentInfo" } else { "info" };
    let own = config.embedded.as_ref().and_then(|_| agents.get_object(info_name));
    let info = own.unwrap_or_else(|| parlor_info(agent)).to_json();
    let mut result = Object::default();
    result.set("protocolVersion", dialect.version());
    match dialect {
        Dialect::V1 => {
            let mut capabilities = agents.get_object("agentCapabilities").unwrap_or_default();
            capabilities.set("loadSession", true);
            let agents_session = capabilities.get_object("sessionCapabilities").unwrap_or_default();
            let mut session = agent_capabilities(&agents_session, &["additionalDirectories", "systemPrompt"]);
            for name in ["list", "resume", "close", "delete", "archive", "title", "status", "attach"] {
                session.set(name, Object::new());
            }
            session.set("fork", fork_capability());
            capabilities.set("sessionCapabilities", session.to_json());
            result.set("agentCapabilities", capabilities.to_json());
        }
        Dialect::V2 | Dialect::Draft => {
            let mut capabilities = agents.get_object("capabilities").unwrap_or_default();
            let agents_session = capabilities.get_object("session").unwrap_or_default();
            let names = ["prompt", "mcp", "additionalDirectories", "systemPrompt"];
            let mut session = agent_capabilities(&agents_session, &names);
            for name in ["delete", "archive", "title", "status", "attach"] {
                session.set(name, Object::new());
            }
            session.set("fork", fork_capability());
            capabilities.set("session", session.to_json());
            result.set("capabilities", capabilities.to_json());
        }
    }
    result.set(info_name, info);
    if let Some(methods) = agents.get("authMethods") {
        result.set("authMethods", methods.clone());
    }
    if Capability::Steering.is_in(dialect, agents) {
        result.set_nested("_meta", "steering", Object::new().with("supported", true));
    }
    result.set_nested("_meta", AGENT, agent);
    if dialect == Dialect::Draft {
        result.set_nested("_meta", Dialect::MARK, dialect.name());
    }
    result
}

/// Selects the capabilities that only the agent can have.
fn agent_capabilities(agents: &Object, names: &[&str]) -> Object {
    let selected = names.iter().filter_map(|name| Some(((*name).into(), agents.get(name)?.clone())));
    selected.collect()
}

#[cfg(test)]
mod tests {
    use parlor_json::Json;

    use super::*;

    #[test]
    fn capabilities_of_parlor_are_added_to_those_of_the_agent() {
        let agents = Json::parse(r#"{"agentCapabilities":{"promptCapabilities":{"image":true}},"authMethods":[{"id":"a","name":"A"}]}"#)
                .unwrap().to_object().unwrap_or_default();
        let result = capabilities(Dialect::V1, &AgentConfig::new("x", Vec::new()), &agents);
        let capabilities = result.get_object("agentCapabilities").unwrap();
        assert_eq!(capabilities.get("loadSession").unwrap().as_str(), "true");
        assert_eq!(capabilities.get("promptCapabilities").unwrap().as_str(), r#"{"image":true}"#);
        assert!(result.get("authMethods").is_some());
    }

    #[test]
    fn capabilities_that_only_the_agent_can_have_are_passed_on() {
        let session = r#"{"additionalDirectories":{},"systemPrompt":{"append":true},"status":null,"own":{}}"#;
        for (dialect, holder, name, agents) in [
            (Dialect::V1, "agentCapabilities", "sessionCapabilities", "agentCapabilities"),
            (Dialect::V2, "capabilities", "session", "capabilities"),
        ] {
            let initialize = format!(r#"{{"{agents}":{{"{name}":{session}}}}}"#);
            let initialize = Json::parse(initialize).unwrap().to_object().unwrap_or_default();
            for (agents, directories) in [(&initialize, Some("{}")), (&Object::default(), None)] {
                let result = capabilities(dialect, &AgentConfig::new("x", Vec::new()), agents);
                let result = result.get_object(holder).unwrap().get_object(name).unwrap();
                assert_eq!(result.get("additionalDirectories").map(Json::as_str), directories);
                assert_eq!(result.get("systemPrompt").is_some(), directories.is_some());
                assert_eq!(result.get("status").unwrap().as_str(), "{}", "parlor answers it itself");
                assert_eq!(result.get("own"), None);
            }
        }
    }
}
