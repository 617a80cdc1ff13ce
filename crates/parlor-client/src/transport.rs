//! The two directions of a connection, as lines.

use std::time::Duration;

use parlor_wire::{InputLine, LineDecoder};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

/// How many lines wait to be written.
const QUEUE: usize = 256;

/// How many reads wait for the connection's task.
const MAX_READS: usize = 16;

/// How many bytes are read at once.
const READ_SIZE: usize = 64 << 10;

/// How many requests one read can have: the line of a request has more than 32 bytes.
pub(crate) const MAX_LINES_PER_READ: usize = READ_SIZE / 32;

/// How long queued lines are written after the connection's task has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// The interval of pings on a WebSocket.
#[cfg(feature = "websocket")]
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// How long a WebSocket peer may send nothing while it receives nothing of a long message either.
#[cfg(feature = "websocket")]
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The size of the frames of a long WebSocket message, each of which shows that the peer still receives.
#[cfg(feature = "websocket")]
const FRAME_SIZE: usize = 64 << 10;

/// The two directions of a connection, as lines without their ends. The connection is closed when `incoming` ends.
pub(crate) struct Transport {
    /// The lines of each read.
    pub(crate) incoming: mpsc::Receiver<Vec<Received>>,
    pub(crate) outgoing: mpsc::Sender<String>,
    /// What is between, for logs.
    pub(crate) kind: &'static str,
    /// Dropped with the transport, which starts the writer's drain timeout.
    _in_use: oneshot::Sender<()>,
}

/// Something that was read.
#[derive(Debug)]
pub(crate) enum Received {
    Line(String),
    /// A line over the size limit.
    TooLong,
    /// Something that is not text, with a description.
    Undecodable(String),
}

/// The tasks of a transport.
pub(crate) struct Tasks {
    /// The reader. Aborting it closes the connection.
    pub(crate) reader: AbortHandle,
    /// Fires when nothing more will be written.
    pub(crate) written: oneshot::Receiver<()>,
}

impl Transport {
    /// A connection over two byte streams.
    pub(crate) fn over<R, W>(kind: &'static str, read: R, write: W) -> (Self, Tasks)
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        Self::new(kind, |reads| read_lines(read, reads), |lines| write_lines(write, lines))
    }

    /// A connection over WebSocket messages.
    #[cfg(feature = "websocket")]
    pub(crate) fn over_websocket<S>(socket: tokio_tungstenite::WebSocketStream<S>) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        use futures_util::StreamExt;

        let (sink, stream) = socket.split();
        let (sent, progress) = watch::channel(());
        let read = |reads| read_messages(stream, reads, progress);
        Self::new("websocket", read, |lines| write_messages(sink, lines, sent)).0
    }

    /// Starts the two tasks of a connection. The reader ends with the transport; the writer may write queued lines.
    fn new<R, W>(
        kind: &'static str,
        read: impl FnOnce(mpsc::Sender<Vec<Received>>) -> R,
        write: impl FnOnce(mpsc::Receiver<String>) -> W,
    ) -> (Self, Tasks)
    where
        R: Future<Output = ()> + Send + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        let (sender, incoming) = mpsc::channel(MAX_READS);
        let (outgoing, lines) = mpsc::channel(QUEUE);
        let (in_use, mut dropped) = oneshot::channel::<()>();
        let (done, written) = oneshot::channel();
        let receiver_dropped = sender.clone();
        let read = read(sender);
        let reader = tokio::spawn(async move {
            tokio::select! {
                () = read => {}
                () = receiver_dropped.closed() => {}
            }
        });
        let write = write(lines);
        tokio::spawn(async move {
            let timeout = async {
                let _ = (&mut dropped).await;
                tokio::time::sleep(DRAIN_TIMEOUT).await;
            };
            tokio::select! {
                () = write => {}
                () = timeout => {}
            }
            let _ = done.send(());
        });
        (Self { incoming, outgoing, kind, _in_use: in_use }, Tasks { reader: reader.abort_handle(), written })
    }
}

