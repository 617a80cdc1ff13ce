//! A client library for coding agents that use the [Agent Client Protocol](https://agentclientprotocol.com).
//!
//! A [`Connector`] starts an agent or connects to a server, and finds out which version of the protocol it uses. Version 1 is
//! translated: the API is the same for both.
//!
//! | to | use |
//! |---|---|
//! | start an agent, connect to a server | [`Connector`] |
//! | create, list, join and load sessions; send any request | [`Client`] |
//! | prompt, cancel, fork; read the transcript | [`Session`] and its [`Snapshot`] |
//! | follow a turn to its outcome | [`Turn`], a stream of [`TurnEvent`]s |
//! | follow a session, whoever prompts | [`Updates`], a stream of [`Update`]s; [`Changes`] to read the transcript instead |
//! | follow the list of sessions of a server | [`Client::subscribe_list`] and [`ListUpdate`] |
//! | read updates | [`TextDelta`] for text, [`ToolCall`] for tool calls |
//! | answer permission and other requests | [`PeerRequests`], a stream of [`PeerRequest`]s |
//! | read the mode, model and options of a session | [`ConfigOption`] |
//! | show and answer the forms of agents | [`Elicitation`] |
//! | receive extension notifications | [`Notifications`], a stream of [`Notification`]s |
//! | query a server without starting an agent; answer [open requests](OpenRequest) | [`Connection`] |
//! | handle errors | [`Error`] and [`code`]; [`Client::losses`] and [`Session::losses`] |
//!
//! Streams implement [`futures_core::Stream`] and have a method `next` of their own. Futures can be dropped at any time: a
//! call or a prompt without a response is cancelled, a request of the agent is declined. After a lost connection,
//! [`Client::rejoin`] continues a session without a gap.
//!
//! ```
//! use parlor_client::{Connector, StopReason, TextDelta, TurnEvent};
//!
//! # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/agent.rs")); }
//! # use example::*;
//! # run(async {
//! # let (read, write) = streams().await;
//! // Or `spawn` for a program, `socket` and `url` for a server.
//! let client = Connector::new("example", "1.0").over(read, write).await?;
//! let session = client.new_session("/tmp".as_ref()).await?;
//! let mut turn = session.prompt("Hello!").await?;
//! let mut lines = Vec::new();
//! while let Some(event) = turn.next().await {
//!     match event? {
//!         TurnEvent::Update(update) => {
//!             lines.extend(TextDelta::of(&update).map(|delta| format!("{:?}: {}", delta.role, delta.text)));
//!         }
//!         TurnEvent::Ended(outcome) => assert_eq!(outcome.stop_reason, Some(StopReason::EndTurn)),
//!     }
//! }
//! assert_eq!(lines, ["User: Hello!", "Agent: Hello!"]);
//! # Ok(())
//! # });
//! ```
//!
//! # Tracing
//!
//! Each connection has a [`tracing`] span `connection` with its transport and version, and in it each session a span `session`
//! with its id.
//!
//! # Features
//!
//! - `websocket` (default): [`Connector::url`] for `ws://` addresses.
//! - `tls`: `wss://` addresses, with the certificates that the system trusts.
//!
//! **Invariant:** a peer that sends nothing, too much or invalid data costs bounded memory and affects its own connection
//! only.

mod client;
mod config_option;
mod connect;
mod connection;
mod driver;
mod elicitation;
mod error;
mod losses;
mod notifications;
mod open_request;
mod peer_request;
mod process;
mod replica;
mod session;
mod subscriptions;
mod transport;
mod turn;
mod updates;
mod values;

pub use client::{Client, ListUpdate, SessionInfo};
pub use config_option::{ConfigOption, OptionValue};
pub use connect::Connector;
pub use connection::Connection;
pub use elicitation::{Elicitation, FieldKind, FormField};
pub use error::Error;
pub use losses::Losses;
pub use notifications::{Notification, Notifications};
pub use open_request::{OpenRequest, RequestsUpdate};
pub use parlor_json::{Json, JsonRef, JsonStr, Object};
pub use parlor_session::{
    Activity, Body, CompactionId, Content, Entry, EntryId, MessageId, MetaPatch, Patch, PlanId, Role,
    SessionId, Slot, State, Target, TerminalId, ToolCallId, Transcript, Update, Upsert, acted_where,
    is_numbered, text_of,
};
pub use parlor_wire::hello::{Agent, Hello, Welcome};
pub use parlor_wire::{
    PermissionOptionKind, PlanEntryPriority, PlanEntryStatus, RpcError, StopReason, ToolCallStatus, ToolKind,
    code,
};
pub use peer_request::{PeerRequest, PeerRequests, PermissionOption};
pub use replica::Snapshot;
pub use session::{DuringTurn, OlderEntries, Prompt, Session};
pub use turn::{Turn, TurnEvent};
pub use updates::{Changes, TextDelta, Updates};
pub use values::{ToolCall, ToolCallLocation, TurnOutcome};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Version {
    /// Version 1.
    V1,
    /// Version 2.
    V2,
}
