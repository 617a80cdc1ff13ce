//! MCP servers of the configuration, which agents get in addition to those of clients.

use core::fmt;

use parlor_dialect::{Dialect, LossKind, Losses, live};
use parlor_json::{Json, Object};

use crate::AgentInfo;

/// An MCP server that an agent is to use.
#[derive(Clone, PartialEq, Eq)]
pub struct McpServer {
    /// Its name. A client's own server of the same name is used instead.
    pub name: String,
    /// How the agent connects to it.
    pub transport: McpTransport,
    /// Its other members in version 2 of the protocol, without `type` and `name`. They may have secrets.
    pub members: Object,
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServer")
            .field("name", &self.name)
            .field("transport", &self.transport)
            .finish_non_exhaustive()
    }
}

/// How an agent connects to an MCP server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum McpTransport {
    /// It starts a program.
    Stdio,
    /// Streamable HTTP.
    Http,
    /// HTTP with server-sent events, which only version 1 of the protocol defines.
    Sse,
}

impl McpTransport {
    /// Its name in the protocol.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Http => "http",
            Self::Sse => "sse",
        }
    }
}

impl AgentInfo {
    /// Whether it can connect to MCP servers of this kind.
    pub fn has_mcp(&self, transport: McpTransport) -> bool {
        match self.dialect {
            // Every agent of version 1 has to start programs.
            Dialect::V1 if transport == McpTransport::Stdio => true,
            Dialect::V1 => {
                let capabilities = self.initialize.get_object("agentCapabilities").unwrap_or_default();
                let mcp = capabilities.get_object("mcpCapabilities").unwrap_or_default();
                mcp.get_bool(transport.name()) == Some(true)
            }
            Dialect::V2 | Dialect::Draft => {
                let capabilities = self.initialize.get_object("capabilities").unwrap_or_default();
                let session = capabilities.get_object("session").unwrap_or_default();
                session.get_object("mcp").is_some_and(|mcp| mcp.get_object(transport.name()).is_some())
            }
        }
    }
}

