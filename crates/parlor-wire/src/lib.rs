//! JSON-RPC 2.0 as the Agent Client Protocol uses it: one message per line, requests in both directions.
//!
//! This crate is made for relays. It parses the envelope of a message and keeps the payload as the text in which
//! it was received, so that it can be forwarded unchanged. A line that is too long, not UTF-8, not JSON or not a
//! message is a [`Malformed`] value with the error response to send, and decoding continues with the next line.
//!
//! - [`LineDecoder`] splits bytes into lines.
//! - [`parse`] parses a line into [`Message`]s.
//! - [`Message::with_id`], [`splice`] and [`write`](mod@write) write lines.
//! - [`OutgoingRequests`] and [`IncomingRequests`] hold the requests in flight, one for each direction.
//! - [`StopReason`], [`ToolKind`] and the other enums are the strings that the protocol has for something.
//!
//! A relay between two peers, in short:
//!
//! ```
//! use parlor_wire::{Batches, Body, Incoming, LineDecoder, OutgoingRequests};
//!
//! let mut from_client = LineDecoder::default();
//! let mut requests = OutgoingRequests::new(1000);
//! let (mut to_agent, mut to_client) = (Vec::new(), Vec::new());
//!
//! from_client.extend(b"{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"session/new\",\"params\":{\"n\": 1.0}}\noops\n");
//! while let Some(line) = from_client.next_line() {
//!     match line.parse(Batches::Refuse) {
//!         Ok(Incoming::One(message)) => match &message.body {
//!             Body::Request { id, .. } => {
//!                 let agent_id = requests.register(id.clone()).unwrap();
//!                 to_agent.push(message.with_id(&agent_id));
//!             }
//!             Body::Notification { .. } => to_agent.push(message.text().to_owned()),
//!             Body::Response { .. } => {}
//!         },
//!         Ok(Incoming::Batch(_)) => unreachable!("batches are refused"),
//!         Err(malformed) => to_client.extend(malformed.response()),
//!     }
//! }
//! assert_eq!(to_agent, [r#"{"jsonrpc":"2.0","id":0,"method":"session/new","params":{"n": 1.0}}"#]);
//! assert!(to_client[0].starts_with(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"#));
//! ```
//!
//! **Invariant:** this crate does no I/O, uses no clock, no randomness and no async runtime, and does not panic
//! on any input.

mod error;
mod framing;
pub mod hello;
mod id;
mod malformed;
mod message;
mod requests;
mod splice;
mod strings;
pub mod write;

pub use error::{RpcError, code};
pub use framing::{DEFAULT_LINE_LIMIT, InputLine, LineDecoder};
pub use id::{InvalidId, RequestId};
pub use malformed::{EXCERPT_CHARS, Malformed, Reason};
pub use message::{Batches, Body, Incoming, MAX_BATCH, Message, Outcome, parse};
pub use requests::{
    CANCEL_REQUEST, IncomingRequests, OutgoingRequests, RegisterError, TooManyRequests, cancel_line,
    cancel_target,
};
pub use splice::{span_of, splice};
pub use strings::{
    PermissionOptionKind, PlanEntryPriority, PlanEntryStatus, PromptCapability, SettingCategory, StopReason,
    ToolCallStatus, ToolKind,
};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
