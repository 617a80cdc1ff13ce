use std::io;

use parlor_wire::RpcError;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No connection could be made: the program cannot be started, or nothing listens at the address.
    #[error("cannot connect: {0}")]
    Connect(#[source] io::Error),
    /// The peer does not accept this client, for the reason given.
    #[error("the peer refused the connection: {0}")]
    Refused(String),
    /// A server, or a proxy in front of it, accepts no connections at present, for the reason given. Another attempt may succeed.
    #[error("the server is not available: {0}")]
    Unavailable(String),
    /// The connection is closed.
    #[error("the connection is closed")]
    Disconnected,
    /// This client closed or deleted the session.
    #[error("the session is closed")]
    SessionClosed,
    /// The connection receives no updates of the session: it could not be joined, the connection follows too many, or
    /// [`Client::rejoin`](crate::Client::rejoin) replaced this handle by that of another connection.
    #[error("this connection receives no updates of the session")]
    NotSubscribed,
    /// The peer responded with an error. [`code`](crate::code) has the codes of the protocol.
    #[error("{}", .0.message())]
    Rpc(RpcError),
    /// The peer sent something that the protocol does not allow.
    #[error("protocol violation: {0}")]
    Protocol(&'static str),
    /// A message exceeded the size limit, and may have been the response. On a WebSocket the connection is closed as well.
    #[error("a message that may have been the response exceeds the size limit")]
    TooLong,
    /// A limit is reached: requests in flight, loads of one session (one), or sessions of the connection.
    #[error("this connection has too many requests without a response, or too many sessions")]
    Busy,
}

impl Error {
    /// The code of the error response, if there was one.
    ///
    /// ```
    /// use parlor_client::{Error, RpcError, code};
    ///
    /// let error = Error::Rpc(RpcError::new(code::REQUEST_CANCELLED, "cancelled"));
    /// assert_eq!(error.code(), Some(code::REQUEST_CANCELLED));
    /// assert_eq!(Error::Disconnected.code(), None);
    /// ```
    pub fn code(&self) -> Option<i64> {
        if let Self::Rpc(error) = self { Some(error.code()) } else { None }
    }
}
