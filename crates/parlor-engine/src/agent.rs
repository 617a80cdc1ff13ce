//! Agents, as sessions see them, and what sessions want of them.

use core::fmt;
use std::sync::Arc;

use parlor_dialect::Dialect;
use parlor_json::{Json, Object};
use parlor_session::SessionId;
use parlor_session::session::{ClientId, PromptId};
use parlor_wire::RequestId;

/// Identifies one binding of a session to an agent session. Each new binding, also to the same process, has a greater number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentEpoch(pub u64);

impl AgentEpoch {
    /// Before any agent.
    pub const NONE: Self = Self(0);

    /// An epoch that is greater than this one and not greater than any later binding's.
    #[must_use]
    pub fn end(self) -> Self {
        Self(self.0 + 1)
    }
}

/// An agent, as far as sessions have to know it.
#[derive(Debug, Clone)]
pub struct AgentInfo {
    /// Its name in the configuration.
    pub name: String,
    /// Its name in messages for people.
    pub label: String,
    /// The dialect that it speaks.
    pub dialect: Dialect,
    /// What it said of itself in the response to `initialize`.
    pub initialize: Object,
    /// Whether it runs inside the server's process: it keeps no history itself.
    pub is_embedded: bool,
}

/// Something that an agent may be able to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// `session/load`
    Load,
    /// `session/resume`
    Resume,
    /// `session/close`
    Close,
    /// `session/delete`
    Delete,
    /// `session/fork`
    Fork,
    /// `session/fork` at a message
    ForkAtMessage,
    /// `session/set_title`
    Title,
    /// `session/list`
    List,
    /// `_session/steering`: a prompt for the running turn
    Steering,
    /// `systemPrompt` of the requests that open a session
    SystemPrompt,
}

impl Capability {
    /// Whether an agent with this `initialize` response has the capability.
    pub fn is_in(self, dialect: Dialect, initialize: &Object) -> bool {
        let has = |holder: &Object, name: &str| holder.get(name).is_some_and(|value| !value.is_null());
        let flag = |holder: &Object, name: &str| holder.get_bool(name) == Some(true);
        let forks_at_message =
            |session: &Object| session.get_object("fork").is_some_and(|fork| flag(&fork, "atMessageId"));
        if self == Self::Steering {
            let meta = initialize.get_object("_meta").unwrap_or_default();
            return meta.get_object("steering").is_some_and(|steering| flag(&steering, "supported"));
        }
        match dialect {
            Dialect::V1 => {
                let capabilities = initialize.get_object("agentCapabilities").unwrap_or_default();
                let session = capabilities.get_object("sessionCapabilities").unwrap_or_default();
                match self {
                    Self::Load => flag(&capabilities, "loadSession"),
                    Self::Resume => has(&session, "resume"),
                    Self::Close => has(&session, "close"),
                    Self::Delete => has(&session, "delete"),
                    Self::Fork => has(&session, "fork"),
                    Self::ForkAtMessage => forks_at_message(&session),
                    Self::Title => has(&session, "title"),
                    Self::List => has(&session, "list"),
                    Self::SystemPrompt => has(&session, "systemPrompt"),
                    Self::Steering => false,
                }
            }
            Dialect::V2 | Dialect::Draft => {
                let capabilities = initialize.get_object("capabilities").unwrap_or_default();
                let session = capabilities.get_object("session").unwrap_or_default();
                match self {
                    Self::Load | Self::Steering => false,
                    Self::Resume | Self::Close | Self::List => true,
                    Self::Delete => has(&session, "delete"),
                    Self::Fork => has(&session, "fork"),
                    Self::ForkAtMessage => forks_at_message(&session),
                    Self::Title => has(&session, "title"),
                    Self::SystemPrompt => has(&session, "systemPrompt"),
                }
            }
        }
    }
}

/// What becomes of the agent session of a session that is not live any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentSessionEnd {
    /// Nothing: the server stops its agents.
    Keep,
    /// The session is only unbound: the agent has the session of a subagent for as long as that of its owner.
    Unbind,
    /// It can be restored later.
    Release,
    /// It is deleted with the session.
    Discard,
}

/// The request that ends an agent session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndCall {
    /// `session/close`
    Close,
    /// `session/delete`
    Delete,
}

impl AgentSessionEnd {
    /// The request for an agent with this `initialize` response. An agent that cannot delete a session closes it, if it is open
    /// there.
    pub fn call(self, dialect: Dialect, initialize: &Object, is_open: bool) -> Option<EndCall> {
        let has = |capability: Capability| capability.is_in(dialect, initialize);
        match self {
            Self::Discard if has(Capability::Delete) => Some(EndCall::Delete),
            Self::Discard | Self::Release if is_open && has(Capability::Close) => Some(EndCall::Close),
            Self::Keep | Self::Unbind | Self::Release | Self::Discard => None,
        }
    }
}