async fn read_lines(mut read: impl AsyncRead + Unpin, reads: mpsc::Sender<Vec<Received>>) {
    let mut framing = LineDecoder::default();
    let mut buffer = vec![0; READ_SIZE];
    loop {
        let count = read.read(&mut buffer).await.unwrap_or(0);
        if count == 0 {
            return;
        }
        framing.extend(&buffer[..count]);
        let mut all = Vec::new();
        while let Some(frame) = framing.next_line() {
            all.push(match frame {
                InputLine::Line(line) => Received::Line(line.to_owned()),
                InputLine::TooLong { .. } => Received::TooLong,
                InputLine::NotUtf8 { excerpt } => {
                    Received::Undecodable(format!("a line that is not UTF-8: {excerpt}"))
                }
                InputLine::Blank => continue,
            });
        }
        if !all.is_empty() && reads.send(all).await.is_err() {
            return;
        }
    }
}

async fn write_lines(mut write: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<String>) {
    let mut queued = Vec::new();
    while lines.recv_many(&mut queued, QUEUE).await > 0 {
        let mut bytes = String::with_capacity(queued.iter().map(|line| line.len() + 1).sum());
        for line in queued.drain(..) {
            bytes.push_str(&line);
            bytes.push('\n');
        }
        if write.write_all(bytes.as_bytes()).await.is_err() || write.flush().await.is_err() {
            return;
        }
    }
    let _ = write.shutdown().await;
}

/// Reads messages until the peer closes, times out or exceeds the size limit: a WebSocket cannot be read after that.
#[cfg(feature = "websocket")]
async fn read_messages<S>(
    mut stream: S,
    reads: mpsc::Sender<Vec<Received>>,
    mut progress: watch::Receiver<()>,
) where
    S: futures_util::Stream<Item = Result<Message, tungstenite::Error>> + Unpin,
{
    use futures_util::StreamExt;

    loop {
        let message = tokio::select! {
            message = stream.next() => message,
            () = idle_timeout(&mut progress) => return,
        };
        let received = match message {
            Some(Ok(Message::Text(text))) => Received::Line(text.as_str().to_owned()),
            Some(Ok(Message::Binary(_))) => Received::Undecodable("a binary WebSocket message".to_owned()),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_))) => {
                continue;
            }
            Some(Err(tungstenite::Error::Capacity(_))) => Received::TooLong,
            Some(Err(_)) | None => return,
        };
        let is_last = matches!(received, Received::TooLong);
        if reads.send(vec![received]).await.is_err() || is_last {
            return;
        }
    }
}

/// Completes when the peer has sent nothing for too long, and has received nothing of a long message.
#[cfg(feature = "websocket")]
async fn idle_timeout(progress: &mut watch::Receiver<()>) {
    let mut next_frame = async || match progress.changed().await {
        Ok(()) => {}
        // The writer has ended.
        Err(_) => std::future::pending().await,
    };
    while tokio::time::timeout(IDLE_TIMEOUT, next_frame()).await.is_ok() {}
}

/// Writes messages and pings. Reports each frame of a long message that was sent.
#[cfg(feature = "websocket")]
async fn write_messages<S>(mut sink: S, mut lines: mpsc::Receiver<String>, sent: watch::Sender<()>)
where
    S: futures_util::Sink<Message, Error = tungstenite::Error> + Unpin,
{
    use futures_util::SinkExt;

    let mut ping = tokio::time::interval_at(tokio::time::Instant::now() + PING_INTERVAL, PING_INTERVAL);
    loop {
        let written = tokio::select! {
            line = lines.recv() => match line {
                Some(line) if line.len() > FRAME_SIZE => write_long(&mut sink, line, &sent).await,
                Some(line) => sink.send(Message::text(line)).await,
                None => break,
            },
            _ = ping.tick() => sink.send(Message::Ping(Bytes::new())).await,
        };
        if written.is_err() {
            return;
        }
    }
    let _ = sink.close().await;
}

/// Writes a message in many frames, and reports each of them.
#[cfg(feature = "websocket")]
async fn write_long<S>(sink: &mut S, line: String, sent: &watch::Sender<()>) -> Result<(), tungstenite::Error>
where
    S: futures_util::Sink<Message, Error = tungstenite::Error> + Unpin,
{
    use futures_util::SinkExt;

    let mut rest = Bytes::from(line);
    let mut kind = Data::Text;
    while !rest.is_empty() {
        let piece = rest.split_to(rest.len().min(FRAME_SIZE));
        let frame = WebSocketFrame::message(piece, OpCode::Data(kind), rest.is_empty());
        sink.send(Message::Frame(frame)).await?;
        sent.send_replace(());
        kind = Data::Continue;
    }
    Ok(())
}

