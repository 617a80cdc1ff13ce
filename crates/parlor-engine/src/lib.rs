//! One live session as a pure machine: who is sent what, when, and in which order.
//!
//! **Invariant:** this crate does no I/O, knows no clock, no randomness and no async runtime.

mod agent;
mod client;
pub mod context;
mod environment;
mod event;
pub mod fields;
mod fork_opening;
mod frame;
mod machine;
pub mod mcp;
pub mod opening;
mod output;
mod profile;
pub mod rows;
pub mod search_text;
mod session_data;
pub mod stored;
mod summary;
mod throttle;
mod usage;

pub use agent::{
    AgentCall, AgentCommand, AgentEpoch, AgentInfo, AgentLink, AgentSessionEnd, Capability, EndCall,
    ForwardedCall, SessionLookup,
};
pub use client::ClientInfo;
pub use environment::{IdGen, Now, QueueLimits, QueueSizes, SessionConfig, Timer};
pub use event::{
    AgentEvent, CachedAgentInfo, ClientCall, Event, ForkKind, ForkRequest, HandoffAgent, OpenedAgent,
    RejectableRequest, ReplayFrom, TerminalEvent,
};
pub use fork_opening::{ForkAction, ForkEvent, ForkOpening};
pub use frame::{Frame, FrameKind};
pub use machine::{
    FORK, Follow, ForkContext, ForkStart, MAX_SUBAGENTS, OwnerEvent, STEER, SessionEnd, SessionMachine,
    SubagentCommand, SubagentInfo, SubagentOutput, cannot_ask, deleted_agent_session, deleted_key,
    no_session, reports_background,
};
pub use output::{ClientRequestId, Delivery, Outgoing, Output};
pub use profile::AgentProfile;
use profile::agent_features;
pub use session_data::{EarlierAgent, SessionData, title};
pub use summary::{OpenRequest, SessionState, SessionSummary};
pub use throttle::InfoThrottle;
pub use usage::{DayUsage, SessionUsage, TOKEN_KINDS, Tokens};
