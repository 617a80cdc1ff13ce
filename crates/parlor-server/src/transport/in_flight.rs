//! The requests between a client and the server that have no response yet, as a transport sees them.

use std::sync::Mutex;

use parlor_engine::{Frame, FrameKind};
use parlor_wire::{Batches, Body, Incoming, IncomingRequests, Message, parse};
use tokio::sync::Notify;

use crate::lock;

/// How many requests in each direction are tracked; more than these are not.
const LIMIT: usize = 10_000;

/// The requests of a client that have no response, and those to the client.
#[derive(Debug)]
pub(super) struct InFlightRequests {
    from_client: Mutex<IncomingRequests<()>>,
    to_client: Mutex<IncomingRequests<()>>,
    changed: Notify,
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

    /// A frame is written to the client.
    pub(super) fn on_line(&self, frame: &Frame) {
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
    pub(super) async fn is_finished(&self) {
        loop {
            let changed = self.changed.notified();
            if lock(&self.from_client).is_empty() || !lock(&self.to_client).is_empty() {
                return;
            }
            changed.await;
        }
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
    use parlor_wire::RequestId;

    use super::*;

    fn unanswered(in_flight: &InFlightRequests) -> Vec<String> {
        lock(&in_flight.from_client).drain().map(|(id, ())| id.as_literal().to_owned()).collect()
    }

    fn response(id: u64) -> Frame {
        Frame::response(&RequestId::from(id), &Object::default())
    }

    fn request(id: u64) -> Frame {
        Frame::request(&RequestId::from(id), "session/request_permission", &Object::default())
    }

    #[test]
    fn requests_are_in_flight_until_they_have_a_response_also_in_batches() {
        let in_flight = InFlightRequests::new();
        in_flight.on_client_line(r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#);
        in_flight.on_client_line(
            r#"[{"jsonrpc":"2.0","id":"x","method":"a"},{"jsonrpc":"2.0","id":2,"method":"a"}]"#,
        );
        in_flight.on_client_line(r#"{"jsonrpc":"2.0","id":3,"method":"a"}"#);
        in_flight.on_client_line(r#"{"jsonrpc":"2.0","method":"n"}"#);
        in_flight.on_client_line(r#"{"jsonrpc":"2.0","id":9,"result":null}"#);
        in_flight.on_client_line("oops");
        in_flight.on_line(&request(7));
        in_flight.on_line(&response(1));
        in_flight.on_line(&Frame::batch(&[response(3), response(4)]));
        assert_eq!(unanswered(&in_flight), [r#""x""#, "2"]);
    }

    #[test]
    fn a_client_that_sends_no_more_can_be_disconnected_when_only_it_could_go_on() {
        use std::pin::pin;
        use std::task::{Context, Poll, Waker};

        let in_flight = InFlightRequests::new();
        let is_finished = || {
            matches!(
                pin!(in_flight.is_finished()).poll(&mut Context::from_waker(Waker::noop())),
                Poll::Ready(())
            )
        };
        assert!(is_finished());
        in_flight.on_client_line(r#"{"jsonrpc":"2.0","id":1,"method":"session/prompt"}"#);
        assert!(!is_finished());
        in_flight.on_line(&request(7));
        assert!(is_finished(), "the client will not respond");
        in_flight.on_client_line(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
        assert!(!is_finished());
        in_flight.on_line(&request(8));
        in_flight.on_line(&Frame::cancel(&RequestId::from(8)));
        assert!(!is_finished());
        in_flight.on_line(&response(1));
        assert!(is_finished());
    }
}
