//! The transports: a Unix socket, HTTP with a WebSocket, and the standard streams of this process.
//!
//! A transport turns bytes into lines and decides which clients may connect. The [hub](crate::hub) handles the lines. With
//! the feature `http` a server can listen; without it, it serves streams.

#[cfg(feature = "http")]
mod access;
#[cfg(feature = "http")]
mod connection_limit;
pub mod hello;
#[cfg(feature = "http")]
mod http;
mod in_flight;
mod line_connection;
#[cfg(feature = "http")]
mod listen;
#[cfg(feature = "http")]
mod page_socket;
mod relay;
#[cfg(feature = "http")]
mod sign_in;
mod stdio;
#[cfg(feature = "http")]
mod unix;
#[cfg_attr(not(feature = "http"), expect(dead_code, reason = "only listeners have sockets"))]
pub(crate) mod unix_socket;
#[cfg(feature = "http")]
mod websocket;

#[cfg(feature = "http")]
pub use self::http::{HttpOptions, Page, SignedOutPage};
#[cfg(feature = "http")]
pub use self::listen::{Limits, ListenError, Listeners, Port};
#[cfg(feature = "http")]
pub use self::page_socket::{PageSocket, PageUpgrade, TabGone};
pub use self::relay::{Ended, RECONNECT_TIMEOUT, ServerConnector, relay};
pub use self::stdio::{standard_input, standard_output, stdio, streams};
