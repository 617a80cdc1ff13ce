use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use parlor_dialect::live;
use parlor_json::JsonStr;
use parlor_wire::{RpcError, code};

use crate::connection::MAX_REQUESTS;

/// Why the agent could not do what a client requested: a prompt, a login, a session, an extension request.
///
/// Every error of the standard library, of `anyhow`, of this crate, boxed or a plain string becomes one with `?`, and is shown
/// to people as its message. For that reason this type does not implement [`Error`] itself.
///
/// ```
/// use parlor_agent::TurnError;
///
/// fn read() -> Result<String, TurnError> {
///     Ok(std::fs::read_to_string("/no/such/file")?)
/// }
/// let error = read().unwrap_err();
/// assert!(matches!(&error, TurnError::Failed(source) if source.is::<std::io::Error>()));
/// assert!(error.to_string().contains("No such file"));
///
/// assert_eq!(TurnError::AuthRequired("log in first".to_owned()).code(), -32000);
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum TurnError {
    /// A person has to authenticate first. Clients offer the agent's [authentication methods](crate::AuthMethod).
    AuthRequired(String),
    /// The request is invalid.
    InvalidParams(String),
    /// The agent does not have the method.
    MethodNotFound(String),
    /// Any other error.
    Failed(Box<dyn Error + Send + Sync>),
    /// An error with a code and data, for clients that know them.
    Rpc(RpcError),
}

/// Why a request to a client, or for the session, failed.
///
/// ```
/// # use parlor_agent::{RequestError, Turn, TurnError};
/// # async fn example(turn: Turn) -> Result<String, TurnError> {
/// # let path = turn.cwd().join("notes.txt");
/// let text = match turn.client().read_text_file(&path).await {
///     // The client has no files for agents: the disk has what was saved.
///     Err(RequestError::Unsupported { .. }) => std::fs::read_to_string(&path)?,
///     text => text?,
/// };
/// # Ok(text)
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// No attached client supports the request.
    #[error("the client does not support {method}")]
    Unsupported {
        /// The method.
        method: String,
    },
    /// The client responded with an error.
    #[error("the client rejected {method}: {}", error.message())]
    Rejected {
        /// The method.
        method: String,
        /// The error.
        error: RpcError,
    },
    /// The client's response is not what the protocol requires.
    #[error("the client's response to {method} is invalid: `{expected}` is missing or has another type")]
    InvalidResponse {
        /// The method.
        method: String,
        /// The member that is missing or has another type.
        expected: &'static str,
    },
    /// The client that was sent the request has disconnected.
    #[error("the client disconnected before it responded to {method}")]
    ClientGone {
        /// The method.
        method: String,
    },
    /// The turn was cancelled.
    #[error("the turn was cancelled")]
    Cancelled,
    /// The limit of requests without a response is reached.
    #[error("{MAX_REQUESTS} requests of the agent wait for a response of the client")]
    TooManyRequests,
    /// The session was deleted, or the server has stopped.
    #[error("the session is closed")]
    SessionClosed,
}

/// Why an agent cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Another process has the file of sessions open.
    #[error("another process uses the sessions in {}", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The file of sessions cannot be opened.
    #[error("cannot open the sessions in {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The error of the file system or the database.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The sessions cannot be started.
    #[error("cannot start the sessions: {0}")]
    Start(#[source] Box<dyn Error + Send + Sync>),
    /// A token for [`Server::listen`](crate::Server) is empty or has other characters than letters, digits and `-._~`.
    #[error("the token is empty or has characters other than letters, digits and -._~")]
    InvalidToken,
    /// Other machines can reach the address.
    #[error("{address} can be reached from other machines: use an address of the loopback interface")]
    RemoteAddress {
        /// The address.
        address: SocketAddr,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// Reading from or writing to the client failed.
    #[error("the connection to the client failed: {0}")]
    Connection(#[from] io::Error),
}

impl TurnError {
    /// An error with a message for people.
    pub fn new(message: impl fmt::Display) -> Self {
        Self::Failed(message.to_string().into())
    }

    /// An error with a code, as JSON-RPC and the protocol have them.
    pub fn with_code(code: i64, message: impl fmt::Display) -> Self {
        Self::Rpc(RpcError::new(code, message.to_string()))
    }

    /// The code that clients receive.
    pub fn code(&self) -> i64 {
        match self {
            Self::AuthRequired(_) => code::AUTH_REQUIRED,
            Self::InvalidParams(_) => code::INVALID_PARAMS,
            Self::MethodNotFound(_) => code::METHOD_NOT_FOUND,
            Self::Failed(_) => code::INTERNAL_ERROR,
            Self::Rpc(error) => error.code(),
        }
    }

    pub(crate) fn to_rpc(&self) -> RpcError {
        match self {
            Self::Rpc(error) => error.clone(),
            Self::AuthRequired(_) | Self::InvalidParams(_) | Self::MethodNotFound(_) | Self::Failed(_) => {
                RpcError::new(self.code(), self.to_string())
            }
        }
    }
}

impl fmt::Display for TurnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AuthRequired(message) | Self::InvalidParams(message) => f.write_str(message),
            Self::MethodNotFound(method) => write!(f, "method not found: {method}"),
            Self::Failed(error) => error.fmt(f),
            Self::Rpc(error) => f.write_str(error.message()),
        }
    }
}

