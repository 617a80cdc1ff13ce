//! Lines in, lines out, whatever is between.

use std::time::Duration;

use parlor_wire::{Frame, Lines};
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

/// How long the other side of a WebSocket may be silent.
#[cfg(feature = "websocket")]
const SILENCE: Duration = Duration::from_secs(60);

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
        Self::of(|reads| hear_messages(stream, reads), |lines| say_messages(sink, lines)).0
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
    let mut framing = Lines::default();
    let mut buffer = vec![0; CHUNK];
    loop {
        let count = read.read(&mut buffer).await.unwrap_or(0);
        if count == 0 {
            return;
        }
        framing.extend(&buffer[..count]);
        let mut all = Vec::new();
        while let Some(frame) = framing.next_frame() {
            all.push(match frame {
                Frame::Line(line) => Came::Line(line.to_owned()),
                Frame::TooLong { .. } => Came::TooLong,
                Frame::NotUtf8 { excerpt } => Came::NoLine(format!("no text: {excerpt}")),
                Frame::Blank => continue,
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

/// Reads messages until the other side ends or has been silent for too long.
#[cfg(feature = "websocket")]
async fn hear_messages<S>(mut stream: S, reads: mpsc::Sender<Vec<Came>>)
where
    S: futures_util::Stream<Item = Result<Message, tungstenite::Error>> + Unpin,
{
    use futures_util::StreamExt;

    while let Ok(Some(message)) = tokio::time::timeout(SILENCE, stream.next()).await {
        let came = match message {
            Ok(Message::Text(text)) => Came::Line(text.as_str().to_owned()),
            Ok(Message::Binary(_)) => Came::NoLine("a message of bytes".to_owned()),
            Ok(Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_)) => continue,
            Err(tungstenite::Error::Capacity(_)) => Came::TooLong,
            Err(_) => return,
        };
        if reads.send(vec![came]).await.is_err() {
            return;
        }
    }
}

/// Writes messages, and asks now and then whether the other side is there.
#[cfg(feature = "websocket")]
async fn say_messages<S>(mut sink: S, mut lines: mpsc::Receiver<String>)
where
    S: futures_util::Sink<Message, Error = tungstenite::Error> + Unpin,
{
    use futures_util::SinkExt;

    let mut ping = tokio::time::interval_at(tokio::time::Instant::now() + PING, PING);
    loop {
        let message = tokio::select! {
            line = lines.recv() => match line {
                Some(line) => Message::text(line),
                None => break,
            },
            _ = ping.tick() => Message::Ping(tungstenite::Bytes::new()),
        };
        if sink.send(message).await.is_err() {
            return;
        }
    }
    let _ = sink.close().await;
}

#[cfg(feature = "websocket")]
use tokio_tungstenite::tungstenite::{self, Message};

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
