//! The events that a session handles.

use core::time::Duration;
use std::path::PathBuf;
use std::sync::Arc;

use parlor_dialect::Dialect;
use parlor_dialect::settings::Settings;
use parlor_json::{Json, JsonStr, Object};
use parlor_session::MessageId;
use parlor_session::session::{Answer, ClientId, PeerRequestId, PromptId, Scope};
use parlor_wire::{RequestId, RpcError, code};

use crate::opening::RefusedSettings;
use crate::{
    AgentCall, AgentEpoch, AgentLink, ClientInfo, ClientRequestId, Follow, Frame, OwnerEvent, Timer,
};

/// An event that a session handles.
#[derive(Debug)]
pub enum Event {
    /// A client calls the session.
    Client {
        /// The client.
        client: Arc<ClientInfo>,
        /// Whether its connection is still open; a client that disconnected is not attached again.
        is_connected: bool,
        /// The call.
        call: ClientCall,
    },
    /// A client has read what it was sent.
    Drained(ClientId),
    /// A client disconnected.
    Disconnected(ClientId),
    /// A client cancels one of its own requests (`$/cancel_request`).
    CancelRequest {
        /// The client.
        client: ClientId,
        /// The client's id for the request.
        id: RequestId,
    },
    /// A client cancels the turn (`session/cancel`).
    CancelTurn {
        /// The client.
        by: ClientId,
        /// What else it cancels.
        scope: Scope,
    },
    /// A client answered a peer request.
    Answered {
        /// The request.
        request: ClientRequestId,
        /// The client.
        by: ClientId,
        /// Its answer.
        answer: Answer,
    },
    /// A frame for those of these clients that are attached; [`Output::relayed`](crate::Output) says which these were.
    Relay {
        /// Names this event in the output.
        id: u64,
        /// The frame.
        frame: Frame,
        /// The clients.
        clients: Vec<ClientId>,
    },
    /// A message of an agent, with the epoch that it belongs to. A message of an older epoch changes nothing.
    Agent(AgentEpoch, AgentEvent),
    /// A new session has its agent. An adopted session has updates that the agent replayed.
    Started {
        /// The agent's session.
        agent: Box<OpenedAgent>,
        /// Updates of an adopted session, one a line.
        replay: Option<Vec<String>>,
    },
    /// The agent's session is restored, or cannot be.
    AgentReady(Result<Box<OpenedAgent>, RpcError>),
    /// The session that owns this one does something with it.
    Owner(OwnerEvent),
    /// A timer of the session ran out.
    Timer(Timer),
    /// Something happened to a terminal that the server runs for the agent.
    Terminal(TerminalEvent),
    /// Time has passed.
    Tick {
        /// How long an idle session stays in memory if its agent can restore it.
        idle: Duration,
        /// How long it stays if the agent cannot.
        idle_unrestorable: Duration,
    },
    /// The server stops.
    Stop,
}

impl Event {
    /// Whether it is a call of this client.
    pub(crate) fn is_of(&self, id: ClientId) -> bool {
        matches!(self, Self::Client { client, .. } if client.id == id)
    }
}

