//! Hold live sessions with coding agents that speak the Agent Client Protocol.
//!
//! A [`Connector`] starts an agent or connects to a server and finds out which version of the protocol it speaks; one of
//! version 1 is translated, so that everything else is the same with both.
//!
//! | what | where |
//! |---|---|
//! | start an agent, connect to a server | [`Connector`] |
//! | begin, list and join sessions, ask anything else | [`Client`] |
//! | look at what was said, prompt, cancel, fork | [`Session`] and its [`Transcript`] |
//! | watch it as it happens | [`Updates`], with [`TextDelta`] for the text |
//! | wait for the end of what was asked | [`Turn`] |
//! | answer what the agent wants to know | [`PeerRequests`], each a [`PeerRequest`] with its [`PermissionOption`]s |
//! | ask a server without having an agent started | [`Connection`] |
//! | tell what went wrong | [`Error`], [`Client::losses`], [`Session::unread`] |
//!
//! What is waited for can be given up: a call or a prompt that is dropped before its answer is taken back, and a question
//! that is dropped is declined. A connection that was lost is made up for with [`Client::rejoin`].
//!
//! ```
//! use parlor_client::{Connector, TextDelta};
//!
//! # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/agent.rs")); }
//! # use example::*;
//! # run(async {
//! # let (read, write) = streams().await;
//! // Or `spawn` for a program, `socket` and `url` for a server.
//! let client = Connector::new("example", "1.0").over(read, write).await?;
//! let session = client.new_session("/tmp".as_ref()).await?;
//! let turn = session.prompt("Hello!").await?;
//! let end = turn.outcome().await?;
//! let mut said = Vec::new();
//! let mut news = turn.updates();
//! while let Some(update) = news.ready() {
//!     said.extend(TextDelta::of(&update).map(|words| format!("{:?}: {}", words.role, words.text)));
//! }
//! assert_eq!(said, ["User: Hello!", "Agent: Hello!"]);
//! assert_eq!(end.stop_reason.unwrap().to_text(), "end_turn");
//! # Ok(())
//! # });
//! ```
//!
//! **Invariant:** a peer that says nothing, nonsense or too much costs bounded memory and ends nothing but itself.

mod client;
mod connect;
mod connection;
mod driver;
mod error;
mod losses;
mod peer_request;
mod program;
mod replica;
mod session;
mod sessions;
mod transport;
mod updates;

pub use client::{Client, SessionInfo};
pub use connect::Connector;
pub use connection::Connection;
pub use error::Error;
pub use losses::Losses;
pub use parlor_json::{Json, JsonStr, Object};
pub use parlor_session::{
    Activity, Body, CompactionId, Content, Entry, EntryId, MessageId, MetaPatch, Patch, PlanId, Role,
    SessionId, Slot, State, Target, TerminalId, ToolCallId, Transcript, Update, Upsert, text_of,
};
pub use parlor_wire::RpcError;
pub use parlor_wire::hello::{Agent, Hello, Welcome};
pub use peer_request::{PeerRequest, PeerRequests, PermissionOption};
pub use session::{Prompt, Session, Turn};
pub use updates::{TextDelta, Updates};

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Version {
    /// Version 1.
    V1,
    /// Version 2.
    V2,
}
