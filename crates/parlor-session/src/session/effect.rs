//! What the caller of a session has to do.

use parlor_json::Json;

use super::{ClientId, PeerRequestId, Prompt, PromptId, PromptOutcome, Reply};
use crate::{Change, MessageId, State, UpdateError};

/// An action for the caller, to be performed after the changes of the step are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Send this prompt to the agent.
    SendPrompt(Prompt),
    /// Have the agent take this prompt into its running turn.
    Steer(Prompt),
    /// Cancel a prompt that the agent was sent and has not inserted.
    CancelPrompt(PromptId),
    /// Cancel the agent's turn.
    CancelTurn,
    /// Respond to the client that sent a prompt. With [`ClientId::UNKNOWN`], no waiting client is attached: the
    /// failure is kept for those that attach later.
    RespondPrompt {
        /// The prompt.
        prompt: PromptId,
        /// The client that sent it.
        by: ClientId,
        /// The outcome.
        outcome: PromptOutcome,
    },
    /// Send a peer request to a client.
    SendRequest(PeerRequestId, ClientId),
    /// Cancel a peer request at a client.
    CancelClientRequest(PeerRequestId, ClientId),
    /// Respond to a peer request of the agent.
    RespondRequest(PeerRequestId, Reply),
    /// Record a decision; the response to the agent follows.
    RecordDecision {
        /// The request.
        peer_request: PeerRequestId,
        /// The client whose answer counts.
        by: ClientId,
        /// The answer.
        result: Json,
    },
    /// Send the prompt queue to the drivers.
    QueueChanged,
    /// Start or restore an agent: a prompt is queued and there is none.
    StartAgent,
}

/// The result of one step.
#[derive(Debug, Default)]
pub struct Step {
    /// The changes of the transcript, in order.
    pub changes: Vec<Change>,
    /// The actions to perform after the changes are stored, in order.
    pub effects: Vec<Effect>,
    /// Whether the changes must be flushed to disk before the effects are performed.
    pub durable: bool,
    /// Whether the side state (queue, ids, titles, envelopes) changed.
    pub side_state_dirty: bool,
    /// Prompts that were inserted in the transcript.
    pub inserted: Vec<Inserted>,
    /// The number of changes after which a turn ended: clients that wait for the end are answered there, before the
    /// changes of the next turn.
    pub ended_after: Option<usize>,
    /// Prompts whose turn ended, with the state that ended it.
    pub ended: Vec<(PromptId, State)>,
    /// Updates that were rejected.
    pub rejected: Vec<UpdateError>,
}

/// A prompt that was inserted in the transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inserted {
    /// The prompt.
    pub prompt: PromptId,
    /// The client that sent it.
    pub by: ClientId,
    /// Its message.
    pub message: MessageId,
    /// Its content.
    pub content: Json,
    /// The number of changes of the step that precede it.
    pub change_index: usize,
}
