//! Write a coding agent, and get the rest.
//!
//! An [`Agent`] answers prompts. It says what it has to say through its [`Turn`]: text, thoughts, tool calls, plans,
//! terminals, questions for permission, a title. [`Server`] makes of it a complete agent of the Agent Client Protocol,
//! version 1 and 2: message ids, prompts that are accepted and wait, states, cancellation, lists, history that is told
//! again to who comes later, forks at any message, any number of clients in one session, and sessions that last if they
//! are given a file.
//!
//! ```
//! use parlor_agent::{Agent, Failure, Server, Stop, Turn};
//!
//! struct Echo;
//!
//! impl Agent for Echo {
//!     async fn prompt(&self, turn: Turn) -> Result<Stop, Failure> {
//!         turn.say(&turn.text()).await;
//!         Ok(Stop::EndTurn)
//!     }
//! }
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let server = Server::of(Echo).start().await?;
//! // For an editor: server.stdio().await
//! let (read, write) = tokio::io::split(server.connect());
//! let client = parlor_client::Connector::new("example", "1").over(read, write).await.unwrap();
//! let session = client.new_session("/tmp".as_ref()).await.unwrap();
//! session.prompt("Hello!").await.unwrap().end().await.unwrap();
//! assert_eq!(session.transcript().entries()[1].body().content.to_text(), "Hello!");
//! # Ok::<_, parlor_agent::ServeError>(())
//! # }).unwrap();
//! ```

mod agent;
mod host;
mod info;
mod line;
mod place;
mod serve;
mod session;
mod tool;
mod turn;
mod update;

pub use agent::{Agent, Failure, Stop};
pub use info::{Info, Setting};
pub use parlor_json::{InvalidJson, Json, JsonStr, NotAnObject, Object};
pub use parlor_session::{
    Body, Content, Entry, EntryId, MessageId, Role, SessionId, Slot, State, ToolCallId, Transcript, text_of,
};
pub use serve::{Builder, ServeError, Server};
pub use session::{Said, Session, Step};
pub use tool::{Choice, Terminal, ToolCall, ToolCallBuilder};
pub use turn::Turn;

/// The guide, whose Rust is compiled with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide.md")]
mod guide {}
