//! Writes frames to a socket on the thread that pushes them.
//!
//! There is one queue and one lock, so frames are written in the order in which they were pushed. A push that finds nothing
//! waiting writes at once, unless it is long. Long frames, and those that the socket does not accept, are left to the
//! [`SocketWriter`]; until it has caught up a push only adds to the queue.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use parlor_engine::Frame;
use tokio::net::tcp;
use tokio::task::coop;

use super::{MAX_BYTES, Queue, SLOW_BYTES, SendQueueReader, Shared, State};
use crate::transport::unix_socket::UnixSocket;

/// How many bytes a socket is offered at once.
const MAX_WRITE: usize = 256 << 10;

/// How many bytes are written on the thread that pushes them. Copying more takes as long as waking the writer, which runs in
/// parallel with the writers of other sockets.
const MAX_DIRECT: usize = 16 << 10;

/// How many parts a socket is offered at once; Linux takes no more.
const MAX_PARTS: usize = 1024;

/// For how many parts memory is kept while nothing waits.
const KEPT_PARTS: usize = 64;

/// The half of a socket to which any thread can write without waiting.
#[derive(Debug)]
pub(crate) enum SocketHalf {
    /// A Unix socket's.
    Unix(UnixSocket),
    /// A TCP connection's.
    Tcp(tcp::OwnedWriteHalf),
}

/// Encodes a frame as the peer expects it.
pub(crate) type Encode = Box<dyn FnMut(&Frame, &mut Encoded) + Send>;

/// Bytes that are ready for a socket and not yet written, in parts that may be shared with other peers.
#[derive(Debug, Default)]
pub(crate) struct Encoded {
    parts: VecDeque<Bytes>,
    bytes: usize,
}

/// A socket with its encoded frames.
pub(super) struct SocketOutput {
    socket: Arc<SocketHalf>,
    encode: Encode,
    encoded: Encoded,
    /// Whether the [`SocketWriter`] has to write.
    is_behind: bool,
    /// Why the socket could not be written to.
    error: Option<io::Error>,
}

/// The outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Nothing waits.
    Done,
    /// The socket took something and may take more.
    Partial,
    /// The socket takes nothing at the moment.
    Blocked,
}

/// Writes the frames that could not be written when they were pushed. Dropping it closes the socket.
#[derive(Debug)]
pub(crate) struct SocketWriter {
    /// Its end is the end of the queue.
    reader: SendQueueReader,
    socket: Arc<SocketHalf>,
}

/// Sends encoded bytes before the queued frames.
#[derive(Debug, Clone)]
pub(crate) struct RawSender(Arc<Shared>);

impl SendQueueReader {
    /// Has frames written to a socket when they are pushed, or by the returned writer.
    pub(crate) fn write_to(self, socket: SocketHalf, encode: Encode) -> SocketWriter {
        let socket = Arc::new(socket);
        let mut queue = self.0.lock();
        queue.socket = Some(SocketOutput {
            socket: Arc::clone(&socket),
            encode,
            encoded: Encoded::default(),
            is_behind: !queue.frames.is_empty(),
            error: None,
        });
        drop(queue);
        SocketWriter { reader: self, socket }
    }
}

impl SocketWriter {
    /// Writes until the queue is closed and everything has been written, or too much waits.
    pub(crate) async fn run(&mut self) -> io::Result<()> {
        loop {
            let (progress, state) = self.flush()?;
            match state {
                State::Closing if progress == Progress::Done => return Ok(()),
                State::Aborted => return Ok(()),
                State::Open | State::Closing => self.wait_after(progress).await?,
            }
        }
    }

    /// Writes until nothing waits.
    pub(crate) async fn drain(&mut self) -> io::Result<()> {
        loop {
            match self.flush()? {
                (Progress::Done, _) => return Ok(()),
                (progress, _) => self.wait_after(progress).await?,
            }
        }
    }

    /// Creates a sender of encoded bytes.
    pub(crate) fn raw_sender(&self) -> RawSender {
        RawSender(Arc::clone(&self.reader.0))
    }

    /// Drops the queued frames, and all that are pushed later. Encoded bytes are still written by [`drain`](Self::drain).
    pub(crate) fn discard_frames(&self) {
        self.shared().lock().abort();
        self.shared().drained.notify_waiters();
    }

