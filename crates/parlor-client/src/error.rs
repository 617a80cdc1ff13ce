use std::fmt;
use std::io;

use parlor_wire::RpcError;

/// Why the other side did not do what it was asked.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// There is no connection: a program that cannot be started, an address at which nobody listens.
    Connect(io::Error),
    /// The other side does not want this client.
    Refused(String),
    /// The connection is gone.
    Disconnected,
    /// The session was closed or deleted by this client.
    SessionClosed,
    /// The connection does not tell of the session: it could not be joined, too many are followed, or what another connection
    /// [knew of it](crate::Client::rejoin) took its place.
    NotSubscribed,
    /// It answered with an error.
    Rpc(RpcError),
    /// It answered something that makes no sense.
    Protocol(&'static str),
    /// The other side said something that is too long to be read, and it may have been the answer. A WebSocket is gone with it.
    TooLong,
    /// Too much is under way: requests without an answer, loads of one session, sessions that are followed.
    Busy,
}

impl Error {
    /// The code of the error that was answered, if one was, such as -32800 for what was taken back.
    ///
    /// ```
    /// assert_eq!(parlor_client::Error::Disconnected.code(), None);
    /// ```
    pub fn code(&self) -> Option<i64> {
        match self {
            Self::Rpc(error) => Some(error.code()),
            Self::Connect(_)
            | Self::Refused(_)
            | Self::Disconnected
            | Self::SessionClosed
            | Self::NotSubscribed
            | Self::Protocol(_)
            | Self::TooLong
            | Self::Busy => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "no connection: {error}"),
            Self::Refused(why) => write!(f, "the server refuses: {why}"),
            Self::Disconnected => f.write_str("the connection is gone"),
            Self::SessionClosed => f.write_str("the session was closed"),
            Self::NotSubscribed => f.write_str("the connection does not tell of the session"),
            Self::Rpc(error) => write!(f, "{} ({})", error.message(), error.code()),
            Self::Protocol(what) => write!(f, "the answer makes no sense: {what}"),
            Self::TooLong => f.write_str("the answer may be a line that is too long to be read"),
            Self::Busy => f.write_str("too much is under way on this connection"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Connect(error) => Some(error),
            Self::Refused(_)
            | Self::Disconnected
            | Self::SessionClosed
            | Self::NotSubscribed
            | Self::Rpc(_)
            | Self::Protocol(_)
            | Self::TooLong
            | Self::Busy => None,
        }
    }
}
