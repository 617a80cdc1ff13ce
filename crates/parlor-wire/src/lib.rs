//! JSON-RPC 2.0 as the Agent Client Protocol uses it: one message per line, both sides ask and answer.
//!
//! This crate is for relays. It understands the envelope of a message and keeps the rest as the text it came
//! in, so that what goes out is what came in. Whatever a peer sends is data: a line that is too long, not
//! text, not JSON or not a message is a [`Malformed`] with the answer that is due, and the next line is read.
//!
//! - [`Lines`] cuts bytes into lines.
//! - [`parse`] reads a line into [`Message`]s.
//! - [`Message::with_id`], [`splice`] and [`write`](mod@write) make lines.
//! - [`Asked`] and [`Open`] know which requests have no answer yet, one for each direction.
//!
//! A relay between two peers, in short:
//!
//! ```
//! use parlor_wire::{Asked, Batches, Body, Incoming, Lines};
//!
//! let mut from_client = Lines::default();
//! let mut asked = Asked::new(1000);
//! let (mut to_agent, mut to_client) = (Vec::new(), Vec::new());
//!
//! from_client.extend(b"{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"session/new\",\"params\":{\"n\": 1.0}}\noops\n");
//! while let Some(frame) = from_client.next_line() {
//!     match frame.parse(Batches::Refuse) {
//!         Ok(Incoming::One(message)) => match &message.body {
//!             Body::Request { id, .. } => {
//!                 let ours = asked.ask(id.clone()).unwrap();
//!                 to_agent.push(message.with_id(&ours));
//!             }
//!             Body::Notification { .. } => to_agent.push(message.text().to_owned()),
//!             Body::Response { .. } => {}
//!         },
//!         Ok(Incoming::Batch(_)) => unreachable!("batches are refused"),
//!         Err(malformed) => to_client.extend(malformed.answer()),
//!     }
//! }
//! assert_eq!(to_agent, [r#"{"jsonrpc":"2.0","id":0,"method":"session/new","params":{"n": 1.0}}"#]);
//! assert!(to_client[0].starts_with(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"#));
//! ```
//!
//! **Invariant:** this crate does no I/O, knows no clock, no randomness and no async runtime, and no input
//! makes it panic.

mod error;
mod framing;
pub mod hello;
mod id;
mod malformed;
mod message;
mod pending;
mod splice;
pub mod write;

pub use error::{RpcError, code};
pub use framing::{DEFAULT_LINE_LIMIT, InputLine, Lines};
pub use id::{InvalidId, RequestId};
pub use malformed::{EXCERPT_CHARS, Malformed, Reason};
pub use message::{Batches, Body, Incoming, MAX_BATCH, Message, Outcome, parse};
pub use pending::{Asked, CANCEL_REQUEST, Full, NotBegun, Open, cancel_line, cancel_target};
pub use splice::{span_of, splice};