    fn flush(&self) -> io::Result<(Progress, State)> {
        let mut queue = self.shared().lock();
        let progress = queue.write_once();
        if queue.bytes < SLOW_BYTES {
            self.shared().drained.notify_waiters();
        }
        match queue.socket.as_mut().and_then(|output| output.error.take()) {
            Some(error) => Err(error),
            None => Ok((progress, queue.state)),
        }
    }

    async fn wait_after(&self, progress: Progress) -> io::Result<()> {
        match progress {
            Progress::Done => self.shared().ready.notified().await,
            Progress::Partial => coop::consume_budget().await,
            Progress::Blocked => tokio::select! {
                writable = self.socket.writable() => return writable,
                () = self.shared().ready.notified() => {}
            },
        }
        Ok(())
    }

    fn shared(&self) -> &Shared {
        &self.reader.0
    }
}

impl RawSender {
    /// Sends bytes, also after the queue was closed.
    pub(crate) fn send(&self, bytes: Bytes) {
        let mut queue = self.0.lock();
        let length = bytes.len();
        if queue.bytes + queue.held + length > MAX_BYTES {
            queue.abort();
        } else if let Some(output) = &mut queue.socket {
            output.encoded.push(bytes);
            queue.bytes += length;
        }
        self.0.on_pushed(queue);
    }
}

impl Queue {
    /// Writes pushed frames, unless others wait before them. Returns whether the transport's task has to continue.
    pub(super) fn write_pushed(&mut self) -> bool {
        let Some(output) = &mut self.socket else { return true };
        if self.state == State::Aborted {
            return true;
        }
        if output.is_behind {
            return false;
        }
        if self.bytes > MAX_DIRECT {
            output.is_behind = true;
            return true;
        }
        self.write_once() != Progress::Done || self.state == State::Aborted
    }

    /// Writes once to the socket.
    fn write_once(&mut self) -> Progress {
        let Some(output) = &mut self.socket else { return Progress::Done };
        while output.encoded.has_room()
            && let Some(frame) = self.frames.pop_front()
        {
            let before = output.encoded.bytes;
            (output.encode)(&frame, &mut output.encoded);
            self.bytes = self.bytes - frame.len() + (output.encoded.bytes - before);
        }
        let progress = match output.encoded.write_to(&output.socket) {
            Ok(written) => {
                self.bytes -= written;
                let is_done = output.encoded.parts.is_empty() && self.frames.is_empty();
                if is_done { Progress::Done } else { Progress::Partial }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Progress::Blocked,
            Err(error) => {
                output.encoded = Encoded::default();
                output.error = Some(error);
                self.abort();
                return Progress::Done;
            }
        };
        output.is_behind = progress != Progress::Done;
        progress
    }
}

impl SocketOutput {
    /// How many bytes are encoded and not yet written.
    pub(super) fn len(&self) -> usize {
        self.encoded.bytes
    }
}

impl Encoded {
    /// Adds bytes.
    pub(crate) fn push(&mut self, part: Bytes) {
        if !part.is_empty() {
            self.bytes += part.len();
            self.parts.push_back(part);
        }
    }

    /// The parts in order.
    #[cfg(test)]
    pub(crate) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(|part| &part[..])
    }

    fn has_room(&self) -> bool {
        self.bytes < MAX_WRITE && self.parts.len() < MAX_PARTS
    }

    /// Offers a socket as much as is written at once. Returns how many bytes it took.
    fn write_to(&mut self, socket: &SocketHalf) -> io::Result<usize> {
        if self.parts.is_empty() {
            return Ok(0);
        }
        let written = socket.try_write_vectored(&self.slices())?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.advance(written);
        Ok(written)
    }

    fn slices(&self) -> Vec<IoSlice<'_>> {
        let mut slices = Vec::with_capacity(self.parts.len().min(MAX_PARTS));
        let mut room = MAX_WRITE;
        for part in self.parts.iter().take(MAX_PARTS) {
            let part = &part[..part.len().min(room)];
            slices.push(IoSlice::new(part));
            room -= part.len();
            if room == 0 {
                break;
            }
        }
        slices
    }

    /// Removes bytes that were written.
    fn advance(&mut self, mut written: usize) {
        self.bytes -= written;
        while let Some(first) = self.parts.front_mut() {
            if written < first.len() {
                first.advance(written);
                return;
            }
            written -= first.len();
            self.parts.pop_front();
        }
        self.parts.shrink_to(KEPT_PARTS);
    }
}

