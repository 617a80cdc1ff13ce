use std::fmt;

use parlor_json::{Json, MAX_MEMBERS, NotAnObject, Type, string_literal};

use crate::{InvalidId, RequestId, RpcError, code, write};

/// How many characters of a broken line are kept to recognise it by.
pub const EXCERPT_CHARS: usize = 80;

/// A line, or an item of a batch, that is not a message.
///
/// It is data and not a failure: the connection goes on. [`answer`](Malformed::answer) is what the peer is
/// told. A broken response is never answered, and no id is put into an answer unless the line was surely
/// a request: both sides count their requests from 0, so the peer would take it for the answer to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// What is wrong.
    pub reason: Reason,
    /// The beginning of the text, at most [`EXCERPT_CHARS`] characters, fit for a log.
    pub excerpt: String,
    /// The id, if it could be read. For a broken response it names the request of ours that will get no
    /// better answer.
    pub id: Option<RequestId>,
    pub(crate) answer_to: Option<RequestId>,
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// It has nothing but white space.
    Blank,
    /// It is longer than the limit and was not read.
    TooLong {
        /// The length of the line, without its end.
        bytes: u64,
        /// The limit that it broke.
        limit: usize,
    },
    /// It is not UTF-8.
    NotUtf8,
    /// It is not JSON; the parser's words say where.
    NotJson(String),
    /// It is JSON, but not an object.
    NotAMessage(Type),
    /// It is an object with more members than are read.
    TooManyMembers,
    /// `jsonrpc` is missing or not `"2.0"`.
    Version,
    /// A member that has a meaning stands twice, so that readers would disagree about the value.
    Repeated(&'static str),
    /// The id cannot be one.
    Id(InvalidId),
    /// A response has no id.
    NoId,
    /// `method` is not a string.
    Method(Type),
    /// There is no method, no result and no error.
    Shapeless,
    /// There is a method and a result or an error: neither a request nor a response.
    MethodAndOutcome,
    /// There is a result and an error.
    ResultAndError,
    /// A batch came on a connection that takes none.
    BatchRefused,
    /// A batch has no items.
    BatchEmpty,
    /// A batch has too many items.
    BatchTooLong {
        /// How many it has.
        items: usize,
        /// How many are allowed.
        limit: usize,
    },
}

impl Malformed {
    /// The JSON-RPC error code for what is wrong.
    pub fn code(&self) -> i64 {
        match self.reason {
            Reason::Blank | Reason::NotUtf8 | Reason::NotJson(_) => code::PARSE_ERROR,
            Reason::TooLong { .. }
            | Reason::NotAMessage(_)
            | Reason::TooManyMembers
            | Reason::Version
            | Reason::Repeated(_)
            | Reason::Id(_)
            | Reason::NoId
            | Reason::Method(_)
            | Reason::Shapeless
            | Reason::MethodAndOutcome
            | Reason::ResultAndError
            | Reason::BatchRefused
            | Reason::BatchEmpty
            | Reason::BatchTooLong { .. } => code::INVALID_REQUEST,
        }
    }

    /// Whether the peer is to be told.
    pub fn is_answer_due(&self) -> bool {
        self.answer_to.is_some()
    }

    /// The request to which the answer is due, if one is; `null` if nobody can tell which it was.
    pub fn answer_to(&self) -> Option<&RequestId> {
        self.answer_to.as_ref()
    }

    /// The line that tells the peer, or `None` if no answer is due.
    pub fn answer(&self) -> Option<String> {
        Some(write::error_response(self.answer_to.as_ref()?, &self.to_error()))
    }

    /// What is wrong as an error object, with the excerpt as its data.
    pub fn to_error(&self) -> RpcError {
        let error = RpcError::new(self.code(), self.reason.to_string());
        if self.excerpt.is_empty() {
            return error;
        }
        match Json::parse(format!("{{\"excerpt\":{}}}", string_literal(&self.excerpt))) {
            Ok(data) => error.with_data(data),
            Err(_) => error,
        }
    }

    /// Something that may have been a request; the answer has no id.
    pub(crate) fn unclear(reason: Reason, text: &str) -> Self {
        Self { reason, excerpt: excerpt(text), id: None, answer_to: Some(RequestId::null()) }
    }

    pub(crate) fn blank() -> Self {
        Self { reason: Reason::Blank, excerpt: String::new(), id: None, answer_to: None }
    }
}

/// The beginning of a text, without characters that could harm a terminal.
pub(crate) fn excerpt(text: &str) -> String {
    let fit = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().take(EXCERPT_CHARS).map(fit).collect()
}

/// The beginning of bytes that are not text.
pub(crate) fn excerpt_of_bytes(bytes: &[u8]) -> String {
    // The bytes that so many characters can take at most; a character that is cut here is beyond them.
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

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blank => f.write_str("blank line"),
            Self::TooLong { bytes, limit } => {
                write!(f, "line of {bytes} bytes is longer than the limit of {limit}")
            }
            Self::NotUtf8 => f.write_str("not UTF-8"),
            Self::NotJson(error) => write!(f, "not JSON: {error}"),
            Self::NotAMessage(found) => write!(f, "a message is an object, not {found}"),
            Self::TooManyMembers => write!(f, "a message of more than {MAX_MEMBERS} members"),
            Self::Version => f.write_str("\"jsonrpc\" must be \"2.0\""),
            Self::Repeated(name) => write!(f, "\"{name}\" stands twice"),
            Self::Id(error) => error.fmt(f),
            Self::NoId => f.write_str("a response has an id"),
            Self::Method(found) => write!(f, "\"method\" is a string, not {found}"),
            Self::Shapeless => f.write_str("a message has a method, a result or an error"),
            Self::MethodAndOutcome => f.write_str("a message with a method has no result and no error"),
            Self::ResultAndError => f.write_str("a response has a result or an error, not both"),
            Self::BatchRefused => f.write_str("batches are not accepted on this connection"),
            Self::BatchEmpty => f.write_str("empty batch"),
            Self::BatchTooLong { items, limit } => {
                write!(f, "batch of {items} items is longer than the limit of {limit}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_short_and_harmless() {
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