#[cfg(feature = "websocket")]
use {
    tokio::sync::watch,
    tokio_tungstenite::tungstenite::{
        self, Bytes, Message,
        protocol::frame::{
            Frame as WebSocketFrame,
            coding::{Data, OpCode},
        },
    },
};

#[cfg(all(test, feature = "websocket"))]
mod tests {
    use futures_util::StreamExt;
    use tokio::io::DuplexStream;
    use tokio_tungstenite::WebSocketStream;
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::*;

    async fn connected() -> (Transport, WebSocketStream<DuplexStream>) {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let ours = WebSocketStream::from_raw_socket(ours, Role::Client, None).await;
        let theirs = WebSocketStream::from_raw_socket(theirs, Role::Server, None).await;
        (Transport::over_websocket(ours), theirs)
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_websocket_peer_times_out() {
        let (mut transport, theirs) = connected().await;
        let began = tokio::time::Instant::now();
        assert!(transport.incoming.recv().await.is_none());
        assert_eq!(began.elapsed().as_secs(), IDLE_TIMEOUT.as_secs());
        drop(theirs);
    }

    #[tokio::test(start_paused = true)]
    async fn a_websocket_peer_that_answers_pings_stays_connected() {
        let (mut transport, mut theirs) = connected().await;
        // Reading answers pings.
        let reading = tokio::spawn(async move { while theirs.next().await.is_some() {} });
        let waited = tokio::time::timeout(10 * IDLE_TIMEOUT, transport.incoming.recv()).await;
        assert!(waited.is_err(), "{waited:?}");
        // Dropping the transport closes the WebSocket.
        drop(transport);
        reading.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_websocket_peer_that_receives_a_long_message_slowly_does_not_time_out() {
        let (ours, mut theirs) = tokio::io::duplex(1024);
        let ours = WebSocketStream::from_raw_socket(ours, Role::Client, None).await;
        let mut transport = Transport::over_websocket(ours);
        transport.outgoing.send("x".repeat(1 << 20)).await.unwrap();
        let began = tokio::time::Instant::now();
        let reading = tokio::spawn(async move {
            let mut piece = vec![0; 1024];
            for _ in 0..1024 {
                tokio::time::sleep(Duration::from_millis(500)).await;
                theirs.read_exact(&mut piece).await.unwrap();
            }
            theirs
        });
        // Frames are sent for more than eight minutes, and then no more.
        assert!(transport.incoming.recv().await.is_none());
        assert!(began.elapsed() > 8 * IDLE_TIMEOUT, "{:?}", began.elapsed());
        drop(reading.await.unwrap());
    }

    #[tokio::test]
    async fn a_long_message_arrives_unchanged() {
        let (transport, mut theirs) = connected().await;
        let line = "äöü".repeat(FRAME_SIZE);
        transport.outgoing.send(line.clone()).await.unwrap();
        transport.outgoing.send("short".to_owned()).await.unwrap();
        assert_eq!(theirs.next().await.unwrap().unwrap().into_text().unwrap().as_str(), line);
        assert_eq!(theirs.next().await.unwrap().unwrap().into_text().unwrap().as_str(), "short");
    }

    #[tokio::test]
    async fn a_message_over_the_size_limit_is_the_last() {
        use futures_util::SinkExt;
        use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let config = WebSocketConfig::default().max_message_size(Some(100));
        let ours = WebSocketStream::from_raw_socket(ours, Role::Client, Some(config)).await;
        let mut theirs = WebSocketStream::from_raw_socket(theirs, Role::Server, None).await;
        let mut transport = Transport::over_websocket(ours);
        theirs.send(Message::text("x".repeat(101))).await.unwrap();
        theirs.send(Message::text("more")).await.unwrap();
        assert!(matches!(transport.incoming.recv().await.unwrap()[..], [Received::TooLong]));
        assert!(transport.incoming.recv().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_does_not_read_is_disconnected_after_the_drain_timeout() {
        let (transport, mut theirs) = connected().await;
        for _ in 0..QUEUE {
            let _ = transport.outgoing.try_send("x".repeat(1024));
        }
        drop(transport);
        tokio::time::sleep(2 * DRAIN_TIMEOUT).await;
        // What was in flight arrives, and then the stream ends.
        let mut received = 0;
        while let Some(Ok(message)) = theirs.next().await {
            assert!(message.is_text(), "the WebSocket was closed properly");
            received += 1;
        }
        assert!(received < QUEUE);
    }
}
