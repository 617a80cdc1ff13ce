//! A client that speaks in lines: what the Unix socket and the standard streams have in common.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parlor_engine::Frame;
use parlor_wire::{InputLine, Lines};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;

use super::guests::Guest;
use super::owed::Owed;
use crate::hub::{Connection, Hub, Peer};
use crate::send_queue::{SendQueueReader, SocketHalf, SocketWriter};

/// How much is read at once.
const READ: usize = 64 << 10;

/// How much is gathered before it is written.
const GATHERED: usize = 256 << 10;

/// Bytes that become lines.
#[derive(Debug)]
pub(super) struct Incoming<R> {
    read: R,
    buffer: Box<[u8]>,
    /// The lines that came in.
    pub(super) lines: Lines,
    ended: bool,
}

/// A client's side of the hub, and the answers that it waits for.
#[derive(Debug)]
pub(super) struct Conversation {
    connection: Connection,
    queue: SendQueueReader,
    owed: Arc<Owed>,
}

/// When a conversation ends for other reasons than that one side has gone.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    /// Ends it with the server.
    pub(super) guest: Option<Guest>,
    /// How long a client that says no more waits for answers; without end if none.
    pub(super) patience: Option<Duration>,
}

impl<R: AsyncRead + Unpin> Incoming<R> {
    pub(super) fn new(read: R) -> Self {
        let buffer = vec![0; READ].into_boxed_slice();
        Self { read, buffer, lines: Lines::default(), ended: false }
    }

    /// Waits for more. `false` if no more lines will come.
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

impl Conversation {
    pub(super) fn begin(hub: &Arc<Hub>, peer: Peer) -> Self {
        let (connection, queue) = hub.connect(peer);
        Self { connection, queue, owed: Arc::new(Owed::new()) }
    }

    /// The client said something.
    pub(super) async fn said(&mut self, frame: InputLine<'_>) {
        said(&mut self.connection, &self.owed, frame).await;
    }

    /// Goes on until the client has gone, or says no more and has its answers, or the hub ends it.
    pub(super) async fn go_on<R, W>(self, incoming: Incoming<R>, mut write: W, bounds: Bounds)
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let Self { connection, queue, owed } = self;
        let output = StreamOutput { queue, write: &mut write, owed: &owed };
        exchange(connection, incoming, output, &owed, bounds).await;
        // The client is gone for the hub now; a last word to the client itself can only fail.
        let _ = write.shutdown().await;
    }

    /// Does the same with a socket, to which those who have something for the client write themselves.
    pub(super) async fn go_on_at<R>(self, incoming: Incoming<R>, socket: SocketHalf, bounds: Bounds)
    where
        R: AsyncRead + Unpin,
    {
        let Self { connection, queue, owed } = self;
        let sent = Arc::clone(&owed);
        let writer = queue.write_to(
            socket,
            Box::new(move |frame, encoded| {
                sent.sent(frame);
                encoded.push(frame.bytes().clone());
            }),
        );
        exchange(connection, incoming, writer, &owed, bounds).await;
    }
}

/// What a client's lines are written to.
trait Output {
    /// Writes what waits until it is closed, or until nothing waits after `finishing`.
    async fn write_all(&mut self, finishing: impl Future<Output = ()>) -> io::Result<()>;
}

/// A stream that is written to by the task of the connection.
struct StreamOutput<'a, W> {
    queue: SendQueueReader,
    write: &'a mut W,
    owed: &'a Owed,
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
                self.owed.sent(frame);
            }
        }
    }
}

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

/// Reads and writes until the client has gone, or says no more and has its answers, or the hub ends it.
async fn exchange<R: AsyncRead + Unpin>(
    mut connection: Connection,
    mut incoming: Incoming<R>,
    mut output: impl Output,
    owed: &Owed,
    bounds: Bounds,
) {
    let said_all = Notify::new();
    let reading = async {
        loop {
            while let Some(frame) = incoming.lines.next_line() {
                said(&mut connection, owed, frame).await;
            }
            if !incoming.fill().await? {
                break;
            }
        }
        said_all.notify_one();
        match bounds.patience {
            Some(patience) => tokio::time::sleep(patience).await,
            None => std::future::pending().await,
        }
        io::Result::Ok(())
    };
    let finishing = async {
        tokio::select! {
            () = closing(bounds.guest.as_ref()) => {}
            () = async { said_all.notified().await; owed.settled().await } => {}
        }
    };
    let ended = tokio::select! {
        read = reading => read,
        written = output.write_all(finishing) => written,
        () = cut(bounds.guest.as_ref()) => Ok(()),
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a client is gone");
    }
    // The client has left for the hub before its place is free for another.
    drop(connection);
}

async fn said(connection: &mut Connection, owed: &Owed, frame: InputLine<'_>) {
    if let InputLine::Line(line) = &frame {
        owed.heard(line);
    }
    connection.said(frame).await;
}

/// Writes lines together, because a system call for each would cost more than copying them.
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

async fn closing(guest: Option<&Guest>) {
    match guest {
        Some(guest) => guest.closing().await,
        None => std::future::pending().await,
    }
}

async fn cut(guest: Option<&Guest>) {
    match guest {
        Some(guest) => guest.cut().await,
        None => std::future::pending().await,
    }
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
    async fn what_is_ready_is_written_together_also_when_it_is_time_to_go() {
        let (queue, reader) = send_queue();
        let lines: Vec<String> = (0..1000).map(|number| format!("{number}\n")).collect();
        for line in &lines {
            queue.push(Frame::updates(line.as_str()));
        }
        let mut written = Written::default();
        let mut output = StreamOutput { queue: reader, write: &mut written, owed: &Owed::new() };
        output.write_all(async {}).await.unwrap();
        assert_eq!(written.bytes, lines.concat().as_bytes());
        assert_eq!(written.writes, 1);
    }

    #[tokio::test]
    async fn much_is_written_in_parts() {
        let ready: Vec<Frame> = (0..10).map(|_| Frame::updates("x".repeat(GATHERED / 2))).collect();
        let (mut written, mut gathered) = (Written::default(), Vec::new());
        write_gathered(&mut written, &ready, &mut gathered).await.unwrap();
        assert_eq!((written.bytes.len(), written.writes), (5 * GATHERED, 5));
        assert!(gathered.capacity() <= GATHERED);
    }
}
