//! Requests and notifications between an agent and its clients that belong to no session.

use std::sync::{Arc, Weak};

use parlor_dialect::{Losses, live};
use parlor_engine::{Frame, FrameKind};
use parlor_json::{Json, JsonRef, JsonStr, Object};
use parlor_session::session::{Answer, ClientId};
use parlor_session::{SessionId, Transcript};
use parlor_wire::{Body, Message as Rpc, RequestId, RpcError, code};
use tokio::sync::{oneshot, watch};

use super::{Agent, CallGuard, Origin, PendingCall, Reply};
use crate::client::{Client, Requester};
use crate::lock;
use crate::session::{AgentMessage, Mailbox, Route, SessionCall, SessionMessage};

/// How many requests of one agent outside of sessions may be in flight.
const MAX_REQUESTS: usize = 1000;

/// How many sessions are tracked as having received messages recently.
const MAX_RECENT: usize = 64;

const MCP_MESSAGE: &str = "mcp/message";
const ELICITATION: &str = "elicitation/create";

/// A request of an agent outside of sessions that a client was sent.
#[derive(Debug)]
pub(crate) struct AgentRequest {
    agent: Arc<Agent>,
    /// The agent's id for the request.
    id: RequestId,
    method: String,
    mcp: Option<McpRequest>,
}

/// A request to an MCP server of a client, inside of an `mcp/message`.
#[derive(Debug, Clone)]
struct McpRequest {
    /// The client's id for the server, the agent's id for it, and the id of the inner request.
    own: JsonStr,
    agents: JsonStr,
    id: JsonStr,
}

impl AgentRequest {
    /// The client's id for the MCP server, and the id of the inner request.
    pub(crate) fn mcp(&self) -> Option<(&JsonStr, &JsonStr)> {
        self.mcp.as_ref().map(|mcp| (&mcp.own, &mcp.id))
    }

    /// The agent, and its id for the MCP server.
    pub(crate) fn agent_and_server(&self) -> Option<(Arc<Agent>, JsonStr)> {
        self.mcp.as_ref().map(|mcp| (Arc::clone(&self.agent), mcp.agents.clone()))
    }

    /// Sends the agent the response of a client.
    pub(crate) fn respond(self, by: &Client, answer: Answer) {
        let reply = match answer {
            Answer::Result(result) => {
                let (from, to) = (by.dialect(), self.agent.info.dialect);
                Ok(live::answer_to_agent(&self.method, &result, from, to, &mut Losses::default()))
            }
            Answer::Error(error) => Err(error),
            Answer::LeftOpen => Err(parlor_engine::cannot_ask()),
        };
        self.reply(&reply);
    }

    /// Responds for a client that has disconnected.
    pub(crate) fn on_client_gone(self) {
        let reply = undeliverable(&self.method, "the client has disconnected");
        self.reply(&reply);
    }

    fn reply(self, reply: &Reply) {
        // A cancelled request gets no response.
        if lock(&self.agent.requests).remove(&self.id).is_some() {
            self.agent.answer(&self.id, reply);
        }
    }
}

/// The response to a request that no client can answer. An elicitation counts as cancelled.
fn undeliverable(method: &str, reason: &str) -> Reply {
    if method == ELICITATION {
        return Ok(live::cancelled_answer(method));
    }
    Err(RpcError::new(code::METHOD_NOT_FOUND, format!("cannot answer {method}: {reason}")).to_json())
}

/// Signals that a client has cancelled its request.
#[derive(Debug, Clone)]
pub(crate) struct CancelToken(watch::Receiver<bool>);

impl CancelToken {
    pub(crate) fn new() -> (watch::Sender<bool>, Self) {
        let (sender, receiver) = watch::channel(false);
        (sender, Self(receiver))
    }

