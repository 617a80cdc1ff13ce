//! A library for coding agents that use the [Agent Client Protocol](https://agentclientprotocol.com), on tokio.
//!
//! An [`Agent`] answers prompts; [`Server`] makes it a complete agent for clients of versions 1 and 2: sessions with history,
//! message ids, queued prompts, cancellation, replay for clients that attach later, forks at any message, any number of clients
//! in one session, and persistent sessions if it is given a file.
//!
//! ```
//! use parlor_agent::{Agent, Server, StopReason, Turn, TurnError};
//!
//! struct Echo;
//!
//! impl Agent for Echo {
//!     async fn prompt(&self, turn: Turn) -> Result<StopReason, TurnError> {
//!         turn.send_text(&turn.prompt_text()).await;
//!         Ok(StopReason::EndTurn)
//!     }
//! }
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let server = Server::builder(Echo).start().await?;
//! // For an editor: server.stdio().await?
//! let (read, write) = tokio::io::split(server.connect());
//! let client = parlor_client::Connector::new("example", "1").over(read, write).await?;
//! let session = client.new_session("/tmp".as_ref()).await?;
//! session.prompt("Hello!").await?.outcome().await?;
//! assert_eq!(session.transcript().entries()[1].body().content.to_text(), "Hello!");
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! | to | use |
//! |---|---|
//! | implement an agent, describe it | [`Agent`], [`Info`] |
//! | serve it on standard streams, in the process, on a port | [`Server`] |
//! | read a prompt | [`Turn`], [`ContentBlock`] |
//! | send text, thoughts, plans, titles | [`Session`], whose methods a [`Turn`] has; [`PlanEntry`] |
//! | show tools and commands at work | [`ToolCall`], [`Terminal`] |
//! | ask people | [`ToolCall::request_permission`], [`Session::request_form`] |
//! | use the client's files and terminals | [`ClientServices`] |
//! | offer modes, models, commands | [`Setting`], [`Info::command`] |
//! | require authentication | [`AuthMethod`], [`Agent::authenticate`], [`TurnError::AuthRequired`] |
//! | read the history | [`Turn::transcript`] |
//! | send after the turn, or before the first | [`Turn::session`], [`Agent::session_started`] |
//! | use the protocol beyond these types | [`Session::send_update`], [`ClientServices::request`], [`Agent::extension_request`] |
//! | handle errors | [`TurnError`] that agents return, [`RequestError`] of requests, [`ServeError`] of servers |
//!
//! Types with a fixed set of values keep values that they do not know, and content keeps members that it does not name.
//!
//! # Tracing
//!
//! Each session has a [`tracing`] span `session` with its id, and in it each turn a span `turn` with the id of its message.
//! [`Agent::prompt`] runs in the span of its turn, so that everything that it logs can be assigned to it.
//!
//! # Features
//!
//! By default an agent keeps its sessions in memory, and serves standard streams and clients in the process.
//!
//! - `persist`: `ServerBuilder::persist` persists sessions in an `SQLite` file.
//! - `listen`: `Server::listen` serves clients on a port of this machine, over `WebSocket`.
//!
//! **Invariant:** a client that does not read costs bounded memory, and a turn that panics ends itself only.

mod agent;
mod auth;
mod client;
mod connection;
mod content;
mod error;
mod form;
mod host;
mod info;
mod permission;
#[cfg(feature = "persist")]
mod persist;
mod plan;
mod server;
mod session;
mod session_state;
mod terminal;
mod tool_call;
mod turn;
mod turns;
mod wire_text;

pub use agent::Agent;
pub use auth::AuthMethod;
pub use client::{ClientServices, ClientTerminal, TerminalCommand, TerminalExit, TerminalOutput};
pub use content::{
    AudioContent, ContentBlock, EmbeddedResource, ImageContent, ResourceContents, ResourceLink, TextContent,
};
pub use error::{RequestError, ServeError, TurnError};
pub use form::FormOutcome;
pub use info::{Info, Setting};
pub use parlor_json::{InvalidJson, Json, JsonStr, NotAnObject, Object, ObjectWriter};
pub use parlor_session::{
    Body, Content, Entry, EntryId, MessageId, Role, SessionId, Slot, State, ToolCallId, Transcript, text_of,
};
pub use parlor_wire::{
    PermissionOptionKind, PlanEntryPriority, PlanEntryStatus, PromptCapability, SettingCategory, StopReason,
    ToolCallStatus, ToolKind,
};
pub use parlor_wire::{RpcError, code};
pub use permission::{PermissionOption, PermissionOutcome};
pub use plan::PlanEntry;
pub use server::{Server, ServerBuilder};
pub use session::{SentMessage, Session};
pub use session_state::{SessionRequest, SessionRequestKind};
pub use terminal::Terminal;
pub use tool_call::{ToolCall, ToolCallBuilder, ToolCallContent, ToolCallLocation};
pub use turn::Turn;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Compiles the Rust of the guide, which shows all features.
#[cfg(all(doctest, feature = "listen", feature = "persist"))]
#[doc = include_str!("../../../docs/guide.md")]
struct Guide;
