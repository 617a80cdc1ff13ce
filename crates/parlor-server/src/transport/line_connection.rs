//! A client that sends and receives lines, over the Unix socket or two streams.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parlor_engine::Frame;
use parlor_wire::{InputLine, LineDecoder};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tracing::Instrument as _;

#[cfg(feature = "http")]
use super::connection_limit::ConnectionGuard;
use super::in_flight::InFlightRequests;
use crate::hub::{ConnectOptions, Connection, Hub};
use crate::send_queue::SendQueueReader;
#[cfg(feature = "http")]
use crate::send_queue::{SocketHalf, SocketWriter};

/// How many bytes are read at once.
const READ: usize = 64 << 10;

/// How many bytes are gathered for one write.
const GATHERED: usize = 256 << 10;

/// Reads lines.
#[derive(Debug)]
pub(super) struct LineInput<R> {
    read: R,
    buffer: Box<[u8]>,
    /// Bytes that were read and not yet handled.
    pub(super) lines: LineDecoder,
    ended: bool,
}

/// A connected client.
#[derive(Debug)]
pub(super) struct LineConnection {
    connection: Connection,
    queue: SendQueueReader,
    in_flight: Arc<InFlightRequests>,
}

/// Why a connection ends while both sides are still connected.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    /// Ends it when the server stops.
    #[cfg(feature = "http")]
    pub(super) guard: Option<ConnectionGuard>,
    /// How long a client that sends no more may wait for responses; without limit if `None`.
    pub(super) drain_timeout: Option<Duration>,
}

impl<R: AsyncRead + Unpin> LineInput<R> {
    pub(super) fn new(read: R) -> Self {
        let buffer = vec![0; READ].into_boxed_slice();
        Self { read, buffer, lines: LineDecoder::default(), ended: false }
    }

    /// Waits for more input. `false` if there is none.
    pub(super) async fn fill(&mut self) -> io::Result<bool> {
        if self.ended {
            return Ok(false);
        }
        match self.read.read(&mut self.buffer).await? {
            0 => {
                self.ended = true;
                self.lines.finish();
            }
            read => self.lines.extend(&self.buffer[..read]),
        }
        Ok(true)
    }
}

impl LineConnection {
    pub(super) fn new(hub: &Arc<Hub>, options: ConnectOptions) -> Self {
        let (connection, queue) = hub.connect(options);
        Self { connection, queue, in_flight: Arc::new(InFlightRequests::new()) }
    }

    #[cfg(feature = "http")]
    /// Handles a line of the client.
    pub(super) async fn handle_line(&mut self, line: InputLine<'_>) {
        handle_line(&mut self.connection, &self.in_flight, line).await;
    }

    /// Serves the client until it is gone, or sends no more and has its responses, or the hub closes the connection. An error
    /// of a stream ends the connection and is returned.
    pub(super) async fn run<R, W>(self, input: LineInput<R>, mut write: W, bounds: Bounds) -> io::Result<()>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let Self { connection, queue, in_flight } = self;
        let output = StreamOutput { queue, write: &mut write, in_flight: &in_flight };
        let ended = exchange(connection, input, output, &in_flight, bounds).await;
        let _ = write.shutdown().await;
        ended
    }

    #[cfg(feature = "http")]
    /// Serves the client over a socket, to which pushing a frame writes.
    pub(super) async fn run_on_socket<R>(self, input: LineInput<R>, socket: SocketHalf, bounds: Bounds)
    where
        R: AsyncRead + Unpin,
    {
        let Self { connection, queue, in_flight } = self;
        let on_line = Arc::clone(&in_flight);
        let writer = queue.write_to(
            socket,
            Box::new(move |frame, encoded| {
                on_line.on_line(frame);
                encoded.push(frame.bytes().clone());
            }),
        );
        let _ = exchange(connection, input, writer, &in_flight, bounds).await;
    }
}

/// The output of a connection.
trait Output {
    /// Writes frames until the queue is closed, or until none waits after `finishing`.
    async fn write_all(&mut self, finishing: impl Future<Output = ()>) -> io::Result<()>;
}

/// A stream to which only the connection's task writes.
struct StreamOutput<'a, W> {
    queue: SendQueueReader,
    write: &'a mut W,
    in_flight: &'a InFlightRequests,
}

impl<W: AsyncWrite + Unpin> Output for StreamOutput<'_, W> {
    async fn write_all(&mut self, finishing: impl Future<Output = ()>) -> io::Result<()> {
        let mut finishing = pin!(finishing);
        let mut gathered = Vec::new();
        loop {
            let ready = tokio::select! {
                biased;
                ready = self.queue.next() => ready,
                () = &mut finishing => None,
            };
            let Some(ready) = ready else { return Ok(()) };
            write_gathered(self.write, &ready, &mut gathered).await?;
            for frame in &ready {
                self.in_flight.on_line(frame);
            }
        }
    }
}

