//! Lines in, lines out, whatever is between.

use std::time::Duration;

use parlor_wire::{InputLine, LineDecoder};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

/// How many lines wait to be written.
const QUEUE: usize = 256;

/// How many times something was read that waits to be looked at.
const READS: usize = 16;

/// How much is read at once.
const CHUNK: usize = 64 << 10;

/// No more lines than this ask for anything in what is read at once: a line that does has more than 32 bytes.
pub(crate) const AT_ONCE: usize = CHUNK / 32;

/// How long what waits is written still when nobody is left to speak.
const GRACE: Duration = Duration::from_secs(2);

/// How often the other side of a WebSocket is asked whether it is there.
#[cfg(feature = "websocket")]
const PING: Duration = Duration::from_secs(30);

/// How long the other side of a WebSocket may be silent, while it takes nothing of a long message either.
#[cfg(feature = "websocket")]
const SILENCE: Duration = Duration::from_secs(60);

/// How much of a message is one frame on a WebSocket, so that a long one is seen to move.
#[cfg(feature = "websocket")]
const FRAME: usize = 64 << 10;

/// The two directions of a connection, as lines without their ends. It is gone when `incoming` ends.
pub(crate) struct Transport {
    /// What was read at once.
    pub(crate) incoming: mpsc::Receiver<Vec<Came>>,
    pub(crate) outgoing: mpsc::Sender<String>,
    /// Goes with it, and so tells the writer.
    _here: oneshot::Sender<()>,
}

/// What came.
#[derive(Debug)]
pub(crate) enum Came {
    Line(String),
    /// A line over the limit. Nobody knows what it said.
    TooLong,
    /// Something that is no text, or too odd to be looked at: what.
    NoLine(String),
}

/// The tasks of a transport.
pub(crate) struct Tasks {
    /// Who reads. Without it the connection is gone.
    pub(crate) reader: AbortHandle,
    /// Over when nothing is going to be written any more.
    pub(crate) written: oneshot::Receiver<()>,
}

impl Transport {
    /// A connection over two streams of bytes.
    pub(crate) fn over<R, W>(read: R, write: W) -> (Self, Tasks)
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        Self::of(|reads| read_lines(read, reads), |lines| write_lines(write, lines))
    }

    /// A connection over WebSocket messages.
    #[cfg(feature = "websocket")]
    pub(crate) fn over_websocket<S>(socket: tokio_tungstenite::WebSocketStream<S>) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        use futures_util::StreamExt;

        let (sink, stream) = socket.split();
        let (moved, moves) = watch::channel(());
        Self::of(|reads| hear_messages(stream, reads, moves), |lines| say_messages(sink, lines, moved)).0
    }

    /// A connection of two tasks. The reader goes when nobody wants to know; the writer may write what waits.
    fn of<R, W>(
        read: impl FnOnce(mpsc::Sender<Vec<Came>>) -> R,
        write: impl FnOnce(mpsc::Receiver<String>) -> W,
    ) -> (Self, Tasks)
    where
        R: Future<Output = ()> + Send + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        let (sender, incoming) = mpsc::channel(READS);
        let (outgoing, lines) = mpsc::channel(QUEUE);
        let (here, mut left) = oneshot::channel::<()>();
        let (done, written) = oneshot::channel();
        let nobody_looks = sender.clone();
        let read = read(sender);
        let reader = tokio::spawn(async move {
            tokio::select! {
                () = read => {}
                () = nobody_looks.closed() => {}
            }
        });
        let write = write(lines);
        tokio::spawn(async move {
            let too_late = async {
                let _ = (&mut left).await;
                tokio::time::sleep(GRACE).await;
            };
            tokio::select! {
                () = write => {}
                () = too_late => {}
            }
            let _ = done.send(());
        });
        (Self { incoming, outgoing, _here: here }, Tasks { reader: reader.abort_handle(), written })
    }
}

async fn read_lines(mut read: impl AsyncRead + Unpin, reads: mpsc::Sender<Vec<Came>>) {
    let mut framing = LineDecoder::default();
    let mut buffer = vec![0; CHUNK];
    loop {
        let count = read.read(&mut buffer).await.unwrap_or(0);
        if count == 0 {
            return;
        }
        framing.extend(&buffer[..count]);
        let mut all = Vec::new();
        while let Some(frame) = framing.next_line() {
            all.push(match frame {
                InputLine::Line(line) => Came::Line(line.to_owned()),
                InputLine::TooLong { .. } => Came::TooLong,
                InputLine::NotUtf8 { excerpt } => Came::NoLine(format!("no text: {excerpt}")),
                InputLine::Blank => continue,
            });
        }
        if !all.is_empty() && reads.send(all).await.is_err() {
            return;
        }
    }
}

async fn write_lines(mut write: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<String>) {
    let mut waiting = Vec::new();
    while lines.recv_many(&mut waiting, QUEUE).await > 0 {
        let mut bytes = String::with_capacity(waiting.iter().map(|line| line.len() + 1).sum());
        for line in waiting.drain(..) {
            bytes.push_str(&line);
            bytes.push('\n');
        }
        if write.write_all(bytes.as_bytes()).await.is_err() || write.flush().await.is_err() {
            return;
        }
    }
    let _ = write.shutdown().await;
}

