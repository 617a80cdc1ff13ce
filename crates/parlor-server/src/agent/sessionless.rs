//! What an agent and its clients say to each other about no session.

use std::sync::{Arc, Weak};

use parlor_dialect::{Losses, live};
use parlor_engine::{Frame, FrameKind};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::session::{Answer, ClientId};
use parlor_session::{SessionId, Transcript};
use parlor_wire::{Body, Message as Rpc, RequestId, RpcError, code};
use tokio::sync::{oneshot, watch};

use super::{Agent, Open, Origin, Reply, Waiting, lock};
use crate::client::{Asker, Client};
use crate::json;
use crate::session::{AgentCall, AgentMessage, Inbox, Link, Message};

/// How many requests of one agent that concern no session may be without an answer.
const MAX_REQUESTS: usize = 1000;

/// How many sessions are told apart by whether the agent said something of them.
const MAX_TOUCHED: usize = 64;

const MCP_MESSAGE: &str = "mcp/message";
const ELICITATION: &str = "elicitation/create";

/// A request of an agent's that concerns no session, as a client was asked it.
#[derive(Debug)]
pub(crate) struct AgentRequest {
    agent: Arc<Agent>,
    /// The agent's own id.
    id: RequestId,
    method: String,
    mcp: Option<McpRequest>,
}

/// An inner request to an MCP server of a client's.
#[derive(Debug, Clone)]
struct McpRequest {
    /// The client's id for the server, and the agent's.
    own: JsonStr,
    agents: JsonStr,
    id: JsonStr,
}

impl AgentRequest {
    /// The client's id for the MCP server that is asked, and the id of the inner request.
    pub(crate) fn mcp(&self) -> Option<(&JsonStr, &JsonStr)> {
        self.mcp.as_ref().map(|mcp| (&mcp.own, &mcp.id))
    }

    /// The agent, and its id for the MCP server that is asked.
    pub(crate) fn provider_of(&self) -> Option<(Arc<Agent>, JsonStr)> {
        self.mcp.as_ref().map(|mcp| (Arc::clone(&self.agent), mcp.agents.clone()))
    }

    /// Passes a client's answer on.
    pub(crate) fn answered(self, by: &Client, answer: Answer) {
        let reply = match answer {
            Answer::Result(result) => {
                let (from, to) = (by.dialect(), self.agent.about.dialect);
                Ok(live::answer_to_agent(&self.method, &result, from, to, &mut Losses::default()))
            }
            Answer::Error(error) => Err(error),
        };
        self.reply(&reply);
    }

    /// The client will not answer any more.
    pub(crate) fn abandoned(self) {
        let reply = unanswered(&self.method, "the client is gone");
        self.reply(&reply);
    }

    fn reply(self, reply: &Reply) {
        // One that was withdrawn wants no answer.
        if lock(&self.agent.requests).remove(&self.id).is_some() {
            self.agent.answer(&self.id, reply);
        }
    }
}

/// What is said when nobody could be asked: a form that nobody can show is one that nobody filled in.
fn unanswered(method: &str, why: &str) -> Reply {
    if method == ELICITATION {
        return Ok(live::cancelled_answer(method));
    }
    Err(RpcError::new(code::METHOD_NOT_FOUND, format!("{method}: {why}")).to_json())
}

/// Whether a client takes back its request.
#[derive(Debug, Clone)]
pub(crate) struct Cancel(watch::Receiver<bool>);

impl Cancel {
    pub(crate) fn new() -> (watch::Sender<bool>, Self) {
        let (sender, receiver) = watch::channel(false);
        (sender, Self(receiver))
    }

    /// Waits until the client takes it back, for ever if it does not.
    pub(crate) async fn wait(&mut self) {
        if self.0.wait_for(|is_cancelled| *is_cancelled).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits for something as long as it is wanted.
    pub(crate) async fn unless<T>(&mut self, done: impl Future<Output = T>) -> Result<T, RpcError> {
        tokio::select! {
            biased;
            () = self.wait() => Err(cancelled()),
            done = done => Ok(done),
        }
    }
}

/// The error of a request that its client took back.
fn cancelled() -> RpcError {
    RpcError::new(code::REQUEST_CANCELLED, "the request was cancelled")
}

impl Agent {
    /// Asks the agent for a client. The client can take it back; then the agent decides what comes of it.
    pub(crate) fn call_for_client(
        self: &Arc<Self>,
        origin: Origin,
        method: &str,
        params: &Object,
        mut cancel: Cancel,
    ) -> impl Future<Output = Result<Json, RpcError>> + Send + use<> {
        let (sender, mut answer) = oneshot::channel();
        let asked = self.ask(method, params, Waiting::Caller(sender, Some(origin)));
        let agent = Arc::clone(self);
        async move {
            let id = asked.map_err(|error| RpcError::from_raw(error.raw()))?;
            let _open = Open { agent: &agent, id: id.clone() };
            let reply = tokio::select! {
                biased;
                reply = &mut answer => reply,
                () = cancel.wait() => {
                    agent.take_back(&id);
                    answer.await
                }
            };
            match reply {
                Ok(reply) => reply.map_err(|error| RpcError::from_raw(error.raw())),
                Err(_) => Err(agent.error()),
            }
        }
    }