#[cfg(feature = "http")]
impl Output for SocketWriter {
    async fn write_all(&mut self, finishing: impl Future<Output = ()>) -> io::Result<()> {
        tokio::select! {
            biased;
            ended = self.run() => return ended,
            () = finishing => {}
        }
        self.drain().await
    }
}

/// Serves a client in the span of its connection: reads and writes until the client is gone, or sends no more and has its
/// responses, or the hub closes the connection.
async fn exchange<R: AsyncRead + Unpin>(
    connection: Connection,
    input: LineInput<R>,
    output: impl Output,
    in_flight: &InFlightRequests,
    bounds: Bounds,
) -> io::Result<()> {
    let span = connection.span().clone();
    read_and_write(connection, input, output, in_flight, bounds).instrument(span).await
}

async fn read_and_write<R: AsyncRead + Unpin>(
    mut connection: Connection,
    mut input: LineInput<R>,
    mut output: impl Output,
    in_flight: &InFlightRequests,
    bounds: Bounds,
) -> io::Result<()> {
    let end_of_input = Notify::new();
    let reading = async {
        loop {
            while let Some(line) = input.lines.next_line() {
                handle_line(&mut connection, in_flight, line).await;
            }
            if !input.fill().await? {
                break;
            }
        }
        end_of_input.notify_one();
        match bounds.drain_timeout {
            Some(timeout) => tokio::time::sleep(timeout).await,
            None => std::future::pending().await,
        }
        io::Result::Ok(())
    };
    let finishing = async {
        tokio::select! {
            () = closing(&bounds) => {}
            () = async { end_of_input.notified().await; in_flight.is_finished().await } => {}
        }
    };
    let ended = tokio::select! {
        read = reading => read,
        written = output.write_all(finishing) => written,
        () = aborted(&bounds) => Ok(()),
    };
    if let Err(error) = &ended {
        tracing::debug!(%error, "a connection failed");
    }
    // The hub knows that the client is gone before its slot is free.
    drop(connection);
    ended
}

async fn handle_line(connection: &mut Connection, in_flight: &InFlightRequests, line: InputLine<'_>) {
    if let InputLine::Line(text) = &line {
        in_flight.on_client_line(text);
    }
    connection.on_line(line).await;
}

/// Writes frames together: a system call for each would cost more than copying them.
async fn write_gathered<W: AsyncWrite + Unpin>(
    write: &mut W,
    ready: &[Frame],
    gathered: &mut Vec<u8>,
) -> io::Result<()> {
    if let [only] = ready {
        write.write_all(only.bytes()).await?;
        return write.flush().await;
    }
    for frame in ready {
        if !gathered.is_empty() && gathered.len() + frame.len() > GATHERED {
            write.write_all(gathered).await?;
            gathered.clear();
        }
        gathered.extend_from_slice(frame.bytes());
    }
    write.write_all(gathered).await?;
    gathered.clear();
    gathered.shrink_to(GATHERED);
    write.flush().await
}

#[cfg(feature = "http")]
async fn closing(bounds: &Bounds) {
    match &bounds.guard {
        Some(guard) => guard.closing().await,
        None => std::future::pending().await,
    }
}

#[cfg(feature = "http")]
async fn aborted(bounds: &Bounds) {
    match &bounds.guard {
        Some(guard) => guard.aborted().await,
        None => std::future::pending().await,
    }
}

/// Without a listener no connection is closed by the server.
#[cfg(not(feature = "http"))]
async fn closing(_: &Bounds) {
    std::future::pending::<()>().await;
}

#[cfg(not(feature = "http"))]
async fn aborted(_: &Bounds) {
    std::future::pending::<()>().await;
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::*;
    use crate::send_queue::send_queue;

    /// Counts how often it is written to.
    #[derive(Default)]
    struct Written {
        bytes: Vec<u8>,
        writes: usize,
    }

    impl AsyncWrite for Written {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.bytes.extend_from_slice(bytes);
            self.writes += 1;
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn frames_that_are_ready_are_written_together_also_when_the_connection_is_finishing() {
        let (queue, reader) = send_queue();
        let lines: Vec<String> = (0..1000).map(|number| format!("{number}\n")).collect();
        for line in &lines {
            queue.push(Frame::updates(line.as_str()));
        }
        let mut written = Written::default();
        let mut output =
            StreamOutput { queue: reader, write: &mut written, in_flight: &InFlightRequests::new() };
        output.write_all(async {}).await.unwrap();
        assert_eq!(written.bytes, lines.concat().as_bytes());
        assert_eq!(written.writes, 1);
    }

    #[tokio::test]
    async fn many_bytes_are_written_in_parts() {
        let ready: Vec<Frame> = (0..10).map(|_| Frame::updates("x".repeat(GATHERED / 2))).collect();
        let (mut written, mut gathered) = (Written::default(), Vec::new());
        write_gathered(&mut written, &ready, &mut gathered).await.unwrap();
        assert_eq!((written.bytes.len(), written.writes), (5 * GATHERED, 5));
        assert!(gathered.capacity() <= GATHERED);
    }
}
