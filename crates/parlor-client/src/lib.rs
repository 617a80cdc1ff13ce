//! Hold live sessions with coding agents that speak the Agent Client Protocol.
//!
//! A [`Connector`] starts an agent or connects to a server and finds out which version of the protocol it speaks; one of
//! version 1 is translated, so that everything else is the same with both. A [`Client`] begins, lists and joins sessions.
//! A [`Session`] always knows what was said in it: its [`Transcript`] is folded from what comes, and can be looked at,
//! watched for [`News`], prompted, cancelled and forked. What the agent wants to know comes as a [`Question`].
//!
//! ```no_run
//! use parlor_client::{Connector, Update};
//!
//! # async fn example() -> Result<(), parlor_client::Error> {
//! let client = Connector::new("example", "1.0").spawn("parlor", &["demo-agent"]).await?;
//! let session = client.new_session("/tmp".as_ref()).await?;
//! let mut news = session.news();
//! let turn = session.prompt("say Hello.").await?;
//! let end = turn.end().await?;
//! println!("{} entries, {:?}", session.read(|transcript| transcript.entries().len()), end.stop_reason);
//! # let _ = news.next().await;
//! # Ok(())
//! # }
//! ```
//!
//! **Invariant:** a peer that says nothing, nonsense or too much costs bounded memory and ends nothing but itself.

mod client;
mod connect;
mod connection;
mod driver;
mod error;
mod question;
mod session;
mod transport;

pub use client::{Client, Listed};
pub use connect::Connector;
pub use connection::Connection;
pub use error::Error;
pub use parlor_json::{Json, JsonStr, Object};
pub use parlor_session::{
    Activity, Body, Content, Entry, EntryId, MessageId, Role, SessionId, Slot, State, Target, Transcript,
    Update, Upsert, text_of,
};
pub use parlor_wire::hello::{Agent, Hello, Welcome};
pub use question::{Choice, Question};
pub use session::{News, Prompt, Session, Turn, Words};

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Version 1.
    V1,
    /// Version 2.
    V2,
}
