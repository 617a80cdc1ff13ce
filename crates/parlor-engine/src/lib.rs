//! One live session as a pure machine: who is sent what, when, and in which order.
//!
//! **Invariant:** this crate does no I/O, knows no clock, no randomness and no async runtime.

mod agent;
mod client;
pub mod context;
mod environment;
mod frame;
pub mod json;
pub mod opening;
mod outgoing;
mod throttle;

pub use agent::{AgentCall, AgentCommand, AgentEpoch, AgentInfo, AgentLink, Capability, ForwardedCall};
pub use client::ClientInfo;
pub use environment::{IdGen, Now, SessionConfig, Timer};
pub use frame::{Frame, FrameKind};
pub use outgoing::{Delivery, Outgoing};
pub use throttle::InfoThrottle;