/// A call of a client to a session.
#[derive(Debug)]
pub enum ClientCall {
    /// `session/load`, `session/resume`, `session/attach` and the end of `session/new`: the client attaches, and the response follows what it
    /// missed.
    Attach {
        /// The request.
        id: RequestId,
        /// Where the replay begins.
        from: ReplayFrom,
        /// The directory that the client says the session works in.
        cwd: Option<String>,
        /// Further members of the response.
        members: Object,
    },
    /// The client attaches without a replay and without a response.
    Follow,
    /// The client is attached to the owner of this session, and attaches without a response.
    FollowOwner(Follow),
    /// The client is not attached to the owner any more.
    LeaveOwner,
    /// `session/close`
    Close {
        /// The request.
        id: RequestId,
    },
    /// `session/detach`
    Detach {
        /// The request.
        id: RequestId,
    },
    /// `session/prompt`
    Prompt {
        /// The request.
        id: RequestId,
        /// Its params.
        params: Object,
    },
    /// `_session/steering`
    Steer {
        /// The request.
        id: RequestId,
        /// Its params.
        params: Object,
    },
    /// A prompt whose outcome is seen in the session and not in a response. Another request may be answered before it.
    PromptWithoutRequest {
        /// The content of the prompt.
        content: Json,
        /// The request that is answered first, and its result.
        answer: Option<(RequestId, Object)>,
    },
    /// `_parlor/withdraw`
    WithdrawPrompt {
        /// The request.
        id: RequestId,
        /// The queued prompt.
        prompt: PromptId,
    },
    /// `_parlor/cancel`: cancels the turn as `session/cancel` does, with a response.
    Cancel {
        /// The request.
        id: RequestId,
        /// What else it cancels.
        scope: Scope,
    },
    /// `_parlor/answer`: a result for a peer request, which the client need not have been sent.
    AnswerRequest {
        /// The request.
        id: RequestId,
        /// The peer request.
        peer_request: PeerRequestId,
        /// The result, in the client's dialect.
        result: Json,
    },
    /// `_parlor/older`: entries before those that the client has.
    Older {
        /// The request.
        id: RequestId,
        /// The first entry that the client has, as the cursor of an earlier response.
        before: u64,
        /// How many entries.
        entries: usize,
    },
    /// `_parlor/seen`: a person has seen the session up to a change.
    Seen {
        /// The request.
        id: RequestId,
        /// The change.
        seq: u64,
    },
    /// `session/set_title` and `_parlor/title`
    SetTitle {
        /// The request.
        id: RequestId,
        /// The title; `None` removes the user's title.
        title: Option<JsonStr>,
    },
    /// `session/status`
    Status {
        /// The request.
        id: RequestId,
    },
    /// `session/archive`, `session/unarchive` and `_parlor/archive`
    Archive {
        /// The request.
        id: RequestId,
        /// Whether the session is archived from now on.
        archived: bool,
    },
    /// `session/delete`
    Delete {
        /// The request.
        id: RequestId,
    },
    /// `session/fork`, `_parlor/edit` and `_parlor/regenerate`
    Fork(Box<ForkRequest>),
    /// A request or a notification for the agent.
    Forward {
        /// The request; none for a notification.
        id: Option<RequestId>,
        /// The method.
        method: String,
        /// The params.
        params: Object,
    },
}

impl ClientCall {
    /// The request that this is, if it wants a response.
    pub fn request(&self) -> Option<&RequestId> {
        match self {
            Self::Fork(request) => Some(&request.id),
            Self::PromptWithoutRequest { answer: Some((id, _)), .. }
            | Self::Attach { id, .. }
            | Self::Close { id }
            | Self::Detach { id }
            | Self::Prompt { id, .. }
            | Self::Steer { id, .. }
            | Self::WithdrawPrompt { id, .. }
            | Self::Cancel { id, .. }
            | Self::AnswerRequest { id, .. }
            | Self::Older { id, .. }
            | Self::Seen { id, .. }
            | Self::SetTitle { id, .. }
            | Self::Status { id }
            | Self::Archive { id, .. }
            | Self::Delete { id }
            | Self::Forward { id: Some(id), .. } => Some(id),
            Self::Follow
            | Self::FollowOwner(_)
            | Self::LeaveOwner
            | Self::PromptWithoutRequest { answer: None, .. }
            | Self::Forward { id: None, .. } => None,
        }
    }

    /// How it is answered if no session handles it; nothing if it wants no response.
    pub fn to_rejectable(&self) -> Option<RejectableRequest> {
        let succeeds_without_session =
            matches!(self, Self::Close { .. } | Self::Detach { .. } | Self::Delete { .. });
        Some(RejectableRequest { id: self.request()?.clone(), succeeds_without_session })
    }

    /// Whether the client acts in the session, or may be about to: the agent is started in the environment of the client that
    /// acted last.
    pub fn is_act(&self, is_driver: bool) -> bool {
        match self {
            Self::Follow | Self::Prompt { .. } | Self::Steer { .. } | Self::PromptWithoutRequest { .. } => {
                true
            }
            Self::Attach { .. } => is_driver,
            Self::FollowOwner(_)
            | Self::LeaveOwner
            | Self::Close { .. }
            | Self::Detach { .. }
            | Self::WithdrawPrompt { .. }
            | Self::Cancel { .. }
            | Self::AnswerRequest { .. }
            | Self::Older { .. }
            | Self::Seen { .. }
            | Self::SetTitle { .. }
            | Self::Status { .. }
            | Self::Archive { .. }
            | Self::Delete { .. }
            | Self::Fork(_)
            | Self::Forward { .. } => false,
        }
    }
}

/// A request of a client that perhaps no session handles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectableRequest {
    id: RequestId,
    /// Whether it closes or deletes a session: one that does not exist is closed and deleted already.
    succeeds_without_session: bool,
}

impl RejectableRequest {
    /// A request with this method that has not become a [`ClientCall`].
    pub fn new(id: RequestId, method: &str) -> Self {
        let succeeds_without_session =
            matches!(method, "session/close" | "session/detach" | "session/delete");
        Self { id, succeeds_without_session }
    }

