use std::fmt;

use parlor_json::{MAX_MEMBERS, NotAnObject, Object, Type};

use crate::{InvalidId, RequestId, RpcError, code, write};

/// The most characters of a malformed line that an excerpt has.
pub const EXCERPT_CHARS: usize = 80;

/// A line, or an item of a batch, that is not a message.
///
/// The connection continues after it. [`response`](Malformed::response) is the error response to send. A malformed
/// response is never answered, and the error response has an id only if the line was certainly a request: both sides
/// number their requests from 0, so the peer would take it for the response to another request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// The reason why the line is not a message.
    pub reason: Reason,
    /// The start of the text, at most [`EXCERPT_CHARS`] characters and without control characters.
    pub excerpt: String,
    /// The id, if it could be read; for a malformed response it is the id of the request that gets no other response.
    pub id: Option<RequestId>,
    pub(crate) respond_to: Option<RequestId>,
}

/// The reason why a line is not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The line is white space.
    #[error("blank line")]
    Blank,
    /// The line is longer than the limit and was discarded.
    #[error("line of {bytes} bytes is longer than the limit of {limit}")]
    TooLong {
        /// The length of the line without the line end.
        bytes: u64,
        /// The limit.
        limit: usize,
    },
    /// The line is not UTF-8.
    #[error("not UTF-8")]
    NotUtf8,
    /// The line is not JSON, with the message of the parser.
    #[error("not JSON: {0}")]
    NotJson(String),
    /// The line is JSON, but not an object.
    #[error("the message must be an object, not {0}")]
    NotAMessage(Type),
    /// The line is an object with more members than are read.
    #[error("the message has more than {MAX_MEMBERS} members")]
    TooManyMembers,
    /// `jsonrpc` is missing or not `"2.0"`.
    #[error("\"jsonrpc\" must be \"2.0\"")]
    Version,
    /// A member of the envelope is there twice, so that parsers could disagree about its value.
    #[error("duplicate member \"{0}\"")]
    DuplicateMember(&'static str),
    /// The id is invalid.
    #[error(transparent)]
    Id(InvalidId),
    /// A response has no id.
    #[error("the response has no id")]
    NoId,
    /// `method` is not a string.
    #[error("\"method\" must be a string, not {0}")]
    Method(Type),
    /// There is no method, no result and no error.
    #[error("the message has no method, no result and no error")]
    NoMethodOrOutcome,
    /// There is a method and a result or an error.
    #[error("the message has a method and also a result or an error")]
    MethodAndOutcome,
    /// There are a result and an error.
    #[error("the response has both a result and an error")]
    ResultAndError,
    /// The connection does not accept batches.
    #[error("batches are not accepted on this connection")]
    BatchRefused,
    /// The batch has no items.
    #[error("empty batch")]
    BatchEmpty,
    /// The batch has too many items.
    #[error("batch of {items} items is longer than the limit of {limit}")]
    BatchTooLong {
        /// The number of items.
        items: usize,
        /// The limit.
        limit: usize,
    },
}

impl Malformed {
    /// Returns the JSON-RPC error code of the reason.
    pub fn code(&self) -> i64 {
        match self.reason {
            Reason::Blank | Reason::NotUtf8 | Reason::NotJson(_) => code::PARSE_ERROR,
            Reason::TooLong { .. }
            | Reason::NotAMessage(_)
            | Reason::TooManyMembers
            | Reason::Version
            | Reason::DuplicateMember(_)
            | Reason::Id(_)
            | Reason::NoId
            | Reason::Method(_)
            | Reason::NoMethodOrOutcome
            | Reason::MethodAndOutcome
            | Reason::ResultAndError
            | Reason::BatchRefused
            | Reason::BatchEmpty
            | Reason::BatchTooLong { .. } => code::INVALID_REQUEST,
        }
    }

    /// Returns whether the line gets an error response.
    pub fn needs_response(&self) -> bool {
        self.respond_to.is_some()
    }

    /// Returns the id of the error response, `null` if the request is unknown, or `None` if no response is sent.
    pub fn respond_to(&self) -> Option<&RequestId> {
        self.respond_to.as_ref()
    }

    /// Returns the line of the error response, if one is sent.
    pub fn response(&self) -> Option<String> {
        Some(write::error_response(self.respond_to.as_ref()?, &self.to_error()))
    }

    /// Returns an error object with the excerpt as its data.
    pub fn to_error(&self) -> RpcError {
        let error = RpcError::new(self.code(), self.reason.to_string());
        if self.excerpt.is_empty() {
            return error;
        }
        error.with_data(Object::new().with("excerpt", &self.excerpt).to_json())
    }

    /// Creates a value for text that may have been a request; its error response has the id `null`.
    pub(crate) fn without_id(reason: Reason, text: &str) -> Self {
        Self { reason, excerpt: excerpt(text), id: None, respond_to: Some(RequestId::null()) }
    }

    pub(crate) fn blank() -> Self {
        Self { reason: Reason::Blank, excerpt: String::new(), id: None, respond_to: None }
    }
}

/// Returns the start of a text, with U+FFFD for control characters.
pub(crate) fn excerpt(text: &str) -> String {
    let printable = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().take(EXCERPT_CHARS).map(printable).collect()
}

/// Returns the start of bytes that are not UTF-8.
pub(crate) fn excerpt_of_bytes(bytes: &[u8]) -> String {
    // A character takes at most 4 bytes, so one that is cut here is beyond the limit of characters.
    let enough = bytes.len().min(EXCERPT_CHARS * 4);
    excerpt(&String::from_utf8_lossy(&bytes[..enough]))
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.reason)?;
        if self.excerpt.is_empty() { Ok(()) } else { write!(f, ": {}", self.excerpt) }
    }
}

impl std::error::Error for Malformed {}

impl From<NotAnObject> for Reason {
    fn from(reason: NotAnObject) -> Self {
        match reason {
            NotAnObject::WrongType(found) => Self::NotAMessage(found),
            NotAnObject::TooManyMembers => Self::TooManyMembers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_short_and_has_no_control_characters() {
        for (text, expected) in [
            (String::new(), String::new()),
            ("a".repeat(80), "a".repeat(80)),
            ("a".repeat(81), "a".repeat(80)),
            ("😀".repeat(1000), "😀".repeat(80)),
            ("\u{1b}[31m\tred".to_owned(), "\u{fffd}[31m\u{fffd}red".to_owned()),
        ] {
            assert_eq!(excerpt(&text), expected);
            assert_eq!(excerpt_of_bytes(text.as_bytes()), expected);
        }
        let broken = [b"ab\xff".as_slice(), "é".repeat(400).as_bytes()].concat();
        assert_eq!(excerpt_of_bytes(&broken), format!("ab\u{fffd}{}", "é".repeat(77)));
    }
}
