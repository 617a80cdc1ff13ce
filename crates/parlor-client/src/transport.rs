//! Lines in, lines out, whatever is between.

use parlor_wire::{Frame, Lines};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

/// How many lines wait to be written.
const QUEUE: usize = 256;

/// How many times something was read that waits to be looked at.
const READS: usize = 16;

/// How much is read at once.
const CHUNK: usize = 64 << 10;

/// No more lines than this ask for anything in what is read at once: a line that does has more than 32 bytes.
pub(crate) const AT_ONCE: usize = CHUNK / 32;

/// The two directions of a connection, as lines without their ends. It is gone when `incoming` ends.
pub(crate) struct Transport {
    /// What was read at once.
    pub(crate) incoming: mpsc::Receiver<Vec<String>>,
    pub(crate) outgoing: mpsc::Sender<String>,
}

impl Transport {
    /// A connection over two streams of bytes. `guard` is dropped when all is over.
    pub(crate) fn over<R, W, G>(read: R, write: W, guard: G) -> Self
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
        G: Send + 'static,
    {
        let (sender, incoming) = mpsc::channel(READS);
        let (outgoing, lines) = mpsc::channel(QUEUE);
        tokio::spawn(read_lines(read, sender));
        tokio::spawn(async move {
            write_lines(write, lines).await;
            drop(guard);
        });
        Self { incoming, outgoing }
    }

    /// A connection over WebSocket messages.
    #[cfg(feature = "websocket")]
    pub(crate) fn over_websocket<S>(socket: tokio_tungstenite::WebSocketStream<S>) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        use futures_util::{SinkExt, StreamExt};
        use tokio_tungstenite::tungstenite::Message;

        let (mut sink, mut stream) = socket.split();
        let (sender, incoming) = mpsc::channel(READS);
        let (outgoing, mut lines) = mpsc::channel::<String>(QUEUE);
        tokio::spawn(async move {
            while let Some(Ok(message)) = stream.next().await {
                if let Message::Text(text) = message
                    && sender.send(vec![text.as_str().to_owned()]).await.is_err()
                {
                    return;
                }
            }
        });
        tokio::spawn(async move {
            while let Some(line) = lines.recv().await {
                if sink.send(Message::text(line)).await.is_err() {
                    return;
                }
            }
            let _ = sink.close().await;
        });
        Self { incoming, outgoing }
    }
}

async fn read_lines(mut read: impl AsyncRead + Unpin, reads: mpsc::Sender<Vec<String>>) {
    let mut framing = Lines::default();
    let mut buffer = vec![0; CHUNK];
    loop {
        let count = tokio::select! {
            count = read.read(&mut buffer) => count.unwrap_or(0),
            () = reads.closed() => return,
        };
        if count == 0 {
            return;
        }
        framing.extend(&buffer[..count]);
        let mut lines = Vec::new();
        while let Some(frame) = framing.next_frame() {
            // What is no line is nothing that anybody could look at.
            if let Frame::Line(line) = frame {
                lines.push(line.to_owned());
            }
        }
        if !lines.is_empty() && reads.send(lines).await.is_err() {
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
