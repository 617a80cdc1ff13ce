//! Frames that wait to be written to one peer.
//!
//! A transport reads them with a [`SendQueueReader`]. A transport over a socket passes its socket to the queue instead
//! (`SendQueueReader::write_to`): then pushing writes to the socket, and no task has to be woken.

#[cfg_attr(not(feature = "http"), expect(dead_code, reason = "only listeners have sockets"))]
mod socket;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parlor_engine::Frame;
use parlor_wire::RequestId;
use tokio::sync::Notify;

use self::socket::SocketOutput;
#[cfg(feature = "http")]
pub(crate) use self::socket::{Encoded, RawSender, SocketHalf, SocketWriter};

/// Frames for a peer that reads at its own pace.
///
/// Pushing never waits. Callers that push much check [`has_room`](SendQueue::has_room) first, and continue when
/// [`drained`](SendQueue::drained) completes; responses and the like are few and are always pushed.
#[derive(Debug, Clone)]
pub struct SendQueue(Arc<Shared>);

/// The end of a [`SendQueue`] that a transport reads.
#[derive(Debug)]
pub struct SendQueueReader(Arc<Shared>);

/// How many bytes wait before a peer counts as slow.
const SLOW_BYTES: usize = 256 << 10;

/// How many bytes may wait in any case. A peer for which more waits is disconnected.
pub(crate) const MAX_BYTES: usize = 64 << 20;

/// How many batches may wait for their responses.
const MAX_BATCHES: usize = 64;

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    ready: Notify,
    drained: Notify,
}

#[derive(Default)]
struct Queue {
    frames: VecDeque<Frame>,
    /// Bytes of frames that are queued, that a reader is writing, and that are encoded for a socket.
    bytes: usize,
    /// Bytes that a reader has taken.
    writing: usize,
    batches: Vec<Batch>,
    /// Bytes of responses that wait for the others of their batch.
    held: usize,
    state: State,
    socket: Option<SocketOutput>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    /// Queued frames are written, and none are added.
    Closing,
    /// Queued frames are dropped.
    Aborted,
}

/// The responses to a batch, which are written together.
#[derive(Debug)]
struct Batch {
    /// The requests that have no response yet.
    waiting: Vec<RequestId>,
    responses: Vec<Frame>,
}

/// Too many batches wait for their responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyBatches;

/// Creates a queue and its reader.
pub fn send_queue() -> (SendQueue, SendQueueReader) {
    let shared = Arc::new(Shared { queue: Mutex::default(), ready: Notify::new(), drained: Notify::new() });
    (SendQueue(Arc::clone(&shared)), SendQueueReader(shared))
}

impl SendQueue {
    /// Puts a frame at the end. A peer for which too much waits is disconnected.
    pub fn push(&self, frame: Frame) {
        self.push_all([frame]);
    }

    /// Puts frames at the end, which are written together: at once if the transport is a socket and nothing waits before
    /// them.
    pub fn push_all(&self, frames: impl IntoIterator<Item = Frame>) {
        let mut queue = self.0.lock();
        let mut is_ready = false;
        for frame in frames {
            is_ready |= queue.push(frame);
        }
        if is_ready {
            self.0.on_pushed(queue);
        }
    }

    /// Has the responses to these requests written as one array, with the `responses` that exist already.
    pub fn batch(&self, waiting: Vec<RequestId>, responses: Vec<Frame>) -> Result<(), TooManyBatches> {
        let mut queue = self.0.lock();
        if queue.batches.len() >= MAX_BATCHES && !waiting.is_empty() {
            return Err(TooManyBatches);
        }
        let batch = Batch { waiting, responses };
        if !batch.waiting.is_empty() {
            queue.held += batch.responses.iter().map(Frame::len).sum::<usize>();
            queue.batches.push(batch);
        } else if !batch.responses.is_empty() && queue.state == State::Open {
            queue.add(Frame::batch(&batch.responses));
            self.0.on_pushed(queue);
        }
        Ok(())
    }

