//! One connected client, as sessions and agents see it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use parlor_dialect::Dialect;
use parlor_engine::ClientInfo;
use parlor_json::{JsonStr, Object};
use parlor_session::session::{ClientId, QuestionId};
use parlor_wire::{OutgoingRequests, RequestId, RpcError};

use crate::agent::AgentRequest;
use crate::hub::{Peer, Role, TransportKind};
use crate::send_queue::SendQueue;
use crate::session::Inbox;

/// How many requests to one client may be without an answer.
const MAX_ASKED: usize = 1000;

/// A connected client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: ClientId,
    pub(crate) peer: Peer,
    pub(crate) queue: SendQueue,
    /// What it said of itself, once it has.
    info: OnceLock<Arc<ClientInfo>>,
    asked: Mutex<OutgoingRequests<Asker>>,
    /// Why its agent could not be started for `initialize`, and when: its first session need not try that again.
    failed_start: Mutex<Option<(Instant, RpcError)>>,
    /// The MCP servers that it serves over its connection: the ids under which agents know them, with its own.
    mcp_servers: Mutex<HashMap<JsonStr, JsonStr>>,
}

/// What a client was asked, and who wants to know the answer.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) session: Inbox,
    pub(crate) about: QuestionId,
}

/// Who wants to know the answer of a client.
#[derive(Debug)]
pub(crate) enum Asker {
    /// A session, for its agent or for itself.
    Session(Question),
    /// An agent, about no session.
    Agent(AgentRequest),
}

/// How many MCP servers of one client are known.
const MAX_MCP_SERVERS: usize = 1000;

impl Client {
    pub(crate) fn new(id: ClientId, peer: Peer, queue: SendQueue) -> Self {
        let asked = Mutex::new(OutgoingRequests::new(MAX_ASKED));
        Self {
            id,
            peer,
            queue,
            info: OnceLock::new(),
            asked,
            failed_start: Mutex::default(),
            mcp_servers: Mutex::default(),
        }
    }

    /// Its agent could not be started, which it was not told.
    pub(crate) fn start_failed(&self, error: RpcError) {
        *self.failed_start.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), error));
    }

    /// Why its agent could not be started a short time ago, once.
    pub(crate) fn take_failed_start(&self, within: Duration) -> Option<RpcError> {
        let failed = self.failed_start.lock().unwrap_or_else(PoisonError::into_inner).take();
        failed.filter(|(at, _)| at.elapsed() < within).map(|(_, error)| error)
    }

    /// The client sent `initialize`. Doing so twice changes nothing.
    pub(crate) fn begins(&self, dialect: Dialect, initialize: Object) -> bool {
        self.info.set(Arc::new(self.info_for(dialect, initialize))).is_ok()
    }

    fn info_for(&self, dialect: Dialect, initialize: Object) -> ClientInfo {
        let is_driver = self.peer.role == Role::Driver;
        let is_local = matches!(self.peer.transport, TransportKind::Stdio | TransportKind::Unix);
        ClientInfo::new(self.id, dialect, initialize, is_driver, is_local)
    }

    /// What it said of itself, once it has.
    pub(crate) fn terms(&self) -> Option<&ClientInfo> {
        self.info.get().map(|info| &**info)
    }

    /// What sessions have to know of it.
    pub(crate) fn info(&self) -> Arc<ClientInfo> {
        match self.info.get() {
            Some(info) => Arc::clone(info),
            None => Arc::new(self.info_for(Dialect::V2, Object::default())),
        }
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.terms().map_or(Dialect::V2, |terms| terms.dialect)
    }

    pub(crate) fn drives(&self) -> bool {
        self.peer.role == Role::Driver
    }

    /// Whether it can show elicitations of a mode (a form, a link), or of any.
    pub(crate) fn elicits(&self, mode: Option<&str>) -> bool {
        self.terms().is_some_and(|terms| terms.elicits(mode))
    }

    /// The id for a question that is about to be put to it.
    pub(crate) fn ask(&self, question: Question) -> Option<RequestId> {
        self.asked().register(Asker::Session(question)).ok()
    }

    /// The id for a request of an agent's that concerns no session; the request comes back if too many are open.
    pub(crate) fn ask_for_agent(&self, request: AgentRequest) -> Result<RequestId, AgentRequest> {
        self.asked().register(Asker::Agent(request)).map_err(|full| match full.rejected {
            Asker::Agent(request) => request,
            Asker::Session(_) => unreachable!("it is the one that was handed in"),
        })
    }

    pub(crate) fn answered(&self, id: &RequestId) -> Option<Asker> {
        self.asked().complete(id)
    }

    /// The requests that it will not answer any more.
    pub(crate) fn unanswered(&self) -> Vec<Asker> {
        self.asked().drain().map(|(_, asker)| asker).collect()
    }

    /// The open request of an agent's to which an MCP notification of this client belongs.
    pub(crate) fn mcp_request<T>(
        &self,
        server: &JsonStr,
        request: &JsonStr,
        found: impl Fn(&AgentRequest) -> T,
    ) -> Option<T> {
        let mut asked = self.asked();
        let is_it = |request_id: &JsonStr, own: &JsonStr| own == server && request_id == request;
        asked.iter_mut().find_map(|(_, asker)| match asker {
            Asker::Agent(open) if open.mcp().is_some_and(|(own, id)| is_it(id, own)) => Some(found(open)),
            Asker::Agent(_) | Asker::Session(_) => None,
        })
    }

    /// Notes that it serves an MCP server, which agents know under an id. Who only watches serves none.
    pub(crate) fn serves_mcp(&self, agents_id: JsonStr, own: JsonStr) {
        if !self.drives() {
            return;
        }
        let mut servers = self.mcp_servers.lock().unwrap_or_else(PoisonError::into_inner);
        if servers.len() < MAX_MCP_SERVERS {
            servers.insert(agents_id, own);
        }
    }

    /// Its own id for an MCP server that agents know under this one.
    pub(crate) fn mcp_server(&self, agents_id: &JsonStr) -> Option<JsonStr> {
        self.mcp_servers.lock().unwrap_or_else(PoisonError::into_inner).get(agents_id).cloned()
    }

    fn asked(&self) -> MutexGuard<'_, OutgoingRequests<Asker>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