    /// Waits until the client cancels the request.
    pub(crate) async fn cancelled(&mut self) {
        if self.0.wait_for(|is_cancelled| *is_cancelled).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits for a future, or fails when the request is cancelled.
    pub(crate) async fn or_cancelled<T>(&mut self, done: impl Future<Output = T>) -> Result<T, RpcError> {
        tokio::select! {
            biased;
            () = self.cancelled() => Err(cancelled_error()),
            done = done => Ok(done),
        }
    }
}

/// The error of a cancelled request.
fn cancelled_error() -> RpcError {
    RpcError::new(code::REQUEST_CANCELLED, "the request was cancelled")
}

impl Agent {
    /// Calls the agent for a client. If the client cancels the request, the agent still decides the response.
    pub(crate) fn call_for_client(
        self: &Arc<Self>,
        origin: Origin,
        method: &str,
        params: &Object,
        mut cancel: CancelToken,
    ) -> impl Future<Output = Result<Json, RpcError>> + Send + use<> {
        let (sender, mut response) = oneshot::channel();
        let sent = self.send_request(method, params, PendingCall::Caller(sender, Some(origin)));
        let agent = Arc::clone(self);
        async move {
            let id = sent.map_err(|error| RpcError::from_raw(error.raw()))?;
            let _guard = CallGuard { agent: &agent, id: id.clone() };
            let reply = tokio::select! {
                biased;
                reply = &mut response => reply,
                () = cancel.cancelled() => {
                    agent.cancel_call(&id);
                    response.await
                }
            };
            match reply {
                Ok(reply) => reply.map_err(|error| RpcError::from_raw(error.raw())),
                Err(_) => Err(agent.error()),
            }
        }
    }

    /// Gives the MCP servers that a client serves over its connection ids that are unique among the agent's clients.
    pub(crate) fn assign_mcp_ids(&self, client: &Client, params: &mut Object) {
        // Locked until the ids are assigned, so that no other client is assigned the same.
        let clients = lock(&self.clients);
        let others: Vec<_> =
            clients.iter().filter_map(Weak::upgrade).filter(|other| other.id != client.id).collect();
        let is_taken = |id: &JsonStr| others.iter().any(|other| other.mcp_server(id).is_some());
        let Some(list) = params.get_array("mcpServers") else {
            return;
        };
        let mut servers: Vec<Json> = Vec::with_capacity(list.len());
        for server in list {
            let mut server_fields = server.to_object().unwrap_or_default();
            let id = server_fields.get_json_str("serverId");
            let Some(own) = id.filter(|_| server_fields.get_str("type").as_deref() == Some("acp")) else {
                servers.push(server.into());
                continue;
            };
            let agents =
                if is_taken(&own) { JsonStr::new(&uuid::Uuid::new_v4().to_string()) } else { own.clone() };
            server_fields.set("serverId", &agents);
            servers.push(server_fields.to_json());
            client.add_mcp_server(agents, own);
        }
        drop(clients);
        params.set("mcpServers", Json::array(servers));
    }

    /// Whether a client has not answered one of its requests outside of sessions.
    pub(crate) fn has_requests(&self) -> bool {
        !lock(&self.requests).is_empty()
    }

    /// Cancels the requests of an agent that has ended.
    pub(super) fn cancel_requests(&self) {
        let requests: Vec<_> = lock(&self.requests).drain().collect();
        for (_, (client, id)) in requests {
            if let Some(client) = client.upgrade()
                && client.take_request(&id).is_some()
            {
                client.queue.push(Frame::cancel(&id));
            }
        }
    }
}

/// Registers the MCP servers that a client serves over its connection under its own ids, for a session that exists.
pub(crate) fn register_mcp_servers(client: &Client, params: &Object) {
    let list = params.get_array("mcpServers");
    for server in list.unwrap_or_default() {
        let server = server.to_object().unwrap_or_default();
        let id = server.get_json_str("serverId");
        if let Some(id) = id.filter(|id| client.mcp_server(id).is_none())
            && server.get_str("type").as_deref() == Some("acp")
        {
            client.add_mcp_server(id.clone(), id);
        }
    }
}

/// Keeps the order of an agent's messages: a message outside of sessions is delivered after the earlier messages of its
/// sessions, and before the later ones.
#[derive(Debug, Default)]
pub(super) struct DeliveryOrder {
    /// The sessions that received messages since the last message outside of sessions.
    recent: Vec<Mailbox>,
    /// Whether there were more than [`MAX_RECENT`], so that all sessions count.
    all: bool,
}

impl DeliveryOrder {
    pub(super) fn on_sent_to(&mut self, route: &Route) {
        let mailbox = &route.mailbox;
        if self.all || !route.is_session || self.recent.iter().rev().any(|other| other.same_channel(mailbox))
        {
            return;
        }
        if self.recent.len() >= MAX_RECENT {
            self.recent.clear();
            self.all = true;
        } else {
            self.recent.push(mailbox.clone());
        }
    }