    /// The client's id for the request.
    pub fn id(&self) -> &RequestId {
        &self.id
    }

    /// The response. Closing or deleting a session that does not exist succeeds.
    pub fn response(&self, error: &RpcError) -> Frame {
        if self.succeeds_without_session && error.code() == code::RESOURCE_NOT_FOUND {
            Frame::response(&self.id, &Object::default())
        } else {
            Frame::error(&self.id, error)
        }
    }
}

/// A request for a fork.
#[derive(Debug)]
pub struct ForkRequest {
    /// The request.
    pub id: RequestId,
    /// Its params.
    pub params: Object,
    /// What the client wants of the fork.
    pub kind: ForkKind,
    /// What is known of the agent's capabilities while no agent process is there.
    pub known_agent: Option<CachedAgentInfo>,
    /// The agent that continues the conversation, if the client names one.
    pub handoff: Option<HandoffAgent>,
}

/// The agent that a client names to continue a fork. It may be the session's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoffAgent {
    /// Its name.
    pub name: String,
    /// The dialect that it spoke when it last ran.
    pub dialect: Option<Dialect>,
}

/// An agent's last response to `initialize`.
#[derive(Debug, Clone)]
pub struct CachedAgentInfo {
    /// The dialect that the agent speaks.
    pub dialect: Dialect,
    /// The result of `initialize`.
    pub initialize: Object,
}

impl CachedAgentInfo {
    /// What the agent offers beyond prompts, for people.
    pub fn features(&self) -> Vec<&'static str> {
        crate::agent_features(self.dialect, &self.initialize)
    }
}

/// What a client wants of a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForkKind {
    /// The fork itself.
    Fork,
    /// Another prompt in place of an earlier one.
    Edit,
    /// The same prompt again.
    Regenerate,
}

/// Where the replay for a client begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplayFrom {
    /// Everything, of a session that has just begun: the response comes first.
    New,
    /// Nothing, of a session that has just begun as a fork; with keys for the metadata of the response.
    Forked(Vec<(&'static str, Json)>),
    /// Everything.
    Start,
    /// Nothing.
    Now,
    /// What came after a change.
    After(u64),
    /// A message and what came after it.
    Message(MessageId),
    /// The last entries, this many, and the rest of the state. [`ClientCall::Older`] returns earlier entries.
    Tail(usize),
}

/// A message of an agent to a session, or the outcome of something that the server did for the agent.
#[derive(Debug)]
pub enum AgentEvent {
    /// Updates of this session, one a line.
    Updates(String),
    /// A request.
    Request {
        /// The agent's id for it.
        id: RequestId,
        /// The method.
        method: String,
        /// The params.
        params: Object,
    },
    /// The agent may access the file that it requested, and a client may serve it.
    FileAllowed {
        /// The agent's id for the request.
        id: RequestId,
        /// The method.
        method: String,
        /// The params.
        params: Object,
    },
    /// The agent cancels one of its requests.
    CancelRequest(RequestId),
    /// A notification other than an update, as its line.
    Notification(String),
    /// The agent's response to a call of the session, or the error of a call that could not be sent.
    Response(AgentCall, Result<Json, Json>),
    /// The agent process ended.
    Gone(RpcError),
}

/// An agent session that was created, restored or adopted for a session.
#[derive(Debug)]
pub struct OpenedAgent {
    /// The agent and its session.
    pub link: AgentLink,
    /// Whether the agent knows nothing of the conversation.
    pub without_history: bool,
    /// Why the agent lost its earlier session.
    pub lost: Option<String>,
    /// The agent's response, without its settings.
    pub result: Object,
    /// The mode, the model and the options in force, as far as they are known.
    pub settings: Settings,
    /// The settings that the agent did not accept again.
    pub refused: Option<RefusedSettings>,
    /// What the agent sent of the session before the session received it.
    pub early: Vec<AgentEvent>,
}

/// Something that happens to a terminal that the server runs for an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminalEvent {
    /// A command was started.
    Created {
        /// The terminal.
        id: Arc<str>,
        /// The command as one would type it.
        command: String,
        /// The directory in which it runs.
        cwd: PathBuf,
    },
    /// It wrote something.
    Output {
        /// The terminal.
        id: Arc<str>,
        /// The bytes as they came.
        bytes: Vec<u8>,
    },
    /// It ended, and there will be no more output.
    Exited {
        /// The terminal.
        id: Arc<str>,
        /// Its exit code, unless a signal ended it.
        code: Option<u32>,
        /// The signal that ended it.
        signal: Option<String>,
    },
    /// The agent released it.
    Released {
        /// The terminal.
        id: Arc<str>,
    },
}
