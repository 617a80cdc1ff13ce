use std::fmt;
use std::io;

use parlor_wire::RpcError;

/// Why a server did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Error {
    /// Nobody listens.
    NoServer(io::Error),
    /// The server does not want this client.
    Refused(String),
    /// The server went away.
    Gone,
    /// The server answered with an error.
    Rpc(RpcError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoServer(error) => write!(f, "no server answers: {error}"),
            Self::Refused(why) => write!(f, "the server refuses: {why}"),
            Self::Gone => f.write_str("the server is gone"),
            Self::Rpc(error) => write!(f, "{} ({})", error.message(), error.code()),
        }
    }
}

impl std::error::Error for Error {}