    /// Sends a frame to clients. A client that is attached to one of the recent sessions gets it in order with that session's
    /// updates, also while it is catching up.
    async fn deliver(&mut self, agent: &Agent, clients: &[Arc<Client>], frame: &Frame) {
        let mut recent = std::mem::take(&mut self.recent);
        if std::mem::take(&mut self.all) {
            let routes = lock(&agent.routes);
            let sessions = routes.sessions.values().filter(|route| route.is_session);
            recent = sessions.map(|route| route.mailbox.clone()).collect();
        }
        let mut left: Vec<ClientId> = clients.iter().map(|client| client.id).collect();
        if recent.len() > 1 {
            let mut waiting = Vec::with_capacity(recent.len());
            for mailbox in &recent {
                waiting.push(relay(mailbox, frame, Vec::new()).await);
            }
            for waiting in waiting {
                let _ = waiting.await;
            }
        }
        for mailbox in &recent {
            if let Ok(sent) = relay(mailbox, frame, left.clone()).await.await {
                left.retain(|client| !sent.contains(client));
            }
        }
        for client in clients.iter().filter(|client| left.contains(&client.id)) {
            client.queue.push(frame.clone());
        }
    }
}

/// Has a session send a frame to those of the clients that are attached to it; the receiver gets these clients.
async fn relay(mailbox: &Mailbox, frame: &Frame, clients: Vec<ClientId>) -> oneshot::Receiver<Vec<ClientId>> {
    let (sent, waiting) = oneshot::channel();
    let _ = mailbox.send(SessionMessage::SendToAttached { frame: frame.clone(), clients, sent }).await;
    waiting
}

/// Sends a notification outside of sessions to the client with the MCP server that it is for, any other to all clients.
pub(super) async fn notification(agent: &Agent, message: &Rpc<'_>, order: &mut DeliveryOrder) {
    let clients: Vec<_> = lock(&agent.clients).iter().filter_map(Weak::upgrade).collect();
    if let Body::Notification { method, params } = &message.body
        && method == MCP_MESSAGE
    {
        let mut params = params.and_then(JsonRef::to_object).unwrap_or_default();
        let server = params.get_json_str("serverId");
        let found = server.and_then(|server| {
            clients.iter().find_map(|client| Some((Arc::clone(client), client.mcp_server(&server)?)))
        });
        let Some((client, own)) = found else { return };
        params.set("serverId", &own);
        let frame = Frame::notification(MCP_MESSAGE, &params);
        return order.deliver(agent, &[client], &frame).await;
    }
    let frame = Frame::line(message.text().to_owned(), FrameKind::Notification);
    order.deliver(agent, &clients, &frame).await;
}

/// Cancels a request of the agent outside of sessions; `false` if there is none with this id.
pub(super) async fn cancel(agent: &Agent, id: &RequestId, order: &mut DeliveryOrder) -> bool {
    let request = lock(&agent.requests).get(id).cloned();
    let Some((client, id)) = request else { return false };
    if let Some(client) = client.upgrade() {
        order.deliver(agent, &[client], &Frame::cancel(&id)).await;
    }
    true
}

/// Sends a request outside of sessions to a client: to the one with the MCP server, to the one whose request the agent works
/// on, or to the one that is connected the longest.
pub(super) async fn request(
    agent: &Arc<Agent>,
    id: RequestId,
    method: &str,
    mut params: Object,
    order: &mut DeliveryOrder,
) {
    let invalid = |message: &str| {
        let error = RpcError::new(code::INVALID_PARAMS, message);
        agent.answer(&id, &Err(error.to_json()));
    };
    let mut mcp = None;
    let client = if method == MCP_MESSAGE {
        let server = params.get_json_str("serverId");
        let clients: Vec<_> = lock(&agent.clients).iter().filter_map(Weak::upgrade).collect();
        let found = server.as_ref().and_then(|server| {
            clients.iter().find_map(|client| Some((Arc::clone(client), client.mcp_server(server)?)))
        });
        let (Some(agents), Some((client, own))) = (server, found) else {
            return invalid("`serverId` names no MCP server of a connected client");
        };
        params.set("serverId", &own);
        mcp = params.get_json_str("requestId").map(|id| McpRequest { own, agents, id });
        client
    } else if let Some(scope) = params.get("requestId").filter(|_| method == ELICITATION).cloned() {
        match scope_of_call(agent, &scope) {
            Some(CallScope::Client(origin)) => {
                params.set("requestId", origin.id.to_json());
                origin.client
            }
            Some(CallScope::Session(route)) => {
                let Some(session) = session_at(agent, &route) else {
                    return invalid("the session of `requestId` is closed");
                };
                params.remove("requestId");
                params.set("sessionId", session.as_json());
                let request = AgentMessage::Request { id: id.clone(), method: method.to_owned(), params };
                if route.send(request).await.is_err() {
                    invalid("the session of `requestId` is closed");
                }
                return;
            }
            None => return invalid("`requestId` names no request that is in flight"),
        }
    } else if method == ELICITATION {
        return invalid("an elicitation needs a `sessionId` or a `requestId`");
    } else {
        let clients: Vec<_> = lock(&agent.clients).iter().filter_map(Weak::upgrade).collect();
        let Some(client) = clients.into_iter().next() else {
            return agent.answer(&id, &undeliverable(method, "no client is connected"));
        };
        client
    };
    send_to_client(agent, &client, id, method, &params, mcp, order).await;
}

async fn send_to_client(
    agent: &Arc<Agent>,
    client: &Arc<Client>,
    id: RequestId,
    method: &str,
    params: &Object,
    mcp: Option<McpRequest>,
    order: &mut DeliveryOrder,
) {
    let reject = |reason: &str| agent.answer(&id, &undeliverable(method, reason));
    if method == ELICITATION && !client.can_elicit(params.get_string("mode").as_deref()) {
        return reject("the client cannot show elicitations of this mode");
    }
    let (from, to, nothing) = (agent.info.dialect, client.dialect(), Transcript::default());
    let translated = live::request_to_client(method, &id, params, from, to, &nothing, &mut Losses::default());
    let Ok(translated) = translated else {
        return reject("the client's version of the protocol cannot express it");
    };
    if lock(&agent.requests).len() >= MAX_REQUESTS {
        let error = RpcError::new(
            code::INTERNAL_ERROR,
            format!("{MAX_REQUESTS} requests of the agent are in flight already"),
        );
        return agent.answer(&id, &Err(error.to_json()));
    }
    let request = AgentRequest { agent: Arc::clone(agent), id: id.clone(), method: method.to_owned(), mcp };
    let Ok(client_id) = client.add_agent_request(request) else {
        return reject("too many requests to the client are in flight");
    };
    lock(&agent.requests).insert(id, (Arc::downgrade(client), client_id.clone()));
    // A client that disconnected meanwhile may not have seen the request when it answered all others.
    if client.queue.is_closed() {
        if let Some(Requester::Agent(request)) = client.take_request(&client_id) {
            request.on_client_gone();
        }
        return;
    }
    order.deliver(agent, &[Arc::clone(client)], &Frame::request(&client_id, method, &translated)).await;
}

/// The agent session whose messages go to a route.
fn session_at(agent: &Agent, route: &Route) -> Option<SessionId> {
    let routes = lock(&agent.routes);
    let found = routes.sessions.iter().find(|(_, other)| other.mailbox.same_channel(&route.mailbox));
    found.map(|(session, _)| session.clone())
}

/// The client or session for which a call was made.
enum CallScope {
    Client(Origin),
    Session(Route),
}

fn scope_of_call(agent: &Agent, id: &Json) -> Option<CallScope> {
    let id = RequestId::from_raw(id.raw()).ok()?;
    match lock(&agent.calls).get(&id)? {
        PendingCall::Caller(_, origin) | PendingCall::Opening(_, origin) => {
            origin.clone().map(CallScope::Client)
        }
        PendingCall::Session(_, SessionCall::Forwarded(call)) => {
            let client = call.connection.upgrade()?;
            Some(CallScope::Client(Origin { client, id: call.call.id.clone() }))
        }
        PendingCall::Session(route, SessionCall::Prompt(_) | SessionCall::Steer(_)) => {
            Some(CallScope::Session(route.clone()))
        }
        PendingCall::Session(_, SessionCall::Restore | SessionCall::SetTitle) => None,
    }
}