    /// Whether the peer keeps up.
    pub fn has_room(&self) -> bool {
        let queue = self.0.lock();
        queue.bytes < SLOW_BYTES || queue.state != State::Open
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

    /// Ends the connection when the queued frames have been written.
    pub fn close(&self) {
        let mut queue = self.0.lock();
        if queue.state == State::Open {
            queue.state = State::Closing;
        }
        drop(queue);
        self.0.ready.notify_one();
        self.0.drained.notify_waiters();
    }

    /// Whether nothing pushed will be written any more.
    pub fn is_closed(&self) -> bool {
        self.0.lock().state != State::Open
    }
}

impl SendQueueReader {
    /// All frames that are ready, once there are any; `None` when the queue was closed and is empty.
    ///
    /// The frames that were returned before count as written.
    pub async fn next(&mut self) -> Option<Vec<Frame>> {
        loop {
            let ready = {
                let mut queue = self.0.lock();
                queue.bytes -= std::mem::take(&mut queue.writing);
                queue.writing = queue.bytes;
                let frames: Vec<_> = queue.frames.drain(..).collect();
                if queue.bytes < SLOW_BYTES {
                    self.0.drained.notify_waiters();
                }
                if frames.is_empty() && queue.state != State::Open {
                    return None;
                }
                frames
            };
            if !ready.is_empty() {
                return Some(ready);
            }
            self.0.ready.notified().await;
        }
    }
}

/// Drops the queued frames of a transport that has ended.
impl Drop for SendQueueReader {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Queue {
    /// Drops the queued frames, except one that the socket has received in part.
    fn abort(&mut self) {
        let socket = self.socket.take();
        let bytes = socket.as_ref().map_or(0, SocketOutput::len);
        *self = Self { state: State::Aborted, bytes, socket, ..Self::default() };
    }

    /// Returns whether the transport has something to do.
    fn push(&mut self, frame: Frame) -> bool {
        if self.state != State::Open || frame.is_empty() {
            return false;
        }
        if self.bytes + self.held + frame.len() > MAX_BYTES {
            self.abort();
            return true;
        }
        let Some(frame) = self.without_batched(frame) else { return false };
        self.add(frame);
        true
    }

    fn add(&mut self, frame: Frame) {
        self.bytes += frame.len();
        self.frames.push_back(frame);
    }