/// A cancelled request keeps its code.
impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for TurnError {
    fn from(error: E) -> Self {
        let error = error.into();
        match error.downcast_ref::<RequestError>() {
            Some(RequestError::Cancelled) => {
                Self::with_code(code::REQUEST_CANCELLED, RequestError::Cancelled)
            }
            Some(_) | None => Self::Failed(error),
        }
    }
}

impl RequestError {
    /// Reads the error response of a client, or of the session in its place.
    pub(crate) fn from_response(method: &str, error: RpcError) -> Self {
        // Errors name the method as the protocol does.
        let method = method.strip_prefix(live::CLIENT_SERVICE).unwrap_or(method).to_owned();
        if error.code() == code::METHOD_NOT_FOUND {
            return Self::Unsupported { method };
        }
        let data = error.data().and_then(|data| parlor_json::Object::parse(data.raw()).ok());
        let reason = data.as_ref().and_then(|data| JsonStr::from_raw(data.get("reason")?.raw()));
        if reason.is_some_and(|reason| reason.to_text() == live::CLIENT_GONE) {
            return Self::ClientGone { method };
        }
        Self::Rejected { method, error }
    }
}

#[cfg(test)]
mod tests {
    use parlor_json::Json;

    use super::*;

    #[test]
    fn errors_of_a_turn_have_the_codes_of_the_protocol() {
        for (error, code, message) in [
            (TurnError::AuthRequired("log in".into()), -32000, "log in"),
            (TurnError::InvalidParams("no".into()), -32602, "no"),
            (TurnError::MethodNotFound("_x".into()), -32601, "method not found: _x"),
            (TurnError::new("broken"), -32603, "broken"),
            (TurnError::with_code(-1, "own"), -1, "own"),
            (TurnError::from("words"), -32603, "words"),
            (TurnError::from(io::Error::other("disk")), -32603, "disk"),
            (TurnError::from(RequestError::Cancelled), -32800, "the turn was cancelled"),
        ] {
            assert_eq!((error.code(), error.to_string().as_str()), (code, message));
            assert_eq!((error.to_rpc().code(), error.to_rpc().message()), (code, message));
        }
    }

    #[test]
    fn an_error_keeps_its_source_and_its_data() {
        let unsupported = RequestError::Unsupported { method: "fs/read_text_file".into() };
        let TurnError::Failed(source) = TurnError::from(unsupported.clone()) else { panic!("it failed") };
        assert_eq!(source.downcast_ref(), Some(&unsupported));
        let data = Json::parse(r#"{"retry":1}"#).unwrap();
        let error = TurnError::Rpc(RpcError::new(-5, "later").with_data(data.clone()));
        assert_eq!(error.to_rpc().data(), Some(&data));
    }

    #[test]
    fn error_responses_are_told_apart_by_code_and_reason() {
        let read = |error| RequestError::from_response("m", error);
        let method = || "m".to_owned();
        assert_eq!(read(RpcError::new(-32601, "x")), RequestError::Unsupported { method: method() });
        let gone = Json::parse(r#"{"reason":"client_gone"}"#).unwrap();
        assert_eq!(
            read(RpcError::new(-32603, "x").with_data(gone)),
            RequestError::ClientGone { method: method() }
        );
        let error = RpcError::new(-32603, "client_gone");
        assert_eq!(read(error.clone()), RequestError::Rejected { method: method(), error });
    }
}
