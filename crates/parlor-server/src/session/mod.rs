//! One task for each live session, which drives its [`SessionMachine`](parlor_engine::SessionMachine).
//!
//! The machine decides everything that happens in a session. What is here does the I/O: it hands over what happened, stores
//! the batch that comes of it, and only then releases the rest of the output to clients and agents.

mod fork;
mod open;
mod receive;
mod release;
mod restore;
mod services;
mod task;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parlor_engine::{AgentEpoch, ClientCall, Event, ForwardedCall, Frame};
use parlor_json::{Json, Object};
use parlor_session::session::{ClientId, PromptId};
use parlor_session::{MessageId, Transcript};
use parlor_wire::{RequestId, RpcError, code};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::agent::{BoundAgent, Reply};
use crate::client::Client;
use crate::services::budget::{FileRequest, FileShare};

pub(crate) use self::open::start;

/// How a session is reached.
pub(crate) type Inbox = mpsc::Sender<Message>;

/// How many messages may wait for a session; with more, senders wait.
pub(crate) const INBOX: usize = 1024;

/// Something for a session's task.
#[derive(Debug)]
pub(crate) enum Message {
    /// A client calls the session.
    Call(Arc<Client>, ClientCall),
    /// Something that happens to the session and needs nothing of the server.
    Event(Event),
    /// Something of an agent, in one of its incarnations.
    Agent(AgentEpoch, AgentMessage),
    /// The agent's session is restored, or cannot be.
    AgentReady(Box<Result<BoundAgent, RpcError>>),
    /// A frame for those of these clients that are attached; `sent` gets those when they were sent it.
    Relay { frame: Frame, clients: Vec<ClientId>, sent: oneshot::Sender<Vec<ClientId>> },
    /// Asks for the conversation, once this message is in it.
    Read { message: Option<MessageId>, reply: oneshot::Sender<Transcript> },
    /// Time has passed.
    Tick,
    /// The server stops; the sender learns when all is stored.
    Stop(oneshot::Sender<()>),
}

impl Message {
    /// How much work a message is, in bytes.
    fn weight(&self) -> usize {
        if let Self::Agent(_, AgentMessage::Lines(lines, _)) = self { lines.len() } else { 256 }
    }

    /// The request that this is, to be refused in case it reaches no session.
    pub(crate) fn refusable(&self) -> Option<Refusable> {
        let Self::Call(client, call) = self else { return None };
        let id = call.request()?.clone();
        Some(Refusable { client: Arc::clone(client), id, ends: call.is_satisfied_without_session() })
    }
}

/// A request that may have to be refused.
#[derive(Debug)]
pub(crate) struct Refusable {
    pub(crate) client: Arc<Client>,
    pub(crate) id: RequestId,
    /// Whether it closes or deletes a session.
    pub(crate) ends: bool,
}

impl Refusable {
    /// Answers with the error. A session that does not exist is closed and deleted already.
    pub(crate) fn refuse(&self, error: &RpcError) {
        let frame = if self.ends && error.code() == code::RESOURCE_NOT_FOUND {
            Frame::response(&self.id, &Object::default())
        } else {
            Frame::error(&self.id, error)
        };
        self.client.queue.push(frame);
    }
}

/// Where the messages of one incarnation of an agent go.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub(crate) inbox: Inbox,
    pub(crate) epoch: AgentEpoch,
    /// Whether that is a session, and not something that receives for a session that is not there yet.
    pub(crate) is_session: bool,
}

impl Link {
    /// Sends a message; returns it if nobody receives any more.
    pub(crate) async fn send(&self, message: AgentMessage) -> Result<(), AgentMessage> {
        match self.inbox.send(Message::Agent(self.epoch, message)).await {
            Err(mpsc::error::SendError(Message::Agent(_, back))) => Err(back),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Something that an agent sends to a session, or the outcome of something that the server did for the agent.
#[derive(Debug)]
pub(crate) enum AgentMessage {
    /// Updates of this session, one a line, and their share of the updates that are on their way.
    Lines(String, Option<OwnedSemaphorePermit>),
    /// A request.
    Asks { id: RequestId, method: String, params: Object },
    /// The agent may have a file that it asked for, and a client may serve it.
    FileAllowed { id: RequestId, method: String, params: Object, request: FileRequest },
    /// The agent cancels one of its requests.
    Unasks(RequestId),
    /// A notification other than an update.
    Notes(String),
    /// The agent's response to a call of the session.
    Answered(AgentCall, Reply),
    /// A call could not be sent to the agent.
    Failed(parlor_engine::AgentCall, Json),
    /// The agent process ended.
    Gone(RpcError),
    /// The server answered a request of the agent.
    Served(RequestId, Reply, Option<FileShare>),
}

impl AgentMessage {
    /// Answers the client whose request this is the response to, if it reaches no session.
    pub(crate) fn refuse(&self, error: &RpcError) {
        if let Self::Answered(AgentCall::Forwarded(Forwarded { connection, call }), _) = self
            && let Some(client) = connection.upgrade()
        {
            client.queue.push(Frame::error(&call.id, error));
        }
    }
}

/// What an agent was asked for.
#[derive(Debug)]
pub(crate) enum AgentCall {
    /// To create or restore a session that does not receive its updates yet.
    Restore,
    /// To take a prompt.
    Prompt(PromptId),
    /// Something for a client.
    Forwarded(Forwarded),
    /// To take a title.
    SetTitle,
}

/// What the agent was asked for a client.
#[derive(Debug)]
pub(crate) struct Forwarded {
    pub(crate) call: ForwardedCall,
    /// The client's connection, for when the session is gone.
    pub(crate) connection: Weak<Client>,
}

/// A number that no incarnation of an agent had.
pub(crate) fn next_epoch() -> AgentEpoch {
    static LAST: AtomicU64 = AtomicU64::new(0);
    AgentEpoch(LAST.fetch_add(1, Ordering::Relaxed) + 1)
}

/// Now, in milliseconds since 1970.
pub(crate) fn now() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
