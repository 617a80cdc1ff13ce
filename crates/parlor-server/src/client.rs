//! A connected client, as sessions and agents see it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use parlor_dialect::Dialect;
use parlor_engine::{ClientInfo, ClientRequestId, fields};
use parlor_json::{JsonStr, Object};
use parlor_session::SessionId;
use parlor_session::session::ClientId;
use parlor_wire::{OutgoingRequests, RequestId, RpcError};

use crate::agent::AgentRequest;
use crate::hub::{ClientRole, ConnectOptions, InitializeMeta, RequestingClient, TransportKind};
use crate::lock;
use crate::send_queue::SendQueue;
use crate::session::Mailbox;

/// How many requests to one client may be in flight.
const MAX_REQUESTS: usize = 1000;

/// A connected client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: ClientId,
    pub(crate) options: Arc<ConnectOptions>,
    pub(crate) queue: SendQueue,
    /// Set by `initialize`.
    info: OnceLock<Arc<ClientInfo>>,
    requests: Mutex<OutgoingRequests<Requester>>,
    /// The time and error of a failed start of its agent during `initialize`, for its first session, which need not try again.
    start_error: Mutex<Option<(Instant, RpcError)>>,
    /// The client's ids of the MCP servers that it serves over its connection, by the agents' ids.
    mcp_servers: Mutex<HashMap<JsonStr, JsonStr>>,
    /// The live sessions that it has called, which are notified when it disconnects.
    sessions: Mutex<HashSet<SessionId>>,
}

/// A request of a session to a client.
#[derive(Debug)]
pub(crate) struct SessionRequestToClient {
    pub(crate) session: Mailbox,
    pub(crate) request: ClientRequestId,
}

/// The sender of a request to a client, which gets the response.
#[derive(Debug)]
pub(crate) enum Requester {
    /// A session, for its agent or on its own behalf.
    Session(SessionRequestToClient),
    /// An agent, outside of sessions.
    Agent(AgentRequest),
}

/// How many MCP servers one client may serve.
const MAX_MCP_SERVERS: usize = 1000;

impl Client {
    pub(crate) fn new(id: ClientId, options: Arc<ConnectOptions>, queue: SendQueue) -> Self {
        let requests = Mutex::new(OutgoingRequests::new(MAX_REQUESTS));
        Self {
            id,
            options,
            queue,
            info: OnceLock::new(),
            requests,
            start_error: Mutex::default(),
            mcp_servers: Mutex::default(),
            sessions: Mutex::default(),
        }
    }

    /// Keeps the error of a failed start, which the response to `initialize` does not report.
    pub(crate) fn set_start_error(&self, error: RpcError) {
        *lock(&self.start_error) = Some((Instant::now(), error));
    }

    /// Takes the error of a failed start that is not older than `within`.
    pub(crate) fn take_start_error(&self, within: Duration) -> Option<RpcError> {
        let failed = lock(&self.start_error).take();
        failed.filter(|(at, _)| at.elapsed() < within).map(|(_, error)| error)
    }

    /// Sets the negotiated dialect and capabilities; `false` if the client has sent `initialize` before.
    pub(crate) fn on_initialize(&self, dialect: Dialect, initialize: Object) -> bool {
        self.info.set(Arc::new(self.info_for(dialect, initialize))).is_ok()
    }

    fn info_for(&self, dialect: Dialect, initialize: Object) -> ClientInfo {
        let is_driver = self.options.role == ClientRole::Driver;
        let is_local = matches!(self.options.transport, TransportKind::Stdio | TransportKind::Unix);
        ClientInfo::new(self.id, dialect, initialize, is_driver, is_local)
    }

    /// This client, for the start of a session's agent.
    pub(crate) fn to_requesting_client(&self) -> RequestingClient {
        let initialize_meta = self.negotiated().map(|info| InitializeMeta {
            params: fields::foreign_meta(&info.initialize),
            capabilities: fields::foreign_meta(&info.capabilities()),
        });
        RequestingClient {
            options: Arc::clone(&self.options),
            initialize_meta: initialize_meta.unwrap_or_default(),
        }
    }

