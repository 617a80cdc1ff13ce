//! What waits to be written to one peer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Lines that wait for a peer that reads at its own pace.
///
/// Pushing never waits. Whoever pushes much looks at [`has_room`](Outbox::has_room) first, and goes on when
/// [`drained`](Outbox::drained) says so; answers and the like are few and are pushed in any case.
#[derive(Debug, Clone)]
pub struct Outbox(Arc<Shared>);

/// The end of an [`Outbox`] that a transport reads.
#[derive(Debug)]
pub struct OutboxReader(Arc<Shared>);

/// One or more whole lines, each with its end, shared by all who are sent the same.
pub type Lines = Arc<str>;

/// How many bytes wait before a peer counts as slow.
const ROOM: usize = 256 << 10;

/// How many bytes may wait in any case. Who owes a peer more than this has given up on it.
const MOST: usize = 64 << 20;

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    ready: Notify,
    drained: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    lines: VecDeque<Lines>,
    /// Bytes in `lines` and in what the transport has taken and not yet written.
    bytes: usize,
    writing: usize,
    closed: bool,
}

/// A new outbox and its reader.
pub fn outbox() -> (Outbox, OutboxReader) {
    let shared = Arc::new(Shared { queue: Mutex::default(), ready: Notify::new(), drained: Notify::new() });
    (Outbox(Arc::clone(&shared)), OutboxReader(shared))
}

impl Outbox {
    /// Puts lines at the end. A peer for which too much waits is cut off.
    pub fn push(&self, lines: Lines) {
        let mut queue = self.0.lock();
        if queue.closed || lines.is_empty() {
            return;
        }
        if queue.bytes + lines.len() > MOST {
            queue.close();
        } else {
            queue.bytes += lines.len();
            queue.lines.push_back(lines);
        }
        drop(queue);
        self.0.ready.notify_one();
    }

    /// Whether the peer keeps up.
    pub fn has_room(&self) -> bool {
        let queue = self.0.lock();
        queue.bytes < ROOM || queue.closed
    }

    /// Waits until the peer keeps up again.
    pub async fn drained(&self) {
        loop {
            let notified = self.0.drained.notified();
            if self.has_room() {
                return;
            }
            notified.await;
        }
    }

    /// Ends the connection when what waits has been written.
    pub fn close(&self) {
        self.0.lock().closed = true;
        self.0.ready.notify_one();
        self.0.drained.notify_waiters();
    }

    /// Whether nothing pushed will be written any more.
    pub fn is_closed(&self) -> bool {
        self.0.lock().closed
    }
}

impl OutboxReader {
    /// All lines that are ready, once there are any; `None` when the outbox was closed and is empty.
    ///
    /// What was handed out before counts as written.
    pub async fn next(&mut self) -> Option<Vec<Lines>> {
        loop {
            let ready = {
                let mut queue = self.0.lock();
                queue.bytes -= std::mem::take(&mut queue.writing);
                queue.writing = queue.bytes;
                let lines: Vec<_> = queue.lines.drain(..).collect();
                if queue.bytes < ROOM {
                    self.0.drained.notify_waiters();
                }
                if lines.is_empty() && queue.closed {
                    return None;
                }
                lines
            };
            if !ready.is_empty() {
                return Some(ready);
            }
            self.0.ready.notified().await;
        }
    }
}

/// A transport that is gone writes nothing more.
impl Drop for OutboxReader {
    fn drop(&mut self) {
        self.0.lock().close();
        self.0.drained.notify_waiters();
    }
}

impl Queue {
    fn close(&mut self) {
        *self = Self { closed: true, ..Self::default() };
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_come_in_order_and_all_that_is_ready_at_once() {
        let (outbox, mut reader) = outbox();
        outbox.push("a\n".into());
        outbox.push("b\n".into());
        assert_eq!(reader.next().await.unwrap().concat(), "a\nb\n");
        outbox.push("c\n".into());
        outbox.close();
        outbox.push("d\n".into());
        assert_eq!(reader.next().await.unwrap().concat(), "c\n");
        assert_eq!(reader.next().await, None);
    }

    #[tokio::test]
    async fn room_counts_what_is_being_written() {
        let (outbox, mut reader) = outbox();
        outbox.push("x".repeat(ROOM).into());
        assert!(!outbox.has_room());
        let taken = reader.next().await.unwrap();
        assert!(!outbox.has_room(), "it is not written yet");
        drop(taken);
        outbox.push("y".into());
        reader.next().await.unwrap();
        assert!(outbox.has_room());
        outbox.drained().await;
    }

    #[tokio::test]
    async fn a_reader_that_goes_ends_all_waiting() {
        let (outbox, reader) = outbox();
        outbox.push("x".repeat(ROOM).into());
        drop(reader);
        outbox.drained().await;
        assert!(outbox.is_closed());
    }

    #[tokio::test]
    async fn a_peer_that_is_owed_too_much_is_cut_off() {
        let (outbox, mut reader) = outbox();
        for _ in 0..=(MOST >> 20) {
            outbox.push("x".repeat(1 << 20).into());
        }
        assert_eq!(reader.next().await, None);
    }
}
