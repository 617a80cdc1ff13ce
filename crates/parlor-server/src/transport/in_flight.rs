//! The requests between a client and the server that have no response yet, as a transport sees them.

use std::sync::Mutex;

use parlor_engine::{Frame, FrameKind};
use parlor_wire::{
    Batches, Body, CANCEL_REQUEST, DEFAULT_LINE_LIMIT, Incoming, IncomingRequests, Message, RequestId,
    cancel_target, parse,
};
use tokio::sync::Notify;

use crate::lock;

/// The start of a session update, which is not a response. Most lines are updates, so they are not parsed.
const UPDATE: &[u8] = br#"{"jsonrpc":"2.0","method":"session/update""#;

/// How many requests in each direction are tracked; more than these are not.
const LIMIT: usize = 10_000;

/// How many bytes of buffer are kept for the next line that arrives in pieces.
const KEPT_CAPACITY: usize = 64 << 10;

/// The requests of a client that have no response, and those to the client.
#[derive(Debug)]
pub(super) struct InFlightRequests {
    from_client: Mutex<IncomingRequests<()>>,
    to_client: Mutex<IncomingRequests<()>>,
    changed: Notify,
}

/// Finds the lines in a stream that is forwarded as it arrives. Only lines that arrive in pieces are copied.
#[derive(Debug, Default)]
pub(super) struct LineScanner {
    partial: Vec<u8>,
    skips: bool,
    in_line: bool,
}

impl InFlightRequests {
    pub(super) fn new() -> Self {
        let none = || Mutex::new(IncomingRequests::new(LIMIT));
        Self { from_client: none(), to_client: none(), changed: Notify::new() }
    }

    /// The client sent a line.
    pub(super) fn on_client_line(&self, line: &str) {
        for_each_message(line, |message| match message.body {
            Body::Request { id, .. } => {
                // The server rejects a request whose id is in use, and one too many.
                let _ = lock(&self.from_client).register(id, ());
            }
            Body::Response { id, .. } => drop(lock(&self.to_client).complete(&id)),
            Body::Notification { .. } => {}
        });
    }

    /// A line of the server is forwarded to the client.
    pub(super) fn on_server_line(&self, line: &str) {
        if line.as_bytes().starts_with(UPDATE) {
            return;
        }
        for_each_message(line, |message| match message.body {
            Body::Response { id, .. } => drop(lock(&self.from_client).complete(&id)),
            Body::Request { id, .. } => drop(lock(&self.to_client).register(id, ())),
            Body::Notification { method, params } if method == CANCEL_REQUEST => {
                if let Some(id) = cancel_target(params) {
                    lock(&self.to_client).complete(&id);
                }
            }
            Body::Notification { .. } => {}
        });
        self.changed.notify_waiters();
    }

    /// A frame is written to the client.
    pub(super) fn on_frame(&self, frame: &Frame) {
        match frame.kind() {
            FrameKind::Updates | FrameKind::Notification => return,
            FrameKind::Response { id, .. } => drop(lock(&self.from_client).complete(id)),
            FrameKind::Batch(ids) => {
                let mut from_client = lock(&self.from_client);
                ids.iter().for_each(|id| drop(from_client.complete(id)));
            }
            FrameKind::Request(id) => drop(lock(&self.to_client).register(id.clone(), ())),
            FrameKind::Cancel(id) => drop(lock(&self.to_client).complete(id)),
        }
        self.changed.notify_waiters();
    }

    /// Waits until a client that sends no more can be disconnected: all its requests have responses, or it would have to
    /// respond first.
    pub(super) async fn settled(&self) {
        loop {
            let changed = self.changed.notified();
            if lock(&self.from_client).is_empty() || !lock(&self.to_client).is_empty() {
                return;
            }
            changed.await;
        }
    }

    /// Takes the client's requests that have no response, in the order in which they were sent.
    pub(super) fn drain(&self) -> Vec<RequestId> {
        lock(&self.from_client).drain().map(|(id, ())| id).collect()
    }
}

impl LineScanner {
    /// Calls `line` for each line that ends in these bytes.
    pub(super) fn feed(&mut self, mut bytes: &[u8], mut line: impl FnMut(&str)) {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            self.end(&bytes[..end], &mut line);
            bytes = &bytes[end + 1..];
        }
        self.in_line |= !bytes.is_empty();
        if self.skips {
            return;
        }
        self.partial.extend_from_slice(bytes);
        if self.partial.starts_with(UPDATE) || self.partial.len() > DEFAULT_LINE_LIMIT {
            self.partial = Vec::new();
            self.skips = true;
        }
    }

    /// Calls `line` for the last line, which has no end.
    pub(super) fn finish(&mut self, mut line: impl FnMut(&str)) {
        self.end(b"", &mut line);
    }

    /// Whether the stream is in the middle of a line.
    pub(super) fn in_line(&self) -> bool {
        self.in_line
    }

    fn end(&mut self, rest: &[u8], line: &mut impl FnMut(&str)) {
        self.in_line = false;
        if std::mem::take(&mut self.skips) {
            return;
        }
        let whole = if self.partial.is_empty() {
            rest
        } else {
            self.partial.extend_from_slice(rest);
            &self.partial
        };
        // A line that is not UTF-8 is not a message.
        if let Ok(text) = std::str::from_utf8(whole) {
            line(text);
        }
        self.partial.clear();
        self.partial.shrink_to(KEPT_CAPACITY);
    }
}