impl SocketHalf {
    fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.try_write_vectored(slices),
            Self::Tcp(socket) => socket.try_write_vectored(slices),
        }
    }

    async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Unix(socket) => socket.writable().await,
            Self::Tcp(socket) => socket.writable().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Duration;

    use futures_util::FutureExt;
    use parlor_json::Object;
    use parlor_wire::RequestId;
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
    use tokio::net::UnixStream;
    use tokio::time::timeout;

    use super::super::{SendQueue, send_queue};
    use super::*;

    /// Longer than anything takes that works.
    const LONG: Duration = Duration::from_secs(20);

    /// More than the buffers of a socket hold.
    const MUCH: usize = 4 << 20;

    /// A queue that writes to a socket, and the peer at its other end.
    fn connected() -> (SendQueue, SocketWriter, UnixStream) {
        let (ours, peer) = UnixStream::pair().unwrap();
        let socket = SocketHalf::Unix(UnixSocket::new(ours).unwrap());
        let (queue, reader) = send_queue();
        let encode = |frame: &Frame, encoded: &mut Encoded| encoded.push(frame.bytes().clone());
        (queue, reader.write_to(socket, Box::new(encode)), peer)
    }

    fn update(text: impl Into<String>) -> Frame {
        Frame::updates(text)
    }

    async fn read(peer: &mut UnixStream, bytes: usize) -> String {
        let mut text = vec![0; bytes];
        timeout(LONG, peer.read_exact(&mut text)).await.expect("nothing comes").unwrap();
        String::from_utf8(text).unwrap()
    }

    /// Pushes more than the socket takes, in pieces that are written at once while there is room. Returns how many bytes.
    fn fill(queue: &SendQueue) -> usize {
        const PIECE: usize = MAX_DIRECT - 1;
        let pieces = std::iter::from_fn(|| queue.has_room().then(|| queue.push(update("x".repeat(PIECE)))));
        PIECE * pieces.count()
    }

    #[tokio::test]
    async fn a_push_writes_to_the_socket_itself() {
        let (queue, _writer, mut peer) = connected();
        queue.push_all([update("a\n"), update("b\n")]);
        queue.push(update("c\n"));
        // The writer does not run.
        assert_eq!(read(&mut peer, 6).await, "a\nb\nc\n");
        assert_eq!(queue.0.lock().bytes, 0);
    }

    #[tokio::test]
    async fn frames_pushed_before_the_socket_is_known_are_written_first() {
        let (ours, mut peer) = UnixStream::pair().unwrap();
        let socket = SocketHalf::Unix(UnixSocket::new(ours).unwrap());
        let (queue, reader) = send_queue();
        queue.push(update("a\n"));
        let encode = |frame: &Frame, encoded: &mut Encoded| encoded.push(frame.bytes().clone());
        let mut writer = reader.write_to(socket, Box::new(encode));
        queue.push(update("b\n"));
        queue.close();
        timeout(LONG, writer.run()).await.unwrap().unwrap();
        assert_eq!(read(&mut peer, 4).await, "a\nb\n");
    }

    #[tokio::test]
    async fn a_long_push_is_left_to_the_writer() {
        let (queue, mut writer, mut peer) = connected();
        queue.push(update("x".repeat(MAX_DIRECT + 1)));
        queue.push(update("y"));
        assert_eq!(queue.0.lock().bytes, MAX_DIRECT + 2, "nothing is written yet");
        writer.drain().await.unwrap();
        assert!(read(&mut peer, MAX_DIRECT + 2).await.ends_with("xy"));
    }

    #[tokio::test]
    async fn frames_that_the_socket_does_not_accept_are_written_by_the_writer() {
        let (queue, mut writer, mut peer) = connected();
        let sent: String = (0..MUCH / 8).map(|number| format!("{number:7}\n")).collect();
        let push_pieces = |text: &str| {
            for piece in text.as_bytes().chunks(8 * 99) {
                queue.push(update(str::from_utf8(piece).unwrap()));
            }
        };
        // Short frames, one of which is cut where the socket is full, and a long one between them.
        push_pieces(&sent[..MUCH / 4]);
        queue.push(update(&sent[MUCH / 4..MUCH / 2]));
        push_pieces(&sent[MUCH / 2..]);
        queue.close();
        let reading = async {
            let mut text = String::new();
            // In small pieces, so that the socket is full again and again.
            while text.len() < MUCH {
                text += &read(&mut peer, (MUCH - text.len()).min(10_000)).await;
            }
            text
        };
        let (ended, received) = tokio::join!(timeout(LONG, writer.run()), reading);
        ended.unwrap().unwrap();
        assert!(received == sent, "all of it, in order");
        assert_eq!(queue.0.lock().bytes, 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn pushes_from_several_threads_are_written_whole_and_in_order() {
        const THREADS: usize = 4;
        const LINES: usize = 5000;
        let (queue, mut writer, peer) = connected();
        let pushing: Vec<_> = (0..THREADS)
            .map(|thread| {
                let queue = queue.clone();
                std::thread::spawn(move || {
                    for line in 0..LINES {
                        // Sometimes more than one frame, and now and then a long one.
                        let rest = "x".repeat(if line % 100 == 0 { 20_000 } else { line % 50 });
                        queue.push_all([update(format!("{thread} {line} ")), update(format!("{rest}\n"))]);
                    }
                })
            })
            .collect();
        let writing = tokio::spawn(async move { writer.run().await });
        let mut lines = BufReader::new(peer).lines();
        let mut next = [0; THREADS];
        for _ in 0..THREADS * LINES {
            let line = timeout(LONG, lines.next_line()).await.unwrap().unwrap().unwrap();
            let mut words = line.split(' ');
            let mut number = || words.next().unwrap().parse::<usize>().unwrap();
            let (thread, number) = (number(), number());
            assert_eq!(number, next[thread], "thread {thread}");
            next[thread] += 1;
        }
        pushing.into_iter().for_each(|thread| thread.join().unwrap());
        queue.close();
        timeout(LONG, writing).await.unwrap().unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_peer_that_stops_reading_and_comes_back_gets_everything() {
        let (queue, mut writer, mut peer) = connected();
        let mut running = pin!(writer.run());
        assert!(running.as_mut().now_or_never().is_none(), "it waits for something to write");
        let filled = fill(&queue);
        queue.push(update("later\n"));
        let drained = queue.drained();
        let reading = async {
            read(&mut peer, filled).await;
            read(&mut peer, 6).await
        };
        let reading = async { tokio::join!(drained, reading).1 };
        let last = tokio::select! {
            last = timeout(LONG, reading) => last.unwrap(),
            ended = running => panic!("{ended:?}"),
        };
        assert_eq!(last, "later\n");
    }

    #[tokio::test]
    async fn after_the_writer_has_caught_up_a_push_writes_itself_again() {
        let (queue, mut writer, mut peer) = connected();
        let filled = fill(&queue);
        let (drained, _) = tokio::join!(timeout(LONG, writer.drain()), read(&mut peer, filled));
        drained.unwrap().unwrap();
        queue.push(update("again\n"));
        assert_eq!(read(&mut peer, 6).await, "again\n");
    }

    #[tokio::test]
    async fn a_queue_that_is_closed_while_the_peer_does_not_read_is_written_to_its_end() {
        let (queue, mut writer, mut peer) = connected();
        let filled = fill(&queue);
        queue.push(update("last\n"));
        queue.close();
        queue.push(update("never\n"));
        assert!(writer.run().now_or_never().is_none(), "the peer has not read it");
        let reading = async {
            read(&mut peer, filled).await;
            read(&mut peer, 5).await
        };
        let (ended, last) = tokio::join!(timeout(LONG, writer.run()), reading);
        ended.unwrap().unwrap();
        assert_eq!(last, "last\n");
        drop(writer);
        let mut rest = String::new();
        timeout(LONG, peer.read_to_string(&mut rest)).await.unwrap().unwrap();
        assert_eq!(rest, "", "the socket is closed, also while others have the queue");
        assert!(queue.is_closed());
    }

    #[tokio::test]
    async fn a_peer_that_does_not_read_is_disconnected_when_too_much_waits() {
        let (queue, mut writer, _peer) = connected();
        let running = tokio::spawn(async move { writer.run().await });
        for _ in 0..=(MAX_BYTES >> 20) + 1 {
            queue.push(update("x".repeat(1 << 20)));
        }
        timeout(LONG, running).await.unwrap().unwrap().unwrap();
        assert!(queue.is_closed());
    }

    #[tokio::test]
    async fn a_peer_that_is_gone_ends_the_writer_and_all_waiting() {
        let (queue, mut writer, peer) = connected();
        fill(&queue);
        drop(peer);
        timeout(LONG, writer.run()).await.unwrap().unwrap_err();
        assert!(queue.is_closed());
        timeout(LONG, queue.drained()).await.unwrap();

        let (queue, mut writer, peer) = connected();
        drop(peer);
        // The push detects that the peer is gone.
        queue.push(update("x"));
        assert!(queue.is_closed());
        timeout(LONG, writer.run()).await.unwrap().unwrap_err();
    }

    #[tokio::test]
    async fn the_responses_to_a_batch_are_written_when_they_are_complete() {
        let (queue, _writer, mut peer) = connected();
        let response = |id| Frame::response(&RequestId::from(id), &Object::default());
        queue.batch(vec![RequestId::from(1), RequestId::from(2)], Vec::new()).unwrap();
        queue.push(response(2));
        queue.push(update("u\n"));
        assert_eq!(read(&mut peer, 2).await, "u\n");
        queue.push(response(1));
        let all = Frame::batch(&[response(2), response(1)]);
        assert_eq!(read(&mut peer, all.len()).await, all.as_str());
        queue.batch(Vec::new(), vec![response(3)]).unwrap();
        let only = Frame::batch(&[response(3)]);
        assert_eq!(read(&mut peer, only.len()).await, only.as_str());
    }

    /// Pushes a frame that is written in part.
    fn begin_long(queue: &SendQueue, writer: &mut SocketWriter) {
        queue.push(update("x".repeat(MUCH)));
        assert!(writer.drain().now_or_never().is_none(), "the socket does not take all of it");
    }

    #[tokio::test]
    async fn raw_bytes_are_sent_after_a_message_that_has_begun_and_before_those_that_wait() {
        let (queue, mut writer, mut peer) = connected();
        begin_long(&queue, &mut writer);
        queue.push(update("waits\n"));
        writer.raw_sender().send(Bytes::from_static(b"raw\n"));
        let (drained, received) = tokio::join!(timeout(LONG, writer.drain()), read(&mut peer, MUCH + 10));
        drained.unwrap().unwrap();
        assert_eq!(&received[MUCH..], "raw\nwaits\n");
        // While nothing waits they are written at once.
        writer.raw_sender().send(Bytes::from_static(b"raw\n"));
        assert_eq!(read(&mut peer, 4).await, "raw\n");
    }

    #[tokio::test]
    async fn raw_bytes_are_the_last_that_is_sent_when_frames_are_discarded() {
        let (queue, mut writer, mut peer) = connected();
        begin_long(&queue, &mut writer);
        queue.push(update("waits\n"));
        queue.close();
        writer.discard_frames();
        assert!(queue.has_room());
        queue.push(update("later\n"));
        writer.raw_sender().send(Bytes::from_static(b"raw\n"));
        let (drained, received) = tokio::join!(timeout(LONG, writer.drain()), read(&mut peer, MUCH + 4));
        drained.unwrap().unwrap();
        assert_eq!(&received[MUCH..], "raw\n");
        drop(writer);
        assert_eq!(peer.read(&mut [0]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_peer_that_reads_no_raw_bytes_is_disconnected_when_too_much_waits() {
        let (queue, mut writer, _peer) = connected();
        let sender = writer.raw_sender();
        let mut running = pin!(writer.run());
        assert!(running.as_mut().now_or_never().is_none());
        for _ in 0..=(MAX_BYTES >> 20) + 1 {
            sender.send(Bytes::from(vec![b'x'; 1 << 20]));
        }
        assert!(queue.is_closed());
        timeout(LONG, running).await.unwrap().unwrap();
    }
}