    /// Gives the MCP servers that a client serves over its connection ids that no other client of the agent uses.
    pub(crate) fn declare_mcp(&self, client: &Client, params: &mut Object) {
        // Nobody else declares one meanwhile.
        let clients = lock(&self.clients);
        let others: Vec<_> =
            clients.iter().filter_map(Weak::upgrade).filter(|other| other.id != client.id).collect();
        let is_taken = |id: &JsonStr| others.iter().any(|other| other.mcp_server(id).is_some());
        let Some(list) = params.get_array("mcpServers") else {
            return;
        };
        let mut servers: Vec<String> = Vec::with_capacity(list.len());
        for server in list {
            let mut server_fields = json::object(Some(server));
            let id = server_fields.get_json_str("serverId");
            let Some(own) = id.filter(|_| server_fields.get_string("type").as_deref() == Some("acp")) else {
                servers.push(server.as_str().to_owned());
                continue;
            };
            let agents =
                if is_taken(&own) { JsonStr::new(&uuid::Uuid::new_v4().to_string()) } else { own.clone() };
            server_fields.set("serverId", &agents);
            servers.push(server_fields.to_json().as_str().to_owned());
            client.serves_mcp(agents, own);
        }
        let servers = json::json(format!("[{}]", servers.join(",")));
        drop(clients);
        params.set("mcpServers", servers);
    }

    /// Whether it waits for the answer of a client about no session.
    pub(crate) fn has_requests(&self) -> bool {
        !lock(&self.requests).is_empty()
    }

    /// The agent has ended: nobody waits for the answers to its requests.
    pub(super) fn withdraw_requests(&self) {
        let requests: Vec<_> = lock(&self.requests).drain().collect();
        for (_, (client, id)) in requests {
            if let Some(client) = client.upgrade()
                && client.answered(&id).is_some()
            {
                client.queue.push(Frame::cancel(&id));
            }
        }
    }
}

/// Notes which MCP servers a client serves over its connection, as it opens a session that an agent may have already.
pub(crate) fn note_mcp_servers(client: &Client, params: &Object) {
    let list = params.get_array("mcpServers");
    for server in list.unwrap_or_default() {
        let server = json::object(Some(server));
        let id = server.get_json_str("serverId");
        if let Some(id) = id.filter(|id| client.mcp_server(id).is_none())
            && server.get_string("type").as_deref() == Some("acp")
        {
            client.serves_mcp(id.clone(), id);
        }
    }
}

/// Which sessions the agent said something of, since it last said something about none. What it says about none comes
/// after that, and before all that it says later.
#[derive(Debug, Default)]
pub(super) struct Order {
    touched: Vec<Inbox>,
    /// Whether there are more than can be told apart.
    all: bool,
}

impl Order {
    pub(super) fn sent_to(&mut self, link: &Link) {
        let inbox = &link.inbox;
        if self.all || !link.is_session || self.touched.iter().rev().any(|other| other.same_channel(inbox)) {
            return;
        }
        if self.touched.len() >= MAX_TOUCHED {
            self.touched.clear();
            self.all = true;
        } else {
            self.touched.push(inbox.clone());
        }
    }