/// Calls `see` for the messages of a line. The server responds to what is malformed.
fn for_each_message(line: &str, mut see: impl FnMut(Message<'_>)) {
    match parse(line, Batches::Accept) {
        Ok(Incoming::One(message)) => see(message),
        Ok(Incoming::Batch(messages)) => messages.into_iter().flatten().for_each(see),
        Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use parlor_json::Object;

    use super::*;

    fn unanswered(in_flight: &InFlightRequests) -> Vec<String> {
        in_flight.drain().iter().map(|id| id.as_literal().to_owned()).collect()
    }

    #[test]
    fn requests_are_in_flight_until_they_have_a_response_also_in_batches() {
        let in_flight = InFlightRequests::new();
        in_flight.on_client_line(r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#);
        in_flight.on_client_line(
            r#"[{"jsonrpc":"2.0","id":"x","method":"a"},{"jsonrpc":"2.0","id":2,"method":"a"}]"#,
        );
        in_flight.on_client_line(r#"{"jsonrpc":"2.0","method":"n"}"#);
        in_flight.on_client_line(r#"{"jsonrpc":"2.0","id":9,"result":null}"#);
        in_flight.on_client_line("oops");
        in_flight.on_server_line(r#"{"jsonrpc":"2.0","id":7,"method":"asks/the/client"}"#);
        in_flight.on_server_line(r#"[{"jsonrpc":"2.0","id":1,"result":{}}]"#);
        in_flight.on_server_line(r#"{"jsonrpc":"2.0","id":"2","result":{}}"#);
        assert_eq!(unanswered(&in_flight), [r#""x""#, "2"]);
    }

    #[test]
    fn a_client_that_sends_no_more_can_be_disconnected_when_only_it_could_go_on() {
        use std::pin::pin;
        use std::task::{Context, Poll, Waker};

        let in_flight = InFlightRequests::new();
        let settled = || {
            matches!(pin!(in_flight.settled()).poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(()))
        };
        assert!(settled());
        in_flight.on_client_line(r#"{"jsonrpc":"2.0","id":1,"method":"session/prompt"}"#);
        assert!(!settled());
        in_flight.on_server_line(r#"{"jsonrpc":"2.0","id":7,"method":"session/request_permission"}"#);
        assert!(settled(), "the client will not respond");
        in_flight.on_client_line(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
        assert!(!settled());
        in_flight.on_server_line(r#"{"jsonrpc":"2.0","id":8,"method":"session/request_permission"}"#);
        in_flight.on_server_line(r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":8}}"#);
        assert!(!settled());
        in_flight.on_server_line(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        assert!(settled());
    }

    #[test]
    fn frames_count_as_their_lines_do() {
        let in_flight = InFlightRequests::new();
        for id in 1..=4 {
            in_flight.on_client_line(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"a"}}"#));
        }
        let response = |id| Frame::response(&RequestId::from(id), &Object::default());
        in_flight.on_frame(&response(1));
        in_flight.on_frame(&Frame::batch(&[response(2), response(3)]));
        in_flight.on_frame(&Frame::request(&RequestId::from(7), "a", &Object::default()));
        assert!(!lock(&in_flight.to_client).is_empty());
        in_flight.on_frame(&Frame::cancel(&RequestId::from(7)));
        assert!(lock(&in_flight.to_client).is_empty());
        assert_eq!(unanswered(&in_flight), ["4"]);
    }

    #[test]
    fn lines_are_found_in_pieces_of_any_size() {
        let update = format!("{},\"params\":{{}}}}", std::str::from_utf8(UPDATE).unwrap());
        let text = format!("first\n\n{update}\nsecond\nlast");
        for size in 1..text.len() {
            let (mut scan, mut seen) = (LineScanner::default(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                scan.feed(piece, |line| seen.push(line.to_owned()));
            }
            assert!(scan.in_line());
            scan.finish(|line| seen.push(line.to_owned()));
            assert!(!scan.in_line());
            seen.retain(|line| !line.is_empty() && *line != update);
            assert_eq!(seen, ["first", "second", "last"], "{size}");
        }
    }
}