/// Reads messages until the other side ends, has been silent for too long, or says one that is too long: a WebSocket cannot be
/// read after that.
#[cfg(feature = "websocket")]
async fn hear_messages<S>(mut stream: S, reads: mpsc::Sender<Vec<Came>>, mut moves: watch::Receiver<()>)
where
    S: futures_util::Stream<Item = Result<Message, tungstenite::Error>> + Unpin,
{
    use futures_util::StreamExt;

    loop {
        let message = tokio::select! {
            message = stream.next() => message,
            () = silence(&mut moves) => return,
        };
        let came = match message {
            Some(Ok(Message::Text(text))) => Came::Line(text.as_str().to_owned()),
            Some(Ok(Message::Binary(_))) => Came::NoLine("a message of bytes".to_owned()),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_))) => {
                continue;
            }
            Some(Err(tungstenite::Error::Capacity(_))) => Came::TooLong,
            Some(Err(_)) | None => return,
        };
        let is_last = matches!(came, Came::TooLong);
        if reads.send(vec![came]).await.is_err() || is_last {
            return;
        }
    }
}

/// Is over when the other side says nothing for too long, and what is said to it does not move.
#[cfg(feature = "websocket")]
async fn silence(moves: &mut watch::Receiver<()>) {
    let mut move_on = async || match moves.changed().await {
        Ok(()) => {}
        // Nothing is said any more.
        Err(_) => std::future::pending().await,
    };
    while tokio::time::timeout(SILENCE, move_on()).await.is_ok() {}
}

/// Writes messages, and asks now and then whether the other side is there. Says when a piece of a long message went out.
#[cfg(feature = "websocket")]
async fn say_messages<S>(mut sink: S, mut lines: mpsc::Receiver<String>, moved: watch::Sender<()>)
where
    S: futures_util::Sink<Message, Error = tungstenite::Error> + Unpin,
{
    use futures_util::SinkExt;

    let mut ping = tokio::time::interval_at(tokio::time::Instant::now() + PING, PING);
    loop {
        let sent = tokio::select! {
            line = lines.recv() => match line {
                Some(line) if line.len() > FRAME => say_long(&mut sink, line, &moved).await,
                Some(line) => sink.send(Message::text(line)).await,
                None => break,
            },
            _ = ping.tick() => sink.send(Message::Ping(Bytes::new())).await,
        };
        if sent.is_err() {
            return;
        }
    }
    let _ = sink.close().await;
}

/// Writes a message in many frames, and says when each of them went out.
#[cfg(feature = "websocket")]
async fn say_long<S>(sink: &mut S, line: String, moved: &watch::Sender<()>) -> Result<(), tungstenite::Error>
where
    S: futures_util::Sink<Message, Error = tungstenite::Error> + Unpin,
{
    use futures_util::SinkExt;

    let mut rest = Bytes::from(line);
    let mut kind = Data::Text;
    while !rest.is_empty() {
        let piece = rest.split_to(rest.len().min(FRAME));
        let frame = WebSocketFrame::message(piece, OpCode::Data(kind), rest.is_empty());
        sink.send(Message::Frame(frame)).await?;
        moved.send_replace(());
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
    async fn the_other_side_of_a_websocket_may_not_be_silent() {
        let (mut transport, theirs) = connected().await;
        let began = tokio::time::Instant::now();
        assert!(transport.incoming.recv().await.is_none());
        assert_eq!(began.elapsed().as_secs(), SILENCE.as_secs());
        drop(theirs);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_answers_whether_it_is_there_is() {
        let (mut transport, mut theirs) = connected().await;
        // Reading answers pings.
        let reading = tokio::spawn(async move { while theirs.next().await.is_some() {} });
        let waited = tokio::time::timeout(10 * SILENCE, transport.incoming.recv()).await;
        assert!(waited.is_err(), "{waited:?}");
        // And leaving closes, whatever the other side says to it.
        drop(transport);
        reading.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_takes_a_long_message_slowly_is_not_silent() {
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
        // It moves for more than eight minutes, and then it does not.
        assert!(transport.incoming.recv().await.is_none());
        assert!(began.elapsed() > 8 * SILENCE, "{:?}", began.elapsed());
        drop(reading.await.unwrap());
    }

    #[tokio::test]
    async fn a_long_message_arrives_as_it_was() {
        let (transport, mut theirs) = connected().await;
        let line = "äöü".repeat(FRAME);
        transport.outgoing.send(line.clone()).await.unwrap();
        transport.outgoing.send("short".to_owned()).await.unwrap();
        assert_eq!(theirs.next().await.unwrap().unwrap().into_text().unwrap().as_str(), line);
        assert_eq!(theirs.next().await.unwrap().unwrap().into_text().unwrap().as_str(), "short");
    }

    #[tokio::test]
    async fn a_message_that_is_too_long_is_the_last() {
        use futures_util::SinkExt;
        use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let config = WebSocketConfig::default().max_message_size(Some(100));
        let ours = WebSocketStream::from_raw_socket(ours, Role::Client, Some(config)).await;
        let mut theirs = WebSocketStream::from_raw_socket(theirs, Role::Server, None).await;
        let mut transport = Transport::over_websocket(ours);
        theirs.send(Message::text("x".repeat(101))).await.unwrap();
        theirs.send(Message::text("more")).await.unwrap();
        assert!(matches!(transport.incoming.recv().await.unwrap()[..], [Came::TooLong]));
        assert!(transport.incoming.recv().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_does_not_read_is_left() {
        let (transport, mut theirs) = connected().await;
        for _ in 0..QUEUE {
            let _ = transport.outgoing.try_send("x".repeat(1024));
        }
        drop(transport);
        tokio::time::sleep(2 * GRACE).await;
        // What was under way is there, and then the end.
        let mut heard = 0;
        while let Some(Ok(message)) = theirs.next().await {
            assert!(message.is_text(), "it was left, not closed");
            heard += 1;
        }
        assert!(heard < QUEUE);
    }
}