    /// Says a line to clients. A client that takes part in one of the sessions is told in its order there, also if it
    /// is behind.
    async fn deliver(&mut self, agent: &Agent, clients: &[Arc<Client>], frame: &Frame) {
        let mut touched = std::mem::take(&mut self.touched);
        if std::mem::take(&mut self.all) {
            let links = lock(&agent.links);
            let sessions = links.sessions.values().filter(|link| link.is_session);
            touched = sessions.map(|link| link.inbox.clone()).collect();
        }
        let mut left: Vec<ClientId> = clients.iter().map(|client| client.id).collect();
        if touched.len() > 1 {
            let mut waiting = Vec::with_capacity(touched.len());
            for inbox in &touched {
                waiting.push(relay(inbox, frame, Vec::new()).await);
            }
            for waiting in waiting {
                let _ = waiting.await;
            }
        }
        for inbox in &touched {
            if let Ok(told) = relay(inbox, frame, left.clone()).await.await {
                left.retain(|client| !told.contains(client));
            }
        }
        for client in clients.iter().filter(|client| left.contains(&client.id)) {
            client.queue.push(frame.clone());
        }
    }
}

/// Has a session say a line to those of the clients that take part in it; which they were is said when they were told.
async fn relay(inbox: &Inbox, frame: &Frame, clients: Vec<ClientId>) -> oneshot::Receiver<Vec<ClientId>> {
    let (sent, waiting) = oneshot::channel();
    let _ = inbox.send(Message::Relay { frame: frame.clone(), clients, sent }).await;
    waiting
}

/// A notification about no session: one for an MCP server goes to the client that has it, any other to all.
pub(super) async fn notification(agent: &Agent, message: &Rpc<'_>, order: &mut Order) {
    let clients: Vec<_> = lock(&agent.clients).iter().filter_map(Weak::upgrade).collect();
    if let Body::Notification { method, params } = &message.body
        && method == MCP_MESSAGE
    {
        let mut params = json::object(*params);
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

/// Takes back a request of the agent's; `false` if it is none about no session.
pub(super) async fn cancel(agent: &Agent, id: &RequestId, order: &mut Order) -> bool {
    let asked = lock(&agent.requests).get(id).cloned();
    let Some((client, id)) = asked else { return false };
    if let Some(client) = client.upgrade() {
        order.deliver(agent, &[client], &Frame::cancel(&id)).await;
    }
    true
}

/// A request about no session: it goes to the client with the MCP server, to the one for whose request the agent asks, or
/// to the one that is connected the longest.
pub(super) async fn request(
    agent: &Arc<Agent>,
    id: RequestId,
    method: &str,
    mut params: Object,
    order: &mut Order,
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
            return invalid("no client has this MCP server");
        };
        params.set("serverId", &own);
        mcp = params.get_json_str("requestId").map(|id| McpRequest { own, agents, id });
        client
    } else if let Some(scope) = params.get("requestId").filter(|_| method == ELICITATION).cloned() {
        match origin_of(agent, &scope) {
            Some(Scope::Client(origin)) => {
                params.set("requestId", json::json(origin.id.as_literal()));
                origin.client
            }
            Some(Scope::Session(link)) => {
                let Some(session) = session_at(agent, &link) else {
                    return invalid("the session of this request is gone");
                };
                params.remove("requestId");
                params.set("sessionId", session.as_json());
                let asked = AgentMessage::Asks { id: id.clone(), method: method.to_owned(), params };
                if link.send(asked).await.is_err() {
                    invalid("the session of this request is gone");
                }
                return;
            }
            None => return invalid("`requestId` names no request that is open"),
        }
    } else if method == ELICITATION {
        return invalid("an elicitation names a session or a request");
    } else {
        let clients: Vec<_> = lock(&agent.clients).iter().filter_map(Weak::upgrade).collect();
        let Some(client) = clients.into_iter().next() else {
            return agent.answer(&id, &unanswered(method, "no client is here to answer"));
        };
        client
    };
    ask(agent, &client, id, method, &params, mcp, order).await;
}

async fn ask(
    agent: &Arc<Agent>,
    client: &Arc<Client>,
    id: RequestId,
    method: &str,
    params: &Object,
    mcp: Option<McpRequest>,
    order: &mut Order,
) {
    let refused = |why: &str| agent.answer(&id, &unanswered(method, why));
    if method == ELICITATION && !client.elicits(params.get_string("mode").as_deref()) {
        return refused("the client cannot show this");
    }
    let (from, to, nothing) = (agent.about.dialect, client.dialect(), Transcript::default());
    let said = live::request_to_client(method, &id, params, from, to, &nothing, &mut Losses::default());
    let Ok(said) = said else {
        return refused("this cannot be said in the client's version of the protocol");
    };
    if lock(&agent.requests).len() >= MAX_REQUESTS {
        let error = RpcError::new(code::INTERNAL_ERROR, format!("{MAX_REQUESTS} requests are open already"));
        return agent.answer(&id, &Err(error.to_json()));
    }
    let request = AgentRequest { agent: Arc::clone(agent), id: id.clone(), method: method.to_owned(), mcp };
    let Ok(asked) = client.ask_for_agent(request) else { return refused("the client is asked too much") };
    lock(&agent.requests).insert(id, (Arc::downgrade(client), asked.clone()));
    // Who left just now has been asked for its answers already.
    if client.queue.is_closed() {
        if let Some(Asker::Agent(request)) = client.answered(&asked) {
            request.abandoned();
        }
        return;
    }
    order.deliver(agent, &[Arc::clone(client)], &Frame::request(&asked, method, &said)).await;
}

/// The agent's id for a session.
fn session_at(agent: &Agent, link: &Link) -> Option<SessionId> {
    let links = lock(&agent.links);
    let found = links.sessions.iter().find(|(_, other)| other.inbox.same_channel(&link.inbox));
    found.map(|(session, _)| session.clone())
}

/// What a request of ours that the agent names is for.
enum Scope {
    Client(Origin),
    Session(Link),
}

fn origin_of(agent: &Agent, id: &Json) -> Option<Scope> {
    let id = RequestId::from_raw(id.raw()).ok()?;
    match lock(&agent.asked).get(&id)? {
        Waiting::Caller(_, origin) | Waiting::Opening(_, origin) => origin.clone().map(Scope::Client),
        Waiting::Session(_, AgentCall::Forwarded(call)) => {
            let client = call.connection.upgrade()?;
            Some(Scope::Client(Origin { client, id: call.call.id.clone() }))
        }
        Waiting::Session(link, AgentCall::Prompt(_)) => Some(Scope::Session(link.clone())),
        Waiting::Session(_, AgentCall::Restore | AgentCall::SetTitle) => None,
    }
}