    /// The frame, or the batch that it completes. A response waits here for the others of its batch.
    fn without_batched(&mut self, frame: Frame) -> Option<Frame> {
        let place = |batch: &Batch| {
            let id = frame.response_to()?;
            batch.waiting.iter().position(|waiting| waiting == id)
        };
        let found = self.batches.iter().enumerate().find_map(|(n, batch)| Some((n, place(batch)?)));
        let Some((n, place)) = found else { return Some(frame) };
        let batch = &mut self.batches[n];
        batch.waiting.swap_remove(place);
        self.held += frame.len();
        batch.responses.push(frame);
        if !batch.waiting.is_empty() {
            return None;
        }
        let batch = self.batches.remove(n);
        self.held -= batch.responses.iter().map(Frame::len).sum::<usize>();
        Some(Frame::batch(&batch.responses))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes pushed frames if no others wait before them, or wakes the transport's task.
    fn on_pushed(&self, mut queue: MutexGuard<'_, Queue>) {
        let needs_transport = queue.write_pushed();
        drop(queue);
        if needs_transport {
            self.ready.notify_one();
        }
    }

    /// Drops the queued frames when the transport has ended.
    fn end(&self) {
        let mut queue = self.lock();
        queue.socket = None;
        queue.abort();
        drop(queue);
        self.drained.notify_waiters();
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("bytes", &self.bytes)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use parlor_json::{Json, Object};

    use super::*;

    fn update(text: &str) -> Frame {
        Frame::updates(text)
    }

    fn text(frames: &[Frame]) -> String {
        frames.iter().map(Frame::as_str).collect()
    }

    fn id_of(literal: &str) -> RequestId {
        RequestId::from_raw(Json::parse(literal).unwrap().raw()).unwrap()
    }

    fn response(id: &str) -> Frame {
        Frame::response(&id_of(id), &Object::default())
    }

    #[tokio::test]
    async fn frames_come_in_order_and_all_that_are_ready_at_once() {
        let (queue, mut reader) = send_queue();
        queue.push(update("a\n"));
        queue.push(update("b\n"));
        assert_eq!(text(&reader.next().await.unwrap()), "a\nb\n");
        queue.push(update("c\n"));
        queue.close();
        queue.push(update("d\n"));
        assert_eq!(text(&reader.next().await.unwrap()), "c\n");
        assert_eq!(reader.next().await, None);
    }

    #[tokio::test]
    async fn frames_that_are_being_written_count_against_the_room() {
        let (queue, mut reader) = send_queue();
        queue.push(update(&"x".repeat(SLOW_BYTES)));
        assert!(!queue.has_room());
        let taken = reader.next().await.unwrap();
        assert!(!queue.has_room(), "it is not written yet");
        drop(taken);
        queue.push(update("y"));
        reader.next().await.unwrap();
        assert!(queue.has_room());
        queue.drained().await;
    }

    #[tokio::test]
    async fn the_responses_to_a_batch_are_one_array() {
        let ids = |ids: &[&str]| ids.iter().map(|id| id_of(id)).collect::<Vec<_>>();
        let line = |id: &str| response(id).as_str().trim_end().to_owned();
        let (queue, mut reader) = send_queue();
        queue.batch(ids(&["1", "\"a\"", "1"]), vec![response("null")]).unwrap();
        queue.batch(ids(&["2"]), Vec::new()).unwrap();
        queue.push_all([response("1"), update("u\n"), response("3")]);
        assert_eq!(text(&reader.next().await.unwrap()), format!("u\n{}\n", line("3")));
        queue.push_all([response("\"a\""), response("2")]);
        assert_eq!(text(&reader.next().await.unwrap()), format!("[{}]\n", line("2")));
        queue.push_all([response("1"), response("1")]);
        let all = [line("null"), line("1"), line("\"a\""), line("1")].join(",");
        assert_eq!(text(&reader.next().await.unwrap()), format!("[{all}]\n{}\n", line("1")));
        queue.batch(Vec::new(), vec![response("null")]).unwrap();
        assert_eq!(text(&reader.next().await.unwrap()), format!("[{}]\n", line("null")));
    }

    #[tokio::test]
    async fn batches_are_bounded_in_number_and_bytes() {
        let (queue, mut reader) = send_queue();
        for _ in 0..MAX_BATCHES {
            queue.batch(vec![id_of("1"), id_of("2")], Vec::new()).unwrap();
        }
        assert_eq!(queue.batch(vec![id_of("1")], Vec::new()), Err(TooManyBatches));
        let long = Json::from(&"x".repeat(MAX_BYTES / 8));
        for _ in 0..9 {
            queue.push(Frame::result(&id_of("1"), &long));
        }
        assert_eq!(reader.next().await, None, "a peer for which too much waits is disconnected");
    }

    #[tokio::test]
    async fn a_reader_that_is_dropped_ends_all_waiting() {
        let (queue, reader) = send_queue();
        queue.push(update(&"x".repeat(SLOW_BYTES)));
        drop(reader);
        queue.drained().await;
        assert!(queue.is_closed());
    }

    #[tokio::test]
    async fn a_peer_for_which_too_much_waits_is_disconnected() {
        let (queue, mut reader) = send_queue();
        for _ in 0..=(MAX_BYTES >> 20) {
            queue.push(update(&"x".repeat(1 << 20)));
        }
        assert_eq!(reader.next().await, None);
    }
}
