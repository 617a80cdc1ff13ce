//! Which requests of a client have no answer yet, and which it has not answered, seen from the line between.

use std::sync::{Mutex, MutexGuard, PoisonError};

use parlor_engine::{Frame, FrameKind};
use parlor_wire::{
    Batches, Body, CANCEL_REQUEST, DEFAULT_LINE_LIMIT, Incoming, Message, Open, RequestId, cancel_target,
    parse,
};
use tokio::sync::Notify;

/// How the line begins that is said far more often than all others. It holds no answer, so it is not read.
const UPDATE: &[u8] = br#"{"jsonrpc":"2.0","method":"session/update""#;

/// How many open requests are known. Who has more open than this is not told of the rest.
const LIMIT: usize = 10_000;

/// How much memory is kept for the next line that comes in pieces.
const KEPT_CAPACITY: usize = 64 << 10;

/// The answers that a client waits for, and those that it has yet to give.
#[derive(Debug)]
pub(super) struct Owed {
    open: Mutex<Open<()>>,
    asked: Mutex<Open<()>>,
    changed: Notify,
}

/// Finds the lines in a stream that is passed on as it comes, and copies only those that come in pieces.
#[derive(Debug, Default)]
pub(super) struct Scan {
    partial: Vec<u8>,
    skips: bool,
    in_line: bool,
}

impl Owed {
    pub(super) fn new() -> Self {
        let none = || Mutex::new(Open::new(LIMIT));
        Self { open: none(), asked: none(), changed: Notify::new() }
    }

    /// The client says a line.
    pub(super) fn heard(&self, line: &str) {
        each(line, |message| match message.body {
            Body::Request { id, .. } => {
                // One that is open already, or one too many, is the server's to refuse.
                let _ = lock(&self.open).begin(id, ());
            }
            Body::Response { id, .. } => drop(lock(&self.asked).finish(&id)),
            Body::Notification { .. } => {}
        });
    }

    /// A line of another process is passed on to the client.
    pub(super) fn told(&self, line: &str) {
        if line.as_bytes().starts_with(UPDATE) {
            return;
        }
        each(line, |message| match message.body {
            Body::Response { id, .. } => drop(lock(&self.open).finish(&id)),
            Body::Request { id, .. } => drop(lock(&self.asked).begin(id, ())),
            Body::Notification { method, params } if method == CANCEL_REQUEST => {
                if let Some(id) = cancel_target(params) {
                    lock(&self.asked).finish(&id);
                }
            }
            Body::Notification { .. } => {}
        });
        self.changed.notify_waiters();
    }

    /// The client was sent a frame.
    pub(super) fn sent(&self, frame: &Frame) {
        match frame.kind() {
            FrameKind::Updates | FrameKind::Notification => return,
            FrameKind::Response { id, .. } => drop(lock(&self.open).finish(id)),
            FrameKind::Batch(ids) => {
                let mut open = lock(&self.open);
                ids.iter().for_each(|id| drop(open.finish(id)));
            }
            FrameKind::Request(id) => drop(lock(&self.asked).begin(id.clone(), ())),
            FrameKind::Cancel(id) => drop(lock(&self.asked).finish(id)),
        }
        self.changed.notify_waiters();
    }

    /// Waits until there is nothing to wait for with a client that says no more: nothing is owed to it, or it would have
    /// to answer first.
    pub(super) async fn settled(&self) {
        loop {
            let changed = self.changed.notified();
            if lock(&self.open).is_empty() || !lock(&self.asked).is_empty() {
                return;
            }
            changed.await;
        }
    }

    /// Takes all that is owed, in the order it was asked for.
    pub(super) fn drain(&self) -> Vec<RequestId> {
        lock(&self.open).drain().map(|(id, ())| id).collect()
    }
}

fn lock(open: &Mutex<Open<()>>) -> MutexGuard<'_, Open<()>> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Scan {
    /// Shows the lines that end in these bytes.
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

    /// Shows the last line, if it has no end.
    pub(super) fn finish(&mut self, mut line: impl FnMut(&str)) {
        self.end(b"", &mut line);
    }

    /// Whether a line has begun and not ended.
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
        // A line that is not text holds no message.
        if let Ok(text) = std::str::from_utf8(whole) {
            line(text);
        }
        self.partial.clear();
        self.partial.shrink_to(KEPT_CAPACITY);
    }
}

/// Shows the messages of a line; what is malformed is somebody else's to answer.
fn each(line: &str, mut see: impl FnMut(Message<'_>)) {
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

    fn open(owed: &Owed) -> Vec<String> {
        owed.drain().iter().map(|id| id.as_literal().to_owned()).collect()
    }

    #[test]
    fn requests_are_owed_until_answered_also_in_batches() {
        let owed = Owed::new();
        owed.heard(r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#);
        owed.heard(r#"[{"jsonrpc":"2.0","id":"x","method":"a"},{"jsonrpc":"2.0","id":2,"method":"a"}]"#);
        owed.heard(r#"{"jsonrpc":"2.0","method":"n"}"#);
        owed.heard(r#"{"jsonrpc":"2.0","id":9,"result":null}"#);
        owed.heard("oops");
        owed.told(r#"{"jsonrpc":"2.0","id":7,"method":"asks/the/client"}"#);
        owed.told(r#"[{"jsonrpc":"2.0","id":1,"result":{}}]"#);
        owed.told(r#"{"jsonrpc":"2.0","id":"2","result":{}}"#);
        assert_eq!(open(&owed), [r#""x""#, "2"]);
    }

    #[test]
    fn who_says_no_more_is_waited_for_unless_it_would_have_to_answer() {
        use std::pin::pin;
        use std::task::{Context, Poll, Waker};

        let owed = Owed::new();
        let settled =
            || matches!(pin!(owed.settled()).poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(()));
        assert!(settled());
        owed.heard(r#"{"jsonrpc":"2.0","id":1,"method":"session/prompt"}"#);
        assert!(!settled());
        owed.told(r#"{"jsonrpc":"2.0","id":7,"method":"session/request_permission"}"#);
        assert!(settled(), "nobody will answer");
        owed.heard(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
        assert!(!settled());
        owed.told(r#"{"jsonrpc":"2.0","id":8,"method":"session/request_permission"}"#);
        owed.told(r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":8}}"#);
        assert!(!settled());
        owed.told(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        assert!(settled());
    }

    #[test]
    fn frames_count_like_the_lines_that_they_are() {
        let owed = Owed::new();
        for id in 1..=4 {
            owed.heard(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"a"}}"#));
        }
        let response = |id| Frame::response(&RequestId::from(id), &Object::default());
        owed.sent(&response(1));
        owed.sent(&Frame::batch(&[response(2), response(3)]));
        owed.sent(&Frame::request(&RequestId::from(7), "a", &Object::default()));
        assert!(!lock(&owed.asked).is_empty());
        owed.sent(&Frame::cancel(&RequestId::from(7)));
        assert!(lock(&owed.asked).is_empty());
        assert_eq!(open(&owed), ["4"]);
    }

    #[test]
    fn lines_are_found_however_the_bytes_are_cut() {
        let update = format!("{},\"params\":{{}}}}", std::str::from_utf8(UPDATE).unwrap());
        let text = format!("first\n\n{update}\nsecond\nlast");
        for size in 1..text.len() {
            let (mut scan, mut seen) = (Scan::default(), Vec::new());
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