impl AgentInfo {
    /// The request that ends a session that is open at this agent.
    pub fn end_call(&self, end: AgentSessionEnd) -> Option<EndCall> {
        end.call(self.dialect, &self.initialize, true)
    }

    /// Whether it can do something.
    pub fn has(&self, capability: Capability) -> bool {
        capability.is_in(self.dialect, &self.initialize)
    }

    /// Whether it can continue a session that was closed.
    pub fn restores(&self) -> bool {
        self.has(Capability::Resume) || self.has(Capability::Load)
    }
}

/// An agent's session that belongs to one of ours.
#[derive(Debug, Clone)]
pub struct AgentLink {
    /// The epoch of this binding.
    pub epoch: AgentEpoch,
    /// The agent.
    pub agent: Arc<AgentInfo>,
    /// Its id for the session.
    pub session: SessionId,
    /// Finds the sessions that updates of the agent name.
    pub sessions: SessionLookup,
}

/// Finds our session for an agent's session id.
#[derive(Clone)]
pub struct SessionLookup(Arc<LookupFn>);

type LookupFn = dyn Fn(&SessionId) -> Option<SessionId> + Send + Sync;

impl SessionLookup {
    /// Looks sessions up with a function.
    pub fn new(lookup: impl Fn(&SessionId) -> Option<SessionId> + Send + Sync + 'static) -> Self {
        Self(Arc::new(lookup))
    }

    /// Our session for this id of the agent.
    pub fn find(&self, agents: &SessionId) -> Option<SessionId> {
        (self.0)(agents)
    }
}

impl fmt::Debug for SessionLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionLookup")
    }
}

/// A request that a session sends to its agent; its response comes back to the session with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentCall {
    /// `session/prompt`
    Prompt(PromptId),
    /// `_session/steering`
    Steer(PromptId),
    /// Something that a client asked.
    Forwarded(ForwardedCall),
    /// `session/set_title`
    SetTitle,
}

/// A request of a client's that only the agent can answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardedCall {
    /// The client.
    pub client: ClientId,
    /// The client's id for the request.
    pub id: RequestId,
    /// The method as the client called it.
    pub asked: String,
    /// The method that the agent was sent.
    pub method: String,
    /// The params that the agent was sent.
    pub params: Object,
}

/// Something to do with or for a session's agent, once the changes that it is about are stored.
#[derive(Debug, Clone)]
pub enum AgentCommand {
    /// Starts the agent if it does not run, and restores its session.
    Start,
    /// Sends a request.
    Call {
        /// What it is for.
        call: AgentCall,
        /// The method.
        method: String,
        /// The params, in the agent's dialect.
        params: Object,
    },
    /// Cancels the request for a prompt.
    CancelPrompt(PromptId),
    /// Cancels the request that was sent for a client's.
    CancelForwarded(ClientId, RequestId),
    /// Sends a notification.
    Notify {
        /// The method.
        method: String,
        /// The params, in the agent's dialect.
        params: Object,
    },
    /// Answers a request of the agent.
    Respond {
        /// The agent's id for the request.
        id: RequestId,
        /// The result or the error.
        reply: Result<Json, Json>,
    },
    /// Serves a request for a file from the disk.
    ServeFile {
        /// The agent's id for the request.
        id: RequestId,
        /// The method.
        method: String,
        /// The params.
        params: Object,
    },
    /// Looks whether the agent may have a file that a client would serve.
    CheckFile {
        /// The agent's id for the request.
        id: RequestId,
        /// The method.
        method: String,
        /// The params.
        params: Object,
    },
    /// Serves a request for a terminal.
    ServeTerminal {
        /// The agent's id for the request.
        id: RequestId,
        /// The method.
        method: String,
        /// The params.
        params: Object,
    },
    /// Ends what runs in a terminal that the server runs for the agent.
    KillTerminal {
        /// The params that name the terminal.
        params: Object,
    },
    /// From now on, sends the client the agent's messages that belong to no session.
    AddClient(ClientId),
    /// Gives the agent no more sessions, because it hangs.
    Retire,
    /// Releases the agent's session, which can be restored later.
    Release,
    /// Drops the agent's session, because the agent is gone.
    DropSession,
}

impl AgentCommand {
    /// Whether this is done even if the changes were not stored: it reveals none of them to the agent.
    pub fn is_due_if_not_stored(&self) -> bool {
        match self {
            Self::Respond { reply, .. } => reply.is_err(),
            Self::Retire | Self::Release | Self::DropSession => true,
            Self::Start
            | Self::Call { .. }
            | Self::CancelPrompt(_)
            | Self::CancelForwarded(..)
            | Self::Notify { .. }
            | Self::ServeFile { .. }
            | Self::CheckFile { .. }
            | Self::ServeTerminal { .. }
            | Self::KillTerminal { .. }
            | Self::AddClient(_) => false,
        }
    }
}
