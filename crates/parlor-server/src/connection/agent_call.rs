//! Forwards requests and notifications of a client to its agent, outside of sessions.

use std::sync::Arc;

use parlor_dialect::{Losses, live};
use parlor_engine::Frame;
use parlor_json::{Json, JsonStr, Object};
use parlor_session::SessionId;
use parlor_wire::{RequestId, RpcError};
use tokio::sync::oneshot;

use super::{create, initialize};
use crate::agent::{Agent, AgentRequest, CancelToken, Origin, Startup};
use crate::client::Client;
use crate::hub::HubState;

const MCP_MESSAGE: &str = "mcp/message";

/// A request of a client to the agent outside of sessions, or a notification, which has no id.
pub(super) struct SessionlessCall {
    pub(super) client: Arc<Client>,
    pub(super) id: Option<RequestId>,
    pub(super) method: String,
    pub(super) params: Object,
}

/// The agent that a call is for, if it is running.
pub(super) async fn running(hub: &HubState, call: &SessionlessCall) -> Result<Option<Arc<Agent>>, RpcError> {
    if let Some((agent, _)) = call.mcp_request() {
        return Ok(Some(agent));
    }
    let config = initialize::config(hub, &call.client).await?;
    Ok(hub.agent_pool().get_running(&config, &call.client.options, &SessionId::from("")).await)
}

/// The agent that a call is for, which is started if it is not running.
pub(super) async fn agent_of(hub: &Arc<HubState>, call: &SessionlessCall) -> Result<Arc<Agent>, RpcError> {
    let config = initialize::config(hub, &call.client).await?;
    let cwd = call.client.options.cwd.clone().unwrap_or_else(|| "/".into());
    let startup = Startup::new(config.startup_timeout);
    create::agent(hub, &call.client, &config, &cwd, &SessionId::from(""), startup).await
}

impl SessionlessCall {
    /// Sends the call to the agent, and its response to the client. `sent` is dropped when the call is queued.
    pub(super) async fn forward(mut self, agent: Arc<Agent>, cancel: CancelToken, sent: oneshot::Sender<()>) {
        agent.add_client(&self.client);
        if self.id.is_none() && self.method == MCP_MESSAGE {
            let Some((agent, server)) = self.mcp_request() else {
                return tracing::debug!("dropping an MCP notification: its request is not in flight");
            };
            self.params.set("serverId", &server);
            return agent.notify(MCP_MESSAGE, &self.params);
        }
        let (from, to, mut losses) = (self.client.dialect(), agent.info.dialect, Losses::default());
        let request = live::request_to_agent(&self.method, &self.params, from, to, None, &mut losses);
        let (method, params) = match request {
            Ok(request) => request,
            Err(loss) => {
                let error = loss.request_error("agent", &self.method);
                return self.answer(Err(error));
            }
        };
        let Some(id) = &self.id else { return agent.notify(&method, &params) };
        let origin = Origin { client: Arc::clone(&self.client), id: id.clone() };
        let reply = agent.call_for_client(origin, &method, &params, cancel);
        drop(sent);
        let reply = reply.await;
        if reply.is_ok() {
            match method.as_str() {
                "authenticate" | "auth/login" => drop(agent.set_logged_in(true)),
                "logout" | "auth/logout" => drop(agent.set_logged_in(false)),
                _ => {}
            }
        }
        self.answer(reply);
    }

    /// Sends the response to the client.
    pub(super) fn answer(&self, reply: Result<Json, RpcError>) {
        let response = match (&self.id, reply) {
            (Some(id), Ok(result)) => {
                // Some agents respond with null where the protocol has an object.
                let is_empty = result.is_null() && !self.method.starts_with('_');
                Frame::result(id, &if is_empty { Json::from(Object::new()) } else { result })
            }
            (Some(id), Err(error)) => Frame::error(id, &error),
            (None, Ok(_)) => return,
            (None, Err(error)) => {
                return tracing::debug!(self.method, "dropping a notification: {}", error.message());
            }
        };
        self.client.queue.push(response);
    }

    /// The agent whose request in flight an MCP notification belongs to, and its id for the MCP server.
    fn mcp_request(&self) -> Option<(Arc<Agent>, JsonStr)> {
        if self.id.is_some() || self.method != MCP_MESSAGE {
            return None;
        }
        let (server, request) =
            (self.params.get_json_str("serverId")?, self.params.get_json_str("requestId")?);
        self.client.mcp_request(&server, &request, AgentRequest::agent_and_server).flatten()
    }
}