/// Adds servers to the params of a request that opens an agent session, in the agent's dialect. A server whose name the params
/// have already is skipped. Returns the servers that the agent cannot use, each of which is a loss.
pub fn add_servers<'a>(
    params: &mut Object,
    configured: &'a [McpServer],
    agent: &AgentInfo,
    losses: &mut Losses,
) -> Vec<&'a McpServer> {
    let given: Vec<Json> =
        params.get_array("mcpServers").unwrap_or_default().into_iter().map(Json::from).collect();
    let is_given = |name: &str| {
        let has_name = |server: &Json| {
            server.to_object().and_then(|server| server.get_string("name")).as_deref() == Some(name)
        };
        given.iter().any(has_name)
    };
    let (usable, left_out): (Vec<_>, Vec<_>) = configured
        .iter()
        .filter(|server| !is_given(&server.name))
        .partition(|server| agent.has_mcp(server.transport));
    left_out.iter().for_each(|_| losses.add(LossKind::McpTransport));
    if usable.is_empty() {
        return left_out;
    }
    let servers = usable.into_iter().map(|server| {
        let mut members = Object::new().with("type", server.transport.name()).with("name", &server.name);
        members.add_missing(&server.members);
        members
    });
    let own = Object::new().with("mcpServers", Json::array(servers));
    // The list can be expressed in every dialect.
    if let Ok((_, own)) =
        live::request_to_agent("session/new", &own, Dialect::V2, agent.dialect, None, losses)
    {
        let own = own.get_array("mcpServers").unwrap_or_default().into_iter().map(Json::from);
        params.set("mcpServers", Json::array(given.iter().cloned().chain(own)));
    }
    left_out
}

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::{v1, v2};

    use super::*;

    fn object(text: &str) -> Object {
        Json::parse(text).unwrap().to_object().unwrap()
    }

    fn agent(dialect: Dialect, capabilities: &str) -> AgentInfo {
        let name = if dialect == Dialect::V1 { "agentCapabilities" } else { "capabilities" };
        let initialize = object(&format!(r#"{{"{name}":{capabilities}}}"#));
        let (name, label) = ("a".to_owned(), "a".to_owned());
        AgentInfo { name, label, dialect, initialize, is_embedded: false }
    }

    fn configured() -> Vec<McpServer> {
        let server = |name: &str, transport, members: &str| McpServer {
            name: name.to_owned(),
            transport,
            members: object(members),
        };
        vec![
            server(
                "files",
                McpTransport::Stdio,
                r#"{"command":"/bin/files","args":["-x"],"env":[{"name":"KEY","value":"secret"}]}"#,
            ),
            server("docs", McpTransport::Http, r#"{"url":"https://docs"}"#),
            server("old", McpTransport::Sse, r#"{"url":"https://old","headers":[]}"#),
        ]
    }

    /// The params of an agent, the names of the servers that it cannot use, and the losses.
    fn added(params: &str, agent: &AgentInfo) -> (String, Vec<String>, usize) {
        let (mut params, configured) = (object(params), configured());
        let mut losses = Losses::default();
        let left_out = add_servers(&mut params, &configured, agent, &mut losses);
        let left_out = left_out.iter().map(|server| server.name.clone()).collect();
        let count = losses.into_vec().iter().filter(|loss| loss.kind == LossKind::McpTransport).count();
        (params.text(), left_out, count)
    }

    #[test]
    fn an_agent_gets_the_servers_whose_transport_it_has() {
        let v1 = agent(Dialect::V1, r#"{"mcpCapabilities":{"http":true}}"#);
        let (params, left_out, losses) = added(r#"{"cwd":"/","mcpServers":[]}"#, &v1);
        assert_eq!(
            params,
            r#"{"cwd":"/","mcpServers":[{"name":"files","command":"/bin/files","args":["-x"],"env":[{"name":"KEY","value":"secret"}]},{"type":"http","name":"docs","url":"https://docs","headers":[]}]}"#
        );
        let request: v1::NewSessionRequest = serde_json::from_str(&params).unwrap();
        assert_eq!((request.mcp_servers.len(), left_out, losses), (2, vec!["old".to_owned()], 1));

        let v2 = agent(Dialect::V2, r#"{"session":{"mcp":{"stdio":{},"http":{}}}}"#);
        let (params, left_out, losses) = added(r#"{"cwd":"/"}"#, &v2);
        assert_eq!(
            params,
            r#"{"cwd":"/","mcpServers":[{"type":"stdio","name":"files","command":"/bin/files","args":["-x"],"env":[{"name":"KEY","value":"secret"}]},{"type":"http","name":"docs","url":"https://docs"}]}"#
        );
        let request: v2::NewSessionRequest = serde_json::from_str(&params).unwrap();
        assert_eq!((request.mcp_servers.len(), left_out, losses), (2, vec!["old".to_owned()], 1));
    }

    #[test]
    fn an_agent_without_capabilities_gets_programs_only_in_version_1() {
        let (params, left_out, losses) = added("{}", &agent(Dialect::V1, "{}"));
        assert!(params.contains("files") && !params.contains("docs"), "{params}");
        assert_eq!((left_out.len(), losses), (2, 2));
        let (params, left_out, losses) =
            added("{}", &agent(Dialect::Draft, r#"{"session":{"mcp":{"stdio":null}}}"#));
        assert_eq!((params.as_str(), left_out.len(), losses), ("{}", 3, 3));
    }

    #[test]
    fn a_server_of_the_client_replaces_one_of_the_same_name() {
        let v1 = agent(Dialect::V1, r#"{"mcpCapabilities":{"http":true,"sse":true}}"#);
        let own = r#"{"mcpServers":[{"name":"files","command":"/own","args":[],"env":[]},{"type":"sse","name":"old","url":"https://own","headers":[]}]}"#;
        let (params, left_out, _) = added(own, &v1);
        assert!(params.contains("/own") && params.contains("https://own"), "{params}");
        assert!(!params.contains("/bin/files") && !params.contains("https://old"), "{params}");
        assert!(params.contains("https://docs") && left_out.is_empty(), "{params}");
    }

    #[test]
    fn secrets_are_not_in_debug_output() {
        assert!(!format!("{:?}", configured()).contains("secret"));
    }
}