    /// The negotiated dialect and capabilities; `None` before `initialize`.
    pub(crate) fn negotiated(&self) -> Option<&ClientInfo> {
        self.info.get().map(|info| &**info)
    }

    /// The negotiated dialect and capabilities, or defaults before `initialize`.
    pub(crate) fn info(&self) -> Arc<ClientInfo> {
        if let Some(info) = self.info.get() {
            return Arc::clone(info);
        }
        let name = self.options.name.as_ref().map(|name| Object::new().with("name", name));
        let initialize = name.map(|name| Object::new().with("info", name.to_json()));
        Arc::new(self.info_for(Dialect::V2, initialize.unwrap_or_default()))
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.negotiated().map_or(Dialect::V2, |info| info.dialect)
    }

    pub(crate) fn is_driver(&self) -> bool {
        self.options.role == ClientRole::Driver
    }

    /// Whether it can show elicitations of a mode (`form`, `url`), or of any.
    pub(crate) fn can_elicit(&self, mode: Option<&str>) -> bool {
        self.negotiated().is_some_and(|info| info.elicits(mode))
    }

    /// Registers a request of a session and returns its id; `None` if too many are in flight.
    pub(crate) fn add_session_request(&self, request: SessionRequestToClient) -> Option<RequestId> {
        lock(&self.requests).register(Requester::Session(request)).ok()
    }

    /// Registers a request of an agent and returns its id, or the request if too many are in flight.
    pub(crate) fn add_agent_request(&self, request: AgentRequest) -> Result<RequestId, AgentRequest> {
        lock(&self.requests).register(Requester::Agent(request)).map_err(|full| match full.rejected {
            Requester::Agent(request) => request,
            Requester::Session(_) => unreachable!("the request was passed as one of an agent"),
        })
    }

    /// Takes the request that a response is for.
    pub(crate) fn take_request(&self, id: &RequestId) -> Option<Requester> {
        lock(&self.requests).complete(id)
    }

    /// Takes all requests in flight.
    pub(crate) fn take_requests(&self) -> Vec<Requester> {
        lock(&self.requests).drain().map(|(_, requester)| requester).collect()
    }

    /// Finds the request in flight to which an MCP notification of this client belongs.
    pub(crate) fn mcp_request<T>(
        &self,
        server: &JsonStr,
        request: &JsonStr,
        found: impl Fn(&AgentRequest) -> T,
    ) -> Option<T> {
        let mut requests = lock(&self.requests);
        let is_match = |request_id: &JsonStr, own: &JsonStr| own == server && request_id == request;
        requests.iter_mut().find_map(|(_, requester)| match requester {
            Requester::Agent(open) if open.mcp().is_some_and(|(own, id)| is_match(id, own)) => {
                Some(found(open))
            }
            Requester::Agent(_) | Requester::Session(_) => None,
        })
    }

    /// Registers an MCP server that the client serves. Observers serve none.
    pub(crate) fn add_mcp_server(&self, agents_id: JsonStr, own: JsonStr) {
        if !self.is_driver() {
            return;
        }
        let mut servers = lock(&self.mcp_servers);
        if servers.len() < MAX_MCP_SERVERS {
            servers.insert(agents_id, own);
        }
    }

    /// The client's id for an MCP server, by the agents' id.
    pub(crate) fn mcp_server(&self, agents_id: &JsonStr) -> Option<JsonStr> {
        lock(&self.mcp_servers).get(agents_id).cloned()
    }

    /// Records that a live session knows this client.
    pub(crate) fn add_session(&self, session: &SessionId) {
        lock(&self.sessions).insert(session.clone());
    }

    /// Records that a session is not live any more.
    pub(crate) fn remove_session(&self, session: &SessionId) {
        lock(&self.sessions).remove(session);
    }

    /// Takes the live sessions that know this client.
    pub(crate) fn take_sessions(&self) -> HashSet<SessionId> {
        std::mem::take(&mut lock(&self.sessions))
    }
}
