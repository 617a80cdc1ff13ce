//! The task of a live session, which drives its [`SessionMachine`](parlor_engine::SessionMachine).
//!
//! The machine decides everything that happens in a session. The task does the I/O: it passes events to the machine, stores the
//! batch of its output, and only then releases the rest of the output to clients and agents.

mod fork;
mod open;
mod receive;
mod release;
mod restore;
mod services;
mod subagents;
mod task;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parlor_engine::{AgentEpoch, ClientCall, Event, ForwardedCall, Frame, RejectableRequest};
use parlor_json::{Json, Object};
use parlor_session::session::{ClientId, PromptId};
use parlor_session::{MessageId, Transcript};
use parlor_wire::{RequestId, RpcError};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::agent::{BoundAgent, Reply};
use crate::client::Client;
use crate::services::budget::{FilePermit, FileRequest};

pub(crate) use self::open::start;

/// The sender of messages to a session's task.
pub(crate) type Mailbox = mpsc::Sender<SessionMessage>;

/// How many messages may wait for a session; with more, senders wait.
pub(crate) const MAILBOX: usize = 1024;

/// A message to a session's task.
#[derive(Debug)]
pub(crate) enum SessionMessage {
    /// A client calls the session.
    Call(Arc<Client>, ClientCall),
    /// An event that the machine handles as it is.
    Event(Event),
    /// A message of the agent, with its epoch.
    Agent(AgentEpoch, AgentMessage),
    /// The agent session was restored, or restoring it failed.
    AgentReady(Box<Result<BoundAgent, RpcError>>),
    /// Sends a frame to those of `clients` that are attached. `sent` receives these when the frame is sent.
    SendToAttached { frame: Frame, clients: Vec<ClientId>, sent: oneshot::Sender<Vec<ClientId>> },
    /// Requests the transcript, once it contains this message.
    Read { message: Option<MessageId>, reply: oneshot::Sender<Transcript> },
    /// Has an idle session evict itself.
    Tick,
    /// The server is stopping; the sender is completed when everything is persisted.
    Stop(oneshot::Sender<()>),
}

impl SessionMessage {
    /// A message that has no effect, and a receiver that completes when the session has handled it and all messages before it.
    pub(crate) fn barrier() -> (Self, oneshot::Receiver<Vec<ClientId>>) {
        let (sent, handled) = oneshot::channel();
        (Self::SendToAttached { frame: Frame::updates(""), clients: Vec::new(), sent }, handled)
    }

    /// The size of a message in bytes, for the limit of a batch.
    fn weight(&self) -> usize {
        if let Self::Agent(_, AgentMessage::Updates(lines, _)) = self { lines.len() } else { 256 }
    }

    /// The request in this message, so that it can be rejected if it reaches no session.
    pub(crate) fn to_rejectable(&self) -> Option<RejectableCall> {
        let Self::Call(client, call) = self else { return None };
        Some(RejectableCall { client: Arc::clone(client), request: call.to_rejectable()? })
    }
}

/// A request that may have to be rejected, and its client.
#[derive(Debug)]
pub(crate) struct RejectableCall {
    client: Arc<Client>,
    request: RejectableRequest,
}

impl RejectableCall {
    /// The client's id for the request.
    pub(crate) fn id(&self) -> &RequestId {
        self.request.id()
    }

    /// Responds to a request that reaches no session.
    pub(crate) fn reject(&self, error: &RpcError) {
        self.client.queue.push(self.request.response(error));
    }
}

/// The receiver of the messages of one agent session, in one epoch.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) mailbox: Mailbox,
    pub(crate) epoch: AgentEpoch,
    /// Whether the receiver is a session, and not an opener.
    pub(crate) is_session: bool,
}

impl Route {
    /// Sends a message; returns it if the receiver has ended.
    pub(crate) async fn send(&self, message: AgentMessage) -> Result<(), AgentMessage> {
        match self.mailbox.send(SessionMessage::Agent(self.epoch, message)).await {
            Err(mpsc::error::SendError(SessionMessage::Agent(_, back))) => Err(back),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// A message of an agent to a session, or the outcome of a request that the server handled for the agent.
#[derive(Debug)]
pub(crate) enum AgentMessage {
    /// Updates, one per line, with the permit that bounds the updates in mailboxes.
    Updates(String, Option<OwnedSemaphorePermit>),
    /// A request.
    Request { id: RequestId, method: String, params: Object },
    /// The agent may access the file of a request, which a client may serve.
    FileAllowed { id: RequestId, method: String, params: Object, request: FileRequest },
    /// The agent cancels one of its requests.
    RequestCancelled(RequestId),
    /// A notification other than an update.
    Notification(String),
    /// The agent's response to a call of the session.
    Response(SessionCall, Reply),
    /// A call could not be sent to the agent.
    CallFailed(parlor_engine::AgentCall, Json),
    /// The agent process ended.
    Gone(RpcError),
    /// The server answered a request of the agent.
    Served(RequestId, Reply, Option<FilePermit>),
}

impl AgentMessage {
    /// Answers the client whose request this is the response to, if it reaches no session.
    pub(crate) fn reject(&self, error: &RpcError) {
        if let Self::Response(SessionCall::Forwarded(Forwarded { connection, call }), _) = self
            && let Some(client) = connection.upgrade()
        {
            client.queue.push(Frame::error(&call.id, error));
        }
    }
}

/// A call that the server makes to an agent for a session.
#[derive(Debug)]
pub(crate) enum SessionCall {
    /// Creates or restores an agent session.
    Restore,
    /// Sends a prompt.
    Prompt(PromptId),
    /// Sends a prompt for the running turn.
    Steer(PromptId),
    /// Forwards the request of a client.
    Forwarded(Forwarded),
    /// Sets the title.
    SetTitle,
}

/// A client's request that was forwarded to the agent.
#[derive(Debug)]
pub(crate) struct Forwarded {
    pub(crate) call: ForwardedCall,
    /// The client, which gets an error if the session has ended.
    pub(crate) connection: Weak<Client>,
}

/// Returns a new epoch.
pub(crate) fn next_epoch() -> AgentEpoch {
    static LAST: AtomicU64 = AtomicU64::new(0);
    AgentEpoch(LAST.fetch_add(1, Ordering::Relaxed) + 1)
}

/// The current time in milliseconds since 1970.
pub(crate) fn now() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
