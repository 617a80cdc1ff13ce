//! What can happen to a session.

use parlor_json::{Json, JsonStr, Object};

use super::{Answer, Client, ClientId, Envelope, PeerRequestId, Prompt, PromptId, PromptMode, Scope};
use crate::{EventKind, IdSource, MessageId, State, ToolCallId, Update};

/// Everything that can happen to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A client attached.
    Attached(ClientId, Client),
    /// A client's connection ended.
    Detached(ClientId),
    /// A client closed the session: its waiting prompts are withdrawn.
    Closed(ClientId),
    /// A client sent a prompt.
    Prompted(Prompt),
    /// A client withdrew a prompt. If its turn has started, the turn is cancelled.
    Withdrawn {
        /// The prompt.
        prompt: PromptId,
        /// The client.
        by: ClientId,
    },
    /// A client cancelled the running turn, and prompts that wait.
    Cancelled {
        /// The client.
        by: ClientId,
        /// Which of the prompts are withdrawn.
        scope: Scope,
    },
    /// The session is bound to an agent.
    AgentReady {
        /// How it accepts prompts.
        mode: PromptMode,
        /// Whether it does not know the ids of existing entries, because it was sent the transcript as text.
        without_history: bool,
    },
    /// As `AgentReady`, for an agent with early updates: no prompt is sent until they are applied.
    AgentRestored {
        /// How it accepts prompts.
        mode: PromptMode,
        /// Whether it does not know the ids of existing entries, because it was sent the transcript as text.
        without_history: bool,
    },
    /// All early updates of a restored agent are applied.
    EarlyUpdatesApplied,
    /// The agent is about to be sent the transcript in this envelope.
    ContextHandedOver(Envelope),
    /// The agent was lost. If the session was busy, this is its state now.
    AgentLost(State),
    /// The agent was released while idle, and will be restored when it is needed.
    AgentReleased,
    /// The agent sent an update.
    AgentUpdate(Update, IdSource),
    /// The agent accepted a prompt.
    Accepted {
        /// The prompt.
        prompt: PromptId,
        /// Its message, if the agent's response has an id.
        message: Option<MessageId>,
        /// The other members of the response.
        fields: Object,
    },
    /// The agent rejected a prompt.
    Rejected {
        /// The prompt.
        prompt: PromptId,
        /// The error object.
        error: Json,
    },
    /// The agent has taken a prompt into its running turn.
    Steered(PromptId),
    /// The agent has not taken a prompt into its turn, because the turn had ended.
    NotSteered(PromptId),
    /// The agent dropped a prompt from its queue, as agents do when a turn is cancelled.
    Dropped {
        /// The prompt.
        prompt: PromptId,
        /// The error object.
        error: Json,
    },
    /// An agent with [`PromptMode::Serial`] ended a turn.
    Ended {
        /// The prompt that started it.
        prompt: PromptId,
        /// The state at its end.
        state: State,
    },
    /// The agent sent a peer request.
    RequestOpened {
        /// The request.
        peer_request: PeerRequestId,
        /// Whether only clients that can show forms receive it.
        form: bool,
        /// The tool call that it requests permission for.
        call: Option<ToolCallId>,
    },
    /// A client answered a peer request.
    RequestAnswered {
        /// The request.
        peer_request: PeerRequestId,
        /// The client.
        by: ClientId,
        /// Its answer.
        answer: Answer,
    },
    /// A client answered a peer request that it need not have been sent.
    RequestDecided {
        /// The request.
        peer_request: PeerRequestId,
        /// The client.
        by: ClientId,
        /// The result.
        result: Json,
    },
    /// The agent cancelled a peer request.
    RequestCancelled(PeerRequestId),
    /// The server itself updates the transcript.
    ServerUpdate(Update),
    /// An event is to be recorded in the transcript.
    EventOccurred(EventKind),
    /// A person set or cleared the session's title.
    Titled(Option<JsonStr>),
}
