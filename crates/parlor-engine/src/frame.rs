//! Outgoing lines with their kind.

use std::fmt;

use bytes::Bytes;
use parlor_json::{ArrayWriter, Json, Object};
use parlor_wire::{Malformed, RequestId, RpcError, cancel_line, write};

/// One outgoing line, or several updates in a row, encoded once and shared by reference.
///
/// Nobody has to read the text again to learn what it is: that is its [`kind`](Self::kind).
///
/// ```
/// use parlor_engine::{Frame, FrameKind};
/// use parlor_wire::RequestId;
///
/// let frame = Frame::response(&RequestId::from(1), &Default::default());
/// assert_eq!(frame.as_str(), "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n");
/// assert!(matches!(frame.kind(), FrameKind::Response { is_error: false, .. }));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Frame {
    /// UTF-8, with `\n` at the end of each line.
    bytes: Bytes,
    kind: FrameKind,
}

/// What a [`Frame`] is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameKind {
    /// Updates of a session, one a line.
    Updates,
    /// A notification that is neither an update nor cancels a request.
    Notification,
    /// The notification that cancels a request which the same peer was sent.
    Cancel(RequestId),
    /// A request, which the peer has to answer.
    Request(RequestId),
    /// The response to a request of the peer.
    Response {
        /// The request.
        id: RequestId,
        /// Whether the request failed.
        is_error: bool,
    },
    /// The responses to a batch of requests of the peer, as one array.
    Batch(Vec<RequestId>),
}

impl Frame {
    /// Encodes a response.
    pub fn response(id: &RequestId, result: &Object) -> Self {
        Self::result(id, &result.to_json())
    }

    /// Encodes a response whose result need not be an object.
    pub fn result(id: &RequestId, result: &Json) -> Self {
        let kind = FrameKind::Response { id: id.clone(), is_error: false };
        Self::line(write::response(id, result.raw()), kind)
    }

    /// Encodes an error response.
    pub fn error(id: &RequestId, error: &RpcError) -> Self {
        let kind = FrameKind::Response { id: id.clone(), is_error: true };
        Self::line(write::error_response(id, error), kind)
    }

    /// Encodes the answer to a line that could not be read, if one is due.
    pub fn malformed(malformed: &Malformed) -> Option<Self> {
        Some(Self::error(malformed.respond_to()?, &malformed.to_error()))
    }

    /// Encodes a request.
    pub fn request(id: &RequestId, method: &str, params: &Object) -> Self {
        let line = write::request(id, method, Some(params.to_json().raw()));
        Self::line(line, FrameKind::Request(id.clone()))
    }

    /// Encodes a notification.
    pub fn notification(method: &str, params: &Object) -> Self {
        Self::line(write::notification(method, Some(params.to_json().raw())), FrameKind::Notification)
    }

    /// Encodes the notification that cancels a request.
    pub fn cancel(id: &RequestId) -> Self {
        Self::line(cancel_line(id), FrameKind::Cancel(id.clone()))
    }

    /// Joins the responses to a batch of requests.
    pub fn batch(responses: &[Self]) -> Self {
        let mut array = ArrayWriter::new();
        responses.iter().for_each(|response| array.push(response.as_str().trim_end()));
        let ids = responses.iter().filter_map(|response| response.response_to().cloned()).collect();
        Self::line(array.finish(), FrameKind::Batch(ids))
    }

    /// Updates that were encoded before, one a line, each with `\n` at its end.
    pub fn updates(lines: impl Into<String>) -> Self {
        Self { bytes: Bytes::from(lines.into()), kind: FrameKind::Updates }
    }

    /// A line that was encoded before, without `\n`.
    pub fn line(mut line: String, kind: FrameKind) -> Self {
        line.push('\n');
        Self { bytes: Bytes::from(line), kind }
    }

    /// What this is.
    pub fn kind(&self) -> &FrameKind {
        &self.kind
    }

    /// The request to which this is the response, if it is one.
    pub fn response_to(&self) -> Option<&RequestId> {
        match &self.kind {
            FrameKind::Response { id, .. } => Some(id),
            FrameKind::Updates
            | FrameKind::Notification
            | FrameKind::Cancel(_)
            | FrameKind::Request(_)
            | FrameKind::Batch(_) => None,
        }
    }

    /// The encoded text, with `\n` at the end of each line.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The encoded text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes).unwrap_or_default()
    }

    /// How many bytes this is.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The updates between two places of a frame of updates, without copying them.
    #[must_use]
    pub fn slice(&self, range: std::ops::Range<usize>) -> Self {
        Self { bytes: self.bytes.slice(range), kind: self.kind.clone() }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str().trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_shares_the_bytes() {
        let frame = Frame::updates("a\nb\nc\n");
        let slice = frame.slice(2..4);
        assert_eq!(slice.as_str(), "b\n");
        assert_eq!(slice.bytes().as_ptr(), frame.bytes()[2..].as_ptr());
    }

    #[test]
    fn a_batch_names_the_requests_that_it_answers() {
        let responses = [1, 2].map(|id| Frame::response(&RequestId::from(id), &Object::default()));
        let batch = Frame::batch(&responses);
        let line = |id| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
        assert_eq!(batch.as_str(), format!("[{},{}]\n", line(1), line(2)));
        assert_eq!(*batch.kind(), FrameKind::Batch(vec![RequestId::from(1), RequestId::from(2)]));
    }
}
